//! The element-wise plan on the CPU: workers draw runs of rows in order, and each row has a mark on which others wait.
//!
//! Order: [`spandrel_sptrsv::serial`]'s. Solves that move few bytes are serial.

use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Elementwise, Plan, System};

use crate::Cpu;
use crate::marks::Marks;
use crate::sptrsv::Solve;

/// A plan, shared with the host, and its marks.
#[derive(Debug)]
pub struct CpuElementwise<T> {
    plan: Arc<Elementwise<T>>,
    marks: Marks,
}

// SAFETY: a loaded object changes only by `update`. Operations with it write only to their operands and to marks whose
// address no recorded step holds.
unsafe impl<T: Real> Load<Elementwise<T>> for Cpu {
    type Resident = CpuElementwise<T>;

    fn load(&self, host: Arc<Elementwise<T>>) -> Result<CpuElementwise<T>> {
        Ok(CpuElementwise { plan: host, marks: Marks::new(1) })
    }
}

impl<T: Real> Solve<Elementwise<T>> for CpuElementwise<T> {
    fn plan(&self) -> &Arc<Elementwise<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Elementwise<T>>) {
        self.plan = Arc::clone(plan);
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        self.marks.solve(cpu, &self.plan.rows().view(system)?, self.plan.sptrsv_bytes(), b, x)
    }
}
