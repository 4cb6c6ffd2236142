//! The fused steps of CG and BiCGStab: those of the device, on the rows of this rank.
//!
//! A step runs on the joined device, so its dot products are those of the whole vectors. Steps that need the whole
//! matrix are used only if there is one rank.

use std::any::Any;

use spandrel_backend::{
    BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabIterations, BicgstabSecond, BicgstabSteps, BicgstabUpdate,
    CgDirection, CgIterations, CgStep, CgSteps, CgUpdate, Gate, Join, Result,
};
use spandrel_formats::Real;

use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};

impl<T: Real, B: CgSteps<T> + Join, C: Communicator> CgSteps<T> for Distributed<B, C> {
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Vector<T, B>, B::Scalar>) -> Result<()> {
        let CgUpdate { alpha, p, q, x, r, rr } = on;
        let on = CgUpdate { alpha, p: &p.part, q: &q.part, x: &mut x.part, r: &mut r.part, rr };
        self.told(self.joined(&p.layout, |be| be.cg_update(gate, on)))
    }
    fn cg_step(&self, on: CgStep<'_, Vector<T, B>, B::Scalar>, monitor: &mut B::Monitor) -> Result<()> {
        let CgStep { rz, pq, p, q, x, r, rr } = on;
        let on = CgStep { rz, pq, p: &p.part, q: &q.part, x: &mut x.part, r: &mut r.part, rr };
        self.told(self.joined(&p.layout, |be| be.cg_step(on, monitor)))
    }
    fn cg_direction(&self, on: CgDirection<'_, Vector<T, B>, B::Scalar>, monitor: &mut B::Monitor) -> Result<()> {
        let CgDirection { z, rz_next, checked, rz, pq, p, x } = on;
        let on = CgDirection { z: &z.part, rz_next, checked, rz, pq, p: &mut p.part, x: &mut x.part };
        self.told(self.joined(&z.layout, |be| be.cg_direction(on, monitor)))
    }
    fn cg_iterations(
        &self,
        a: &dyn Any,
        count: usize,
        on: CgIterations<'_, Vector<T, B>, B::Scalar>,
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        if self.size() > 1 {
            return Ok(false);
        }
        let CgIterations { x, r, p, q, pq, rr, rz } = on;
        let (x, r, p, q) = (&mut x.part, &mut r.part, &mut p.part, &mut q.part);
        self.told(self.device().cg_iterations(a, count, CgIterations { x, r, p, q, pq, rr, rz }, monitor))
    }
}

impl<T: Real, B: BicgstabSteps<T> + Join, C: Communicator> BicgstabSteps<T> for Distributed<B, C> {
    fn bicgstab_half(&self, gate: Gate<'_, Self>, on: BicgstabHalf<'_, T, Vector<T, B>, B::Scalar>) -> Result<()> {
        let BicgstabHalf { alpha, v, r, ss } = on;
        let on = BicgstabHalf { alpha, v: &v.part, r: &mut r.part, ss };
        self.told(self.joined(&v.layout, |be| be.bicgstab_half(gate, on)))
    }
    fn bicgstab_update(&self, gate: Gate<'_, Self>, on: BicgstabUpdate<'_, T, Vector<T, B>, B::Scalar>) -> Result<()> {
        let BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr, rho } = on;
        let (parts, s) = ((&p.part, &t.part, &shadow.part), s.map(|s| &s.part));
        let (x, r) = (&mut x.part, &mut r.part);
        let on = BicgstabUpdate { alpha, p: parts.0, omega, s, t: parts.1, shadow: parts.2, x, r, rr, rho };
        self.told(self.joined(&p.layout, |be| be.bicgstab_update(gate, on)))
    }
    fn bicgstab_first(&self, on: BicgstabFirst<'_, Vector<T, B>, B::Scalar>, monitor: &mut B::Monitor) -> Result<()> {
        let BicgstabFirst { rho, rv, v, r, ss } = on;
        let on = BicgstabFirst { rho, rv, v: &v.part, r: &mut r.part, ss };
        self.told(self.joined(&v.layout, |be| be.bicgstab_first(on, monitor)))
    }
    fn bicgstab_second(&self, on: BicgstabSecond<'_, Vector<T, B>, B::Scalar>, monitor: &mut B::Monitor) -> Result<()> {
        let BicgstabSecond { rho, rv, ts, tt, p, s, t, shadow, x, r, rr, rho_next } = on;
        let (parts, s) = ((&p.part, &t.part, &shadow.part), s.map(|s| &s.part));
        let (x, r) = (&mut x.part, &mut r.part);
        let on = BicgstabSecond { rho, rv, ts, tt, p: parts.0, s, t: parts.1, shadow: parts.2, x, r, rr, rho_next };
        self.told(self.joined(&p.layout, |be| be.bicgstab_second(on, monitor)))
    }
    fn bicgstab_direction(
        &self,
        on: BicgstabDirection<'_, Vector<T, B>, B::Scalar>,
        monitor: &mut B::Monitor,
    ) -> Result<()> {
        let BicgstabDirection { r, v, rho_next, rv, tt, ts, rho, p } = on;
        let on = BicgstabDirection { r: &r.part, v: &v.part, rho_next, rv, tt, ts, rho, p: &mut p.part };
        self.told(self.joined(&r.layout, |be| be.bicgstab_direction(on, monitor)))
    }
    fn bicgstab_iterations(
        &self,
        a: &dyn Any,
        count: usize,
        on: BicgstabIterations<'_, Vector<T, B>, B::Scalar>,
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        if self.size() > 1 {
            return Ok(false);
        }
        let BicgstabIterations { shadow, x, r, p, v, t, rho, rho_next, rv, ss, ts, tt, rr } = on;
        let (shadow, x, r, p) = (&shadow.part, &mut x.part, &mut r.part, &mut p.part);
        let (v, t) = (&mut v.part, &mut t.part);
        let on = BicgstabIterations { shadow, x, r, p, v, t, rho, rho_next, rv, ss, ts, tt, rr };
        self.told(self.device().bicgstab_iterations(a, count, on, monitor))
    }
}
