//! The sweep on the GPU: exact triangular solve on a grid, from values packed in the order of the solve, no index read.
//!
//! Layout: kernels/sweep.cu's: values by plane, step and term, absent neighbours zeros, the reciprocal last.
//! Order: stored, for both systems. Cost: [`spandrel_sptrsv::Plan::sptrsv_bytes`], and what tiles hand on.
//! Kernels: kernels/sweep.cu; from a matrix on the device, kernels/grid.cu.
//! Invariants: ticket, count of thread blocks that are done and number of the last solve are written by the host at load alone, so that a
//! replayed graph goes on where the last solve ended. Both systems and all columns share them, as the queue orders solves.

mod geometry;
mod resident;

use std::sync::Arc;

use cudarc::driver::sys;
use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Error, Gate, Load, Order, Result, Sptrsv};
use spandrel_formats::Real;
use spandrel_sptrsv::{Diagonal, Lattice, Plan, Sweep, System, Systems, Triangle};

use self::geometry::Geometry;
use crate::csr::not_recorded;
use crate::device::gate_pointer;
use crate::error::failed;
use crate::launch::{BLOCK, Grid, arg};
use crate::memory::Buffer;
use crate::module::SWEEP;
use crate::{Cuda, Vector};

/// A plan of the sweep in device memory.
#[derive(Debug)]
pub struct CudaSweep<T> {
    nrows: usize,
    nnz: usize,
    triangle: Triangle,
    systems: Systems,
    /// Without it there is nothing to solve.
    geometry: Option<Geometry>,
    blocks: usize,
    values: Buffer<T>,
    exchange: Buffer<u64>,
    /// Ticket, thread blocks that are done, number of the last solve.
    state: Buffer<u32>,
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
        self.geometry.as_ref().map_or(0, |g| g.shared)
    }

    /// Values of the plan to their places. The places of absent neighbours are left alone.
    fn pack(&self, cuda: &Cuda, plan: &Sweep<T>) -> Result<()> {
        let Some(g) = &self.geometry else { return Ok(()) };
        let (stream, matrix) = (cuda.stream(), plan.matrix());
        let row_ptr = Buffer::from_host(stream, matrix.csr().row_ptr(), "a triangle's row pointers")?;
        let cols = Buffer::from_host(stream, matrix.csr().col_idx(), "a triangle's columns")?;
        let from = Buffer::from_host(stream, matrix.csr().values(), "a triangle's values")?;
        let inv_diag = Buffer::from_host(stream, matrix.inv_diag(), "a triangle's reciprocals")?;
        let mut sweep = g.arg;
        sweep.mirrored = u32::from(self.triangle == Triangle::Upper);
        let (row_ptr, cols, from) = (row_ptr.pointer(), cols.pointer(), from.pointer());
        let (inv_diag, values) = (inv_diag.pointer(), self.values.pointer());
        let mut arguments =
            [arg(&sweep), arg(&g.terms), arg(&row_ptr), arg(&cols), arg(&from), arg(&inv_diag), arg(&values)];
        let grid = Grid::of(self.nrows.div_ceil(BLOCK / 4).min(16 * cuda.multiprocessors()), 256);
        // SAFETY: pack_sweep(sweep, terms, row_ptr, cols, from, inv_diag, values) of a triangle on that grid; the buffers are freed in the
        // queue's order, after it.
        unsafe { cuda.launch::<T>(&SWEEP, "pack_sweep", grid, &mut arguments) }
    }

    /// One column, by addresses; b may be x.
    fn solve(&self, cuda: &Cuda, gate: u64, system: System, b: u64, x: u64) -> Result<()> {
        let Some(g) = &self.geometry else { return Ok(()) };
        let transposed = system == System::Transposed;
        let mut sweep = g.arg;
        // The transpose of a lower triangle is an upper one.
        sweep.mirrored = u32::from((self.triangle == Triangle::Upper) != transposed);
        let (values, exchange, state) = (self.values.pointer(), self.exchange.pointer(), self.state.pointer());
        let name = if transposed { g.kernels.transposed } else { g.kernels.plain };
        // With the few bytes of its own a kernel near 48 KiB needs the larger limit, which launches ask for above 48 KiB of dynamic memory.
        let shared = if g.shared > 47 << 10 { g.shared.max((48 << 10) + 16) } else { g.shared };
        let grid = Grid { shared: shared as u32, ..Grid::of(self.blocks, g.threads as u32) };
        let mut arguments = vec![arg(&sweep)];
        if g.kernels.any() {
            arguments.push(arg(&g.terms));
        }
        arguments.extend([arg(&values), arg(&b), arg(&x), arg(&exchange), arg(&state), arg(&gate)]);
        // SAFETY: sptrsv_sweep(sweep, [terms,] values, b, x, exchange, state, gate), lengths compared by the caller; a row's b is read before
        // its x is written, by the same thread.
        unsafe { cuda.launch::<T>(&SWEEP, name, grid, &mut arguments) }
    }

    /// `k` columns, with b in x where there is no b.
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
        let bytes = (self.nrows * T::BYTES) as u64;
        (0..k as u64).try_for_each(|column| self.solve(cuda, gate, system, b + column * bytes, x + column * bytes))
    }
}

impl Cuda {
    /// Brings a plan of the sweep onto the device, to be solved by so many thread blocks (at least one; more than tiles are idle): the bits
    /// are those of any other number. Blocks as the copy does; may not be recorded.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a stencil or a grid that no schedule fits; [`Error::OutOfMemory`].
    pub fn load_sweep_with<T: Real>(&self, plan: &Sweep<T>, blocks: usize) -> Result<CudaSweep<T>> {
        self.load_sweep(plan, Some(blocks))
    }

    fn load_sweep<T: Real>(&self, plan: &Sweep<T>, blocks: Option<usize>) -> Result<CudaSweep<T>> {
        not_recorded(self, "a plan of the sweep")?;
        let mut resident = self.place_sweep(plan.lattice(), plan.triangle(), plan.diagonal(), plan.systems(), true)?;
        resident.nnz = plan.matrix().csr().values().len();
        resident.blocks = blocks.unwrap_or(resident.blocks).max(1);
        resident.pack(self, plan)?;
        Ok(resident)
    }

    /// Room for a plan, its values zeros or not written.
    fn place_sweep<T: Real>(
        &self,
        lattice: &Lattice,
        triangle: Triangle,
        diagonal: Diagonal,
        systems: Systems,
        zeroed: bool,
    ) -> Result<CudaSweep<T>> {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = self.context().attribute(attribute).map_err(|error| failed("asking for shared memory", error))?;
        // A kilobyte is the driver's, a few bytes are the kernel's own.
        let shared = (shared as usize).saturating_sub(1 << 10);
        let geometry = Geometry::of::<T>(lattice, diagonal == Diagonal::Unit, shared)?;
        let (values, words, tiles) = geometry.as_ref().map_or((0, 0, 0), |g| (g.values, g.words, g.arg.tiles as usize));
        let (stream, what) = (self.stream(), "a triangle's packed values");
        Ok(CudaSweep {
            nrows: lattice.size().iter().product(),
            nnz: 0,
            triangle,
            systems,
            geometry,
            blocks: tiles.min(self.multiprocessors()).max(1),
            values: if zeroed { Buffer::zeros(stream, values, what)? } else { Buffer::uninit(stream, values, what)? },
            exchange: Buffer::zeros(stream, words, "what tiles of a grid hand on")?,
            state: Buffer::zeros(stream, 4, "the state of a sweep")?,
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
}
