//! A solve as a sequence of segments, each begun from a true residual.
//!
//! A segment is what a method does from r = b - A x until its monitor stops. After it, x is judged by the recomputed
//! residual, never by the recurrence; `converged` is decided only here. If the recurrence claims what the true residual
//! denies, or BiCGStab breaks down, the next segment begins from the recomputed residual (residual replacement: van der
//! Vorst & Ye 2000, Residual replacement strategies for Krylov subspace iterative methods for the convergence of true
//! residuals). A cycle of GMRES is a segment too, which its method ends by itself.
//!
//! Invariants: outside a segment x is unscaled. Inside, r and x are multiplied by 2^k so that squares of norms stay in
//! range; k = 0 unless ||r|| is outside the window of [`crate::norm`]. Powers of two change no other bit. The goal of a
//! segment is at least u times the norm that it began with, u the unit roundoff. The initial r is b - A x rounded, with
//! an error of up to u ||r||, so a smaller norm of the recurrence says nothing about x.
//!
//! Operators and preconditioners are dispatched dynamically from here on, so a method is compiled once per backend and
//! not once per pair of them. Cost beyond the iterations: for each segment and at the end one product, one norm and one
//! wait.

use std::ops::ControlFlow;
use std::time::Instant;

use spandrel_backend::{Backend, Latest, Operator, Preconditioner, Quantity, Step, Stop, Watch};
use spandrel_formats::Real;

use crate::graphs::Graphs;
use crate::norm::{Norm, factors, norm, scale_by};
use crate::options::{Iterate, Observer};
use crate::rhythm::Rhythm;
use crate::{Error, Options, Outcome, Progress, Result, Status};

/// How a segment of BiCGStab chooses its shadow residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shadow {
    /// The residual at the start of the segment.
    Residual,
    /// That residual plus a multiple of A M^-1 r, if its own product with A M^-1 r vanishes.
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
    /// Iterations left for this segment; its monitor has the same limit.
    pub(crate) max_iters: usize,
    /// The goal of the residual norm, and the bound beyond which it has diverged.
    pub(crate) threshold: f64,
    pub(crate) divergence: f64,
    /// The residual norm at the start of the segment.
    pub(crate) begun: f64,
    /// Residual and x are multiplied by 2 to this power.
    pub(crate) scale: i32,
}

/// The host looks at least this often, whatever `check_every` is: a solve without a limit must still see its stop.
const LONGEST_RUN: usize = 1 << 16;

impl Pace {
    /// Runs until the next look, never beyond the limit, at which a monitor stops.
    pub(crate) fn until_next_look(self, done: usize) -> usize {
        let window = self.stagnation.map_or(usize::MAX, |window| window - done % window);
        // From one multiple to the next, even if the clock has caused a look in between.
        let every = self.check_every.clamp(1, LONGEST_RUN);
        (every - done % every).min(window).min(self.max_iters.saturating_sub(done)).max(1)
    }

    /// Whether the window that ends with the last of these norms has no norm below the smallest one before it.
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
    /// The monitor stopped, or the method stopped by itself with the same words.
    Stop(Stop),
    /// The watcher interrupted.
    Watcher,
    /// The cycle reached its length.
    Cycle,
    /// The previous cycle did not lower the norm that the method minimises, so no other would. Or a window of
    /// iterations brought no smaller residual norm.
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

/// The operands and settings of a segment.
pub(crate) struct Segment<'a, T: Real, B: Backend<T>> {
    pub(crate) be: &'a B,
    pub(crate) a: &'a dyn Operator<T, B>,
    pub(crate) m: &'a dyn Preconditioner<T, B>,
    pub(crate) x: &'a mut B::Vector,
    /// The monitor, armed for this segment.
    pub(crate) monitor: &'a mut B::Monitor,
    pub(crate) shadow: Shadow,
    pub(crate) pace: Pace,
    pub(crate) rhythm: &'a mut Rhythm,
    pub(crate) look: Look<'a, B::Vector>,
}

/// Called at each look of the host, with x if the method has one. All ranks of a distributed solve get the same answer.
pub(crate) type Look<'a, V> = &'a mut dyn FnMut(Latest, Option<&V>) -> Result<ControlFlow<()>>;

