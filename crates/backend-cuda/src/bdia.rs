//! bDIA on the GPU.
//!
//! Layout: the host's diagonals, each starting at a multiple of 16 bytes, with +0 outside the matrix. 64 elements
//! follow the last diagonal, because loads of whole blocks of rows may touch them. Bands are pieces of at most 1024
//! diagonals, with the places of their windows in shared memory.
//!
//! Order: stored, by ascending offset. Cost: [`spandrel_formats::Traffic::spmv_bytes`]. Five kernels ([`BdiaKernel`])
//! return the same bits. Kernels: kernels/bdia.cu.

use std::sync::Arc;

use spandrel_backend::{
    BicgstabIterations, CgIterations, Coeff, Convert, Converted, Error, Gate, Load, Order, Result, Spmv,
};
use spandrel_formats::{Band, Bdia, Csr, Real};

use crate::convert::Diagonals;
use crate::kernel::{Entry, kernels, parameters};
use crate::launch::{BLOCK, CountedProductDot, Grid, Product, ProductDot};
use crate::memory::{Address, Buffer};
use crate::persistent::{BicgstabParameters, CgParameters, Persists, Reach, Resident};
use crate::windows::{Offsets, OffsetsArg, Pieces, PiecesArg, layout};
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

parameters! {
    /// The parameters of a matrix for persistent kernels.
    struct ResidentParameters { values: Address, offsets: Address, stride: u64, diagonals: u32 }
}

kernels! {
    struct SpmvWindow<T> {
        values: Address, stride: u64, pieces: PiecesArg, nrows: u64, ncols: u64, product: Product<T>,
    }
    in BDIA { ENTRY: "spmv_window_bdia" }

    struct SpmvDotWindow {
        values: Address, stride: u64, pieces: PiecesArg, nrows: u64, ncols: u64, product: ProductDot,
    }
    in BDIA { ENTRY: "spmv_dot_window_bdia" }

    struct SpmvNarrow<T> {
        values: Address, stride: u64, diagonals: u32, offsets: OffsetsArg, nrows: u64, ncols: u64, product: Product<T>,
    }
    in BDIA { NARROW: "spmv_narrow_bdia", SINGLE: "spmv_single_bdia" }

    struct SpmvDotNarrow {
        values: Address, stride: u64, diagonals: u32, offsets: OffsetsArg, nrows: u64, ncols: u64, product: ProductDot,
    }
    in BDIA { ENTRY: "spmv_dot_narrow_bdia" }

    struct SpmvDotSingle {
        values: Address, stride: u64, diagonals: u32, offsets: OffsetsArg, nrows: u64, ncols: u64,
        product: CountedProductDot,
    }
    in BDIA { ENTRY: "spmv_dot_single_bdia" }

    struct SpmvStaged<T> {
        values: Address, stride: u64, diagonals: u32, pieces: PiecesArg, nrows: u64, ncols: u64, product: Product<T>,
    }
    in BDIA { ENTRY: "spmv_staged_bdia" }

    struct SpmvDotStaged {
        values: Address, stride: u64, diagonals: u32, pieces: PiecesArg, nrows: u64, ncols: u64,
        product: CountedProductDot,
    }
    in BDIA { ENTRY: "spmv_dot_staged_bdia" }

    struct SpmvSmall<T> {
        values: Address, stride: u64, diagonals: u32, bands: u32, offsets: OffsetsArg, nrows: u64, ncols: u64,
        product: Product<T>,
    }
    in BDIA {
        FLIGHT_4: "spmv_small4_bdia",
        FLIGHT_8: "spmv_small8_bdia",
        FLIGHT_12: "spmv_small12_bdia",
        FLIGHT_16: "spmv_small16_bdia",
        FLIGHT_22: "spmv_small22_bdia",
        FLIGHT_34: "spmv_small34_bdia",
        FLIGHT_44: "spmv_small44_bdia",
    }

    struct SpmvDotSmall {
        values: Address, stride: u64, diagonals: u32, bands: u32, offsets: OffsetsArg, nrows: u64, ncols: u64,
        product: CountedProductDot,
    }
    in BDIA {
        FLIGHT_4: "spmv_dot_small4_bdia",
        FLIGHT_8: "spmv_dot_small8_bdia",
        FLIGHT_12: "spmv_dot_small12_bdia",
        FLIGHT_16: "spmv_dot_small16_bdia",
        FLIGHT_22: "spmv_dot_small22_bdia",
        FLIGHT_34: "spmv_dot_small34_bdia",
        FLIGHT_44: "spmv_dot_small44_bdia",
    }

    struct CgBdia { matrix: ResidentParameters, solve: CgParameters }
    in BDIA { ENTRY: "cg_bdia" }

    struct BicgstabBdia { matrix: ResidentParameters, solve: BicgstabParameters }
    in BDIA { ENTRY: "bicgstab_bdia" }
}

