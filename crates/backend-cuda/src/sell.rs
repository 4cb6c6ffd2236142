//! SELL-C-sigma on the GPU.
//!
//! Layout: the host's. Order: stored. Cost: [`spandrel_formats::Traffic::spmv_bytes`]. If c is a multiple of 8, loads
//! fill whole sectors.
//!
//! Kernels: kernels/sell.cu. The fused product with sums needs a `perm` that keeps every block of 1024 rows together;
//! otherwise the product runs first, then the sums.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::error::expect_len;
use spandrel_backend::{
    BicgstabIterations, CgIterations, Coeff, Convert, Converted, Gate, Load, Order, Result, Spmm, Spmv,
};
use spandrel_formats::sell::{DEFAULT_C, DEFAULT_SIGMA};
use spandrel_formats::{Csr, Offset, Ordinal, PADDING, Real, Sell};

use crate::kernel::{kernels, parameters};
use crate::launch::{BLOCK, Grid, Product, ProductDot};
use crate::memory::{Address, Buffer};
use crate::persistent::{BicgstabParameters, CgParameters, Persists, Reach, Resident};
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

parameters! {
    /// The first parameters of every product.
    struct MatrixParameters { slice_ptr: Address, perm: Address, cols: Address, values: Address, c: u32 }
}

kernels! {
    struct SpmvSell<T> { matrix: MatrixParameters, nrows: u64, product: Product<T> }
    in SELL { MANY: "spmv_sell", FEW: "spmv_few_sell" }

    struct SpmvDotSell { matrix: MatrixParameters, nrows: u64, product: ProductDot }
    in SELL { MANY: "spmv_dot_sell", SMALL: "spmv_dot_small_sell" }

    struct SpmmSell<T> { matrix: MatrixParameters, nrows: u64, ncols: u64, k: u64, product: Product<T> }
    in SELL { ENTRY: "spmm_sell" }

    struct CgSell { matrix: MatrixParameters, widest: u32, solve: CgParameters }
    in SELL { ENTRY: "cg_sell" }

    struct BicgstabSell { matrix: MatrixParameters, widest: u32, solve: BicgstabParameters }
    in SELL { ENTRY: "bicgstab_sell" }

    struct InvertPermSell { perm: Address, nrows: u32, inverse: Address }
    in SELL { ENTRY: "invert_perm_sell" }

    struct FillFromCsrSell {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, inverse: Address, slice_ptr: Address, c: u32,
        out_cols: Address, out_values: Address,
    }
    in SELL { ENTRY: "fill_from_csr_sell" }
}

/// A SELL matrix in device memory.
#[derive(Debug)]
pub struct CudaSell<T> {
    nrows: usize,
    ncols: usize,
    c: u32,
    /// Whether perm maps every block of 1024 rows onto itself.
    blockwise: bool,
    slice_ptr: Buffer<Offset>,
    perm: Buffer<Ordinal>,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    /// The widest slice.
    widest: u32,
    /// The distance of the entries of each sorted row from its place, if the matrix is square and small enough for a
    /// persistent solve.
    reach: Option<Reach>,
}

impl<T: Real> CudaSell<T> {
    /// The first parameters of every product.
    fn parameters(&self) -> MatrixParameters {
        MatrixParameters {
            slice_ptr: self.slice_ptr.pointer(),
            perm: self.perm.pointer(),
            cols: self.cols.pointer(),
            values: self.values.pointer(),
            c: self.c,
        }
    }

    fn persistent(&self) -> Option<Resident> {
        self.reach.map(|reach| Resident {
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            fixed: 0,
            units: self.widest as usize,
            unit: T::BYTES + size_of::<Ordinal>(),
        })
    }
}

