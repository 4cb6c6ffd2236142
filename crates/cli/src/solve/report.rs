//! What a solve says at its end: one JSON object, a few aligned lines, or a CSV history.

use std::fmt::Write as _;

use serde::Serialize;

use super::precond::{FactorReport, PrecondFallback};
use super::{Fallback, Seconds};
use crate::args::SolveArgs;
pub(super) use crate::input::counted;
use crate::input::{bytes, grouped, name, seconds as duration};

/// The JSON object. Non-finite numbers become `null`.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    pub(super) matrix: MatrixReport,
    /// Whether `converged` means that the gradient A^T (b - A x) is small, not b - A x.
    pub(super) least_squares: bool,
    pub(super) backend: &'static str,
    pub(super) device: String,
    /// `why.backend` in a few words.
    #[serde(skip)]
    pub(super) backend_why: &'static str,
    pub(super) n_threads: usize,
    pub(super) format: &'static str,
    pub(super) solver: &'static str,
    pub(super) precond: String,
    /// Of a preconditioner by triangular solves.
    pub(super) factor: Option<FactorReport>,
    pub(super) precision: &'static str,
    pub(super) reorder: &'static str,
    pub(super) reproducible: bool,
    pub(super) rhs: &'a str,
    pub(super) status: &'static str,
    pub(super) message: Option<String>,
    pub(super) iterations: usize,
    pub(super) restarts: usize,
    pub(super) residual: f64,
    pub(super) true_residual: f64,
    pub(super) forward_error: Option<f64>,
    pub(super) rtol: f64,
    pub(super) atol: f64,
    pub(super) max_iters: usize,
    pub(super) seconds: Seconds,
    /// Of the program on the host; `null` where the system does not say.
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) fallback: Option<Fallback>,
    pub(super) precond_fallback: Option<PrecondFallback>,
    pub(super) why: Why<'a>,
    pub(super) history: &'a [f64],
    /// A file that could not be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorReport>,
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

impl Report<'_> {
    /// The report for people, with the files that were written.
    pub(super) fn text(&self, args: &SolveArgs, written: &[(&str, String)]) -> String {
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
        line("b", self.rhs_in_words(args));
        line("machine", format!("{}: {} ({})", self.backend, self.device, self.backend_why));
        line("solver", format!("{} ({})", self.solver, self.why.solver));
        let shifted = match &self.factor {
            Some(factor) if factor.shift > 0.0 => format!("; of A + {:.3e} diag(A)", factor.shift),
            _ => String::new(),
        };
        let by = match self.factor {
            Some(FactorReport { plan, levels: 0, approximate, .. }) => {
                format!(", {}by {plan}", if approximate { "approximately " } else { "" })
            }
            Some(FactorReport { plan, levels, .. }) => format!(", {}, by {plan}", counted(levels, "grid")),
            None => String::new(),
        };
        line("precond", format!("{}{by} ({}{shifted})", self.precond, self.why.precond));
        line("format", format!("{}, {} ({})", self.format, self.precision, self.why.format));
        if self.reorder != "none" {
            line("numbers", format!("reordered by {}, x in the matrix's own numbering", self.reorder));
        }
        text.push('\n');
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

    /// What was run and how it ended, below the title of the convergence plot.
    pub(super) fn subtitle(&self) -> String {
        if self.solver == "direct" {
            return format!("direct, {}: {}", self.precision, self.status);
        }
        let work = counted(self.iterations, "iteration");
        let Self { solver, precond, format, precision, status, .. } = self;
        format!("{solver} with {precond} on {format}, {precision}: {status} after {work}")
    }

    fn verdict(&self, limited: bool) -> String {
        let note = self.message.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
        let restarts = match self.restarts {
            0 => String::new(),
            n => format!(", {}", counted(n, "restart")),
        };
        let work = if self.solver == "direct" {
            String::new()
        } else {
            format!(" after {}{restarts}", counted(self.iterations, "iteration"))
        };
        let residual = if self.true_residual.is_finite() && self.least_squares {
            format!(": least squares, residual {:.2e}", self.true_residual)
        } else if self.true_residual.is_finite() {
            format!(": true residual {:.2e}, asked for {:.0e}", self.true_residual, self.rtol)
        } else {
            String::new()
        };
        let advice = match self.status {
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
                "\nthis is what f32 gives: use --precision f64, or a larger --rtol"
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
        format!("{}{work}{residual}{note}{advice}", self.status)
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

/// One line per entry of the history; its first is before any iteration.
pub(super) fn csv(history: &[f64]) -> String {
    let mut text = String::from("iteration,relative_residual\n");
    for (iteration, residual) in history.iter().enumerate() {
        let _ = writeln!(text, "{iteration},{residual:e}");
    }
    text
}
