//! What follows when the first way of a solve comes to nothing: a complete factorisation, and for a singular matrix an answer or the reason
//! why there is none.
//!
//! 1. A factorisation ([`super::rival`]), whose answer is refined. An answer with a backward error of the size of rounding is final.
//! 2. If a pivot is zero, or the condition number is past the reciprocal of the unit roundoff: the [`Defect`] is looked for. What b
//!    contradicts makes the system inconsistent.
//! 3. The factorisation of A + delta D, refined with A itself. If the system has an answer this finds one; it has
//!    none if a combination of equations vanishes on the left and not on the right.
//! 4. The iteration that the policy names without a factorisation, for a while. If a factorisation does not fit, GMRES with ILUT.

use std::sync::Arc;
use std::time::Instant;

use spandrel_formats::{Csr, Profile};
use spandrel_solvers::direct::Method as DirectMethod;
use spandrel_solvers::{BackwardError, Defect, Direct, DirectOptions, Error, Method, Outcome, Precond, Result, Status};
use spandrel_sptrsv::IlutOptions;

use super::build::{Lap, Setup, Times};
use super::device::{DeviceSolver, Ended, Running};
use super::element::{Element, SolverBackend};
use super::plan::{Plan, Stage};
use super::prepare;
use super::prepare::Preparation;
use super::rival::Rival;
use super::settings::Scale;
use super::solution::Attempt;
use super::words::counted;

/// Steps of refinement after a factorisation of A + delta D. delta is the square root of the unit roundoff, so that a step gains about as
/// many digits as elimination loses.
const STEPS: usize = 12;
/// Unit roundoffs of w^T b / (||w|| ||b||) from which a combination w of equations that vanishes on the left contradicts b: above the
/// rounding of w.
const CONTRADICTS: f64 = 1e6;
/// Iterations after factorisations have failed. Singular systems that have an answer are solved in fewer, or not at all.
const LAST_ITERATIONS: usize = 2000;
/// Steps of a cycle of the last GMRES.
const RESTART: usize = 100;

/// What is known of a singular matrix.
#[derive(Clone, Debug)]
pub(super) struct Singular {
    /// In terms of its rows and columns, if that was found.
    pub(super) defect: Option<Defect>,
    /// What the factorisation said.
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

/// The factors of a matrix that has been analysed, or of A + delta D if it is singular: then with what is known of that. `None` where it
/// is singular and A + delta D does not fit.
///
/// # Errors
/// What keeps a regular matrix from being factored.
pub(super) fn factored<T: Element>(
    a: &Arc<Csr<T>>,
    analysed: Result<Direct<T>>,
    (options, profile): (&DirectOptions, &Profile),
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
            Ok((regularized(a, (options, profile), setup)?, Some(singular)))
        }
        Err(error) => Err(error),
    }
}

