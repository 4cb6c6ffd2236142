//! CSR, compressed sparse rows: the hub of all conversions.
//!
//! Layout (6 x 6 example of the snapshots, first two rows):
//! ```text
//! | 4 . 1 . . . |      row_ptr 0     2       5 ...
//! | . 5 2 . 3 . |      col_idx 0 2 | 1 2 4 | ...
//!                      values  4 1 | 5 2 3 | ...
//! ```
//! Invariants: `row_ptr.len() == nrows + 1`, starts at 0, never decreases, ends at `nnz`; columns ascend strictly
//! inside a row; `nrows`, `ncols`, `nnz` < 2^31. Explicit zeros are entries.
//! Cost of y = A x: nnz (4 + |T|) + 4 (nrows + 1) + |T| (ncols + nrows) bytes.
//! Order: stored. Reference: Tinney & Walker 1967; Saad, Iterative Methods for Sparse Linear Systems, 2003, section
//! 3.4.

use rayon::prelude::*;

use crate::array::Array;
use crate::counting::transposed;
use crate::fused::fused;
use crate::index::{Offset, Ordinal, checked};
use crate::matrix_market::{merge_duplicates, order_rows};
use crate::padding::zeroed;
use crate::{Error, Format, Real, Result, Traffic, Triplets};

/// Number of rows per parallel task.
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
    row_ptr: Array<Offset>,
    col_idx: Array<Ordinal>,
    values: Array<T>,
}

/// The parts of a [`Csr`]: `(nrows, ncols, row_ptr, col_idx, values)`.
pub type CsrParts<T> = (usize, usize, Vec<Offset>, Vec<Ordinal>, Vec<T>);

