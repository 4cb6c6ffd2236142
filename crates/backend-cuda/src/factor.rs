//! Incomplete factorisations on the GPU: the common parts of all of them.
//!
//! Layout: the structures have twins of the same names in kernels/include/factor.cuh. Rows are taken level by level of
//! L ([`spandrel_sptrsv::Levels`]), so that as many as possible are computed at the same time.
//!
//! Invariants: a run leaves in device memory what the next one needs (its number, tickets, marks). The host writes it
//! only once. A kernel reports the first wrong row, and the host then computes the error from that row's values, as if
//! the host had factored the matrix.
//!
//! Order: that of [`spandrel_sptrsv::factor`]. Cost: 4 bytes per entry of the patterns, 12 per row.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::factor::expect_entries;
use spandrel_backend::{Assemble, Assembled, Error, Factorize, Load, Result};
use spandrel_formats::{Offset, Ordinal, Real};
use spandrel_sptrsv::numeric::lanes;
use spandrel_sptrsv::{Factor, Levels, Pattern, Triangle};

use crate::csr::not_recorded;
use crate::error::NAME;
use crate::kernel::{Argument, Entry, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::sweep::{Parts, assemble};
use crate::{Cuda, CudaCsr, Vector};

/// Threads of a thread block, `FACTOR_THREADS` of the kernels.
const THREADS: usize = 256;
const WARP: usize = 32;
/// Thread blocks per multiprocessor that draw tickets.
const BLOCKS_PER_SM: usize = 4;
/// The size of `struct Numeric` in words, and the places of its findings.
const STATE: usize = 8;
const FOUND: usize = 6;

/// `struct Task<T>`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TaskArg<T> {
    lower: [Address; 2],
    upper: [Address; 2],
    given: [Address; 2],
    values: Address,
    l: Address,
    u: Address,
    order: Address,
    marks: Address,
    state: Address,
    number: T,
    shift: T,
    nrows: u32,
    hasty: u32,
}
// SAFETY: `struct Task<T>`: twelve pointers, two T and two u32.
unsafe impl<T: Real> Argument for TaskArg<T> {}

/// The stencils on grids that have kernels, by their number of points.
pub(crate) const POINTS: [usize; 6] = [7, 13, 15, 19, 27, 33];
/// The number of warps per multiprocessor that draw blocks of lines; each warp is a thread block. On a cube of 256^3,
/// two or three of them have work at a time. With eight, the waiting ones slow the others down by a tenth
/// (record/h200-sweep-variants.txt).
const BLOCKS_OF_LINES: usize = 4;

/// `struct OnGrid<T>`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct OnGridArg {
    size: [u32; 3],
    blocks: u32,
    tiles: u32,
    rows: u32,
    lower: Address,
    upper: Address,
    pivots: Address,
}
// SAFETY: `struct OnGrid<T>`: six u32, then three pointers.
unsafe impl Argument for OnGridArg {}

/// A grid in the blocks of the sweep, for a factorisation by blocks ([`Share::Blocks`]). The order of its [`Patterns`]
/// is that of the blocks.
#[derive(Debug)]
pub(crate) struct OnGrid<T> {
    /// The stencil's place among [`POINTS`].
    stencil: usize,
    arg: OnGridArg,
    /// The pivots, one for every place of a point.
    #[allow(dead_code)] // held for its address
    pivots: Buffer<T>,
}

impl<T: Real> OnGrid<T> {
    /// The grid of a stencil with this many points, in tiles of blocks of rows of 32 places; `None` if there are no
    /// kernels for it.
    pub(crate) fn new(
        cuda: &Cuda,
        points: usize,
        size: [u32; 3],
        [tiles, blocks, rows]: [u32; 3],
    ) -> Result<Option<Self>> {
        let Some(stencil) = POINTS.iter().position(|&of| of == points) else { return Ok(None) };
        let places = tiles as usize * blocks as usize * rows as usize * WARP;
        let pivots = Buffer::uninit(cuda.stream(), places, "the pivots of a factorisation")?;
        let arg = OnGridArg {
            size,
            blocks,
            tiles,
            rows,
            lower: Address::NULL,
            upper: Address::NULL,
            pivots: pivots.pointer(),
        };
        Ok(Some(Self { stencil, arg, pivots }))
    }

