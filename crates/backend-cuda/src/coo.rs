//! COO on the GPU.
//!
//! Layout: the host's, and where each row begins, which the stored order goes by. The parallel product cuts the entries into intervals,
//! one a warp; the rows that ends of intervals cut and the rows without entries are listed when the matrix is loaded.
//! Order: own for [`CooKernel::Parallel`], stored for the others; the same bits each time for all.
//! Cost: [`spandrel_formats::Traffic::spmv`]; [`CooKernel::Stored`] reads where rows begin in the place of the row numbers.
//! Kernels: kernels/coo.cu. Reference: Bell & Garland, Efficient sparse matrix-vector multiplication on CUDA, 2008, section 4.4.

use std::cmp::Reverse;
use std::sync::Arc;

use bytemuck::Pod;
use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Convert, Converted, Error, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Coo, Csr, Format, Offset, Ordinal, Real};

use crate::device::gate_pointer;
use crate::launch::{CoeffArg, Grid, arg};
use crate::memory::Buffer;
use crate::module::COO;
use crate::{Cuda, CudaCsr, Scalar, Vector};

/// Entries that a warp takes in one step.
const STEP: usize = 128;
/// The most steps of an interval: 220,000 carries for 450 million entries.
const STEPS: usize = 16;
/// Warps of the device's threads, twice over, before intervals grow.
const WARPS: usize = 128;
/// Carries of a row from which on a thread block adds them.
const LONG: u32 = 32;

/// How a product with a COO matrix is formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CooKernel {
    /// An interval of entries a warp, summed by segments of equal row; cut rows are put together by a second kernel.
    #[default]
    Parallel,
    /// One thread, entry by entry: the reference of the comparison. Stored order.
    Serial,
    /// A thread a row, a warp bringing in the entries of its rows side by side. Stored order.
    Stored,
}

/// A COO matrix in device memory.
#[derive(Debug)]
pub struct CudaCoo<T> {
    nrows: usize,
    ncols: usize,
    rows: Buffer<Ordinal>,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    row_ptr: Buffer<Offset>,
    /// Entries of a warp, a multiple of [`STEP`].
    interval: usize,
    heads: Buffer<T>,
    tails: Buffer<T>,
    /// Row, first and last interval of each row that ends of intervals cut; by descending number of intervals.
    chains: Buffer<[u32; 4]>,
    /// How many of them have [`LONG`] carries or more.
    longs: usize,
    /// The rows without entries.
    empty: Buffer<Ordinal>,
    kernel: CooKernel,
}

impl<T> CudaCoo<T> {
    /// Which kernel forms products: [`CooKernel::Stored`] where the device was held to orders that the CPU shares when the matrix was
    /// loaded, else [`CooKernel::Parallel`].
    pub fn kernel(&self) -> CooKernel {
        self.kernel
    }

    /// The same matrix with products formed by `kernel` from now on.
    #[must_use]
    pub fn with_kernel(self, kernel: CooKernel) -> Self {
        Self { kernel, ..self }
    }
}

/// An empty vector with room for `len` elements.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn room<E: Pod>(len: usize, what: &'static str) -> Result<Vec<E>> {
    let mut host = Vec::new();
    let bytes = (len as u64).saturating_mul(size_of::<E>() as u64);
    host.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { device: "cpu", what, bytes })?;
    Ok(host)
}

/// Where each row begins, and which have no entries.
fn pointers(nrows: usize, rows: &[Ordinal]) -> Result<(Vec<Offset>, Vec<Ordinal>)> {
    let mut row_ptr = room(nrows + 1, "where rows begin")?;
    let mut empty = Vec::new();
    row_ptr.push(0);
    let mut at = 0;
    for run in rows.chunk_by(|a, b| a == b) {
        let row = run[0] as usize;
        empty.extend(row_ptr.len() as Ordinal - 1..run[0]);
        row_ptr.resize(row + 1, at as Offset);
        at += run.len();
        row_ptr.push(at as Offset);
    }
    empty.extend(row_ptr.len() as Ordinal - 1..nrows as Ordinal);
    row_ptr.resize(nrows + 1, at as Offset);
    Ok((row_ptr, empty))
}

