//! Settings by name, as the Python files pass them. Values are written as on the command line.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use spandrel::solver::{Settings, or_auto};

use crate::error::of_name;

/// Reads settings from a dictionary. A setting that is missing or `None` is left to the library.
///
/// # Errors
/// `ValueError` for an unknown name; `TypeError` for an unknown setting.
pub(crate) fn read(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut settings = Settings::default();
    for (name, value) in given {
        if value.is_none() {
            continue;
        }
        let text = || value.extract::<String>();
        match name.extract::<String>()?.as_str() {
            "device" => settings.device = text()?.parse().map_err(of_name)?,
            "method" => settings.method = or_auto(&text()?).map_err(of_name)?,
            "preconditioner" => settings.preconditioner = or_auto(&text()?).map_err(of_name)?,
            "format" => settings.format = text()?.parse().map_err(of_name)?,
            "precision" => settings.precision = text()?.parse().map_err(of_name)?,
            "reorder" => settings.reorder = or_auto(&text()?).map_err(of_name)?,
            "scale" => settings.scale = or_auto(&text()?).map_err(of_name)?,
            "null_space" => settings.null_space = text()?.parse().map_err(of_name)?,
            "fallback" => settings.fallback = text()?.parse().map_err(of_name)?,
            "least_squares" => settings.least_squares = value.extract()?,
            "reproducible" => settings.reproducible = value.extract()?,
            "updatable" => settings.updatable = value.extract()?,
            "rtol" => settings.rtol = Some(value.extract()?),
            "atol" => settings.atol = value.extract()?,
            "maxiter" => settings.max_iterations = Some(value.extract()?),
            "check_every" => settings.check_every = Some(value.extract()?),
            "stagnation" => settings.stagnation = Some(value.extract()?),
            "memory_limit" => settings.memory_limit = Some(value.extract()?),
            "restart" => settings.restart = Some(value.extract()?),
            other => return Err(PyTypeError::new_err(format!("there is no setting {other:?}"))),
        }
    }
    Ok(settings)
}
