//! The fused steps of CG: what an iteration does between two products, as an extension of [`Backend`].
//!
//! The default bodies are the specification. An override gives the same result, bit for bit, and the conformance suite
//! compares the two. A backend without overrides writes `impl<T: Real> CgSteps<T> for Mine {}`.

use std::any::Any;

use spandrel_formats::Real;

use crate::{Backend, Coeff, Gate, Phase, Quantity, Result};

/// The operands of [`CgSteps::cg_update`].
#[derive(Debug)]
pub struct CgUpdate<'a, T, V, S> {
    /// The step length.
    pub alpha: Coeff<'a, T, S>,
    /// The direction.
    pub p: &'a V,
    /// A p.
    pub q: &'a V,
    /// The solution.
    pub x: &'a mut V,
    /// The residual.
    pub r: &'a mut V,
    /// r'r, written.
    pub rr: &'a mut S,
}

/// The operands of [`CgSteps::cg_step`].
#[derive(Debug)]
pub struct CgStep<'a, V, S> {
    /// r'z.
    pub rz: &'a S,
    /// p'q.
    pub pq: &'a S,
    /// The direction.
    pub p: &'a V,
    /// A p.
    pub q: &'a V,
    /// The solution.
    pub x: &'a mut V,
    /// The residual.
    pub r: &'a mut V,
    /// r'r, written.
    pub rr: &'a mut S,
}

/// The operands of [`CgSteps::cg_direction`].
#[derive(Debug)]
pub struct CgDirection<'a, V, S> {
    /// M^-1 r, or r itself.
    pub z: &'a V,
    /// The next r'z.
    pub rz_next: &'a S,
    /// Whether to require that the next r'z is positive. Without a preconditioner it is r'r, and no check is needed.
    pub checked: bool,
    /// r'z, which takes the value of the next r'z.
    pub rz: &'a mut S,
    /// p'q of the preceding step.
    pub pq: &'a S,
    /// The direction.
    pub p: &'a mut V,
    /// The solution.
    pub x: &'a mut V,
}

/// The operands of [`CgSteps::cg_iterations`].
#[derive(Debug)]
pub struct CgIterations<'a, V, S> {
    /// The solution.
    pub x: &'a mut V,
    /// The residual.
    pub r: &'a mut V,
    /// The direction.
    pub p: &'a mut V,
    /// A p, written.
    pub q: &'a mut V,
    /// p'q, written.
    pub pq: &'a mut S,
    /// r'r, written.
    pub rr: &'a mut S,
    /// r'r of the preceding iteration.
    pub rz: &'a mut S,
}

/// The fused steps of CG.
///
/// # Errors
/// Every step has the errors of the operations of [`Backend`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no steps of CG for elements of type `{T}`",
    note = "generic code that solves by CG needs a bound: `B: CgSteps<{T}>` (or `EveryMethod<{T}>`) beside its other bounds",
    note = "your own backend takes the default bodies: `impl<T: Real> CgSteps<T> for Mine {{}}`"
)]
pub trait CgSteps<T: Real>: Backend<T> {
    /// Updates x and r and computes the norm of r: x <- x + alpha p; r <- r - alpha q; rr <- r . r.
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        let CgUpdate { alpha, p, q, x, r, rr } = on;
        self.axpby(gate, alpha, p, Coeff::one(), x)?;
        self.axpby(gate, alpha.negated(), q, Coeff::one(), r)?;
        self.dot(gate, r, r, rr)
    }

    /// The middle of an iteration, gated by its monitor: stops unless p'q > 0, does [`CgSteps::cg_update`] with alpha =
    /// r'z / p'q, and observes rr as the squared norm of a full iteration.
    ///
    /// A device may delay the update of x until [`CgSteps::cg_direction`], which reads p anyway. That call must follow
    /// with the same p, x, r'z, p'q and monitor.
    fn cg_step(&self, on: CgStep<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        cg_step_in_parts(self, on, monitor)
    }

    /// The end of an iteration, gated by its monitor: if `checked`, stops unless the next r'z > 0; then p <- z + (next
    /// r'z / r'z) p and r'z <- next r'z.
    ///
    /// After this call x contains the step of the preceding [`CgSteps::cg_step`] if that step was not gated, whatever
    /// the monitor says now.
    fn cg_direction(&self, on: CgDirection<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        // The default `cg_step` has already updated x.
        let CgDirection { z, rz_next, checked, rz, p, .. } = on;
        if checked {
            self.require_positive(rz_next, Quantity::PreconditionedResidual, monitor)?;
        }
        self.axpby(Some(&*monitor), Coeff::one(), z, Coeff::ratio(rz_next, rz), p)?;
        self.assign(Some(&*monitor), Coeff::scalar(rz_next), rz)
    }

    /// Does up to `count` iterations without a preconditioner at once, gated by their monitor. `a` is the result of
    /// [`crate::Operator::stored`]. Does not block; must not be recorded.
    ///
    /// Returns true if it did them. Everything is then bit for bit as `count` repetitions of these steps would leave
    /// it: [`crate::Operator::apply_dot`] (q = A p, p'q), [`CgSteps::cg_step`], [`CgSteps::cg_direction`] (z = r, not
    /// checked).
    ///
    /// Returns false and does nothing if the backend has no such kernel (the default), or if it does not know the
    /// matrix or its kernel does not suit it.
    fn cg_iterations(
        &self,
        a: &dyn Any,
        count: usize,
        on: CgIterations<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<bool> {
        let _ = (a, count, on, monitor);
        Ok(false)
    }
}

/// The default body of [`CgSteps::cg_step`], for an override that does not serve every case.
///
/// # Errors
/// Those of the operations.
pub fn cg_step_in_parts<T: Real, B: CgSteps<T>>(
    be: &B,
    on: CgStep<'_, B::Vector, B::Scalar>,
    monitor: &mut B::Monitor,
) -> Result<()> {
    let CgStep { rz, pq, p, q, x, r, rr } = on;
    be.require_positive(pq, Quantity::Curvature, monitor)?;
    let alpha = Coeff::ratio(rz, pq);
    be.cg_update(Some(&*monitor), CgUpdate { alpha, p, q, x, r, rr: &mut *rr })?;
    be.observe(rr, Phase::Full, monitor)
}
