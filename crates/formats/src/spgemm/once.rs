//! Products whose pattern and values are found in one pass, because no plan is kept.
//!
//! Each thread has one number per column of the right factor: where the row that is being formed has its entry of that
//! column. A row takes its columns in the order in which they first occur; rows of a result are sorted afterwards.
//! Every sum has the order and the bits of [`super::SpgemmPlan`].
//!
//! This suits products with many multiplications per entry of the result, as coarse operators have. With few, as in
//! A A, sorting takes longer than the second pass of a plan: the square of seven matrices took 0.95 to 2 times as long.

use std::ops::Range;

use super::symbolic::is_scattered;
use super::{WIDE, expect_inner, product_by};
use crate::csr::pieces;
use crate::fused::fused;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::prefetch::prefetch;
use crate::team::{Pool, RayonTeam, Rooms, Team};
use crate::{Csr, Error, Real, Result};

/// Rows of the right factor are prefetched this many entries before their use, and where they begin twice as many.
const AHEAD: usize = 8;

/// Chunks of rows per thread. Several, so that other threads can take over from a delayed one.
const CHUNKS_PER_THREAD: usize = 32;

/// Returns the product A (B C), as two calls of [`super::product`] do and with the same bits, but without sorting the
/// rows of B C, and in one pass over each product. This is how the coarse operator R A P of a multigrid method is made.
///
/// ```
/// use spandrel_formats::{generate, product, triple_product};
///
/// let a = generate::csr::<f64>("poisson2d:10")?;
/// let twice = product(&a, &product(&a, &a)?)?;
/// assert_eq!(triple_product(&a, &a, &a)?, twice);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] unless each matrix has as many columns as the next has rows; [`Error::TooLarge`] if the product has
/// 2^31 entries or more; [`Error::OutOfMemory`].
#[doc(alias = "galerkin")]
#[doc(alias = "rap")]
pub fn triple_product<T: Real>(a: &Csr<T>, b: &Csr<T>, c: &Csr<T>) -> Result<Csr<T>> {
    triple_product_by(&RayonTeam, a, b, c)
}

/// As [`triple_product`], by the threads of `team`.
///
/// # Errors
/// As [`triple_product`].
pub fn triple_product_by<T: Real>(team: &impl Team, a: &Csr<T>, b: &Csr<T>, c: &Csr<T>) -> Result<Csr<T>> {
    expect_inner(a.ncols(), b.nrows())?;
    expect_inner(b.ncols(), c.nrows())?;
    if is_wide(c.ncols(), [a, b, c]) {
        return product_by(team, a, &product_by(team, b, c)?);
    }
    let inner = Rows::of::<_, false>(team, b, c)?;
    Rows::of::<_, true>(team, a, &inner)?.into_csr(team, a.nrows(), c.ncols())
}

/// Returns true if a number per column would be mostly untouched memory.
fn is_wide<T: Real, const N: usize>(ncols: usize, factors: [&Csr<T>; N]) -> bool {
    ncols as u64 > WIDE * factors.map(|m| m.nnz() as u64).iter().sum::<u64>().max(4096)
}

/// A matrix whose rows can be multiplied with.
trait Right<T>: Sync {
    fn ncols(&self) -> usize;

    /// Number of entries of a row.
    fn length(&self, row: Ordinal) -> usize;

    /// Calls `f` with column and value of each entry of a row.
    fn each(&self, row: Ordinal, f: impl FnMut(Ordinal, T));

    /// Prefetches where a row begins.
    fn ask_begin(&self, row: Ordinal);

    /// Prefetches the entries of a row.
    fn ask_entries(&self, row: Ordinal);
}

