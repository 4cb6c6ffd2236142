//! The monitor of an iteration: what it watches for, and what it reports.
//!
//! A monitor lives on the device. [`crate::Backend::observe`] hands it the squared residual norm of each iteration;
//! `require_positive` and `require_nonzero` hand it scalars that are about to become denominators. It decides at once,
//! on the device. Work that is enqueued behind a stop is gated and changes nothing. So the host need look only once per
//! `check_every` iterations and still finds the state at the stop.
//!
//! The first reason that holds stops the iteration:
//!
//! - at its end ([`Phase::Full`], which counts it first): not finite, converged, diverged, iteration limit;
//! - in its middle ([`Phase::Half`]): not finite, converged;
//! - at a scalar: not finite, then its sign or zero.
//!
//! So a norm at the threshold in the last iteration allowed counts as converged.

/// What a monitor watches for.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    /// Converged once the residual norm is at most this (absolute).
    pub threshold: f64,
    /// Diverged once the residual norm exceeds this (absolute). Infinity means never.
    pub divergence: f64,
    /// Stopped after this many iterations.
    ///
    /// This bounds the history (eight bytes per iteration done) but does not size it. Limits of 20 n are common and far
    /// above what is needed, so a backend allocates as iterations come, or at first for at most 65,536 norms.
    pub max_iters: usize,
}

/// Where in an iteration a norm is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the middle of an iteration (BiCGStab's ||s||). It may stop as converged, counts no iteration, and enters the
    /// history only if it stops.
    Half,
    /// At the end of an iteration, which it counts.
    Full,
}

/// A scalar that a method divides by or whose sign it relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Quantity {
    /// ||r||.
    Residual = 0,
    /// p^T A p of CG: not positive means A is not positive definite.
    Curvature = 1,
    /// r^T z of CG: not positive means the preconditioner is not positive definite.
    PreconditionedResidual = 2,
    /// r̂^T r of BiCGStab.
    Rho = 3,
    /// r̂^T v of BiCGStab.
    ShadowDirection = 4,
    /// t^T t of BiCGStab.
    Stabilizer = 5,
    /// t^T s of BiCGStab: zero means omega = 0.
    Omega = 6,
    /// h(j+1,j) of Arnoldi's process (GMRES): zero means that the Krylov space is exhausted.
    Subdiagonal = 7,
}

impl Quantity {
    /// The usual symbol in textbooks.
    pub fn symbol(self) -> &'static str {
        match self {
            Quantity::Residual => "||r||",
            Quantity::Curvature => "p'Ap",
            Quantity::PreconditionedResidual => "r'z",
            Quantity::Rho => "rho",
            Quantity::ShadowDirection => "r0'v",
            Quantity::Stabilizer => "t't",
            Quantity::Omega => "t's",
            Quantity::Subdiagonal => "h(j+1,j)",
        }
    }
}

/// Why a monitor stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The residual norm reached the threshold at the end of an iteration.
    Converged,
    /// The residual norm reached the threshold in the middle of an iteration; the solver then applies the half step.
    ConvergedHalf,
    /// The iteration limit was reached.
    MaxIterations,
    /// The residual norm exceeded the divergence limit.
    Diverged,
    /// A scalar that must be positive is zero or negative.
    NotPositive(Quantity),
    /// A scalar that must not be zero is zero.
    Zero(Quantity),
    /// A scalar is infinite or NaN.
    NotFinite(Quantity),
}

/// What a monitor has seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Why it stopped, or `None` while it runs.
    pub stop: Option<Stop>,
    /// Whole iterations counted.
    pub iterations: usize,
    /// Residual norms, one per iteration (and the half step that stopped it).
    pub history: Vec<f64>,
}

impl Report {
    /// The latest state.
    pub fn latest(&self) -> Latest {
        Latest { stop: self.stop, iterations: self.iterations, residual: self.history.last().copied() }
    }
}

/// The latest state of a [`Report`]: enough to decide whether to go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latest {
    /// Why the monitor stopped, or `None` while it runs.
    pub stop: Option<Stop>,
    /// Whole iterations counted.
    pub iterations: usize,
    /// The last residual norm of the history, if there is one.
    pub residual: Option<f64>,
}
