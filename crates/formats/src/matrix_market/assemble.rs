//! Assembly of CSR from the parsed pieces, without sorting what is sorted already.
//!
//! A general file in row-major order is concatenated. Anything else is scattered by one stable counting sort over the
//! rows. Collections use column-major order, which comes out of this sort with ascending columns; so does the lower
//! triangle of a symmetric matrix with its mirror image. Only rows that do not ascend are then sorted, each separately.
//!
//! Invariants: entries of one row keep the order of the file until they are sorted stably, so duplicates are summed in
//! the order of the file for any number of threads.
//! Cost: the CSR arrays, and one counter per row and thread, at most as many counters as there are entries.

use super::entries::Piece;
use super::header::{Header, Layout, Symmetry};
use crate::index::{MAX_INDEX, checked};
use crate::{Csr, Error, Offset, Ordinal, Real, Result};
use rayon::prelude::*;

/// Number of row pointers that any file may ask for. A larger matrix needs a file with at least one byte per 64 rows.
/// The same holds for the columns of an array file, whose entries are first sorted by column.
const SIZE_FREE: usize = 1 << 26;

/// Checks that a size which costs memory by itself is in proportion to the size of the file.
pub(super) fn check_sizes(name: &str, header: &Header, file_bytes: usize) -> Result<()> {
    let by_columns = header.format == Layout::Array;
    for (what, count) in [("rows", header.nrows), ("columns", if by_columns { header.ncols } else { 0 })] {
        if count > SIZE_FREE.max(file_bytes.saturating_mul(64)) {
            let why = format!(
                "{name} declares {count} {what} in {file_bytes} bytes: nearly all of them are empty, renumber the {what}"
            );
            return Err(Error::DoesNotFit { format: "csr", why });
        }
    }
    Ok(())
}

/// Makes the full matrix from the entries of a coordinate file.
pub(super) fn csr<T: Real>(header: &Header, pieces: Vec<Piece<T>>) -> Result<Csr<T>> {
    let listed: usize = pieces.iter().map(|p| p.values.len()).sum();
    if header.symmetry == Symmetry::General {
        checked(listed, "entries")?;
        return if is_row_major(&pieces) {
            concatenate(header, &pieces, listed)
        } else {
            scatter(header, pieces, None)
        };
    }
    let on_diagonal: usize =
        pieces.par_iter().map(|p| p.rows.iter().zip(&p.cols).filter(|(row, col)| row == col).count()).sum();
    checked(2 * listed - on_diagonal, "entries")?;
    let sign = if header.symmetry == Symmetry::SkewSymmetric { -T::one() } else { T::one() };
    scatter(header, pieces, Some(sign))
}

fn is_row_major<T>(pieces: &[Piece<T>]) -> bool {
    let mut last = None;
    pieces.iter().filter(|p| !p.rows.is_empty()).all(|p| {
        let end = p.rows.len() - 1;
        let follows = Some((p.rows[0], p.cols[0])) > last;
        last = Some((p.rows[end], p.cols[end]));
        p.row_major && follows
    })
}

pub(super) fn zeros<V: Clone>(zero: V, len: usize, what: &'static str) -> Result<Vec<V>> {
    // `vec!` of a zero asks for zeroed pages, which no thread has to write first. The reservation before it is released
    // at once; it turns a size that cannot be allocated into an error.
    let mut probe = Vec::<V>::new();
    probe
        .try_reserve_exact(len)
        .map_err(|_| Error::OutOfMemory { what, bytes: (len as u64) * size_of::<V>() as u64 })?;
    drop(probe);
    Ok(vec![zero; len])
}

