//! The iterative solve: the format, the preconditioner, the method, and the one fallback of `auto`.

use std::any::Any;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use spandrel::any::{EveryFormat, EveryMethod};
use spandrel::backend::{self, Backend, Device, Load, Spmv};
use spandrel::backend_cpu::Cpu;
use spandrel::incomplete::Incomplete;
use spandrel::multigrid::Geometric;
use spandrel::rows::Rows;
use spandrel::solvers::{self, BiCgStab, Cg, Gmres, GmresOptions, Method, Options, Outcome, Progress, Status, Watcher};
use spandrel::{Csr, Format, Mat, Operator, Preconditioner, Real};

use super::plan::Plan;
use super::precond::{FactorReport, Given, Made, PrecondFallback, make};
use super::problem::{Problem, restore};
use super::report::counted;
use super::{Ending, Fallback, Lap, Seconds, judge};
use crate::failure::{Failure, Result};
use crate::interrupt::{self, Looking};
use crate::progress::{self, Descent};

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
pub(super) type Maker<'a, T, B> = dyn Fn(&Supply<T, B>) -> Result<solvers::Result<Made<T, B>>> + 'a;

pub(super) fn solve<T: Real, B: EveryFormat<T> + EveryMethod<T> + Rows<T> + Incomplete<T> + Geometric<T>>(
    problem: Problem<T>,
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
) -> Result<Ending<T>> {
    solve_with(problem, plan, device, seconds, &|a| make(device, a, plan))
}

/// As [`solve`] with a preconditioner that `maker` makes.
pub(super) fn solve_with<T: Real, B: EveryFormat<T> + EveryMethod<T> + Rows<T>>(
    problem: Problem<T>,
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
    maker: &Maker<'_, T, B>,
) -> Result<Ending<T>> {
    spandrel_formats::for_each_format!(in_format, (T, plan.format, solve_in, (problem, plan, device, seconds, maker)))
}

fn solve_in<F: Format, B: Spmv<F> + EveryMethod<F::Value> + Rows<F::Value>>(
    mut problem: Problem<F::Value>,
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
    maker: &Maker<'_, F::Value, B>,
) -> Result<Ending<F::Value>> {
    let mut lap = Lap::start();
    let perm = problem.take_permutation();
    let Problem { a, b, x0, .. } = problem;
    let supply = Supply::new(a);
    progress::say(format!("making the preconditioner {}", plan.precond));
    let Made { m, factor, fallback } = match maker(&supply)? {
        Ok(made) => made,
        Err(error) => return judge(Err(error), plan.solver),
    };
    lap.add_to(&mut seconds.setup);
    progress::say(format!("storing the matrix as {} and loading it", plan.format));
    let a = supply.stored::<F>(device, &mut lap, seconds)?;
    let b_device = device.upload(&b)?;
    drop(b);
    // Transfers that still run belong to this phase.
    device.synchronize()?;
    lap.add_to(&mut seconds.load);
    rehearse(device, &a, &m, &b_device, plan)?;
    lap.add_to(&mut seconds.setup);

    let ending = run(plan, |solver| attempt(device, &a, &m, &b_device, x0.as_deref(), plan, solver));
    lap.add_to(&mut seconds.solve);
    let mut ending = preconditioned(judge(ending, plan.solver)?, factor, fallback);
    ending.x = ending.x.map(|x| restore(perm.as_ref(), x)).transpose()?;
    ending.narrow_bytes = a.is_narrow(device).then(|| a.spmv_bytes());
    Ok(ending)
}

