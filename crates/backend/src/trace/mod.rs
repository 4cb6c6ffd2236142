//! A backend that logs what it is asked to do and forwards it to an inner backend.
//!
//! Everything that a solver enqueues on a [`Trace`] appears in its log: launches with the bytes they must move, waits,
//! allocations, captures and replays. Then it runs on the inner backend, so results are real. A fused step is one
//! launch with the bytes of its fused form; the extra cost of the default body is not counted. A trace is never
//! immediate ([`Device::is_immediate`]), so its log is that of a device that works behind the host.
//!
//! Cost model:
//!
//! - Each operand of an operation counts once per read and once per write. Scalars and the monitor count nothing.
//!   Operands that are the same vector count once.
//! - A matrix costs [`spandrel_formats::Traffic::spmv_bytes`] less its passes over x and y, that is, what a product
//!   reads. ELL's padding and DIA's positions outside the matrix are stored but never read, so they are not counted.
//! - The passes over y are counted in full even if BSRX's mask skips some of its rows.
//! - The numeric phase of a product of matrices reads A, B and the pattern of C, and writes the values of C. That of a
//!   transpose reads a position and a value per entry, and writes the value.
//! - A triangular solve costs [`spandrel_sptrsv::Plan::sptrsv_bytes`]. Each further right-hand side adds b and x once
//!   more.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Backend, Coeff, Device, Gate, Latest, Phase, Quantity, Report, Result, Step, Watch, forward};

mod casts;
mod matrices;
mod setups;
mod stencils;
mod steps;

pub use matrices::Stored;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Work was enqueued.
    Launch(Launch),
    /// The host waited in `synchronize`, `download` or `report`.
    Wait(&'static str),
    /// This many bytes were allocated on the device: the history of a monitor, or the stored arrays of a loaded object
    /// (also if a backend in host memory shares them).
    Allocation(&'static str, u64),
    /// A step was captured.
    Capture,
    /// A captured step was replayed; its launches follow.
    Replay,
}

/// One operation with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its name in the contract.
    pub op: &'static str,
    /// The format, for an operation on a matrix.
    pub noun: Option<&'static str>,
    /// Bytes of the matrix that the operation reads.
    pub matrix: u64,
    /// Bytes of vectors read and written.
    pub vectors: u64,
    /// Whether a monitor gates it.
    pub gated: bool,
}

impl Launch {
    /// The bytes of the matrix and of the vectors.
    pub fn bytes(&self) -> u64 {
        self.matrix + self.vectors
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Launch(launch) => {
                let noun = launch.noun.map(|noun| format!("/{noun}")).unwrap_or_default();
                write!(f, "{}{noun} matrix {} vectors {}", launch.op, launch.matrix, launch.vectors)
            }
            Event::Wait(what) => write!(f, "wait: {what}"),
            Event::Allocation(what, bytes) => write!(f, "allocation: {what} {bytes}"),
            Event::Capture => f.write_str("capture"),
            Event::Replay => f.write_str("replay"),
        }
    }
}

/// A backend that logs the calls and forwards them to another. For tests and reports: it allocates for each log entry.
pub struct Trace<B> {
    inner: B,
    log: RefCell<Vec<Event>>,
}

impl<B: Device> fmt::Debug for Trace<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("device", &self.inner.describe()).field("log", &self.log).finish()
    }
}

/// A resident object with the host object it came from, whose bytes are logged.
#[derive(Debug)]
pub struct Traced<R, H> {
    inner: R,
    host: Arc<H>,
}

/// A captured step of the inner backend, with the launches seen while it was captured.
#[derive(Debug)]
pub struct TracedGraph<G> {
    inner: G,
    launches: Vec<Event>,
}

impl<B> Trace<B> {
    /// Logs the calls and forwards them to `inner`.
    pub fn new(inner: B) -> Self {
        Self { inner, log: RefCell::default() }
    }

    /// The inner backend.
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Takes the log so far and leaves an empty one.
    pub fn take(&self) -> Vec<Event> {
        self.log.take()
    }

