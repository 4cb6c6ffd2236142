//! When the host looks at a solve: after `check_every` iterations, or once `check_after` has passed since its last
//! look.
//!
//! Work on a device is enqueued ahead of the host, so the host cannot watch the clock while iterations run. It decides
//! beforehand how many to enqueue, from the time that an iteration took until the last look. Until the first look it
//! goes by the residual that the solve begins with. A device that runs what is enqueued at once, as a CPU does, is also
//! stopped on the way.
//!
//! If the device is immediate ([`Device::is_immediate`]), the host asks for the stop after every iteration and enqueues
//! none beyond it. This is not a look: it calls no watcher, and ranks exchange nothing for it.
//!
//! On other devices, iterations beyond the stop still take about half the time of others, because each of their kernels
//! begins and ends. So the host looks at a device that works behind it more often: the iterations between two looks
//! take at most [`APART`], or the sixteenth part of the time so far.
//!
//! Where the host looks changes no bit: work behind a stop changes nothing. The ranks of a distributed solve agree on
//! what their clocks say ([`Device::agree`]), because they have to look at the same iterations.

use std::time::{Duration, Instant};

use spandrel_backend::{Device, Result};

/// Until the first look, an iteration is assumed to take at most this many times as long as a residual. Without a
/// preconditioner it takes about one or two residuals. The triangular solves of a preconditioner take up to some ten
/// products. If the guess is too large, the host looks once more, which is cheap beside such slow iterations.
const RESIDUALS: u32 = 32;

/// The time between looks at a device that works behind the host. A look takes an H200 65 us: it runs dry, and the next
/// iterations have to be enqueued.
const APART: Duration = Duration::from_millis(2);
/// Once a solve has taken longer than this many times [`APART`], looks are farther apart: beyond the stop at most this
/// part of the solve's time is enqueued.
const PARTS: u32 = 16;
/// The time until the first look, by the guess.
const FIRST: Duration = Duration::from_millis(8);

/// The times of a solve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    after: Duration,
    /// When the host last looked.
    looked: Instant,
    /// When the host began to wait for what it had enqueued.
    waited: Option<Instant>,
    /// The time per iteration.
    iteration: Duration,
    /// The time of all iterations that were looked at.
    worked: Duration,
    /// Whether the device mostly worked while the host waited.
    behind: bool,
}

impl Rhythm {
    /// Begins with the time that the first residual took.
    pub(crate) fn new(be: &impl Device, after: Duration, residual: Duration) -> Result<Self> {
        let (looked, waited) = (Instant::now(), None);
        let (iteration, worked, behind) = (Duration::ZERO, Duration::ZERO, false);
        let mut rhythm = Self { after, looked, waited, iteration, worked, behind };
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

    /// Records that everything until the next look is enqueued.
    pub(crate) fn wait(&mut self) {
        self.waited = Some(Instant::now());
    }

    /// Records a look that follows this many iterations.
    pub(crate) fn look(&mut self, be: &impl Device, iterations: usize) -> Result<()> {
        let now = Instant::now();
        let took = now - self.looked;
        let behind = self.waited.take().is_some_and(|waited| 2 * (now - waited) > took);
        // The last bit tells the other ranks whether the device of the slowest one works behind its host.
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) >> 1 << 1 | u64::from(behind);
        let agreed = self.agreed(be, Duration::from_nanos(nanos))?;
        self.behind = agreed.as_nanos() % 2 == 1;
        self.worked = self.worked.saturating_add(agreed);
        self.iteration = agreed / u32::try_from(iterations.max(1)).unwrap_or(u32::MAX);
        self.looked = now;
        Ok(())
    }

    /// Iterations until a look is due; at least 1.
    pub(crate) fn until_due(&self) -> usize {
        self.within(self.after)
    }

    /// Iterations that may be enqueued, even if no look is due yet; at least 1.
    pub(crate) fn ahead(&self) -> usize {
        if self.after == Duration::MAX {
            usize::MAX
        } else if self.worked.is_zero() {
            self.within(FIRST)
        } else if self.behind {
            self.within(APART.max(self.worked / PARTS))
        } else {
            usize::MAX
        }
    }

    /// Iterations in this time; at least 1.
    fn within(&self, time: Duration) -> usize {
        if time == Duration::MAX {
            return usize::MAX;
        }
        let fit = time.as_nanos() / self.iteration.as_nanos().max(1);
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
        assert_eq!(rhythm(ms(50), Duration::from_micros(100)).ahead(), 2);
        assert!(rhythm(ms(50), Duration::ZERO).until_due() > 1 << 20);
        assert_eq!(rhythm(ms(50), Duration::MAX).until_due(), 1);
        assert_eq!(rhythm(Duration::ZERO, ms(1)).until_due(), 1);
        assert_eq!(rhythm(Duration::MAX, ms(1)).until_due(), usize::MAX);
        assert_eq!(rhythm(Duration::MAX, ms(1)).ahead(), usize::MAX);
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
        assert_eq!(rhythm.ahead(), usize::MAX);
        // All of it was waiting, so 2 ms may be enqueued, not an hour.
        let mut behind = Rhythm::new(&cpu, Duration::from_secs(3600), Duration::ZERO).unwrap();
        behind.wait();
        std::thread::sleep(Duration::from_millis(4));
        behind.look(&cpu, 1000).unwrap();
        assert!((1..=500).contains(&behind.ahead()), "{behind:?}");
        // The clock has passed an hour: a sixteenth of it may follow.
        behind.worked = Duration::from_secs(3600);
        behind.iteration = Duration::from_secs(1);
        assert_eq!(behind.ahead(), 225);
        let at_once = Rhythm::new(&cpu, Duration::ZERO, Duration::ZERO).unwrap();
        let due = |done| at_once.is_due(&cpu, done).unwrap();
        assert!(due(1) && due(8) && !due(3));
    }
}
