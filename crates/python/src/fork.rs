//! Processes that were forked. A fork does not copy the threads of the parent's pool, so the child would wait for them
//! forever.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// Whether this process, or the one that it was forked from, has used the pool.
static USED: AtomicBool = AtomicBool::new(false);
/// Whether the pool belongs to the process that this one was forked from.
static LOST: AtomicBool = AtomicBool::new(false);

/// Called in a forked process before anything else runs there.
#[pyfunction]
pub(crate) fn forked() {
    LOST.store(USED.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Called before work that may use the pool.
///
/// # Errors
/// `RuntimeError` in a process that was forked from one with a pool.
pub(crate) fn check() -> PyResult<()> {
    if LOST.load(Ordering::Relaxed) {
        return Err(PyRuntimeError::new_err(
            "this process was forked after spandrel_sparse had started its threads, which a fork does not copy; start processes by \
             \"spawn\" or \"forkserver\" (multiprocessing.set_start_method)",
        ));
    }
    USED.store(true, Ordering::Relaxed);
    Ok(())
}
