//! Devices, and arrays on a GPU, which `__cuda_array_interface__` or DLPack describes and which are used in place.
//!
//! Order of work: a call waits until the array's owner has written it. It waits for the stream that the array names.
//! With DLPack, or if the array names none, it waits for the default stream. It returns once its own work is done, so
//! every stream of the caller sees the result.

mod describe;
#[cfg(feature = "cuda")]
mod solve;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use spandrel::any::{AnyBackend, Choice};

pub(crate) use describe::DeviceArray;
#[cfg(feature = "cuda")]
pub(crate) use solve::{iterate_on_device, solve_on};

use crate::error::of_backend;

/// Returns one dictionary per device and, if there is no GPU, the reason.
///
/// # Errors
/// A CPU that cannot be opened.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<(Vec<Bound<'_, PyDict>>, Option<String>)> {
    let cpu = AnyBackend::open(Choice::Cpu).map_err(of_backend)?;
    let fields = PyDict::new(py);
    fields.set_item("name", "cpu")?;
    fields.set_item("description", cpu.describe())?;
    fields.set_item("memory", None::<u64>)?;
    fields.set_item("usable", true)?;
    fields.set_item("why", None::<String>)?;
    let mut found = vec![fields];
    let missing = gpus(py, &mut found)?;
    Ok((found, missing))
}

#[cfg(feature = "cuda")]
fn gpus<'py>(py: Python<'py>, found: &mut Vec<Bound<'py, PyDict>>) -> PyResult<Option<String>> {
    let shown = match py.detach(spandrel::backend_cuda::probe) {
        Ok(shown) => shown,
        Err(why) => return Ok(Some(why.to_string())),
    };
    for info in &shown {
        let fields = PyDict::new(py);
        fields.set_item("name", Choice::Gpu(info.ordinal).to_string())?;
        fields.set_item("description", info.to_string())?;
        fields.set_item("memory", info.memory)?;
        let refused = info.check().err().map(|why| why.to_string());
        fields.set_item("usable", refused.is_none())?;
        fields.set_item("why", refused)?;
        found.push(fields);
    }
    Ok(None)
}

#[cfg(not(feature = "cuda"))]
fn gpus<'py>(_: Python<'py>, _: &mut Vec<Bound<'py, PyDict>>) -> PyResult<Option<String>> {
    Ok(Some(LEFT_OUT.to_string()))
}

#[cfg(not(feature = "cuda"))]
const LEFT_OUT: &str = "this build leaves out the GPU: build with the feature cuda";

/// As in a build with a GPU.
///
/// # Errors
/// Always: there is none.
#[cfg(not(feature = "cuda"))]
pub(crate) fn solve_on<T: crate::solver::Typed>(
    _: &mut spandrel::Solver<T>,
    _: &DeviceArray,
    _: &DeviceArray,
) -> spandrel::Result<spandrel::Outcome> {
    Err(spandrel::Error::Unsupported { why: LEFT_OUT.to_string() })
}

/// As in a build with a GPU.
///
/// # Errors
/// Always: there is none.
#[cfg(not(feature = "cuda"))]
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn iterate_on_device(_arguments: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
    Err(crate::error::DeviceError::new_err(LEFT_OUT))
}
