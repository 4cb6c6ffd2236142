//! Algebraic multigrid whose rows lie on the ranks, with the hierarchy and the bits of [`spandrel_solvers::Amg`].
//!
//! If every rank's device has memory of its own, and room for the whole set-up, each rank gets the whole matrix, makes
//! every grid on its device and keeps its own rows (`whole.rs`). Otherwise each rank makes its rows of every grid on
//! its host, from its own rows and from what other ranks bring it (`grid.rs`). Aggregates are numbered by their roots,
//! so the rows of a rank are consecutive on every grid, and every sum has the terms and the order that it has on one
//! device. A grid with few rows is brought to every rank, and from there each rank continues with the hierarchy of one
//! device (`bottom.rs`).
//!
//! Cost: the set-up on each device sends the matrix to every rank once, and takes the time and memory of one device for
//! the whole matrix. The set-up on the hosts sends each row of A P to the owners of the aggregates that its row of P
//! reaches. A cycle sends the ghosts of each product. Each rank also sends its part of one right-hand side, that of the
//! first grid that every rank has, to each other rank.

mod bottom;
mod grid;
#[cfg(test)]
mod tests;
mod whole;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Backend, Coeff, Gate, Preconditioner};
use spandrel_formats::amg::Scaling;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::amg::{AmgGrid, AmgLevels, AmgOperator, AmgWork, constants, cycle, unfit};
use spandrel_solvers::{AmgBackend, AmgLevel, AmgOptions, Error, Result};

use self::bottom::Bottom;
use self::grid::{Coarser, Level, View, moved, widened};
use self::whole::{Kept, Way, Whole};
use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};
use crate::layout::Layout;
use crate::matrix::{DistributedMat, Local};
use crate::partition::Partition;
use crate::rows::Rows;
use crate::survey::Survey;

/// Grids of at most this many rows are brought to every rank: there, a product takes less time than the messages of
/// the rows of each rank.
pub const GATHERED: usize = 1 << 14;

/// The V-cycle of all ranks as M^-1. See the [module](self).
pub struct DistributedAmg<T: Real, B: Local<T> + AmgBackend<T>> {
    /// 1 / d of the finest grid.
    inv_diag: Vector<T, B>,
    grids: Vec<Grid<T, B>>,
    /// `None` if coarsening has stalled on a grid that is too large for every rank.
    bottom: Option<Bottom<T, B>>,
    work: Mutex<Vec<Work<T, B>>>,
    levels: Vec<AmgLevel>,
}

/// The scratch vectors of a grid.
type Work<T, B> = AmgWork<Vector<T, B>, <B as Backend<T>>::Scalar>;

/// A grid whose rows lie on the ranks.
struct Grid<T: Real, B: Local<T>> {
    layout: Arc<Layout>,
    /// D^-1 A; `None` on the grid that every rank has.
    a: Option<DistributedMat<B, Csr<T>>>,
    bound: f64,
    /// Of the smoother.
    degree: usize,
    /// `None` on the last grid.
    down: Option<Down<T, B>>,
}

/// The way to the next grid and back.
struct Down<T: Real, B: Local<T>> {
    /// D_c^-1 P^T D.
    restrict: DistributedMat<B, Csr<T>>,
    /// P.
    prolong: DistributedMat<B, Csr<T>>,
    coarse: Arc<Layout>,
}

impl<T: Real, B: Local<T>> Down<T, B> {
    /// From the rows of this rank. Waits for the other ranks.
    fn of<C: Communicator>(
        be: &Distributed<B, C>,
        restrict: Rows<T>,
        prolong: Rows<T>,
        fine: &Arc<Layout>,
        coarse: &Arc<Layout>,
    ) -> Result<Self> {
        let restrict = DistributedMat::between(be, restrict, Arc::clone(coarse), Arc::clone(fine))?;
        let prolong = DistributedMat::between(be, prolong, Arc::clone(fine), Arc::clone(coarse))?;
        Ok(Self { restrict, prolong, coarse: Arc::clone(coarse) })
    }
}

/// Who makes the grids. The bits do not depend on it.
#[derive(Clone, Copy, Debug)]
enum SetUp {
    /// Each rank all of them on its device, if that is not the host and has the memory; else all ranks together.
    Either,
    /// Each rank all of them.
    #[cfg(test)]
    Each,
    /// All ranks together.
    #[cfg(test)]
    Together,
}

