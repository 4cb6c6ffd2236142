//! Geometric multigrid: a V-cycle with one symmetric Gauss-Seidel step before and after each coarse correction, and one
//! on the coarsest grid.
//!
//! With A = L + D + U on a grid, rows divided by D (written `'`: L' = D^-1 L, s = D^-1 r), interpolation P from the
//! next grid:
//! ```text
//! y = (I + L')^-1 s             s <- s - t              t = d + (U' P) e = U' (z + P e)
//! z = (I + U')^-1 y             s <- (I + L')^-1 s      half a step forwards from z + P e
//! d = y - z = U' z              s <- s + t
//! D^-1 (r - A z) = L' d         z = (I + U')^-1 s       and backwards
//! s of the next grid = (D_c^-1 P^T L) d, e its correction
//! ```
//! Neither U (z + P e) nor the residual needs a product with all of A: y - z is U' z, and L' d is the residual. P^T L
//! and U P are separate matrices in CSR; with injection each has about a sixteenth of A's entries. A cycle reads each
//! grid's triangles twice; HPCG's reference reads all of A five times. In exact arithmetic both are the same cycle.
//!
//! If A and the coarse operators are symmetric positive definite, so is M (symmetric to rounding), however well or
//! badly they fit together.
//!
//! Cost: [`Multigrid::bytes`]; three scratch vectors per grid.
//!
//! Order: that of the plan's solves and of the backend's CSR product. With [`Order::Stored`] the bits are the same on
//! every backend.
//!
//! References: Dongarra, Heroux, Luszczek, HPCG benchmark, 2015; Briggs, Henson, McCormick, A Multigrid Tutorial, 2000;
//! Eisenstat 1981, Efficient implementation of a class of preconditioned conjugate gradient methods (the triangles'
//! trick).

mod expected;
pub mod grid;
mod hierarchy;
mod options;
mod smoother;
mod stencil;
mod stencil_update;
mod update;
mod upwind;

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, Load, Mat, Order, Preconditioner, Spmv, Sptrsv};
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::Plan;
use spandrel_sptrsv::triangle::divisors;

pub use expected::{Expected, GridFacts, NotExpected};
pub use grid::StencilBackend;
pub use hierarchy::{Hierarchy, LEAST};
pub use options::{MgOptions, MgSmoother, PolynomialSmoother};
pub use smoother::{Halves, Planned, Smoother};
pub use stencil::StencilMultigrid;

use self::hierarchy::Recognised;
use crate::Result;
use crate::phase::{Phase, SetupWatcher, unobserved};
use crate::pool::Pool;

/// The diagonal of each grid.
fn diagonals<T: Real>(hierarchy: &Hierarchy<'_, T>) -> Result<Vec<Vec<T>>> {
    hierarchy.stages().iter().map(|stage| Ok(divisors(&stage.a)?)).collect()
}

/// 1 / d of the finest grid.
fn inverted<T: Real>(diagonals: &[Vec<T>]) -> Vec<T> {
    diagonals.first().into_iter().flatten().map(|d| d.recip()).collect()
}

/// The V-cycle as a preconditioner. See the module's head.
pub struct Multigrid<T: Real, B: Backend<T> + Load<Csr<T>>> {
    /// 1 / d of the finest grid.
    inv_diag: B::Vector,
    levels: Vec<Level<T, B>>,
    /// The vectors of each level.
    work: Pool<Vec<Work<B::Vector>>>,
    sizes: Vec<[usize; 3]>,
    /// `None` for given operators.
    recognised: Option<Recognised>,
}

/// A grid on the device.
struct Level<T: Real, B: Backend<T> + Load<Csr<T>>> {
    n: usize,
    smoother: Box<dyn Smoother<T, B>>,
    /// `None` on the coarsest grid.
    down: Option<Down<T, B>>,
}

