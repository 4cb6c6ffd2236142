//! BSRX on the GPU: BSR's rows for the block rows of the mask.
//!
//! Layout: the host's. Cost: the blocks of the masked rows, x, and y's masked rows.
//! Order: stored. Rows outside the mask are neither read nor written. Dot products go over all of y and so are not fused.
//! Kernels: kernels/bsrx.cu.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Bsrx, Format, Real};

use crate::bsr::of_dim;
use crate::device::gate_pointer;
use crate::launch::{CoeffArg, Grid, arg};
use crate::memory::Buffer;
use crate::module::BSRX;
use crate::persistent::Persists;
use crate::{Cuda, Scalar, Vector};

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

const SPMV: [&str; 7] =
    ["spmv_bsrx", "spmv_2_bsrx", "spmv_3_bsrx", "spmv_4_bsrx", "spmv_5_bsrx", "spmv_6_bsrx", "spmv_8_bsrx"];

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

// SAFETY: it gives nothing.
unsafe impl<T: Real> Persists for CudaBsrx<T> {}

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
        expect_len("spmv", "x", x.len(), m.ncols)?;
        expect_len("spmv", "y", y.len(), m.nrows)?;
        let (values, row_start, row_end) = (m.values.pointer(), m.row_start.pointer(), m.row_end.pointer());
        let (col_idx, mask, masked) = (m.col_idx.pointer(), m.mask.pointer(), m.mask.len() as u64);
        let (nrows, ncols, a, b) = (m.nrows as u64, m.ncols as u64, CoeffArg::from(a), CoeffArg::from(b));
        let (x, y, gate) = (x.pointer(), y.pointer(), gate_pointer(gate));
        let mut arguments = [
            arg(&values),
            arg(&row_start),
            arg(&row_end),
            arg(&col_idx),
            arg(&mask),
            arg(&masked),
            arg(&m.dim),
            arg(&nrows),
            arg(&ncols),
            arg(&a),
            arg(&x),
            arg(&b),
            arg(&y),
            arg(&gate),
        ];
        // Masked block rows are at most all of them: no more threads than rows rounded up to a block, less than 2^32.
        let grid = Grid::of((m.mask.len() * m.dim as usize).div_ceil(256), 256);
        // SAFETY: spmv_bsrx(values, row_start, row_end, col_idx, mask, masked, dim, nrows, ncols, a, x, b, y, gate), lengths compared
        // above.
        unsafe { self.launch::<T>(&BSRX, of_dim(m.dim, x, SPMV), grid, &mut arguments) }
    }
}
