//! Triangular solves on the GPU: the common parts of all plans. A plan implements the launch of one column; sizes, the
//! gate, several columns, solving in place and new values are implemented once, here.
//!
//! Layout: the structures have twins of the same names in kernels/include/sptrsv.cuh.
//!
//! Invariants: a solve leaves in device memory what the next one needs (epoch, tickets, slots). The host writes it
//! once, at load, so a replayed graph continues where the last solve ended.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Error, Gate, Load, Order, Result, Sptrsv};
use spandrel_formats::{Offset, Ordinal, Real};
use spandrel_sptrsv::{Plan, System, Triangle, View};

use crate::csr::not_recorded;
use crate::device::gate_pointer;
use crate::kernel::{Argument, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::triangle::{Places, diagonal};
use crate::{Cuda, Vector};

kernels! {
    /// A solve by rows whose warps draw tickets.
    pub(crate) struct SolveRows {
        m: TriangleRowsArg, deep: u32, slots: Address, progress: Address, b: Address, x: Address, gate: Address,
    }
    in CAPELLINI { CAPELLINI: "sptrsv_capellini" }
    | ELEMENTWISE { ELEMENTWISE: "sptrsv_elementwise" }
    | SYNCFREE {
        LANES_2: "sptrsv_rows2_syncfree",
        LANES_4: "sptrsv_rows4_syncfree",
        LANES_8: "sptrsv_rows8_syncfree",
        LANES_16: "sptrsv_rows16_syncfree",
        LANES_32: "sptrsv_rows32_syncfree",
    }
}

/// Threads of a thread block whose warps draw tickets, `SOLVE_THREADS` of the kernels.
const THREADS: usize = 256;
/// The lanes of a warp, which is also the largest number of rows per ticket.
const WARP: usize = 32;
/// The number of thread blocks per multiprocessor that draw tickets.
const BLOCKS_PER_SM: usize = 4;
/// From this many tickets per warp on, a ticket has several rows, because tickets are drawn one after the other and
/// take about a nanosecond each.
const TICKETS: usize = 4;

/// A plan in device memory, and how it solves.
pub(crate) trait Solve<P: Plan> {
    /// Rows, and stored entries of the triangle.
    fn shape(&self) -> (usize, usize);
    /// The order of a row's sum.
    fn order(&self, system: System) -> Order;
    /// Enqueues x <- T^-1 b or T^-T b for one column, given by addresses; b may be x.
    ///
    /// # Errors
    /// [`Error::Triangle`] or [`Error::Unsupported`] for a system that the plan was not analysed for; the driver's.
    fn solve(&self, cuda: &Cuda, gate: Address, system: System, b: Address, x: Address) -> Result<()>;
    /// Takes over the values of an updated plan of the same pattern.
    fn replace(&mut self, plan: &P) -> Result<()>;
    /// Takes over values on the device, one per entry; `plan` has the pattern.
    fn adopt(&mut self, cuda: &Cuda, plan: &P, values: &Vector<P::Value>) -> Result<()>;
}

/// A resident that counts its solves modulo 2^32. The trial in which these numbers wrap uses it.
#[doc(hidden)]
pub trait CountsSolves {
    /// Puts a new resident into the state after this many solves. Blocks during the copy.
    ///
    /// # Errors
    /// Those of the driver.
    fn pretend(&self, solves: u32) -> Result<()>;
}

/// Solves for `k` columns. If there is no b, x holds it.
fn columns<T: Real, P: Plan<Value = T>, S: Solve<P>>(
    cuda: &Cuda,
    gate: Gate<'_, Cuda>,
    system: System,
    m: &S,
    k: usize,
    b: Option<&Vector<T>>,
    x: &mut Vector<T>,
) -> Result<()> {
    let (n, _) = m.shape();
    if let Some(b) = b {
        expect_columns("sptrsv", "b", b.len(), n, k)?;
    }
    expect_columns("sptrsv", "x", x.len(), n, k)?;
    if n == 0 {
        return Ok(());
    }
    let (x, gate) = (x.pointer(), gate_pointer(gate));
    let b = b.map_or(x, Vector::pointer);
    (0..k)
        .map(|column| column * n * T::BYTES)
        .try_for_each(|at| m.solve(cuda, gate, system, b.offset(at), x.offset(at)))
}

/// Every plan whose resident form is `Solve`.
impl<P: Plan> Sptrsv<P> for Cuda
where
    Cuda: Load<P>,
    <Cuda as Load<P>>::Resident: Solve<P>,
{
    fn sptrsv_order(&self, m: &Self::Resident, system: System) -> Order {
        m.order(system)
    }
    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Vector<P::Value>,
        x: &mut Vector<P::Value>,
    ) -> Result<()> {
        columns(self, gate, system, m, k, Some(b), x)
    }
    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        x: &mut Vector<P::Value>,
    ) -> Result<()> {
        columns(self, gate, system, m, k, None, x)
    }
    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()> {
        let (nrows, nnz) = m.shape();
        expect_len("update", "plan", plan.matrix().nrows(), nrows)?;
        expect_len("update", "plan", plan.matrix().csr().values().len(), nnz)?;
        not_recorded(self, "new values of a triangle")?;
        m.replace(plan)
    }
    fn update_from(&self, m: &mut Self::Resident, plan: &Arc<P>, values: &Vector<P::Value>) -> Result<()> {
        let (nrows, nnz) = m.shape();
        expect_len("update", "plan", plan.matrix().nrows(), nrows)?;
        expect_len("update", "values", values.len(), nnz)?;
        not_recorded(self, "new values of a triangle")?;
        m.adopt(self, plan, values)
    }
}

