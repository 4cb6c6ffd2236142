//! The complete factorisation that an iteration competes with: its predicted cost, and when an iteration gives way to
//! it.
//!
//! Decisions follow from the matrix, the device's profile, the memory limit and residuals at fixed iterations, never
//! from a clock. So a solve repeats bit for bit on one machine with the same number of threads. Without a memory limit,
//! factors above 256 MiB also depend on the memory that is free.
//!
//! Model, in nanoseconds. A factorisation costs [`spandrel_formats::profile::Host::factor_entry`] per entry of the
//! factors, and `factor_flop` per operation divided by the host's threads. An iteration costs the time to move its
//! bytes (products, incomplete factors, vectors) with one core of a CPU or a whole GPU, because triangular solves
//! rarely gain from more cores. On a GPU, calls and the levels of the triangles are added. `record/cpu-robust.jsonl`
//! records the results of these choices.

use std::sync::Arc;

use spandrel_formats::{Csr, Profile, Real};
use spandrel_solvers::direct::Factorable;
use spandrel_solvers::{Direct, DirectOptions, Error, Method, Precond, Progress, Result};

/// The policy chooses a factorisation only if it should take at most this many seconds.
const LONGEST: f64 = 60.0;
/// Factors of up to the first number of bytes are always allowed. Beyond it they may take half of the free memory, or
/// the second number if the system does not report that.
const MEMORY: [u64; 2] = [256 << 20, 4 << 30];
/// The usual number of iterations on a matrix without a dominant diagonal: with incomplete factors, and without them.
/// Real matrices needed about as many.
const ITERATIONS: [f64; 2] = [500.0, 1000.0];
/// Nanoseconds of an incomplete factorisation per entry, and its minimum: what its set-up took on matrices of a few
/// hundred to two million entries.
const SETUP: [f64; 2] = [80.0, 4e5];
/// Nanoseconds per entry of the symbolic phase of a factorisation: Cholesky, and LU with its bound.
const ANALYSIS: [f64; 2] = [80.0, 350.0];
/// The number of iterations at which the two are first compared. Each later comparison comes at no more than twice the
/// number of the one before.
const FIRST_LOOK: usize = 48;
/// The share of the rival's time that an iteration gets before its pace is judged.
const TRIAL: f64 = 0.2;
/// A factorisation that takes at most this many times as long as the stronger preconditioner is taken instead, because
/// it ends in an answer, and the other may fail.
const RISK: f64 = 3.0;
/// Nanoseconds after which an iteration must show progress, if nothing else limits it.
const LONG: f64 = 60e9;
/// Iterations that are always allowed.
const FEWEST: usize = 1000;
/// A long iteration is hopeless if it would need more than this many times the iterations that it has done.
const HOPELESS: f64 = 4.0;

/// The parameters of a factorisation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means<'a> {
    pub(super) options: DirectOptions,
    /// The largest size of the factors in bytes; `None` to ask the system.
    pub(super) limit: Option<u64>,
    pub(super) profile: &'a Profile,
}

/// Nanoseconds per entry of the factors, and per operation.
fn price(profile: &Profile) -> [f64; 2] {
    let host = &profile.host;
    [host.factor_entry, host.factor_flop / host.threads.max(1) as f64]
}

/// Nanoseconds of so many operations of a factorisation.
pub(super) fn factoring(profile: &Profile, flops: f64) -> f64 {
    let [_, flop] = price(profile);
    flop * flops
}

/// What takes over from an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Winner {
    /// A complete factorisation.
    Factors,
    /// The iteration with the stronger preconditioner.
    Stronger,
}

/// The factorisation of one matrix, analysed when its cost is first needed.
#[derive(Debug)]
pub(super) struct Rival<T: Factorable> {
    a: Arc<Csr<T>>,
    options: DirectOptions,
    limit: Option<u64>,
    /// Nanoseconds per entry and per operation.
    price: [f64; 2],
    analysed: Option<Result<Direct<T>>>,
}

impl<T: Factorable> Rival<T> {
    pub(super) fn new(a: Arc<Csr<T>>, means: Means<'_>) -> Self {
        let Means { options, limit, profile } = means;
        let price = price(profile);
        Self { a, options: DirectOptions { memory_limit: u64::MAX, ..options }, limit, price, analysed: None }
    }

