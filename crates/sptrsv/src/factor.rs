//! What every incomplete factorisation has in common, and the one list of them.
//!
//! A ~ L U with L unit lower and U upper triangular, or A ~ L L^T with L non-unit lower triangular. The symbolic phase
//! ([`Factor::symbolic`]) decides once where the factors have entries, from A's pattern (ILUT: from its values, too); the numeric phase ([`Factor::numeric`])
//! computes their values any number of times. The factors are [`Triangular`]s, which any [`crate::Plan`] takes.
//!
//! A device that computes them takes the same patterns, and hands its values to plans of triangles that were made without
//! ([`Factor::unformed`]).
//!
//! Order, for all of them: rows from the first to the last; in a row the columns of L ascend; a value starts as A's (0 where there is fill)
//! and takes its terms one by one, `s = fma(-l, u, s)`; quotients and roots are rounded once. Rows wait for the rows of their columns
//! alone, so a device that works by levels of A's lower triangle gets the same bits.
//! Cost: for each entry l_ik one pass over row k of the other factor. A row's columns are found by an array of n positions, written and
//! cleared row by row: no search.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, chapter 10.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::triangle::square;
use crate::{Diagonal, Error, Result, Triangle, Triangular};

/// Elements of a parallel task, and rows.
const CHUNK: usize = 1 << 13;
const ROWS: usize = 1 << 11;

/// An incomplete factorisation: a noun of this workspace. A value of such a type is the result of the symbolic phase.
pub trait Factor: Clone + fmt::Debug + Send + Sync + Sized + 'static {
    /// Element type.
    type Value: Real;
    /// The stem that names it in files, trials, benches and on the command line.
    const NAME: &'static str;
    /// Whether rows of the factors are made of rows before them.
    const WAITS: bool = true;

    /// The symbolic phase with default parameters: reads the pattern of a square matrix. Only [`crate::Ilut`] reads its values, too.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::MissingPivot`] with the first row that stores no diagonal entry ([`crate::Ilut`] needs none stored); more
    /// entries than fit.
    fn symbolic(a: &Csr<Self::Value>) -> Result<Self>;
    /// The numeric phase: values of the factors from A's, in the order of its stored entries. Serial; allocates its result and
    /// work space of the size of a few vectors.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as A has entries; [`Error::NotFinite`]; what the factorisation breaks down
    /// at: [`Error::ZeroPivot`], [`Error::TinyPivot`], [`Error::NotPositive`], each with the row.
    fn numeric(&self, values: &[Self::Value]) -> Result<Factors<Self::Value>>;
    /// Where L has entries: below the diagonal where [`Factor::upper`] is there, else on it as well.
    fn lower(&self) -> &Pattern;
    /// Where U has entries, on the diagonal and above; `None` where the other factor is L^T.
    fn upper(&self) -> Option<&Pattern>;

    /// Entries of the matrix that it was made of.
    fn nnz_given(&self) -> usize;

    /// Number of rows.
    fn nrows(&self) -> usize {
        self.lower().nrows()
    }
    /// Entries of the factors.
    fn nnz(&self) -> usize {
        self.lower().nnz() + self.upper().map_or(0, Pattern::nnz)
    }
    /// Bytes of the patterns.
    fn storage(&self) -> u64 {
        self.lower().storage() + self.upper().map_or(0, Pattern::storage)
    }
    /// Ones in the place of the factors' values: for triangles whose values come later, from a device.
    fn unformed(&self) -> Factors<Self::Value> {
        let ones = |pattern: &Pattern| {
            let mut ones = vec![Self::Value::from_f64(0.0); pattern.nnz()];
            ones.par_chunks_mut(CHUNK).for_each(|part| part.fill(Self::Value::from_f64(1.0)));
            ones
        };
        Factors { lower: ones(self.lower()), upper: self.upper().map_or_else(Vec::new, ones), shift: 0.0 }
    }
    /// Factors with these values, as triangles with copies of the pattern. O(nnz).
    ///
    /// # Errors
    /// Those of values that are not from [`Factor::numeric`].
    fn triangles(&self, values: Factors<Self::Value>) -> Result<Triangles<Self::Value>> {
        let Factors { lower, upper, shift } = values;
        let diagonal = if self.upper().is_some() { Diagonal::Unit } else { Diagonal::NonUnit };
        let of =
            |pattern: &Pattern, values, triangle, diagonal| Triangular::new(pattern.with(values)?, triangle, diagonal);
        let (upper, lower) = rayon::join(
            || self.upper().map(|pattern| of(pattern, upper, Triangle::Upper, Diagonal::NonUnit)).transpose(),
            || of(self.lower(), lower, Triangle::Lower, diagonal),
        );
        Ok(Triangles { upper: upper?, lower: lower?, shift })
    }
    /// Both phases with default parameters.
    ///
    /// # Errors
    /// Those of both phases.
    fn factor(a: &Csr<Self::Value>) -> Result<Triangles<Self::Value>> {
        let symbolic = Self::symbolic(a)?;
        symbolic.triangles(symbolic.numeric(a.values())?)
    }
}

