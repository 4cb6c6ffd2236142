//! CSR on the GPU.
//!
//! Layout: the host's arrays, `col_idx` and `values` at multiples of 16 bytes; for the balanced kernel also the pieces
//! of its warps. The lengths of the rows choose the kernel at load ([`CsrKernel`]), by the constants of `choose.rs`.
//!
//! Order: stored for the kernels with one lane per row, which are the only ones on a reproducible device; otherwise the
//! kernel's own order, with the same bits at every repetition. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//! Kernels: kernels/csr.cu.

mod choose;
pub(crate) mod classes;
mod load;
mod made;
pub(crate) mod marked;
mod narrow;
pub(crate) mod persistent;
pub(crate) mod wrap;

use std::sync::{Arc, OnceLock};

use spandrel_backend::error::expect_len;
use spandrel_backend::{
    Backend, Coeff, Download, Error, Gate, Load, Order, Result, Spmm, Spmv, SpmvTransposed, UpdateValues,
};
use spandrel_formats::{Csr, Offset, Ordinal, Real};

pub use self::choose::CsrKernel;
use self::choose::{GROUP, RowStats, STAGED_AHEAD, STAGED_WARPS};
use self::classes::{Bins, Classes, ClassesKernel};
pub(crate) use self::made::{MadeArrays, PatternMark, converted};
use self::marked::Marked;
pub use self::wrap::RawCsr;
use crate::error::NAME;
use crate::kernel::kernels;
use crate::launch::{BLOCK, Grid, Product, ProductDot, Update};
use crate::memory::{Address, Buffer};
use crate::persistent::Reach;
use crate::{Cuda, Scalar, Vector};

kernels! {
    struct SpmvStaged<T> {
        row_ptr: Address, col_idx: Address, values: Address, nrows: u32, nnz: u32, capacity: u32, ahead: u32,
        update: Update<T>,
    }
    in CSR { ANY: "spmv_csr", SWIZZLED: "spmv_swizzled_csr", SHORT: "spmv_short_csr" }

    struct SpmvDotStaged {
        row_ptr: Address, col_idx: Address, values: Address, nrows: u32, nnz: u32, capacity: u32,
        product: ProductDot,
    }
    in CSR { ANY: "spmv_dot_csr", SWIZZLED: "spmv_dot_swizzled_csr", SHORT: "spmv_dot_short_csr" }

    struct SpmvRows<T> { row_ptr: Address, col_idx: Address, values: Address, nrows: u32, update: Update<T> }
    in CSR {
        SCALAR: "spmv_scalar_csr",
        VECTOR_2: "spmv_vector2_csr",
        VECTOR_4: "spmv_vector4_csr",
        VECTOR_8: "spmv_vector8_csr",
        VECTOR_16: "spmv_vector16_csr",
        VECTOR_32: "spmv_vector32_csr",
        LONG_8: "spmv_long8_csr",
        LONG_16: "spmv_long16_csr",
        LONG_32: "spmv_long32_csr",
    }

    struct SpmvDotScalarCsr { row_ptr: Address, col_idx: Address, values: Address, nrows: u32, product: ProductDot }
    in CSR { ENTRY: "spmv_dot_scalar_csr" }

    struct SpmmCsr<T> {
        row_ptr: Address, col_idx: Address, values: Address, nrows: u32, ncols: u64, nnz: u32, capacity: u32, k: u64,
        product: Product<T>,
    }
    in CSR { ENTRY: "spmm_csr" }

    struct SpmvBinnedCsr<T> {
        col_idx: Address, values: Address, places: Address, classes: Classes, update: Update<T>,
    }
    in CSR { ENTRY: "spmv_binned_csr" }

    struct SpmvWideCsr<T> {
        col_idx: Address, values: Address, places: Address, classes: Classes, parts: Address, pieces: Address,
        tickets: Address, update: Update<T>,
    }
    in CSR { ENTRY: "spmv_wide_csr" }

    struct SpmvSplitCsr<T> {
        row_ptr: Address, col_idx: Address, values: Address, perm: Address, classes: Classes, parts: Address,
        pieces: Address, tickets: Address, update: Update<T>,
    }
    in CSR { ENTRY: "spmv_split_csr" }
}

