//! The rows of one rank on the host, with columns of the whole matrix.

use std::fmt;

use rayon::prelude::*;
use spandrel_formats::index::{Offset, Ordinal, checked};
use spandrel_formats::{Csr, Error, Real, Result};

/// A column of the whole matrix: `u32`, or `u64` for a matrix with 2^31 columns or more.
pub trait Column: bytemuck::Pod + Ord + Into<u64> + fmt::Debug + Send + Sync + sealed::Sealed {
    /// Replaces each column by its number in a block, in the same memory if it has the same size.
    #[doc(hidden)]
    fn numbered(columns: Vec<Self>, local: impl Fn(Self) -> Ordinal + Send + Sync) -> Vec<Ordinal>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

impl Column for u32 {
    fn numbered(mut columns: Vec<u32>, local: impl Fn(u32) -> Ordinal + Send + Sync) -> Vec<Ordinal> {
        columns.par_iter_mut().for_each(|column| *column = local(*column));
        columns
    }
}

impl Column for u64 {
    fn numbered(columns: Vec<u64>, local: impl Fn(u64) -> Ordinal + Send + Sync) -> Vec<Ordinal> {
        columns.into_par_iter().map(local).collect()
    }
}

/// Stands for a column outside a block. No block has this many columns.
const OUTSIDE: Ordinal = Ordinal::MAX;

/// Rows that a task takes at a time.
const CHUNK: usize = 4096;

/// Drops the entries whose column is [`OUTSIDE`], and those in rows for which `keeps` is false. Works in place, because
/// the matrix may take half of the memory.
fn compact<T: Copy + Send>(
    row_ptr: &mut [Offset],
    cols: &mut Vec<Ordinal>,
    values: &mut Vec<T>,
    keeps: &(dyn Fn(usize) -> bool + Sync),
) {
    let begins: Vec<usize> = row_ptr.iter().step_by(CHUNK).map(|&at| at as usize).collect();
    let ends = begins.iter().copied().skip(1).chain([cols.len()]);
    let lengths: Vec<usize> = begins.iter().zip(ends).map(|(begin, end)| end - begin).collect();
    let (mut all_cols, mut all_values) = (&mut cols[..], &mut values[..]);
    let parts: Vec<(&mut [Ordinal], &mut [T])> = lengths
        .iter()
        .map(|&len| (all_cols.split_off_mut(..len), all_values.split_off_mut(..len)))
        .map(|(cols, values)| (cols.unwrap_or_default(), values.unwrap_or_default()))
        .collect();
    // Each task moves the entries of its rows to the front of their part, and counts from there.
    let kept: Vec<usize> = row_ptr[1..]
        .par_chunks_mut(CHUNK)
        .zip(parts)
        .zip(&begins)
        .enumerate()
        .map(|(chunk, ((ends, (cols, values)), begin))| {
            let (mut from, mut to) = (0, 0);
            for (i, end) in ends.iter_mut().enumerate() {
                let (stop, keeps) = (*end as usize - begin, keeps(chunk * CHUNK + i));
                for at in from..stop {
                    if keeps && cols[at] != OUTSIDE {
                        (cols[to], values[to]) = (cols[at], values[at]);
                        to += 1;
                    }
                }
                (from, *end) = (stop, to as Offset);
            }
            to
        })
        .collect();
    let mut end = 0;
    for ((ends, &begin), &kept) in row_ptr[1..].chunks_mut(CHUNK).zip(&begins).zip(&kept) {
        if begin > end {
            cols.copy_within(begin..begin + kept, end);
            values.copy_within(begin..begin + kept, end);
        }
        ends.iter_mut().for_each(|at| *at += end as Offset);
        end += kept;
    }
    cols.truncate(end);
    values.truncate(end);
}

/// Consecutive rows of a matrix, as CSR whose columns are those of the whole matrix.
///
/// ```
/// use spandrel_distributed::Rows;
/// use spandrel_formats::Csr;
///
/// // Rows 4 and 5 of a matrix with 8 columns.
/// let rows = Rows::from_csr(4, Csr::from_triplets(2, 8, [(0, 4, 2.0), (0, 7, -1.0), (1, 5, 3.0)])?);
/// assert_eq!((rows.first(), rows.len(), rows.nnz()), (4, 2, 3));
/// assert_eq!(rows.get(5, 5), Some(3.0));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<T, J = u32> {
    first: u64,
    ncols: u64,
    row_ptr: Vec<Offset>,
    cols: Vec<J>,
    values: Vec<T>,
}

