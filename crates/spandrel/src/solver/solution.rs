//! The result of a solve.

use spandrel_solvers::{Method, Outcome, Precond, Result, Status};

use super::build::Times;

/// The result of a solve: x, and how the solve ended.
#[derive(Clone, Debug)]
#[must_use = "the outcome says whether x solves the system"]
#[non_exhaustive]
pub struct Solution<T> {
    /// x, in the matrix's own numbering.
    pub x: Vec<T>,
    /// How the solve ended.
    pub outcome: Outcome,
    /// The method that ended it.
    pub method: Method,
    /// The preconditioner that it ran with.
    pub preconditioner: Precond,
    /// What was tried and given up, in order.
    pub attempts: Vec<Attempt>,
    /// A further remark: what took over, how a factorisation went, what stopped a method.
    pub note: Option<String>,
    /// The times of this solve in seconds: `load` for b and x, `setup` for a substitute, `solve` for the rest.
    pub times: Times,
}

impl<T> Solution<T> {
    /// Returns this solution if the solve converged.
    ///
    /// # Errors
    /// [`crate::Error::NotConverged`] with the outcome.
    pub fn require_converged(self) -> Result<Self> {
        let outcome = self.outcome.require_converged()?;
        Ok(Self { outcome, ..self })
    }
}

/// The results for several right-hand sides.
#[derive(Clone, Debug)]
#[must_use = "the outcomes say whether x solves the systems"]
#[non_exhaustive]
pub struct Solutions<T> {
    /// The columns of X one after the other, each in the matrix's own numbering.
    pub x: Vec<T>,
    /// How each solve ended.
    pub outcomes: Vec<Outcome>,
}

/// A method or preconditioner that a solve gave up.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// The method.
    pub method: Method,
    /// The preconditioner.
    pub preconditioner: Precond,
    /// How it ended.
    pub status: Status,
    /// The number of iterations.
    pub iterations: usize,
    /// ||b - A x|| / ||b|| of its last x; NaN if it was not measured.
    pub true_residual: f64,
    /// Seconds of its iterations, or of its solve with factors; set-ups are counted in [`Times::setup`].
    pub seconds: f64,
}
