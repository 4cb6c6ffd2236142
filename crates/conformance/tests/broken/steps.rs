//! The fused steps of a backend with one flaw.

use spandrel_backend::{
    Backend, BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabSecond, BicgstabSteps, BicgstabUpdate,
    CgDirection, CgStep, CgSteps, CgUpdate, Coeff, Gate, Phase, Quantity, Result,
};
use spandrel_formats::Real;

use super::{Broken, Flaw};

impl<T: Real, B: CgSteps<T>> CgSteps<T> for Broken<B> {
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        if self.flaw == Flaw::FusesWrongly {
            // The norm of the old residual.
            let CgUpdate { alpha, p, q, x, r, rr } = on;
            self.dot(gate, r, r, rr)?;
            self.axpby(gate, alpha, p, Coeff::one(), x)?;
            return self.axpby(gate, alpha.negated(), q, Coeff::one(), r);
        }
        self.inner.cg_update(self.gate(gate), on)
    }
    fn cg_step(&self, on: CgStep<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        let CgStep { rz, pq, p, q, x, r, rr } = on;
        self.first(rr, Phase::Full, monitor)?;
        let (alpha, late) = (Coeff::ratio(rz, pq), self.flaw == Flaw::WritesPastCheck);
        if !late {
            self.require_positive(pq, Quantity::Curvature, monitor)?;
        }
        self.cg_update(Some(&*monitor), CgUpdate { alpha, p, q, x, r, rr: &mut *rr })?;
        if late {
            self.require_positive(pq, Quantity::Curvature, monitor)?;
        }
        self.last(rr, Phase::Full, monitor)
    }
    fn cg_direction(&self, on: CgDirection<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        // x has taken its step.
        let CgDirection { z, rz_next, checked, rz, p, .. } = on;
        let late = self.flaw == Flaw::WritesPastCheck;
        if late {
            self.axpby(Some(&*monitor), Coeff::one(), z, Coeff::ratio(rz_next, rz), p)?;
        }
        if checked || self.flaw == Flaw::ChecksUnasked {
            self.require_positive(rz_next, Quantity::PreconditionedResidual, monitor)?;
        }
        if !late {
            self.axpby(Some(&*monitor), Coeff::one(), z, Coeff::ratio(rz_next, rz), p)?;
        }
        if self.flaw == Flaw::ForgetsAssign {
            return Ok(());
        }
        self.assign(Some(&*monitor), Coeff::scalar(rz_next), rz)
    }
}

impl<T: Real, B: BicgstabSteps<T>> BicgstabSteps<T> for Broken<B> {
    fn bicgstab_half(&self, gate: Gate<'_, Self>, on: BicgstabHalf<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        if self.flaw == Flaw::HalvesWrongly {
            let BicgstabHalf { alpha, v, r, ss } = on;
            self.dot(gate, r, r, ss)?;
            return self.axpby(gate, alpha.negated(), v, Coeff::one(), r);
        }
        self.inner.bicgstab_half(self.gate(gate), on)
    }
    fn bicgstab_update(
        &self,
        gate: Gate<'_, Self>,
        on: BicgstabUpdate<'_, T, Self::Vector, Self::Scalar>,
    ) -> Result<()> {
        if self.flaw == Flaw::UpdatesWrongly {
            let BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr, rho } = on;
            self.axpby(gate, omega.negated(), t, Coeff::one(), r)?;
            self.axpbypcz(gate, alpha, p, omega, s.unwrap_or(r), Coeff::one(), x)?;
            self.dot(gate, r, r, rr)?;
            return self.dot(gate, shadow, r, rho);
        }
        self.inner.bicgstab_update(self.gate(gate), on)
    }
    fn bicgstab_first(
        &self,
        on: BicgstabFirst<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        let BicgstabFirst { rho, rv, v, r, ss } = on;
        self.first(ss, Phase::Half, monitor)?;
        let (alpha, late) = (Coeff::ratio(rho, rv), self.flaw == Flaw::WritesPastCheck);
        if !late {
            self.require_nonzero(rv, Quantity::ShadowDirection, monitor)?;
        }
        self.bicgstab_half(Some(&*monitor), BicgstabHalf { alpha, v, r, ss: &mut *ss })?;
        if late {
            self.require_nonzero(rv, Quantity::ShadowDirection, monitor)?;
        }
        self.last(ss, Phase::Half, monitor)
    }
    fn bicgstab_second(
        &self,
        on: BicgstabSecond<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        let BicgstabSecond { rho, rv, ts, tt, p, s, t, shadow, x, r, rr, rho_next } = on;
        self.first(rr, Phase::Full, monitor)?;
        let (alpha, omega) = (Coeff::ratio(rho, rv), Coeff::ratio(ts, tt));
        let late = self.flaw == Flaw::WritesPastCheck;
        if !late {
            self.require_nonzero(tt, Quantity::Stabilizer, monitor)?;
            self.require_nonzero(ts, Quantity::Omega, monitor)?;
        }
        let update = BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr: &mut *rr, rho: &mut *rho_next };
        self.bicgstab_update(Some(&*monitor), update)?;
        if late {
            self.require_nonzero(tt, Quantity::Stabilizer, monitor)?;
            self.require_nonzero(ts, Quantity::Omega, monitor)?;
        }
        self.last(rr, Phase::Full, monitor)?;
        if self.flaw == Flaw::ForgetsNextRho {
            return Ok(());
        }
        self.require_nonzero(rho_next, Quantity::Rho, monitor)
    }
    fn bicgstab_direction(
        &self,
        on: BicgstabDirection<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        let BicgstabDirection { r, v, rho_next, rv, tt, ts, rho, p } = on;
        let step = Coeff::ratio(rho_next, rv);
        self.axpbypcz(Some(&*monitor), Coeff::one(), r, step.negated(), v, step.times_ratio(tt, ts), p)?;
        if self.flaw == Flaw::ForgetsAssign {
            return Ok(());
        }
        self.assign(Some(&*monitor), Coeff::scalar(rho_next), rho)
    }
}
