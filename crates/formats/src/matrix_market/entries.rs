//! The lines after the header, cut at line ends and parsed in parallel.
//!
//! Two parsers share the work. The quick one knows only the common shape of a line (digits, blank, digits, blank,
//! number) and gives up at anything else. The careful one then reads the line word by word, accepts everything legal
//! and says what is wrong with the rest. So the quick one needs no messages, and the careful one need not be fast.

use super::header::{Field, Header, Layout, Symmetry, in_digits, whole};
use crate::text::lines::{Fault, Parsed, cut, is_blank, line_at, quick_end, shown, words};
use crate::text::numbers::{quick_number, quick_value, value};
use crate::{Ordinal, Real};
use rayon::prelude::*;
use std::ops::Range;

/// Entries of one piece of a coordinate file, in file order, with indices from 0.
pub(super) struct Piece<T> {
    pub(super) rows: Vec<Ordinal>,
    pub(super) cols: Vec<Ordinal>,
    pub(super) values: Vec<T>,
    /// Whether every entry comes after the one before it in row-major order.
    pub(super) row_major: bool,
    /// Entries of a symmetric file that lie above the diagonal and were mirrored, as index in this piece and byte in
    /// the file.
    pub(super) mirrored: Vec<(usize, usize)>,
}

/// Parses the entries of a coordinate file whose lines begin at `begin`, as many as `header` declares.
pub(super) fn coordinate<T: Real>(bytes: &[u8], begin: usize, header: &Header) -> Parsed<Vec<Piece<T>>> {
    let pieces = lines(bytes, begin..bytes.len(), header)?;
    count(bytes, begin, header, pieces.iter().map(|p| p.values.len()).sum())?;
    one_half(header, &pieces)?;
    Ok(pieces)
}

/// Parses the entries in the lines of a part of a coordinate file, in pieces.
pub(super) fn lines<T: Real>(bytes: &[u8], part: Range<usize>, header: &Header) -> Parsed<Vec<Piece<T>>> {
    let parse = |range| match header.field {
        Field::Real => coordinate_piece::<T, REAL>(bytes, range, header),
        Field::Integer => coordinate_piece::<T, INTEGER>(bytes, range, header),
        Field::Complex => coordinate_piece::<T, COMPLEX>(bytes, range, header),
        Field::Pattern => coordinate_piece::<T, PATTERN>(bytes, range, header),
    };
    let pieces: Vec<_> = cut(&bytes[..part.end], part.start).into_par_iter().map(parse).collect();
    pieces.into_iter().collect()
}

/// The fault of a symmetric file that lists a position both above (at byte `at`) and below the diagonal.
pub(super) fn both_halves(header: &Header, at: usize, (row, col): (Ordinal, Ordinal)) -> Box<Fault> {
    let (row, col, word) = (row + 1, col + 1, header.symmetry.word());
    let why = format!(
        "entry ({col}, {row}) lies above the diagonal and ({row}, {col}) is in the file too: a {word} file lists only one of the two"
    );
    Fault::new(at, why)
}

/// Refuses a symmetric file that lists the same position both above and below the diagonal.
fn one_half<T>(header: &Header, pieces: &[Piece<T>]) -> Parsed<()> {
    if pieces.iter().all(|piece| piece.mirrored.is_empty()) {
        return Ok(());
    }
    let mut above = std::collections::HashMap::new();
    for piece in pieces {
        for &(k, at) in &piece.mirrored {
            above.entry((piece.rows[k], piece.cols[k])).or_insert(at);
        }
    }
    // Report the first one in the file, no matter which thread read it.
    let mut first: Option<(usize, (Ordinal, Ordinal))> = None;
    for piece in pieces {
        let mut mirrored = piece.mirrored.iter().map(|&(k, _)| k).peekable();
        for (k, place) in piece.rows.iter().copied().zip(piece.cols.iter().copied()).enumerate() {
            if mirrored.next_if_eq(&k).is_some() {
                continue;
            }
            if let Some(&at) = above.get(&place)
                && first.is_none_or(|(least, _)| at < least)
            {
                first = Some((at, place));
            }
        }
    }
    match first {
        None => Ok(()),
        Some((at, place)) => Err(both_halves(header, at, place)),
    }
}

