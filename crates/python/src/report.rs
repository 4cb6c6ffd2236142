//! Plans and outcomes as tuples and dictionaries, from which the Python files make their classes.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use spandrel::Outcome;
use spandrel::solver::{Attempt, Plan, Times};

use crate::arrays;

/// An outcome, field by field.
///
/// # Errors
/// Those of Python's memory.
pub(crate) fn outcome<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("status", outcome.status.as_str())?;
    fields.set_item("iterations", outcome.iterations)?;
    fields.set_item("residual", outcome.residual)?;
    fields.set_item("true_residual", outcome.true_residual)?;
    fields.set_item("target", outcome.target)?;
    fields.set_item("restarts", outcome.restarts)?;
    fields.set_item("history", arrays::given(py, outcome.history.clone()))?;
    fields.set_item("breakdown", outcome.breakdown.map(|(quantity, at)| (quantity.symbol(), at)))?;
    fields.set_item("note", outcome.note)?;
    let backward = outcome.backward_error.map(|error| (error.normwise, error.componentwise));
    fields.set_item("backward_error", backward)?;
    fields.set_item("condition", outcome.condition)?;
    fields.set_item("text", outcome.to_string())?;
    Ok(fields)
}

/// Seconds by phase.
///
/// # Errors
/// Those of Python's memory.
pub(crate) fn times<'py>(py: Python<'py>, times: Times) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, seconds) in
        [("analyze", times.analyze), ("load", times.load), ("setup", times.setup), ("solve", times.solve)]
    {
        fields.set_item(name, seconds)?;
    }
    Ok(fields)
}

/// The attempts that were given up.
///
/// # Errors
/// Those of Python's memory.
pub(crate) fn attempts<'py>(py: Python<'py>, attempts: &[Attempt]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for attempt in attempts {
        let fields = PyDict::new(py);
        fields.set_item("method", attempt.method.as_str())?;
        fields.set_item("preconditioner", attempt.preconditioner.to_string())?;
        fields.set_item("status", attempt.status.as_str())?;
        fields.set_item("iterations", attempt.iterations)?;
        fields.set_item("true_residual", attempt.true_residual)?;
        fields.set_item("seconds", attempt.seconds)?;
        list.append(fields)?;
    }
    Ok(list)
}

/// A plan, field by field.
///
/// # Errors
/// Those of Python's memory.
pub(crate) fn plan<'py>(py: Python<'py>, plan: &Plan) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("shape", (plan.nrows, plan.ncols))?;
    fields.set_item("nnz", plan.nnz)?;
    fields.set_item("symmetric", plan.symmetric)?;
    fields.set_item("backend", plan.backend)?;
    fields.set_item("device", &plan.device)?;
    fields.set_item("device_why", &plan.device_why)?;
    fields.set_item("method", plan.method.as_str())?;
    fields.set_item("method_why", &plan.method_why)?;
    fields.set_item("preconditioner", plan.preconditioner.to_string())?;
    fields.set_item("preconditioner_why", &plan.preconditioner_why)?;
    fields.set_item("format", plan.format)?;
    fields.set_item("format_why", &plan.format_why)?;
    fields.set_item("precision", plan.precision_name())?;
    fields.set_item("reorder", plan.reorder.as_str())?;
    fields.set_item("scale", plan.scale.as_str())?;
    fields.set_item("rtol", plan.rtol)?;
    fields.set_item("atol", plan.atol)?;
    fields.set_item("maxiter", plan.max_iterations)?;
    fields.set_item("restart", plan.restart)?;
    fields.set_item("warnings", PyList::new(py, &plan.warnings)?)?;
    fields.set_item("text", plan.to_string())?;
    Ok(fields)
}
