//! `spandrel solve`: reads, lets [`spandrel::DeviceSolver`] choose and solve, and reports.
//!
//! Cost: the matrix, at most one copy of it (in the chosen format, renumbered, or under factorisation), and the factors
//! of a preconditioner. What they were made from is dropped before the iteration begins.

mod columns;
mod problem;
mod ranks;
mod report;
mod watch;

use std::time::Instant;

use serde::Serialize;
use spandrel::any::{Choice, Complete, Task};
use spandrel::backend::Narrow;
use spandrel::ranks::RankPrecond;
use spandrel::solver::{
    Builder, Element, Fallback, FormatChoice, NullVectors, Precision, Reorder, Settings, SolverBackend, Times,
};
use spandrel::solvers::Status;
use spandrel::{Error, Method};
use spandrel_formats::{Dense, matrix_market};

use crate::args::{Accept, BackendName, SolveArgs, SolvePrecision};
use crate::failure::{Failure, Result};
use crate::output::{self, Sink, Target};
use crate::plot::Convergence;
use crate::progress::Spinner;
use crate::{backend, input};
pub(crate) use problem::random;
use report::{ErrorReport, Report};

/// Seconds of each phase. `open`: the device. `read`: file or generator. `analyze`: structure, choices, renumbering.
/// `load`: onto the device in the format of the solve, until it is there. `setup`: preconditioner, kernels,
/// factorisation. `solve`: the iteration with its last residual.
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

impl Seconds {
    fn add(&mut self, times: Times) {
        self.analyze += times.analyze;
        self.load += times.load;
        self.setup += times.setup;
        self.solve += times.solve;
    }
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

/// Runs the command. Returns whether the system was solved.
///
/// # Errors
/// Anything that stops a solve from beginning or its results from being written. Not converging is not an error.
pub(crate) fn run(args: &SolveArgs) -> Result<bool> {
    // Among processes, rank 0 writes.
    let (out, history, plot) = match ranks::follows(args) {
        true => (None, None, None),
        false => (args.out.as_ref(), args.history.as_ref(), args.plot.as_ref()),
    };
    let targets = Targets {
        out: Target::check_optional(out)?,
        history: Target::check_optional(history)?,
        plot: Target::check_optional(plot)?,
    };
    let outputs =
        [("--out", targets.out.as_ref()), ("--history", targets.history.as_ref()), ("--plot", targets.plot.as_ref())];
    let rhs = problem::rhs_file(args);
    let inputs = [("MATRIX", input::file(&args.matrix)), ("--rhs", rhs), ("--x0", args.x0.as_deref())];
    output::distinct(&outputs, &inputs, args.json)?;
    let begin = Instant::now();
    if let Some(ranks) = ranks::wanted(args)? {
        return ranks::run(ranks, args, &targets, begin);
    }
    if let Some(within) = args.precond.filter(|precond| precond.same().is_none()) {
        return Err(Failure::new(
            "unsupported",
            format!(
                "{within} is for several ranks; add --ranks K or --gpus K, or use a preconditioner of one device such as ic0 or ilu0"
            ),
        ));
    }
    let is_direct = args.solver == Some(Method::Direct) || args.least_squares;
    let opened = match (is_direct, args.backend) {
        // Report a number together with the CPU first.
        (true, name) if name != BackendName::Cpu && wants_gpu(args) => return Err(direct_on_a_gpu()),
        (true, _) => backend::open(BackendName::Cpu, args.device)?,
        (false, name) => backend::open(name, args.device)?,
    };
    let device = opened.device.with_reproducible(args.reproducible);
    device.run(Job { args, targets: &targets, begin, open: begin.elapsed().as_secs_f64(), why: &opened.why })
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

/// What the command line asks of the solver.
fn settings(args: &SolveArgs) -> Settings {
    let mut settings = Settings::default();
    settings.method = args.solver;
    settings.preconditioner = args.precond.and_then(RankPrecond::same);
    settings.format = args.format;
    settings.precision = match args.precision {
        SolvePrecision::F64 | SolvePrecision::F32 => Precision::Native,
        SolvePrecision::Mixed => Precision::Mixed,
        SolvePrecision::Refined => Precision::Refined,
    };
    settings.reorder = args.reorder;
    settings.scale = args.scale;
    settings.least_squares = args.least_squares;
    settings.null_space = args.null_space;
    settings.rtol = args.rtol;
    settings.atol = args.atol;
    settings.max_iterations = args.max_iters;
    settings.check_every = args.check_every;
    settings.stagnation = args.stagnation;
    settings.restart = args.restart;
    settings.reproducible = args.reproducible;
    settings.updatable = false;
    settings.fallback = if args.no_fallback { Fallback::None } else { Fallback::Auto };
    settings.device = match (args.backend, args.device) {
        (_, Some(number)) => Choice::Gpu(number),
        (BackendName::Auto, None) => Choice::Auto,
        (BackendName::Cpu, None) => Choice::Cpu,
        (BackendName::Cuda, None) => Choice::Cuda,
    };
    settings
}

/// A solve, for whichever device it runs on.
struct Job<'a> {
    args: &'a SolveArgs,
    targets: &'a Targets,
    begin: Instant,
    /// Seconds until the device was open.
    open: f64,
    why: &'a backend::Why,
}

impl Task for Job<'_> {
    type Output = Result<bool>;
    fn run<B: Complete<f64> + Complete<f32> + Narrow>(self, device: &B) -> Result<bool> {
        match self.args.precision {
            SolvePrecision::F32 => solve::<f32, B>(&self, device),
            SolvePrecision::F64 | SolvePrecision::Mixed | SolvePrecision::Refined => solve::<f64, B>(&self, device),
        }
    }
}

