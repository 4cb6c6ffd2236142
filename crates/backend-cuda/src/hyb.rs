//! HYB on the GPU.
//!
//! Layout: the ELL part as on the host. The COO part keeps columns and values, which follow those of the ELL part.
//! Instead of row numbers it has one bit per row, the number of rows with a tail before every 32nd row, and the start
//! of each tail: 8 bytes per 32 rows and 4 per tail.
//!
//! Order: stored if results must be reproducible. Otherwise own: rows whose tail has at least [`HEAVY`] entries are
//! summed by a warp, and from [`LONG`] on by a thread block. If rows are few and long, several lanes sum each other
//! row.
//!
//! Cost: [`spandrel_formats::Traffic::spmv_bytes`] without the row numbers of COO. Kernels: kernels/hyb.cu.

use std::cmp::Reverse;
use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Convert, Converted, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Csr, Hyb, Offset, Ordinal, Real};

use crate::coo::room;
use crate::ell::{HEAVY, HEAVY_OF_LANES, LONG, LONG_OF_LANES};
use crate::kernel::{kernels, parameters};
use crate::launch::{Grid, Product, ProductDot};
use crate::memory::{Address, Buffer};
use crate::persistent::Persists;
use crate::{Cuda, CudaCsr, Scalar, Vector};

kernels! {
    struct SpmvHyb<T> { packed: PackedParameters, tails: TailsParameters, longs: u32, heavy: u32, product: Product<T> }
    in HYB { ENTRY: "spmv_hyb" }

    struct SpmvLanesHyb<T> {
        packed: PackedParameters, tail_at: u32, heavy_rows: Address, threshold: u32, longs: u32, heavy: u32, shift: u32,
        product: Product<T>,
    }
    in HYB { ENTRY: "spmv_lanes_hyb" }

    struct SpmvDotHyb { packed: PackedParameters, tails: TailsParameters, product: ProductDot }
    in HYB { ENTRY: "spmv_dot_hyb" }

    struct FillFromCsrHyb {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, width: u32, overflow: Address, tail_ptr: Address,
        out_cols: Address, out_values: Address, tail_cols: Address, tail_values: Address,
    }
    in HYB { ENTRY: "fill_from_csr_hyb" }
}

parameters! {
    /// The ELL part, and which rows have tails.
    struct PackedParameters {
        cols: Address, values: Address, width: u32, nrows: u64, overflow: Address, tail_ptr: Address,
    }

    /// The tails, and which rows are heavy.
    struct TailsParameters { tail_cols: Address, tail_values: Address, heavy_rows: Address, threshold: u32 }
}

/// A HYB matrix in device memory.
#[derive(Debug)]
pub struct CudaHyb<T> {
    nrows: usize,
    ncols: usize,
    width: u32,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    /// Per 32 rows: one bit per row that has a tail, and the number of earlier rows with one.
    overflow: Buffer<[u32; 2]>,
    tail_ptr: Buffer<Offset>,
    /// Sorted by descending length of the tail.
    heavy_rows: Buffer<Ordinal>,
    longs: usize,
    /// The number of entries in a tail that makes its row heavy.
    threshold: u32,
    /// Lanes of a light row, as a power of two.
    shift: u32,
}

impl<T: Real> CudaHyb<T> {
    /// The place at which the tails' columns and values begin, after those of the ELL part.
    fn tail_at(&self) -> usize {
        self.nrows * self.width as usize
    }

    /// Addresses of the tails' columns and values.
    fn tails(&self) -> [Address; 2] {
        [self.cols.address(self.tail_at()), self.values.address(self.tail_at())]
    }

    /// The first parameters of a product.
    fn packed(&self) -> PackedParameters {
        PackedParameters {
            cols: self.cols.pointer(),
            values: self.values.pointer(),
            width: self.width,
            nrows: self.nrows as u64,
            overflow: self.overflow.pointer(),
            tail_ptr: self.tail_ptr.pointer(),
        }
    }

    /// The parameters that follow, with addresses of the tails.
    fn tail_parameters(&self) -> TailsParameters {
        let [tail_cols, tail_values] = self.tails();
        let (heavy_rows, threshold) = (self.heavy_rows.pointer(), self.threshold);
        TailsParameters { tail_cols, tail_values, heavy_rows, threshold }
    }
}

