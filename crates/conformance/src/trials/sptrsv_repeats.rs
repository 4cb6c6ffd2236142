//! Trials of repeated solves: flags, tickets and epochs of a resident continue from solve to solve, inside one graph
//! and beside another queue.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use spandrel_backend::{Coeff, Mat, Order, Result, Spmv, Sptrsv};
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{Diagonal, Plan, System, Triangle};

use super::sptrsv::{Ask, Checked, Replays, SYSTEMS, Shared, Subjects, differing, each, label};
use crate::case::numbers;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Solves on one resident, and replays of one graph: enough to use up an epoch or ticket that is not advanced.
const RUNS: usize = 1000;
/// Runs of any other system, form or place. They need not be repeated as often.
const FEWER: usize = 100;
/// Solves of each of the two systems beside another queue.
const BESIDE: usize = RUNS / 2;
/// How many right-hand sides are different.
const INPUTS: usize = 7;

/// Whether most runs use this form.
pub(crate) fn is_first<T: Real>(checked: &Checked<T>) -> bool {
    (checked.problem.matrix.triangle(), checked.problem.matrix.diagonal()) == (Triangle::Lower, Diagonal::NonUnit)
}

/// Right-hand sides, with their solutions by system.
struct Inputs<T> {
    b: Vec<Vec<T>>,
    x: [Vec<Vec<T>>; 2],
}

impl<T: Real> Inputs<T> {
    fn of(checked: &Checked<T>) -> std::result::Result<Self, Finding> {
        let n = checked.problem.nrows();
        let b: Vec<Vec<T>> = (0..INPUTS).map(|input| numbers(input as u64, n)).collect();
        let solved = |system| -> std::result::Result<Vec<_>, Finding> {
            b.iter().map(|b| checked.problem.expected(system, b).map_err(wrong)).collect()
        };
        let x = [solved(SYSTEMS[0])?, solved(SYSTEMS[1])?];
        Ok(Self { b, x })
    }
}

/// One resident with a new right-hand side each time; systems and places alternate.
pub(crate) fn repeated<T: Real>(subjects: &Subjects<'_, T>, checked: &Checked<T>) -> Verdict {
    let (_, subject) = &subjects[0];
    let inputs = Inputs::of(checked)?;
    let mut first: [Vec<Option<Vec<T>>>; 2] = [vec![None; INPUTS], vec![None; INPUTS]];
    for run in 0..if is_first(checked) { RUNS } else { FEWER } {
        // Mostly the same system twice, so that a solve follows both its own kind and the other.
        let (input, which) = (run % INPUTS, run / 2 % 2);
        let (system, b) = (SYSTEMS[which], &inputs.b[input]);
        let x = subject.solve(&Ask { in_place: run % 3 == 2, ..Ask::new(system, b) })?;
        let (order, what) = (subject.order(system), |detail| wrong(format!("{system}, solve {run}: {detail}")));
        match (order, &first[which][input]) {
            (Order::Stored, _) => differing(&x, &inputs.x[which][input]).map_err(what)?,
            (Order::Unordered, _) | (_, None) => {
                checked.problem.check(system, false, b, &inputs.x[which][input], &x).map_err(what)?;
                first[which][input] = Some(x);
            }
            (_, Some(first)) => differing(&x, first).map_err(what)?,
        }
    }
    Ok(())
}

/// One graph with a new right-hand side each time; the gate is closed now and then, and new values come in between.
pub(crate) fn recorded<T: Real>(subjects: &Subjects<'_, T>, checked: &Checked<T>) -> Verdict {
    recorded_times(subjects, checked, &|system, in_place| {
        if is_first(checked) && system == System::Plain && !in_place { RUNS } else { FEWER }
    })
}

