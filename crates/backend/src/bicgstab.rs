//! The fused steps of BiCGStab: what an iteration does between two products, as an extension of [`Backend`].
//!
//! The default bodies are the specification. An override gives the same result, bit for bit, and the conformance suite
//! compares the two. A backend without overrides writes `impl<T: Real> BicgstabSteps<T> for Mine {}`.

use std::any::Any;

use spandrel_formats::Real;

use crate::{Backend, Coeff, Gate, Phase, Quantity, Result};

/// The operands of [`BicgstabSteps::bicgstab_half`].
#[derive(Debug)]
pub struct BicgstabHalf<'a, T, V, S> {
    /// The step length of the first half.
    pub alpha: Coeff<'a, T, S>,
    /// A p.
    pub v: &'a V,
    /// The residual r, which becomes s.
    pub r: &'a mut V,
    /// s's, written.
    pub ss: &'a mut S,
}

/// The operands of [`BicgstabSteps::bicgstab_update`].
#[derive(Debug)]
pub struct BicgstabUpdate<'a, T, V, S> {
    /// The step length of the first half.
    pub alpha: Coeff<'a, T, S>,
    /// The direction p, or M^-1 p.
    pub p: &'a V,
    /// The step length of the second half.
    pub omega: Coeff<'a, T, S>,
    /// M^-1 s, or `None` if that is s itself, which r holds before its update.
    pub s: Option<&'a V>,
    /// A s.
    pub t: &'a V,
    /// The shadow residual.
    pub shadow: &'a V,
    /// The solution.
    pub x: &'a mut V,
    /// s, which becomes the residual r.
    pub r: &'a mut V,
    /// r'r, written.
    pub rr: &'a mut S,
    /// r0'r, written.
    pub rho: &'a mut S,
}

/// The operands of [`BicgstabSteps::bicgstab_first`].
#[derive(Debug)]
pub struct BicgstabFirst<'a, V, S> {
    /// r0'r.
    pub rho: &'a S,
    /// r0'v.
    pub rv: &'a S,
    /// A p.
    pub v: &'a V,
    /// The residual r, which becomes s.
    pub r: &'a mut V,
    /// s's, written.
    pub ss: &'a mut S,
}

/// The operands of [`BicgstabSteps::bicgstab_second`].
#[derive(Debug)]
pub struct BicgstabSecond<'a, V, S> {
    /// r0'r.
    pub rho: &'a S,
    /// r0'v.
    pub rv: &'a S,
    /// t's.
    pub ts: &'a S,
    /// t't.
    pub tt: &'a S,
    /// The direction p, or M^-1 p.
    pub p: &'a V,
    /// M^-1 s, or `None` if that is s itself, which r holds before its update.
    pub s: Option<&'a V>,
    /// A s.
    pub t: &'a V,
    /// The shadow residual.
    pub shadow: &'a V,
    /// The solution.
    pub x: &'a mut V,
    /// s, which becomes the residual r.
    pub r: &'a mut V,
    /// r'r, written.
    pub rr: &'a mut S,
    /// The next r0'r, written.
    pub rho_next: &'a mut S,
}

/// The operands of [`BicgstabSteps::bicgstab_direction`].
#[derive(Debug)]
pub struct BicgstabDirection<'a, V, S> {
    /// The residual.
    pub r: &'a V,
    /// A p.
    pub v: &'a V,
    /// The next r0'r.
    pub rho_next: &'a S,
    /// r0'v.
    pub rv: &'a S,
    /// t't.
    pub tt: &'a S,
    /// t's.
    pub ts: &'a S,
    /// r0'r, which takes the value of the next r0'r.
    pub rho: &'a mut S,
    /// The direction.
    pub p: &'a mut V,
}

/// The operands of [`BicgstabSteps::bicgstab_iterations`].
#[derive(Debug)]
pub struct BicgstabIterations<'a, V, S> {
    /// The shadow residual.
    pub shadow: &'a V,
    /// The solution.
    pub x: &'a mut V,
    /// The residual.
    pub r: &'a mut V,
    /// The direction.
    pub p: &'a mut V,
    /// A p, written.
    pub v: &'a mut V,
    /// A s, written.
    pub t: &'a mut V,
    /// r0'r.
    pub rho: &'a mut S,
    /// The next r0'r, written.
    pub rho_next: &'a mut S,
    /// r0'v, written.
    pub rv: &'a mut S,
    /// s's, written.
    pub ss: &'a mut S,
    /// t's, written.
    pub ts: &'a mut S,
    /// t't, written.
    pub tt: &'a mut S,
    /// r'r, written.
    pub rr: &'a mut S,
}

/// The fused steps of BiCGStab.
///
/// # Errors
/// Every step has the errors of the operations of [`Backend`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no steps of BiCGStab for elements of type `{T}`",
    note = "generic code that solves by BiCGStab needs a bound: `B: BicgstabSteps<{T}>` (or `EveryMethod<{T}>`) beside its other bounds",
    note = "your own backend takes the default bodies: `impl<T: Real> BicgstabSteps<T> for Mine {{}}`"
)]
pub trait BicgstabSteps<T: Real>: Backend<T> {
    /// The update of the first half: r <- r - alpha v (this is s); ss <- r . r.
    fn bicgstab_half(&self, gate: Gate<'_, Self>, on: BicgstabHalf<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        let BicgstabHalf { alpha, v, r, ss } = on;
        self.axpby(gate, alpha.negated(), v, Coeff::one(), r)?;
        self.dot(gate, r, r, ss)
    }