impl<T: Real> Csr<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nnz).
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
        Self::from_arrays(nrows, ncols, row_ptr.into(), col_idx.into(), values.into())
    }

    /// Makes a matrix from parts that may be memory of another owner ([`Array::shared`]), which is then read in place.
    /// Checked as in [`Csr::new`].
    ///
    /// # Errors
    /// Those of [`Csr::new`].
    pub fn from_arrays(
        nrows: usize,
        ncols: usize,
        row_ptr: Array<Offset>,
        col_idx: Array<Ordinal>,
        values: Array<T>,
    ) -> Result<Self> {
        Self::check(nrows, ncols, &row_ptr, &col_idx, values.len())?;
        Ok(Self { nrows, ncols, row_ptr, col_idx, values })
    }

    /// Makes a matrix from rows whose columns stand in any order and may repeat. Entries at the same place are summed
    /// in the given order, as in [`Csr::from_triplets`]. Only rows that do not ascend are sorted, in parallel.
    ///
    /// ```
    /// use spandrel_formats::Csr;
    ///
    /// let a = Csr::from_unsorted(1, 3, vec![0, 3], vec![2, 0, 2], vec![4.0, 1.0, 0.5])?;
    /// assert_eq!(a.row(0), (&[0u32, 2][..], &[1.0, 4.5][..]));
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Csr::new`] except [`Error::Unsorted`].
    pub fn from_unsorted(
        nrows: usize,
        ncols: usize,
        mut row_ptr: Vec<Offset>,
        mut col_idx: Vec<Ordinal>,
        mut values: Vec<T>,
    ) -> Result<Self> {
        Self::check_lengths(nrows, ncols, &row_ptr, &col_idx, values.len())?;
        if let Some(at) = col_idx.par_iter().with_min_len(CHUNK).position_first(|&j| j as usize >= ncols) {
            let found = i64::from(col_idx[at]);
            return Err(Error::IndexOutOfRange { format: "csr", array: "col_idx", at, found, bound: ncols });
        }
        if order_rows(&row_ptr, &mut col_idx, &mut values) {
            merge_duplicates(&mut row_ptr, &mut col_idx, &mut values);
        }
        Self::new(nrows, ncols, row_ptr, col_idx, values)
    }

    /// Makes a matrix from (row, column, value) entries in any order. Entries at the same place are summed in the given
    /// order, so the result is the same on every machine.
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

    /// Makes a matrix row by row, in parallel. Row `i` has `count(i)` entries, which `fill(i, columns, values)` writes
    /// with ascending columns; the arrays hold zeros before. Checked as in [`Csr::new`]. O(nnz), without a copy.
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
        // First the ends of rows within a chunk. Too long ones saturate, because their sum is refused later.
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

    /// Makes a matrix from parts without checking them.
    ///
    /// # Safety
    /// The parts satisfy every invariant of the module's head. Kernels rely on this and index without checks.
    pub unsafe fn new_unchecked(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<Offset>,
        col_idx: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Self {
        debug_assert!(Self::check(nrows, ncols, &row_ptr, &col_idx, values.len()).is_ok());
        Self::of_parts(nrows, ncols, row_ptr, col_idx, values)
    }

    /// Parts that satisfy every invariant.
    fn of_parts(nrows: usize, ncols: usize, row_ptr: Vec<Offset>, col_idx: Vec<Ordinal>, values: Vec<T>) -> Self {
        Self { nrows, ncols, row_ptr: row_ptr.into(), col_idx: col_idx.into(), values: values.into() }
    }

    fn check(nrows: usize, ncols: usize, row_ptr: &[Offset], col_idx: &[Ordinal], values: usize) -> Result<()> {
        Self::check_lengths(nrows, ncols, row_ptr, col_idx, values)?;
        check_ascending("csr", "col_idx", row_ptr, col_idx, ncols)
    }

    /// Checks everything but the columns.
    fn check_lengths(nrows: usize, ncols: usize, row_ptr: &[Offset], col_idx: &[Ordinal], values: usize) -> Result<()> {
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
        check_pointers(format, "row_ptr", row_ptr, col_idx.len())
    }

    /// Computes the bytes of a matrix with `nnz` entries: [`Traffic::storage`] and [`Traffic::spmv_bytes`].
    pub fn traffic_of(nrows: usize, ncols: usize, nnz: usize) -> (u64, u64) {
        let value = T::BYTES as u64;
        let storage = nnz as u64 * (4 + value) + 4 * (nrows as u64 + 1);
        (storage, storage + (nrows + ncols) as u64 * value)
    }

    /// Returns the parts. Copies only what another owner has ([`Csr::from_arrays`]).
    pub fn into_parts(self) -> CsrParts<T> {
        (self.nrows, self.ncols, self.row_ptr.into_vec(), self.col_idx.into_vec(), self.values.into_vec())
    }

    /// Returns the values and drops the pattern. Copies them only if another owner has them ([`Csr::from_arrays`]).
    pub fn into_values(self) -> Vec<T> {
        self.values.into_vec()
    }

    /// Where each row's entries begin: `nrows + 1` offsets.
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

    /// The values, for writing in place. The pattern stays. Copies them first if another owner has them
    /// ([`Csr::from_arrays`]).
    pub fn values_mut(&mut self) -> &mut [T] {
        self.values.to_mut()
    }

    /// Row pointers, columns, and the values for writing in place.
    pub(crate) fn split_mut(&mut self) -> (&[Offset], &[Ordinal], &mut [T]) {
        (&self.row_ptr, &self.col_idx, self.values.to_mut())
    }

    /// Columns and values of row `i`.
    ///
    /// # Panics
    /// If `i >= nrows`, like indexing a slice.
    pub fn row(&self, i: usize) -> (&[Ordinal], &[T]) {
        let range = self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize;
        (&self.col_idx[range.clone()], &self.values[range])
    }

    /// Number of entries in row `i`.
    ///
    /// # Panics
    /// If `i >= nrows`, like indexing a slice.
    pub fn row_nnz(&self, i: usize) -> usize {
        (self.row_ptr[i + 1] - self.row_ptr[i]) as usize
    }

    /// The entry at (`i`, `j`), or `None` if nothing is stored there or the place is outside the matrix. O(log of the
    /// row's entries).
    pub fn get(&self, i: usize, j: usize) -> Option<T> {
        if i >= self.nrows || j >= self.ncols {
            return None;
        }
        let (cols, values) = self.row(i);
        cols.binary_search(&(j as Ordinal)).ok().map(|k| values[k])
    }

    /// Returns A x, with the bits of a product on any device: each row is summed from +0 by `fma` through its stored
    /// entries. In parallel.
    ///
    /// For repeated products, load the matrix onto a device, where a product allocates nothing.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `x` has one element per column; [`Error::OutOfMemory`].
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
        Ok(Self::of_parts(n, n, (0..=count).collect(), (0..count).collect(), vec![T::one(); n]))
    }

    /// The sum of |i - j| over the entries. In parallel.
    pub fn distance(&self) -> u64 {
        let of_row = |i: usize| self.row(i).0.iter().map(|&j| u64::from(j.abs_diff(i as u32))).sum::<u64>();
        (0..self.nrows).into_par_iter().map(of_row).sum()
    }

    /// The largest magnitude among the finite values; 0 if there are none. In parallel.
    pub fn largest_magnitude(&self) -> T {
        let finite = self.values.par_iter().map(|v| v.abs()).filter(|v| v.is_finite());
        finite.reduce(T::zero, T::max)
    }

    /// The same pattern with each value mapped by `f`, possibly to another element type. In parallel, also for the copy
    /// of the pattern.
    pub fn map<U: Real>(&self, f: impl Fn(T) -> U + Sync) -> Csr<U> {
        self.with_array(self.values.par_iter().map(|&v| f(v)).collect::<Vec<U>>().into())
    }

    /// The same pattern with other values, one per entry, in stored order. Copies the pattern in parallel, unless
    /// another owner has it ([`Csr::share_pattern`]).
    ///
    /// ```
    /// # use spandrel_formats::Csr;
    /// let mut a = Csr::from_triplets(2, 2, [(0, 0, 2.0), (1, 1, 4.0)])?;
    /// a.share_pattern();
    /// let b = a.with_values(vec![1.0f32, 3.0])?;
    /// assert_eq!((b.values(), b.col_idx().as_ptr()), (&[1.0, 3.0][..], a.col_idx().as_ptr()));
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Length`] for another number of values.
    pub fn with_values<U: Real>(&self, values: Vec<U>) -> Result<Csr<U>> {
        if values.len() != self.nnz() {
            return Err(Error::Length { format: "csr", array: "values", found: values.len(), expected: self.nnz() });
        }
        Ok(self.with_array(values.into()))
    }

    fn with_array<U>(&self, values: Array<U>) -> Csr<U> {
        let (row_ptr, col_idx) = (self.row_ptr.copied(), self.col_idx.copied());
        Csr { nrows: self.nrows, ncols: self.ncols, row_ptr, col_idx, values }
    }

    /// Lets later clones and [`Csr::with_values`] read this matrix's row pointers and columns in place, instead of
    /// copying them. Copies nothing itself.
    pub fn share_pattern(&mut self) {
        self.row_ptr.share();
        self.col_idx.share();
    }

    /// The same pattern with each value mapped by `f`, which is told its row and column. In parallel, also for the copy
    /// of the pattern.
    #[must_use]
    pub fn map_entries(&self, f: impl Fn(usize, usize, T) -> T + Sync) -> Self {
        let mut made = self.with_array(self.values.to_vec().into());
        made.overwrite_rows(|row, cols, values| {
            values.iter_mut().zip(cols).for_each(|(v, &col)| *v = f(row, col as usize, *v));
        });
        made
    }

    /// Calls `f` with each row, its columns and its values, which it may overwrite. In parallel.
    pub fn overwrite_rows(&mut self, f: impl Fn(usize, &[Ordinal], &mut [T]) + Sync) {
        let nrows = self.nrows;
        let (row_ptr, col_idx, values) = self.split_mut();
        let chunks: Vec<usize> = (0..nrows).step_by(CHUNK).chain([nrows]).collect();
        let ends = |rows: &[usize]| (row_ptr[rows[1]] - row_ptr[rows[0]]) as usize;
        let places = pieces(values, chunks.windows(2).map(ends));
        places.into_par_iter().zip(chunks.par_windows(2)).for_each(|(mut values, rows)| {
            for row in rows[0]..rows[1] {
                let entries = row_ptr[row] as usize..row_ptr[row + 1] as usize;
                let (here, rest) = values.split_at_mut(entries.len());
                f(row, &col_idx[entries], here);
                values = rest;
            }
        });
    }

    /// The transpose. Counts columns and does not sort: O(nnz + nrows + ncols).
    ///
    /// # Panics
    /// If the memory cannot be allocated; [`Csr::try_transpose`] says so instead.
    pub fn transpose(&self) -> Self {
        self.try_transpose().unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Csr::transpose`], with an error if the matrix has too many columns for an array of their pointers.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn try_transpose(&self) -> Result<Self> {
        let (row_ptr, col_idx, values) = transposed(self.ncols, &self.row_ptr, &self.col_idx, |e| self.values[e])?;
        Ok(Self::of_parts(self.ncols, self.nrows, row_ptr, col_idx, values))
    }

    /// Drops entries with |value| <= `threshold` (cuSPARSE's csr2csr_compress); NaN is kept. `compress(0)` drops
    /// explicit zeros.
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
        Self::of_parts(self.nrows, self.ncols, row_ptr, col_idx, values)
    }

    /// The main diagonal: `min(nrows, ncols)` values, zero if nothing is stored.
    pub fn diagonal(&self) -> Vec<T> {
        let entry = |i| self.get(i, i).unwrap_or_else(T::zero);
        (0..self.nrows.min(self.ncols)).into_par_iter().with_min_len(CHUNK).map(entry).collect()
    }
}

