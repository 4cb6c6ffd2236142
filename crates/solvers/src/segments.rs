//! A solve as a sequence of segments, each begun from a true residual.
//!
//! A segment is what a method does from r = b - A x until its monitor stops. Behind it x is judged by the residual
//! recomputed from it, never by the recurrence: `converged` is said here and nowhere else. Where the recurrence claims what the truth
//! denies, or BiCGStab breaks down, the next segment begins from the recomputed residual (residual replacement: van der Vorst & Ye
//! 2000, Residual replacement strategies for Krylov subspace iterative methods for the convergence of true residuals). A cycle of GMRES
//! is a segment too, one that its method ends by itself.
//!
//! Invariants: outside a segment x is unscaled. Inside, r and x are times 2^k with k = 0 unless ||r|| is outside the window of
//! [`crate::norm`], so that squares of norms stay in range; powers of two change no other bit. A segment asks for no less
//! than u times what it began with, u the unit roundoff: the r that it begins from is b - A x rounded, an error of up to u ||r|| by
//! the last rounding alone, so a smaller norm of its recurrence says nothing about x.
//! Operators and preconditioners are dispatched dynamically from here on, so that a method is compiled once for each backend and not for each
//! pair of them. Cost beyond the iterations: for each segment and at the end one product, one norm and one wait.

use std::ops::ControlFlow;
use std::time::Instant;

use spandrel_backend::{Backend, Latest, Operator, Preconditioner, Quantity, Step, Stop, Watch};
use spandrel_formats::Real;

use crate::graphs::Graphs;
use crate::norm::{Norm, norm, scale_by};
use crate::options::Watcher;
use crate::rhythm::Rhythm;
use crate::{Error, Options, Outcome, Progress, Result, Status};

/// How a segment of BiCGStab chooses its shadow residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shadow {
    /// The residual it begins with.
    Residual,
    /// That plus a multiple of A M^-1 r: for a residual whose own product with it vanishes.
    Tilted,
}

/// How a segment is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) recorded: bool,
    pub(crate) persistent: bool,
    pub(crate) check_every: usize,
    /// Iterations that may pass without a smaller residual norm.
    pub(crate) stagnation: Option<usize>,
    /// Iterations that are left to this segment; its monitor has the same limit.
    pub(crate) max_iters: usize,
    /// What the residual norm must come down to, and beyond which it has diverged.
    pub(crate) threshold: f64,
    pub(crate) divergence: f64,
    /// The residual norm that the segment begins with.
    pub(crate) begun: f64,
    /// Residual and x are times two to this power.
    pub(crate) scale: i32,
}

/// The host looks at least every so many iterations, whatever `check_every` says: a solve without a limit must still see its stop.
const LONGEST_RUN: usize = 1 << 16;

impl Pace {
    /// Runs until the next look: never past the limit, where a monitor stops.
    pub(crate) fn until_next_look(self, done: usize) -> usize {
        let window = self.stagnation.map_or(usize::MAX, |window| window - done % window);
        // From one multiple to the next, also if the clock has brought a look between them.
        let every = self.check_every.clamp(1, LONGEST_RUN);
        (every - done % every).min(window).min(self.max_iters.saturating_sub(done)).max(1)
    }

    /// Whether the window that ends with the last of these norms, one per iteration, brought none below the least before it.
    fn stagnates(self, norms: &[f64]) -> bool {
        let Some(window) = self.stagnation.filter(|window| !norms.is_empty() && norms.len().is_multiple_of(*window))
        else {
            return false;
        };
        let (before, last) = norms.split_at(norms.len() - window);
        let least = |norms: &[f64], from: f64| norms.iter().fold(from, |least, norm| least.min(*norm));
        least(last, f64::INFINITY) >= least(before, self.begun)
    }
}

/// Why a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The monitor, or what a method says in its words.
    Stop(Stop),
    /// The watcher interrupted.
    Watcher,
    /// Its length was reached.
    Cycle,
    /// The cycle before did not lower the norm that the method minimises: neither would any other. Or a window of iterations without a
    /// smaller residual norm.
    Standstill,
}

/// How a segment ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) cause: Cause,
    /// Iterations done.
    pub(crate) iterations: usize,
    /// The last residual norm, if there is one.
    pub(crate) residual: Option<f64>,
}

