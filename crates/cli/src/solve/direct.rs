//! The direct solve: factor on the host, solve, refine.

use spandrel::solvers::direct::Factorable;
use spandrel::solvers::{Direct, DirectOptions, SolverKind};

use super::plan::Plan;
use super::problem::{Problem, restore};
use super::{Ending, Lap, Seconds, judge};
use crate::failure::Result;
use crate::progress::Spinner;

pub(super) fn solve<T: Factorable>(mut problem: Problem<T>, plan: &Plan, seconds: &mut Seconds) -> Result<Ending<T>> {
    let options = DirectOptions { rtol: plan.rtol, atol: plan.atol, ..DirectOptions::default() };
    let spinner = Spinner::start("analysing the pattern");
    let mut lap = Lap::start();
    let perm = problem.take_permutation();
    let Problem { a, b, .. } = problem;
    let columns = spandrel::Format::ncols(&a);
    let factored = || {
        let mut direct = Direct::analyze(&a, &options)?;
        lap.add_to(&mut seconds.analyze);
        // The solver keeps a matrix of its own.
        drop(a);
        spinner.say(format!("factoring by {}", direct.method().as_str()));
        direct.factor()?;
        lap.add_to(&mut seconds.setup);
        spinner.say("solving");
        let mut x = vec![T::zero(); columns];
        let outcome = direct.solve(&b, &mut x)?;
        lap.add_to(&mut seconds.solve);
        let method = if direct.fell_back() {
            "by LU, after LL^T met a pivot that is not positive".to_string()
        } else {
            format!("by {}", direct.method().as_str().to_uppercase())
        };
        let mut ending = Ending::new(outcome, x, SolverKind::Direct);
        ending.note.get_or_insert(method);
        Ok(ending)
    };
    let mut ending = judge(factored(), SolverKind::Direct)?;
    ending.x = ending.x.map(|x| restore(perm.as_ref(), x)).transpose()?;
    Ok(ending)
}
