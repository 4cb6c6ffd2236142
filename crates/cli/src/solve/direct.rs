//! The direct solve: factor on the host, solve, refine.

use std::sync::Arc;

use spandrel::solvers::direct::Factorable;
use spandrel::solvers::{Direct, DirectOptions, Method};

use super::plan::Plan;
use super::problem::{Problem, restore};
use super::{Ending, Lap, Seconds, judge};
use crate::failure::Result;
use crate::progress::Spinner;

pub(super) fn solve<T: Factorable>(mut problem: Problem<T>, plan: &Plan, seconds: &mut Seconds) -> Result<Ending<T>> {
    let options = DirectOptions { rtol: Some(plan.rtol), atol: plan.atol, ..DirectOptions::default() };
    let spinner = Spinner::start("analysing the pattern");
    let mut lap = Lap::start();
    let perm = problem.take_permutation();
    let Problem { a, b, .. } = problem;
    let columns = a.ncols();
    let least_squares = a.nrows() != columns;
    let factored = || {
        let mut direct = Direct::analyze(Arc::unwrap_or_clone(a), &options)?;
        lap.add_to(&mut seconds.analyze);
        spinner.say(format!("factoring by {}", direct.method().as_str()));
        direct.factor()?;
        lap.add_to(&mut seconds.setup);
        spinner.say("solving");
        let mut x = vec![T::zero(); columns];
        let outcome = direct.solve(&b, &mut x)?;
        lap.add_to(&mut seconds.solve);
        let mut ending = Ending::new(outcome, x, Method::Direct);
        let mut note = format!("by {}", direct.method().as_str().to_uppercase());
        if direct.fell_back() {
            note.push_str(", after LL^T met a pivot that is not positive");
        }
        if least_squares && ending.true_residual > plan.rtol && ending.status.is_converged() {
            note.push_str("; no x comes nearer: the gradient A^T (b - A x) vanishes");
        }
        ending.note = Some(note);
        Ok(ending)
    };
    let mut ending = judge(factored(), Method::Direct)?;
    ending.x = ending.x.map(|x| restore(perm.as_ref(), x)).transpose()?;
    Ok(ending)
}
