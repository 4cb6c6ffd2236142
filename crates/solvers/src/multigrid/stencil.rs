//! Geometric multigrid that is smoothed by a polynomial: a V-cycle as M^-1, for symmetric positive definite stencils of
//! nearest neighbours. The set-up runs on the device.
//!
//! Grids, interpolation P and coarse operators are those of [`super::Hierarchy::galerkin`], but the part of P^T A P
//! below the diagonal mirrors the part above it. The coarsest grid is solved with its inverse. One cycle, D the
//! diagonal of A:
//! ```text
//! x <- smooth(0, s);   t <- s - A x             Chebyshev of the fourth kind in D^-1 A, `degree` steps
//! s_c <- P^T t;        x_c <- cycle(s_c)        the inverse on the coarsest grid
//! x <- x + P x_c;      x <- smooth(x, s)        the same polynomial, so that the cycle is symmetric
//! ```
//! P is applied without a matrix. Operators are stored by diagonals, which on a GPU are half of them, in f32 where that
//! loses nothing.
//!
//! M is symmetric (to rounding) and positive definite if A is: the polynomial is below 1 in magnitude up to a rigorous
//! bound on the eigenvalues of D^-1 A.
//!
//! The grid is found from the diagonals alone. It is the right one if all entries of the matrix lie inside the stencil.
//!
//! Cost: [`StencilMultigrid::bytes`]; five vectors of work per grid. Order: that of the backend's DIA and dense
//! products and of [`spandrel_backend::Stencils`]. With [`Order::Stored`] products, which the CPU and CUDA have, the
//! same bits on every backend and for any number of threads, the hierarchy included.
//!
//! References: Trottenberg, Oosterlee, Schuller, Multigrid, 2001; Lottes 2023, Optimal polynomial smoothers for
//! multigrid V-cycles.

use std::fmt;

use spandrel_backend::{
    Backend, Coeff, Convert, Gate, IntoArc, Mat, Operator, Order, Preconditioner, Relax, Spectrum, Spmv, Stencils,
};
use spandrel_formats::{Coarsening, Csr, Dense, Dia, NEIGHBOURS, Neighbours, Real};

use super::MgOptions;
use super::hierarchy::strong;
use crate::amg::coarsest::{Indefinite, inverse};
use crate::amg::polynomial::{DEGREES, Step, steps};
use crate::phase::{Phase, SetupWatcher, unobserved};
use crate::pool::Pool;
use crate::{Error, Result};

/// A grid of at most this many rows is the coarsest and is solved with its inverse, and the most rows that a coarsest
/// grid may have for one.
const COARSEST: [usize; 2] = [300, 2000];
/// About this many rows are looked at to decide which axes are halved.
const SAMPLES: usize = 1 << 12;

/// What the cycle needs from a device.
pub trait StencilBackend<T: Real>:
    Spmv<Csr<T>> + Spmv<Dia<T>> + Spmv<Dense<T>> + Convert<Csr<T>, Dia<T>> + Stencils<T>
{
}
impl<T: Real, B> StencilBackend<T> for B where
    B: Spmv<Csr<T>> + Spmv<Dia<T>> + Spmv<Dense<T>> + Convert<Csr<T>, Dia<T>> + Stencils<T>
{
}

type VectorOf<T, B> = <B as Backend<T>>::Vector;

/// The V-cycle as M^-1. See the module's head.
pub struct StencilMultigrid<T: Real, B: StencilBackend<T>> {
    grids: Vec<Grid<T, B>>,
    degree: usize,
    /// The inverse of the coarsest operator, if it was made.
    coarsest: Option<Mat<B, Dense<T>>>,
    work: Pool<Vec<Work<VectorOf<T, B>>>>,
    sizes: Vec<[usize; 3]>,
    /// The maximum number of grids.
    levels: Option<usize>,
}

