//! The report of a solve: one JSON object, a few aligned lines, or a CSV history.

use std::fmt::{Display, Write as _};

use serde::Serialize;
use spandrel::ranks::{Share, Solution};
use spandrel::solver::{Attempt, FactorReport, Plan, Replaced};
use spandrel::solvers::{Method, Status};

use super::Seconds;
use super::columns::Column;
use crate::args::SolveArgs;
pub(super) use crate::input::counted;
use crate::input::{bytes, grouped, name, seconds as duration};
use crate::memory;

/// Why a solve on ranks runs where it does.
const RANKS_WHY: &str = "ranks run on the CPU";
/// The same for ranks on GPUs.
const GPUS_WHY: &str = "ranks run on GPUs, as asked for";

/// The JSON object. Non-finite numbers become `null`.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    pub(super) matrix: MatrixReport,
    /// Whether `converged` means that the gradient A^T (b - A x) is small, not b - A x.
    pub(super) least_squares: bool,
    pub(super) backend: &'static str,
    pub(super) device: &'a str,
    pub(super) n_threads: usize,
    pub(super) format: &'static str,
    pub(super) solver: &'static str,
    pub(super) precond: String,
    /// Of a preconditioner by triangular solves.
    pub(super) factor: Option<Factor>,
    pub(super) precision: &'static str,
    pub(super) reorder: &'static str,
    pub(super) scale: &'static str,
    pub(super) reproducible: bool,
    pub(super) rhs: &'a str,
    pub(super) status: &'static str,
    pub(super) message: Option<String>,
    pub(super) iterations: usize,
    pub(super) restarts: usize,
    pub(super) residual: f64,
    pub(super) true_residual: f64,
    /// Where the solver has computed it: always for a direct solve.
    pub(super) backward_error: Option<Backward>,
    /// Estimated if a direct solve missed its goal.
    pub(super) condition: Option<f64>,
    pub(super) forward_error: Option<f64>,
    pub(super) rtol: f64,
    pub(super) atol: f64,
    pub(super) max_iters: usize,
    pub(super) seconds: Seconds,
    /// The peak memory of the program on the host; `null` if the system does not report it.
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) fallback: Option<Fallback>,
    pub(super) precond_fallback: Option<PrecondFallback>,
    /// What was tried before and given up, in order.
    pub(super) attempts: Vec<Tried>,
    pub(super) why: Why<'a>,
    pub(super) history: &'a [f64],
    /// One report per column of a right-hand side with several; the other fields then summarise them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) columns: Vec<ColumnReport<'a>>,
    /// Only of a solve on ranks: what each of them holds and sends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ranks: Vec<RankReport>,
    /// Only of a solve on several ranks: how they exchange entries and sums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<&'static str>,
    /// A file that could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorReport>,
}

/// The report on triangular factors.
#[derive(Debug, Serialize)]
pub(super) struct Factor {
    plan: &'static str,
    approximate: bool,
    nnz: usize,
    shift: f64,
    levels: usize,
}

/// One of several columns.
#[derive(Debug, Serialize)]
pub(super) struct ColumnReport<'a> {
    status: &'static str,
    message: Option<&'a str>,
    solver: &'static str,
    precond: String,
    iterations: usize,
    restarts: usize,
    residual: f64,
    true_residual: f64,
    fallback: Option<Fallback>,
    history: &'a [f64],
}

impl<'a> ColumnReport<'a> {
    fn of(column: &'a Column) -> Self {
        let outcome = &column.outcome;
        Self {
            status: outcome.status.as_str(),
            message: column.note.as_deref(),
            solver: column.method.as_str(),
            precond: column.precond.to_string(),
            iterations: outcome.iterations,
            restarts: outcome.restarts,
            residual: outcome.residual,
            true_residual: outcome.true_residual,
            fallback: Fallback::of(column),
            history: &outcome.history,
        }
    }
}

/// One rank of a solve on several.
#[derive(Debug, Serialize)]
pub(super) struct RankReport {
    first_row: u64,
    nrows: u64,
    nnz: u64,
    boundary_rows: u64,
    ghosts: u64,
    matrix_bytes: u64,
    messages: u64,
    sent_bytes: u64,
}

