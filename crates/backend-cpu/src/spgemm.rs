//! The product of matrices on the CPU: the host's plan, run by the threads of the device.
//!
//! Layout: that of [`SpgemmPlan`]. Order: stored. Cost: see [`spandrel_formats::spgemm`]; scratch memory is allocated
//! per call and thread.

use spandrel_backend::spgemm::{expect, expect_inner};
use spandrel_backend::{Converted, Error, Gate, Result, Spgemm};
use spandrel_formats::{Csr, Error as HostError, Real, SpgemmPlan};

use crate::device::open;
use crate::{Cpu, CpuCsr};

/// The plan of a product, with the sizes of its matrices.
#[derive(Clone, Debug)]
pub struct CpuSpgemm {
    plan: SpgemmPlan,
    sizes: [(usize, usize, usize); 3],
}

/// Rows, columns and entries.
pub(crate) fn sizes<T: Real>(m: &Csr<T>) -> (usize, usize, usize) {
    (m.nrows(), m.ncols(), m.nnz())
}

/// Turns an error of the host's code into one of this device.
pub(crate) fn typed(error: HostError) -> Error {
    match error {
        HostError::OutOfMemory { what, bytes } => Error::OutOfMemory { device: "cpu", what, bytes },
        other => Error::Format(other),
    }
}

impl<T: Real> Spgemm<Csr<T>> for Cpu {
    type SpgemmPlan = CpuSpgemm;

    fn spgemm_symbolic(&self, a: &CpuCsr<T>, b: &CpuCsr<T>) -> Result<(Converted<CpuCsr<T>>, CpuSpgemm)> {
        let (a, b) = (a.host(), b.host());
        expect_inner(a.ncols(), b.nrows())?;
        let (plan, c) = SpgemmPlan::symbolic_by(self.threads(), a, b).map_err(typed)?;
        let sizes = [sizes(a), sizes(b), sizes(&c)];
        Ok((self.made(c)?, CpuSpgemm { plan, sizes }))
    }

    fn spgemm_numeric(
        &self,
        gate: Gate<'_, Self>,
        CpuSpgemm { plan, sizes: wanted }: &CpuSpgemm,
        a: &CpuCsr<T>,
        b: &CpuCsr<T>,
        c: &mut CpuCsr<T>,
    ) -> Result<()> {
        let (a, b) = (a.host(), b.host());
        expect([sizes(a), sizes(b), sizes(c.host())], *wanted)?;
        if !open(gate) {
            return Ok(());
        }
        plan.numeric_by(self.threads(), a, b, c.host_mut()).map_err(typed)
    }
}
