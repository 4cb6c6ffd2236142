//! Solves with vectors, and matrices, that lie on a GPU.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use spandrel::backend::{Backend, Error as BackendError, Mat, Operator};
use spandrel::backend_cuda::cudarc::driver::sys;
use spandrel::backend_cuda::{RawCsr, Vector, probe};
use spandrel::formats::{Csr, Dia};
use spandrel::solvers::{BiCgStab, Cg, Gmres, Identity, Iterate, Method};
use spandrel::{Cuda, Device, Error, Outcome, Result, Solver as Library};

use super::describe::{DeviceArray, Element};
use crate::arrays::Number;
use crate::error::{of_name, raised};
use crate::operators::Goal;
use crate::report;
use crate::solver::Typed;
use crate::turn::Turn;
use crate::watch::{Kind, Watch, broken_off};

/// The GPUs for solves without a solver of their own. Each is opened once, so its kernels are loaded once for all such
/// solves.
static OPEN: OnceLock<Turn<BTreeMap<usize, Cuda>>> = OnceLock::new();

fn failed(why: String) -> Error {
    Error::Backend(BackendError::Device { device: "cuda", why })
}

/// The error for an array that does not fit. It says what the array is and what to do.
fn unfit(why: impl Into<String>) -> Error {
    Error::Unsupported { why: why.into() }
}

/// Returns the number of the GPU on which an address lies. The caller has opened a GPU or probed, so there is a driver.
fn ordinal_of(pointer: u64) -> Result<usize> {
    let mut ordinal: i32 = -1;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    // SAFETY: the attribute is a number, which the driver writes; it checks the address.
    let code = unsafe { sys::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, pointer) };
    match (code, usize::try_from(ordinal)) {
        (sys::CUresult::CUDA_SUCCESS, Ok(ordinal)) => Ok(ordinal),
        _ => Err(unfit(format!("address {pointer:#x} is not that of memory on a GPU"))),
    }
}

/// Makes the GPU's context the current one of this thread.
fn bind(cuda: &Cuda) -> Result<()> {
    cuda.stream().context().bind_to_thread().map_err(|error| failed(error.to_string()))
}

/// Waits for the work of the array's owner, and checks that the array lies on this GPU.
fn ready(cuda: &Cuda, array: &DeviceArray) -> Result<()> {
    if array.len == 0 {
        return Ok(());
    }
    let (found, expected) = (ordinal_of(array.pointer)?, cuda.info().ordinal);
    if found != expected {
        return Err(unfit(format!(
            "an array lies on cuda:{found}, and the solve runs on cuda:{expected}; copy it over"
        )));
    }
    // SAFETY: a stream that the array's owner names, or the default stream's number, both of the current context.
    let code = unsafe { sys::cuStreamSynchronize(array.stream as sys::CUstream) };
    match code {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(failed(format!("waiting for the stream of an array ended with {code:?}"))),
    }
}

/// The array as a vector, in place.
fn borrowed<T: Number>(cuda: &Cuda, name: &str, array: &DeviceArray) -> Result<Vector<T>> {
    let expected = if T::BYTES == 4 { Element::F32 } else { Element::F64 };
    if array.element != expected {
        let (found, expected) = (array.element.name(), expected.name());
        return Err(unfit(format!("{name} is {found}, and the matrix is {expected}; convert one of them")));
    }
    ready(cuda, array)?;
    // SAFETY: the array's owner keeps these elements as long as the reference to the array lives. That is longer than
    // this call, at the end of which the vector is dropped and the queue is empty. The work that wrote the elements has
    // ended. The documentation asks callers not to write in the meantime.
    Ok(unsafe { cuda.wrap_raw::<T>(array.pointer, array.len) }?)
}

fn writable(x: &DeviceArray) -> Result<()> {
    if x.writable { Ok(()) } else { Err(unfit("x may not be written: its library says that it is read-only")) }
}

/// Solves A x = b for vectors on the solver's GPU, from the given x.
///
/// # Errors
/// A solver that runs elsewhere; arrays of another type, size or GPU; those of the solve.
pub(crate) fn solve_on<T: Typed>(solver: &mut Library<T>, b: &DeviceArray, x: &DeviceArray) -> Result<Outcome> {
    writable(x)?;
    let Some((solver, cuda)) = solver.on_cuda() else {
        return Err(unfit("b lies on a GPU, and this solver runs on the CPU; build it with device=\"cuda\""));
    };
    bind(cuda)?;
    let (b, mut x) = (borrowed::<T>(cuda, "b", b)?, borrowed::<T>(cuda, "x", x)?);
    let outcome = solver.solve_on(cuda, &b, &mut x);
    cuda.synchronize()?;
    outcome
}

/// The arrays of a matrix.
struct Arrays<'a> {
    shape: (usize, usize),
    indptr: &'a DeviceArray,
    indices: &'a DeviceArray,
    data: &'a DeviceArray,
}