/// The factors of A + delta D, if they fit and can be made.
fn regularized<T: Element>(
    a: &Arc<Csr<T>>,
    (options, profile): (&DirectOptions, &Profile),
    setup: &mut Setup<'_>,
) -> Result<Option<Box<Direct<T>>>> {
    let delta = T::UNIT_ROUNDOFF.sqrt();
    let options = DirectOptions { regularization: delta, refinements: STEPS, ..*options };
    setup.begin(Stage::SetUp, format_args!("the factorisation of A + {delta:.0e} D"))?;
    let mut rival = Rival::new(Arc::clone(a), options, profile);
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

/// An answer on the host, and how it came about.
pub(super) struct Answer<T> {
    pub(super) x: Vec<T>,
    pub(super) ended: Ended,
    /// What else there is to say.
    pub(super) note: Option<String>,
    /// The preconditioner, if it is not that of the solver's plan.
    pub(super) preconditioner: Option<Precond>,
}

impl<T> Answer<T> {
    fn attempt(&self, preconditioner: Precond, seconds: f64) -> Attempt {
        let Ended { outcome, method, .. } = &self.ended;
        Attempt {
            method: *method,
            preconditioner,
            status: outcome.status,
            iterations: outcome.iterations,
            true_residual: outcome.true_residual,
            seconds,
        }
    }

    /// Keeps the better of two answers, with the attempts of both. An iteration that gave way is never how a solve ends.
    fn or(mut self, mut next: Answer<T>, given_up: Attempt) -> Answer<T> {
        let mut attempts = std::mem::take(&mut self.ended.attempts);
        attempts.push(given_up);
        attempts.append(&mut next.ended.attempts);
        let is_better = next.ended.outcome.status.is_converged()
            || next.ended.outcome.status == Status::BackwardStable
            // Written so that NaN is never better.
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
    /// Whether a factorisation may take over from this answer.
    pub(super) fn may_factor(&self, outcome: &Outcome, gave_way: bool) -> bool {
        use Status as S;
        let is_final = matches!(outcome.status, S::Converged | S::BackwardStable | S::Interrupted) && !gave_way;
        self.plan.direct_is_open && self.host.is_some() && !is_final && self.is_iterative()
    }

    /// Calls an iteration that stagnates solved to rounding if its x is: no method does better in this precision then.
    pub(super) fn judge_by_rounding(&self, b: &[T], answer: &mut Answer<T>) {
        let outcome = &mut answer.ended.outcome;
        let (Some(host), Status::Stagnated, true) = (&self.host, outcome.status, self.plan.direct_is_open) else {
            return;
        };
        let error = BackwardError::of(&**host, b, &answer.x);
        outcome.backward_error = Some(error);
        if error.is_stable::<T>() {
            outcome.status = Status::BackwardStable;
        }
    }

    pub(super) fn is_iterative(&self) -> bool {
        matches!(self.running, Some(Running::Iterative(_)))
    }

    /// Goes on with a factorisation where the iteration has come to nothing, or has given way. Until the next matrix the solver stays with it.
    pub(super) fn factor_after(
        &mut self,
        device: &B,
        b: &[T],
        first: Answer<T>,
        gave_way: bool,
        times: &mut Times,
    ) -> Result<Answer<T>> {
        let Some(host) = self.host.clone() else { return Ok(first) };
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
        self.reporter.note(&format!("{why}; a complete factorisation takes over"))?;
        let options = self.plan.direct_options::<T>();
        let mut setup = Setup::new(&mut self.reporter, times);
        setup.begin(Stage::SetUp, "the factorisation")?;
        let made = factored(&host, rival.take(), (&options, device.profile()), &mut setup);
        setup.end_setup();
        let given_up = first.attempt(self.plan.preconditioner, times.solve);
        match made {
            Ok((Some(direct), singular)) => {
                self.plan.now_direct(why);
                (self.running, self.singular) = (Some(Running::Direct(direct)), singular);
                let next = self.solve_with_factors(device, b, times, gave_way)?;
                Ok(first.or(next, given_up))
            }
            Ok((None, singular)) => {
                self.singular = singular;
                self.iterate_on(device, b, first, given_up, times)
            }
            Err(error @ Error::Interrupted { .. }) => Err(error),
            Err(error) => {
                self.plan.direct_is_open = false;
                let mut answer = self.iterate_on(device, b, first, given_up, times)?;
                answer.say(format!("a complete factorisation failed: {error}"));
                Ok(answer)
            }
        }
    }

    /// Goes on with the iteration where factors cannot be had, once it has given way to them.
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
        Ok(first.or(next?.0, given_up))
    }

    /// Solves with the factors at hand, and finds out what there is to say of a singular matrix.
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
        let Some(host) = self.host.clone() else { return Ok(answer) };
        // A condition number past the reciprocal of the unit roundoff: as good as singular. Rounding may have hidden a zero pivot.
        let is_doubtful = answer.ended.outcome.condition.is_some_and(|condition| condition * T::UNIT_ROUNDOFF >= 1.0);
        if is_regular && is_doubtful && self.singular.is_none() {
            let defect = Defect::of(&*host);
            self.singular = defect.map(|defect| Singular { defect: Some(defect), why: String::new() });
            if self.singular.is_none() {
                answer.say(
                    "the matrix is singular to working precision: rounding alone decides about parts of x".to_string(),
                );
            }
        }
        if is_regular && let Some(singular) = &self.singular {
            let contradiction = singular.defect.as_ref().and_then(|defect| defect.contradiction(&*host, b));
            if contradiction.is_none() {
                let mut setup = Setup::new(&mut self.reporter, times);
                let options = self.plan.direct_options::<T>();
                let made = regularized(&host, (&options, device.profile()), &mut setup)?;
                setup.end_setup();
                if let Some(regular) = made {
                    let next = with_factors(&regular, b)?;
                    lap.add_to(&mut times.solve);
                    let given_up = answer.attempt(Precond::None, times.solve);
                    answer = answer.or(next, given_up);
                }
            }
        }
        let is_settled = match answer.ended.outcome.status {
            Status::Converged => true,
            Status::BackwardStable => self.singular.is_none(),
            _ => self.contradiction(b).is_some(),
        };
        if is_settled || !may_iterate { Ok(answer) } else { self.iterate_last(device, b, answer, times) }
    }

    /// Why no x solves a system whose matrix is known to be singular, if that is so.
    fn contradiction(&self, b: &[T]) -> Option<String> {
        let (singular, host) = (self.singular.as_ref()?, self.host.as_ref()?);
        let told = singular.defect.as_ref().and_then(|defect| defect.contradiction(&**host, b));
        if told.is_some() {
            return told;
        }
        let Some(Running::Direct(direct)) = &self.running else { return None };
        // What cannot be had of factors that are at hand tells nothing.
        let (weights, share) = direct.vanishing_combination(b).ok()??;
        let row = weights.iter().position(|weight| weight.abs() == 1.0)? + 1;
        (share.abs() > CONTRADICTS * T::UNIT_ROUNDOFF).then(|| {
            format!("{singular}; a combination of equations, row {row} among them, vanishes on the left and not on the right")
        })
    }

    /// Says of an answer that solves nothing why, if the matrix is singular.
    pub(super) fn conclude(&mut self, b: &[T], answer: &mut Answer<T>) {
        use Status as S;
        let status = answer.ended.outcome.status;
        if !self.plan.direct_is_open && self.singular.is_none() {
            return;
        }
        if status == S::Converged {
            if let Some(singular) = &self.singular {
                answer.say(format!("{singular}, but this b has an answer"));
            }
            return;
        }
        let Some(host) = &self.host else { return };
        if self.singular.is_none() && status != S::BackwardStable {
            let defect = Defect::of(&**host);
            self.singular = defect.map(|defect| Singular { defect: Some(defect), why: String::new() });
        }
        let Some(singular) = &self.singular else { return };
        let (status, text) = match self.contradiction(b) {
            Some(contradiction) => (S::Inconsistent, contradiction),
            None => (S::Singular, singular.to_string()),
        };
        answer.ended.outcome.status = status;
        answer.say(text);
    }

    /// The iteration of the policy, for a while, where factorisations have not solved the system.
    fn iterate_last(&mut self, device: &B, b: &[T], answer: Answer<T>, times: &mut Times) -> Result<Answer<T>> {
        let Some(plan) = self.plan.iterative.clone() else { return Ok(answer) };
        let why = format!("the factorisation ended as {}", answer.ended.outcome.status);
        self.iterate_as(device, b, answer, (*plan, &why), times)
    }

    /// The strongest iteration there is, where the first has come to nothing and a factorisation does not fit.
    pub(super) fn iterate_stronger(
        &mut self,
        device: &B,
        b: &[T],
        answer: Answer<T>,
        times: &mut Times,
    ) -> Result<Answer<T>> {
        use Status as S;
        let is_final =
            matches!(answer.ended.outcome.status, S::Converged | S::BackwardStable | S::Interrupted | S::Inconsistent);
        let vectors = (self.plan.nrows * (RESTART + 2) * T::BYTES) as u64;
        if is_final || !self.plan.direct_is_open || !self.is_iterative() || !super::rival::fits(vectors) {
            return Ok(answer);
        }
        let mut plan = self.plan.clone();
        (plan.method, plan.restart) = (Method::Gmres, RESTART);
        (plan.preconditioner, plan.standby) = (Precond::Ilut(IlutOptions::default()), None);
        if let (false, None, Some(host)) = (plan.symmetric, self.settings.scale, &self.host)
            && let Ok(Some(matched)) = Preparation::of(Scale::Match, &**host, false)
        {
            (plan.preparation, plan.scale) = (Some(Arc::new(matched)), Scale::Match);
        }
        let Ended { outcome, method, .. } = &answer.ended;
        let why = format!("{method} with {} ended as {}", self.plan.preconditioner, outcome.status);
        self.iterate_as(device, b, answer, (plan, &why), times)
    }

    /// Iterates by another plan for a while, and goes back to this one. What cannot be set up changes nothing.
    fn iterate_as(
        &mut self,
        device: &B,
        b: &[T],
        answer: Answer<T>,
        (mut plan, why): (Plan, &str),
        times: &mut Times,
    ) -> Result<Answer<T>> {
        let Some(host) = self.host.clone() else { return Ok(answer) };
        let begun = Instant::now();
        plan.max_iterations = plan.max_iterations.min(LAST_ITERATIONS);
        (plan.direct_is_open, plan.method_is_open, plan.otherwise) = (false, false, None);
        self.reporter.note(&format!("{why}; {} with {} takes over", plan.method, plan.preconditioner))?;
        let mut setup = Setup::new(&mut self.reporter, times);
        let engine = match prepare::engine(device, host, &mut plan, &mut setup) {
            Ok(engine) => engine,
            Err(error @ Error::Interrupted { .. }) => return Err(error),
            Err(_) => return Ok(answer),
        };
        setup.end_setup();
        let given_up = answer.attempt(self.plan.preconditioner, begun.elapsed().as_secs_f64());
        let preconditioner = plan.preconditioner;
        let before = (std::mem::replace(&mut self.plan, plan), self.running.replace(Running::Iterative(engine)));
        let next = self.iterate(device, b, None, times);
        (self.plan, self.running) = before;
        let mut next = next?.0;
        next.preconditioner = Some(preconditioner);
        Ok(answer.or(next, given_up))
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

/// x by factors, with how the factorisation went.
fn with_factors<T: Element>(direct: &Direct<T>, b: &[T]) -> Result<Answer<T>> {
    let mut x = vec![T::zero(); direct.ncols()];
    let outcome = direct.solve(b, &mut x)?;
    let note = Some(factors_note(direct, &outcome));
    Ok(Answer { x, ended: Ended { outcome, method: Method::Direct, attempts: Vec::new() }, note, preconditioner: None })
}

/// How a factorisation went.
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
        note.push_str("; no x comes nearer: the gradient A^T (b - A x) vanishes");
    }
    note
}
