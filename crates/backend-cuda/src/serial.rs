//! The serial plan on the GPU: one warp solves one row after the other. It works for any triangle and is slow.
//!
//! Order: that of [`spandrel_sptrsv::serial`]. Kernels: kernels/serial.cu.

use std::sync::Arc;

use spandrel_backend::{Load, Order, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Serial, System};

use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::Address;
use crate::sptrsv::{Solve, TriangleRows, TriangleRowsArg};
use crate::{Cuda, Vector};

kernels! {
    struct SptrsvSerial { m: TriangleRowsArg, b: Address, x: Address, gate: Address }
    in SERIAL { ENTRY: "sptrsv_serial" }
}

/// A plan in device memory.
#[derive(Debug)]
pub struct CudaSerial<T>(TriangleRows<T>);

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Serial<T>> for Cuda {
    type Resident = CudaSerial<T>;

    fn load(&self, host: Arc<Serial<T>>) -> Result<CudaSerial<T>> {
        Ok(CudaSerial(TriangleRows::load(self, &*host, |system| host.rows().view(system))?))
    }
}

impl<T: Real> Solve<Serial<T>> for CudaSerial<T> {
    fn shape(&self) -> (usize, usize) {
        self.0.shape()
    }
    fn order(&self, _system: System) -> Order {
        Order::Stored
    }
    fn replace(&mut self, plan: &Serial<T>) -> Result<()> {
        self.0.replace(|system| plan.rows().view(system))
    }
    fn adopt(&mut self, cuda: &Cuda, plan: &Serial<T>, values: &Vector<T>) -> Result<()> {
        self.0.adopt(cuda, plan, values, |system| plan.rows().view(system))
    }
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let parameters = SptrsvSerial { m: self.0.arg(system)?, b, x, gate };
        // SAFETY: a warp for the one column of nrows elements.
        unsafe { cuda.launch::<T, _>(SptrsvSerial::ENTRY, Grid::of(1, 32), &parameters) }
    }
}
