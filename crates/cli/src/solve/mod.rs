//! `spandrel solve`: reads, chooses, solves, reports.
//!
//! Cost: the matrix, and beside it at most one copy of it (in the chosen format, renumbered, or under factorisation) and the factors of a
//! preconditioner; what it was made from is dropped before the iteration begins.

mod direct;
mod iterate;
mod mixed;
mod plan;
mod precond;
mod problem;
mod refined;
mod report;

use std::time::Instant;

use serde::Serialize;
use spandrel::Device;
use spandrel::any::{Complete, Task};
use spandrel::backend::Narrow;
use spandrel::backend_cpu::Cpu;
use spandrel::solvers::direct::Factorable;
use spandrel::solvers::{Method, Outcome, Status};
use spandrel::{Device, Format};
use spandrel_formats::choose::Machine;
use spandrel_formats::{Survey, matrix_market};

use crate::args::{BackendName, PrecondName, SolveArgs, SolvePrecision, SolverName};
use crate::failure::{Failure, Result};
use crate::output::{self, Sink, Target};
use crate::plot::Convergence;
use crate::progress::{self, Spinner};
use crate::{backend, input, memory};
use plan::Plan;
use precond::{FactorReport, PrecondFallback};
use problem::Problem;
pub(crate) use problem::random;
use report::{ErrorReport, MatrixReport, Report, Why};

/// Seconds of each phase. `open`: the device. `read`: file or generator. `analyze`: structure, choices, renumbering, the format. `load`: onto the
/// device, until it is there. `setup`: preconditioner, kernels, factorisation. `solve`: the iteration with its last residual.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Seconds {
    open: f64,
    read: f64,
    analyze: f64,
    load: f64,
    setup: f64,
    solve: f64,
    total: f64,
}

/// Times the phases one after the other.
#[derive(Debug)]
struct Lap(Instant);

impl Lap {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds the time since the last call to a phase.
    fn add_to(&mut self, phase: &mut f64) {
        let now = Instant::now();
        *phase += now.duration_since(self.0).as_secs_f64();
        self.0 = now;
    }
}

/// How a solve ended, with x where there is one.
#[derive(Debug)]
struct Ending<T> {
    status: Status,
    iterations: usize,
    residual: f64,
    true_residual: f64,
    history: Vec<f64>,
    restarts: usize,
    /// What the status word does not say.
    note: Option<String>,
    x: Option<Vec<T>>,
    /// The method that ended it, after any fallback.
    solver: Method,
    fallback: Option<Fallback>,
    precond_fallback: Option<PrecondFallback>,
    /// Of a preconditioner by triangular solves.
    factor: Option<FactorReport>,
    /// Bytes of a product, where values of f64 are kept in f32.
    narrow_bytes: Option<u64>,
}

/// A method that was given up for another.
#[derive(Clone, Debug, Serialize)]
struct Fallback {
    from: &'static str,
    status: &'static str,
    iterations: usize,
}

impl<T> Ending<T> {
    fn new(outcome: Outcome, x: Vec<T>, solver: Method) -> Self {
        let stopped = outcome.breakdown.filter(|_| outcome.status != Status::Converged);
        let note = stopped
            .map(|(quantity, iteration)| format!("{} stopped the method in iteration {iteration}", quantity.symbol()))
            .or_else(|| outcome.note.map(str::to_string));
        Self {
            status: outcome.status,
            iterations: outcome.iterations,
            residual: outcome.residual,
            true_residual: outcome.true_residual,
            history: outcome.history,
            restarts: outcome.restarts,
            note,
            x: Some(x),
            solver,
            fallback: None,
            precond_fallback: None,
            factor: None,
            narrow_bytes: None,
        }
    }