impl<T: Real, B: Local<T>, C: Communicator> AmgOperator<T, Distributed<B, C>> for DistributedMat<B, Csr<T>> {
    fn product(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        a: T,
        x: &Vector<T, B>,
        b: T,
        y: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        self.spmv(be, gate, Coeff::host(a), x, Coeff::host(b), y)
    }
}

impl<T: Real, B: Local<T>, C: Communicator> AmgGrid<T, Distributed<B, C>> for Grid<T, B> {
    type Operator = DistributedMat<B, Csr<T>>;
    fn operator(&self) -> Option<&Self::Operator> {
        self.a.as_ref()
    }
    fn degree(&self) -> usize {
        self.degree
    }
    fn bound(&self) -> f64 {
        self.bound
    }
    fn between(&self) -> Option<(&Self::Operator, &Self::Operator)> {
        self.down.as_ref().map(|down| (&down.restrict, &down.prolong))
    }
}

impl<T: Real, B: Local<T> + AmgBackend<T>> fmt::Debug for DistributedAmg<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedAmg")
            .field("levels", &self.levels)
            .field("on_ranks", &self.on_ranks())
            .finish_non_exhaustive()
    }
}

/// A table of the grids, as that of [`spandrel_solvers::Amg`].
impl<T: Real, B: Local<T> + AmgBackend<T>> fmt::Display for DistributedAmg<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AmgLevels(&self.levels).fmt(f)
    }
}

