//! SELL-C-sigma: rows are sorted by length inside windows of sigma and cut into slices of C rows, each padded to its
//! longest row.
//!
//! Layout (c = 2, sigma = 4; rows 0..4 of the 6 x 6 example of the snapshots; `*` is padding):
//! ```text
//! lengths 2 3 1 2      slice 0: row 1 | cols 1 2 4      slice 1: row 3 | cols 0 3
//! perm    1 0 3 2               row 0 |      0 2 *               row 2 |      2 *
//! slice_ptr 0 3 5      entry k of lane l of slice s at (slice_ptr[s] + k) c + l
//! ```
//! Invariants: `perm` is a bijection (`perm[new] = old`) that maps every window of `sigma` rows to itself. Slice s
//! holds rows perm[s c..]. `slice_ptr` counts widths and has one more element than there are slices. Lanes past the
//! last row are padding. Padding is as in ELL ([`PADDING`], value 0, to the right). `sigma` is a multiple of `c`, or 1,
//! which keeps the order of the rows.
//! Cost of y = A x: 4 (positions + nrows + slices + 1) + |T| nnz + |T| (ncols + nrows) bytes. The lanes of a slice run
//! in lockstep, so the indices of padding are read, but the values behind them are not.
//! Order: stored; padding is skipped.
//! Reference: Kreutzer, Hager, Wellein, Fehske, Bishop, A unified sparse matrix data format for efficient general
//! sparse matrix-vector multiplication on modern processors with wide SIMD units, 2014.

use rayon::prelude::*;

use crate::ell::check_packed;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::{assemble, check_perm, fits, sort_descending, zeroed};
use crate::{Csr, Error, Format, PADDING, Real, Result, Traffic};

/// Default number of rows per slice: a warp, and a multiple of every SIMD width.
pub const DEFAULT_C: usize = 32;
/// Default number of rows per sorting window: it sorts well and keeps x close.
pub const DEFAULT_SIGMA: usize = 1024;

/// A matrix in padded slices of sorted rows. See the module's head for layout and invariants.
#[doc(alias = "sell_c_sigma")]
#[derive(Clone, Debug, PartialEq)]
pub struct Sell<T> {
    nrows: usize,
    ncols: usize,
    c: usize,
    sigma: usize,
    slice_ptr: Vec<Offset>,
    perm: Vec<Ordinal>,
    cols: Vec<Ordinal>,
    values: Vec<T>,
    nnz: usize,
}

/// The parts of a [`Sell`]: `(nrows, ncols, c, sigma, slice_ptr, perm, cols, values)`.
pub type SellParts<T> = (usize, usize, usize, usize, Vec<Offset>, Vec<Ordinal>, Vec<Ordinal>, Vec<T>);

fn check_parameters(c: usize, sigma: usize) -> Result<()> {
    let format = "sell";
    checked(c, "rows")?;
    if c == 0 {
        return Err(Error::Invalid { format, why: "c = 0: a slice needs at least one row".into() });
    }
    if sigma != 1 && (sigma == 0 || !sigma.is_multiple_of(c)) {
        return Err(Error::Invalid {
            format,
            why: format!("sigma = {sigma} is neither 1 nor a multiple of c = {c}: a window holds whole slices"),
        });
    }
    Ok(())
}

