//! CSR written in place: the starts of rows are known beforehand, so threads fill disjoint slices of the final arrays.
//!
//! Invariants: [`Rows::push`] panics if a column does not ascend or lies outside (a bug of a generator, never of its
//! input). Every task must fill its slices to the last entry. So the resulting CSR needs no second check.
//! Cost: the matrix itself, written once; no other allocation.

use std::ops::Range;

use rayon::prelude::*;

use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Real, Result};

/// The slices of consecutive rows, which are filled entry by entry.
pub(super) struct Rows<'a, T> {
    ncols: usize,
    base: usize,
    at: usize,
    row_begin: usize,
    row: usize,
    row_ptr: &'a mut [Offset],
    col_idx: &'a mut [Ordinal],
    values: &'a mut [T],
}

impl<T: Real> Rows<'_, T> {
    /// Appends an entry to the current row.
    #[inline]
    pub(super) fn push(&mut self, col: usize, value: T) {
        let ascends = self.at == self.row_begin || (self.col_idx[self.at - 1] as usize) < col;
        assert!(ascends && col < self.ncols, "a generator wrote column {col} out of order or outside the matrix");
        self.col_idx[self.at] = col as Ordinal;
        self.values[self.at] = value;
        self.at += 1;
    }

    /// Ends the current row.
    #[inline]
    pub(super) fn end_row(&mut self) {
        self.row_ptr[self.row] = (self.base + self.at) as Offset;
        self.row += 1;
        self.row_begin = self.at;
    }

    fn is_full(&self) -> bool {
        self.at == self.col_idx.len() && self.row == self.row_ptr.len()
    }
}

/// Makes the rows `wanted` of the matrix with `ncols` columns whose row r begins at entry `row_start(r)`, which
/// ascends. Row 0 of the result is the first of them.
///
/// `fill(rows, slices)` writes the entries, in parallel over ranges of rows. What it writes must not depend on where
/// the ranges begin.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::OutOfMemory`].
pub(super) fn by_rows<T: Real>(
    wanted: Range<usize>,
    ncols: usize,
    row_start: impl Fn(usize) -> u64 + Sync,
    fill: impl Fn(Range<usize>, &mut Rows<'_, T>) + Sync,
) -> Result<Csr<T>> {
    try_by_rows(wanted, ncols, row_start, |range, rows| {
        fill(range, rows);
        Ok(())
    })
}

/// As [`by_rows`], where `fill` needs scratch memory that may not be available.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::OutOfMemory`], those of `fill`.
pub(super) fn try_by_rows<T: Real>(
    wanted: Range<usize>,
    ncols: usize,
    row_start: impl Fn(usize) -> u64 + Sync,
    fill: impl Fn(Range<usize>, &mut Rows<'_, T>) -> Result<()> + Sync,
) -> Result<Csr<T>> {
    checked(wanted.end, "rows")?;
    checked(ncols, "columns")?;
    let (nrows, first) = (wanted.len(), row_start(wanted.start));
    let nnz = usize::try_from(row_start(wanted.end) - first).unwrap_or(usize::MAX);
    checked(nnz, "entries")?;
    let mut row_ptr: Vec<Offset> = zeroed(nrows + 1, "row_ptr")?;
    let mut col_idx: Vec<Ordinal> = zeroed(nnz, "col_idx")?;
    let mut values: Vec<T> = zeroed(nnz, "values")?;

    let step = nrows.div_ceil(16 * rayon::current_num_threads()).max(512);
    let mut tasks = Vec::new();
    let (mut ptr, mut cols, mut vals) = (&mut row_ptr[1..], &mut col_idx[..], &mut values[..]);
    for begin in wanted.clone().step_by(step) {
        let end = (begin + step).min(wanted.end);
        let base = (row_start(begin) - first) as usize;
        let (ptr_here, ptr_rest) = ptr.split_at_mut(end - begin);
        let (cols_here, cols_rest) = cols.split_at_mut((row_start(end) - first) as usize - base);
        let (vals_here, vals_rest) = vals.split_at_mut(cols_here.len());
        (ptr, cols, vals) = (ptr_rest, cols_rest, vals_rest);
        tasks.push((begin..end, base, ptr_here, cols_here, vals_here));
    }
    tasks.into_par_iter().try_for_each(|(range, base, row_ptr, col_idx, values)| {
        let mut rows = Rows { ncols, base, at: 0, row_begin: 0, row: 0, row_ptr, col_idx, values };
        fill(range, &mut rows)?;
        assert!(rows.is_full(), "a generator wrote fewer entries than it counted");
        Ok(())
    })?;
    // SAFETY: `Rows::push` asserted that columns ascend inside a row and lie inside. Every slice was filled to its end,
    // so row_ptr starts at 0, never decreases and ends at nnz. The sizes were checked above.
    Ok(unsafe { Csr::new_unchecked(nrows, ncols, row_ptr, col_idx, values) })
}
