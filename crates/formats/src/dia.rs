//! DIA, diagonals: whole diagonals of values, no index per entry.
//!
//! Layout (main diagonal and the one above of the 6 x 6 example of the snapshots; `_` lies outside the matrix):
//! ```text
//! | 4 . 1 . . . |      offsets  0  1  2 ...     values 4 5 6 9 7 2 | 0 2 0 0 3 _ | 1 0 ...
//! | . 5 2 . 3 . |
//!                      values[i + nrows k] = A[i, i + offsets[k]]
//! ```
//! Invariants: `offsets` ascend strictly inside -(nrows - 1) ..= ncols - 1; `values.len() == nrows offsets.len()`;
//! positions outside the matrix hold 0 and are never multiplied, zeros inside are multiplied like entries. Explicit
//! zeros are fill. Positions are computed in `usize`.
//! Cost of y = A x: |T| (in-matrix positions + ncols + nrows) + 4 diagonals bytes.
//! Order: stored, ascending offsets: CSR's order.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 3.4; Bell & Garland 2008, section 3.1.

use std::ops::Range;

use rayon::prelude::*;

use crate::index::{Offset, checked};
use crate::padding::{assemble, chunk_rows, fits, nonzeros, row_chunks, zeroed};
use crate::survey::{follows, occupied};
use crate::{Bdia, Csr, Error, Format, Ordinal, Real, Result, Traffic};

/// A matrix by diagonals. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct Dia<T> {
    nrows: usize,
    ncols: usize,
    offsets: Vec<i32>,
    values: Vec<T>,
    nnz: usize,
}

/// The parts of a [`Dia`]: `(nrows, ncols, offsets, values)`.
pub type DiaParts<T> = (usize, usize, Vec<i32>, Vec<T>);

