//! How a solve ended.

use std::fmt;

use spandrel_backend::Quantity;
use spandrel_formats::Real;

use crate::{BackwardError, Error, Result};

/// How a solve ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// The true residual, recomputed from x in the precision of the solve, meets the goal. If x is so large that the
    /// terms of A x cancel, that residual has rounding errors of its own: [`crate::ResidualRounding`] bounds them.
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
    /// The recurrence said converged, the true residual disagreed, and replacing the residual no longer improves it:
    /// this is the attainable accuracy of the precision.
    Stagnated,
    /// An infinity or NaN in the data, or from overflow.
    NotFinite,
    /// The watcher asked to stop.
    Interrupted,
    /// The system is singular and has no answer: b has a part that no A x reaches. x is the best found; with a known
    /// null space it minimises ||b - A x||.
    Inconsistent,
    /// The true residual misses the goal, but x is the exact answer for data that agree with A and b to rounding
    /// ([`crate::BackwardError::is_stable`]). The precision allows no better answer to this ill-conditioned system.
    BackwardStable,
    /// The matrix is singular, and no x was found that solves the system.
    Singular,
}

impl Status {
    /// All statuses.
    pub const ALL: [Status; 13] = [
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
        Status::BackwardStable,
        Status::Singular,
    ];

    /// The name in reports and JSON.
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
            Status::BackwardStable => "backward_stable",
            Status::Singular => "singular",
        }
    }

    /// Whether the solve converged.
    pub fn is_converged(self) -> bool {
        self == Status::Converged
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The end of a solve. Not converging is an outcome, not an error, because x is still useful.
/// [`Outcome::require_converged`] makes it an error. `Display` prints one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[must_use = "a solve may end without an answer: look at `status`, or ask for one by `require_converged`"]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// Iterations over all restarts; 0 for a direct solve. An iteration of BiCGStab that ends after its half step
    /// counts as one.
    pub iterations: usize,
    /// The norm of the recurrence's residual at the end, over ||b||. For a direct solve it equals `true_residual`.
    pub residual: f64,
    /// ||b - A x|| / ||b||, recomputed from x at the end; 0 if b = 0.
    pub true_residual: f64,
    /// The goal for `true_residual`: the larger of the two tolerances, over ||b||. 0 if b = 0.
    pub target: f64,
    /// The element type of the solve, [`Real::NAME`].
    pub precision: &'static str,
    /// Residual norms over ||b||: the initial one, then one per iteration, so `iterations` + 1 entries. Empty if the
    /// options say so or if b = 0. A direct solve has one entry per refinement step.
    pub history: Vec<f64>,
    /// How often the residual was replaced and the direction restarted; for GMRES also every cycle after the first.
    pub restarts: usize,
    /// The last scalar that stopped the method (also if a restart helped), and the iteration.
    pub breakdown: Option<(Quantity, usize)>,
    /// A further remark, for example that LU replaced Cholesky.
    pub note: Option<&'static str>,
    /// The backward error of x, if the solver has computed it: always for a direct solve.
    pub backward_error: Option<BackwardError>,
    /// An estimate of the condition number ||A|| ||A^-1|| in the 1-norm, if the solver has made one: for a direct solve
    /// that missed its goal.
    pub condition: Option<f64>,
}

impl Outcome {
    /// Returns this outcome if the solve converged.
    ///
    /// ```
    /// use spandrel_backend::{Backend, Mat};
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_formats::generate;
    /// use spandrel_solvers::{Error, Identity, Options, cg};
    ///
    /// let (device, a) = (Cpu::new(), generate::csr::<f64>("poisson2d:20")?);
    /// let a = Mat::load(&device, a)?;
    /// let (b, mut x) = (device.upload(&[1.0; 400])?, device.zeros(400)?);
    /// let short = Options { max_iters: Some(3), ..Options::default() };
    /// let refused = cg(&device, &a, &Identity, &b, &mut x, &short)?.require_converged();
    /// assert!(matches!(refused, Err(Error::NotConverged { outcome }) if outcome.iterations == 3));
    /// let outcome = cg(&device, &a, &Identity, &b, &mut x, &Options::default())?.require_converged()?;
    /// assert!(outcome.to_string().starts_with("converged after"));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotConverged`] with this outcome, for any status except [`Status::Converged`].
    pub fn require_converged(self) -> Result<Self> {
        if self.status.is_converged() { Ok(self) } else { Err(Error::NotConverged { outcome: Box::new(self) }) }
    }

