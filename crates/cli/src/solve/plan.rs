//! What will be run, and why: solver, preconditioner, format, goals. Decided before anything is allocated for it.

use spandrel::any::EveryFormat;
use spandrel::backend::{Order, Spmv};
use spandrel::solvers::multigrid::Expected;
use spandrel::solvers::{GmresOptions, Method, Options, Precond};
use spandrel::{Csr, Format, Real};
use spandrel_formats::choose::{Candidate, Machine, choose_for};
use spandrel_formats::{Grid, Survey};

use crate::args::{FORMATS, PrecondName, ReorderName, SolveArgs, SolvePrecision, SolverName};
use crate::failure::{Failure, Result};

const ASKED_FOR: &str = "as asked for";
/// Iterations without a smaller residual after which multigrid that `auto` took has come to nothing: it needs a tenth of them for the whole.
pub(super) const STAGNANT: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) symmetric: bool,
    pub(super) solver: Method,
    pub(super) solver_is_auto: bool,
    pub(super) solver_why: String,
    /// Never `auto`.
    pub(super) precond: PrecondName,
    /// Never a factorisation: what `auto` takes in the place of one that fails; `None` where the preconditioner was asked for.
    pub(super) precond_else: Option<PrecondName>,
    /// Whether the bits of every backend are asked for.
    pub(super) reproducible: bool,
    pub(super) precond_why: String,
    pub(super) format: &'static str,
    pub(super) format_why: String,
    pub(super) reorder: &'static str,
    pub(super) rtol: f64,
    pub(super) atol: f64,
    pub(super) max_iters: usize,
    pub(super) check_every: usize,
    pub(super) stagnation: Option<usize>,
    /// Of GMRES.
    pub(super) restart: usize,
}

/// As it is asked for.
fn named(kind: Precond) -> PrecondName {
    match kind {
        Precond::Jacobi => PrecondName::Jacobi,
        Precond::Ilu0 => PrecondName::Ilu0,
        Precond::Ic0 => PrecondName::Ic0,
        _ => PrecondName::None,
    }
}