/// Row, first and last interval (and 0) of each row that goes on from one interval in the next, most intervals first; `cut(at)` is the row
/// of the entries before and at `at`, if they are of one.
fn chains(nnz: usize, interval: usize, cut: impl Fn(usize) -> Option<Ordinal>) -> Vec<[u32; 4]> {
    let mut chains: Vec<[u32; 4]> = Vec::new();
    for (w, at) in (1u32..).zip((interval..nnz).step_by(interval)) {
        let Some(row) = cut(at) else { continue };
        match chains.last_mut() {
            Some(chain) if chain[0] == row => chain[2] = w,
            _ => chains.push([row, w - 1, w, 0]),
        }
    }
    chains.sort_by_key(|chain| Reverse(chain[2] - chain[1]));
    chains
}

/// What a matrix has beside its arrays: where rows begin, which are empty, the carries.
struct Parts<T> {
    row_ptr: Buffer<Offset>,
    interval: usize,
    heads: Buffer<T>,
    tails: Buffer<T>,
    chains: Buffer<[u32; 4]>,
    longs: usize,
    empty: Buffer<Ordinal>,
    kernel: CooKernel,
}

impl Cuda {
    fn coo_parts<T: Real>(
        &self,
        nnz: usize,
        row_ptr: Buffer<Offset>,
        empty: &[Ordinal],
        cut: impl Fn(usize) -> Option<Ordinal>,
    ) -> Result<Parts<T>> {
        let interval = STEP * (nnz / (STEP * WARPS * self.multiprocessors())).clamp(1, STEPS);
        let (chains, warps) = (chains(nnz, interval, cut), nnz.div_ceil(interval));
        Ok(Parts {
            row_ptr,
            interval,
            heads: Buffer::uninit(self.stream(), warps, "carries")?,
            tails: Buffer::uninit(self.stream(), warps, "carries")?,
            longs: chains.partition_point(|chain| chain[2] - chain[1] >= LONG),
            chains: Buffer::from_host(self.stream(), &chains, "the rows that are carried")?,
            empty: Buffer::from_host(self.stream(), empty, "the empty rows")?,
            kernel: if self.reproducible() { CooKernel::Stored } else { CooKernel::Parallel },
        })
    }
}

