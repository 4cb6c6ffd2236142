//! Contenders and the clock. Every contender of a case runs in turn, round after round, so that a slow moment of the
//! machine affects all of them.

use std::time::Instant;

/// A computation that is repeated and timed.
pub trait Contender {
    /// The format or method, e.g. `"csr"`.
    fn noun(&self) -> String;
    /// Whose code it is: `"spandrel"`, `"sprs"`, `"machine"`, ...
    fn name(&self) -> &'static str;
    /// Which of several kernels or ways, unless it is the usual one.
    fn kernel(&self) -> Option<String> {
        None
    }
    /// The bytes that one call must move, by the traffic model.
    fn bytes(&self) -> u64;
    /// The number of calls in one [`Contender::run`] (iterations of a solve).
    fn calls(&self) -> u64 {
        1
    }
    /// Computes the answer.
    fn run(&mut self);
    /// Overwrites the answer with NaN, so that an answer that is not written cannot pass.
    fn poison(&mut self);
    /// The answer, or `None` for a contender that only measures the machine.
    fn answer(&self) -> Option<Vec<f64>>;
}

/// Milliseconds per call.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Median over the rounds.
    pub ms: f64,
    /// Fastest round.
    pub min: f64,
    /// Slowest round.
    pub max: f64,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds through all contenders.
    pub rounds: usize,
    /// A contender repeats its call until a round of it lasts this long.
    pub round_ms: f64,
    /// No round begins after this many seconds, except the first [`LEAST_ROUNDS`].
    pub seconds: f64,
}

/// With fewer rounds a median says little, so this many are done however long they take.
pub const LEAST_ROUNDS: usize = 3;

/// A call of this many milliseconds or more is not repeated to find its number of repeats.
const LONG_MS: f64 = 100.0;

impl Effort {
    /// This many rounds, however long they take.
    pub const fn new(rounds: usize, round_ms: f64) -> Self {
        Self { rounds, round_ms, seconds: f64::INFINITY }
    }

    /// Starts counting the rounds.
    pub(crate) fn rounds(self) -> impl Iterator<Item = usize> {
        let start = Instant::now();
        (0..self.rounds).take_while(move |&round| round < LEAST_ROUNDS || start.elapsed().as_secs_f64() < self.seconds)
    }
}

/// The median; `None` of no samples.
pub(crate) fn median(samples: &[f64]) -> Option<f64> {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

/// Times the contenders, interleaved, and returns one timing each, in their order.
pub fn interleave(contenders: &mut [Box<dyn Contender + '_>], effort: Effort) -> Vec<Timing> {
    let mut samples = vec![Vec::with_capacity(effort.rounds + 1); contenders.len()];
    let repeats: Vec<u32> = contenders
        .iter_mut()
        .zip(&mut samples)
        .map(|(c, samples)| {
            // The first call warms up what it uses. A long call that was made before, for the check, counts as a round.
            let ms = clock(c.as_mut(), 1);
            if ms >= LONG_MS {
                samples.push(ms / c.calls() as f64);
                return 1;
            }
            let mut repeats = 1u32;
            loop {
                let ms = clock(c.as_mut(), repeats) * f64::from(repeats);
                if ms >= effort.round_ms || repeats >= 1 << 24 {
                    break repeats;
                }
                let wanted = f64::from(repeats) * 1.2 * effort.round_ms / ms.max(1e-6);
                repeats = (wanted.ceil() as u32).clamp(repeats + 1, repeats.saturating_mul(64));
            }
        })
        .collect();
    for round in effort.rounds() {
        for k in 0..contenders.len() {
            // Each round starts with another contender, so that none always follows the same one.
            let at = (k + round) % contenders.len();
            if round + 1 == LEAST_ROUNDS && samples[at].len() == LEAST_ROUNDS {
                continue;
            }
            samples[at].push(clock(contenders[at].as_mut(), repeats[at]) / contenders[at].calls() as f64);
        }
    }
    samples
        .into_iter()
        .map(|mut s| {
            s.sort_by(f64::total_cmp);
            Timing { ms: s[s.len() / 2], min: s[0], max: s[s.len() - 1] }
        })
        .collect()
}

/// Milliseconds per run over `repeats` runs.
fn clock(c: &mut (dyn Contender + '_), repeats: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        c.run();
    }
    start.elapsed().as_secs_f64() * 1e3 / f64::from(repeats)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Spin(u64);
    impl Contender for Spin {
        fn noun(&self) -> String {
            "spin".into()
        }
        fn name(&self) -> &'static str {
            "test"
        }
        fn bytes(&self) -> u64 {
            0
        }
        fn run(&mut self) {
            for i in 0..self.0 {
                std::hint::black_box(i);
            }
        }
        fn poison(&mut self) {}
        fn answer(&self) -> Option<Vec<f64>> {
            None
        }
    }

    #[test]
    fn no_round_begins_when_the_time_is_up() {
        let effort = Effort { seconds: 0.0, ..Effort::new(9, 1.0) };
        assert_eq!([effort.rounds().count(), Effort::new(2, 1.0).rounds().count()], [LEAST_ROUNDS, 2]);
        assert_eq!(Effort::new(9, 1.0).rounds().count(), 9);
    }

    #[test]
    fn a_hundred_times_the_work_takes_longer() {
        let mut both: Vec<Box<dyn Contender>> = vec![Box::new(Spin(1_000)), Box::new(Spin(100_000))];
        let t = interleave(&mut both, Effort::new(5, 1.0));
        assert!(t[1].ms > t[0].ms);
        assert!(t.iter().all(|t| t.min <= t.ms && t.ms <= t.max));
    }
}
