//! NumPy's arrays as slices, and vectors as NumPy's arrays.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use spandrel::formats::Array;
use spandrel::solver::Element;

/// `f32` or `f64`, for the library and for NumPy.
pub(crate) trait Number: Element + numpy::Element {}
impl Number for f32 {}
impl Number for f64 {}

/// Borrows the elements of a one-dimensional contiguous array of this type. The Python files make such an array from
/// what the caller gives.
///
/// The slice borrows from the reference to the array, which keeps the memory alive. While the interpreter's lock is
/// released, Python may write to the array. Then other numbers are read, but they are still numbers. NumPy reads its
/// operands in the same way.
///
/// # Errors
/// `TypeError` for anything else.
pub(crate) fn slice<'a, T: numpy::Element>(array: &'a Bound<'_, PyAny>, name: &str) -> PyResult<&'a [T]> {
    let wrong = || {
        let dtype = T::get_dtype(array.py());
        PyTypeError::new_err(format!("{name} must be a contiguous one-dimensional NumPy array of {dtype}"))
    };
    let array = array.cast::<PyArray1<T>>().map_err(|_| wrong())?;
    // SAFETY: the elements are plain numbers, of which every pattern of bits is one. See above for writers.
    unsafe { array.as_slice() }.map_err(|_| wrong())
}

/// Values of a matrix that stay in a NumPy array.
struct Kept<T> {
    _array: Py<PyAny>,
    values: *const [T],
}

// SAFETY: a shared borrow of plain numbers, which any thread may read; the reference to the array may be dropped by any
// thread.
unsafe impl<T: Sync> Send for Kept<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Kept<T> {}

impl<T> AsRef<[T]> for Kept<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: the array keeps the memory alive, and NumPy does not resize an array to which others refer.
        unsafe { &*self.values }
    }
}

/// Keeps the first `len` elements of an array without a copy, for as long as they are needed.
///
/// # Errors
/// As [`slice`].
pub(crate) fn kept<T: Number>(array: &Bound<'_, PyAny>, name: &str, len: usize) -> PyResult<Array<T>> {
    let values = slice::<T>(array, name)?;
    let values: *const [T] = &values[..len.min(values.len())];
    Ok(Array::shared(Kept { _array: array.clone().unbind(), values }))
}

/// A vector as an array, without a copy.
pub(crate) fn given<'py, T: numpy::Element>(py: Python<'py>, vector: Vec<T>) -> Bound<'py, PyAny> {
    PyArray1::from_vec(py, vector).into_any()
}

/// Row pointers or columns as SciPy stores them, without a copy.
pub(crate) fn indices<'py>(py: Python<'py>, stored: Vec<u32>) -> Bound<'py, PyAny> {
    // All are below 2^31.
    given::<i32>(py, bytemuck::cast_vec(stored))
}
