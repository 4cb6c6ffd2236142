//! The steps after a first attempt has failed: a complete factorisation and, for a singular matrix, an answer or the
//! reason why there is none.
//!
//! 1. A factorisation ([`super::rival`]), whose answer is refined. An answer with a backward error of the size of
//!    rounding is final.
//! 2. If a pivot is zero, or the condition number exceeds the reciprocal of the unit roundoff, the [`Defect`] is
//!    determined. If b contradicts the defect, the system is inconsistent.
//! 3. The factorisation of A + delta D, refined with A itself. It finds an answer if there is one. There is none if a
//!    combination of equations is zero on the left-hand side but not on the right.
//! 4. For a limited number of iterations, the iteration that the policy chooses without a factorisation. If a
//!    factorisation does not fit, GMRES with ILUT.

use std::sync::Arc;
use std::time::Instant;

use spandrel_formats::Csr;
use spandrel_solvers::direct::{Method as DirectMethod, share_of};
use spandrel_solvers::{BackwardError, Defect, Direct, DirectOptions, Error, Method, Outcome, Precond, Result, Status};
use spandrel_sptrsv::IlutOptions;

use super::attempts::{Ended, unless_interrupted};
use super::build::{Lap, Setup, Times};
use super::device::{DeviceSolver, Running};
use super::element::{Element, SolverBackend};
use super::plan::{Plan, Stage};
use super::prepare;
use super::prepare::Preparation;
use super::rival::{Means, Rival, fits};
use super::settings::Scale;
use super::solution::Attempt;
use super::words::counted;

/// Steps of refinement after a factorisation of A + delta D. delta is the square root of the unit roundoff, so a step
/// gains about as many digits as elimination loses.
const STEPS: usize = 12;
/// A combination w of equations that is zero on the left-hand side contradicts b if w^T b / (||w|| ||b||) exceeds this
/// many unit roundoffs. This is more than the rounding of w.
const CONTRADICTS: f64 = 1e6;
/// Iterations after factorisations have failed. Solvable singular systems need fewer.
const LAST_ITERATIONS: usize = 2000;
/// Steps per cycle of the last GMRES.
const RESTART: usize = 100;

/// What is known about a singular matrix.
#[derive(Clone, Debug)]
pub(super) struct Singular {
    /// The defect in terms of rows and columns, if it was found.
    pub(super) defect: Option<Defect>,
    /// The error of the factorisation.
    pub(super) why: String,
}

impl std::fmt::Display for Singular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.defect {
            Some(defect) => write!(f, "the matrix is singular: {defect}"),
            None => f.write_str(&self.why),
        }
    }
}

/// What is known about a difficult matrix. It holds for any right-hand side, until new values come.
pub(super) struct Found<T: Element> {
    /// What is known if it is singular.
    pub(super) singular: Option<Singular>,
    /// Whether the search for a defect has run.
    looked: bool,
    /// Factors of A + delta D, in addition to those of A; `Some(None)` if they are impossible.
    regular: Option<Option<Box<Direct<T>>>>,
    /// Weights of equations whose combination vanishes.
    weights: Option<Vec<f64>>,
}

impl<T: Element> Found<T> {
    /// Starts with the result of the factorisation.
    pub(super) fn with(singular: Option<Singular>) -> Self {
        Self { singular, looked: false, regular: None, weights: None }
    }

    /// Looks for a defect, once.
    fn look(&mut self, a: &Csr<T>) {
        if self.singular.is_none() && !std::mem::replace(&mut self.looked, true) {
            let defect = Defect::of(a);
            self.singular = defect.map(|defect| Singular { defect: Some(defect), why: String::new() });
        }
    }
}

/// Returns the factors of an analysed matrix. If the matrix is singular, returns those of A + delta D, with what is
/// known about it, or `None` if they do not fit.
///
/// # Errors
/// The reason why a regular matrix cannot be factored.
pub(super) fn factored<T: Element>(
    a: &Arc<Csr<T>>,
    analysed: Result<Direct<T>>,
    means: Means<'_>,
    setup: &mut Setup<'_>,
) -> Result<(Option<Box<Direct<T>>>, Option<Singular>)> {
    let regular = analysed.and_then(|mut direct| {
        direct.factor_watched(&mut |phase| setup.watch(phase))?;
        Ok(direct)
    });
    match regular {
        Ok(direct) => Ok((Some(Box::new(direct)), None)),
        Err(error @ Error::ZeroPivot { .. }) => {
            let singular = Singular { defect: Defect::of(&**a), why: error.to_string() };
            Ok((regularized(a, means, setup)?, Some(singular)))
        }
        Err(error) => Err(error),
    }
}