/// A CSR matrix in device memory.
#[derive(Debug)]
pub struct CudaCsr<T> {
    nrows: usize,
    ncols: usize,
    nnz: usize,
    /// The pattern is never written again. A matrix in the other precision may share it.
    row_ptr: Arc<Buffer<u32>>,
    col_idx: Arc<Buffer<u32>>,
    values: Buffer<T>,
    kernel: CsrKernel,
    /// The number of entries in a warp's room in shared memory, and whether they are swizzled there (if rows of these
    /// lengths would begin in the same banks).
    capacity: usize,
    swizzled: bool,
    /// Whether no row is longer than [`SHORT`].
    short: bool,
    /// Whether a step requests all its loads at once if several lanes share a row.
    large: bool,
    /// Warps of a thread block that the staged product with a dot product has room for.
    dot_warps: usize,
    pieces: Option<Marked<T>>,
    bins: Option<Bins<T>>,
    /// If it is square and small enough for a persistent solve: how far entries lie from the main diagonal, and the
    /// largest mean number of entries per row over groups of `PERSISTENT_ROWS`.
    reach: Option<(Reach, usize)>,
    stats: RowStats,
    /// The transpose; made by the first product with it.
    transposed: OnceLock<Box<CudaCsr<T>>>,
    /// Whether recorded steps may overwrite the values at any time, so that a stored transpose would become outdated.
    rewritten: bool,
}

/// A grid with dynamic shared memory. Near 48 KiB it requests slightly more: with the few static bytes of a kernel, the
/// total would need the larger limit, but launches request that only above 48 KiB of dynamic memory.
pub(crate) fn with_shared(grid: Grid, bytes: usize) -> Grid {
    let bytes = if bytes > 47 << 10 { bytes.max((48 << 10) + 16) } else { bytes };
    Grid { shared: bytes as u32, ..grid }
}

impl Cuda {
    /// Loads a CSR matrix and uses the given kernel for its products, even if another would suit better. Allocates.
    /// Must not be recorded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a number of lanes that is not 2, 4, 8, 16 or 32, and for a kernel of its own order on
    /// a [reproducible](Cuda::with_reproducible) device; [`Error::OutOfMemory`].
    pub fn load_csr_with<T: Real>(&self, host: &Csr<T>, kernel: CsrKernel) -> Result<CudaCsr<T>> {
        let refuse = |why: String| Err(Error::Unsupported { op: "load", noun: "csr", why });
        if let CsrKernel::Vector(lanes) = kernel
            && !matches!(lanes, 2 | 4 | 8 | 16 | 32)
        {
            return refuse(format!("{lanes} lanes per row: take 2, 4, 8, 16 or 32"));
        }
        if self.reproducible() && !kernel.stored() {
            return refuse(format!("{kernel:?} sums in its own order, and the device is restricted to the stored one"));
        }
        self.load_csr(host, Some(kernel))
    }
}

impl<T: Real> CudaCsr<T> {
    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Number of stored entries.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The kernel that multiplies.
    pub fn kernel(&self) -> CsrKernel {
        self.kernel
    }

    /// Lanes per row and rows of each class of [`CsrKernel::Binned`]; nothing for other kernels. Blocks.
    #[doc(hidden)] // for trials
    pub fn rows_by_lanes(&self) -> Result<Vec<(u32, Vec<u32>)>> {
        self.bins.as_ref().map_or(Ok(Vec::new()), Bins::rows_by_lanes)
    }

    /// The `nrows` + 1 row pointers and the `nnz` columns, copied from the device. Blocks. Must not be recorded.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] of the host; those of the driver.
    pub fn download_pattern(&self) -> Result<(Vec<Offset>, Vec<Ordinal>)> {
        let row_ptr = self.row_ptr.to_host("a matrix's row pointers")?;
        Ok((row_ptr, self.col_idx.to_host("a matrix's columns")?))
    }

    /// Overwrites the `nnz` values, in the order of the entries.
    ///
    /// The pattern stays, and the next transposed product computes its transpose again. Enqueues, and returns once the
    /// host's data has been read. Must not be recorded.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are `nnz`; [`Error::Device`] while a step is recorded.
    pub fn update_values(&mut self, device: &Cuda, values: &[T]) -> Result<()> {
        expect_len("update_values", "values", values.len(), self.nnz)?;
        not_recorded(device, "values from the host")?;
        self.transposed.take();
        self.values.write_at(0, values)
    }

