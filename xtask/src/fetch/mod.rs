//! `cargo xtask fetch-matrices GROUP/NAME...`: matrices of the SuiteSparse Matrix Collection, into a folder that
//! `--matrices` takes.
//!
//! Layout: `DIR/NAME.mtx`, the matrix; `DIR/archives/GROUP/NAME.tar.gz`, its archive, which may also hold right-hand
//! sides or coordinates. A matrix with a correct archive is not fetched again.
//!
//! Reference: Davis, Hu, The University of Florida sparse matrix collection, 2011.

mod download;
mod error;
mod lock;
#[cfg(test)]
mod server;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};
use ureq::Agent;

use error::{Error, Result};
use lock::{Lock, Sum};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// GROUP/NAME, as on the collection's pages: HB/1138_bus
    #[arg(required = true)]
    names: Vec<String>,
    /// The folder [default: target/matrices]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// The file with the checksums of the first download [default: matrices.lock]
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,
    /// The collection, or a mirror of it
    #[arg(long, value_name = "URL", default_value = "https://sparse.tamu.edu")]
    from: String,
}

pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let into = options.into.clone().unwrap_or_else(|| root.join("target/matrices"));
    let lock = options.lock.clone().unwrap_or_else(|| root.join("matrices.lock"));
    let agent = agent(Agent::config_builder());
    let mut fetcher = Fetcher { agent, from: options.from.clone(), into, lock: Lock::read(&lock)? };
    let mut failed = 0;
    for name in &options.names {
        match fetcher.fetch(name) {
            Ok(done) => println!("{name}: {done}"),
            Err(error) => {
                failed += 1;
                eprintln!("error: {error}");
            }
        }
    }
    println!("{} fetched or there, {failed} failed; in {}", options.names.len() - failed, fetcher.into.display());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A client that returns every status, so that each becomes an error with its own text.
fn agent(config: ureq::config::ConfigBuilder<ureq::typestate::AgentScope>) -> Agent {
    config.http_status_as_error(false).build().into()
}

#[derive(Debug)]
pub(crate) struct Fetcher {
    agent: Agent,
    from: String,
    into: PathBuf,
    lock: Lock,
}

impl Fetcher {
    /// Downloads, checks and unpacks one matrix, as far as necessary. Returns what it did.
    pub(crate) fn fetch(&mut self, full: &str) -> Result<String> {
        let (group, name) = split(full)?;
        let matrix = self.into.join(format!("{name}.mtx"));
        if let Some(other) = self.owner(name).filter(|other| *other != full) {
            return Err(Error::Clash { name: full.to_owned(), path: matrix, other });
        }
        let folder = self.into.join("archives").join(group);
        fs::create_dir_all(&folder).map_err(Error::at(&folder))?;
        let archive = folder.join(format!("{name}.tar.gz"));

        let mut done = String::from("there already");
        if !archive.exists() {
            let url = format!("{}/MM/{group}/{name}.tar.gz", self.from.trim_end_matches('/'));
            let moved = download::download(&self.agent, &url, &archive)?;
            done = format!("{moved} bytes fetched");
        }
        let sum = sum(&archive)?;
        match self.lock.get(full) {
            Some(known) if *known != sum => {
                fs::remove_file(&archive).map_err(Error::at(&archive))?;
                let (found, expected) = (sum.sha256, known.sha256.clone());
                return Err(Error::Checksum { name: full.to_owned(), found, expected });
            }
            Some(_) => {}
            None => {
                // Only an archive that can be unpacked is locked.
                unpack(&archive, name, &matrix)?;
                self.lock.add(full, sum.clone())?;
                done += ", checksum recorded";
            }
        }
        if !matrix.exists() {
            unpack(&archive, name, &matrix)?;
        }
        Ok(format!("{done}, sha256 {}", sum.sha256))
    }

    /// The full name of the archive that contains `NAME.mtx`.
    fn owner(&self, name: &str) -> Option<String> {
        let groups = fs::read_dir(self.into.join("archives")).ok()?;
        let has = |entry: fs::DirEntry| {
            let there = entry.path().join(format!("{name}.tar.gz")).exists();
            there.then(|| format!("{}/{name}", entry.file_name().to_string_lossy()))
        };
        groups.flatten().find_map(has)
    }
}

/// Group and name, with only the characters that the collection uses, so that nothing leads out of a folder.
fn split(full: &str) -> Result<(&str, &str)> {
    let fits = |part: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"_-+.".contains(&b);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(known)
    };
    full.split_once('/').filter(|(group, name)| fits(group) && fits(name)).ok_or_else(|| Error::Name(full.to_owned()))
}

fn sum(file: &Path) -> Result<Sum> {
    let mut reader = File::open(file).map_err(Error::at(file))?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        let count = reader.read(&mut buffer).map_err(Error::at(file))?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Sum { sha256, bytes })
}

/// Writes `NAME/NAME.mtx` of an archive to `matrix`, and nothing else. An unreadable archive is deleted.
fn unpack(archive: &Path, name: &str, matrix: &Path) -> Result<()> {
    let beside = matrix.with_extension("mtx.part");
    let unpacked = extract(archive, name, &beside);
    if unpacked.is_err() && beside.exists() {
        fs::remove_file(&beside).map_err(Error::at(&beside))?;
    }
    if let Err(Error::Archive { .. }) = unpacked {
        fs::remove_file(archive).map_err(Error::at(archive))?;
    }
    unpacked?;
    fs::rename(&beside, matrix).map_err(Error::at(matrix))
}

fn extract(archive: &Path, name: &str, out: &Path) -> Result<()> {
    let bad = |why: String| Error::Archive { path: archive.to_owned(), why };
    let file = BufReader::new(File::open(archive).map_err(Error::at(archive))?);
    let mut entries = tar::Archive::new(MultiGzDecoder::new(file));
    let wanted = Path::new(name).join(format!("{name}.mtx"));
    for entry in entries.entries().map_err(|error| bad(error.to_string()))? {
        let mut entry = entry.map_err(|error| bad(error.to_string()))?;
        let is_wanted = entry.header().entry_type().is_file() && entry.path().is_ok_and(|path| path == wanted);
        if is_wanted {
            let mut file = File::create(out).map_err(Error::at(out))?;
            // A failed read is the archive's fault, a failed write is not.
            let mut buffer = vec![0; 1 << 16];
            loop {
                let count = entry.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
                if count == 0 {
                    return file.sync_all().map_err(Error::at(out));
                }
                io::Write::write_all(&mut file, &buffer[..count]).map_err(Error::at(out))?;
            }
        }
    }
    Err(bad(format!("it has no file {}", wanted.display())))
}