fn solve<T: Element, B: SolverBackend<T>>(job: &Job<'_>, device: &B) -> Result<bool> {
    let &Job { args, targets, .. } = job;
    let start = Instant::now();
    let a = input::matrix::<T>(&args.matrix)?;
    let b = problem::right_hand_side(args, &a)?;
    let x0 = problem::first_guess(args, &a, b.ncols())?;
    let mut seconds = Seconds { open: job.open, read: start.elapsed().as_secs_f64(), ..Seconds::default() };

    let mut settings = settings(args);
    settings.near_null = problem::near_null(args, &a)?;
    let builder = Builder::new(settings).on_progress(watch::watcher());
    let planned = builder.plan_on(device, a).map_err(|error| about(args, error))?.because(job.why.short);
    let mut plan = planned.plan().clone();
    if plan.method == Method::Direct && wants_gpu(args) {
        return Err(direct_on_a_gpu());
    }
    let planned_times = planned.times();
    let mut narrow = None;
    let (solved, refused) = match columns::not_finite(&b, x0.as_ref()) {
        Some(why) => (None, Some((Status::NotFinite, why))),
        None => {
            let solved = planned.build_on(device).and_then(|mut solver| {
                seconds.add(solver.setup_times());
                narrow = solver.narrow_bytes(device);
                let solved = columns::solve(&mut solver, device, &b, x0.as_ref());
                plan = solver.plan().clone();
                solved
            });
            // An error of the solver that has a status is an end like others; the rest are failures.
            match solved {
                Ok(solved) => (Some(solved), None),
                Err(error) => match error.status() {
                    Some(status) => (None, Some((status, error.to_string()))),
                    None => return Err(about(args, error)),
                },
            }
        }
    };
    match &solved {
        Some(solved) => {
            seconds.add(solved.times);
            if let [only] = &solved.columns[..] {
                plan.method = only.method;
            }
        }
        None if seconds.analyze == 0.0 => seconds.add(planned_times),
        None => {}
    }
    seconds.total = job.begin.elapsed().as_secs_f64();
    if let Some(bytes) = narrow {
        plan.format_why.push_str(&format!("; stored in f32, which holds every value: {}", input::bytes(bytes)));
    }

    let forward_error = match &solved {
        Some(solved) if args.rhs == "from-solution" => Some(problem::error_against_ones(solved.x.values())),
        _ => None,
    };
    let (status, message) = match (&solved, refused) {
        (Some(solved), _) => (solved.status(), None),
        (None, Some((status, why))) => (status, Some(why)),
        (None, None) => (Status::NotFinite, None),
    };
    let found = solved.as_ref().map_or(&[][..], |solved| &solved.columns);
    let mut report = Report::new(args, &plan, found, status, seconds);
    report.forward_error = forward_error;
    if message.is_some() {
        report.message = message;
    }
    if plan.backend != "cpu" || plan.method != Method::Direct {
        report.why.backend = &job.why.full;
    }
    let start = match (&solved, &targets.out) {
        (None, Some(out)) => {
            if let Some(message) = &mut report.message {
                let what = if x0.is_some() { "x0" } else { "x0 = 0" };
                message.push_str(&format!("; nothing was iterated, so {} gets {what}", out.name()));
            }
            Some(match x0 {
                Some(x0) => x0,
                None => Dense::new(plan.ncols, b.ncols(), vec![T::zero(); plan.ncols * b.ncols()])?,
            })
        }
        _ => None,
    };
    // Print the answer even if a file cannot take it.
    let x = solved.as_ref().map(|solved| &solved.x).or(start.as_ref());
    let (written, failure) = write_files(targets, &report, x);
    report.error = failure.as_ref().map(|failure| ErrorReport { kind: failure.kind, message: failure.message.clone() });
    if args.json {
        output::print_json(&report)?;
    } else {
        output::report(&report.text(args, &plan, b.ncols(), &written), targets.stdout_is_taken())?;
    }
    match failure {
        Some(failure) => Err(Failure { object_printed: args.json, ..failure }),
        None => Ok(status.is_converged() || (args.accept == Accept::Backward && status == Status::BackwardStable)),
    }
}