/// What a segment works on, and how.
pub(crate) struct Segment<'a, T: Real, B: Backend<T>> {
    pub(crate) be: &'a B,
    pub(crate) a: &'a dyn Operator<T, B>,
    pub(crate) m: &'a dyn Preconditioner<T, B>,
    pub(crate) x: &'a mut B::Vector,
    /// Armed for it.
    pub(crate) monitor: &'a mut B::Monitor,
    pub(crate) shadow: Shadow,
    pub(crate) pace: Pace,
    pub(crate) rhythm: &'a mut Rhythm,
    /// Called at each look of the host.
    pub(crate) look: &'a mut dyn FnMut(Latest) -> ControlFlow<()>,
}

/// A Krylov method over its workspace.
pub(crate) trait Method<T: Real, B: Backend<T>> {
    const NAME: &'static str;
    /// Breakdowns in a row without progress that end the solve.
    const FRUITLESS: usize;
    /// Unknowns of the workspace.
    fn len(&self) -> usize;
    /// The residual, a vector and a scalar that are free between segments.
    fn between(&mut self) -> (&mut B::Vector, &mut B::Vector, &mut B::Scalar);
    /// The monitor, kept from the solve before.
    fn monitor(&mut self) -> &mut Option<B::Monitor>;
    /// The captured steps.
    fn graphs(&mut self) -> &mut Graphs<B>;
    /// A new solve begins: nothing is known of it.
    fn forget(&mut self) {}
    /// Residual norms of the segment that ended, one per iteration. Blocks.
    fn norms(&mut self, be: &B, monitor: &B::Monitor) -> Result<Vec<f64>> {
        Ok(be.report(monitor)?.history)
    }
    /// Runs from the residual in place until the monitor stops or `look` breaks off.
    fn segment(&mut self, on: Segment<'_, T, B>) -> Result<End>;
}

/// A step that owns (the borrow of) its monitor.
pub(crate) trait Watched<B: spandrel_backend::Device>: Step<B> {
    fn monitor(&self) -> &B::Monitor;
    /// `count` times the step at once, with the same result; or false and nothing done.
    fn leap(&mut self, be: &B, count: usize) -> Result<bool>;
}

/// Repeats a step until its monitor (armed for this segment) stops or `look` breaks off.
///
/// Every run observes one full residual norm or stops, so a monitor that runs has counted each of them and stands below its
/// limit. A device that reports otherwise would be waited for without end and is an error.
///
/// # Safety
/// As [`Graphs::run`] for `graphs` and this step.
pub(crate) unsafe fn repeat<B: spandrel_backend::Device, S: Watched<B>>(
    be: &B,
    mut step: S,
    graphs: &mut Graphs<B>,
    pace: Pace,
    rhythm: &mut Rhythm,
    look: &mut dyn FnMut(Latest) -> ControlFlow<()>,
) -> Result<End> {
    let mut runs = 0;
    loop {
        let more = pace.until_next_look(runs).min(rhythm.until_due());
        if !(pace.persistent && step.leap(be, more)?) {
            break;
        }
        runs += more;
        if let Some(end) = look_at(be, step.monitor(), runs, pace, look)? {
            return Ok(end);
        }
        rhythm.look(more);
    }
    loop {
        let more = pace.until_next_look(runs).min(rhythm.until_due());
        let mut done = 0;
        while done < more && !rhythm.is_due(done) {
            // SAFETY: the caller's promise.
            unsafe { graphs.run(be, (0, 1), &mut step, pace.recorded) }?;
            done += 1;
        }
        runs += done;
        if let Some(end) = look_at(be, step.monitor(), runs, pace, look)? {
            return Ok(end);
        }
        rhythm.look(done);
    }
}

/// What the monitor says after `runs` runs: the end, if it is one.
fn look_at<B: spandrel_backend::Device>(
    be: &B,
    monitor: &B::Monitor,
    runs: usize,
    pace: Pace,
    look: &mut dyn FnMut(Latest) -> ControlFlow<()>,
) -> Result<Option<End>> {
    let latest = be.report_latest(monitor)?;
    if latest.stop.is_none() && (latest.iterations != runs || runs >= pace.max_iters) {
        let why = format!(
            "the monitor still runs and counts {} iterations where {runs} of at most {} were enqueued: the device lost work; \
             solve again with `recorded` and `persistent` off, and report it",
            latest.iterations, pace.max_iters
        );
        return Err(spandrel_backend::Error::Device { device: B::NAME, why }.into());
    }
    let at_window = pace.stagnation.is_some_and(|window| runs.is_multiple_of(window));
    let cause = match latest.stop {
        Some(stop) => Some(Cause::Stop(stop)),
        None if look(latest).is_break() => Some(Cause::Watcher),
        None if at_window && pace.stagnates(&be.report(monitor)?.history) => Some(Cause::Standstill),
        None => None,
    };
    Ok(cause.map(|cause| End { cause, iterations: latest.iterations, residual: latest.residual }))
}

/// Compares what the caller gave with a square matrix; the workspace last, which is often made from one of them.
pub(crate) fn expect_operands(solver: &'static str, n: usize, workspace: usize, b: usize, x: usize) -> Result<()> {
    use crate::error::{FIT_B, FIT_WORKSPACE, FIT_X};
    for (what, found, remedy) in [("b", b, FIT_B), ("x", x, FIT_X), ("the workspace", workspace, FIT_WORKSPACE)] {
        if found != n {
            return Err(Error::elements(solver, what, found, n, remedy));
        }
    }
    Ok(())
}

/// Sizes of everything, once.
fn check<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &B::Vector,
    x: &B::Vector,
) -> Result<()> {
    let solver = W::NAME;
    let (nrows, ncols) = a.shape();
    if nrows != ncols {
        return Err(Error::NotSquare { solver, nrows, ncols });
    }
    expect_operands(solver, nrows, method.len(), be.len(b), be.len(x))?;
    match m.len() {
        Some(rows) if rows != nrows => {
            Err(Error::rows(solver, "the preconditioner", rows, nrows, crate::error::FIT_PRECONDITIONER))
        }
        _ => Ok(()),
    }
}

