//! The elementwise plan on the CPU: one row after the other.
//!
//! Order: [`spandrel_sptrsv::serial`]'s.

use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Elementwise, Plan, System, Triangle};

use crate::Cpu;
use crate::sptrsv::{Solve, sptrsv_by_column};

/// A plan, shared with the host.
#[derive(Clone, Debug)]
pub struct CpuElementwise<T>(Arc<Elementwise<T>>);

// SAFETY: what is loaded changes by `update` alone, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Elementwise<T>> for Cpu {
    type Resident = CpuElementwise<T>;

    fn load(&self, host: Arc<Elementwise<T>>) -> Result<CpuElementwise<T>> {
        Ok(CpuElementwise(host))
    }
}

impl<T: Real> Solve<Elementwise<T>> for CpuElementwise<T> {
    fn plan(&self) -> &Arc<Elementwise<T>> {
        &self.0
    }
    fn replace(&mut self, plan: &Arc<Elementwise<T>>) {
        self.0 = Arc::clone(plan);
    }
    fn solve(&self, _cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        let (view, n) = (self.0.rows().view(system)?, x.len());
        for k in 0..n {
            let i = if view.triangle == Triangle::Lower { k } else { n - 1 - k };
            x[i] = view.solve_row(i, b.map_or(x[i], |b| b[i]), |j| x[j]);
        }
        Ok(())
    }
}

sptrsv_by_column!(Elementwise);
