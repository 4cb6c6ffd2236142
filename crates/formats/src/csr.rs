//! CSR, compressed sparse rows: the hub of all conversions.
//!
//! Layout (6 x 6 example of the snapshots, first two rows):
//! ```text
//! | 4 . 1 . . . |      row_ptr 0     2       5 ...
//! | . 5 2 . 3 . |      col_idx 0 2 | 1 2 4 | ...
//!                      values  4 1 | 5 2 3 | ...
//! ```
//! Invariants: `row_ptr.len() == nrows + 1`, starts at 0, never decreases, ends at `nnz`; columns ascend strictly inside a
//! row; `nrows`, `ncols`, `nnz` < 2^31. Explicit zeros are entries.
//! Cost of y = A x: nnz (4 + |T|) + 4 (nrows + 1) + |T| (ncols + nrows) bytes.
//! Order: stored. Reference: Tinney & Walker 1967; Saad, Iterative Methods for Sparse Linear Systems, 2003, section 3.4.

use rayon::prelude::*;

use crate::counting::transposed;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Error, Format, Real, Result, Traffic, Triplets};

/// Rows of a parallel task.
const CHUNK: usize = 4096;

/// A matrix in compressed sparse rows. See the module's head for layout and invariants.
#[doc(alias = "crs")]
#[doc(alias = "CsMat")]
#[doc(alias = "CsrMatrix")]
#[doc(alias = "SparseRowMat")]
#[derive(Clone, Debug, PartialEq)]
pub struct Csr<T> {
    nrows: usize,
    ncols: usize,
    row_ptr: Vec<Offset>,
    col_idx: Vec<Ordinal>,
    values: Vec<T>,
}

/// The parts of a [`Csr`]: `(nrows, ncols, row_ptr, col_idx, values)`.
pub type CsrParts<T> = (usize, usize, Vec<Offset>, Vec<Ordinal>, Vec<T>);

