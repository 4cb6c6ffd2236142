//! The fused steps of CG: what an iteration does between two products, as an extension of [`Backend`].
//!
//! The default bodies are the specification. A backend overrides a step with the same result, bit for bit, and the conformance suite
//! compares the two; one without overrides writes `impl<T: Real> CgSteps<T> for Mine {}`.

use std::any::Any;

use spandrel_formats::Real;

use crate::{Backend, Coeff, Gate, Phase, Quantity, Result};

/// The operands of [`CgSteps::cg_update`].
#[derive(Debug)]
pub struct CgUpdate<'a, T, V, S> {
    /// The length of the step.
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
    /// Whether the next r'z must be positive. Without a preconditioner it is r'r, and nobody need ask.
    pub checked: bool,
    /// r'z, which becomes the next.
    pub rz: &'a mut S,
    /// p'q of the step before.
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
    /// r'r of the iteration before.
    pub rz: &'a mut S,
}

/// The fused steps of CG.
///
/// # Errors
/// Of every step: as of the operations of [`Backend`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no steps of CG for elements of type `{T}`",
    note = "generic code that solves by CG asks for them: `B: CgSteps<{T}>` (or `EveryMethod<{T}>`) beside its other bounds",
    note = "a backend of one's own takes the default bodies: `impl<T: Real> CgSteps<T> for Mine {{}}`"
)]
pub trait CgSteps<T: Real>: Backend<T> {
    /// The update of x and r, and the norm of r: x <- x + alpha p; r <- r - alpha q; rr <- r . r.
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        let CgUpdate { alpha, p, q, x, r, rr } = on;
        self.axpby(gate, alpha, p, Coeff::one(), x)?;
        self.axpby(gate, alpha.negated(), q, Coeff::one(), r)?;
        self.dot(gate, r, r, rr)
    }

    /// The middle of an iteration, gated by its monitor: p'q > 0 or stop; [`CgSteps::cg_update`] with alpha = r'z / p'q;
    /// rr observed as the norm of a full iteration. A device may leave x as it is until [`CgSteps::cg_direction`], which has to follow with
    /// the same p, x, r'z, p'q and monitor, and reads p anyway.
    fn cg_step(&self, on: CgStep<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        let CgStep { rz, pq, p, q, x, r, rr } = on;
        self.require_positive(pq, Quantity::Curvature, monitor)?;
        let alpha = Coeff::ratio(rz, pq);
        self.cg_update(Some(&*monitor), CgUpdate { alpha, p, q, x, r, rr: &mut *rr })?;
        self.observe(rr, Phase::Full, monitor)
    }

    /// The end of an iteration, gated by its monitor: where `checked`, next r'z > 0 or stop; p <- z + (next r'z / r'z) p;
    /// r'z <- next r'z. Whatever the monitor says, x has then taken the step of the [`CgSteps::cg_step`] before, if that went through.
    fn cg_direction(&self, on: CgDirection<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        // x has taken its step.
        let CgDirection { z, rz_next, checked, rz, p, .. } = on;
        if checked {
            self.require_positive(rz_next, Quantity::PreconditionedResidual, monitor)?;
        }
        self.axpby(Some(&*monitor), Coeff::one(), z, Coeff::ratio(rz_next, rz), p)?;
        self.assign(Some(&*monitor), Coeff::scalar(rz_next), rz)
    }

    /// Up to `count` iterations without a preconditioner at once, gated by their monitor. `a` is what
    /// [`crate::Operator::stored`] gives.
    ///
    /// True: everything is as `count` times [`crate::Operator::apply_dot`] (q = A p, p'q), [`CgSteps::cg_step`] and
    /// [`CgSteps::cg_direction`] (z = r, not checked) would leave it, bit for bit. False: nothing is done. That is the answer of a backend
    /// without such a kernel, and of every backend for a matrix that it does not know or that does not suit the kernel. Does not block; may not
    /// be recorded.
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
