//! BSR on the GPU.
//!
//! Layout: the host's. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//!
//! Order: stored, that is the entries of a row by ascending column, including fill inside the blocks. Blocks of 2, 3,
//! 4, 5, 6 and 8 have kernels of their own. Kernels: kernels/bsr.cu.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmm, Spmv};
use spandrel_formats::{Bsr, Real};

use crate::kernel::{Entry, kernels, parameters};
use crate::launch::{BLOCK, CountedProductDot, Grid, Product, ProductDot};
use crate::memory::{Address, Buffer};
use crate::persistent::Persists;
use crate::runs::Index;
use crate::{Cuda, Scalar, Vector};

parameters! {
    struct MatrixParameters { values: Address, row_ptr: Address, col_idx: Address, dim: u32, nrows: u64, ncols: u64 }
}

kernels! {
    struct SpmvBsr<T> { matrix: MatrixParameters, product: Product<T> }
    in BSR {
        ANY: "spmv_bsr",
        DIM_2: "spmv_2_bsr",
        DIM_3: "spmv_3_bsr",
        DIM_4: "spmv_4_bsr",
        DIM_5: "spmv_5_bsr",
        DIM_6: "spmv_6_bsr",
        DIM_8: "spmv_8_bsr",
    }

    struct SpmvDotBsr { matrix: MatrixParameters, product: CountedProductDot }
    in BSR {
        ANY: "spmv_dot_bsr",
        DIM_2: "spmv_dot_2_bsr",
        DIM_3: "spmv_dot_3_bsr",
        DIM_4: "spmv_dot_4_bsr",
        DIM_5: "spmv_dot_5_bsr",
        DIM_6: "spmv_dot_6_bsr",
        DIM_8: "spmv_dot_8_bsr",
    }

    struct SpmmBsr<T> { matrix: MatrixParameters, k: u64, product: Product<T> }
    in BSR { ENTRY: "spmm_bsr" }
}

/// A BSR matrix in device memory.
#[derive(Debug)]
pub struct CudaBsr<T> {
    nrows: usize,
    ncols: usize,
    dim: u32,
    row_ptr: Buffer<u32>,
    col_idx: Buffer<u32>,
    values: Buffer<T>,
    /// A counter per block of 1024 rows, which counts finished parts during a fused dot product.
    arrivals: Buffer<u32>,
}

impl<T: Real> CudaBsr<T> {
    /// What products take of it.
    fn parameters(&self) -> MatrixParameters {
        MatrixParameters {
            values: self.values.pointer(),
            row_ptr: self.row_ptr.pointer(),
            col_idx: self.col_idx.pointer(),
            dim: self.dim,
            nrows: self.nrows as u64,
            ncols: self.ncols as u64,
        }
    }
}

/// The kernels by block size. Any size can use the first. The others load x by up to 16 bytes and need this alignment.
pub(crate) fn of_dim<P>(dim: u32, x: Address, entries: [Entry<P>; 7]) -> Entry<P> {
    let [any, two, three, four, five, six, eight] = entries;
    match dim {
        _ if !x.get().is_multiple_of(16) => any,
        2 => two,
        3 => three,
        4 => four,
        5 => five,
        6 => six,
        8 => eight,
        _ => any,
    }
}

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
    /// One thread per row, in smaller thread blocks if blocks of 256 would leave multiprocessors idle.
    fn rows_of_blocks(&self, nrows: usize) -> Grid {
        let threads = if nrows < BLOCK * self.multiprocessors() { 64 } else { 256 };
        Grid::of(nrows.div_ceil(threads), threads as u32)
    }
}

impl<T: Real> Persists<T> for CudaBsr<T> {}

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
        let entries = [
            SpmvBsr::ANY,
            SpmvBsr::DIM_2,
            SpmvBsr::DIM_3,
            SpmvBsr::DIM_4,
            SpmvBsr::DIM_5,
            SpmvBsr::DIM_6,
            SpmvBsr::DIM_8,
        ];
        let (entry, grid) = (of_dim(m.dim, product.x, entries), self.rows_of_blocks(m.nrows));
        // SAFETY: the arrays of the matrix; the lengths of x and y were compared.
        unsafe { self.launch::<T, _>(entry, grid, &SpmvBsr { matrix: m.parameters(), product }) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaBsr<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let entries = [
            SpmvDotBsr::ANY,
            SpmvDotBsr::DIM_2,
            SpmvDotBsr::DIM_3,
            SpmvDotBsr::DIM_4,
            SpmvDotBsr::DIM_5,
            SpmvDotBsr::DIM_6,
            SpmvDotBsr::DIM_8,
        ];
        let (entry, grid) = (of_dim(m.dim, product.x, entries), self.rows_of_blocks(m.nrows));
        let parameters = SpmvDotBsr { matrix: m.parameters(), product: product.counted(&m.arrivals) };
        // SAFETY: the arrays of the matrix, a count for each block of 1024 rows; the lengths of x, y and w were
        // compared.
        unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        self.complete_dots(gate, m.nrows, wy, yy)
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
        let parameters = SpmmBsr { matrix: m.parameters(), k: k as u64, product };
        // SAFETY: the arrays of the matrix; the lengths of x and y, of k columns, were compared.
        unsafe { self.launch::<T, _>(SpmmBsr::ENTRY, Grid::of(m.nrows.div_ceil(256), 256), &parameters) }
    }
}
