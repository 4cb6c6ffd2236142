//! HEC on the GPU: HMEC with at most one block.
//!
//! Layout, order, cost: see hmec.rs.
//! Kernels: kernels/hec.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Hec, Real};

use crate::hmec::{CudaHmec, Entries, SpmvBlocks, SpmvLanes};
use crate::persistent::Persists;
use crate::{Cuda, Scalar, Vector};

/// A HEC matrix in device memory.
#[derive(Debug)]
pub struct CudaHec<T>(CudaHmec<T>);

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Hec<T>> for Cuda {
    type Resident = CudaHec<T>;

    fn load(&self, host: Arc<Hec<T>>) -> Result<CudaHec<T>> {
        CudaHmec::new(self, host.as_hmec()).map(CudaHec)
    }
}

impl<T: Real> Persists<T> for CudaHec<T> {}

impl<T: Real> Spmv<Hec<T>> for Cuda {
    fn order(&self) -> Order {
        if self.reproducible() { Order::Stored } else { Order::Own }
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaHec<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.0.product(self, Entries { each: SpmvBlocks::HEC, lanes: SpmvLanes::HEC }, gate, a, x, b, y)
    }
}
