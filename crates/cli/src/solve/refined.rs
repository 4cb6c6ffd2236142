//! Iterative refinement: the iterative solve in f32, residuals and x in f64.
//!
//! Cost: the f64 matrix stays beside the f32 one, in CSR, for the residuals; the iteration reads the f32 one in the chosen format.

use std::sync::Arc;

use spandrel::any::EveryFormat;
use spandrel::backend::{Backend, MixedPrecision, Spmv};
use spandrel::backend_cpu::Cpu;
use spandrel::incomplete::Incomplete;
use spandrel::multigrid::Geometric;
use spandrel::solvers::{self, BiCgStab, Cg, Narrowed, Options, Outcome, Refine, SolverKind, Watcher};
use spandrel::{Csr, Device, Format, Mat, Preconditioner};

use super::iterate::{gmres, in_format, options, preconditioned, run, store, watched};
use super::plan::Plan;
use super::precond::{Made, make};
use super::problem::{Problem, restore};
use super::{Ending, Lap, Seconds, judge};
use crate::failure::Result;
use crate::interrupt;

pub(super) fn solve<B>(mut problem: Problem<f64>, plan: &Plan, device: &B, seconds: &mut Seconds) -> Result<Ending<f64>>
where
    B: EveryFormat<f32> + Spmv<Csr<f64>> + Incomplete<f32> + Geometric<f32> + MixedPrecision,
{
    let mut lap = Lap::start();
    let perm = problem.take_permutation();
    let Narrowed { matrix, exponent } = Narrowed::new(&problem.a);
    let matrix = Arc::new(matrix);
    lap.add_to(&mut seconds.analyze);
    let Made { m, factor, fallback } = match make(device, &matrix, plan)? {
        Ok(made) => made,
        Err(error) => return judge(Err(error), plan.solver),
    };
    lap.add_to(&mut seconds.setup);
    let narrow = (Arc::unwrap_or_clone(matrix), exponent, m);
    let ending = spandrel_formats::for_each_format!(
        in_format,
        (f32, plan.format, solve_in, (problem, narrow, plan, device, seconds))
    )?;
    let mut ending = preconditioned(ending, factor, fallback);
    ending.x = ending.x.map(|x| restore(perm.as_ref(), x)).transpose()?;
    Ok(ending)
}

fn solve_in<F: Format<Value = f32>, B: Spmv<F> + Spmv<Csr<f64>> + MixedPrecision>(
    problem: Problem<f64>,
    (matrix, exponent, m): (Csr<f32>, i32, Box<dyn Preconditioner<f32, B>>),
    plan: &Plan,
    device: &B,
    seconds: &mut Seconds,
) -> Result<Ending<f64>> {
    let mut lap = Lap::start();
    let stored: F = store(matrix)?;
    lap.add_to(&mut seconds.analyze);
    let Problem { a, b, x0, .. } = problem;
    let narrow = Mat::<B, F>::load(device, stored)?;
    let wide = Mat::<B, Csr<f64>>::load(device, a)?;
    let n = wide.nrows();
    let b_device = Backend::<f64>::upload(device, &b)?;
    drop(b);
    device.synchronize()?;
    lap.add_to(&mut seconds.load);

    let refine = |solver, options: &Options, watcher: Watcher<'_>, x: &mut <B as Backend<f64>>::Vector| {
        let mut refine = Refine::new(device, n)?;
        let outcome: solvers::Result<Outcome> = match solver {
            SolverKind::Cg => {
                let mut cg = Cg::<f32, B>::new(device, n)?;
                let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
                    cg.solve_watched(be, &narrow, &m, r, d, options, watcher)
                };
                refine.solve_watched(device, &wide, exponent, inner, &b_device, x, options, watcher)
            }
            SolverKind::Gmres => {
                let mut gmres = gmres::<f32, B>(device, n, plan.restart)?;
                let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
                    gmres.solve_watched(be, &narrow, &m, r, d, options, watcher)
                };
                refine.solve_watched(device, &wide, exponent, inner, &b_device, x, options, watcher)
            }
            _ => {
                let mut bicgstab = BiCgStab::<f32, B>::new(device, n)?;
                let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
                    bicgstab.solve_watched(be, &narrow, &m, r, d, options, watcher)
                };
                refine.solve_watched(device, &wide, exponent, inner, &b_device, x, options, watcher)
            }
        };
        outcome
    };
    if B::NAME != <Cpu as Device>::NAME {
        // Kernels are loaded when they are first asked for: the time of the solve is then the solve's. What goes wrong here goes wrong there.
        let few = Options { rtol: 0.0, atol: 0.0, max_iters: Some(2), history: false, ..Options::default() };
        let mut x = Backend::<f64>::zeros(device, n)?;
        let _ = refine(plan.solver, &few, &mut |_| std::ops::ControlFlow::Continue(()), &mut x);
        device.synchronize()?;
        lap.add_to(&mut seconds.setup);
    }

    interrupt::listen()?;
    let ending = run(plan, |solver| {
        let mut x = match x0.as_deref() {
            Some(x0) => Backend::<f64>::upload(device, x0)?,
            None => Backend::<f64>::zeros(device, n)?,
        };
        let outcome = watched(solver, plan, |watcher| refine(solver, &options(plan), watcher, &mut x))?;
        Ok(Ending::new(outcome, Backend::<f64>::download(device, &x)?, solver))
    });
    lap.add_to(&mut seconds.solve);
    judge(ending, plan.solver)
}
