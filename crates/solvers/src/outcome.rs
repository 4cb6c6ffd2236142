//! How a solve ended.

use std::fmt;

use spandrel_backend::Quantity;

/// The word for how a solve ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The true residual, recomputed from x, is at most what was asked for.
    Converged,
    /// The limit of iterations came first.
    MaxIterations,
    /// A scalar that the method divides by vanished, and a restart did not help.
    Breakdown,
    /// A pivot or diagonal entry is zero.
    ZeroPivot,
    /// CG met p'Ap <= 0: A is not positive definite.
    IndefiniteMatrix,
    /// CG met r'z <= 0: the preconditioner is not positive definite.
    IndefinitePreconditioner,
    /// The residual norm exceeded the divergence limit.
    Diverged,
    /// The recurrence said converged, the true residual did not agree, and replacing the residual no longer improves it: the
    /// attainable accuracy of this precision.
    Stagnated,
    /// An infinity or NaN in the data, or from overflow.
    NotFinite,
    /// The watcher asked to stop.
    Interrupted,
    /// A singular system without an answer: b has a part that no A x reaches, and x minimises ||b - A x||.
    Inconsistent,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 11] = [
        Status::Converged,
        Status::MaxIterations,
        Status::Breakdown,
        Status::ZeroPivot,
        Status::IndefiniteMatrix,
        Status::IndefinitePreconditioner,
        Status::Diverged,
        Status::Stagnated,
        Status::NotFinite,
        Status::Interrupted,
        Status::Inconsistent,
    ];

    /// The word in reports and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Converged => "converged",
            Status::MaxIterations => "max_iterations",
            Status::Breakdown => "breakdown",
            Status::ZeroPivot => "zero_pivot",
            Status::IndefiniteMatrix => "indefinite_matrix",
            Status::IndefinitePreconditioner => "indefinite_preconditioner",
            Status::Diverged => "diverged",
            Status::Stagnated => "stagnated",
            Status::NotFinite => "not_finite",
            Status::Interrupted => "interrupted",
            Status::Inconsistent => "inconsistent",
        }
    }

    /// Whether x is the answer that was asked for.
    pub fn is_converged(self) -> bool {
        self == Status::Converged
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a solve ended. Not converging is an outcome, not an error: x is still worth having.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The word.
    pub status: Status,
    /// Iterations over all restarts; 0 for a direct solve. BiCGStab's last half step counts none.
    pub iterations: usize,
    /// Norm of the recurrence's residual at the end, over ||b||. For a direct solve the same as `true_residual`.
    pub residual: f64,
    /// ||b - A x|| / ||b||, recomputed from x at the end; 0 where b = 0.
    pub true_residual: f64,
    /// Residual norms over ||b||: the first entry is the initial one, then one per iteration (and the half step that ended
    /// BiCGStab). Empty where the options say so. For a direct solve one entry per refinement step.
    pub history: Vec<f64>,
    /// How often the residual was replaced and the direction restarted; of GMRES also every cycle after the first.
    pub restarts: usize,
    /// The last scalar that stopped the method (also where a restart mended it), and after how many iterations.
    pub breakdown: Option<(Quantity, usize)>,
    /// What else a user should know, e.g. that LU had to stand in for Cholesky.
    pub note: Option<&'static str>,
}

impl Outcome {
    /// x = 0 for b = 0.
    pub(crate) fn zero() -> Self {
        Self {
            status: Status::Converged,
            iterations: 0,
            residual: 0.0,
            true_residual: 0.0,
            history: Vec::new(),
            restarts: 0,
            breakdown: None,
            note: None,
        }
    }
}