/// The mean width of bands from which windows pay: for a single band, and for several, whose windows are loaded one
/// after the other.
const WIDE: [usize; 2] = [4, 8];
/// Up to this many diagonals there is one row per thread. Tiles pay only if many diagonals share their barriers.
/// `spandrel-bench spmv --formats bdia --force` times both.
const DIRECT: usize = 104;
/// Elements of the windows of a pass, and bytes of the windows of `staged`.
const PASS: u32 = 4096;
const STAGED_WINDOWS: u32 = 32 << 10;
/// Rows of a thread block of `staged`, and bytes of its tile.
const STAGED_ROWS: usize = 64;
const TILE: u32 = 32 << 10;
/// Rows of a thread block of `small` and of `single`.
const SMALL_ROWS: usize = 64;
const SINGLE_ROWS: usize = 128;
/// The `small` kernels by diagonals in flight, with the number of thread blocks that fit on a multiprocessor. More than
/// 16 in flight are only for a single band, and pay if all rows are in flight at once: 15,600 rows with 33 diagonals
/// take 2.24 us with 12 and 2.06 with 34, but 120,000 rows take 5.33 and 5.94 (record/h200-spmv-variants.txt).
const SMALL: [(usize, Option<usize>); 7] =
    [(4, None), (8, None), (12, None), (16, None), (22, Some(8)), (34, Some(4)), (44, Some(4))];
/// The kernel of a bDIA matrix. [`Cuda`] chooses one at load; [`Cuda::load_bdia_with`] forces one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BdiaKernel {
    /// 1024 rows per thread block, 16 bytes of rows per thread, x in shared memory. For bands that are wide enough for
    /// such windows.
    Window,
    /// 1024 rows per thread block, four per thread, x from the first-level cache. For narrow bands.
    Narrow,
    /// One row per thread. For narrow bands with few rows, if four rows per thread would leave multiprocessors partly
    /// empty.
    Single,
    /// 64 rows per thread block, with more threads than rows, which copy values and windows of x to shared memory. For
    /// many diagonals of few rows.
    Staged,
    /// One row per thread in thread blocks of 64, with the number of diagonals in flight that needs the fewest rounds.
    /// For few rows: fewer blocks of 1024 than the device has multiprocessors.
    Small,
}

/// The kernel for a matrix on a device. `fits` says whether the windows of 64 rows fit into shared memory together.
fn choose(nrows: usize, diagonals: usize, bands: usize, fits: bool, multiprocessors: usize) -> BdiaKernel {
    let wide = diagonals >= WIDE[usize::from(bands > 1)] * bands.max(1);
    match nrows {
        _ if nrows < BLOCK * multiprocessors => {
            if wide && fits && diagonals > DIRECT {
                BdiaKernel::Staged
            } else {
                BdiaKernel::Small
            }
        }
        _ if wide => BdiaKernel::Window,
        // One row per thread fills the device with a quarter of the rows that four per thread need.
        _ if nrows < 4 * BLOCK * multiprocessors => BdiaKernel::Single,
        _ => BdiaKernel::Narrow,
    }
}

/// Parameters of a kernel besides the values. If thread blocks have fewer than 1024 rows, `arrivals` has a counter per
/// block of 1024 rows, which counts finished parts during a fused dot product.
#[derive(Debug)]
enum Form {
    Window {
        pieces: Pieces,
    },
    Narrow {
        offsets: Offsets,
    },
    Single {
        offsets: Offsets,
        arrivals: Buffer<u32>,
    },
    Staged {
        pieces: Pieces,
        arrivals: Buffer<u32>,
    },
    /// The index of its kernels in [`SMALL`].
    Small {
        offsets: Offsets,
        arrivals: Buffer<u32>,
        flight: usize,
    },
}

