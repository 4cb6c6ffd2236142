//! One V-cycle over grids that are on one device or on several ranks.
//!
//! See [`super`] for the formulas. Order: that of the operators' products.

use spandrel_backend::{Backend, Coeff, Gate, Mat, Spmv};
use spandrel_formats::{Csr, Real};

use super::polynomial::{self, Step, steps};

/// Degree of the smoother that replaces the inverse if the coarsest grid is too large for one.
const STAND_IN: usize = polynomial::DEGREES;

/// A matrix that a cycle multiplies with.
pub trait AmgOperator<T: Real, B: Backend<T>> {
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

    /// The bound on the eigenvalues of D^-1 A.
    fn bound(&self) -> f64;

    /// D_c^-1 P^T D and P, between this grid and the next; `None` on the last grid.
    fn between(&self) -> Option<(&Self::Operator, &Self::Operator)>;
}

/// The scratch vectors of a grid.
#[derive(Debug)]
pub struct AmgWork<V> {
    /// The right-hand side, divided by the diagonal.
    s: V,
    /// The residual, and the step of the smoother. `None` on a grid without an operator.
    smoother: Option<(V, V)>,
    /// The next grid's x.
    coarse: Option<V>,
}

impl<V> AmgWork<V> {
    /// Makes the vectors of a grid. `vector(false)` makes one of this grid and `vector(true)` one of the next.
    ///
    /// # Errors
    /// Those of `vector`.
    pub fn of<T: Real, B: Backend<T, Vector = V>, E>(
        grid: &impl AmgGrid<T, B>,
        vector: impl Fn(bool) -> Result<V, E>,
    ) -> Result<Self, E> {
        let smoother = match grid.operator() {
            Some(_) => Some((vector(false)?, vector(false)?)),
            None => None,
        };
        let coarse = grid.between().map(|_| vector(true)).transpose()?;
        Ok(Self { s: vector(false)?, smoother, coarse })
    }

    /// The right-hand side that [`cycle`] reads, divided by the diagonal. Write it before each cycle.
    pub fn right_hand_side(&mut self) -> &mut V {
        &mut self.s
    }
}

/// x <- one cycle applied to the right-hand side in the first of `work`, which has the vectors of each of the `grids`.
/// The smoother is a polynomial of this degree, 1 to 4. `last(s, x)` solves on a last grid that has no operator; a last
/// grid that has one is only smoothed. Does not block unless a product or `last` does.
///
/// # Errors
/// Those of the backend and of `last`.
///
/// # Panics
/// If the degree is not 1 to 4.
#[rustfmt::skip] // the right margin holds the formulas
pub fn cycle<T: Real, B: Backend<T>, G: AmgGrid<T, B>>(
    be: &B,
    gate: Gate<'_, B>,
    degree: usize,
    grids: &[G],
    work: &mut [AmgWork<B::Vector>],
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
    smoother.smooth(steps(degree, grid.bound()), Start::Zero, x)?;
    smoother.residual(x)?;                                                                  // t = s - A' x
    restrict.product(be, gate, T::one(), smoother.left, T::zero(), &mut next.s)?;
    cycle(be, gate, degree, coarser, below, last, coarse)?;
    prolong.product(be, gate, T::one(), coarse, T::one(), x)?;                              // x = x + P x_c
    smoother.smooth(steps(degree, grid.bound()), Start::Given, x)
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
        self.be.copy(self.gate, self.s, self.left)?;
        self.a.product(self.be, self.gate, -T::one(), x, T::one(), self.left)
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
                be.copy(gate, self.s, self.left)?;
                self.a.product(be, gate, -T::one(), self.step, T::one(), self.left)?;
            }
            let left = if k == 0 && start == Start::Zero { self.s } else { &*self.left };
            let old = if k == 0 && start == Start::Zero { Coeff::zero() } else { Coeff::one() };
            // z = kept z + taken s, x = x + weight z.
            be.axpby_chain(gate, [host(taken), host(kept)], left, self.step, [host(weight), old], x)?;
        }
        Ok(())
    }
}