    /// The approximate time of the symbolic phase in nanoseconds.
    pub(super) fn analysis(&self, symmetric: bool) -> f64 {
        ANALYSIS[usize::from(!symmetric)] * self.a.nnz() as f64
    }

    fn analysed(&mut self) -> &Result<Direct<T>> {
        let Self { a, options, analysed, .. } = self;
        analysed.get_or_insert_with(|| Direct::analyze(Arc::clone(a), options))
    }

    /// Nanoseconds of the numeric phase and the solve; infinite if it is impossible or would take too long.
    pub(super) fn cost(&mut self) -> f64 {
        let [entry, flop] = self.price;
        match self.analysed() {
            Ok(direct) => {
                let work = direct.work();
                let cost = entry * work.entries as f64 + flop * work.flops;
                if cost <= LONGEST * 1e9 && fits(work.bytes, self.limit) { cost } else { f64::INFINITY }
            }
            // A singular matrix needs the values for a diagnosis.
            Err(Error::ZeroPivot { .. }) => 0.0,
            Err(_) => f64::INFINITY,
        }
    }

    /// What takes long to free: the analysis, if there is one.
    pub(super) fn into_analysis(self) -> Option<Result<Direct<T>>> {
        self.analysed
    }

    /// The analysed factorisation.
    ///
    /// # Errors
    /// Those of the analysis.
    pub(super) fn take(mut self) -> Result<Direct<T>> {
        self.analysed();
        self.analysed.unwrap_or_else(|| Direct::analyze(self.a, &self.options))
    }
}

/// Returns true if this many bytes of factors or vectors are within the limit or, without a limit, leave the machine
/// enough free memory.
pub(super) fn fits(bytes: u64, limit: Option<u64>) -> bool {
    match limit {
        Some(limit) => bytes <= limit,
        None => bytes <= MEMORY[0] || bytes <= free_memory().map_or(MEMORY[1], |free| free / 2),
    }
}

/// The bytes of memory that are free for new data, if the system reports them.
fn free_memory() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The line of Linux' `/proc/meminfo` with the memory that is available without swapping.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The predicted cost of an iteration on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Nanoseconds before the first iteration.
    pub(super) setup: f64,
    /// Nanoseconds per iteration.
    pub(super) iteration: f64,
    /// Whether there are incomplete factors to iterate with.
    has_factors: bool,
}

impl Pace {
    /// The cost for a matrix with this many rows and entries.
    pub(super) fn of<T: Real>(
        (nrows, nnz): (usize, usize),
        (method, preconditioner): (Method, Precond),
        profile: &Profile,
    ) -> Self {
        let (n, nnz) = (nrows as f64, nnz as f64);
        let element = T::BYTES as f64;
        let has_factors = !matches!(preconditioner, Precond::None | Precond::Jacobi | Precond::BlockJacobi(_));
        // Products and applications of the preconditioner per iteration, and passes over vectors.
        let (products, passes) = match method {
            Method::Cg => (1.0, 13.0),
            Method::BiCgStab => (2.0, 27.0),
            Method::Gmres | Method::Direct => (1.0, 40.0),
        };
        let read = (4.0 + element) * nnz * if has_factors { 2.0 } else { 1.0 };
        let bytes = products * read + passes * element * n;
        let iteration = &profile.iteration;
        // The levels of triangles are between those of a band and of a plane.
        let levels = if has_factors { 2.0 * (4.0 * n.sqrt()).min(n) } else { 0.0 };
        let waits = products * levels * iteration.level + (products * 3.0 + 5.0) * iteration.call;
        Self {
            setup: if has_factors { SETUP[0] * nnz + SETUP[1] } else { SETUP[1] },
            iteration: bytes * profile.memory.nanoseconds_per_byte + waits,
            has_factors,
        }
    }

    /// Nanoseconds of a whole solve with the usual number of iterations.
    pub(super) fn usual(&self) -> f64 {
        self.setup + ITERATIONS[usize::from(!self.has_factors)] * self.iteration
    }
}

