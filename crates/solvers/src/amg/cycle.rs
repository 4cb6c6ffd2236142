//! One V-cycle over grids that are on one device or on several ranks, or one K-cycle on one device.
//!
//! See [`super`] for the formulas. Order: that of the operators' products.

use spandrel_backend::{Backend, Coeff, Gate, Mat, Operator, Spmv};
use spandrel_formats::{Csr, Real};

use super::krylov::Krylov;
use super::polynomial::{self, Step, steps};

/// Degree of the smoother that replaces the inverse if the coarsest grid is too large for one.
const STAND_IN: usize = polynomial::DEGREES;

/// A matrix that a cycle multiplies with.
pub trait AmgOperator<T: Real, B: Backend<T>>: Operator<T, B> {
    /// y <- a A x + b y. See [`Spmv::spmv`].
    ///
    /// # Errors
    /// Those of the backend.
    fn product(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        a: T,
        x: &B::Vector,
        b: T,
        y: &mut B::Vector,
    ) -> spandrel_backend::Result<()>;
}

impl<T: Real, B: Spmv<Csr<T>>> AmgOperator<T, B> for Mat<B, Csr<T>> {
    fn product(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        a: T,
        x: &B::Vector,
        b: T,
        y: &mut B::Vector,
    ) -> spandrel_backend::Result<()> {
        self.spmv(be, gate, Coeff::host(a), x, Coeff::host(b), y)
    }
}

/// A grid of a cycle.
pub trait AmgGrid<T: Real, B: Backend<T>> {
    /// Its matrices.
    type Operator: AmgOperator<T, B>;

    /// D^-1 A; `None` on a last grid that is solved, not smoothed.
    fn operator(&self) -> Option<&Self::Operator>;

    /// Degree of the smoother, 1 to 4.
    fn degree(&self) -> usize;

    /// The bound on the eigenvalues of D^-1 A.
    fn bound(&self) -> f64;

    /// D_c^-1 P^T D and P, between this grid and the next; `None` on the last grid.
    fn between(&self) -> Option<(&Self::Operator, &Self::Operator)>;

    /// The diagonal of the next grid's operator if two iterations of conjugate gradients find the correction there, as
    /// in a K-cycle; `None` (the default) if one cycle does. The next grid then has an operator and is not the last.
    fn next_diagonal(&self) -> Option<&B::Vector> {
        None
    }
}

/// The scratch vectors of a grid.
#[derive(Debug)]
pub struct AmgWork<V, S> {
    /// The right-hand side, divided by the diagonal.
    pub(super) s: V,
    /// The residual, and the step of the smoother. `None` on a grid without an operator.
    pub(super) smoother: Option<(V, V)>,
    /// The next grid's x.
    coarse: Option<V>,
    /// For the next grid's x if two iterations find it.
    krylov: Option<Krylov<V, S>>,
}

/// The scratch vectors of a grid on a device.
pub(super) type WorkOf<T, B> = AmgWork<<B as Backend<T>>::Vector, <B as Backend<T>>::Scalar>;

impl<V, S> AmgWork<V, S> {
    /// Makes the vectors of a grid. `vector(false)` makes one of this grid and `vector(true)` one of the next.
    ///
    /// # Errors
    /// Those of `vector`.
    pub fn of<T: Real, B: Backend<T, Vector = V, Scalar = S>>(
        be: &B,
        grid: &impl AmgGrid<T, B>,
        vector: impl Fn(bool) -> spandrel_backend::Result<V>,
    ) -> spandrel_backend::Result<Self> {
        let smoother = match grid.operator() {
            Some(_) => Some((vector(false)?, vector(false)?)),
            None => None,
        };
        let coarse = grid.between().map(|_| vector(true)).transpose()?;
        let krylov = grid.next_diagonal().map(|_| Krylov::new(be, || vector(true))).transpose()?;
        Ok(Self { s: vector(false)?, smoother, coarse, krylov })
    }

    /// The right-hand side that [`cycle`] reads, divided by the diagonal. Write it before each cycle.
    pub fn right_hand_side(&mut self) -> &mut V {
        &mut self.s
    }
}

