//! Trials of the monitor: scripts of observations and requirements, and the report that must result.

use std::rc::Rc;

use spandrel_backend::{Backend, Coeff, Phase, Quantity, Report, Stop, Watch};
use spandrel_formats::Real;

use crate::subject::Fleet;
use crate::trial::{Trial, Verdict, wrong};

/// One line of a script.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// The square of the norm, at the end of an iteration.
    Full(f64),
    /// The same in the middle of an iteration.
    Half(f64),
    /// `require_positive`.
    Positive(f64, Quantity),
    /// `require_nonzero`.
    Nonzero(f64, Quantity),
    /// The host resumes it.
    Resume,
    /// The host arms it again with the same limits.
    Rearm,
    /// An operation behind the gate must run now (true) or must not (false).
    Runs(bool),
}
use Line::*;

/// A script and the expected report.
struct Script {
    name: &'static str,
    watch: Watch,
    lines: &'static [Line],
    stop: Option<Stop>,
    iterations: usize,
    /// Squares of the norms of the history.
    history: &'static [f64],
}

const fn watch(threshold: f64, divergence: f64, max_iters: usize) -> Watch {
    Watch { threshold, divergence, max_iters }
}

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn scripts() -> Vec<Script> {
    let script =
        |name, watch, lines, stop, iterations, history| Script { name, watch, lines, stop, iterations, history };
    vec![
        script("fresh", watch(1.0, INF, 5), &[Runs(true)], None, 0, &[]),
        script(
            "converged",
            watch(1.0, INF, 9),
            &[Full(16.0), Runs(true), Full(2.0), Full(0.25), Runs(false), Full(9.0), Nonzero(0.0, Quantity::Rho)],
            Some(Stop::Converged),
            3,
            &[16.0, 2.0, 0.25],
        ),
        script("threshold-is-inclusive", watch(3.0, INF, 9), &[Full(9.0)], Some(Stop::Converged), 1, &[9.0]),
        script(
            "zero-threshold-exact-zero",
            watch(0.0, INF, 9),
            &[Full(1e-30), Full(0.0)],
            Some(Stop::Converged),
            2,
            &[1e-30, 0.0],
        ),
        script(
            "converged-at-the-limit",
            watch(1.0, INF, 2),
            &[Full(4.0), Full(1.0)],
            Some(Stop::Converged),
            2,
            &[4.0, 1.0],
        ),
        script(
            "half-counts-nothing",
            watch(1.0, INF, 2),
            &[Half(4.0), Half(9.0), Full(4.0), Half(2.0)],
            None,
            1,
            &[4.0],
        ),
        script(
            "half-converges",
            watch(1.0, INF, 5),
            &[Full(4.0), Half(0.5), Runs(false), Full(0.1)],
            Some(Stop::ConvergedHalf),
            1,
            &[4.0, 0.5],
        ),
        script(
            "limit",
            watch(1.0, INF, 2),
            &[Full(4.0), Full(4.0), Full(0.0)],
            Some(Stop::MaxIterations),
            2,
            &[4.0, 4.0],
        ),
        script("diverged", watch(1.0, 10.0, 9), &[Full(100.0), Full(144.0)], Some(Stop::Diverged), 2, &[100.0, 144.0]),
        script(
            "norm-not-finite",
            watch(1.0, INF, 9),
            &[Full(4.0), Half(NAN), Runs(false)],
            Some(Stop::NotFinite(Quantity::Residual)),
            1,
            &[4.0, NAN],
        ),
        script("norm-infinite", watch(1.0, INF, 9), &[Half(INF)], Some(Stop::NotFinite(Quantity::Residual)), 0, &[INF]),
        script(
            "not-positive-zero",
            watch(1.0, INF, 9),
            &[
                Full(4.0),
                Positive(1e-30, Quantity::Curvature),
                Runs(true),
                Positive(0.0, Quantity::Curvature),
                Runs(false),
            ],
            Some(Stop::NotPositive(Quantity::Curvature)),
            1,
            &[4.0],
        ),
        script(
            "not-positive-negative",
            watch(1.0, INF, 9),
            &[Positive(-1.0, Quantity::PreconditionedResidual), Full(0.0)],
            Some(Stop::NotPositive(Quantity::PreconditionedResidual)),
            0,
            &[],
        ),
        script(
            "positive-not-finite",
            watch(1.0, INF, 9),
            &[Positive(INF, Quantity::Curvature)],
            Some(Stop::NotFinite(Quantity::Curvature)),
            0,
            &[],
        ),
        script(
            "negative-infinity-is-not-finite",
            watch(1.0, INF, 9),
            &[Positive(-INF, Quantity::Curvature)],
            Some(Stop::NotFinite(Quantity::Curvature)),
            0,
            &[],
        ),
        script(
            "zero",
            watch(1.0, INF, 9),
            &[
                Nonzero(-3.0, Quantity::Rho),
                Nonzero(1e-30, Quantity::Rho),
                Nonzero(-0.0, Quantity::Omega),
                Nonzero(0.0, Quantity::Rho),
            ],
            Some(Stop::Zero(Quantity::Omega)),
            0,
            &[],
        ),
        script(
            "zero-not-finite",
            watch(1.0, INF, 9),
            &[Nonzero(NAN, Quantity::Stabilizer), Full(0.0)],
            Some(Stop::NotFinite(Quantity::Stabilizer)),
            0,
            &[],
        ),
        script(
            "resume-keeps-counts",
            watch(1.0, INF, 9),
            &[Full(4.0), Full(1.0), Runs(false), Resume, Runs(true), Full(9.0)],
            None,
            3,
            &[4.0, 1.0, 9.0],
        ),
        script(
            "rearm-forgets",
            watch(1.0, INF, 2),
            &[Full(4.0), Full(4.0), Runs(false), Rearm, Runs(true), Full(9.0)],
            None,
            1,
            &[9.0],
        ),
    ]
}

