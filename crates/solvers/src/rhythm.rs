//! When the host looks at a solve: after `check_every` iterations, or once `check_after` has passed since it last looked.
//!
//! Work on a device is enqueued ahead of the host, so the host cannot watch the clock while iterations run. It decides beforehand how many to
//! enqueue, from the time that an iteration took until the last look. Until the first look it goes by the residual that the solve begins
//! with. A device that runs what is enqueued at once, as a CPU does, is also stopped on the way.
//! Where the host looks changes no bit: work behind a stop changes nothing.

use std::time::{Duration, Instant};

/// An iteration takes at most so many times as long as a residual, until the first look tells. A solve without a preconditioner takes about
/// one or two residuals; the triangular solves of a preconditioner take up to some ten products. A guess that is too large costs one look
/// more, of a solve whose iterations are long beside a look.
const RESIDUALS: u32 = 32;

/// The times of a solve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    after: Duration,
    /// When the host last looked.
    looked: Instant,
    /// What an iteration takes.
    iteration: Duration,
}

impl Rhythm {
    /// Begins with the time that the first residual took.
    pub(crate) fn new(after: Duration, residual: Duration) -> Self {
        Self { after, looked: Instant::now(), iteration: residual.saturating_mul(RESIDUALS) }
    }

    /// The host looks now, between segments: nothing is enqueued.
    pub(crate) fn begin_segment(&mut self) {
        self.looked = Instant::now();
    }

    /// The host has looked, after so many iterations.
    pub(crate) fn look(&mut self, iterations: usize) {
        let now = Instant::now();
        self.iteration = (now - self.looked) / u32::try_from(iterations.max(1)).unwrap_or(u32::MAX);
        self.looked = now;
    }

    /// Iterations that pass before a look is due; at least 1.
    pub(crate) fn until_due(&self) -> usize {
        let fit = self.after.as_nanos() / self.iteration.as_nanos().max(1);
        usize::try_from(fit).unwrap_or(usize::MAX).max(1)
    }

    /// Whether a look is due, `done` iterations after the last one. The clock is read after 1, 2, 4, 8... of them.
    pub(crate) fn is_due(&self, done: usize) -> bool {
        done.is_power_of_two() && self.looked.elapsed() >= self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_iterations_are_looked_at_one_by_one_and_fast_ones_rarely() {
        let ms = Duration::from_millis;
        let rhythm = |residual| Rhythm::new(ms(50), residual);
        assert_eq!(rhythm(ms(1)).until_due(), 1);
        assert_eq!(rhythm(Duration::from_micros(100)).until_due(), 15);
        assert!(rhythm(Duration::ZERO).until_due() > 1 << 20);
        assert_eq!(rhythm(Duration::MAX).until_due(), 1);
        assert_eq!(Rhythm::new(Duration::ZERO, ms(1)).until_due(), 1);
        assert_eq!(Rhythm::new(Duration::MAX, ms(1)).until_due(), usize::MAX);
    }

    #[test]
    fn what_an_iteration_took_is_what_the_next_is_expected_to_take() {
        let mut rhythm = Rhythm::new(Duration::from_secs(3600), Duration::from_secs(7200));
        assert_eq!(rhythm.until_due(), 1);
        assert!(!rhythm.is_due(1));
        std::thread::sleep(Duration::from_millis(2));
        rhythm.look(1000);
        // 2 ms and more for a thousand: at most 3600 s / 2 us.
        assert!((2..=1_800_000_000).contains(&rhythm.until_due()), "{rhythm:?}");
        let at_once = Rhythm::new(Duration::ZERO, Duration::ZERO);
        assert!(at_once.is_due(1) && at_once.is_due(8) && !at_once.is_due(3));
    }
}