impl<T: Real> Rows<T> {
    /// The rows of `csr`, of which the first is row `first` of the whole matrix. The matrix has the columns of `csr`.
    pub fn from_csr(first: u64, csr: Csr<T>) -> Self {
        let (_, ncols, row_ptr, cols, values) = csr.into_parts();
        Self { first, ncols: ncols as u64, row_ptr, cols, values }
    }

    /// The rows of `csr`, without a copy.
    pub fn into_csr(self) -> Csr<T> {
        let nrows = self.len();
        // SAFETY: `row_ptr`, `cols` and `values` came from a `Csr` with as many columns, or were checked in the same
        // way by `new`, which for `u32` also limits the number of columns.
        unsafe { Csr::new_unchecked(nrows, self.ncols as usize, self.row_ptr, self.cols, self.values) }
    }
}

impl<T: Real, J: Column> Rows<T, J> {
    /// Takes the parts of CSR: `row_ptr` has one offset more than there are rows, columns ascend strictly in each row
    /// and are below `ncols`.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Pointer`], [`Error::IndexOutOfRange`], [`Error::Unsorted`], as
    /// [`Csr::new`].
    pub fn new(first: u64, ncols: u64, row_ptr: Vec<Offset>, cols: Vec<J>, values: Vec<T>) -> Result<Self> {
        let format = "rows";
        if size_of::<J>() == size_of::<u32>() {
            checked(usize::try_from(ncols).unwrap_or(usize::MAX), "columns")?;
        }
        checked(row_ptr.len().saturating_sub(1), "rows")?;
        checked(cols.len(), "entries")?;
        if values.len() != cols.len() {
            return Err(Error::Length { format, array: "values", found: values.len(), expected: cols.len() });
        }
        let array = "row_ptr";
        let (Some(&begin), Some(&end)) = (row_ptr.first(), row_ptr.last()) else {
            return Err(Error::Length { format, array, found: 0, expected: 1 });
        };
        if begin != 0 {
            return Err(Error::Pointer { format, array, at: 0, found: begin.into() });
        }
        if let Some(at) = row_ptr.windows(2).position(|pair| pair[1] < pair[0]) {
            return Err(Error::Pointer { format, array, at: at + 1, found: row_ptr[at + 1].into() });
        }
        if end as usize != cols.len() {
            return Err(Error::Pointer { format, array, at: row_ptr.len() - 1, found: end.into() });
        }
        for pair in row_ptr.windows(2) {
            let range = pair[0] as usize..pair[1] as usize;
            for at in range.clone() {
                let found: u64 = cols[at].into();
                if found >= ncols {
                    let (found, bound) = (i64::try_from(found).unwrap_or(i64::MAX), ncols as usize);
                    return Err(Error::IndexOutOfRange { format, array: "cols", at, found, bound });
                }
                if at > range.start && cols[at] <= cols[at - 1] {
                    return Err(Error::Unsorted { format, array: "cols", at });
                }
            }
        }
        Ok(Self { first, ncols, row_ptr, cols, values })
    }

    /// A copy, made by several threads.
    pub(crate) fn copied(&self) -> Self {
        fn of<E: Copy + Send + Sync>(array: &[E]) -> Vec<E> {
            array.par_iter().copied().collect()
        }
        Self { row_ptr: of(&self.row_ptr), cols: of(&self.cols), values: of(&self.values), ..*self }
    }