/// A bDIA matrix in device memory.
#[derive(Debug)]
pub struct CudaBdia<T> {
    nrows: usize,
    ncols: usize,
    bands: u32,
    diagonals: u32,
    stride: usize,
    values: Buffer<T>,
    form: Form,
    /// If it is square and small enough for a persistent solve: all offsets, and how far they reach.
    offsets: Option<(Buffer<i32>, Reach)>,
}

impl<T> CudaBdia<T> {
    /// The kernel that forms products.
    pub fn kernel(&self) -> BdiaKernel {
        match self.form {
            Form::Window { .. } => BdiaKernel::Window,
            Form::Narrow { .. } => BdiaKernel::Narrow,
            Form::Single { .. } => BdiaKernel::Single,
            Form::Staged { .. } => BdiaKernel::Staged,
            Form::Small { .. } => BdiaKernel::Small,
        }
    }
}

impl<T: Real> CudaBdia<T> {
    /// A grid of thread blocks with this many rows and threads each.
    fn grid(&self, rows: usize, threads: usize) -> Grid {
        Grid::of(self.nrows.div_ceil(rows), threads as u32)
    }

    /// The parameters of the matrix for persistent kernels.
    fn parameters(&self, offsets: Address) -> ResidentParameters {
        let (values, stride, diagonals) = (self.values.pointer(), self.stride as u64, self.diagonals);
        ResidentParameters { values, offsets, stride, diagonals }
    }

    fn persistent(&self) -> Option<(Resident, Address)> {
        let (offsets, reach) = self.offsets.as_ref()?;
        let diagonals = self.diagonals as usize;
        let resident = Resident {
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            fixed: (4 * diagonals).next_multiple_of(16),
            units: diagonals,
            unit: T::BYTES,
        };
        Some((resident, offsets.pointer()))
    }
}

/// The index in [`SMALL`] of the kernels that need the fewest rounds for the diagonals of these rows and bands; among
/// equals, of those with the fewest in flight.
fn small(nrows: usize, diagonals: usize, bands: usize, multiprocessors: usize) -> usize {
    let holds = |room: usize| bands == 1 && nrows.div_ceil(SMALL_ROWS) <= room * multiprocessors;
    let suiting = (0..SMALL.len()).filter(|&at| SMALL[at].1.is_none_or(holds));
    suiting.min_by_key(|&at| diagonals.div_ceil(SMALL[at].0)).unwrap_or(0)
}

/// The kernels of [`SMALL`], without and with dot products.
fn small_entries<T: Real>() -> [(Entry<SpmvSmall<T>>, Entry<SpmvDotSmall>); SMALL.len()] {
    [
        (SpmvSmall::FLIGHT_4, SpmvDotSmall::FLIGHT_4),
        (SpmvSmall::FLIGHT_8, SpmvDotSmall::FLIGHT_8),
        (SpmvSmall::FLIGHT_12, SpmvDotSmall::FLIGHT_12),
        (SpmvSmall::FLIGHT_16, SpmvDotSmall::FLIGHT_16),
        (SpmvSmall::FLIGHT_22, SpmvDotSmall::FLIGHT_22),
        (SpmvSmall::FLIGHT_34, SpmvDotSmall::FLIGHT_34),
        (SpmvSmall::FLIGHT_44, SpmvDotSmall::FLIGHT_44),
    ]
}

/// Elements from one diagonal's beginning to the next one's.
fn stride(nrows: usize) -> usize {
    nrows.next_multiple_of(if nrows < BLOCK { 4 } else { 32 })
}

impl Cuda {
    /// Zeroed diagonals, followed by the elements that loads of whole blocks of rows may touch.
    fn bdia_values<T: Real>(&self, nrows: usize, diagonals: usize) -> Result<Buffer<T>> {
        let room = stride(nrows).saturating_mul(diagonals).saturating_add(STAGED_ROWS);
        Buffer::zeros(self.stream(), room, "a matrix's values")
    }