/// Expands `$callback!` once with the list of all incomplete factorisations, `(stem, Type)` each. The only registry.
#[macro_export]
macro_rules! for_each_factor {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*] (ilu0, Ilu0), (iluk, Iluk), (ilut, Ilut), (ic0, Ic0) }
    };
}

/// Values of the factors, in the order of their stored entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors<T> {
    /// Those of L.
    pub lower: Vec<T>,
    /// Those of U; none where the other factor is L^T.
    pub upper: Vec<T>,
    /// alpha, where not A but A + alpha diag(A) was factored; else 0.
    pub shift: f64,
}

/// The factors.
#[derive(Clone, Debug)]
pub struct Triangles<T> {
    /// L.
    pub lower: Triangular<T>,
    /// U, or `None` where the other factor is L^T.
    pub upper: Option<Triangular<T>>,
    /// As in [`Factors`].
    pub shift: f64,
}

/// Where a square matrix has entries: as in CSR, `row_ptr` and `col_idx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    row_ptr: Vec<Offset>,
    col_idx: Vec<Ordinal>,
}

impl Pattern {
    pub(crate) fn with_capacity(nrows: usize, nnz: usize) -> Self {
        let mut row_ptr = Vec::with_capacity(nrows + 1);
        row_ptr.push(0);
        Self { row_ptr, col_idx: Vec::with_capacity(nnz) }
    }
    pub(crate) fn of<T: Real>(a: &Csr<T>) -> Self {
        Self { row_ptr: a.row_ptr().to_vec(), col_idx: a.col_idx().to_vec() }
    }
    /// Appends a row, its columns ascending.
    pub(crate) fn push(&mut self, cols: impl IntoIterator<Item = Ordinal>) -> Result<()> {
        self.col_idx.extend(cols);
        self.row_ptr.push(spandrel_formats::index::checked(self.col_idx.len(), "entries of a factor")?);
        Ok(())
    }
    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.row_ptr.len() - 1
    }
    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.col_idx.len()
    }
    /// Where each row's entries begin, `nrows + 1` offsets.
    pub fn row_ptr(&self) -> &[Offset] {
        &self.row_ptr
    }
    /// Column of each entry, ascending in a row.
    pub fn col_idx(&self) -> &[Ordinal] {
        &self.col_idx
    }
    /// Bytes of the two arrays.
    pub fn storage(&self) -> u64 {
        4 * (self.row_ptr.len() + self.col_idx.len()) as u64
    }
    /// Columns of row `i`.
    ///
    /// # Panics
    /// If `i >= nrows`, like indexing a slice.
    pub fn row(&self, i: usize) -> &[Ordinal] {
        &self.col_idx[self.start(i)..self.start(i + 1)]
    }
    #[inline(always)]
    pub(crate) fn start(&self, i: usize) -> usize {
        self.row_ptr[i] as usize
    }
    fn longest(&self) -> usize {
        self.row_ptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize).max().unwrap_or(0)
    }
    fn with<T: Real>(&self, values: Vec<T>) -> Result<Csr<T>> {
        let (n, row_ptr, col_idx) = (self.nrows(), copied(&self.row_ptr), copied(&self.col_idx));
        if values.len() != col_idx.len() {
            return Ok(Csr::new(n, n, row_ptr, col_idx, values)?);
        }
        // SAFETY: pointers that begin at 0, never decrease and end at the number of columns, and in each row columns that ascend and are below n:
        // whoever makes a pattern keeps to that, and here there are as many values.
        Ok(unsafe { Csr::new_unchecked(n, n, row_ptr, col_idx, values) })
    }

    /// Of each row of A the columns that `part` takes of so many, of which so many come before the diagonal: see [`before`].
    pub(crate) fn of_parts<T: Real>(
        a: &Csr<T>,
        before: &[Ordinal],
        part: impl Fn(usize, usize) -> Range<usize> + Sync,
    ) -> Self {
        let range = |i: usize| part(a.row_nnz(i), before[i] as usize);
        let mut row_ptr = vec![0 as Offset; before.len() + 1];
        // Where rows end in their chunk.
        let count = |(chunk, ends): (usize, &mut [Offset])| -> usize {
            let mut sum = 0;
            for (i, end) in (chunk * ROWS..).zip(ends) {
                sum += range(i).len();
                *end = sum as Offset;
            }
            sum
        };
        let sums: Vec<usize> = row_ptr[1..].par_chunks_mut(ROWS).enumerate().map(count).collect();
        let mut col_idx = vec![0 as Ordinal; sums.iter().sum()];
        let (mut rest, mut base) = (&mut col_idx[..], 0);
        let mut chunks = Vec::with_capacity(sums.len());
        for &sum in &sums {
            let (cols, behind) = rest.split_at_mut(sum);
            chunks.push((base, cols));
            (rest, base) = (behind, base + sum as Offset);
        }
        row_ptr[1..].par_chunks_mut(ROWS).zip(chunks).enumerate().for_each(|(chunk, (ends, (base, cols)))| {
            let mut at = 0;
            for (i, end) in (chunk * ROWS..).zip(ends) {
                cols[at..*end as usize].copy_from_slice(&a.row(i).0[range(i)]);
                at = *end as usize;
                *end += base;
            }
        });
        Self { row_ptr, col_idx }
    }
}

