//! The sweep on the GPU: an exact triangular solve on a grid, from values packed in the order of the solve, without
//! reading an index.
//!
//! Layout: that of kernels/sweep.cu: values by plane, step and term, zero for absent neighbours, the reciprocal last.
//! On a device with clusters, kernels/wavefront.cu solves grids of several planes with a stencil that has kernels, with
//! values in its own layout, packed once per system of the plan.
//!
//! Order: stored, for both systems. Cost: [`spandrel_sptrsv::Plan::sptrsv_bytes`], and what tiles pass on. Kernels:
//! kernels/sweep.cu, kernels/wavefront.cu; for a matrix on the device also kernels/grid.cu.
//!
//! Invariants: the host writes the ticket, the count of finished thread blocks and the number of the last solve only at
//! load, so a replayed graph continues where the last solve ended. Both systems and all columns share them, because the
//! queue orders solves.

pub(crate) mod factors;
mod geometry;
pub(crate) mod resident;
mod wavefront;

use std::sync::Arc;

use cudarc::driver::sys;
use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Error, Gate, Load, Order, Result, Sptrsv};
use spandrel_formats::Real;
use spandrel_sptrsv::{Diagonal, Lattice, Plan, Sweep, System, Systems, Triangle};

pub(crate) use self::factors::{Parts, assemble};
use self::geometry::{Geometry, SweepArg, TermsArg};
use self::wavefront::{Wavefront, WavefrontArg};
use crate::csr::not_recorded;
use crate::device::gate_pointer;
use crate::error::failed;
use crate::kernel::kernels;
use crate::launch::{BLOCK, Grid};
use crate::memory::{Address, Buffer};
use crate::sptrsv::CountsSolves;
use crate::triangle::{Places, diagonal};
use crate::{Cuda, Vector};

kernels! {
    struct SolveSteps {
        g: SweepArg, values: Address, b: Address, x: Address, exchange: Address, state: Address, gate: Address,
    }
    in SWEEP {
        PLAIN_5: "sptrsv5_sweep",
        PLAIN_7: "sptrsv7_sweep",
        PLAIN_9: "sptrsv9_sweep",
        PLAIN_13: "sptrsv13_sweep",
        PLAIN_15: "sptrsv15_sweep",
        PLAIN_19: "sptrsv19_sweep",
        PLAIN_27: "sptrsv27_sweep",
        PLAIN_33: "sptrsv33_sweep",
        TRANSPOSED_5: "sptrsv_transposed5_sweep",
        TRANSPOSED_7: "sptrsv_transposed7_sweep",
        TRANSPOSED_9: "sptrsv_transposed9_sweep",
        TRANSPOSED_13: "sptrsv_transposed13_sweep",
        TRANSPOSED_15: "sptrsv_transposed15_sweep",
        TRANSPOSED_19: "sptrsv_transposed19_sweep",
        TRANSPOSED_27: "sptrsv_transposed27_sweep",
        TRANSPOSED_33: "sptrsv_transposed33_sweep",
    }

    struct SolveAny {
        g: SweepArg, terms: TermsArg, values: Address, b: Address, x: Address, exchange: Address, state: Address,
        gate: Address,
    }
    in SWEEP { PLAIN: "sptrsv_sweep", TRANSPOSED: "sptrsv_transposed_sweep" }

    struct PackSweep {
        g: SweepArg, terms: TermsArg, row_ptr: Address, cols: Address, from: Address, inv_diag: Address,
        values: Address,
    }
    in SWEEP { ENTRY: "pack_sweep" }

    struct SolveWaves {
        g: WavefrontArg, values: Address, b: Address, x: Address, exchange: Address, state: Address, gate: Address,
    }
    in WAVEFRONT {
        POINTS_7: "sptrsv7_wavefront",
        POINTS_13: "sptrsv13_wavefront",
        POINTS_15: "sptrsv15_wavefront",
        POINTS_19: "sptrsv19_wavefront",
        POINTS_27: "sptrsv27_wavefront",
        POINTS_33: "sptrsv33_wavefront",
    }

    struct PackWavefront {
        g: WavefrontArg, terms: TermsArg, row_ptr: Address, cols: Address, from: Address, inv_diag: Address,
        values: Address,
    }
    in WAVEFRONT { ENTRY: "pack_wavefront" }

    struct MirrorWavefront { g: WavefrontArg, terms: TermsArg, from: Address, to: Address }
    in WAVEFRONT { ENTRY: "mirror_wavefront" }
}

