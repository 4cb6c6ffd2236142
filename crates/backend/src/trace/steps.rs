//! The fused steps of the methods on a traced backend. It never does several iterations at once, because these would
//! not appear in the log.

use spandrel_formats::Real;

use super::Trace;
use crate::{
    BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabSecond, BicgstabSteps, BicgstabUpdate, CgDirection, CgStep,
    CgSteps, CgUpdate, Gate, Result,
};

impl<T: Real, B: CgSteps<T>> CgSteps<T> for Trace<B> {
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        self.launch("cg_update", gate, self.passes::<T>(on.p, 6));
        self.inner.cg_update(gate, on)
    }
    fn cg_step(&self, on: CgStep<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        self.launch("cg_step", Some(&*monitor), self.passes::<T>(on.p, 6));
        self.inner.cg_step(on, monitor)
    }
    fn cg_direction(&self, on: CgDirection<'_, Self::Vector, Self::Scalar>, monitor: &mut Self::Monitor) -> Result<()> {
        self.launch("cg_direction", Some(&*monitor), self.passes::<T>(on.z, 3));
        self.inner.cg_direction(on, monitor)
    }
}

impl<T: Real, B: BicgstabSteps<T>> BicgstabSteps<T> for Trace<B> {
    fn bicgstab_half(&self, gate: Gate<'_, Self>, on: BicgstabHalf<'_, T, Self::Vector, Self::Scalar>) -> Result<()> {
        self.launch("bicgstab_half", gate, self.passes::<T>(on.v, 3));
        self.inner.bicgstab_half(gate, on)
    }
    fn bicgstab_update(
        &self,
        gate: Gate<'_, Self>,
        on: BicgstabUpdate<'_, T, Self::Vector, Self::Scalar>,
    ) -> Result<()> {
        // Reads p, t, shadow, x, r, and s unless it is r; writes x and r.
        self.launch("bicgstab_update", gate, self.passes::<T>(on.p, 7 + usize::from(on.s.is_some())));
        self.inner.bicgstab_update(gate, on)
    }
    fn bicgstab_first(
        &self,
        on: BicgstabFirst<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        self.launch("bicgstab_first", Some(&*monitor), self.passes::<T>(on.v, 3));
        self.inner.bicgstab_first(on, monitor)
    }
    fn bicgstab_second(
        &self,
        on: BicgstabSecond<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        self.launch("bicgstab_second", Some(&*monitor), self.passes::<T>(on.p, 7 + usize::from(on.s.is_some())));
        self.inner.bicgstab_second(on, monitor)
    }
    fn bicgstab_direction(
        &self,
        on: BicgstabDirection<'_, Self::Vector, Self::Scalar>,
        monitor: &mut Self::Monitor,
    ) -> Result<()> {
        self.launch("bicgstab_direction", Some(&*monitor), self.passes::<T>(on.r, 4));
        self.inner.bicgstab_direction(on, monitor)
    }
}
