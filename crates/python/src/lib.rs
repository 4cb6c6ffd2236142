//! `spandrel_sparse._core`: what the Python package calls.
//!
//! This module takes NumPy arrays of the right type and layout and gives the same back; the Python files beside it
//! accept everything else (any scipy.sparse format, any layout, integers) and convert. Every call that computes
//! releases the interpreter's lock.
//!
//! - `matrix`: CSR over NumPy's arrays, whose values are read in place.
//! - `solver`: [`spandrel::Solver`] behind a lock of its own.
//! - `operators`: the Krylov methods with operators and preconditioners that are Python functions.
//! - `watch`: callbacks, and Ctrl-C.
//! - `device`: vectors and matrices that lie on a GPU.

mod arrays;
mod device;
mod error;
mod files;
mod fork;
mod matrix;
mod operators;
mod report;
mod settings;
mod solver;
mod turn;
mod watch;

use pyo3::prelude::*;

#[pymodule]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<matrix::Matrix>()?;
    m.add_class::<solver::Solver>()?;
    m.add_class::<device::DeviceArray>()?;
    m.add_function(wrap_pyfunction!(operators::iterate, m)?)?;
    m.add_function(wrap_pyfunction!(device::iterate_on_device, m)?)?;
    m.add_function(wrap_pyfunction!(device::devices, m)?)?;
    m.add_function(wrap_pyfunction!(files::read_matrix, m)?)?;
    m.add_function(wrap_pyfunction!(files::read_dense, m)?)?;
    m.add_function(wrap_pyfunction!(files::write_matrix, m)?)?;
    m.add_function(wrap_pyfunction!(files::write_dense, m)?)?;
    m.add_function(wrap_pyfunction!(files::generate, m)?)?;
    m.add_function(wrap_pyfunction!(files::generators, m)?)?;
    m.add_function(wrap_pyfunction!(files::spy, m)?)?;
    m.add_function(wrap_pyfunction!(fork::forked, m)?)?;
    Ok(())
}