    /// The first row's number in the whole matrix.
    pub fn first(&self) -> u64 {
        self.first
    }
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.row_ptr.len() - 1
    }
    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of columns of the whole matrix.
    pub fn ncols(&self) -> u64 {
        self.ncols
    }
    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }
    /// The values, in stored order.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The columns, in stored order.
    pub(crate) fn cols(&self) -> &[J] {
        &self.cols
    }

    /// Columns and values of row `i`, counted from the first of these rows.
    ///
    /// # Panics
    /// If `i >= len`, like indexing a slice.
    pub fn row(&self, i: usize) -> (&[J], &[T]) {
        let range = self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize;
        (&self.cols[range.clone()], &self.values[range])
    }

    /// The entry at a row and a column of the whole matrix, or `None` if nothing is stored there or the row is not
    /// among these.
    pub fn get(&self, row: u64, col: u64) -> Option<T> {
        let i = row.checked_sub(self.first).filter(|&i| i < self.len() as u64)?;
        let (cols, values) = self.row(i as usize);
        cols.binary_search_by(|&at| at.into().cmp(&col)).ok().map(|k| values[k])
    }

    /// The entries of the main diagonal in these rows, `None` where nothing is stored. They are looked up in parallel.
    pub fn diagonal(&self) -> impl Iterator<Item = Option<T>> + '_ {
        let of_row = |i: usize| self.get(self.first + i as u64, self.first + i as u64);
        (0..self.len()).into_par_iter().map(of_row).collect::<Vec<_>>().into_iter()
    }

    /// The entries in the columns `own`, counted from the first of these.
    pub(crate) fn block(&self, own: std::ops::Range<u64>) -> Result<Csr<T>> {
        let width = (own.end - own.start) as usize;
        let within = |i: usize| {
            let cols = self.row(i).0;
            let place = |column: u64| cols.partition_point(|&at| at.into() < column);
            place(own.start)..place(own.end)
        };
        let fill = |i: usize, to: &mut [Ordinal], values: &mut [T]| {
            let (range, (cols, from)) = (within(i), self.row(i));
            to.iter_mut().zip(&cols[range.clone()]).for_each(|(to, &col)| *to = (col.into() - own.start) as Ordinal);
            values.copy_from_slice(&from[range]);
        };
        Csr::from_rows(self.len(), width, |i| within(i).len(), fill)
    }

    /// Drops the rows' entries outside the columns `own`, and those in rows for which `keeps` is false. Columns are
    /// then counted from the first of `own`.
    pub(crate) fn into_block(
        self,
        own: std::ops::Range<u64>,
        keeps: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<Csr<T>> {
        let Self { mut row_ptr, cols, mut values, .. } = self;
        let (nrows, width) = (row_ptr.len() - 1, (own.end - own.start) as usize);
        checked(width, "columns")?;
        let mut cols = J::numbered(cols, |column| match column.into() {
            column if own.contains(&column) => (column - own.start) as Ordinal,
            _ => OUTSIDE,
        });
        compact(&mut row_ptr, &mut cols, &mut values, keeps);
        Csr::new(nrows, width, row_ptr, cols, values)
    }
}

impl<T: Real> From<&Csr<T>> for Rows<T> {
    /// All rows of a matrix.
    fn from(csr: &Csr<T>) -> Self {
        Self::from_csr(0, csr.clone())
    }
}

/// Copies the rows of a range of a whole matrix: what a rank owns of it.
pub fn rows_of<T: Real>(csr: &Csr<T>, range: std::ops::Range<u64>) -> Rows<T> {
    let (begin, end) = (range.start as usize, range.end as usize);
    let ptr = &csr.row_ptr()[begin..=end];
    let entries = ptr[0] as usize..ptr[end - begin] as usize;
    Rows {
        first: range.start,
        ncols: csr.ncols() as u64,
        row_ptr: ptr.iter().map(|at| at - ptr[0]).collect(),
        cols: csr.col_idx()[entries.clone()].to_vec(),
        values: csr.values()[entries].to_vec(),
    }
}