    /// Whether another preconditioner may do what this one did not.
    fn came_to_nothing(&self) -> bool {
        use Status as S;
        let is_stuck = match self.status {
            S::IndefiniteMatrix | S::IndefinitePreconditioner | S::Breakdown | S::Diverged | S::ZeroPivot => true,
            // Sooner it is rounding that allows no more, with any preconditioner.
            S::Stagnated => self.iterations >= plan::STAGNANT,
            _ => false,
        };
        is_stuck && self.precond_fallback.is_none()
    }

    /// Says that it stands for a solve with the plan's preconditioner, and that nowhere else.
    fn took_over(&mut self, first: &Self, plan: &Plan) {
        let after = report::counted(first.iterations, "iteration");
        let why = format!("{} ended as {} after {after}", first.solver, first.status.as_str());
        let to = self.precond_fallback.take().map_or_else(|| PrecondName::Ic0.to_string(), |next| next.to);
        let switch = format!("{} came to nothing ({why}), so {to} took its place", plan.precond);
        progress::note(&format!("--precond auto: {switch}"));
        self.note = Some(iterate::joined(switch, self.note.take()));
        self.precond_fallback = Some(PrecondFallback { from: plan.precond.to_string(), to, why });
    }

    /// An end before there was an x.
    fn without_answer(status: Status, why: String, solver: Method) -> Self {
        Self {
            status,
            iterations: 0,
            residual: f64::NAN,
            true_residual: f64::NAN,
            history: Vec::new(),
            restarts: 0,
            note: Some(why),
            x: None,
            solver,
            fallback: None,
            precond_fallback: None,
            factor: None,
            narrow_bytes: None,
        }
    }
}

/// A solver's error that has a status word is an end like others; the rest are failures.
fn judge<T>(ended: spandrel::solvers::Result<Ending<T>>, solver: Method) -> Result<Ending<T>> {
    ended.or_else(|error| match error.status() {
        Some(status) => Ok(Ending::without_answer(status, error.to_string(), solver)),
        None => Err(error.into()),
    })
}

/// Files that are written at the end.
#[derive(Debug)]
struct Targets {
    out: Option<Target>,
    history: Option<Target>,
    plot: Option<Target>,
}

impl Targets {
    fn stdout_is_taken(&self) -> bool {
        [&self.out, &self.history, &self.plot].into_iter().flatten().any(Target::is_stdout)
    }
}

/// Whether the system was solved.
///
/// # Errors
/// Whatever keeps a solve from beginning or its results from being written. Not converging is none.
pub(crate) fn run(args: &SolveArgs) -> Result<bool> {
    let targets = Targets {
        out: Target::check_optional(args.out.as_ref())?,
        history: Target::check_optional(args.history.as_ref())?,
        plot: Target::check_optional(args.plot.as_ref())?,
    };
    let outputs =
        [("--out", targets.out.as_ref()), ("--history", targets.history.as_ref()), ("--plot", targets.plot.as_ref())];
    let rhs = problem::rhs_file(args);
    let inputs = [("MATRIX", input::file(&args.matrix)), ("--rhs", rhs), ("--x0", args.x0.as_deref())];
    output::distinct(&outputs, &inputs, args.json)?;
    let begin = Instant::now();
    let opened = match (args.solver, args.backend) {
        // A number beside the CPU is told first.
        (SolverName::Direct, name) if name != BackendName::Cpu && wants_gpu(args) => return Err(direct_on_a_gpu()),
        (SolverName::Direct, _) => backend::open(BackendName::Cpu, args.device)?,
        (_, name) => backend::open(name, args.device)?,
    };
    let device = opened.device.with_reproducible(args.reproducible);
    let machine = device.machine();
    device.run(Job { args, targets: &targets, begin, open: begin.elapsed().as_secs_f64(), machine, why: &opened.why })
}

/// Whether a GPU was asked for, so that nothing else will do.
fn wants_gpu(args: &SolveArgs) -> bool {
    args.backend == BackendName::Cuda || args.device.is_some()
}

fn direct_on_a_gpu() -> Failure {
    Failure::new(
        "unsupported",
        "a direct solve factors on the CPU; leave out --backend cuda and --device, or use --solver cg, bicgstab or gmres",
    )
}