    /// The matrix of these diagonals in these bands, and how it is multiplied.
    fn bdia<T: Real>(
        &self,
        (nrows, ncols): (usize, usize),
        bands: &[Band],
        offsets: &[i32],
        values: Buffer<T>,
        forced: Option<BdiaKernel>,
    ) -> Result<CudaBdia<T>> {
        let stride = stride(nrows);
        let staged = layout(bands, STAGED_ROWS as u32, STAGED_WINDOWS / T::BYTES as u32);
        // `staged` has a single pass.
        let fits = staged.0.iter().skip(1).all(|piece| piece.at > 0);
        let kernel = forced.unwrap_or_else(|| choose(nrows, offsets.len(), bands.len(), fits, self.multiprocessors()));
        if kernel == BdiaKernel::Staged && !fits {
            let why = "the windows of its bands do not fit in shared memory".to_owned();
            return Err(Error::Unsupported { op: "load", noun: "bdia", why });
        }
        let arrivals = || Buffer::zeros(self.stream(), nrows.div_ceil(BLOCK).max(1), "counts of finished rows");
        let form = match kernel {
            BdiaKernel::Window => Form::Window { pieces: self.pieces(layout(bands, BLOCK as u32, PASS))? },
            BdiaKernel::Narrow => Form::Narrow { offsets: self.offsets(offsets)? },
            BdiaKernel::Single => Form::Single { offsets: self.offsets(offsets)?, arrivals: arrivals()? },
            BdiaKernel::Staged => Form::Staged { pieces: self.pieces(staged)?, arrivals: arrivals()? },
            BdiaKernel::Small => {
                let flight = small(nrows, offsets.len(), bands.len(), self.multiprocessors());
                Form::Small { offsets: self.offsets(offsets)?, arrivals: arrivals()?, flight }
            }
        };
        let diagonals = offsets.len() as u32;
        let offsets = self.may_persist(nrows, ncols).then(|| {
            let reach = |&offset: &i32| Reach {
                below: usize::try_from(-i64::from(offset)).unwrap_or(0),
                above: usize::try_from(offset).unwrap_or(0),
            };
            let reach = offsets.iter().map(reach).fold(Reach::default(), Reach::or);
            Buffer::from_host(self.stream(), offsets, "a matrix's offsets").map(|offsets| (offsets, reach))
        });
        let offsets = offsets.transpose()?;
        let bands = bands.len() as u32;
        Ok(CudaBdia { nrows, ncols, bands, diagonals, stride, values, form, offsets })
    }

    /// Loads a bDIA matrix and uses `kernel` for its products, even if another would suit better.
    ///
    /// # Errors
    /// As [`Load::load`]; [`BdiaKernel::Staged`] with bands whose windows do not fit shared memory together.
    pub fn load_bdia_with<T: Real>(&self, host: &Bdia<T>, kernel: BdiaKernel) -> Result<CudaBdia<T>> {
        self.load_bdia(host, Some(kernel))
    }

    fn load_bdia<T: Real>(&self, host: &Bdia<T>, forced: Option<BdiaKernel>) -> Result<CudaBdia<T>> {
        let (nrows, ncols) = (host.nrows(), host.ncols());
        let offsets: Vec<i32> = host.offsets().collect();
        let (stride, values) = (stride(nrows), self.bdia_values(nrows, offsets.len())?);
        for (k, &offset) in offsets.iter().enumerate() {
            // Only elements inside the matrix: the host may have -0 outside, which would change the sign of a zero sum.
            let begin = (-i64::from(offset)).clamp(0, nrows as i64) as usize;
            let end = (ncols as i64 - i64::from(offset)).clamp(begin as i64, nrows as i64) as usize;
            values.write_at(k * stride + begin, &host.values()[k * nrows + begin..k * nrows + end])?;
        }
        self.bdia((nrows, ncols), host.bands(), &offsets, values, forced)
    }
}

// SAFETY: the buffers of its operations are allocated here and stay in place until it is dropped.
unsafe impl<T: Real> Load<Bdia<T>> for Cuda {
    type Resident = CudaBdia<T>;

    fn load(&self, host: Arc<Bdia<T>>) -> Result<CudaBdia<T>> {
        self.load_bdia(&host, None)
    }
}

