//! CSR over the arrays of a SciPy matrix.
//!
//! Values are read in place. Row pointers and columns are copied, narrowed to 32 bits and checked. Kernels use them as
//! indices without a check, so Python must not be able to write to them later. The copy costs 4 bytes per entry and no
//! extra pass, because the check makes one anyway. Rows may be unsorted or list a column twice, with the same meaning
//! as in SciPy: repeated entries are summed.

use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rayon::prelude::*;
use spandrel::Csr;
use spandrel::formats::{self, Array, MAX_INDEX};

use crate::arrays::{self, Number};
use crate::error::of_format;
use crate::fork;

/// Entries that one task converts. Fewer are converted on the calling thread, without waking the pool.
const CHUNK: usize = 1 << 15;

/// A matrix on the host in either type.
#[derive(Clone)]
pub(crate) enum Host {
    /// In f32.
    F32(Arc<Csr<f32>>),
    /// In f64.
    F64(Arc<Csr<f64>>),
}

/// Runs `$call` with the matrix, whichever its type is.
macro_rules! on {
    ($host:expr, |$csr:ident| $call:expr) => {
        match $host {
            $crate::matrix::Host::F32($csr) => $call,
            $crate::matrix::Host::F64($csr) => $call,
        }
    };
}
pub(crate) use on;

/// The rows as they were given, kept if the matrix has them in another order.
struct Unsorted {
    row_ptr: Vec<u32>,
    col_idx: Vec<u32>,
}

/// A matrix in CSR.
#[pyclass(frozen, module = "spandrel_sparse._core")]
pub(crate) struct Matrix {
    pub(crate) host: Host,
    unsorted: Option<Unsorted>,
}

/// An index type of NumPy.
trait Index: numpy::Element + Copy + Send + Sync + 'static {
    fn wide(self) -> i64;
}
impl Index for i32 {
    fn wide(self) -> i64 {
        i64::from(self)
    }
}
impl Index for i64 {
    fn wide(self) -> i64 {
        self
    }
}

/// Narrows indices to 32 bits, after a check that they are below `bound`.
fn narrowed<I: Index>(given: &[I], name: &str, bound: usize) -> PyResult<Vec<u32>> {
    let is_outside = |&i: &I| i.wide() < 0 || i.wide() >= bound as i64;
    let (outside, narrow) = if given.len() <= CHUNK {
        (given.iter().position(is_outside), given.iter().map(|i| i.wide() as u32).collect())
    } else {
        let narrow = || given.par_iter().with_min_len(CHUNK).map(|i| i.wide() as u32).collect();
        rayon::join(|| given.par_iter().with_min_len(CHUNK).position_first(is_outside), narrow)
    };
    match outside {
        Some(at) => {
            let found = given[at].wide();
            Err(PyValueError::new_err(format!("csr: {name}[{at}] = {found} is outside 0..{bound}")))
        }
        None => Ok(narrow),
    }
}

/// Returns true if columns ascend strictly in every row. Row pointers must have been checked.
fn ascends(row_ptr: &[u32], col_idx: &[u32]) -> bool {
    let row = |row: &[u32]| col_idx[row[0] as usize..row[1] as usize].is_sorted_by(|one, next| one < next);
    if col_idx.len() <= CHUNK {
        row_ptr.windows(2).all(row)
    } else {
        row_ptr.par_windows(2).with_min_len(1 << 12).all(row)
    }
}

/// A pattern from Python, in 32 bits.
fn pattern<I: Index>(
    (nrows, ncols): (usize, usize),
    indptr: &[I],
    indices: &[I],
    available: usize,
) -> PyResult<(Vec<u32>, Vec<u32>)> {
    if indptr.len() != nrows + 1 {
        let found = indptr.len();
        return Err(PyValueError::new_err(format!("csr: indptr has {found} elements, expected {}", nrows + 1)));
    }
    let end = indptr[nrows].wide();
    // SciPy allows arrays that are longer than the entries.
    let nnz = usize::try_from(end).ok().filter(|&nnz| nnz <= indices.len().min(available));
    let Some(nnz) = nnz else {
        let (columns, values) = (indices.len(), available);
        return Err(PyValueError::new_err(format!(
            "csr: indptr ends at {end}, and there are {columns} indices and {values} values"
        )));
    };
    if nnz > MAX_INDEX {
        let error = formats::Error::TooLarge { what: "entries", count: nnz as u64, limit: MAX_INDEX as u64 };
        return Err(of_format(error));
    }
    let row_ptr = narrowed(indptr, "indptr", nnz + 1)?;
    if let Some(at) = row_ptr.windows(2).position(|two| two[0] > two[1]) {
        return Err(PyValueError::new_err(format!(
            "csr: indptr[{}] = {} is less than the one before",
            at + 1,
            row_ptr[at + 1]
        )));
    }
    if row_ptr[0] != 0 {
        return Err(PyValueError::new_err(format!("csr: indptr[0] = {}, expected 0", row_ptr[0])));
    }
    Ok((row_ptr, narrowed(&indices[..nnz], "indices", ncols)?))
}