impl<T: Real> Dia<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nrows offsets).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Unsorted`], [`Error::Invalid`] for a diagonal or a value
    /// outside the matrix.
    pub fn new(nrows: usize, ncols: usize, offsets: Vec<i32>, values: Vec<T>) -> Result<Self> {
        let format = "dia";
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        if let Some(at) = (1..offsets.len()).find(|&at| offsets[at] <= offsets[at - 1]) {
            return Err(Error::Unsorted { format, array: "offsets", at });
        }
        let nnz = check_diagonals(format, nrows, ncols, &offsets, &values)?;
        Ok(Self { nrows, ncols, offsets, values, nnz })
    }

    /// Stores a matrix on these diagonals, ascending, of which some may hold no entry.
    ///
    /// # Errors
    /// As [`Dia::new`], and [`Error::Invalid`] for an entry on another diagonal.
    pub fn on_diagonals(csr: &Csr<T>, offsets: Vec<i32>) -> Result<Self> {
        if let Some(at) = (1..offsets.len()).find(|&at| offsets[at] <= offsets[at - 1]) {
            return Err(Error::Unsorted { format: "dia", array: "offsets", at });
        }
        let outside = |row: usize| {
            let on = |&col: &Ordinal| offsets.binary_search(&(col as i32 - row as i32)).is_ok();
            csr.row(row).0.iter().find(|col| !on(col)).map(|&col| (row, col))
        };
        if let Some((row, col)) = (0..csr.nrows()).into_par_iter().find_map_first(outside) {
            let why =
                format!("the entry in row {row} and column {col} lies on none of the diagonals: name all of them");
            return Err(Error::Invalid { format: "dia", why });
        }
        let (values, _) = spread(csr, &offsets)?;
        Self::new(csr.nrows(), csr.ncols(), offsets, values)
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> DiaParts<T> {
        (self.nrows, self.ncols, self.offsets, self.values)
    }

    /// Column minus row of each diagonal, ascending.
    pub fn offsets(&self) -> &[i32] {
        &self.offsets
    }

    /// The `nrows` values of each diagonal, by row.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Lets `write` overwrite the values of the diagonals. It must keep 0 outside the matrix.
    pub(crate) fn rewrite(&mut self, write: impl FnOnce(&[i32], &mut [T]) -> Result<()>) -> Result<()> {
        let written = write(&self.offsets, &mut self.values);
        self.nnz = nonzeros(&self.values);
        written
    }

    /// The check that [`Format::from_csr`] makes before it stores `diagonals` diagonals of a matrix with `nnz` entries.
    /// For conversions elsewhere.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn check_storage(nrows: usize, diagonals: usize, nnz: usize) -> Result<()> {
        fits::<T>("dia", nrows as u128 * diagonals as u128 * T::BYTES as u128, nrows, nnz)
    }

    /// Bytes of a matrix with these diagonals: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(nrows: usize, ncols: usize, offsets: &[i32]) -> (u64, u64) {
        let list = 4 * offsets.len() as u64;
        let inside = positions(nrows, ncols, offsets.iter().copied());
        let values = nrows as u64 * offsets.len() as u64;
        (values * T::BYTES as u64 + list, (inside + (nrows + ncols) as u64) * T::BYTES as u64 + list)
    }

    /// Computes the same for values stored in f32; x and y have the type `T`.
    pub fn traffic_in_f32(nrows: usize, ncols: usize, offsets: &[i32]) -> (u64, u64) {
        let (storage, product) = Dia::<f32>::traffic_of(nrows, ncols, offsets);
        (storage, product + ((T::BYTES - f32::BYTES) * (nrows + ncols)) as u64)
    }
}

/// Rows in which the diagonal `offset` lies inside the matrix.
pub(crate) fn rows_of(nrows: usize, ncols: usize, offset: i32) -> Range<usize> {
    let begin = (-i64::from(offset)).max(0) as usize;
    let end = (ncols as i64 - i64::from(offset)).clamp(0, nrows as i64) as usize;
    begin.min(end)..end
}

/// Checks lengths, that each diagonal meets the matrix, and that values outside it are 0; counts the values that are
/// not zero.
pub(crate) fn check_diagonals<T: Real>(
    format: &'static str,
    nrows: usize,
    ncols: usize,
    offsets: &[i32],
    values: &[T],
) -> Result<usize> {
    let expected = nrows.saturating_mul(offsets.len());
    if values.len() != expected {
        return Err(Error::Length { format, array: "values", found: values.len(), expected });
    }
    let mut nnz = 0;
    for (k, &offset) in offsets.iter().enumerate() {
        let inside = rows_of(nrows, ncols, offset);
        if inside.is_empty() {
            return Err(Error::Invalid {
                format,
                why: format!("diagonal {offset} lies outside the {nrows} x {ncols} matrix: remove it"),
            });
        }
        let column = &values[nrows * k..nrows * (k + 1)];
        if let Some(i) = (0..nrows).find(|i| !inside.contains(i) && !column[*i].is_zero()) {
            return Err(Error::Invalid {
                format,
                why: format!("values[{}] lies outside the matrix and must be 0", i + nrows * k),
            });
        }
        nnz += nonzeros(column);
    }
    checked(nnz, "entries").map(|nnz| nnz as usize)
}

/// Number of rows to write per diagonal at a time. Diagonals whose elements are a power of two apart evict each other
/// from a cache.
const TOGETHER: usize = 64;

/// The values of `csr` on the diagonals `offsets`, which cover its pattern, and the number of them that are not zero.
pub(crate) fn spread<T: Real>(csr: &Csr<T>, offsets: &[i32]) -> Result<(Vec<T>, usize)> {
    let nrows = csr.nrows();
    let mut values: Vec<T> = zeroed(nrows * offsets.len(), "values")?;
    let chunks = row_chunks(&mut values, nrows).into_par_iter().enumerate();
    let nnz = chunks.map(|(chunk, mut diagonals)| {
        let rows = chunk_rows(chunk, nrows);
        let mut nnz = 0;
        let mut on = Vec::new();
        let mut i = rows.start;
        while i < rows.end {
            let cols = csr.row(i).0;
            let alike = |&i: &usize| follows(csr.row(i - 1).0, csr.row(i).0);
            let end = i + 1 + (i + 1..rows.end.min(i + TOGETHER)).take_while(alike).count();
            on.clear();
            let mut k = 0;
            for &j in cols {
                let offset = (i64::from(j) - i as i64) as i32;
                while offsets[k] < offset {
                    k += 1;
                }
                on.push(k);
            }
            let entries = &csr.values()[csr.row_ptr()[i] as usize..csr.row_ptr()[end] as usize];
            nnz += entries.iter().filter(|v| !v.is_zero()).count();
            let first = i - rows.start;
            for (e, &k) in on.iter().enumerate() {
                let entries = entries[e..].iter().step_by(on.len());
                diagonals[k][first..first + end - i].iter_mut().zip(entries).for_each(|(to, &v)| *to = v);
            }
            i = end;
        }
        nnz
    });
    let nnz = nnz.sum();
    Ok((values, nnz))
}

/// The entries that are not zero, as CSR.
pub(crate) fn gather<T: Real>(nrows: usize, ncols: usize, offsets: &[i32], values: &[T]) -> Result<Csr<T>> {
    // The chunk's rows of diagonal k that lie inside the matrix, as (row inside the chunk, value, column).
    let piece = move |rows: &Range<usize>, k: usize| {
        let inside = rows_of(nrows, ncols, offsets[k]);
        let (from, to) = (inside.start.max(rows.start), inside.end.min(rows.end));
        let (from, start) = (from.min(to), rows.start);
        let offset = i64::from(offsets[k]);
        (from..to).map(move |i| (i - start, values[i + nrows * k], (i as i64 + offset) as Ordinal))
    };
    assemble(
        nrows,
        ncols,
        |rows, counts| {
            for k in 0..offsets.len() {
                piece(&rows, k).for_each(|(r, v, _)| counts[r] += Offset::from(!v.is_zero()));
            }
        },
        |rows, next, cols, out| {
            for k in 0..offsets.len() {
                for (r, v, j) in piece(&rows, k).filter(|(_, v, _)| !v.is_zero()) {
                    cols[next[r] as usize] = j;
                    out[next[r] as usize] = v;
                    next[r] += 1;
                }
            }
        },
    )
}

/// The values of the transpose, whose diagonals are those of `offsets`, negated and reversed.
pub(crate) fn flip<T: Real>(
    format: &'static str,
    (nrows, ncols, nnz): (usize, usize, usize),
    offsets: &[i32],
    values: &[T],
) -> Result<Vec<T>> {
    fits::<T>(format, ncols as u128 * offsets.len() as u128 * T::BYTES as u128, ncols, nnz)?;
    let mut flipped: Vec<T> = zeroed(ncols * offsets.len(), "values")?;
    if ncols == 0 {
        return Ok(flipped);
    }
    for (column, k) in flipped.chunks_mut(ncols).zip((0..offsets.len()).rev()) {
        let rows = rows_of(nrows, ncols, offsets[k]);
        let first = (rows.start as i64 + i64::from(offsets[k])) as usize;
        column[first..first + rows.len()].copy_from_slice(&values[nrows * k + rows.start..nrows * k + rows.end]);
    }
    Ok(flipped)
}

/// Number of positions of the diagonals that lie inside the matrix.
pub(crate) fn positions(nrows: usize, ncols: usize, offsets: impl Iterator<Item = i32>) -> u64 {
    offsets.map(|offset| rows_of(nrows, ncols, offset).len() as u64).sum()
}

impl<T: Real> From<Bdia<T>> for Dia<T> {
    /// Moves the values, because the layouts agree. Diagonals that only fill a gap of a band stay.
    fn from(bdia: Bdia<T>) -> Self {
        let nnz = bdia.nnz();
        let offsets = bdia.offsets().collect();
        let (nrows, ncols, _, values) = bdia.into_parts();
        Self { nrows, ncols, offsets, values, nnz }
    }
}

impl<T: Real> Traffic for Dia<T> {
    fn storage(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, &self.offsets).0
    }
    fn spmv_bytes(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, &self.offsets).1
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Dia<T> {
    type Value = T;
    const NAME: &'static str = "dia";
    const MULTIPLIES_FILL: bool = true;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.nnz
    }
    /// Refused if the storage exceeds 1 MiB and 20 times CSR's.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let offsets = occupied(csr)?;
        Self::check_storage(nrows, offsets.len(), csr.nnz())?;
        let (values, nnz) = spread(csr, &offsets)?;
        Ok(Self { nrows, ncols, offsets, values, nnz })
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        gather(self.nrows, self.ncols, &self.offsets, &self.values)
    }
    /// Copies each diagonal to its mirror image.
    fn transpose(&self) -> Result<Self> {
        let values = flip("dia", (self.nrows, self.ncols, self.nnz), &self.offsets, &self.values)?;
        let offsets = self.offsets.iter().rev().map(|offset| -offset).collect();
        Ok(Self { nrows: self.ncols, ncols: self.nrows, offsets, values, nnz: self.nnz })
    }
}
