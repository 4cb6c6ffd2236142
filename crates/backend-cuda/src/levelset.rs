//! The levelset plan on the GPU.
//!
//! Layout: for each system the host's slices, with the values in the order in which the slices read them. x is stored
//! by position, in slots that carry the number of their solve. A segment of levels is one launch: either of one thread
//! block, which keeps the x of its last positions on chip, or of a grid.
//!
//! Invariants: the kernels advance the number of the last solve in device memory, so a recorded solve continues where
//! the last one ended. Both systems use the same slots, and every solve writes all of them.
//!
//! Order: stored. Cost: [`Plan::sptrsv_bytes`], and the slots. Kernels: kernels/levelset.cu.

use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use rayon::prelude::*;
use spandrel_backend::error::expect_len;
use spandrel_backend::{Error, Load, Order, Result};
use spandrel_formats::{Offset, Ordinal, PADDING, Real};
use spandrel_sptrsv::levelset::{Index, LANES, Schedule, Segment, Span};
use spandrel_sptrsv::{Levelset, Plan, System};

use crate::error::failed;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer, write_all};
use crate::sptrsv::{CountsSolves, Solve};
use crate::triangle::{Places, diagonal};
use crate::{Cuda, Vector};

kernels! {
    struct SptrsvBlockLevelset {
        order: Address, slices: Address, cols: Address, values: Address, inv: Address, first: u32, end: u32,
        base: u32, shift: u32, b: Address, x: Address, slots: Address, progress: Address, last: u32, gate: Address,
    }
    in LEVELSET { ENTRY: "sptrsv_block_levelset" }

    struct SptrsvGridLevelset {
        order: Address, slices: Address, cols: Address, values: Address, inv: Address, first: u32, end: u32,
        b: Address, x: Address, slots: Address, progress: Address, last: u32, gate: Address,
    }
    in LEVELSET { ENTRY: "sptrsv_grid_levelset" }

    struct SptrsvChains {
        order: Address, slices: Address, cols: Address, values: Address, inv: Address, links: Address, first: u32,
        end: u32, b: Address, x: Address, slots: Address, progress: Address, last: u32, gate: Address,
    }
    in CHAINS { ENTRY: "sptrsv_chains" }
}

/// Threads of a thread block that solves a whole segment, and of one among many: `BLOCK_CREW` and `GRID_CREW` of the
/// kernels.
const BLOCK_CREW: usize = 512;
const GRID_CREW: usize = 256;
/// The largest number of thread blocks of a grid per multiprocessor.
const BLOCKS_EACH: usize = 2;
/// A grid has warps for the slices of this many levels on average, and at least the second number of thread blocks.
/// More warps would only poll for values of later levels and slow down those that can work
/// (record/h200-sptrsv-variants.txt).
const AHEAD: usize = 16;
const FEW_BLOCKS: usize = 8;
/// The largest number of positions that a thread block keeps on chip, as a power of two.
const RING: u32 = 13;

/// The order of execution of one system in device memory, with its values in the order in which the slices read them.
#[derive(Debug)]
struct Resident<T> {
    order: Buffer<Ordinal>,
    slices: Buffer<[u32; 4]>,
    links: Buffer<u32>,
    /// Whether slices have few rows.
    narrow: bool,
    cols: Buffer<Ordinal>,
    values: Buffer<T>,
    inv_diag: Option<Buffer<T>>,
    /// For new values: the place of each value in the triangle.
    from: Vec<Offset>,
    /// The same in device memory, with the places of the diagonal, for values on the device.
    places: Places,
    diagonal: Places,
    /// The segments, each with the number of thread blocks that its slices can keep busy.
    segments: Vec<(Segment, usize)>,
}

/// The number of thread blocks for these slices and levels.
fn blocks(slices: usize, levels: usize) -> usize {
    let warps = (AHEAD * slices).div_ceil(levels.max(1)).min(slices);
    let few = FEW_BLOCKS.min(slices.div_ceil(GRID_CREW / LANES));
    warps.div_ceil(GRID_CREW / LANES).max(few).max(1)
}

/// A system as the host prepares it for the copy.
struct Made<T> {
    index: Index,
    values: Vec<T>,
    inv_diag: Option<Vec<T>>,
}

impl<T: Real> Made<T> {
    fn of(plan: &Levelset<T>, system: System) -> spandrel_sptrsv::Result<Self> {
        let (schedule, matrix) = (plan.schedule(system)?, plan.matrix());
        let index = schedule.index(&plan.rows().view(system)?);
        let values = placed(&index.from, matrix.csr().values());
        Ok(Self { index, values, inv_diag: permuted(schedule, matrix.inv_diag()) })
    }
}