/// A grid on the device.
struct Grid<T: Real, B: StencilBackend<T>> {
    of: Neighbours,
    a: Mat<B, Dia<T>>,
    /// 1 / d.
    inverse: VectorOf<T, B>,
    bound: f64,
    /// The way to the next grid; `None` on the coarsest.
    to: Option<Coarsening>,
}

/// The vectors of a grid.
struct Work<V> {
    /// The residual, and the step of the smoother.
    left: V,
    step: V,
    /// The right-hand side and x of the next grid.
    next: Option<(V, V)>,
}

impl<V> Work<V> {
    fn new<T: Real, B: StencilBackend<T> + Backend<T, Vector = V>>(
        be: &B,
        grids: &[Grid<T, B>],
    ) -> spandrel_backend::Result<Vec<Self>> {
        let of = |grid: &Grid<T, B>| {
            let (n, coarse) = (grid.of.points(), grid.to.map(|to| to.coarse().iter().product()));
            let next = coarse.map(|n| Ok::<_, spandrel_backend::Error>((be.zeros(n)?, be.zeros(n)?))).transpose()?;
            Ok(Self { left: be.zeros(n)?, step: be.zeros(n)?, next })
        };
        grids.iter().map(of).collect()
    }
}

impl<T: Real, B: StencilBackend<T>> fmt::Debug for StencilMultigrid<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StencilMultigrid")
            .field("sizes", &self.sizes)
            .field("degree", &self.degree)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: StencilBackend<T>> StencilMultigrid<T, B> {
    /// Sets up the cycle with the smoother of [`MgOptions::DEGREE`] and brings the matrix onto the device.
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
        Self::of(be, &Mat::load(be, a)?, None, MgOptions::DEGREE, &mut unobserved)
    }

    /// Sets up the cycle for a matrix on the device, with at most `levels` grids and a smoother of this degree, 1 to 4,
    /// and tells `watcher` of each coarse operator before it is formed. The host reads sizes, a sample of rows per grid
    /// and the coarsest operator. Blocks; must not be recorded.
    ///
    /// # Errors
    /// - [`Error::NotSquare`]; [`Error::Unsupported`] for a matrix that is no symmetric stencil of nearest neighbours
    ///   with one unknown per point, or does not equal its transpose bit for bit.
    /// - [`Error::Diagonal`] with the first row whose diagonal entry is not positive and finite;
    ///   [`Error::NotFinite`] for one with another entry that is not finite; [`Error::NotPositive`] where the coarsest
    ///   grid shows that the matrix is not positive semidefinite.
    /// - [`Error::Parameter`] for a degree or a number of grids out of its range.
    /// - A backend that fails, and [`Error::Interrupted`].
    pub fn of(
        be: &B,
        a: &Mat<B, Csr<T>>,
        levels: Option<usize>,
        degree: usize,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        if !(1..=DEGREES).contains(&degree) {
            let range = "mg smooths with a polynomial of degree 1 to 4";
            return Err(Error::Parameter { name: "degree", value: degree as f64, range });
        }
        if levels == Some(0) {
            return Err(Error::Parameter { name: "levels", value: 0.0, range: "mg has at least one grid" });
        }
        if a.nrows() != a.ncols() {
            return Err(Error::NotSquare { solver: "mg", nrows: a.nrows(), ncols: a.ncols() });
        }
        let (grids, coarsest) = hierarchy(be, a, levels.unwrap_or(usize::MAX), watcher)?;
        let (work, sizes) = (Pool::new(Work::new(be, &grids)?), grids.iter().map(|grid| grid.of.size()).collect());
        Ok(Self { grids, degree, coarsest, work, sizes, levels })
    }

    /// Takes another matrix on the same grid: the set-up again, whose vectors of work stay. Addresses change, so steps
    /// that were recorded with the cycle must be recorded again.
    ///
    /// # Errors
    /// As [`StencilMultigrid::of`], and [`Error::Size`] for a matrix of another size. If the matrix is refused, nothing
    /// has changed.
    pub fn update_from(&mut self, be: &B, a: &Mat<B, Csr<T>>) -> Result<()> {
        let n = self.grids[0].of.points();
        if a.nrows() != n {
            return Err(Error::rows("mg", "the matrix", a.nrows(), n, crate::error::SAME_SIZE));
        }
        let (grids, coarsest) = hierarchy(be, a, self.levels.unwrap_or(usize::MAX), &mut unobserved)?;
        let sizes: Vec<_> = grids.iter().map(|grid| grid.of.size()).collect();
        if sizes != self.sizes {
            self.work = Pool::new(Work::new(be, &grids)?);
        }
        (self.grids, self.coarsest, self.sizes) = (grids, coarsest, sizes);
        Ok(())
    }

    /// The extents X, Y, Z of each grid, finest first.
    pub fn sizes(&self) -> &[[usize; 3]] {
        &self.sizes
    }
    /// Entries of everything that a cycle reads.
    pub fn nnz(&self) -> usize {
        self.grids.iter().map(|grid| grid.a.nnz()).sum::<usize>() + self.coarsest.as_ref().map_or(0, Mat::nnz)
    }
    /// Entries of all operators per entry of the finest.
    pub fn operator_complexity(&self) -> f64 {
        let all: usize = self.grids.iter().map(|grid| grid.a.nnz()).sum();
        all as f64 / self.grids[0].a.nnz().max(1) as f64
    }
    /// Bytes of the matrices on the device.
    pub fn storage(&self) -> u64 {
        self.grids.iter().map(|grid| grid.a.storage() + (T::BYTES * grid.of.points()) as u64).sum::<u64>()
            + self.coarsest.as_ref().map_or(0, Mat::storage)
    }
    /// Compulsory bytes of one cycle: each product by its model, and each vector between operations read and written
    /// once.
    pub fn bytes(&self) -> u64 {
        let degree = self.degree as u64;
        let grid = |grid: &Grid<T, B>| match grid.to {
            None => 0,
            Some(to) => {
                let [fine, coarse] = [grid.of.points(), to.coarse().iter().product()].map(|n| (n * T::BYTES) as u64);
                // Two smoothings of `degree` steps with six passes each, of which the first reads neither z nor x; a
                // copy of the right-hand side for each residual; the moves between the grids.
                2 * degree * grid.a.spmv_bytes() + (12 * degree - 3 + 2 * 2 + 3) * fine + 2 * coarse
            }
        };
        self.coarsest.as_ref().map_or(0, Mat::spmv_bytes) + self.grids.iter().map(grid).sum::<u64>()
    }
    /// Returns true if every product sums in the order that all backends share.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Dense<T>>::order(be) == Order::Stored && Spmv::<Dia<T>>::order(be) == Order::Stored
    }

    /// x <- one cycle applied to s, on the first of these grids. `work` has the vectors of each.
    #[rustfmt::skip] // the right margin holds the formulas
    fn cycle(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        grids: &[Grid<T, B>],
        work: &mut [Work<VectorOf<T, B>>],
        s: &VectorOf<T, B>,
        x: &mut VectorOf<T, B>,
    ) -> spandrel_backend::Result<()> {
        let ([grid, coarser @ ..], [Work { left, step, next }, below @ ..]) = (grids, work) else { return Ok(()) };
        let mut smoother = Smoother { be, gate, grid, s, left, step };
        let (Some(to), Some((of_next, coarse))) = (&grid.to, next) else {
            return match &self.coarsest {
                Some(inverse) => inverse.spmv(be, gate, Coeff::one(), s, Coeff::zero(), x),
                // Too large for an inverse, as a grid is that couples along one axis only.
                None => smoother.smooth(DEGREES, false, x),
            };
        };
        smoother.smooth(self.degree, false, x)?;
        smoother.residual(x)?;                                                              // t = s - A x
        be.restrict(gate, to, smoother.left, of_next)?;                                     // s_c = P^T t
        self.cycle(be, gate, coarser, below, of_next, coarse)?;
        be.prolong(gate, to, coarse, x)?;                                                   // x = x + P x_c
        smoother.smooth(self.degree, true, x)
    }
}