    fn note(&self, event: Event) {
        self.log.borrow_mut().push(event);
    }

    fn launch<M>(&self, op: &'static str, gate: Option<&M>, vectors: usize) {
        self.launch_on(op, None, 0, gate, vectors);
    }

    fn launch_on<M>(
        &self,
        op: &'static str,
        noun: Option<&'static str>,
        matrix: u64,
        gate: Option<&M>,
        vectors: usize,
    ) {
        self.note(Event::Launch(Launch { op, noun, matrix, vectors: vectors as u64, gated: gate.is_some() }));
    }
}

/// A step of the traced backend, as the inner backend sees it.
struct Inside<'a, B, S> {
    trace: &'a Trace<B>,
    step: &'a mut S,
}

// SAFETY: the operations and buffers are those of the inner step, which keeps the same contract.
unsafe impl<B: Device, S: Step<Trace<B>>> Step<B> for Inside<'_, B, S> {
    fn enqueue(&mut self, _: &B) -> Result<()> {
        self.step.enqueue(self.trace)
    }
}

impl<B: Device> Device for Trace<B> {
    const NAME: &'static str = B::NAME;
    type Graph = TracedGraph<B::Graph>;
    type Monitor = B::Monitor;

    forward!(Device to inner: describe profile free_memory agree resume rearm);

    fn synchronize(&self) -> Result<()> {
        self.note(Event::Wait("synchronize"));
        self.inner.synchronize()
    }

    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Self::Graph> {
        let before = self.log.borrow().len();
        let inner = self.inner.capture(&mut Inside { trace: self, step })?;
        let launches = self.log.borrow_mut().split_off(before);
        self.note(Event::Capture);
        Ok(TracedGraph { inner, launches })
    }

    unsafe fn replay<S: Step<Self>>(&self, graph: &Self::Graph, step: &mut S) -> Result<()> {
        self.note(Event::Replay);
        let before = self.log.borrow().len();
        // SAFETY: the caller's promise about `graph` and `step` is the one that the inner backend asks for:
        // `graph.inner` was captured on it through the same adapter around this step.
        unsafe { self.inner.replay(&graph.inner, &mut Inside { trace: self, step }) }?;
        // A backend whose graphs are plain runs has already logged.
        if self.log.borrow().len() == before {
            self.log.borrow_mut().extend_from_slice(&graph.launches);
        }
        Ok(())
    }

    fn monitor(&self, watch: &Watch) -> Result<Self::Monitor> {
        self.note(Event::Allocation("monitor", (watch.max_iters as u64).saturating_mul(8)));
        self.inner.monitor(watch)
    }

    fn report_latest(&self, monitor: &Self::Monitor) -> Result<Latest> {
        self.note(Event::Wait("report_latest"));
        self.inner.report_latest(monitor)
    }

    fn report(&self, monitor: &Self::Monitor) -> Result<Report> {
        self.note(Event::Wait("report"));
        self.inner.report(monitor)
    }
}

impl<B> Trace<B> {
    /// Bytes of `passes` passes over a vector.
    fn passes<T: Real>(&self, v: &B::Vector, passes: usize) -> usize
    where
        B: Backend<T>,
    {
        passes * self.inner.len(v) * T::BYTES
    }
}

/// Returns 1 if the coefficient is not zero, so that the output is also read; otherwise 0.
fn reads<T: Real, S>(coefficient: &Coeff<'_, T, S>) -> usize {
    usize::from(coefficient.host != T::zero())
}

impl<T: Real, B: Backend<T>> Backend<T> for Trace<B> {
    type Vector = B::Vector;
    type Scalar = B::Scalar;

