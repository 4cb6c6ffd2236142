//! The plan of a solve: the choices and their reasons, made before anything is allocated.

use std::fmt;
use std::sync::Arc;

use spandrel_formats::{Profile, Real};
use spandrel_solvers::{DirectOptions, Iterate, Method, Options, Precond, Progress, direct};

use super::prepare::Preparation;
use super::rival::Means;
use super::settings::{NullVectors, Precision, Reorder, Scale};
use super::shared::{Limits, write_numbering};
use super::stronger::Stronger;
use super::words::counted;

/// Steps of refinement of regularised least squares. With delta the cube root of the unit roundoff u, a step reduces
/// the error along a singular vector with value sigma by the factor delta^2 / (sigma^2 + delta^2). The part of x in the
/// null space of a singular matrix has a rounding error of u / delta^2 = delta.
const LEAST_SQUARES_STEPS: usize = 12;

/// The choices for a solve and their reasons. `Display` prints it as `spandrel solve` does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Rows of the matrix.
    pub nrows: usize,
    /// Columns of the matrix.
    pub ncols: usize,
    /// Entries of the matrix.
    pub nnz: usize,
    /// Whether the matrix equals its transpose, exactly.
    pub symmetric: bool,
    /// `"cpu"` or `"cuda"`: where the solve runs. A direct solve always runs on the host.
    pub backend: &'static str,
    /// A description of the device.
    pub device: String,
    /// Why the solve runs there.
    pub device_why: String,
    /// The method.
    pub method: Method,
    /// Why this method.
    pub method_why: String,
    /// The preconditioner; after the set-up, the one that was made.
    pub preconditioner: Precond,
    /// Why this preconditioner.
    pub preconditioner_why: String,
    /// A report on its factors, after the set-up.
    pub factor: Option<FactorReport>,
    /// A preconditioner that could not be made and was replaced by this one.
    pub replaced: Option<Replaced>,
    /// The storage format of the iteration.
    pub format: &'static str,
    /// Why this format.
    pub format_why: String,
    /// The element types.
    pub precision: Precision,
    /// The element type of the matrix, `"f32"` or `"f64"`.
    pub element: &'static str,
    /// The renumbering.
    pub reorder: Reorder,
    /// Why this renumbering.
    pub reorder_why: String,
    /// How rows and columns are scaled for the iteration.
    pub scale: Scale,
    /// Why this scaling.
    pub scale_why: String,
    /// Whether only kernels with a shared order of summation run.
    pub reproducible: bool,
    /// The relative goal.
    pub rtol: f64,
    /// The absolute goal.
    pub atol: f64,
    /// The limit of iterations.
    pub max_iterations: usize,
    /// Iterations between two looks of the host.
    pub check_every: usize,
    /// Iterations without a smaller residual after which the solve ends; `None` for never.
    pub stagnation: Option<usize>,
    /// Steps of a GMRES cycle.
    pub restart: usize,
    /// The largest size of a complete factorisation's factors in bytes; `None` for as much as the free memory allows.
    pub memory_limit: Option<u64>,
    /// Warnings for the user, known before the solve begins.
    pub warnings: Vec<String>,
    /// Whether a least squares solution, with the least ||b - A x||, is wanted.
    pub least_squares: bool,
    /// The null space that the caller knows.
    pub null_space: NullVectors,
    /// Near-null-space vectors that the caller knows, in the numbering of the solve.
    pub(super) near_null: Option<Arc<Vec<f64>>>,
    /// The scaling, if it changes anything.
    pub(super) preparation: Option<Arc<Preparation>>,
    /// Whether the policy put the preconditioner into f32, and not the settings.
    pub(super) is_narrowed: bool,
    /// Whether another method may take over.
    pub(super) method_is_open: bool,
    /// Whether a complete factorisation may take over, or was chosen by the policy.
    pub(super) direct_is_open: bool,
    /// Whether the device may renumber the matrix.
    pub(super) order_is_open: bool,
    /// If the policy chose a factorisation: the iteration that it would choose without one.
    pub(super) iterative: Option<Box<Plan>>,
    /// The substitute if the preconditioner cannot be made.
    pub(super) otherwise: Option<Precond>,
    /// The substitute, which needs a set-up of its own, if the solve fails.
    pub(super) standby: Option<Precond>,
    /// What takes over, with a set-up of its own, if the solve would take longer than with it.
    pub(super) stronger: Option<Stronger>,
}

/// A report on the triangular factors of a preconditioner.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct FactorReport {
    /// The plan that solves with them (for several grids, that of the finest), or the replacement of the triangular
    /// solves.
    pub plan: &'static str,
    /// Whether the triangles are only solved approximately.
    pub approximate: bool,
    /// Entries of the factors.
    pub nnz: usize,
    /// The shift alpha, if A + alpha diag(A) was factored; else 0.
    pub shift: f64,
    /// Grids of a multigrid cycle; 0 without one.
    pub levels: usize,
}

/// A preconditioner that was replaced by another.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Replaced {
    /// The one that was given up.
    pub from: Precond,
    /// The one that took its place.
    pub to: Precond,
    /// Why it was replaced.
    pub why: String,
}

