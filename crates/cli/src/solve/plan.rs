//! What will be run, and why: solver, preconditioner, format, goals. Decided before anything is allocated for it.

use spandrel::backend::{Order, Spmv};
use spandrel::backend_cpu::Cpu;
use spandrel::solvers::{PrecondKind, SolverKind};
use spandrel::{Csr, Format, Real};

use crate::args::{FORMATS, PrecondName, ReorderName, SolveArgs, SolverName};
use crate::failure::{Failure, Result};

/// Iterations per row that `--max-iters` stands for by default, and its limits: the monitor keeps eight bytes for each.
const ITERATIONS_PER_ROW: usize = 20;
const LEAST_ITERATIONS: usize = 1000;
const MOST_ITERATIONS: usize = 100_000;
const ASKED_FOR: &str = "as asked for";

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) symmetric: bool,
    pub(super) solver: SolverKind,
    pub(super) solver_is_auto: bool,
    pub(super) solver_why: String,
    pub(super) precond: PrecondKind,
    pub(super) precond_why: String,
    pub(super) format: &'static str,
    pub(super) format_why: String,
    pub(super) reorder: &'static str,
    pub(super) rtol: f64,
    pub(super) atol: f64,
    pub(super) max_iters: usize,
    pub(super) check_every: usize,
}

impl Plan {
    pub(super) fn make<T: Real>(args: &SolveArgs, a: &Csr<T>) -> Result<Self> {
        let auto = SolverKind::choose(a);
        let (solver, solver_why) = match args.solver {
            SolverName::Auto => (auto.solver, auto.solver_why),
            SolverName::Cg => (SolverKind::Cg, ASKED_FOR),
            SolverName::Bicgstab => (SolverKind::BiCgStab, ASKED_FOR),
            SolverName::Direct => (SolverKind::Direct, ASKED_FOR),
        };
        if solver != SolverKind::Direct && a.nrows() != a.ncols() {
            return Err(Failure::new(
                "not_square",
                format!(
                    "{} needs a square matrix, {} is {} x {}; --solver direct solves least squares",
                    solver.as_str(),
                    args.matrix,
                    a.nrows(),
                    a.ncols()
                ),
            ));
        }
        if solver == SolverKind::Direct && args.reproducible {
            return Err(Failure::new(
                "not_reproducible",
                "--solver direct orders its sums by the machine it runs on; leave out --reproducible, or use an iterative solver",
            ));
        }
        let (precond, precond_why) = match (solver, args.precond) {
            (SolverKind::Direct, PrecondName::Auto | PrecondName::None) => {
                (PrecondKind::None, "a direct solve needs none")
            }
            (SolverKind::Direct, PrecondName::Jacobi) => {
                return Err(Failure::new(
                    "unsupported",
                    "--solver direct takes no preconditioner; leave out --precond, or use an iterative solver",
                ));
            }
            (_, PrecondName::Auto) => (auto.precond, auto.precond_why),
            (_, PrecondName::None) => (PrecondKind::None, ASKED_FOR),
            (_, PrecondName::Jacobi) => (PrecondKind::Jacobi, ASKED_FOR),
        };
        let (format, format_why) = format(args, a, solver)?;
        Ok(Self {
            symmetric: is_symmetric(a),
            solver,
            solver_is_auto: args.solver == SolverName::Auto,
            solver_why: solver_why.to_string(),
            precond,
            precond_why: precond_why.to_string(),
            format,
            format_why,
            reorder: match args.reorder {
                ReorderName::None => "none",
                ReorderName::Rcm => "rcm",
                ReorderName::Amd => "amd",
            },
            rtol: args.rtol.unwrap_or(if T::BYTES == 4 { 1e-5 } else { 1e-8 }),
            atol: args.atol,
            max_iters: args.max_iters.unwrap_or_else(|| {
                a.nrows().saturating_mul(ITERATIONS_PER_ROW).clamp(LEAST_ITERATIONS, MOST_ITERATIONS)
            }),
            check_every: args.check_every.unwrap_or(spandrel::solvers::Options::default().check_every),
        })
    }
}

fn format<T: Real>(_args: &SolveArgs, _a: &Csr<T>, _solver: SolverKind) -> Result<(&'static str, String)> {
    Ok(("csr", String::new()))
}

fn is_symmetric<T: Real>(_a: &Csr<T>) -> bool {
    true
}
