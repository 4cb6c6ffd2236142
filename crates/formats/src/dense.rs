//! Dense: every position is stored, as in BLAS.
//!
//! Layout (6 x 6 example of the snapshots, first two columns):
//! ```text
//! | 4 . 1 . . . |      values 4 0 0 8 0 0 | 0 5 0 0 1 0 | ...      A[i, j] at i + nrows j
//! | . 5 2 . 3 . |
//! ```
//! Invariants: `values.len() == nrows ncols`, less than 2^31 of them not zero; zeros are multiplied like entries.
//! Cost of y = A x: |T| (nrows ncols + ncols + nrows) bytes.
//! Order: stored, ascending columns: CSR's order.
//! Reference: Anderson et al., LAPACK Users' Guide, 1999, section 5.3.

use std::ops::Range;

use rayon::prelude::*;

use crate::index::{Offset, Ordinal, checked};
use crate::padding::{assemble, chunk_rows, nonzeros, row_chunks, zeroed};
use crate::{Csr, Error, Format, Real, Result, Traffic};

/// Number of bytes up to which any matrix may be stored densely. Beyond it, dense storage may take at most 20 times the
/// bytes of CSR.
pub(crate) const FREE: u128 = 1 << 30;

/// A dense matrix, column-major. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense<T> {
    nrows: usize,
    ncols: usize,
    values: Vec<T>,
    nnz: usize,
}

impl<T: Real> Dense<T> {
    /// Makes a matrix from its parts.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`].
    pub fn new(nrows: usize, ncols: usize, values: Vec<T>) -> Result<Self> {
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        let expected = nrows * ncols;
        if values.len() != expected {
            return Err(Error::Length { format: "dense", array: "values", found: values.len(), expected });
        }
        let nnz = checked(nonzeros(&values), "entries")? as usize;
        Ok(Self { nrows, ncols, values, nnz })
    }

    /// Returns the parts `(nrows, ncols, values)` without a copy.
    pub fn into_parts(self) -> (usize, usize, Vec<T>) {
        (self.nrows, self.ncols, self.values)
    }

    /// All values, column after column.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Column `j`.
    ///
    /// # Panics
    /// If `j >= ncols`, like indexing a slice.
    pub fn column(&self, j: usize) -> &[T] {
        &self.values[self.nrows * j..self.nrows * (j + 1)]
    }

    /// The value at (`i`, `j`), or `None` outside the matrix.
    pub fn get(&self, i: usize, j: usize) -> Option<T> {
        (i < self.nrows && j < self.ncols).then(|| self.values[i + self.nrows * j])
    }
}

impl<T: Real> Traffic for Dense<T> {
    fn storage(&self) -> u64 {
        (self.values.len() * T::BYTES) as u64
    }
    fn spmv_bytes(&self) -> u64 {
        self.storage() + ((self.nrows + self.ncols) * T::BYTES) as u64
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Dense<T> {
    type Value = T;
    const NAME: &'static str = "dense";
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
    /// Refused if the storage exceeds both 1 GiB and 20 times CSR's. Dense storage is chosen on purpose, so it may
    /// waste more than other formats.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let bytes = nrows as u128 * ncols as u128 * T::BYTES as u128;
        if bytes > FREE {
            crate::padding::fits::<T>("dense", bytes, nrows, csr.nnz())?;
        }
        let mut values: Vec<T> = zeroed(nrows * ncols, "values")?;
        row_chunks(&mut values, nrows).into_par_iter().enumerate().for_each(|(chunk, mut columns)| {
            for (r, i) in chunk_rows(chunk, nrows).enumerate() {
                let (cols, row_values) = csr.row(i);
                for (&j, &v) in cols.iter().zip(row_values) {
                    columns[j as usize][r] = v;
                }
            }
        });
        Ok(Self { nrows, ncols, values, nnz: nonzeros(csr.values()) })
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        let piece = |rows: &Range<usize>, j: usize| self.column(j)[rows.clone()].iter().enumerate();
        assemble(
            self.nrows,
            self.ncols,
            |rows, counts| {
                for j in 0..self.ncols {
                    piece(&rows, j).for_each(|(r, v)| counts[r] += Offset::from(!v.is_zero()));
                }
            },
            |rows, next, cols, values| {
                for j in 0..self.ncols {
                    for (r, &v) in piece(&rows, j).filter(|(_, v)| !v.is_zero()) {
                        cols[next[r] as usize] = j as Ordinal;
                        values[next[r] as usize] = v;
                        next[r] += 1;
                    }
                }
            },
        )
    }
    /// Transposes tiles of 32 x 32, so that both sides stay in the cache.
    fn transpose(&self) -> Result<Self> {
        const TILE: usize = 32;
        let (nrows, ncols) = (self.nrows, self.ncols);
        let mut values: Vec<T> = zeroed(nrows * ncols, "values")?;
        if !values.is_empty() {
            values.par_chunks_mut(ncols * TILE).enumerate().for_each(|(tile, columns)| {
                for j0 in (0..ncols).step_by(TILE) {
                    for (r, column) in columns.chunks_mut(ncols).enumerate() {
                        for (j, out) in column.iter_mut().enumerate().skip(j0).take(TILE) {
                            *out = self.values[tile * TILE + r + nrows * j];
                        }
                    }
                }
            });
        }
        Ok(Self { nrows: ncols, ncols: nrows, values, nnz: self.nnz })
    }
}