impl RankReport {
    fn of(share: &Share) -> Self {
        Self {
            first_row: share.first,
            nrows: share.rows,
            nnz: share.nnz,
            boundary_rows: share.boundary_rows,
            ghosts: share.ghosts,
            matrix_bytes: share.matrix_bytes,
            messages: share.messages,
            sent_bytes: share.sent_bytes,
        }
    }
}

/// The backward error of x.
#[derive(Debug, Serialize)]
pub(super) struct Backward {
    normwise: f64,
    componentwise: f64,
}

/// One attempt that was given up.
#[derive(Debug, Serialize)]
pub(super) struct Tried {
    solver: &'static str,
    precond: String,
    status: &'static str,
    iterations: usize,
    true_residual: f64,
    seconds: f64,
}

impl Tried {
    fn of(attempt: &Attempt) -> Self {
        Self {
            solver: attempt.method.as_str(),
            precond: attempt.preconditioner.to_string(),
            status: attempt.status.as_str(),
            iterations: attempt.iterations,
            true_residual: attempt.true_residual,
            seconds: attempt.seconds,
        }
    }

    /// `cg with ic0: too slow after 48 iterations, true residual 1.2e-3`.
    fn in_words(&self) -> String {
        let Self { solver, precond, .. } = self;
        let with = if *solver == "direct" { String::new() } else { format!(" with {precond}") };
        // After an interruption by the user no other method takes over. So this attempt was interrupted for being slow.
        let ended = if self.status == Status::Interrupted.as_str() { "too slow" } else { self.status };
        let after = if *solver == "direct" {
            String::new()
        } else {
            format!(" after {}", counted(self.iterations, "iteration"))
        };
        let residual = if self.true_residual.is_finite() {
            format!(", true residual {:.1e}", self.true_residual)
        } else {
            String::new()
        };
        format!("{solver}{with}: {ended}{after}{residual}")
    }
}

/// A method that was given up for another.
#[derive(Debug, Serialize)]
pub(super) struct Fallback {
    from: &'static str,
    status: &'static str,
    iterations: usize,
}

impl Fallback {
    fn of(column: &Column) -> Option<Self> {
        column.given_up.map(|(method, status, iterations)| Self {
            from: method.as_str(),
            status: status.as_str(),
            iterations,
        })
    }
}

/// A preconditioner that was given up for another.
#[derive(Debug, Serialize)]
pub(super) struct PrecondFallback {
    from: String,
    to: String,
    why: String,
}