impl<T: Real> Right<T> for Csr<T> {
    fn ncols(&self) -> usize {
        self.ncols()
    }
    #[inline(always)]
    fn length(&self, row: Ordinal) -> usize {
        self.row_nnz(row as usize)
    }
    #[inline(always)]
    fn each(&self, row: Ordinal, mut f: impl FnMut(Ordinal, T)) {
        let (cols, values) = self.row(row as usize);
        cols.iter().zip(values).for_each(|(&j, &v)| f(j, v));
    }
    #[inline(always)]
    fn ask_begin(&self, row: Ordinal) {
        prefetch(self.row_ptr(), row as usize);
    }
    #[inline(always)]
    fn ask_entries(&self, row: Ordinal) {
        let (begin, end) = (self.row_ptr()[row as usize] as usize, self.row_ptr()[row as usize + 1] as usize);
        prefetch(self.col_idx(), begin);
        prefetch(self.col_idx(), end);
        prefetch(self.values(), begin);
        prefetch(self.values(), end);
    }
}

/// The rows of a product. Unless they were sorted, their columns have the order in which they first occurred.
struct Rows<T> {
    ncols: usize,
    /// A chunk has 2^shift rows; the last may have fewer.
    shift: u32,
    chunks: Vec<Chunk<T>>,
}

/// Some rows of a product: where each begins and the last ends, and the entries.
struct Chunk<T> {
    begins: Vec<Offset>,
    entries: Vec<(Ordinal, T)>,
}

impl<T: Real> Right<T> for Rows<T> {
    fn ncols(&self) -> usize {
        self.ncols
    }
    #[inline(always)]
    fn length(&self, row: Ordinal) -> usize {
        let (chunk, at) = self.at(row);
        (chunk.begins[at + 1] - chunk.begins[at]) as usize
    }
    #[inline(always)]
    fn each(&self, row: Ordinal, mut f: impl FnMut(Ordinal, T)) {
        let (chunk, at) = self.at(row);
        chunk.entries[chunk.begins[at] as usize..chunk.begins[at + 1] as usize].iter().for_each(|&(j, v)| f(j, v));
    }
    #[inline(always)]
    fn ask_begin(&self, row: Ordinal) {
        let (chunk, at) = self.at(row);
        prefetch(&chunk.begins, at);
    }
    #[inline(always)]
    fn ask_entries(&self, row: Ordinal) {
        let (chunk, at) = self.at(row);
        prefetch(&chunk.entries, chunk.begins[at] as usize);
        prefetch(&chunk.entries, chunk.begins[at + 1] as usize);
    }
}

/// Where the row that is being formed has its entries, by column.
pub(crate) struct Places {
    /// One more than the position of the latest entry of this column, counted from the first row that was ever formed
    /// with these places. So positions of earlier rows are smaller than those of this row.
    at: Vec<u32>,
    /// Number of entries of all earlier rows.
    before: u32,
}

impl Places {
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn new(ncols: usize) -> Result<Self> {
        Ok(Self { at: zeroed(ncols, "the places of columns")?, before: 0 })
    }

    /// Returns the number of the row's entry in column `j`, counted from 0: `len`, the number of entries that the row
    /// has so far, if it has none in this column yet. Has no branch, because none could be predicted.
    #[inline(always)]
    pub(crate) fn of(&mut self, j: Ordinal, len: usize) -> usize {
        let place = &mut self.at[j as usize];
        let found = place.wrapping_sub(self.before + 1);
        // A place of an earlier row is not above `before`; the difference then wraps.
        let at = if *place > self.before { found } else { len as u32 };
        *place = self.before + 1 + at;
        at as usize
    }

    /// Ends a row of `len` entries.
    #[inline(always)]
    pub(crate) fn end_row(&mut self, len: usize) {
        self.before += len as u32;
        // A row has at most one entry per column, so the next one cannot exceed the range.
        if self.before as usize + self.at.len() >= u32::MAX as usize {
            self.at.fill(0);
            self.before = 0;
        }
    }
}

/// Makes the entries longer by zeros, by at least `more`.
///
/// # Errors
/// [`Error::OutOfMemory`].
#[cold]
fn grow<T: Real>(entries: &mut Vec<(Ordinal, T)>, more: usize) -> Result<()> {
    let bytes = ((entries.len() + more) * size_of::<(Ordinal, T)>()) as u64;
    entries.try_reserve(more).map_err(|_| Error::OutOfMemory { what: "the entries of a product", bytes })?;
    entries.resize(entries.capacity(), (0, T::zero()));
    Ok(())
}

