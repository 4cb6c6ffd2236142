//! The lock file: one line `GROUP/NAME SHA256 BYTES` per matrix, sorted. Later downloads must equal the first.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    sums: BTreeMap<String, Sum>,
}

impl Lock {
    /// Reads the file; empty if it is missing.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::at(path)(error)),
        };
        let mut sums = BTreeMap::new();
        for (k, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || Error::Lock { path: path.to_owned(), line: k + 1 };
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, sha256, bytes] = words[..] else { return Err(wrong()) };
            if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            let bytes = bytes.parse().map_err(|_| wrong())?;
            sums.insert(name.to_owned(), Sum { sha256: sha256.to_owned(), bytes });
        }
        Ok(Self { path: path.to_owned(), sums })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Sum> {
        self.sums.get(name)
    }

    /// Adds a line. Writes a new file beside the old one and moves it there.
    pub(crate) fn add(&mut self, name: &str, sum: Sum) -> Result<()> {
        self.sums.insert(name.to_owned(), sum);
        let mut text = String::from(
            "# Archives of the SuiteSparse Matrix Collection as they were first fetched: `cargo xtask fetch-matrices`.\n",
        );
        for (name, sum) in &self.sums {
            text += &format!("{name} {} {}\n", sum.sha256, sum.bytes);
        }
        let beside = self.path.with_extension("lock.part");
        fs::write(&beside, text).map_err(Error::at(&beside))?;
        fs::rename(&beside, &self.path).map_err(Error::at(&self.path))
    }
}