/// The matrix of a pattern and its values.
fn made<T: Number>(
    (nrows, ncols): (usize, usize),
    (row_ptr, col_idx): (Vec<u32>, Vec<u32>),
    values: Array<T>,
) -> PyResult<(Arc<Csr<T>>, Option<Unsorted>)> {
    if ascends(&row_ptr, &col_idx) {
        let csr = Csr::from_arrays(nrows, ncols, row_ptr.into(), col_idx.into(), values).map_err(of_format)?;
        return Ok((Arc::new(csr), None));
    }
    let unsorted = Unsorted { row_ptr: row_ptr.clone(), col_idx: col_idx.clone() };
    let csr = Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values.into_vec()).map_err(of_format)?;
    Ok((Arc::new(csr), Some(unsorted)))
}

#[pymethods]
impl Matrix {
    #[new]
    fn new(
        nrows: usize,
        ncols: usize,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        fork::check()?;
        let py = indptr.py();
        for (n, what) in [(nrows, "rows"), (ncols, "columns")] {
            formats::index::checked(n, what).map_err(of_format)?;
        }
        let shape = (nrows, ncols);
        let (single, double) = (arrays::slice::<f32>(data, "data"), arrays::slice::<f64>(data, "data"));
        let available = match (&single, &double) {
            (Ok(single), _) => single.len(),
            (_, Ok(double)) => double.len(),
            (Err(_), Err(_)) => {
                return Err(PyTypeError::new_err("data must be a contiguous array of float32 or float64"));
            }
        };
        let pattern = match arrays::slice::<i32>(indptr, "indptr") {
            Ok(indptr) => {
                let indices = arrays::slice::<i32>(indices, "indices")?;
                py.detach(|| pattern(shape, indptr, indices, available))?
            }
            Err(_) => {
                let (indptr, indices) =
                    (arrays::slice::<i64>(indptr, "indptr")?, arrays::slice::<i64>(indices, "indices")?);
                py.detach(|| pattern(shape, indptr, indices, available))?
            }
        };
        let nnz = pattern.1.len();
        let (host, unsorted) = if single.is_ok() {
            let values = arrays::kept::<f32>(data, "data", nnz)?;
            let (csr, unsorted) = py.detach(|| made(shape, pattern, values))?;
            (Host::F32(csr), unsorted)
        } else {
            let values = arrays::kept::<f64>(data, "data", nnz)?;
            let (csr, unsorted) = py.detach(|| made(shape, pattern, values))?;
            (Host::F64(csr), unsorted)
        };
        Ok(Self { host, unsorted })
    }

    /// Rows and columns.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        on!(&self.host, |csr| (csr.nrows(), csr.ncols()))
    }

    /// Stored entries, after repeated ones were summed.
    #[getter]
    fn nnz(&self) -> usize {
        on!(&self.host, |csr| csr.nnz())
    }

    /// `"float32"` or `"float64"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.host {
            Host::F32(_) => "float32",
            Host::F64(_) => "float64",
        }
    }

    /// Whether the values are still in the memory and order of the array that was given.
    #[getter]
    fn is_shared(&self) -> bool {
        self.unsorted.is_none()
    }

    /// `(indptr, indices, data)` of a matrix in order, each a copy.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        on!(&self.host, |csr| {
            let (row_ptr, col_idx, values) = (csr.row_ptr().to_vec(), csr.col_idx().to_vec(), csr.values().to_vec());
            triple(py, row_ptr, col_idx, values)
        })
    }

    /// A x.
    fn matvec<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        fork::check()?;
        on!(&self.host, |csr| {
            let x = arrays::slice(x, "x")?;
            let y = py.detach(|| csr.mul_vec(x)).map_err(of_format)?;
            Ok(arrays::given(py, y))
        })
    }
}

fn same_pattern<T: Number, U: Number>(one: &Csr<T>, next: &Csr<U>) -> bool {
    (one.nrows(), one.ncols()) == (next.nrows(), next.ncols())
        && one.row_ptr() == next.row_ptr()
        && one.col_idx() == next.col_idx()
}

impl Matrix {
    /// Returns true if another matrix has the same pattern.
    pub(crate) fn has_pattern_of(&self, py: Python<'_>, other: &Self) -> bool {
        on!(&self.host, |one| on!(&other.host, |next| py.detach(|| same_pattern(one, next))))
    }

    /// Brings new values from the order of the given array into that of the matrix.
    ///
    /// # Errors
    /// `ValueError` for another number of values.
    pub(crate) fn ordered<T: Number>(&self, values: &[T]) -> PyResult<Option<Vec<T>>> {
        let Some(Unsorted { row_ptr, col_idx }) = &self.unsorted else { return Ok(None) };
        if values.len() != col_idx.len() {
            let (found, expected) = (values.len(), col_idx.len());
            return Err(crate::error::raised(spandrel::Error::Pattern { found, expected }));
        }
        let (nrows, ncols) = self.shape();
        let csr = Csr::from_unsorted(nrows, ncols, row_ptr.clone(), col_idx.clone(), values.to_vec());
        Ok(Some(csr.map_err(of_format)?.into_parts().4))
    }
}

/// The arrays of a matrix in CSR for SciPy.
///
/// # Errors
/// Those of Python's memory.
pub(crate) fn triple<'py, T: Number>(
    py: Python<'py>,
    row_ptr: Vec<u32>,
    col_idx: Vec<u32>,
    values: Vec<T>,
) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [arrays::indices(py, row_ptr), arrays::indices(py, col_idx), arrays::given(py, values)])
}