impl PrecondFallback {
    fn of(Replaced { from, to, why, .. }: &Replaced) -> Self {
        Self { from: from.to_string(), to: to.to_string(), why: why.clone() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ErrorReport {
    pub(super) kind: &'static str,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
pub(super) struct MatrixReport {
    pub(super) name: String,
    pub(super) nrows: usize,
    pub(super) ncols: usize,
    pub(super) nnz: usize,
    pub(super) symmetric: bool,
}

/// Reasons of the choices.
#[derive(Debug, Serialize)]
pub(super) struct Why<'a> {
    pub(super) backend: &'a str,
    pub(super) solver: &'a str,
    pub(super) precond: &'a str,
    pub(super) format: &'a str,
}

impl<'a> Report<'a> {
    /// The report of a solve by `plan` that ended with this status. There is no column if there is no x.
    pub(super) fn new(
        args: &'a SolveArgs,
        plan: &'a Plan,
        columns: &'a [Column],
        status: Status,
        seconds: Seconds,
    ) -> Self {
        let only = if let [only] = columns { Some(only) } else { None };
        // NaN counts as the largest residual.
        let largest = |residual: fn(&Column) -> f64| {
            columns.iter().map(residual).reduce(|a, b| if a >= b || a.is_nan() { a } else { b }).unwrap_or(f64::NAN)
        };
        let factor = plan.factor.map(|FactorReport { plan, approximate, nnz, shift, levels, .. }| Factor {
            plan,
            approximate,
            nnz,
            shift,
            levels,
        });
        Self {
            matrix: MatrixReport {
                name: name(&args.matrix).to_string(),
                nrows: plan.nrows,
                ncols: plan.ncols,
                nnz: plan.nnz,
                symmetric: plan.symmetric,
            },
            least_squares: plan.nrows != plan.ncols,
            backend: plan.backend,
            device: &plan.device,
            n_threads: rayon::current_num_threads(),
            format: plan.format,
            solver: plan.method.as_str(),
            precond: plan.preconditioner.to_string(),
            factor,
            precision: plan.precision_name(),
            reorder: plan.reorder.as_str(),
            scale: plan.scale.as_str(),
            reproducible: plan.reproducible,
            rhs: &args.rhs,
            status: status.as_str(),
            message: only.and_then(|only| only.note.clone()),
            iterations: columns.iter().map(|column| column.outcome.iterations).sum(),
            restarts: columns.iter().map(|column| column.outcome.restarts).sum(),
            residual: largest(|column| column.outcome.residual),
            true_residual: largest(|column| column.outcome.true_residual),
            backward_error: only
                .and_then(|only| only.outcome.backward_error)
                .map(|error| Backward { normwise: error.normwise, componentwise: error.componentwise }),
            condition: only.and_then(|only| only.outcome.condition),
            forward_error: None,
            rtol: plan.rtol,
            atol: plan.atol,
            max_iters: plan.max_iterations,
            seconds,
            peak_memory_bytes: memory::peak_bytes(),
            fallback: only.and_then(Fallback::of),
            precond_fallback: plan.replaced.as_ref().map(PrecondFallback::of),
            attempts: only.map_or_else(Vec::new, |only| only.attempts.iter().map(Tried::of).collect()),
            why: Why {
                backend: &plan.device_why,
                solver: &plan.method_why,
                precond: &plan.preconditioner_why,
                format: &plan.format_why,
            },
            history: only.map_or(&[], |only| &only.outcome.history),
            columns: if only.is_some() { Vec::new() } else { columns.iter().map(ColumnReport::of).collect() },
            ranks: Vec::new(),
            messages: None,
            error: None,
        }
    }

    /// Of a solve on ranks with so many threads in all.
    pub(super) fn of_ranks<T>(
        args: &'a SolveArgs,
        solution: &'a Solution<T>,
        n_threads: usize,
        seconds: Seconds,
    ) -> Self {
        let Solution { plan, outcome, shares, direct, .. } = solution;
        Self {
            matrix: MatrixReport {
                name: name(&args.matrix).to_string(),
                nrows: plan.nrows,
                ncols: plan.nrows,
                nnz: usize::try_from(plan.nnz).unwrap_or(usize::MAX),
                symmetric: plan.symmetric,
            },
            least_squares: false,
            backend: plan.backend,
            device: &plan.device,
            n_threads,
            format: plan.format,
            solver: plan.method.as_str(),
            precond: plan.preconditioner.to_string(),
            factor: None,
            precision: plan.element,
            reorder: plan.reorder.as_str(),
            scale: "none",
            reproducible: plan.reproducible,
            rhs: &args.rhs,
            status: outcome.status.as_str(),
            message: outcome.note.map(str::to_owned),
            iterations: outcome.iterations,
            restarts: outcome.restarts,
            residual: outcome.residual,
            true_residual: outcome.true_residual,
            backward_error: None,
            condition: None,
            forward_error: None,
            rtol: plan.rtol,
            atol: plan.atol,
            max_iters: plan.max_iterations,
            seconds,
            peak_memory_bytes: memory::peak_bytes(),
            fallback: None,
            precond_fallback: plan.replaced.as_ref().map(PrecondFallback::of),
            attempts: Vec::new(),
            why: Why {
                backend: if args.gpus.is_some() { GPUS_WHY } else { RANKS_WHY },
                solver: &plan.method_why,
                precond: &plan.preconditioner_why,
                format: &plan.format_why,
            },
            history: &outcome.history,
            columns: Vec::new(),
            ranks: shares.iter().map(RankReport::of).collect(),
            messages: (shares.len() > 1).then_some(if *direct { "from device to device" } else { "through the host" }),
            error: None,
        }
    }

    /// The relative residuals of every column.
    pub(super) fn histories(&self) -> Vec<&'a [f64]> {
        if self.columns.is_empty() { vec![self.history] } else { self.columns.iter().map(|c| c.history).collect() }
    }

    /// The report in text, for a right-hand side with this many columns, with the files that were written.
    pub(super) fn text(
        &self,
        args: &SolveArgs,
        plan: &dyn Display,
        columns: usize,
        written: &[(&str, String)],
    ) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<9}{value}");
        };
        let m = &self.matrix;
        line(
            "matrix",
            format!(
                "{}: {} x {}, {}, {}",
                m.name,
                grouped(m.nrows),
                grouped(m.ncols),
                counted(m.nnz, "entry"),
                if m.symmetric { "symmetric" } else { "not symmetric" }
            ),
        );
        let several = if columns > 1 { format!(", {}", counted(columns, "column")) } else { String::new() };
        line("b", self.rhs_in_words(args) + &several);
        let _ = writeln!(text, "{plan}");
        if !self.ranks.is_empty() {
            let _ = writeln!(text, "{:<9}{}", "shares", self.shares());
        }
        for attempt in &self.attempts {
            let _ = writeln!(text, "{:<9}{}", "tried", attempt.in_words());
        }
        text.push('\n');
        for (j, column) in self.columns.iter().enumerate() {
            let name = format!("column {}", j + 1);
            let how =
                self.ended(column.status, column.solver, column.iterations, column.restarts, column.true_residual);
            let note = column.message.map(|note| format!(" ({note})")).unwrap_or_default();
            let _ = writeln!(text, "{name:<12}{how}{note}");
        }
        let _ = writeln!(text, "{}", self.verdict(args.stagnation.is_some()));
        if let Some(error) = self.forward_error {
            let _ = writeln!(text, "forward error ||x - 1|| / ||1|| = {error:.2e}");
        }
        let s = &self.seconds;
        // A host's processor is always open.
        if self.backend != "cpu" {
            let _ = write!(text, "open {}, ", duration(s.open));
        }
        let _ = writeln!(
            text,
            "read {}, analyze {}, load {}, setup {}, solve {}, total {}",
            duration(s.read),
            duration(s.analyze),
            duration(s.load),
            duration(s.setup),
            duration(s.solve),
            duration(s.total)
        );
        if let Some(peak) = self.peak_memory_bytes {
            let _ = writeln!(text, "peak memory {}", bytes(peak));
        }
        for (what, name) in written {
            let _ = writeln!(text, "{what} written to {name}");
        }
        text
    }

    /// What ranks hold and send, from the smallest to the largest.
    fn shares(&self) -> String {
        let range = |of: fn(&RankReport) -> u64| {
            let all = || self.ranks.iter().map(of);
            let [least, most] = [all().min(), all().max()].map(|end| grouped(end.unwrap_or(0) as usize));
            if least == most { least } else { format!("{least} to {most}") }
        };
        let sent = self.ranks.iter().map(|rank| rank.sent_bytes).max().unwrap_or(0);
        format!(
            "rows {}, entries {}, ghosts {}; messages {}, at most {} sent{}",
            range(|rank| rank.nrows),
            range(|rank| rank.nnz),
            range(|rank| rank.ghosts),
            range(|rank| rank.messages),
            bytes(sent),
            self.messages.map_or_else(String::new, |how| format!(", {how}")),
        )
    }

    /// What was run and how it ended, below the title of the convergence plot.
    pub(super) fn subtitle(&self) -> String {
        if self.solver == "direct" {
            return format!("direct, {}: {}", self.precision, self.status);
        }
        let mut work = counted(self.iterations, "iteration");
        if !self.columns.is_empty() {
            work = format!("{work} for {}", counted(self.columns.len(), "column"));
        }
        let Self { solver, precond, format, precision, status, .. } = self;
        format!("{solver} with {precond} on {format}, {precision}: {status} after {work}")
    }

    fn verdict(&self, limited: bool) -> String {
        let note = self.message.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        let ended = if self.columns.is_empty() {
            self.ended(self.status, self.solver, self.iterations, self.restarts, self.true_residual)
        } else {
            let converged = Status::Converged.as_str();
            let solved = self.columns.iter().filter(|column| column.status == converged).count();
            let all = counted(self.columns.len(), "column");
            if solved == self.columns.len() {
                format!("{}: all {all}", self.status)
            } else {
                format!("{}: {solved} of {all} converged", self.status)
            }
        };
        let rounding = match (&self.backward_error, self.status) {
            (Some(error), "backward_stable" | "stagnated" | "singular") => {
                let condition = self.condition.map(|c| format!(", condition number about {c:.0e}")).unwrap_or_default();
                format!("\nbackward error {:.1e}{condition}", error.normwise)
            }
            _ => String::new(),
        };
        let advice = match self.status {
            "backward_stable" => {
                "\nx is exact for a matrix and b that agree with these to rounding; --accept backward counts this as solved"
            }
            "singular" => "\nlook for equations that repeat each other, or unknowns that nothing determines",
            "inconsistent" => {
                "\nno x solves this system: correct b, or the matrix; --least-squares gives the x that comes nearest"
            }
            "max_iterations" | "stagnated" | "diverged" | "breakdown" | "indefinite_matrix"
                if self.solver == "cg" && !self.matrix.symmetric =>
            {
                "\nCG is for symmetric matrices, and this one is not: use --solver bicgstab, gmres, direct or auto"
            }
            "max_iterations" => "\nraise --max-iters, or try another --solver (direct needs no iterations)",
            "indefinite_matrix" => {
                "\nthe matrix is not positive definite: use --solver bicgstab, gmres, direct or auto"
            }
            "breakdown" | "diverged" => "\ntry --solver direct, or another --precond",
            "stagnated" if self.solver == "gmres" => {
                "\na cycle gained nothing: raise --restart, or try another --precond"
            }
            "stagnated" if limited => {
                "\nno smaller residual in --stagnation iterations, or rounding allows no more: raise it, or try another --precond"
            }
            "stagnated" if self.precision == "f32" => {
                "\nthis is what f32 gives: use --precision mixed, refined or f64, or a larger --rtol"
            }
            "stagnated" => {
                "\nrounding allows no more: the matrix may be close to singular, or a larger --rtol is needed"
            }
            "zero_pivot" if self.solver != "direct" => "\nuse --precond none, or --solver direct",
            "indefinite_preconditioner" if self.precond.starts_with("ilu") => {
                "\nCG needs a symmetric preconditioner: use --precond ic0, ssor or mg, or --solver bicgstab"
            }
            _ => "",
        };
        format!("{ended}{note}{rounding}{advice}")
    }

    /// How one system ended: the word, the work, the residual.
    fn ended(&self, status: &str, solver: &str, iterations: usize, restarts: usize, true_residual: f64) -> String {
        let restarts = match restarts {
            0 => String::new(),
            n => format!(", {}", counted(n, "restart")),
        };
        let work = if solver == Method::Direct.as_str() {
            String::new()
        } else {
            format!(" after {}{restarts}", counted(iterations, "iteration"))
        };
        let residual = if true_residual.is_finite() && self.least_squares {
            format!(": least squares, residual {true_residual:.2e}")
        } else if true_residual.is_finite() {
            format!(": true residual {true_residual:.2e}, asked for {:.0e}", self.rtol)
        } else {
            String::new()
        };
        format!("{status}{work}{residual}")
    }

    fn rhs_in_words(&self, args: &SolveArgs) -> String {
        match self.rhs {
            "ones" => "ones".to_string(),
            "random" => format!("random in -1..1, seed {}", args.seed),
            "from-solution" => "A x for x = ones".to_string(),
            file => format!("from {}", name(file)),
        }
    }
}

/// One line per entry of a history; its first is before any iteration. Several histories have a column more, their
/// number from 1.
pub(super) fn csv(histories: &[&[f64]]) -> String {
    let several = histories.len() > 1;
    let mut text = String::from(if several { "column," } else { "" });
    text.push_str("iteration,relative_residual\n");
    for (j, history) in histories.iter().enumerate() {
        let column = if several { format!("{},", j + 1) } else { String::new() };
        for (iteration, residual) in history.iter().enumerate() {
            let _ = writeln!(text, "{column}{iteration},{residual:e}");
        }
    }
    text
}
