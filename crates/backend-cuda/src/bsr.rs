//! BSR on the GPU.
//!
//! Layout: the host's. Cost: [`spandrel_formats::Traffic::spmv`].
//! Order: stored: the entries of a row by ascending column, fill inside the blocks included. Blocks of 2, 3, 4, 5, 6 and 8 have kernels
//! of their own. Kernels: kernels/bsr.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmm, Spmv};
use spandrel_formats::{Bsr, Format, Real};

use crate::launch::{BLOCK, Grid, Own, Product, ProductDot};
use crate::memory::Buffer;
use crate::module::BSR;
use crate::persistent::Persists;
use crate::runs::Index;
use crate::{Cuda, Scalar, Vector};

/// A BSR matrix in device memory.
#[derive(Debug)]
pub struct CudaBsr<T> {
    nrows: usize,
    ncols: usize,
    dim: u32,
    row_ptr: Buffer<u32>,
    col_idx: Buffer<u32>,
    values: Buffer<T>,
    /// A 0 for each block of 1024 rows, where the parts of a block that end are counted during a fused dot product.
    arrivals: Buffer<u32>,
}

impl<T: Real> CudaBsr<T> {
    /// What products take of it: values, row_ptr, col_idx, dim, nrows, ncols.
    fn arguments(&self) -> [Own<'static>; 6] {
        [
            self.values.pointer().into(),
            self.row_ptr.pointer().into(),
            self.col_idx.pointer().into(),
            self.dim.into(),
            (self.nrows as u64).into(),
            (self.ncols as u64).into(),
        ]
    }
}

/// The kernel of a block size; any size has the first. The others load x by up to 16 bytes and need it so aligned.
pub(crate) fn of_dim(dim: u32, x: u64, names: [&'static str; 7]) -> &'static str {
    let [any, two, three, four, five, six, eight] = names;
    match dim {
        _ if !x.is_multiple_of(16) => any,
        2 => two,
        3 => three,
        4 => four,
        5 => five,
        6 => six,
        8 => eight,
        _ => any,
    }
}

const SPMV: [&str; 7] =
    ["spmv_bsr", "spmv_2_bsr", "spmv_3_bsr", "spmv_4_bsr", "spmv_5_bsr", "spmv_6_bsr", "spmv_8_bsr"];
const SPMV_DOT: [&str; 7] = [
    "spmv_dot_bsr",
    "spmv_dot_2_bsr",
    "spmv_dot_3_bsr",
    "spmv_dot_4_bsr",
    "spmv_dot_5_bsr",
    "spmv_dot_6_bsr",
    "spmv_dot_8_bsr",
];

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Bsr<T>> for Cuda {
    type Resident = CudaBsr<T>;

    fn load(&self, host: Arc<Bsr<T>>) -> Result<CudaBsr<T>> {
        let row_ptr = Buffer::uninit(self.stream(), host.row_ptr().len(), "a matrix's row pointers")?;
        let col_idx = Buffer::uninit(self.stream(), host.col_idx().len(), "a matrix's columns")?;
        let values = Buffer::uninit(self.stream(), host.values().len(), "a matrix's values")?;
        let index = Index { row_ptr: (&row_ptr, host.row_ptr()), col_idx: (&col_idx, host.col_idx()) };
        self.write_rows(&index, vec![values.write(0, host.values())])?;
        let groups = host.nrows().div_ceil(BLOCK).max(1);
        let arrivals = Buffer::zeros(self.stream(), groups, "counts of finished rows")?;
        // Below 2^31, as every constructor checks.
        let dim = host.block_dim() as u32;
        Ok(CudaBsr { nrows: host.nrows(), ncols: host.ncols(), dim, row_ptr, col_idx, values, arrivals })
    }
}

impl Cuda {
    /// A thread a row, in smaller thread blocks where all of 256 would leave multiprocessors idle.
    fn rows_of_blocks(&self, nrows: usize) -> Grid {
        let threads = if nrows < BLOCK * self.multiprocessors() { 64 } else { 256 };
        Grid::of(nrows.div_ceil(threads), threads as u32)
    }
}

// SAFETY: it gives nothing.
unsafe impl<T: Real> Persists for CudaBsr<T> {}

impl<T: Real> Spmv<Bsr<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaBsr<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let (name, grid) = (of_dim(m.dim, product.x(), SPMV), self.rows_of_blocks(m.nrows));
        // SAFETY: all (values, row_ptr, col_idx, dim, nrows, ncols, a, x, b, y, gate).
        unsafe { product.launch(self, &BSR, name, grid, &m.arguments()) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaBsr<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy)?;
        let (name, grid) = (of_dim(m.dim, product.x(), SPMV_DOT), self.rows_of_blocks(m.nrows));
        // SAFETY: all (values, row_ptr, col_idx, dim, nrows, ncols, x, y, w, arrivals, tree, gate); a count for each block of 1024 rows.
        unsafe { product.launch::<T>(self, &BSR, name, grid, &m.arguments(), Some(&m.arrivals)) }
    }
}

impl<T: Real> Spmm<Bsr<T>> for Cuda {
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaBsr<T>,
        k: usize,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::of_columns((m.nrows, m.ncols), k, gate, a, x, b, y)?;
        let [values, row_ptr, col_idx, dim, nrows, ncols] = m.arguments();
        let own = [values, row_ptr, col_idx, dim, nrows, ncols, (k as u64).into()];
        // SAFETY: spmm_bsr(values, row_ptr, col_idx, dim, nrows, ncols, k, a, x, b, y, gate).
        unsafe { product.launch(self, &BSR, "spmm_bsr", Grid::of(m.nrows.div_ceil(256), 256), &own) }
    }
}
