//! The attempts of an iteration at one system: the plan's method and preconditioner, what takes over from them, and
//! when.
//!
//! An interruption between two attempts ends the solve with the x of the earlier one.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use spandrel_backend::Backend;
use spandrel_formats::{Csr, Profile, Real};
use spandrel_solvers::{Error, Iterate, Method, Options, Outcome, Precond, Progress, Result, Status};

use super::build::{Setup, Times};
use super::device::{DeviceSolver, Running, Vector, lost, restored};
use super::element::{Element, SolverBackend};
use super::engine::Call;
use super::plan::{Plan, Replaced, Stage};
use super::prepare;
use super::rival::{Judge, Pace, Rival, Winner};
use super::settings::Fallback;
use super::shared::came_to_nothing;
use super::solution::Attempt;
use super::words::counted;

/// The result of the attempts at one system.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) method: Method,
    /// The time of that method in seconds.
    pub(super) seconds: f64,
    pub(super) attempts: Vec<Attempt>,
}

impl Ended {
    /// These attempts as one attempt that was given up.
    pub(super) fn given_up(&self, preconditioner: Precond) -> Attempt {
        let Ended { outcome, method, seconds, .. } = self;
        Attempt {
            method: *method,
            preconditioner,
            status: outcome.status,
            iterations: outcome.iterations,
            true_residual: outcome.true_residual,
            seconds: *seconds,
        }
    }

    /// These attempts, if an interruption prevented the next one.
    pub(super) fn interrupted(mut self) -> Self {
        self.outcome.status = Status::Interrupted;
        self
    }
}