impl<T: Real, B: Local<T> + AmgBackend<T>> DistributedAmg<T, B> {
    /// Sets up the cycle for a symmetric positive definite matrix from the rows of each rank. Its near-null space is
    /// the constant of each unknown. Waits for the other ranks.
    ///
    /// ```
    /// use spandrel_backend::Backend;
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_distributed::{Distributed, DistributedAmg, DistributedMat, Threads, generate_rows};
    /// use spandrel_formats::{Csr, generate::Spec};
    /// use spandrel_solvers::{AmgOptions, Options, cg};
    ///
    /// let spec = Spec::parse("poisson3d:20")?;
    /// let ended = Threads::run(2, |team| {
    ///     let be = &Distributed::new(Cpu::with_threads(1)?, team);
    ///     let rows = generate_rows::<f64, _, _>(be, &spec)?;
    ///     let m = DistributedAmg::new(be, &rows, &AmgOptions::default())?;
    ///     let b = be.upload(&vec![1.0; rows.len()])?;
    ///     let a = DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows)?;
    ///     let mut x = be.zeros(8000)?;
    ///     cg(be, &a, &m, &b, &mut x, &Options::default())
    /// });
    /// assert!(ended.into_iter().all(|outcome| outcome.is_ok_and(|outcome| outcome.iterations <= 20)));
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`spandrel_solvers::Amg::new`], on every rank. If the ranks make the grids together, a rank without the
    /// refused row gets [`spandrel_backend::Error::Rank`] with the reason. [`Error::Unsupported`] for the
    /// [K-cycle](spandrel_solvers::AmgCycle::K).
    pub fn new<C: Communicator>(be: &Distributed<B, C>, rows: &Rows<T>, options: &AmgOptions) -> Result<Self> {
        be.together(options.check_for_ranks())?;
        let layout = be.lay_out_rows(rows)?;
        if rows.ncols() == layout.len() as u64 && !Survey::is_symmetric_to_rounding(be, &layout, rows)? {
            // An infinite entry or NaN also fails the test of symmetry. Name it instead.
            let not_finite = |i: usize| rows.row(i).1.iter().any(|v| !v.is_finite());
            let found = (0..rows.len()).find(|&i| not_finite(i)).map(|i| refusal(rows, i, 0));
            be.together(found.map_or(Ok(()), Err))?;
            let why = "amg needs a symmetric matrix, and this one is not; use ilu0 or ilut with bicgstab or gmres";
            return be.together(Err(Error::Unsupported { why: why.to_string() }));
        }
        Self::of(be, rows, options, GATHERED)
    }

    /// As [`DistributedAmg::new`] for a matrix that is known to be symmetric. Every rank has a full copy of grids of at
    /// most `gathered` rows; the bits do not depend on it.
    ///
    /// # Errors
    /// As [`DistributedAmg::new`].
    pub fn of<C: Communicator>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        options: &AmgOptions,
        gathered: usize,
    ) -> Result<Self> {
        Self::by(be, rows, options, gathered, SetUp::Either)
    }

    /// As [`DistributedAmg::of`], with a choice of who makes the grids.
    fn by<C: Communicator>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        options: &AmgOptions,
        gathered: usize,
        set_up: SetUp,
    ) -> Result<Self> {
        be.together(options.check_for_ranks())?;
        let layout = be.lay_out_rows(rows)?;
        let (n, ncols) = (layout.len(), rows.ncols() as usize);
        let is_square = if ncols == n { Ok(()) } else { Err(Error::NotSquare { solver: "amg", nrows: n, ncols }) };
        be.together(is_square.and_then(|()| options.check_rows(n)))?;
        // A rank ends at a block of rows, which may cut a node: it belongs to the rank of its first row.
        let unknowns = options.unknowns as u64;
        let whole = |row: u64| row.next_multiple_of(unknowns).min(n as u64);
        let ranges = (0..be.size()).map(|rank| layout.partition().rows(rank));
        let nodes = Partition::unaligned(ranges.map(|rows| whole(rows.end) - whole(rows.start)));
        // `is_some` is implied. For a CPU it is known at compile time to be false, which keeps code out of the program.
        let free = be.told(be.device().free_memory())?;
        let each = match set_up {
            SetUp::Either => whole::fits(be.team(), rows, options.unknowns, free)? && free.is_some(),
            #[cfg(test)]
            SetUp::Each => true,
            #[cfg(test)]
            SetUp::Together => false,
        };
        if each && let Some(made) = Self::by_each(be, rows, &layout, &nodes, options, gathered)? {
            return Ok(made);
        }
        Self::by_all(be, rows, layout, nodes, options, gathered)
    }

    /// Makes the grids on every rank's device. `None`, on every rank, if a rank lacks memory. Waits for the other
    /// ranks.
    fn by_each<C: Communicator>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        layout: &Arc<Layout>,
        nodes: &Partition,
        options: &AmgOptions,
        gathered: usize,
    ) -> Result<Option<Self>> {
        let partition = layout.partition();
        // One rank needs no exchanges, so it can have the whole cycle of one device.
        let gathered = if be.size() == 1 { usize::MAX } else { gathered };
        let nodes = Partition::unaligned(nodes.counts().map(|rows| rows / options.unknowns as u64));
        let made = match whole::gathered(be.team(), rows, partition) {
            Ok(a) => whole::make(be.device(), a, be.rank(), (partition, &nodes), options, gathered),
            Err(error) => Err(error.into()),
        };
        let Some(Whole { grids: kept, levels, cycle }) = whole::settled(be.team(), made)? else { return Ok(None) };
        let inverse = inverse(rows);
        let inv_diag = be.upload_as(layout, &inverse)?;
        let (mut layout, mut grids, last) = (Arc::clone(layout), Vec::new(), kept.len() - 1);
        let mut finest = Some(inverse);
        for (grid, Kept { a, bound, down }) in kept.into_iter().enumerate() {
            let degree = options.degree_of(layout.len(), rows.ncols() as usize);
            let rows = match finest.take() {
                // The cycle that every rank has begins with the finest grid.
                Some(_) if grid == last && cycle.is_some() => None,
                Some(inverse) => Some(Rows::from_csr(rows.first(), scaled(rows.copied().into_csr(), &inverse))),
                None => a,
            };
            let a = rows.map(|rows| DistributedMat::between(be, rows, Arc::clone(&layout), Arc::clone(&layout)));
            let a = a.transpose()?;
            let Some(Way { restrict, prolong, coarse }) = down else {
                grids.push(Grid { layout: Arc::clone(&layout), a, bound, degree, down: None });
                break;
            };
            let coarse = Arc::new(Layout::without_sums(be.rank(), coarse));
            let down = Some(Down::of(be, restrict, prolong, &layout, &coarse)?);
            grids.push(Grid { layout: std::mem::replace(&mut layout, coarse), a, bound, degree, down });
        }
        let bottom = cycle.map(|cycle| Bottom::of(be, cycle, layout.partition())).transpose()?;
        let work = Mutex::new(be.together(work(be, &grids))?);
        Ok(Some(Self { inv_diag, grids, bottom, work, levels }))
    }

    /// Makes the grids on the hosts of all ranks together: each makes its rows, and sends others what they need of
    /// them. `nodes` are the rows of each rank, rounded to whole nodes. Waits for the other ranks.
    fn by_all<C: Communicator>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        layout: Arc<Layout>,
        nodes: Partition,
        options: &AmgOptions,
        gathered: usize,
    ) -> Result<Self> {
        let is_cut = nodes != *layout.partition();
        let of_nodes = if is_cut { Cow::Owned(moved(be, rows, &nodes)?) } else { Cow::Borrowed(rows) };
        let near_null = constants(of_nodes.len(), options.unknowns);
        let (partition, vectors) = (nodes, options.unknowns);
        let mut level = Level { partition, rows: of_nodes.into_owned(), near_null, vectors, options: *options };
        let mut view = View::of(be, &level)?;
        let mut scaling = fit(be, &view, &level, 0)?;
        let mut levels = vec![numbers(be, &level, &scaling)?];
        let inverse = inverse(rows);
        let inv_diag = be.upload_as(&layout, &inverse)?;
        let (mut layout, mut grids) = (layout, Vec::new());
        loop {
            let (grid, n) = (grids.len(), layout.len());
            let next = if n <= gathered || options.is_coarsest(grid, n) {
                None
            } else {
                view.coarser(be, &level, &scaling.diagonal)?
            };
            let (bound, degree) = (scaling.bound, options.degree_of(n, rows.ncols() as usize));
            let Some(Coarser { p, transposed, finer, diagonal, next }) = next else {
                let is_last = n <= gathered || n <= AmgOptions::MOST_COARSEST;
                let bottom = if is_last { Some(Bottom::new(be, grid, &level, rows.ncols() as usize)?) } else { None };
                let a = if is_last { None } else { Some(operator(be, &level.rows, &scaling.inverse, &layout)?) };
                grids.push(Grid { layout, a, bound, degree, down: None });
                levels.extend(bottom.iter().flat_map(|bottom| &bottom.levels()[1..]));
                let work = Mutex::new(be.together(work(be, &grids))?);
                return Ok(Self { inv_diag, grids, bottom, work, levels });
            };
            // The vectors of the finest grid have the solver's layout, even if that cuts nodes.
            let is_moved = grid == 0 && is_cut;
            let p = if is_moved { moved(be, &p, layout.partition())? } else { p };
            let a = match is_moved {
                true => operator(be, rows, &inverse, &layout)?,
                false => operator(be, &level.rows, &scaling.inverse, &layout)?,
            };
            view = View::of(be, &next)?;
            scaling = fit(be, &view, &next, grid + 1)?;
            levels.push(numbers(be, &next, &scaling)?);
            let coarse = Arc::new(Layout::without_sums(be.rank(), next.partition.clone()));
            let restrict = restriction(transposed, &scaling.inverse, |col| diagonal[col]);
            let restrict = be.told(widened(coarse.rows().start, n as u64, restrict, &finer).map_err(Into::into))?;
            let down = Some(Down::of(be, restrict, p, &layout, &coarse)?);
            grids.push(Grid { layout, a: Some(a), bound, degree, down });
            (level, layout) = (next, coarse);
        }
    }

    /// Statistics of the grids of all ranks together, finest first.
    pub fn levels(&self) -> &[AmgLevel] {
        &self.levels
    }
    /// Number of grids whose rows are divided among the ranks. Every rank has a full copy of the others.
    pub fn on_ranks(&self) -> usize {
        self.grids.len() - usize::from(self.bottom.is_some())
    }
    /// Entries of all operators per entry of the finest.
    pub fn operator_complexity(&self) -> f64 {
        AmgLevels(&self.levels).complexity()
    }
    /// Bytes of the matrices of this rank.
    pub fn storage(&self) -> u64 {
        let between = self.grids.iter().filter_map(|grid| grid.down.as_ref());
        let operators = self.grids.iter().filter_map(|grid| grid.a.as_ref());
        let all = between.flat_map(|down| [&down.restrict, &down.prolong]).chain(operators);
        all.map(DistributedMat::storage).sum::<u64>() + self.bottom.as_ref().map_or(0, Bottom::storage)
    }
}

