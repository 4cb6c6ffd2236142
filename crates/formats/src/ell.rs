//! ELL, ELLPACK-ITPACK: every row padded to the longest one.
//!
//! Layout (6 x 6 example of the snapshots, first two rows; `*` is padding; stored column after column, top to bottom):
//! ```text
//! | 4 . 1 . . . |      cols 0 2 *      values 4 1 0
//! | . 5 2 . 3 . |           1 2 4             5 2 3      entry k of row i at i + nrows k
//! ```
//! Invariants: `cols.len() == values.len() == nrows width`; the entries of a row are packed to the left, columns
//! ascending strictly; padding has column [`PADDING`] and value 0, and nothing but padding follows it in its row.
//! Explicit zeros are entries. Positions are computed in `usize`.
//! Cost of y = A x: 4 nrows width + |T| nnz + |T| (ncols + nrows) bytes. Rows run in lockstep, so the indices of
//! padding are read with their neighbours', but the values behind them are not.
//! Order: stored; padding is skipped.
//! Reference: Kincaid, Oppe, Young, ITPACKV 2D user's guide, 1989; Bell & Garland 2008, section 3.2.

use rayon::prelude::*;

use crate::index::{Offset, Ordinal, checked};
use crate::padding::{assemble, chunk_rows, fits, row_chunks, zeroed};
use crate::{Csr, Error, Format, Hyb, Real, Result, Traffic};

/// The column of a position that holds no entry.
pub const PADDING: Ordinal = u32::MAX;

/// A matrix whose rows are padded to one width. See the module's head for layout and invariants.
#[doc(alias = "ellpack")]
#[derive(Clone, Debug, PartialEq)]
pub struct Ell<T> {
    nrows: usize,
    ncols: usize,
    width: usize,
    cols: Vec<Ordinal>,
    values: Vec<T>,
    nnz: usize,
}

/// The parts of an [`Ell`]: `(nrows, ncols, width, cols, values)`.
pub type EllParts<T> = (usize, usize, usize, Vec<Ordinal>, Vec<T>);