impl<T: Real> Sell<T> {
    /// Makes a matrix from its parts and checks every invariant in O(positions).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Pointer`], [`Error::IndexOutOfRange`], [`Error::Unsorted`],
    /// [`Error::Invalid`].
    pub fn new(
        nrows: usize,
        ncols: usize,
        c: usize,
        sigma: usize,
        slice_ptr: Vec<Offset>,
        perm: Vec<Ordinal>,
        cols: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Result<Self> {
        let format = "sell";
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        check_parameters(c, sigma)?;
        let slices = nrows.div_ceil(c);
        if slice_ptr.len() != slices + 1 {
            return Err(Error::Length { format, array: "slice_ptr", found: slice_ptr.len(), expected: slices + 1 });
        }
        let widths = slice_ptr[slices] as usize;
        crate::csr::check_pointers(format, "slice_ptr", &slice_ptr, widths)?;
        let expected = widths.saturating_mul(c);
        for (array, found) in [("cols", cols.len()), ("values", values.len())] {
            if found != expected {
                return Err(Error::Length { format, array, found, expected });
            }
        }
        check_perm(format, &perm, nrows)?;
        if let Some(new) = (0..nrows).find(|&new| perm[new] as usize / sigma != new / sigma) {
            return Err(Error::Invalid {
                format,
                why: format!("perm[{new}] = {} leaves its window of sigma = {sigma} rows", perm[new]),
            });
        }
        let mut nnz = 0;
        for s in 0..slices {
            let range = slice_ptr[s] as usize * c..slice_ptr[s + 1] as usize * c;
            let (cols, values) = (&cols[range.clone()], &values[range.clone()]);
            nnz += check_packed(format, c, ncols, cols.len() / c, cols, values, range.start)?;
            if let Some(lane) = (nrows.min(s * c + c) - s * c..c).find(|&l| cols.get(l).is_some_and(|&j| j != PADDING))
            {
                return Err(Error::Invalid { format, why: format!("lane {lane} of the last slice has no row") });
            }
        }
        checked(nnz, "entries")?;
        Ok(Self { nrows, ncols, c, sigma, slice_ptr, perm, cols, values, nnz })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> SellParts<T> {
        (self.nrows, self.ncols, self.c, self.sigma, self.slice_ptr, self.perm, self.cols, self.values)
    }

    /// Number of rows per slice.
    pub fn c(&self) -> usize {
        self.c
    }

    /// Number of rows per sorting window.
    pub fn sigma(&self) -> usize {
        self.sigma
    }

    /// Sum of the widths of the slices before each slice; one more element than slices.
    pub fn slice_ptr(&self) -> &[Offset] {
        &self.slice_ptr
    }

    /// `perm[new] = old`: the row in each lane, slice after slice.
    pub fn perm(&self) -> &[Ordinal] {
        &self.perm
    }

    /// Column of each position; [`PADDING`] if there is no entry.
    pub fn cols(&self) -> &[Ordinal] {
        &self.cols
    }

    /// Value of each position; 0 in padding.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Number of slices.
    pub fn slices(&self) -> usize {
        self.slice_ptr.len() - 1
    }

    /// `perm` and `slice_ptr` as [`Sell::from_csr_with`] makes them from CSR's row pointers. For conversions elsewhere.
    ///
    /// # Errors
    /// As [`Sell::from_csr_with`]; [`Error::Length`] and [`Error::Pointer`] for invalid row pointers.
    pub fn slices_of(row_ptr: &[Offset], c: usize, sigma: usize) -> Result<(Vec<Ordinal>, Vec<Offset>)> {
        check_parameters(c, sigma)?;
        let Some((&nnz, rows)) = row_ptr.split_last() else {
            return Err(Error::Length { format: "csr", array: "row_ptr", found: 0, expected: 1 });
        };
        let (nrows, nnz) = (rows.len(), nnz as usize);
        crate::csr::check_pointers("csr", "row_ptr", row_ptr, nnz)?;
        let row_nnz = |i: usize| (row_ptr[i + 1] - row_ptr[i]) as usize;
        let mut perm: Vec<Ordinal> = zeroed(nrows, "perm")?;
        let task = sigma * (4096 / sigma).max(1);
        perm.par_chunks_mut(task).enumerate().for_each_init(Vec::new, |counts, (group, part)| {
            let start = group * task;
            let windows = if sigma == 1 { part.len() } else { sigma };
            for (w, window) in part.chunks_mut(windows).enumerate() {
                let range = start + w * windows..start + w * windows + window.len();
                if sigma == 1 {
                    window.iter_mut().zip(range).for_each(|(p, i)| *p = i as Ordinal);
                } else {
                    sort_descending(row_nnz, range, counts, window);
                }
            }
        });
        let mut slice_ptr: Vec<Offset> = Vec::with_capacity(nrows.div_ceil(c) + 1);
        slice_ptr.push(0);
        let mut widths = 0;
        for lanes in perm.chunks(c) {
            widths += lanes.iter().map(|&i| row_nnz(i as usize)).max().unwrap_or(0);
            slice_ptr.push(checked(widths, "columns of slices")?);
        }
        let bytes = widths as u128 * c as u128 * (4 + T::BYTES as u128) + 4 * (nrows + slice_ptr.len()) as u128;
        fits::<T>("sell", bytes, nrows, nnz)?;
        Ok((perm, slice_ptr))
    }

    /// Bytes of a matrix of this shape with `nnz` entries and `slices` slices of `c` rows, whose widths sum to
    /// `widths`: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(
        (nrows, ncols, nnz): (usize, usize, usize),
        c: usize,
        slices: usize,
        widths: usize,
    ) -> (u64, u64) {
        let (positions, value) = (widths as u64 * c as u64, T::BYTES as u64);
        let lists = 4 * (nrows + slices + 1) as u64;
        (positions * (4 + value) + lists, 4 * positions + lists + (nnz + nrows + ncols) as u64 * value)
    }

    /// Makes slices of `c` rows, with rows sorted by descending length (stable) inside windows of `sigma` rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] for `c` = 0 or a `sigma` that is neither 1 nor a multiple of `c`; [`Error::TooLarge`] if the
    /// widths exceed the offsets; [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn from_csr_with(csr: &Csr<T>, c: usize, sigma: usize) -> Result<Self> {
        let nrows = csr.nrows();
        let (perm, slice_ptr) = Self::slices_of(csr.row_ptr(), c, sigma)?;
        let widths = slice_ptr[slice_ptr.len() - 1] as usize;
        let mut cols: Vec<Ordinal> = zeroed(widths * c, "cols")?;
        let mut values: Vec<T> = zeroed(widths * c, "values")?;
        let mut slices = Vec::with_capacity(slice_ptr.len() - 1);
        let (mut cols_left, mut values_left) = (&mut cols[..], &mut values[..]);
        for (lanes, ptr) in perm.chunks(c).zip(slice_ptr.windows(2)) {
            let len = (ptr[1] - ptr[0]) as usize * c;
            let (slice_cols, cols_rest) = cols_left.split_at_mut(len);
            let (slice_values, values_rest) = values_left.split_at_mut(len);
            (cols_left, values_left) = (cols_rest, values_rest);
            slices.push((lanes, slice_cols, slice_values));
        }
        slices.into_par_iter().with_min_len(64).for_each(|(lanes, cols, values)| {
            cols.fill(PADDING);
            for (l, &i) in lanes.iter().enumerate() {
                let (row_cols, row_values) = csr.row(i as usize);
                for (k, (&j, &v)) in row_cols.iter().zip(row_values).enumerate() {
                    cols[k * c + l] = j;
                    values[k * c + l] = v;
                }
            }
        });
        Ok(Self { nrows, ncols: csr.ncols(), c, sigma, slice_ptr, perm, cols, values, nnz: csr.nnz() })
    }
}

