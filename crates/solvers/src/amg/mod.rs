//! Algebraic multigrid by smoothed aggregation: a V-cycle or K-cycle as M^-1, for symmetric positive definite matrices
//! without a known grid.
//!
//! The set-up ([`spandrel_formats::amg`]) finds the strong couplings of a grid, aggregates its rows around a distance-2
//! independent set, smooths the prolongation P, and forms the coarse operator P^T A P. It repeats this until a grid is
//! small enough for an explicit inverse. All of it runs on the device and has the same bits on every backend.
//!
//! The rows of operators written with `'` are divided by the diagonal D, so no smoothing step multiplies by D^-1. One
//! cycle:
//! ```text
//! s = D^-1 r                                    once, on the finest grid
//! x <- smooth(0, s);   t <- s - A' x            Chebyshev of the fourth kind, `degree` steps
//! s_c <- (D_c^-1 P^T D) t;  x_c <- cycle(s_c)   or the inverse times D_c on the coarsest grid
//! x <- x + P x_c;   x <- smooth(x, s)           the same polynomial, so that the cycle is symmetric
//! ```
//! A cycle with degree d has 2 d products with each operator except the coarsest, and one with each P and P^T.
//!
//! In a K-cycle ([`AmgCycle::K`]), two iterations of flexible conjugate gradients find x_c on every coarse grid except
//! the coarsest, each preconditioned by a cycle from there on (`krylov.rs`). M^-1 is then not linear. Grid l has 2^l
//! cycles instead of one, and the coarsest is solved once for each cycle of the grid above it.
//!
//! The M of a V-cycle is symmetric (to rounding) and positive definite if A is: the smoother's polynomial is below 1 in
//! magnitude up to a rigorous bound on the eigenvalues of D^-1 A.
//!
//! Layout: CSR. Cost: [`Amg::bytes`]; four scratch vectors per grid, and four more vectors on grids that iterate.
//! Order: that of the CSR product of the backend; with [`Order::Stored`] the same bits on every backend and for any
//! number of threads, the hierarchy included.
//! References: Vanek, Mandel, Brezina 1996; Lottes 2023, Optimal polynomial smoothers for multigrid V-cycles; Briggs,
//! Henson, McCormick, A Multigrid Tutorial, 2000; Notay & Vassilevski 2008, Recursive Krylov-based multigrid cycles.

pub(crate) mod coarsest;
mod cycle;
mod expected;
mod hierarchy;
mod krylov;
mod options;
pub(crate) mod polynomial;
mod update;

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, IntoArc, Mat, MatAggregates, Order, Preconditioner, Spmv};
use spandrel_formats::{Csr, Real};

pub use cycle::{AmgGrid, AmgOperator, AmgWork, cycle};
pub use expected::{AmgExpected, AmgFacts, AmgSample, may_suit, separator};
pub use hierarchy::{AmgBackend, AmgLevel, AmgLevels, coarser, constants, fit, unfit, vectors};
pub use options::{AmgCycle, AmgOptions};

use self::hierarchy::Hierarchy;
use self::update::Renewal;
use crate::phase::{SetupWatcher, unobserved};
use crate::pool::Pool;
use crate::{Error, Result};

/// The cycle as M^-1. See the module's head.
pub struct Amg<T: Real, B: AmgBackend<T>> {
    /// 1 / d of the finest grid.
    inv_diag: B::Vector,
    grids: Vec<Grid<T, B>>,
    kind: AmgCycle,
    /// The inverse of the coarsest operator times its diagonal D_c, if it was made: right-hand sides there are divided
    /// by D_c.
    coarsest: Option<Mat<B, Csr<T>>>,
    work: Pool<Vec<AmgWork<B::Vector, B::Scalar>>>,
    levels: Vec<AmgLevel>,
    /// The near-null-space vectors of the finest grid, for new values. `None` stands for the constant of each unknown.
    near_null: Option<Vec<T>>,
    unknowns: usize,
    /// The plans that the first update keeps for later ones.
    renewal: Option<Renewal<T, B>>,
    /// The finest operator, kept if updates give only values.
    finest: Option<Mat<B, Csr<T>>>,
}

/// A grid on the device.
struct Grid<T: Real, B: AmgBackend<T>> {
    n: usize,
    /// D^-1 A; `None` on a coarsest grid that is solved with its inverse.
    a: Option<Mat<B, Csr<T>>>,
    bound: f64,
    /// Of the smoother.
    degree: usize,
    /// `None` on the coarsest grid.
    down: Option<Down<T, B>>,
}

/// The way to the next grid and back.
struct Down<T: Real, B: AmgBackend<T>> {
    /// D_c^-1 P^T D.
    restrict: Mat<B, Csr<T>>,
    /// P.
    prolong: Mat<B, Csr<T>>,
    aggregates: MatAggregates<B, Csr<T>>,
    /// Rows of the next grid.
    coarse: usize,
    /// The diagonal D_c of the next grid, if two iterations find its correction.
    diagonal: Option<B::Vector>,
}

