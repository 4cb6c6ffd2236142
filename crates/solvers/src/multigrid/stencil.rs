//! Geometric multigrid that is smoothed by a polynomial: a V-cycle as M^-1, for symmetric positive definite stencils of
//! nearest neighbours. The set-up runs on the device.
//!
//! Grids, interpolation P and coarse operators are those of [`super::Hierarchy::galerkin`], except that the part of P^T
//! A P below the diagonal is a mirror image of the part above it. The coarsest grid is solved with its inverse. One
//! cycle:
//! ```text
//! x <- smooth(0, s);   t <- s - A x             a polynomial in D^-1 A, `degree` steps
//! s_c <- P^T t;        x_c <- cycle(s_c)        the inverse on the coarsest grid
//! x <- x + P x_c;      x <- smooth(x, s)        the same polynomial, so that the cycle is symmetric
//! ```
//! P is applied without a matrix. Operators are stored by diagonals. A GPU stores only half of the diagonals, and in
//! f32 if that loses nothing.
//!
//! The polynomial is Chebyshev's of the fourth kind, where D is the diagonal of A, or (1 - t)^degree, where D has the
//! sum of magnitudes of each row (l1-Jacobi): see [`PolynomialSmoother`].
//!
//! M is symmetric (to rounding) and positive definite if A is: the polynomial is below 1 in magnitude up to a rigorous
//! bound on the eigenvalues of D^-1 A. For l1-Jacobi this bound is 1, because D - A and D + A have rows whose diagonal
//! is at least the sum of the other magnitudes (Gershgorin).
//!
//! The grid is found from only the offsets of the diagonals. It is right if all entries of the matrix lie inside the
//! stencil.
//!
//! Cost: [`StencilMultigrid::bytes`]; five scratch vectors per grid. Order: that of the backend's DIA and dense
//! products and of [`spandrel_backend::Stencils`]. With products in [`Order::Stored`], which the CPU and CUDA have, the
//! cycle and the hierarchy have the same bits on every backend and for any number of threads.
//!
//! References: Trottenberg, Oosterlee, Schuller, Multigrid, 2001; Lottes 2023, Optimal polynomial smoothers for
//! multigrid V-cycles; Baker, Falgout, Kolev, Yang 2011, Multigrid smoothers for ultraparallel computing.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, IntoArc, Mat, Order, Preconditioner, Spmv};
use spandrel_formats::{Coarsening, Csr, Dense, Dia, NEIGHBOURS, Neighbours, Real};

use super::grid::{
    MOST_INVERTED, StencilBackend, StencilGrid, StencilWork, VectorOf, check, halved, looked_at, no_stencil,
    sampled_every, unfit_row,
};
use super::options::PolynomialSmoother;
use crate::amg::coarsest::{Indefinite, inverse};
use crate::phase::{Phase, SetupWatcher, unobserved};
use crate::pool::Pool;
use crate::{Error, Result};

/// A grid of at most this many rows is the coarsest and is solved with its inverse.
pub(super) const COARSEST: usize = 300;

/// The V-cycle as M^-1. See the module's head.
pub struct StencilMultigrid<T: Real, B: StencilBackend<T>> {
    pub(super) grids: Vec<Level<T, B>>,
    /// The inverse of the coarsest operator, if it was made.
    pub(super) coarsest: Option<Mat<B, Dense<T>>>,
    pub(super) work: Pool<Vec<Work<VectorOf<T, B>>>>,
    pub(super) sizes: Vec<[usize; 3]>,
    /// The maximum number of grids.
    pub(super) levels: Option<usize>,
}

/// A grid on the device.
pub(super) struct Level<T: Real, B: StencilBackend<T>> {
    pub(super) grid: StencilGrid<T, B>,
    /// The way to the next grid; `None` on the coarsest.
    pub(super) to: Option<Coarsening>,
}

/// The vectors of a grid.
pub(super) struct Work<V> {
    here: StencilWork<V>,
    /// The right-hand side and x of the next grid.
    next: Option<(V, V)>,
}

impl<V> Work<V> {
    pub(super) fn new<T: Real, B: StencilBackend<T> + Backend<T, Vector = V>>(
        be: &B,
        grids: &[Level<T, B>],
    ) -> spandrel_backend::Result<Vec<Self>> {
        let of = |level: &Level<T, B>| {
            let coarse = level.to.map(|to| to.coarse().iter().product());
            let next = coarse.map(|n| Ok::<_, spandrel_backend::Error>((be.zeros(n)?, be.zeros(n)?))).transpose()?;
            Ok(Self { here: StencilWork::new(be, &level.grid)?, next })
        };
        grids.iter().map(of).collect()
    }
}