impl Plan {
    /// The options of the iteration.
    pub(super) fn options(&self) -> Options {
        let Self { rtol, atol, max_iterations, check_every, stagnation, restart, .. } = *self;
        Limits { rtol, atol, max_iterations, check_every, stagnation, restart }.options()
    }

    /// The options of a factorisation.
    pub(super) fn direct_options<T: Real>(&self) -> DirectOptions {
        let memory_limit = self.memory_limit.unwrap_or(DirectOptions::default().memory_limit);
        let options =
            DirectOptions { rtol: Some(self.rtol), atol: self.atol, memory_limit, ..DirectOptions::default() };
        if !self.least_squares {
            return options;
        }
        let regularization = T::UNIT_ROUNDOFF.cbrt();
        DirectOptions { method: Some(direct::Method::Qr), regularization, refinements: LEAST_SQUARES_STEPS, ..options }
    }

    /// The parameters of a factorisation on a device with this profile.
    pub(super) fn means<'p, T: Real>(&self, profile: &'p Profile) -> Means<'p> {
        Means { options: self.direct_options::<T>(), limit: self.memory_limit, profile }
    }

    /// Puts a preconditioner that the policy chose into f32, if the matrix is in f64.
    pub(super) fn narrow(&mut self) {
        if self.element == "f64" && self.precision == Precision::Native {
            (self.precision, self.is_narrowed) = (Precision::Mixed, true);
        }
    }

    /// Undoes [`Plan::narrow`], for another preconditioner.
    pub(super) fn widen(&mut self) {
        if std::mem::take(&mut self.is_narrowed) {
            self.precision = Precision::Native;
        }
    }

    /// Switches to a complete factorisation. The present plan is kept, for a matrix that factors do not serve; nothing
    /// stronger serves it either.
    pub(super) fn now_direct(&mut self, why: String) {
        let before = Plan { stronger: None, ..self.clone() };
        (self.method, self.method_why) = (Method::Direct, why);
        (self.preconditioner, self.preconditioner_why) = (Precond::None, "a direct solve needs none".to_string());
        (self.factor, self.standby, self.otherwise, self.stronger) = (None, None, None, None);
        self.widen();
        (self.format, self.format_why) = ("csr", "what a factorisation reads".to_string());
        self.iterative = Some(Box::new(before));
    }

    /// The element types by their names on the command line.
    pub fn precision_name(&self) -> &'static str {
        match self.precision {
            Precision::Native => self.element,
            Precision::Mixed | Precision::Refined => self.precision.as_str(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<9}{}: {} ({})", "machine", self.backend, self.device, self.device_why)?;
        writeln!(f, "{:<9}{} ({})", "solver", self.method, self.method_why)?;
        let by = match self.factor {
            Some(FactorReport { plan, levels: 0, approximate: false, .. }) => format!(", by {plan}"),
            Some(FactorReport { plan, levels: 0, .. }) => format!(", approximately by {plan}"),
            Some(FactorReport { plan, levels, .. }) => format!(", {}, by {plan}", counted(levels, "grid")),
            None => String::new(),
        };
        let shifted = match self.factor {
            Some(FactorReport { shift, .. }) if shift > 0.0 => format!("; of A + {shift:.3e} diag(A)"),
            Some(_) | None => String::new(),
        };
        writeln!(f, "{:<9}{}{by} ({}{shifted})", "precond", self.preconditioner, self.preconditioner_why)?;
        write!(f, "{:<9}{}, {} ({})", "format", self.format, self.precision_name(), self.format_why)?;
        write_numbering(f, self.reorder, &self.reorder_why)?;
        if self.scale != Scale::None && self.method != Method::Direct {
            write!(
                f,
                "\n{:<9}{} ({}); residuals are those of the matrix as given",
                "scale", self.scale, self.scale_why
            )?;
        }
        Ok(())
    }
}

/// A part of the work before the iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The matrix is examined, and the plan is made.
    Analyze,
    /// Rows and columns are renumbered.
    Reorder,
    /// The matrix is copied to the device, in its format.
    Load,
    /// Candidates for the storage format are timed.
    Measure,
    /// The preconditioner is made, or the matrix is factored.
    SetUp,
    /// The iteration runs, or factors solve.
    Solve,
}

impl Stage {
    /// The name of the stage, in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Analyze => "analyzing",
            Stage::Reorder => "reordering",
            Stage::Load => "loading",
            Stage::Measure => "measuring formats",
            Stage::SetUp => "setting up",
            Stage::Solve => "solving",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a solver reports while it works; see [`crate::solver::Builder::on_progress`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A phase begins. The detail names what is made, if there is something to name.
    Stage(Stage, &'a str),
    /// The host looked at a running iteration. There may be an x, in the matrix's own numbering and in `f64` for either
    /// element type. There is none within a cycle of GMRES, or if the iteration only computes a correction of x
    /// (scaled, refined, or with a known null space).
    Iteration(Method, Progress, Iterate<'a, f64>),
    /// Something that a user should know at once: a warning, or another choice that takes over.
    Note(&'a str),
}