impl<T: Real, B: AmgBackend<T>> AmgGrid<T, B> for Grid<T, B> {
    type Operator = Mat<B, Csr<T>>;
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
    fn next_diagonal(&self) -> Option<&B::Vector> {
        self.down.as_ref().and_then(|down| down.diagonal.as_ref())
    }
}

/// Makes the scratch vectors of each grid.
fn work<T: Real, B: AmgBackend<T>>(
    be: &B,
    grids: &[Grid<T, B>],
) -> spandrel_backend::Result<Vec<AmgWork<B::Vector, B::Scalar>>> {
    let of = |grid: &Grid<T, B>| {
        AmgWork::of(be, grid, |is_coarse| {
            be.zeros(grid.down.as_ref().filter(|_| is_coarse).map_or(grid.n, |down| down.coarse))
        })
    };
    grids.iter().map(of).collect()
}

impl<T: Real, B: AmgBackend<T>> fmt::Debug for Amg<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Amg").field("levels", &self.levels).finish_non_exhaustive()
    }
}

/// A table of the grids: rows, entries, entries per row, and the operator complexity.
impl<T: Real, B: AmgBackend<T>> fmt::Display for Amg<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AmgLevels(&self.levels).fmt(f)
    }
}

impl<T: Real, B: AmgBackend<T>> Amg<T, B> {
    /// Sets up the cycle for a symmetric positive definite matrix and brings it onto the device.
    ///
    /// ```
    /// use spandrel_backend::{Backend, Mat};
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_formats::generate;
    /// use spandrel_solvers::{Amg, AmgOptions, Options, cg};
    ///
    /// let (device, a) = (Cpu::new(), generate::csr::<f64>("poisson3d:20")?);
    /// let m = Amg::new(&device, &a, &AmgOptions::default())?;
    /// let (b, mut x) = (device.upload(&vec![1.0; 8000])?, Backend::<f64>::zeros(&device, 8000)?);
    /// let outcome = cg(&device, &Mat::load(&device, a)?, &m, &b, &mut x, &Options::default())?;
    /// assert!(outcome.status.is_converged() && outcome.iterations <= 20);
    /// println!("{m}");
    /// # Ok::<(), spandrel_solvers::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::NotSquare`], [`Error::Unsupported`] if the matrix is not symmetric (to rounding),
    ///   [`Error::NotPositive`] where a coarse grid shows that it is not positive semidefinite.
    /// - [`Error::Diagonal`] with the first row whose diagonal entry is not positive; [`Error::NotFinite`].
    /// - [`Error::Parameter`] for an option out of its range; [`Error::Size`] for rows that are not whole points.
    /// - A backend that fails.
    pub fn new(be: &B, a: impl IntoArc<Csr<T>>, options: &AmgOptions) -> Result<Self> {
        Self::with(be, a, options, None)
    }

    /// As [`Amg::new`], with near-null-space vectors, which the matrix maps nearly to zero: at most 6 columns of one
    /// element per row. [`spandrel_formats::amg::rigid_body_modes`] makes those of elasticity. `None` stands for the
    /// constant of each unknown.
    ///
    /// # Errors
    /// As [`Amg::new`]; [`Error::Size`] for vectors of another length; [`Error::NullVector`] for one that is not
    /// finite; [`Error::Parameter`] for more than 6.
    pub fn with(be: &B, a: impl IntoArc<Csr<T>>, options: &AmgOptions, near_null: Option<&[T]>) -> Result<Self> {
        let a = a.into_arc();
        if a.nrows() == a.ncols() && !a.is_symmetric_to_rounding() {
            // An infinite entry or NaN also fails the test of symmetry. Name it instead.
            if let Some(error) = (0..a.nrows()).find_map(|row| hierarchy::not_finite(row, a.row(row))) {
                return Err(error);
            }
            let why = "amg needs a symmetric matrix, and this one is not; use ilu0 or ilut with bicgstab or gmres";
            return Err(Error::Unsupported { why: why.to_string() });
        }
        Self::of(be, &Mat::load(be, a)?, options, near_null, &mut unobserved)
    }

    /// As [`Amg::with`], for a matrix that is on the device and known to be symmetric. Tells `watcher` of each grid
    /// before it is set up. The set-up runs on the device; the host only reads sizes and inverts the coarsest operator.
    /// Blocks; must not be recorded.
    ///
    /// # Errors
    /// As [`Amg::with`], and [`Error::Interrupted`].
    pub fn of(
        be: &B,
        a: &Mat<B, Csr<T>>,
        options: &AmgOptions,
        near_null: Option<&[T]>,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        Self::below(be, a, options, near_null, a.nrows(), watcher)
    }