/// What follows from how a segment ended, where x has not converged.
enum Verdict {
    Ended(Status),
    /// Begin again; the status if no restart is left.
    Again(Status),
    /// On with the next cycle, which is no restart that options limit.
    Onward,
}

/// The judge's memory between segments.
struct Judge {
    /// True residual at the begin of the last segment.
    before: f64,
    /// Breakdowns in a row without progress.
    fruitless: usize,
    /// Restarts that were answers to a breakdown or to a claim that the truth denied.
    restarts: usize,
}

impl Judge {
    /// A segment that ends in a breakdown was fruitful if the true residual is below this times that before: a tenth is more than
    /// the rounding of two norms, and twenty restarts (the default) of as little still divide the residual by eight.
    const FRUITFUL: f64 = 0.9;
    /// A claim of convergence that the truth denied twice has stagnated unless the second segment halved the true residual:
    /// away from the attainable accuracy a segment divides it by up to 1/u, and refinement is ended by the same measure in
    /// [`crate::direct`].
    const STAGNANT: f64 = 0.5;

    fn verdict(&mut self, cause: Cause, now: f64, fruitless: usize) -> Verdict {
        let breakdown = |judge: &mut Self, status| {
            judge.fruitless = if now < Self::FRUITFUL * judge.before { 0 } else { judge.fruitless + 1 };
            if judge.fruitless < fruitless { Verdict::Again(status) } else { Verdict::Ended(status) }
        };
        let stop = match cause {
            Cause::Watcher => return Verdict::Ended(Status::Interrupted),
            Cause::Cycle => {
                self.fruitless = 0;
                return Verdict::Onward;
            }
            Cause::Standstill => return Verdict::Ended(Status::Stagnated),
            Cause::Stop(stop) => stop,
        };
        match stop {
            Stop::Converged | Stop::ConvergedHalf => {
                self.fruitless = 0;
                if self.restarts > 0 && now > Self::STAGNANT * self.before {
                    Verdict::Ended(Status::Stagnated)
                } else {
                    Verdict::Again(Status::Stagnated)
                }
            }
            Stop::MaxIterations => Verdict::Ended(Status::MaxIterations),
            Stop::Diverged => Verdict::Ended(Status::Diverged),
            Stop::NotPositive(Quantity::Curvature) => Verdict::Ended(Status::IndefiniteMatrix),
            Stop::NotPositive(Quantity::PreconditionedResidual) => Verdict::Ended(Status::IndefinitePreconditioner),
            Stop::NotFinite(_) => breakdown(self, Status::NotFinite),
            _ => breakdown(self, Status::Breakdown),
        }
    }
}