const WARP: usize = 32;
/// The first compute capability with clusters of thread blocks, as 10 * major + minor.
const CLUSTERS: u32 = 90;

/// The way in which a grid is solved.
#[derive(Debug)]
enum Schedule {
    /// A grid without rows.
    Nothing,
    Steps(Geometry),
    Waves(Wavefront),
}

impl Schedule {
    /// The schedule in steps, which works for any lattice.
    fn steps<T: Real>(lattice: &Lattice, diagonal: Diagonal, shared: usize) -> Result<Self> {
        let geometry = Geometry::of::<T>(lattice, diagonal == Diagonal::Unit, shared)?;
        Ok(geometry.map_or(Self::Nothing, Self::Steps))
    }
}

/// A plan of the sweep in device memory.
#[derive(Debug)]
pub struct CudaSweep<T> {
    nrows: usize,
    nnz: usize,
    triangle: Triangle,
    systems: Systems,
    unit: bool,
    schedule: Schedule,
    blocks: usize,
    values: Buffer<T>,
    /// The values of the transposed system, if it has its own.
    transposed: Buffer<T>,
    exchange: Buffer<u64>,
    /// The ticket, the number of thread blocks that are done, and the number of the last solve.
    state: Buffer<u32>,
    /// The pattern, for new values on the device.
    pattern: Option<[Buffer<u32>; 2]>,
    diagonal: Places,
    inv_diag: Option<Buffer<T>>,
}

/// Row pointers and columns.
fn pattern<T: Real>(cuda: &Cuda, plan: &Sweep<T>) -> Result<[Buffer<u32>; 2]> {
    let csr = plan.matrix().csr();
    cuda.load_rows(csr.row_ptr(), csr.col_idx(), ["a triangle's row pointers", "a triangle's columns"])
}

impl<T: Real> CountsSolves for CudaSweep<T> {
    fn pretend(&self, solves: u32) -> Result<()> {
        self.state.write_at(2, &[solves])
    }
}

impl<T: Real> CudaSweep<T> {
    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Thread blocks of a solve.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Bytes of shared memory of a thread block.
    pub fn shared(&self) -> usize {
        match &self.schedule {
            Schedule::Nothing => 0,
            Schedule::Steps(g) => g.shared,
            Schedule::Waves(w) => w.shared,
        }
    }

    /// Copies a plan's values to their places. The places of absent neighbours stay as they are.
    fn pack(&self, cuda: &Cuda, plan: &Sweep<T>) -> Result<()> {
        let (stream, matrix) = (cuda.stream(), plan.matrix());
        let from = Buffer::from_host(stream, matrix.csr().values(), "a triangle's values")?;
        let inv_diag = Buffer::from_host(stream, matrix.inv_diag(), "a triangle's reciprocals")?;
        self.pack_from(cuda, pattern(cuda, plan)?.each_ref().map(Buffer::pointer), from.pointer(), inv_diag.pointer())
    }