/// Parses the values of an array file, in file order.
pub(super) fn array<T: Real>(bytes: &[u8], begin: usize, header: &Header) -> Parsed<Vec<T>> {
    let pieces: Vec<_> =
        cut(bytes, begin).into_par_iter().map(|range| array_piece::<T>(bytes, range, header)).collect();
    let pieces = pieces.into_iter().collect::<Parsed<Vec<_>>>()?;
    count(bytes, begin, header, pieces.iter().map(Vec::len).sum())?;
    Ok(pieces.concat())
}

/// Checks that there are as many entries as declared. Otherwise says where the first surplus entry is, or that the file
/// ends too early.
pub(super) fn count(bytes: &[u8], begin: usize, header: &Header, found: usize) -> Parsed<()> {
    let declared = header.entries;
    let what = match (header.format, found) {
        (Layout::Array, 1) => "value",
        (Layout::Array, _) => "values",
        (_, 1) => "entry",
        (_, _) => "entries",
    };
    if (found as u64) < declared {
        let why = format!("the file ends after {found} {what}, its size line declares {declared}");
        return Err(Fault::new(bytes.len(), why));
    }
    if found as u64 > declared {
        let why = format!("{found} {what} found, the size line declares {declared}");
        let (mut at, mut left) = (begin, declared);
        while at < bytes.len() {
            let (line, next) = line_at(bytes, at);
            if let Some((place, _)) = words(line, at).next().filter(|(_, word)| !word.starts_with(b"%")) {
                if left == 0 {
                    return Err(Fault::new(place, why));
                }
                left -= 1;
            }
            at = next;
        }
        return Err(Fault::new(bytes.len(), why));
    }
    Ok(())
}

pub(super) const REAL: u8 = 0;
pub(super) const INTEGER: u8 = 1;
const COMPLEX: u8 = 2;
pub(super) const PATTERN: u8 = 3;

fn coordinate_piece<T: Real, const FIELD: u8>(bytes: &[u8], range: Range<usize>, header: &Header) -> Parsed<Piece<T>> {
    let text = &bytes[range.clone()];
    let room = expected_lines(text);
    let mut piece = Piece {
        rows: Vec::with_capacity(room),
        cols: Vec::with_capacity(room),
        values: Vec::with_capacity(room),
        row_major: true,
        mirrored: Vec::new(),
    };
    let triangle = header.symmetry != Symmetry::General;
    let skew = header.symmetry == Symmetry::SkewSymmetric;
    let (nrows, ncols) = (header.nrows as u32, header.ncols as u32);
    let mut last = None;
    let mut at = 0;
    while at < text.len() {
        let quick = quick_line::<T, FIELD>(&text[at..]).filter(|&(row, col, _, _)| {
            row.wrapping_sub(1) < nrows && col.wrapping_sub(1) < ncols && (!skew || row != col)
        });
        let begin = range.start + at;
        let (mut row, mut col, mut value) = match quick {
            Some((row, col, value, len)) => {
                at += len;
                (row - 1, col - 1, value)
            }
            None => {
                let (line, next) = line_at(text, at);
                let entry = careful_line::<T>(line, range.start + at, header)?;
                at = next;
                match entry {
                    Some(entry) => entry,
                    None => continue,
                }
            }
        };
        if triangle && col > row {
            // SciPy, LAGraph and others write and read such files: the entry stands for its mirror image as well.
            piece.mirrored.push((piece.values.len(), begin));
            (row, col) = (col, row);
            value = if skew { -value } else { value };
        }
        let key = Some((row, col));
        piece.row_major &= key > last;
        last = key;
        piece.rows.push(row);
        piece.cols.push(col);
        piece.values.push(value);
    }
    Ok(piece)
}

/// About how many lines there are, from the length of the first ones, whatever the size line claims.
fn expected_lines(text: &[u8]) -> usize {
    const SAMPLE: usize = 4096;
    let sample = &text[..text.len().min(SAMPLE)];
    let lines = memchr::memchr_iter(b'\n', sample).count() + 1;
    // A sixteenth more, as later lines may be a little shorter.
    let room = text.len() / sample.len().max(1) * lines + lines;
    room + room / 16
}

