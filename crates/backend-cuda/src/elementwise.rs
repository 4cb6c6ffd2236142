//! The element-wise plan on the GPU: one warp per equation.
//!
//! Order: lane l takes the places l, l + 32, ... of a row's walk towards the diagonal; lane 0 begins with b; then a
//! halving tree. Kernels: kernels/elementwise.cu.

use std::sync::Arc;

use spandrel_backend::{Load, Order, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Elementwise, Plan, System};

use crate::memory::Address;
use crate::sptrsv::{CountsSolves, Progress, Solve, SolveRows, TriangleRows};
use crate::{Cuda, Vector};

/// A plan in device memory.
#[derive(Debug)]
pub struct CudaElementwise<T> {
    rows: TriangleRows<T>,
    progress: Progress,
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Elementwise<T>> for Cuda {
    type Resident = CudaElementwise<T>;

    fn load(&self, host: Arc<Elementwise<T>>) -> Result<CudaElementwise<T>> {
        Ok(CudaElementwise {
            rows: TriangleRows::load(self, &*host, |system| host.rows().view(system))?,
            progress: Progress::new::<T>(self, host.nrows())?,
        })
    }
}

impl<T: Real> CountsSolves for CudaElementwise<T> {
    fn pretend(&self, solves: u32) -> Result<()> {
        self.progress.pretend(solves)
    }
}

impl<T: Real> Solve<Elementwise<T>> for CudaElementwise<T> {
    fn shape(&self) -> (usize, usize) {
        self.rows.shape()
    }
    fn order(&self, _system: System) -> Order {
        Order::LaneTree(32)
    }
    fn replace(&mut self, plan: &Elementwise<T>) -> Result<()> {
        self.rows.replace(|system| plan.rows().view(system))
    }
    fn adopt(&mut self, cuda: &Cuda, plan: &Elementwise<T>, values: &Vector<T>) -> Result<()> {
        self.rows.adopt(cuda, plan, values, |system| plan.rows().view(system))
    }
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let (m, slots, progress) = (self.rows.arg(system)?, self.progress.slots(), self.progress.pointer());
        let (grid, deep) = cuda.solve_grid(self.rows.shape().0, 32);
        let parameters = SolveRows { m, deep, slots, progress, b, x, gate };
        // SAFETY: vectors of nrows elements and as many slots.
        unsafe { cuda.launch::<T, _>(SolveRows::ELEMENTWISE, grid, &parameters) }
    }
}