impl<T: Real> Rows<T> {
    /// The chunk of a row, and the row's number in it.
    #[inline(always)]
    fn at(&self, row: Ordinal) -> (&Chunk<T>, usize) {
        (&self.chunks[(row >> self.shift) as usize], (row & ((1 << self.shift) - 1)) as usize)
    }

    /// Forms the rows of A B, with ascending columns if `SORT`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn of<B: Right<T>, const SORT: bool>(team: &impl Team, a: &Csr<T>, b: &B) -> Result<Self> {
        let n = a.nrows();
        let rows = n.div_ceil(CHUNKS_PER_THREAD * team.threads()).next_power_of_two().clamp(64, 1 << 14);
        let (found, places) = (Rooms::empty(n.div_ceil(rows)), Pool::default());
        let is_scattered = is_scattered(a);
        team.run(n.div_ceil(rows), &|chunk| {
            let range = chunk * rows..n.min((chunk + 1) * rows);
            let made = places.with(
                || Places::new(b.ncols()),
                |places| match is_scattered {
                    true => form::<T, B, SORT, true>(a, b, range, places),
                    false => form::<T, B, SORT, false>(a, b, range, places),
                },
            );
            found.put(chunk, made);
        });
        let chunks = found.into_all().collect::<Result<_>>()?;
        Ok(Self { ncols: b.ncols(), shift: rows.ilog2(), chunks })
    }

    /// Puts the rows, which are sorted, into one matrix.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::OutOfMemory`].
    fn into_csr(self, team: &impl Team, nrows: usize, ncols: usize) -> Result<Csr<T>> {
        let rows = self.chunks.iter().map(|chunk| (chunk.begins.len() - 1, chunk.entries.len()));
        joined(team, nrows, ncols, rows.collect(), &|chunk, ends, cols, values| {
            let Chunk { begins, entries } = &self.chunks[chunk];
            ends.copy_from_slice(&begins[1..]);
            for ((col, value), &(j, v)) in cols.iter_mut().zip(values).zip(entries) {
                (*col, *value) = (j, v);
            }
        })
    }
}

/// Makes a matrix of chunks of rows: their numbers of rows and entries are given, and `write` writes where the rows of
/// a chunk end within it, their columns, ascending and below `ncols`, and their values.
///
/// # Errors
/// [`Error::TooLarge`]; [`Error::OutOfMemory`].
#[allow(clippy::type_complexity)] // what a chunk writes
pub(crate) fn joined<T: Real>(
    team: &impl Team,
    nrows: usize,
    ncols: usize,
    sizes: Vec<(usize, usize)>,
    write: &(dyn Fn(usize, &mut [Offset], &mut [Ordinal], &mut [T]) + Sync),
) -> Result<Csr<T>> {
    let nnz = sizes.iter().map(|size| size.1).sum();
    checked(nnz, "entries")?;
    let mut row_ptr: Vec<Offset> = zeroed(nrows + 1, "row pointers")?;
    let (mut col_idx, mut values) = (zeroed(nnz, "columns")?, zeroed(nnz, "values")?);
    let mut begins = Vec::with_capacity(sizes.len());
    sizes.iter().fold(0, |begin, size| {
        begins.push(begin as Offset);
        begin + size.1
    });
    let ends = Rooms::new(pieces(&mut row_ptr[1..], sizes.iter().map(|size| size.0)));
    let cols = Rooms::new(pieces(&mut col_idx, sizes.iter().map(|size| size.1)));
    let places = Rooms::new(pieces(&mut values, sizes.iter().map(|size| size.1)));
    team.run(sizes.len(), &|chunk| {
        let (Some(ends), Some(cols), Some(places)) = (ends.take(chunk), cols.take(chunk), places.take(chunk)) else {
            return;
        };
        write(chunk, ends, cols, places);
        ends.iter_mut().for_each(|end| *end += begins[chunk]);
    });
    drop((ends, cols, places));
    // SAFETY: the pointers are running sums of the lengths of rows; the callers' columns ascend in each row and are
    // below the number of columns. The number of entries was checked.
    Ok(unsafe { Csr::new_unchecked(nrows, ncols, row_ptr, col_idx, values) })
}