impl<T: Real> Csr<T> {
    /// A matrix from its parts, every invariant checked in O(nnz).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Pointer`], [`Error::IndexOutOfRange`], [`Error::Unsorted`].
    pub fn new(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<Offset>,
        col_idx: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Result<Self> {
        Self::check(nrows, ncols, &row_ptr, &col_idx, values.len())?;
        Ok(Self { nrows, ncols, row_ptr, col_idx, values })
    }

    /// A matrix from (row, column, value) entries in any order. Entries at the same place are summed in the order in which they
    /// come, so the result is the same on every machine.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] with the position of the entry that lies outside the matrix; [`Error::TooLarge`];
    /// [`Error::OutOfMemory`].
    ///
    /// ```
    /// use spandrel_formats::Csr;
    ///
    /// let a = Csr::from_triplets(2, 3, [(0, 2, 4.0), (1, 0, 1.0), (0, 2, 0.5)])?;
    /// assert_eq!((a.nrows(), a.ncols(), a.nnz()), (2, 3, 2));
    /// assert_eq!(a.mul_vec(&[1.0, 0.0, 2.0])?, [9.0, 1.0]);
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    #[doc(alias = "from_coo")]
    pub fn from_triplets(
        nrows: usize,
        ncols: usize,
        triplets: impl IntoIterator<Item = (usize, usize, T)>,
    ) -> Result<Self> {
        Triplets::from_entries(nrows, ncols, triplets)?.to_csr()
    }

    /// A matrix row by row, in parallel: `count(i)` entries in row `i`, which `fill(i, columns, values)` writes (zeros before), columns
    /// ascending. Checked as [`Csr::new`] does. O(nnz), and no copy.
    ///
    /// # Errors
    /// Those of [`Csr::new`]; [`Error::OutOfMemory`].
    pub fn from_rows(
        nrows: usize,
        ncols: usize,
        count: impl Fn(usize) -> usize + Sync,
        fill: impl Fn(usize, &mut [Ordinal], &mut [T]) + Sync,
    ) -> Result<Self> {
        checked(nrows, "rows")?;
        let mut row_ptr: Vec<Offset> = zeroed(nrows + 1, "row pointers")?;
        // Ends of rows within a chunk first; too long ones saturate, as their sum is refused.
        let ends = |(chunk, ends): (usize, &mut [Offset])| {
            let mut end = 0usize;
            for (i, place) in ends.iter_mut().enumerate() {
                end += count(chunk * CHUNK + i);
                *place = end.min(Offset::MAX as usize) as Offset;
            }
            end
        };
        let mut totals: Vec<usize> = row_ptr[1..].par_chunks_mut(CHUNK).enumerate().map(ends).collect();
        let lengths = totals.clone();
        let nnz = begins(&mut totals);
        checked(nnz, "entries")?;
        let mut col_idx: Vec<Ordinal> = zeroed(nnz, "columns")?;
        let mut values: Vec<T> = zeroed(nnz, "values")?;
        let cols = pieces(&mut col_idx, lengths.iter().copied());
        let vals = pieces(&mut values, lengths.iter().copied());
        row_ptr[1..].par_chunks_mut(CHUNK).zip(cols).zip(vals).zip(totals).enumerate().for_each(
            |(chunk, (((ends, cols), vals), begin))| {
                let mut at = 0;
                for (i, place) in ends.iter_mut().enumerate() {
                    let end = *place as usize;
                    fill(chunk * CHUNK + i, &mut cols[at..end], &mut vals[at..end]);
                    *place = (begin + end) as Offset;
                    at = end;
                }
            },
        );
        Self::new(nrows, ncols, row_ptr, col_idx, values)
    }

    /// A matrix from parts that the caller vouches for.
    ///
    /// # Safety
    /// The parts satisfy every invariant of the module's head; kernels index without a check on the strength of them.
    pub unsafe fn new_unchecked(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<Offset>,
        col_idx: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Self {
        debug_assert!(Self::check(nrows, ncols, &row_ptr, &col_idx, values.len()).is_ok());
        Self { nrows, ncols, row_ptr, col_idx, values }
    }

    fn check(nrows: usize, ncols: usize, row_ptr: &[Offset], col_idx: &[Ordinal], values: usize) -> Result<()> {
        let format = "csr";
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        checked(col_idx.len(), "entries")?;
        if row_ptr.len() != nrows + 1 {
            return Err(Error::Length { format, array: "row_ptr", found: row_ptr.len(), expected: nrows + 1 });
        }
        if values != col_idx.len() {
            return Err(Error::Length { format, array: "values", found: values, expected: col_idx.len() });
        }
        check_pointers(format, "row_ptr", row_ptr, col_idx.len())?;
        check_ascending(format, "col_idx", row_ptr, col_idx, ncols)
    }

    /// Bytes of a matrix with `nnz` entries: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(nrows: usize, ncols: usize, nnz: usize) -> (u64, u64) {
        let value = T::BYTES as u64;
        let storage = nnz as u64 * (4 + value) + 4 * (nrows as u64 + 1);
        (storage, storage + (nrows + ncols) as u64 * value)
    }

    /// The parts, without a copy.
    pub fn into_parts(self) -> CsrParts<T> {
        (self.nrows, self.ncols, self.row_ptr, self.col_idx, self.values)
    }

    /// Where each row's entries begin, `nrows + 1` offsets.
    #[doc(alias = "indptr")]
    pub fn row_ptr(&self) -> &[Offset] {
        &self.row_ptr
    }

    /// Column of each entry.
    #[doc(alias = "indices")]
    pub fn col_idx(&self) -> &[Ordinal] {
        &self.col_idx
    }

    /// Value of each entry.
    #[doc(alias = "data")]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Values, to be changed in place; the pattern stays.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Columns and values of row `i`.
    ///
    /// # Panics
    /// If `i >= nrows`, like indexing a slice.
    pub fn row(&self, i: usize) -> (&[Ordinal], &[T]) {
        let range = self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize;
        (&self.col_idx[range.clone()], &self.values[range])
    }

    /// Entries in row `i`.
    ///
    /// # Panics
    /// If `i >= nrows`, like indexing a slice.
    pub fn row_nnz(&self, i: usize) -> usize {
        (self.row_ptr[i + 1] - self.row_ptr[i]) as usize
    }

    /// The entry at (`i`, `j`), or `None` where nothing is stored (also outside the matrix). O(log of the row's entries).
    pub fn get(&self, i: usize, j: usize) -> Option<T> {
        if i >= self.nrows || j >= self.ncols {
            return None;
        }
        let (cols, values) = self.row(i);
        cols.binary_search(&(j as Ordinal)).ok().map(|k| values[k])
    }

    /// A x, with the bits of a product on any device: each row is summed from +0 by `fma` through its stored entries. In parallel.
    ///
    /// For products again and again, load the matrix on a device: there nothing is allocated.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has an element per column; [`Error::OutOfMemory`].
    #[doc(alias = "matvec")]
    #[doc(alias = "spmv")]
    #[doc(alias = "dot")]
    pub fn mul_vec(&self, x: &[T]) -> Result<Vec<T>> {
        if x.len() != self.ncols {
            return Err(Error::Shape { op: "mul_vec", what: "x", found: x.len(), expected: self.ncols });
        }
        let mut y: Vec<T> = zeroed(self.nrows, "a product")?;
        y.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, y)| {
            let begin = chunk * CHUNK;
            multiply_rows(&self.row_ptr[begin..=begin + y.len()], &self.col_idx, &self.values, x, y);
        });
        Ok(y)
    }

    /// The n x n identity.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn identity(n: usize) -> Result<Self> {
        let count = checked(n, "rows")?;
        Ok(Self {
            nrows: n,
            ncols: n,
            row_ptr: (0..=count).collect(),
            col_idx: (0..count).collect(),
            values: vec![T::one(); n],
        })
    }

    /// The largest magnitude of its finite values; 0 without one. In parallel.
    pub fn largest_magnitude(&self) -> T {
        let finite = self.values.par_iter().map(|v| v.abs()).filter(|v| v.is_finite());
        finite.reduce(T::zero, T::max)
    }

    /// The same pattern with each value mapped by `f` (also to another element type), in parallel, as the copy of the pattern is made.
    pub fn map<U: Real>(&self, f: impl Fn(T) -> U + Sync) -> Csr<U> {
        Csr {
            nrows: self.nrows,
            ncols: self.ncols,
            row_ptr: self.row_ptr.par_iter().copied().collect(),
            col_idx: self.col_idx.par_iter().copied().collect(),
            values: self.values.par_iter().map(|&v| f(v)).collect(),
        }
    }

    /// The transpose, by counting columns: O(nnz + nrows + ncols), no sort.
    ///
    /// # Panics
    /// Where its memory is not to be had; [`Csr::try_transpose`] says so instead.
    pub fn transpose(&self) -> Self {
        self.try_transpose().unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`Csr::transpose`] of a matrix whose columns may be too many for an array of their pointers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn try_transpose(&self) -> Result<Self> {
        let (row_ptr, col_idx, values) = transposed(self.ncols, &self.row_ptr, &self.col_idx, &self.values)?;
        Ok(Self { nrows: self.ncols, ncols: self.nrows, row_ptr, col_idx, values })
    }

    /// Drops entries with |value| <= `threshold` (cuSPARSE's csr2csr_compress); NaN is kept. `compress(0)` drops explicit
    /// zeros.
    #[must_use]
    pub fn compress(&self, threshold: T) -> Self {
        let mut row_ptr = Vec::with_capacity(self.nrows + 1);
        let mut col_idx = Vec::new();
        let mut values = Vec::new();
        row_ptr.push(0);
        for i in 0..self.nrows {
            let (cols, vals) = self.row(i);
            for (&j, &v) in cols.iter().zip(vals) {
                if v.is_nan() || v.abs() > threshold {
                    col_idx.push(j);
                    values.push(v);
                }
            }
            row_ptr.push(col_idx.len() as Offset);
        }
        Self { nrows: self.nrows, ncols: self.ncols, row_ptr, col_idx, values }
    }

    /// The main diagonal, `min(nrows, ncols)` values, zero where nothing is stored.
    pub fn diagonal(&self) -> Vec<T> {
        let entry = |i| self.get(i, i).unwrap_or_else(T::zero);
        (0..self.nrows.min(self.ncols)).into_par_iter().with_min_len(CHUNK).map(entry).collect()
    }
}