fn play<T: Real, D: Backend<T>>(be: &D, script: &Script) -> Verdict {
    let mut monitor = be.monitor(&script.watch)?;
    let mut written = be.scalar(T::zero())?;
    for (at, &line) in script.lines.iter().enumerate() {
        let scalar = |value: f64| be.scalar(T::from_f64(value));
        match line {
            Full(squared) => be.observe(&scalar(squared)?, Phase::Full, &mut monitor)?,
            Half(squared) => be.observe(&scalar(squared)?, Phase::Half, &mut monitor)?,
            Positive(value, what) => be.require_positive(&scalar(value)?, what, &mut monitor)?,
            Nonzero(value, what) => be.require_nonzero(&scalar(value)?, what, &mut monitor)?,
            Resume => be.resume(&mut monitor)?,
            Rearm => be.rearm(&mut monitor, &script.watch)?,
            Runs(wanted) => {
                let mark = T::from_f64(at as f64 + 1.0);
                be.assign(Some(&monitor), Coeff::host(mark), &mut written)?;
                if (be.download_scalar(&written)? == mark) != wanted {
                    let what = if wanted { "did not run behind a running" } else { "ran behind a stopped" };
                    return Err(wrong(format!("line {at}: an operation {what} monitor")));
                }
            }
        }
    }
    let root = |squared: &f64| T::from_f64(*squared).sqrt().as_f64();
    let history: Vec<f64> = script.history.iter().map(root).collect();
    let wanted = Report { stop: script.stop, iterations: script.iterations, history };
    let found = be.report(&monitor)?;
    let latest = be.report_latest(&monitor)?;
    // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
    if format!("{found:?}") != format!("{wanted:?}") {
        return Err(wrong(format!("expected {wanted:?}, found {found:?}")));
    }
    if format!("{latest:?}") != format!("{:?}", wanted.latest()) {
        return Err(wrong(format!("expected {:?} as the latest, found {latest:?}", wanted.latest())));
    }
    Ok(())
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Backend<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for script in scripts() {
        let fleet = fleet.clone();
        out.push(Trial::new(format!("monitor/script/{}/{}/{}", T::NAME, fleet.name, script.name), move || {
            play::<T, D>(fleet.first(), &script)
        }));
    }
}
