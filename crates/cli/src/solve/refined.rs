//! Iterative refinement: the iterative solve in f32, residuals and x in f64.
//!
//! Cost: the f64 matrix stays beside the f32 one, in CSR, for the residuals; the iteration reads the f32 one in the chosen format.

use std::sync::Arc;

use spandrel::any::{EveryFormat, EveryMethod};
use spandrel::backend::{Backend, Narrow, Spmv};
use spandrel::backend_cpu::Cpu;
use spandrel::incomplete::Incomplete;
use spandrel::multigrid::Geometric;
use spandrel::rows::Rows;
use spandrel::solvers::{self, BiCgStab, Cg, Method, Options, Outcome, Refine, Watcher};
use spandrel::{Csr, Device, Format, Mat};
use spandrel_formats::Bsr;

use super::iterate::{
    Supply, converted, gmres, in_format, options, preconditioned, run, store, unmapped_later, watched,
};
use super::mixed::Narrowing;
use super::plan::Plan;
use super::precond::{Given, Made, make};
use super::problem::{Problem, restore};
use super::{Ending, Lap, Seconds, judge};
use crate::failure::Result;
use crate::progress;

pub(super) fn solve<B>(mut problem: Problem<f64>, plan: &Plan, device: &B, seconds: &mut Seconds) -> Result<Ending<f64>>
where
    B: EveryFormat<f32> + EveryMethod<f32> + Spmv<Csr<f64>> + Incomplete<f32> + Geometric<f32> + Rows<f32> + Narrow,
{
    let perm = problem.take_permutation();
    let mut ending: Ending<f64> =
        spandrel_formats::for_each_format!(in_format, (f32, plan.format, solve_in, (problem, plan, device, seconds)))?;
    ending.x = ending.x.map(|x| restore(perm.as_ref(), x)).transpose()?;
    Ok(ending)
}

/// The narrowed matrix in format `F`, on its way to the device, with its exponent; in CSR it never comes to the host where the device narrows.
fn in_f32<F: Format<Value = f32>, B: Spmv<F> + Rows<f32> + Narrow>(
    device: &B,
    narrowing: Narrowing<'_, B>,
    (lap, analyze): (&mut Lap, &mut f64),
) -> Result<(Mat<B, F>, i32)> {
    if <B as Rows<f32>>::converts::<F>() {
        let rows = narrowing.rows(device);
        narrowing.free();
        let made = converted(device, rows)?;
        lap.add_to(analyze);
        if let Some(made) = made {
            return Ok((made, narrowing.exponent()));
        }
    }
    let exponent = narrowing.exponent();
    let stored: Arc<F> = store(narrowing.into_host())?;
    lap.add_to(analyze);
    Ok((Mat::load(device, stored)?, exponent))
}

fn solve_in<F, B>(problem: Problem<f64>, plan: &Plan, device: &B, seconds: &mut Seconds) -> Result<Ending<f64>>
where
    F: Format<Value = f32>,
    B: Spmv<F>
        + EveryMethod<f32>
        + Spmv<Csr<f64>>
        + Incomplete<f32>
        + Geometric<f32>
        + Spmv<Bsr<f32>>
        + Rows<f32>
        + Narrow,
{
    let mut lap = Lap::start();
    let Problem { a, b, x0, .. } = problem;
    let supply = Supply::new(a);
    progress::say("loading the matrix");
    let wide = supply.rows(device)?;
    device.synchronize()?;
    lap.add_to(&mut seconds.load);
    let narrowing = Narrowing::of(&supply);
    progress::say(format!("making the preconditioner {}", plan.precond));
    let Made { m, factor, fallback } = match make::<f32, B>(device, &narrowing, plan)? {
        Ok(made) => made,
        Err(error) => return judge(Err(error), plan.solver),
    };
    lap.add_to(&mut seconds.setup);
    progress::say(format!("storing the matrix as {} and loading it", plan.format));
    let (narrow, exponent) = in_f32::<F, B>(device, narrowing, (&mut lap, &mut seconds.analyze))?;
    unmapped_later(supply.into_host());
    let n = wide.nrows();
    let b_device = Backend::<f64>::upload(device, &b)?;
    drop(b);
    device.synchronize()?;
    lap.add_to(&mut seconds.load);

    let refine = |solver, options: &Options, watcher: Watcher<'_>, x: &mut <B as Backend<f64>>::Vector| {
        let mut refine = Refine::new(device, n)?;
        let outcome: solvers::Result<Outcome> = match solver {
            Method::Cg => {
                let mut cg = Cg::<f32, B>::new(device, n)?;
                let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
                    cg.solve_watched(be, &narrow, &m, r, d, options, watcher)
                };
                refine.solve_watched(device, &*wide, exponent, inner, &b_device, x, options, watcher)
            }
            Method::Gmres => {
                let mut gmres = gmres::<f32, B>(device, n, plan.restart)?;
                let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
                    gmres.solve_watched(be, &narrow, &m, r, d, options, watcher)
                };
                refine.solve_watched(device, &*wide, exponent, inner, &b_device, x, options, watcher)
            }
            _ => {
                let mut bicgstab = BiCgStab::<f32, B>::new(device, n)?;
                let inner = |be: &B, r: &_, d: &mut _, options: &Options, watcher: Watcher<'_>| {
                    bicgstab.solve_watched(be, &narrow, &m, r, d, options, watcher)
                };
                refine.solve_watched(device, &*wide, exponent, inner, &b_device, x, options, watcher)
            }
        };
        outcome
    };
    if B::NAME != <Cpu as Device>::NAME {
        // Kernels are loaded when they are first asked for: the time of the solve is then the solve's. What goes wrong here goes wrong there.
        let few = Options { rtol: Some(0.0), atol: 0.0, max_iters: Some(2), history: false, ..Options::default() };
        let mut x = Backend::<f64>::zeros(device, n)?;
        let _ = refine(plan.solver, &few, &mut |_| std::ops::ControlFlow::Continue(()), &mut x);
        device.synchronize()?;
        lap.add_to(&mut seconds.setup);
    }

    let ending = run(plan, |solver| {
        let mut x = match x0.as_deref() {
            Some(x0) => Backend::<f64>::upload(device, x0)?,
            None => Backend::<f64>::zeros(device, n)?,
        };
        let outcome = watched(solver, plan, |watcher| refine(solver, &options(plan), watcher, &mut x))?;
        Ok(Ending::new(outcome, Backend::<f64>::download(device, &x)?, solver))
    });
    lap.add_to(&mut seconds.solve);
    Ok(preconditioned(judge(ending, plan.solver)?, factor, fallback))
}
