//! HYB: an ELL part of the typical width, and COO for the remaining entries.
//!
//! Layout (6 x 6 example of the snapshots, first two rows at width 2):
//! ```text
//! | 4 . 1 . . . |      ell cols 0 2   values 4 1      coo rows   1 ...
//! | . 5 2 . 3 . |               1 2          5 2          cols   4 ...
//!                                                         values 3 ...
//! ```
//! Invariants: both parts have the matrix's shape. A row of `coo` begins where its full row of `ell` ends: no row with
//! padding in `ell` occurs in `coo`, and its columns in `coo` exceed those in `ell`. Width: the largest K such that at
//! least nrows / 3 rows, and at least 4096, have K entries or more. This assumes that ELL is 3 times as fast as COO if
//! 4096 rows fill it. So small matrices are all COO.
//! Cost of y = A x: ELL's, and nnz (8 + |T|) for the rest.
//! Order: stored; COO continues the accumulator that ELL leaves.
//! Reference: Bell & Garland, Efficient sparse matrix-vector multiplication on CUDA, 2008, section 3.5, and their CUSP.

use crate::ell::{bytes, packed_len};
use crate::padding::{assemble, fits};
use crate::{Coo, Csr, Ell, Error, Format, Offset, PADDING, Real, Result, Traffic};

/// How much faster an ELL column is than the same entries in COO (Bell & Garland).
const RELATIVE_SPEED: usize = 3;
/// Minimum number of rows for which an ELL column pays (Bell & Garland).
const BREAKEVEN: usize = 4096;

/// An ELL part and a COO part. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyb<T> {
    ell: Ell<T>,
    coo: Coo<T>,
}

impl<T: Real> Hyb<T> {
    /// A matrix from its two parts, every invariant checked in O(nnz).
    ///
    /// # Errors
    /// [`Error::Shape`] for parts of different shapes, [`Error::TooLarge`], [`Error::Invalid`], [`Error::Unsorted`].
    pub fn new(ell: Ell<T>, coo: Coo<T>) -> Result<Self> {
        let format = "hyb";
        for (what, found, expected) in
            [("coo's rows", coo.nrows(), ell.nrows()), ("coo's columns", coo.ncols(), ell.ncols())]
        {
            if found != expected {
                return Err(Error::Shape { op: "hyb", what, found, expected });
            }
        }
        crate::index::checked(ell.nnz() + coo.nnz(), "entries")?;
        if let Some(last) = ell.width().checked_sub(1) {
            for (at, (&i, &j)) in coo.rows().iter().zip(coo.cols()).enumerate() {
                let end = ell.cols()[i as usize + ell.nrows() * last];
                if end == PADDING {
                    return Err(Error::Invalid {
                        format,
                        why: format!("row {i} has entries in coo although its row of ell is not full"),
                    });
                }
                if end >= j {
                    return Err(Error::Unsorted { format, array: "coo.cols", at });
                }
            }
        }
        Ok(Self { ell, coo })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> (Ell<T>, Coo<T>) {
        (self.ell, self.coo)
    }

    /// The ELL part: the first entries of each row.
    pub fn ell(&self) -> &Ell<T> {
        &self.ell
    }

    /// The COO part: the rest of each row.
    pub fn coo(&self) -> &Coo<T> {
        &self.coo
    }

    /// The width by Bell & Garland's rule.
    pub fn choose_width(csr: &Csr<T>) -> usize {
        Self::width_of(csr.row_ptr())
    }

    /// The width and the number of entries past it that [`Format::from_csr`] chooses from CSR's row pointers. For
    /// conversions elsewhere.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's; [`Error::Length`] and [`Error::Pointer`]
    /// for invalid row pointers.
    pub fn split_of(row_ptr: &[Offset]) -> Result<(usize, usize)> {
        let Some(&nnz) = row_ptr.last() else {
            return Err(Error::Length { format: "csr", array: "row_ptr", found: 0, expected: 1 });
        };
        crate::csr::check_pointers("csr", "row_ptr", row_ptr, nnz as usize)?;
        let width = Self::width_of(row_ptr);
        Ok((width, Self::rest_of(row_ptr, width)?))
    }

    /// Bytes of a matrix of this shape with `rest` entries past `width`: [`Traffic::storage`] and
    /// [`Traffic::spmv_bytes`].
    pub fn traffic_of((nrows, ncols, nnz): (usize, usize, usize), width: usize, rest: usize) -> (u64, u64) {
        let (storage, spmv) = Ell::<T>::traffic_of(nrows, ncols, width, nnz - rest);
        let (coo, _) = Coo::<T>::traffic_of(nrows, ncols, rest);
        (storage + coo, spmv + coo)
    }

    fn width_of(row_ptr: &[Offset]) -> usize {
        let (nrows, lengths) = (row_ptr.len() - 1, || row_ptr.windows(2).map(|row| (row[1] - row[0]) as usize));
        let longest = lengths().max().unwrap_or(0);
        let mut of_length = vec![0usize; longest + 1];
        lengths().for_each(|len| of_length[len] += 1);
        Self::width_by(nrows, &crate::survey::longer(of_length))
    }

    /// The same width from the numbers of rows with more than k entries.
    pub(crate) fn width_by(nrows: usize, longer: &[usize]) -> usize {
        let few = |&rows: &usize| RELATIVE_SPEED * rows < nrows || rows < BREAKEVEN;
        longer.iter().position(few).unwrap_or(longer.len() - 1)
    }

    /// Number of entries past `width`, or an error if the storage does not fit.
    fn rest_of(row_ptr: &[Offset], width: usize) -> Result<usize> {
        let (nrows, nnz) = (row_ptr.len() - 1, row_ptr[row_ptr.len() - 1] as usize);
        let rest: usize = row_ptr.windows(2).map(|row| ((row[1] - row[0]) as usize).saturating_sub(width)).sum();
        let total = bytes::<T>(nrows, width) + rest as u128 * (8 + T::BYTES as u128);
        fits::<T>("hyb", total, nrows, nnz)?;
        Ok(rest)
    }

    /// Stores the first `width` entries of each row as ELL and the rest as COO.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn from_csr_with(csr: &Csr<T>, width: usize) -> Result<Self> {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let rest = Self::rest_of(csr.row_ptr(), width)?;
        let ell = Ell::from_heads(csr, width, csr.nnz() - rest)?;
        let mut rows = Vec::with_capacity(rest);
        let mut cols = Vec::with_capacity(rest);
        let mut values = Vec::with_capacity(rest);
        for i in 0..nrows {
            let (row_cols, row_values) = csr.row(i);
            if row_cols.len() > width {
                cols.extend_from_slice(&row_cols[width..]);
                values.extend_from_slice(&row_values[width..]);
                rows.resize(cols.len(), i as crate::Ordinal);
            }
        }
        Ok(Self { ell, coo: Coo::from_sorted(nrows, ncols, rows, cols, values) })
    }
}