    /// The update of the second half: x <- fma(alpha, p, fma(omega, s, x)); r <- r - omega t; rr <- r . r; rho <-
    /// shadow . r.
    fn bicgstab_update(
        &self,
        gate: Gate<'_, Self>,
        on: BicgstabUpdate<'_, T, Self::Vector, Self::Scalar>,
    ) -> Result<()> {
        let BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr, rho } = on;
        self.axpbypcz(gate, alpha, p, omega, s.unwrap_or(r), Coeff::one(), x)?;
        self.axpby(gate, omega.negated(), t, Coeff::one(), r)?;
        self.dot(gate, r, r, rr)?;
        self.dot(gate, shadow, r, rho)
    }

    /// The end of the first half, gated by its monitor.
    ///
    /// 1. Stops unless r0'v != 0.
    /// 2. Does [`BicgstabSteps::bicgstab_half`] with alpha = rho / r0'v.
    /// 3. Observes ss as the squared norm of a half iteration.
    fn bicgstab_first(
        &self,
        on: BicgstabFirst<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        bicgstab_first_in_parts(self, on, monitor)
    }

    /// The end of the second half, gated by its monitor.
    ///
    /// 1. Stops unless t't != 0 and t's != 0.
    /// 2. Does [`BicgstabSteps::bicgstab_update`] with alpha = rho / r0'v and omega = t's / t't.
    /// 3. Observes rr as the squared norm of a full iteration.
    /// 4. Stops unless the next rho != 0.
    fn bicgstab_second(
        &self,
        on: BicgstabSecond<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        bicgstab_second_in_parts(self, on, monitor)
    }

    /// The end of an iteration, gated by its monitor: p <- r - (next rho / r0'v) v + beta p, as one
    /// [`Backend::axpbypcz`]; rho <- next rho. Here beta = (next rho / r0'v) (t't / t's).
    fn bicgstab_direction(
        &self,
        on: BicgstabDirection<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        let BicgstabDirection { r, v, rho_next, rv, tt, ts, rho, p } = on;
        let step = Coeff::ratio(rho_next, rv);
        self.axpbypcz(Some(&*monitor), Coeff::one(), r, step.negated(), v, step.times_ratio(tt, ts), p)?;
        self.assign(Some(&*monitor), Coeff::scalar(rho_next), rho)
    }

    /// Does up to `count` iterations without a preconditioner at once, gated by their monitor. `a` is the result of
    /// [`crate::Operator::stored`]. Does not block; must not be recorded.
    ///
    /// Returns true if it did them. Everything is then bit for bit as `count` repetitions of these steps would leave
    /// it: [`crate::Operator::apply_dot`] (v = A p, r0'v), [`BicgstabSteps::bicgstab_first`],
    /// [`crate::Operator::apply_dot`] (t = A r, t'r, t't), [`BicgstabSteps::bicgstab_second`],
    /// [`BicgstabSteps::bicgstab_direction`].
    ///
    /// Returns false and does nothing if the backend has no such kernel (the default), or if it does not know the
    /// matrix or its kernel does not suit it.
    fn bicgstab_iterations(
        &self,
        a: &dyn Any,
        count: usize,
        on: BicgstabIterations<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<bool> {
        let _ = (a, count, on, monitor);
        Ok(false)
    }
}

/// The default body of [`BicgstabSteps::bicgstab_first`], for an override that does not serve every case.
///
/// # Errors
/// Those of the operations.
pub fn bicgstab_first_in_parts<T: Real, B: BicgstabSteps<T>>(
    be: &B,
    on: BicgstabFirst<'_, B::Vector, B::Scalar>,
    monitor: &mut B::Monitor,
) -> Result<()> {
    let BicgstabFirst { rho, rv, v, r, ss } = on;
    be.require_nonzero(rv, Quantity::ShadowDirection, monitor)?;
    let alpha = Coeff::ratio(rho, rv);
    be.bicgstab_half(Some(&*monitor), BicgstabHalf { alpha, v, r, ss: &mut *ss })?;
    be.observe(ss, Phase::Half, monitor)
}

/// The default body of [`BicgstabSteps::bicgstab_second`], for an override that does not serve every case.
///
/// # Errors
/// Those of the operations.
pub fn bicgstab_second_in_parts<T: Real, B: BicgstabSteps<T>>(
    be: &B,
    on: BicgstabSecond<'_, B::Vector, B::Scalar>,
    monitor: &mut B::Monitor,
) -> Result<()> {
    let BicgstabSecond { rho, rv, ts, tt, p, s, t, shadow, x, r, rr, rho_next } = on;
    be.require_nonzero(tt, Quantity::Stabilizer, monitor)?;
    be.require_nonzero(ts, Quantity::Omega, monitor)?;
    let (alpha, omega) = (Coeff::ratio(rho, rv), Coeff::ratio(ts, tt));
    let update = BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr: &mut *rr, rho: &mut *rho_next };
    be.bicgstab_update(Some(&*monitor), update)?;
    be.observe(rr, Phase::Full, monitor)?;
    be.require_nonzero(rho_next, Quantity::Rho, monitor)
}
