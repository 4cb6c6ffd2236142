//! How a running solve calls Python's callbacks and notices Ctrl-C.
//!
//! The library calls this from the thread that solves, with the interpreter's lock released. Signals are checked at
//! most every 50 ms, because the check may have to wait for the lock. Python raises signals only on its main thread; on
//! other threads the check finds nothing.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyKeyboardInterrupt, PyStopIteration, PyValueError};
use pyo3::prelude::*;
use spandrel::solver::Event;
use spandrel::solvers::{Iterate, Progress};
use spandrel::{Outcome, Result};

use crate::arrays::{self, Number};
use crate::error::{SolveInterrupted, raised};

/// The shortest time between two checks for signals.
const PATIENCE: Duration = Duration::from_millis(50);

/// What a callback gets, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The relative residual, at each look.
    Residual,
    /// The relative residual, after each iteration.
    EachResidual,
    /// x, after each iteration.
    X,
    /// x, after each cycle of GMRES.
    CycleX,
}

impl Kind {
    pub(crate) fn parse(text: &str) -> PyResult<Self> {
        match text {
            "residual" => Ok(Self::Residual),
            "each_residual" => Ok(Self::EachResidual),
            "x" => Ok(Self::X),
            "cycle_x" => Ok(Self::CycleX),
            other => Err(PyValueError::new_err(format!("there is no kind of callback {other:?}"))),
        }
    }

    /// Returns true if the callback must be called after each iteration.
    pub(crate) fn is_each(self) -> bool {
        matches!(self, Self::EachResidual | Self::X)
    }
}

/// A callback in one solve.
struct Callback {
    kind: Kind,
    function: Py<PyAny>,
    /// The numbers of iterations and restarts at its last call.
    told: (usize, usize),
    /// Whether `StopIteration` ends the solve without an error.
    may_stop: bool,
}

struct State {
    looked: Instant,
    callback: Option<Callback>,
    raised: Option<PyErr>,
    /// The callback asked to stop.
    stopped: bool,
}

/// State that a solver, which reports, shares with the call that is running.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Mutex<State>>);