impl<T: Real> Convert<Csr<T>, Bdia<T>> for Cuda {
    /// As for DIA, with all diagonals of the bands.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaBdia<T>>> {
        let (nrows, ncols) = (from.nrows(), from.ncols());
        let bands = Bdia::<T>::bands_of(nrows, &self.occupied(from)?, from.nnz())?;
        // Inside the matrix, whose diagonals fit.
        let diagonals = |band: &Band| band.start..=(i64::from(band.start) + i64::from(band.width) - 1) as i32;
        let offsets: Vec<i32> = bands.iter().flat_map(diagonals).collect();
        let values = self.bdia_values(nrows, offsets.len())?;
        let all = Diagonals { offsets: &offsets, first: 0, stride: stride(nrows) };
        let nnz = self.fill_diagonals(from, all, &values, false)?.nonzeros();
        let resident = self.bdia((nrows, ncols), &bands, &offsets, values, None)?;
        let (storage, spmv_bytes) = Bdia::<T>::traffic_of(nrows, ncols, &bands);
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Spmv<Bdia<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaBdia<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let (values, stride, diagonals, bands) = (m.values.pointer(), m.stride as u64, m.diagonals, m.bands);
        let (nrows, ncols) = (m.nrows as u64, m.ncols as u64);
        // SAFETY: the arrays of the matrix; the lengths of x and y were compared. The windows of `Window` have room for
        // 1024 rows, and a thread block has no more; 64 elements lie behind the last diagonal.
        unsafe {
            match &m.form {
                Form::Window { pieces } => {
                    let grid = Grid { shared: pieces.windows::<T>(), ..m.grid(256 * 16 / T::BYTES, 256) };
                    let parameters = SpmvWindow { values, stride, pieces: pieces.near, nrows, ncols, product };
                    self.launch::<T, _>(SpmvWindow::ENTRY, grid, &parameters)
                }
                Form::Narrow { offsets } => {
                    let offsets = offsets.near;
                    let parameters = SpmvNarrow { values, stride, diagonals, offsets, nrows, ncols, product };
                    self.launch::<T, _>(SpmvNarrow::NARROW, Grid::rows(m.nrows), &parameters)
                }
                Form::Single { offsets, .. } => {
                    let offsets = offsets.near;
                    let parameters = SpmvNarrow { values, stride, diagonals, offsets, nrows, ncols, product };
                    self.launch::<T, _>(SpmvNarrow::SINGLE, m.grid(SINGLE_ROWS, SINGLE_ROWS), &parameters)
                }
                Form::Staged { pieces, .. } => {
                    let grid = Grid { shared: TILE + pieces.windows::<T>(), ..m.grid(STAGED_ROWS, 256) };
                    let pieces = pieces.near;
                    let parameters = SpmvStaged { values, stride, diagonals, pieces, nrows, ncols, product };
                    self.launch::<T, _>(SpmvStaged::ENTRY, grid, &parameters)
                }
                Form::Small { offsets, flight, .. } => {
                    let ((entry, _), offsets) = (small_entries()[*flight], offsets.near);
                    let parameters = SpmvSmall { values, stride, diagonals, bands, offsets, nrows, ncols, product };
                    self.launch::<T, _>(entry, m.grid(SMALL_ROWS, SMALL_ROWS), &parameters)
                }
            }
        }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaBdia<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy.as_deref_mut())?;
        let (values, stride, diagonals, bands) = (m.values.pointer(), m.stride as u64, m.diagonals, m.bands);
        let (nrows, ncols) = (m.nrows as u64, m.ncols as u64);
        // SAFETY: as in `spmv`, with w; `arrivals` is a count for each block of 1024 rows.
        unsafe {
            match &m.form {
                Form::Window { pieces } => {
                    let grid = Grid { shared: pieces.windows::<T>(), ..m.grid(BLOCK, BLOCK * T::BYTES / 16) };
                    let parameters = SpmvDotWindow { values, stride, pieces: pieces.near, nrows, ncols, product };
                    self.launch::<T, _>(SpmvDotWindow::ENTRY, grid, &parameters)
                }
                Form::Narrow { offsets } => {
                    let offsets = offsets.near;
                    let parameters = SpmvDotNarrow { values, stride, diagonals, offsets, nrows, ncols, product };
                    self.launch::<T, _>(SpmvDotNarrow::ENTRY, Grid::rows(m.nrows), &parameters)
                }
                Form::Single { offsets, arrivals } => {
                    let (offsets, product) = (offsets.near, product.counted(arrivals));
                    let parameters = SpmvDotSingle { values, stride, diagonals, offsets, nrows, ncols, product };
                    self.launch::<T, _>(SpmvDotSingle::ENTRY, m.grid(SINGLE_ROWS, SINGLE_ROWS), &parameters)
                }
                Form::Staged { pieces, arrivals } => {
                    let grid = Grid { shared: TILE + pieces.windows::<T>(), ..m.grid(STAGED_ROWS, 256) };
                    let (pieces, product) = (pieces.near, product.counted(arrivals));
                    let parameters = SpmvDotStaged { values, stride, diagonals, pieces, nrows, ncols, product };
                    self.launch::<T, _>(SpmvDotStaged::ENTRY, grid, &parameters)
                }
                Form::Small { offsets, arrivals, flight } => {
                    let ((_, entry), offsets) = (small_entries::<T>()[*flight], offsets.near);
                    let product = product.counted(arrivals);
                    let parameters = SpmvDotSmall { values, stride, diagonals, bands, offsets, nrows, ncols, product };
                    self.launch::<T, _>(entry, m.grid(SMALL_ROWS, SMALL_ROWS), &parameters)
                }
            }?;
        }
        self.complete_dots(gate, m.nrows, wy, yy)
    }
}