fused! {
    /// Multiplies the rows given by the segments of `ptr`.
    fn multiply_rows<T: Real>(ptr: &[Offset], cols: &[Ordinal], values: &[T], x: &[T], y: &mut [T]) {
        for (segment, y) in ptr.windows(2).zip(y) {
            let range = segment[0] as usize..segment[1] as usize;
            let entries = cols[range.clone()].iter().zip(&values[range]);
            *y = entries.fold(T::zero(), |sum, (&j, &v)| v.mul_add(x[j as usize], sum));
        }
    }
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
    fn from_csr_owned(csr: Csr<T>) -> Result<Self> {
        Ok(csr)
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

/// Checks that `ptr` starts at 0, never decreases and ends at `end`.
pub(crate) fn check_pointers(format: &'static str, array: &'static str, ptr: &[Offset], end: usize) -> Result<()> {
    let bad = |at: usize| Error::Pointer { format, array, at, found: u64::from(ptr[at]) };
    if ptr[0] != 0 {
        return Err(bad(0));
    }
    let decreases = |at: &usize| ptr[*at] < ptr[at - 1];
    let wrong = match ptr.len() {
        // One task would only wake the pool.
        0..=CHUNK => (1..ptr.len()).find(decreases),
        _ => (1..ptr.len()).into_par_iter().with_min_len(CHUNK).find_first(decreases),
    };
    if let Some(at) = wrong {
        return Err(bad(at));
    }
    if ptr[ptr.len() - 1] as usize != end {
        return Err(bad(ptr.len() - 1));
    }
    Ok(())
}

/// Checks that inside each segment of `ptr`, `idx` ascends strictly and stays below `bound`.
pub(crate) fn check_ascending(
    format: &'static str,
    array: &'static str,
    ptr: &[Offset],
    idx: &[Ordinal],
    bound: usize,
) -> Result<()> {
    // If a segment ascends and its last index is inside, all are. This needs no branch per entry.
    let is_fine = |segment: &&[Offset]| {
        let idx = &idx[segment[0] as usize..segment[1] as usize];
        let ascends = idx.iter().zip(idx.iter().skip(1)).fold(true, |all, (one, next)| all & (one < next));
        ascends && idx.last().is_none_or(|&last| (last as usize) < bound)
    };
    let is_wrong = |segment: &&[Offset]| !is_fine(segment);
    let wrong = match ptr.len() {
        0..=CHUNK if idx.len() <= 16 * CHUNK => ptr.windows(2).find(is_wrong),
        _ => ptr.par_windows(2).with_min_len(CHUNK).find_first(is_wrong),
    };
    let Some(segment) = wrong else { return Ok(()) };
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

/// Cuts a slice into pieces of these lengths, whose sum is at most its length.
pub(crate) fn pieces<E>(mut all: &mut [E], lengths: impl Iterator<Item = usize>) -> Vec<&mut [E]> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = all.split_at_mut(length);
        pieces.push(piece);
        all = rest;
    }
    pieces
}

/// Replaces lengths by the positions where each begins, and returns their sum.
pub(crate) fn begins(lengths: &mut [usize]) -> usize {
    lengths.iter_mut().fold(0, |end, length| {
        let begin = end;
        end + std::mem::replace(length, begin)
    })
}
