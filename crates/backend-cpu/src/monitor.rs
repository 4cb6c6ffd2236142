//! The monitor: counts iterations, decides when to stop, and is the gate of the work behind a stop.
//!
//! Order of decisions: that of [`spandrel_backend::monitor`].

use spandrel_backend::{Latest, Phase, Quantity, Report, Stop, Watch};
use spandrel_formats::Real;

/// The record of an iteration.
#[derive(Clone, Debug)]
pub struct Monitor {
    watch: Watch,
    stop: Option<Stop>,
    iterations: usize,
    history: Vec<f64>,
}

impl Monitor {
    pub(crate) fn new(watch: &Watch) -> Self {
        // One push per iteration. For limits far beyond the usual, the history grows as it goes.
        let history = Vec::with_capacity(watch.max_iters.saturating_add(1).min(1 << 16));
        Self { watch: watch.clone(), stop: None, iterations: 0, history }
    }

    /// Returns to iteration 0 under new limits and reuses the memory.
    pub(crate) fn rearm(&mut self, watch: &Watch) {
        self.history.clear();
        self.history.reserve(watch.max_iters.saturating_add(1).min(1 << 16));
        (self.watch, self.stop, self.iterations) = (watch.clone(), None, 0);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_some()
    }

    pub(crate) fn resume(&mut self) {
        self.stop = None;
    }

    pub(crate) fn latest(&self) -> Latest {
        Latest { stop: self.stop, iterations: self.iterations, residual: self.history.last().copied() }
    }

    pub(crate) fn report(&self) -> Report {
        Report { stop: self.stop, iterations: self.iterations, history: self.history.clone() }
    }

    pub(crate) fn observe<T: Real>(&mut self, squared: T, phase: Phase) {
        if self.stopped() {
            return;
        }
        let norm = squared.sqrt().as_f64();
        let full = phase == Phase::Full;
        self.iterations += usize::from(full);
        self.stop = if !norm.is_finite() {
            Some(Stop::NotFinite(Quantity::Residual))
        } else if norm <= self.watch.threshold {
            Some(if full { Stop::Converged } else { Stop::ConvergedHalf })
        } else if full && norm > self.watch.divergence {
            Some(Stop::Diverged)
        } else if full && self.iterations >= self.watch.max_iters {
            Some(Stop::MaxIterations)
        } else {
            None
        };
        if full || self.stopped() {
            self.history.push(norm);
        }
    }

    pub(crate) fn require_positive<T: Real>(&mut self, value: T, what: Quantity) {
        self.require(value, what, value > T::zero(), Stop::NotPositive(what));
    }

    pub(crate) fn require_nonzero<T: Real>(&mut self, value: T, what: Quantity) {
        self.require(value, what, value != T::zero(), Stop::Zero(what));
    }

    fn require<T: Real>(&mut self, value: T, what: Quantity, holds: bool, otherwise: Stop) {
        if self.stopped() {
            return;
        }
        if !value.is_finite() {
            self.stop = Some(Stop::NotFinite(what));
        } else if !holds {
            self.stop = Some(otherwise);
        }
    }
}