/// The scalar that a stop names.
fn quantity(cause: Cause) -> Option<Quantity> {
    match cause {
        Cause::Stop(Stop::Zero(q) | Stop::NotPositive(q) | Stop::NotFinite(q)) => Some(q),
        _ => None,
    }
}

/// Solves A x = b from the x given.
pub(crate) fn solve<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &B::Vector,
    x: &mut B::Vector,
    options: &Options,
    watcher: Watcher<'_>,
) -> Result<Outcome> {
    options.check()?;
    check(method, be, a, m, b, x)?;
    method.graphs().clear();
    let outcome = one(method, be, a, m, b, x, options, watcher);
    method.graphs().clear();
    outcome
}

/// Solves A x = b for each b from each x, one after the other. All iterate in one vector, so that what was captured for the first serves the
/// others.
pub(crate) fn solve_many<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &[B::Vector],
    x: &mut [B::Vector],
    options: &Options,
    watcher: Watcher<'_>,
) -> Result<Vec<Outcome>> {
    options.check()?;
    if b.len() != x.len() {
        return Err(Error::elements(W::NAME, "the list of answers", x.len(), b.len(), "give one x for each b"));
    }
    for (b, x) in b.iter().zip(&*x) {
        check(method, be, a, m, b, x)?;
    }
    let mut iterate = be.zeros(method.len())?;
    method.graphs().clear();
    let mut outcomes = Vec::with_capacity(b.len());
    for (b, x) in b.iter().zip(x) {
        be.copy(None, x, &mut iterate)?;
        let outcome = one(method, be, a, m, b, &mut iterate, options, watcher);
        if outcome.is_err() {
            method.graphs().clear();
        }
        let outcome = outcome?;
        be.copy(None, &iterate, x)?;
        let interrupted = outcome.status == Status::Interrupted;
        outcomes.push(outcome);
        if interrupted {
            break;
        }
    }
    method.graphs().clear();
    Ok(outcomes)
}

