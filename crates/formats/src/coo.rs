//! COO, coordinates: each entry with its row and column.
//!
//! Layout (6 x 6 example of the snapshots, first two rows):
//! ```text
//! | 4 . 1 . . . |      rows   0 0 1 1 1 ...
//! | . 5 2 . 3 . |      cols   0 2 1 2 4 ...
//!                      values 4 1 5 2 3 ...
//! ```
//! Invariants: the entries ascend strictly by (row, column), the order of CSR; `nrows`, `ncols`, `nnz` < 2^31.
//! [`crate::Triplets`] holds unsorted or repeated entries. Explicit zeros are entries.
//! Cost of y = A x: nnz (8 + |T|) + |T| (ncols + nrows) bytes. With 32-bit values it is smaller than dense storage only
//! below one third density.
//! Order: stored. Reference: Bell & Garland, Efficient sparse matrix-vector multiplication on CUDA, 2008, section 3.4.

use crate::counting::{gather, pointers};
use crate::index::{Offset, Ordinal, checked};
use crate::{Csc, Csr, Dense, Error, Format, Real, Result, Traffic};

/// A matrix in coordinates. See the module's head for layout and invariants.
#[doc(alias = "ijv")]
#[derive(Clone, Debug, PartialEq)]
pub struct Coo<T> {
    nrows: usize,
    ncols: usize,
    rows: Vec<Ordinal>,
    cols: Vec<Ordinal>,
    values: Vec<T>,
}

/// The parts of a [`Coo`]: `(nrows, ncols, rows, cols, values)`.
pub type CooParts<T> = (usize, usize, Vec<Ordinal>, Vec<Ordinal>, Vec<T>);

