//! The CPU device: threads, vector instructions, scratch memory, and the splitting of element ranges among threads.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Device, Error, Gate, Join, Latest, PeerSums, Report, Result, Roots, Step, Watch};
use spandrel_formats::Profile;

use crate::Monitor;
use crate::simd::Simd;
use crate::threads::{Scratch, Threads};

/// The host's processor as a device: the calling thread and a rayon pool.
///
/// Operations run when they are called. So the queue is always empty, capture records nothing, and nothing ever waits.
/// Results have the same bits for any number of threads and any [`Simd`] level.
#[derive(Clone, Debug)]
pub struct Cpu {
    threads: Threads,
    simd: Simd,
    scratch: Arc<Scratch>,
    profile: Arc<Profile>,
    /// Completes dot products whose vectors are parts of longer ones.
    sums: Option<Sums>,
}

/// How dot products over several ranks are completed.
#[derive(Clone, Debug)]
pub(crate) enum Sums {
    Roots(Arc<dyn Roots>),
    Peers(Arc<PeerSums<Cpu>>),
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

impl Cpu {
    /// Uses all threads of rayon's global pool and the widest vector instructions found.
    pub fn new() -> Self {
        Self::over(Threads::global())
    }

    /// Uses `count` threads (at least 1): the caller and a pool of its own.
    ///
    /// # Errors
    /// [`Error::Device`] if the system refuses the threads.
    pub fn with_threads(count: usize) -> Result<Self> {
        let threads = Threads::new(count).map_err(|e| Error::Device {
            device: "cpu",
            why: format!("{count} threads could not be started ({e}); ask for fewer"),
        })?;
        Ok(Self::over(threads))
    }

    fn over(threads: Threads) -> Self {
        let profile = Arc::new(crate::profile::of(threads.count()));
        Self { threads, simd: Simd::detect(), scratch: Arc::default(), profile, sums: None }
    }

    /// Returns the same device, limited to narrower vector instructions. For comparing the levels; a level that the
    /// processor lacks is reduced to the widest that it has.
    #[must_use]
    pub fn with_simd(self, simd: Simd) -> Self {
        Self { simd: simd.min(Simd::detect()), ..self }
    }

    /// Returns the same device with another profile for the policies to read, such as a calibrated one. Operations keep
    /// their bits; what is chosen may change.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile: Arc::new(profile), ..self }
    }

    /// The vector instructions in use.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// Number of threads that work on an operation.
    pub fn thread_count(&self) -> usize {
        self.threads.count()
    }

    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    pub(crate) fn sums(&self) -> Option<&Sums> {
        self.sums.as_ref()
    }

    /// The same device, whose dot products are completed so.
    pub(crate) fn with_sums(&self, sums: Sums) -> Self {
        Self { sums: Some(sums), ..self.clone() }
    }

    /// Splits 0..n into ranges that begin at multiples of `granule` and runs them in parallel. An element costs `bytes`
    /// of traffic.
    pub(crate) fn split(&self, n: usize, bytes: usize, granule: usize, work: impl Fn(Range<usize>) + Sync) {
        let granules = n.div_ceil(granule);
        let tasks = self.threads.tasks(n.saturating_mul(bytes)).min(granules);
        // u128, because granules * tasks may exceed 64 bits for lengths that only `zeros` sees.
        let cut =
            |task: usize| ((granules as u128 * task as u128 / tasks as u128) as usize).saturating_mul(granule).min(n);
        self.threads.run(tasks, |task| work(cut(task)..cut(task + 1)));
    }
}

/// Returns true if the gate is open, so that work may run.
pub(crate) fn open(gate: Gate<'_, Cpu>) -> bool {
    !gate.is_some_and(Monitor::stopped)
}

impl Device for Cpu {
    const NAME: &'static str = "cpu";
    type Graph = ();
    type Monitor = Monitor;

    fn describe(&self) -> String {
        let count = self.threads.count();
        let threads = if count == 1 { "thread" } else { "threads" };
        format!("{count} {threads}, {}, {}", std::env::consts::ARCH, self.simd.name())
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn capture<S: Step<Self>>(&self, _step: &mut S) -> Result<()> {
        Ok(())
    }

    unsafe fn replay<S: Step<Self>>(&self, _graph: &(), step: &mut S) -> Result<()> {
        step.enqueue(self)
    }

    fn monitor(&self, watch: &Watch) -> Result<Monitor> {
        Ok(Monitor::new(watch))
    }

    fn resume(&self, monitor: &mut Monitor) -> Result<()> {
        monitor.resume();
        Ok(())
    }

    fn rearm(&self, monitor: &mut Monitor, watch: &Watch) -> Result<()> {
        monitor.rearm(watch);
        Ok(())
    }

    fn report_latest(&self, monitor: &Monitor) -> Result<Latest> {
        Ok(monitor.latest())
    }

    fn report(&self, monitor: &Monitor) -> Result<Report> {
        Ok(monitor.report())
    }
}

impl Join for Cpu {
    fn joined<R>(&self, roots: &Arc<dyn Roots>, work: impl FnOnce(&Self) -> R) -> R {
        work(&self.with_sums(Sums::Roots(Arc::clone(roots))))
    }
}
