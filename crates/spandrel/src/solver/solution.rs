//! What a solve gives back.

use spandrel_solvers::{Method, Outcome, Precond, Result, Status};

use super::build::Times;

/// The answer: x, and how the solve ended.
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
    /// What was tried before and given up, in order.
    pub attempts: Vec<Attempt>,
    /// What else there is to say: what took over from what, how a factorisation went, what stopped a method.
    pub note: Option<String>,
    /// Seconds of this solve: `load` for b and x, `setup` for what took over, `solve` for the rest.
    pub times: Times,
}

impl<T> Solution<T> {
    /// This solution, if the solve converged.
    ///
    /// # Errors
    /// [`crate::Error::NotConverged`] with how it ended.
    pub fn require_converged(self) -> Result<Self> {
        let outcome = self.outcome.require_converged()?;
        Ok(Self { outcome, ..self })
    }
}

/// Answers for several right-hand sides.
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
    /// After how many iterations.
    pub iterations: usize,
    /// ||b - A x|| / ||b|| of the x that it left; NaN if it was not measured.
    pub true_residual: f64,
    /// Seconds of the solve until then.
    pub seconds: f64,
}