    /// As [`CudaCsr::update_values`], with values in device memory. Enqueues a copy and does not block. If a wrapped
    /// matrix has these values in place already, nothing is copied.
    ///
    /// # Errors
    /// As [`CudaCsr::update_values`].
    pub fn update_values_from(&mut self, device: &Cuda, values: &Vector<T>) -> Result<()> {
        expect_len("update_values_from", "values", values.len(), self.nnz)?;
        not_recorded(device, "new values of a matrix")?;
        self.transposed.take();
        self.values.copy_first(values.buffer(), self.nnz)
    }

    /// The transpose, made on the device at the first call.
    fn transpose(&self, cuda: &Cuda) -> Result<&Self> {
        if let Some(transposed) = self.transposed.get() {
            return Ok(transposed);
        }
        not_recorded(cuda, "the first product with a transpose, which stores it,")?;
        if self.rewritten {
            let why = "recorded steps give this matrix new values, which a stored transpose would not follow: make the transpose a matrix \
                       of its own";
            return Err(Error::Unsupported { op: "spmv_transposed", noun: "csr", why: why.into() });
        }
        let host = cuda.download_matrix(self)?;
        let transposed = host.try_transpose()?;
        drop(host);
        let transposed = Box::new(cuda.load_csr(&transposed, None)?);
        Ok(self.transposed.get_or_init(|| transposed))
    }

    /// The distance of entries from the main diagonal, if the matrix is square and small enough for a persistent solve.
    pub(crate) fn reach(&self) -> Option<Reach> {
        self.reach.map(|(reach, _)| reach)
    }

    /// Row pointers, columns and values, for conversions on the device. Each array is complete, whatever the kernel of
    /// products.
    pub(crate) fn arrays(&self) -> (&Buffer<Offset>, &Buffer<u32>, &Buffer<T>) {
        (&self.row_ptr, &self.col_idx, &self.values)
    }

    fn staging(&self, warps: usize) -> usize {
        warps * self.capacity * (size_of::<u32>() + T::BYTES)
    }

    /// y <- a A x + b y.
    fn product(&self, cuda: &Cuda, product: Product<T>) -> Result<()> {
        match (self.kernel, &self.pieces) {
            (CsrKernel::Balanced, Some(pieces)) => {
                let matrix = (self.col_idx.pointer(), self.values.pointer(), self.nnz);
                // SAFETY: the pieces of this matrix, whose arrays are aligned.
                unsafe { pieces.launch(&product, cuda, matrix) }
            }
            _ => self.update(cuda, product.into()),
        }
    }