    /// # Safety
    /// The addresses refer to packed values of L, and of U, in the layout of kernels/wavefront.cu; places of U without
    /// a point are zeros, and U's address is null if the other factor is L^T. They live as long as runs follow.
    pub(crate) unsafe fn aim(&mut self, lower: Address, upper: Address) {
        (self.arg.lower, self.arg.upper) = (lower, upper);
    }
}

kernels! {
    pub(crate) struct FactorizeRows<T> { task: TaskArg<T> }
    in IC0 {
        IC0_LANES_4: "factorize4_ic0",
        IC0_LANES_8: "factorize8_ic0",
        IC0_LANES_16: "factorize16_ic0",
        IC0_LANES_32: "factorize32_ic0",
    }
    | ILU0 {
        ILU0_LANES_4: "factorize4_ilu0",
        ILU0_LANES_8: "factorize8_ilu0",
        ILU0_LANES_16: "factorize16_ilu0",
        ILU0_LANES_32: "factorize32_ilu0",
    }
    | SSOR { SSOR: "factorize_ssor" }

    pub(crate) struct FactorizeGrid<T> { task: TaskArg<T>, g: OnGridArg }
    in IC0 {
        IC0_POINTS_7: "factorize_grid7_ic0",
        IC0_POINTS_13: "factorize_grid13_ic0",
        IC0_POINTS_15: "factorize_grid15_ic0",
        IC0_POINTS_19: "factorize_grid19_ic0",
        IC0_POINTS_27: "factorize_grid27_ic0",
        IC0_POINTS_33: "factorize_grid33_ic0",
    }
    | ILU0 {
        ILU0_POINTS_7: "factorize_grid7_ilu0",
        ILU0_POINTS_13: "factorize_grid13_ilu0",
        ILU0_POINTS_15: "factorize_grid15_ilu0",
        ILU0_POINTS_19: "factorize_grid19_ilu0",
        ILU0_POINTS_27: "factorize_grid27_ilu0",
        ILU0_POINTS_33: "factorize_grid33_ilu0",
    }
}

/// Kernels of a factorisation whose rows wait for each other: for 4, 8, 16 and 32 lanes per row, and for [`POINTS`].
pub(crate) struct Kernels<T> {
    pub(crate) by_lanes: [Entry<FactorizeRows<T>>; 4],
    pub(crate) on_grid: [Entry<FactorizeGrid<T>>; 6],
}

/// The kernel of a run and how it hands the rows out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share<T> {
    /// This many lanes per row; rows wait for others.
    Lanes(Entry<FactorizeRows<T>>, usize),
    /// One thread per row; no row waits.
    Threads(Entry<FactorizeRows<T>>),
    /// One warp per block of lines of a grid.
    Blocks(Entry<FactorizeGrid<T>>, OnGridArg),
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Every row is computed. For each kind of error, the reported wrong row is the first.
    Complete,
    /// It may end as soon as any row is wrong in the second way. After that, a run to [`Until::Complete`], or one that
    /// finds nothing, must follow soon.
    Broken,
}

/// A pattern in device memory.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) ptr: Buffer<Offset>,
    pub(crate) cols: Option<Buffer<Ordinal>>,
}

impl Index {
    fn load(cuda: &Cuda, pattern: &Pattern) -> Result<Self> {
        let of = ["a factor's row pointers", "a factor's columns"];
        let [ptr, cols] = cuda.load_rows(pattern.row_ptr(), pattern.col_idx(), of)?;
        Ok(Self { ptr, cols: Some(cols) })
    }
    /// Row pointers and columns; null if there are none.
    pub(crate) fn arg(&self) -> [Address; 2] {
        [self.ptr.pointer(), self.cols.as_ref().map_or(Address::NULL, Buffer::pointer)]
    }
    /// Places of a row's entries. Blocks.
    fn places(&self, row: usize) -> Result<Range<usize>> {
        let mut ends = [0; 2];
        self.ptr.read_at(row, &mut ends)?;
        Ok(ends[0] as usize..ends[1] as usize)
    }
}