    fn zeros(&self, len: usize) -> Result<Self::Vector> {
        self.note(Event::Allocation("zeros", (len * T::BYTES) as u64));
        self.inner.zeros(len)
    }
    fn upload(&self, host: &[T]) -> Result<Self::Vector> {
        self.note(Event::Allocation("upload", size_of_val(host) as u64));
        self.inner.upload(host)
    }
    fn write(&self, host: &[T], v: &mut Self::Vector) -> Result<()> {
        self.launch::<B::Monitor>("write", None, size_of_val(host));
        self.inner.write(host, v)
    }
    fn download(&self, v: &Self::Vector) -> Result<Vec<T>> {
        self.note(Event::Wait("download"));
        self.inner.download(v)
    }
    forward!(Backend<T> to inner: len);
    fn scalar(&self, value: T) -> Result<Self::Scalar> {
        self.note(Event::Allocation("scalar", T::BYTES as u64));
        self.inner.scalar(value)
    }
    fn download_scalar(&self, s: &Self::Scalar) -> Result<T> {
        self.note(Event::Wait("download_scalar"));
        self.inner.download_scalar(s)
    }
    fn scalars(&self, count: usize, value: T) -> Result<Vec<Self::Scalar>> {
        self.note(Event::Allocation("scalars", (count * T::BYTES) as u64));
        self.inner.scalars(count, value)
    }
    fn download_scalars(&self, scalars: &[Self::Scalar]) -> Result<Vec<T>> {
        self.note(Event::Wait("download_scalars"));
        self.inner.download_scalars(scalars)
    }

    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Self::Vector) -> Result<()> {
        self.launch("fill", gate, self.passes::<T>(y, 1));
        self.inner.fill(gate, value, y)
    }
    fn copy(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &mut Self::Vector) -> Result<()> {
        self.launch("copy", gate, self.passes::<T>(x, 2));
        self.inner.copy(gate, x, y)
    }
    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        self.launch("axpby", gate, self.passes::<T>(x, 2 + reads(&b)));
        self.inner.axpby(gate, a, x, b, y)
    }
    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &Self::Vector,
        c: Coeff<'_, T, Self::Scalar>,
        z: &mut Self::Vector,
    ) -> Result<()> {
        self.launch("axpbypcz", gate, self.passes::<T>(x, 3 + reads(&c)));
        self.inner.axpbypcz(gate, a, x, b, y, c, z)
    }
    fn hadamard(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, z: &mut Self::Vector) -> Result<()> {
        self.launch("hadamard", gate, self.passes::<T>(x, 3));
        self.inner.hadamard(gate, x, y, z)
    }
    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, Self::Scalar>, out: &mut Self::Scalar) -> Result<()> {
        self.launch("assign", gate, 0);
        self.inner.assign(gate, value, out)
    }
    fn dot(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        self.launch("dot", gate, self.passes::<T>(x, 1 + usize::from(!std::ptr::eq(x, y))));
        self.inner.dot(gate, x, y, out)
    }
    fn norm2(&self, gate: Gate<'_, Self>, x: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        self.launch("norm2", gate, self.passes::<T>(x, 1));
        self.inner.norm2(gate, x, out)
    }

    fn observe(&self, squared: &Self::Scalar, phase: Phase, monitor: &mut Self::Monitor) -> Result<()> {
        let op = match phase {
            Phase::Half => "observe half",
            Phase::Full => "observe full",
        };
        self.launch(op, Some(&*monitor), 0);
        self.inner.observe(squared, phase, monitor)
    }
    fn require_positive(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.launch("require_positive", Some(&*monitor), 0);
        self.inner.require_positive(value, what, monitor)
    }
    fn require_nonzero(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.launch("require_nonzero", Some(&*monitor), 0);
        self.inner.require_nonzero(value, what, monitor)
    }

    fn hadamard_dot(
        &self,
        gate: Gate<'_, Self>,
        d: &Self::Vector,
        r: &Self::Vector,
        z: &mut Self::Vector,
        rz: &mut Self::Scalar,
    ) -> Result<()> {
        self.launch("hadamard_dot", gate, self.passes::<T>(d, 3));
        self.inner.hadamard_dot(gate, d, r, z, rz)
    }
}