    /// y <- a A x + b z, with a kernel other than [`CsrKernel::Balanced`].
    fn update(&self, cuda: &Cuda, update: Update<T>) -> Result<()> {
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        let nrows = self.nrows as u32;
        match self.kernel {
            CsrKernel::Binned => {
                let Some(bins) = &self.bins else { return Ok(()) };
                let (grid, classes, places) = (Grid::of(bins.blocks(), 256), bins.classes, bins.places.pointer());
                let (perm, [parts, pieces, tickets]) = (bins.perm.pointer(), bins.parts.pointers());
                // SAFETY: the arrays of the matrix, the thread blocks of all classes; `places` or `perm` as the kernel
                // expects; the caller vouches for the product.
                unsafe {
                    match bins.kernel {
                        ClassesKernel::Whole => {
                            let parameters = SpmvBinnedCsr { col_idx, values, places, classes, update };
                            cuda.launch::<T, _>(SpmvBinnedCsr::ENTRY, grid, &parameters)
                        }
                        ClassesKernel::Wide => {
                            let parameters =
                                SpmvWideCsr { col_idx, values, places, classes, parts, pieces, tickets, update };
                            cuda.launch::<T, _>(SpmvWideCsr::ENTRY, grid, &parameters)
                        }
                        ClassesKernel::Split => {
                            let parameters = SpmvSplitCsr {
                                row_ptr,
                                col_idx,
                                values,
                                perm,
                                classes,
                                parts,
                                pieces,
                                tickets,
                                update,
                            };
                            cuda.launch::<T, _>(SpmvSplitCsr::ENTRY, grid, &parameters)
                        }
                    }
                }
            }
            CsrKernel::Staged => {
                let grid = Grid::of(self.nrows.div_ceil(GROUP * STAGED_WARPS), 32 * STAGED_WARPS as u32);
                let grid = with_shared(grid, self.staging(STAGED_WARPS));
                let entry = match (self.swizzled, self.short) {
                    (true, _) => SpmvStaged::SWIZZLED,
                    (_, true) => SpmvStaged::SHORT,
                    _ => SpmvStaged::ANY,
                };
                let ahead = (STAGED_AHEAD * cuda.multiprocessors()) as u32;
                let (nnz, capacity) = (self.nnz as u32, self.capacity as u32);
                let parameters = SpmvStaged { row_ptr, col_idx, values, nrows, nnz, capacity, ahead, update };
                // SAFETY: the arrays of the matrix; one warp per 32 rows, with room for `capacity` entries; the caller
                // vouches for the product.
                unsafe { cuda.launch::<T, _>(entry, grid, &parameters) }
            }
            CsrKernel::Scalar | CsrKernel::Vector(_) | CsrKernel::Balanced => {
                let (entry, lanes) = match (self.kernel, self.large) {
                    (CsrKernel::Vector(2), _) => (SpmvRows::VECTOR_2, 2),
                    (CsrKernel::Vector(4), _) => (SpmvRows::VECTOR_4, 4),
                    (CsrKernel::Vector(8), false) => (SpmvRows::VECTOR_8, 8),
                    (CsrKernel::Vector(8), true) => (SpmvRows::LONG_8, 8),
                    (CsrKernel::Vector(16), false) => (SpmvRows::VECTOR_16, 16),
                    (CsrKernel::Vector(16), true) => (SpmvRows::LONG_16, 16),
                    (CsrKernel::Vector(_), false) => (SpmvRows::VECTOR_32, 32),
                    (CsrKernel::Vector(_), true) => (SpmvRows::LONG_32, 32),
                    _ => (SpmvRows::SCALAR, 0),
                };
                let grid = match lanes {
                    0 => Grid::rows(self.nrows),
                    lanes => Grid::of(self.nrows.div_ceil(256 / lanes), 256),
                };
                // SAFETY: the arrays of the matrix; 1024 rows per thread block, or 256 threads with as many lanes per
                // row as the kernel's name says; the caller vouches for the product.
                unsafe { cuda.launch::<T, _>(entry, grid, &SpmvRows { row_ptr, col_idx, values, nrows, update }) }
            }
        }
    }

    /// The trait's operation under the name `op`, for CSR and formats that are stored as CSR.
    pub(crate) fn spmv(
        &self,
        op: &'static str,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        self.product(cuda, Product::named(op, (self.nrows, self.ncols), gate, a, x, b, y)?)
    }

    /// r <- b - A x.
    pub(crate) fn residual(
        &self,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        b: &Vector<T>,
        x: &Vector<T>,
        r: &mut Vector<T>,
    ) -> Result<()> {
        if self.kernel == CsrKernel::Balanced {
            cuda.copy(gate, b, r)?;
            return self.spmv("residual", cuda, gate, Coeff::host(-T::one()), x, Coeff::one(), r);
        }
        self.update(cuda, Update::residual((self.nrows, self.ncols), gate, b, x, r)?)
    }

