//! Trials of a solve's calls to its device, by the log of the trace backend. It waits once per `check_every`
//! iterations, and a workspace that has solved once allocates no vector again.

use std::rc::Rc;
use std::time::Duration;

use spandrel_backend::trace::Event;
use spandrel_backend::{Backend, EveryMethod, Mat, Spmv, Sptrsv, Trace, Tri};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{GmresOptions, Jacobi, Options, Outcome};
use spandrel_sptrsv::{Diagonal, Plan, System, Systems, Triangle, Triangular};

use super::formats::Shared;
use crate::case::{Case, numbers};
use crate::named::Workspace;
use crate::subject::{EveryPlan, Fleet};
use crate::trial::{Trial, Verdict, wrong};

/// The trials of a traced backend on the cases that have a converging solve.
pub fn trials<B: Spmv<Csr<f64>> + EveryMethod<f64> + 'static>(
    fleet: &Rc<Fleet<Trace<B>>>,
    cases: &[Rc<Case>],
) -> Vec<Trial> {
    let mut out = Vec::new();
    for case in cases.iter().filter(|case| case.special && case.solve.iter().any(|solve| solve.status == "converged")) {
        for solver in ["cg", "bicgstab"] {
            let (fleet, shared) = (fleet.clone(), Shared::<f64>::new(case.clone()));
            out.push(Trial::new(format!("{solver}-jacobi/csr/f64/{}/{}-steps", fleet.name, case.name), move || {
                check(fleet.first(), &shared, solver)
            }));
        }
    }
    out
}

fn check<B: Spmv<Csr<f64>> + EveryMethod<f64>>(be: &Trace<B>, shared: &Shared<f64>, solver: &str) -> Verdict {
    let (csr, host) = (shared.data()?.csr()?, shared.stored::<Csr<f64>>()?);
    let n = shared.data()?.shape.0;
    let a = Mat::<Trace<B>, Csr<f64>>::load(be, host)?;
    let b = be.upload(&numbers(11, n))?;
    let mut x = be.zeros(n)?;
    let options = Options { rtol: Some(1e-8), check_every: 8, check_after: Duration::MAX, ..Options::default() };
    let m = Jacobi::new(be, &csr).map_err(wrong)?;
    let mut workspace = Workspace::by_name(be, n, solver, GmresOptions::default().restart).map_err(wrong)?;
    let mut again = |x: &mut _| workspace.solve(be, &a, &m, &b, x, &options);
    let first = again(&mut x).map_err(wrong)?;
    be.fill(None, 0.0, &mut x)?;
    be.take();
    let second = again(&mut x).map_err(wrong)?;
    if (first.iterations, first.status) != (second.iterations, second.status) {
        return Err(wrong(format!("the second solve in a workspace differs: {first:?}, then {second:?}")));
    }
    frugal(&be.take(), &second, options.check_every)
}

/// Looks and allocations of a repeated solve. It may allocate scalars, but no monitor and no matrix (a log may not know
/// its bytes).
fn frugal(log: &[Event], outcome: &Outcome, check_every: usize) -> Verdict {
    let looks = log.iter().filter(|event| matches!(event, Event::Wait("report_latest"))).count();
    // One look after every `check_every` iterations of a segment, and one at its end.
    let wanted = outcome.iterations / check_every + 1 + outcome.restarts;
    if looks == 0 || looks > wanted {
        return Err(wrong(format!("{looks} looks in {} iterations, expected at most {wanted}", outcome.iterations)));
    }
    let scalar = f64::BYTES as u64;
    let kept = |what: &str| what == "monitor" || what == "load";
    match log.iter().find(|event| matches!(event, Event::Allocation(what, bytes) if kept(what) || *bytes > scalar)) {
        Some(event) => Err(wrong(format!("a repeated solve allocates: {event}"))),
        None => Ok(()),
    }
}

macro_rules! each_plan {
    ([$fleet:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $({
            let fleet = $fleet.clone();
            let name = format!("sptrsv/{}/f64/{}/steps", stringify!($stem), fleet.name);
            $out.push(Trial::new(name, move || solve::<spandrel_sptrsv::$Type<f64>, B>(fleet.first())));
        })*
    };
}

/// The trials of a triangular solve's log, for every plan.
pub fn solves<B: EveryPlan<f64> + 'static>(fleet: &Rc<Fleet<Trace<B>>>) -> Vec<Trial> {
    let mut out = Vec::new();
    spandrel_sptrsv::for_each_plan!(each_plan, fleet, out);
    out
}

/// One launch with the plan's bytes per solve; nothing is allocated or waited for.
fn solve<P: Plan<Value = f64> + spandrel_backend::trace::Stored, B: Sptrsv<P>>(be: &Trace<B>) -> Verdict {
    let parts = spandrel_sptrsv::split(&crate::generated("poisson2d:7x5")?).map_err(wrong)?;
    let triangle = Triangular::new(parts.lower, Triangle::Lower, Diagonal::NonUnit).map_err(wrong)?;
    let plan = P::analyze(triangle.into(), Systems::Both).map_err(wrong)?;
    let (n, bytes) = (plan.nrows(), plan.sptrsv_bytes());
    let tri = Tri::<Trace<B>, P>::load(be, plan)?;
    let (b, mut x) = (be.upload(&numbers(1, 3 * n))?, be.zeros(3 * n)?);
    let (b1, mut x1) = (be.upload(&numbers(1, n))?, be.zeros(n)?);
    be.take();
    tri.sptrsv(be, None, System::Plain, &b1, &mut x1)?;
    tri.sptrsv_in_place(be, None, System::Transposed, &mut x1)?;
    tri.sptrsv_columns(be, None, System::Plain, 3, &b, &mut x)?;
    let log = be.take();
    let further = (2 * 2 * n * f64::BYTES) as u64;
    for (event, wanted) in log.iter().zip([bytes, bytes, bytes + further]) {
        match event {
            Event::Launch(launch)
                if (launch.op, launch.noun, launch.gated, launch.bytes())
                    == ("sptrsv", Some(P::NAME), false, wanted) => {}
            other => return Err(wrong(format!("expected a sptrsv of {wanted} bytes, found {other}"))),
        }
    }
    if log.len() == 3 { Ok(()) } else { Err(wrong(format!("{} events of three solves: {log:?}", log.len()))) }
}
