//! Solves small systems by one cooperative kernel that runs many iterations of CG or BiCGStab, with matrix and vectors
//! on chip.
//!
//! Invariants: the slots through which thread blocks communicate hold iteration numbers (epochs) in the upper half of
//! every word. Those of a launch exceed all earlier ones, so nothing is cleared between launches.
//!
//! Order: that of the separate operations, bit for bit. Kernels: kernels/include/persistent.cuh, and the entries
//! `cg_{noun}` and `bicgstab_{noun}` of each noun that has them.

use std::any::Any;

use cudarc::driver::{result, sys};
use spandrel_backend::error::expect_len;
use spandrel_backend::{BicgstabIterations, CgIterations, Load, Result};
use spandrel_formats::{Real, for_each_format};

use crate::error::failed;
use crate::kernel::{Argument, Entry, ForElement, List, parameters};
use crate::launch::BLOCK;
use crate::memory::{Address, Buffer};
use crate::{Cuda, Monitor, Scalar, Vector};

/// Threads of a thread block, `CREW` of the kernels.
const CREW: u32 = 256;
/// The largest numbers of products and sums per iteration that are exchanged: `PRODUCTS` and `SUMS` of the kernels.
const PRODUCTS: usize = 2;
const SUMS: usize = 6;
/// The possible numbers of rows per thread block. The smallest one is taken with which each thread block has its own
/// multiprocessor. All of them divide a block of the tree.
const ROWS: [usize; 4] = [128, 256, 512, BLOCK];
/// The bytes that a thread block may read per product, for the matrix and for its window beyond a block. At about 50
/// GB/s per multiprocessor this takes 2 us, the minimum cost of the two or three launches of a recorded iteration.
const STREAMED: usize = 96 << 10;

/// The slots, and the last iteration number that was handed out.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    slots: Option<Buffer<u64>>,
    epoch: u32,
}

impl Exchange {
    /// Returns `words` slots, and a number after which `count` iteration numbers are free.
    fn claim(&mut self, cuda: &Cuda, words: usize, count: u32) -> Result<(Address, u32)> {
        let fresh = self.epoch.checked_add(count).is_none();
        let pointer = match &self.slots {
            Some(slots) if slots.len() >= words && !fresh => slots.pointer(),
            _ => {
                let slots = Buffer::zeros(cuda.stream(), words, "slots of a persistent solve")?;
                let pointer = slots.pointer();
                self.slots = Some(slots);
                if fresh {
                    self.epoch = 0;
                }
                pointer
            }
        };
        let before = self.epoch;
        self.epoch += count;
        Ok((pointer, before))
    }
}

/// The rows and columns of thread blocks, in the form that kernels take.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SpanArg {
    below: u64,
    above: u64,
    rows: u32,
    width: u32,
    kept: u32,
    count: u32,
    epoch: u32,
    unused: u32,
}
// SAFETY: `struct Span`: two u64, then six u32.
unsafe impl Argument for SpanArg {}

/// `struct StabScalars`: the addresses of rho, rho_next, rv, ss, ts, tt, rr.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct StabScalarsArg([Address; 7]);
// SAFETY: seven pointers.
unsafe impl Argument for StabScalarsArg {}

parameters! {
    /// The parameters of every kernel `cg_{noun}` after its matrix.
    pub(crate) struct CgParameters {
        n: u64, span: SpanArg, slots: Address, x: Address, r: Address, p: Address, q: Address, pq: Address, rr: Address,
        rz: Address, monitor: Address,
    }

    /// The parameters of every kernel `bicgstab_{noun}` after its matrix.
    pub(crate) struct BicgstabParameters {
        n: u64, span: SpanArg, slots: Address, shadow: Address, x: Address, r: Address, p: Address, v: Address,
        t: Address, scalars: StabScalarsArg, monitor: Address,
    }
}

/// A square matrix as a persistent kernel sees it.
pub(crate) struct Resident {
    pub(crate) n: usize,
    /// Row i has entries only in columns i - below ..= i + above. With permuted rows, i is the place of a row.
    pub(crate) below: usize,
    pub(crate) above: usize,
    /// The bytes that a thread block always needs on chip.
    pub(crate) fixed: usize,
    /// Units (diagonals, or entries of a row), and the bytes of a unit per row. As many units as fit are kept on chip.
    pub(crate) units: usize,
    pub(crate) unit: usize,
}

/// Runs many iterations by one call with a resident matrix. The default bodies are for formats without such kernels.
pub(crate) trait Persists<T: Real> {
    /// [`spandrel_backend::CgSteps::cg_iterations`].
    fn cg(
        &self,
        cuda: &Cuda,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let _ = (cuda, count, on, monitor);
        Ok(false)
    }

    /// [`spandrel_backend::BicgstabSteps::bicgstab_iterations`].
    fn bicgstab(
        &self,
        cuda: &Cuda,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let _ = (cuda, count, on, monitor);
        Ok(false)
    }
}