/// Where A has entries: as the patterns of the factors say, or in a pattern of its own.
pub(crate) enum Given<'a> {
    /// The patterns give them, and rows wait for others.
    Same,
    /// The patterns give them, and no row waits.
    Apart,
    /// The starts of A's rows. Each row begins with the entries of its row of L.
    Begins(&'a [Offset]),
    /// The pattern of A itself.
    Pattern(&'a Pattern),
}

/// The result of a symbolic phase in device memory.
#[derive(Debug)]
pub struct CudaFactor<F: Factor> {
    nrows: usize,
    /// Of A, L and U.
    entries: [usize; 3],
    /// The kernels' `number`: [`Numeric::number`].
    number: F::Value,
    lower: Index,
    upper: Option<Index>,
    given: Option<Index>,
    order: Buffer<Ordinal>,
    marks: Buffer<u32>,
    state: Buffer<u32>,
    on_grid: Option<OnGrid<F::Value>>,
    factor: PhantomData<fn() -> F>,
}

/// The patterns of a factorisation, made on the device, and an order of the rows in which each follows the rows of its
/// columns.
#[derive(Debug)]
pub(crate) struct Patterns {
    pub(crate) nrows: usize,
    /// Of A, L and U.
    pub(crate) entries: [usize; 3],
    pub(crate) lower: Index,
    pub(crate) upper: Option<Index>,
    /// As [`Given`] says.
    pub(crate) given: Option<Index>,
    pub(crate) order: Buffer<Ordinal>,
}

/// The wrong rows of a run, one per kind of error: the first of its kind if the run was complete.
pub(crate) type Wrong = [Option<usize>; 2];

/// The operands of a run. Their lengths are those of the patterns, but A may have more values.
pub(crate) struct Operands<'a, T> {
    pub(crate) values: &'a Buffer<T>,
    pub(crate) lower: &'a mut Vector<T>,
    pub(crate) upper: &'a mut Vector<T>,
}

