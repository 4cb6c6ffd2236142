//! The levelset plan on the CPU: one row after the other.
//!
//! Order: [`spandrel_sptrsv::serial`]'s.

use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Levelset, Plan, System, Triangle};

use crate::Cpu;
use crate::sptrsv::{Solve, sptrsv_by_column};

/// A plan, shared with the host.
#[derive(Clone, Debug)]
pub struct CpuLevelset<T>(Arc<Levelset<T>>);

// SAFETY: what is loaded changes by `update` alone, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Levelset<T>> for Cpu {
    type Resident = CpuLevelset<T>;

    fn load(&self, host: Arc<Levelset<T>>) -> Result<CpuLevelset<T>> {
        Ok(CpuLevelset(host))
    }
}

impl<T: Real> Solve<Levelset<T>> for CpuLevelset<T> {
    fn plan(&self) -> &Arc<Levelset<T>> {
        &self.0
    }
    fn replace(&mut self, plan: &Arc<Levelset<T>>) {
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

sptrsv_by_column!(Levelset);
