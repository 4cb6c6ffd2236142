//! Options of a solve, and its watcher.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use spandrel_formats::Real;

use crate::{Error, Result};

/// Options of the iterative solvers, as plain data. Change what you need of [`Options::default`].
///
/// There is no option for reproducibility across backends. The solvers run the same operations in the same order
/// everywhere, so the format, the preconditioner and the backend decide it (each operation declares its
/// [`spandrel_backend::Order`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The relative tolerance: converged if ||b - A x|| <= `rtol` ||b||.
    ///
    /// `None`, the default, is 1e-8 in `f64` and 1e-5 in `f32`: see [`Options::rtol_for`]. A solve that cannot reach it
    /// ends as [`crate::Status::Stagnated`] at its attainable accuracy. If `f32` is not accurate enough, solve in
    /// `f64`; [`crate::Mixed`] and [`crate::Refine`] do so with much of the work in `f32`.
    pub rtol: Option<f64>,
    /// The absolute tolerance: also converged if ||b - A x|| <= `atol`. Default 0.
    pub atol: f64,
    /// The limit of iterations over all restarts; `None` for 20 n, at least 20. The device keeps eight bytes of history
    /// per iteration that is done.
    pub max_iters: Option<usize>,
    /// The host looks after this many iterations. Default 16.
    ///
    /// At least 1. It never looks beyond the limit of iterations, and at least every 65,536 iterations. It changes no
    /// bit of the answer: work that is enqueued after the stop changes nothing. The watcher is called at each look,
    /// before the first iteration and at every restart.
    pub check_every: usize,
    /// The host also looks once this much time has passed since the last look, so that slow iterations can be seen and
    /// interrupted one by one. Default 50 ms.
    ///
    /// On a device that works asynchronously the number of iterations until then is estimated from the time of earlier
    /// ones. CG and BiCGStab also look there after about 2 ms or a sixteenth of the time so far, whichever is longer,
    /// because iterations that are enqueued beyond the stop take time. It changes no bit of the answer, only the
    /// iterations at which a watcher is called. [`Duration::MAX`] leaves [`Options::check_every`] alone.
    pub check_after: Duration,
    /// Whether the outcome carries the history of residual norms. Default true.
    pub history: bool,
    /// Whether the iteration is captured once and replayed (a CUDA graph), or enqueued anew each time. The bits are the
    /// same. Default true.
    pub recorded: bool,
    /// Whether the backend may run all iterations between two looks in one kernel, if it has one and the system is
    /// small enough (without a preconditioner). The bits are the same. Default true.
    pub persistent: bool,
    /// The solve has diverged once the residual norm exceeds this times the larger of ||b|| and the norm at the start
    /// of the segment.
    ///
    /// Infinity for never. Default 1e8, because BiCGStab's residual may rise by several orders before it falls.
    pub divergence: f64,
    /// How often the residual may be replaced by b - A x and the direction restarted, if the recurrence has drifted
    /// from the true residual or BiCGStab has broken down. Default 20.
    pub max_restarts: usize,
    /// The solve ends as [`crate::Status::Stagnated`] after this many iterations of CG or BiCGStab without a smaller
    /// residual norm. Default `None`, for never.
    ///
    /// At least 1. The host looks each time they are over, whatever `check_every` is. GMRES decides this for each cycle
    /// by itself. CG may rightly stand still for hundreds of iterations before it falls.
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

/// The relative tolerance of a solve in `T` that names none: 1e-8 in `f64`, 1e-5 in `f32`.
///
/// That is about the square root of the unit roundoff in `f64`, and about a hundred times the unit roundoff in `f32`,
/// where the square root would be a useless answer.
pub fn default_rtol<T: Real>() -> f64 {
    if T::BYTES == 4 { 1e-5 } else { 1e-8 }
}

/// The progress of a solve, each time the host looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Iterations done over all restarts.
    pub iterations: usize,
    /// The limit of iterations.
    pub max_iters: usize,
    /// The norm of the recurrence's residual over ||b||.
    pub residual: f64,
    /// The goal for `residual`.
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

/// The x of a look, fetched from the device only if it is asked for.
///
/// CG and BiCGStab have one at every look. GMRES has one between its cycles, where x is made of the steps before.
#[derive(Clone, Copy, Default)]
pub struct Iterate<'a, T>(Option<&'a dyn Fn() -> Result<Vec<T>>>);

impl<'a, T> Iterate<'a, T> {
    /// An x that `fetch` brings to the host.
    pub fn new(fetch: &'a dyn Fn() -> Result<Vec<T>>) -> Self {
        Self(Some(fetch))
    }

    /// A look at which there is no x.
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns true if there is an x at this look.
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// The x of this look, or `None` if there is none. Blocks while it is copied.
    ///
    /// # Errors
    /// A backend that fails.
    pub fn x(&self) -> Result<Option<Vec<T>>> {
        self.0.map(|fetch| fetch()).transpose()
    }
}

impl<T> fmt::Debug for Iterate<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iterate").field("is_known", &self.is_known()).finish_non_exhaustive()
    }
}

/// As [`Watcher`], also given the x of each look.
pub type Observer<'a, T> = &'a mut dyn FnMut(Progress, Iterate<'_, T>) -> ControlFlow<()>;