/// What the smoother of a grid works with.
struct Smoother<'a, T: Real, B: StencilBackend<T>> {
    be: &'a B,
    gate: Gate<'a, B>,
    grid: &'a Grid<T, B>,
    s: &'a VectorOf<T, B>,
    left: &'a mut VectorOf<T, B>,
    step: &'a mut VectorOf<T, B>,
}

impl<T: Real, B: StencilBackend<T>> Smoother<'_, T, B> {
    /// left <- s - A x.
    fn residual(&mut self, x: &VectorOf<T, B>) -> spandrel_backend::Result<()> {
        self.grid.a.residual(self.be, self.gate, self.s, x, self.left)
    }

    /// Takes the steps of a polynomial, from the x that is given or (`is_given` is false) from 0.
    fn smooth(&mut self, degree: usize, is_given: bool, x: &mut VectorOf<T, B>) -> spandrel_backend::Result<()> {
        let (be, gate, Grid { a, inverse, bound, .. }) = (self.be, self.gate, self.grid);
        let minus = || Coeff::host(-T::one());
        if is_given {
            self.residual(x)?;
        }
        for (k, Step { kept, taken, weight }) in steps(degree, *bound).enumerate() {
            if k > 1 || (k > 0 && is_given) {
                a.spmv(be, gate, minus(), self.step, Coeff::one(), self.left)?;
            } else if k > 0 {
                a.residual(be, gate, self.s, self.step, self.left)?;
            }
            let [kept, taken, weight] = [kept, taken, weight].map(T::from_f64);
            let relax = Relax { kept: (k > 0).then_some(kept), taken, weight, adds: k > 0 || is_given };
            let left = if k == 0 && !is_given { self.s } else { &*self.left };
            be.relax(gate, relax, inverse, left, self.step, x)?;
        }
        Ok(())
    }
}

