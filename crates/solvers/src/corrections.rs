//! The outer loop of every solve by corrections: it computes residuals and x in the element type of the matrix, and any
//! solver finds the corrections.
//!
//! r <- b - A x; d ~ A^-1 r from any solver, to a loose tolerance; x <- x + d. [`crate::Refine`] finds d in f32; a
//! solver may also find it in a scaled or matched system.
//!
//! Invariants: `converged` always refers to the recomputed residual. A correction that does not lower it is not added,
//! so x never gets worse. A correction that does not halve it ends the solve: as stagnated if the inner solver
//! converged, else with the inner solver's status.
//!
//! Cost beyond the inner solves: per correction one product, about ten passes over vectors and two waits; three vectors
//! of n.
//!
//! Order: that of the operations; the same bits recorded or not.
//!
//! Reference: Wilkinson 1963, Rounding errors in algebraic processes.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Operator};
use spandrel_formats::Real;

use crate::norm::{Norm, norm};
use crate::options::Watcher;
use crate::segments::expect_operands;
use crate::{Error, Options, Outcome, Progress, Result, Status};

/// A correction is worth continuing if it halves the residual, as in [`crate::direct`].
pub(crate) const FRUITFUL: f64 = 0.5;

/// The workspace of solves by corrections for n unknowns: allocated once, used for any number of solves.
pub struct Corrections<T: Real, B: Backend<T>> {
    n: usize,
    r: B::Vector,
    d: B::Vector,
    spare: B::Vector,
    scalar: B::Scalar,
}

impl<T: Real, B: Backend<T>> fmt::Debug for Corrections<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Corrections").field("n", &self.n).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> Corrections<T, B> {
    /// A workspace with three vectors.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        Ok(Self { n, r: be.zeros(n)?, d: be.zeros(n)?, spare: be.zeros(n)?, scalar: be.scalar(T::zero())? })
    }

    /// Solves A x = b from the given x (n elements, like b). Blocks.
    ///
    /// `correct(be, r, d, options, watcher)` writes to d the correction of x. Its options hold the relative tolerance
    /// that the correction needs, `inner_rtol` or looser for the last one. It reports its progress through its watcher,
    /// with residuals relative to r. `watcher` is called before each correction and at each look of the inner solver;
    /// it can interrupt.
    ///
    /// Iterations, their limit and the history are those of the inner solves. Restarts are theirs plus the corrections
    /// after the first. `options.max_restarts` limits the corrections after the first.
    ///
    /// # Errors
    /// Sizes that contradict each other, options out of range, a backend that fails, errors of `correct`. Numerical
    /// failures are in the [`Outcome`].
    pub fn solve_watched<C>(
        &mut self,
        be: &B,
        a: &impl Operator<T, B>,
        inner_rtol: f64,
        mut correct: C,
        b: &B::Vector,
        x: &mut B::Vector,
        options: &Options,
        watcher: Watcher<'_>,
    ) -> Result<Outcome>
    where
        C: FnMut(&B, &B::Vector, &mut B::Vector, &Options, Watcher<'_>) -> Result<Outcome>,
    {
        options.check()?;
        self.check(be, a, b, x)?;
        let mut outcome = Outcome::zero::<T>();
        if self.n == 0 {
            return Ok(outcome);
        }
        let Self { r, d, spare, scalar, .. } = self;
        let b_norm = norm::<T, B>(be, b, spare, scalar)?;
        if b_norm.is_zero() {
            be.fill(None, T::zero(), x)?;
            return Ok(outcome);
        }
        let (max_iters, rtol) = (options.iteration_limit(self.n), options.rtol_for::<T>());
        let target = rtol.max(Norm::of(options.atol).over(b_norm));
        outcome.target = target;
        let mut corrections = 0;

        a.residual(be, None, b, x, r)?;
        let mut r_norm = norm::<T, B>(be, r, spare, scalar)?;
        outcome.true_residual = r_norm.over(b_norm);
        outcome.residual = outcome.true_residual;
        if options.history {
            outcome.history.push(outcome.true_residual);
        }
        if !(r_norm.is_finite() && b_norm.is_finite()) {
            outcome.true_residual = f64::NAN;
            outcome.status = Status::NotFinite;
            return Ok(outcome);
        }
        outcome.status = loop {
            let now = outcome.true_residual;
            if now <= rtol || r_norm.value() <= options.atol {
                break Status::Converged;
            }
            if outcome.iterations >= max_iters {
                break Status::MaxIterations;
            }
            if corrections > options.max_restarts {
                break Status::Stagnated;
            }
            let (done, restarts) = (outcome.iterations, outcome.restarts);
            let mut tell = |iterations, residual| {
                watcher(Progress { iterations: done + iterations, max_iters, residual, target, restarts })
            };
            if tell(0, now).is_break() {
                break Status::Interrupted;
            }

            let within = Options {
                rtol: Some(inner_rtol.max(FRUITFUL * target / now)),
                atol: 0.0,
                max_iters: Some(max_iters - done),
                ..*options
            };
            let mut look = |progress: Progress| tell(progress.iterations, now * progress.residual);
            let found = correct(be, r, d, &within, &mut look)?;
            // The inner solve has run, whether its answer is used or not.
            outcome.iterations += found.iterations;
            outcome.restarts += found.restarts + usize::from(corrections > 0);
            outcome.residual = now * found.residual;
            outcome.history.extend(found.history.iter().skip(1).map(|norm| now * norm));
            if let Some((quantity, iteration)) = found.breakdown {
                outcome.breakdown = Some((quantity, done + iteration));
            }
            corrections += 1;

            // x + d, and its true residual.
            be.axpby(None, Coeff::one(), x, Coeff::one(), d)?;
            a.residual(be, None, b, d, r)?;
            r_norm = norm::<T, B>(be, r, spare, scalar)?;
            let after = r_norm.over(b_norm);
            if after < now {
                be.copy(None, d, x)?;
                outcome.true_residual = after;
            }
            if after <= rtol || r_norm.value() <= options.atol {
                break Status::Converged;
            }
            match found.status {
                Status::Interrupted => break Status::Interrupted,
                _ if after <= FRUITFUL * now => {}
                Status::Converged if r_norm.is_finite() => break Status::Stagnated,
                Status::Converged => break Status::NotFinite,
                otherwise => break otherwise,
            }
        };
        Ok(outcome)
    }

    /// Checks all sizes once.
    fn check(&self, be: &B, a: &impl Operator<T, B>, b: &B::Vector, x: &B::Vector) -> Result<()> {
        let solver = "corrections";
        let (nrows, ncols) = a.shape();
        if nrows != ncols {
            return Err(Error::NotSquare { solver, nrows, ncols });
        }
        expect_operands(solver, nrows, self.n, be.len(b), be.len(x))
    }
}
