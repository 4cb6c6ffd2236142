//! Trials of the numbers of solves. They grow modulo 2^32 and are never cleared; these residents have numbers that are
//! about to wrap.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Backend, Load, Order, Sptrsv, Tri};
use spandrel_backend_cuda::{CountsSolves, Cuda};
use spandrel_formats::Real;
use spandrel_sptrsv::{Capellini, Elementwise, Levelset, Plan, Stages, Structured, Sweep, Syncfree, Systems, Walk};

use super::sptrsv::{Checked, SYSTEMS, Shared, analyze, label};
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};
use crate::triangle;

/// A grid with several points per plane and per line, which every plan accepts.
const CASE: &str = "d3n27-13x9x7";
/// Numbers of solves with which numbers wrap in the middle of the trial: those of solves, and those that grow in each
/// solve by the points of a line (13) or by the lines of a queue.
const STARTS: [u32; 4] = [u32::MAX - 3, u32::MAX / 13 - 2, u32::MAX / 26 - 2, i32::MAX as u32 - 2];
const SOLVES: usize = 6;

/// The trials of one element type.
pub(crate) fn trials<T: Real>(fleet: &Rc<Fleet<Cuda>>, cases: &[Rc<triangle::Case>], out: &mut Vec<Trial>) {
    let Some(case) = cases.iter().find(|case| case.name == CASE) else {
        out.push(Trial::new(format!("sptrsv/all/{}/{}/{CASE}-wraps", T::NAME, fleet.name), || {
            Err(wrong("there is no triangle of that name"))
        }));
        return;
    };
    let shared = Shared::<T>::new(case.clone());
    push::<Elementwise<T>>(fleet, &shared, "", |plan| plan, out);
    push::<Capellini<T>>(fleet, &shared, "", |plan| plan, out);
    push::<Levelset<T>>(fleet, &shared, "", |plan| plan, out);
    push::<Sweep<T>>(fleet, &shared, "", |plan| plan, out);
    push::<Syncfree<T>>(fleet, &shared, "", |plan| plan, out);
    let by_rows = |plan: Syncfree<T>| Syncfree::with_walk(plan.matrix().clone(), Systems::Both, Walk::Rows);
    push::<Syncfree<T>>(fleet, &shared, "-by-rows", by_rows, out);
    push::<Structured<T>>(fleet, &shared, "", |plan| plan, out);
    push::<Structured<T>>(fleet, &shared, "-all", |plan| plan.with_stages(Stages::ALL), out);
    push::<Structured<T>>(fleet, &shared, "-baseline", |plan| plan.with_stages(Stages::NONE), out);
}

fn push<P: Plan>(
    fleet: &Rc<Fleet<Cuda>>,
    shared: &Rc<Shared<P::Value>>,
    way: &str,
    make: fn(P) -> P,
    out: &mut Vec<Trial>,
) where
    Cuda: Sptrsv<P>,
    <Cuda as Load<P>>::Resident: CountsSolves,
{
    let name = label::<P, Cuda>(fleet, &format!("{CASE}{way}-wraps"));
    let (fleet, shared) = (fleet.clone(), shared.clone());
    out.push(Trial::new(name, move || {
        for checked in &shared.problems()?[..1] {
            let plan = Arc::new(make(analyze::<P>(&checked.problem, Systems::Both)?));
            for (device, be) in &fleet.devices {
                for start in STARTS {
                    wraps(be, &plan, checked, start).map_err(|finding| match finding {
                        Finding::Wrong(text) => Finding::Wrong(format!("{device}, from solve {start} on: {text}")),
                        other => other,
                    })?;
                }
            }
        }
        Ok(())
    }));
}

fn wraps<P: Plan>(be: &Cuda, plan: &Arc<P>, checked: &Checked<P::Value>, start: u32) -> Verdict
where
    Cuda: Sptrsv<P>,
    <Cuda as Load<P>>::Resident: CountsSolves,
{
    let (problem, n) = (&checked.problem, checked.problem.nrows());
    let tri = Tri::<Cuda, P>::load(be, P::clone(plan))?;
    tri.resident().pretend(start)?;
    let nan = vec![num_traits::Float::nan(); n];
    for solve in 0..SOLVES {
        // A new right-hand side each time, so that what an earlier solve left behind shows.
        let b: Vec<P::Value> = crate::case::numbers(solve as u64, n);
        let which = solve / 2 % 2;
        let (system, on_device) = (SYSTEMS[which], be.upload(&b)?);
        let mut x = be.upload(&nan)?;
        tri.sptrsv(be, None, system, &on_device, &mut x)?;
        let stored = be.sptrsv_order(tri.resident(), system) == Order::Stored;
        let expected = problem.expected(system, &b).map_err(wrong)?;
        problem
            .check(system, stored, &b, &expected, &be.download(&x)?)
            .map_err(|detail| wrong(format!("{system}, solve {solve}: {detail}")))?;
    }
    Ok(())
}
