//! Where the bytes of a file come from: a memory map, a pipe, or a gzip stream; and places in them.
//!
//! Cost: a plain file is mapped and never copied; gzip and pipes are read to memory.

use crate::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The bytes of one file and the name that errors call it by.
pub(super) struct Source {
    pub(super) name: String,
    bytes: Bytes,
}

enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

/// The first two bytes of every gzip member (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

impl Source {
    /// Opens `path`; gzip is unpacked by its first bytes or the extension `.gz`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let io = |source| Error::Io { file: name.clone(), source };
        let mut file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if meta.is_dir() {
            return Err(io(std::io::Error::new(std::io::ErrorKind::IsADirectory, "is a directory, not a file")));
        }
        let bytes = if meta.is_file() && meta.len() > 0 {
            // SAFETY: the map is read-only and private to this call. A file that another process shortens meanwhile is
            // outside what any reader of maps can promise; the documentation of `read_csr` says so.
            Bytes::Mapped(unsafe { memmap2::Mmap::map(&file) }.map_err(io)?)
        } else {
            let mut owned = Vec::new();
            file.read_to_end(&mut owned).map_err(io)?;
            Bytes::Owned(owned)
        };
        let packed = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        Self { name, bytes }.unpacked(packed)
    }

    /// Reads `reader` to its end; gzip is unpacked by its first bytes.
    pub(super) fn read(name: &str, mut reader: impl Read) -> Result<Self> {
        let mut owned = Vec::new();
        reader.read_to_end(&mut owned).map_err(|source| Error::Io { file: name.to_owned(), source })?;
        Self { name: name.to_owned(), bytes: Bytes::Owned(owned) }.unpacked(false)
    }

    fn unpacked(self, packed: bool) -> Result<Self> {
        if !packed && !self.bytes().starts_with(&GZIP) {
            return Ok(self);
        }
        let owned = gunzip(&self.name, self.bytes())?;
        Ok(Self { name: self.name, bytes: Bytes::Owned(owned) })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(owned) => owned,
        }
    }
}

/// `bytes` unpacked where they begin like gzip, else as they are.
pub(super) fn plain<'a>(name: &str, bytes: &'a [u8]) -> Result<std::borrow::Cow<'a, [u8]>> {
    if bytes.starts_with(&GZIP) { gunzip(name, bytes).map(Into::into) } else { Ok(bytes.into()) }
}

fn gunzip(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut owned = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes)
        .read_to_end(&mut owned)
        .map_err(|source| Error::Io { file: name.to_owned(), source })?;
    Ok(owned)
}

/// What is wrong, and at which byte. Boxed where it travels: the path without an error stays narrow.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) why: String,
}

impl Fault {
    #[cold]
    pub(super) fn new(at: usize, why: impl Into<String>) -> Box<Self> {
        Box::new(Self { at, why: why.into() })
    }

    /// The error of the crate: lines are counted only now, so that reading a good file counts none.
    #[cold]
    pub(super) fn locate(self, name: &str, bytes: &[u8]) -> Error {
        let before = &bytes[..self.at.min(bytes.len())];
        let line = memchr::memchr_iter(b'\n', before).count() as u64 + 1;
        let begin = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        Error::Parse { file: name.to_owned(), line, column: (before.len() - begin) as u64 + 1, why: self.why }
    }
}

/// A token for a message: printable, and short whatever the file holds.
pub(super) fn shown(token: &[u8]) -> String {
    const LONGEST: usize = 32;
    let text = token[..token.len().min(LONGEST)].escape_ascii();
    if token.len() > LONGEST { format!("'{text}...'") } else { format!("'{text}'") }
}
