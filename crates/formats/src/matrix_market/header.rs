//! The banner and the size line of a file.

use super::source::{Fault, shown};
use crate::index::MAX_INDEX;
use crate::{Error, Result};

/// What a file describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// A matrix (a vector is one with a single column).
    Matrix,
}

/// How a file lists its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `row column value`, one entry per line, indices from 1.
    Coordinate,
    /// Every value, column after column, one per line.
    Array,
}

/// What the values of a file are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Field {
    /// Decimal numbers.
    #[default]
    Real,
    /// Whole numbers.
    Integer,
    /// Pairs of real and imaginary part.
    Complex,
    /// No values: every entry is 1.
    Pattern,
}

/// Which part of the matrix a file lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symmetry {
    /// All of it.
    #[default]
    General,
    /// The lower triangle; A = A^T.
    Symmetric,
    /// The strictly lower triangle; A = -A^T.
    SkewSymmetric,
    /// The lower triangle; A = A^H, for real values the same as symmetric.
    Hermitian,
}

/// What a file says about itself before its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it describes.
    pub object: Object,
    /// How its entries are listed.
    pub format: Layout,
    /// What its values are.
    pub field: Field,
    /// Which part of the matrix it lists.
    pub symmetry: Symmetry,
    /// Rows of the matrix.
    pub nrows: usize,
    /// Columns of the matrix.
    pub ncols: usize,
    /// Entries that the file claims to list (`array`: that follow from the shape), before any expansion.
    pub entries: u64,
}

/// The words of a line and the byte of the file at which each begins.
pub(super) fn words(line: &[u8], base: usize) -> impl Iterator<Item = (usize, &[u8])> {
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

/// Whether `b` separates words inside a line; the CR of CRLF does.
pub(super) fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// The line that begins at `at` (without its LF) and where the next one begins.
pub(super) fn line_at(bytes: &[u8], at: usize) -> (&[u8], usize) {
    match memchr::memchr(b'\n', &bytes[at..]) {
        Some(len) => (&bytes[at..at + len], at + len + 1),
        None => (&bytes[at..], bytes.len()),
    }
}

/// The header of `bytes` and the byte at which its entries begin.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<(Header, usize)> {
    let fault = |f: Box<Fault>| f.locate(name, bytes);
    let (banner, mut at) = line_at(bytes, 0);
    let (object, format, field, symmetry) = parse_banner(banner).map_err(fault)?;
    let (begin, line) = loop {
        if at >= bytes.len() {
            return Err(fault(Fault::new(bytes.len(), "the file ends before its size line")));
        }
        let begin = at;
        let (line, next) = line_at(bytes, at);
        at = next;
        match words(line, begin).next() {
            Some((_, word)) if !word.starts_with(b"%") => break (begin, line),
            _ => {}
        }
    };
    let expected = match format {
        Layout::Coordinate => "the size line of a coordinate file is 'rows columns entries'",
        Layout::Array => "the size line of an array file is 'rows columns'",
    };
    let wanted = if format == Layout::Coordinate { 3 } else { 2 };
    let mut sizes = [0u64; 3];
    let mut places = [begin; 3];
    let mut found = 0;
    for (place, word) in words(line, begin) {
        if found == wanted {
            return Err(fault(Fault::new(place, format!("unexpected {}: {expected}", shown(word)))));
        }
        places[found] = place;
        sizes[found] = whole(word)
            .ok_or_else(|| fault(Fault::new(place, format!("{} is not a size below 2^64: {expected}", shown(word)))))?;
        found += 1;
    }
    if found < wanted {
        return Err(fault(Fault::new(begin + line.trim_ascii_end().len(), format!("{found} sizes: {expected}"))));
    }
    for (count, what, place) in [(sizes[0], "rows", places[0]), (sizes[1], "columns", places[1])] {
        if count > MAX_INDEX as u64 {
            let error = Error::TooLarge { what, count, limit: MAX_INDEX as u64 };
            return Err(fault(Fault::new(place, error.to_string())));
        }
    }
    if symmetry != Symmetry::General && sizes[0] != sizes[1] {
        let why = format!("{} x {}: only a square matrix can be {}", sizes[0], sizes[1], symmetry.word());
        return Err(fault(Fault::new(begin, why)));
    }
    let entries = match (format, symmetry) {
        (Layout::Coordinate, _) => sizes[2],
        (Layout::Array, Symmetry::General) => sizes[0] * sizes[1],
        (Layout::Array, Symmetry::SkewSymmetric) => sizes[0] * sizes[0].saturating_sub(1) / 2,
        (Layout::Array, _) => sizes[0] * (sizes[0] + 1) / 2,
    };
    let header =
        Header { object, format, field, symmetry, nrows: sizes[0] as usize, ncols: sizes[1] as usize, entries };
    Ok((header, at))
}

