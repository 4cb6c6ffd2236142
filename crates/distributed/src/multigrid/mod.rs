//! Geometric multigrid whose planes lie on the ranks, with the hierarchy and the bits of
//! [`spandrel_solvers::StencilMultigrid`].
//!
//! A rank holds the planes of each grid that begin in its rows, and extra planes on both sides (`slab.rs`), as a grid
//! of its own on its device. Each product makes one more plane at each end wrong, because entries of x are missing
//! there. There are enough extra planes that own planes are still right at the end of half a cycle. So each half sends
//! one message per neighbour and grid: the right-hand side on the way down, and the correction on the way up. A grid
//! with few points is brought to every rank, and from there each rank continues with the cycle of one device.
//!
//! Order: that of one device. The entries of an own row, the restriction to an own point and the interpolation to one
//! have the same terms in the same order on a part of the grid.
//!
//! Cost: at each end of each grid a rank computes with 2 `degree` extra planes, at least 4, and with one more for
//! l1-Jacobi. There is one more at the start if the first plane would otherwise have an odd number.
//!
//! Set-up: the host writes the diagonals at or above the main one of its own rows, which the device keeps as vectors.
//! Those of coarse grids are made on the device. Ghosts of a diagonal travel as those of a vector do, from device to
//! device where devices read each other's memory; otherwise only the ghosts pass through the host.

pub(crate) mod setup;
mod slab;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Backend, Entries, Gate, Preconditioner};
use spandrel_formats::{Coarsening, Real};
use spandrel_solvers::multigrid::StencilBackend;
use spandrel_solvers::multigrid::grid::{MOST_INVERTED, StencilGrid, StencilWork, check, no_stencil};
use spandrel_solvers::{Error, PolynomialSmoother, Result, StencilMultigrid};

use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};
use crate::exchange::Exchange;
use crate::layout::Layout;
use crate::matrix::Local;
use crate::rows::Rows;
use crate::survey::Survey;

/// Grids of at most this many points are brought to every rank: there, a product takes less time than the messages of
/// the planes of each rank.
pub const GATHERED: usize = 1 << 15;

/// A device that can hold the planes of a rank.
pub trait MultigridDevice<T: Real>: Local<T> + StencilBackend<T> {}
impl<T: Real, B: Local<T> + StencilBackend<T>> MultigridDevice<T> for B {}

type VectorOf<T, B> = <B as Backend<T>>::Vector;

/// Where the hierarchy ends.
#[derive(Clone, Copy, Debug)]
struct Limits {
    grids: Option<usize>,
    smoother: PolynomialSmoother,
    gathered: usize,
}

impl Limits {
    /// Whether every rank gets a full copy of a grid with this many points.
    fn is_whole(&self, points: usize) -> bool {
        points <= self.gathered.max(MOST_INVERTED)
    }
}

/// The V-cycle of all ranks as M^-1. See the [module](self).
pub struct DistributedMultigrid<T: Real, B: MultigridDevice<T>> {
    layout: Arc<Layout>,
    /// Brings a vector of the solver to the first grid, and back.
    entry: Exchange<T, B>,
    grids: Vec<Grid<T, B>>,
    /// `None` if the last grid is too large for every rank to hold.
    bottom: Option<Bottom<T, B>>,
    work: Mutex<Vec<Work<VectorOf<T, B>>>>,
    sizes: Vec<[usize; 3]>,
}

/// The planes of a grid that this rank holds.
struct Grid<T: Real, B: MultigridDevice<T>> {
    part: StencilGrid<T, B>,
    /// `None` on the last grid.
    down: Option<Down<T, B>>,
}

/// The way to the next grid and back.
struct Down<T: Real, B: MultigridDevice<T>> {
    /// The coarsening of the planes that are held.
    to: Coarsening,
    /// Brings the right-hand side of the next grid, from the restriction of these planes.
    restricted: Exchange<T, B>,
    /// Brings the correction of these planes, from that on the next grid.
    back: Source<T, B>,
    /// The number of coarse points that the restriction of these planes has.
    coarse: usize,
}