impl<T: Real> Coo<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nnz).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::IndexOutOfRange`], [`Error::Unsorted`].
    pub fn new(nrows: usize, ncols: usize, rows: Vec<Ordinal>, cols: Vec<Ordinal>, values: Vec<T>) -> Result<Self> {
        let format = "coo";
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        checked(rows.len(), "entries")?;
        for (array, found) in [("cols", cols.len()), ("values", values.len())] {
            if found != rows.len() {
                return Err(Error::Length { format, array, found, expected: rows.len() });
            }
        }
        for at in 0..rows.len() {
            for (array, found, bound) in [("rows", rows[at], nrows), ("cols", cols[at], ncols)] {
                if found as usize >= bound {
                    return Err(Error::IndexOutOfRange { format, array, at, found: i64::from(found), bound });
                }
            }
            if at > 0 && rows[at] < rows[at - 1] {
                return Err(Error::Unsorted { format, array: "rows", at });
            }
            if at > 0 && rows[at] == rows[at - 1] && cols[at] <= cols[at - 1] {
                return Err(Error::Unsorted { format, array: "cols", at });
            }
        }
        Ok(Self { nrows, ncols, rows, cols, values })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> CooParts<T> {
        (self.nrows, self.ncols, self.rows, self.cols, self.values)
    }

    /// Row of each entry, ascending.
    pub fn rows(&self) -> &[Ordinal] {
        &self.rows
    }

    /// Column of each entry.
    pub fn cols(&self) -> &[Ordinal] {
        &self.cols
    }

    /// Value of each entry.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The values, for writing in place. The pattern stays.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Computes the bytes of a matrix with `nnz` entries: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(nrows: usize, ncols: usize, nnz: usize) -> (u64, u64) {
        let (storage, value) = (nnz as u64 * (8 + T::BYTES as u64), T::BYTES as u64);
        (storage, storage + (nrows + ncols) as u64 * value)
    }

    /// Makes a matrix from entries that the caller has sorted and checked.
    pub(crate) fn from_sorted(
        nrows: usize,
        ncols: usize,
        rows: Vec<Ordinal>,
        cols: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Self {
        debug_assert!(Self::new(nrows, ncols, rows.clone(), cols.clone(), values.clone()).is_ok());
        Self { nrows, ncols, rows, cols, values }
    }

    /// Gathers entries (row, column, value) that are given column by column; `keys` are their rows.
    fn gathered(
        nrows: usize,
        ncols: usize,
        keys: impl Iterator<Item = Ordinal>,
        entries: impl Iterator<Item = (Ordinal, Ordinal, T)>,
    ) -> Self {
        let (row_ptr, cols, values) = gather(nrows, keys, entries).unwrap_or_else(|error| panic!("{error}"));
        Self::from_sorted(nrows, ncols, expand(&row_ptr, cols.len()), cols, values)
    }

    fn row_ptr(&self) -> Result<Vec<Offset>> {
        pointers(self.nrows, self.rows.iter().copied())
    }
}

/// Row of each entry of a CSR matrix.
pub(crate) fn expand(row_ptr: &[Offset], nnz: usize) -> Vec<Ordinal> {
    let mut rows = Vec::with_capacity(nnz);
    for (i, segment) in row_ptr.windows(2).enumerate() {
        rows.resize(segment[1] as usize, i as Ordinal);
    }
    rows
}

impl<T: Real> From<Csr<T>> for Coo<T> {
    /// Moves columns and values; only the row numbers are new.
    fn from(csr: Csr<T>) -> Self {
        let (nrows, ncols, row_ptr, cols, values) = csr.into_parts();
        let rows = expand(&row_ptr, cols.len());
        Self { nrows, ncols, rows, cols, values }
    }
}

impl<T: Real> From<Coo<T>> for Csr<T> {
    /// Moves columns and values; only the row pointers are new.
    ///
    /// # Panics
    /// If the memory for these cannot be allocated; [`Format::to_csr`] says so instead.
    fn from(coo: Coo<T>) -> Self {
        let row_ptr = coo.row_ptr().unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: Coo's entries are in CSR's order and range, and row_ptr was counted from them.
        unsafe { Csr::new_unchecked(coo.nrows, coo.ncols, row_ptr, coo.cols, coo.values) }
    }
}

impl<T: Real> From<&Csc<T>> for Coo<T> {
    /// Counts rows; does not go through CSR.
    ///
    /// # Panics
    /// If the memory cannot be allocated.
    fn from(csc: &Csc<T>) -> Self {
        Self::gathered(csc.nrows(), csc.ncols(), csc.row_idx().iter().copied(), csc.entries())
    }
}

impl<T: Real> From<&Dense<T>> for Coo<T> {
    /// Takes the entries that are not zero: a count per row, then one pass over the columns. Does not go through CSR.
    ///
    /// # Panics
    /// If the memory cannot be allocated.
    fn from(dense: &Dense<T>) -> Self {
        let entries = || {
            (0..dense.ncols()).flat_map(|j| {
                let column = dense.column(j).iter().enumerate().filter(|(_, v)| !v.is_zero());
                column.map(move |(i, &v)| (i as Ordinal, j as Ordinal, v))
            })
        };
        Self::gathered(dense.nrows(), dense.ncols(), entries().map(|entry| entry.0), entries())
    }
}

impl<T: Real> Traffic for Coo<T> {
    fn storage(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, self.values.len()).0
    }
    fn spmv_bytes(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, self.values.len()).1
    }
    fn flops(&self) -> u64 {
        2 * self.values.len() as u64
    }
}

impl<T: Real> Format for Coo<T> {
    type Value = T;
    const NAME: &'static str = "coo";
    const MULTIPLIES_FILL: bool = false;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.values.len()
    }
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Ok(Self {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            rows: expand(csr.row_ptr(), csr.nnz()),
            cols: csr.col_idx().to_vec(),
            values: csr.values().to_vec(),
        })
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        let row_ptr = self.row_ptr()?;
        // SAFETY: the entries are in CSR's order and range, and row_ptr was counted from them.
        Ok(unsafe { Csr::new_unchecked(self.nrows, self.ncols, row_ptr, self.cols.clone(), self.values.clone()) })
    }
    /// Goes through CSC, whose columns are the rows of the transpose.
    fn transpose(&self) -> Result<Self> {
        Csc::from_coo(self).map(|csc| csc.into_transposed().into())
    }
}
