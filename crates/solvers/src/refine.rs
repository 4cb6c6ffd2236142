//! Iterative refinement: residuals and x in f64, corrections from solves in f32.
//!
//! r <- b - A x in f64; d ~ A32^-1 (r / s) by any solver in f32, to a loose tolerance; x <- x + s d, with s the binade
//! of r and the scale of the narrowed matrix (see [`crate::mixed`]). The inner solver moves half the bytes, and its
//! rounding limits a correction, not x.
//!
//! Invariants: those of [`Corrections`]. A solve that ends early has the status of the inner solver: in f32 a matrix
//! may be singular or indefinite that is not so in f64.
//!
//! Cost beyond the inner solves: that of [`Corrections`], and two f32 vectors of n.
//!
//! Order: that of the operations; the same bits recorded or not.
//!
//! Reference: Wilkinson 1963, Rounding errors in algebraic processes; Carson & Higham 2018, Accelerating the solution
//! of linear systems by iterative refinement in three precisions.

use std::fmt;

use spandrel_backend::{Backend, Cast, Coeff, MixedPrecision, Operator};

use crate::corrections::{Corrections, FRUITFUL};
use crate::mixed::{Narrow, Scale, Wide, inverse_power, narrow_by_binade};
use crate::options::{Watcher, unwatched};
use crate::{Error, Options, Outcome, Result};

/// The workspace of refinement for n unknowns: allocated once, used for any number of solves.
pub struct Refine<B: MixedPrecision> {
    n: usize,
    inner_rtol: f64,
    corrections: Corrections<f64, B>,
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
    /// The tolerance of the inner solves, unless the last one needs less. f32 can reach it up to condition numbers of
    /// about 10^3, and three such corrections give 10^-12.
    pub const INNER_RTOL: f64 = 1e-4;

    /// A workspace with three vectors of f64 and two of f32.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        let narrow = || Backend::<f32>::zeros(be, n);
        Ok(Self {
            n,
            inner_rtol: Self::INNER_RTOL,
            corrections: Corrections::new(be, n)?,
            binade: Backend::<f64>::scalar(be, 1.0)?,
            narrow: narrow()?,
            d: narrow()?,
        })
    }

    /// Another tolerance for the inner solves.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless it is above 0 and below 1/2, because a correction must halve the residual.
    pub fn with_inner_rtol(self, inner_rtol: f64) -> Result<Self> {
        if inner_rtol > 0.0 && inner_rtol < FRUITFUL {
            return Ok(Self { inner_rtol, ..self });
        }
        let range = "above 0, and below 1/2, which a correction must bring";
        Err(Error::Parameter { name: "inner_rtol", value: inner_rtol, range })
    }

    /// Solves A x = b from the given x (n elements, like b). Blocks.
    ///
    /// `inner` solves A32 d = r from d = 0 in f32 with the options that it gets, for example by
    /// [`crate::Cg::solve_watched`]. A is 2^`exponent` A32, as in [`crate::Narrowed`].
    ///
    /// Iterations, their limit and the history are those of the inner solves. Restarts are theirs plus the corrections
    /// after the first. `options.max_restarts` limits the corrections after the first.
    ///
    /// # Errors
    /// Sizes that contradict each other, options out of range, a backend that fails, errors of `inner`. Numerical
    /// failures are in the [`Outcome`].
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

    /// As [`Refine::solve`], with a watcher that is called before each correction and at each look of the inner solver;
    /// it can interrupt.
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
        let scale = inverse_power(exponent)?;
        let Self { inner_rtol, corrections, binade, narrow, d, .. } = self;
        let correct = |be: &B,
                       r: &Wide<B>,
                       correction: &mut Wide<B>,
                       options: &Options,
                       watcher: Watcher<'_>|
         -> Result<Outcome> {
            narrow_by_binade(be, None, r, binade, narrow)?;
            Backend::<f32>::fill(be, None, 0.0, d)?;
            let found = inner(be, narrow, d, options, watcher)?;
            Cast::<f32, f64>::cast(be, None, Coeff { host: scale, ..Coeff::scalar(&*binade) }, d, correction)?;
            Ok(found)
        };
        corrections.solve_watched(be, a, *inner_rtol, correct, b, x, options, watcher)
    }
}
