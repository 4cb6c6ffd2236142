//! How good an answer is: its true residual, and its backward error if the residual alone does not tell.
//!
//! A residual computed in the precision of the solve has rounding errors of its own. If the terms of A x are large and
//! cancel, it may be small by chance. [`ResidualRounding`] bounds these errors, and
//! [`residual`] avoids them by computing in twice the digits.
//!
//! The backward error of x is the smallest relative change of A and b for which x is the exact answer. If it is about
//! the unit roundoff, x is as good as the storage of A and b in that precision allows, however large the residual is.
//!
//! Cost: [`residual`] makes one pass over the matrix; the rest makes one or two, and sums in f64.
//! References: Rigal & Gaches 1967, On the compatibility of a given solution with the data of a linear system
//! (normwise); Oettli & Prager 1964, Compatibility of approximate solution of linear equations with given error bounds
//! for coefficients and right-hand sides (componentwise); Higham 2002, Accuracy and stability of numerical algorithms,
//! sections 3.5 and 7.1.

use std::fmt;
use std::ops::Range;

use rayon::prelude::*;
use spandrel_formats::{Csr, Real};

/// Rows whose column sums one thread forms.
const PART: usize = 1 << 16;

/// Normwise backward errors up to this many unit roundoffs count as solved to rounding: 7.1e-15 in f64. Elimination
/// with row exchanges leaves about its growth factor, mostly below 64 (Higham 2002, section 9.4).
pub const BACKWARD_STABLE: f64 = 64.0;

/// The backward error of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackwardError {
    /// ||b - A x|| / (||A|| ||x|| + ||b||) in the maximum norm.
    pub normwise: f64,
    /// The largest |b - A x|_i / (|A| |x| + |b|)_i over all rows.
    pub componentwise: f64,
}

impl BackwardError {
    /// The backward error of x as an answer to A x = b. The sizes must fit; missing elements count as zero.
    pub fn of<T: Real>(csr: &Csr<T>, b: &[T], x: &[T]) -> Self {
        Self::with_residual(csr, b, x, &residual(csr, b, x))
    }

    /// As [`BackwardError::of`], with b - A x already computed.
    pub(crate) fn with_residual<T: Real>(csr: &Csr<T>, b: &[T], x: &[T], r: &[f64]) -> Self {
        let x_max = x.iter().fold(0.0, |max: f64, v| worst(max, v.as_f64().abs()));
        // Form sums in units of the largest element, so that no product overflows.
        let unit = if x_max > 0.0 && x_max.is_finite() { x_max } else { 1.0 };
        let (mut a_max, mut b_max, mut r_max, mut componentwise) = (0.0, 0.0, 0.0, 0.0);
        for (i, (b, r)) in b.iter().zip(r).enumerate() {
            let (cols, values) = csr.row(i);
            let (mut a_sum, mut ax_sum) = (0.0, b.as_f64().abs() / unit);
            for (&j, v) in cols.iter().zip(values) {
                let v = v.as_f64().abs();
                a_sum += v;
                ax_sum += v * (x[j as usize].as_f64().abs() / unit);
            }
            (a_max, b_max, r_max) = (worst(a_max, a_sum), worst(b_max, b.as_f64().abs()), worst(r_max, r.abs()));
            componentwise = worst(componentwise, quotient(r.abs() / unit, ax_sum));
        }
        let normwise = quotient(r_max / unit, a_max * (x_max / unit) + b_max / unit);
        Self { normwise, componentwise }
    }

    /// Whether the answer is exact for data that agree with A and b to the rounding of `T`: a normwise error of at most
    /// [`BACKWARD_STABLE`] unit roundoffs.
    pub fn is_stable<T: Real>(&self) -> bool {
        self.normwise <= BACKWARD_STABLE * T::UNIT_ROUNDOFF
    }
}

impl fmt::Display for BackwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1e}", self.normwise)
    }
}