/// The resident matrix in any format of the registry, as [`spandrel_backend::Operator::stored`] returns it.
pub(crate) fn resident<T: Real>(stored: &dyn Any) -> Option<&dyn Persists<T>> {
    macro_rules! first {
        ([$stored:ident $T:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(if let Some(m) = $stored.downcast_ref::<<Cuda as Load<spandrel_formats::$Type<$T>>>::Resident>() {
                return Some(m);
            })*
        };
    }
    for_each_format!(first, stored, T);
    None
}

/// How far the entries of a square matrix reach from the diagonal: row i has entries only in columns i - below ..= i +
/// above.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reach {
    pub(crate) below: usize,
    pub(crate) above: usize,
}

impl Reach {
    /// The reach of a row with an entry in this column.
    pub(crate) fn of(row: usize, column: usize) -> Self {
        Self { below: row.saturating_sub(column), above: column.saturating_sub(row) }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self { below: self.below.max(other.below), above: self.above.max(other.above) }
    }
}

/// The layout of a solve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    rows: usize,
    width: usize,
    kept: usize,
    shared: usize,
}

/// The layout on a device; `None` if the system is too large. A thread block holds `windows` vectors of its reach, and
/// `extra` bytes.
fn layout(
    m: &Resident,
    element: usize,
    multiprocessors: usize,
    shared: usize,
    windows: usize,
    extra: usize,
) -> Option<Layout> {
    let n = m.n;
    if n == 0 {
        return None;
    }
    let rows = ROWS.into_iter().find(|&rows| n.div_ceil(rows) <= multiprocessors)?;
    // The thread block that sums a block of 1024 rows has all of it in its window.
    let width = m.below.saturating_add((rows.saturating_add(m.above)).max(BLOCK)).min(n);
    let taken = width.checked_mul(windows * element)?.checked_add(extra)?.checked_add(m.fixed)?;
    let room = shared.checked_sub(taken)?;
    let each = m.unit.checked_mul(rows)?;
    let kept = room.checked_div(each).map_or(0, |kept| kept.min(m.units));
    // Two words for a double, one for a float, of eight bytes each.
    let gathered = width.saturating_sub(BLOCK) * 2 * element;
    if (m.units - kept).checked_mul(each)?.checked_add(gathered)? > STREAMED {
        return None;
    }
    Some(Layout { rows, width, kept, shared: taken + kept * each })
}

impl Cuda {
    /// Returns true if a persistent kernel might solve with a matrix of this size. If not, its reach is not needed.
    pub(crate) fn may_persist(&self, nrows: usize, ncols: usize) -> bool {
        nrows == ncols && nrows <= BLOCK * self.multiprocessors()
    }

