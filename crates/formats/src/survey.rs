//! Survey: one look at every entry of a matrix, from which solver, preconditioner and format are chosen.
//!
//! Cost: one parallel pass over the rows, in which an entry above the diagonal also reads its mirror image. Rows often
//! repeat, so a row is first compared with the one before it, shifted by a column. If they agree, its diagonals are
//! already marked, and its mirror images are at the same positions as for the row before. Memory: one byte per possible
//! diagonal and one number per row length. Marks of scattered rows are cache misses, so they end once DIA is too large.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::padding::{fits, zeroed};
use crate::symmetry::{Mirrors, mirrored_or_zero};
use crate::{Csr, Error, Ordinal, Real, Result};

/// Number of rows per task: their entries stay in a core's cache from one look to the next.
const CHUNK: usize = 1024;

/// The result of one look at every entry.
///
/// ```
/// use spandrel_formats::{Profile, Survey, choose, generate};
///
/// let a = generate::csr::<f64>("poisson2d:1000")?;
/// let survey = Survey::of(&a);
/// assert!(survey.symmetric && survey.positive_diagonal && survey.not_finite.is_none());
/// let profile = Profile::reference(); // or what the device says of itself
/// assert_eq!(survey.choose(&a, &profile).format, choose(&a, &profile).format);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Debug)]
pub struct Survey {
    /// A = A^T exactly: [`Csr::is_symmetric`].
    pub symmetric: bool,
    /// Whether every row has a positive diagonal entry.
    pub positive_diagonal: bool,
    /// The first row whose diagonal entry is missing, not finite, or without a finite reciprocal.
    pub not_invertible: Option<NotInvertible>,
    /// Position among the values of the first that is infinite or NaN.
    pub not_finite: Option<usize>,
    /// Number of rows with more than k entries.
    pub(crate) longer: Vec<usize>,
    /// Column minus row of the diagonals that hold entries, ascending. [`crate::Error::DoesNotFit`] if they were too
    /// many for DIA and not all of them were of interest.
    pub(crate) offsets: Result<Vec<i32>>,
}

impl Survey {
    /// Looks at `csr`. Rows in parallel.
    pub fn of<T: Real>(csr: &Csr<T>) -> Self {
        Self::look(csr, true, false)
    }

    /// As [`Survey::of`]. If `symmetry` is false, symmetry is not looked for and counts as absent. All diagonals are
    /// found if `every` is true, otherwise only as many as DIA may have.
    pub(crate) fn look<T: Real>(csr: &Csr<T>, symmetry: bool, every: bool) -> Self {
        let n = csr.nrows();
        let bytes = |diagonals: usize| n as u128 * diagonals as u128 * T::BYTES as u128;
        let is_fit = |diagonals: usize| every || fits::<T>("dia", bytes(diagonals), n, csr.nnz()).is_ok();
        let (marks, count, are_marked) = (marks(n, csr.ncols()), AtomicUsize::new(0), AtomicBool::new(true));
        let mirrors = Mirrors::of(csr).filter(|_| symmetry);
        let symmetric = AtomicBool::new(mirrors.is_some());
        let seen = |mut seen: Seen, chunk: usize| {
            let rows = chunk * CHUNK..n.min((chunk + 1) * CHUNK);
            seen.values(csr, &rows);
            let found = seen.rows(csr, &rows, marks.as_deref().ok().filter(|_| are_marked.load(Ordering::Relaxed)));
            if found > 0 && !is_fit(count.fetch_add(found, Ordering::Relaxed) + found) {
                are_marked.store(false, Ordering::Relaxed);
            }
            if symmetric.load(Ordering::Relaxed) {
                match mirrors.as_ref().and_then(|mirrors| mirrors.unmatched(rows)) {
                    Some(unmatched) => seen.unmatched += unmatched,
                    None => symmetric.store(false, Ordering::Relaxed),
                }
            }
            seen
        };
        let chunks = (0..n.div_ceil(CHUNK)).into_par_iter();
        let seen = chunks.fold(Seen::default, seen).reduce(Seen::default, Seen::and);
        let symmetric = symmetric.into_inner()
            // An entry below the diagonal without a mirror image above it is symmetric if it is zero.
            && (seen.unmatched == 0 || mirrored_or_zero(csr));
        Self {
            symmetric,
            positive_diagonal: !seen.not_positive,
            not_invertible: seen.not_invertible,
            not_finite: seen.not_finite,
            longer: longer(seen.lengths),
            offsets: marks.and_then(|marks| match are_marked.into_inner() {
                true => Ok(marked(marks, n)),
                false => Err(Error::DoesNotFit { format: "dia", why: "it has too many diagonals".into() }),
            }),
        }
    }
}

