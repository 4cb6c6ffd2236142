//! HMEC on the GPU, and what HEC shares with it.
//!
//! Layout: the host's. The blocks follow each other in one array of columns and one of values, then comes the rest. Two
//! words describe each block: its start, and `rows + 2^32 width`.
//!
//! Order: stored if results must be reproducible. Otherwise own: the leading sorted rows whose rest has at least
//! [`HEAVY`] entries are summed by a warp, and from [`LONG`] on by a thread block. If rows are few and long and there
//! are at most two blocks, several lanes sum each other row.
//!
//! Cost: [`spandrel_formats::Traffic::spmv_bytes`], in one launch. The paper has one launch per block, each of which
//! reads and writes y. Kernels: kernels/hmec.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Hmec, Offset, Ordinal, Real};

use crate::ell::{HEAVY, HEAVY_OF_LANES, LONG, LONG_OF_LANES};
use crate::kernel::{Argument, Entry, kernels, parameters};
use crate::launch::Product;
use crate::memory::{Address, Buffer};
use crate::persistent::Persists;
use crate::{Cuda, Scalar, Vector};

kernels! {
    /// One thread per light row.
    pub(crate) struct SpmvBlocks<T> {
        perm: Address, blocks: Address, count: u32, cols: Address, values: Address, rest_ptr: Address,
        rest_cols: Address, rest_values: Address, rest_rows: u32, nrows: u64, longs: u32, heavy: u32,
        product: Product<T>,
    }
    in HEC { HEC: "spmv_hec" }
    | HMEC { HMEC: "spmv_hmec" }

    /// Several lanes per light row, at most one block.
    pub(crate) struct SpmvLanes<T> { perm: Address, blocks: FewBlocks<1>, rest: LanesParameters, product: Product<T> }
    in HEC { HEC: "spmv_lanes_hec" }
    | HMEC { HMEC: "spmv_lanes_hmec" }

    /// Two blocks.
    struct SpmvLanesTwo<T> { perm: Address, blocks: FewBlocks<2>, rest: LanesParameters, product: Product<T> }
    in HMEC { ENTRY: "spmv_lanes_two_hmec" }
}

parameters! {
    /// What kernels with several lanes for a light row take after the blocks.
    pub(crate) struct LanesParameters {
        cols: Address, values: Address, rest_ptr: Address, rest_at: u32, rest_rows: u32, nrows: u64, longs: u32,
        heavy: u32, shift: u32,
    }
}

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
    /// The start of the rest's columns and values.
    rest_at: usize,
    longs: usize,
    heavy: usize,
    /// The number of lanes of a light row, as a power of two.
    shift: u32,
    /// The first two blocks; without rows if they do not exist.
    few: [[u64; 2]; 2],
}

/// This many blocks, for kernels with several lanes per row.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FewBlocks<const COUNT: usize>([[u64; 2]; COUNT]);
// SAFETY: `struct FewBlocks<COUNT>` of kernels/include/hmec.cuh: two words per block.
unsafe impl<const COUNT: usize> Argument for FewBlocks<COUNT> {}

/// The kernels of a format: one thread per row, and several lanes per row for at most one block and, if the format
/// allows it, for two.
pub(crate) struct Entries<T> {
    pub(crate) each: Entry<SpmvBlocks<T>>,
    pub(crate) lanes: Entry<SpmvLanes<T>>,
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
        // Rows are sorted, so the first has the longest rest.
        let longest = if rest.nrows() > 0 { rest.row_nnz(0) } else { 0 };
        let mut few = [[0; 2]; 2];
        let shift = if blocks.len() <= few.len() {
            few[..blocks.len()].copy_from_slice(&blocks);
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
        entries: Entries<T>,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((self.nrows, self.ncols), gate, a, x, b, y)?;
        let (perm, cols, values) = (self.perm.pointer(), self.cols.pointer(), self.values.pointer());
        let (rest_ptr, rest_rows, nrows) = (self.rest_ptr.pointer(), self.rest_rows, self.nrows as u64);
        let (longs, heavy, shift) = (self.longs as u32, self.heavy as u32, self.shift);
        // The light rows' first thread block begins at a multiple of 32.
        let light = self.nrows - self.heavy / 32 * 32;
        if self.shift > 0 {
            let rest_at = self.rest_at as u32;
            let rest = LanesParameters { cols, values, rest_ptr, rest_at, rest_rows, nrows, longs, heavy, shift };
            let grid = Cuda::lanes_grid(self.longs, self.heavy, light, self.shift);
            let [first, second] = self.few;
            // SAFETY: the arrays of the matrix, of one block or two as there are, fewer than 2^32 places; the lengths
            // of x and y were compared.
            return unsafe {
                if self.blocks.len() <= 1 {
                    let parameters = SpmvLanes { perm, blocks: FewBlocks([first]), rest, product };
                    cuda.launch::<T, _>(entries.lanes, grid, &parameters)
                } else {
                    let parameters = SpmvLanesTwo { perm, blocks: FewBlocks([first, second]), rest, product };
                    cuda.launch::<T, _>(SpmvLanesTwo::ENTRY, grid, &parameters)
                }
            };
        }
        let parameters = SpmvBlocks {
            perm,
            blocks: self.blocks.pointer(),
            count: self.blocks.len() as u32,
            cols,
            values,
            rest_ptr,
            rest_cols: self.cols.address(self.rest_at),
            rest_values: self.values.address(self.rest_at),
            rest_rows,
            nrows,
            longs,
            heavy,
            product,
        };
        // SAFETY: the arrays of the matrix; the lengths of x and y were compared.
        unsafe { cuda.launch::<T, _>(entries.each, cuda.tailed_grid(self.longs, self.heavy, light), &parameters) }
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Hmec<T>> for Cuda {
    type Resident = CudaHmec<T>;

    fn load(&self, host: Arc<Hmec<T>>) -> Result<CudaHmec<T>> {
        CudaHmec::new(self, &host)
    }
}

impl<T: Real> Persists<T> for CudaHmec<T> {}

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
        m.product(self, Entries { each: SpmvBlocks::HMEC, lanes: SpmvLanes::HMEC }, gate, a, x, b, y)
    }
}
