//! Errors of the library as exceptions of Python, with the same text.

use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use spandrel::backend::Error as BackendError;
use spandrel::formats::Error as FormatError;
use spandrel::solvers::NameError;
use spandrel::{Error, Status};

pyo3::import_exception!(spandrel_sparse._errors, SpandrelError);
pyo3::import_exception!(spandrel_sparse._errors, DeviceError);
pyo3::import_exception!(spandrel_sparse._errors, SolveInterrupted);

/// An error of the library as the exception that Python's users expect: `ValueError` for wrong input, `MemoryError`,
/// `OSError`, else `SpandrelError`.
pub(crate) fn raised(error: Error) -> PyErr {
    match error {
        Error::Backend(error) => of_backend(error),
        Error::Format(error) => of_format(error),
        Error::Size { .. }
        | Error::NotSquare { .. }
        | Error::Underdetermined { .. }
        | Error::Element { .. }
        | Error::NotFinite { .. }
        | Error::Option { .. }
        | Error::Parameter { .. }
        | Error::Pattern { .. }
        | Error::OtherPattern { .. }
        | Error::NullVector { .. }
        | Error::NotAGrid { .. }
        | Error::Unsupported { .. }
        | Error::NotReproducible { .. } => PyValueError::new_err(error.to_string()),
        Error::Interrupted { .. } => SolveInterrupted::new_err(error.to_string()),
        other => of_library(&other),
    }
}

/// `SpandrelError` with the status word, if the error has one.
fn of_library(error: &Error) -> PyErr {
    SpandrelError::new_err((error.to_string(), error.status().map(Status::as_str)))
}

/// As [`raised`].
pub(crate) fn of_backend(error: BackendError) -> PyErr {
    match error {
        BackendError::Shape { .. } | BackendError::Unsupported { .. } => PyValueError::new_err(error.to_string()),
        BackendError::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        BackendError::Device { .. } => DeviceError::new_err(error.to_string()),
        BackendError::Format(error) => of_format(error),
        other => of_library(&Error::Backend(other)),
    }
}

/// As [`raised`].
pub(crate) fn of_format(error: FormatError) -> PyErr {
    match error {
        FormatError::OutOfMemory { .. } => PyMemoryError::new_err(error.to_string()),
        FormatError::Io { file, source } => match source.raw_os_error() {
            // The number makes Python choose the class: FileNotFoundError and its like.
            Some(number) => {
                let text = source.to_string();
                let text = text.split(" (os error").next().unwrap_or_default().to_owned();
                PyOSError::new_err((number, text, file))
            }
            None => PyOSError::new_err(format!("{file}: {source}")),
        },
        other => PyValueError::new_err(other.to_string()),
    }
}

/// A name that a list does not have.
pub(crate) fn of_name(error: NameError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