/// A diagonal entry that has no finite reciprocal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInvertible {
    /// The row, from 0.
    pub row: usize,
    /// `"missing"`, `"NaN"`, `"infinite"`, `"zero"`, `"too small to invert"`.
    pub found: &'static str,
}

impl NotInvertible {
    /// Says what is wrong with the diagonal entry of `row`, if anything is.
    #[inline]
    pub fn of<T: Real>(row: usize, diagonal: Option<T>) -> Option<Self> {
        let found = match diagonal {
            Some(d) if d.is_finite() && d.recip().is_finite() => return None,
            None => "missing",
            Some(d) if d.is_nan() => "NaN",
            Some(d) if d.is_infinite() => "infinite",
            Some(d) if d == T::zero() => "zero",
            Some(_) => "too small to invert",
        };
        Some(Self { row, found })
    }

    /// The first row of a matrix with such a diagonal entry. One search per row, with rows in parallel.
    pub fn first<T: Real>(csr: &Csr<T>) -> Option<Self> {
        (0..csr.nrows()).into_par_iter().find_map_first(|row| Self::of(row, csr.get(row, row)))
    }
}

impl fmt::Display for NotInvertible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the diagonal entry of row {} is {}", self.row, self.found)
    }
}

/// What was seen in some of the rows.
#[derive(Default)]
struct Seen {
    not_positive: bool,
    not_invertible: Option<NotInvertible>,
    not_finite: Option<usize>,
    /// Number of rows of each length.
    lengths: Vec<usize>,
    /// Number of entries below the diagonal, less those above it that have a mirror image.
    unmatched: i64,
}

impl Seen {
    fn and(mut self, mut other: Self) -> Self {
        if self.lengths.len() < other.lengths.len() {
            std::mem::swap(&mut self.lengths, &mut other.lengths);
        }
        self.lengths.iter_mut().zip(&other.lengths).for_each(|(a, b)| *a += b);
        Self {
            not_positive: self.not_positive | other.not_positive,
            not_invertible: self.not_invertible.into_iter().chain(other.not_invertible).min_by_key(|bad| bad.row),
            not_finite: self.not_finite.into_iter().chain(other.not_finite).min(),
            lengths: self.lengths,
            unmatched: self.unmatched + other.unmatched,
        }
    }

    fn values<T: Real>(&mut self, csr: &Csr<T>, rows: &Range<usize>) {
        let first = csr.row_ptr()[rows.start] as usize;
        let values = &csr.values()[first..csr.row_ptr()[rows.end] as usize];
        // The loop has no early exit, so that it compiles to vector instructions.
        if self.not_finite.is_none() && !values.iter().fold(true, |finite, v| finite & v.is_finite()) {
            self.not_finite = values.iter().position(|v| !v.is_finite()).map(|at| first + at);
        }
    }

    /// Returns the number of diagonals that nobody had marked.
    fn rows<T: Real>(&mut self, csr: &Csr<T>, rows: &Range<usize>, marks: Option<&[AtomicU8]>) -> usize {
        let mut before: &[Ordinal] = &[];
        let (mut at, mut found) = (usize::MAX, 0);
        for i in rows.clone() {
            let (cols, values) = csr.row(i);
            if self.lengths.len() <= cols.len() {
                self.lengths.resize(cols.len() + 1, 0);
            }
            self.lengths[cols.len()] += 1;
            if !follows(before, cols) {
                at = cols.partition_point(|&j| (j as usize) < i);
                if let Some(marks) = marks {
                    found += mark(marks, csr.nrows() - i, cols);
                }
            }
            before = cols;
            let diagonal = cols.get(at).filter(|&&j| j as usize == i).map(|_| values[at]);
            self.not_positive |= !diagonal.is_some_and(|d| d > T::zero());
            if self.not_invertible.is_none() {
                self.not_invertible = NotInvertible::of(i, diagonal);
            }
        }
        found
    }
}

