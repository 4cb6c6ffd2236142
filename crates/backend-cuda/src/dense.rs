//! Dense matrices on the GPU.
//!
//! Layout: the host's, column-major. Cost: [`spandrel_formats::Traffic::spmv`].
//! Order: stored, by ascending column: a row is one thread's chain. Of a matrix with few rows, other threads load
//! what it sums. Kernels: kernels/dense.cu.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Dense, Format, Real};

use crate::device::gate_pointer;
use crate::launch::{CoeffArg, Grid, arg};
use crate::memory::Buffer;
use crate::module::DENSE;
use crate::persistent::Persists;
use crate::{Cuda, Scalar, Vector};

/// A dense matrix in device memory.
#[derive(Debug)]
pub struct CudaDense<T> {
    nrows: usize,
    ncols: usize,
    values: Buffer<T>,
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Dense<T>> for Cuda {
    type Resident = CudaDense<T>;

    fn load(&self, host: Arc<Dense<T>>) -> Result<CudaDense<T>> {
        let values = Buffer::from_host(self.stream(), host.values(), "a matrix's values")?;
        Ok(CudaDense { nrows: host.nrows(), ncols: host.ncols(), values })
    }
}

// SAFETY: it gives nothing.
unsafe impl<T: Real> Persists for CudaDense<T> {}

impl<T: Real> Spmv<Dense<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaDense<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv", "x", x.len(), m.ncols)?;
        expect_len("spmv", "y", y.len(), m.nrows)?;
        let (values, nrows, ncols) = (m.values.pointer(), m.nrows as u64, m.ncols as u64);
        let (a, b, x, y, gate) = (CoeffArg::from(a), CoeffArg::from(b), x.pointer(), y.pointer(), gate_pointer(gate));
        let mut arguments = [arg(&values), arg(&nrows), arg(&ncols), arg(&a), arg(&x), arg(&b), arg(&y), arg(&gate)];
        let (name, grid) = if m.nrows < 256 * self.multiprocessors() {
            ("spmv_staged_dense", Grid::of(m.nrows.div_ceil(32), 256))
        } else {
            ("spmv_dense", Grid::of(m.nrows.div_ceil(256), 256))
        };
        // SAFETY: both (values, nrows, ncols, a, x, b, y, gate), lengths compared above.
        unsafe { self.launch::<T>(&DENSE, name, grid, &mut arguments) }
    }
}