/// The larger of two values, or NaN if either is NaN.
fn worst(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// a / b, with 0 / 0 = 0: any x satisfies a row of zeros if b is zero there.
fn quotient(a: f64, b: f64) -> f64 {
    if a == 0.0 { 0.0 } else { a / b }
}

/// How far a residual computed in the precision of the matrix may be from the true one.
///
/// Each row of b - A x has an error of at most g (|b| + |A| |x|), with g = k u / (1 - k u) for k roundings and the unit
/// roundoff u. k is the number of terms of the longest row, and two more; the order of the terms does not matter. The
/// norm of |A| is at most the root of its largest row sum times its largest column sum.
///
/// ```
/// use spandrel_formats::generate;
/// use spandrel_solvers::ResidualRounding;
///
/// let a = generate::csr::<f64>("poisson2d:100")?;
/// let rounding = ResidualRounding::of(&a, true);
/// // If x is about as large as b, a residual of 1e-9 is below 1e-8 for certain. If x is 1e10 times as large, it may
/// // be rounding only.
/// assert!(rounding.proves::<f64>(1e-9, 1.0, 1e-8) && !rounding.proves::<f64>(1e-9, 1e10, 1e-8));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResidualRounding {
    nrows: usize,
    /// Terms of the longest row.
    terms: usize,
    /// A bound of the 2-norm of |A|; infinite or NaN if a sum overflows.
    magnitude: f64,
}

impl ResidualRounding {
    /// The bound for the residuals of a matrix. One parallel pass over the rows; for a matrix that is not symmetric,
    /// two more passes and up to three numbers per column.
    pub fn of<T: Real>(a: &Csr<T>, is_symmetric: bool) -> Self {
        let sum = |i: usize| (a.row_nnz(i), a.row(i).1.iter().map(|v| v.as_f64().abs()).sum::<f64>());
        let most = |a: (usize, f64), b: (usize, f64)| (a.0.max(b.0), worst(a.1, b.1));
        let (terms, rows) = if is_small(a) {
            (0..a.nrows()).map(sum).fold((0, 0.0), most)
        } else {
            (0..a.nrows()).into_par_iter().map(sum).reduce(|| (0, 0.0), most)
        };
        let columns = if is_symmetric { rows } else { largest_column_sum(a, PART) };
        Self { nrows: a.nrows(), terms, magnitude: rows.sqrt() * columns.sqrt() }
    }

    /// As [`ResidualRounding::of`], for a matrix of which only these numbers are known: its rows, the entries of the
    /// longest row, and a bound of the 2-norm of |A|.
    pub fn with(nrows: usize, terms: usize, magnitude: f64) -> Self {
        Self { nrows, terms, magnitude }
    }

    /// Whether a computed ||b - A x|| / ||b|| proves that the true one is at most `target`, with x and b of which
    /// ||x|| / ||b|| is given. Norms and residual are computed in `T`. A value that is not finite proves nothing.
    pub fn proves<T: Real>(&self, residual: f64, x_over_b: f64, target: f64) -> bool {
        let roundings = (self.terms + 2) as f64 * T::UNIT_ROUNDOFF;
        let of_residual = roundings / (1.0 - roundings);
        // Three norms, and the sums of `magnitude`.
        let of_norms = 4.0 * crate::norm::rounding::<T>(self.nrows) + roundings;
        let bound = residual + of_residual * (1.0 + self.magnitude * x_over_b);
        roundings < 0.5 && bound * (1.0 + of_norms) <= target
    }
}

/// Whether one thread is done with a pass over the matrix before others have woken up.
fn is_small<T: Real>(a: &Csr<T>) -> bool {
    a.nnz() < 1 << 15
}

/// The largest sum of the magnitudes of a column, by parts of the rows. Parts are summed in parallel where each has
/// columns of its own for the most part, and their sums are added in the order of the parts: the bits do not depend on
/// the number of threads.
fn largest_column_sum<T: Real>(a: &Csr<T>, rows: usize) -> f64 {
    let n = a.nrows();
    let part = |at: usize| at * rows..((at + 1) * rows).min(n);
    let span = |part: &Range<usize>| {
        let of_rows = part.clone().filter_map(|i| a.row(i).0.first().zip(a.row(i).0.last()));
        let spans = of_rows.map(|(&first, &last)| first..last + 1);
        spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or_default()
    };
    let mut parts: Vec<(Range<usize>, Range<u32>)> =
        (0..n.div_ceil(rows)).into_par_iter().map(|at| (part(at), span(&part(at)))).collect();
    if parts.iter().map(|(_, span)| span.len()).sum::<usize>() > 2 * a.ncols() {
        parts = vec![(0..n, 0..a.ncols() as u32)];
    }
    let sums = |(rows, span): &(Range<usize>, Range<u32>)| {
        let mut sums = vec![0.0; span.len()];
        for i in rows.clone() {
            let (cols, values) = a.row(i);
            cols.iter().zip(values).for_each(|(&j, v)| sums[(j - span.start) as usize] += v.as_f64().abs());
        }
        sums
    };
    let parts: Vec<(Range<u32>, Vec<f64>)> = parts.par_iter().map(|part| (part.1.clone(), sums(part))).collect();
    let largest = |block: usize| {
        let (begin, end) = (block * rows, ((block + 1) * rows).min(a.ncols()));
        let mut total = vec![0.0; end - begin];
        for (span, sums) in &parts {
            let (first, last) = (begin.max(span.start as usize), end.min(span.end as usize));
            if first < last {
                let of_part = &sums[first - span.start as usize..last - span.start as usize];
                total[first - begin..last - begin].iter_mut().zip(of_part).for_each(|(total, sum)| *total += sum);
            }
        }
        total.into_iter().fold(0.0, worst)
    };
    (0..a.ncols().div_ceil(rows)).into_par_iter().map(largest).reduce(|| 0.0, worst)
}

