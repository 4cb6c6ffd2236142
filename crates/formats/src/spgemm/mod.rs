//! The product C = A B of sparse matrices: a symbolic phase once per pattern, and a numeric phase for every set of
//! values.
//!
//! The pattern of C depends only on those of A and B: C stores an entry wherever two entries are multiplied, even if
//! the sum is zero.
//!
//! The symbolic phase holds a row of C as a bit set with one bit per column of B, and a list of the words that are not
//! zero. It sorts this list instead of the columns. In the numeric phase each thread has one accumulator per column of
//! B. All are +0 between rows: a row of C takes its values from them and resets them. If B has far more columns than
//! there are multiplications, the numeric phase searches the columns in the row of C instead.
//!
//! Order: stored. Every entry is summed from +0 by `fma` in the order of the entries of A's row. Any number of threads
//! gives the same bits.
//! Cost: one multiplication per entry of A and entry of the row of B that it meets. Besides the matrices, a thread
//! holds |T| bytes (numeric) or 1/8 byte (symbolic) per column of B. The symbolic phase holds the columns of C twice.
//! Reference: Gustavson 1978, Two fast algorithms for sparse matrices: multiplication and permuted transposition.

mod numeric;
pub(crate) mod once;
mod symbolic;

use std::ops::Mul;
use std::sync::{Mutex, PoisonError};

use self::numeric::{Pattern, values_of};
pub use self::once::{triple_product, triple_product_by};
use self::symbolic::{ColumnSet, columns, cut, is_scattered};
use crate::csr::pieces;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::team::{Pool, RayonTeam, Rooms, Team};
use crate::{Csr, Error, Real, Result};

/// What the numeric phase of a product needs: the shapes, and the rows of each task.
///
/// A plan holds no pattern. It reads those of A, B and C from the matrices themselves, which must have the patterns of
/// the symbolic phase.
///
/// ```
/// use spandrel_formats::{SpgemmPlan, generate};
///
/// let mut a = generate::csr::<f64>("poisson1d:4")?;
/// let (plan, mut square) = SpgemmPlan::symbolic(&a, &a)?;
/// plan.numeric(&a, &a, &mut square)?;
/// assert_eq!(square.row(0), (&[0u32, 1, 2][..], &[5.0, -4.0, 1.0][..]));
///
/// // New values on the same patterns: nothing is searched or allocated for C.
/// a.values_mut().iter_mut().for_each(|v| *v *= 10.0);
/// plan.numeric(&a, &a, &mut square)?;
/// assert_eq!(square.row(0).1, [500.0, -400.0, 100.0]);
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SpgemmPlan {
    /// Rows of A, columns of A, columns of B.
    shape: [usize; 3],
    /// Entries of A, B and C.
    nnz: [usize; 3],
    /// Where the rows of each task begin, and the number of rows.
    tasks: Vec<usize>,
    multiplications: u64,
    way: Way,
}

/// How the numeric phase finds the sum to which it adds a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By column, in one accumulator per column of B.
    Near,
    /// As [`Way::Near`], but rows of B are prefetched.
    Scattered,
    /// By a search among the columns of the row of C.
    Search,
}

/// [`Way::Search`] is taken if B has more than this many columns per multiplication. Accumulators would then be mostly
/// untouched memory, up to 16 GiB per thread.
const WIDE: u64 = 16;

/// Returns A B. For new values on the same patterns see [`SpgemmPlan`]. `&a * &b` is the same, but panics on an error.
///
/// ```
/// use spandrel_formats::{generate, product};
///
/// let a = generate::csr::<f64>("poisson1d:4")?;
/// let square = product(&a, &a)?;
/// assert_eq!(square.row(0), (&[0u32, 1, 2][..], &[5.0, -4.0, 1.0][..]));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
///
/// # Errors
/// As [`SpgemmPlan::symbolic`].
#[doc(alias = "spgemm")]
#[doc(alias = "matmul")]
pub fn product<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Result<Csr<T>> {
    product_by(&RayonTeam, a, b)
}