/// The factors of A + delta D, if they fit and can be made.
fn regularized<T: Element>(a: &Arc<Csr<T>>, means: Means<'_>, setup: &mut Setup<'_>) -> Result<Option<Box<Direct<T>>>> {
    let delta = T::UNIT_ROUNDOFF.sqrt();
    let options = DirectOptions { regularization: delta, refinements: STEPS, ..means.options };
    setup.begin(Stage::SetUp, format_args!("the factorisation of A + {delta:.0e} D"))?;
    let mut rival = Rival::new(Arc::clone(a), Means { options, ..means });
    if !rival.cost().is_finite() {
        return Ok(None);
    }
    let made = rival.take().and_then(|mut direct| {
        direct.factor_watched(&mut |phase| setup.watch(phase))?;
        Ok(direct)
    });
    match made {
        Ok(direct) => Ok(Some(Box::new(direct))),
        Err(error @ Error::Interrupted { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

/// An answer on the host, and how it was found.
pub(super) struct Answer<T> {
    pub(super) x: Vec<T>,
    pub(super) ended: Ended,
    /// A further remark.
    pub(super) note: Option<String>,
    /// The preconditioner, if it differs from that of the solver's plan.
    pub(super) preconditioner: Option<Precond>,
}

impl<T> Answer<T> {
    /// This answer, if an interruption prevents the next attempt.
    fn interrupted(self) -> Self {
        Self { ended: self.ended.interrupted(), ..self }
    }

    /// As [`Answer::or`], for a next attempt that may have been interrupted. If it was, the whole answer counts as
    /// interrupted.
    fn or_interrupted(self, next: Answer<T>, given_up: Attempt) -> Answer<T> {
        let is_interrupted = next.ended.outcome.status == Status::Interrupted;
        let best = self.or(next, given_up);
        if is_interrupted { best.interrupted() } else { best }
    }

    /// Keeps the better of two answers, with the attempts of both. A solve never ends with an iteration that gave way.
    fn or(mut self, mut next: Answer<T>, given_up: Attempt) -> Answer<T> {
        let mut attempts = std::mem::take(&mut self.ended.attempts);
        attempts.push(given_up);
        attempts.append(&mut next.ended.attempts);
        let is_better = next.ended.outcome.status.is_converged()
            || next.ended.outcome.status == Status::BackwardStable
            // NaN fails these comparisons, so it is never better.
            || next.ended.outcome.true_residual <= self.ended.outcome.true_residual
            || self.ended.outcome.true_residual.is_nan();
        let status = next.ended.outcome.status;
        let mut best = if is_better { next } else { self };
        if best.ended.outcome.status == Status::Interrupted {
            best.ended.outcome.status = status;
        }
        best.ended.attempts = attempts;
        best
    }
}

impl<T: Element, B: SolverBackend<T>> DeviceSolver<T, B> {
    /// Returns true if something may still take over after an iteration that ended with this status.
    pub(super) fn is_unfinished(&self, outcome: &Outcome) -> bool {
        use Status as S;
        let is_final = matches!(outcome.status, S::Converged | S::BackwardStable | S::Interrupted);
        self.plan.direct_is_open && !is_final && self.is_iterative()
    }

    /// Takes the steps that follow an iteration.
    pub(super) fn finish(
        &mut self,
        device: &B,
        b: &[T],
        mut answer: Answer<T>,
        gave_way: bool,
        times: &mut Times,
    ) -> Result<Answer<T>> {
        if !gave_way {
            self.judge_by_rounding(b, &mut answer);
        }
        if gave_way || self.is_unfinished(&answer.ended.outcome) {
            answer = self.factor_after(device, b, answer, gave_way, times)?;
        }
        self.iterate_stronger(device, b, answer, times)
    }

    /// If an iteration stagnates, its x may already solve the system to rounding. Then the status says so, because no
    /// method does better in this precision.
    fn judge_by_rounding(&self, b: &[T], answer: &mut Answer<T>) {
        let outcome = &mut answer.ended.outcome;
        if outcome.status != Status::Stagnated || !self.plan.direct_is_open {
            return;
        }
        let error = BackwardError::of(&*self.host, b, &answer.x);
        outcome.backward_error = Some(error);
        if error.is_stable::<T>() {
            outcome.status = Status::BackwardStable;
        }
    }

    pub(super) fn is_iterative(&self) -> bool {
        matches!(self.running, Some(Running::Iterative(_)))
    }

    /// Continues with a factorisation if the iteration failed or gave way. The solver then keeps it until the next
    /// matrix.
    fn factor_after(
        &mut self,
        device: &B,
        b: &[T],
        first: Answer<T>,
        gave_way: bool,
        times: &mut Times,
    ) -> Result<Answer<T>> {
        let host = Arc::clone(&self.host);
        let mut rival = self.rival.take().unwrap_or_else(|| self.new_rival(&host, device));
        if !rival.cost().is_finite() {
            return Ok(first);
        }
        let Ended { outcome, method, .. } = &first.ended;
        let after = counted(outcome.iterations, "iteration");
        let tried = format!("{method} with {}", self.plan.preconditioner);
        let why = if gave_way {
            format!("after {after} {tried} was expected to take longer")
        } else {
            format!("{tried} ended as {} after {after}", outcome.status)
        };
        let told = self.reporter.note(&format!("{why}; a complete factorisation takes over"));
        let means = self.plan.means::<T>(device.profile());
        let mut setup = Setup::new(&mut self.reporter, times);
        let told = told.and_then(|()| setup.begin(Stage::SetUp, "the factorisation"));
        if unless_interrupted(told)?.is_none() {
            return Ok(first.interrupted());
        }
        let made = factored(&host, rival.take(), means, &mut setup);
        setup.end_setup();
        let given_up = first.ended.given_up(self.plan.preconditioner);
        match made {
            Ok((Some(direct), singular)) => {
                self.plan.now_direct(why);
                (self.running, self.found) = (Some(Running::Direct(direct)), Found::with(singular));
                match unless_interrupted(self.solve_with_factors(device, b, times, gave_way))? {
                    Some(next) => Ok(first.or(next, given_up)),
                    None => Ok(first.interrupted()),
                }
            }
            Ok((None, singular)) => {
                self.found = Found::with(singular);
                self.iterate_on(device, b, first, given_up, times)
            }
            Err(Error::Interrupted { .. }) => Ok(first.interrupted()),
            Err(error) => {
                self.plan.direct_is_open = false;
                let mut answer = self.iterate_on(device, b, first, given_up, times)?;
                answer.say(format!("a complete factorisation failed: {error}"));
                Ok(answer)
            }
        }
    }

    /// Continues with the iteration if it gave way and the factors cannot be made.
    fn iterate_on(
        &mut self,
        device: &B,
        b: &[T],
        first: Answer<T>,
        given_up: Attempt,
        times: &mut Times,
    ) -> Result<Answer<T>> {
        if first.ended.outcome.status != Status::Interrupted {
            return Ok(first);
        }
        let was_open = std::mem::replace(&mut self.plan.direct_is_open, false);
        let next = self.iterate(device, b, Some(&first.x), times);
        self.plan.direct_is_open = was_open;
        match unless_interrupted(next)? {
            Some(next) => Ok(first.or_interrupted(next.0, given_up)),
            None => Ok(first.interrupted()),
        }
    }

    /// Solves with the present factors. If the matrix is singular, finds out what can be known about it.
    pub(super) fn solve_with_factors(
        &mut self,
        device: &B,
        b: &[T],
        times: &mut Times,
        may_iterate: bool,
    ) -> Result<Answer<T>> {
        let mut lap = Lap::start();
        self.reporter.stage(Stage::Solve, "with the factors")?;
        let Some(Running::Direct(direct)) = &self.running else { return Err(super::device::lost()) };
        let is_regular = direct.options().regularization == 0.0;
        let mut answer = with_factors(direct, b)?;
        lap.add_to(&mut times.solve);
        if !self.plan.direct_is_open || answer.ended.outcome.status.is_converged() {
            return Ok(answer);
        }
        let host = Arc::clone(&self.host);
        // The matrix is numerically singular. Rounding may have hidden a zero pivot.
        let is_doubtful = answer.ended.outcome.condition.is_some_and(|condition| condition * T::UNIT_ROUNDOFF >= 1.0);
        if is_regular && is_doubtful {
            self.found.look(&host);
            if self.found.singular.is_none() {
                answer.say(
                    "the matrix is singular to working precision: only rounding determines parts of x".to_string(),
                );
            }
        }
        if is_regular && let Some(singular) = &self.found.singular {
            let contradiction = singular.defect.as_ref().and_then(|defect| defect.contradiction(&*host, b));
            if contradiction.is_none() && self.found.regular.is_none() {
                let mut setup = Setup::new(&mut self.reporter, times);
                let made = regularized(&host, self.plan.means::<T>(device.profile()), &mut setup);
                setup.end_setup();
                let Some(made) = unless_interrupted(made)? else { return Ok(answer.interrupted()) };
                self.found.regular = Some(made);
            }
            if let (None, Some(Some(regular))) = (contradiction, &self.found.regular) {
                let next = with_factors(regular, b)?;
                lap.add_to(&mut times.solve);
                let given_up = answer.ended.given_up(Precond::None);
                answer = answer.or(next, given_up);
            }
        }
        let is_settled = match answer.ended.outcome.status {
            Status::Converged => true,
            Status::BackwardStable => self.found.singular.is_none(),
            _ => self.contradiction(b).is_some(),
        };
        if is_settled || !may_iterate { Ok(answer) } else { self.iterate_last(device, b, answer, times) }
    }

    /// The reason why no x solves a system whose matrix is known to be singular, if there is one.
    fn contradiction(&mut self, b: &[T]) -> Option<String> {
        let singular = self.found.singular.as_ref()?;
        let told = singular.defect.as_ref().and_then(|defect| defect.contradiction(&*self.host, b));
        if told.is_some() {
            return told;
        }
        let Some(Running::Direct(direct)) = &self.running else { return None };
        let contradicts = |share: f64| share.abs() > CONTRADICTS * T::UNIT_ROUNDOFF;
        // If the known combination does not contradict this b, another one may.
        let known = self.found.weights.as_deref().is_some_and(|weights| contradicts(share_of(weights, b)));
        if !known {
            // If the existing factors fail here, this says nothing about the system.
            let (weights, share) = direct.vanishing_combination(b).ok()??;
            self.found.weights = Some(weights);
            if !contradicts(share) {
                return None;
            }
        }
        let row = self.found.weights.as_ref()?.iter().position(|weight| weight.abs() == 1.0)? + 1;
        Some(format!(
            "{singular}; a combination of equations that includes row {row} is zero on the left-hand side but not on the right"
        ))
    }

    /// Adds the reason to an answer that does not solve the system, if the matrix is singular.
    pub(super) fn conclude(&mut self, b: &[T], answer: &mut Answer<T>) {
        use Status as S;
        let status = answer.ended.outcome.status;
        if status == S::Interrupted || (!self.plan.direct_is_open && self.found.singular.is_none()) {
            return;
        }
        if status == S::Converged {
            if let Some(singular) = &self.found.singular {
                answer.say(format!("{singular}, but this b has an answer"));
            }
            return;
        }
        if status != S::BackwardStable {
            self.found.look(&self.host);
        }
        let Some(told) = self.found.singular.as_ref().map(Singular::to_string) else { return };
        let (status, text) = match self.contradiction(b) {
            Some(contradiction) => (S::Inconsistent, contradiction),
            None => (S::Singular, told),
        };
        answer.ended.outcome.status = status;
        answer.say(text);
    }

    /// Runs the policy's iteration with a limit of iterations, after factorisations have failed.
    fn iterate_last(&mut self, device: &B, b: &[T], answer: Answer<T>, times: &mut Times) -> Result<Answer<T>> {
        let Some(plan) = self.plan.iterative.clone() else { return Ok(answer) };
        let why = format!("the factorisation ended as {}", answer.ended.outcome.status);
        self.iterate_as(device, b, answer, (*plan, &why), times)
    }

    /// Runs the strongest iteration, if the first one failed and a factorisation does not fit.
    fn iterate_stronger(&mut self, device: &B, b: &[T], answer: Answer<T>, times: &mut Times) -> Result<Answer<T>> {
        use Status as S;
        let is_final =
            matches!(answer.ended.outcome.status, S::Converged | S::BackwardStable | S::Interrupted | S::Inconsistent);
        let vectors = (self.plan.nrows * (RESTART + 2) * T::BYTES) as u64;
        if is_final || !self.plan.direct_is_open || !self.is_iterative() || !fits(vectors, None) {
            return Ok(answer);
        }
        let mut plan = self.plan.clone();
        (plan.method, plan.restart) = (Method::Gmres, RESTART);
        (plan.preconditioner, plan.standby, plan.stronger) = (Precond::Ilut(IlutOptions::default()), None, None);
        plan.widen();
        if let (false, None) = (plan.symmetric, self.settings.scale)
            && let Ok(Some(matched)) = Preparation::of(Scale::Match, &*self.host, false)
        {
            (plan.preparation, plan.scale) = (Some(Arc::new(matched)), Scale::Match);
        }
        let Ended { outcome, method, .. } = &answer.ended;
        let why = format!("{method} with {} ended as {}", self.plan.preconditioner, outcome.status);
        self.iterate_as(device, b, answer, (plan, &why), times)
    }

    /// Iterates with another plan up to a limit of iterations, then returns to this one. If the other plan cannot be
    /// set up, nothing changes.
    fn iterate_as(
        &mut self,
        device: &B,
        b: &[T],
        answer: Answer<T>,
        (mut plan, why): (Plan, &str),
        times: &mut Times,
    ) -> Result<Answer<T>> {
        let host = Arc::clone(&self.host);
        plan.max_iterations = plan.max_iterations.min(LAST_ITERATIONS);
        (plan.direct_is_open, plan.method_is_open, plan.otherwise) = (false, false, None);
        let told = self.reporter.note(&format!("{why}; {} with {} takes over", plan.method, plan.preconditioner));
        if unless_interrupted(told)?.is_none() {
            return Ok(answer.interrupted());
        }
        let mut setup = Setup::new(&mut self.reporter, times);
        let engine = match prepare::engine(device, host, &mut plan, &mut setup) {
            Ok(engine) => engine,
            Err(Error::Interrupted { .. }) => return Ok(answer.interrupted()),
            Err(_) => return Ok(answer),
        };
        setup.end_setup();
        let given_up = answer.ended.given_up(self.plan.preconditioner);
        let preconditioner = plan.preconditioner;
        let before = (std::mem::replace(&mut self.plan, plan), self.running.replace(Running::Iterative(engine)));
        let next = self.iterate(device, b, None, times);
        (self.plan, self.running) = before;
        let Some((mut next, _)) = unless_interrupted(next)? else { return Ok(answer.interrupted()) };
        next.preconditioner = Some(preconditioner);
        Ok(answer.or_interrupted(next, given_up))
    }
}

impl<T> Answer<T> {
    pub(super) fn say(&mut self, text: String) {
        self.note = Some(match self.note.take() {
            Some(note) => format!("{note}; {text}"),
            None => text,
        });
    }
}

/// Solves with factors and describes the factorisation.
fn with_factors<T: Element>(direct: &Direct<T>, b: &[T]) -> Result<Answer<T>> {
    let begun = Instant::now();
    let mut x = vec![T::zero(); direct.ncols()];
    let outcome = direct.solve(b, &mut x)?;
    let seconds = begun.elapsed().as_secs_f64();
    let note = Some(factors_note(direct, &outcome));
    let ended = Ended { outcome, method: Method::Direct, seconds, attempts: Vec::new() };
    Ok(Answer { x, ended, note, preconditioner: None })
}

/// A note on the factorisation.
fn factors_note<T: Element>(direct: &Direct<T>, outcome: &Outcome) -> String {
    let mut note = format!("by {}", direct.method().as_str().to_uppercase());
    if direct.options().regularization > 0.0 {
        note.push_str(&format!(" of A + {:.0e} D, refined", direct.options().regularization));
    }
    if direct.fell_back() {
        note.push_str(", after LL^T met a pivot that is not positive");
    }
    let by_gradient =
        outcome.status.is_converged() && direct.options().rtol.is_some_and(|rtol| outcome.true_residual > rtol);
    if direct.method() == DirectMethod::Qr && by_gradient {
        note.push_str("; no x has a smaller residual: the gradient A^T (b - A x) is zero");
    }
    note
}
