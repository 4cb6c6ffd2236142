//! The iterative solve: the format, the preconditioner, the method, and the one fallback of `auto`.

use std::any::Any;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use spandrel::any::EveryFormat;
use spandrel::backend::{Backend, Device, Spmv};
use spandrel::backend_cpu::Cpu;
use spandrel::incomplete::Incomplete;
use spandrel::multigrid::Geometric;
use spandrel::solvers::{
    self, BiCgStab, Cg, Gmres, GmresOptions, Options, Outcome, Progress, SolverKind, Status, Watcher,
};
use spandrel::{Csr, Format, Mat, Operator, Preconditioner, Real};

use super::plan::Plan;
use super::precond::{FactorReport, Made, PrecondFallback, make};
use super::problem::{Problem, restore};
use super::{Ending, Fallback, Lap, Seconds, judge};
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::progress::Descent;

macro_rules! in_format {
    ([($T:ty, $name:expr, $run:ident, $args:tt)] $(($stem:ident, $Type:ident)),*) => {
        match $name {
            $(stringify!($stem) => in_format!(@call $run, spandrel_formats::$Type<$T>, $args),)*
            other => Err($crate::failure::Failure::new("unsupported", format!("there is no format {other:?}"))),
        }
    };
    (@call $run:ident, $Format:ty, ($($arg:expr),*)) => { $run::<$Format, _>($($arg),*) };
}

pub(super) use in_format;

/// What makes the preconditioner of a matrix.
pub(super) type Maker<'a, T, B> = dyn Fn(&Arc<Csr<T>>) -> Result<solvers::Result<Made<T, B>>> + 'a;

pub(super) fn solve<T: Real, B: EveryFormat<T> + Incomplete<T> + Geometric<T>>(
    problem: Problem<T>,
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
) -> Result<Ending<T>> {
    solve_with(problem, plan, device, seconds, &|a| make(device, a, plan))
}

/// As [`solve`] with a preconditioner that `maker` makes.
pub(super) fn solve_with<T: Real, B: EveryFormat<T>>(
    problem: Problem<T>,
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
    maker: &Maker<'_, T, B>,
) -> Result<Ending<T>> {
    spandrel_formats::for_each_format!(in_format, (T, plan.format, solve_in, (problem, plan, device, seconds, maker)))
}

fn solve_in<F: Format, B: Spmv<F>>(
    mut problem: Problem<F::Value>,
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
    maker: &Maker<'_, F::Value, B>,
) -> Result<Ending<F::Value>> {
    let mut lap = Lap::start();
    let perm = problem.take_permutation();
    let Problem { a, b, x0, .. } = problem;
    let a = Arc::new(a);
    let Made { m, factor, fallback } = match maker(&a)? {
        Ok(made) => made,
        Err(error) => return judge(Err(error), plan.solver),
    };
    lap.add_to(&mut seconds.setup);
    // Nobody else has it: a preconditioner keeps no matrix.
    let stored: F = store(Arc::unwrap_or_clone(a))?;
    lap.add_to(&mut seconds.analyze);

    let a = Mat::load(device, stored)?;
    let b_device = device.upload(&b)?;
    drop(b);
    // Transfers that still run belong to this phase.
    device.synchronize()?;
    lap.add_to(&mut seconds.load);
    rehearse(device, &a, &m, &b_device, plan)?;
    lap.add_to(&mut seconds.setup);

    // From here on the watcher looks; until here, and in a direct solve, Ctrl-C ends the program at once.
    interrupt::listen()?;
    let ending = run(plan, |solver| attempt(device, &a, &m, &b_device, x0.as_deref(), plan, solver));
    lap.add_to(&mut seconds.solve);
    let mut ending = preconditioned(judge(ending, plan.solver)?, factor, fallback);
    ending.x = ending.x.map(|x| restore(perm.as_ref(), x)).transpose()?;
    Ok(ending)
}

/// Two iterations for nothing, where kernels are loaded when they are first asked for: the time of the solve is then the solve's.
fn rehearse<T: Real, B: Backend<T>, A: Operator<T, B>, M: Preconditioner<T, B>>(
    device: &B,
    a: &A,
    m: &M,
    b: &B::Vector,
    plan: &Plan,
) -> Result<()> {
    let (nrows, ncols) = a.shape();
    if B::NAME == <Cpu as Device>::NAME || nrows != ncols {
        return Ok(());
    }
    let options = Options { rtol: 0.0, atol: 0.0, max_iters: Some(2), history: false, ..Options::default() };
    let mut x = device.zeros(ncols)?;
    // What goes wrong here goes wrong in the solve too, which says so.
    let _ = match plan.solver {
        SolverKind::Cg => Cg::new(device, ncols)?.solve(device, a, m, b, &mut x, &options),
        SolverKind::Gmres => gmres(device, ncols, 2)?.solve(device, a, m, b, &mut x, &options),
        _ => BiCgStab::new(device, ncols)?.solve(device, a, m, b, &mut x, &options),
    };
    Ok(device.synchronize()?)
}

