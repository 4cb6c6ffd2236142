//! HMEC on the GPU, and what HEC shares with it.
//!
//! Layout: the host's; the blocks one behind the other in one array of columns and one of values, then the rest's, each block described by
//! two words: where it begins, and `rows + 2^32 width`.
//! Order: stored where results must be reproducible; otherwise own: the leading sorted rows whose rest has [`HEAVY`] entries or more
//! are formed by a warp or, from [`LONG`] on, by a thread block. Where rows are few and long, and blocks at most two, several lanes form
//! each of the others.
//! Cost: [`spandrel_formats::Traffic::spmv`], in one launch: the paper's is a launch a block, with y read and written by each.
//! Kernels: kernels/hmec.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Format, Hmec, Offset, Ordinal, Real};

use crate::ell::{HEAVY, HEAVY_OF_LANES, LONG, LONG_OF_LANES};
use crate::launch::{Argument, Own, Product};
use crate::memory::Buffer;
use crate::module::{HMEC, Source};
use crate::persistent::Persists;
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
    /// Where the rest's columns and values begin.
    rest_at: usize,
    longs: usize,
    heavy: usize,
    /// Lanes of a light row, as a power of two.
    shift: u32,
    /// The first two blocks, without rows where there are none.
    few: FewBlocks,
}

/// At most two blocks, as kernels with several lanes a row take them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct FewBlocks([[u64; 2]; 2]);
// SAFETY: `struct FewBlocks<2>` of kernels/include/hmec.cuh: two words a block. A kernel that takes one block reads the first alone.
unsafe impl Argument for FewBlocks {}

/// The kernels of a format: a thread a row, and several lanes a row for at most one block and for two.
pub(crate) struct Names {
    pub(crate) each: &'static str,
    pub(crate) lanes: &'static str,
    pub(crate) two: &'static str,
}

impl<T: Real> CudaHmec<T> {
    pub(crate) fn new(cuda: &Cuda, host: &Hmec<T>) -> Result<Self> {
        let (stream, rest) = (cuda.stream(), host.rest());
        let positions: usize = host.blocks().iter().map(|block| block.cols().len()).sum();
        let cols = Buffer::uninit(stream, positions + rest.nnz(), "a matrix's columns")?;
        let values = Buffer::uninit(stream, positions + rest.nnz(), "a matrix's values")?;
        let mut blocks = Vec::with_capacity(host.blocks().len());
        let mut at = 0;
        for block in host.blocks() {
            cols.write_at(at, block.cols())?;
            values.write_at(at, block.values())?;
            blocks.push([at as u64, block.rows() as u64 | (block.width() as u64) << 32]);
            at += block.cols().len();
        }
        cols.write_at(positions, rest.col_idx())?;
        values.write_at(positions, rest.values())?;
        let packed = host.blocks().iter().map(|block| block.width()).sum();
        // Rows are sorted: the first has the longest rest.
        let longest = if rest.nrows() > 0 { rest.row_nnz(0) } else { 0 };
        let mut few = FewBlocks::default();
        let shift = if blocks.len() <= few.0.len() {
            few.0[..blocks.len()].copy_from_slice(&blocks);
            cuda.lanes_shift(host.nrows(), packed, longest, cols.len())
        } else {
            0
        };
        let (heavy, long) = if shift == 0 { (HEAVY, LONG) } else { (HEAVY_OF_LANES, LONG_OF_LANES) };
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
            rest_at: positions,
            longs: leading(long),
            heavy: leading(heavy),
            shift,
            few,
        })
    }

    /// y <- a A x + b y by one of these kernels.
    pub(crate) fn product(
        &self,
        cuda: &Cuda,
        source: &Source,
        names: Names,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((self.nrows, self.ncols), gate, a, x, b, y)?;
        let entries = [self.cols.pointer(), self.values.pointer(), self.rest_ptr.pointer()].map(Own::from);
        let rows: [Own<'_>; 4] =
            [self.rest_rows.into(), (self.nrows as u64).into(), (self.longs as u32).into(), (self.heavy as u32).into()];
        let perm = Own::from(self.perm.pointer());
        // The light rows' first thread block begins at a multiple of 32.
        let light = self.nrows - self.heavy / 32 * 32;
        if self.shift > 0 {
            let (name, rest) =
                (if self.blocks.len() <= 1 { names.lanes } else { names.two }, [(self.rest_at as u32).into()]);
            let own = [&[perm, Own::from(&self.few)][..], &entries, &rest, &rows, &[self.shift.into()]].concat();
            let grid = Cuda::lanes_grid(self.longs, self.heavy, light, self.shift);
            // SAFETY: NAME(perm, blocks, cols, values, rest_ptr, rest_at, rest_rows, nrows, longs, heavy, shift, a, x, b, y, gate), of one
            // block or two as there are; fewer than 2^32 places.
            return unsafe { product.launch(cuda, source, name, grid, &own) };
        }
        let blocks: [Own<'_>; 2] = [self.blocks.pointer().into(), (self.blocks.len() as u32).into()];
        let rest = [self.cols.address(self.rest_at), self.values.address(self.rest_at)].map(Own::from);
        let own = [&[perm][..], &blocks, &entries, &rest, &rows].concat();
        // SAFETY: NAME(perm, blocks, count, cols, values, rest_ptr, rest_cols, rest_values, rest_rows, nrows, longs, heavy, a, x, b, y,
        // gate), both HEC's and HMEC's.
        unsafe { product.launch(cuda, source, names.each, cuda.tailed_grid(self.longs, self.heavy, light), &own) }
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Hmec<T>> for Cuda {
    type Resident = CudaHmec<T>;

    fn load(&self, host: Arc<Hmec<T>>) -> Result<CudaHmec<T>> {
        CudaHmec::new(self, &host)
    }
}

// SAFETY: it gives nothing.
unsafe impl<T: Real> Persists for CudaHmec<T> {}

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
        let names = Names { each: "spmv_hmec", lanes: "spmv_lanes_hmec", two: "spmv_lanes_two_hmec" };
        m.product(self, &HMEC, names, gate, a, x, b, y)
    }
}