/// Two iterations for nothing, where kernels are loaded when they are first asked for: the time of the solve is then the solve's.
fn rehearse<T: Real, B: EveryMethod<T>, A: Operator<T, B>, M: Preconditioner<T, B>>(
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
    let options = Options { rtol: Some(0.0), atol: 0.0, max_iters: Some(2), history: false, ..Options::default() };
    let mut x = device.zeros(ncols)?;
    // What goes wrong here goes wrong in the solve too, which says so.
    let _ = match plan.solver {
        Method::Cg => Cg::new(device, ncols)?.solve(device, a, m, b, &mut x, &options),
        Method::Gmres => gmres(device, ncols, 2)?.solve(device, a, m, b, &mut x, &options),
        _ => BiCgStab::new(device, ncols)?.solve(device, a, m, b, &mut x, &options),
    };
    Ok(device.synchronize()?)
}

/// A matrix of the host, and its rows on the device from when they are first asked for there.
pub(super) struct Supply<T: Real, B: Load<Csr<T>>> {
    host: Arc<Csr<T>>,
    rows: RefCell<Option<Rc<Mat<B, Csr<T>>>>>,
}

impl<T: Real, B: Load<Csr<T>>> Supply<T, B> {
    pub(super) fn new(host: impl Into<Arc<Csr<T>>>) -> Self {
        Self { host: host.into(), rows: RefCell::new(None) }
    }

    pub(super) fn into_host(self) -> Arc<Csr<T>> {
        self.host
    }
}

impl<T: Real, B: Load<Csr<T>>> Given<T, B> for Supply<T, B> {
    fn host(&self) -> &Arc<Csr<T>> {
        &self.host
    }
    fn rows(&self, device: &B) -> backend::Result<Rc<Mat<B, Csr<T>>>> {
        if let Some(rows) = &*self.rows.borrow() {
            return Ok(Rc::clone(rows));
        }
        let rows = Rc::new(Mat::load(device, Arc::clone(&self.host))?);
        *self.rows.borrow_mut() = Some(Rc::clone(&rows));
        Ok(rows)
    }
    fn free(&self) {
        self.rows.take();
    }
}

impl<T: Real, B: Load<Csr<T>>> Supply<T, B> {
    /// In format `F` on the device: made there where the device converts and has room for both, else made here.
    fn stored<F: Format<Value = T>>(self, device: &B, lap: &mut Lap, seconds: &mut Seconds) -> Result<Mat<B, F>>
    where
        B: Spmv<F> + Rows<T>,
    {
        if B::converts::<F>() {
            let rows = self.rows(device);
            lap.add_to(&mut seconds.load);
            self.free();
            let made = converted(device, rows);
            lap.add_to(&mut seconds.analyze);
            if let Some(made) = made? {
                unmapped_later(self.into_host());
                return Ok(made);
            }
        }
        let Self { host, rows } = self;
        // They may be the host's.
        drop(rows);
        // Nobody else has it as a rule: a preconditioner keeps no matrix.
        let stored: Arc<F> = store(host)?;
        lap.add_to(&mut seconds.analyze);
        Ok(Mat::load(device, stored)?)
    }
}

/// Format `F` of rows on the device that nothing else holds; [`None`] where that has no room for it, or no conversion.
pub(super) fn converted<F, B>(device: &B, rows: backend::Result<Rc<Mat<B, Csr<F::Value>>>>) -> Result<Option<Mat<B, F>>>
where
    F: Format,
    B: Spmv<F> + Rows<F::Value>,
{
    let made = rows.map(Rc::into_inner).and_then(|rows| match rows {
        Some(rows) => device.stored::<F>(rows),
        None => Ok(None),
    });
    match made {
        Err(backend::Error::OutOfMemory { .. }) => Ok(None),
        made => Ok(made?),
    }
}

/// Gives a large matrix's memory back beside the solve: page by page that takes tenths of a second.
pub(super) fn unmapped_later<A: Send + 'static>(host: A) {
    // Where no thread is to be had the closure is dropped here, and the matrix with it.
    drop(std::thread::Builder::new().spawn(move || drop(host)));
}