/// b - A x, computed as if in twice the digits of f64 and rounded once. So the huge x of a nearly singular matrix
/// cannot hide a residual in the rounding of its evaluation (Ogita, Rump & Oishi 2005, Accurate sum and dot product:
/// Dot2).
///
/// The sizes must fit; missing elements count as zero. Rows in parallel if there are many; the bits do not depend on
/// the number of threads.
pub fn residual<T: Real>(csr: &Csr<T>, b: &[T], x: &[T]) -> Vec<f64> {
    let row = |(i, b): (usize, &T)| in_row(csr, i, b.as_f64(), x);
    if is_small(csr) { b.iter().enumerate().map(row).collect() } else { b.par_iter().enumerate().map(row).collect() }
}

/// One row of [`residual`].
fn in_row<T: Real>(csr: &Csr<T>, i: usize, b: f64, x: &[T]) -> f64 {
    let (cols, values) = csr.row(i);
    let (mut sum, mut lost) = (b, 0.0);
    for (&j, v) in cols.iter().zip(values) {
        let (v, x) = (-v.as_f64(), x[j as usize].as_f64());
        let product = v * x;
        let next = sum + product;
        let back = next - sum;
        lost += v.mul_add(x, -product) + ((sum - (next - back)) + (product - back));
        sum = next;
    }
    // After an overflow the correction is NaN, and so is the residual.
    sum + lost
}

