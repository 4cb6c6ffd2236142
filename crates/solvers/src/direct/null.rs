//! Combinations of equations that vanish. They tell an inconsistent system from an ill-conditioned one.
//!
//! A few solves with the transpose of A + delta D keep the part of a vector that A^T maps nearly to zero (inverse
//! iteration). If w^T A is zero to rounding and w^T b is not, no x solves A x = b.
//! Reference: Golub & Van Loan 2013, Matrix computations, section 7.6 (inverse iteration).

use spandrel_formats::Real;

use super::refine::gradient;
use super::{Direct, Factorable, Method, row_size};
use crate::Result;
use crate::accuracy::norm;

/// Solves with the transpose. Each gains about half of the digits if delta is the square root of the unit roundoff.
const STEPS: usize = 4;
/// A combination counts as vanished if ||A^T w|| / (||A|| ||w||) is at most this many unit roundoffs: the rounding of
/// A^T w with the sums of long columns.
const VANISHED: f64 = 1e3;

/// w^T b over ||w|| ||b||: how much of b a combination w of the equations keeps. 0 if b = 0.
pub fn share_of<T: Real>(w: &[f64], b: &[T]) -> f64 {
    let b: Vec<f64> = b.iter().map(|v| v.as_f64()).collect();
    let scale = norm(&b);
    if scale == 0.0 {
        return 0.0;
    }
    w.iter().zip(&b).map(|(w, b)| w * (b / scale)).sum::<f64>() / norm(w)
}

impl<T: Factorable> Direct<T> {
    /// Finds weights w of equations whose combination vanishes, and w^T b over ||w|| ||b||.
    ///
    /// w^T A = 0 holds to rounding, and the largest weight is 1. `None` if this b leads to no such combination.
    ///
    /// # Errors
    /// [`crate::Error::Factor`] unless [`Direct::factor`] has succeeded.
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
            // A vanishing combination is an eigenvector of (A + delta D)^-T D, whatever D is.
            let sized = |(i, v): (usize, &T)| T::from_f64(v.as_f64() / largest * row_size(&self.csr, i));
            w = self.apply(w.iter().enumerate().map(sized).collect(), 1, true)?;
        }
        let largest = w.iter().fold(0.0, |largest: f64, v| largest.max(v.as_f64().abs()));
        let w: Vec<f64> = w.iter().map(|v| v.as_f64() / largest).collect();
        // A NaN fails this comparison.
        let has_vanished = gradient(&self.csr, &w) <= VANISHED * T::UNIT_ROUNDOFF;
        if !has_vanished {
            return Ok(None);
        }
        let share = share_of(&w, b);
        Ok(Some((w, share)))
    }
}
