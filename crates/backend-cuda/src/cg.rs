//! The fused steps of CG on the GPU.
//!
//! Cost: a step with its checks, its sum and its observation is one launch and reads each operand once. Order:
//! element-wise, and [`spandrel_backend::Order::Tree`]. Kernels: kernels/vector.cu, and for many iterations at once the
//! entries `cg_{noun}`.

use std::any::Any;

use spandrel_backend::cg::cg_step_in_parts;
use spandrel_backend::error::expect_len;
use spandrel_backend::{CgDirection, CgIterations, CgStep, CgSteps, CgUpdate, Coeff, Gate, Phase, Quantity, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::launch::{ChecksArg, CoeffArg, Grid};
use crate::memory::Address;
use crate::persistent::resident;
use crate::vector::{CgDirectionVector, CgUpdateVector};
use crate::{Cuda, Monitor, Scalar, Vector};

impl<T: Real> CgSteps<T> for Cuda {
    fn cg_update(&self, gate: Gate<'_, Self>, on: CgUpdate<'_, T, Vector<T>, Scalar<T>>) -> Result<()> {
        let CgUpdate { alpha, p, q, x, r, rr } = on;
        let n = p.len();
        expect_len("cg_update", "q", q.len(), n)?;
        expect_len("cg_update", "x", x.len(), n)?;
        expect_len("cg_update", "r", r.len(), n)?;
        let tree = self.tree::<T>(n, [rr.pointer(), Address::NULL])?;
        let (count, alpha) = (n as u64, CoeffArg::from(alpha));
        let (p, q, x, r) = (p.pointer(), q.pointer(), x.pointer(), r.pointer());
        let (checks, monitor) = (ChecksArg::default(), gate_pointer(gate));
        // SAFETY: cg_update_vector(n, alpha, p, q, x, r, checks, tree, monitor) on vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                CgUpdateVector::ENTRY,
                Grid::rows(n),
                &CgUpdateVector { n: count, a: alpha, p, q, x, r, checks, tree, monitor },
            )?;
        }
        self.complete(gate, n, false, [rr])
    }

    /// x takes its step in [`CgSteps::cg_direction`], which reads p anyway. This saves one pass over p.
    fn cg_step(&self, on: CgStep<'_, Vector<T>, Scalar<T>>, monitor: &mut Monitor) -> Result<()> {
        if self.sums_need_host() {
            return cg_step_in_parts(self, on, monitor);
        }
        let CgStep { rz, pq, p, q, x, r, rr } = on;
        expect_len("cg_step", "p", p.len(), q.len())?;
        expect_len("cg_step", "x", x.len(), q.len())?;
        let checks = ChecksArg {
            value: [pq.pointer(), Address::NULL],
            positive: 1,
            what: [Quantity::Curvature as u32, 0],
            observe: 1,
            phase: Phase::Full as u32,
            owes: 1,
            ..ChecksArg::default()
        };
        let (alpha, step) = (Coeff::ratio(rz, pq), self.checks_of_step(checks));
        self.residual_step_checked("cg_step", alpha, q, r, &mut *rr, step, monitor.pointer())?;
        self.complete_checked(monitor, q.len(), checks, [rr])
    }

    fn cg_direction(&self, on: CgDirection<'_, Vector<T>, Scalar<T>>, monitor: &mut Monitor) -> Result<()> {
        let CgDirection { z, rz_next, checked, rz, pq, p, x } = on;
        let n = z.len();
        expect_len("cg_direction", "p", p.len(), n)?;
        expect_len("cg_direction", "x", x.len(), n)?;
        let (beta, alpha) = (CoeffArg::from(Coeff::ratio(rz_next, &*rz)), CoeffArg::from(Coeff::ratio(&*rz, pq)));
        let required = if checked { rz_next.pointer() } else { Address::NULL };
        let what = Quantity::PreconditionedResidual as u32;
        let (count, z, p, x) = (n as u64, z.pointer(), p.pointer(), x.pointer());
        let (from, to, ticket, monitor) = (rz_next.pointer(), rz.pointer(), self.ticket(), monitor.pointer());
        // SAFETY: cg_direction_vector(n, z, beta, alpha, p, x, from, to, required or null, what, ticket, monitor) on
        // vectors of n elements.
        unsafe {
            self.launch::<T, _>(
                CgDirectionVector::ENTRY,
                Grid::rows(n),
                &CgDirectionVector { n: count, z, b: beta, a: alpha, p, x, from, to, required, what, ticket, monitor },
            )
        }
    }

    fn cg_iterations(
        &self,
        a: &dyn Any,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        if self.is_joined() {
            return Ok(false);
        }
        resident::<T>(a).map_or(Ok(false), |m| m.cg(self, count, on, monitor))
    }
}
