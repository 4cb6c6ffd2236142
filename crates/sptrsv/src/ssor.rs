//! SSOR as a splitting of A = L + D + U (strictly lower, diagonal, strictly upper); symmetric Gauss-Seidel with omega =
//! 1: M = w/(2-w) (D/w + L) (D/w)^-1 (D/w + U) = (I + w L D^-1) ((D + w U) / (2-w)).
//!
//! The second form is a unit lower triangle times an upper one. So M is used like an incomplete factorisation, though
//! nothing is eliminated: two solves and no pass over D. With w = 1 the upper triangle is A's own. M is symmetric
//! positive definite if A is and 0 < w < 2.
//!
//! Order: l_ij = (w a_ij) / d_j; u_ij = a_ij (w / (2-w)); u_ii = d_i / (2-w). The factor that depends only on w is
//! rounded first.
//! Cost: O(nnz).
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 10.2; Axelsson 1974, On preconditioning
//! and convergence acceleration in sparse matrix problems.

use std::marker::PhantomData;

use spandrel_formats::{Csr, Real};

use crate::factor::{Halves, expect_values};
use crate::{Error, Factor, Factors, Pattern, Result};

/// The SSOR splitting on one pattern. See the module's head.
#[derive(Clone, Debug)]
pub struct Ssor<T> {
    omega: f64,
    halves: Halves,
    value: PhantomData<T>,
}

impl<T: Real> Ssor<T> {
    /// Makes the splitting for a relaxation factor.
    ///
    /// # Errors
    /// [`Error::Omega`] unless 0 < `omega` < 2; as [`Factor::symbolic`].
    pub fn with_omega(a: &Csr<T>, omega: f64) -> Result<Self> {
        let lies_inside =
            omega > 0.0 && omega < 2.0 && T::from_f64(omega) > T::zero() && T::from_f64(omega) < T::from_f64(2.0);
        if !lies_inside {
            return Err(Error::Omega { omega });
        }
        Ok(Self { omega, halves: Halves::of(a)?, value: PhantomData })
    }
    /// The relaxation factor.
    pub fn omega(&self) -> f64 {
        self.omega
    }
}

impl<T: Real> Factor for Ssor<T> {
    type Value = T;
    const NAME: &'static str = "ssor";
    const WAITS: bool = false;

    /// The splitting with omega = 1: symmetric Gauss-Seidel.
    fn symbolic(a: &Csr<T>) -> Result<Self> {
        Self::with_omega(a, 1.0)
    }
    fn numeric(&self, values: &[T]) -> Result<Factors<T>> {
        let Halves { lower, upper } = &self.halves;
        expect_values(values, self.halves.nnz())?;
        let omega = T::from_f64(self.omega);
        let rest = T::from_f64(2.0) - omega;
        let ratio = omega / rest;
        let n = lower.nrows();
        let diagonal: Vec<T> = (0..n).map(|i| values[self.halves.start(i) + lower.row(i).len()]).collect();
        let (mut l, mut u) = (Vec::with_capacity(lower.nnz()), Vec::with_capacity(upper.nnz()));
        for i in 0..n {
            let row = &values[self.halves.start(i)..self.halves.start(i + 1)];
            if diagonal[i] == T::zero() {
                return Err(Error::ZeroPivot { row: i });
            }
            let (before, after) = row.split_at(lower.row(i).len());
            l.extend(lower.row(i).iter().zip(before).map(|(&j, &v)| omega * v / diagonal[j as usize]));
            u.push(after[0] / rest);
            u.extend(after[1..].iter().map(|&v| v * ratio));
            let made = l[lower.start(i)..].iter().chain(&u[upper.start(i)..]);
            if made.copied().any(|v: T| !v.is_finite()) {
                return Err(Error::NotFinite { row: i });
            }
        }
        Ok(Factors { lower: l, upper: u, shift: 0.0 })
    }
    fn lower(&self) -> &Pattern {
        &self.halves.lower
    }
    fn upper(&self) -> Option<&Pattern> {
        Some(&self.halves.upper)
    }
    fn nnz_given(&self) -> usize {
        self.halves.nnz()
    }
}
