//! Singular systems with a known null space, such as Neumann problems, where it is the constants.
//!
//! A must have a range that is orthogonal to its null space N, as every symmetric A has; otherwise A N = 0 and A^T N =
//! 0 must hold. With P = I - Q Q^T and Q an orthonormal basis of N, [`NullSpace::solve`] solves A x = P b with the
//! preconditioner P M^-1 P. It returns the x without a part in N, the shortest of all that minimise ||b - A x||. If the
//! part of b in N exceeds the tolerance, no x solves the system; the outcome is [`Status::Inconsistent`], and the true
//! residual is that of b.
//!
//! Cost: five passes over vectors of n per basis vector and projection; two projections and a copy per use of the
//! preconditioner.
//!
//! Reference: Kaasschieter 1988, Preconditioned conjugate gradients for solving singular systems; Bochev & Lehoucq
//! 2005, On the finite element solution of the pure Neumann problem.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, Operator, Preconditioner};
use spandrel_formats::Real;

use crate::norm::norm;
use crate::pool::Pool;
use crate::segments::expect_operands;
use crate::{Error, Options, Outcome, Result, Status};

/// An orthonormal basis of a null space, on a device.
pub struct NullSpace<T: Real, B: Backend<T>> {
    n: usize,
    basis: Vec<B::Vector>,
    parts: Pool<B::Scalar>,
    copies: Pool<B::Vector>,
}

