//! The thread-level plan on the CPU: workers draw runs of rows in order. Each run has one mark that counts its solved
//! rows, so what the workers watch stays in their caches.
//!
//! Order: [`spandrel_sptrsv::serial`]'s. Solves that move few bytes are serial.

use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Capellini, Plan, System};

use crate::Cpu;
use crate::marks::{Marks, RUN};
use crate::sptrsv::Solve;

/// A plan, shared with the host, and its marks.
#[derive(Debug)]
pub struct CpuCapellini<T> {
    plan: Arc<Capellini<T>>,
    marks: Marks,
}

// SAFETY: a loaded object changes only by `update`. Operations with it write only to their operands and to marks whose
// address no recorded step holds.
unsafe impl<T: Real> Load<Capellini<T>> for Cpu {
    type Resident = CpuCapellini<T>;

    fn load(&self, host: Arc<Capellini<T>>) -> Result<CpuCapellini<T>> {
        Ok(CpuCapellini { plan: host, marks: Marks::new(RUN) })
    }
}

impl<T: Real> Solve<Capellini<T>> for CpuCapellini<T> {
    fn plan(&self) -> &Arc<Capellini<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Capellini<T>>) {
        self.plan = Arc::clone(plan);
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        self.marks.solve(cpu, &self.plan.rows().view(system)?, self.plan.sptrsv_bytes(), b, x)
    }
}
