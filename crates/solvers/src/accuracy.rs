//! Backward errors: how good an answer is if its residual alone does not tell.
//!
//! The backward error of x is the smallest relative change of A and b for which x is the exact answer. If it is about
//! the unit roundoff, x is as good as the storage of A and b in that precision allows, however large the residual is.
//!
//! Cost: one pass over the matrix. Sums are formed in twice the digits of f64, row by row, so the order of rows does
//! not matter.
//! References: Rigal & Gaches 1967, On the compatibility of a given solution with the data of a linear system
//! (normwise); Oettli & Prager 1964, Compatibility of approximate solution of linear equations with given error bounds
//! for coefficients and right-hand sides (componentwise); Higham 2002, Accuracy and stability of numerical algorithms,
//! section 7.1.

use std::fmt;

use spandrel_formats::{Csr, Real};

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

/// b - A x, computed as if in twice the digits of f64 and rounded once. So the huge x of a nearly singular matrix
/// cannot hide a residual in the rounding of its evaluation (Ogita, Rump & Oishi 2005, Accurate sum and dot product:
/// Dot2).
pub(crate) fn residual<T: Real>(csr: &Csr<T>, b: &[T], x: &[T]) -> Vec<f64> {
    let row = |(i, b): (usize, &T)| {
        let (cols, values) = csr.row(i);
        let (mut sum, mut lost) = (b.as_f64(), 0.0);
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
    };
    b.iter().enumerate().map(row).collect()
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
}