/// As [`product`], by the threads of `team`.
///
/// # Errors
/// As [`product`].
pub(crate) fn product_by<T: Real>(team: &impl Team, a: &Csr<T>, b: &Csr<T>) -> Result<Csr<T>> {
    let (plan, mut c) = SpgemmPlan::symbolic_by(team, a, b)?;
    plan.numeric_by(team, a, b, &mut c)?;
    Ok(c)
}

impl<T: Real> Mul<&Csr<T>> for &Csr<T> {
    type Output = Csr<T>;

    /// Returns A B: see [`product`].
    ///
    /// # Panics
    /// If A does not have as many columns as B has rows, the product has too many entries, or its memory cannot be
    /// allocated. [`product`] returns these as errors.
    fn mul(self, b: &Csr<T>) -> Csr<T> {
        product(self, b).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl SpgemmPlan {
    /// Finds the pattern of C = A B. Returns the plan, and C with all values +0, for [`SpgemmPlan::numeric`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless A has as many columns as B has rows; [`Error::TooLarge`] if C has 2^31 entries or more;
    /// [`Error::OutOfMemory`].
    pub fn symbolic<T: Real>(a: &Csr<T>, b: &Csr<T>) -> Result<(Self, Csr<T>)> {
        Self::symbolic_by(&RayonTeam, a, b)
    }

    /// As [`SpgemmPlan::symbolic`], by the threads of `team`.
    ///
    /// # Errors
    /// As [`SpgemmPlan::symbolic`].
    pub fn symbolic_by<T: Real>(team: &impl Team, a: &Csr<T>, b: &Csr<T>) -> Result<(Self, Csr<T>)> {
        expect_inner(a.ncols(), b.nrows())?;
        let (tasks, multiplications) = cut(team, a, b)?;
        let way = match is_scattered(a) {
            _ if b.ncols() as u64 > WIDE * multiplications.max(4096) => Way::Search,
            true => Way::Scattered,
            false => Way::Near,
        };
        let n = a.nrows();
        let mut row_ptr: Vec<Offset> = zeroed(n + 1, "row pointers")?;
        let rows = Rooms::new(pieces(&mut row_ptr[1..], tasks.windows(2).map(|rows| rows[1] - rows[0])));
        let (found, sets) = (Rooms::empty(tasks.len() - 1), Pool::default());
        team.run(tasks.len() - 1, &|task| {
            let Some(ends) = rows.take(task) else { return };
            let columns = sets.with(
                || ColumnSet::new(b.ncols()),
                |set| {
                    let rows = tasks[task]..tasks[task + 1];
                    match way {
                        Way::Near => columns::<T, false>(a, b, rows, set, ends),
                        _ => columns::<T, true>(a, b, rows, set, ends),
                    }
                },
            );
            found.put(task, columns);
        });
        drop(rows);
        let found: Vec<Vec<Ordinal>> = found.into_all().collect::<Result<_>>()?;
        let nnz = found.iter().map(Vec::len).sum();
        checked(nnz, "entries")?;

        let mut col_idx: Vec<Ordinal> = zeroed(nnz, "columns")?;
        let places = Rooms::new(pieces(&mut col_idx, found.iter().map(Vec::len)));
        let ends = Rooms::new(pieces(&mut row_ptr[1..], tasks.windows(2).map(|rows| rows[1] - rows[0])));
        let begins: Vec<usize> = found
            .iter()
            .scan(0, |end, columns| {
                let begin = *end;
                *end += columns.len();
                Some(begin)
            })
            .collect();
        let found = Rooms::new(found);
        team.run(tasks.len() - 1, &|task| {
            let (Some(place), Some(ends), Some(columns)) = (places.take(task), ends.take(task), found.take(task))
            else {
                return;
            };
            place.copy_from_slice(&columns);
            ends.iter_mut().for_each(|end| *end += begins[task] as Offset);
        });
        let values = zeroed(nnz, "values")?;
        let plan = Self { shape: [n, a.ncols(), b.ncols()], nnz: [a.nnz(), b.nnz(), nnz], tasks, multiplications, way };
        // SAFETY: the pointers are the running sums of the lengths of rows; the columns come from B, so they are below
        // its number of columns, and a set gives them in ascending order. The number of entries was checked above, and
        // the shapes by the constructors of A and B.
        let c = unsafe { Csr::new_unchecked(n, b.ncols(), row_ptr, col_idx, values) };
        Ok((plan, c))
    }

    /// Computes the values of C = A B. The matrices must have the patterns of the symbolic phase. Only their sizes are
    /// checked; with other patterns the values mean nothing.
    ///
    /// # Errors
    /// [`Error::Shape`] unless every matrix has the rows, columns and number of entries of the symbolic phase, with C
    /// unchanged; [`Error::OutOfMemory`], with C partly computed.
    pub fn numeric<T: Real>(&self, a: &Csr<T>, b: &Csr<T>, c: &mut Csr<T>) -> Result<()> {
        self.numeric_by(&RayonTeam, a, b, c)
    }

    /// As [`SpgemmPlan::numeric`], by the threads of `team`.
    ///
    /// # Errors
    /// As [`SpgemmPlan::numeric`].
    pub fn numeric_by<T: Real>(&self, team: &impl Team, a: &Csr<T>, b: &Csr<T>, c: &mut Csr<T>) -> Result<()> {
        self.expect([
            (a.nrows(), a.ncols(), a.nnz()),
            (b.nrows(), b.ncols(), b.nnz()),
            (c.nrows(), c.ncols(), c.nnz()),
        ])?;
        let (row_ptr, col_idx, values) = c.split_mut();
        let lengths = self.tasks.windows(2).map(|rows| (row_ptr[rows[1]] - row_ptr[rows[0]]) as usize);
        let places = Rooms::new(pieces(values, lengths));
        let (failed, accumulators) = (Mutex::new(None), Pool::default());
        team.run(self.tasks.len() - 1, &|task| {
            let Some(out) = places.take(task) else { return };
            let rows = self.tasks[task]..self.tasks[task + 1];
            let pattern = Pattern { row_ptr: &row_ptr[rows.start..=rows.end], col_idx };
            let width = if self.way == Way::Search { 0 } else { b.ncols() };
            let outcome = accumulators.with(
                || zeroed(width, "accumulators"),
                |sums: &mut Vec<T>| {
                    values_of(self.way, a, b, rows, pattern, sums, out);
                    Ok(())
                },
            );
            if let Err(error) = outcome {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Checks (rows, columns, entries) of A, B and C against those of the symbolic phase.
    ///
    /// # Errors
    /// [`Error::Shape`] that names the matrix.
    fn expect(&self, found: [(usize, usize, usize); 3]) -> Result<()> {
        let [n, inner, ncols] = self.shape;
        let wanted = [(n, inner, self.nnz[0]), (inner, ncols, self.nnz[1]), (n, ncols, self.nnz[2])];
        let what = [
            ["a column of A", "a row of A", "the values of A"],
            ["a column of B", "a row of B", "the values of B"],
            ["a column of C", "a row of C", "the values of C"],
        ];
        expect_sizes("spgemm", what, found, wanted)
    }

    /// Number of multiplications of the numeric phase.
    pub fn multiplications(&self) -> u64 {
        self.multiplications
    }
}

/// Compares (rows, columns, entries) of matrices with the expected ones.
///
/// # Errors
/// [`Error::Shape`] for the first that differs.
pub(crate) fn expect_sizes<const N: usize>(
    op: &'static str,
    what: [[&'static str; 3]; N],
    found: [(usize, usize, usize); N],
    wanted: [(usize, usize, usize); N],
) -> Result<()> {
    for ((what, found), wanted) in what.into_iter().zip(found).zip(wanted) {
        let sizes = [(found.0, wanted.0), (found.1, wanted.1), (found.2, wanted.2)];
        for (what, (found, expected)) in what.into_iter().zip(sizes) {
            if found != expected {
                return Err(Error::Shape { op, what, found, expected });
            }
        }
    }
    Ok(())
}

/// # Errors
/// [`Error::Shape`] unless A has as many columns as B has rows.
fn expect_inner(ncols: usize, nrows: usize) -> Result<()> {
    match ncols == nrows {
        true => Ok(()),
        false => Err(Error::Shape { op: "spgemm", what: "a row of A", found: ncols, expected: nrows }),
    }
}