impl<T: Real, B: StencilBackend<T>> fmt::Debug for StencilMultigrid<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StencilMultigrid")
            .field("sizes", &self.sizes)
            .field("smoother", &self.smoother())
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: StencilBackend<T>> StencilMultigrid<T, B> {
    /// Sets up the cycle with the default [`PolynomialSmoother`] and brings the matrix onto the device.
    ///
    /// ```
    /// use spandrel_backend::{Backend, Mat};
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_formats::generate;
    /// use spandrel_solvers::{Options, StencilMultigrid, cg};
    ///
    /// let (device, a) = (Cpu::new(), generate::csr::<f64>("poisson3d:20")?);
    /// let m = StencilMultigrid::new(&device, a.clone())?;
    /// assert_eq!(m.sizes(), [[20, 20, 20], [10, 10, 10], [5, 5, 5]]);
    /// let (b, mut x) = (device.upload(&vec![1.0; 8000])?, Backend::<f64>::zeros(&device, 8000)?);
    /// let outcome = cg(&device, &Mat::load(&device, a)?, &m, &b, &mut x, &Options::default())?;
    /// assert!(outcome.status.is_converged() && outcome.iterations < 15);
    /// # Ok::<(), spandrel_solvers::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`StencilMultigrid::of`].
    pub fn new(be: &B, a: impl IntoArc<Csr<T>>) -> Result<Self> {
        Self::of(be, &Mat::load(be, a)?, None, PolynomialSmoother::default(), &mut unobserved)
    }

    /// Sets up the cycle for a matrix on the device, with at most `levels` grids and a smoother of degree 1 to 4. Tells
    /// `watcher` of each coarse operator before it is formed. The host reads sizes, a sample of rows per grid and the
    /// coarsest operator. Blocks; must not be recorded.
    ///
    /// # Errors
    /// - [`Error::NotSquare`]; [`Error::Unsupported`] for a matrix that is no symmetric stencil of nearest neighbours
    ///   with one unknown per point, or does not equal its transpose bit for bit.
    /// - [`Error::Diagonal`] with the first row whose diagonal entry is not positive and finite;
    ///   [`Error::NotFinite`] for one with another entry that is not finite; [`Error::Diagonal`] also for one whose sum
    ///   of magnitudes overflows, if the smoother divides by it; [`Error::NotPositive`] where the coarsest grid shows
    ///   that the matrix is not positive semidefinite.
    /// - [`Error::Parameter`] for a degree or a number of grids out of its range.
    /// - A backend that fails, and [`Error::Interrupted`].
    pub fn of(
        be: &B,
        a: &Mat<B, Csr<T>>,
        levels: Option<usize>,
        smoother: PolynomialSmoother,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        check(levels, smoother)?;
        if a.nrows() != a.ncols() {
            return Err(Error::NotSquare { solver: "mg", nrows: a.nrows(), ncols: a.ncols() });
        }
        let made = coarsened(be, finest_of(be, a, None, smoother)?, levels, watcher)?;
        Self::with(be, made, levels)
    }

    /// Sets up the cycle for an operator that is itself a coarse operator of another hierarchy, with at most `levels`
    /// grids. Returns `None` if a row of the operator is unfit for the smoother. Blocks.
    ///
    /// # Errors
    /// As [`StencilMultigrid::of`].
    pub fn below(
        be: &B,
        of: Neighbours,
        a: Mat<B, Dia<T>>,
        levels: Option<usize>,
        smoother: PolynomialSmoother,
    ) -> Result<Option<Self>> {
        check(levels, smoother)?;
        let (grid, spectrum) = StencilGrid::new(be, of, a, smoother)?;
        if spectrum.unfit.is_some() {
            return Ok(None);
        }
        let made = coarsened(be, grid, levels, &mut unobserved)?;
        Self::with(be, made, levels).map(Some)
    }

    fn with(be: &B, (grids, coarsest): Hierarchy<T, B>, levels: Option<usize>) -> Result<Self> {
        let (work, sizes) = (Pool::new(Work::new(be, &grids)?), sizes(&grids));
        Ok(Self { grids, coarsest, work, sizes, levels })
    }

    /// The extents X, Y, Z of each grid, finest first.
    pub fn sizes(&self) -> &[[usize; 3]] {
        &self.sizes
    }
    /// The smoother of every grid.
    pub fn smoother(&self) -> PolynomialSmoother {
        self.grids[0].grid.smoother
    }
    /// The number of entries of all matrices that a cycle reads.
    pub fn nnz(&self) -> usize {
        self.grids.iter().map(|level| level.grid.a().nnz()).sum::<usize>() + self.coarsest.as_ref().map_or(0, Mat::nnz)
    }
    /// The entries of all operators divided by those of the finest.
    pub fn operator_complexity(&self) -> f64 {
        let all: usize = self.grids.iter().map(|level| level.grid.a().nnz()).sum();
        all as f64 / self.grids[0].grid.a().nnz().max(1) as f64
    }
    /// Bytes of the matrices on the device.
    pub fn storage(&self) -> u64 {
        self.grids.iter().map(|level| level.grid.storage()).sum::<u64>()
            + self.coarsest.as_ref().map_or(0, Mat::storage)
    }
    /// The bytes that one cycle must move: each product by its model; vectors between operations are read and written
    /// once.
    pub fn bytes(&self) -> u64 {
        let degree = self.smoother().degree() as u64;
        // Two smoothings. A step reads the divisors, the residual, z and x, and writes z and x, except that the very
        // first step does not read x. A Chebyshev polynomial does not read z in its first step, l1-Jacobi in none.
        let passes = match self.smoother() {
            PolynomialSmoother::Chebyshev(_) => 12 * degree - 3,
            PolynomialSmoother::L1Jacobi(_) => 10 * degree - 1,
        };
        let grid = |Level { grid, to }: &Level<T, B>| match to {
            None => 0,
            Some(to) => {
                let [fine, coarse] = [grid.points(), to.coarse().iter().product()].map(|n| (n * T::BYTES) as u64);
                // The smoothings; the right-hand side of each residual; restriction and prolongation.
                2 * degree * grid.a().spmv_bytes() + (passes + 2 + 3) * fine + 2 * coarse
            }
        };
        self.coarsest.as_ref().map_or(0, Mat::spmv_bytes) + self.grids.iter().map(grid).sum::<u64>()
    }
    /// Returns true if every product sums in the order that all backends share.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Dense<T>>::order(be) == Order::Stored && Spmv::<Dia<T>>::order(be) == Order::Stored
    }

    /// x <- one cycle applied to s, on the first of these grids. `work` has the vectors of each.
    fn cycle(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        grids: &[Level<T, B>],
        work: &mut [Work<VectorOf<T, B>>],
        s: &VectorOf<T, B>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        let ([Level { grid, to }, coarser @ ..], [Work { here, next }, below @ ..]) = (grids, work) else {
            return Ok(());
        };
        let (Some(to), Some((of_next, coarse))) = (to, next) else {
            return match &self.coarsest {
                Some(inverse) => inverse.spmv(be, gate, Coeff::one(), s, Coeff::zero(), x),
                None => grid.alone(be, gate, s, here, x),
            };
        };
        grid.down(be, gate, to, s, here, x, of_next)?;
        self.cycle(be, gate, coarser, below, of_next, coarse)?;
        grid.up(be, gate, to, coarse, s, here, x)
    }
}

