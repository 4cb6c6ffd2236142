//! The trait of all incomplete factorisations, and the one list of them.
//!
//! A factorisation is A ~ L U with L unit lower and U upper triangular, or A ~ L L^T with L non-unit lower triangular.
//! The symbolic phase ([`Factor::symbolic`]) decides once where the factors have entries. It reads A's pattern; ILUT
//! also reads its values. The numeric phase ([`Factor::numeric`]) computes the values any number of times. The factors
//! are [`Triangular`]s, which any [`crate::Plan`] takes.
//!
//! A device that computes the factors uses the same patterns. It makes its plans from triangles without values
//! ([`Factor::unformed`]) and updates them with the values that it computes.
//!
//! Order, for all factorisations: rows from first to last; in a row the columns of L ascend. A value starts as A's (0
//! for fill) and takes its terms one by one, `s = fma(-l, u, s)`; quotients and roots are rounded once. A row waits
//! only for the rows of its columns, so a device that works by levels of A's lower triangle gets the same bits.
//! Cost: for each entry l_ik, one pass over row k of the other factor. An array of n positions finds a row's columns
//! without a search; it is written and cleared once per row.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, chapter 10.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::triangle::square;
use crate::{Diagonal, Error, Result, Triangle, Triangular};

/// Elements, and rows, per parallel task.
const CHUNK: usize = 1 << 13;
const ROWS: usize = 1 << 11;

/// An incomplete factorisation. A value of such a type is the result of the symbolic phase.
pub trait Factor: Clone + fmt::Debug + Send + Sync + Sized + 'static {
    /// Element type.
    type Value: Real;
    /// The stem of its name in files, trials, benches and on the command line.
    const NAME: &'static str;
    /// Whether a row of the factors depends on earlier rows.
    const WAITS: bool = true;

    /// The symbolic phase with default parameters. It reads the pattern of a square matrix; only [`crate::Ilut`] also
    /// reads its values.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::MissingPivot`] with the first row that stores no diagonal entry ([`crate::Ilut`]
    /// needs none stored); an error if there are more entries than fit.
    fn symbolic(a: &Csr<Self::Value>) -> Result<Self>;
    /// The numeric phase: computes the values of the factors from those of A, which are given in the order of A's
    /// stored entries. Serial; allocates its result and work space of a few vectors.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as A has entries; [`Error::NotFinite`]; and breakdowns, each
    /// with the row: [`Error::ZeroPivot`], [`Error::TinyPivot`], [`Error::NotPositive`].
    fn numeric(&self, values: &[Self::Value]) -> Result<Factors<Self::Value>>;
    /// Like [`Factor::numeric`], but replaces each pivot that is zero or tiny. `None` for a factorisation without such
    /// a rule: only [`crate::Ilut`] has one.
    fn mended(&self, values: &[Self::Value]) -> Option<Result<Factors<Self::Value>>> {
        let _ = values;
        None
    }
    /// [`Factor::numeric`], or [`Factor::mended`] if that refuses a pivot and there is such a rule.
    ///
    /// # Errors
    /// As [`Factor::numeric`].
    fn usable(&self, values: &[Self::Value]) -> Result<Factors<Self::Value>> {
        match self.numeric(values) {
            Err(error) if error.is_pivot() => self.mended(values).unwrap_or(Err(error)),
            made => made,
        }
    }
    /// The pattern of L: below the diagonal if [`Factor::upper`] is present, otherwise with the diagonal.
    fn lower(&self) -> &Pattern;
    /// The pattern of U, on and above the diagonal; `None` if the other factor is L^T.
    fn upper(&self) -> Option<&Pattern>;

    /// Number of entries of the matrix that was factored.
    fn nnz_given(&self) -> usize;

    /// Number of rows.
    fn nrows(&self) -> usize {
        self.lower().nrows()
    }
    /// Number of entries of the factors.
    fn nnz(&self) -> usize {
        self.lower().nnz() + self.upper().map_or(0, Pattern::nnz)
    }
    /// Bytes of the patterns.
    fn storage(&self) -> u64 {
        self.lower().storage() + self.upper().map_or(0, Pattern::storage)
    }
    /// Returns ones instead of the factors' values, for triangles whose values will come from a device.
    fn unformed(&self) -> Factors<Self::Value> {
        let ones = |pattern: &Pattern| {
            let mut ones = vec![Self::Value::from_f64(0.0); pattern.nnz()];
            ones.par_chunks_mut(CHUNK).for_each(|part| part.fill(Self::Value::from_f64(1.0)));
            ones
        };
        Factors { lower: ones(self.lower()), upper: self.upper().map_or_else(Vec::new, ones), shift: 0.0 }
    }
    /// Makes triangles from these values, with copies of the pattern. O(nnz).
    ///
    /// # Errors
    /// Those of [`Triangular::new`], for values that did not come from [`Factor::numeric`].
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
    /// Runs both phases with default parameters.
    ///
    /// # Errors
    /// Those of both phases.
    fn factor(a: &Csr<Self::Value>) -> Result<Triangles<Self::Value>> {
        let symbolic = Self::symbolic(a)?;
        symbolic.triangles(symbolic.numeric(a.values())?)
    }
}