fn array_piece<T: Real>(bytes: &[u8], range: Range<usize>, header: &Header) -> Parsed<Vec<T>> {
    let text = &bytes[range.clone()];
    let mut values = Vec::with_capacity(memchr::memchr_iter(b'\n', text).count() + 1);
    let mut at = 0;
    while at < text.len() {
        let quick = if header.field == Field::Real { quick_value::<T>(&text[at..]) } else { None };
        if let Some((value, len)) = quick {
            values.push(value);
            at += len;
            continue;
        }
        let (line, next) = line_at(text, at);
        let mut line_words = words(line, range.start + at).peekable();
        at = next;
        if line_words.peek().is_none_or(|(_, word)| word.starts_with(b"%")) {
            continue;
        }
        let end = range.start + at;
        values.push(value_of(&mut line_words, header.field, end)?);
        nothing_more(&mut line_words)?;
    }
    Ok(values)
}

/// Parses `row column value` and returns it with the length of the line including LF, if the line has the common shape.
#[inline(always)]
pub(super) fn quick_line<T: Real, const FIELD: u8>(text: &[u8]) -> Option<(u32, u32, T, usize)> {
    let mut at = 0;
    let row = quick_index(text, &mut at)?;
    let col = quick_index(text, &mut at)?;
    if FIELD == PATTERN {
        return Some((row, col, T::one(), quick_end(text, at)?));
    }
    while matches!(text.get(at), Some(b' ' | b'\t')) {
        at += 1;
    }
    let (value, len) = match FIELD {
        INTEGER => {
            let negative = text.get(at) == Some(&b'-');
            let (value, len) = digits(&text[at + usize::from(negative)..]);
            if len == 0 || len > 9 {
                return None;
            }
            let value = T::from_f64(f64::from(value));
            (if negative { -value } else { value }, len + usize::from(negative))
        }
        REAL => quick_number::<T>(&text[at..])?,
        _ => return None,
    };
    Some((row, col, value, quick_end(text, at + len)?))
}

/// The leading decimal digits of `text` as a number, and how many there are. The number is correct for at most 9
/// digits.
#[inline(always)]
fn digits(text: &[u8]) -> (u32, usize) {
    match text.first_chunk().map(|&word| up_to_eight_digits(word)) {
        Some((value, len)) if len < 8 => (value, len),
        _ => digit_by_digit(text),
    }
}

/// The leading decimal digits of 8 bytes as a number, and how many there are, all digits at once.
#[inline(always)]
fn up_to_eight_digits(word: [u8; 8]) -> (u32, usize) {
    // Bytes of digits become 0 to 9; the first byte is the lowest.
    let digits = u64::from_le_bytes(word) ^ 0x3030_3030_3030_3030;
    // Adding 0x76 carries into the top bit of a byte above 9. A carry out of such a byte only reaches later ones.
    let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let len = others.trailing_zeros() as usize / 8;
    if len == 0 {
        return (0, 0);
    }
    // Zeros before the first digit, then neighbours are joined: to two digits each, to four, to eight.
    let ones = digits << (64 - 8 * len);
    let twos = ones.wrapping_mul(10).wrapping_add(ones >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = twos.wrapping_mul(100).wrapping_add(twos >> 16) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000).wrapping_add(fours >> 32) as u32, len)
}

#[inline(always)]
fn digit_by_digit(text: &[u8]) -> (u32, usize) {
    let mut value = 0u32;
    let mut len = 0;
    while let Some(digit) = text.get(len).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        value = value.wrapping_mul(10).wrapping_add(u32::from(digit));
        len += 1;
    }
    (value, len)
}

#[inline(always)]
fn quick_index(text: &[u8], at: &mut usize) -> Option<u32> {
    while matches!(text.get(*at), Some(b' ' | b'\t')) {
        *at += 1;
    }
    let (value, len) = digits(&text[*at..]);
    *at += len;
    // After an index comes a blank, or the end of the line if the values are left out.
    let ended = matches!(text.get(*at), None | Some(b' ' | b'\t' | b'\r' | b'\n'));
    (ended && len > 0 && len <= 9).then_some(value)
}