/// `struct TriangleRows<T>`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TriangleRowsArg {
    ptr: Address,
    idx: Address,
    values: Address,
    inv_diag: Address,
    nrows: u32,
    lower: u32,
}
// SAFETY: `struct TriangleRows<T>`: four pointers, then two u32.
unsafe impl Argument for TriangleRowsArg {}

/// The rows of one system, with the values by row.
#[derive(Debug)]
struct SystemRows<T> {
    ptr: Buffer<Offset>,
    idx: Buffer<Ordinal>,
    values: Buffer<T>,
    /// The places of the values in the triangle, for values from the device; unused if they are in its order.
    from: Places,
    /// Whether the triangle of the system is a lower one.
    lower: bool,
}

impl<T: Real> SystemRows<T> {
    fn load(cuda: &Cuda, view: &View<'_, T>, triangle: Triangle) -> Result<Self> {
        let stream = cuda.stream();
        let [ptr, idx] = cuda.load_rows(view.ptr, view.idx, ["a triangle's row pointers", "a triangle's columns"])?;
        Ok(Self {
            ptr,
            idx,
            values: Buffer::from_host(stream, &by_row(view), "a triangle's values")?,
            from: Places::default(),
            lower: triangle == Triangle::Lower,
        })
    }

    fn adopt(&mut self, cuda: &Cuda, view: &View<'_, T>, values: &Vector<T>) -> Result<()> {
        match view.from {
            None => self.values.copy_from(values.buffer()),
            Some(from) => self.from.gather(cuda, values, &self.values, || from.into()),
        }
    }
}

/// The values in the order of the rows' entries.
fn by_row<'a, T: Real>(view: &View<'a, T>) -> Cow<'a, [T]> {
    match view.from {
        None => Cow::Borrowed(view.values),
        Some(from) => Cow::Owned(from.par_iter().map(|&e| view.values[e as usize]).collect()),
    }
}

/// A triangle in device memory: for each system that is solved, its rows, or its columns instead. Each system has its
/// own values in the order in which it reads them (docs/adr/0031).
#[derive(Debug)]
pub(crate) struct TriangleRows<T> {
    nrows: usize,
    nnz: usize,
    inv_diag: Buffer<T>,
    plain: SystemRows<T>,
    transposed: Option<SystemRows<T>>,
    /// The places of the diagonal in the triangle, for values on the device.
    diagonal: Places,
}

