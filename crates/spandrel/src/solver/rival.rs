//! The complete factorisation that an iteration competes with: what it is expected to cost, and when an iteration gives way to it.
//!
//! Every decision follows from the matrix, the device's profile and residuals at fixed iterations, never from a clock, so that a solve
//! repeats bit for bit on one machine.
//!
//! Model, in nanoseconds. A factorisation: [`spandrel_formats::profile::Host::factor_entry`] per entry of the factors and `factor_flop` per
//! operation, shared by the host's threads. An iteration: the bytes of the products, of the incomplete factors and of the vectors, at the
//! rate of one unit of the device, for triangular solves seldom gain from more; on a GPU calls and levels besides. What came of it is in
//! `record/cpu-robust.jsonl`.

use std::sync::Arc;

use spandrel_formats::{Csr, Profile, Real};
use spandrel_solvers::direct::Factorable;
use spandrel_solvers::{Direct, DirectOptions, Error, Method, Precond, Progress, Result};

/// Seconds of a factorisation that the policy still plans with.
const LONGEST: f64 = 60.0;
/// Bytes of the factors that are not asked about, and the most where the system does not say how much memory is free; else half of that.
const MEMORY: [u64; 2] = [256 << 20, 4 << 30];
/// Iterations that are usual with incomplete factors on a matrix without a dominant diagonal, and without them: about what real
/// matrices took.
const ITERATIONS: [f64; 2] = [500.0, 1000.0];
/// Nanoseconds of an incomplete factorisation per entry, and at least: what its set-up took on matrices of a few hundred to two million
/// entries.
const SETUP: [f64; 2] = [80.0, 4e5];
/// Nanoseconds per entry of the symbolic phase of a factorisation: Cholesky, and LU with its bound.
const ANALYSIS: [f64; 2] = [80.0, 350.0];
/// The first iteration at which an iteration is held against its rival; later ones double.
const FIRST_LOOK: usize = 48;
/// Share of the rival's time that an iteration gets before its pace is judged.
const TRIAL: f64 = 0.2;
/// Nanoseconds of iterations that are tried at most, if there is no rival.
const HOPELESS: f64 = 60e9;
/// Iterations that are always allowed.
const FEWEST: usize = 1000;

/// The factorisation of one matrix, analysed when its cost is first asked for.
#[derive(Debug)]
pub(super) struct Rival<T: Factorable> {
    a: Arc<Csr<T>>,
    options: DirectOptions,
    /// Nanoseconds per entry and per operation.
    price: [f64; 2],
    analysed: Option<Result<Direct<T>>>,
}

impl<T: Factorable> Rival<T> {
    pub(super) fn new(a: Arc<Csr<T>>, mut options: DirectOptions, profile: &Profile) -> Self {
        options.memory_limit = u64::MAX;
        let host = &profile.host;
        let price = [host.factor_entry, host.factor_flop / host.threads.max(1) as f64];
        Self { a, options, price, analysed: None }
    }

    /// Nanoseconds of the symbolic phase, about.
    pub(super) fn analysis(&self, symmetric: bool) -> f64 {
        ANALYSIS[usize::from(!symmetric)] * self.a.nnz() as f64
    }

    fn analysed(&mut self) -> &Result<Direct<T>> {
        let Self { a, options, analysed, .. } = self;
        analysed.get_or_insert_with(|| Direct::analyze(Arc::clone(a), options))
    }

    /// Nanoseconds until it has solved, the symbolic phase left out; infinite where it cannot be, or would take too long.
    pub(super) fn cost(&mut self) -> f64 {
        let [entry, flop] = self.price;
        match self.analysed() {
            Ok(direct) => {
                let work = direct.work();
                let cost = entry * work.entries as f64 + flop * work.flops;
                if cost <= LONGEST * 1e9 && fits(work.bytes) { cost } else { f64::INFINITY }
            }
            // Only its values can tell what is to be said of a singular matrix.
            Err(Error::ZeroPivot { .. }) => 0.0,
            Err(_) => f64::INFINITY,
        }
    }

    /// The analysed factorisation.
    ///
    /// # Errors
    /// What the analysis found.
    pub(super) fn take(mut self) -> Result<Direct<T>> {
        self.analysed();
        self.analysed.unwrap_or_else(|| Direct::analyze(self.a, &self.options))
    }
}

/// Whether so many bytes of factors or vectors are no burden to the machine.
pub(super) fn fits(bytes: u64) -> bool {
    bytes <= MEMORY[0] || bytes <= free_memory().map_or(MEMORY[1], |free| free / 2)
}

/// Bytes of memory that are free for new data, where the system says so.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// What an iteration is expected to cost on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Nanoseconds until it begins.
    pub(super) setup: f64,
    /// Nanoseconds per iteration.
    pub(super) iteration: f64,
    /// Whether there are incomplete factors to iterate with.
    has_factors: bool,
}