/// Whether most rows have a diagonal entry larger than the sum of the others. Incomplete factors are then nearly exact,
/// and an iteration ends soon.
pub(super) fn is_dominant<T: Real>(a: &Csr<T>) -> bool {
    const MOST: f64 = 0.9;
    let dominant = (0..a.nrows())
        .filter(|&i| {
            let (cols, values) = a.row(i);
            let (mut diagonal, mut others) = (0.0, 0.0);
            for (&j, v) in cols.iter().zip(values) {
                *(if j as usize == i { &mut diagonal } else { &mut others }) += v.as_f64().abs();
            }
            diagonal >= others * (1.0 - 1e-12)
        })
        .count();
    dominant as f64 >= MOST * a.nrows() as f64
}

/// Watches an iteration and decides when its rival would finish first.
#[derive(Debug)]
pub(super) struct Judge {
    pace: Pace,
    /// Nanoseconds of the rival's analysis, if it is still to be done; infinite without a rival.
    analysis: f64,
    /// Nanoseconds with the stronger preconditioner; infinite without one.
    stronger: f64,
    next: usize,
    /// The next iteration at which it must show progress.
    long: usize,
    /// Iterations and residuals of the looks so far, only at fixed iterations.
    seen: Vec<(usize, f64)>,
}

impl Judge {
    /// Begins with the nanoseconds of the rival's analysis, and those with a stronger preconditioner; either is
    /// infinite if there is none. Unless an iteration is the last resort, it must show progress from the fewest
    /// iterations on.
    pub(super) fn new(pace: Pace, [analysis, stronger]: [f64; 2], is_last: bool) -> Self {
        let long = if is_last { ((LONG / pace.iteration) as usize).max(FEWEST) } else { FEWEST };
        Self { pace, analysis, stronger, next: FIRST_LOOK, long, seen: Vec::new() }
    }

    /// Records a look. Returns false, and records nothing, if the clock caused the look, because it would come
    /// elsewhere in the next run.
    pub(super) fn looks(&mut self, progress: Progress, every: usize) -> bool {
        let is_fixed = progress.iterations > 0 && progress.iterations.is_multiple_of(every);
        if is_fixed {
            self.seen.push((progress.iterations, progress.residual));
        }
        is_fixed
    }

    /// Returns true if the iteration has run long without progress, at the look that was recorded last.
    pub(super) fn is_hopeless(&mut self, progress: Progress) -> bool {
        if progress.iterations < self.long {
            return false;
        }
        self.long = progress.iterations * 2;
        remaining(&self.seen, progress.target) > HOPELESS * progress.iterations as f64
    }

    /// What should take over from the iteration, at the look that was recorded last; `None` to go on. The rival's cost
    /// is requested only if it matters.
    pub(super) fn gives_way(&mut self, progress: Progress, rival: impl FnOnce() -> f64) -> Option<Winner> {
        if progress.iterations < self.next {
            return None;
        }
        self.next = progress.iterations * 2;
        let remaining = remaining(&self.seen, progress.target) * self.pace.iteration;
        if remaining <= self.analysis.min(self.stronger) {
            return None;
        }
        let factors = if self.analysis < remaining.min(RISK * self.stronger) {
            self.analysis = 0.0;
            rival()
        } else {
            f64::INFINITY
        };
        let (winner, cost) = match factors <= RISK * self.stronger {
            true => (Winner::Factors, factors),
            false => (Winner::Stronger, self.stronger),
        };
        // The time so far is lost either way. With incomplete factors, the residual may fall after a stagnation, so the
        // iteration gets as much time as its rival takes.
        let spent = progress.iterations as f64 * self.pace.iteration;
        let standing = if self.pace.has_factors { remaining.is_finite() } else { true };
        let gives_way = remaining > cost && (spent >= cost || (standing && spent >= TRIAL * cost));
        if !gives_way && cost.is_finite() {
            // Compare again soon after the iteration at which the rival's time is over.
            let due = [TRIAL * cost, cost].into_iter().find(|&due| due > spent).unwrap_or(cost);
            self.next = self.next.min(((due / self.pace.iteration) as usize).max(progress.iterations + 1));
        }
        gives_way.then_some(winner)
    }
}

