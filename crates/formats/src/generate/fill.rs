//! CSR written in place: the rows' starts are known beforehand, so that threads fill disjoint slices of the final arrays.
//!
//! Invariants: [`Rows::push`] refuses (panics: a bug of a generator, never of its input) a column that does not ascend or lies
//! outside, and every task must fill its slices to the last entry; the CSR made of them needs no second check.
//! Cost: the matrix itself, written once; no other allocation.

use std::ops::Range;

use rayon::prelude::*;

use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Real, Result};

/// The slices of consecutive rows, to be filled entry by entry.
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

/// The `nrows` x `ncols` matrix whose row r begins at entry `row_start(r)` (ascending, `row_start(nrows)` is the number of
/// entries), written by `fill(rows, slices)` in parallel over ranges of rows. What `fill` writes must not depend on where
/// ranges begin.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::OutOfMemory`].
pub(super) fn by_rows<T: Real>(
    nrows: usize,
    ncols: usize,
    row_start: impl Fn(usize) -> u64 + Sync,
    fill: impl Fn(Range<usize>, &mut Rows<'_, T>) + Sync,
) -> Result<Csr<T>> {
    try_by_rows(nrows, ncols, row_start, |range, rows| {
        fill(range, rows);
        Ok(())
    })
}

/// [`by_rows`] with scratch in `fill` that may not be had.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::OutOfMemory`], those of `fill`.
pub(super) fn try_by_rows<T: Real>(
    nrows: usize,
    ncols: usize,
    row_start: impl Fn(usize) -> u64 + Sync,
    fill: impl Fn(Range<usize>, &mut Rows<'_, T>) -> Result<()> + Sync,
) -> Result<Csr<T>> {
    checked(nrows, "rows")?;
    checked(ncols, "columns")?;
    let nnz = usize::try_from(row_start(nrows)).unwrap_or(usize::MAX);
    checked(nnz, "entries")?;
    let mut row_ptr: Vec<Offset> = zeroed(nrows + 1, "row_ptr")?;
    let mut col_idx: Vec<Ordinal> = zeroed(nnz, "col_idx")?;
    let mut values: Vec<T> = zeroed(nnz, "values")?;

    let step = nrows.div_ceil(16 * rayon::current_num_threads()).max(512);
    let mut tasks = Vec::new();
    let (mut ptr, mut cols, mut vals) = (&mut row_ptr[1..], &mut col_idx[..], &mut values[..]);
    for begin in (0..nrows).step_by(step) {
        let end = (begin + step).min(nrows);
        let base = row_start(begin) as usize;
        let (ptr_here, ptr_rest) = ptr.split_at_mut(end - begin);
        let (cols_here, cols_rest) = cols.split_at_mut(row_start(end) as usize - base);
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
    // SAFETY: `Rows::push` asserted columns that ascend inside a row and lie inside; every slice was filled to its end, so
    // that row_ptr starts at 0, never decreases and ends at nnz; the sizes were checked above.
    Ok(unsafe { Csr::new_unchecked(nrows, ncols, row_ptr, col_idx, values) })
}