/// A Krylov method over its workspace.
pub(crate) trait Method<T: Real, B: Backend<T>> {
    const NAME: &'static str;
    /// This many breakdowns in a row without progress end the solve.
    const FRUITLESS: usize;
    /// The number of unknowns of the workspace.
    fn len(&self) -> usize;
    /// Whether it takes a preconditioner that is not linear.
    fn takes_any_preconditioner(&self) -> bool;
    /// The residual, and a vector and a scalar that are free between segments.
    fn between(&mut self) -> (&mut B::Vector, &mut B::Vector, &mut B::Scalar);
    /// The monitor, kept from the previous solve.
    fn monitor(&mut self) -> &mut Option<B::Monitor>;
    /// The recorded steps.
    fn graphs(&mut self) -> &mut Graphs<B>;
    /// Called at the start of a new solve: forget the previous one.
    fn forget(&mut self) {}
    /// Residual norms of the segment that ended, one per iteration. Blocks.
    fn norms(&mut self, be: &B, monitor: &B::Monitor) -> Result<Vec<f64>> {
        Ok(be.report(monitor)?.history)
    }
    /// Runs from the current residual until the monitor stops or `look` breaks off.
    fn segment(&mut self, on: Segment<'_, T, B>) -> Result<End>;
}

/// A step that holds its monitor and x, or borrows them.
pub(crate) trait Watched<T: Real, B: Backend<T>>: Step<B> {
    fn monitor(&self) -> &B::Monitor;
    /// The x that the iterations so far have made. For calls between two runs.
    fn x(&self) -> &B::Vector;
    /// Takes the step `count` times by one call, with the same result. Returns false if it cannot and did nothing.
    fn leap(&mut self, be: &B, count: usize) -> Result<bool>;
}

/// Repeats a step until its monitor (armed for this segment) stops or `look` breaks off.
///
/// Every run observes one full residual norm or stops, so a running monitor has counted each of them and is below its
/// limit. A device that reports otherwise is an error; it would be waited for without end.
///
/// # Safety
/// As [`Graphs::run`] for `graphs` and this step.
pub(crate) unsafe fn repeat<T: Real, B: Backend<T>, S: Watched<T, B>>(
    be: &B,
    mut step: S,
    graphs: &mut Graphs<B>,
    pace: Pace,
    rhythm: &mut Rhythm,
    look: Look<'_, B::Vector>,
) -> Result<End> {
    let mut runs = 0;
    loop {
        let more = pace.until_next_look(runs).min(rhythm.until_due()).min(rhythm.ahead());
        if !(pace.persistent && step.leap(be, more)?) {
            break;
        }
        runs += more;
        rhythm.wait();
        if let Some(end) = look_at(be, &step, runs, pace, look)? {
            return Ok(end);
        }
        rhythm.look(be, more)?;
    }
    loop {
        let more = pace.until_next_look(runs).min(rhythm.until_due()).min(rhythm.ahead());
        let mut done = 0;
        while done < more && !rhythm.is_due(be, done)? {
            // SAFETY: the caller's promise.
            unsafe { graphs.run(be, (0, 1), &mut step, pace.recorded) }?;
            done += 1;
            if be.is_immediate() && be.report_latest(step.monitor())?.stop.is_some() {
                break;
            }
        }
        runs += done;
        rhythm.wait();
        if let Some(end) = look_at(be, &step, runs, pace, look)? {
            return Ok(end);
        }
        rhythm.look(be, done)?;
    }
}

/// What the monitor says after `runs` runs: the end, if it is one.
fn look_at<T: Real, B: Backend<T>>(
    be: &B,
    step: &impl Watched<T, B>,
    runs: usize,
    pace: Pace,
    look: Look<'_, B::Vector>,
) -> Result<Option<End>> {
    let monitor = step.monitor();
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
        None if look(latest, Some(step.x()))?.is_break() => Some(Cause::Watcher),
        None if at_window && pace.stagnates(&be.report(monitor)?.history) => Some(Cause::Standstill),
        None => None,
    };
    Ok(cause.map(|cause| End { cause, iterations: latest.iterations, residual: latest.residual }))
}

/// Compares the operands with a square matrix; the workspace last, because it is often made from one of them.
pub(crate) fn expect_operands(solver: &'static str, n: usize, workspace: usize, b: usize, x: usize) -> Result<()> {
    use crate::error::{FIT_B, FIT_WORKSPACE, FIT_X};
    for (what, found, remedy) in [("b", b, FIT_B), ("x", x, FIT_X), ("the workspace", workspace, FIT_WORKSPACE)] {
        if found != n {
            return Err(Error::elements(solver, what, found, n, remedy));
        }
    }
    Ok(())
}

/// Checks all sizes and the kind of the preconditioner once.
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
        _ if !m.is_linear() && !method.takes_any_preconditioner() => {
            Err(Error::Unsupported { why: crate::error::not_linear(solver) })
        }
        _ => Ok(()),
    }
}

/// What to do after a segment, if x has not converged.
enum Verdict {
    Ended(Status),
    /// Begin again; end with this status if no restart is left.
    Again(Status),
    /// Continue with the next cycle, which options do not count as a restart.
    Onward,
}

/// The judge's memory between segments.
struct Judge {
    /// The true residual at the start of the last segment.
    before: f64,
    /// Breakdowns in a row without progress.
    fruitless: usize,
    /// Restarts after a breakdown, or after a claim that the true residual denied.
    restarts: usize,
}