    /// As [`Amg::of`], for a grid of a larger hierarchy, whose finest grid has `finest` rows.
    ///
    /// # Errors
    /// As [`Amg::of`].
    pub fn below(
        be: &B,
        a: &Mat<B, Csr<T>>,
        options: &AmgOptions,
        near_null: Option<&[T]>,
        finest: usize,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        let made = Hierarchy::of(be, a, options, near_null, finest, watcher)?;
        let Hierarchy { inv_diag, grids, levels, coarsest } = made;
        let work = Pool::new(work(be, &grids)?);
        let (near_null, unknowns) = (near_null.map(<[T]>::to_vec), options.unknowns);
        let (kind, renewal, finest) = (options.cycle, None, None);
        Ok(Self { inv_diag, grids, kind, coarsest, work, levels, near_null, unknowns, renewal, finest })
    }

    /// Statistics of the grids, finest first.
    pub fn levels(&self) -> &[AmgLevel] {
        &self.levels
    }
    /// The entries of all operators divided by those of the finest.
    pub fn operator_complexity(&self) -> f64 {
        AmgLevels(&self.levels).complexity()
    }
    /// The number of entries of all matrices that a cycle reads.
    pub fn nnz(&self) -> usize {
        self.matrices().map(Mat::nnz).sum()
    }
    /// Bytes of the matrices on the device.
    pub fn storage(&self) -> u64 {
        self.matrices().map(Mat::storage).sum()
    }
    /// The bytes that one cycle must move: each product by its model; vectors between products are read and written
    /// once.
    pub fn bytes(&self) -> u64 {
        let vector = |n: usize| (T::BYTES * n) as u64;
        let grid = |grid: &Grid<T, B>| {
            let products = grid.a.as_ref().map_or(0, |a| 2 * grid.degree as u64 * a.spmv_bytes());
            let between = grid.down.as_ref().map_or(0, |d| d.restrict.spmv_bytes() + d.prolong.spmv_bytes());
            // Two residuals read the right-hand side; per step of the smoother z and x are updated.
            products + between + vector(grid.n) * if grid.a.is_some() { 2 + 12 * grid.degree as u64 } else { 0 }
        };
        let (mut bytes, mut cycles) = (3 * vector(self.grids[0].n), 1);
        for pair in self.grids.windows(2) {
            bytes += cycles * grid(&pair[0]);
            if pair[0].next_diagonal().is_some() {
                // Two products of the iterations, and what lies between them.
                let products = pair[1].a.as_ref().map_or(0, |a| 2 * a.spmv_bytes());
                bytes += cycles * (products + 26 * vector(pair[1].n));
                cycles *= 2;
            }
        }
        let coarsest = self.coarsest.as_ref().map_or(0, Mat::spmv_bytes);
        bytes + cycles * (coarsest + self.grids.last().map_or(0, grid))
    }
    /// Returns true if every product sums in the order that all backends share.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Csr<T>>::order(be) == Order::Stored
    }

    fn matrices(&self) -> impl Iterator<Item = &Mat<B, Csr<T>>> {
        let between = self.grids.iter().filter_map(|grid| grid.down.as_ref());
        let operators = self.grids.iter().filter_map(|grid| grid.a.as_ref());
        between.flat_map(|down| [&down.restrict, &down.prolong]).chain(operators).chain(&self.coarsest)
    }

    /// x <- one cycle applied to s, which is a right-hand side divided by the diagonal of the matrix. A cycle on
    /// several ranks calls it for the grids of which every rank has a full copy.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn apply_divided(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        s: &B::Vector,
        x: &mut B::Vector,
    ) -> spandrel_backend::Result<()> {
        let work = &mut *self.work.lend(|| work(be, &self.grids))?;
        be.copy(gate, s, work[0].right_hand_side())?;
        self.cycle(be, gate, work, x)
    }

    /// x <- one cycle applied to the right-hand side in `work`.
    fn cycle(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        work: &mut [AmgWork<B::Vector, B::Scalar>],
        x: &mut B::Vector,
    ) -> spandrel_backend::Result<()> {
        let coarsest = |s: &<B as Backend<T>>::Vector, x: &mut <B as Backend<T>>::Vector| match &self.coarsest {
            Some(inverse) => inverse.spmv(be, gate, Coeff::one(), s, Coeff::zero(), x),
            None => be.copy(gate, s, x),
        };
        cycle(be, gate, &self.grids, work, &coarsest, x)
    }
}

// SAFETY: which operations are enqueued depends on the diagonals that are kept and on degrees and bounds of the grids,
// which change only while nothing borrows the preconditioner. Its buffers are those of the matrices, these
// diagonals, `inv_diag` and `work`, which are neither replaced nor lent out.
unsafe impl<T: Real, B: AmgBackend<T>> Preconditioner<T, B> for Amg<T, B> {
    fn len(&self) -> Option<usize> {
        Some(self.grids[0].n)
    }
    fn is_linear(&self) -> bool {
        self.kind.is_linear()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        let work = &mut *self.work.lend(|| work(be, &self.grids))?;
        be.hadamard(gate, &self.inv_diag, r, work[0].right_hand_side())?;
        self.cycle(be, gate, work, z)
    }
}