// SAFETY: one fixed sequence of operations, which depends on the smoothers and the bounds of the grids; these change
// only while nothing borrows the preconditioner. Its buffers are those of the matrices and vectors made with it, which
// are neither replaced nor lent out while it is borrowed.
unsafe impl<T: Real, B: StencilBackend<T>> Preconditioner<T, B> for StencilMultigrid<T, B> {
    fn len(&self) -> Option<usize> {
        Some(self.grids[0].grid.points())
    }
    fn apply(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        r: &VectorOf<T, B>,
        z: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        let work = &mut *self.work.lend(|| Work::new(be, &self.grids))?;
        self.cycle(be, gate, &self.grids, work, r, z)
    }
}

/// The grids, finest first, and the inverse of the coarsest operator.
pub(super) type Hierarchy<T, B> = (Vec<Level<T, B>>, Option<Mat<B, Dense<T>>>);

pub(super) fn sizes<T: Real, B: StencilBackend<T>>(grids: &[Level<T, B>]) -> Vec<[usize; 3]> {
    grids.iter().map(|level| level.grid.of().size()).collect()
}

/// The finest grid of a matrix. `like` is that of a matrix that may have the same pattern.
pub(super) fn finest_of<T: Real, B: StencilBackend<T>>(
    be: &B,
    a: &Mat<B, Csr<T>>,
    like: Option<&Mat<B, Dia<T>>>,
    smoother: PolynomialSmoother,
) -> Result<StencilGrid<T, B>> {
    let diagonals = match like {
        Some(like) => a.convert_like(be, like),
        None => a.convert(be),
    };
    let diagonals = diagonals.map_err(|error| match error {
        // Too many diagonals.
        spandrel_backend::Error::Format(_) => no_stencil(),
        other => other.into(),
    })?;
    finest(be, diagonals, smoother)
}