/// Returns true if these are the columns of the row before, each shifted by one.
#[inline]
pub(crate) fn follows(before: &[Ordinal], cols: &[Ordinal]) -> bool {
    before.len() == cols.len() && before.iter().zip(cols).fold(true, |same, (&b, &j)| same & (b + 1 == j))
}

/// Makes one mark per possible diagonal.
fn marks(nrows: usize, ncols: usize) -> Result<Vec<AtomicU8>> {
    let marks: Vec<u8> = zeroed(nrows + ncols, "marks of diagonals")?;
    Ok(marks.into_iter().map(AtomicU8::new).collect())
}

/// Marks the diagonals of a row's entries. The mark of column c is at c + `from`. Returns how many were not marked.
#[inline]
fn mark(marks: &[AtomicU8], from: usize, cols: &[Ordinal]) -> usize {
    let mut found = 0;
    for &j in cols {
        let mark = &marks[j as usize + from];
        // A plain load first, so that threads keep sharing the cache line once the mark is set.
        if mark.load(Ordering::Relaxed) == 0 {
            found += usize::from(mark.swap(1, Ordering::Relaxed) == 0);
        }
    }
    found
}

/// The marked diagonals, ascending.
fn marked(mut marks: Vec<AtomicU8>, nrows: usize) -> Vec<i32> {
    let few = marks.par_chunks_mut(1 << 16).enumerate().map(|(chunk, marks)| {
        let set = marks.iter_mut().enumerate().filter_map(|(at, mark)| (*mark.get_mut() != 0).then_some(at));
        set.map(|at| ((chunk << 16) as i64 + at as i64 - nrows as i64) as i32).collect::<Vec<_>>()
    });
    few.flatten_iter().collect()
}

/// Offsets of the diagonals that hold entries, ascending. One pass over the entries, with one byte per possible
/// diagonal.
pub(crate) fn occupied<T: Real>(csr: &Csr<T>) -> Result<Vec<i32>> {
    let n = csr.nrows();
    let marks = marks(n, csr.ncols())?;
    (0..n.div_ceil(CHUNK)).into_par_iter().for_each(|chunk| {
        let mut before: &[Ordinal] = &[];
        for i in chunk * CHUNK..n.min((chunk + 1) * CHUNK) {
            let cols = csr.row(i).0;
            if !follows(before, cols) {
                mark(&marks, n - i, cols);
            }
            before = cols;
        }
    });
    Ok(marked(marks, n))
}

/// Turns the numbers of rows with k entries into the numbers of rows with more than k entries.
pub(crate) fn longer(mut lengths: Vec<usize>) -> Vec<usize> {
    if lengths.is_empty() {
        lengths.push(0);
    }
    let mut rows = 0;
    for count in lengths.iter_mut().rev() {
        rows += std::mem::replace(count, rows);
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dia, Format, generate};

    #[test]
    fn diagonals_are_all_found_unless_dia_cannot_have_them() {
        for (spec, is_fit) in [
            ("d3n27:30", true),
            ("banded:n=60000,d=101", true),
            ("random:n=200,nnz_per_row=5", true),
            ("random:n=60000,nnz_per_row=5", false),
            ("electrostatic:n=20000", false),
        ] {
            let a = generate::csr::<f64>(spec).unwrap();
            let all = occupied(&a).unwrap();
            assert_eq!(Survey::look(&a, true, true).offsets.unwrap(), all, "{spec}");
            match Survey::of(&a).offsets {
                Ok(found) => assert!(is_fit && found == all, "{spec}"),
                Err(error) => assert!(!is_fit && matches!(error, Error::DoesNotFit { .. }), "{spec}: {error}"),
            }
            assert_eq!(Dia::from_csr(&a).is_ok(), is_fit, "{spec}");
        }
    }
}