fn iterated<T: Number>(
    cuda: &Cuda,
    (method, goal, looks_at_each): (Method, &Goal, bool),
    a: &Arrays<'_>,
    (b, x): (&DeviceArray, &DeviceArray),
    watch: &Watch,
) -> Result<Outcome> {
    bind(cuda)?;
    let Arrays { shape: (nrows, ncols), indptr, indices, data } = *a;
    for (name, array) in [("indptr", indptr), ("indices", indices)] {
        if array.element != Element::I32 {
            return Err(unfit(format!("{name} is {}, expected int32", array.element.name())));
        }
        ready(cuda, array)?;
    }
    if indptr.len != nrows + 1 || indices.len != data.len {
        return Err(unfit("the arrays of the matrix contradict each other"));
    }
    // Check the type, and wait for the stream.
    drop(borrowed::<T>(cuda, "the matrix", data)?);
    let raw =
        RawCsr { nrows, ncols, nnz: data.len, row_ptr: indptr.pointer, col_idx: indices.pointer, values: data.pointer };
    // SAFETY: as in `borrowed`. The structure is checked on the device; negative indices are too large as unsigned
    // ones.
    let a = unsafe { cuda.wrap_raw_csr::<T>(raw) }?;
    let (b, mut x) = (borrowed::<T>(cuda, "b", b)?, borrowed::<T>(cuda, "x", x)?);
    let outcome = match by_diagonals(cuda, &a)? {
        Some(a) => solved(cuda, (method, goal, looks_at_each), &a, (&b, &mut x), watch),
        None => solved(cuda, (method, goal, looks_at_each), &a, (&b, &mut x), watch),
    };
    if let Ok(outcome) = &outcome
        && watch.wants_last(outcome)
    {
        watch.tell_last(outcome, &Backend::<T>::download(cuda, &x)?);
    }
    Device::synchronize(cuda)?;
    outcome
}

/// The matrix by diagonals, if these take no more memory than its rows do. A product then reads no columns, and no
/// lower half of a symmetric matrix. `None` also if memory is short.
fn by_diagonals<T: Number>(cuda: &Cuda, a: &Mat<Cuda, Csr<T>>) -> Result<Option<Mat<Cuda, Dia<T>>>> {
    let most = a.storage() / (a.nrows().max(1) * T::BYTES) as u64;
    if cuda.occupied_diagonals(a)? as u64 > most {
        return Ok(None);
    }
    match a.convert(cuda) {
        Ok(converted) => Ok(Some(converted)),
        Err(BackendError::OutOfMemory { .. } | BackendError::Format(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn solved<T: Number, A: Operator<T, Cuda>>(
    cuda: &Cuda,
    (method, goal, looks_at_each): (Method, &Goal, bool),
    a: &A,
    (b, x): (&Vector<T>, &mut Vector<T>),
    watch: &Watch,
) -> Result<Outcome> {
    let mut observer = |progress, iterate: Iterate<'_, T>| watch.observe(progress, iterate);
    let (n, options) = (Backend::<T>::len(cuda, b), goal.options(looks_at_each));
    match method {
        Method::Cg => Cg::new(cuda, n)?.solve_observed(cuda, a, &Identity, b, x, &options, &mut observer),
        Method::BiCgStab => BiCgStab::new(cuda, n)?.solve_observed(cuda, a, &Identity, b, x, &options, &mut observer),
        Method::Gmres => {
            let mut gmres = Gmres::with(cuda, n, &goal.cycle())?;
            gmres.solve_observed(cuda, a, &Identity, b, x, &options, &mut observer)
        }
        Method::Direct => Err(unfit("a direct solve runs on the host; use cg, bicgstab or gmres")),
    }
}

/// Solves A x = b from the given x, without a preconditioner, on the GPU where matrix and vectors lie. Nothing goes
/// through the host.
#[pyfunction]
#[pyo3(signature = (method, shape, indptr, indices, data, b, x, goal, kind, callback=None))]
#[allow(clippy::needless_pass_by_value)] // what Python hands over
pub(crate) fn iterate_on_device<'py>(
    py: Python<'py>,
    method: &str,
    shape: (usize, usize),
    indptr: &Bound<'py, DeviceArray>,
    indices: &Bound<'py, DeviceArray>,
    data: &Bound<'py, DeviceArray>,
    b: &Bound<'py, DeviceArray>,
    x: &Bound<'py, DeviceArray>,
    goal: Goal,
    kind: &str,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    crate::fork::check()?;
    let method: Method = method.parse().map_err(of_name)?;
    let kind = Kind::parse(kind)?;
    let (b, x) = (b.get(), x.get());
    let a = Arrays { shape, indptr: indptr.get(), indices: indices.get(), data: data.get() };
    if b.len != shape.0 || x.len != shape.1 {
        let text = format!("the matrix is {} x {}, b has {} elements and x has {}", shape.0, shape.1, b.len, x.len);
        return Err(PyValueError::new_err(text));
    }
    let is_single = match b.element {
        Element::F32 => true,
        Element::F64 => false,
        Element::I32 => return Err(PyTypeError::new_err("b must be float32 or float64")),
    };
    let watch = Watch::new();
    // Without a callback a look is a wait for nothing.
    let looks_at_each = callback.is_some() && kind.is_each();
    watch.begin(callback, kind, false);
    let solved = OPEN.get_or_init(|| Turn::new(BTreeMap::new())).run(py, |open| {
        writable(x)?;
        // Probe before any call of cudarc, which panics if there is no driver.
        probe().map_err(|why| failed(why.to_string()))?;
        let ordinal = b.ordinal.map_or_else(|| ordinal_of(b.pointer), Ok)?;
        let cuda = match open.entry(ordinal) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(Cuda::on(ordinal)?),
        };
        if is_single {
            iterated::<f32>(cuda, (method, &goal, looks_at_each), &a, (b, x), &watch)
        } else {
            iterated::<f64>(cuda, (method, &goal, looks_at_each), &a, (b, x), &watch)
        }
    })?;
    if let Some(error) = watch.end() {
        let reached = solved.ok().map(|outcome| report::outcome(py, &outcome)).transpose()?;
        return Err(broken_off(py, error, reached.map(Bound::into_any)));
    }
    report::outcome(py, &solved.map_err(raised)?)
}
