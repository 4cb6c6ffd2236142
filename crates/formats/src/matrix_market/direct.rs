//! A coordinate file whose lines are the rows of CSR already: every line one entry, in row-major order. It is parsed
//! straight into the arrays of CSR.
//!
//! Pieces would take as much memory again, and new memory is a third of the time. Any other file is left to
//! [`super::entries`], which also knows what is wrong with it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::assemble::zeros;
use super::entries::{INTEGER, PATTERN, REAL, quick_line};
use super::header::{Field, Header, Symmetry};
use crate::index::MAX_INDEX;
use crate::text::lines::cut;
use crate::{Csr, Offset, Ordinal, Real, Result};

/// Row and column of an entry.
type Place = (Ordinal, Ordinal);

/// The rows of a piece of the file: each row with its first entry, counted from the beginning of the piece, and the
/// places of the first and the last entry.
struct Rows {
    starts: Vec<(Ordinal, Offset)>,
    ends: Option<(Place, Place)>,
}

/// A piece of the file and what it fills.
struct Job<'a, T> {
    text: &'a [u8],
    cols: &'a mut [Ordinal],
    values: &'a mut [T],
}

/// The matrix, or `None` if the file has another shape.
pub(super) fn csr<T: Real>(bytes: &[u8], begin: usize, header: &Header) -> Result<Option<Csr<T>>> {
    let parse = match header.field {
        Field::Real => piece::<T, REAL>,
        Field::Integer => piece::<T, INTEGER>,
        Field::Pattern => piece::<T, PATTERN>,
        Field::Complex => return Ok(None),
    };
    if header.symmetry != Symmetry::General || header.entries > MAX_INDEX as u64 {
        return Ok(None);
    }
    let total = header.entries as usize;
    let ranges = cut(bytes, begin);
    let lines: Vec<usize> = ranges.par_iter().map(|range| count_lines(bytes, range)).collect();
    // Comments, empty lines, or a wrong number of entries.
    if lines.iter().sum::<usize>() != total {
        return Ok(None);
    }
    let mut cols = zeros(0 as Ordinal, total, "columns")?;
    let mut values = zeros(T::zero(), total, "values")?;
    let (mut cols_left, mut values_left) = (&mut cols[..], &mut values[..]);
    let jobs: Vec<Job<'_, T>> = ranges
        .into_iter()
        .zip(&lines)
        .map(|(range, &lines)| Job {
            text: &bytes[range],
            cols: cols_left.split_off_mut(..lines).unwrap_or_default(),
            values: values_left.split_off_mut(..lines).unwrap_or_default(),
        })
        .collect();
    let gives_up = AtomicBool::new(false);
    let pieces: Vec<Option<Rows>> = jobs.into_par_iter().map(|job| parse(job, header, &gives_up)).collect();
    let Some(pieces) = pieces.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
    let ends: Vec<(Place, Place)> = pieces.iter().filter_map(|piece| piece.ends).collect();
    if ends.windows(2).any(|pair| pair[1].0 <= pair[0].1) {
        return Ok(None);
    }
    let mut row_ptr = zeros(0 as Offset, header.nrows + 1, "row pointers")?;
    let (mut filled, mut before) = (0, 0);
    for (piece, lines) in pieces.iter().zip(lines) {
        for &(row, at) in &piece.starts {
            // A row that goes on from the piece before has its pointer already.
            let upto = row as usize + 1;
            row_ptr[filled.min(upto)..upto].fill(before as Offset + at);
            filled = filled.max(upto);
        }
        before += lines;
    }
    row_ptr[filled..].fill(total as Offset);
    // SAFETY: `piece` keeps rows and columns inside the matrix and finds the entries strictly ascending by row and
    // column, and so does the comparison of `ends` across pieces. `row_ptr` counts them, at most MAX_INDEX.
    Ok(Some(unsafe { Csr::new_unchecked(header.nrows, header.ncols, row_ptr, cols, values) }))
}

/// The number of lines, of which the last of the file may lack its end.
fn count_lines(bytes: &[u8], range: &Range<usize>) -> usize {
    let text = &bytes[range.clone()];
    memchr::memchr_iter(b'\n', text).count() + usize::from(text.last().is_some_and(|&last| last != b'\n'))
}