impl<T: Real> Persists<T> for CudaBdia<T> {
    fn cg(
        &self,
        cuda: &Cuda,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, offsets)) = self.persistent() else {
            return Ok(false);
        };
        let matrix = self.parameters(offsets);
        let all = |solve| CgBdia { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&resident, CgBdia::ENTRY, all, count, on, monitor) }
    }

    fn bicgstab(
        &self,
        cuda: &Cuda,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, offsets)) = self.persistent() else {
            return Ok(false);
        };
        let matrix = self.parameters(offsets);
        let all = |solve| BicgstabBdia { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.bicgstab_persistent(&resident, BicgstabBdia::ENTRY, all, count, on, monitor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_taken_one_by_one() {
        let on_h200 = |nrows, diagonals, bands| choose(nrows, diagonals, bands, true, 132);
        for diagonals in [1, 3, 17, 101] {
            assert_eq!(on_h200(15_600, diagonals, 1), BdiaKernel::Small);
            assert_eq!(on_h200(30_000, diagonals, 1), BdiaKernel::Small);
        }
        assert_eq!(on_h200(30_000, 27, 9), BdiaKernel::Small);
        assert_eq!(on_h200(0, 0, 0), BdiaKernel::Small);
        assert_eq!(on_h200(30_000, 501, 1), BdiaKernel::Staged);
        assert_eq!(choose(30_000, 501, 1, false, 132), BdiaKernel::Small);
        assert_eq!(on_h200(64 * 64 * 64, 27, 1), BdiaKernel::Window);
        assert_eq!(on_h200(64 * 64 * 64, 27, 9), BdiaKernel::Single);
        assert_eq!(on_h200(128 * 128 * 128, 27, 9), BdiaKernel::Narrow);
    }

    #[test]
    fn the_fewest_rounds_with_the_fewest_in_flight() {
        let flight = |nrows, diagonals| small(nrows, diagonals, 1, 132);
        for (diagonals, place) in [(0, 0), (3, 0), (5, 1), (9, 2), (16, 3)] {
            assert_eq!(flight(15_600, diagonals), place);
            assert_eq!(flight(120_000, diagonals), place);
        }
        for (diagonals, few, many) in [(17, 4, 2), (27, 5, 3), (33, 5, 2), (41, 6, 3), (65, 5, 3), (101, 5, 3)] {
            assert_eq!(flight(15_600, diagonals), few);
            assert_eq!(flight(120_000, diagonals), many);
        }
        // 8 thread blocks on each of 132 multiprocessors, and one more.
        assert_eq!([67_584, 67_585].map(|nrows| flight(nrows, 17)), [4, 2]);
        assert_eq!(small(15_600, 33, 2, 132), 2);
        for ((diagonals, _), (plain, dot)) in SMALL.iter().zip(small_entries::<f64>()) {
            assert_eq!(plain.name, format!("spmv_small{diagonals}_bdia"));
            assert_eq!(dot.name, format!("spmv_dot_small{diagonals}_bdia"));
        }
    }
}
