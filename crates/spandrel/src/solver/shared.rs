//! What the policies of one device and of ranks have in common: limits, refusals, and the choice of multigrid.

use std::fmt;

use spandrel_formats::Real;
use spandrel_solvers::amg::AmgExpected;
use spandrel_solvers::multigrid::Expected;
use spandrel_solvers::{AmgOptions, Error, GmresOptions, Method, MgOptions, Options, Outcome, Precond, Status};

use super::settings::{Reorder, Settings, Tolerance};

pub(crate) const ASKED_FOR: &str = "as asked for";
/// If the policy chose multigrid and the residual is not smaller after this many iterations, multigrid has failed. A
/// whole solve needs a tenth of them.
pub(crate) const STAGNANT: usize = 100;

pub(crate) fn unsupported(why: impl Into<String>) -> Error {
    Error::Unsupported { why: why.into() }
}

/// The refusal of a number of GMRES steps for another method.
pub(crate) fn not_gmres(method: Method) -> Error {
    unsupported(format!(
        "restart is the number of steps of a gmres cycle, and {method} has none; leave it out, or use gmres"
    ))
}

/// The refusal of a limit of stagnation for another method than CG and BiCGStab.
pub(crate) fn no_stagnation(method: Method) -> Error {
    unsupported(format!("stagnation is for cg and bicgstab, not for {method}; leave it out"))
}

/// The refusal of a preconditioner of symmetric matrices.
pub(crate) fn needs_symmetry(precond: Precond, instead: &str) -> Error {
    unsupported(format!("{precond} needs a symmetric matrix; this one is not symmetric. Use {instead}"))
}

/// The refusal of an ordering that would separate the unknowns of a point.
pub(crate) fn separates_points(precond: Option<Precond>, reorder: Reorder) -> Option<Error> {
    match (precond, reorder) {
        (
            Some(Precond::Amg(AmgOptions { unknowns, .. })),
            by @ (Reorder::Bfs | Reorder::Bisection | Reorder::Rcm | Reorder::Amd),
        ) if unknowns > 1 => Some(unsupported(format!(
            "{by} renumbers rows one by one, and amg needs the {unknowns} unknowns of a point side by side; leave one of them out"
        ))),
        _ => None,
    }
}

/// A warning if CG is to solve with a matrix that is not symmetric.
pub(crate) fn warning_of_symmetry(method: Method, symmetric: bool, instead: &str) -> Option<String> {
    (method == Method::Cg && !symmetric).then(|| {
        format!("cg is for symmetric matrices, and this one is not symmetric: it may not converge. Use {instead}")
    })
}

/// The limits of an iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
    pub(crate) max_iterations: usize,
    pub(crate) check_every: usize,
    pub(crate) stagnation: Option<usize>,
    pub(crate) restart: usize,
}

impl Limits {
    /// Those of the settings, or the defaults, for a matrix with this many rows and elements of type `T`.
    pub(crate) fn of<T: Real>(settings: &Settings, nrows: usize) -> Self {
        let options = Options { max_iters: settings.max_iterations, ..Options::default() };
        Self {
            rtol: settings.rtol.unwrap_or(Tolerance::of::<T>().rtol),
            atol: settings.atol,
            max_iterations: options.iteration_limit(nrows),
            check_every: settings.check_every.unwrap_or(options.check_every),
            stagnation: settings.stagnation,
            restart: settings.restart.unwrap_or(GmresOptions::default().restart),
        }
    }

    /// The options of the iteration.
    pub(crate) fn options(self) -> Options {
        Options {
            rtol: Some(self.rtol),
            atol: self.atol,
            max_iters: Some(self.max_iterations),
            check_every: self.check_every,
            stagnation: self.stagnation,
            ..Options::default()
        }
    }
}

/// How long something takes beside CG with IC(0).
pub(crate) fn share(time: f64, ic0: f64, iterations: f64) -> String {
    let share = (100.0 * time / ic0).ceil();
    format!("{share} % of the time expected with ic0 and its {iterations:.0} iterations")
}

/// The multigrid preconditioner that CG should take instead of a simpler one, with the reason. `None` if CG with IC(0)
/// is expected to finish first.
///
/// `geometric` is the prediction for a grid, for which the choice is `mg`. Without one, `algebraic` is asked.
pub(crate) fn multigrid<E>(
    geometric: Option<Expected>,
    mg: MgOptions,
    algebraic: impl FnOnce(&AmgOptions) -> Result<Option<AmgExpected>, E>,
) -> Result<Option<(Precond, String)>, E> {
    if let Some(expected) = geometric {
        let why = || {
            let share = share(expected.mg, expected.ic0, expected.iterations);
            format!("a {}, diagonally dominant: {share}", expected.grid)
        };
        return Ok(expected.pays().then(|| (Precond::Mg(mg), why())));
    }
    let options = AmgOptions::default();
    let expected = algebraic(&options)?.filter(AmgExpected::pays);
    Ok(expected.map(|AmgExpected { iterations, ic0, amg }| {
        let share = share(amg, ic0, iterations);
        (Precond::Amg(options), format!("an elliptic problem, by its rows: {share}"))
    }))
}

/// Returns true if another preconditioner may succeed where this one did not. `stagnation` is the limit of iterations
/// without a smaller residual.
pub(crate) fn came_to_nothing(stagnation: Option<usize>, outcome: &Outcome) -> bool {
    use Status as S;
    let is_stuck = matches!(
        outcome.status,
        S::IndefiniteMatrix | S::IndefinitePreconditioner | S::Breakdown | S::Diverged | S::ZeroPivot
    );
    // If a solve stagnates earlier, rounding is the reason, and no other preconditioner changes that.
    let stood_still = stagnation.is_some_and(|limit| outcome.iterations >= limit);
    is_stuck || (outcome.status == S::Stagnated && stood_still)
}

/// Writes the line of a plan on the numbering, if it is not the matrix's own.
pub(crate) fn write_numbering(f: &mut fmt::Formatter<'_>, by: Reorder, why: &str) -> fmt::Result {
    match by {
        Reorder::None => Ok(()),
        Reorder::Bfs | Reorder::Bisection | Reorder::Rcm | Reorder::Amd => {
            write!(f, "\n{:<9}reordered by {by} ({why}), x in the matrix's own numbering", "numbers")
        }
    }
}