    /// As [`CudaSweep::pack`], from device memory: addresses of row pointers and columns, values, and reciprocals of
    /// the diagonal, which are not read for a unit one.
    fn pack_from(&self, cuda: &Cuda, [row_ptr, cols]: [Address; 2], from: Address, inv_diag: Address) -> Result<()> {
        let inv_diag = if self.unit { Address::NULL } else { inv_diag };
        let grid = Grid::of(self.nrows.div_ceil(BLOCK / 4).min(16 * cuda.multiprocessors()), 256);
        match &self.schedule {
            Schedule::Nothing => Ok(()),
            Schedule::Steps(g) => {
                let mut sweep = g.arg;
                sweep.mirrored = u32::from(self.triangle == Triangle::Upper);
                let values = self.values.pointer();
                let parameters = PackSweep { g: sweep, terms: g.terms, row_ptr, cols, from, inv_diag, values };
                // SAFETY: pack_sweep(sweep, terms, row_ptr, cols, from, inv_diag, values) of a triangle on that grid;
                // without reciprocals none is read; the buffers are freed in the queue's order, after it.
                unsafe { cuda.launch::<T, _>(PackSweep::ENTRY, grid, &parameters) }
            }
            Schedule::Waves(w) => {
                let mut wave = w.arg;
                wave.mirrored = u32::from(self.triangle == Triangle::Upper);
                let values = self.values.pointer();
                let parameters = PackWavefront { g: wave, terms: w.terms, row_ptr, cols, from, inv_diag, values };
                // SAFETY: pack_wavefront(wave, terms, row_ptr, cols, from, inv_diag, values) of a triangle on that
                // grid; without reciprocals none is read; the buffers are freed in the queue's order, after it.
                unsafe { cuda.launch::<T, _>(PackWavefront::ENTRY, grid, &parameters)? };
                self.pack_transposed(cuda)
            }
        }
    }

    /// The values of the transposed system, if it has its own, from the packed ones.
    fn pack_transposed(&self, cuda: &Cuda) -> Result<()> {
        let Schedule::Waves(w) = &self.schedule else { return Ok(()) };
        if !self.systems.hold(System::Transposed) {
            return Ok(());
        }
        let [tiles, blocks, rows] = w.in_blocks().map(|count| count as usize);
        let grid = Grid::of((tiles * blocks * rows).div_ceil(256 / WARP).min(8 * cuda.multiprocessors()), 256);
        let (from, to) = (self.values.pointer(), self.transposed.pointer());
        let parameters = MirrorWavefront { g: w.arg, terms: w.terms, from, to };
        // SAFETY: mirror_wavefront(wave, terms, from, to), both with every place of the layout, of one grid.
        unsafe { cuda.launch::<T, _>(MirrorWavefront::ENTRY, grid, &parameters) }
    }