fused! {
    /// Forms some rows of A B.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn form<T: Real; B: Right<T>, const SORT: bool, const ASK: bool>(
        a: &Csr<T>, b: &B, rows: Range<usize>, places: &mut Places,
    ) -> Result<Chunk<T>> {
        let mut begins = Vec::with_capacity(rows.len() + 1);
        begins.push(0);
        // Zeros beyond the first `end` entries: every sum begins with +0.
        let (mut entries, mut end) = (Vec::<(Ordinal, T)>::new(), 0);
        let mut asked = a.row_ptr()[rows.start] as usize;
        for i in rows {
            let begin = end;
            let (inner, left) = a.row(i);
            for (&k, &v) in inner.iter().zip(left) {
                if ASK {
                    if let Some(&k) = a.col_idx().get(asked + 2 * AHEAD) {
                        b.ask_begin(k);
                    }
                    if let Some(&k) = a.col_idx().get(asked + AHEAD) {
                        b.ask_entries(k);
                    }
                    asked += 1;
                }
                let most = end + b.length(k);
                if most > entries.len() {
                    grow(&mut entries, (most - end).max(1024))?;
                }
                b.each(k, |j, w| {
                    let at = begin + places.of(j, end - begin);
                    end += usize::from(at == end);
                    let entry = &mut entries[at];
                    *entry = (j, v.mul_add(w, entry.1));
                });
            }
            places.end_row(end - begin);
            if SORT {
                entries[begin..end].sort_unstable_by_key(|entry| entry.0);
            }
            begins.push(checked(end, "entries")?);
        }
        entries.truncate(end);
        Ok(Chunk { begins, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generate, product};

    /// The bits of two products, for a pattern in order and one that is scattered, with cancelled entries and -0.
    #[test]
    fn a_triple_product_is_two_products() {
        for (left, middle, right) in [
            ("d3n7:9", "d3n27:9", "d3n7:9"),
            ("random:n=3000,nnz_per_row=7", "random:n=3000,nnz_per_row=3", "banded:n=3000,d=5"),
        ] {
            let [left, middle, right] = [left, middle, right].map(|spec| generate::csr::<f64>(spec).unwrap());
            let signed = middle.map_entries(|i, j, v| if (i + j) % 3 == 0 { -0.0 } else { v * ((i % 5) as f64 - 2.0) });
            for middle in [middle, signed] {
                let two = product(&left, &product(&middle, &right).unwrap()).unwrap();
                let one = triple_product(&left, &middle, &right).unwrap();
                let bits = |m: &Csr<f64>| m.values().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!((bits(&one), &one), (bits(&two), &two));
            }
        }
    }

    #[test]
    fn matrices_that_do_not_fit_and_empty_ones() {
        let of = |nrows, ncols| Csr::<f32>::new(nrows, ncols, vec![0; nrows + 1], vec![], vec![]).unwrap();
        assert!(matches!(triple_product(&of(2, 3), &of(2, 3), &of(3, 1)), Err(Error::Shape { .. })));
        assert!(matches!(triple_product(&of(2, 3), &of(3, 3), &of(2, 1)), Err(Error::Shape { .. })));
        let none = triple_product(&of(5, 3), &of(3, 0), &of(0, 7)).unwrap();
        assert_eq!((none.nrows(), none.ncols(), none.nnz()), (5, 7, 0));
        assert_eq!(triple_product(&of(0, 0), &of(0, 0), &of(0, 0)).unwrap().nrows(), 0);
    }

    #[test]
    fn places_forget_the_rows_before() {
        let mut places = Places::new(4).unwrap();
        for _ in 0..3 {
            assert_eq!([(3, 0), (1, 1), (3, 2), (1, 2)].map(|(j, len)| places.of(j, len)), [0, 1, 0, 1]);
            places.end_row(2);
        }
        // Where the numbers would leave their range, all begin again.
        places.before = u32::MAX - 5;
        assert_eq!([places.of(0, 0), places.of(0, 1)], [0, 0]);
        places.end_row(1);
        assert_eq!((places.before, &places.at[..]), (0, &[0; 4][..]));
    }
}