/// Only the rows of a range of a matrix, in its memory. The first is row 0.
pub(crate) fn rows_within<T: Real>(csr: Csr<T>, range: std::ops::Range<usize>) -> Rows<T> {
    let (_, ncols, mut row_ptr, mut cols, mut values) = csr.into_parts();
    let (begin, end) = (row_ptr[range.start], row_ptr[range.end]);
    row_ptr.truncate(range.end + 1);
    row_ptr.drain(..range.start);
    row_ptr.iter_mut().for_each(|at| *at -= begin);
    cols.truncate(end as usize);
    cols.drain(..begin as usize);
    values.truncate(end as usize);
    values.drain(..begin as usize);
    Rows { first: 0, ncols: ncols as u64, row_ptr, cols, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn a_block_has_the_own_columns_of_the_rows_that_are_kept() {
        let a = generate::csr::<f64>("poisson2d:7x6").unwrap();
        for range in [0..42, 0..0, 42..42, 5..6, 3..30] {
            let rows = rows_of(&a, range.clone());
            assert_eq!(rows.len() as u64, range.end - range.start);
            let within = rows_within(a.clone(), range.start as usize..range.end as usize);
            assert_eq!(within.into_csr(), rows.clone().into_csr());
            for keeps in [|_: usize| true, |i: usize| !i.is_multiple_of(3)] {
                let wide = Rows::new(
                    rows.first,
                    rows.ncols,
                    rows.row_ptr.clone(),
                    rows.cols.iter().map(|&j| u64::from(j)).collect(),
                    rows.values.clone(),
                );
                let block = rows.clone().into_block(range.clone(), &keeps).unwrap();
                assert_eq!(wide.unwrap().into_block(range.clone(), &keeps).unwrap(), block);
                let at =
                    |i: u64, j: u64| if keeps(i as usize) { rows.get(range.start + i, range.start + j) } else { None };
                for i in 0..block.nrows() {
                    for j in 0..block.ncols() {
                        assert_eq!(block.get(i, j), at(i as u64, j as u64), "{i} {j} of {range:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_block_of_many_rows_is_made_by_several_tasks() {
        let a = generate::csr::<f64>("poisson2d:100x100").unwrap();
        assert!(a.nrows() > 2 * CHUNK);
        for range in [0..10_000, 1234..9998, 1808..10_000] {
            let rows = rows_of(&a, range.clone());
            for keeps in [|_: usize| true, |i: usize| !i.is_multiple_of(3)] {
                let n = (range.end - range.start) as usize;
                let kept = (0..n).filter(|&i| keeps(i)).flat_map(|i| {
                    let (cols, values) = rows.row(i);
                    let own = cols.iter().zip(values).filter(|(col, _)| range.contains(&u64::from(**col)));
                    own.map(move |(&col, &v)| (i, col as usize - range.start as usize, v)).collect::<Vec<_>>()
                });
                let wanted = Csr::from_triplets(n, n, kept).unwrap();
                assert_eq!(rows.clone().into_block(range.clone(), &keeps).unwrap(), wanted, "{range:?}");
            }
        }
    }

    #[test]
    fn empty_rows_stay_where_they_are() {
        let a = Csr::from_triplets(5, 5, [(1, 1, 1.0), (1, 4, 2.0), (3, 0, 3.0)]).unwrap();
        let block = Rows::from_csr(0, a).into_block(0..4, &|_| true).unwrap();
        assert_eq!(block.row_ptr(), [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn wrong_parts_are_refused() {
        let new =
            |ptr: &[u32], cols: &[u64], ncols| Rows::new(7, ncols, ptr.to_vec(), cols.to_vec(), vec![1.0; cols.len()]);
        assert!(new(&[0, 2], &[1, 1 << 40], 1 << 41).is_ok());
        assert!(matches!(new(&[0, 2], &[3, 3], 9), Err(Error::Unsorted { at: 1, .. })));
        assert!(matches!(new(&[0, 2], &[3, 9], 9), Err(Error::IndexOutOfRange { at: 1, bound: 9, .. })));
        assert!(matches!(new(&[0, 1], &[3, 4], 9), Err(Error::Pointer { at: 1, .. })));
        assert!(matches!(new(&[1, 2], &[3, 4], 9), Err(Error::Pointer { at: 0, .. })));
        assert!(matches!(new(&[], &[], 9), Err(Error::Length { .. })));
        assert!(matches!(Rows::<f64>::new(0, 1 << 40, vec![0], vec![], vec![]), Err(Error::TooLarge { .. })));
    }
}