impl<T: Real> From<Ell<T>> for Hyb<T> {
    /// Puts everything in the ELL part; the arrays move.
    fn from(ell: Ell<T>) -> Self {
        let coo = Coo::from_sorted(ell.nrows(), ell.ncols(), Vec::new(), Vec::new(), Vec::new());
        Self { ell, coo }
    }
}

impl<T: Real> Traffic for Hyb<T> {
    fn storage(&self) -> u64 {
        self.ell.storage() + self.coo.storage()
    }
    fn spmv_bytes(&self) -> u64 {
        self.ell.spmv_bytes() + self.coo.storage()
    }
    fn flops(&self) -> u64 {
        self.ell.flops() + self.coo.flops()
    }
}

impl<T: Real> Format for Hyb<T> {
    type Value = T;
    const NAME: &'static str = "hyb";
    const MULTIPLIES_FILL: bool = false;
    fn nrows(&self) -> usize {
        self.ell.nrows()
    }
    fn ncols(&self) -> usize {
        self.ell.ncols()
    }
    fn nnz(&self) -> usize {
        self.ell.nnz() + self.coo.nnz()
    }
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Self::from_csr_with(csr, Self::choose_width(csr))
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        let (ell, coo) = (&self.ell, &self.coo);
        // The COO entries of the chunk: rows ascend, so two binary searches find them.
        let tail = |rows: &std::ops::Range<usize>| {
            let from = coo.rows().partition_point(|&i| (i as usize) < rows.start);
            let to = coo.rows().partition_point(|&i| (i as usize) < rows.end);
            from..to
        };
        assemble(
            ell.nrows(),
            ell.ncols(),
            |rows, counts| {
                for at in tail(&rows) {
                    counts[coo.rows()[at] as usize - rows.start] += 1;
                }
                for (i, count) in rows.zip(counts) {
                    *count += packed_len(ell.nrows(), ell.cols(), i) as Offset;
                }
            },
            |rows, next, cols, values| {
                for (i, next) in rows.clone().zip(next.iter_mut()) {
                    let mut at = i;
                    while at < ell.cols().len() && ell.cols()[at] != PADDING {
                        cols[*next as usize] = ell.cols()[at];
                        values[*next as usize] = ell.values()[at];
                        *next += 1;
                        at += ell.nrows();
                    }
                }
                for at in tail(&rows) {
                    let slot = &mut next[coo.rows()[at] as usize - rows.start];
                    cols[*slot as usize] = coo.cols()[at];
                    values[*slot as usize] = coo.values()[at];
                    *slot += 1;
                }
            },
        )
    }
}