/// Where the number of columns stands in the size line, which ends where the entries begin.
pub(super) fn place_of_columns(bytes: &[u8], entries: usize) -> usize {
    let line = bytes[..entries].trim_ascii_end();
    let begin = memchr::memrchr(b'\n', line).map_or(0, |at| at + 1);
    words(&line[begin..], begin).nth(1).map_or(begin, |(place, _)| place)
}

/// A decimal number without sign that fits 64 bits.
pub(super) fn whole(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0u64, |sum, &b| {
        if !b.is_ascii_digit() {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

fn parse_banner(line: &[u8]) -> std::result::Result<(Object, Layout, Field, Symmetry), Box<Fault>> {
    const FORM: &str = "a file begins '%%MatrixMarket matrix coordinate|array real|integer|complex|pattern \
                        general|symmetric|skew-symmetric|hermitian'";
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let mut words = words(line, 0);
    let end = line.trim_ascii_end().len();
    let mut next =
        |what: &str| words.next().ok_or_else(|| Fault::new(end, format!("the banner ends before the {what}: {FORM}")));
    let (at, word) = next("word %%MatrixMarket")?;
    if !word.eq_ignore_ascii_case(b"%%MatrixMarket") {
        return Err(Fault::new(at, format!("no Matrix Market banner: {FORM}")));
    }
    let unknown = |at, what: &str, word: &[u8]| Fault::new(at, format!("unknown {what} {}: {FORM}", shown(word)));
    let (at, word) = next("object")?;
    if !word.eq_ignore_ascii_case(b"matrix") {
        return Err(unknown(at, "object", word));
    }
    let (at, word) = next("format")?;
    let format = match word.to_ascii_lowercase().as_slice() {
        b"coordinate" => Layout::Coordinate,
        b"array" => Layout::Array,
        _ => return Err(unknown(at, "format", word)),
    };
    let (at, word) = next("field")?;
    let field = match word.to_ascii_lowercase().as_slice() {
        b"real" | b"double" => Field::Real,
        b"integer" | b"unsigned-integer" => Field::Integer,
        b"complex" => Field::Complex,
        b"pattern" if format == Layout::Array => {
            return Err(Fault::new(at, "an array file lists values: it cannot be 'pattern'"));
        }
        b"pattern" => Field::Pattern,
        _ => return Err(unknown(at, "field", word)),
    };
    let (at, word) = next("symmetry")?;
    let symmetry = match word.to_ascii_lowercase().as_slice() {
        b"general" => Symmetry::General,
        b"symmetric" => Symmetry::Symmetric,
        b"skew-symmetric" => Symmetry::SkewSymmetric,
        b"hermitian" => Symmetry::Hermitian,
        _ => return Err(unknown(at, "symmetry", word)),
    };
    if field == Field::Pattern && symmetry == Symmetry::SkewSymmetric {
        return Err(Fault::new(at, "a pattern has no signs: it cannot be 'skew-symmetric'"));
    }
    if let Some((at, word)) = words.next() {
        return Err(Fault::new(at, format!("unexpected {} after the banner: {FORM}", shown(word))));
    }
    Ok((Object::Matrix, format, field, symmetry))
}

impl Layout {
    /// The banner's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Coordinate => "coordinate",
            Self::Array => "array",
        }
    }
}

impl Field {
    /// The banner's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Integer => "integer",
            Self::Complex => "complex",
            Self::Pattern => "pattern",
        }
    }
}

impl Symmetry {
    /// The banner's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Symmetric => "symmetric",
            Self::SkewSymmetric => "skew-symmetric",
            Self::Hermitian => "hermitian",
        }
    }
}