impl<T: Real> Resident<T> {
    fn load(cuda: &Cuda, schedule: &Schedule, made: Made<T>) -> Result<Self> {
        let (stream, Made { index: Index { cols, from }, values, inv_diag }) = (cuda.stream(), made);
        let inv_diag = inv_diag.unwrap_or_default();
        let to = Resident {
            order: Buffer::uninit(stream, schedule.order().len(), "a plan's order")?,
            slices: Buffer::uninit(stream, schedule.slices().len(), "a plan's slices")?,
            links: Buffer::uninit(stream, schedule.links().len(), "a plan's links")?,
            narrow: schedule.is_narrow(),
            cols: Buffer::uninit(stream, cols.len(), "a plan's columns")?,
            values: Buffer::uninit(stream, values.len(), "a triangle's values")?,
            inv_diag: (!inv_diag.is_empty())
                .then(|| Buffer::uninit(stream, inv_diag.len(), "the reciprocals of a diagonal"))
                .transpose()?,
            from,
            places: Places::default(),
            diagonal: Places::default(),
            segments: schedule
                .segments()
                .iter()
                .map(|segment| {
                    let at =
                        |position: usize| schedule.level_ptr().partition_point(|&begin| (begin as usize) < position);
                    let levels = at(segment.positions.end) - at(segment.positions.start);
                    (segment.clone(), blocks(segment.slices.len(), levels))
                })
                .collect(),
        };
        // All in one copy.
        let mut writes = vec![
            to.order.write(0, schedule.order()),
            to.slices.write(0, schedule.slices()),
            to.links.write(0, schedule.links()),
            to.cols.write(0, &cols),
            to.values.write(0, &values),
        ];
        writes.extend(to.inv_diag.as_ref().map(|to| to.write(0, &inv_diag)));
        write_all(&writes)?;
        Ok(to)
    }
}

/// The reciprocals by position; empty for a unit diagonal.
fn permuted<T: Real>(schedule: &Schedule, inv_diag: &[T]) -> Option<Vec<T>> {
    (!inv_diag.is_empty()).then(|| schedule.order().par_iter().map(|&row| inv_diag[row as usize]).collect())
}

/// The values at the places of the slices.
fn placed<T: Real>(from: &[Offset], values: &[T]) -> Vec<T> {
    from.par_iter().map(|&e| if e == PADDING { T::zero() } else { values[e as usize] }).collect()
}

/// A triangle in device memory, in the order of execution of its level sets.
#[derive(Debug)]
pub struct CudaLevelset<T> {
    nrows: usize,
    nnz: usize,
    plain: Resident<T>,
    transposed: Option<Resident<T>>,
    slots: Buffer<u64>,
    /// The number of the last solve, then the tickets of the launch that runs.
    progress: Buffer<u32>,
    /// Largest ring that fits a thread block's shared memory, as a power of two.
    ring: u32,
}

/// Bytes of shared memory for a ring of 2^`shift` slots and the staging of every warp.
fn shared<T: Real>(shift: u32) -> usize {
    ((2 * T::BYTES) << shift) + BLOCK_CREW / LANES * 2 * LANES * T::BYTES
}