    /// Why the method stopped short of an answer, and what to do.
    fn remedy(&self) -> &'static str {
        match self.status {
            Status::Converged => "",
            Status::MaxIterations => "allow more iterations, or use a better preconditioner",
            Status::Breakdown => "use another method or preconditioner",
            Status::ZeroPivot => "reorder the rows, or solve without a factorisation",
            Status::IndefiniteMatrix => "the matrix is not positive definite; use bicgstab or gmres",
            Status::IndefinitePreconditioner => {
                "the preconditioner is not positive definite; use another, or bicgstab or gmres"
            }
            Status::Diverged => "use another method or preconditioner",
            Status::Stagnated if self.precision == "f32" => {
                "f32 may reach no further; for more, solve in f64, or in both by `mixed` or `refined` precision"
            }
            Status::Stagnated => {
                "rounding may allow no less; otherwise use a better preconditioner, or a longer restart of gmres"
            }
            Status::NotFinite => {
                "look for an infinity or NaN in the matrix, in b and in x, or for entries too large to multiply"
            }
            Status::Interrupted => "x is the one reached; a solve from there goes on",
            Status::Inconsistent => "no x solves this system; correct b, or solve a least squares problem",
            Status::BackwardStable => {
                "x solves a system that agrees with this one to rounding; for a smaller residual scale or regularise the problem"
            }
            Status::Singular => "look for equations that repeat each other, or unknowns that nothing determines",
        }
    }

    /// x = 0 for b = 0.
    pub(crate) fn zero<T: Real>() -> Self {
        Self {
            status: Status::Converged,
            iterations: 0,
            residual: 0.0,
            true_residual: 0.0,
            target: 0.0,
            precision: T::NAME,
            history: Vec::new(),
            restarts: 0,
            breakdown: None,
            note: None,
            backward_error: None,
            condition: None,
        }
    }
}

/// `converged after 14 iterations, true residual 3.1e-9`; any other end also names the goal and what to do.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.status {
            Status::Converged => "converged",
            Status::MaxIterations => "stopped at the limit",
            Status::Breakdown => "broke down",
            Status::ZeroPivot => "met a zero pivot",
            Status::IndefiniteMatrix => "met p'Ap <= 0",
            Status::IndefinitePreconditioner => "met r'z <= 0",
            Status::Diverged => "diverged",
            Status::Stagnated => "stagnated",
            Status::NotFinite => "met an infinity or NaN",
            Status::Interrupted => "was interrupted",
            Status::Inconsistent => "found no solution",
            Status::BackwardStable => "solved to rounding",
            Status::Singular => "met a singular matrix",
        };
        f.write_str(how)?;
        match self.iterations {
            0 => {}
            1 => f.write_str(" after 1 iteration")?,
            more => write!(f, " after {more} iterations")?,
        }
        if let (Status::Breakdown, Some((quantity, _))) = (self.status, self.breakdown) {
            write!(f, " ({} = 0)", quantity.symbol())?;
        }
        let in_words = |residual: f64| if residual == 0.0 { "0".to_owned() } else { format!("{residual:.1e}") };
        write!(f, ", true residual {}", in_words(self.true_residual))?;
        if self.status.is_converged() {
            return Ok(());
        }
        write!(f, " (asked for {})", in_words(self.target))?;
        if let (Status::BackwardStable, Some(error)) = (self.status, self.backward_error) {
            write!(f, ", backward error {error}")?;
        }
        if let Some(condition) = self.condition {
            write!(f, ", condition number about {condition:.0e}")?;
        }
        write!(f, ": {}", self.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_reads_as_a_sentence() {
        let of = |status, iterations, true_residual, precision| Outcome {
            status,
            iterations,
            true_residual,
            target: 1e-8,
            precision,
            ..Outcome::zero::<f64>()
        };
        for (outcome, text) in [
            (of(Status::Converged, 14, 3.1e-9, "f64"), "converged after 14 iterations, true residual 3.1e-9"),
            (of(Status::Converged, 1, 3.1e-9, "f64"), "converged after 1 iteration, true residual 3.1e-9"),
            (of(Status::Converged, 0, 0.0, "f64"), "converged, true residual 0"),
            (
                of(Status::MaxIterations, 200, 0.00123, "f64"),
                "stopped at the limit after 200 iterations, true residual 1.2e-3 (asked for 1.0e-8): allow more iterations, or use a \
                 better preconditioner",
            ),
        ] {
            assert_eq!(outcome.to_string(), text);
            assert_eq!(outcome.clone().require_converged().is_ok(), outcome.status.is_converged());
        }
        let rounding = Outcome {
            backward_error: Some(BackwardError { normwise: 3e-17, componentwise: 1e-16 }),
            condition: Some(1.3e18),
            ..of(Status::BackwardStable, 0, 2e-3, "f64")
        };
        let text = rounding.to_string();
        let expected = "solved to rounding, true residual 2.0e-3 (asked for 1.0e-8), backward error 3.0e-17, condition number about 1e18: ";
        assert!(text.starts_with(expected), "{text}");
        let f32 = of(Status::Stagnated, 9, 2e-7, "f32").to_string();
        assert!(f32.contains("`mixed`") && f32.contains("`refined`"), "{f32}");
        assert!(!of(Status::Stagnated, 9, 2e-7, "f64").to_string().contains("mixed"));
        let rho = Outcome { breakdown: Some((Quantity::Rho, 3)), ..of(Status::Breakdown, 3, 0.5, "f64") };
        assert!(rho.to_string().starts_with("broke down after 3 iterations (rho = 0), "), "{rho}");
    }

    #[test]
    fn every_end_but_convergence_is_an_error_where_an_answer_is_required() {
        for status in Status::ALL {
            let outcome = Outcome { status, iterations: 2, true_residual: 0.5, ..Outcome::zero::<f64>() };
            let text = outcome.to_string();
            match outcome.require_converged() {
                Ok(outcome) => assert_eq!(outcome.status, Status::Converged),
                Err(error) => {
                    assert_eq!(
                        (error.status(), error.to_string()),
                        (Some(status), format!("the solve did not converge: {text}"))
                    );
                    assert!(!text.ends_with(": "), "{text}");
                }
            }
        }
    }
}