/// The vectors of work of each grid.
fn work<T: Real, B: Local<T>, C: Communicator>(
    be: &Distributed<B, C>,
    grids: &[Grid<T, B>],
) -> spandrel_backend::Result<Vec<Work<T, B>>> {
    let of = |grid: &Grid<T, B>| {
        let layout = |is_coarse| match &grid.down {
            Some(down) if is_coarse => &down.coarse,
            _ => &grid.layout,
        };
        AmgWork::of::<T, Distributed<B, C>>(be, grid, |is_coarse| be.zeros_as(layout(is_coarse)))
    };
    grids.iter().map(of).collect()
}

/// The diagonal of a grid and the bound on its spectrum. Refuses an operator that is unfit, on every rank.
fn fit<T: Real, B: Local<T>, C: Communicator>(
    be: &Distributed<B, C>,
    view: &View<T>,
    level: &Level<T>,
    grid: usize,
) -> Result<Scaling<T>> {
    let scaling = view.scaling(be)?;
    let row = scaling.unfit.map(|row| row as u64).filter(|row| level.partition.rows(be.rank()).contains(row));
    let refused = row.map(|row| refusal(&level.rows, (row - level.rows.first()) as usize, grid));
    be.together(refused.map_or(Ok(scaling), Err))
}

/// Why row `i` of these rows is unfit.
fn refusal<T: Real>(rows: &Rows<T>, i: usize, grid: usize) -> Error {
    let row = rows.first() + i as u64;
    unfit(grid, row as usize, rows.row(i), rows.get(row, row))
}

