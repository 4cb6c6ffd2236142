//! HMEC on the GPU, and what HEC shares with it.
//!
//! Layout: the host's; the blocks one behind the other in one array of columns and one of values, each block described by two words:
//! where it begins, and `rows + 2^32 width`.
//! Order: stored where results must be reproducible; otherwise own: the leading sorted rows whose rest has [`HEAVY`] entries or more
//! are formed by a warp or, from [`LONG`] on, by a thread block.
//! Cost: [`spandrel_formats::Traffic::spmv`], in one launch: the paper's is a launch a block, with y read and written by each.
//! Kernels: kernels/hmec.cu.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Format, Hmec, Offset, Ordinal, Real};

use crate::device::gate_pointer;
use crate::ell::{HEAVY, LONG};
use crate::launch::{CoeffArg, arg};
use crate::memory::Buffer;
use crate::module::{HMEC, Source};
use crate::{Cuda, Scalar, Vector};

/// An HMEC matrix in device memory.
#[derive(Debug)]
pub struct CudaHmec<T> {
    nrows: usize,
    ncols: usize,
    perm: Buffer<Ordinal>,
    blocks: Buffer<[u64; 2]>,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    rest_rows: u32,
    rest_ptr: Buffer<Offset>,
    rest_cols: Buffer<Ordinal>,
    rest_values: Buffer<T>,
    longs: usize,
    heavy: usize,
}

impl<T: Real> CudaHmec<T> {
    pub(crate) fn new(cuda: &Cuda, host: &Hmec<T>) -> Result<Self> {
        let (stream, rest) = (cuda.stream(), host.rest());
        let positions = host.blocks().iter().map(|block| block.cols().len()).sum();
        let cols = Buffer::uninit(stream, positions, "a matrix's columns")?;
        let values = Buffer::uninit(stream, positions, "a matrix's values")?;
        let mut blocks = Vec::with_capacity(host.blocks().len());
        let mut at = 0;
        for block in host.blocks() {
            cols.write_at(at, block.cols())?;
            values.write_at(at, block.values())?;
            blocks.push([at as u64, block.rows() as u64 | (block.width() as u64) << 32]);
            at += block.cols().len();
        }
        let leading = |least: usize| {
            let short = |r: &usize| rest.row_nnz(*r) < least;
            if cuda.reproducible() { 0 } else { (0..rest.nrows()).find(short).unwrap_or(rest.nrows()) }
        };
        Ok(Self {
            nrows: host.nrows(),
            ncols: host.ncols(),
            perm: Buffer::from_host(stream, host.perm(), "a matrix's permutation")?,
            blocks: Buffer::from_host(stream, &blocks, "a matrix's blocks")?,
            cols,
            values,
            rest_rows: rest.nrows() as u32,
            rest_ptr: Buffer::from_host(stream, rest.row_ptr(), "a matrix's rows")?,
            rest_cols: Buffer::from_host(stream, rest.col_idx(), "a matrix's columns")?,
            rest_values: Buffer::from_host(stream, rest.values(), "a matrix's values")?,
            longs: leading(LONG),
            heavy: leading(HEAVY),
        })
    }

    /// y <- a A x + b y by a kernel of that signature.
    pub(crate) fn product(
        &self,
        cuda: &Cuda,
        (source, name): (&Source, &'static str),
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv", "x", x.len(), self.ncols)?;
        expect_len("spmv", "y", y.len(), self.nrows)?;
        let (perm, blocks, count) = (self.perm.pointer(), self.blocks.pointer(), self.blocks.len() as u32);
        let (cols, values) = (self.cols.pointer(), self.values.pointer());
        let (rest_ptr, rest_cols) = (self.rest_ptr.pointer(), self.rest_cols.pointer());
        let (rest_values, rest_rows) = (self.rest_values.pointer(), self.rest_rows);
        let (nrows, longs, heavy) = (self.nrows as u64, self.longs as u32, self.heavy as u32);
        let (a, b, x, y, gate) = (CoeffArg::from(a), CoeffArg::from(b), x.pointer(), y.pointer(), gate_pointer(gate));
        let mut arguments = [
            arg(&perm),
            arg(&blocks),
            arg(&count),
            arg(&cols),
            arg(&values),
            arg(&rest_ptr),
            arg(&rest_cols),
            arg(&rest_values),
            arg(&rest_rows),
            arg(&nrows),
            arg(&longs),
            arg(&heavy),
            arg(&a),
            arg(&x),
            arg(&b),
            arg(&y),
            arg(&gate),
        ];
        // The light rows' first thread block begins at a multiple of 32.
        let grid = cuda.tailed_grid(self.longs, self.heavy, self.nrows - self.heavy / 32 * 32);
        // SAFETY: NAME(perm, blocks, count, cols, values, rest_ptr, rest_cols, rest_values, rest_rows, nrows, longs, heavy, a, x, b, y,
        // gate), both HEC's and HMEC's; lengths compared above.
        unsafe { cuda.launch::<T>(source, name, grid, &mut arguments) }
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Hmec<T>> for Cuda {
    type Resident = CudaHmec<T>;

    fn load(&self, host: Arc<Hmec<T>>) -> Result<CudaHmec<T>> {
        CudaHmec::new(self, &host)
    }
}

impl<T: Real> Spmv<Hmec<T>> for Cuda {
    fn order(&self) -> Order {
        if self.reproducible() { Order::Stored } else { Order::Own }
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaHmec<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.product(self, (&HMEC, "spmv_hmec"), gate, a, x, b, y)
    }
}
