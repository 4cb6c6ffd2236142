//! The clock: calls captured in one graph, replayed between two events, the contenders in turn.

use std::sync::Arc;

use anyhow::{Context, Result};
use spandrel_backend_cuda::cudarc::driver::{CudaEvent, CudaGraph, CudaStream, sys};

use super::Gpu;
use crate::contender::{Effort, Timing};

/// Calls in one graph.
pub const CALLS: u32 = 50;
/// A graph of longer calls has fewer of them; its launch costs only a few microseconds.
pub const GRAPH_MS: f64 = 5.0;
/// Replays of longer graphs need no warm-up before each round, because the caches keep nothing from the previous call.
const LONG_MS: f64 = 10.0;
/// The largest number of replays in one round.
const MOST_REPLAYS: f64 = 4096.0;

/// Enqueues one call.
pub type Enqueue<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// A contender's description.
#[derive(Clone, Debug)]
pub struct Label {
    /// The format or method.
    pub noun: String,
    /// Whose code.
    pub contender: &'static str,
    /// Which of several kernels.
    pub kernel: Option<String>,
    /// The bytes that one call must move, by the traffic model.
    pub bytes: u64,
}

/// A contender, captured.
pub struct Timed<'a> {
    /// The description.
    pub label: Label,
    /// `None` if the calls cannot be captured. They are then enqueued one by one.
    graph: Option<CudaGraph>,
    calls: u32,
    /// The number of replays in a round, once known.
    replays: Option<(u32, bool)>,
    /// Owns or borrows what the graph uses.
    enqueue: Enqueue<'a>,
}

/// Records `calls` calls. Every kernel must have been launched before, so that none is loaded during the capture.
pub(crate) fn capture(
    stream: &Arc<CudaStream>,
    calls: u32,
    enqueue: &mut dyn FnMut() -> Result<()>,
) -> Result<CudaGraph> {
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).context("beginning to record")?;
    let enqueued = (0..calls).try_for_each(|_| enqueue());
    // End the capture in any case, because a stream that is left recording refuses everything.
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0));
    enqueued?;
    graph.context("recording the calls")?.context("recording the calls gave no graph")
}

impl<'a> Timed<'a> {
    /// Runs one call plain, so that all its kernels are loaded, and captures `calls` of them.
    ///
    /// # Errors
    /// Those of the call.
    pub fn new(gpu: &Gpu, label: Label, calls: u32, mut enqueue: Enqueue<'a>) -> Result<Self> {
        enqueue()?;
        gpu.stream().synchronize().context("the first call")?;
        let graph = Some(capture(gpu.stream(), calls, &mut enqueue)?);
        Ok(Self { label, graph, calls, replays: None, enqueue })
    }

    /// As [`Timed::new`] with [`CALLS`] calls, or fewer if these would last longer than [`GRAPH_MS`]. Calls that cannot
    /// be captured are enqueued one by one.
    ///
    /// # Errors
    /// Those of the call.
    pub fn fitted(gpu: &Gpu, label: Label, mut enqueue: Enqueue<'a>) -> Result<Self> {
        // The first call loads kernels.
        enqueue()?;
        gpu.stream().synchronize().context("the first call")?;
        let ms = Clock::new(gpu)?.time(gpu, &mut enqueue)?;
        let calls = calls_of(ms);
        let graph = capture(gpu.stream(), calls, &mut enqueue).inspect_err(|why| {
            eprintln!("  {} ({}): not captured, timed between events: {why:#}", label.noun, label.contender);
        });
        Ok(Self { label, graph: graph.ok(), calls, replays: None, enqueue })
    }

    /// Whether the calls are one graph.
    pub fn is_captured(&self) -> bool {
        self.graph.is_some()
    }

    /// Runs all calls once and waits.
    ///
    /// # Errors
    /// Those of the device.
    pub fn replay(&mut self, gpu: &Gpu) -> Result<()> {
        self.launch()?;
        gpu.stream().synchronize().context("the replayed calls")
    }

    fn launch(&mut self) -> Result<()> {
        match &self.graph {
            Some(graph) => graph.launch().context("replaying the calls"),
            None => (0..self.calls).try_for_each(|_| (self.enqueue)()),
        }
    }
}

/// The number of calls of `ms` each in one graph.
fn calls_of(ms: f64) -> u32 {
    (GRAPH_MS / ms.max(1e-3)).floor().clamp(1.0, f64::from(CALLS)) as u32
}

/// Two events.
pub(crate) struct Clock {
    begin: CudaEvent,
    end: CudaEvent,
}

impl Clock {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        let event = || {
            let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
            gpu.stream().context().new_event(timed).context("making an event")
        };
        Ok(Self { begin: event()?, end: event()? })
    }

    /// Milliseconds that `work` takes on the device.
    pub(crate) fn time(&self, gpu: &Gpu, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        self.begin.record(gpu.stream()).context("recording an event")?;
        work()?;
        self.end.record(gpu.stream()).context("recording an event")?;
        Ok(f64::from(self.begin.elapsed_ms(&self.end).context("reading the events")?))
    }
}

impl Timed<'_> {
    /// Milliseconds of one call in a round.
    fn round(&mut self, gpu: &Gpu, clock: &Clock, effort: Effort) -> Result<f64> {
        let (replays, warm) = match self.replays {
            Some(known) => known,
            None => {
                self.launch()?;
                let ms = clock.time(gpu, &mut || self.launch())?;
                let replays = (effort.round_ms / ms.max(1e-3)).ceil().clamp(1.0, MOST_REPLAYS) as u32;
                *self.replays.insert((replays, ms < LONG_MS))
            }
        };
        if warm {
            (self.enqueue)()?;
        }
        let ms = clock.time(gpu, &mut || (0..replays).try_for_each(|_| self.launch()))?;
        Ok(ms / f64::from(replays) / f64::from(self.calls))
    }
}

/// Times the contenders in turn, round after round. Returns one timing each, in their order.
///
/// # Errors
/// Those of the device.
pub fn interleave(gpu: &Gpu, all: &mut [&mut Timed<'_>], effort: Effort) -> Result<Vec<Timing>> {
    let clock = Clock::new(gpu)?;
    let mut samples = vec![Vec::with_capacity(effort.rounds); all.len()];
    for round in effort.rounds() {
        for k in 0..all.len() {
            // Each round starts with another contender, so that none always follows the same one.
            let at = (k + round) % all.len();
            samples[at].push(all[at].round(gpu, &clock, effort)?);
        }
    }
    Ok(samples.into_iter().map(median).collect())
}

/// The median, the smallest and the largest.
pub(crate) fn median(mut samples: Vec<f64>) -> Timing {
    samples.sort_by(f64::total_cmp);
    Timing { ms: samples[samples.len() / 2], min: samples[0], max: samples[samples.len() - 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_few_in_a_graph() {
        assert_eq!([0.0, 0.02, 0.1, 0.45, 1.2, 8.0].map(calls_of), [50, 50, 50, 11, 4, 1]);
    }
}