    /// Launches a persistent kernel with the parameters that `parameters` makes from n, the span and the slots. Returns
    /// `false` if it does not fit.
    ///
    /// # Safety
    /// As [`Cuda::launch`].
    unsafe fn persist<T: Real, P: ForElement<T>>(
        &self,
        m: &Resident,
        entry: Entry<P>,
        windows: usize,
        extra: usize,
        count: usize,
        parameters: impl FnOnce(u64, SpanArg, Address) -> P,
    ) -> Result<bool> {
        use sys::CUdevice_attribute as Attribute;
        let name = entry.name;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count == 0 || self.is_capturing() {
            return Ok(false);
        }
        let ask = |attribute| self.context().attribute(attribute).map_err(|error| failed(name, error));
        if ask(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? == 0 {
            return Ok(false);
        }
        let most = ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        // Decide before the module is loaded, so that a large system need not wait for it. No kernel has more than 256
        // static bytes.
        let shared = usize::try_from(most).unwrap_or(0).saturating_sub(256);
        let Some(layout) = layout(m, T::BYTES, self.multiprocessors(), shared, windows, extra) else {
            return Ok(false);
        };
        // A cooperative launch is never early; the wait of an early kernel then ends at once.
        let function = self.function::<T, P>(entry)?;
        function.allow_shared(layout.shared as u32).map_err(|error| failed(name, error))?;
        let slots = 2 * (PRODUCTS * m.n + SUMS * m.n.div_ceil(BLOCK)) * T::BYTES.div_ceil(4);
        let (slots, epoch) = self.exchange().borrow_mut().claim(self, slots, count)?;
        let span = SpanArg {
            below: m.below as u64,
            above: m.above as u64,
            rows: layout.rows as u32,
            width: layout.width as u32,
            kept: layout.kept as u32,
            count,
            epoch,
            unused: 0,
        };
        let parameters = parameters(m.n as u64, span, slots);
        let mut list = List::of(&parameters);
        self.context().bind_to_thread().map_err(|error| failed(name, error))?;
        // SAFETY: the function belongs to the bound context; the caller vouches for the other parameters, the slots are
        // as many as the kernel uses, and the window of each thread block is at most `width`. A cooperative launch runs
        // all thread blocks at once or none.
        let launched = unsafe {
            result::launch_cooperative_kernel(
                function.function.cu_function(),
                (m.n.div_ceil(layout.rows) as u32, 1, 1),
                (CREW, 1, 1),
                layout.shared as u32,
                self.stream().cu_stream(),
                list.addresses(),
            )
        };
        match launched {
            Ok(()) => Ok(true),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => Ok(false),
            Err(error) => Err(failed(name, error)),
        }
    }

    /// [`spandrel_backend::CgSteps::cg_iterations`] with a noun's kernel.
    ///
    /// # Safety
    /// `parameters` prepends a square matrix of `m.n` rows with the reach of `m`.
    pub(crate) unsafe fn cg_persistent<T: Real, P: ForElement<T>>(
        &self,
        m: &Resident,
        entry: Entry<P>,
        parameters: impl FnOnce(CgParameters) -> P,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let CgIterations { x, r, p, q, pq, rr, rz } = on;
        for (what, v) in [("x", &*x), ("r", r), ("p", p), ("q", q)] {
            expect_len("cg_iterations", what, v.len(), m.n)?;
        }
        let (x, r, p, q) = (x.pointer(), r.pointer(), p.pointer(), q.pointer());
        let (pq, rr, rz, monitor) = (pq.pointer(), rr.pointer(), rz.pointer(), monitor.pointer());
        let rest = |n, span, slots| CgParameters { n, span, slots, x, r, p, q, pq, rr, rz, monitor };
        let all = |n, span, slots| parameters(rest(n, span, slots));
        // SAFETY: lengths compared above; the caller vouches for the matrix.
        unsafe { self.persist::<T, P>(m, entry, 3, 0, count, all) }
    }

    /// [`spandrel_backend::BicgstabSteps::bicgstab_iterations`] with a noun's kernel.
    ///
    /// # Safety
    /// As [`Cuda::cg_persistent`].
    pub(crate) unsafe fn bicgstab_persistent<T: Real, P: ForElement<T>>(
        &self,
        m: &Resident,
        entry: Entry<P>,
        parameters: impl FnOnce(BicgstabParameters) -> P,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let BicgstabIterations { shadow, x, r, p, v, t, rho, rho_next, rv, ss, ts, tt, rr } = on;
        for (what, v) in [("shadow", shadow), ("x", x), ("r", r), ("p", p), ("v", v), ("t", t)] {
            expect_len("bicgstab_iterations", what, v.len(), m.n)?;
        }
        let (shadow, x, r, p) = (shadow.pointer(), x.pointer(), r.pointer(), p.pointer());
        let (v, t, monitor) = (v.pointer(), t.pointer(), monitor.pointer());
        let scalars = StabScalarsArg([rho, rho_next, rv, ss, ts, tt, rr].map(|s| s.pointer()));
        let rest = |n, span, slots| BicgstabParameters { n, span, slots, shadow, x, r, p, v, t, scalars, monitor };
        let all = |n, span, slots| parameters(rest(n, span, slots));
        // SAFETY: lengths compared above; the caller vouches for the matrix.
        unsafe { self.persist::<T, P>(m, entry, 4, BLOCK * T::BYTES, count, all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banded(n: usize, diagonals: usize) -> Resident {
        let reach = diagonals / 2;
        Resident {
            n,
            below: reach,
            above: reach,
            fixed: (4 * diagonals).next_multiple_of(16),
            units: diagonals,
            unit: 8,
        }
    }

    /// On an H200: 132 multiprocessors, 227 KB for a thread block.
    fn on_h200(m: &Resident) -> Option<Layout> {
        layout(m, 8, 132, (227 << 10) - 256, 3, 0)
    }

    #[test]
    fn small_bands_lie_on_chip() {
        let found = on_h200(&banded(30_000, 101)).expect("it fits");
        assert_eq!((found.rows, found.width, found.kept), (256, 50 + 1024, 100));
        let found = on_h200(&banded(30_000, 3)).expect("it fits");
        assert_eq!((found.rows, found.kept), (256, 3));
        assert_eq!(on_h200(&banded(1, 1)).map(|l| (l.rows, l.width, l.kept)), Some((128, 1, 1)));
    }

    #[test]
    fn what_is_too_large_is_left_to_the_recorded_step() {
        assert_eq!(on_h200(&banded(0, 0)), None);
        assert_eq!(on_h200(&banded(132 * 1024 + 1, 3)), None, "more blocks than multiprocessors");
        assert_eq!(on_h200(&banded(100_000, 101)), None, "most of the matrix would be read anew each time");
        let wide = Resident { below: usize::MAX, above: usize::MAX, ..banded(20_000, 3) };
        assert_eq!(on_h200(&wide), None, "the windows do not fit");
        let unstructured = |n| Resident { below: n, above: n, ..banded(n, 3) };
        assert!(on_h200(&unstructured(5_000)).is_some_and(|l| l.width == 5_000), "windows of whole vectors");
        assert_eq!(on_h200(&unstructured(9_000)), None, "windows take longer than launches");
    }
}
