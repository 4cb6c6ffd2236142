//! The structured plan on the GPU: lines of a grid as tasks of warps.
//!
//! Layout: the triangle's CSR arrays, its reciprocals, and the index of its columns if T^T is solved too; the state,
//! which the kernels advance. Order: the kernel's own, the same bits at every repetition. Cost:
//! [`spandrel_sptrsv::Plan::sptrsv_bytes`]. Kernels: kernels/structured.cu, one for each set of [`Stages`] that is
//! measured.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;
use spandrel_backend::error::expect_len;
use spandrel_backend::{Error, Load, Order, Result};
use spandrel_formats::{Offset, Ordinal, Real};
use spandrel_sptrsv::{Diagonal, Plan, Stages, Structured, System, Triangle};

use crate::error::failed;
use crate::kernel::{Argument, Entry, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::sptrsv::{CountsSolves, Solve};
use crate::triangle::{Places, diagonal};
use crate::{Cuda, Vector};

kernels! {
    struct SolveLines<T> { m: LinesArg<T>, b: Address, x: Address, gate: Address }
    in STRUCTURED {
        ALL: "sptrsv_structured",
        BASELINE: "sptrsv_baseline_structured",
        MULTISTAGE: "sptrsv_multistage_structured",
        PREFETCH: "sptrsv_prefetch_structured",
        UNCACHED: "sptrsv_uncached_structured",
        FLAGS: "sptrsv_flags_structured",
        FLAGS_UNCACHED: "sptrsv_flags_uncached_structured",
    }
}

/// Threads of a thread block, `LINE_CREW` of the kernels, and its warps.
const CREW: u32 = 128;
const WARPS: usize = CREW as usize / 32;
/// Words of the state before the counters of the queues.
const HEAD: usize = 4;

/// `struct Lines<T>` of the kernels.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct LinesArg<T> {
    ptr: Address,
    idx: Address,
    from: Address,
    values: Address,
    inv: Address,
    state: Address,
    n: u32,
    nnz: u32,
    flip: u32,
    size: [u32; 3],
    crew: u32,
    magic: u32,
    shift: u32,
    group: u32,
    element: PhantomData<T>,
}
// SAFETY: six pointers, then ten u32.
unsafe impl<T: Real> Argument for LinesArg<T> {}

/// The rows of one system in device memory.
#[derive(Debug)]
struct Walk {
    ptr: Buffer<Offset>,
    idx: Buffer<Ordinal>,
    from: Option<Buffer<Offset>>,
    triangle: Triangle,
}

/// A triangle and the state of its solves in device memory.
#[derive(Debug)]
pub struct CudaStructured<T> {
    plain: Walk,
    transposed: Option<Walk>,
    values: Buffer<T>,
    /// Empty for a unit diagonal.
    inv_diag: Buffer<T>,
    /// For values on the device.
    diagonal: Places,
    state: Buffer<u32>,
    n: usize,
    nnz: usize,
    size: [u32; 3],
    crew: u32,
    group: u32,
    kernel: Entry<SolveLines<T>>,
    blocks: usize,
}

/// The kernel for a set of stages.
fn kernel<T: Real>(stages: Stages) -> Option<Entry<SolveLines<T>>> {
    let Stages { multistage, prefetch, predication, compressed, acquire } = stages;
    Some(match (multistage, prefetch, predication, compressed, acquire) {
        (true, true, true, true, true) => SolveLines::ALL,
        (false, false, false, false, false) => SolveLines::BASELINE,
        (true, false, false, false, false) => SolveLines::MULTISTAGE,
        (true, true, false, false, false) => SolveLines::PREFETCH,
        (true, true, true, true, false) => SolveLines::UNCACHED,
        (true, true, true, false, true) => SolveLines::FLAGS,
        (true, true, true, false, false) => SolveLines::FLAGS_UNCACHED,
        _ => return None,
    })
}

