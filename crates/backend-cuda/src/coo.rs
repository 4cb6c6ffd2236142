//! COO on the GPU.
//!
//! Layout: the host's, padded to a multiple of four entries, and the start of each row, which the stored order needs.
//! For the parallel product the rows are cut at load into pieces of whole rows, one per warp. Long rows are cut into
//! parts, one per thread block. Empty rows are in a list.
//!
//! Order: own for [`CooKernel::Parallel`], stored for the others; all repeat their bits. Cost:
//! [`spandrel_formats::Traffic::spmv_bytes`]; [`CooKernel::Stored`] reads the starts of rows instead of row numbers.
//! Kernels: kernels/coo.cu.
//!
//! Reference: Bell & Garland, Efficient sparse matrix-vector multiplication on CUDA, 2008, section 4.4, whose warps cut
//! rows and carry the rest into a second kernel.

use std::sync::Arc;

use bytemuck::Pod;
use spandrel_backend::{Coeff, Convert, Converted, Error, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Coo, Csr, Offset, Ordinal, Real};

use crate::kernel::kernels;
use crate::launch::{Grid, Product};
use crate::memory::{Address, Buffer};
use crate::persistent::Persists;
use crate::pieces::{EACH, Pieces, PiecesParameters, cut};
use crate::{Cuda, CudaCsr, Scalar, Vector};

kernels! {
    struct SpmvCoo<T> {
        rows: Address, cols: Address, values: Address, work: PiecesParameters, product: Product<T>,
    }
    in COO { ENTRY: "spmv_coo" }

    struct SpmvSerialCoo<T> {
        rows: Address, cols: Address, values: Address, nnz: u32, nrows: u64, product: Product<T>,
    }
    in COO { ENTRY: "spmv_serial_coo" }

    struct SpmvStoredCoo<T> { row_ptr: Address, cols: Address, values: Address, nrows: u64, product: Product<T> }
    in COO { ENTRY: "spmv_stored_coo" }

    pub(crate) struct RowsFromCsrCoo { row_ptr: Address, nrows: u32, rows: Address }
    in COO { ENTRY: "rows_from_csr_coo" }
}

/// The entries that a warp takes in one step.
const STEP: usize = 32 * EACH;
/// The largest number of steps in a piece.
const STEPS: usize = 16;
/// From this many entries per multiprocessor on, pieces have two steps, and four; rows with dozens of entries fill them
/// better. From this many entries per step on, pieces grow further, until there are warps for twice the device's
/// threads.
const TWO_STEPS: usize = 3 << 10;
const FOUR_STEPS: usize = 9 << 10;
const MORE_STEPS: usize = STEP * 128;

/// Entries of a piece, given the entries per multiprocessor.
fn piece_of(entries: usize) -> usize {
    let steps = match entries {
        ..TWO_STEPS => 1,
        TWO_STEPS..FOUR_STEPS => 2,
        _ => (entries / MORE_STEPS).clamp(4, STEPS),
    };
    STEP * steps
}

/// The kernel of a product with a COO matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CooKernel {
    /// One warp per piece of whole rows, summed by segments of equal row; one thread block per part of a long row.
    #[default]
    Parallel,
    /// One thread, entry by entry: the reference for comparisons. Stored order.
    Serial,
    /// One thread per row; a warp loads the entries of its rows side by side. Stored order.
    Stored,
}

/// A COO matrix in device memory.
#[derive(Debug)]
pub struct CudaCoo<T> {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    rows: Buffer<Ordinal>,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    row_ptr: Buffer<Offset>,
    pieces: Pieces<[u32; 2], T>,
    kernel: CooKernel,
}

impl<T> CudaCoo<T> {
    /// The kernel of products: [`CooKernel::Stored`] if the device was reproducible when the matrix was loaded, else
    /// [`CooKernel::Parallel`].
    pub fn kernel(&self) -> CooKernel {
        self.kernel
    }

