//! ELL on the GPU, and the limits and grids of the formats whose packed rows continue in tails.
//!
//! Layout: the host's. Order: stored. Cost: [`spandrel_formats::Traffic::spmv_bytes`]. Kernels: kernels/ell.cu.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{BicgstabIterations, CgIterations, Coeff, Convert, Converted, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Csr, Ell, Ordinal, PADDING, Real};

use crate::csr::not_recorded;
use crate::kernel::{kernels, parameters};
use crate::launch::{BLOCK, Grid, Product, ProductDot};
use crate::memory::{Address, Buffer};
use crate::persistent::{BicgstabParameters, CgParameters, Persists, Reach, Resident};
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

parameters! {
    /// What kernels take of a matrix.
    struct MatrixParameters { cols: Address, values: Address, width: u32 }
}

kernels! {
    struct SpmvEll<T> { matrix: MatrixParameters, nrows: u64, product: Product<T> }
    in ELL { MANY: "spmv_ell", SMALL: "spmv_small_ell", FEW: "spmv_few_ell" }

    struct SpmvDotEll { matrix: MatrixParameters, nrows: u64, product: ProductDot }
    in ELL { MANY: "spmv_dot_ell", SMALL: "spmv_dot_small_ell" }

    struct CgEll { matrix: MatrixParameters, solve: CgParameters }
    in ELL { ENTRY: "cg_ell" }

    struct BicgstabEll { matrix: MatrixParameters, solve: BicgstabParameters }
    in ELL { ENTRY: "bicgstab_ell" }

    struct LongestRowEll { row_ptr: Address, nrows: u32, longest: Address }
    in ELL { ENTRY: "longest_row_ell" }

    struct FillFromCsrEll {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, width: u32, out_cols: Address,
        out_values: Address,
    }
    in ELL { ENTRY: "fill_from_csr_ell" }
}

/// A warp sums a row whose tail has this many entries or more, else a thread.
pub(crate) const HEAVY: usize = 32;
/// A thread block sums a row whose tail has this many entries or more.
pub(crate) const LONG: usize = 2048;

/// The length of a tail from which a warp sums the row, if several lanes sum the others, and from which a thread block
/// does.
pub(crate) const HEAVY_OF_LANES: usize = 64;
pub(crate) const LONG_OF_LANES: usize = 1024;
/// The smallest number of places per lane of a row.
const PLACES_A_LANE: usize = 3;
/// The largest number of lanes per multiprocessor: half of what it holds, because more only wait for each other.
const LANES: usize = 1024;
/// Threads of a thread block of `spmv_lanes_rows`.
const LANES_THREADS: usize = 256;

/// The number of lanes of a light row, as a power of two: 0 if rows are short or fill the device with one thread each.
/// `places` is the length of the longest light row.
fn lanes_shift(nrows: usize, places: usize, multiprocessors: usize) -> u32 {
    let most = LANES * multiprocessors / nrows.max(1);
    most.min(places / PLACES_A_LANE).clamp(1, 32).ilog2()
}

impl Cuda {
    /// The number of lanes per row of a matrix with tails, as a power of two. It is 0 (one lane, the stored order) if
    /// results must be reproducible or if places do not fit 32 bits.
    pub(crate) fn lanes_shift(&self, nrows: usize, packed: usize, longest_tail: usize, stored: usize) -> u32 {
        if self.reproducible() || u32::try_from(stored).is_err() {
            return 0;
        }
        lanes_shift(nrows, packed + longest_tail.min(HEAVY_OF_LANES), self.multiprocessors())
    }

    /// The grid of `spmv_lanes_rows`.
    pub(crate) fn lanes_grid(longs: usize, heavy: usize, light: usize, shift: u32) -> Grid {
        let warps = (heavy - longs).div_ceil(LANES_THREADS / 32);
        Grid::of(longs + warps + light.div_ceil(LANES_THREADS >> shift), LANES_THREADS as u32)
    }