/// Solves one system of checked sizes. What was captured since the graphs were cleared was captured for the same A, M and x, and an error
/// clears them (the monitor may be gone with it).
fn one<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &B::Vector,
    x: &mut B::Vector,
    options: &Options,
    watcher: Watcher<'_>,
) -> Result<Outcome> {
    let n = method.len();
    let mut outcome = Outcome::zero::<T>();
    if n == 0 {
        return Ok(outcome);
    }
    method.forget();
    let (_, scratch, scalar) = method.between();
    let b_norm = norm(be, b, scratch, scalar)?;
    if b_norm.is_zero() {
        be.fill(None, T::zero(), x)?;
        return Ok(outcome);
    }

    let (max_iters, rtol) = (options.iteration_limit(n), options.rtol_for::<T>());
    let target = rtol.max(Norm::of(options.atol).over(b_norm));
    outcome.target = target;
    let mut judge = Judge { before: f64::INFINITY, fruitless: 0, restarts: 0 };
    let mut shadow = Shadow::Residual;
    let mut ended: Option<End> = None;
    let mut known: Option<Rhythm> = None;
    loop {
        // The truth about x.
        let began = Instant::now();
        let (r, scratch, scalar) = method.between();
        a.residual(be, None, b, x, r)?;
        let r_norm = norm(be, r, scratch, scalar)?;
        let now = r_norm.over(b_norm);
        outcome.true_residual = now;
        let rhythm = known.get_or_insert_with(|| Rhythm::new(options.check_after, began.elapsed()));
        if ended.is_none() {
            outcome.residual = now;
            if options.history {
                outcome.history.push(now);
            }
        }
        let verdict = if !(r_norm.is_finite() && b_norm.is_finite()) {
            outcome.true_residual = f64::NAN;
            match &ended {
                Some(End { cause: Cause::Stop(Stop::Diverged), .. }) => Verdict::Ended(Status::Diverged),
                _ => Verdict::Ended(Status::NotFinite),
            }
        } else if now <= rtol || r_norm.value() <= options.atol {
            Verdict::Ended(Status::Converged)
        } else {
            match &ended {
                // A cycle shrinks the norm that its method minimises, which need not be this one.
                Some(End { cause: Cause::Cycle, .. }) if now > options.divergence * judge.before.max(1.0) => {
                    Verdict::Ended(Status::Diverged)
                }
                Some(end) => judge.verdict(end.cause, now, W::FRUITLESS),
                None => Verdict::Onward,
            }
        };
        outcome.status = match verdict {
            Verdict::Ended(status) => status,
            Verdict::Again(_) | Verdict::Onward if outcome.iterations >= max_iters => Status::MaxIterations,
            Verdict::Again(otherwise) if judge.restarts == options.max_restarts => otherwise,
            verdict => {
                // On with another segment.
                judge.restarts += usize::from(matches!(verdict, Verdict::Again(_)));
                judge.before = now;
                outcome.restarts += usize::from(ended.is_some());
                let done = outcome.iterations;
                let restarts = outcome.restarts;
                let mut tell = |iterations, residual| {
                    watcher(Progress { iterations: done + iterations, max_iters, residual, target, restarts })
                };
                if tell(0, now).is_break() {
                    outcome.status = Status::Interrupted;
                    return Ok(outcome);
                }

                let k = begin(method, be, x, r_norm)?;
                let begun = r_norm.shifted(k);
                let unit = b_norm.shifted(k);
                let asked = (rtol * unit).max(Norm::of(options.atol).shifted(k));
                let watch = Watch {
                    threshold: asked.max(begun * T::UNIT_ROUNDOFF),
                    divergence: options.divergence * unit.max(begun),
                    max_iters: max_iters - done,
                };
                let mut monitor = match method.monitor().take() {
                    Some(mut monitor) => {
                        be.rearm(&mut monitor, &watch)?;
                        monitor
                    }
                    None => be.monitor(&watch)?,
                };
                let mut look =
                    |latest: Latest| tell(latest.iterations, latest.residual.map_or(now, |norm| norm / unit));
                let pace = Pace {
                    recorded: options.recorded,
                    persistent: options.persistent,
                    check_every: options.check_every,
                    stagnation: options.stagnation,
                    max_iters: watch.max_iters,
                    threshold: watch.threshold,
                    divergence: watch.divergence,
                    begun,
                    scale: k,
                };
                rhythm.begin_segment();
                let monitor_of = &mut monitor;
                let on = Segment { be, a, m, x: &mut *x, monitor: monitor_of, shadow, pace, rhythm, look: &mut look };
                let end = method.segment(on)?;
                scale_by(be, -k, x, method.between().1)?;

                outcome.iterations += end.iterations;
                if let Some(norm) = end.residual {
                    outcome.residual = norm / unit;
                }
                if options.history {
                    outcome.history.extend(method.norms(be, &monitor)?.iter().map(|norm| norm / unit));
                }
                *method.monitor() = Some(monitor);
                if let Some(q) = quantity(end.cause) {
                    outcome.breakdown = Some((q, outcome.iterations));
                }
                let at_once = end.iterations == 0 && end.cause == Cause::Stop(Stop::Zero(Quantity::ShadowDirection));
                shadow = if at_once { Shadow::Tilted } else { Shadow::Residual };
                ended = Some(end);
                continue;
            }
        };
        // An unknown that no equation holds may have grown to infinity, where no residual sees it.
        if !outcome.status.is_converged() && ended.is_some() {
            let (_, scratch, scalar) = method.between();
            if !norm(be, x, scratch, scalar)?.is_finite() {
                (outcome.status, outcome.true_residual) = (Status::NotFinite, f64::NAN);
            }
        }
        return Ok(outcome);
    }
}

/// Brings r and x into range: both times 2^k, and k back.
fn begin<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    x: &mut B::Vector,
    r_norm: Norm,
) -> Result<i32> {
    let mut k = r_norm.scale::<T>();
    if k == 0 {
        return Ok(0);
    }
    let (r, scratch, scalar) = method.between();
    let x_norm = norm(be, x, scratch, scalar)?;
    if !x_norm.is_zero() {
        // x may not overflow for the sake of a small r.
        let room = if T::BYTES == 4 { 100 } else { 1000 };
        k = k.min((room - x_norm.exponent()).max(0));
    }
    scale_by(be, k, r, scratch)?;
    scale_by(be, k, x, scratch)?;
    Ok(k)
}