/// Statistics of a grid.
fn numbers<T: Real, B: Local<T>, C: Communicator>(
    be: &Distributed<B, C>,
    level: &Level<T>,
    scaling: &Scaling<T>,
) -> Result<AmgLevel> {
    let entries = be.everywhere(&[level.rows.nnz() as u64])?.iter().map(|of| of[0]).sum::<u64>();
    Ok(AmgLevel { rows: level.partition.len() as usize, entries: entries as usize, bound: scaling.bound })
}

/// One over the diagonal in these rows.
fn inverse<T: Real>(rows: &Rows<T>) -> Vec<T> {
    rows.diagonal().map(|d| d.unwrap_or_else(T::zero).recip()).collect()
}

/// D^-1 A of these rows.
fn scaled<T: Real>(mut rows: Csr<T>, inverse: &[T]) -> Csr<T> {
    rows.overwrite_rows(|row, _, values| values.iter_mut().for_each(|v| *v *= inverse[row]));
    rows
}

/// P^T as the cycle applies it to a residual that is divided by the diagonal of the finer grid, for a right-hand side
/// that is divided by that of the coarser one.
fn restriction<T: Real>(mut transposed: Csr<T>, inverse: &[T], diagonal: impl Fn(usize) -> T + Sync) -> Csr<T> {
    transposed.overwrite_rows(|row, cols, values| {
        values.iter_mut().zip(cols).for_each(|(v, &col)| *v *= diagonal(col as usize) * inverse[row]);
    });
    transposed
}

/// D^-1 A.
fn operator<T: Real, B: Local<T>, C: Communicator>(
    be: &Distributed<B, C>,
    rows: &Rows<T>,
    inverse: &[T],
    layout: &Arc<Layout>,
) -> Result<DistributedMat<B, Csr<T>>> {
    let scaled = Rows::from_csr(rows.first(), scaled(rows.copied().into_csr(), inverse));
    Ok(DistributedMat::between(be, scaled, Arc::clone(layout), Arc::clone(layout))?)
}

// SAFETY: it is applied on a distributed device, which records nothing.
unsafe impl<T: Real, B: Local<T> + AmgBackend<T>, C: Communicator> Preconditioner<T, Distributed<B, C>>
    for DistributedAmg<T, B>
{
    fn len(&self) -> Option<usize> {
        Some(self.inv_diag.layout.len())
    }
    fn apply(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        r: &Vector<T, B>,
        z: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        spandrel_backend::Backend::hadamard(be, gate, &self.inv_diag, r, work[0].right_hand_side())?;
        let last = |s: &Vector<T, B>, x: &mut Vector<T, B>| match &self.bottom {
            Some(bottom) => bottom.apply(be, gate, s, x),
            None => spandrel_backend::Backend::copy(be, gate, s, x),
        };
        cycle(be, gate, &self.grids, work, &last, z)
    }
}
