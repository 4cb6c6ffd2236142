//! CSC, compressed sparse columns: the CSR of the transpose.
//!
//! Layout (6 x 6 example of the snapshots, first two columns):
//! ```text
//! | 4 . |      col_ptr 0     2     4 ...
//! | . 5 |      row_idx 0 3 | 1 4 | ...
//! | . . |      values  4 8 | 5 1 | ...
//! | 8 . |
//! | . 1 |
//! | . . |
//! ```
//! Invariants: `col_ptr.len() == ncols + 1`, starts at 0, never decreases, ends at `nnz`; rows ascend strictly inside a
//! column; `nrows`, `ncols`, `nnz` < 2^31. Explicit zeros are entries.
//! Cost of y = A x: nnz (4 + |T|) + 4 (ncols + 1) + |T| (ncols + nrows) bytes.
//! Order: a row of y meets its entries by ascending column, CSR's order, as long as columns are taken in order.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 3.4; Duff, Grimes, Lewis, Sparse matrix
//! test problems, 1989.

use crate::counting::{gather, transposed};
use crate::csr::{check_ascending, check_pointers};
use crate::index::{Offset, Ordinal, checked};
use crate::{Coo, Csr, Error, Format, Real, Result, Traffic};

/// A matrix in compressed sparse columns. See the module's head for layout and invariants.
#[doc(alias = "ccs")]
#[doc(alias = "SparseColMat")]
#[derive(Clone, Debug, PartialEq)]
pub struct Csc<T> {
    nrows: usize,
    ncols: usize,
    col_ptr: Vec<Offset>,
    row_idx: Vec<Ordinal>,
    values: Vec<T>,
}

/// The parts of a [`Csc`]: `(nrows, ncols, col_ptr, row_idx, values)`.
pub type CscParts<T> = (usize, usize, Vec<Offset>, Vec<Ordinal>, Vec<T>);

impl<T: Real> Csc<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nnz).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Pointer`], [`Error::IndexOutOfRange`], [`Error::Unsorted`].
    pub fn new(
        nrows: usize,
        ncols: usize,
        col_ptr: Vec<Offset>,
        row_idx: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Result<Self> {
        let format = "csc";
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        checked(row_idx.len(), "entries")?;
        if col_ptr.len() != ncols + 1 {
            return Err(Error::Length { format, array: "col_ptr", found: col_ptr.len(), expected: ncols + 1 });
        }
        if values.len() != row_idx.len() {
            return Err(Error::Length { format, array: "values", found: values.len(), expected: row_idx.len() });
        }
        check_pointers(format, "col_ptr", &col_ptr, row_idx.len())?;
        check_ascending(format, "row_idx", &col_ptr, &row_idx, nrows)?;
        Ok(Self { nrows, ncols, col_ptr, row_idx, values })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> CscParts<T> {
        (self.nrows, self.ncols, self.col_ptr, self.row_idx, self.values)
    }

    /// Where each column's entries begin: `ncols + 1` offsets.
    #[doc(alias = "indptr")]
    pub fn col_ptr(&self) -> &[Offset] {
        &self.col_ptr
    }

    /// Row of each entry.
    #[doc(alias = "indices")]
    pub fn row_idx(&self) -> &[Ordinal] {
        &self.row_idx
    }

    /// Value of each entry.
    #[doc(alias = "data")]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The values, for writing in place. The pattern stays.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Rows and values of column `j`.
    ///
    /// # Panics
    /// If `j >= ncols`, like indexing a slice.
    pub fn column(&self, j: usize) -> (&[Ordinal], &[T]) {
        let range = self.col_ptr[j] as usize..self.col_ptr[j + 1] as usize;
        (&self.row_idx[range.clone()], &self.values[range])
    }

    /// Reads a CSR matrix as the CSC of its transpose: the arrays move, nothing is sorted or copied.
    pub fn from_transposed(csr: Csr<T>) -> Self {
        let (ncols, nrows, col_ptr, row_idx, values) = csr.into_parts();
        Self { nrows, ncols, col_ptr, row_idx, values }
    }

    /// Counts columns; does not go through CSR.
    pub(crate) fn from_coo(coo: &Coo<T>) -> Result<Self> {
        let entries = coo.rows().iter().zip(coo.cols()).zip(coo.values()).map(|((&i, &j), &v)| (j, i, v));
        let (col_ptr, row_idx, values) = gather(coo.ncols(), coo.cols().iter().copied(), entries)?;
        Ok(Self { nrows: coo.nrows(), ncols: coo.ncols(), col_ptr, row_idx, values })
    }

    /// (row, column, value) of every entry, column by column.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Ordinal, Ordinal, T)> {
        (0..self.ncols).flat_map(|j| {
            let (rows, values) = self.column(j);
            rows.iter().zip(values).map(move |(&i, &v)| (i, j as Ordinal, v))
        })
    }

    /// The CSR matrix of the transpose: the arrays move, nothing is sorted or copied.
    pub fn into_transposed(self) -> Csr<T> {
        // SAFETY: CSC's invariants are CSR's with rows and columns exchanged.
        unsafe { Csr::new_unchecked(self.ncols, self.nrows, self.col_ptr, self.row_idx, self.values) }
    }
}

impl<T: Real> From<&Csr<T>> for Csc<T> {
    /// Counts columns; does not sort.
    ///
    /// # Panics
    /// If the memory cannot be allocated; [`Format::from_csr`] says so instead.
    fn from(csr: &Csr<T>) -> Self {
        Self::from_transposed(csr.transpose())
    }
}

impl<T: Real> From<Csc<T>> for Csr<T> {
    /// Counts rows; does not sort.
    ///
    /// # Panics
    /// If the memory cannot be allocated; [`Format::to_csr`] says so instead.
    fn from(csc: Csc<T>) -> Self {
        csc.into_transposed().transpose()
    }
}

impl<T: Real> From<&Coo<T>> for Csc<T> {
    /// Counts columns; does not go through CSR.
    ///
    /// # Panics
    /// If the memory cannot be allocated.
    fn from(coo: &Coo<T>) -> Self {
        Self::from_coo(coo).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl<T: Real> Traffic for Csc<T> {
    fn storage(&self) -> u64 {
        (self.values.len() * (4 + T::BYTES) + 4 * (self.ncols + 1)) as u64
    }
    fn spmv_bytes(&self) -> u64 {
        self.storage() + ((self.nrows + self.ncols) * T::BYTES) as u64
    }
    fn flops(&self) -> u64 {
        2 * self.values.len() as u64
    }
}

impl<T: Real> Format for Csc<T> {
    type Value = T;
    const NAME: &'static str = "csc";
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
        csr.try_transpose().map(Self::from_transposed)
    }
    /// Counts rows, straight from the borrowed columns.
    fn to_csr(&self) -> Result<Csr<T>> {
        let (row_ptr, col_idx, values) = transposed(self.nrows, &self.col_ptr, &self.row_idx, |e| self.values[e])?;
        // SAFETY: the rows lie inside, the columns of each row ascend because columns are taken in order, and the
        // pointers count them.
        Ok(unsafe { Csr::new_unchecked(self.nrows, self.ncols, row_ptr, col_idx, values) })
    }
    /// Counts entries and does not sort: O(nnz + nrows + ncols). [`Csc::into_transposed`] only renames the arrays, as
    /// CSR.
    fn transpose(&self) -> Result<Self> {
        Ok(Self::from_transposed(self.to_csr()?))
    }
}