/// `a` in format `F`; CSR itself is shared, every other format drops it once it has what it needs.
pub(super) fn store<F: Format>(a: Arc<Csr<F::Value>>) -> Result<Arc<F>> {
    let boxed: Box<dyn Any + Send> = Box::new(a);
    let boxed = match boxed.downcast::<Arc<F>>() {
        Ok(same) => return Ok(*same),
        Err(boxed) => boxed,
    };
    match boxed.downcast_ref::<Arc<Csr<F::Value>>>() {
        Some(csr) => {
            let stored = F::from_csr(csr)?;
            unmapped_later(boxed);
            Ok(Arc::new(stored))
        }
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
pub(super) fn joined(first: String, second: Option<String>) -> String {
    match second {
        Some(second) => format!("{first}; {second}"),
        None => first,
    }
}

/// What `auto` goes on with after a method that ended so.
fn successor(solver: Method, status: Status) -> Option<Method> {
    match (solver, status) {
        (Method::Cg, Status::IndefiniteMatrix | Status::IndefinitePreconditioner) => Some(Method::BiCgStab),
        (Method::BiCgStab, Status::Breakdown | Status::Diverged) => Some(Method::Gmres),
        _ => None,
    }
}

/// The method, and once the next after one that does not suit the matrix, if `auto` chose it.
pub(super) fn run<T>(
    plan: &Plan,
    attempt: impl Fn(Method) -> solvers::Result<Ending<T>>,
) -> solvers::Result<Ending<T>> {
    let first = attempt(plan.solver)?;
    let Some(next) = successor(plan.solver, first.status).filter(|_| plan.solver_is_auto) else { return Ok(first) };
    let mut second = attempt(next)?;
    let switch = format!(
        "{} ended as {} after {}, so {} took over",
        first.solver.as_str(),
        first.status.as_str(),
        counted(first.iterations, "iteration"),
        second.solver.as_str()
    );
    progress::note(&switch);
    second.note = Some(joined(switch, second.note.take()));
    second.fallback =
        Some(Fallback { from: first.solver.as_str(), status: first.status.as_str(), iterations: first.iterations });
    Ok(second)
}

fn attempt<T: Real, B: EveryMethod<T>, A: Operator<T, B>, M: Preconditioner<T, B>>(
    device: &B,
    a: &A,
    m: &M,
    b: &B::Vector,
    x0: Option<&[T]>,
    plan: &Plan,
    solver: Method,
) -> solvers::Result<Ending<T>> {
    let n = a.shape().0;
    let mut x = match x0 {
        Some(x0) => device.upload(x0)?,
        None => device.zeros(n)?,
    };
    let options = options(plan);
    let outcome = watched(solver, plan, |watcher| match solver {
        Method::Cg => Cg::new(device, n)?.solve_watched(device, a, m, b, &mut x, &options, watcher),
        Method::Gmres => gmres(device, n, plan.restart)?.solve_watched(device, a, m, b, &mut x, &options, watcher),
        _ => BiCgStab::new(device, n)?.solve_watched(device, a, m, b, &mut x, &options, watcher),
    })?;
    Ok(Ending::new(outcome, device.download(&x)?, solver))
}

/// What the plan asks of a solve.
pub(super) fn options(plan: &Plan) -> Options {
    Options {
        rtol: Some(plan.rtol),
        atol: plan.atol,
        max_iters: Some(plan.max_iters),
        check_every: plan.check_every,
        stagnation: plan.stagnation,
        ..Options::default()
    }
}

/// Runs a solve with a watcher that shows how far it is and breaks off where that was asked for.
pub(super) fn watched(
    solver: Method,
    plan: &Plan,
    solve: impl FnOnce(Watcher<'_>) -> solvers::Result<Outcome>,
) -> solvers::Result<Outcome> {
    let mut bar = Descent::start(solver.as_str(), plan.rtol);
    let _looking = Looking::start();
    solve(&mut |progress: Progress| {
        bar.show(progress.iterations, progress.residual);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}
