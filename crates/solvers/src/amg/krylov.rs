//! The correction of a K-cycle: two iterations of flexible conjugate gradients on a coarse grid, preconditioned by the
//! cycle from that grid on.
//!
//! The grid stores A' = D^-1 A and the right-hand side s = D^-1 r, so D A' is symmetric, and all dot products have the
//! weight D:
//! ```text
//! c <- cycle(s);   v <- A' c;   rho <- c'D v;   alpha <- c'D s;   s <- s - (alpha / rho) v
//! d <- cycle(s);   w <- A' d;   gamma <- c'D w
//! d <- d - (gamma / rho) c;     w <- w - (gamma / rho) v
//! sigma <- d'D w;  beta <- d'D s
//! x <- (alpha / rho) c + (beta / sigma) d
//! ```
//! Every scalar stays on the device, so a correction is one fixed sequence of operations.
//!
//! rho and sigma are positive unless the residual is zero, which it is on a coarse grid if the finer residual vanishes
//! there, or if one iteration has solved the grid's system. The smallest normal number is therefore added to both. It
//! changes no bit of a sum above 2^54 times itself, and makes 0/0 the step 0. A NaN remains one. There are no sums of
//! device scalars, so vectors of one element add: [`Krylov::guarded`].
//!
//! Order: that of the operators' products and of [`Backend::dot`]. Memory: three vectors and the diagonal per grid.
//! Reference: Notay & Vassilevski 2008, Recursive Krylov-based multigrid cycles.

use spandrel_backend::{Backend, Coeff, Gate};
use spandrel_formats::Real;

use super::cycle::{AmgOperator, AmgWork, WorkOf};

/// A cycle from a grid on: x <- cycle applied to the right-hand side in the first of the scratch vectors.
type Cycle<'a, T, B> = &'a dyn Fn(&mut [WorkOf<T, B>], &mut <B as Backend<T>>::Vector) -> spandrel_backend::Result<()>;

/// Vectors and scalars of the corrections on a grid.
#[derive(Debug)]
pub(super) struct Krylov<V, S> {
    /// D c, then D d.
    weighted: V,
    v: V,
    d: V,
    rho: S,
    alpha: S,
    gamma: S,
    sigma: S,
    beta: S,
    /// The element 1, and a sum.
    one: V,
    sum: V,
}

impl<V, S> Krylov<V, S> {
    /// Makes the scratch of a grid, whose vectors are made by `vector`.
    pub(super) fn new<T: Real, B: Backend<T, Vector = V, Scalar = S>>(
        be: &B,
        vector: impl Fn() -> spandrel_backend::Result<V>,
    ) -> spandrel_backend::Result<Self> {
        let scalar = || be.scalar(T::zero());
        Ok(Self {
            weighted: vector()?,
            v: vector()?,
            d: vector()?,
            rho: scalar()?,
            alpha: scalar()?,
            gamma: scalar()?,
            sigma: scalar()?,
            beta: scalar()?,
            one: be.upload(&[T::one()])?,
            sum: be.zeros(1)?,
        })
    }

    /// x <- the correction for the right-hand side in the first of `work`, which becomes the residual of the first
    /// iteration. `a` is D^-1 A of the grid and `diagonal` is D.
    #[rustfmt::skip] // the right margin holds the formulas
    pub(super) fn correct<T: Real, B: Backend<T, Vector = V, Scalar = S>>(
        &mut self,
        be: &B,
        gate: Gate<'_, B>,
        (a, diagonal): (&impl AmgOperator<T, B>, &V),
        cycle: Cycle<'_, T, B>,
        work: &mut [AmgWork<V, S>],
        x: &mut V,
    ) -> spandrel_backend::Result<()> {
        cycle(work, x)?;                                                                    // c = x
        be.hadamard(gate, diagonal, x, &mut self.weighted)?;
        a.apply_dot(be, gate, x, &mut self.v, &self.weighted, &mut self.rho, None)?;        // v = A' c, c'D v
        Self::guarded::<T, B>(be, gate, (&self.one, &mut self.sum), &mut self.rho)?;
        if let Some((s, _)) = Self::operands(work) {
            be.dot(gate, &self.weighted, s, &mut self.alpha)?;
            let back = Coeff::ratio(&self.alpha, &self.rho).negated();
            be.axpby(gate, back, &self.v, Coeff::one(), s)?;                                // s = s - alpha/rho v
        }
        cycle(work, &mut self.d)?;
        let Some((s, w)) = Self::operands(work) else { return Ok(()) };
        a.apply_dot(be, gate, &self.d, w, &self.weighted, &mut self.gamma, None)?;          // w = A' d, c'D w
        let back = Coeff::ratio(&self.gamma, &self.rho).negated();
        be.axpby(gate, back, x, Coeff::one(), &mut self.d)?;                                // d = d - gamma/rho c
        be.axpby(gate, back, &self.v, Coeff::one(), w)?;                                    // w = w - gamma/rho v
        be.hadamard(gate, diagonal, &self.d, &mut self.weighted)?;
        be.dot(gate, &self.weighted, w, &mut self.sigma)?;                                  // d'D w
        Self::guarded::<T, B>(be, gate, (&self.one, &mut self.sum), &mut self.sigma)?;
        be.dot(gate, &self.weighted, s, &mut self.beta)?;                                   // d'D s
        let (of_c, of_d) = (Coeff::ratio(&self.alpha, &self.rho), Coeff::ratio(&self.beta, &self.sigma));
        be.axpby(gate, of_d, &self.d, of_c, x)                            // x = alpha/rho c + beta/sigma d
    }

    /// The right-hand side of the first grid of `work`, and its vector for residuals, which no cycle needs afterwards.
    fn operands(work: &mut [AmgWork<V, S>]) -> Option<(&mut V, &mut V)> {
        let AmgWork { s, smoother, .. } = work.first_mut()?;
        smoother.as_mut().map(|(left, _)| (s, left))
    }

    /// value <- value + the smallest normal number.
    fn guarded<T: Real, B: Backend<T, Vector = V, Scalar = S>>(
        be: &B,
        gate: Gate<'_, B>,
        (one, sum): (&V, &mut V),
        value: &mut S,
    ) -> spandrel_backend::Result<()> {
        let least = Coeff::host(T::min_positive_value());
        be.axpbypcz(gate, Coeff::scalar(value), one, least, one, Coeff::zero(), sum)?;
        be.dot(gate, one, sum, value)
    }
}