/// The distance of the entries of each sorted row from its place.
fn reach<T: Real>(m: &Sell<T>) -> Reach {
    let of_slice = |slice: usize| {
        let range = m.slice_ptr()[slice] as usize * m.c()..m.slice_ptr()[slice + 1] as usize * m.c();
        let entries = m.cols()[range].iter().enumerate().filter(|&(_, &j)| j != PADDING);
        entries.fold(Reach::default(), |reach, (at, &j)| reach.or(Reach::of(slice * m.c() + at % m.c(), j as usize)))
    };
    (0..m.slices()).into_par_iter().with_min_len(64).map(of_slice).reduce(Reach::default, Reach::or)
}

/// Whether rows sorted inside windows of sigma stay in their block of 1024.
fn blockwise(nrows: usize, sigma: usize) -> bool {
    BLOCK.is_multiple_of(sigma) || nrows <= BLOCK
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Sell<T>> for Cuda {
    type Resident = CudaSell<T>;

    fn load(&self, host: Arc<Sell<T>>) -> Result<CudaSell<T>> {
        Ok(CudaSell {
            nrows: host.nrows(),
            ncols: host.ncols(),
            c: host.c() as u32,
            blockwise: blockwise(host.nrows(), host.sigma()),
            slice_ptr: Buffer::from_host(self.stream(), host.slice_ptr(), "a matrix's slices")?,
            perm: Buffer::from_host(self.stream(), host.perm(), "a matrix's permutation")?,
            cols: Buffer::from_host(self.stream(), host.cols(), "a matrix's columns")?,
            values: Buffer::from_host(self.stream(), host.values(), "a matrix's values")?,
            widest: host.slice_ptr().windows(2).map(|ptr| ptr[1] - ptr[0]).max().unwrap_or(0),
            reach: self.may_persist(host.nrows(), host.ncols()).then(|| reach(&host)),
        })
    }
}

impl<T: Real> Convert<Csr<T>, Sell<T>> for Cuda {
    /// The host downloads the row pointers, sorts the rows and uploads their places; the entries move on the device.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaSell<T>>> {
        let (nrows, ncols, nnz) = (from.nrows(), from.ncols(), from.nnz());
        let (perm, slice_ptr) = Sell::<T>::slices_of(&self.row_pointers(from)?, DEFAULT_C, DEFAULT_SIGMA)?;
        let widest = slice_ptr.windows(2).map(|ptr| ptr[1] - ptr[0]).max().unwrap_or(0);
        // Sorting moves a row inside its window.
        let moved = |reach: Reach| Reach { below: reach.below + DEFAULT_SIGMA, above: reach.above + DEFAULT_SIGMA };
        let widths = slice_ptr.last().map_or(0, |&widths| widths as usize);
        let slices = slice_ptr.len() - 1;
        let perm = Buffer::from_host(self.stream(), &perm, "a matrix's permutation")?;
        let slice_ptr = Buffer::from_host(self.stream(), &slice_ptr, "a matrix's slices")?;
        let inverse = Buffer::<Ordinal>::uninit(self.stream(), nrows, "a matrix's permutation")?;
        let cols = Buffer::<Ordinal>::uninit(self.stream(), widths * DEFAULT_C, "a matrix's columns")?;
        let values = Buffer::<T>::uninit(self.stream(), widths * DEFAULT_C, "a matrix's values")?;
        let (old, rows, new) = (perm.pointer(), nrows as u32, inverse.pointer());
        let parameters = InvertPermSell { perm: old, nrows: rows, inverse: new };
        // SAFETY: invert_perm_sell(perm, nrows, inverse), one row per thread.
        unsafe { self.launch::<T, _>(InvertPermSell::ENTRY, Grid::of(nrows.div_ceil(256), 256), &parameters)? };
        let (row_ptr, from_cols, from_values) = from.arrays();
        let (row_ptr, from_cols, from_values) = (row_ptr.pointer(), from_cols.pointer(), from_values.pointer());
        let (slice, c, to_cols, to_values) = (slice_ptr.pointer(), DEFAULT_C as u32, cols.pointer(), values.pointer());
        let parameters = FillFromCsrSell {
            row_ptr,
            cols: from_cols,
            values: from_values,
            nrows: rows,
            inverse: new,
            slice_ptr: slice,
            c,
            out_cols: to_cols,
            out_values: to_values,
        };
        // SAFETY: fill_from_csr_sell(row_ptr, cols, values, nrows, inverse, slice_ptr, c, out_cols, out_values), slices
        // made of these rows.
        unsafe { self.launch::<T, _>(FillFromCsrSell::ENTRY, self.walk_grid(nrows), &parameters)? };
        let (storage, spmv_bytes) = Sell::<T>::traffic_of((nrows, ncols, nnz), DEFAULT_C, slices, widths);
        let blockwise = blockwise(nrows, DEFAULT_SIGMA);
        let reach = from.reach().map(moved);
        let resident = CudaSell { nrows, ncols, c, blockwise, slice_ptr, perm, cols, values, widest, reach };
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Spmv<Sell<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaSell<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let threads = if self.spreads_thin(m.nrows) { 128 } else { 256 };
        let grid = Grid::of(m.nrows.div_ceil(threads as usize), threads);
        let entry = if self.few_blocks(m.nrows) { SpmvSell::FEW } else { SpmvSell::MANY };
        let parameters = SpmvSell { matrix: m.parameters(), nrows: m.nrows as u64, product };
        // SAFETY: the arrays of the matrix, one row per thread, of 128 where they are few; the lengths of x and y were
        // compared.
        unsafe { self.launch::<T, _>(entry, grid, &parameters) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaSell<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        if !m.blockwise {
            expect_len("spmv_dot", "x", x.len(), m.ncols)?;
            expect_len("spmv_dot", "y", y.len(), m.nrows)?;
            expect_len("spmv_dot", "w", w.len(), m.nrows)?;
            <Self as Spmv<Sell<T>>>::spmv(self, gate, Coeff::one(), m, x, Coeff::zero(), y)?;
            return self.dots(gate, w, y, wy, yy);
        }
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let (entry, grid) = if self.few_blocks(m.nrows) {
            (SpmvDotSell::SMALL, Grid::of(m.nrows.div_ceil(BLOCK), BLOCK as u32))
        } else {
            (SpmvDotSell::MANY, Grid::rows(m.nrows))
        };
        let parameters = SpmvDotSell { matrix: m.parameters(), nrows: m.nrows as u64, product };
        // SAFETY: the arrays of the matrix; the lengths of x, y and w were compared.
        unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        self.complete_dots(gate, m.nrows, wy, yy)
    }
}

impl<T: Real> Persists<T> for CudaSell<T> {
    fn cg(
        &self,
        cuda: &Cuda,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some(resident) = self.persistent() else {
            return Ok(false);
        };
        let (matrix, widest) = (self.parameters(), self.widest);
        let all = |solve| CgSell { matrix, widest, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&resident, CgSell::ENTRY, all, count, on, monitor) }
    }

    fn bicgstab(
        &self,
        cuda: &Cuda,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some(resident) = self.persistent() else {
            return Ok(false);
        };
        let (matrix, widest) = (self.parameters(), self.widest);
        let all = |solve| BicgstabSell { matrix, widest, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.bicgstab_persistent(&resident, BicgstabSell::ENTRY, all, count, on, monitor) }
    }
}

impl<T: Real> Spmm<Sell<T>> for Cuda {
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaSell<T>,
        k: usize,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::of_columns((m.nrows, m.ncols), k, gate, a, x, b, y)?;
        let [nrows, ncols, k] = [m.nrows, m.ncols, k].map(|n| n as u64);
        let parameters = SpmmSell { matrix: m.parameters(), nrows, ncols, k, product };
        // SAFETY: the arrays of the matrix; the lengths of x and y, of k columns, were compared.
        unsafe { self.launch::<T, _>(SpmmSell::ENTRY, Grid::of(m.nrows.div_ceil(256), 256), &parameters) }
    }
}