/// Where the entries of a vector come from.
enum Source<T: Real, B: Entries<T>> {
    /// From the ranks that own them.
    Ranks(Exchange<T, B>),
    /// From these places of a vector that every rank has whole.
    Whole(B::Places),
}

impl<T: Real, B: MultigridDevice<T>> Source<T, B> {
    /// Returns false, and does nothing, if the gate is closed.
    fn bring<C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        from: &VectorOf<T, B>,
        to: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<bool> {
        be.told(match self {
            Self::Ranks(exchange) => exchange.gather(be.device(), be.team(), gate, from, to),
            Self::Whole(places) => be.device().gather_entries(from, places, to, 0).map(|()| true),
        })
    }
}

/// The grids of which every rank has a full copy.
struct Bottom<T: Real, B: MultigridDevice<T>> {
    cycle: StencilMultigrid<T, B>,
    /// Points of the first of them.
    of: usize,
}

/// The vectors of a grid.
struct Work<V> {
    s: V,
    x: V,
    /// `None` on the first grid that every rank has.
    here: Option<StencilWork<V>>,
    /// The restriction of the residual, and the correction, on the next grid. `None` on the last grid.
    coarse: Option<[V; 2]>,
}

impl<T: Real, B: MultigridDevice<T>> fmt::Debug for DistributedMultigrid<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedMultigrid")
            .field("sizes", &self.sizes)
            .field("on_ranks", &self.on_ranks())
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: MultigridDevice<T>> DistributedMultigrid<T, B> {
    /// Sets up the cycle for a symmetric positive definite stencil from the rows of each rank. Waits for the other
    /// ranks.
    ///
    /// ```
    /// use spandrel_backend::Backend;
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_distributed::{Distributed, DistributedMat, DistributedMultigrid, Threads, generate_rows};
    /// use spandrel_formats::{Csr, generate::Spec};
    /// use spandrel_solvers::{Options, PolynomialSmoother, cg};
    ///
    /// let spec = Spec::parse("poisson3d:20")?;
    /// let ended = Threads::run(2, |team| {
    ///     let be = &Distributed::new(Cpu::with_threads(1)?, team);
    ///     let rows = generate_rows::<f64, _, _>(be, &spec)?;
    ///     let m = DistributedMultigrid::new(be, &rows, None, PolynomialSmoother::default())?;
    ///     let b = be.upload(&vec![1.0; rows.len()])?;
    ///     let a = DistributedMat::<Cpu, Csr<f64>>::from_rows(be, rows)?;
    ///     let mut x = be.zeros(8000)?;
    ///     cg(be, &a, &m, &b, &mut x, &Options::default())
    /// });
    /// assert!(ended.into_iter().all(|outcome| outcome.is_ok_and(|outcome| outcome.iterations < 15)));
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`StencilMultigrid::of`], on every rank: [`spandrel_backend::Error::Rank`] where another rank has the row
    /// that is refused.
    pub fn new<C: Communicator>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        grids: Option<usize>,
        smoother: PolynomialSmoother,
    ) -> Result<Self> {
        be.together(check(grids, smoother))?;
        let layout = be.lay_out_rows(rows)?;
        if rows.ncols() == layout.len() as u64 && !Survey::of(be, &layout, rows)?.symmetric {
            return be.together(Err(no_stencil()));
        }
        Self::of(be, rows, grids, smoother, GATHERED)
    }

    /// As [`DistributedMultigrid::new`] for a matrix that is known to equal its transpose; values below its diagonal
    /// may not be read. Grids of at most `gathered` points, and all of at most 2,000, are brought to every rank; the
    /// bits do not depend on it.
    ///
    /// # Errors
    /// As [`DistributedMultigrid::new`].
    pub fn of<C: Communicator>(
        be: &Distributed<B, C>,
        rows: &Rows<T>,
        grids: Option<usize>,
        smoother: PolynomialSmoother,
        gathered: usize,
    ) -> Result<Self> {
        be.together(check(grids, smoother))?;
        let layout = be.lay_out_rows(rows)?;
        let (nrows, ncols) = (layout.len(), rows.ncols() as usize);
        if nrows != ncols {
            return be.together(Err(Error::NotSquare { solver: "mg", nrows, ncols }));
        }
        setup::hierarchy(be, &layout, rows, &Limits { grids, smoother, gathered })
    }

    fn with<C: Communicator>(
        be: &Distributed<B, C>,
        layout: &Arc<Layout>,
        entry: Exchange<T, B>,
        (grids, bottom): (Vec<Grid<T, B>>, Option<Bottom<T, B>>),
        sizes: Vec<[usize; 3]>,
    ) -> Result<Self> {
        let device = be.device();
        let of = |grid: &Grid<T, B>| {
            let zeros = |n: usize| Backend::<T>::zeros(device, n);
            let n = grid.part.points();
            let both = |n: usize| Ok::<_, spandrel_backend::Error>([zeros(n)?, zeros(n)?]);
            let coarse = grid.down.as_ref().map(|down| both(down.coarse)).transpose()?;
            Ok(Work { s: zeros(n)?, x: zeros(n)?, here: Some(StencilWork::new(device, &grid.part)?), coarse })
        };
        let last = |bottom: &Bottom<T, B>| {
            Ok(Work { s: device.zeros(bottom.of)?, x: device.zeros(bottom.of)?, here: None, coarse: None })
        };
        let work = grids.iter().map(of).chain(bottom.iter().map(last)).collect::<spandrel_backend::Result<_>>();
        let work = Mutex::new(be.together(work)?);
        Ok(Self { layout: Arc::clone(layout), entry, grids, bottom, work, sizes })
    }

    /// The extents X, Y, Z of each grid, finest first.
    pub fn sizes(&self) -> &[[usize; 3]] {
        &self.sizes
    }
    /// Number of grids whose planes are divided among the ranks. Every rank has a full copy of the others.
    pub fn on_ranks(&self) -> usize {
        self.grids.len()
    }
    /// Bytes of the matrices of this rank.
    pub fn storage(&self) -> u64 {
        let grids = self.grids.iter().map(|grid| grid.part.storage()).sum::<u64>();
        grids + self.bottom.as_ref().map_or(0, |bottom| bottom.cycle.storage())
    }

    /// One cycle on the first of these grids: from the right-hand side in the first of `work` to its x. Returns false
    /// if the gate is closed.
    fn cycle<C: Communicator>(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        grids: &[Grid<T, B>],
        work: &mut [Work<VectorOf<T, B>>],
    ) -> spandrel_backend::Result<bool> {
        let Some((Work { s, x, here, coarse }, below)) = work.split_first_mut() else { return Ok(true) };
        let device = be.device();
        let ([Grid { part, down }, coarser @ ..], Some(here)) = (grids, here) else {
            let Some(bottom) = &self.bottom else { return Ok(true) };
            be.told(bottom.cycle.apply(device, gate, s, x))?;
            return Ok(true);
        };
        let (Some(Down { to, restricted, back, .. }), Some([of_next, e])) = (down, coarse) else {
            be.told(part.alone(device, gate, s, here, x))?;
            return Ok(true);
        };
        be.told(part.down(device, gate, to, s, here, x, of_next))?;
        let sent = restricted.gather(device, be.team(), gate, of_next, &mut below[0].s);
        if !be.told(sent)? || !self.cycle(be, gate, coarser, below)? {
            return Ok(false);
        }
        if !back.bring(be, gate, &below[0].x, e)? {
            return Ok(false);
        }
        be.told(part.up(device, gate, to, e, s, here, x))?;
        Ok(true)
    }
}

// SAFETY: it is applied on a distributed device, which records nothing.
unsafe impl<T: Real, B: MultigridDevice<T>, C: Communicator> Preconditioner<T, Distributed<B, C>>
    for DistributedMultigrid<T, B>
{
    fn len(&self) -> Option<usize> {
        Some(self.layout.len())
    }
    fn apply(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        r: &Vector<T, B>,
        z: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        let work = &mut *self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = self.entry.gather(be.device(), be.team(), gate, &r.part, &mut work[0].s);
        if be.told(begun)? && self.cycle(be, gate, &self.grids, work)? {
            be.told(self.entry.scatter(be.device(), gate, &work[0].x, &mut z.part))?;
        }
        Ok(())
    }
}
