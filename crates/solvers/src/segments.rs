//! A solve as a sequence of segments, each begun from a true residual.
//!
//! A segment is what a method does from r = b - A x until its monitor stops. Behind it x is judged by the residual
//! recomputed from it, never by the recurrence: `converged` is said here and nowhere else. Where the recurrence claims what the truth
//! denies, or BiCGStab breaks down, the next segment begins from the recomputed residual (residual replacement: van der Vorst & Ye
//! 2000, Residual replacement strategies for Krylov subspace iterative methods for the convergence of true residuals).
//!
//! Invariants: outside a segment x is unscaled. Inside, r and x are times 2^k with k = 0 unless ||r|| is outside the window of
//! [`crate::norm`], so that squares of norms stay in range; powers of two change no other bit. A segment asks for no less
//! than u times what it began with, u the unit roundoff: the r that it begins from is b - A x rounded, an error of up to u ||r|| by
//! the last rounding alone, so a smaller norm of its recurrence says nothing about x.
//! Cost beyond the iterations: for each segment and at the end one product, one norm and one wait.

use std::ops::ControlFlow;

use spandrel_backend::{Backend, Latest, Operator, Preconditioner, Quantity, Recorded, Step, Stop, Watch};
use spandrel_formats::Real;

use crate::norm::{Norm, norm, scale_by};
use crate::options::Watcher;
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
    /// Iterations that are left to this segment; its monitor has the same limit.
    pub(crate) max_iters: usize,
}

/// The host looks at least every so many iterations, whatever `check_every` says: a solve without a limit must still see its stop.
const LONGEST_RUN: usize = 1 << 16;

impl Pace {
    /// Runs until the next look: never past the limit, where a monitor stops.
    fn until_next_look(self, done: usize) -> usize {
        self.check_every.min(LONGEST_RUN).min(self.max_iters.saturating_sub(done)).max(1)
    }
}

/// How a segment ended.
#[derive(Debug)]
pub(crate) struct End {
    /// Why the monitor stopped; `None` if the watcher interrupted.
    pub(crate) stop: Option<Stop>,
    pub(crate) latest: Latest,
}

/// A Krylov method over its workspace.
pub(crate) trait Method<T: Real, B: Backend<T>> {
    const NAME: &'static str;
    /// Whether a vanished scalar may be mended by beginning again.
    const RESTARTS: bool;
    /// Unknowns of the workspace.
    fn len(&self) -> usize;
    /// The residual, a vector and a scalar that are free between segments.
    fn between(&mut self) -> (&mut B::Vector, &mut B::Vector, &mut B::Scalar);
    /// The monitor, kept from the solve before.
    fn monitor(&mut self) -> &mut Option<B::Monitor>;
    /// Runs from the residual in place until the monitor (armed) stops or `look` breaks off.
    fn segment<A: Operator<T, B>, M: Preconditioner<T, B>>(
        &mut self,
        be: &B,
        a: &A,
        m: &M,
        x: &mut B::Vector,
        monitor: &mut B::Monitor,
        shadow: Shadow,
        pace: Pace,
        look: &mut dyn FnMut(Latest) -> ControlFlow<()>,
    ) -> Result<End>;
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
pub(crate) fn repeat<B: spandrel_backend::Device, S: Watched<B>>(
    be: &B,
    mut step: S,
    pace: Pace,
    look: &mut dyn FnMut(Latest) -> ControlFlow<()>,
) -> Result<End> {
    let mut runs = 0;
    loop {
        let more = pace.until_next_look(runs);
        if !(pace.persistent && step.leap(be, more)?) {
            break;
        }
        runs += more;
        if let Some(end) = look_at(be, step.monitor(), runs, pace, look)? {
            return Ok(end);
        }
    }
    let mut recorded = Recorded::new(be, step, pace.recorded);
    loop {
        let more = pace.until_next_look(runs);
        for _ in 0..more {
            recorded.run()?;
        }
        runs += more;
        if let Some(end) = look_at(be, recorded.step().monitor(), runs, pace, look)? {
            return Ok(end);
        }
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
    let ends = latest.stop.is_some() || look(latest).is_break();
    Ok(ends.then_some(End { stop: latest.stop, latest }))
}

/// Sizes of everything, once.
fn check<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &W,
    be: &B,
    a: &impl Operator<T, B>,
    m: &impl Preconditioner<T, B>,
    b: &B::Vector,
    x: &B::Vector,
) -> Result<usize> {
    let solver = W::NAME;
    let (nrows, ncols) = a.shape();
    if nrows != ncols {
        return Err(Error::NotSquare { solver, nrows, ncols });
    }
    let expect = |what, found| {
        if found == nrows { Ok(()) } else { Err(Error::Size { solver, what, found, expected: nrows }) }
    };
    expect("the workspace", method.len())?;
    expect("b", be.len(b))?;
    expect("x", be.len(x))?;
    expect("the preconditioner", m.len().unwrap_or(nrows))?;
    Ok(nrows)
}

/// What follows from how a segment ended, where x has not converged.
enum Verdict {
    Ended(Status),
    /// Begin again; the status if no restart is left.
    Again(Status),
}

/// The judge's memory between segments.
struct Judge {
    /// True residual at the begin of the last segment.
    before: f64,
    /// Breakdowns in a row without progress.
    fruitless: usize,
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
    /// Breakdowns in a row without progress that end the solve: the first is answered by a new shadow residual, should that fail at
    /// once the second by a tilted one, and there is no third answer.
    const FRUITLESS: usize = 3;