    /// Solves one column, given by addresses; b may be x.
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let transposed = system == System::Transposed;
        // The transpose of a lower triangle is an upper one.
        let mirrored = u32::from((self.triangle == Triangle::Upper) != transposed);
        let (exchange, state) = (self.exchange.pointer(), self.state.pointer());
        // Near 48 KiB a kernel needs the larger limit with its few static bytes. Launches request it only above 48 KiB
        // of dynamic memory.
        let shared = |bytes: usize| if bytes > 47 << 10 { bytes.max((48 << 10) + 16) as u32 } else { bytes as u32 };
        // SAFETY: lengths compared by the caller; a row's b is read before its x is written, by the same warp or
        // thread.
        unsafe {
            match &self.schedule {
                Schedule::Nothing => Ok(()),
                Schedule::Waves(w) => {
                    let mut g = w.arg;
                    g.mirrored = mirrored;
                    let values = if transposed { self.transposed.pointer() } else { self.values.pointer() };
                    let grid = Grid {
                        shared: shared(w.shared),
                        cluster: w.crew as u32,
                        ..Grid::of(self.blocks / w.crew * w.crew, w.threads as u32)
                    };
                    cuda.launch::<T, _>(w.kernel, grid, &SolveWaves { g, values, b, x, exchange, state, gate })
                }
                Schedule::Steps(Geometry { arg, terms, kernels, shared: bytes, threads, .. }) => {
                    let (mut g, terms, values) = (*arg, *terms, self.values.pointer());
                    g.mirrored = mirrored;
                    let grid = Grid { shared: shared(*bytes), ..Grid::of(self.blocks, *threads as u32) };
                    match kernels.solves {
                        Some([plain, of_transposed]) => {
                            let entry = if transposed { of_transposed } else { plain };
                            cuda.launch::<T, _>(entry, grid, &SolveSteps { g, values, b, x, exchange, state, gate })
                        }
                        None => {
                            let entry = if transposed { SolveAny::TRANSPOSED } else { SolveAny::PLAIN };
                            let parameters = SolveAny { g, terms, values, b, x, exchange, state, gate };
                            cuda.launch::<T, _>(entry, grid, &parameters)
                        }
                    }
                }
            }
        }
    }

    /// Solves for `k` columns. If there is no b, x holds it.
    fn columns(
        &self,
        cuda: &Cuda,
        gate: Gate<'_, Cuda>,
        system: System,
        k: usize,
        b: Option<&Vector<T>>,
        x: &mut Vector<T>,
    ) -> Result<()> {
        if let Some(b) = b {
            expect_columns("sptrsv", "b", b.len(), self.nrows, k)?;
        }
        expect_columns("sptrsv", "x", x.len(), self.nrows, k)?;
        if !self.systems.hold(system) {
            return Err(Error::Triangle(spandrel_sptrsv::Error::NotAnalyzed));
        }
        let (x, gate) = (x.pointer(), gate_pointer(gate));
        let b = b.map_or(x, Vector::pointer);
        (0..k)
            .map(|column| column * self.nrows * T::BYTES)
            .try_for_each(|at| self.solve(cuda, gate, system, b.offset(at), x.offset(at)))
    }
}

impl Cuda {
    /// Loads a plan of the sweep for `blocks` thread blocks, at least one. If there are more blocks than tiles, some
    /// stay idle.
    ///
    /// The bits do not depend on the number of blocks. Blocks during the copy. Must not be recorded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stencil or a grid that no schedule fits; [`Error::OutOfMemory`].
    pub fn load_sweep_with<T: Real>(&self, plan: &Sweep<T>, blocks: usize) -> Result<CudaSweep<T>> {
        self.load_sweep(plan, Some(blocks))
    }

    fn load_sweep<T: Real>(&self, plan: &Sweep<T>, blocks: Option<usize>) -> Result<CudaSweep<T>> {
        not_recorded(self, "a plan of the sweep")?;
        let schedule = match self.waves::<T>(plan.lattice(), blocks)? {
            Some(wave) => Schedule::Waves(wave),
            None => Schedule::steps::<T>(plan.lattice(), plan.diagonal(), self.shared_by_a_block()?)?,
        };
        let mut resident =
            self.place_sweep(schedule, plan.nrows(), plan.triangle(), plan.diagonal(), plan.systems(), true)?;
        resident.nnz = plan.matrix().csr().values().len();
        resident.blocks = blocks.unwrap_or(resident.blocks).max(1);
        resident.pack(self, plan)?;
        Ok(resident)
    }

    /// The schedule on clusters for at most this many thread blocks, if the device has clusters and one fits.
    fn waves<T: Real>(&self, lattice: &Lattice, blocks: Option<usize>) -> Result<Option<Wavefront>> {
        let shared = self.shared_by_a_block()?;
        let clusters = self.capability() >= CLUSTERS;
        let most = self.waiting(blocks.unwrap_or(usize::MAX));
        Ok(clusters.then(|| Wavefront::of::<T>(lattice, shared, most)).flatten())
    }