    pub(crate) fn spmv_dot(
        &self,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        expect_len("spmv_dot", "x", x.len(), self.ncols)?;
        expect_len("spmv_dot", "y", y.len(), self.nrows)?;
        expect_len("spmv_dot", "w", w.len(), self.nrows)?;
        if !self.kernel.stored() {
            self.spmv("spmv_dot", cuda, gate, Coeff::one(), x, Coeff::zero(), y)?;
            return cuda.dots(gate, w, y, wy, yy);
        }
        let product = ProductDot::new(cuda, (self.nrows, self.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        let nrows = self.nrows as u32;
        if self.kernel == CsrKernel::Scalar {
            let parameters = SpmvDotScalarCsr { row_ptr, col_idx, values, nrows, product };
            // SAFETY: the arrays of the matrix; the lengths of x, y and w were compared.
            unsafe { cuda.launch::<T, _>(SpmvDotScalarCsr::ENTRY, Grid::rows(self.nrows), &parameters)? };
            return cuda.complete_dots(gate, self.nrows, wy, yy);
        }
        let grid = Grid::of(self.nrows.div_ceil(BLOCK), 32 * self.dot_warps as u32);
        let grid = with_shared(grid, 2 * BLOCK * T::BYTES + self.staging(self.dot_warps));
        let entry = match (self.swizzled, self.short) {
            (true, _) => SpmvDotStaged::SWIZZLED,
            (_, true) => SpmvDotStaged::SHORT,
            _ => SpmvDotStaged::ANY,
        };
        let (nnz, capacity) = (self.nnz as u32, self.capacity as u32);
        let parameters = SpmvDotStaged { row_ptr, col_idx, values, nrows, nnz, capacity, product };
        // SAFETY: the arrays of the matrix, 1024 rows per thread block, with room for their y and w and for `capacity`
        // entries per warp; the lengths of x, y and w were compared.
        unsafe { cuda.launch::<T, _>(entry, grid, &parameters)? };
        cuda.complete_dots(gate, self.nrows, wy, yy)
    }

    pub(crate) fn spmv_transposed(
        &self,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv_transposed", "x", x.len(), self.nrows)?;
        expect_len("spmv_transposed", "y", y.len(), self.ncols)?;
        self.transpose(cuda)?.spmv("spmv_transposed", cuda, gate, a, x, b, y)
    }
}

/// # Errors
/// [`Error::Device`] while a step is recorded.
pub(crate) fn not_recorded(cuda: &Cuda, what: &str) -> Result<()> {
    if cuda.is_capturing() {
        let why = format!("{what} cannot be part of a recorded step: do it once before recording");
        return Err(Error::Device { device: NAME, why });
    }
    Ok(())
}

// SAFETY: the memory that its operations use is allocated here, and stays in place until it is dropped. The transpose
// is made only outside of recorded steps, and replaced only behind `&mut`.
unsafe impl<T: Real> Load<Csr<T>> for Cuda {
    type Resident = CudaCsr<T>;

    fn load(&self, host: Arc<Csr<T>>) -> Result<CudaCsr<T>> {
        self.load_csr(&host, None)
    }
}

/// The order of kernels that are chosen by the rows.
pub(crate) fn order(cuda: &Cuda) -> Order {
    if cuda.reproducible() { Order::Stored } else { Order::Own }
}

impl<T: Real> Spmv<Csr<T>> for Cuda {
    fn order(&self) -> Order {
        order(self)
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsr<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.spmv("spmv", self, gate, a, x, b, y)
    }

    fn residual(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaCsr<T>,
        b: &Vector<T>,
        x: &Vector<T>,
        r: &mut Vector<T>,
    ) -> Result<()> {
        m.residual(self, gate, b, x, r)
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaCsr<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        m.spmv_dot(self, gate, x, y, w, wy, yy)
    }
}

impl<T: Real> SpmvTransposed<Csr<T>> for Cuda {
    fn transposed_order(&self) -> Order {
        order(self)
    }

    /// The first call stores the transpose on the device, with the kernel that suits its own rows. It waits, allocates
    /// and must not be recorded.
    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsr<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        m.spmv_transposed(self, gate, a, x, b, y)
    }
}

impl<T: Real> Spmm<Csr<T>> for Cuda {
    /// Kernels with the stored order take four columns at a time; others form one product per column.
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaCsr<T>,
        k: usize,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let shape = (m.nrows, m.ncols);
        let product = Product::of_columns(shape, k, gate, a, x, b, y)?;
        if !m.kernel.stored() {
            return (0..k).try_for_each(|column| m.product(self, product.of_column(shape, column)));
        }
        let (row_ptr, col_idx, values) = (m.row_ptr.pointer(), m.col_idx.pointer(), m.values.pointer());
        let grid = Grid::of(m.nrows.div_ceil(GROUP * STAGED_WARPS), 32 * STAGED_WARPS as u32);
        let grid = with_shared(grid, m.staging(STAGED_WARPS));
        let parameters = SpmmCsr {
            row_ptr,
            col_idx,
            values,
            nrows: m.nrows as u32,
            ncols: m.ncols as u64,
            nnz: m.nnz as u32,
            capacity: m.capacity as u32,
            k: k as u64,
            product,
        };
        // SAFETY: the arrays of the matrix; one warp per 32 rows, with room for `capacity` entries; the lengths of x
        // and y, of k columns, were compared.
        unsafe { self.launch::<T, _>(SpmmCsr::ENTRY, grid, &parameters) }
    }
}

impl<T: Real> UpdateValues<Csr<T>> for Cuda {
    fn update_values(&self, m: &mut CudaCsr<T>, values: &[T]) -> Result<()> {
        m.update_values(self, values)
    }
    fn update_values_from(&self, m: &mut CudaCsr<T>, values: &Vector<T>) -> Result<()> {
        m.update_values_from(self, values)
    }
}