/// The matrices to the next grid and back.
struct Down<T: Real, B: Backend<T> + Load<Csr<T>>> {
    /// D_c^-1 P^T L.
    restrict: Mat<B, Csr<T>>,
    /// D^-1 U P.
    prolong: Mat<B, Csr<T>>,
    /// The number of points of the next grid.
    coarse: usize,
}

/// The scratch vectors of a grid.
struct Work<V> {
    s: V,
    /// d, and e, the next grid's correction; `None` on the coarsest grid.
    between: Option<(V, V)>,
}

impl<V> Work<V> {
    fn new<T: Real, B: Load<Csr<T>> + Backend<T, Vector = V>>(
        be: &B,
        levels: &[Level<T, B>],
    ) -> spandrel_backend::Result<Vec<Self>> {
        let of = |level: &Level<T, B>| {
            let between =
                |down: &Down<T, B>| -> spandrel_backend::Result<_> { Ok((be.zeros(level.n)?, be.zeros(down.coarse)?)) };
            Ok(Self { s: be.zeros(level.n)?, between: level.down.as_ref().map(between).transpose()? })
        };
        levels.iter().map(of).collect()
    }
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>> fmt::Debug for Multigrid<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multigrid").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl<T: Real, B: Spmv<Csr<T>>> Multigrid<T, B> {
    /// Loads a hierarchy, whose triangles are solved by the plan `P`.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] with the row of a diagonal entry that is missing, zero or not finite, or for a plan
    /// that does not fit; a backend that fails.
    pub fn new<P: Plan<Value = T>>(be: &B, hierarchy: &Hierarchy<'_, T>) -> Result<Self>
    where
        B: Sptrsv<P> + 'static,
    {
        Self::with(be, hierarchy, |be, halves| Ok(Box::new(Planned::<B, P>::new(be, halves)?)))
    }

    /// As [`Multigrid::new`], where the caller chooses for each grid, finest first, how its triangles are solved.
    ///
    /// # Errors
    /// As [`Multigrid::new`], and those of `smoother`.
    pub fn with(
        be: &B,
        hierarchy: &Hierarchy<'_, T>,
        smoother: impl FnMut(&B, &Halves<T>) -> Result<Box<dyn Smoother<T, B>>>,
    ) -> Result<Self> {
        Self::with_watched(be, hierarchy, smoother, &mut unobserved)
    }

    /// As [`Multigrid::with`], and tells `watcher` of each grid before it is set up.
    ///
    /// # Errors
    /// As [`Multigrid::with`], and [`crate::Error::Interrupted`].
    pub fn with_watched(
        be: &B,
        hierarchy: &Hierarchy<'_, T>,
        mut smoother: impl FnMut(&B, &Halves<T>) -> Result<Box<dyn Smoother<T, B>>>,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        let (stages, diagonals) = (hierarchy.stages(), diagonals(hierarchy)?);
        let mut levels = Vec::with_capacity(stages.len());
        for (level, stage) in stages.iter().enumerate() {
            Phase::Grid { grid: level }.begin(watcher)?;
            let n = stage.a.nrows();
            let down = match (hierarchy.way(level), diagonals.get(level + 1)) {
                (Some(way), Some(coarse)) => Some(Down {
                    restrict: Mat::load(be, way.restricted_lower(coarse)?)?,
                    prolong: Mat::load(be, way.prolonged_upper(&diagonals[level])?)?,
                    coarse: coarse.len(),
                }),
                _ => None,
            };
            let halves = Halves::of(&stage.a, &diagonals[level])?;
            levels.push(Level { n, smoother: smoother(be, &halves)?, down });
        }
        let (inv_diag, recognised) = (be.upload(&inverted(&diagonals))?, hierarchy.recognised().cloned());
        let work = Pool::new(Work::new(be, &levels)?);
        Ok(Self { inv_diag, levels, work, sizes: hierarchy.sizes(), recognised })
    }

    /// The extents X, Y, Z of each grid, finest first.
    pub fn sizes(&self) -> &[[usize; 3]] {
        &self.sizes
    }
    /// The plan of the finest grid's solves, [`Plan::NAME`].
    pub fn plan(&self) -> &'static str {
        self.levels[0].smoother.plan()
    }
    /// The number of entries of all triangles and of the matrices between the grids.
    pub fn nnz(&self) -> usize {
        let down = |down: &Down<T, B>| down.restrict.nnz() + down.prolong.nnz();
        self.levels.iter().map(|level| level.smoother.nnz() + level.down.as_ref().map_or(0, down)).sum()
    }
    /// The bytes that one cycle must move: each solve and product by its model, vectors in between read and written
    /// once.
    pub fn bytes(&self) -> u64 {
        let vector = |n: usize| (T::BYTES * n) as u64;
        let level = |level: &Level<T, B>| match &level.down {
            None => level.smoother.bytes(),
            // Three vector updates of three passes; the prolongation reads what it adds to.
            Some(down) => {
                2 * level.smoother.bytes()
                    + 10 * vector(level.n)
                    + down.restrict.spmv_bytes()
                    + down.prolong.spmv_bytes()
            }
        };
        3 * vector(self.levels[0].n) + self.levels.iter().map(level).sum::<u64>()
    }
    /// Returns true if every operation sums in the order that all backends share.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Csr<T>>::order(be) == Order::Stored && self.levels.iter().all(|level| level.smoother.is_stored_order(be))
    }

    /// z <- M^-1 s for the first of these levels, with its vectors.
    #[rustfmt::skip] // the right margin holds the formulas
    fn cycle(
        be: &B,
        gate: Gate<'_, B>,
        levels: &[Level<T, B>],
        work: &mut [Work<B::Vector>],
        z: &mut B::Vector,
    ) -> spandrel_backend::Result<()> {
        let (Some((Level { smoother, down, .. }, below)), Some((Work { s, between }, work))) =
            (levels.split_first(), work.split_first_mut())
        else {
            return Ok(());
        };
        let (Some(Down { restrict, prolong, .. }), Some((d, e)), Some(next)) = (down, between, work.first_mut()) else {
            smoother.lower_in_place(be, gate, s)?;
            return smoother.upper(be, gate, s, z);
        };
        let one = Coeff::one;
        smoother.lower(be, gate, s, d)?;                                                // y = (I + L')^-1 s
        smoother.upper(be, gate, d, z)?;                                                // z = (I + U')^-1 y
        be.axpby(gate, one().negated(), z, one(), d)?;                                  // d = y - z
        restrict.spmv(be, gate, one(), d, Coeff::zero(), &mut next.s)?;                 // s_c = D_c^-1 P^T L d
        Self::cycle(be, gate, below, work, e)?;                                         // e = M_c^-1 r_c
        prolong.spmv(be, gate, one(), e, one(), d)?;                                    // t = d + U' P e
        be.axpby(gate, one().negated(), d, one(), s)?;                                  // s = s - t
        smoother.lower_in_place(be, gate, s)?;                                          // s = (I + L')^-1 s
        be.axpby(gate, one(), d, one(), s)?;                                            // s = s + t
        smoother.upper(be, gate, s, z)                                                  // z = (I + U')^-1 s
    }
}

// SAFETY: one fixed sequence of operations on its own vectors and matrices, which are made with it and never replaced.
// The pool lends the vectors for writing, and `update` writes to the matrices in place. Its smoothers keep the same
// contract.
unsafe impl<T: Real, B: Spmv<Csr<T>>> Preconditioner<T, B> for Multigrid<T, B> {
    fn len(&self) -> Option<usize> {
        Some(self.levels[0].n)
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        let work = &mut *self.work.lend(|| Work::new(be, &self.levels))?;
        be.hadamard(gate, &self.inv_diag, r, &mut work[0].s)?;
        Self::cycle(be, gate, &self.levels, work, z)
    }
}