fn concatenate<T: Real>(header: &Header, pieces: &[Piece<T>], total: usize) -> Result<Csr<T>> {
    let mut row_ptr = zeros(0 as Offset, header.nrows + 1, "row pointers")?;
    let mut col_idx = zeros(0 as Ordinal, total, "columns")?;
    let mut values = zeros(T::zero(), total, "values")?;
    let mut jobs = Vec::with_capacity(pieces.len());
    // A piece fills the row pointers from the last row of the preceding piece up to its own last row.
    let (mut ptrs, mut cols, mut vals) = (row_ptr.as_mut_slice(), col_idx.as_mut_slice(), values.as_mut_slice());
    let (mut first_row, mut base) = (0usize, 0usize);
    for piece in pieces.iter().filter(|p| !p.rows.is_empty()) {
        let len = piece.rows.len();
        let rows = piece.rows[len - 1] as usize + 1 - first_row;
        let (ptr, rest) = ptrs.split_at_mut(rows);
        ptrs = rest;
        let (col, rest) = cols.split_at_mut(len);
        cols = rest;
        let (val, rest) = vals.split_at_mut(len);
        vals = rest;
        jobs.push((piece, first_row, base, ptr, col, val));
        first_row += rows;
        base += len;
    }
    ptrs.fill(total as Offset);
    jobs.into_par_iter().for_each(|(piece, first_row, base, ptr, col, val)| {
        col.copy_from_slice(&piece.cols);
        val.copy_from_slice(&piece.values);
        let mut filled = 0;
        for (at, &row) in piece.rows.iter().enumerate() {
            let upto = row as usize + 1 - first_row;
            while filled < upto {
                ptr[filled] = (base + at) as Offset;
                filled += 1;
            }
        }
    });
    // SAFETY: the parser keeps rows and columns inside the matrix. `is_row_major` found the entries strictly ascending
    // by row and column, across pieces too. `row_ptr` counts them, and the callers checked the number of entries
    // against 2^31.
    Ok(unsafe { Csr::new_unchecked(header.nrows, header.ncols, row_ptr, col_idx, values) })
}

/// Writes at positions that the counting assigned to exactly one thread.
struct Shared<V>(*mut V);

// SAFETY: only one thread writes each position (see `scatter`), and nothing reads before the threads are joined.
unsafe impl<V: Send> Sync for Shared<V> {}

impl<V> Shared<V> {
    /// # Safety
    /// `at` lies inside the vector, and no other thread writes or reads it.
    #[inline(always)]
    unsafe fn put(&self, at: usize, value: V) {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at).write(value) }
    }
}

/// Does one stable counting sort by row. `mirror` is the sign of the entries that the file omits.
fn scatter<T: Real>(header: &Header, pieces: Vec<Piece<T>>, mirror: Option<T>) -> Result<Csr<T>> {
    let (nrows, ncols) = (header.nrows, header.ncols);
    let listed: usize = pieces.iter().map(|p| p.values.len()).sum();
    // Each group of pieces has one counter per row. Limit the number of groups so that the counters stay below the size
    // of the entries.
    let groups = rayon::current_num_threads().min(listed / (nrows + 1)).max(1);
    let groups: Vec<&[Piece<T>]> = pieces.chunks(pieces.len().div_ceil(groups).max(1)).collect();
    let mut next: Vec<Vec<Offset>> = groups
        .par_iter()
        .map(|group| {
            let mut count = zeros(0 as Offset, nrows, "row counters")?;
            for piece in *group {
                for &row in &piece.rows {
                    count[row as usize] += 1;
                }
                if mirror.is_some() {
                    for (&row, &col) in piece.rows.iter().zip(&piece.cols) {
                        count[col as usize] += Offset::from(row != col);
                    }
                }
            }
            Ok(count)
        })
        .collect::<Result<_>>()?;
    let mut row_ptr = zeros(0 as Offset, nrows + 1, "row pointers")?;
    let mut total: Offset = 0;
    for (row, ptr) in row_ptr[..nrows].iter_mut().enumerate() {
        *ptr = total;
        for group in &mut next {
            let count = group[row];
            group[row] = total;
            total += count;
        }
    }
    row_ptr[nrows] = total;
    let mut col_idx = zeros(0 as Ordinal, total as usize, "columns")?;
    let mut values = zeros(T::zero(), total as usize, "values")?;
    let (to_cols, to_values) = (Shared(col_idx.as_mut_ptr()), Shared(values.as_mut_ptr()));
    let (to_cols, to_values) = (&to_cols, &to_values);
    groups.par_iter().zip(next).for_each(|(group, mut next)| {
        let mut place = |row: Ordinal, col: Ordinal, value: T| {
            let at = next[row as usize];
            next[row as usize] = at + 1;
            // SAFETY: `at` runs through the positions counted above for this row and this group, which are inside the
            // arrays (they end at `total`) and disjoint from those of every other row and group.
            unsafe {
                to_cols.put(at as usize, col);
                to_values.put(at as usize, value);
            }
        };
        for piece in *group {
            for ((&row, &col), &value) in piece.rows.iter().zip(&piece.cols).zip(&piece.values) {
                place(row, col, value);
                if let Some(sign) = mirror
                    && row != col
                {
                    place(col, row, sign * value);
                }
            }
        }
    });
    drop(groups);
    drop(pieces);
    if order_rows(&row_ptr, &mut col_idx, &mut values) {
        merge_duplicates(&mut row_ptr, &mut col_idx, &mut values);
    }
    debug_assert!(values.len() <= MAX_INDEX);
    // SAFETY: the parser keeps rows and columns inside the matrix. `order_rows` left every row ascending, and
    // `merge_duplicates` strictly so. `row_ptr` counts the entries, and the caller checked their number against 2^31.
    Ok(unsafe { Csr::new_unchecked(nrows, ncols, row_ptr, col_idx, values) })
}