/// A factorisation whose numeric phase runs on the device.
pub(crate) trait Numeric: Factor {
    /// The parts of a matrix that its factors take, if they are known without a symbolic phase on the host.
    const PARTS: Option<Parts> = None;
    /// Where A has entries.
    fn entries(&self) -> Given<'_>;
    /// The number that the kernels take: the unit roundoff, unless the factorisation sets another.
    fn number(&self) -> Self::Value {
        roundoff()
    }
    /// The numeric phase, as [`Factorize::factorize`] says.
    fn make(cuda: &Cuda, m: &CudaFactor<Self>, operands: Operands<'_, Self::Value>) -> Result<f64>;
}

/// The unit roundoff.
pub(crate) fn roundoff<T: Real>() -> T {
    T::from_f64(T::UNIT_ROUNDOFF)
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<F: Numeric> Load<F> for Cuda {
    type Resident = CudaFactor<F>;

    fn load(&self, host: Arc<F>) -> Result<CudaFactor<F>> {
        load(self, &*host)
    }
}

impl<F: Numeric> Factorize<F> for Cuda {
    fn factorize(
        &self,
        m: &CudaFactor<F>,
        values: &Vector<F::Value>,
        lower: &mut Vector<F::Value>,
        upper: &mut Vector<F::Value>,
    ) -> Result<f64> {
        expect_entries(m.entries, [values.len(), lower.len(), upper.len()])?;
        F::make(self, m, Operands { values: values.buffer(), lower, upper })
    }
}

impl<F: Numeric> Assemble<F> for Cuda {
    fn assemble(&self, a: &CudaCsr<F::Value>) -> Result<Option<Box<dyn Assembled<F::Value, Self>>>> {
        assemble::<F>(self, a)
    }
}

fn load<F: Numeric>(cuda: &Cuda, factor: &F) -> Result<CudaFactor<F>> {
    let (stream, given) = (cuda.stream(), factor.entries());
    let mut levels = None;
    // Levels are found while patterns are copied.
    let (lower, upper, given) = rayon::in_place_scope(|scope| -> Result<_> {
        if !matches!(given, Given::Apart) {
            scope.spawn(|_| levels = Some(Levels::of_pattern(factor.lower(), Triangle::Lower)));
        }
        let lower = Index::load(cuda, factor.lower())?;
        let upper = factor.upper().map(|upper| Index::load(cuda, upper)).transpose()?;
        let given = match given {
            Given::Same | Given::Apart => None,
            Given::Begins(ptr) => {
                Some(Index { ptr: Buffer::from_host(stream, ptr, "a matrix' row pointers")?, cols: None })
            }
            Given::Pattern(pattern) => Some(Index::load(cuda, pattern)?),
        };
        Ok((lower, upper, given))
    })?;
    let order = levels.as_ref().map_or(&[][..], Levels::level_rows);
    let patterns = Patterns {
        nrows: factor.nrows(),
        entries: [factor.nnz_given(), factor.lower().nnz(), factor.upper().map_or(0, Pattern::nnz)],
        lower,
        upper,
        given,
        order: Buffer::from_host(stream, order, "the order of a factorisation")?,
    };
    CudaFactor::of(cuda, patterns, None, factor.number())
}

impl<F: Factor> CudaFactor<F> {
    /// Makes a factorisation from patterns that are on the device. With a grid, their order of rows is that of its
    /// blocks.
    pub(crate) fn of(
        cuda: &Cuda,
        patterns: Patterns,
        on_grid: Option<OnGrid<F::Value>>,
        number: F::Value,
    ) -> Result<Self> {
        let Patterns { nrows, entries, lower, upper, given, order } = patterns;
        let marks = Buffer::zeros(cuda.stream(), order.len(), "the marks of a factorisation")?;
        let state = Buffer::zeros(cuda.stream(), STATE, "the state of a factorisation")?;
        Ok(Self { nrows, entries, number, lower, upper, given, order, marks, state, on_grid, factor: PhantomData })
    }

    /// The grid, if the factorisation uses its blocks.
    pub(crate) fn on_grid(&mut self) -> Option<&mut OnGrid<F::Value>> {
        self.on_grid.as_mut()
    }

    /// The kernel to run, and how it shares out the rows.
    pub(crate) fn share(&self, of: &Kernels<F::Value>) -> Share<F::Value> {
        match &self.on_grid {
            Some(grid) => Share::Blocks(of.on_grid[grid.stencil], grid.arg),
            None => {
                let lanes = self.lanes();
                Share::Lanes(of.by_lanes[lanes.ilog2() as usize - 2], lanes)
            }
        }
    }

    /// Checks that there is one value per entry of A.
    ///
    /// # Errors
    /// [`Error::Shape`].
    pub(crate) fn expect(&self, values: usize) -> Result<()> {
        expect_len("factorize", "values", values, self.entries[0])
    }

    /// The kernels' `number`.
    pub(crate) fn number(&self) -> F::Value {
        self.number
    }
    /// The pattern of L.
    pub(crate) fn lower(&self) -> &Index {
        &self.lower
    }
    /// The index of U, if the other factor is not L^T.
    pub(crate) fn upper(&self) -> Option<&Index> {
        self.upper.as_ref()
    }

    /// Places of a row among the entries of L and of U. Blocks.
    pub(crate) fn places(&self, row: usize) -> Result<[Range<usize>; 2]> {
        Ok([self.lower.places(row)?, self.upper.as_ref().map_or(Ok(0..0), |upper| upper.places(row))?])
    }

    /// The places of a row among A's entries. Blocks.
    pub(crate) fn given_places(&self, row: usize) -> Result<Range<usize>> {
        let [l, u] = self.places(row)?;
        Ok(match &self.given {
            None => l.start + u.start..l.end + u.end,
            Some(given) if given.cols.is_some() => given.places(row)?,
            Some(given) => {
                let begin = given.places(row)?.start;
                begin..begin + l.len()
            }
        })
    }

    /// Lanes of a row.
    fn lanes(&self) -> usize {
        lanes(self.entries[if self.upper.is_some() { 2 } else { 1 }], self.nrows)
    }

    /// Enqueues the kernel and returns its findings. Blocks.
    ///
    /// # Errors
    /// While a step is recorded; those of the driver.
    ///
    /// # Safety
    /// The kernel suits the patterns of this factorisation, a grid is aimed if the kernel needs one, and the operands
    /// have the lengths of these patterns.
    pub(crate) unsafe fn run(
        &self,
        cuda: &Cuda,
        share: Share<F::Value>,
        operands: &mut Operands<'_, F::Value>,
        shift: F::Value,
        until: Until,
    ) -> Result<Wrong> {
        let Operands { values, lower, upper } = operands;
        not_recorded(cuda, "an incomplete factorisation")?;
        let n = self.nrows;
        if n == 0 {
            return Ok([None; 2]);
        }
        let task = TaskArg {
            lower: self.lower.arg(),
            upper: self.upper.as_ref().map_or([Address::NULL; 2], Index::arg),
            given: self.given.as_ref().map_or([Address::NULL; 2], Index::arg),
            values: values.pointer(),
            l: lower.pointer(),
            u: upper.pointer(),
            order: self.order.pointer(),
            marks: self.marks.pointer(),
            state: self.state.pointer(),
            number: self.number,
            shift,
            nrows: n as u32,
            hasty: u32::from(until == Until::Broken),
        };
        let waiting = |all: Grid| Grid { blocks: cuda.waiting(all.blocks), ..all };
        // SAFETY: lengths compared by the caller, who vouches for the kernel; the task is that of this factorisation.
        unsafe {
            match share {
                Share::Lanes(entry, lanes) => {
                    let grid = waiting(grid(n, lanes, cuda.multiprocessors()));
                    cuda.launch::<F::Value, _>(entry, grid, &FactorizeRows { task })?;
                }
                Share::Threads(entry) => {
                    let grid = Grid::of(n.div_ceil(THREADS), THREADS as u32);
                    cuda.launch::<F::Value, _>(entry, grid, &FactorizeRows { task })?;
                }
                Share::Blocks(entry, g) => {
                    self.marks.clear_from(0)?;
                    let most = BLOCKS_OF_LINES * cuda.multiprocessors().max(1);
                    let grid = waiting(Grid::of(self.order.len().min(most), WARP as u32));
                    cuda.launch::<F::Value, _>(entry, grid, &FactorizeGrid { task, g })?;
                }
            }
        }
        let mut found = [0; 2];
        self.state.read_at(FOUND, &mut found)?;
        // The kernels write complements, so that 0 means none.
        Ok(found.map(|row: u32| (row != 0).then_some(!row as usize)))
    }

    /// The host's error for a row that the device found wrong.
    ///
    /// # Errors
    /// That error, or that host and device disagree.
    pub(crate) fn judged<R>(&self, row: usize, verdict: spandrel_sptrsv::Result<()>) -> Result<R> {
        Err(match verdict {
            Err(error) => Error::Triangle(error),
            Ok(()) => Error::Device {
                device: NAME,
                why: format!("{} stopped at row {row}, which has nothing wrong: report this", F::NAME),
            },
        })
    }
}

fn grid(nrows: usize, lanes: usize, multiprocessors: usize) -> Grid {
    let tickets = nrows.div_ceil(WARP / lanes);
    Grid::of(tickets.div_ceil(THREADS / WARP).min(BLOCKS_PER_SM * multiprocessors.max(1)), THREADS as u32)
}

/// Some elements of a vector, for an error message. Blocks.
pub(crate) fn part<T: Real>(of: &Buffer<T>, range: Range<usize>) -> Result<Vec<T>> {
    let mut host = vec![T::zero(); range.len()];
    of.read_at(range.start, &mut host)?;
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_the_size_of_its_twin() {
        assert_eq!((size_of::<TaskArg<f32>>(), size_of::<TaskArg<f64>>()), (112, 120));
        assert_eq!(size_of::<OnGridArg>(), 6 * 4 + 3 * 8);
    }

    #[test]
    fn grids_have_a_thread_block_at_least() {
        assert_eq!(grid(1, 4, 132).blocks, 1);
        assert_eq!(grid(65, 4, 132).blocks, 2);
        assert_eq!(grid(1 << 24, 32, 132).blocks, 528);
        assert_eq!(grid(1 << 24, 32, 0).blocks, 4);
    }
}