/// A solve, for whichever device it runs on.
struct Job<'a> {
    args: &'a SolveArgs,
    targets: &'a Targets,
    begin: Instant,
    /// Seconds until the device was open.
    open: f64,
    machine: Machine,
    why: &'a backend::Why,
}

impl Task for Job<'_> {
    type Output = Result<bool>;
    fn run<B: Complete<f64> + Complete<f32> + Narrow>(self, device: &B) -> Result<bool> {
        match self.args.precision {
            SolvePrecision::F64 => solve::<f64, B>(&self, device, iterate::solve),
            SolvePrecision::F32 => solve::<f32, B>(&self, device, iterate::solve),
            SolvePrecision::Mixed => solve::<f64, B>(&self, device, mixed::solve),
            SolvePrecision::Refined => solve::<f64, B>(&self, device, refined::solve),
        }
    }
}

/// An iterative solve of some kind.
type Iterate<T, B> = fn(Problem<T>, &Plan, &B, &mut Seconds) -> Result<Ending<T>>;

fn solve<T: Factorable, B: Complete<T>>(job: &Job<'_>, device: &B, iterate: Iterate<T, B>) -> Result<bool> {
    let &Job { args, targets, .. } = job;
    let mut seconds = Seconds { open: job.open, ..Seconds::default() };
    let mut lap = Lap::start();
    let a = input::matrix::<T>(&args.matrix)?;
    let b = problem::right_hand_side(args, &a)?;
    let x0 = problem::first_guess(args, &a)?;
    lap.add_to(&mut seconds.read);

    let spinner = Spinner::start("analysing the matrix");
    let survey = Survey::of(&a);
    let mut plan = Plan::make(args, &a, &survey)?;
    if plan.solver == Method::Direct && wants_gpu(args) {
        return Err(direct_on_a_gpu());
    }
    let matrix = MatrixReport {
        name: input::name(&args.matrix).to_string(),
        nrows: a.nrows(),
        ncols: a.ncols(),
        nnz: a.nnz(),
        symmetric: plan.symmetric,
    };
    let not_finite = survey.not_finite.map(|at| input::not_finite_at(&a, at));
    let not_finite = not_finite.or_else(|| problem::first_not_finite("b", &b));
    let guess = x0.as_deref().filter(|_| plan.solver != Method::Direct);
    let not_finite = not_finite.or_else(|| guess.and_then(|x0| problem::first_not_finite("x0", x0)));
    let problem = Problem::renumbered(args.reorder, a, b, x0)?;
    let survey = if problem.is_renumbered() { Survey::of(&problem.a) } else { survey };
    plan.choose_blocks(&problem.a)?;
    plan.choose_multigrid(args, &problem.a, job.machine);
    plan.choose_format(args, (&problem.a, &survey), device, job.machine)?;
    drop(survey);
    lap.add_to(&mut seconds.analyze);

    let second = plan.second().map(|second| (second, problem.clone()));
    let mut ending = match (not_finite, plan.solver) {
        (Some(why), solver) => Ending::without_answer(Status::NotFinite, why, solver),
        (None, Method::Direct) => direct::solve(problem, &plan, &mut seconds)?,
        (None, _) => iterate(problem, &plan, device, &mut seconds)?,
    };
    if let Some((second, problem)) = second.filter(|_| ending.came_to_nothing()) {
        let first = std::mem::replace(&mut ending, iterate(problem, &second, device, &mut seconds)?);
        ending.took_over(&first, &plan);
    }
    drop(spinner);
    seconds.total = job.begin.elapsed().as_secs_f64();

    let forward_error = match &ending.x {
        Some(x) if args.rhs == "from-solution" => Some(problem::error_against_ones(x)),
        _ => None,
    };
    // A factorisation is the host's work, whatever device `auto` had opened.
    let on_host = backend::Why::new("a direct solve is the host's work");
    let (backend, described, why) = match plan.solver {
        Method::Direct => (Cpu::NAME, Cpu::new().describe(), &on_host),
        _ => (B::NAME, device.describe(), job.why),
    };
    let narrow =
        ending.narrow_bytes.map(|bytes| format!("; stored in f32, which holds every value: {}", input::bytes(bytes)));
    let format_why = plan.format_why.clone() + narrow.as_deref().unwrap_or_default();
    let mut report = Report {
        least_squares: matrix.nrows != matrix.ncols,
        matrix,
        backend,
        device: described,
        backend_why: why.short,
        n_threads: rayon::current_num_threads(),
        format: plan.format,
        solver: ending.solver.as_str(),
        precond: ending
            .precond_fallback
            .as_ref()
            .map_or_else(|| plan.precond.to_string(), |fallback| fallback.to.clone()),
        factor: ending.factor,
        precision: args.precision.as_str(),
        reorder: plan.reorder,
        reproducible: args.reproducible,
        rhs: &args.rhs,
        status: ending.status.as_str(),
        message: ending.note.take(),
        iterations: ending.iterations,
        restarts: ending.restarts,
        residual: ending.residual,
        true_residual: ending.true_residual,
        forward_error,
        rtol: plan.rtol,
        atol: args.atol,
        max_iters: plan.max_iters,
        seconds,
        peak_memory_bytes: memory::peak_bytes(),
        fallback: ending.fallback.take(),
        precond_fallback: ending.precond_fallback.take(),
        why: Why { backend: &why.full, solver: &plan.solver_why, precond: &plan.precond_why, format: &format_why },
        history: &ending.history,
        error: None,
    };
    // The answer is said even where a file cannot take it.
    let (written, failure) = write_files(targets, &report, ending.x.as_deref());
    report.error = failure.as_ref().map(|failure| ErrorReport { kind: failure.kind, message: failure.message.clone() });
    if args.json {
        output::print_json(&report)?;
    } else {
        output::report(&report.text(args, &written), targets.stdout_is_taken())?;
    }
    match failure {
        Some(failure) => Err(Failure { object_printed: args.json, ..failure }),
        None => Ok(ending.status.is_converged()),
    }
}

