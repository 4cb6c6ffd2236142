//! NumPy's `.npy`, versions 1 and 2, of real floating-point numbers.
//!
//! Layout: the magic bytes, two bytes of version, the header's length (2 bytes; 4 in version 2), the header (a Python
//! dictionary in ASCII with `descr`, `fortran_order` and `shape`), the elements. Only little-endian files are read.
//!
//! This is our own parser for three keys, because the crates for this format bring a parser of Python literals and big
//! integers with them.
//! Reference: numpy.lib.format, NumPy 2.

use crate::index::checked;
use crate::text::lines::{Fault, Parsed, shown};
use crate::text::numbers::limit;
use crate::{Dense, Error, Format, Real, Result};

/// The first bytes of every `.npy` file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum length of a header in bytes; that of a plain array has about 120.
const LONGEST_HEADER: usize = 1 << 16;

/// The contents of the header, and where the elements begin.
struct Header {
    /// Bytes of an element, 4 or 8.
    size: usize,
    /// Whether the elements are stored by columns instead of by rows.
    by_columns: bool,
    nrows: usize,
    ncols: usize,
    begin: usize,
    /// Bytes of the whole file.
    total: usize,
}

/// Refuses a stream that continues after its last element, or that has a wrong header.
pub(super) fn watch(name: &str, bytes: &[u8]) -> Result<()> {
    header(bytes).and_then(|header| header.map_or(Ok(()), |header| header.ends(bytes))).map_err(located(name))
}

pub(super) fn parse<T: Real>(name: &str, bytes: &[u8]) -> Result<Dense<T>> {
    let header = header(bytes)
        .and_then(|header| header.ok_or_else(|| Fault::new(bytes.len(), "the file ends inside its header")))
        .map_err(located(name))?;
    header.ends(bytes).map_err(located(name))?;
    if bytes.len() < header.total {
        let (found, elements) = ((bytes.len() - header.begin) / header.size, header.nrows * header.ncols);
        let why = format!("the file ends after {found} of {elements} elements");
        return Err(located(name)(Fault::new(bytes.len(), why)));
    }
    let elements = bytes[header.begin..].chunks_exact(header.size);
    let mut values: Vec<T> = Vec::new();
    values.try_reserve_exact(elements.len()).map_err(|_| Error::OutOfMemory {
        what: "the elements of a .npy file",
        bytes: (elements.len() * T::BYTES) as u64,
    })?;
    for (at, element) in elements.enumerate() {
        let wide = match element.try_into() {
            Ok(eight) => f64::from_le_bytes(eight),
            Err(_) => f64::from(f32::from_le_bytes([element[0], element[1], element[2], element[3]])),
        };
        let value = T::from_f64(wide);
        if value.is_infinite() && wide.is_finite() {
            let why = format!("value {wide:e} is too large for {}", limit::<T>());
            return Err(located(name)(Fault::new(header.begin + at * header.size, why)));
        }
        values.push(value);
    }
    if header.by_columns || header.ncols == 1 || header.nrows == 1 {
        return Dense::new(header.nrows, header.ncols, values);
    }
    Format::transpose(&Dense::new(header.ncols, header.nrows, values)?)
}

fn located(name: &str) -> impl FnOnce(Box<Fault>) -> Error {
    move |fault| Error::Binary { file: name.to_owned(), at: fault.at as u64, why: fault.why }
}

impl Header {
    /// Checks that nothing follows the last element.
    fn ends(&self, bytes: &[u8]) -> Parsed<()> {
        if bytes.len() > self.total {
            return Err(Fault::new(self.total, "more data behind the last element that the header declares"));
        }
        Ok(())
    }
}

/// Parses the header of `bytes`; `None` while it is incomplete.
fn header(bytes: &[u8]) -> Parsed<Option<Header>> {
    let Some(&[major, minor]) = bytes.get(MAGIC.len()..MAGIC.len() + 2) else { return Ok(None) };
    let at = MAGIC.len() + 2;
    let (length, text) = match (major, minor, &bytes[at..]) {
        (1, 0, [a, b, ..]) => (usize::from(u16::from_le_bytes([*a, *b])), at + 2),
        (2, 0, [a, b, c, d, ..]) => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, at + 4),
        (1 | 2, 0, _) => return Ok(None),
        _ => {
            let why =
                format!("version {major}.{minor} of .npy: save an array of float64 or float32, that is version 1");
            return Err(Fault::new(MAGIC.len(), why));
        }
    };
    if length > LONGEST_HEADER {
        return Err(Fault::new(at, format!("a header of {length} bytes: that of an array of numbers is shorter")));
    }
    let Some(dictionary) = bytes.get(text..text + length) else { return Ok(None) };
    let entries = Dictionary { text: dictionary, at: 0, base: text }.parse()?;
    let (nrows, ncols) = entries.shape;
    for (count, what) in [(nrows, "rows"), (ncols, "columns")] {
        checked(count, what).map_err(|error| Fault::new(text, error.to_string()))?;
    }
    let begin = text + length;
    // Both are below 2^31.
    let total = (nrows * ncols)
        .checked_mul(entries.size)
        .and_then(|bytes| bytes.checked_add(begin))
        .ok_or_else(|| Fault::new(text, format!("an array of {nrows} x {ncols} elements fits no memory")))?;
    Ok(Some(Header { size: entries.size, by_columns: entries.by_columns, nrows, ncols, begin, total }))
}

