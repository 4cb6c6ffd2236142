//! Trials of what a solve asks of its device, by the log of the trace backend: it waits once in `check_every` iterations, and a
//! workspace that has solved once allocates no vector again.

use std::rc::Rc;

use spandrel_backend::trace::Event;
use spandrel_backend::{Backend, Mat, Spmv, Trace};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{BiCgStab, Cg, Jacobi, Options, Outcome};

use super::formats::Shared;
use crate::case::{Case, numbers};
use crate::subject::Fleet;
use crate::trial::{Trial, Verdict, wrong};

/// The trials of a traced backend on the cases that have solves which converge.
pub fn trials<B: Spmv<Csr<f64>> + 'static>(fleet: &Rc<Fleet<Trace<B>>>, cases: &[Rc<Case>]) -> Vec<Trial> {
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

fn check<B: Spmv<Csr<f64>>>(be: &Trace<B>, shared: &Shared<f64>, solver: &str) -> Verdict {
    let (csr, host) = (shared.data()?.csr()?, shared.stored::<Csr<f64>>()?);
    let n = shared.data()?.shape.0;
    let a = Mat::<Trace<B>, Csr<f64>>::load(be, host)?;
    let b = be.upload(&numbers(11, n))?;
    let mut x = be.zeros(n)?;
    let options = Options { rtol: 1e-8, check_every: 8, ..Options::default() };
    let m = Jacobi::new(be, &csr).map_err(wrong)?;
    let (mut cg, mut bicgstab) = (Cg::new(be, n).map_err(wrong)?, BiCgStab::new(be, n).map_err(wrong)?);
    let mut again = |x: &mut _| match solver {
        "cg" => cg.solve(be, &a, &m, &b, x, &options),
        _ => bicgstab.solve(be, &a, &m, &b, x, &options),
    };
    let first = again(&mut x).map_err(wrong)?;
    be.fill(None, 0.0, &mut x)?;
    be.take();
    let second = again(&mut x).map_err(wrong)?;
    if (first.iterations, first.status) != (second.iterations, second.status) {
        return Err(wrong(format!("the second solve in a workspace differs: {first:?}, then {second:?}")));
    }
    frugal(&be.take(), &second, options.check_every)
}

/// Looks and allocations of a repeated solve: scalars at most, and neither a monitor nor a matrix (whose bytes a log may not know).
fn frugal(log: &[Event], outcome: &Outcome, check_every: usize) -> Verdict {
    let looks = log.iter().filter(|event| matches!(event, Event::Wait("report_latest"))).count();
    // One look behind every `check_every` iterations of a segment, and a half step that ends one counts no iteration.
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