/// The same with this many runs of a system, in place or not.
pub(crate) fn recorded_times<T: Real>(
    subjects: &Subjects<'_, T>,
    checked: &Checked<T>,
    runs: &dyn Fn(System, bool) -> usize,
) -> Verdict {
    let (_, subject) = &subjects[0];
    let values = checked.problem.other_values();
    let other = Checked::new("other values".into(), checked.problem.with_values(&values).map_err(wrong)?)?;
    let (before, after) = (Inputs::of(checked)?, Inputs::of(&other)?);
    // The gate is open in the first run and in the recorded one, then closed once, and later twice in a row.
    let closed = |run: usize| run > 2 && (run % 11 == 5 || run % 11 == 9 || run % 11 == 10);
    for (which, system) in SYSTEMS.into_iter().enumerate() {
        for in_place in [false, true] {
            let count = runs(system, in_place);
            // New values come before this run.
            let update = count * 16 / 25;
            let order = subject.order(system);
            let last = RefCell::new(Vec::new());
            let mut look = |run: usize, x: &[T]| {
                let what = |detail| wrong(format!("{system}, in place: {in_place}, run {run} of a graph: {detail}"));
                if closed(run) {
                    differing(x, &last.borrow())
                        .map_err(|detail| what(format!("behind a stopped monitor: {detail}")))?;
                } else {
                    let (checked, inputs) = if run < update { (checked, &before) } else { (&other, &after) };
                    let expected = &inputs.x[which][run % INPUTS];
                    if order == Order::Stored {
                        differing(x, expected).map_err(what)?;
                    } else {
                        let b = &inputs.b[run % INPUTS];
                        checked.problem.check(system, false, b, expected, x).map_err(what)?;
                    }
                }
                last.replace(x.to_vec());
                Ok(())
            };
            let replays = Replays {
                count,
                input: &|run| before.b[run % INPUTS].clone(),
                closed: &closed,
                update: &|run| (run == update).then(|| values.clone()),
                look: &mut look,
            };
            subject.replay(system, in_place, replays)?;
            subject.update(checked.problem.matrix.csr().values())?;
        }
    }
    Ok(())
}

/// Solves while another queue of the same processor is full of long products.
pub(crate) fn beside<P, D>(
    fleet: &Rc<Fleet<D>>,
    open: fn() -> Result<D>,
    shared: &Rc<Shared<P::Value>>,
    out: &mut Vec<Trial>,
) where
    P: Plan,
    D: Sptrsv<P> + Spmv<Csr<f64>> + 'static,
{
    let case = shared.case();
    if !case.repeats(P::NAME) {
        return;
    }
    let name = label::<P, D>(fleet, &format!("{}-beside-another-queue", case.name));
    let (fleet, shared) = (fleet.clone(), shared.clone());
    out.push(Trial::new(name, move || {
        let (done, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let outcome = products(open, &ready, &done);
                ready.store(true, Ordering::Release);
                outcome
            });
            while !ready.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let verdict = each::<P, D>(&fleet, &shared, 1, |subjects, checked| {
                let (_, subject) = &subjects[0];
                let n = checked.problem.nrows();
                for run in 0..if is_first(checked) { BESIDE } else { 20 } {
                    for (system, expected) in SYSTEMS.into_iter().zip(&checked.x) {
                        let b = &checked.problem.b[..n];
                        let x = subject.solve(&Ask::new(system, b))?;
                        let stored = subject.order(system) == Order::Stored;
                        checked
                            .problem
                            .check(system, stored, b, &expected[..n], &x)
                            .map_err(|detail| wrong(format!("{system}, solve {run}: {detail}")))?;
                    }
                }
                Ok(())
            });
            done.store(true, Ordering::Release);
            let ended = other.join().unwrap_or_else(|_| Err(wrong("the other thread panicked")));
            verdict.and(ended)
        })
    }));
}

/// Computes y <- A x on its own device until told to stop. A few products are always queued.
fn products<D: Spmv<Csr<f64>>>(open: fn() -> Result<D>, ready: &AtomicBool, done: &AtomicBool) -> Verdict {
    let be = open()?;
    let host = crate::generated("poisson2d9:400x300")?;
    let n = host.row_ptr().len() - 1;
    let a = Mat::<D, Csr<f64>>::load(&be, host)?;
    let (x, mut y) = (be.upload(&numbers::<f64>(9, n))?, be.upload(&vec![f64::NAN; n])?);
    a.spmv(&be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
    let wanted = be.download(&y)?;
    while !done.load(Ordering::Acquire) {
        for _ in 0..20 {
            a.spmv(&be, None, Coeff::one(), &x, Coeff::zero(), &mut y)?;
        }
        be.synchronize()?;
        ready.store(true, Ordering::Release);
    }
    let found = be.download(&y)?;
    if Spmv::<Csr<f64>>::order(&be) == Order::Unordered {
        return Ok(());
    }
    differing(&found, &wanted).map_err(|detail| wrong(format!("a product beside the solves: {detail}")))
}