/// The three entries of the header.
struct Entries {
    size: usize,
    by_columns: bool,
    shape: (usize, usize),
}

/// The header's text, read from `at` on; `base` is its position in the file.
struct Dictionary<'a> {
    text: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Dictionary<'a> {
    fn wrong(&self, at: usize, why: impl Into<String>) -> Box<Fault> {
        Fault::new(self.base + at, why)
    }

    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    /// Skips blanks and takes `token` if it follows.
    fn eats(&mut self, token: &[u8]) -> bool {
        self.at += self.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eats(token.as_bytes()) {
            return Ok(());
        }
        Err(self.wrong(self.at, format!("expected {token} in the header")))
    }

    /// Parses a string in single or double quotes, without escapes.
    fn string(&mut self) -> Parsed<&'a [u8]> {
        let quote = if self.eats(b"'") {
            b'\''
        } else if self.eats(b"\"") {
            b'"'
        } else {
            return Err(self.wrong(self.at, "expected a word in quotes in the header"));
        };
        let text = self.rest();
        let end = memchr::memchr(quote, text)
            .ok_or_else(|| self.wrong(self.at, "a word in the header has no closing quote"))?;
        self.at += end + 1;
        Ok(&text[..end])
    }

    fn size(&mut self) -> Parsed<usize> {
        let len = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        let digits = &self.rest()[..len];
        let size = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let size = size.ok_or_else(|| self.wrong(self.at, "expected a size in the header"))?;
        self.at += len;
        Ok(size)
    }

    fn parse(mut self) -> Parsed<Entries> {
        let (mut size, mut by_columns, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.eats(b"}") {
            let at = self.at;
            let key = self.string()?;
            self.expect(":")?;
            let twice = match key {
                b"descr" => size.replace(self.element()?).is_some(),
                b"fortran_order" if self.eats(b"True") => by_columns.replace(true).is_some(),
                b"fortran_order" => {
                    self.expect("False")?;
                    by_columns.replace(false).is_some()
                }
                b"shape" => shape.replace(self.shape()?).is_some(),
                _ => return Err(self.wrong(at, format!("unknown key {} in the header", shown(key)))),
            };
            if twice {
                return Err(self.wrong(at, format!("{} stands twice in the header", shown(key))));
            }
            if !self.eats(b",") {
                self.expect("}")?;
                break;
            }
        }
        self.at += self.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
        if !self.rest().is_empty() {
            return Err(self.wrong(self.at, "more text behind the header's dictionary"));
        }
        match (size, by_columns, shape) {
            (Some(size), Some(by_columns), Some(shape)) => Ok(Entries { size, by_columns, shape }),
            _ => Err(self.wrong(0, "the header lacks one of descr, fortran_order and shape")),
        }
    }

    /// Parses the type and returns the bytes per element.
    fn element(&mut self) -> Parsed<usize> {
        let at = self.at;
        if self.eats(b"[") {
            return Err(self.wrong(at, "records with fields: save one field, as float64"));
        }
        match self.string()? {
            b"<f8" => Ok(8),
            b"<f4" => Ok(4),
            other => {
                let why = format!("elements of type {}: convert them with .astype('<f8') first", shown(other));
                Err(self.wrong(at, why))
            }
        }
    }

    /// Parses `(n,)` or `(n, k)`.
    fn shape(&mut self) -> Parsed<(usize, usize)> {
        let at = self.at;
        let mut extents = Vec::new();
        self.expect("(")?;
        while !self.eats(b")") {
            extents.push(self.size()?);
            if !self.eats(b",") {
                self.expect(")")?;
                break;
            }
        }
        match extents[..] {
            [n] => Ok((n, 1)),
            [n, k] => Ok((n, k)),
            _ => {
                let why = format!("an array of {} dimensions: save one with 1 or 2", extents.len());
                Err(self.wrong(at, why))
            }
        }
    }
}
