//! The matrices: generator specifications and Matrix Market files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use spandrel_formats::{Csr, Real, generate, matrix_market};

/// A named matrix.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in records.
    pub name: String,
    /// The file, or `None` for a generator's specification, which is the name.
    pub path: Option<PathBuf>,
}

impl Case {
    /// From a command line word: a generator's specification or a path.
    pub fn parse(word: &str) -> Self {
        if generate::is_spec(word) {
            return Self { name: word.to_owned(), path: None };
        }
        let name = Path::new(word).file_name().map_or(word.to_owned(), |f| f.to_string_lossy().into_owned());
        let name = name.trim_end_matches(".gz").trim_end_matches(".mtx").to_owned();
        Self { name, path: Some(word.into()) }
    }

    /// The matrix itself.
    pub fn load<T: Real>(&self) -> Result<Csr<T>> {
        Ok(match &self.path {
            None => generate::csr(&self.name)?,
            Some(path) => matrix_market::read_csr(path)?,
        })
    }
}

/// All `.mtx` and `.mtx.gz` files of a folder, by name.
pub fn folder(dir: &Path) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry?.path();
        let name = path.to_string_lossy().into_owned();
        if name.ends_with(".mtx") || name.ends_with(".mtx.gz") {
            cases.push(Case::parse(&name));
        }
    }
    if cases.is_empty() {
        bail!("{}: no .mtx or .mtx.gz file in it", dir.display());
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}