impl<T: Real> TriangleRows<T> {
    /// Copies the rows or columns that `views` returns for each system of a plan.
    pub(crate) fn load<'a, P: Plan<Value = T>>(
        cuda: &Cuda,
        plan: &P,
        views: impl Fn(System) -> spandrel_sptrsv::Result<View<'a, T>>,
    ) -> Result<Self> {
        let view = views(System::Plain)?;
        let both = plan.systems().hold(System::Transposed);
        let transposed =
            both.then(|| SystemRows::load(cuda, &views(System::Transposed)?, plan.triangle().transposed()));
        Ok(Self {
            nrows: plan.nrows(),
            nnz: view.values.len(),
            inv_diag: Buffer::from_host(cuda.stream(), view.inv_diag, "a triangle's reciprocals")?,
            plain: SystemRows::load(cuda, &view, plan.triangle())?,
            transposed: transposed.transpose()?,
            diagonal: Places::default(),
        })
    }

    /// The numbers of rows and entries.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.nrows, self.nnz)
    }

    /// A system in the form that kernels take.
    pub(crate) fn arg(&self, system: System) -> Result<TriangleRowsArg> {
        let rows = match (system, &self.transposed) {
            (System::Plain, _) => &self.plain,
            (System::Transposed, Some(rows)) => rows,
            (System::Transposed, None) => return Err(Error::Triangle(spandrel_sptrsv::Error::NotAnalyzed)),
        };
        Ok(TriangleRowsArg {
            ptr: rows.ptr.pointer(),
            idx: rows.idx.pointer(),
            values: rows.values.pointer(),
            inv_diag: if self.inv_diag.len() == 0 { Address::NULL } else { self.inv_diag.pointer() },
            nrows: self.nrows as u32,
            lower: u32::from(rows.lower),
        })
    }

    /// The systems that the plan was analysed for.
    fn systems(&mut self) -> impl Iterator<Item = (System, &mut SystemRows<T>)> {
        let transposed = self.transposed.as_mut().map(|rows| (System::Transposed, rows));
        std::iter::once((System::Plain, &mut self.plain)).chain(transposed)
    }

    /// Writes new values and their reciprocals to the same addresses. `views` returns the same as for
    /// [`TriangleRows::load`].
    pub(crate) fn replace<'a>(&mut self, views: impl Fn(System) -> spandrel_sptrsv::Result<View<'a, T>>) -> Result<()> {
        for (system, rows) in self.systems() {
            rows.values.write_at(0, &by_row(&views(system)?))?;
        }
        self.inv_diag.write_at(0, views(System::Plain)?.inv_diag)
    }

    /// As [`TriangleRows::replace`] with values that are on the device.
    pub(crate) fn adopt<'a, P: Plan<Value = T>>(
        &mut self,
        cuda: &Cuda,
        plan: &P,
        values: &Vector<T>,
        views: impl Fn(System) -> spandrel_sptrsv::Result<View<'a, T>>,
    ) -> Result<()> {
        for (system, rows) in self.systems() {
            rows.adopt(cuda, &views(system)?, values)?;
        }
        self.diagonal.invert(cuda, values, &self.inv_diag, || diagonal(plan))
    }
}

/// The progress of the solves of a resident: `struct Progress`, and if a kernel needs it one slot per row, in which a
/// value carries the number of its solve.
#[derive(Debug)]
pub(crate) struct Progress {
    progress: Buffer<u32>,
    slots: Buffer<u64>,
}

impl Progress {
    /// The progress for this many slots of values of type `T`.
    pub(crate) fn new<T: Real>(cuda: &Cuda, slots: usize) -> Result<Self> {
        Ok(Self {
            progress: Buffer::zeros(cuda.stream(), 4, "the progress of a triangular solve")?,
            slots: Buffer::zeros(cuda.stream(), slots * T::BYTES.div_ceil(4), "slots of a triangular solve")?,
        })
    }
    /// The address of `struct Progress`.
    pub(crate) fn pointer(&self) -> Address {
        self.progress.pointer()
    }
    /// Puts it into the state after this many solves. The slots hold no number of a later solve.
    pub(crate) fn pretend(&self, solves: u32) -> Result<()> {
        self.progress.write_at(0, &[solves])
    }
    /// The address of the slots.
    pub(crate) fn slots(&self) -> Address {
        self.slots.pointer()
    }
}

impl Cuda {
    /// The grid of warps that draw tickets for rows with `lanes` lanes each, and how many such rows of a ticket a lane
    /// solves one after the other.
    pub(crate) fn solve_grid(&self, nrows: usize, lanes: usize) -> (Grid, u32) {
        let (grid, deep) = solve_grid(nrows, lanes, self.multiprocessors());
        (Grid { blocks: self.waiting(grid.blocks), ..grid }, deep)
    }
}

fn solve_grid(nrows: usize, lanes: usize, multiprocessors: usize) -> (Grid, u32) {
    let warps = THREADS / WARP;
    let runs = nrows.div_ceil(WARP / lanes);
    let most = BLOCKS_PER_SM * multiprocessors.max(1);
    let deep = (runs / (TICKETS * most * warps)).clamp(1, lanes.min(8));
    (Grid::of(runs.div_ceil(deep).div_ceil(warps).min(most), THREADS as u32), deep as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_for_at_most_a_warp_of_rows() {
        for nrows in [1, 31, 32, 33, 1000, 100_000, 1 << 24, u32::MAX as usize >> 1] {
            for lanes in [1, 2, 4, 8, 16, 32] {
                for multiprocessors in [1, 40, 132] {
                    let (grid, deep) = solve_grid(nrows, lanes, multiprocessors);
                    assert!(deep >= 1 && deep as usize * (WARP / lanes) <= WARP);
                    assert!(grid.blocks >= 1 && grid.blocks <= BLOCKS_PER_SM * multiprocessors);
                }
            }
        }
    }

    #[test]
    fn few_rows_are_spread_over_warps() {
        let (grid, deep) = solve_grid(264, 32, 132);
        assert_eq!((grid.blocks, deep), (33, 1));
        let (grid, deep) = solve_grid(1 << 24, 32, 132);
        assert_eq!((grid.blocks, deep), (528, 8));
        assert_eq!(solve_grid(33, 1, 132).0.blocks, 1);
    }
}
