//! The errors between the collection and a matrix, each with what to do.

use std::io;
use std::path::PathBuf;

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{0}` is no name of the collection: write GROUP/NAME, e.g. HB/1138_bus")]
    Name(String),
    #[error("{url}: cannot be reached ({why}); is there a network, does a proxy stand in the way?")]
    Unreachable { url: String, why: String },
    #[error("{url}: the collection has no such matrix; its group and name stand on its page, sparse.tamu.edu")]
    NotThere { url: String },
    #[error("{url}: the server answers {status}; try again later")]
    Status { url: String, status: u16 },
    #[error(
        "{url}: ended after {found} of {expected} bytes, {attempts} times; what came is kept, so the same command goes on from there"
    )]
    Truncated { url: String, found: u64, expected: u64, attempts: u32 },
    #[error("{url}: the server goes on at byte {found} where byte {expected} was asked for; delete {} and try again", part.display())]
    Range { url: String, found: String, expected: u64, part: PathBuf },
    #[error(
        "{name}: the archive's sha256 is {found}, the lock file has {expected}; either the collection changed it (delete the line from the \
         lock file to take the new one) or it was spoilt on the way (try again). It was not unpacked"
    )]
    Checksum { name: String, found: String, expected: String },
    #[error("{}: line {line} is not `GROUP/NAME SHA256 BYTES`; mend or delete it", path.display())]
    Lock { path: PathBuf, line: usize },
    #[error("{}: is no archive of the collection ({why}); it was deleted, try again", path.display())]
    Archive { path: PathBuf, why: String },
    #[error("{name}: {} is there already, from {other}; move it away, or fetch into another folder (--into)", path.display())]
    Clash { name: String, path: PathBuf, other: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Error {
    /// For `map_err`: an error of the file system at `path`.
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Error::Io { path, source }
    }
}
