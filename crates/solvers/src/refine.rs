//! Iterative refinement: residuals and x in f64, corrections solved for in f32.
//!
//! r <- b - A x in f64; d ~ A32^-1 (r / s) by any solver in f32 to a loose tolerance; x <- x + s d, with s the binade of r and the scale
//! of the narrowed matrix (see [`crate::mixed`]). The solver within works on half the bytes, and its rounding limits a correction, not x.
//!
//! Invariants: `converged` is said of the residual recomputed in f64 alone. A correction that does not lower it is not added, so x never
//! gets worse; one that does not halve it ends the solve, as stagnated if the solver within was content, else with its word: in f32 a
//! matrix may be singular or indefinite that is not so in f64.
//! Cost beyond the solves within: for each correction a product in f64, about ten passes over vectors and two waits; three f64 and two f32
//! vectors of n.
//! Order: that of the operations; the same bits recorded or plain.
//! Reference: Wilkinson 1963, Rounding errors in algebraic processes; Carson & Higham 2018, Accelerating the solution of linear systems
//! by iterative refinement in three precisions.

use std::fmt;

use spandrel_backend::{Backend, Cast, Coeff, MixedPrecision, Operator};

use crate::mixed::{Narrow, Scale, Wide, inverse_power, narrow_by_binade};
use crate::norm::{Norm, norm};
use crate::options::{Watcher, unwatched};
use crate::segments::expect_operands;
use crate::{Error, Options, Outcome, Progress, Result, Status};

/// A correction is fruitful if it halves the residual, as in [`crate::direct`].
const STAGNANT: f64 = 0.5;

/// The workspace of refinement for n unknowns: allocated once, used for any number of solves.
pub struct Refine<B: MixedPrecision> {
    n: usize,
    inner_rtol: f64,
    r: Wide<B>,
    trial: Wide<B>,
    spare: Wide<B>,
    scalar: Scale<B>,
    binade: Scale<B>,
    narrow: Narrow<B>,
    d: Narrow<B>,
}

impl<B: MixedPrecision> fmt::Debug for Refine<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refine").field("n", &self.n).field("inner_rtol", &self.inner_rtol).finish_non_exhaustive()
    }
}

impl<B: MixedPrecision> Refine<B> {
    /// The tolerance of the solves within, unless the last one needs less: within reach of f32 up to condition numbers of about 10^3, and
    /// three corrections of it are 10^-12.
    pub const INNER_RTOL: f64 = 1e-4;