/// Parses a piece into its places. `None` at the first line that is not of the common shape or not in order, here or
/// in another piece.
fn piece<T: Real, const FIELD: u8>(job: Job<'_, T>, header: &Header, gives_up: &AtomicBool) -> Option<Rows> {
    let Job { text, cols, values } = job;
    let (nrows, ncols) = (header.nrows as u32, header.ncols as u32);
    let mut starts: Vec<(Ordinal, Offset)> = Vec::new();
    let (mut first, mut last): (Option<Place>, Option<Place>) = (None, None);
    let mut at = 0;
    for (i, (to_col, to_value)) in cols.iter_mut().zip(values).enumerate() {
        let entry = quick_line::<T, FIELD>(&text[at..])
            .filter(|&(row, col, _, _)| row.wrapping_sub(1) < nrows && col.wrapping_sub(1) < ncols);
        let Some((row, col, value, len)) = entry.filter(|&(row, col, _, _)| Some((row - 1, col - 1)) > last) else {
            gives_up.store(true, Ordering::Relaxed);
            return None;
        };
        let place = (row - 1, col - 1);
        if last.is_none_or(|last| last.0 != place.0) {
            if gives_up.load(Ordering::Relaxed) {
                return None;
            }
            starts.push((place.0, i as Offset));
        }
        first = first.or(Some(place));
        last = Some(place);
        (*to_col, *to_value) = (place.1, value);
        at += len;
    }
    (at == text.len()).then_some(Rows { starts, ends: first.zip(last) })
}

#[cfg(test)]
mod tests {
    use super::super::{assemble, entries, header};
    use super::*;

    /// The matrix by both ways; the first only if it is taken.
    fn both(body: &str, sizes: &str, field: &str) -> (Option<Csr<f64>>, Csr<f64>) {
        let text = format!("%%MatrixMarket matrix coordinate {field} general\n{sizes}\n{body}");
        let (header, begin) = header::parse("a.mtx", text.as_bytes()).unwrap();
        let straight = csr::<f64>(text.as_bytes(), begin, &header).unwrap();
        let pieces = entries::coordinate::<f64>(text.as_bytes(), begin, &header).ok().unwrap();
        (straight, assemble::csr(&header, pieces).unwrap())
    }

    #[test]
    fn lines_in_row_major_order_become_rows() {
        let long: String = (1..=40_000).map(|i| format!("{} {} {}.5\n", i / 3 + 1, i % 3 + 1, i)).collect();
        let cases = [
            ("1 1 1\n1 3 2.5\n4 2 -1e3\n", "5 3 3", "real"),
            ("2 1 7\n2 2 -8\n", "3 2 2", "integer"),
            ("1 2\r\n3 1\r\n", "3 2 2", "pattern"),
            ("3 3 1", "3 3 1", "real"),
            ("", "4 3 0", "real"),
            (&long, "20000 3 40000", "real"),
        ];
        for (body, sizes, field) in cases {
            let (straight, by_pieces) = both(body, sizes, field);
            assert_eq!(straight.expect(sizes), by_pieces, "{sizes}");
        }
    }

    #[test]
    fn other_files_are_left_to_the_pieces() {
        let cases = [
            ("1 1 1\n% a comment\n2 2 2\n", "2 2 2"),
            ("1 1 1\n\n2 2 2\n", "2 2 2"),
            ("2 2 2\n1 1 1\n", "2 2 2"),
            ("1 2 2\n1 1 1\n", "2 2 2"),
            ("1 1 1\n1 1 1\n", "2 2 2"),
            ("1 1 1 \n2 2 1D3\n", "2 2 2"),
        ];
        for (body, sizes) in cases {
            assert_eq!(both(body, sizes, "real").0, None, "{body:?}");
        }
        // Out of order only far behind, in another piece.
        let late: String = (1..=30_000).chain([5]).map(|i| format!("{i} 1 1\n")).collect();
        assert_eq!(both(&late, "30000 1 30001", "real").0, None);
    }
}