    /// The grid of `spmv_tailed_rows`: a thread block per long row, a warp per further heavy row, and a thread per
    /// other row.
    pub(crate) fn tailed_grid(&self, longs: usize, heavy: usize, light: usize) -> Grid {
        let threads = if longs == 0 && self.spreads_thin(light) { 128 } else { 256 };
        Grid::of(longs + (heavy - longs).div_ceil(threads / 32) + light.div_ceil(threads), threads as u32)
    }

    /// Whether there are so few rows that four per thread would leave multiprocessors partly empty.
    pub(crate) fn spreads_thin(&self, nrows: usize) -> bool {
        nrows < 16 * BLOCK * self.multiprocessors()
    }

    /// Whether there are so few blocks of 1024 rows that each can have a whole multiprocessor.
    pub(crate) fn few_blocks(&self, nrows: usize) -> bool {
        nrows.div_ceil(BLOCK) <= 2 * self.multiprocessors()
    }
}

/// An ELL matrix in device memory.
#[derive(Debug)]
pub struct CudaEll<T> {
    nrows: usize,
    ncols: usize,
    width: u32,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    /// Where it is square and small enough for a persistent solve.
    reach: Option<Reach>,
}

impl<T: Real> CudaEll<T> {
    /// Columns, values and width.
    fn parameters(&self) -> MatrixParameters {
        MatrixParameters { cols: self.cols.pointer(), values: self.values.pointer(), width: self.width }
    }

    fn persistent(&self) -> Option<Resident> {
        self.reach.map(|reach| Resident {
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            fixed: 0,
            units: self.width as usize,
            unit: T::BYTES + size_of::<Ordinal>(),
        })
    }
}

/// How far the entries of packed rows lie from the main diagonal.
fn reach(cols: &[Ordinal], nrows: usize) -> Reach {
    let column = |cols: &[Ordinal]| {
        let entries = cols.iter().enumerate().filter(|&(_, &j)| j != PADDING);
        entries.fold(Reach::default(), |reach, (row, &j)| reach.or(Reach::of(row, j as usize)))
    };
    cols.par_chunks(nrows.max(1)).map(column).reduce(Reach::default, Reach::or)
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Ell<T>> for Cuda {
    type Resident = CudaEll<T>;

    fn load(&self, host: Arc<Ell<T>>) -> Result<CudaEll<T>> {
        let cols = Buffer::from_host(self.stream(), host.cols(), "a matrix's columns")?;
        let values = Buffer::from_host(self.stream(), host.values(), "a matrix's values")?;
        let (nrows, ncols, width) = (host.nrows(), host.ncols(), host.width() as u32);
        let reach = self.may_persist(nrows, ncols).then(|| reach(host.cols(), nrows));
        Ok(CudaEll { nrows, ncols, width, cols, values, reach })
    }
}

impl<T: Real> Convert<Csr<T>, Ell<T>> for Cuda {
    /// Finds the length of the longest row, for which the host waits, then packs. Every position is written once.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaEll<T>>> {
        not_recorded(self, "a conversion")?;
        let (nrows, ncols, nnz) = (from.nrows(), from.ncols(), from.nnz());
        let (row_ptr, from_cols, from_values) = from.arrays();
        let (row_ptr, from_cols, from_values) = (row_ptr.pointer(), from_cols.pointer(), from_values.pointer());
        let longest = Buffer::<u32>::zeros(self.stream(), 1, "the longest row")?;
        let (rows, to) = (nrows as u32, longest.pointer());
        let grid = Grid::of(nrows.div_ceil(BLOCK).min(8 * self.multiprocessors()), 256);
        let parameters = LongestRowEll { row_ptr, nrows: rows, longest: to };
        // SAFETY: longest_row_ell(row_ptr, nrows, longest), which was 0.
        unsafe { self.launch::<T, _>(LongestRowEll::ENTRY, grid, &parameters)? };
        let mut width = [0];
        longest.read_at(0, &mut width)?;
        let [width] = width;
        Ell::<T>::check_storage(nrows, width as usize, nnz)?;
        let positions = nrows * width as usize;
        let cols = Buffer::<Ordinal>::uninit(self.stream(), positions, "a matrix's columns")?;
        let values = Buffer::<T>::uninit(self.stream(), positions, "a matrix's values")?;
        let (to_cols, to_values) = (cols.pointer(), values.pointer());
        let parameters = FillFromCsrEll {
            row_ptr,
            cols: from_cols,
            values: from_values,
            nrows: rows,
            width,
            out_cols: to_cols,
            out_values: to_values,
        };
        // SAFETY: fill_from_csr_ell(row_ptr, cols, values, nrows, width, out_cols, out_values), no row longer than
        // width.
        unsafe { self.launch::<T, _>(FillFromCsrEll::ENTRY, self.walk_grid(nrows), &parameters)? };
        let (storage, spmv_bytes) = Ell::<T>::traffic_of(nrows, ncols, width as usize, nnz);
        Ok(Converted {
            resident: CudaEll { nrows, ncols, width, cols, values, reach: from.reach() },
            nnz,
            storage,
            spmv_bytes,
        })
    }
}