/// The value, or `None` if the watcher interrupted. The solve then ends with the x that it has.
pub(super) fn unless_interrupted<R>(made: Result<R>) -> Result<Option<R>> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(Error::Interrupted { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The x from which every attempt begins.
pub(super) enum Start<V> {
    Zero,
    /// From this x.
    At(V),
    /// There is only one attempt.
    Once,
}

/// The method that the policy tries after one that ended with this status. The match is exhaustive, so a new method
/// does not compile without an answer here.
fn successor(method: Method, status: Status) -> Option<Method> {
    use Status as S;
    let (ends, next) = match method {
        Method::Cg => ([S::IndefiniteMatrix, S::IndefinitePreconditioner], Method::BiCgStab),
        Method::BiCgStab => ([S::Breakdown, S::Diverged], Method::Gmres),
        Method::Gmres | Method::Direct => return None,
    };
    ends.contains(&status).then_some(next)
}

/// Returns true if a method takes the preconditioner, which GMRES does only if it is linear.
pub(super) fn takes(method: Method, preconditioner: Precond) -> bool {
    method != Method::Gmres || preconditioner.is_linear()
}

impl<T: Element, B: SolverBackend<T>> DeviceSolver<T, B> {
    /// Returns true if another method or preconditioner may take over. It then begins with the x that the first one
    /// began with.
    pub(super) fn is_open(&self) -> bool {
        self.plan.method_is_open || self.plan.standby.is_some() || self.plan.stronger.is_some()
    }

    /// Runs the plan's method, and then whatever takes over. Also returns true if it gave way to a factorisation.
    pub(super) fn attempts(
        &mut self,
        device: &B,
        b: &Vector<T, B>,
        x: &mut Vector<T, B>,
        start: Start<Vector<T, B>>,
        times: &mut Times,
    ) -> Result<(Ended, bool)> {
        let (mut last, mut winner) = self.methods(device, b, x, &start, false)?;
        // Whether the preconditioner that stands by has turned out to be slow.
        let mut is_slow = false;
        loop {
            let after = counted(last.outcome.iterations, "iteration");
            let (next, why) = match winner {
                Some(Winner::Factors) => return Ok((last, true)),
                Some(Winner::Stronger) => {
                    is_slow = true;
                    (self.plan.take_stronger(), format!("{} was expected to take longer after {after}", last.method))
                }
                None if !came_to_nothing(self.plan.stagnation, &last.outcome) => return Ok((last, false)),
                // Factors, where they are possible, come before what is known to be slow.
                None if is_slow && self.factors_cost(device).is_finite() => return Ok((last, false)),
                None => (
                    self.plan.take_standby(&self.settings),
                    format!("{} ended as {} after {after}", last.method, last.outcome.status),
                ),
            };
            let Some(next) = next else { return Ok((last, false)) };
            if !self.take_over(device, next, why, &mut last, times)? {
                return Ok((last.interrupted(), false));
            }
            let Some((ended, won)) = unless_interrupted(self.methods(device, b, x, &start, true))? else {
                return Ok((last.interrupted(), false));
            };
            last.attempts.extend(ended.attempts);
            (last, winner) = (Ended { attempts: last.attempts, ..ended }, won);
        }
    }

    /// Sets up the next plan, and records the attempt that it follows. Returns false if the watcher interrupted.
    fn take_over(
        &mut self,
        device: &B,
        mut next: Plan,
        why: String,
        last: &mut Ended,
        times: &mut Times,
    ) -> Result<bool> {
        let (from, to) = (self.plan.preconditioner, next.preconditioner);
        let told = self.reporter.note(&format!("{from} was given up ({why}), so {to} takes its place"));
        if unless_interrupted(told)?.is_none() {
            return Ok(false);
        }
        last.attempts.push(last.given_up(from));
        // Free the old one first, because both may not fit.
        self.running = None;
        let had_standby = next.standby.is_some();
        let mut setup = Setup::new(&mut self.reporter, times);
        let made = prepare::engine(device, Arc::clone(&self.host), &mut next, &mut setup);
        let Some(engine) =
            unless_interrupted(made).map_err(|error| error.after(to, format!("{from} was given up ({why})")))?
        else {
            return Ok(false);
        };
        if had_standby && next.standby.is_none() {
            // The limits of the choice that failed do not apply to its substitute.
            next.open_as(&self.settings);
        }
        next.preconditioner_why = format!("{from} was given up");
        next.replaced = Some(match next.replaced.take() {
            Some(again) => Replaced { from, to: again.to, why: format!("{why}; {to} failed ({})", again.why) },
            None => Replaced { from, to, why },
        });
        (self.running, self.plan) = (Some(Running::Iterative(engine)), next);
        Ok(true)
    }

    /// Runs the plan's method. If it does not suit the matrix and the policy chose it, runs the next method, once.
    /// `again` says that there was an earlier attempt; its x stays until this one begins.
    fn methods(
        &mut self,
        device: &B,
        b: &Vector<T, B>,
        x: &mut Vector<T, B>,
        start: &Start<Vector<T, B>>,
        again: bool,
    ) -> Result<(Ended, Option<Winner>)> {
        let method = self.plan.method;
        self.reporter.stage(Stage::Solve, method.as_str())?;
        if again {
            begin::<T, B>(device, x, start)?;
        }
        let (first, winner) = self.run(device, method, b, x)?;
        // A factorisation, if it is possible, is safer than another method.
        let next = successor(method, first.outcome.status).filter(|_| self.plan.method_is_open && winner.is_none());
        let next = next.filter(|next| takes(*next, self.plan.preconditioner));
        let next = next.filter(|next| !self.factors_are_sooner(device, *next));
        let Some(next) = next else { return Ok((first, winner)) };
        let after = counted(first.outcome.iterations, "iteration");
        let why = format!("{method} ended as {} after {after}, so {next} takes over", first.outcome.status);
        let told = self.reporter.note(&why).and_then(|()| self.reporter.stage(Stage::Solve, next.as_str()));
        if unless_interrupted(told)?.is_none() {
            return Ok((first.interrupted(), None));
        }
        begin::<T, B>(device, x, start)?;
        let (second, winner) = self.run(device, next, b, x)?;
        let attempts = vec![first.given_up(self.plan.preconditioner)];
        Ok((Ended { attempts, ..second }, winner))
    }

    /// Returns true if a factorisation may take over and should take less time than a few looks at another method.
    fn factors_are_sooner(&mut self, device: &B, method: Method) -> bool {
        const LOOKS: f64 = 100.0;
        let size = (self.plan.nrows, self.plan.nnz);
        let pace = Pace::of::<T>(size, (method, self.plan.preconditioner), device.profile());
        self.factors_cost(device) < LOOKS * pace.iteration
    }

    /// Nanoseconds of a factorisation; infinite if it may not take over.
    fn factors_cost(&mut self, device: &B) -> f64 {
        if !self.plan.direct_is_open {
            return f64::INFINITY;
        }
        let mut rival = self.rival.take().unwrap_or_else(|| self.new_rival(&self.host, device));
        let cost = rival.cost();
        self.rival = Some(rival);
        cost
    }

    pub(super) fn new_rival(&self, host: &Arc<Csr<T>>, device: &B) -> Rival<T> {
        Rival::new(Arc::clone(host), self.plan.means::<T>(device.profile()))
    }

    /// Runs a method. Also returns what it gave way to. An iteration that has run long without progress ends as if it
    /// had reached the limit of iterations.
    fn run(
        &mut self,
        device: &B,
        method: Method,
        b: &Vector<T, B>,
        x: &mut Vector<T, B>,
    ) -> Result<(Ended, Option<Winner>)> {
        let mut rival = match self.plan.direct_is_open {
            true => Some(self.rival.take().unwrap_or_else(|| self.new_rival(&self.host, device))),
            false => None,
        };
        // A reproducible solve must end at the same iteration on every device.
        let reference = Profile::reference();
        let profile = if self.plan.reproducible { &reference } else { device.profile() };
        let size = (self.plan.nrows, self.plan.nnz);
        let pace = Pace::of::<T>(size, (method, self.plan.preconditioner), profile);
        // Another method than the plan's is one for another matrix than the plan expected.
        let stronger = self.plan.stronger.filter(|_| method == self.plan.method);
        let is_beaten = stronger.is_some_and(|stronger| stronger.beats_factors);
        let analysis = match &rival {
            Some(rival) if !is_beaten => rival.analysis(self.plan.symmetric),
            _ => f64::INFINITY,
        };
        let rivals = [analysis, stronger.map_or(f64::INFINITY, |stronger| stronger.cost)];
        // If factors are impossible, GMRES with ILUT comes next. CG is seldom worse.
        let mut judge = Judge::new(pace, rivals, rival.is_none() || method == Method::Cg);
        // If the caller set a limit, only that limit counts.
        let may_end = self.settings.max_iterations.is_none() && self.settings.fallback == Fallback::Auto;
        let Self { plan, running, reporter, perm, truth, .. } = self;
        let Some(Running::Iterative(engine)) = running else { return Err(lost()) };
        let (mut winner, mut is_hopeless) = (None, false);
        let mut observer = |progress: Progress, iterate: Iterate<'_, T>| -> ControlFlow<()> {
            let fetch = || {
                let x = iterate.x()?.unwrap_or_default();
                Ok(restored(perm.as_ref(), x)?.into_iter().map(Real::as_f64).collect())
            };
            let iterate = if iterate.is_known() { Iterate::new(&fetch) } else { Iterate::none() };
            reporter.iteration(method, progress, iterate)?;
            if !judge.looks(progress, plan.check_every) {
                return ControlFlow::Continue(());
            }
            let cost = || rival.as_mut().map_or(f64::INFINITY, Rival::cost);
            winner = judge.gives_way(progress, cost);
            is_hopeless = may_end && winner.is_none() && judge.is_hopeless(progress);
            if winner.is_some() || is_hopeless { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let begun = Instant::now();
        if device.profile().factoring.is_some() {
            // The host is not the device, so it has nothing else to do.
            truth.begin();
        }
        let outcome = nearest(&plan.options(), |options, claims| {
            let call = Call { method, options, restart: plan.restart, observer: &mut observer };
            let mut outcome = engine.run(device, call, b, x)?;
            claims(&mut outcome);
            let is_denied = truth.denies(device, &**engine, (b, x), &mut outcome)?;
            Ok((outcome, is_denied))
        });
        let seconds = begun.elapsed().as_secs_f64();
        self.rival = rival;
        let mut outcome = outcome?;
        // It may have converged at this very look.
        let was_ended = outcome.status == Status::Interrupted;
        if is_hopeless && was_ended {
            outcome.status = Status::MaxIterations;
        }
        Ok((Ended { outcome, method, seconds, attempts: Vec::new() }, winner.filter(|_| was_ended)))
    }
}

/// Runs an iteration and returns its outcome. If its claim of convergence was nearly true, the iteration continues from
/// the x reached, with a smaller goal.
///
/// `run` gets a callback and calls it with the outcome before it checks a claim (`truth.rs`). It also returns true if
/// it denied a claim.
fn nearest(
    options: &Options,
    mut run: impl FnMut(Options, &dyn Fn(&mut Outcome)) -> Result<(Outcome, bool)>,
) -> Result<Outcome> {
    /// A claim is nearly true if the residual is at most this many times the goal. The next goal is the first one
    /// divided by this.
    const NEAR: f64 = 2.0;
    let (first, is_denied) = run(*options, &|_| {})?;
    let left = options.max_iters.map_or(usize::MAX, |limit| limit.saturating_sub(first.iterations));
    if !is_denied || first.true_residual > NEAR * first.target || left == 0 {
        return Ok(first);
    }
    let smaller = Options {
        rtol: options.rtol.map(|rtol| rtol / NEAR),
        atol: options.atol / NEAR,
        max_iters: Some(left),
        ..*options
    };
    let (mut next, _) = run(smaller, &|next| {
        next.target = first.target;
        if next.status != Status::Interrupted && next.true_residual <= next.target {
            next.status = Status::Converged;
        }
    })?;
    next.iterations += first.iterations;
    next.restarts += first.restarts + 1;
    next.history = [&first.history, next.history.get(1..).unwrap_or_default()].concat();
    Ok(next)
}

/// The x with which every attempt begins.
fn begin<T: Real, B: Backend<T>>(device: &B, x: &mut B::Vector, start: &Start<B::Vector>) -> Result<()> {
    match start {
        Start::Zero => device.fill(None, T::zero(), x)?,
        Start::At(x0) => device.copy(None, x0, x)?,
        Start::Once => {}
    }
    Ok(())
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn ended(status: Status, true_residual: f64, iterations: usize) -> Outcome {
        let one = Csr::from_triplets(1, 1, [(0, 0, 1.0)]).unwrap();
        let mut outcome =
            crate::Solver::builder().device(crate::any::Choice::Cpu).build(one).unwrap().solve(&[1.0]).unwrap().outcome;
        (outcome.status, outcome.true_residual, outcome.iterations) = (status, true_residual, iterations);
        (outcome.target, outcome.restarts, outcome.history) = (1e-8, 1, vec![1.0; iterations + 1]);
        outcome
    }

    /// What [`nearest`] makes of these attempts, of which the first is denied, and the options of each.
    fn of(first: Outcome, second: Outcome) -> (Outcome, Vec<Options>) {
        let (seen, left) = (RefCell::new(Vec::new()), RefCell::new(vec![second, first]));
        let options = Options { rtol: Some(1e-8), atol: 1e-3, max_iters: Some(10), ..Options::default() };
        let outcome = nearest(&options, |options, claims| {
            seen.borrow_mut().push(options);
            let mut outcome = left.borrow_mut().pop().expect("at most two attempts");
            claims(&mut outcome);
            Ok((outcome, seen.borrow().len() == 1))
        });
        (outcome.unwrap(), seen.into_inner())
    }

    #[test]
    fn a_claim_that_was_nearly_true_gets_a_smaller_goal() {
        let mut second = ended(Status::Stagnated, 9e-9, 4);
        second.target = 5e-9;
        let (outcome, seen) = of(ended(Status::Stagnated, 1.1e-8, 3), second);
        assert_eq!((seen[1].rtol, seen[1].atol, seen[1].max_iters), (Some(5e-9), 5e-4, Some(7)));
        assert_eq!((outcome.status, outcome.target, outcome.iterations), (Status::Converged, 1e-8, 7));
        assert_eq!((outcome.restarts, outcome.history.len()), (3, 8));
        // An outcome that still misses the first goal does not change.
        let (outcome, _) = of(ended(Status::Stagnated, 1.1e-8, 3), ended(Status::MaxIterations, 1.1e-8, 7));
        assert_eq!(outcome.status, Status::MaxIterations);
    }

    #[test]
    fn a_claim_that_was_far_from_true_ends_the_attempt() {
        for first in [ended(Status::Stagnated, 1.0, 3), ended(Status::Stagnated, 1.1e-8, 10)] {
            assert_eq!(
                of(first.clone(), ended(Status::Converged, 0.0, 1)),
                (first, vec![Options { rtol: Some(1e-8), atol: 1e-3, max_iters: Some(10), ..Options::default() }])
            );
        }
    }
}
