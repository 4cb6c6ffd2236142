//! When the host looks at a solve: after `check_every` iterations, or once `check_after` has passed since its last
//! look.
//!
//! Work on a device is enqueued ahead of the host, so the host cannot watch the clock while iterations run. It decides
//! beforehand how many to enqueue, from the time that an iteration took until the last look. Until the first look it
//! goes by the residual that the solve begins with. A device that runs what is enqueued at once, as a CPU does, is also
//! stopped on the way. Where the host looks changes no bit: work behind a stop changes nothing. The ranks of a
//! distributed solve agree on what their clocks say ([`Device::agree`]), because they have to look at the same
//! iterations.

use std::time::{Duration, Instant};

use spandrel_backend::{Device, Result};

/// Until the first look, an iteration is assumed to take at most this many times as long as a residual. Without a
/// preconditioner it takes about one or two residuals. The triangular solves of a preconditioner take up to some ten
/// products. If the guess is too large, the host looks once more, which is cheap beside such slow iterations.
const RESIDUALS: u32 = 32;

/// The times of a solve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    after: Duration,
    /// When the host last looked.
    looked: Instant,
    /// The time per iteration.
    iteration: Duration,
}

impl Rhythm {
    /// Begins with the time that the first residual took.
    pub(crate) fn new(be: &impl Device, after: Duration, residual: Duration) -> Result<Self> {
        let mut rhythm = Self { after, looked: Instant::now(), iteration: Duration::ZERO };
        rhythm.iteration = rhythm.agreed(be, residual)?.saturating_mul(RESIDUALS);
        Ok(rhythm)
    }

    /// The longest of these times over all ranks. If the clock does not matter, the ranks do not exchange anything.
    fn agreed(&self, be: &impl Device, time: Duration) -> Result<Duration> {
        if self.after == Duration::MAX {
            return Ok(time);
        }
        Ok(Duration::from_nanos(be.agree(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))?))
    }

    /// Records a look between segments, when nothing is enqueued.
    pub(crate) fn begin_segment(&mut self) {
        self.looked = Instant::now();
    }

    /// Records a look that follows this many iterations.
    pub(crate) fn look(&mut self, be: &impl Device, iterations: usize) -> Result<()> {
        let now = Instant::now();
        self.iteration = self.agreed(be, now - self.looked)? / u32::try_from(iterations.max(1)).unwrap_or(u32::MAX);
        self.looked = now;
        Ok(())
    }

    /// Iterations until a look is due; at least 1.
    pub(crate) fn until_due(&self) -> usize {
        if self.after == Duration::MAX {
            return usize::MAX;
        }
        let fit = self.after.as_nanos() / self.iteration.as_nanos().max(1);
        usize::try_from(fit).unwrap_or(usize::MAX).max(1)
    }

    /// Whether a look is due, `done` iterations after the last one. The clock is read after 1, 2, 4, 8... of them.
    pub(crate) fn is_due(&self, be: &impl Device, done: usize) -> Result<bool> {
        if self.after == Duration::MAX || !done.is_power_of_two() {
            return Ok(false);
        }
        Ok(be.agree(u64::from(self.looked.elapsed() >= self.after))? != 0)
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend_cpu::Cpu;

    use super::*;

    fn rhythm(after: Duration, residual: Duration) -> Rhythm {
        Rhythm::new(&Cpu::new(), after, residual).unwrap()
    }

    #[test]
    fn slow_iterations_are_looked_at_one_by_one_and_fast_ones_rarely() {
        let ms = Duration::from_millis;
        assert_eq!(rhythm(ms(50), ms(1)).until_due(), 1);
        assert_eq!(rhythm(ms(50), Duration::from_micros(100)).until_due(), 15);
        assert!(rhythm(ms(50), Duration::ZERO).until_due() > 1 << 20);
        assert_eq!(rhythm(ms(50), Duration::MAX).until_due(), 1);
        assert_eq!(rhythm(Duration::ZERO, ms(1)).until_due(), 1);
        assert_eq!(rhythm(Duration::MAX, ms(1)).until_due(), usize::MAX);
    }

    #[test]
    fn what_an_iteration_took_is_what_the_next_is_expected_to_take() {
        let cpu = Cpu::new();
        let mut rhythm = Rhythm::new(&cpu, Duration::from_secs(3600), Duration::from_secs(7200)).unwrap();
        assert_eq!(rhythm.until_due(), 1);
        assert!(!rhythm.is_due(&cpu, 1).unwrap());
        std::thread::sleep(Duration::from_millis(2));
        rhythm.look(&cpu, 1000).unwrap();
        // 2 ms and more for a thousand: at most 3600 s / 2 us.
        assert!((2..=1_800_000_000).contains(&rhythm.until_due()), "{rhythm:?}");
        let at_once = Rhythm::new(&cpu, Duration::ZERO, Duration::ZERO).unwrap();
        let due = |done| at_once.is_due(&cpu, done).unwrap();
        assert!(due(1) && due(8) && !due(3));
    }
}