impl Watch {
    pub(crate) fn new() -> Self {
        let state = State { looked: Instant::now(), callback: None, raised: None, stopped: false };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A solve begins.
    pub(crate) fn begin(&self, callback: Option<Py<PyAny>>, kind: Kind, may_stop: bool) {
        let callback = callback.map(|function| Callback { kind, function, told: (0, 0), may_stop });
        *self.state() = State { looked: Instant::now(), callback, raised: None, stopped: false };
    }

    /// Receives all events of a solver.
    pub(crate) fn event<T: Number>(&self, event: Event<'_>) -> ControlFlow<()> {
        if let Event::Iteration(_, progress, iterate) = event {
            let x = || Ok(iterate.x()?.map(|x| x.into_iter().map(T::from_f64).collect::<Vec<T>>()));
            self.look(progress, iterate.is_known(), &x)
        } else {
            self.signals()
        }
    }

    /// Receives a look at an iteration directly from a method.
    pub(crate) fn observe<T: Number>(&self, progress: Progress, iterate: Iterate<'_, T>) -> ControlFlow<()> {
        self.look(progress, iterate.is_known(), &|| iterate.x())
    }

    fn look<T: Number>(
        &self,
        progress: Progress,
        is_known: bool,
        x: &dyn Fn() -> Result<Option<Vec<T>>>,
    ) -> ControlFlow<()> {
        self.signals()?;
        if let Some(Callback { told, .. }) = &mut self.state().callback
            && progress.iterations < told.0
        {
            // Another right-hand side has begun, or another method has taken over.
            *told = (0, 0);
        }
        let due = match &self.state().callback {
            Some(Callback { kind: Kind::CycleX, told, .. }) => progress.restarts > told.1 && is_known,
            Some(Callback { kind: Kind::X, told, .. }) => progress.iterations > told.0 && is_known,
            Some(Callback { told, .. }) => progress.iterations > told.0,
            None => false,
        };
        if !due {
            return ControlFlow::Continue(());
        }
        self.call(progress.iterations, progress.restarts, progress.residual, x)
    }

    /// Runs Python's signal handlers and keeps what they raise.
    fn signals(&self) -> ControlFlow<()> {
        let now = Instant::now();
        {
            let mut state = self.state();
            if state.raised.is_some() || state.stopped {
                return ControlFlow::Break(());
            }
            if now.duration_since(state.looked) < PATIENCE {
                return ControlFlow::Continue(());
            }
            state.looked = now;
        }
        self.kept(Python::attach(|py| py.check_signals()))
    }

    fn call<T: Number>(
        &self,
        iterations: usize,
        restarts: usize,
        residual: f64,
        x: &dyn Fn() -> Result<Option<Vec<T>>>,
    ) -> ControlFlow<()> {
        let called = Python::attach(|py| {
            // The state is free while Python runs: the callback may take as long as it likes.
            let mut state = self.state();
            let Some(callback) = &mut state.callback else { return Ok(()) };
            callback.told = (iterations, restarts);
            let (function, kind) = (callback.function.clone_ref(py), callback.kind);
            drop(state);
            match kind {
                Kind::Residual | Kind::EachResidual => function.call1(py, (residual,)),
                Kind::X | Kind::CycleX => {
                    let Some(x) = x().map_err(raised)? else { return Ok(()) };
                    function.call1(py, (arrays::given(py, x),))
                }
            }
            .map(drop)
        });
        self.kept(called)
    }

    /// Keeps an exception that Python raised. It ends the solve.
    fn kept(&self, called: PyResult<()>) -> ControlFlow<()> {
        let Err(error) = called else { return ControlFlow::Continue(()) };
        let mut state = self.state();
        let may_stop = state.callback.as_ref().is_some_and(|callback| callback.may_stop);
        if may_stop && Python::attach(|py| error.is_instance_of::<PyStopIteration>(py)) {
            state.stopped = true;
        } else {
            state.raised = Some(error);
        }
        ControlFlow::Break(())
    }

    /// Keeps an exception that a Python operator raised.
    pub(crate) fn keep(&self, error: PyErr) {
        self.state().raised.get_or_insert(error);
    }

    /// Returns true if Python has raised an exception.
    pub(crate) fn is_broken(&self) -> bool {
        self.state().raised.is_some()
    }

    /// Returns true if the callback has not yet been called for the last iteration, at which the host does not look.
    pub(crate) fn wants_last(&self, outcome: &Outcome) -> bool {
        let state = self.state();
        let told = state.callback.as_ref().map_or(usize::MAX, |callback| callback.told.0);
        outcome.iterations > told && state.raised.is_none() && !state.stopped
    }

    /// Calls the callback for the last iteration.
    pub(crate) fn tell_last<T: Number>(&self, outcome: &Outcome, x: &[T]) {
        if !self.wants_last(outcome) {
            return;
        }
        let kind = self.state().callback.as_ref().map(|callback| callback.kind);
        let residual = if kind == Some(Kind::Residual) { outcome.true_residual } else { outcome.residual };
        // The solve has ended, whatever the callback says.
        let _ = self.call(outcome.iterations, outcome.restarts + 1, residual, &|| Ok(Some(x.to_vec())));
    }

    /// Ends a solve: releases the callback, and returns the exception that Python raised in the meantime.
    pub(crate) fn end(&self) -> Option<PyErr> {
        let mut state = self.state();
        state.callback = None;
        state.raised.take()
    }
}

/// The exception of a solve that Python ended: `SolveInterrupted` with the result so far instead of
/// `KeyboardInterrupt`, and any other exception unchanged.
pub(crate) fn broken_off(py: Python<'_>, error: PyErr, reached: Option<Bound<'_, PyAny>>) -> PyErr {
    if !error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<SolveInterrupted>(py) {
        return error;
    }
    let interrupted = SolveInterrupted::new_err(("the solve was interrupted", reached.map(Bound::unbind)));
    interrupted.set_cause(py, Some(error));
    interrupted
}