impl<T: Real> Ell<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nrows width).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::IndexOutOfRange`], [`Error::Unsorted`], [`Error::Invalid`].
    pub fn new(nrows: usize, ncols: usize, width: usize, cols: Vec<Ordinal>, values: Vec<T>) -> Result<Self> {
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        checked(width, "columns")?;
        let nnz = checked(check_packed("ell", nrows, ncols, width, &cols, &values, 0)?, "entries")? as usize;
        Ok(Self { nrows, ncols, width, cols, values, nnz })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> EllParts<T> {
        (self.nrows, self.ncols, self.width, self.cols, self.values)
    }

    /// Number of stored positions per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Column of each position; [`PADDING`] if there is no entry.
    pub fn cols(&self) -> &[Ordinal] {
        &self.cols
    }

    /// Value of each position; 0 in padding.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The check that [`Format::from_csr`] makes before it pads the rows of a matrix with `nnz` entries to `width`. For
    /// conversions elsewhere.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn check_storage(nrows: usize, width: usize, nnz: usize) -> Result<()> {
        fits::<T>("ell", bytes::<T>(nrows, width), nrows, nnz)
    }

    /// Bytes of a matrix of this width with `nnz` entries: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(nrows: usize, ncols: usize, width: usize, nnz: usize) -> (u64, u64) {
        let positions = nrows as u64 * width as u64;
        let value = T::BYTES as u64;
        (positions * (4 + value), 4 * positions + (nnz + nrows + ncols) as u64 * value)
    }

    /// Packs the first `width` entries of each row, `nnz` in total. The caller has checked the storage.
    pub(crate) fn from_heads(csr: &Csr<T>, width: usize, nnz: usize) -> Result<Self> {
        let (cols, values) = pack(csr.nrows(), width, |i| {
            let (cols, values) = csr.row(i);
            let len = cols.len().min(width);
            (&cols[..len], &values[..len])
        })?;
        Ok(Self { nrows: csr.nrows(), ncols: csr.ncols(), width, cols, values, nnz })
    }
}

/// Bytes of the arrays of `rows` rows padded to `width`.
pub(crate) fn bytes<T: Real>(rows: usize, width: usize) -> u128 {
    rows as u128 * width as u128 * (4 + T::BYTES as u128)
}

/// Packs `rows` rows into column-major `cols` and `values`. `row(i)` gives the entries of row `i`, at most `width`.
pub(crate) fn pack<'a, T: Real>(
    rows: usize,
    width: usize,
    row: impl Fn(usize) -> (&'a [Ordinal], &'a [T]) + Sync,
) -> Result<(Vec<Ordinal>, Vec<T>)> {
    let mut cols: Vec<Ordinal> = zeroed(rows * width, "cols")?;
    let mut values: Vec<T> = zeroed(rows * width, "values")?;
    row_chunks(&mut cols, rows).into_par_iter().zip(row_chunks(&mut values, rows)).enumerate().for_each(
        |(chunk, (mut cols, mut values))| {
            for (r, i) in chunk_rows(chunk, rows).enumerate() {
                let (row_cols, row_values) = row(i);
                for (k, (&j, &v)) in row_cols.iter().zip(row_values).enumerate() {
                    cols[k][r] = j;
                    values[k][r] = v;
                }
                for column in &mut cols[row_cols.len()..] {
                    column[r] = PADDING;
                }
            }
        },
    );
    Ok((cols, values))
}

/// Checks the invariants of `rows` packed rows, stored column-major, and counts the entries. `base` is the position of
/// these arrays in the format's own arrays, for messages.
pub(crate) fn check_packed<T: Real>(
    format: &'static str,
    rows: usize,
    ncols: usize,
    width: usize,
    cols: &[Ordinal],
    values: &[T],
    base: usize,
) -> Result<usize> {
    let expected = rows.saturating_mul(width);
    for (array, found) in [("cols", cols.len()), ("values", values.len())] {
        if found != expected {
            return Err(Error::Length { format, array, found, expected });
        }
    }
    let mut nnz = 0;
    for at in 0..cols.len() {
        let before = at.checked_sub(rows).map(|p| cols[p]);
        let place = base + at;
        if cols[at] == PADDING {
            if !values[at].is_zero() {
                return Err(Error::Invalid { format, why: format!("values[{place}] is padding and must be 0") });
            }
            continue;
        }
        if cols[at] as usize >= ncols {
            let found = i64::from(cols[at]);
            return Err(Error::IndexOutOfRange { format, array: "cols", at: place, found, bound: ncols });
        }
        match before {
            Some(PADDING) => {
                let why = format!("cols[{place}] is an entry behind padding: pack the row to the left");
                return Err(Error::Invalid { format, why });
            }
            Some(left) if left >= cols[at] => return Err(Error::Unsorted { format, array: "cols", at: place }),
            _ => nnz += 1,
        }
    }
    Ok(nnz)
}

/// Number of entries in row `i` of `rows` packed rows.
pub(crate) fn packed_len(rows: usize, cols: &[Ordinal], i: usize) -> usize {
    cols.iter().skip(i).step_by(rows).take_while(|&&j| j != PADDING).count()
}

impl<T: Real> TryFrom<Hyb<T>> for Ell<T> {
    type Error = Error;
    /// Moves the arrays if the COO part is empty; otherwise packs the rows again at full width.
    fn try_from(hyb: Hyb<T>) -> Result<Self> {
        if hyb.coo().nnz() == 0 {
            return Ok(hyb.into_parts().0);
        }
        Self::from_csr(&hyb.to_csr()?)
    }
}

impl<T: Real> Traffic for Ell<T> {
    fn storage(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, self.width, self.nnz).0
    }
    fn spmv_bytes(&self) -> u64 {
        Self::traffic_of(self.nrows, self.ncols, self.width, self.nnz).1
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Ell<T> {
    type Value = T;
    const NAME: &'static str = "ell";
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
    /// Width of the longest row. Refused if the storage exceeds 1 MiB and 20 times CSR's.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        let width = (0..csr.nrows()).map(|i| csr.row_nnz(i)).max().unwrap_or(0);
        Self::check_storage(csr.nrows(), width, csr.nnz())?;
        Self::from_heads(csr, width, csr.nnz())
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        assemble(
            self.nrows,
            self.ncols,
            |rows, counts| {
                for (i, count) in rows.zip(counts) {
                    *count = packed_len(self.nrows, &self.cols, i) as Offset;
                }
            },
            |rows, next, cols, values| {
                for (i, next) in rows.zip(next) {
                    let mut at = i;
                    while at < self.cols.len() && self.cols[at] != PADDING {
                        cols[*next as usize] = self.cols[at];
                        values[*next as usize] = self.values[at];
                        *next += 1;
                        at += self.nrows;
                    }
                }
            },
        )
    }
}