    fn verdict(&mut self, stop: Option<Stop>, now: f64, restartable: bool) -> Verdict {
        let breakdown = |judge: &mut Self, status| {
            judge.fruitless = if now < Self::FRUITFUL * judge.before { 0 } else { judge.fruitless + 1 };
            if restartable && judge.fruitless < Self::FRUITLESS {
                Verdict::Again(status)
            } else {
                Verdict::Ended(status)
            }
        };
        match stop {
            None => Verdict::Ended(Status::Interrupted),
            Some(Stop::Converged | Stop::ConvergedHalf) => {
                self.fruitless = 0;
                if self.restarts > 0 && now > Self::STAGNANT * self.before {
                    Verdict::Ended(Status::Stagnated)
                } else {
                    Verdict::Again(Status::Stagnated)
                }
            }
            Some(Stop::MaxIterations) => Verdict::Ended(Status::MaxIterations),
            Some(Stop::Diverged) => Verdict::Ended(Status::Diverged),
            Some(Stop::NotPositive(Quantity::Curvature)) => Verdict::Ended(Status::IndefiniteMatrix),
            Some(Stop::NotPositive(Quantity::PreconditionedResidual)) => {
                Verdict::Ended(Status::IndefinitePreconditioner)
            }
            Some(Stop::NotFinite(_)) => breakdown(self, Status::NotFinite),
            Some(_) => breakdown(self, Status::Breakdown),
        }
    }
}

/// The scalar that a stop names.
fn quantity(stop: Option<Stop>) -> Option<Quantity> {
    match stop {
        Some(Stop::Zero(q) | Stop::NotPositive(q) | Stop::NotFinite(q)) => Some(q),
        _ => None,
    }
}

/// Solves A x = b from the x given.
pub(crate) fn solve<T: Real, B: Backend<T>, W: Method<T, B>>(
    method: &mut W,
    be: &B,
    a: &impl Operator<T, B>,
    m: &impl Preconditioner<T, B>,
    b: &B::Vector,
    x: &mut B::Vector,
    options: &Options,
    watcher: Watcher<'_>,
) -> Result<Outcome> {
    options.check()?;
    let n = check(method, be, a, m, b, x)?;
    let mut outcome = Outcome::zero();
    if n == 0 {
        return Ok(outcome);
    }
    let (_, scratch, scalar) = method.between();
    let b_norm = norm(be, b, scratch, scalar)?;
    if b_norm.is_zero() {
        be.fill(None, T::zero(), x)?;
        return Ok(outcome);
    }

    let max_iters = options.iteration_limit(n);
    let mut judge = Judge { before: f64::INFINITY, fruitless: 0, restarts: 0 };
    let mut shadow = Shadow::Residual;
    let mut ended: Option<End> = None;
    loop {
        // The truth about x.
        let (r, scratch, scalar) = method.between();
        a.residual(be, None, b, x, r)?;
        let r_norm = norm(be, r, scratch, scalar)?;
        let now = r_norm.over(b_norm);
        outcome.true_residual = now;
        if ended.is_none() {
            outcome.residual = now;
            if options.history {
                outcome.history.push(now);
            }
        }
        let verdict = if !(r_norm.is_finite() && b_norm.is_finite()) {
            outcome.true_residual = f64::NAN;
            match &ended {
                Some(End { stop: Some(Stop::Diverged), .. }) => Verdict::Ended(Status::Diverged),
                _ => Verdict::Ended(Status::NotFinite),
            }
        } else if now <= options.rtol || r_norm.value() <= options.atol {
            Verdict::Ended(Status::Converged)
        } else {
            match &ended {
                Some(end) => judge.verdict(end.stop, now, W::RESTARTS),
                None => Verdict::Again(Status::MaxIterations),
            }
        };
        outcome.status = match verdict {
            Verdict::Ended(status) => status,
            Verdict::Again(_) if outcome.iterations >= max_iters => Status::MaxIterations,
            Verdict::Again(otherwise) if ended.is_some() && judge.restarts == options.max_restarts => otherwise,
            Verdict::Again(_) => {
                // On with another segment.
                judge.restarts += usize::from(ended.is_some());
                judge.before = now;
                outcome.restarts = judge.restarts;
                let done = outcome.iterations;
                let restarts = judge.restarts;
                let target = options.rtol.max(Norm::of(options.atol).over(b_norm));
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
                let asked = (options.rtol * unit).max(Norm::of(options.atol).shifted(k));
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
                    max_iters: watch.max_iters,
                };
                let end = method.segment(be, a, m, x, &mut monitor, shadow, pace, &mut look)?;
                scale_by(be, -k, x, method.between().1)?;

                outcome.iterations += end.latest.iterations;
                if let Some(norm) = end.latest.residual {
                    outcome.residual = norm / unit;
                }
                if options.history {
                    outcome.history.extend(be.report(&monitor)?.history.iter().map(|norm| norm / unit));
                }
                *method.monitor() = Some(monitor);
                if let Some(q) = quantity(end.stop) {
                    outcome.breakdown = Some((q, outcome.iterations));
                }
                let at_once = end.latest.iterations == 0 && end.stop == Some(Stop::Zero(Quantity::ShadowDirection));
                shadow = if at_once { Shadow::Tilted } else { Shadow::Residual };
                ended = Some(end);
                continue;
            }
        };
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
