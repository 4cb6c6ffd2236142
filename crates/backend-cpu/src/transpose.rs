//! The transpose of a matrix on the CPU: the host's plan, run by the threads of the device.
//!
//! Layout: that of [`TransposePlan`]. Order: none, values are moved. Cost: see [`spandrel_formats::transpose`].

use spandrel_backend::transpose::expect;
use spandrel_backend::{Converted, Gate, Result, Transpose};
use spandrel_formats::{Csr, Real, TransposePlan};

use crate::device::open;
use crate::spgemm::{sizes, typed};
use crate::{Cpu, CpuCsr};

/// The plan of a transpose, with the sizes of its matrices.
#[derive(Clone, Debug)]
pub struct CpuTranspose {
    plan: TransposePlan,
    sizes: [(usize, usize, usize); 2],
}

impl<T: Real> Transpose<Csr<T>> for Cpu {
    type TransposePlan = CpuTranspose;

    fn transpose_symbolic(&self, a: &CpuCsr<T>) -> Result<(Converted<CpuCsr<T>>, CpuTranspose)> {
        let a = a.host();
        let (plan, t) = TransposePlan::symbolic(a).map_err(typed)?;
        let sizes = [sizes(a), sizes(&t)];
        Ok((self.made(t)?, CpuTranspose { plan, sizes }))
    }

    fn transpose_numeric(
        &self,
        gate: Gate<'_, Self>,
        CpuTranspose { plan, sizes: wanted }: &CpuTranspose,
        a: &CpuCsr<T>,
        t: &mut CpuCsr<T>,
    ) -> Result<()> {
        let a = a.host();
        expect([sizes(a), sizes(t.host())], *wanted)?;
        if !open(gate) {
            return Ok(());
        }
        plan.numeric_by(self.threads(), a, t.host_mut()).map_err(typed)
    }
}