/// The iterations until the target, at the pace of the last half; infinite without progress.
fn remaining(seen: &[(usize, f64)], target: f64) -> f64 {
    let Some(&(last, _)) = seen.last() else { return f64::INFINITY };
    let best = |until: usize| {
        seen.iter().filter(|(k, r)| *k <= until && !r.is_nan()).map(|&(_, r)| r).fold(f64::INFINITY, f64::min)
    };
    let (before, now) = (best(last / 2).min(1.0), best(last));
    let rate = (before / now).ln() / (last - last / 2) as f64;
    if rate > 0.0 { ((now / target).ln() / rate).max(0.0) } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use spandrel_formats::generate;

    use super::*;

    fn at(iterations: usize, residual: f64) -> Progress {
        Progress { iterations, max_iters: 10_000, residual, target: 1e-8, restarts: 0 }
    }

    const ALONE: f64 = f64::INFINITY;

    fn gives_way(judge: &mut Judge, progress: Progress, cost: f64) -> bool {
        judge.looks(progress, 16) && judge.gives_way(progress, || cost) == Some(Winner::Factors)
    }

    #[test]
    fn the_pace_of_the_last_half_is_carried_on() {
        // A digit every sixteen iterations.
        let seen: Vec<_> = (1..=4).map(|k| (16 * k, 10f64.powi(-(k as i32)))).collect();
        assert!((remaining(&seen, 1e-8) - 64.0).abs() < 1e-9);
        assert_eq!(remaining(&[(16, 2.0), (32, 3.0)], 1e-8), f64::INFINITY);
        assert_eq!(remaining(&[], 1e-8), f64::INFINITY);
        assert_eq!(remaining(&[(16, 1e-3), (32, 1e-9)], 1e-8), 0.0);
    }

    #[test]
    fn a_slow_iteration_gives_way_and_a_fast_one_does_not() {
        let pace = Pace { setup: 0.0, iteration: 1000.0, has_factors: true };
        let run = |decade: f64, cost: f64| {
            let mut judge = Judge::new(pace, [0.0, ALONE], true);
            (1..=100).map(|k| 16 * k).find(|&k| gives_way(&mut judge, at(k, 10f64.powf(-(k as f64) / decade)), cost))
        };
        // Eight digits in 400 iterations, against a rival that takes as long as 100.
        assert_eq!(run(50.0, 1e5), Some(48));
        assert_eq!(run(50.0, 1e7), None);
        assert_eq!(run(5.0, 1e5), None);
        // An iteration that stagnates gets as long as its rival takes; without factors, a fifth of that.
        let stands = |has_factors, cost: f64| {
            let mut judge = Judge::new(Pace { has_factors, ..pace }, [0.0, ALONE], true);
            (1..=100).map(|k| 16 * k).find(|&k| gives_way(&mut judge, at(k, 1.0), cost))
        };
        assert_eq!((stands(true, 3e5), stands(false, 3e5)), (Some(304), Some(64)));
    }

    #[test]
    fn the_sooner_of_two_rivals_takes_over() {
        let pace = Pace { setup: 0.0, iteration: 1000.0, has_factors: true };
        // Eight digits in 1600 iterations.
        let winner = |analysis: f64, stronger: f64, factors: f64| {
            let mut judge = Judge::new(pace, [analysis, stronger], true);
            let mut asked = false;
            let won = (1..=100).map(|k| 16 * k).find_map(|k| {
                let progress = at(k, 10f64.powf(-(k as f64) / 200.0));
                let mut rival = || {
                    asked = true;
                    factors
                };
                if judge.looks(progress, 16) { judge.gives_way(progress, &mut rival).map(|won| (k, won)) } else { None }
            });
            (won, asked)
        };
        assert_eq!(winner(1e4, 2e5, 1e5), (Some((48, Winner::Factors)), true));
        assert_eq!(winner(1e4, 1e5, 4e5), (Some((48, Winner::Stronger)), true));
        // One that is certain to end in an answer is taken even if it takes somewhat longer.
        assert_eq!(winner(1e4, 1e5, 2e5), (Some((48, Winner::Factors)), true));
        // An analysis that takes much longer than the stronger preconditioner is not begun.
        assert_eq!(winner(4e5, 1e5, 0.0), (Some((48, Winner::Stronger)), false));
        assert_eq!(winner(ALONE, 1e5, 0.0), (Some((48, Winner::Stronger)), false));
        // Most of the way is done before either could be compared.
        assert_eq!(winner(ALONE, 1.5e6, 0.0), (None, false));
        assert_eq!(winner(ALONE, ALONE, 0.0), (None, false));
        // The factors are compared when a fifth of their time is over, and then lose unless more is left than they
        // take.
        assert_eq!(winner(0.0, ALONE, 1e6).0, Some((208, Winner::Factors)));
        assert_eq!(winner(0.0, ALONE, 1.45e6).0, None);
    }

    #[test]
    fn looks_between_the_fixed_ones_are_not_counted() {
        let mut judge = Judge::new(Pace { setup: 0.0, iteration: 1000.0, has_factors: true }, [0.0, ALONE], true);
        for k in [50, 51, 97, 193] {
            assert!(!gives_way(&mut judge, at(k, 1.0), 0.0));
        }
        assert!(judge.seen.is_empty());
        assert!(gives_way(&mut judge, at(48, 1.0), 0.0));
    }

    #[test]
    fn a_long_iteration_has_to_get_on() {
        // A second per iteration: the fewest iterations that are always allowed take longer than a minute.
        let pace = Pace { setup: 0.0, iteration: 1e9, has_factors: true };
        let ends = |residual: &dyn Fn(usize) -> f64| {
            let mut judge = Judge::new(pace, [0.0, ALONE], true);
            (1..=2000)
                .map(|k| 16 * k)
                .find(|&k| judge.looks(at(k, residual(k)), 16) && judge.is_hopeless(at(k, residual(k))))
        };
        assert_eq!(ends(&|_| 1.0), Some(1008));
        // Eight digits in 3000 iterations, and in 30,000.
        assert_eq!(ends(&|k| 10f64.powf(-8.0 * k as f64 / 3000.0)), None);
        assert_eq!(ends(&|k| 10f64.powf(-8.0 * k as f64 / 30_000.0)), Some(1008));
        // A fast one may continue for longer, unless something stronger waits.
        let fast = |is_last| {
            let mut judge = Judge::new(Pace { iteration: 1e4, ..pace }, [0.0, ALONE], is_last);
            (1..=2000).map(|k| 16 * k).find(|&k| judge.looks(at(k, 1.0), 16) && judge.is_hopeless(at(k, 1.0)))
        };
        assert_eq!((fast(true), fast(false)), (None, Some(1008)));
        // One that makes progress at first and stagnates later.
        assert_eq!(ends(&|k| 10f64.powf(-(k.min(2000) as f64) / 400.0)), Some(4032));
    }

    #[test]
    fn memory_is_the_limit_that_was_named_or_what_the_system_has() {
        assert!(fits(1000, Some(1000)) && !fits(1001, Some(1000)) && !fits(1, Some(0)));
        assert!(fits(MEMORY[0], None) && !fits(u64::MAX, None));
        let text = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    2000000 kB\n";
        assert_eq!(available(text), Some(2_048_000_000));
        for other in ["", "MemAvailable: many kB", "MemAvailable: 5", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(available(other), None, "{other}");
        }
        #[cfg(target_os = "linux")]
        assert!(free_memory().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn a_factorisation_is_priced_by_its_fill_and_refused_where_it_is_too_large() {
        let profile = Profile::reference();
        let a = Arc::new(generate::csr::<f64>("poisson2d:40").expect("a small matrix"));
        let means = Means { options: DirectOptions::default(), limit: None, profile: &profile };
        let mut rival = Rival::new(Arc::clone(&a), means);
        let cost = rival.cost();
        assert!(cost > 1e5 && cost < 1e8, "{cost}");
        assert_eq!(Rival::new(Arc::clone(&a), Means { limit: Some(1000), ..means }).cost(), f64::INFINITY);
        rival.price = [1e9, 1e9];
        assert_eq!(rival.cost(), f64::INFINITY);
        assert!(rival.take().is_ok());
        assert!(is_dominant(&*a));
        let size = (a.nrows(), a.nnz());
        let pace = Pace::of::<f64>(size, (Method::Cg, Precond::Ic0), &profile);
        assert!(pace.iteration > Pace::of::<f64>(size, (Method::Cg, Precond::Jacobi), &profile).iteration);
    }
}
