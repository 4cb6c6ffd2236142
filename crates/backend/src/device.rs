//! A device: one ordered queue, recorded steps, and the monitor that decides on it.

use crate::{Latest, Profile, Report, Result, Watch};

/// One ordered queue of work on a processor that can run it.
///
/// Operations are enqueued in program order and take effect in that order. Whatever makes the host wait is called
/// `synchronize`, `download` or `report`, and nothing else does. There is no stream argument: a device is a queue.
pub trait Device: Sized {
    /// `"cpu"`, `"cuda"`; names trials, benches and records.
    const NAME: &'static str;
    /// A captured step. Threads may own it in turn.
    type Graph: Send;
    /// The device-resident record of an iteration: counts, decides, and gates the work behind it. See [`Watch`].
    /// Threads may own it in turn and share it.
    type Monitor: Send + Sync;

    /// The device in words, for reports: model, threads or multiprocessors.
    fn describe(&self) -> String;

    /// What the policies know of the device: rates, latencies and costs. They ask here and name no device. It stays the same while the device
    /// lives. Does not block.
    fn profile(&self) -> &Profile;

    /// Waits until everything enqueued so far is done, and reports what failed meanwhile. Blocks; may not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Device`]: what failed since the last wait.
    fn synchronize(&self) -> Result<()>;

    /// Records `step` without running it. A step allocates nothing, reads nothing back, swaps no buffers. Does not block.
    ///
    /// # Errors
    /// Those of the step's operations; [`crate::Error::Device`] for an operation that may not be recorded.
    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Self::Graph>;

    /// Runs a captured step, with the bits of a plain run. Does not block.
    ///
    /// # Errors
    /// [`crate::Error::Device`] where the device refuses the graph; a backend that captures nothing, those of the step's operations.
    ///
    /// # Safety
    /// `graph` came from [`Device::capture`] on this device with this very `step`, whose buffers are all alive.
    unsafe fn replay<S: Step<Self>>(&self, graph: &Self::Graph, step: &mut S) -> Result<()>;

    /// A new monitor, running, at iteration 0. Allocates; may not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn monitor(&self, watch: &Watch) -> Result<Self::Monitor>;

    /// Sets a stopped monitor running again with its counts and history kept: after the solver has replaced the residual.
    /// May be recorded: no. Does not block.
    ///
    /// # Errors
    /// [`crate::Error::Device`].
    fn resume(&self, monitor: &mut Self::Monitor) -> Result<()>;

    /// Sets a monitor to iteration 0 under new limits, its history empty: the next solve, or the next restart of one. A backend
    /// overrides the default, which replaces the monitor, so that the memory of the earlier history is used again; where steps are captured
    /// it does, since a captured step that has the monitor as its gate stays valid.
    /// May be recorded: no. Does not block.
    ///
    /// # Errors
    /// As [`Device::monitor`].
    fn rearm(&self, monitor: &mut Self::Monitor, watch: &Watch) -> Result<()> {
        *monitor = self.monitor(watch)?;
        Ok(())
    }

    /// The end of what the monitor has seen, without the history: what a host looks at every so many iterations. A backend
    /// overrides the default, which moves the whole history. Blocks; may not be recorded.
    ///
    /// # Errors
    /// As [`Device::report`].
    fn report_latest(&self, monitor: &Self::Monitor) -> Result<Latest> {
        Ok(self.report(monitor)?.latest())
    }

    /// What the monitor has seen, its history of one norm an iteration included. Blocks; may not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Device`]: what failed since the last wait.
    fn report(&self, monitor: &Self::Monitor) -> Result<Report>;
}

/// The gate of an operation: with a monitor that has stopped, the operation returns before its first write.
/// `None` means no gate.
pub type Gate<'a, D> = Option<&'a <D as Device>::Monitor>;

/// A fixed sequence of operations on fixed buffers, e.g. one iteration of a solver.
///
/// # Safety
/// Every call of [`Step::enqueue`] enqueues the same operations on the same buffers (whatever they hold by then), and none
/// of these buffers is freed or moved while the step lives, also not through interior mutability: a captured graph has
/// their addresses.
pub unsafe trait Step<D: Device> {
    /// Enqueues the operations. Does not block.
    ///
    /// # Errors
    /// Those of the operations; those before the one that failed have been enqueued.
    fn enqueue(&mut self, device: &D) -> Result<()>;
}

/// A step and its graph: run plainly the first time, captured the second time, replayed from then on.
#[derive(Debug)]
pub struct Recorded<'d, D: Device, S: Step<D>> {
    device: &'d D,
    step: S,
    graph: Option<D::Graph>,
    plain_runs: u32,
    record: bool,
}

impl<'d, D: Device, S: Step<D>> Recorded<'d, D, S> {
    /// Takes the step over. With `record` false every run is plain (for comparison).
    pub fn new(device: &'d D, step: S, record: bool) -> Self {
        Self { device, step, graph: None, plain_runs: 0, record }
    }

    /// Runs the step once, with the same bits however it is run. Does not block.
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
        // SAFETY: the graph was captured on `self.device` from `self.step`, which this struct owns until it is gone; by the
        // contract of `Step` the buffers of the capture are those of now, alive and in place.
        let outcome = unsafe { self.device.replay(&graph, &mut self.step) };
        self.graph = Some(graph);
        outcome
    }

    /// The step, for looking at its buffers between runs.
    pub fn step(&self) -> &S {
        &self.step
    }

    /// Gives the step back and drops the graph.
    pub fn into_step(self) -> S {
        self.step
    }
}