impl<T: Real> Traffic for Sell<T> {
    fn storage(&self) -> u64 {
        let shape = (self.nrows, self.ncols, self.nnz);
        Self::traffic_of(shape, self.c, self.slices(), self.cols.len() / self.c).0
    }
    fn spmv_bytes(&self) -> u64 {
        let shape = (self.nrows, self.ncols, self.nnz);
        Self::traffic_of(shape, self.c, self.slices(), self.cols.len() / self.c).1
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Sell<T> {
    type Value = T;
    const NAME: &'static str = "sell";
    const MULTIPLIES_FILL: bool = false;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.nnz
    }
    /// c = 32, sigma = 1024.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Self::from_csr_with(csr, DEFAULT_C, DEFAULT_SIGMA)
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        let mut inverse: Vec<Ordinal> = zeroed(self.nrows, "perm")?;
        for (new, &old) in self.perm.iter().enumerate() {
            inverse[old as usize] = new as Ordinal;
        }
        let positions = |i: usize| {
            let (s, l) = (inverse[i] as usize / self.c, inverse[i] as usize % self.c);
            (self.slice_ptr[s] as usize..self.slice_ptr[s + 1] as usize)
                .map(move |k| k * self.c + l)
                .take_while(|&at| self.cols[at] != PADDING)
        };
        assemble(
            self.nrows,
            self.ncols,
            |rows, counts| rows.zip(counts).for_each(|(i, count)| *count = positions(i).count() as Offset),
            |rows, next, cols, values| {
                for (i, next) in rows.zip(next) {
                    for at in positions(i) {
                        cols[*next as usize] = self.cols[at];
                        values[*next as usize] = self.values[at];
                        *next += 1;
                    }
                }
            },
        )
    }
    /// Goes through CSR and keeps the same c and sigma.
    fn transpose(&self) -> Result<Self> {
        Self::from_csr_with(&self.to_csr()?.try_transpose()?, self.c, self.sigma)
    }
}
