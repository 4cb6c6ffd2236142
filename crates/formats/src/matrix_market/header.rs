//! The banner and the size line of a file.

use crate::index::MAX_INDEX;
use crate::text::lines::{Fault, Parsed, is_blank, line_at, shown, without_mark, words};
use crate::{Error, Result};

/// The object that a file describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// A matrix. A vector is a matrix with one column.
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

/// The kind of a file's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Field {
    /// Decimal numbers.
    #[default]
    Real,
    /// Whole numbers.
    Integer,
    /// Pairs of real and imaginary parts.
    Complex,
    /// No values: every entry is 1.
    Pattern,
}

/// The part of the matrix that a file lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symmetry {
    /// The whole matrix.
    #[default]
    General,
    /// The lower triangle; A = A^T.
    Symmetric,
    /// The strictly lower triangle; A = -A^T.
    SkewSymmetric,
    /// The lower triangle; A = A^H. For real values the same as symmetric.
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
    /// Number of entries that the file claims to list, before any expansion. For `array` it follows from the shape.
    pub entries: u64,
}

/// Maximum length in bytes of a header line, and of any line of a file that is streamed. Without such a bound, a device
/// that sends no line end would be read until memory is exhausted.
const LONGEST_LINE: usize = 1 << 20;

const BANNER: &[u8] = b"%%MatrixMarket";

/// Returns true if a file that begins with `bytes` has the banner, as far as these bytes show.
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    let text = without_mark(bytes);
    let text = &text[text.iter().take_while(|b| is_blank(**b)).count()..];
    let known = text.len().min(BANNER.len());
    let ended = text.get(BANNER.len()).is_none_or(|&b| is_blank(b) || b == b'\n');
    text[..known].eq_ignore_ascii_case(&BANNER[..known]) && ended
}

/// Refuses a stream as soon as it cannot be a Matrix Market file: the banner is missing, or a line has no end.
pub(crate) fn watch(name: &str, bytes: &[u8], from: usize) -> Result<()> {
    if from < LONGEST_LINE && !may_begin(bytes) {
        parse(name, bytes)?;
    }
    if bytes.len() > LONGEST_LINE {
        let tail = bytes.len() - LONGEST_LINE;
        if memchr::memrchr(b'\n', &bytes[tail..]).is_none() {
            let begin = memchr::memrchr(b'\n', &bytes[..tail]).map_or(0, |at| at + 1);
            return Err(too_long(begin).locate(name, bytes));
        }
    }
    Ok(())
}

fn too_long(at: usize) -> Box<Fault> {
    Fault::new(at, format!("a line of more than {LONGEST_LINE} bytes: this is no Matrix Market file"))
}

/// The header line that begins at `at`, and where the next one begins. Of a line that is too long, only the first
/// bytes.
fn header_line(bytes: &[u8], at: usize) -> (&[u8], usize) {
    line_at(&bytes[..bytes.len().min(at + LONGEST_LINE + 1)], at)
}

/// Parses the header of `bytes` and returns it with the byte at which the entries begin.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<(Header, usize)> {
    let fault = |f: Box<Fault>| f.locate(name, bytes);
    let (banner, mut at) = header_line(bytes, 0);
    let (object, format, field, symmetry) = parse_banner(banner).map_err(fault)?;
    if banner.len() > LONGEST_LINE {
        return Err(fault(too_long(0)));
    }
    let (begin, line) = loop {
        if at >= bytes.len() {
            return Err(fault(Fault::new(bytes.len(), "the file ends before its size line")));
        }
        let begin = at;
        let (line, next) = header_line(bytes, at);
        if line.len() > LONGEST_LINE {
            return Err(fault(too_long(begin)));
        }
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
        sizes[found] = whole(word).ok_or_else(|| {
            let why = match in_digits(word) {
                Some(digits) => format!("{} is not a size in digits: write {digits}", shown(word)),
                None => format!("{} is not a size below 2^64: {expected}", shown(word)),
            };
            fault(Fault::new(place, why))
        })?;
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

/// Position of the number of columns in the size line, which ends where the entries begin.
pub(super) fn place_of_columns(bytes: &[u8], entries: usize) -> usize {
    let line = bytes[..entries].trim_ascii_end();
    let begin = memchr::memrchr(b'\n', line).map_or(0, |at| at + 1);
    words(&line[begin..], begin).nth(1).map_or(begin, |(place, _)| place)
}

/// Parses a decimal number that fits 64 bits, with or without a `+`, as C's `scanf` does.
pub(super) fn whole(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &b| {
        if !b.is_ascii_digit() {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// The digits that `word` should have been, if it is a whole number in another notation (`1e3`, `2.0`).
pub(super) fn in_digits(word: &[u8]) -> Option<u64> {
    let (number, len) = fast_float2::parse_partial::<f64, _>(word).ok()?;
    // Above 2^53 the digits would be invented.
    let exact = number.fract() == 0.0 && (0.0..=9e15).contains(&number);
    (len == word.len() && exact && !word.iter().all(u8::is_ascii_digit)).then_some(number as u64)
}

fn parse_banner(line: &[u8]) -> Parsed<(Object, Layout, Field, Symmetry)> {
    const FORM: &str = "a file begins '%%MatrixMarket matrix coordinate|array real|integer|complex|pattern \
                        general|symmetric|skew-symmetric|hermitian'";
    let line = without_mark(line);
    let mut words = words(line, 0);
    let end = line.trim_ascii_end().len();
    let mut next =
        |what: &str| words.next().ok_or_else(|| Fault::new(end, format!("the banner ends before the {what}: {FORM}")));
    let (at, word) = next("word %%MatrixMarket")?;
    if !word.eq_ignore_ascii_case(BANNER) {
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
    /// The word in the banner.
    pub fn word(self) -> &'static str {
        match self {
            Self::Coordinate => "coordinate",
            Self::Array => "array",
        }
    }
}

impl Field {
    /// The word in the banner.
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
    /// The word in the banner.
    pub fn word(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Symmetric => "symmetric",
            Self::SkewSymmetric => "skew-symmetric",
            Self::Hermitian => "hermitian",
        }
    }
}
