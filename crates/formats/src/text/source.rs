//! The source of a file's bytes: a memory map, a pipe or device, or a gzip stream.
//!
//! Cost: a plain file is mapped and never copied. Gzip, pipes and devices are read to memory and watched from the first
//! bytes on: a device that sends zeros forever is refused before memory is exhausted.

use super::gzip::{MAGIC, Members};
use crate::{Error, Result};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// Refuses data that cannot become a file of the wanted kind. `watch(name, bytes, from)` sees all bytes that have
/// arrived; those from `from` on are new.
pub(crate) type Watch = fn(&str, &[u8], usize) -> Result<()>;

/// Number of bytes to look at before more are read; more than are needed to recognise any kind.
pub(crate) const FIRST: usize = 64;
/// Maximum number of bytes between two looks.
const CHUNK: usize = 1 << 20;

/// The bytes of one file, and the name that errors use for it.
pub(crate) struct Source {
    pub(crate) name: String,
    bytes: Bytes,
}

enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Source {
    /// Opens `path`. Gzip is recognised by its first bytes or the extension `.gz`, and unpacked.
    pub(crate) fn open(path: &Path, watch: Watch) -> Result<Self> {
        let name = path.display().to_string();
        let io = |source| Error::Io { file: name.clone(), source };
        let file = File::open(path).map_err(io)?;
        let meta = file.metadata().map_err(io)?;
        if meta.is_dir() {
            return Err(io(std::io::Error::new(std::io::ErrorKind::IsADirectory, "is a directory, not a file")));
        }
        let packed = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"));
        if !meta.is_file() || meta.len() == 0 {
            return Self::stream(name, file, packed, watch);
        }
        // SAFETY: the map is read-only and private to this call. A file that another process shortens meanwhile is
        // outside what any reader of maps can promise; the documentation of `read_csr` says so.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        if packed || map.starts_with(&MAGIC) {
            let owned = drain(&name, Members::new(&map[..]), watch)?;
            return Ok(Self { name, bytes: Bytes::Owned(owned) });
        }
        Ok(Self { name, bytes: Bytes::Mapped(map) })
    }

    /// Reads `reader` to its end. Gzip is recognised by its first bytes and unpacked.
    pub(crate) fn read(name: &str, reader: impl Read, watch: Watch) -> Result<Self> {
        Self::stream(name.to_owned(), reader, false, watch)
    }

    fn stream(name: String, mut reader: impl Read, packed: bool, watch: Watch) -> Result<Self> {
        let mut head = Vec::with_capacity(MAGIC.len());
        let taken = reader.by_ref().take(MAGIC.len() as u64).read_to_end(&mut head);
        taken.map_err(|source| Error::Io { file: name.clone(), source })?;
        let packed = packed || head == MAGIC;
        let all = Cursor::new(head).chain(reader);
        let owned = if packed {
            drain(&name, Members::new(BufReader::with_capacity(1 << 16, all)), watch)?
        } else {
            drain(&name, all, watch)?
        };
        Ok(Self { name, bytes: Bytes::Owned(owned) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(owned) => owned,
        }
    }
}

/// Returns `bytes` unpacked if they begin like gzip, otherwise as they are.
pub(crate) fn plain<'a>(name: &str, bytes: &'a [u8], watch: Watch) -> Result<Cow<'a, [u8]>> {
    if bytes.starts_with(&MAGIC) { drain(name, Members::new(bytes), watch).map(Into::into) } else { Ok(bytes.into()) }
}

/// Reads all that `input` gives, as long as `watch` agrees.
fn drain(name: &str, mut input: impl Read, watch: Watch) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = FIRST;
    loop {
        let from = bytes.len();
        bytes
            .try_reserve(chunk)
            .map_err(|_| Error::OutOfMemory { what: "the contents of a file", bytes: (from + chunk) as u64 })?;
        let taken = input.by_ref().take(chunk as u64).read_to_end(&mut bytes);
        if taken.map_err(|source| Error::Io { file: name.to_owned(), source })? == 0 {
            return Ok(bytes);
        }
        watch(name, &bytes, from)?;
        chunk = (chunk * 16).min(CHUNK);
    }
}
