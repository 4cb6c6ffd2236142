//! The fused steps of BiCGStab on the GPU.
//!
//! Cost: a step with its checks, its sums and its observation is one launch and reads each operand once. Order:
//! element-wise, and [`spandrel_backend::Order::Tree`]. Kernels: kernels/vector.cu, and for many iterations at once the
//! entries `bicgstab_{noun}`.

use std::any::Any;

use spandrel_backend::bicgstab::{bicgstab_first_in_parts, bicgstab_second_in_parts};
use spandrel_backend::error::expect_len;
use spandrel_backend::{
    BicgstabDirection, BicgstabFirst, BicgstabHalf, BicgstabIterations, BicgstabSecond, BicgstabSteps, BicgstabUpdate,
    Coeff, Gate, Phase, Quantity, Result,
};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::launch::{ChecksArg, CoeffArg, Grid};
use crate::memory::Address;
use crate::persistent::resident;
use crate::vector::{BicgstabDirectionVector, BicgstabUpdateVector};
use crate::{Cuda, Monitor, Scalar, Vector};

impl Cuda {
    /// The update with a check before and after. If sums are joined, [`Cuda::complete`] must follow, and there must be
    /// no check.
    fn bicgstab_update_checked<T: Real>(
        &self,
        on: BicgstabUpdate<'_, T, Vector<T>, Scalar<T>>,
        checks: ChecksArg,
        monitor: Address,
    ) -> Result<()> {
        let BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr, rho } = on;
        let n = p.len();
        expect_len("bicgstab_update", "t", t.len(), n)?;
        expect_len("bicgstab_update", "shadow", shadow.len(), n)?;
        expect_len("bicgstab_update", "x", x.len(), n)?;
        expect_len("bicgstab_update", "r", r.len(), n)?;
        if let Some(s) = s {
            expect_len("bicgstab_update", "s", s.len(), n)?;
        }
        let tree = self.tree::<T>(n, [rr.pointer(), rho.pointer()])?;
        let (count, alpha, omega) = (n as u64, CoeffArg::from(alpha), CoeffArg::from(omega));
        let (p, s, t, shadow) = (p.pointer(), s.map_or(Address::NULL, Vector::pointer), t.pointer(), shadow.pointer());
        let (x, r) = (x.pointer(), r.pointer());
        // SAFETY: bicgstab_update_vector(n, alpha, p, omega, s or null, t, shadow, x, r, checks, tree, monitor) on
        // vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                BicgstabUpdateVector::ENTRY,
                Grid::rows(n),
                &BicgstabUpdateVector {
                    n: count,
                    a: alpha,
                    p,
                    o: omega,
                    s,
                    tt: t,
                    shadow,
                    x,
                    r,
                    checks,
                    tree,
                    monitor,
                },
            )
        }
    }
}

impl<T: Real> BicgstabSteps<T> for Cuda {
    fn bicgstab_half(&self, gate: Gate<'_, Self>, on: BicgstabHalf<'_, T, Vector<T>, Scalar<T>>) -> Result<()> {
        let BicgstabHalf { alpha, v, r, ss } = on;
        let n = v.len();
        self.residual_step_checked("bicgstab_half", alpha, v, r, &mut *ss, ChecksArg::default(), gate_pointer(gate))?;
        self.complete(gate, n, false, [ss])
    }

    fn bicgstab_update(&self, gate: Gate<'_, Self>, on: BicgstabUpdate<'_, T, Vector<T>, Scalar<T>>) -> Result<()> {
        let BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr, rho } = on;
        let sums = (&mut *rr, &mut *rho);
        let on = BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr: sums.0, rho: sums.1 };
        self.bicgstab_update_checked(on, ChecksArg::default(), gate_pointer(gate))?;
        self.complete(gate, p.len(), false, [rr, rho])
    }

    fn bicgstab_first(&self, on: BicgstabFirst<'_, Vector<T>, Scalar<T>>, monitor: &mut Monitor) -> Result<()> {
        if self.sums_need_host() {
            return bicgstab_first_in_parts(self, on, monitor);
        }
        let BicgstabFirst { rho, rv, v, r, ss } = on;
        let checks = ChecksArg {
            value: [rv.pointer(), Address::NULL],
            what: [Quantity::ShadowDirection as u32, 0],
            observe: 1,
            phase: Phase::Half as u32,
            ..ChecksArg::default()
        };
        let (alpha, step) = (Coeff::ratio(rho, rv), self.checks_of_step(checks));
        self.residual_step_checked("bicgstab_first", alpha, v, r, &mut *ss, step, monitor.pointer())?;
        self.complete_checked(monitor, v.len(), checks, [ss])
    }

    fn bicgstab_second(&self, on: BicgstabSecond<'_, Vector<T>, Scalar<T>>, monitor: &mut Monitor) -> Result<()> {
        if self.sums_need_host() {
            return bicgstab_second_in_parts(self, on, monitor);
        }
        let BicgstabSecond { rho, rv, ts, tt, p, s, t, shadow, x, r, rr, rho_next } = on;
        let checks = ChecksArg {
            value: [tt.pointer(), ts.pointer()],
            what: [Quantity::Stabilizer as u32, Quantity::Omega as u32],
            observe: 1,
            phase: Phase::Full as u32,
            nonzero: 1,
            after: Quantity::Rho as u32,
            ..ChecksArg::default()
        };
        let (alpha, omega) = (Coeff::ratio(rho, rv), Coeff::ratio(ts, tt));
        let sums = (&mut *rr, &mut *rho_next);
        let update = BicgstabUpdate { alpha, p, omega, s, t, shadow, x, r, rr: sums.0, rho: sums.1 };
        self.bicgstab_update_checked(update, self.checks_of_step(checks), monitor.pointer())?;
        self.complete_checked(monitor, p.len(), checks, [rr, rho_next])
    }

    fn bicgstab_direction(&self, on: BicgstabDirection<'_, Vector<T>, Scalar<T>>, monitor: &mut Monitor) -> Result<()> {
        let BicgstabDirection { r, v, rho_next, rv, tt, ts, rho, p } = on;
        let n = r.len();
        expect_len("bicgstab_direction", "v", v.len(), n)?;
        expect_len("bicgstab_direction", "p", p.len(), n)?;
        let beta = CoeffArg::from(Coeff::ratio(rho_next, rv).times_ratio(tt, ts));
        let beta_omega = CoeffArg::from(Coeff::ratio(rho_next, rv).negated());
        let (count, r, v, p) = (n as u64, r.pointer(), v.pointer(), p.pointer());
        let (from, to, ticket, monitor) = (rho_next.pointer(), rho.pointer(), self.ticket(), monitor.pointer());
        // SAFETY: bicgstab_direction_vector(n, r, b, v, c, p, from, to, ticket, monitor) on vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                BicgstabDirectionVector::ENTRY,
                Grid::rows(n),
                &BicgstabDirectionVector { n: count, r, b: beta_omega, v, c: beta, p, from, to, ticket, monitor },
            )
        }
    }

    fn bicgstab_iterations(
        &self,
        a: &dyn Any,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        if self.is_joined() {
            return Ok(false);
        }
        resident::<T>(a).map_or(Ok(false), |m| m.bicgstab(self, count, on, monitor))
    }
}