// SAFETY: one fixed sequence of operations, which depends on `degree` and the bounds of the grids; these change only
// while nothing borrows the preconditioner. Its buffers are those of the matrices and vectors made with it, which are
// neither replaced nor lent out while it is borrowed.
unsafe impl<T: Real, B: StencilBackend<T>> Preconditioner<T, B> for StencilMultigrid<T, B> {
    fn len(&self) -> Option<usize> {
        Some(self.grids[0].of.points())
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
type Hierarchy<T, B> = (Vec<Grid<T, B>>, Option<Mat<B, Dense<T>>>);

fn hierarchy<T: Real, B: StencilBackend<T>>(
    be: &B,
    a: &Mat<B, Csr<T>>,
    levels: usize,
    watcher: SetupWatcher<'_>,
) -> Result<Hierarchy<T, B>> {
    let diagonals = a.convert::<Dia<T>>(be).map_err(|error| match error {
        // Too many diagonals.
        spandrel_backend::Error::Format(_) => unsuitable(),
        other => other.into(),
    })?;
    let mut grids = vec![finest(be, diagonals)?];
    loop {
        let count = grids.len();
        let Some(fine) = grids.last_mut() else { break };
        if count >= levels || fine.of.points() <= COARSEST[0] {
            break;
        }
        // An odd step, so that rows of every place in a line of 2^k points occur.
        let rows = fine.a.stencil_rows(be, &fine.of, (fine.of.points() / SAMPLES) | 1)?;
        let second = Neighbours::moments(&rows).second;
        let halved = strong(fine.of.size(), [second[0][0], second[1][1], second[2][2]]);
        if halved == [false; 3] {
            break;
        }
        Phase::Coarsening { grid: count }.begin(watcher)?;
        let to = Coarsening::new(fine.of.size(), halved, 1);
        let (coarse, of) = (fine.a.coarser_stencil(be, &fine.of, &to)?, fine.of.coarser(&to));
        let (inverse, spectrum) = looked_at(be, &coarse, &of)?;
        if spectrum.unfit.is_some() {
            break;
        }
        fine.to = Some(to);
        grids.push(Grid { of, a: coarse, inverse, bound: spectrum.bound, to: None });
    }
    Phase::Loading.begin(watcher)?;
    let coarsest = inverse_of_last(be, &grids)?;
    Ok((grids, coarsest))
}

/// The grid that holds all entries of the matrix.
fn finest<T: Real, B: StencilBackend<T>>(be: &B, a: Mat<B, Dia<T>>) -> Result<Grid<T, B>> {
    for of in a.stencils(be) {
        let (inverse, spectrum) = match looked_at(be, &a, &of) {
            Err(Error::Backend(spandrel_backend::Error::Unsupported { .. })) => break,
            seen => seen?,
        };
        if spectrum.entries != a.nnz() as u64 {
            continue;
        }
        let Some(row) = spectrum.unfit else {
            return Ok(Grid { of, a, inverse, bound: spectrum.bound, to: None });
        };
        let places = a.stencil_rows(be, &of, 1)?;
        let places = &places[row * NEIGHBOURS..(row + 1) * NEIGHBOURS];
        let diagonal = places[NEIGHBOURS / 2];
        let found = match diagonal {
            d if d.is_nan() => "NaN",
            d if d.is_infinite() => "infinite",
            d if d.is_zero() => "zero",
            d if d < T::zero() => "negative",
            _ => match places.iter().position(|v| !v.is_finite()) {
                Some(at) => {
                    let (column, found) =
                        (of.column(row, at).unwrap_or(row), if places[at].is_nan() { "NaN" } else { "infinite" });
                    return Err(Error::NotFinite { row, column, found });
                }
                None => "too small for its inverse",
            },
        };
        return Err(Error::Diagonal { row, found });
    }
    Err(unsuitable())
}

fn unsuitable() -> Error {
    let why = "the Chebyshev smoother of mg needs a matrix that equals its transpose and is a stencil of nearest neighbours on a grid with one unknown \
               per point; use mg=gauss-seidel, or amg";
    Error::Unsupported { why: why.to_string() }
}

fn looked_at<T: Real, B: StencilBackend<T>>(
    be: &B,
    a: &Mat<B, Dia<T>>,
    of: &Neighbours,
) -> Result<(VectorOf<T, B>, Spectrum)> {
    let mut inverse = be.zeros(of.points())?;
    let spectrum = a.stencil_spectrum(be, of, &mut inverse)?;
    Ok((inverse, spectrum))
}

/// The inverse of the coarsest operator; `None` if it is too large.
fn inverse_of_last<T: Real, B: StencilBackend<T>>(be: &B, grids: &[Grid<T, B>]) -> Result<Option<Mat<B, Dense<T>>>> {
    let Some(Grid { of, a, .. }) = grids.last().filter(|grid| grid.of.points() <= COARSEST[1]) else { return Ok(None) };
    let (n, rows) = (of.points(), a.stencil_rows(be, of, 1)?);
    let mut dense = vec![0.0; n * n];
    for (row, places) in rows.chunks_exact(NEIGHBOURS).enumerate() {
        for (at, value) in places.iter().enumerate() {
            if let Some(column) = of.column(row, at) {
                dense[row * n + column] = value.as_f64();
            }
        }
    }
    let not_positive = |Indefinite(row)| Error::NotPositive { method: "mg", grid: grids.len() - 1, row };
    let inverse = inverse(n, &dense).map_err(not_positive)?;
    // By columns: entry (i, j) at i + n j.
    let columns = (0..n * n).map(|at| T::from_f64(inverse[at % n * n + at / n])).collect();
    Ok(Some(Mat::load(be, Dense::new(n, n, columns)?)?))
}