/// ||v|| in units of its largest element, so that no square leaves the range. NaN if an element is NaN.
pub(crate) fn norm(v: &[f64]) -> f64 {
    let largest = v.iter().fold(0.0, |most, v| worst(most, v.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    largest * v.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Triplets;

    use super::*;

    fn matrix(entries: &[(usize, usize, f64)]) -> Csr<f64> {
        let mut triplets = Triplets::new(2, 2).expect("a small shape");
        for &(i, j, v) in entries {
            triplets.push(i, j, v).expect("an entry inside");
        }
        triplets.to_csr().expect("a small matrix")
    }

    #[test]
    fn the_errors_are_those_of_the_definitions() {
        let a = matrix(&[(0, 0, 2.0), (0, 1, -1.0), (1, 1, 4.0)]);
        // r = (1 - 1, 8 - 4) = (0, 4); |A||x| + |b| = (3 + 1, 4 + 8); ||A|| = 4, ||x|| = 1, ||b|| = 8.
        let error = BackwardError::of(&a, &[1.0, 8.0], &[1.0, 1.0]);
        assert_eq!(error, BackwardError { normwise: 4.0 / 12.0, componentwise: 4.0 / 12.0 });
        // r = (1, 0) where |A||x| + |b| = (1 + 2, ...).
        let error = BackwardError::of(&a, &[2.0, 0.0], &[0.5, 0.0]);
        assert_eq!(error, BackwardError { normwise: 1.0 / (4.0 * 0.5 + 2.0), componentwise: 1.0 / 3.0 });
        assert!(!error.is_stable::<f64>());
    }

    #[test]
    fn an_exact_answer_has_no_error_also_where_b_and_x_are_zero() {
        let a = matrix(&[(0, 0, 2.0)]);
        for (b, x) in [([2.0, 0.0], [1.0, 7.0]), ([0.0, 0.0], [0.0, 0.0])] {
            let error = BackwardError::of(&a, &b, &x);
            assert_eq!(error, BackwardError { normwise: 0.0, componentwise: 0.0 });
            assert!(error.is_stable::<f32>());
        }
        // An empty row that cannot be satisfied has a componentwise error of 1.
        assert_eq!(BackwardError::of(&a, &[2.0, 1.0], &[1.0, 0.0]).componentwise, 1.0);
    }

    #[test]
    fn large_numbers_do_not_hide_an_error_and_nan_is_none_too() {
        let a = matrix(&[(0, 0, 1e200), (1, 1, 1e200)]);
        let error = BackwardError::of(&a, &[1e300, 1e300], &[1e100, 2e100]);
        assert!((error.normwise - 1.0 / 3.0).abs() < 1e-15, "{error:?}");
        let error = BackwardError::of(&a, &[1.0, 1.0], &[f64::NAN, 1.0]);
        assert!(error.normwise.is_nan() && error.componentwise.is_nan() && !error.is_stable::<f64>());
    }

    #[test]
    fn the_largest_column_sum_does_not_depend_on_the_parts() {
        let banded = |i: usize| [(i, 3), (i + 2, 5 + i % 7), (i.saturating_sub(1), i)];
        let scattered = |i: usize| [(i * 37 % 50, 1 + i), (i * 11 % 50, 2), (49, 1)];
        for of_row in [&banded as &dyn Fn(usize) -> [(usize, usize); 3], &scattered] {
            let mut triplets = Triplets::new(40, 50).expect("a small shape");
            let mut sums = [0.0; 50];
            for (i, (j, v)) in (0..40).filter(|i| i % 13 != 5).flat_map(|i| of_row(i).map(|entry| (i, entry))) {
                triplets.push(i, j, -(v as f64)).expect("an entry inside");
                sums[j] += v as f64;
            }
            let a = triplets.to_csr().expect("a small matrix");
            for rows in [1, 7, 13, 40, 1 << 16] {
                assert_eq!(largest_column_sum(&a, rows), sums.into_iter().fold(0.0, f64::max), "{rows}");
            }
        }
        let empty = Csr::<f64>::from_triplets(0, 0, []).expect("an empty matrix");
        let nan = matrix(&[(0, 0, f64::NAN), (1, 1, 4.0)]);
        assert!(largest_column_sum(&nan, 1).is_nan() && largest_column_sum(&empty, 4) == 0.0);
    }

    #[test]
    fn a_residual_that_may_be_rounding_proves_nothing() {
        // b - A x = (1 - 2^60 + 2^60, 0), which another order of the sum would round to 0.
        let huge = 2f64.powi(60);
        let a = matrix(&[(0, 0, 1.0), (0, 1, 1.0), (1, 1, 1.0)]);
        let (b, x) = ([1.0, -huge], [huge, -huge]);
        let true_residual = |b: &[f64], x: &[f64]| norm(&residual(&a, b, x)) / norm(b);
        let rounding = ResidualRounding::of(&a, false);
        assert!(rounding.magnitude >= 1.618, "{rounding:?}"); // the golden ratio is its norm
        assert!(!rounding.proves::<f64>(0.0, huge, 1e-8) && rounding.proves::<f64>(0.0, 1.0, 1e-8));
        assert_eq!(true_residual(&b, &x), 1.0 / huge);
        assert_eq!(true_residual(&[1.0, 0.0], &x), huge);
    }

    #[test]
    fn what_the_bound_proves_is_true() {
        // Rows of seven terms that cancel, with x of every size.
        let (n, mut seed) = (50, 1u64);
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 40) as f32 / 2f32.powi(23) - 1.0
        };
        let mut triplets = Triplets::new(n, n).expect("a small shape");
        (0..n).for_each(|i| (0..7).for_each(|k| triplets.push(i, (i * 3 + k * 5) % n, random()).expect("inside")));
        let a = triplets.to_csr().expect("a small matrix");
        let rounding = ResidualRounding::of(&a, false);
        let length = |v: &[f32]| norm(&v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
        let (mut proved, mut open) = (0, 0);
        for size in 0..40 {
            let x: Vec<f32> = (0..n).map(|_| random() * 2f32.powi(size - 20)).collect();
            let b: Vec<f32> = (0..n)
                .map(|i| {
                    a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum::<f32>() + random() * 1e-4
                })
                .collect();
            let computed: Vec<f64> = (0..n)
                .map(|i| f64::from(a.row(i).0.iter().zip(a.row(i).1).fold(b[i], |r, (&j, v)| r - v * x[j as usize])))
                .collect();
            let (computed, truth) = (norm(&computed) / length(&b), norm(&residual(&a, &b, &x)) / length(&b));
            for target in [truth * 0.999, truth * 1.001, truth * 2.0] {
                let proves = rounding.proves::<f32>(computed, length(&x) / length(&b), target);
                assert!(!proves || truth <= target, "{computed:e} {truth:e} {target:e}");
                (proved, open) = (proved + usize::from(proves), open + usize::from(!proves && truth <= target));
            }
        }
        assert!(proved >= 10 && open >= 10, "{proved} {open}");
    }
}