    /// Three vectors of f64, two of f32.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        let wide = || Backend::<f64>::zeros(be, n);
        let narrow = || Backend::<f32>::zeros(be, n);
        Ok(Self {
            n,
            inner_rtol: Self::INNER_RTOL,
            r: wide()?,
            trial: wide()?,
            spare: wide()?,
            scalar: Backend::<f64>::scalar(be, 0.0)?,
            binade: Backend::<f64>::scalar(be, 1.0)?,
            narrow: narrow()?,
            d: narrow()?,
        })
    }

    /// Another tolerance for the solves within.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless it is above 0 and below 1/2, what a correction must bring.
    pub fn with_inner_rtol(self, inner_rtol: f64) -> Result<Self> {
        if inner_rtol > 0.0 && inner_rtol < STAGNANT {
            return Ok(Self { inner_rtol, ..self });
        }
        let range = "above 0, and below 1/2, which a correction must bring";
        Err(Error::Parameter { name: "inner_rtol", value: inner_rtol, range })
    }

    /// Solves A x = b from the x given (n elements, as b). `inner` solves A32 d = r from d = 0 in f32 with the options that it is given,
    /// [`crate::Cg::solve_watched`] for one; A is 2^`exponent` A32, as [`crate::Narrowed`] says. Blocks.
    ///
    /// Iterations, their limit and the history are those of the solves within, restarts are theirs and the corrections after the
    /// first, and as many corrections are allowed beyond the first as `options` has restarts.
    ///
    /// # Errors
    /// Sizes that contradict each other, options out of range, a backend that fails, errors of `inner`. Everything that the numbers do is
    /// in the [`Outcome`].
    pub fn solve<I>(
        &mut self,
        be: &B,
        a: &impl Operator<f64, B>,
        exponent: i32,
        inner: I,
        b: &Wide<B>,
        x: &mut Wide<B>,
        options: &Options,
    ) -> Result<Outcome>
    where
        I: FnMut(&B, &Narrow<B>, &mut Narrow<B>, &Options, Watcher<'_>) -> Result<Outcome>,
    {
        self.solve_watched(be, a, exponent, inner, b, x, options, &mut unwatched)
    }

    /// [`Refine::solve`] with a watcher, called before each correction and at each look of the solver within; it can interrupt.
    ///
    /// # Errors
    /// As [`Refine::solve`].
    pub fn solve_watched<I>(
        &mut self,
        be: &B,
        a: &impl Operator<f64, B>,
        exponent: i32,
        mut inner: I,
        b: &Wide<B>,
        x: &mut Wide<B>,
        options: &Options,
        watcher: Watcher<'_>,
    ) -> Result<Outcome>
    where
        I: FnMut(&B, &Narrow<B>, &mut Narrow<B>, &Options, Watcher<'_>) -> Result<Outcome>,
    {
        options.check()?;
        let scale = inverse_power(exponent)?;
        self.check(be, a, b, x)?;
        let mut outcome = Outcome::zero::<f64>();
        if self.n == 0 {
            return Ok(outcome);
        }
        let Self { inner_rtol, r, trial, spare, scalar, binade, narrow, d, .. } = self;
        let b_norm = norm::<f64, B>(be, b, spare, scalar)?;
        if b_norm.is_zero() {
            Backend::<f64>::fill(be, None, 0.0, x)?;
            return Ok(outcome);
        }
        let (max_iters, rtol) = (options.iteration_limit(self.n), options.rtol_for::<f64>());
        let target = rtol.max(Norm::of(options.atol).over(b_norm));
        outcome.target = target;
        let mut corrections = 0;

        a.residual(be, None, b, x, r)?;
        let mut r_norm = norm::<f64, B>(be, r, spare, scalar)?;
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

            narrow_by_binade(be, None, r, binade, narrow)?;
            Backend::<f32>::fill(be, None, 0.0, d)?;
            let within = Options {
                rtol: Some(inner_rtol.max(STAGNANT * target / now)),
                atol: 0.0,
                max_iters: Some(max_iters - done),
                ..*options
            };
            let mut look = |progress: Progress| tell(progress.iterations, now * progress.residual);
            let found = inner(be, narrow, d, &within, &mut look)?;
            // What the solve within did is done, whatever becomes of its answer.
            outcome.iterations += found.iterations;
            outcome.restarts += found.restarts + usize::from(corrections > 0);
            outcome.residual = now * found.residual;
            outcome.history.extend(found.history.iter().skip(1).map(|norm| now * norm));
            if let Some((quantity, iteration)) = found.breakdown {
                outcome.breakdown = Some((quantity, done + iteration));
            }
            corrections += 1;

            // x + s d, and the truth about it.
            Cast::<f32, f64>::cast(be, None, Coeff { host: scale, ..Coeff::scalar(&*binade) }, d, trial)?;
            Backend::<f64>::axpby(be, None, Coeff::one(), x, Coeff::one(), trial)?;
            a.residual(be, None, b, trial, r)?;
            r_norm = norm::<f64, B>(be, r, spare, scalar)?;
            let after = r_norm.over(b_norm);
            if after < now {
                Backend::<f64>::copy(be, None, trial, x)?;
                outcome.true_residual = after;
            }
            if after <= rtol || r_norm.value() <= options.atol {
                break Status::Converged;
            }
            match found.status {
                Status::Interrupted => break Status::Interrupted,
                _ if after <= STAGNANT * now => {}
                Status::Converged if r_norm.is_finite() => break Status::Stagnated,
                Status::Converged => break Status::NotFinite,
                otherwise => break otherwise,
            }
        };
        Ok(outcome)
    }

    /// Sizes of everything, once.
    fn check(&self, be: &B, a: &impl Operator<f64, B>, b: &Wide<B>, x: &Wide<B>) -> Result<()> {
        let solver = "refine";
        let (nrows, ncols) = a.shape();
        if nrows != ncols {
            return Err(Error::NotSquare { solver, nrows, ncols });
        }
        let len = |v| Backend::<f64>::len(be, v);
        expect_operands(solver, nrows, self.n, len(b), len(x))
    }
}