/// The rows that have tails, and where the tails begin.
struct Tails {
    overflow: Vec<[u32; 2]>,
    ptr: Vec<Offset>,
    /// Row and length of the heavy ones, by descending length.
    heavy: Vec<(Ordinal, usize)>,
    /// Entries of the longest tail.
    longest: usize,
}

/// The tails by row and length; none is empty, and rows ascend.
fn tails(nrows: usize, runs: impl Iterator<Item = (Ordinal, usize)> + Clone) -> Result<Tails> {
    let mut overflow = room(nrows.div_ceil(32), "the rows with tails")?;
    overflow.resize(nrows.div_ceil(32), [0u32; 2]);
    let mut ptr = room(runs.clone().count() + 1, "where tails begin")?;
    ptr.push(0);
    let mut heavy = Vec::new();
    let (mut at, mut longest) = (0, 0);
    for (row, len) in runs {
        overflow[row as usize / 32][0] |= 1 << (row % 32);
        at += len;
        longest = longest.max(len);
        ptr.push(at as Offset);
        if len >= HEAVY {
            heavy.push((row, len));
        }
    }
    let mut before = 0;
    for word in &mut overflow {
        word[1] = before;
        before += word[0].count_ones();
    }
    heavy.sort_by_key(|&(_, len)| Reverse(len));
    Ok(Tails { overflow, ptr, heavy, longest })
}

