//! Dense matrices on the GPU.
//!
//! Layout: the host's, column-major. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//!
//! Order: stored, by ascending column; one thread sums a row. If there are few rows, other threads load what it sums.
//! Kernels: kernels/dense.cu.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv, UpdateValues};
use spandrel_formats::{Dense, Real};

use crate::csr::not_recorded;
use crate::kernel::kernels;
use crate::launch::{Grid, Product};
use crate::memory::{Address, Buffer};
use crate::persistent::Persists;
use crate::{Cuda, Scalar, Vector};

kernels! {
    struct SpmvDense<T> { values: Address, nrows: u64, ncols: u64, product: Product<T> }
    in DENSE { DIRECT: "spmv_dense", STAGED: "spmv_staged_dense" }
}

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

impl<T: Real> UpdateValues<Dense<T>> for Cuda {
    fn update_values(&self, m: &mut CudaDense<T>, values: &[T]) -> Result<()> {
        not_recorded(self, "an update of values")?;
        expect_len("update_values", "values", values.len(), m.values.len())?;
        m.values.write_at(0, values)
    }
    fn update_values_from(&self, m: &mut CudaDense<T>, values: &Vector<T>) -> Result<()> {
        not_recorded(self, "an update of values")?;
        expect_len("update_values", "values", values.len(), m.values.len())?;
        m.values.copy_from(values.buffer())
    }
}

impl<T: Real> Persists<T> for CudaDense<T> {}

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
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let (values, nrows, ncols) = (m.values.pointer(), m.nrows as u64, m.ncols as u64);
        let (entry, grid) = if m.nrows < 256 * self.multiprocessors() {
            (SpmvDense::STAGED, Grid::of(m.nrows.div_ceil(32), 256))
        } else {
            (SpmvDense::DIRECT, Grid::of(m.nrows.div_ceil(256), 256))
        };
        // SAFETY: the matrix and its shape; the lengths of x and y were compared.
        unsafe { self.launch::<T, _>(entry, grid, &SpmvDense { values, nrows, ncols, product }) }
    }
}