impl Pace {
    pub(super) fn of<T: Real>(a: &Csr<T>, (method, preconditioner): (Method, Precond), profile: &Profile) -> Self {
        let (n, nnz) = (a.nrows() as f64, a.nnz() as f64);
        let element = T::BYTES as f64;
        let has_factors = !matches!(preconditioner, Precond::None | Precond::Jacobi | Precond::BlockJacobi(_));
        // Products and uses of the preconditioner per iteration, and passes over vectors.
        let (products, passes) = match method {
            Method::Cg => (1.0, 13.0),
            Method::BiCgStab => (2.0, 27.0),
            Method::Gmres | Method::Direct => (1.0, 40.0),
        };
        let read = (4.0 + element) * nnz * if has_factors { 2.0 } else { 1.0 };
        let bytes = products * read + passes * element * n;
        let iteration = &profile.iteration;
        // Levels of triangles lie between those of a band and of a plane.
        let levels = if has_factors { 2.0 * (4.0 * n.sqrt()).min(n) } else { 0.0 };
        let waits = products * levels * iteration.level + (products * 3.0 + 5.0) * iteration.call;
        Self {
            setup: if has_factors { SETUP[0] * nnz + SETUP[1] } else { SETUP[1] },
            iteration: bytes * profile.memory.nanoseconds_per_byte + waits,
            has_factors,
        }
    }

    /// Nanoseconds of a whole solve with as many iterations as are usual.
    pub(super) fn usual(&self) -> f64 {
        self.setup + ITERATIONS[usize::from(!self.has_factors)] * self.iteration
    }
}

/// Whether most rows have a diagonal entry that outweighs the others together: incomplete factors are then nearly exact, and an iteration is
/// soon done.
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

/// Watches an iteration, and says when its rival would be done first.
#[derive(Debug)]
pub(super) struct Judge {
    pace: Pace,
    /// Nanoseconds of the rival's analysis, if it is still to be done.
    analysis: f64,
    next: usize,
    /// Iterations and residuals of the looks so far, at fixed iterations only.
    seen: Vec<(usize, f64)>,
}

impl Judge {
    pub(super) fn new(pace: Pace, analysis: f64) -> Self {
        Self { pace, analysis, next: FIRST_LOOK, seen: Vec::new() }
    }

    /// Iterations that are worth a try where nothing else is left.
    pub(super) fn worth_a_try(&self) -> usize {
        ((HOPELESS / self.pace.iteration) as usize).max(FEWEST)
    }

    /// Whether the iteration should give way. The rival is asked for its cost where it matters.
    pub(super) fn gives_way(&mut self, progress: Progress, every: usize, rival: impl FnOnce() -> f64) -> bool {
        // A look that a clock has brought says nothing that would be the same next time.
        if progress.iterations == 0 || !progress.iterations.is_multiple_of(every) {
            return false;
        }
        self.seen.push((progress.iterations, progress.residual));
        if progress.iterations < self.next {
            return false;
        }
        self.next = progress.iterations * 2;
        let remaining = remaining(&self.seen, progress.target) * self.pace.iteration;
        if remaining <= self.analysis {
            return false;
        }
        let (spent, cost) = (progress.iterations as f64 * self.pace.iteration, rival());
        self.analysis = 0.0;
        // What was spent is lost either way. With incomplete factors an iteration that stands still may fall later: it gets as long as its
        // rival takes.
        let standing = if self.pace.has_factors { remaining.is_finite() } else { true };
        let gives_way = (standing && remaining > cost && spent >= TRIAL * cost) || spent >= cost;
        if !gives_way && cost.is_finite() {
            // Not far past the iteration at which the rival's time is over.
            let due = [TRIAL * cost, cost].into_iter().find(|&due| due > spent).unwrap_or(cost);
            self.next = self.next.min(((due / self.pace.iteration) as usize).max(progress.iterations + 1));
        }
        gives_way
    }
}

/// Iterations until the target, at the pace of the last half; infinite where nothing is gained.
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
            let mut judge = Judge::new(pace, 0.0);
            (1..=100).map(|k| 16 * k).find(|&k| judge.gives_way(at(k, 10f64.powf(-(k as f64) / decade)), 16, || cost))
        };
        // Eight digits in 400 iterations, beside a rival that takes as long as 100.
        assert_eq!(run(50.0, 1e5), Some(48));
        assert_eq!(run(50.0, 1e7), None);
        assert_eq!(run(5.0, 1e5), None);
        // One that stands still has as long as its rival takes; without factors a fifth of that.
        let stands = |has_factors, cost: f64| {
            let mut judge = Judge::new(Pace { has_factors, ..pace }, 0.0);
            (1..=100).map(|k| 16 * k).find(|&k| judge.gives_way(at(k, 1.0), 16, || cost))
        };
        assert_eq!((stands(true, 3e5), stands(false, 3e5)), (Some(304), Some(64)));
    }

    #[test]
    fn looks_between_the_fixed_ones_are_not_counted() {
        let mut judge = Judge::new(Pace { setup: 0.0, iteration: 1000.0, has_factors: true }, 0.0);
        for k in [50, 51, 97, 193] {
            assert!(!judge.gives_way(at(k, 1.0), 16, || 0.0));
        }
        assert!(judge.seen.is_empty());
        assert!(judge.gives_way(at(48, 1.0), 16, || 0.0));
    }

    #[test]
    fn a_factorisation_is_priced_by_its_fill_and_refused_where_it_is_too_large() {
        let profile = Profile::reference();
        let a = Arc::new(generate::csr::<f64>("poisson2d:40").expect("a small matrix"));
        let mut rival = Rival::new(Arc::clone(&a), DirectOptions::default(), &profile);
        let cost = rival.cost();
        assert!(cost > 1e5 && cost < 1e8, "{cost}");
        rival.price = [1e9, 1e9];
        assert_eq!(rival.cost(), f64::INFINITY);
        assert!(rival.take().is_ok());
        assert!(is_dominant(&*a));
        let pace = Pace::of(&*a, (Method::Cg, Precond::Ic0), &profile);
        assert!(pace.iteration > Pace::of(&*a, (Method::Cg, Precond::Jacobi), &profile).iteration);
    }
}
