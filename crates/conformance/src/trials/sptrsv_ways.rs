//! Trials of variants that no plan takes by itself: the structured plan with each set of stages that has a kernel, and
//! the synchronization-free plan by rows with each number of lanes per row. They test the kernels that only such a
//! variant reaches.

use std::rc::Rc;

use spandrel_backend::{Order, Sptrsv};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, Stages, Structured, Syncfree, System, Systems, Walk};

use super::sptrsv::{Checked, Shared, Subjects, analyze, label, on, special, values};
use super::sptrsv_repeats::{is_first, recorded_times};
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};
use crate::triangle;

/// Sets of stages, with the names of their kernels.
const STAGES: [(&str, Stages); 7] = [
    ("all", Stages::ALL),
    ("baseline", Stages::NONE),
    ("multistage", Stages { multistage: true, ..Stages::NONE }),
    ("prefetch", Stages { multistage: true, prefetch: true, ..Stages::NONE }),
    ("uncached", Stages { acquire: false, ..Stages::ALL }),
    ("flags", Stages { compressed: false, ..Stages::ALL }),
    ("flags-uncached", Stages { compressed: false, acquire: false, ..Stages::ALL }),
];

/// Grids with lines shorter and longer than a warp, and with rows of more entries than a stage has lanes for.
const GRIDS: [&str; 3] = ["d3n27-13x9x7", "d3n7-67x3x5", "d3n33-11x9x9"];

/// Triangles, and the number of lanes per row if lanes sum it.
const ROWS: [(&str, u32); 5] = [
    ("random-1-of-137", 2),
    ("random-3-of-1027", 4),
    ("d3n13-9x7x11", 8),
    ("d3n27-13x9x7", 16),
    ("random-40-of-600", 32),
];

/// Replays of one graph, of each system.
const REPLAYS: usize = 100;
/// Replays in place, which differ in nothing important.
const FEWER: usize = 12;

/// How a plan is made for a problem.
type Make<P> = Box<dyn Fn(P) -> P>;

/// The trials of one element type.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, cases: &[Rc<triangle::Case>], out: &mut Vec<Trial>)
where
    D: Sptrsv<Structured<T>> + Sptrsv<Syncfree<T>> + 'static,
{
    let shared = |name: &str| cases.iter().find(|case| case.name == name).cloned().map(Shared::<T>::new);
    for grid in GRIDS {
        let shared = shared(grid);
        for (stages, set) in STAGES {
            let name = label::<Structured<T>, D>(fleet, &format!("{grid}-{stages}"));
            let make: Make<Structured<T>> = Box::new(move |plan| plan.with_stages(set));
            push(fleet, name, shared.clone(), make, None, out);
        }
    }
    for (case, lanes) in ROWS {
        let name = label::<Syncfree<T>, D>(fleet, &format!("{case}-by-rows"));
        let make: Make<Syncfree<T>> =
            Box::new(|plan| Syncfree::with_walk(plan.matrix().clone(), Systems::Both, Walk::Rows));
        push(fleet, name, shared(case), make, Some(lanes), out);
    }
}

fn push<P, D>(
    fleet: &Rc<Fleet<D>>,
    name: String,
    shared: Option<Rc<Shared<P::Value>>>,
    make: Make<P>,
    lanes: Option<u32>,
    out: &mut Vec<Trial>,
) where
    P: Plan,
    D: Sptrsv<P> + 'static,
{
    let fleet = fleet.clone();
    out.push(Trial::new(name, move || {
        let shared = shared.ok_or_else(|| wrong("there is no triangle of that name"))?;
        for checked in shared.problems()? {
            let plan = make(analyze::<P>(&checked.problem, Systems::Both)?);
            let mut subjects: Subjects<'_, P::Value> = Vec::new();
            for (label, be) in &fleet.devices {
                subjects.push((label.clone(), on(be, plan.clone())?));
            }
            tried::<P>(&subjects, checked, lanes).map_err(|finding| match finding {
                Finding::Wrong(text) => Finding::Wrong(format!("{}: {text}", checked.name)),
                other => other,
            })?;
        }
        Ok(())
    }));
}

fn tried<P: Plan>(subjects: &Subjects<'_, P::Value>, checked: &Checked<P::Value>, lanes: Option<u32>) -> Verdict {
    let (_, subject) = &subjects[0];
    match (subject.order(System::Plain), lanes) {
        (Order::LaneTree(found), Some(wanted)) if found != wanted => {
            return Err(wrong(format!("expected {wanted} lanes per row, found {found}")));
        }
        _ => {}
    }
    values(subjects, checked, false)?;
    if !is_first(checked) {
        return Ok(());
    }
    special(P::NAME, &**subject, checked)?;
    recorded_times(subjects, checked, &|_, in_place| if in_place { FEWER } else { REPLAYS })
}