impl<T: Real> Spmv<Ell<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaEll<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let (entry, grid) = if self.few_blocks(m.nrows) {
            (SpmvEll::FEW, Grid::of(m.nrows.div_ceil(128), 128))
        } else if self.spreads_thin(m.nrows) {
            (SpmvEll::SMALL, Grid::of(m.nrows.div_ceil(128), 128))
        } else {
            (SpmvEll::MANY, Grid::rows(m.nrows))
        };
        let parameters = SpmvEll { matrix: m.parameters(), nrows: m.nrows as u64, product };
        // SAFETY: the arrays of the matrix; the lengths of x and y were compared.
        unsafe { self.launch::<T, _>(entry, grid, &parameters) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaEll<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let (entry, grid) = if self.few_blocks(m.nrows) {
            (SpmvDotEll::SMALL, Grid::of(m.nrows.div_ceil(BLOCK), BLOCK as u32))
        } else {
            (SpmvDotEll::MANY, Grid::rows(m.nrows))
        };
        let parameters = SpmvDotEll { matrix: m.parameters(), nrows: m.nrows as u64, product };
        // SAFETY: the arrays of the matrix; the lengths of x, y and w were compared.
        unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        self.complete_dots(gate, m.nrows, wy, yy)
    }
}

impl<T: Real> Persists<T> for CudaEll<T> {
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
        let matrix = self.parameters();
        let all = |solve| CgEll { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&resident, CgEll::ENTRY, all, count, on, monitor) }
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
        let matrix = self.parameters();
        let all = |solve| BicgstabEll { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.bicgstab_persistent(&resident, BicgstabEll::ENTRY, all, count, on, monitor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_of_few_get_lanes() {
        // A device of 132 multiprocessors; shapes of matrices that were timed there.
        let lanes = |nrows, places| 1 << lanes_shift(nrows, places, 132);
        assert_eq!(lanes(8738, 141), 8);
        assert_eq!(lanes(4884, 81), 16);
        assert_eq!(lanes(15439, 59), 8);
        assert_eq!(lanes(15600, 17), 4);
        assert_eq!(lanes(30200, 4), 1);
        assert_eq!(lanes(156_317, 44), 1);
        // Three places per lane, and 1024 lanes per multiprocessor.
        assert_eq!((lanes(1000, 5), lanes(1000, 6)), (1, 2));
        assert_eq!((lanes(67_584, 100), lanes(67_585, 100)), (2, 1));
        assert_eq!((lanes(0, 0), lanes(1, 10_000)), (1, 32));
    }
}