/// The largest ring that fits into this shared memory, as a power of two.
fn ring<T: Real>(bytes: usize) -> u32 {
    (0..=RING).rev().find(|&shift| shared::<T>(shift) <= bytes).unwrap_or(0)
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Levelset<T>> for Cuda {
    type Resident = CudaLevelset<T>;

    fn load(&self, host: Arc<Levelset<T>>) -> Result<CudaLevelset<T>> {
        let what = "loading a plan";
        let (nrows, stream) = (host.nrows(), self.stream());
        let both = host.systems().hold(System::Transposed);
        let made = |system| Made::of(&host, system);
        let (plain, transposed) =
            rayon::join(|| made(System::Plain), || both.then(|| made(System::Transposed)).transpose());
        let load = |system, made| Resident::load(self, host.schedule(system)?, made);
        let most = self
            .context()
            .attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            .map_err(|error| failed(what, error))?;
        Ok(CudaLevelset {
            nrows,
            nnz: host.matrix().csr().nnz(),
            plain: load(System::Plain, plain?)?,
            transposed: transposed?.map(|made| load(System::Transposed, made)).transpose()?,
            slots: Buffer::zeros(stream, nrows * (T::BYTES / 4), "slots of a triangular solve")?,
            progress: Buffer::zeros(stream, 4, "the progress of a triangular solve")?,
            ring: ring::<T>(usize::try_from(most).unwrap_or(0)),
        })
    }
}

impl<T: Real> CudaLevelset<T> {
    fn resident(&self, system: System) -> Result<&Resident<T>> {
        match system {
            System::Plain => Ok(&self.plain),
            System::Transposed => self.transposed.as_ref().ok_or_else(|| Error::Unsupported {
                op: "sptrsv",
                noun: Levelset::<T>::NAME,
                why: spandrel_sptrsv::Error::NotAnalyzed.to_string(),
            }),
        }
    }
    fn residents(&mut self) -> impl Iterator<Item = (System, &mut Resident<T>)> {
        let transposed = self.transposed.as_mut().map(|resident| (System::Transposed, resident));
        std::iter::once((System::Plain, &mut self.plain)).chain(transposed)
    }
}

impl<T: Real> CountsSolves for CudaLevelset<T> {
    fn pretend(&self, solves: u32) -> Result<()> {
        self.progress.write_at(0, &[solves])
    }
}

impl<T: Real> Solve<Levelset<T>> for CudaLevelset<T> {
    fn shape(&self) -> (usize, usize) {
        (self.nrows, self.nnz)
    }
    fn order(&self, _system: System) -> Order {
        Order::Stored
    }
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let m = self.resident(system)?;
        let (order, slices, links) = (m.order.pointer(), m.slices.pointer(), m.links.pointer());
        let cols = m.cols.pointer();
        let values = m.values.pointer();
        let inv = m.inv_diag.as_ref().map_or(Address::NULL, Buffer::pointer);
        let (slots, progress) = (self.slots.pointer(), self.progress.pointer());
        for (number, (segment, blocks)) in m.segments.iter().enumerate() {
            let (first, end) = (segment.slices.start as u32, segment.slices.end as u32);
            let last = u32::from(number + 1 == m.segments.len());
            match segment.span {
                Span::Block => {
                    let base = segment.positions.start as u32;
                    let shift = segment.positions.len().next_power_of_two().trailing_zeros().min(self.ring);
                    let warps = segment.slices.len().min(BLOCK_CREW / LANES);
                    let mut grid = Grid::of(1, (warps * LANES) as u32);
                    grid.shared = shared::<T>(shift) as u32;
                    // SAFETY: sptrsv_block_levelset(order, slices, cols, values, inv, first, end, base, shift, b, x,
                    // slots, progress, last, gate) with the shared memory that it uses; a slot for each of `nrows`
                    // positions.
                    unsafe {
                        cuda.launch::<T, _>(
                            SptrsvBlockLevelset::ENTRY,
                            grid,
                            &SptrsvBlockLevelset {
                                order,
                                slices,
                                cols,
                                values,
                                inv,
                                first,
                                end,
                                base,
                                shift,
                                b,
                                x,
                                slots,
                                progress,
                                last,
                                gate,
                            },
                        )?;
                    }
                }
                Span::Grid => {
                    let most = BLOCKS_EACH * cuda.multiprocessors();
                    let grid = Grid::of(cuda.waiting((*blocks).min(most)), GRID_CREW as u32);
                    // SAFETY: a slot for each of `nrows` positions; a slice of chains has links for each of its
                    // positions.
                    unsafe {
                        if m.narrow {
                            let parameters = SptrsvChains {
                                order,
                                slices,
                                cols,
                                values,
                                inv,
                                links,
                                first,
                                end,
                                b,
                                x,
                                slots,
                                progress,
                                last,
                                gate,
                            };
                            cuda.launch::<T, _>(SptrsvChains::ENTRY, grid, &parameters)?;
                        } else {
                            let parameters = SptrsvGridLevelset {
                                order,
                                slices,
                                cols,
                                values,
                                inv,
                                first,
                                end,
                                b,
                                x,
                                slots,
                                progress,
                                last,
                                gate,
                            };
                            cuda.launch::<T, _>(SptrsvGridLevelset::ENTRY, grid, &parameters)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
    fn replace(&mut self, plan: &Levelset<T>) -> Result<()> {
        let (values, inv_diag) = (plan.matrix().csr().values(), plan.matrix().inv_diag());
        for (system, resident) in self.residents() {
            resident.values.write_at(0, &placed(&resident.from, values))?;
            let inv = permuted(plan.schedule(system)?, inv_diag);
            if let (Some(inv), Some(to)) = (inv, &resident.inv_diag) {
                expect_len("update", "plan", inv.len(), to.len())?;
                to.write_at(0, &inv)?;
            }
        }
        Ok(())
    }
    fn adopt(&mut self, cuda: &Cuda, plan: &Levelset<T>, values: &Vector<T>) -> Result<()> {
        for (system, resident) in self.residents() {
            let Resident { values: placed, inv_diag, from, places, diagonal: at, .. } = resident;
            places.gather(cuda, values, placed, || from.as_slice().into())?;
            let (Some(to), order) = (inv_diag, plan.schedule(system)?.order()) else { continue };
            at.invert(cuda, values, to, || {
                let places = diagonal(plan);
                order.iter().map(|&row| places[row as usize]).collect()
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_the_shared_memory_of_a_thread_block() {
        let on = |bytes: usize| (ring::<f32>(bytes), ring::<f64>(bytes));
        assert_eq!(on(227 << 10), (13, 13), "compute capability 9.0");
        assert_eq!(on(99 << 10), (13, 12), "8.6");
        assert_eq!(on(64 << 10), (12, 11), "7.5");
        assert!(shared::<f64>(13) <= 227 << 10 && shared::<f32>(13) <= 99 << 10);
    }

    #[test]
    fn grids_have_warps_for_the_slices_of_the_levels_that_come_next() {
        assert_eq!(blocks(1, 1), 1);
        assert_eq!(blocks(20, 20), 3, "no more than there are slices for");
        assert_eq!(blocks(10_000, 10_000), FEW_BLOCKS);
        assert_eq!(blocks(1574, 10), 197, "as many as slices");
        assert_eq!(blocks(20_000, 100), 400);
    }

    #[test]
    fn places_without_an_entry_hold_zeros() {
        assert_eq!(placed(&[2, PADDING, 0], &[1.0, 2.0, 3.0]), [3.0, 0.0, 1.0]);
    }
}
