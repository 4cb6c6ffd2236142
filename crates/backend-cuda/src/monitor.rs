//! The monitor: its record is in device memory, where kernels count, decide and read their gate.
//!
//! Layout: `State` is `struct Monitor` of kernels/include/spandrel.cuh. The history is a ring of `CAPACITY` norms on
//! the device, which the host empties at each look, so that its size does not depend on the iteration limit.
//!
//! Invariants: a host that looks at least every 65,536 iterations, as solvers do, loses no norm. A host that does not
//! gets an error.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};
use spandrel_backend::{Error, Latest, Quantity, Report, Result, Stop, Watch};

use crate::Cuda;
use crate::error::{NAME, failed};
use crate::memory::{Address, Buffer};

/// The number of norms that the device stores between two looks.
const CAPACITY: usize = (1 << 16) + 1024;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct State {
    stop: u32,
    quantity: u32,
    iterations: u64,
    max_iters: u64,
    threshold: f64,
    divergence: f64,
    residual: f64,
    recorded: u64,
    drained: u64,
    capacity: u64,
    history: Address,
    /// Whether x must still take CG's step. Never between operations of a solve that the host looks at.
    owed: u32,
    unused: u32,
}

/// The device-resident record of an iteration.
#[derive(Debug)]
pub struct Monitor {
    state: Buffer<State>,
    history: Buffer<f64>,
    /// The norms that the host has taken over.
    norms: Mutex<Vec<f64>>,
}

const QUANTITIES: [Quantity; 8] = [
    Quantity::Residual,
    Quantity::Curvature,
    Quantity::PreconditionedResidual,
    Quantity::Rho,
    Quantity::ShadowDirection,
    Quantity::Stabilizer,
    Quantity::Omega,
    Quantity::Subdiagonal,
];

impl State {
    fn armed(watch: &Watch, history: Address) -> Self {
        Self {
            stop: 0,
            quantity: 0,
            iterations: 0,
            max_iters: watch.max_iters as u64,
            threshold: watch.threshold,
            divergence: watch.divergence,
            residual: 0.0,
            recorded: 0,
            drained: 0,
            capacity: CAPACITY as u64,
            history,
            owed: 0,
            unused: 0,
        }
    }

    fn stop(&self) -> Result<Option<Stop>> {
        let corrupt = || Error::Device {
            device: NAME,
            why: format!(
                "a monitor holds the state ({}, {}), which no kernel writes: report it",
                self.stop, self.quantity
            ),
        };
        let quantity = *QUANTITIES.get(self.quantity as usize).ok_or_else(corrupt)?;
        Ok(match self.stop {
            0 => None,
            1 => Some(Stop::Converged),
            2 => Some(Stop::ConvergedHalf),
            3 => Some(Stop::MaxIterations),
            4 => Some(Stop::Diverged),
            5 => Some(Stop::NotPositive(quantity)),
            6 => Some(Stop::Zero(quantity)),
            7 => Some(Stop::NotFinite(quantity)),
            _ => return Err(corrupt()),
        })
    }
}

impl Monitor {
    pub(crate) fn new(cuda: &Cuda, watch: &Watch) -> Result<Self> {
        let history = Buffer::uninit(cuda.stream(), CAPACITY, "a monitor's history")?;
        let state = Buffer::from_host(cuda.stream(), &[State::armed(watch, history.pointer())], "a monitor")?;
        Ok(Self { state, history, norms: Mutex::default() })
    }

    pub(crate) fn rearm(&mut self, watch: &Watch) -> Result<()> {
        self.norms.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.state.write_at(0, &[State::armed(watch, self.history.pointer())])
    }

    pub(crate) fn resume(&mut self, cuda: &Cuda) -> Result<()> {
        cuda.context().bind_to_thread().map_err(|error| failed("resume", error))?;
        // SAFETY: `stop` is the first word of the state.
        unsafe {
            cudarc::driver::sys::cuMemsetD32Async(self.state.pointer().get(), 0, 1, cuda.stream().cu_stream()).result()
        }
        .map_err(|error| failed("resume", error))
    }

    pub(crate) fn pointer(&self) -> Address {
        self.state.pointer()
    }

    fn norms(&self) -> MutexGuard<'_, Vec<f64>> {
        self.norms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present state. Takes over the norms up to it if `all` is set or the ring is half full. Blocks.
    fn look(&self, all: bool) -> Result<State> {
        let mut state = [State::zeroed()];
        self.state.read_at(0, &mut state)?;
        let [state] = state;
        let mut norms = self.norms();
        let fresh = (state.recorded - norms.len() as u64) as usize;
        if fresh > CAPACITY {
            return Err(Error::Device {
                device: NAME,
                why: format!(
                    "{fresh} iterations ran between two looks, more than the {CAPACITY} norms kept: look more often"
                ),
            });
        }
        if fresh > 0 && (all || fresh > CAPACITY / 2) {
            let from = norms.len() % CAPACITY;
            let first = fresh.min(CAPACITY - from);
            let had = norms.len();
            norms.resize(had + fresh, 0.0);
            self.history.read_at(from, &mut norms[had..had + first])?;
            self.history.read_at(0, &mut norms[had + first..])?;
            let drained = std::mem::offset_of!(State, drained) as u64;
            let count = norms.len() as u64;
            self.state_word(drained).write_at(0, &[count])?;
        }
        Ok(state)
    }

    /// The word of the state at a byte offset.
    fn state_word(&self, offset: u64) -> Buffer<u64> {
        // SAFETY: the offset is that of a u64 field of the state, which outlives this value.
        unsafe { Buffer::borrow(self.state.stream(), self.state.pointer().get() + offset, 1) }
    }

    pub(crate) fn latest(&self) -> Result<Latest> {
        let state = self.look(false)?;
        Ok(Latest {
            stop: state.stop()?,
            iterations: state.iterations as usize,
            residual: (state.recorded > 0).then_some(state.residual),
        })
    }

    pub(crate) fn report(&self) -> Result<Report> {
        let state = self.look(true)?;
        Ok(Report { stop: state.stop()?, iterations: state.iterations as usize, history: self.norms().clone() })
    }
}