/// Expands `$callback!` once with the list of all incomplete factorisations, `(stem, Type)` each. This is the only
/// registry.
#[macro_export]
macro_rules! for_each_factor {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*] (ilu0, Ilu0), (iluk, Iluk), (ilut, Ilut), (ic0, Ic0) }
    };
}

/// Values of the factors, in the order of their stored entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Factors<T> {
    /// Values of L.
    pub lower: Vec<T>,
    /// Values of U; empty if the other factor is L^T.
    pub upper: Vec<T>,
    /// alpha if A + alpha diag(A) was factored instead of A, otherwise 0.
    pub shift: f64,
}

/// The factors as triangles.
#[derive(Clone, Debug)]
pub struct Triangles<T> {
    /// L.
    pub lower: Triangular<T>,
    /// U, or `None` if the other factor is L^T.
    pub upper: Option<Triangular<T>>,
    /// As [`Factors::shift`].
    pub shift: f64,
}

/// The pattern of a square matrix: `row_ptr` and `col_idx` as in CSR.
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
    /// Appends a row; its columns must ascend.
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
    /// Where each row's entries begin: `nrows + 1` offsets.
    pub fn row_ptr(&self) -> &[Offset] {
        &self.row_ptr
    }
    /// Column of each entry, ascending within a row.
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
        // SAFETY: the pointers begin at 0, never decrease and end at the number of columns. The columns of each row
        // ascend and are below n. Whoever makes a pattern ensures this, and the number of values is checked above.
        Ok(unsafe { Csr::new_unchecked(n, n, row_ptr, col_idx, values) })
    }

    /// Makes a pattern from a part of each row of A. `part` gets the number of entries of a row and the number before
    /// the diagonal (see [`before`]), and returns the range to take.
    pub(crate) fn of_parts<T: Real>(
        a: &Csr<T>,
        before: &[Ordinal],
        part: impl Fn(usize, usize) -> Range<usize> + Sync,
    ) -> Self {
        let range = |i: usize| part(a.row_nnz(i), before[i] as usize);
        let mut row_ptr = vec![0 as Offset; before.len() + 1];
        // Write the end of each row within its chunk.
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

/// Counts the entries of each row of a square matrix before the diagonal, without a branch per entry. In parallel.
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::MissingPivot`] with the first row that stores no diagonal entry.
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

/// Copies an array with all threads, because one thread touches new memory slowly.
fn copied(from: &[u32]) -> Vec<u32> {
    let mut to = vec![0; from.len()];
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
    to
}

/// The patterns of a matrix's strictly lower part and of the rest. A row of the first followed by the row of the second
/// is the matrix's row.
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
    /// Number of entries of the matrix before row `i`.
    pub(crate) fn start(&self, i: usize) -> usize {
        self.lower.start(i) + self.upper.start(i)
    }
    pub(crate) fn nnz(&self) -> usize {
        self.lower.nnz() + self.upper.nnz()
    }
}

/// The pattern of A and those of factors whose patterns differ from it.
#[derive(Clone, Debug)]
pub(crate) struct Filled {
    pub(crate) a: Pattern,
    pub(crate) lower: Pattern,
    pub(crate) upper: Pattern,
}

impl Filled {
    /// Eliminates on these patterns. `stand_in` replaces pivots that [`judge`] would refuse; see [`eliminate`].
    pub(crate) fn numeric<T: Real>(&self, values: &[T], stand_in: Option<T>) -> Result<Factors<T>> {
        expect_values(values, self.a.nnz())?;
        eliminate(&self.lower, &self.upper, Some(&self.a), values, stand_in)
    }
}

/// Splits the columns of row `i` into those before the diagonal entry and the rest.
pub(crate) fn around<T: Real>(a: &Csr<T>, i: usize) -> Result<(&[Ordinal], &[Ordinal])> {
    let cols = a.row(i).0;
    let parts = cols.split_at(cols.partition_point(|&j| (j as usize) < i));
    if parts.1.first() == Some(&(i as Ordinal)) { Ok(parts) } else { Err(Error::MissingPivot { row: i }) }
}

/// Checks that there are as many values as entries.
pub(crate) fn expect_values<T>(values: &[T], entries: usize) -> Result<()> {
    if values.len() == entries {
        return Ok(());
    }
    Err(Error::Shape { what: "values", found: values.len(), expected: entries })
}

/// Position of each column within the current row, counted from 1; 0 for a column that the row does not have.
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

/// Compiles a function a second time for processors with FMA and calls that version if possible: same bits, many times
/// as fast.
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

/// Checks whether row `i` of L U is reliable. `given` is A's row, `before` the row of L, and `rest` the row of U with
/// its pivot first.
///
/// A pivot is tiny if |u_ii| <= u max_j |a_ij|, where u is the unit roundoff: it may then consist only of rounding
/// errors.
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

/// The pivot that takes the place of one that is zero or tiny: `share` times the largest magnitude of A's row, with the
/// sign of the old one. A row of zeros gets `share`. It is at least the smallest normal number: a share of a subnormal
/// number may be 0, and the reciprocal of one may be infinite.
#[inline(always)]
pub(crate) fn replaced<T: Real>(pivot: T, given: &[T], share: T) -> T {
    let largest = given.iter().fold(T::zero(), |largest, v| largest.max(v.abs()));
    let size = (share * if largest > T::zero() { largest } else { T::one() }).max(T::min_positive_value());
    if pivot < T::zero() { -size } else { size }
}

/// Eliminates one row of L U in place. `row` holds A's values at the positions in `slots`: first the entries of L for
/// the rows `before`, ascending, then those of U. Rows of U begin with their pivots.
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
    /// Factors A ~ L U on given patterns, row by row (IKJ; Saad, algorithms 10.4 and 10.6): l_ik = w_k / u_kk, then w_j
    /// = fma(-l_ik, u_kj, w_j) for every u_kj whose column is in the row's pattern. `a` is A's pattern if it differs
    /// from that of the factors. [`judge`] checks each row; with a `stand_in`, a pivot that it refuses is replaced
    /// ([`replaced`]).
    pub(crate) fn eliminate<T: Real>(
        lower: &Pattern,
        upper: &Pattern,
        a: Option<&Pattern>,
        values: &[T],
        stand_in: Option<T>,
    ) -> Result<Factors<T>> {
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
            let (of_l, of_u) = row.split_at_mut(before.len());
            match (judge(i, given, of_l, of_u), stand_in) {
                (Err(Error::ZeroPivot { .. } | Error::TinyPivot { .. }), Some(share)) => of_u[0] = replaced(of_u[0], given, share),
                (judged, _) => judged?,
            }
            l.extend_from_slice(&row[..before.len()]);
            u.extend_from_slice(&row[before.len()..]);
        }
        Ok(Factors { lower: l, upper: u, shift: 0.0 })
    }
}
