//! CSC on the GPU.
//!
//! Layout: the matrix by rows, as CSR, converted at load. A product by columns would need atomics, whose order changes
//! from run to run. The transposed product has the columns as its rows; they are on the device from its first call.
//!
//! Order, cost and kernels: those of [`crate::CudaCsr`] (kernels/csr.cu).

use std::sync::Arc;

use spandrel_backend::{BicgstabIterations, CgIterations, Coeff, Gate, Load, Order, Result, Spmv, SpmvTransposed};
use spandrel_formats::{Csc, Format, Real};

use crate::csr::order;
use crate::persistent::Persists;
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

/// A CSC matrix in device memory, stored by rows.
#[derive(Debug)]
pub struct CudaCsc<T>(CudaCsr<T>);

impl<T> CudaCsc<T> {
    /// The same matrix by rows, as it is stored.
    pub fn rows(&self) -> &CudaCsr<T> {
        &self.0
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Csc<T>> for Cuda {
    type Resident = CudaCsc<T>;

    fn load(&self, host: Arc<Csc<T>>) -> Result<CudaCsc<T>> {
        Ok(CudaCsc(self.load_csr(&host.to_csr()?, None)?))
    }
}

impl<T: Real> Spmv<Csc<T>> for Cuda {
    fn order(&self) -> Order {
        order(self)
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsc<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.0.spmv("spmv", self, gate, a, x, b, y)
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaCsc<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        m.0.spmv_dot(self, gate, x, y, w, wy, yy)
    }
}

impl<T: Real> Persists<T> for CudaCsc<T> {
    fn cg(
        &self,
        cuda: &Cuda,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        self.0.cg(cuda, count, on, monitor)
    }

    fn bicgstab(
        &self,
        cuda: &Cuda,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        self.0.bicgstab(cuda, count, on, monitor)
    }
}

impl<T: Real> SpmvTransposed<Csc<T>> for Cuda {
    fn transposed_order(&self) -> Order {
        order(self)
    }

    /// The first call stores the columns on the device: it waits, allocates and must not be recorded.
    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsc<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.0.spmv_transposed(self, gate, a, x, b, y)
    }
}
