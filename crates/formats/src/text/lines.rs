//! Lines and words of a file, and places in it.

use crate::Error;

/// What is wrong, and at which byte. It is boxed in results, so that the path without an error stays narrow.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) why: String,
}

/// The result of a parser of a part of a file.
pub(crate) type Parsed<T> = std::result::Result<T, Box<Fault>>;

impl Fault {
    #[cold]
    pub(crate) fn new(at: usize, why: impl Into<String>) -> Box<Self> {
        Box::new(Self { at, why: why.into() })
    }

    /// Makes the error of the crate. Lines are counted only here, so that reading a good file counts none.
    #[cold]
    pub(crate) fn locate(self, name: &str, bytes: &[u8]) -> Error {
        let (line, column) = line_and_column(bytes, self.at);
        Error::Parse { file: name.to_owned(), line, column, why: self.why }
    }
}

/// Returns the line and column of a byte of a file, counted from 1.
#[cold]
pub(crate) fn line_and_column(bytes: &[u8], at: usize) -> (u64, u64) {
    let before = &bytes[..at.min(bytes.len())];
    let line = memchr::memchr_iter(b'\n', before).count() as u64 + 1;
    let begin = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
    (line, (before.len() - begin) as u64 + 1)
}

/// Formats a token for a message: printable and short, whatever the file holds.
pub(crate) fn shown(token: &[u8]) -> String {
    const LONGEST: usize = 32;
    let text = token[..token.len().min(LONGEST)].escape_ascii();
    if token.len() > LONGEST { format!("'{text}...'") } else { format!("'{text}'") }
}

/// The words of a line, each with the byte of the file at which it begins.
pub(crate) fn words(line: &[u8], base: usize) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < line.len() && is_blank(line[at]) {
            at += 1;
        }
        let begin = at;
        while at < line.len() && !is_blank(line[at]) {
            at += 1;
        }
        (begin < at).then(|| (base + begin, &line[begin..at]))
    })
}

/// Returns true if `b` separates words inside a line; the CR of CRLF does.
pub(crate) fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// The line that begins at `at` (without its LF) and where the next one begins.
pub(crate) fn line_at(bytes: &[u8], at: usize) -> (&[u8], usize) {
    match memchr::memchr(b'\n', &bytes[at..]) {
        Some(len) => (&bytes[at..at + len], at + len + 1),
        None => (&bytes[at..], bytes.len()),
    }
}

/// Returns `bytes` without the byte order mark that some editors write.
pub(crate) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Cuts `begin..bytes.len()` after line ends into pieces, one per task.
pub(crate) fn cut(bytes: &[u8], begin: usize) -> Vec<std::ops::Range<usize>> {
    let target = piece_bytes(bytes.len() - begin);
    let mut pieces = Vec::with_capacity((bytes.len() - begin) / target + 1);
    let mut at = begin;
    while at < bytes.len() {
        let end = match bytes.get(at + target - 1..) {
            Some(rest) if !rest.is_empty() => memchr::memchr(b'\n', rest).map_or(bytes.len(), |len| at + target + len),
            _ => bytes.len(),
        };
        pieces.push(at..end);
        at = end;
    }
    pieces
}

/// Number of bytes that one task parses: few enough that its entries are still in cache for the next step.
fn piece_bytes(bytes: usize) -> usize {
    const PIECE: usize = 1 << 20;
    (bytes / (4 * rayon::current_num_threads()) + 1).clamp(1 << 14, PIECE)
}

/// Where the next line begins, if only blanks remain on this one.
#[inline(always)]
pub(crate) fn quick_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match text.get(at) {
            Some(b'\n') => return Some(at + 1),
            Some(b' ' | b'\t' | b'\r') => at += 1,
            Some(_) => return None,
            None => return Some(at),
        }
    }
}
