//! The thread-level plan on the GPU: one thread per row.
//!
//! Order: [`spandrel_sptrsv::serial`]'s. Kernels: kernels/capellini.cu.

use std::sync::Arc;

use spandrel_backend::{Load, Order, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Capellini, Plan, System};

use crate::memory::Address;
use crate::sptrsv::{CountsSolves, Progress, Solve, SolveRows, TriangleRows};
use crate::{Cuda, Vector};

/// A plan in device memory.
#[derive(Debug)]
pub struct CudaCapellini<T> {
    rows: TriangleRows<T>,
    progress: Progress,
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Capellini<T>> for Cuda {
    type Resident = CudaCapellini<T>;

    fn load(&self, host: Arc<Capellini<T>>) -> Result<CudaCapellini<T>> {
        Ok(CudaCapellini {
            rows: TriangleRows::load(self, &*host, |system| host.rows().view(system))?,
            progress: Progress::new::<T>(self, host.nrows())?,
        })
    }
}

impl<T: Real> CountsSolves for CudaCapellini<T> {
    fn pretend(&self, solves: u32) -> Result<()> {
        self.progress.pretend(solves)
    }
}

impl<T: Real> Solve<Capellini<T>> for CudaCapellini<T> {
    fn shape(&self) -> (usize, usize) {
        self.rows.shape()
    }
    fn order(&self, _system: System) -> Order {
        Order::Stored
    }
    fn replace(&mut self, plan: &Capellini<T>) -> Result<()> {
        self.rows.replace(|system| plan.rows().view(system))
    }
    fn adopt(&mut self, cuda: &Cuda, plan: &Capellini<T>, values: &Vector<T>) -> Result<()> {
        self.rows.adopt(cuda, plan, values, |system| plan.rows().view(system))
    }
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let (m, slots, progress) = (self.rows.arg(system)?, self.progress.slots(), self.progress.pointer());
        let (grid, deep) = cuda.solve_grid(self.rows.shape().0, 1);
        let parameters = SolveRows { m, deep, slots, progress, b, x, gate };
        // SAFETY: vectors of nrows elements and as many slots.
        unsafe { cuda.launch::<T, _>(SolveRows::CAPELLINI, grid, &parameters) }
    }
}