/// Returns true if no grid may follow this one, whatever its values are.
pub(super) fn is_last(points: usize, count: usize, levels: Option<usize>) -> bool {
    levels.is_some_and(|most| count >= most) || points <= COARSEST
}

/// The grids below a finest one.
pub(super) fn coarsened<T: Real, B: StencilBackend<T>>(
    be: &B,
    finest: StencilGrid<T, B>,
    levels: Option<usize>,
    watcher: SetupWatcher<'_>,
) -> Result<Hierarchy<T, B>> {
    let mut grids = vec![Level { grid: finest, to: None }];
    loop {
        let count = grids.len();
        let Some(Level { grid: fine, to: way }) = grids.last_mut() else { break };
        if is_last(fine.points(), count, levels) {
            break;
        }
        let rows = fine.a().stencil_rows(be, fine.of(), 0, sampled_every(fine.points()))?;
        let Some(halved) = halved(fine.of().size(), &rows) else { break };
        Phase::Coarsening { grid: count }.begin(watcher)?;
        let to = Coarsening::new(fine.of().size(), halved, 1);
        let coarse = fine.a().coarser_stencil(be, fine.of(), &to)?;
        let (grid, spectrum) = StencilGrid::new(be, fine.of().coarser(&to), coarse, fine.smoother)?;
        if spectrum.unfit.is_some() {
            break;
        }
        *way = Some(to);
        grids.push(Level { grid, to: None });
    }
    Phase::Loading.begin(watcher)?;
    let coarsest = inverse_of_last(be, &grids)?;
    Ok((grids, coarsest))
}

/// The grid that holds all entries of the matrix.
fn finest<T: Real, B: StencilBackend<T>>(
    be: &B,
    a: Mat<B, Dia<T>>,
    smoother: PolynomialSmoother,
) -> Result<StencilGrid<T, B>> {
    for of in a.stencils(be) {
        let (inverse, spectrum) = match looked_at(be, &a, &of, smoother) {
            Err(spandrel_backend::Error::Unsupported { .. }) => break,
            seen => seen?,
        };
        if spectrum.entries != a.nnz() as u64 {
            continue;
        }
        let Some(row) = spectrum.unfit else {
            return Ok(StencilGrid { of, a, smoother, inverse, bound: spectrum.bound });
        };
        let places = a.stencil_rows(be, &of, 0, 1)?;
        return Err(unfit_row(&of, row, &places[row * NEIGHBOURS..(row + 1) * NEIGHBOURS]));
    }
    Err(no_stencil())
}

/// The inverse of the coarsest operator; `None` if it is too large.
fn inverse_of_last<T: Real, B: StencilBackend<T>>(be: &B, grids: &[Level<T, B>]) -> Result<Option<Mat<B, Dense<T>>>> {
    let last = grids.last().map(|level| &level.grid).filter(|grid| grid.points() <= MOST_INVERTED);
    let Some(StencilGrid { of, a, .. }) = last else { return Ok(None) };
    let inverse = inverted(of, &a.stencil_rows(be, of, 0, 1)?, grids.len() - 1)?;
    Ok(Some(Mat::load(be, inverse)?))
}

/// The inverse of the operator of a grid, given its rows in the layout of [`Neighbours::rows`].
pub(super) fn inverted<T: Real>(of: &Neighbours, rows: &[T], grid: usize) -> Result<Dense<T>> {
    let n = of.points();
    let mut dense = vec![0.0; n * n];
    for (row, places) in rows.chunks_exact(NEIGHBOURS).enumerate() {
        for (at, value) in places.iter().enumerate() {
            if let Some(column) = of.column(row, at) {
                dense[row * n + column] = value.as_f64();
            }
        }
    }
    let inverse = inverse(n, &dense).map_err(|Indefinite(row)| Error::NotPositive { method: "mg", grid, row })?;
    // By columns: entry (i, j) at i + n j.
    let columns = (0..n * n).map(|at| T::from_f64(inverse[at % n * n + at / n])).collect();
    Ok(Dense::new(n, n, columns)?)
}