impl Judge {
    /// A segment that ends in a breakdown made progress if the true residual is below this share of the one before. A
    /// tenth is more than the rounding of two norms, and twenty such restarts (the default) still divide the residual
    /// by eight.
    const FRUITFUL: f64 = 0.9;
    /// After two claims of convergence that the true residual denied, the solve has stagnated unless the second segment
    /// halved the true residual. Away from the attainable accuracy a segment divides it by up to 1/u. [`crate::direct`]
    /// ends its refinement by the same measure.
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

/// The scalar that a stop refers to.
fn quantity(cause: Cause) -> Option<Quantity> {
    match cause {
        Cause::Stop(Stop::Zero(q) | Stop::NotPositive(q) | Stop::NotFinite(q)) => Some(q),
        _ => None,
    }
}

/// Solves A x = b from the given x.
pub(crate) fn solve<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &B::Vector,
    x: &mut B::Vector,
    options: &Options,
    observer: Observer<'_, T>,
) -> Result<Outcome> {
    options.check()?;
    check(method, be, a, m, b, x)?;
    method.graphs().clear();
    let outcome = one(method, be, a, m, b, x, options, observer);
    method.graphs().clear();
    outcome
}

/// Solves A x = b for each b from each x, one after the other. All iterate in one vector, so that the graphs of the
/// first serve the others.
pub(crate) fn solve_many<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &[B::Vector],
    x: &mut [B::Vector],
    options: &Options,
    observer: Observer<'_, T>,
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
        let outcome = one(method, be, a, m, b, &mut iterate, options, observer);
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

/// Solves one system of checked sizes. All graphs since the last clear belong to the same A, M and x. An error clears
/// them, because the monitor may be gone.
fn one<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &dyn Operator<T, B>,
    m: &dyn Preconditioner<T, B>,
    b: &B::Vector,
    x: &mut B::Vector,
    options: &Options,
    observer: Observer<'_, T>,
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
        // The true residual of x.
        let began = Instant::now();
        let (r, scratch, scalar) = method.between();
        a.residual(be, None, b, x, r)?;
        let r_norm = norm(be, r, scratch, scalar)?;
        let now = r_norm.over(b_norm);
        outcome.true_residual = now;
        let rhythm = match &mut known {
            Some(rhythm) => rhythm,
            none => none.insert(Rhythm::new(be, options.check_after, began.elapsed())?),
        };
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
                // A cycle lowers the norm that its method minimises, which may be another one.
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
                // Continue with another segment.
                judge.restarts += usize::from(matches!(verdict, Verdict::Again(_)));
                judge.before = now;
                outcome.restarts += usize::from(ended.is_some());
                let done = outcome.iterations;
                let restarts = outcome.restarts;
                let mut tell = |iterations, residual, x: Option<(&B::Vector, i32)>| -> Result<ControlFlow<()>> {
                    let fetch = x.map(|(x, scale)| move || fetched(be, x, scale));
                    let iterate = fetch.as_ref().map_or_else(Iterate::none, |fetch| Iterate::new(fetch));
                    let at = Progress { iterations: done + iterations, max_iters, residual, target, restarts };
                    let breaks = be.agree(u64::from(observer(at, iterate).is_break()))? != 0;
                    Ok(if breaks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                };
                if tell(0, now, Some((&*x, 0)))?.is_break() {
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
                let mut look = |latest: Latest, x: Option<&B::Vector>| {
                    let residual = latest.residual.map_or(now, |norm| norm / unit);
                    tell(latest.iterations, residual, x.map(|x| (x, k)))
                };
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
        // An unknown that occurs in no equation may have grown to infinity unseen by the residual.
        if !outcome.status.is_converged() && ended.is_some() {
            let (_, scratch, scalar) = method.between();
            if !norm(be, x, scratch, scalar)?.is_finite() {
                (outcome.status, outcome.true_residual) = (Status::NotFinite, f64::NAN);
            }
        }
        return Ok(outcome);
    }
}

/// x on the host, of 2^k x on the device.
fn fetched<T: Real, B: Backend<T>>(be: &B, x: &B::Vector, k: i32) -> Result<Vec<T>> {
    let mut x = be.download(x)?;
    if k != 0 {
        let [first, second] = factors::<T>(-k);
        x.iter_mut().for_each(|x| *x = *x * first * second);
    }
    Ok(x)
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
        // x must not overflow because r is small.
        let room = if T::BYTES == 4 { 100 } else { 1000 };
        k = k.min((room - x_norm.exponent()).max(0));
    }
    scale_by(be, k, r, scratch)?;
    scale_by(be, k, x, scratch)?;
    Ok(k)
}