/// Writes every file that can be: what was written where, and the failures in one.
fn write_files<T: Factorable>(
    targets: &Targets,
    report: &Report<'_>,
    x: Option<&[T]>,
) -> (Vec<(&'static str, String)>, Option<Failure>) {
    let mut written = Vec::new();
    let mut failure: Option<Failure> = None;
    let mut note = |what, target: &Target, write: &dyn Fn(&Target) -> Result<()>| {
        let _spinner = Spinner::start(format!("writing {}", target.name()));
        match (write(target), &mut failure) {
            (Ok(()), _) => written.push((what, target.name())),
            (Err(next), None) => failure = Some(next),
            (Err(next), Some(first)) => first.message = format!("{}; {}", first.message, next.message),
        }
    };
    if let Some(target) = &targets.out {
        let vector = |x: &[T], sink: Sink<'_>| match sink {
            Sink::File(path) => Ok(matrix_market::write_vector(path, x)?),
            Sink::Stdout(stdout) => Ok(matrix_market::write_vector_to(stdout, x)?),
        };
        match x {
            Some(x) => note("x", target, &|target| target.write_with(|sink| vector(x, sink))),
            None => progress::note(&format!("{} is not written, there is no x", target.name())),
        }
    }
    if let Some(target) = &targets.history {
        note("history", target, &|target| target.write(report::csv(report.history).as_bytes()));
    }
    if let Some(target) = &targets.plot {
        let plot = Convergence {
            title: &report.matrix.name,
            subtitle: &report.subtitle(),
            history: report.history,
            goal: report.rtol,
        };
        note("plot", target, &|target| plot.svg().and_then(|svg| target.write(svg.as_bytes())));
    }
    (written, failure)
}