impl Cuda {
    /// Makes the matrix from these parts.
    fn hyb<T: Real>(
        &self,
        (nrows, ncols, width): (usize, usize, usize),
        (cols, values): (Buffer<Ordinal>, Buffer<T>),
        mut tails: Tails,
    ) -> Result<CudaHyb<T>> {
        if self.reproducible() {
            tails.heavy.clear();
        }
        let shift = self.lanes_shift(nrows, width, tails.longest, cols.len());
        let (threshold, long) = if shift == 0 { (HEAVY, LONG) } else { (HEAVY_OF_LANES, LONG_OF_LANES) };
        let heavy_rows: Vec<Ordinal> =
            tails.heavy.iter().take_while(|&&(_, len)| len >= threshold).map(|&(row, _)| row).collect();
        Ok(CudaHyb {
            nrows,
            ncols,
            width: width as u32,
            cols,
            values,
            overflow: Buffer::from_host(self.stream(), &tails.overflow, "the rows with tails")?,
            tail_ptr: Buffer::from_host(self.stream(), &tails.ptr, "where tails begin")?,
            heavy_rows: Buffer::from_host(self.stream(), &heavy_rows, "the rows with long tails")?,
            longs: tails.heavy.partition_point(|&(_, len)| len >= long),
            threshold: threshold as u32,
            shift,
        })
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Hyb<T>> for Cuda {
    type Resident = CudaHyb<T>;

    fn load(&self, host: Arc<Hyb<T>>) -> Result<CudaHyb<T>> {
        let (ell, coo) = (host.ell(), host.coo());
        let tails = tails(host.nrows(), coo.rows().chunk_by(|a, b| a == b).map(|run| (run[0], run.len())))?;
        let positions = ell.cols().len();
        let cols = Buffer::uninit(self.stream(), positions + coo.nnz(), "a matrix's columns")?;
        let values = Buffer::uninit(self.stream(), positions + coo.nnz(), "a matrix's values")?;
        cols.write_at(0, ell.cols())?;
        cols.write_at(positions, coo.cols())?;
        values.write_at(0, ell.values())?;
        values.write_at(positions, coo.values())?;
        self.hyb((host.nrows(), host.ncols(), ell.width()), (cols, values), tails)
    }
}

impl<T: Real> Convert<Csr<T>, Hyb<T>> for Cuda {
    /// The host downloads the row pointers, chooses the width and lists the tails; the entries move on the device.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaHyb<T>>> {
        let (nrows, ncols, nnz) = (from.nrows(), from.ncols(), from.nnz());
        let host = self.row_pointers(from)?;
        let (width, rest) = Hyb::<T>::split_of(&host)?;
        let lengths =
            (0..).zip(host.windows(2)).map(|(row, ptr)| (row, ((ptr[1] - ptr[0]) as usize).saturating_sub(width)));
        let tails = tails(nrows, lengths.filter(|&(_, len)| len > 0))?;
        let cols = Buffer::<Ordinal>::uninit(self.stream(), nrows * width + rest, "a matrix's columns")?;
        let values = Buffer::<T>::uninit(self.stream(), nrows * width + rest, "a matrix's values")?;
        let resident = self.hyb((nrows, ncols, width), (cols, values), tails)?;
        let (row_ptr, from_cols, from_values) = from.arrays();
        let (row_ptr, from_cols, from_values) = (row_ptr.pointer(), from_cols.pointer(), from_values.pointer());
        let (rows, overflow, tail_ptr) = (nrows as u32, resident.overflow.pointer(), resident.tail_ptr.pointer());
        let (cols, values, width) = (resident.cols.pointer(), resident.values.pointer(), resident.width);
        let [tail_cols, tail_values] = resident.tails();
        let parameters = FillFromCsrHyb {
            row_ptr,
            cols: from_cols,
            values: from_values,
            nrows: rows,
            width,
            overflow,
            tail_ptr,
            out_cols: cols,
            out_values: values,
            tail_cols,
            tail_values,
        };
        // SAFETY: fill_from_csr_hyb(row_ptr, cols, values, nrows, width, overflow, tail_ptr, out_cols, out_values,
        // tail_cols, tail_values), tails listed by these row pointers.
        unsafe { self.launch::<T, _>(FillFromCsrHyb::ENTRY, self.walk_grid(nrows), &parameters)? };
        let (storage, spmv_bytes) = Hyb::<T>::traffic_of((nrows, ncols, nnz), resident.width as usize, rest);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Persists<T> for CudaHyb<T> {}

impl<T: Real> Spmv<Hyb<T>> for Cuda {
    fn order(&self) -> Order {
        if self.reproducible() { Order::Stored } else { Order::Own }
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaHyb<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let (packed, longs, heavy) = (m.packed(), m.longs as u32, m.heavy_rows.len() as u32);
        if m.shift > 0 {
            let (tail_at, heavy_rows, threshold) = (m.tail_at() as u32, m.heavy_rows.pointer(), m.threshold);
            let parameters =
                SpmvLanesHyb { packed, tail_at, heavy_rows, threshold, longs, heavy, shift: m.shift, product };
            let grid = Self::lanes_grid(m.longs, m.heavy_rows.len(), m.nrows, m.shift);
            // SAFETY: the arrays of the matrix, fewer than 2^32 places; the lengths of x and y were compared.
            return unsafe { self.launch::<T, _>(SpmvLanesHyb::ENTRY, grid, &parameters) };
        }
        let parameters = SpmvHyb { packed, tails: m.tail_parameters(), longs, heavy, product };
        let grid = self.tailed_grid(m.longs, m.heavy_rows.len(), m.nrows);
        // SAFETY: the arrays of the matrix; the lengths of x and y were compared.
        unsafe { self.launch::<T, _>(SpmvHyb::ENTRY, grid, &parameters) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaHyb<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        expect_len("spmv_dot", "x", x.len(), m.ncols)?;
        expect_len("spmv_dot", "y", y.len(), m.nrows)?;
        expect_len("spmv_dot", "w", w.len(), m.nrows)?;
        // The plain product spreads few rows better, and does not sum heavy rows with their neighbours.
        if m.heavy_rows.len() > 0 || self.few_blocks(m.nrows) {
            <Self as Spmv<Hyb<T>>>::spmv(self, gate, Coeff::one(), m, x, Coeff::zero(), y)?;
            return self.dots(gate, w, y, wy, yy);
        }
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let parameters = SpmvDotHyb { packed: m.packed(), tails: m.tail_parameters(), product };
        // SAFETY: the arrays of the matrix; the lengths of x, y and w were compared.
        unsafe { self.launch::<T, _>(SpmvDotHyb::ENTRY, Grid::rows(m.nrows), &parameters)? };
        self.complete_dots(gate, m.nrows, wy, yy)
    }
}