/// A solver's refusal, with the options that the command line has for it.
fn about(args: &SolveArgs, error: Error) -> Failure {
    match error {
        Error::NotSquare { nrows, ncols, .. } if !matches!(args.reorder, None | Some(Reorder::None)) => Failure::new(
            "not_square",
            format!(
                "--reorder needs a square matrix, {} is {nrows} x {ncols}; leave it out",
                input::name(&args.matrix)
            ),
        ),
        Error::NotSquare { solver, nrows, ncols } => Failure::new(
            "not_square",
            format!(
                "{solver} needs a square matrix, {} is {nrows} x {ncols}; --solver direct solves least squares",
                input::name(&args.matrix)
            ),
        ),
        error @ (Error::Unsupported { .. } | Error::NotReproducible { .. }) => {
            let mut failure = Failure::from(error);
            let given = given(args);
            if !given.is_empty() {
                failure.message.push_str(&format!(" (given: {})", given.join(", ")));
            }
            failure
        }
        error => error.into(),
    }
}

/// The options that name a choice, as the user wrote them.
fn given(args: &SolveArgs) -> Vec<&'static str> {
    let options = [
        ("--solver", args.solver.is_some()),
        ("--precond", args.precond.is_some()),
        ("--format", args.format != FormatChoice::Auto),
        ("--scale", args.scale.is_some()),
        ("--least-squares", args.least_squares),
        ("--null-space", args.null_space != NullVectors::None),
        ("--near-null-space", args.near_null_space.is_some()),
        ("--coordinates", args.coordinates.is_some()),
        ("--precision", args.precision != SolvePrecision::F64),
        ("--restart", args.restart.is_some()),
        ("--stagnation", args.stagnation.is_some()),
        ("--reproducible", args.reproducible),
    ];
    options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect()
}
/// Writes every file that can be: what was written where, and the failures in one.
fn write_files<T: Element>(
    targets: &Targets,
    report: &Report<'_>,
    x: Option<&Dense<T>>,
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
        let array = |x: &Dense<T>, sink: Sink<'_>| match sink {
            Sink::File(path) => Ok(matrix_market::write_dense(path, x)?),
            Sink::Stdout(stdout) => Ok(matrix_market::write_dense_to(stdout, x)?),
        };
        if let Some(x) = x {
            note("x", target, &|target| target.write_with(|sink| array(x, sink)));
        }
    }
    if let Some(target) = &targets.history {
        note("history", target, &|target| target.write(report::csv(&report.histories()).as_bytes()));
    }
    if let Some(target) = &targets.plot {
        let plot = Convergence {
            title: &report.matrix.name,
            subtitle: &report.subtitle(),
            histories: &report.histories(),
            goal: report.rtol,
        };
        note("plot", target, &|target| plot.svg().and_then(|svg| target.write(svg.as_bytes())));
    }
    (written, failure)
}