/// Sorts the rows that do not ascend, stably and by column. Returns whether any column occurs twice in a row.
pub(crate) fn order_rows<T: Real>(row_ptr: &[Offset], col_idx: &mut [Ordinal], values: &mut [T]) -> bool {
    const LEAF: usize = 1 << 16;
    let rows = row_ptr.len() - 1;
    if rows > 1 && col_idx.len() > LEAF {
        let base = row_ptr[0];
        let half = base + (row_ptr[rows] - base) / 2;
        let middle = row_ptr.partition_point(|&ptr| ptr < half).clamp(1, rows - 1);
        let (left_cols, right_cols) = col_idx.split_at_mut((row_ptr[middle] - base) as usize);
        let (left_values, right_values) = values.split_at_mut((row_ptr[middle] - base) as usize);
        let (left, right) = rayon::join(
            || order_rows(&row_ptr[..=middle], left_cols, left_values),
            || order_rows(&row_ptr[middle..], right_cols, right_values),
        );
        return left | right;
    }
    let mut twice = false;
    for range in row_ptr.windows(2) {
        let range = (range[0] - row_ptr[0]) as usize..(range[1] - row_ptr[0]) as usize;
        twice |= order_row(&mut col_idx[range.clone()], &mut values[range]);
    }
    twice
}

/// Orders the entries of a row by column; entries with equal columns keep their order. Returns whether there are any.
pub(crate) fn order_row<T: Real>(cols: &mut [Ordinal], values: &mut [T]) -> bool {
    /// Rows of up to this length are sorted in place.
    const SHORT: usize = 32;
    if !cols.is_sorted() {
        if cols.len() <= SHORT {
            for end in 1..cols.len() {
                let (col, value) = (cols[end], values[end]);
                let mut at = end;
                while at > 0 && cols[at - 1] > col {
                    (cols[at], values[at]) = (cols[at - 1], values[at - 1]);
                    at -= 1;
                }
                (cols[at], values[at]) = (col, value);
            }
        } else {
            let mut row: Vec<(Ordinal, T)> = cols.iter().copied().zip(values.iter().copied()).collect();
            row.sort_by_key(|&(col, _)| col);
            for ((entry, col), value) in row.into_iter().zip(cols.iter_mut()).zip(values.iter_mut()) {
                (*col, *value) = entry;
            }
        }
    }
    cols.windows(2).any(|pair| pair[0] == pair[1])
}

/// Sums adjacent entries with equal columns, from first to last.
pub(crate) fn merge_duplicates<T: Real>(row_ptr: &mut [Offset], col_idx: &mut Vec<Ordinal>, values: &mut Vec<T>) {
    let mut kept = 0;
    let mut begin = 0;
    for row in 0..row_ptr.len() - 1 {
        let end = row_ptr[row + 1] as usize;
        let first = kept;
        for at in begin..end {
            if kept > first && col_idx[kept - 1] == col_idx[at] {
                let value = values[at];
                values[kept - 1] += value;
            } else {
                col_idx[kept] = col_idx[at];
                values[kept] = values[at];
                kept += 1;
            }
        }
        begin = end;
        row_ptr[row + 1] = kept as Offset;
    }
    col_idx.truncate(kept);
    values.truncate(kept);
}

/// Visits every entry of an array file, including those that its symmetry implies: `visit(row, col, value)`.
pub(super) fn each_of_array<T: Real>(header: &Header, listed: &[T], mut visit: impl FnMut(usize, usize, T)) {
    let mut at = listed.iter();
    for col in 0..header.ncols {
        let first = match header.symmetry {
            Symmetry::General => 0,
            Symmetry::SkewSymmetric => col + 1,
            Symmetry::Symmetric | Symmetry::Hermitian => col,
        };
        for (row, &value) in (first..header.nrows).zip(&mut at) {
            visit(row, col, value);
            if header.symmetry != Symmetry::General && row != col {
                visit(col, row, if header.symmetry == Symmetry::SkewSymmetric { -value } else { value });
            }
        }
    }
}
