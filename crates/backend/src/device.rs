//! The device: one ordered queue, recorded steps, and the monitor that stops an iteration.

use crate::{Latest, Profile, Report, Result, Watch};

/// One ordered queue of work on a processor that can run it.
///
/// Operations are enqueued in program order and take effect in that order. Only `synchronize`, `download`, `report` and
/// the set-up phases block the host. There is no stream argument: a device is one queue.
pub trait Device: Sized {
    /// The name in trials, benches and records: `"cpu"` or `"cuda"`.
    const NAME: &'static str;
    /// A captured step. It may move from one thread to another.
    type Graph: Send;
    /// The record of an iteration, kept on the device: it counts, decides when to stop, and gates the work behind the
    /// stop. See [`Watch`]. Threads may share it.
    type Monitor: Send + Sync;

    /// Describes the device for reports: its model, its threads or multiprocessors.
    fn describe(&self) -> String;

    /// Rates, latencies and costs of the device. The policies read them and never ask for the device's name. The
    /// profile stays the same while the device lives. Does not block.
    fn profile(&self) -> &Profile;

    /// About how many bytes can still be allocated in the device's own memory. `None` (the default) if the device works
    /// in the memory of the host. Memory that the device keeps for later allocations counts as free. Other users of the
    /// device may change the number at any time, so an allocation may fail all the same. Does not wait for enqueued
    /// work.
    ///
    /// # Errors
    /// [`crate::Error::Device`].
    fn free_memory(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns true if all work of an operation is done when its call returns, so that [`Device::report_latest`] never
    /// waits. Solvers then enqueue no iteration behind the stop. False, the default, is right for every device. Always
    /// the same for a device, and on all ranks. Does not block.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Waits until everything enqueued so far is done, and reports any failure since the last wait. Blocks; must not be
    /// recorded.
    ///
    /// # Errors
    /// [`crate::Error::Device`] with what failed since the last wait.
    fn synchronize(&self) -> Result<()>;

    /// Returns the largest of what all ranks of a distributed solve say; one device alone returns `mine` (the default).
    ///
    /// Solvers call it where a decision of the host does not follow from scalars of the device: what a clock says,
    /// whether a watcher breaks off. All ranks then decide alike. Every rank must call it at the same point of the
    /// solve. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Rank`].
    fn agree(&self, mine: u64) -> Result<u64> {
        Ok(mine)
    }

    /// Records `step` without running it. A step allocates nothing, reads nothing back and swaps no buffers. Does not
    /// block.
    ///
    /// # Errors
    /// Those of the step's operations; [`crate::Error::Device`] for an operation that must not be recorded.
    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Self::Graph>;

    /// Runs a captured step, with the bits of a plain run. Does not block.
    ///
    /// # Errors
    /// [`crate::Error::Device`] if the device refuses the graph. A backend that captures nothing returns the errors of
    /// the step's operations.
    ///
    /// # Safety
    /// `graph` came from [`Device::capture`] on this device with this very `step`, and all buffers of the step are
    /// alive.
    unsafe fn replay<S: Step<Self>>(&self, graph: &Self::Graph, step: &mut S) -> Result<()>;

    /// Makes a monitor that runs, at iteration 0. Allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn monitor(&self, watch: &Watch) -> Result<Self::Monitor>;

    /// Sets a stopped monitor running again and keeps its counts and history. Solvers call it after they have replaced
    /// the residual. Does not block; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Device`].
    fn resume(&self, monitor: &mut Self::Monitor) -> Result<()>;

    /// Sets a monitor to iteration 0 with new limits and an empty history, for the next solve or the next restart.
    ///
    /// The default replaces the monitor. A backend may override it to reuse the memory of the old history. A backend
    /// that captures steps must override it, because a captured step keeps the monitor as its gate and has to stay
    /// valid. Does not block; must not be recorded.
    ///
    /// # Errors
    /// As [`Device::monitor`].
    fn rearm(&self, monitor: &mut Self::Monitor, watch: &Watch) -> Result<()> {
        *monitor = self.monitor(watch)?;
        Ok(())
    }

    /// Returns the latest state of the monitor without the history. The host calls this once per several iterations,
    /// and after each if the device [is immediate](Device::is_immediate).
    /// The default moves the whole history, so a backend overrides it. Blocks; must not be recorded.
    ///
    /// # Errors
    /// As [`Device::report`].
    fn report_latest(&self, monitor: &Self::Monitor) -> Result<Latest> {
        Ok(self.report(monitor)?.latest())
    }

    /// Returns what the monitor has seen, with the history of one norm per iteration. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Device`] with what failed since the last wait.
    fn report(&self, monitor: &Self::Monitor) -> Result<Report>;
}

/// The gate of an operation. If the monitor has stopped, the operation returns before its first write. `None` means no
/// gate.
pub type Gate<'a, D> = Option<&'a <D as Device>::Monitor>;

/// A fixed sequence of operations on fixed buffers, such as one iteration of a solver.
///
/// # Safety
/// Every call of [`Step::enqueue`] enqueues the same operations on the same buffers; only the contents of the buffers
/// may differ. No such buffer is freed or moved while the step lives, not even through interior mutability, because a
/// captured graph holds their addresses.
pub unsafe trait Step<D: Device> {
    /// Enqueues the operations. Does not block.
    ///
    /// # Errors
    /// Those of the operations. The operations before the failed one have been enqueued.
    fn enqueue(&mut self, device: &D) -> Result<()>;
}

/// A step with its graph: the first run is plain, the second captures the step, and all later runs replay it.
#[derive(Debug)]
pub struct Recorded<'d, D: Device, S: Step<D>> {
    device: &'d D,
    step: S,
    graph: Option<D::Graph>,
    plain_runs: u32,
    record: bool,
}

impl<'d, D: Device, S: Step<D>> Recorded<'d, D, S> {
    /// Takes ownership of the step. If `record` is false, every run is plain (for comparison).
    pub fn new(device: &'d D, step: S, record: bool) -> Self {
        Self { device, step, graph: None, plain_runs: 0, record }
    }

    /// Runs the step once. The result has the same bits whether the step runs plainly or is replayed. Does not block.
    ///
    /// # Errors
    /// Those of [`Step::enqueue`], [`Device::capture`] and [`Device::replay`].
    pub fn run(&mut self) -> Result<()> {
        if !self.record || self.plain_runs == 0 {
            self.plain_runs = 1;
            return self.step.enqueue(self.device);
        }
        let graph = match self.graph.take() {
            Some(graph) => graph,
            None => self.device.capture(&mut self.step)?,
        };
        // SAFETY: the graph was captured on `self.device` from `self.step`, which this struct owns until it is dropped.
        // By the contract of `Step`, the captured buffers are still the same ones, alive and in place.
        let outcome = unsafe { self.device.replay(&graph, &mut self.step) };
        self.graph = Some(graph);
        outcome
    }

    /// The step, to look at its buffers between runs.
    pub fn step(&self) -> &S {
        &self.step
    }

    /// Gives the step back and drops the graph.
    pub fn into_step(self) -> S {
        self.step
    }
}