/// `a` in format `F`; CSR itself is moved, every other format drops it once it has what it needs.
pub(super) fn store<F: Format>(a: Csr<F::Value>) -> Result<F> {
    let boxed: Box<dyn Any> = Box::new(a);
    let boxed = match boxed.downcast::<F>() {
        Ok(same) => return Ok(*same),
        Err(boxed) => boxed,
    };
    match boxed.downcast_ref::<Csr<F::Value>>() {
        Some(csr) => Ok(F::from_csr(csr)?),
        None => Err(Failure::new("unsupported", format!("{} cannot be made from this matrix", F::NAME))),
    }
}

/// What the solve `ending` had as preconditioner: its factors, and whether it stood for another.
pub(super) fn preconditioned<T>(
    mut ending: Ending<T>,
    factor: Option<FactorReport>,
    fallback: Option<PrecondFallback>,
) -> Ending<T> {
    ending.factor = factor;
    if let Some(fallback) = &fallback {
        let switch = format!("{} failed ({}), so {} took its place", fallback.from, fallback.why, fallback.to);
        ending.note = Some(joined(switch, ending.note.take()));
    }
    ending.precond_fallback = fallback;
    ending
}

pub(super) fn gmres<T: Real, B: Backend<T>>(device: &B, n: usize, restart: usize) -> solvers::Result<Gmres<T, B>> {
    Gmres::with(device, n, &GmresOptions { restart, ..GmresOptions::default() })
}

/// Two notes as one.
fn joined(first: String, second: Option<String>) -> String {
    match second {
        Some(second) => format!("{first}; {second}"),
        None => first,
    }
}

/// What `auto` goes on with after a method that ended so.
fn successor(solver: SolverKind, status: Status) -> Option<SolverKind> {
    match (solver, status) {
        (SolverKind::Cg, Status::IndefiniteMatrix | Status::IndefinitePreconditioner) => Some(SolverKind::BiCgStab),
        (SolverKind::BiCgStab, Status::Breakdown | Status::Diverged) => Some(SolverKind::Gmres),
        _ => None,
    }
}

/// The method, and once the next after one that does not suit the matrix, if `auto` chose it.
pub(super) fn run<T>(
    plan: &Plan,
    attempt: impl Fn(SolverKind) -> solvers::Result<Ending<T>>,
) -> solvers::Result<Ending<T>> {
    let first = attempt(plan.solver)?;
    let Some(next) = successor(plan.solver, first.status).filter(|_| plan.solver_is_auto) else { return Ok(first) };
    let mut second = attempt(next)?;
    let switch = format!(
        "{} ended as {} after {} iterations, so {} took over",
        first.solver.as_str(),
        first.status.as_str(),
        first.iterations,
        second.solver.as_str()
    );
    drop(writeln!(std::io::stderr(), "note: {switch}"));
    second.note = Some(joined(switch, second.note.take()));
    second.fallback =
        Some(Fallback { from: first.solver.as_str(), status: first.status.as_str(), iterations: first.iterations });
    Ok(second)
}

fn attempt<T: Real, B: Backend<T>, A: Operator<T, B>, M: Preconditioner<T, B>>(
    device: &B,
    a: &A,
    m: &M,
    b: &B::Vector,
    x0: Option<&[T]>,
    plan: &Plan,
    solver: SolverKind,
) -> solvers::Result<Ending<T>> {
    let n = a.shape().0;
    let mut x = match x0 {
        Some(x0) => device.upload(x0)?,
        None => device.zeros(n)?,
    };
    let options = options(plan);
    let outcome = watched(solver, plan, |watcher| match solver {
        SolverKind::Cg => Cg::new(device, n)?.solve_watched(device, a, m, b, &mut x, &options, watcher),
        SolverKind::Gmres => gmres(device, n, plan.restart)?.solve_watched(device, a, m, b, &mut x, &options, watcher),
        _ => BiCgStab::new(device, n)?.solve_watched(device, a, m, b, &mut x, &options, watcher),
    })?;
    Ok(Ending::new(outcome, device.download(&x)?, solver))
}

/// What the plan asks of a solve.
pub(super) fn options(plan: &Plan) -> Options {
    Options {
        rtol: plan.rtol,
        atol: plan.atol,
        max_iters: Some(plan.max_iters),
        check_every: plan.check_every,
        stagnation: plan.stagnation,
        ..Options::default()
    }
}

/// Runs a solve with a watcher that shows how far it is and breaks off where that was asked for.
pub(super) fn watched(
    solver: SolverKind,
    plan: &Plan,
    solve: impl FnOnce(Watcher<'_>) -> solvers::Result<Outcome>,
) -> solvers::Result<Outcome> {
    let mut bar = Descent::start(solver.as_str(), plan.rtol);
    solve(&mut |progress: Progress| {
        bar.show(progress.iterations, progress.residual);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}