impl Plan {
    /// All but the format, which is for [`Plan::choose_format`].
    pub(super) fn make<T: Real>(args: &SolveArgs, a: &Csr<T>, survey: &Survey) -> Result<Self> {
        let auto = Method::choose_by(survey, a.nrows() == a.ncols());
        let (solver, solver_why) = match args.solver {
            SolverName::Auto => (auto.solver, auto.solver_why),
            SolverName::Cg => (Method::Cg, ASKED_FOR),
            SolverName::Bicgstab => (Method::BiCgStab, ASKED_FOR),
            SolverName::Gmres => (Method::Gmres, ASKED_FOR),
            SolverName::Direct => (Method::Direct, ASKED_FOR),
        };
        if solver != Method::Direct && a.nrows() != a.ncols() {
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
        if args.restart.is_some() && !matches!(args.solver, SolverName::Gmres | SolverName::Auto) {
            return Err(Failure::new(
                "unsupported",
                format!(
                    "--restart is the cycle of gmres, and {} has none; leave it out, or use --solver gmres",
                    solver.as_str()
                ),
            ));
        }
        if args.stagnation.is_some() && matches!(solver, Method::Gmres | Method::Direct) {
            return Err(Failure::new(
                "unsupported",
                format!("--stagnation is for cg and bicgstab, not for {}; leave it out", solver.as_str()),
            ));
        }
        if solver == Method::Direct && args.reproducible {
            return Err(Failure::new(
                "not_reproducible",
                "a direct solve orders its sums by the machine it runs on; leave out --reproducible, or use an iterative solver",
            ));
        }
        let symmetric = survey.symmetric;
        let mut precond_else = None;
        let (precond, precond_why) = match (solver, args.precond) {
            (Method::Direct, PrecondName::Auto | PrecondName::None) => {
                (PrecondName::None, "a direct solve needs none".into())
            }
            (Method::Direct, _) => {
                return Err(Failure::new(
                    "unsupported",
                    "--solver direct takes no preconditioner; leave out --precond, or use an iterative solver",
                ));
            }
            (_, PrecondName::Auto) => {
                let (best, why, plain) = Precond::choose_by(survey, solver);
                precond_else = Some(named(plain)).filter(|_| plain != best);
                (named(best), why)
            }
            (_, ic0 @ (PrecondName::Ic0 | PrecondName::Ic0Jacobi(_) | PrecondName::Ic0Isai)) if !symmetric => {
                let instead = ic0.to_string().replace("ic0", "ilu0");
                return Err(Failure::new(
                    "unsupported",
                    format!("--precond {ic0} needs a symmetric matrix, {} is none; use {instead}", args.matrix),
                ));
            }
            (_, asked) => (asked, ASKED_FOR.into()),
        };
        let several = matches!(args.precision, SolvePrecision::Mixed | SolvePrecision::Refined);
        if several && solver == Method::Direct {
            return Err(Failure::new(
                "unsupported",
                "--solver direct factors in one precision; use --precision f64, or an iterative solver",
            ));
        }
        if args.precision == SolvePrecision::Mixed && precond == PrecondName::None {
            return Err(Failure::new(
                "unsupported",
                "--precision mixed stores the preconditioner in f32, and there is none; use --precision refined, or choose one by --precond",
            ));
        }
        Ok(Self {
            symmetric,
            solver,
            solver_is_auto: args.solver == SolverName::Auto,
            solver_why: solver_why.to_string(),
            precond,
            precond_why: precond_why.to_string(),
            precond_else,
            reproducible: args.reproducible,
            format: "csr",
            format_why: String::new(),
            reorder: match args.reorder {
                ReorderName::None => "none",
                ReorderName::Rcm => "rcm",
                ReorderName::Amd => "amd",
            },
            rtol: args.rtol.unwrap_or_else(spandrel::solvers::options::default_rtol::<T>),
            atol: args.atol,
            max_iters: Options { max_iters: args.max_iters, ..Options::default() }.iteration_limit(a.nrows()),
            check_every: args.check_every.unwrap_or(Options::default().check_every),
            stagnation: args.stagnation,
            restart: args.restart.unwrap_or(GmresOptions::default().restart),
        })
    }
}

impl Plan {
    /// Decides the rows of a block where they are to be the unknowns of a point, of the matrix in the numbering that it is solved in.
    pub(super) fn choose_blocks<T: Real>(&mut self, a: &Csr<T>) -> Result<()> {
        if self.precond != PrecondName::BlockJacobi(None) {
            return Ok(());
        }
        let why = match Grid::detect(a) {
            Ok(grid) if grid.unknowns > 1 => {
                self.precond = PrecondName::BlockJacobi(Some(grid.unknowns));
                self.precond_why = format!("{grid}");
                return Ok(());
            }
            Ok(grid) => format!("a {grid} has one unknown a point"),
            Err(why) => format!("this matrix is no grid: {why}"),
        };
        let message = format!(
            "block-jacobi=auto takes the unknowns of a point, and {why}; say how many rows a block has, e.g. block-jacobi=4"
        );
        Err(Failure::new("unsupported", message))
    }

