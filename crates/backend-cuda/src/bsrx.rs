//! BSRX on the GPU: the rows of BSR for the block rows of the mask.
//!
//! Layout: the host's. Cost: the blocks of the masked rows, x, and the masked rows of y.
//!
//! Order: stored. Rows outside the mask are neither read nor written. Dot products cover all of y, so they are not
//! fused. Kernels: kernels/bsrx.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Bsrx, Real};

use crate::bsr::of_dim;
use crate::kernel::kernels;
use crate::launch::{Grid, Product};
use crate::memory::{Address, Buffer};
use crate::persistent::Persists;
use crate::{Cuda, Scalar, Vector};

kernels! {
    struct SpmvBsrx<T> {
        values: Address, row_start: Address, row_end: Address, col_idx: Address, mask: Address, masked: u64,
        dim: u32, nrows: u64, ncols: u64, product: Product<T>,
    }
    in BSRX {
        ANY: "spmv_bsrx",
        DIM_2: "spmv_2_bsrx",
        DIM_3: "spmv_3_bsrx",
        DIM_4: "spmv_4_bsrx",
        DIM_5: "spmv_5_bsrx",
        DIM_6: "spmv_6_bsrx",
        DIM_8: "spmv_8_bsrx",
    }
}

/// A BSRX matrix in device memory.
#[derive(Debug)]
pub struct CudaBsrx<T> {
    nrows: usize,
    ncols: usize,
    dim: u32,
    row_start: Buffer<u32>,
    row_end: Buffer<u32>,
    col_idx: Buffer<u32>,
    mask: Buffer<u32>,
    values: Buffer<T>,
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Bsrx<T>> for Cuda {
    type Resident = CudaBsrx<T>;

    fn load(&self, host: Arc<Bsrx<T>>) -> Result<CudaBsrx<T>> {
        let row_start = Buffer::from_host(self.stream(), host.row_start(), "a matrix's row starts")?;
        let row_end = Buffer::from_host(self.stream(), host.row_end(), "a matrix's row ends")?;
        let col_idx = Buffer::from_host(self.stream(), host.col_idx(), "a matrix's columns")?;
        let mask = Buffer::from_host(self.stream(), host.mask(), "a matrix's mask")?;
        let values = Buffer::from_host(self.stream(), host.values(), "a matrix's values")?;
        // Below 2^31, as every constructor checks.
        let dim = host.block_dim() as u32;
        Ok(CudaBsrx { nrows: host.nrows(), ncols: host.ncols(), dim, row_start, row_end, col_idx, mask, values })
    }
}

impl<T: Real> Persists<T> for CudaBsrx<T> {}

impl<T: Real> Spmv<Bsrx<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaBsrx<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let entries = [
            SpmvBsrx::ANY,
            SpmvBsrx::DIM_2,
            SpmvBsrx::DIM_3,
            SpmvBsrx::DIM_4,
            SpmvBsrx::DIM_5,
            SpmvBsrx::DIM_6,
            SpmvBsrx::DIM_8,
        ];
        let parameters = SpmvBsrx {
            values: m.values.pointer(),
            row_start: m.row_start.pointer(),
            row_end: m.row_end.pointer(),
            col_idx: m.col_idx.pointer(),
            mask: m.mask.pointer(),
            masked: m.mask.len() as u64,
            dim: m.dim,
            nrows: m.nrows as u64,
            ncols: m.ncols as u64,
            product,
        };
        // Masked block rows are at most all of them: no more threads than rows rounded up to a block, less than 2^32.
        let grid = Grid::of((m.mask.len() * m.dim as usize).div_ceil(256), 256);
        // SAFETY: the arrays of the matrix; the lengths of x and y were compared.
        unsafe { self.launch::<T, _>(of_dim(m.dim, product.x, entries), grid, &parameters) }
    }
}