/// x <- one cycle applied to the right-hand side in the first of `work`, which has the vectors of each of the `grids`.
/// `last(s, x)` solves on a last grid that has no operator; a last grid that has one is only smoothed. Does not block
/// unless a product or `last` does.
///
/// # Errors
/// Those of the backend and of `last`.
///
/// # Panics
/// If the degree of a grid is not 1 to 4.
#[rustfmt::skip] // the right margin holds the formulas
pub fn cycle<T: Real, B: Backend<T>, G: AmgGrid<T, B>>(
    be: &B,
    gate: Gate<'_, B>,
    grids: &[G],
    work: &mut [AmgWork<B::Vector, B::Scalar>],
    last: &dyn Fn(&B::Vector, &mut B::Vector) -> spandrel_backend::Result<()>,
    x: &mut B::Vector,
) -> spandrel_backend::Result<()> {
    let ([grid, coarser @ ..], [here, below @ ..]) = (grids, work) else { return Ok(()) };
    let (Some(a), Some((left, step))) = (grid.operator(), &mut here.smoother) else {
        return last(&here.s, x);
    };
    let mut smoother = Smoother { be, gate, a, s: &here.s, left, step };
    let (Some((restrict, prolong)), Some(coarse), [next, ..]) = (grid.between(), &mut here.coarse, &mut *below) else {
        // Coarsening stalled on a grid that is too large for an inverse, so it is only smoothed.
        return smoother.smooth(steps(STAND_IN, grid.bound()), Start::Zero, x);
    };
    smoother.smooth(steps(grid.degree(), grid.bound()), Start::Zero, x)?;
    smoother.residual(x)?;                                                                  // t = s - A' x
    restrict.product(be, gate, T::one(), smoother.left, T::zero(), &mut next.s)?;
    let from_next = |below: &mut [WorkOf<T, B>], x: &mut B::Vector| cycle(be, gate, coarser, below, last, x);
    match (&mut here.krylov, grid.next_diagonal(), coarser.first().and_then(G::operator)) {
        (Some(krylov), Some(diagonal), Some(a)) => {
            krylov.correct(be, gate, (a, diagonal), &from_next, below, coarse)?;
        }
        _ => from_next(below, coarse)?,
    }
    prolong.product(be, gate, T::one(), coarse, T::one(), x)?;                              // x = x + P x_c
    smoother.smooth(steps(grid.degree(), grid.bound()), Start::Given, x)
}

/// Where a smoothing starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// From x = 0; x is not read.
    Zero,
    /// From the x that is given.
    Given,
}

/// The operands of a grid's smoother.
struct Smoother<'a, T: Real, B: Backend<T>, M> {
    be: &'a B,
    gate: Gate<'a, B>,
    a: &'a M,
    s: &'a B::Vector,
    left: &'a mut B::Vector,
    step: &'a mut B::Vector,
}

impl<T: Real, B: Backend<T>, M: AmgOperator<T, B>> Smoother<'_, T, B, M> {
    /// left <- s - A' x.
    fn residual(&mut self, x: &B::Vector) -> spandrel_backend::Result<()> {
        self.a.residual(self.be, self.gate, self.s, x, self.left)
    }

    /// Takes the steps of a polynomial. See [`polynomial`].
    #[rustfmt::skip] // the right margin holds the formulas
    fn smooth(
        &mut self,
        steps: impl Iterator<Item = Step>,
        start: Start,
        x: &mut B::Vector,
    ) -> spandrel_backend::Result<()> {
        let (be, gate) = (self.be, self.gate);
        let host = |value: f64| Coeff::host(T::from_f64(value));
        if start == Start::Given {
            self.residual(x)?;
        }
        for (k, Step { kept, taken, weight }) in steps.enumerate() {
            if k > 0 && (k > 1 || start == Start::Given) {
                self.a.product(be, gate, -T::one(), self.step, T::one(), self.left)?;       // s = s - A' z
            } else if k > 0 {
                self.a.residual(be, gate, self.s, self.step, self.left)?;
            }
            let left = if k == 0 && start == Start::Zero { self.s } else { &*self.left };
            let old = if k == 0 && start == Start::Zero { Coeff::zero() } else { Coeff::one() };
            // z = kept z + taken s, x = x + weight z.
            be.axpby_chain(gate, [host(taken), host(kept)], left, self.step, [host(weight), old], x)?;
        }
        Ok(())
    }
}
