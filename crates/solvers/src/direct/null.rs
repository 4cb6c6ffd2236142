//! Combinations of equations that vanish: what tells an inconsistent system from an ill-conditioned one.
//!
//! With factors of A + delta D, a few solves with the transpose leave of any vector the part that A^T nearly annihilates: inverse iteration.
//! Where w^T A is zero to rounding and w^T b is not, no x solves A x = b.
//! Reference: Golub & Van Loan 2013, Matrix computations, section 7.6 (inverse iteration).

use super::refine::{gradient, norm_f64};
use super::{Direct, Factorable, Method, row_size};
use crate::Result;

/// Solves with the transpose. Each gains about half of the digits where delta is the square root of the unit roundoff.
const STEPS: usize = 4;
/// Unit roundoffs of ||A^T w|| / (||A|| ||w||) up to which a combination counts as vanished: the rounding of A^T w with the sums of long
/// columns.
const VANISHED: f64 = 1e3;

impl<T: Factorable> Direct<T> {
    /// Weights w of equations whose combination vanishes, w^T A = 0 to rounding, with w^T b as a share of ||w|| ||b||; `None` if none was
    /// found from this b. The largest weight is 1.
    ///
    /// # Errors
    /// [`crate::Error::Factor`] where [`Direct::factor`] has not succeeded.
    pub fn vanishing_combination(&self, b: &[T]) -> Result<Option<(Vec<f64>, f64)>> {
        if self.method() == Method::Qr || b.len() != self.csr.nrows() {
            return Ok(None);
        }
        let mut w = b.to_vec();
        for _ in 0..STEPS {
            let largest = w.iter().fold(0.0, |largest: f64, v| largest.max(v.as_f64().abs()));
            if !(largest.is_finite() && largest > 0.0) {
                return Ok(None);
            }
            // Of (A + delta D)^-T D a vanishing combination is an eigenvector, whatever D is.
            let sized = |(i, v): (usize, &T)| T::from_f64(v.as_f64() / largest * row_size(&self.csr, i));
            w = self.apply(w.iter().enumerate().map(sized).collect(), 1, true)?;
        }
        let largest = w.iter().fold(0.0, |largest: f64, v| largest.max(v.as_f64().abs()));
        let w: Vec<f64> = w.iter().map(|v| v.as_f64() / largest).collect();
        // NaN is no combination.
        let has_vanished = gradient(&self.csr, &w) <= VANISHED * T::UNIT_ROUNDOFF;
        if !has_vanished {
            return Ok(None);
        }
        let b: Vec<f64> = b.iter().map(|v| v.as_f64()).collect();
        let scale = norm_f64(&b);
        let share = w.iter().zip(&b).map(|(w, b)| w * (b / scale)).sum::<f64>() / norm_f64(&w);
        Ok(Some((w, share)))
    }
}