    /// The bytes of shared memory that a thread block may have.
    fn shared_by_a_block(&self) -> Result<usize> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = self.context().attribute(attribute).map_err(|error| failed("asking for shared memory", error))?;
        // The driver reserves a kilobyte, and the kernel needs a few bytes.
        Ok((shared as usize).saturating_sub(1 << 10))
    }

    /// Allocates memory for a plan. Its values are zeros or uninitialised. Those of a transposed system are
    /// uninitialised, because all of them are made from the others.
    fn place_sweep<T: Real>(
        &self,
        schedule: Schedule,
        nrows: usize,
        triangle: Triangle,
        diagonal: Diagonal,
        systems: Systems,
        zeroed: bool,
    ) -> Result<CudaSweep<T>> {
        // Values of each system, words handed on, thread blocks that have work.
        let holds = |system, values| if systems.hold(system) { values } else { 0 };
        let (values, transposed, words, useful) = match &schedule {
            Schedule::Nothing => (0, 0, 0, 1),
            Schedule::Steps(g) => (g.values, 0, g.words, g.arg.tiles as usize),
            Schedule::Waves(w) => {
                (holds(System::Plain, w.values), holds(System::Transposed, w.values), w.words, w.useful())
            }
        };
        let stream = self.stream();
        let what = "a triangle's packed values";
        let values = if zeroed { Buffer::zeros(stream, values, what) } else { Buffer::uninit(stream, values, what) };
        Ok(CudaSweep {
            nrows,
            nnz: 0,
            triangle,
            systems,
            unit: diagonal == Diagonal::Unit,
            schedule,
            blocks: self.waiting(useful.min(self.multiprocessors()).max(1)),
            values: values?,
            transposed: Buffer::uninit(stream, transposed, "a triangle's packed values, transposed")?,
            exchange: Buffer::zeros(stream, words, "what tiles of a grid hand on")?,
            state: Buffer::zeros(stream, 4, "the state of a sweep")?,
            pattern: None,
            diagonal: Places::default(),
            inv_diag: None,
        })
    }
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Sweep<T>> for Cuda {
    type Resident = CudaSweep<T>;

    fn load(&self, host: Arc<Sweep<T>>) -> Result<CudaSweep<T>> {
        self.load_sweep(&host, None)
    }
}

impl<T: Real> Sptrsv<Sweep<T>> for Cuda {
    fn sptrsv_order(&self, _m: &CudaSweep<T>, _system: System) -> Order {
        Order::Stored
    }

    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &CudaSweep<T>,
        k: usize,
        b: &Vector<T>,
        x: &mut Vector<T>,
    ) -> Result<()> {
        m.columns(self, gate, system, k, Some(b), x)
    }

    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &CudaSweep<T>,
        k: usize,
        x: &mut Vector<T>,
    ) -> Result<()> {
        m.columns(self, gate, system, k, None, x)
    }

    fn update(&self, m: &mut CudaSweep<T>, plan: &Arc<Sweep<T>>) -> Result<()> {
        expect_len("update", "plan", plan.nrows(), m.nrows)?;
        expect_len("update", "plan", plan.matrix().csr().values().len(), m.nnz)?;
        not_recorded(self, "new values of a triangle")?;
        m.pack(self, plan)
    }

    fn update_from(&self, m: &mut CudaSweep<T>, plan: &Arc<Sweep<T>>, values: &Vector<T>) -> Result<()> {
        expect_len("update", "plan", plan.nrows(), m.nrows)?;
        expect_len("update", "values", values.len(), m.nnz)?;
        not_recorded(self, "new values of a triangle")?;
        if m.pattern.is_none() {
            m.pattern = Some(pattern(self, plan)?);
        }
        if m.inv_diag.is_none() {
            let count = plan.matrix().inv_diag().len();
            m.inv_diag = Some(Buffer::uninit(self.stream(), count, "a triangle's reciprocals")?);
        }
        if let Some(inv_diag) = &m.inv_diag {
            m.diagonal.invert(self, values, inv_diag, || diagonal(&**plan))?;
        }
        match (&m.pattern, &m.inv_diag) {
            (Some(pattern), Some(inv_diag)) => {
                m.pack_from(self, pattern.each_ref().map(Buffer::pointer), values.pointer(), inv_diag.pointer())
            }
            _ => Ok(()),
        }
    }
}
