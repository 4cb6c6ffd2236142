//! The lock of a solver: one caller at a time.
//!
//! While a caller waits, Python's other threads run, and Ctrl-C is noticed. A call from a callback of the same solver
//! would wait for itself, so it is refused.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How long a caller waits before it checks for Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(50);

/// A value that only one thread uses at a time.
pub(crate) struct Turn<T> {
    /// Whose turn it is.
    holder: Mutex<Option<ThreadId>>,
    next: Condvar,
    /// Taken only by the holder.
    value: Mutex<T>,
}

/// Ends a turn, also when the work panics.
struct Held<'a, T>(&'a Turn<T>);

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        *self.0.holder() = None;
        self.0.next.notify_one();
    }
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { holder: Mutex::new(None), next: Condvar::new(), value: Mutex::new(value) }
    }

    fn holder(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Turn<T> {
    /// Runs `work` once it is this thread's turn, with the interpreter's lock released.
    ///
    /// # Errors
    /// `RuntimeError` if the call comes from within the work of the same thread, or after work that panicked; any
    /// exception that a signal's handler raises in the meantime.
    pub(crate) fn run<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut T) -> R + Send) -> PyResult<R> {
        let me = thread::current().id();
        loop {
            let is_mine = py.detach(|| {
                let mut holder = self.holder();
                if holder.is_some() && *holder != Some(me) {
                    let waited = self.next.wait_timeout(holder, PATIENCE);
                    holder = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                match *holder {
                    None => {
                        *holder = Some(me);
                        Some(true)
                    }
                    Some(other) if other == me => Some(false),
                    Some(_) => None,
                }
            });
            match is_mine {
                Some(true) => break,
                Some(false) => {
                    return Err(PyRuntimeError::new_err(
                        "this solver is at work on this thread: a callback cannot use the solver that calls it",
                    ));
                }
                None => py.check_signals()?,
            }
        }
        let held = Held(self);
        py.detach(|| match self.value.lock() {
            Ok(mut value) => Ok(work(&mut value)),
            Err(_) => Err(()),
        })
        .map_err(|()| {
            drop(held);
            PyRuntimeError::new_err("this solver failed in an earlier call; build it again")
        })
    }
}