    /// The same matrix, with `kernel` for its products from now on.
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

/// The start of each row.
fn pointers(nrows: usize, rows: &[Ordinal]) -> Result<Vec<Offset>> {
    let mut row_ptr = room(nrows + 1, "where rows begin")?;
    row_ptr.push(0);
    let mut at = 0;
    for run in rows.chunk_by(|a, b| a == b) {
        row_ptr.resize(run[0] as usize + 1, at as Offset);
        at += run.len();
        row_ptr.push(at as Offset);
    }
    row_ptr.resize(nrows + 1, at as Offset);
    Ok(row_ptr)
}

/// What a matrix has in addition to its arrays.
struct Plan<T> {
    row_ptr: Buffer<Offset>,
    pieces: Pieces<[u32; 2], T>,
    kernel: CooKernel,
}

impl Cuda {
    fn coo_plan<T: Real>(&self, row_ptr: Buffer<Offset>, host: &[Offset]) -> Result<Plan<T>> {
        let nnz = host.last().map_or(0, |&nnz| nnz as usize);
        let piece = piece_of(nnz / self.multiprocessors());
        // A row of two pieces still fits one warp.
        let cut = cut(host, piece, 2 * piece);
        Ok(Plan {
            row_ptr,
            pieces: Pieces::new(self, &cut, &cut.pieces, piece)?,
            kernel: if self.reproducible() { CooKernel::Stored } else { CooKernel::Parallel },
        })
    }
}

impl<T: Real> CudaCoo<T> {
    fn new(
        (nrows, ncols, nnz): (usize, usize, usize),
        (rows, cols, values): (Buffer<Ordinal>, Buffer<Ordinal>, Buffer<T>),
        plan: Plan<T>,
    ) -> Self {
        let Plan { row_ptr, pieces, kernel } = plan;
        Self { nrows, ncols, nnz, rows, cols, values, row_ptr, pieces, kernel }
    }
}

/// Memory for `len` elements, and zeros up to a multiple of [`EACH`].
fn padded_room<E: Pod>(cuda: &Cuda, len: usize, what: &'static str) -> Result<Buffer<E>> {
    let buffer = Buffer::uninit(cuda.stream(), len.next_multiple_of(EACH), what)?;
    buffer.clear_from(len)?;
    Ok(buffer)
}

/// Host data and zeros up to a multiple of [`EACH`] elements.
fn padded<E: Pod>(cuda: &Cuda, host: &[E], what: &'static str) -> Result<Buffer<E>> {
    let buffer = padded_room(cuda, host.len(), what)?;
    buffer.write_at(0, host)?;
    Ok(buffer)
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Coo<T>> for Cuda {
    type Resident = CudaCoo<T>;

    fn load(&self, host: Arc<Coo<T>>) -> Result<CudaCoo<T>> {
        let rows = host.rows();
        let begins = pointers(host.nrows(), rows)?;
        let row_ptr = Buffer::from_host(self.stream(), &begins, "where rows begin")?;
        let plan = self.coo_plan(row_ptr, &begins)?;
        let arrays = (
            padded(self, rows, "a matrix's rows")?,
            padded(self, host.cols(), "a matrix's columns")?,
            padded(self, host.values(), "a matrix's values")?,
        );
        Ok(CudaCoo::new((host.nrows(), host.ncols(), host.nnz()), arrays, plan))
    }
}

impl<T: Real> Convert<Csr<T>, Coo<T>> for Cuda {
    /// The device copies columns and values and writes row numbers; the host downloads the row pointers and cuts the
    /// rows.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaCoo<T>>> {
        let (nrows, ncols, nnz) = (from.nrows(), from.ncols(), from.nnz());
        let host = self.row_pointers(from)?;
        let (row_ptr, from_cols, from_values) = from.arrays();
        let own_row_ptr = self.duplicate(row_ptr, nrows + 1, "where rows begin")?;
        let plan = self.coo_plan(own_row_ptr, &host)?;
        let rows = padded_room::<Ordinal>(self, nnz, "a matrix's rows")?;
        let cols = padded_room(self, nnz, "a matrix's columns")?;
        cols.copy_first(from_cols, nnz)?;
        let values = padded_room(self, nnz, "a matrix's values")?;
        values.copy_first(from_values, nnz)?;
        let (begins, count, to) = (row_ptr.pointer(), nrows as u32, rows.pointer());
        let parameters = RowsFromCsrCoo { row_ptr: begins, nrows: count, rows: to };
        // SAFETY: rows_from_csr_coo(row_ptr, nrows, rows), 256 rows per thread block of 8 warps.
        unsafe { self.launch::<T, _>(RowsFromCsrCoo::ENTRY, Grid::of(nrows.div_ceil(256), 256), &parameters)? };
        let (storage, spmv_bytes) = Coo::<T>::traffic_of(nrows, ncols, nnz);
        let resident = CudaCoo::new((nrows, ncols, nnz), (rows, cols, values), plan);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Persists<T> for CudaCoo<T> {}

impl<T: Real> Spmv<Coo<T>> for Cuda {
    /// The order of matrices as they are loaded. [`CudaCoo::with_kernel`] may choose the stored one.
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
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let (rows, cols, values) = (m.rows.pointer(), m.cols.pointer(), m.values.pointer());
        match m.kernel {
            CooKernel::Serial => {
                let (nnz, nrows) = (m.nnz as u32, m.nrows as u64);
                let parameters = SpmvSerialCoo { rows, cols, values, nnz, nrows, product };
                // SAFETY: the arrays of the matrix, one thread; the lengths of x and y were compared.
                unsafe { self.launch::<T, _>(SpmvSerialCoo::ENTRY, Grid::of(1, 1), &parameters) }
            }
            CooKernel::Stored => {
                let (row_ptr, nrows) = (m.row_ptr.pointer(), m.nrows as u64);
                let parameters = SpmvStoredCoo { row_ptr, cols, values, nrows, product };
                let grid = Grid::of(m.nrows.div_ceil(256), 256);
                // SAFETY: the arrays of the matrix; the lengths of x and y were compared.
                unsafe { self.launch::<T, _>(SpmvStoredCoo::ENTRY, grid, &parameters) }
            }
            CooKernel::Parallel => {
                let Some((grid, work)) = m.pieces.work() else { return Ok(()) };
                let parameters = SpmvCoo { rows, cols, values, work, product };
                // SAFETY: the pieces of this matrix, whose arrays are padded; the lengths of x and y were compared.
                unsafe { self.launch::<T, _>(SpmvCoo::ENTRY, grid, &parameters) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_with_the_matrix() {
        let steps = |nnz: usize| piece_of(nnz / 132) / STEP;
        assert_eq!([100_000, 405_503, 405_504, 1_216_511, 1_216_512].map(steps), [1, 1, 2, 2, 4]);
        assert_eq!([10_813_439, 10_813_440, 14_600_000, 450_000_000].map(steps), [4, 5, 6, 16]);
    }

    #[test]
    fn rows_begin_where_their_entries_do() {
        assert_eq!(pointers(6, &[1, 1, 4]).unwrap(), [0, 0, 2, 2, 2, 3, 3]);
        assert_eq!(pointers(0, &[]).unwrap(), [0]);
        assert_eq!(pointers(2, &[]).unwrap(), [0, 0, 0]);
    }
}