    /// Takes multigrid in the place of IC(0) where `auto` chose that and [`Expected`] says that it pays, of the matrix in the numbering that it is
    /// solved in. Not where bits or precisions of the preconditioner matter: reproducible answers keep what every backend does alike.
    pub(super) fn choose_multigrid<T: Real>(&mut self, args: &SolveArgs, a: &Csr<T>, machine: Machine) {
        let narrow = matches!(args.precision, SolvePrecision::Mixed | SolvePrecision::Refined);
        let is_open = args.precond == PrecondName::Auto && self.precond == PrecondName::Ic0;
        if !is_open || self.solver != Method::Cg || args.reproducible || narrow {
            return;
        }
        let Ok(expected) = Expected::of(a, machine, rayon::current_num_threads()) else { return };
        if expected.pays() {
            let share = (100.0 * expected.mg / expected.ic0).ceil();
            self.precond_why = format!(
                "a {}, diagonally dominant: {share} % of the time expected with ic0 and its {:.0} iterations",
                expected.grid, expected.iterations
            );
            (self.precond, self.precond_else) = (PrecondName::Mg(None), Some(PrecondName::Ic0));
        }
    }

    /// What is tried once where `auto` took multigrid and the solve comes to nothing. The first attempt then leaves all else to it.
    pub(super) fn second(&mut self) -> Option<Self> {
        if self.precond_else != Some(PrecondName::Ic0) {
            return None;
        }
        let second = Self { precond: PrecondName::Ic0, precond_else: Some(PrecondName::Jacobi), ..self.clone() };
        self.solver_is_auto = false;
        self.stagnation = self.stagnation.or(Some(STAGNANT));
        Some(second)
    }

    /// Decides the format, of the matrix in the numbering that it is solved in, for a device that is a `machine`.
    pub(super) fn choose_format<T: Real, B: EveryFormat<T>>(
        &mut self,
        args: &SolveArgs,
        (a, survey): (&Csr<T>, &Survey),
        device: &B,
        machine: Machine,
    ) -> Result<()> {
        if self.solver == Method::Direct {
            if !matches!(args.format.as_str(), "auto" | "csr") {
                let message = "--solver direct factors CSR; leave out --format, or use an iterative solver";
                return Err(Failure::new("unsupported", message));
            }
            (self.format, self.format_why) = ("csr", "what a factorisation reads".to_string());
            return Ok(());
        }
        let shared = shared_order(device);
        if args.format != "auto" {
            let Some(&format) = FORMATS.iter().find(|&&stem| stem == args.format) else {
                return Err(Failure::new("unsupported", format!("there is no format {:?}", args.format)));
            };
            if args.reproducible && !shared.contains(&format) {
                let message =
                    format!("{format} sums in an order of its own; with --reproducible use {}", shared.join(", "));
                return Err(Failure::new("not_reproducible", message));
            }
            (self.format, self.format_why) = (format, ASKED_FOR.to_string());
            return Ok(());
        }
        // The same format everywhere is part of the same bits everywhere.
        let machine = if args.reproducible { Machine::Cpu } else { machine };
        let choice = survey.choose(a, machine);
        (self.format, self.format_why) = if !args.reproducible || shared.contains(&choice.format) {
            (choice.format, choice.why)
        } else {
            // Blocks too, which the choice may have left out.
            let every = choose_for(a, machine).candidates;
            let allowed = every.iter().filter(|candidate| shared.contains(&candidate.name));
            let cost = |candidate: &&Candidate| candidate.nanoseconds.unwrap_or(f64::INFINITY);
            let best = allowed.min_by(|a, b| cost(a).total_cmp(&cost(b))).map_or("csr", |best| best.name);
            (best, format!("the fastest expected among the reproducible; {} would be faster", choice.format))
        };
        Ok(())
    }
}

macro_rules! shared_orders {
    ([($T:ty, $device:expr)] $(($stem:ident, $Type:ident)),*) => {
        [$((stringify!($stem), Spmv::<spandrel_formats::$Type<$T>>::order($device))),*]
    };
}

/// The formats whose products on this device have the bits of every backend.
fn shared_order<T: Real, B: EveryFormat<T>>(device: &B) -> Vec<&'static str> {
    let orders = spandrel_formats::for_each_format!(shared_orders, (T, device));
    orders.into_iter().filter(|(_, order)| matches!(order, Order::Stored | Order::Tree)).map(|(stem, _)| stem).collect()
}