/// `(magic, shift)` such that w / `width` = w * magic >> shift for every w < 2^31. magic is 2^shift / width rounded up;
/// the excess is below width / 2^shift <= 2^-31, too small to reach the next integer.
fn division(width: u32) -> (u32, u32) {
    let width = u64::from(width.max(1));
    let shift = 31 + width.next_power_of_two().trailing_zeros();
    ((1u64 << shift).div_ceil(width) as u32, shift)
}

/// Log2 of the number of lanes per row: the mean number of entries off the diagonal, up to a power of two.
fn group(entries: usize, nrows: usize) -> u32 {
    entries.div_ceil(nrows.max(1)).next_power_of_two().clamp(4, 32).trailing_zeros()
}

/// Host data, at least one element.
fn kept<E: Pod>(cuda: &Cuda, host: &[E], what: &'static str) -> Result<Buffer<E>> {
    let buffer = Buffer::zeros(cuda.stream(), host.len().max(1), what)?;
    buffer.write_at(0, host)?;
    Ok(buffer)
}

fn unsupported(op: &'static str, why: String) -> Error {
    Error::Unsupported { op, noun: "structured", why }
}

fn walk<T: Real>(cuda: &Cuda, plan: &Structured<T>, system: System) -> Result<Walk> {
    let view = plan.rows().view(system)?;
    Ok(Walk {
        ptr: kept(cuda, view.ptr, "a triangle's row pointers")?,
        idx: kept(cuda, view.idx, "a triangle's columns")?,
        from: view.from.map(|from| kept(cuda, from, "the places of a triangle's columns")).transpose()?,
        triangle: view.triangle,
    })
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Structured<T>> for Cuda {
    type Resident = CudaStructured<T>;

    /// Refuses sets of stages that have no kernel, and 2^31 rows or more.
    fn load(&self, host: Arc<Structured<T>>) -> Result<CudaStructured<T>> {
        let stages = host.stages();
        let Some(kernel) = kernel(stages) else {
            return Err(unsupported(
                "load",
                format!("there is no kernel for {stages:?}: take one of its measured sets"),
            ));
        };
        let (n, nnz) = (host.nrows(), host.matrix().csr().values().len());
        if n >= 1 << 31 {
            return Err(unsupported("load", format!("{n} rows, and its kernels take fewer than 2^31")));
        }
        // The product of the extents is below 2^31 if there are rows; otherwise this is unused.
        let size = host.size().map(|extent| if n == 0 { 0 } else { extent as u32 });
        let crew = host.queue_depth().clamp(1, size[1].max(1) as usize);
        let tickets = size[2] as usize * crew;
        let function = self.function::<T, _>(kernel)?.function;
        let each = function
            .occupancy_max_active_blocks_per_multiprocessor(CREW, 0, None)
            .map_err(|error| failed(kernel.name, error))?;
        let blocks = (each as usize * self.multiprocessors()).min(tickets.div_ceil(WARPS)).max(1);
        let blocks = self.waiting(blocks);
        let off_diagonal = if host.diagonal() == Diagonal::NonUnit { nnz - n } else { nnz };
        let marks = if stages.compressed { host.lines() } else { n };
        let words = if n == 0 { HEAD } else { HEAD + size[2] as usize + marks };
        Ok(CudaStructured {
            plain: walk(self, &host, System::Plain)?,
            transposed: match host.systems().hold(System::Transposed) {
                true => Some(walk(self, &host, System::Transposed)?),
                false => None,
            },
            values: kept(self, host.matrix().csr().values(), "a triangle's values")?,
            inv_diag: Buffer::from_host(self.stream(), host.matrix().inv_diag(), "a triangle's reciprocals")?,
            diagonal: Places::default(),
            state: Buffer::zeros(self.stream(), words, "the state of a solve")?,
            n,
            nnz,
            size,
            // At most Y per queue for Z queues, so no more than rows.
            crew: crew as u32,
            group: group(off_diagonal, n),
            kernel,
            blocks,
        })
    }
}

impl<T: Real> CountsSolves for CudaStructured<T> {
    fn pretend(&self, solves: u32) -> Result<()> {
        let [width, height, depth] = self.size;
        let queues = depth as usize;
        self.state.write_at(0, &[solves])?;
        self.state.write_at(HEAD, &vec![solves.wrapping_mul(height + self.crew); queues])?;
        let marks = self.state.len() - HEAD - queues;
        let each = if marks == self.n { 1 } else { width };
        self.state.write_at(HEAD + queues, &vec![solves.wrapping_mul(each); marks])
    }
}

impl<T: Real> Solve<Structured<T>> for CudaStructured<T> {
    fn shape(&self) -> (usize, usize) {
        (self.n, self.nnz)
    }
    fn order(&self, _system: System) -> Order {
        Order::Own
    }
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()> {
        let walk = match (system, &self.transposed) {
            (System::Plain, _) => &self.plain,
            (System::Transposed, Some(walk)) => walk,
            (System::Transposed, None) => {
                return Err(unsupported("sptrsv", spandrel_sptrsv::Error::NotAnalyzed.to_string()));
            }
        };
        let (magic, shift) = division(self.size[0]);
        let m = LinesArg::<T> {
            ptr: walk.ptr.pointer(),
            idx: walk.idx.pointer(),
            from: walk.from.as_ref().map_or(Address::NULL, Buffer::pointer),
            values: self.values.pointer(),
            inv: if self.inv_diag.len() == 0 { Address::NULL } else { self.inv_diag.pointer() },
            state: self.state.pointer(),
            n: self.n as u32,
            nnz: self.nnz as u32,
            flip: if walk.triangle == Triangle::Upper { u32::MAX } else { 0 },
            size: self.size,
            crew: self.crew,
            magic,
            shift,
            group: self.group,
            element: PhantomData,
        };
        let (grid, parameters) = (Grid::of(self.blocks, CREW), SolveLines { m, b, x, gate });
        // SAFETY: vectors of n elements; the state has a word for each queue and each mark.
        unsafe { cuda.launch::<T, _>(self.kernel, grid, &parameters) }
    }
    fn replace(&mut self, plan: &Structured<T>) -> Result<()> {
        let inv_diag = plan.matrix().inv_diag();
        expect_len("update", "plan", inv_diag.len(), self.inv_diag.len())?;
        self.values.write_at(0, plan.matrix().csr().values())?;
        self.inv_diag.write_at(0, inv_diag)
    }
    fn adopt(&mut self, cuda: &Cuda, plan: &Structured<T>, values: &Vector<T>) -> Result<()> {
        if self.nnz > 0 {
            self.values.copy_from(values.buffer())?;
        }
        self.diagonal.invert(cuda, values, &self.inv_diag, || diagonal(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplication_divides() {
        let widths = (1..300).chain([1 << 15, (1 << 15) + 1, 65_535, 1_000_003, (1 << 30) + 1, (1 << 31) - 1, 1 << 31]);
        for width in widths {
            let (magic, shift) = division(width);
            let near = |w: u64| [w.saturating_sub(1), w, w + 1];
            let whole = (0..40u64).flat_map(|q| near(q * u64::from(width)));
            let last = (1u64 << 31) - 1;
            let late = near(last / u64::from(width) * u64::from(width)).into_iter().chain([last]);
            for w in whole.chain(late).filter(|&w| w <= last) {
                assert_eq!((w * u64::from(magic)) >> shift, w / u64::from(width), "{w} / {width}");
            }
        }
    }

    #[test]
    fn rows_get_lanes_for_their_entries() {
        assert_eq!([3, 6, 13, 16, 17, 900].map(|entries| group(100 * entries, 100)), [2, 3, 4, 4, 5, 5]);
        assert_eq!(group(0, 0), 2);
    }

    #[test]
    fn every_measured_set_has_a_kernel() {
        let name = |stages| kernel::<f64>(stages).map(|entry| entry.name);
        assert_eq!(name(Stages::ALL), Some("sptrsv_structured"));
        assert_eq!(name(Stages::NONE), Some("sptrsv_baseline_structured"));
        assert_eq!(name(Stages { multistage: false, ..Stages::ALL }), None);
    }
}