/// Parses one line word by word: an entry, nothing (a comment, a blank line), or the fault.
#[cold]
fn careful_line<T: Real>(line: &[u8], base: usize, header: &Header) -> Parsed<Option<(u32, u32, T)>> {
    let mut words = words(line, base).peekable();
    let Some(&(_, first)) = words.peek() else { return Ok(None) };
    if first.starts_with(b"%") {
        return Ok(None);
    }
    let end = base + line.len() - line.iter().rev().take_while(|b| is_blank(**b)).count();
    let row = index(words.next(), "row", header.nrows, end)?;
    let col = index(words.next(), "column", header.ncols, end)?;
    let at = words.peek().map_or(end, |&(at, _)| at);
    let value: T = value_of(&mut words, header.field, end)?;
    nothing_more(&mut words)?;
    if header.symmetry == Symmetry::SkewSymmetric && row == col && value != T::zero() {
        let why = format!("diagonal entry {value:?}: the diagonal of a skew-symmetric matrix is 0");
        return Err(Fault::new(at, why));
    }
    Ok(Some((row, col, value)))
}

fn index(word: Option<(usize, &[u8])>, what: &str, bound: usize, end: usize) -> Parsed<u32> {
    let Some((at, word)) = word else { return Err(Fault::new(end, format!("the line ends before its {what} index"))) };
    match whole(word) {
        Some(0) => Err(Fault::new(at, format!("{what} index 0, indices start at 1"))),
        Some(value) if value <= bound as u64 => Ok((value - 1) as u32),
        Some(value) => Err(Fault::new(at, format!("{what} index {value}, the matrix has {bound} {what}s"))),
        None if !word.is_empty() && word.iter().all(u8::is_ascii_digit) => {
            Err(Fault::new(at, format!("{what} index {}, the matrix has {bound} {what}s", shown(word))))
        }
        None if word.strip_prefix(b"-").and_then(whole).is_some() => {
            Err(Fault::new(at, format!("{what} index {} is negative, indices start at 1", shown(word))))
        }
        None => {
            let advice = in_digits(word).map_or_else(String::new, |digits| format!(" in digits: write {digits}"));
            Err(Fault::new(at, format!("{what} index {} is not a whole number{advice}", shown(word))))
        }
    }
}

fn value_of<'a, T: Real>(words: &mut impl Iterator<Item = (usize, &'a [u8])>, field: Field, end: usize) -> Parsed<T> {
    if field == Field::Pattern {
        return Ok(T::one());
    }
    let (at, word) = words.next().ok_or_else(|| Fault::new(end, "the line ends before its value"))?;
    let number = value((at, word))?;
    match field {
        Field::Integer => {
            let unsigned = word.strip_prefix(b"-").or(word.strip_prefix(b"+")).unwrap_or(word);
            if !unsigned.iter().all(u8::is_ascii_digit) {
                let why = format!("value {} is not a whole number, the banner says integer", shown(word));
                return Err(Fault::new(at, why));
            }
        }
        Field::Complex => {
            let (at, word) = words.next().ok_or_else(|| Fault::new(end, "the line ends before its imaginary part"))?;
            let imaginary: T = value((at, word))?;
            if imaginary != T::zero() {
                let why = format!("imaginary part {}: only real matrices can be read, split it in two", shown(word));
                return Err(Fault::new(at, why));
            }
        }
        Field::Real | Field::Pattern => {}
    }
    Ok(number)
}

fn nothing_more<'a>(words: &mut impl Iterator<Item = (usize, &'a [u8])>) -> Parsed<()> {
    match words.next() {
        Some((at, word)) => Err(Fault::new(at, format!("unexpected {} after the entry", shown(word)))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_at_once_as_one_by_one() {
        let mut text = Vec::new();
        for number in [0u32, 7, 10, 99, 305, 4_096, 12_345, 999_999, 1_048_576, 9_999_999, 12_345_678, 999_999_999] {
            for after in [b' ', b'\t', b'\n', b'/', b':', b'.', b'e', 0x80, 0xb0, 0xff, 0] {
                for rest in ["", "1", "12345678", "\u{7f}x", "99 1.5\n100 3"] {
                    text.clear();
                    text.extend_from_slice(number.to_string().as_bytes());
                    text.push(after);
                    text.extend_from_slice(rest.as_bytes());
                    assert_eq!(digits(&text), (number, number.to_string().len()), "{text:?}");
                    assert_eq!(digits(&text), digit_by_digit(&text), "{text:?}");
                }
            }
        }
        for none in [&b""[..], b" 1", b"-12345678", b"/////////", b"::::::::"] {
            assert_eq!(digits(none), (0, 0), "{none:?}");
        }
    }
}