impl<T: Real, B: Backend<T>> fmt::Debug for NullSpace<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NullSpace").field("n", &self.n).field("dimension", &self.basis.len()).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> NullSpace<T, B> {
    /// The null space of the constant vectors of n elements.
    ///
    /// # Errors
    /// Out of memory.
    pub fn constant(be: &B, n: usize) -> Result<Self> {
        Self::new(be, n, &[vec![T::one(); n]])
    }

    /// The span of vectors of n elements, orthonormalised on the host in f64 (Gram-Schmidt twice).
    ///
    /// Needs n + 1 elements of memory beyond the basis.
    ///
    /// # Errors
    /// [`Error::Size`] for a vector of another length; [`Error::NullVector`] for one that is not finite, or that is a
    /// combination of earlier ones (up to the rounding of `T`); out of memory.
    pub fn new(be: &B, n: usize, vectors: &[Vec<T>]) -> Result<Self> {
        let mut basis: Vec<Vec<f64>> = Vec::new();
        for (index, vector) in vectors.iter().enumerate() {
            if vector.len() != n {
                let (what, remedy) = ("a vector of the null space", "it needs one element per unknown");
                return Err(Error::elements("null space", what, vector.len(), n, remedy));
            }
            if !vector.iter().all(|v| v.is_finite()) {
                return Err(Error::NullVector { index, found: "infinite or NaN" });
            }
            let largest = vector.iter().fold(0.0, |largest: f64, v| largest.max(v.as_f64().abs()));
            let mut v: Vec<f64> = vector.iter().map(|v| v.as_f64() / largest).collect();
            let before = length(&v);
            for q in basis.iter().chain(&basis) {
                let part: f64 = q.iter().zip(&v).map(|(q, v)| q * v).sum();
                v.iter_mut().zip(q).for_each(|(v, q)| *v -= part * q);
            }
            let after = length(&v);
            // Each element of this vector and of the earlier ones was rounded to `T`. A vector of zeros was divided by
            // 0.
            let spanned = after.is_nan() || after <= (basis.len() + 1) as f64 * T::UNIT_ROUNDOFF * before;
            if n > 0 && spanned {
                return Err(Error::NullVector { index, found: "zero, or a combination of those before it" });
            }
            v.iter_mut().for_each(|v| *v /= after);
            basis.push(v);
        }
        let upload = |q: &Vec<f64>| be.upload(&q.iter().map(|&q| T::from_f64(q)).collect::<Vec<T>>());
        Ok(Self {
            n,
            basis: basis.iter().map(upload).collect::<spandrel_backend::Result<_>>()?,
            parts: Pool::new(be.scalar(T::zero())?),
            copies: Pool::new(be.zeros(n)?),
        })
    }

    /// v <- P v. Enqueues; may be recorded; the same bits on every backend.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Shape`] for a vector of another length.
    pub fn remove(&self, be: &B, gate: Gate<'_, B>, v: &mut B::Vector) -> spandrel_backend::Result<()> {
        let part = &mut *self.parts.lend(|| be.scalar(T::zero()))?;
        for q in &self.basis {
            be.dot(gate, q, v, part)?;
            be.axpby(gate, Coeff::scalar(part).negated(), q, Coeff::one(), v)?;
        }
        Ok(())
    }

    /// The preconditioner P M^-1 P, symmetric positive semidefinite if M is symmetric positive definite.
    pub fn preconditioner<'a, M: Preconditioner<T, B>>(&'a self, m: &'a M) -> Projected<'a, T, B, M> {
        Projected { null: self, m }
    }

    /// Solves A x = b for a singular A. `solve` gets a projected preconditioner, the projected right-hand side and x,
    /// and calls for example [`crate::Cg::solve`] with the same options. Blocks. Allocates two vectors.
    ///
    /// The outcome is that of `solve`, except that it refers to the given b. Its true residual is ||b - A x|| / ||b||.
    /// If that misses the goal, `converged` becomes `inconsistent` if the part of b in the null space accounts for it.
    /// Otherwise it becomes `stagnated`: this is not the null space of A, or the projection's rounding exceeds the
    /// goal.
    ///
    /// # Errors
    /// Those of `solve`; sizes that contradict each other; a backend that fails.
    pub fn solve<M: Preconditioner<T, B>>(
        &self,
        be: &B,
        a: &impl Operator<T, B>,
        m: &M,
        b: &B::Vector,
        x: &mut B::Vector,
        options: &Options,
        solve: impl FnOnce(&Projected<'_, T, B, M>, &B::Vector, &mut B::Vector, &Options) -> Result<Outcome>,
    ) -> Result<Outcome> {
        let (nrows, remedy) = (a.shape().0, "make the null space for as many unknowns as the matrix has rows");
        if nrows != self.n {
            return Err(Error::rows("null space", "the matrix", nrows, self.n, remedy));
        }
        expect_operands("null space", nrows, self.n, be.len(b), be.len(x))?;
        let (mut projected, mut r) = (be.zeros(self.n)?, be.zeros(self.n)?);
        be.copy(None, b, &mut projected)?;
        self.remove(be, None, &mut projected)?;
        // Return the set at once: the preconditioner below uses the same one.
        let norm_of = |v: &B::Vector| -> Result<crate::norm::Norm> {
            let mut scratch = self.copies.lend(|| be.zeros(self.n))?;
            norm(be, v, &mut scratch, &mut *self.parts.lend(|| be.scalar(T::zero()))?)
        };
        let (b_norm, kept) = (norm_of(b)?, norm_of(&projected)?);
        // A projection of a vector in the null space leaves its rounding: that of a dot product, of the update, and of
        // the basis.
        let dust = (self.basis.len() as f64) * (crate::norm::rounding::<T>(self.n) + 3.0 * T::UNIT_ROUNDOFF);
        if kept.over(b_norm) <= dust {
            be.fill(None, T::zero(), &mut projected)?;
        }
        let mut outcome = solve(&self.preconditioner(m), &projected, x, options)?;
        self.remove(be, None, x)?;
        if b_norm.is_zero() || !outcome.status.is_converged() && outcome.true_residual.is_nan() {
            return Ok(outcome);
        }
        a.residual(be, None, b, x, &mut r)?;
        let r_norm = norm_of(&r)?;
        // The part of b that no x can reach.
        be.axpby(None, Coeff::one(), b, Coeff::host(-T::one()), &mut projected)?;
        let beyond = norm_of(&projected)?.over(b_norm);
        let now = r_norm.over(b_norm);
        outcome.true_residual = now;
        let rtol = options.rtol_for::<T>();
        let asked = rtol.max(crate::norm::Norm::of(options.atol).over(b_norm));
        outcome.target = asked;
        if outcome.status.is_converged() && !(now <= rtol || r_norm.value() <= options.atol) {
            outcome.status = if now <= beyond + asked { Status::Inconsistent } else { Status::Stagnated };
        }
        Ok(outcome)
    }
}

fn length(v: &[f64]) -> f64 {
    v.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// P M^-1 P: see [`NullSpace::preconditioner`].
pub struct Projected<'a, T: Real, B: Backend<T>, M> {
    null: &'a NullSpace<T, B>,
    m: &'a M,
}

impl<T: Real, B: Backend<T>, M> fmt::Debug for Projected<'_, T, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projected").field("null", self.null).finish_non_exhaustive()
    }
}

// SAFETY: its buffers are those of M and of the null space, whose vectors and scalar change only in content and are
// borrowed with it.
unsafe impl<T: Real, B: Backend<T>, M: Preconditioner<T, B>> Preconditioner<T, B> for Projected<'_, T, B, M> {
    fn len(&self) -> Option<usize> {
        Some(self.null.n)
    }
    fn is_linear(&self) -> bool {
        self.m.is_linear()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        if self.m.is_identity() {
            be.copy(gate, r, z)?;
        } else {
            let inside = &mut *self.null.copies.lend(|| be.zeros(self.null.n))?;
            be.copy(gate, r, inside)?;
            self.null.remove(be, gate, inside)?;
            self.m.apply(be, gate, inside, z)?;
        }
        self.null.remove(be, gate, z)
    }
}