/// Entries of each row of a square matrix before that on the diagonal, counted without a branch for each. In parallel.
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::MissingPivot`], with the first row that stores no diagonal entry.
pub(crate) fn before<T: Real>(a: &Csr<T>) -> Result<Vec<Ordinal>> {
    square(a)?;
    let mut before = vec![0 as Ordinal; a.row_ptr().len() - 1];
    let count = |(chunk, counts): (usize, &mut [Ordinal])| {
        for (i, count) in (chunk * ROWS..).zip(counts) {
            let (cols, diagonal) = (a.row(i).0, i as Ordinal);
            *count = cols.iter().map(|&j| Ordinal::from(j < diagonal)).sum();
            if cols.get(*count as usize) != Some(&diagonal) {
                return Some(i);
            }
        }
        None
    };
    match before.par_chunks_mut(ROWS).enumerate().find_map_first(count) {
        Some(row) => Err(Error::MissingPivot { row }),
        None => Ok(before),
    }
}

/// A copy by all threads: fresh memory is slow to touch for one.
fn copied(from: &[u32]) -> Vec<u32> {
    let mut to = vec![0; from.len()];
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
    to
}

/// Patterns of a matrix's strictly lower part and of the rest. Rows of the two, one after the other, are the matrix's rows.
#[derive(Clone, Debug)]
pub(crate) struct Halves {
    pub(crate) lower: Pattern,
    pub(crate) upper: Pattern,
}

impl Halves {
    /// Every row must store its diagonal entry.
    pub(crate) fn of<T: Real>(a: &Csr<T>) -> Result<Self> {
        let before = before(a)?;
        let (lower, upper) = rayon::join(
            || Pattern::of_parts(a, &before, |_, before| 0..before),
            || Pattern::of_parts(a, &before, |entries, before| before..entries),
        );
        Ok(Self { lower, upper })
    }
    /// Entries of the matrix before row `i`.
    pub(crate) fn start(&self, i: usize) -> usize {
        self.lower.start(i) + self.upper.start(i)
    }
    pub(crate) fn nnz(&self) -> usize {
        self.lower.nnz() + self.upper.nnz()
    }
}

/// Columns of row `i` before the diagonal entry, and from it on.
pub(crate) fn around<T: Real>(a: &Csr<T>, i: usize) -> Result<(&[Ordinal], &[Ordinal])> {
    let cols = a.row(i).0;
    let parts = cols.split_at(cols.partition_point(|&j| (j as usize) < i));
    if parts.1.first() == Some(&(i as Ordinal)) { Ok(parts) } else { Err(Error::MissingPivot { row: i }) }
}

/// As many values as entries.
pub(crate) fn expect_values<T>(values: &[T], entries: usize) -> Result<()> {
    if values.len() == entries {
        return Ok(());
    }
    Err(Error::Shape { what: "values", found: values.len(), expected: entries })
}

/// Where a row's columns stand in it, counted from 1; 0 for a column that it does not have.
pub(crate) struct Slots(Vec<Ordinal>);

impl Slots {
    pub(crate) fn new(n: usize) -> Self {
        Self(vec![0; n])
    }
    #[inline(always)]
    pub(crate) fn set(&mut self, cols: &[Ordinal], from: usize) {
        for (at, &j) in cols.iter().enumerate() {
            self.0[j as usize] = (from + at + 1) as Ordinal;
        }
    }
    #[inline(always)]
    pub(crate) fn clear(&mut self, cols: &[Ordinal]) {
        for &j in cols {
            self.0[j as usize] = 0;
        }
    }
    #[inline(always)]
    pub(crate) fn get(&self, j: Ordinal) -> Option<usize> {
        (self.0[j as usize] as usize).checked_sub(1)
    }
}

/// Compiles a function also for processors with FMA and calls that where there is one: the same bits, many times as fast.
macro_rules! with_fma {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$T:ident: Real>($($arg:ident: $Arg:ty),* $(,)?) -> $Out:ty $body:block) => {
        $(#[$meta])*
        $vis fn $name<$T: Real>($($arg: $Arg),*) -> $Out {
            #[inline(always)]
            fn body<$T: Real>($($arg: $Arg),*) -> $Out $body
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                #[target_feature(enable = "avx2,fma")]
                fn fused<$T: Real>($($arg: $Arg),*) -> $Out {
                    body($($arg),*)
                }
                // SAFETY: the processor has both features.
                return unsafe { fused($($arg),*) };
            }
            body($($arg),*)
        }
    };
}
pub(crate) use with_fma;

/// Whether row `i` of L U can be relied on: `given` is A's row, `before` that of L, `rest` that of U, its pivot first.
///
/// A pivot is tiny where |u_ii| <= u max_j |a_ij|, u the unit roundoff: what is left of it may be rounding alone.
///
/// # Errors
/// [`Error::NotFinite`], [`Error::ZeroPivot`], [`Error::TinyPivot`].
#[inline(always)]
pub fn judge<T: Real>(i: usize, given: &[T], before: &[T], rest: &[T]) -> Result<()> {
    let pivot = rest.first().copied().unwrap_or_else(T::zero);
    if before.iter().chain(rest).any(|v| !v.is_finite()) {
        return Err(Error::NotFinite { row: i });
    }
    if pivot == T::zero() {
        return Err(Error::ZeroPivot { row: i });
    }
    let largest = given.iter().fold(T::zero(), |largest, v| largest.max(v.abs()));
    if pivot.abs() <= T::from_f64(T::UNIT_ROUNDOFF) * largest {
        return Err(Error::TinyPivot { row: i, pivot: pivot.as_f64(), largest: largest.as_f64() });
    }
    Ok(())
}

/// One row of L U from A's values in their places, where `slots` has them: the entries of L, for the rows `before` in ascending order, then those of U.
/// Rows of U begin with their pivots.
#[inline(always)]
pub(crate) fn eliminate_row<T: Real>(before: &[Ordinal], row: &mut [T], slots: &Slots, upper: &Pattern, u: &[T]) {
    for (p, &k) in before.iter().enumerate() {
        let (begin, end) = (upper.start(k as usize), upper.start(k as usize + 1));
        let (cols, terms) = (&upper.col_idx[begin..end], &u[begin..end]);
        let factor = row[p] / terms[0];
        row[p] = factor;
        for (&j, &term) in cols[1..].iter().zip(&terms[1..]) {
            if let Some(at) = slots.get(j) {
                row[at] = (-factor).mul_add(term, row[at]);
            }
        }
    }
}

with_fma! {
    /// A ~ L U on given patterns, row by row (IKJ; Saad, algorithms 10.4 and 10.6): l_ik = w_k / u_kk, then w_j = fma(-l_ik, u_kj, w_j) for the
    /// u_kj of which the row has a place. `a` is A's pattern where it is not that of the factors. Each row is [`judge`]d.
    pub(crate) fn eliminate<T: Real>(lower: &Pattern, upper: &Pattern, a: Option<&Pattern>, values: &[T]) -> Result<Factors<T>> {
        let n = lower.nrows();
        let mut slots = Slots::new(n);
        let mut row = vec![T::zero(); lower.longest() + upper.longest()];
        let mut l: Vec<T> = Vec::with_capacity(lower.nnz());
        let mut u: Vec<T> = Vec::with_capacity(upper.nnz());
        for i in 0..n {
            let (before, rest) = (lower.row(i), upper.row(i));
            let row = &mut row[..before.len() + rest.len()];
            slots.set(before, 0);
            slots.set(rest, before.len());
            let given = match a {
                None => &values[lower.start(i) + upper.start(i)..][..row.len()],
                Some(a) => &values[a.start(i)..a.start(i + 1)],
            };
            match a {
                None => row.copy_from_slice(given),
                Some(a) => {
                    row.fill(T::zero());
                    for (&j, &v) in a.row(i).iter().zip(given) {
                        if let Some(at) = slots.get(j) {
                            row[at] = v;
                        }
                    }
                }
            }
            eliminate_row(before, row, &slots, upper, &u);
            slots.clear(before);
            slots.clear(rest);
            judge(i, given, &row[..before.len()], &row[before.len()..])?;
            l.extend_from_slice(&row[..before.len()]);
            u.extend_from_slice(&row[before.len()..]);
        }
        Ok(Factors { lower: l, upper: u, shift: 0.0 })
    }
}