/// Rows of a product, a segment of `ptr` each. Compiled also for processors with FMA, which is many times as fast and gives the
/// same bits.
fn multiply_rows<T: Real>(ptr: &[Offset], cols: &[Ordinal], values: &[T], x: &[T], y: &mut [T]) {
    #[inline(always)]
    fn body<T: Real>(ptr: &[Offset], cols: &[Ordinal], values: &[T], x: &[T], y: &mut [T]) {
        for (segment, y) in ptr.windows(2).zip(y) {
            let range = segment[0] as usize..segment[1] as usize;
            let entries = cols[range.clone()].iter().zip(&values[range]);
            *y = entries.fold(T::zero(), |sum, (&j, &v)| v.mul_add(x[j as usize], sum));
        }
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        #[target_feature(enable = "avx2,fma")]
        fn fused<T: Real>(ptr: &[Offset], cols: &[Ordinal], values: &[T], x: &[T], y: &mut [T]) {
            body(ptr, cols, values, x, y);
        }
        // SAFETY: the processor has both features.
        return unsafe { fused(ptr, cols, values, x, y) };
    }
    body(ptr, cols, values, x, y);
}

impl<T: Real> Traffic for Csr<T> {
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

impl<T: Real> Format for Csr<T> {
    type Value = T;
    const NAME: &'static str = "csr";
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
        Ok(csr.clone())
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        Ok(self.clone())
    }
    fn as_csr(&self) -> Result<std::borrow::Cow<'_, Csr<T>>> {
        Ok(std::borrow::Cow::Borrowed(self))
    }
    fn transpose(&self) -> Result<Self> {
        self.try_transpose()
    }
}

