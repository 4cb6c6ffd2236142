//! Matrix Market files, generators and spy plots.

use std::path::PathBuf;
use std::sync::Arc;

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use spandrel::formats::matrix_market::{self, Field, Symmetry, WriteOptions};
use spandrel::formats::{Dense, generate as generators_of, spy as pictures};
use spandrel::{Csr, Real};

use crate::arrays::{self, Number};
use crate::error::of_format;
use crate::fork;
use crate::matrix::{Matrix, on, triple};

/// `((nrows, ncols), (indptr, indices, data))`.
type Parts<'py> = ((usize, usize), Bound<'py, PyTuple>);

/// A file by its path, or its contents with a name for messages.
#[derive(FromPyObject)]
pub(crate) enum Source<'py> {
    /// The contents.
    Bytes(Bound<'py, PyBytes>),
    /// The path.
    Path(PathBuf),
}

/// A matrix for SciPy. Arrays that nobody else holds are not copied.
fn parts<T: Number>(py: Python<'_>, csr: Csr<T>) -> PyResult<Parts<'_>> {
    let (nrows, ncols, row_ptr, col_idx, values) = csr.into_parts();
    Ok(((nrows, ncols), triple(py, row_ptr, col_idx, values)?))
}

fn read<'py, T: Number>(py: Python<'py>, source: &Source<'py>, name: &str) -> PyResult<(Parts<'py>, Vec<String>)> {
    let (csr, notes) = match source {
        Source::Path(path) => py.detach(|| matrix_market::read_csr_noted::<T>(path)),
        Source::Bytes(bytes) => {
            let bytes = bytes.as_bytes();
            py.detach(|| matrix_market::read_from_noted::<T>(name, bytes))
        }
    }
    .map_err(of_format)?;
    Ok((parts(py, csr)?, notes.iter().map(ToString::to_string).collect()))
}

/// Reads a coordinate file as CSR. Also returns notes on what is unusual about it.
#[pyfunction]
pub(crate) fn read_matrix<'py>(
    py: Python<'py>,
    source: Source<'py>,
    name: &str,
    single: bool,
) -> PyResult<(Parts<'py>, Vec<String>)> {
    fork::check()?;
    if single { read::<f32>(py, &source, name) } else { read::<f64>(py, &source, name) }
}

fn read_all<'py, T: Number>(
    py: Python<'py>,
    source: &Source<'py>,
    name: &str,
) -> PyResult<((usize, usize), Bound<'py, PyAny>)> {
    let (nrows, ncols, values) = match source {
        Source::Path(path) => py.detach(|| matrix_market::read_dense::<T>(path)),
        Source::Bytes(bytes) => {
            let bytes = bytes.as_bytes();
            py.detach(|| matrix_market::read_dense_bytes::<T>(name, bytes))
        }
    }
    .map_err(of_format)?;
    Ok(((nrows, ncols), arrays::given(py, values)))
}

/// Reads an array file: its shape, and the elements column after column.
#[pyfunction]
pub(crate) fn read_dense<'py>(
    py: Python<'py>,
    source: Source<'py>,
    name: &str,
    single: bool,
) -> PyResult<((usize, usize), Bound<'py, PyAny>)> {
    fork::check()?;
    if single { read_all::<f32>(py, &source, name) } else { read_all::<f64>(py, &source, name) }
}

/// The value of a word, which must be one of `words`.
fn word<W: Copy>(name: &str, given: &str, words: &[(&str, W)]) -> PyResult<W> {
    words.iter().find(|(word, _)| *word == given).map(|(_, found)| *found).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{name} is one of {}, not {given:?}", words.join(", ")))
    })
}

/// Writes a matrix as a coordinate file.
#[pyfunction]
pub(crate) fn write_matrix(
    py: Python<'_>,
    path: PathBuf,
    matrix: &Bound<'_, Matrix>,
    symmetry: &str,
    field: &str,
    comment: String,
) -> PyResult<()> {
    fork::check()?;
    let symmetries = [
        ("general", Symmetry::General),
        ("symmetric", Symmetry::Symmetric),
        ("skew-symmetric", Symmetry::SkewSymmetric),
    ];
    let fields = [("real", Field::Real), ("integer", Field::Integer), ("pattern", Field::Pattern)];
    let (symmetry, field) = (word("symmetry", symmetry, &symmetries)?, word("field", field, &fields)?);
    let options = WriteOptions { symmetry, field, comment };
    on!(&matrix.get().host, |csr| { py.detach(|| matrix_market::write_csr(&path, csr, &options)).map_err(of_format) })
}

fn write<T: Number>(py: Python<'_>, path: &PathBuf, shape: (usize, usize), values: &Bound<'_, PyAny>) -> PyResult<()> {
    let values = arrays::slice::<T>(values, "values")?.to_vec();
    let dense = Dense::new(shape.0, shape.1, values).map_err(of_format)?;
    py.detach(|| matrix_market::write_dense(path, &dense)).map_err(of_format)
}

/// Writes elements, column after column, as an array file.
#[pyfunction]
pub(crate) fn write_dense(
    py: Python<'_>,
    path: PathBuf,
    shape: (usize, usize),
    values: &Bound<'_, PyAny>,
) -> PyResult<()> {
    fork::check()?;
    if values.cast::<PyArray1<f32>>().is_ok() {
        write::<f32>(py, &path, shape, values)
    } else {
        write::<f64>(py, &path, shape, values)
    }
}

fn generated<'py, T: Number + Real>(py: Python<'py>, spec: &str) -> PyResult<Parts<'py>> {
    let csr = py.detach(|| generators_of::csr::<T>(spec)).map_err(of_format)?;
    parts(py, csr)
}

/// Makes the matrix of a generator.
#[pyfunction]
pub(crate) fn generate<'py>(py: Python<'py>, spec: &str, single: bool) -> PyResult<Parts<'py>> {
    fork::check()?;
    if single { generated::<f32>(py, spec) } else { generated::<f64>(py, spec) }
}

/// For each generator: its name, how a specification is written, and what it makes.
#[pyfunction]
pub(crate) fn generators() -> Vec<(&'static str, &'static str, &'static str)> {
    generators_of::list().iter().map(|generator| (generator.name, generator.syntax, generator.about)).collect()
}

/// The spy plot: height, width, and the grey of each pixel.
#[pyfunction]
pub(crate) fn spy<'py>(py: Python<'py>, matrix: &Bound<'py, Matrix>) -> PyResult<(usize, usize, Bound<'py, PyBytes>)> {
    fork::check()?;
    let picture = on!(&matrix.get().host, |csr| {
        let csr = Arc::clone(csr);
        py.detach(move || pictures::draw(&*csr))
    });
    Ok((picture.height, picture.width, PyBytes::new(py, &picture.pixels)))
}
