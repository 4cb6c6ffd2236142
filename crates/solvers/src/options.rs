//! What a solve is asked for, and what it may be told underway.

use std::ops::ControlFlow;
use std::time::Duration;

use spandrel_formats::Real;

use crate::{Error, Result};

/// Options of the iterative solvers. Plain data: change what you need of [`Options::default`].
///
/// Whether a solve repeats bit for bit across backends is not an option here: the solvers run the same operations in the
/// same order everywhere, so it is decided by the format, the preconditioner and the backend that the caller selects
/// (each operation declares its [`spandrel_backend::Order`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Converged once ||b - A x|| <= `rtol` ||b||. `None`, the default, is 1e-8 in `f64` and 1e-5 in `f32`: see
    /// [`Options::rtol_for`]. A solve that cannot reach it ends as [`crate::Status::Stagnated`] at its attainable accuracy. For more
    /// than `f32` gives, solve in `f64`; [`crate::Mixed`] and [`crate::Refine`] do so with much of the work in `f32`.
    pub rtol: Option<f64>,
    /// Converged once ||b - A x|| <= `atol`, where that is the larger bound. Default 0.
    pub atol: f64,
    /// Limit of iterations over all restarts; `None` for 20 n, at least 20. The device keeps eight bytes of history for each
    /// iteration that is done, none for those that are merely allowed.
    pub max_iters: Option<usize>,
    /// The host looks every so many iterations (at least 1; never past the limit of iterations, and at 65,536 in any case). Default
    /// 16. It changes no bit of the answer: work enqueued behind the stop changes nothing. At each look the watcher is called, which it
    /// also is before the first iteration and at every restart.
    pub check_every: usize,
    /// The host also looks once this much time has passed since it last did, so that slow iterations are seen and can be interrupted one by
    /// one. Default 50 ms; [`Duration::MAX`] to look by `check_every` alone. It changes no bit of the answer either, only at which
    /// iterations a watcher is called. On a device that works behind the host's back the number of iterations until then is estimated
    /// from the time that those before took.
    pub check_after: Duration,
    /// Whether the outcome carries the history of residual norms. Default true.
    pub history: bool,
    /// Whether the iteration is captured once and replayed (a CUDA graph), or enqueued anew each time. The bits are the
    /// same. Default true.
    pub recorded: bool,
    /// Whether the backend may run all iterations between two looks at once, on chip, where it has a kernel for that and the
    /// system is small enough (without a preconditioner). The bits are the same. Default true.
    pub persistent: bool,
    /// Diverged once the residual norm exceeds this times the larger of ||b|| and the norm that the segment began with;
    /// infinity for never. Default 1e8: BiCGStab's residual may rise by several orders on the way to an answer.
    pub divergence: f64,
    /// How often the residual may be replaced by b - A x and the direction restarted, where the recurrence has run away from
    /// the truth or BiCGStab has broken down. Default 20.
    pub max_restarts: usize,
    /// Ends as [`crate::Status::Stagnated`] once so many iterations of CG or BiCGStab in a row (at least 1) left the least residual norm of the
    /// recurrence as it was; the host looks each time they are over, whatever `check_every` says. GMRES says it of a cycle, without
    /// being asked. Default `None`, for never: CG may rightly stand still for hundreds of iterations before it falls.
    pub stagnation: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rtol: None,
            atol: 0.0,
            max_iters: None,
            check_every: 16,
            check_after: Duration::from_millis(50),
            history: true,
            recorded: true,
            persistent: true,
            divergence: 1e8,
            max_restarts: 20,
            stagnation: None,
        }
    }
}

impl Options {
    /// The limit of iterations for `n` unknowns: `max_iters`, or 20 n, at least 20.
    pub fn iteration_limit(&self, n: usize) -> usize {
        self.max_iters.unwrap_or_else(|| n.saturating_mul(20).max(20))
    }

    /// The relative tolerance of a solve in `T`: `rtol`, or [`default_rtol`].
    pub fn rtol_for<T: Real>(&self) -> f64 {
        self.rtol.unwrap_or_else(default_rtol::<T>)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |name, value| Err(Error::Option { name, value });
        if let Some(rtol) = self.rtol.filter(|rtol| rtol.is_nan() || *rtol < 0.0) {
            return bad("rtol", rtol);
        }
        if self.atol.is_nan() || self.atol < 0.0 {
            return bad("atol", self.atol);
        }
        if self.divergence.is_nan() || self.divergence <= 1.0 {
            return bad("divergence", self.divergence);
        }
        if self.stagnation == Some(0) {
            return bad("stagnation", 0.0);
        }
        Ok(())
    }
}

/// The relative tolerance of a solve in `T` that names none: 1e-8 in `f64`, 1e-5 in `f32`. That is about the square root of the unit
/// roundoff in `f64`, and about a hundred times the unit roundoff in `f32`, where the square root would be useless as an answer.
pub fn default_rtol<T: Real>() -> f64 {
    if T::BYTES == 4 { 1e-5 } else { 1e-8 }
}

/// Where a solve is, each time the host looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Iterations done, over all restarts.
    pub iterations: usize,
    /// Limit of iterations.
    pub max_iters: usize,
    /// Norm of the recurrence's residual over ||b||.
    pub residual: f64,
    /// What it must come down to.
    pub target: f64,
    /// Restarts so far.
    pub restarts: usize,
}

/// Called at each look; `Break` ends the solve as [`crate::Status::Interrupted`] with the x reached.
pub type Watcher<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// A watcher that never interrupts.
pub(crate) fn unwatched(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}