impl<T: Real> CudaCoo<T> {
    fn new(
        (nrows, ncols): (usize, usize),
        (rows, cols, values): (Buffer<Ordinal>, Buffer<Ordinal>, Buffer<T>),
        parts: Parts<T>,
    ) -> Self {
        let Parts { row_ptr, interval, heads, tails, chains, longs, empty, kernel } = parts;
        Self { nrows, ncols, rows, cols, values, row_ptr, interval, heads, tails, chains, longs, empty, kernel }
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Coo<T>> for Cuda {
    type Resident = CudaCoo<T>;

    fn load(&self, host: Arc<Coo<T>>) -> Result<CudaCoo<T>> {
        let rows = host.rows();
        let (row_ptr, empty) = pointers(host.nrows(), rows)?;
        let row_ptr = Buffer::from_host(self.stream(), &row_ptr, "where rows begin")?;
        let cut = |at: usize| (rows[at - 1] == rows[at]).then_some(rows[at]);
        let parts = self.coo_parts(host.nnz(), row_ptr, &empty, cut)?;
        let arrays = (
            Buffer::from_host(self.stream(), rows, "a matrix's rows")?,
            Buffer::from_host(self.stream(), host.cols(), "a matrix's columns")?,
            Buffer::from_host(self.stream(), host.values(), "a matrix's values")?,
        );
        Ok(CudaCoo::new((host.nrows(), host.ncols()), arrays, parts))
    }
}

impl<T: Real> Convert<Csr<T>, Coo<T>> for Cuda {
    /// Columns and values are copied, row numbers written; the host makes the carries of the row pointers, which it brings down.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaCoo<T>>> {
        let (nrows, ncols, nnz) = (from.nrows(), from.ncols(), from.nnz());
        let host = self.row_pointers(from)?;
        let (row_ptr, from_cols, from_values) = from.arrays();
        let empty: Vec<Ordinal> =
            (0..).zip(host.windows(2)).filter(|(_, row)| row[0] == row[1]).map(|(row, _)| row).collect();
        // The first end past an entry is that of its row.
        let cut = |at: usize| {
            let row = host.partition_point(|&begin| begin as usize <= at) - 1;
            ((host[row] as usize) < at).then_some(row as Ordinal)
        };
        let own_row_ptr = self.duplicate(row_ptr, nrows + 1, "where rows begin")?;
        let parts = self.coo_parts(nnz, own_row_ptr, &empty, cut)?;
        let rows = Buffer::<Ordinal>::uninit(self.stream(), nnz, "a matrix's rows")?;
        let cols = self.duplicate(from_cols, nnz, "a matrix's columns")?;
        let values = self.duplicate(from_values, nnz, "a matrix's values")?;
        let (begins, count, to) = (row_ptr.pointer(), nrows as u32, rows.pointer());
        let mut arguments = [arg(&begins), arg(&count), arg(&to)];
        // SAFETY: rows_from_csr_coo(row_ptr, nrows, rows), 256 rows a thread block of 8 warps.
        unsafe { self.launch::<T>(&COO, "rows_from_csr_coo", Grid::of(nrows.div_ceil(256), 256), &mut arguments)? };
        let (storage, spmv_bytes) = Coo::<T>::traffic_of(nrows, ncols, nnz);
        let resident = CudaCoo::new((nrows, ncols), (rows, cols, values), parts);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Spmv<Coo<T>> for Cuda {
    /// That of matrices as they are loaded; [`CudaCoo::with_kernel`] may choose the stored one.
    fn order(&self) -> Order {
        if self.reproducible() { Order::Stored } else { Order::Own }
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCoo<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv", "x", x.len(), m.ncols)?;
        expect_len("spmv", "y", y.len(), m.nrows)?;
        let (rows, cols, values) = (m.rows.pointer(), m.cols.pointer(), m.values.pointer());
        let (nnz, nrows, row_ptr) = (m.values.len() as u32, m.nrows as u64, m.row_ptr.pointer());
        let (a, b, x, y, gate) = (CoeffArg::from(a), CoeffArg::from(b), x.pointer(), y.pointer(), gate_pointer(gate));
        match m.kernel {
            CooKernel::Serial => {
                let mut arguments = [
                    arg(&rows),
                    arg(&cols),
                    arg(&values),
                    arg(&nnz),
                    arg(&nrows),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: spmv_serial_coo(rows, cols, values, nnz, nrows, a, x, b, y, gate), lengths compared above; one thread.
                unsafe { self.launch::<T>(&COO, "spmv_serial_coo", Grid::of(1, 1), &mut arguments) }
            }
            CooKernel::Stored => {
                let mut arguments = [
                    arg(&row_ptr),
                    arg(&cols),
                    arg(&values),
                    arg(&nrows),
                    arg(&a),
                    arg(&x),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                let grid = Grid::of(m.nrows.div_ceil(256), 256);
                // SAFETY: spmv_stored_coo(row_ptr, cols, values, nrows, a, x, b, y, gate), lengths compared above.
                unsafe { self.launch::<T>(&COO, "spmv_stored_coo", grid, &mut arguments) }
            }
            CooKernel::Parallel => {
                let (interval, heads, tails) = (m.interval as u32, m.heads.pointer(), m.tails.pointer());
                if nnz > 0 {
                    let mut arguments = [
                        arg(&rows),
                        arg(&cols),
                        arg(&values),
                        arg(&nnz),
                        arg(&interval),
                        arg(&heads),
                        arg(&tails),
                        arg(&a),
                        arg(&x),
                        arg(&b),
                        arg(&y),
                        arg(&gate),
                    ];
                    let grid = Grid::of(m.heads.len().div_ceil(8), 256);
                    // SAFETY: spmv_coo(rows, cols, values, nnz, interval, heads, tails, a, x, b, y, gate), lengths compared above;
                    // heads and tails have an element an interval, and only this queue's kernels use them.
                    unsafe { self.launch::<T>(&COO, "spmv_coo", grid, &mut arguments) }?;
                }
                let (count, longs, empties) = (m.chains.len(), m.longs, m.empty.len());
                let blocks = longs + (count - longs).div_ceil(256) + empties.div_ceil(1024);
                if blocks == 0 {
                    return Ok(());
                }
                let (chains, empty) = (m.chains.pointer(), m.empty.pointer());
                let (count, longs, empties) = (count as u32, longs as u32, empties as u32);
                let mut arguments = [
                    arg(&chains),
                    arg(&count),
                    arg(&longs),
                    arg(&heads),
                    arg(&tails),
                    arg(&empty),
                    arg(&empties),
                    arg(&a),
                    arg(&b),
                    arg(&y),
                    arg(&gate),
                ];
                // SAFETY: fold_coo(chains, count, longs, heads, tails, empty, empties, a, b, y, gate); chains and empty name rows of y
                // and intervals of heads and tails.
                unsafe { self.launch::<T>(&COO, "fold_coo", Grid::of(blocks, 256), &mut arguments) }
            }
        }
    }
}