/// `ptr` starts at 0, never decreases and ends at `end`.
pub(crate) fn check_pointers(format: &'static str, array: &'static str, ptr: &[Offset], end: usize) -> Result<()> {
    let bad = |at: usize| Error::Pointer { format, array, at, found: u64::from(ptr[at]) };
    if ptr[0] != 0 {
        return Err(bad(0));
    }
    if let Some(at) = (1..ptr.len()).into_par_iter().with_min_len(CHUNK).find_first(|&at| ptr[at] < ptr[at - 1]) {
        return Err(bad(at));
    }
    if ptr[ptr.len() - 1] as usize != end {
        return Err(bad(ptr.len() - 1));
    }
    Ok(())
}

/// Inside each segment of `ptr`, `idx` ascends strictly and stays below `bound`.
pub(crate) fn check_ascending(
    format: &'static str,
    array: &'static str,
    ptr: &[Offset],
    idx: &[Ordinal],
    bound: usize,
) -> Result<()> {
    // Ascending and the last one inside: all are. No branch for each.
    let is_fine = |segment: &&[Offset]| {
        let idx = &idx[segment[0] as usize..segment[1] as usize];
        let ascends = idx.iter().zip(idx.iter().skip(1)).fold(true, |all, (one, next)| all & (one < next));
        ascends && idx.last().is_none_or(|&last| (last as usize) < bound)
    };
    let Some(segment) = ptr.par_windows(2).with_min_len(CHUNK).find_first(|segment| !is_fine(segment)) else {
        return Ok(());
    };
    let (begin, end) = (segment[0] as usize, segment[1] as usize);
    for at in begin..end {
        if idx[at] as usize >= bound {
            return Err(Error::IndexOutOfRange { format, array, at, found: i64::from(idx[at]), bound });
        }
        if at > begin && idx[at] <= idx[at - 1] {
            return Err(Error::Unsorted { format, array, at });
        }
    }
    Ok(())
}

/// Cuts a slice into pieces of these lengths, which are no more than it has.
pub(crate) fn pieces<E>(mut all: &mut [E], lengths: impl Iterator<Item = usize>) -> Vec<&mut [E]> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = all.split_at_mut(length);
        pieces.push(piece);
        all = rest;
    }
    pieces
}

/// Lengths made where each begins, and the sum of all.
pub(crate) fn begins(lengths: &mut [usize]) -> usize {
    lengths.iter_mut().fold(0, |end, length| {
        let begin = end;
        end + std::mem::replace(length, begin)
    })
}
