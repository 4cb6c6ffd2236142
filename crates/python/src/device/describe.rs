//! Where an array of another library lies, read from `__cuda_array_interface__` or a DLPack capsule. Nothing here
//! touches a GPU.
//!
//! References: the CUDA Array Interface, version 3 (Numba's documentation); DLPack 1.0 (dmlc/dlpack, dlpack.h).

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

/// DLPack's number for memory of a CUDA device, and for managed memory of CUDA.
const CUDA: i32 = 2;
const CUDA_MANAGED: i32 = 13;
/// The default stream, by DLPack's number and that of `__cuda_array_interface__`.
const DEFAULT_STREAM: u64 = 1;
/// The flag of a versioned tensor that must not be written.
const READ_ONLY: u64 = 1;

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F32,
    F64,
    I32,
}

impl Element {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::I32 => "int32",
        }
    }
    fn bytes(self) -> u64 {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F64 => 8,
        }
    }
}

/// A one-dimensional contiguous array in the memory of a GPU.
#[pyclass(frozen, module = "spandrel_sparse._core")]
pub(crate) struct DeviceArray {
    /// Keeps the memory alive.
    _owner: Py<PyAny>,
    pub(crate) pointer: u64,
    pub(crate) len: usize,
    pub(crate) element: Element,
    pub(crate) writable: bool,
    /// The stream to wait for.
    pub(crate) stream: u64,
    /// The GPU's number, if the array gives it.
    pub(crate) ordinal: Option<usize>,
}

/// `DLDevice` of dlpack.h.
#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    _minor: u32,
    _manager: *mut c_void,
    _deleter: *mut c_void,
    flags: u64,
    tensor: Tensor,
}

fn refused(why: impl Into<String>) -> PyErr {
    PyValueError::new_err(why.into())
}

/// The number of elements of an array with this shape: one dimension, or two of which the second is 1.
///
/// # Errors
/// `ValueError` for other shapes, and for strides that leave gaps.
fn length(shape: &[i64], strides: Option<&[i64]>, step: i64) -> PyResult<usize> {
    let (n, stride) = match (shape, strides) {
        (&[n] | &[n, 1], None) => (n, step),
        (&[n], Some(&[stride])) | (&[n, 1], Some(&[stride, _])) => (n, stride),
        _ => return Err(refused(format!("an array on a GPU has shape {shape:?}, expected one dimension"))),
    };
    if stride != step && n > 1 {
        return Err(refused(
            "an array on a GPU is not contiguous; make it so (cupy.ascontiguousarray, tensor.contiguous)",
        ));
    }
    usize::try_from(n).map_err(|_| refused(format!("an array on a GPU has shape {shape:?}")))
}

/// # Errors
/// `TypeError` for elements that no kernel takes.
fn element(code: u8, bits: u64) -> PyResult<Element> {
    match (code, bits) {
        (b'f', 32) => Ok(Element::F32),
        (b'f', 64) => Ok(Element::F64),
        (b'i', 32) => Ok(Element::I32),
        (b'c', _) => {
            Err(PyTypeError::new_err("complex arrays are not supported; solve for real and imaginary part apart"))
        }
        _ => {
            let kind = char::from(code);
            Err(PyTypeError::new_err(format!("an array on a GPU must be float32 or float64, this one is {kind}{bits}")))
        }
    }
}

impl DeviceArray {
    fn new(
        owner: Py<PyAny>,
        (pointer, len): (u64, usize),
        element: Element,
        (writable, stream, ordinal): (bool, u64, Option<usize>),
    ) -> PyResult<Self> {
        if len > 0 && (pointer == 0 || pointer % element.bytes() != 0) {
            return Err(refused(format!("an array on a GPU lies at address {pointer:#x}, which is none of its type")));
        }
        Ok(Self { _owner: owner, pointer, len, element, writable, stream, ordinal })
    }
}

/// # Errors
/// `ValueError` or `TypeError` if the capsule does not hold a vector on a GPU.
///
/// # Safety
/// `tensor` is what a capsule of DLPack holds: shape and strides have `ndim` elements, or strides is null.
unsafe fn of_tensor(owner: Py<PyAny>, tensor: &Tensor, writable: bool) -> PyResult<DeviceArray> {
    let Tensor { data, device, ndim, code, bits, lanes, shape, strides, byte_offset } = tensor;
    if ![CUDA, CUDA_MANAGED].contains(&device.kind) {
        return Err(refused("this DLPack array does not lie on a CUDA device"));
    }
    let ndim = usize::try_from(*ndim).unwrap_or_default();
    if shape.is_null() || !(1..=2).contains(&ndim) || *lanes != 1 {
        return Err(refused(format!("an array on a GPU has {ndim} dimensions, expected one")));
    }
    // SAFETY: the caller's promise.
    let (shape, strides) = unsafe {
        let strides = (!strides.is_null()).then(|| std::slice::from_raw_parts(*strides, ndim));
        (std::slice::from_raw_parts(*shape, ndim), strides)
    };
    // kDLInt, kDLFloat, kDLComplex.
    let code = match code {
        0 => b'i',
        2 => b'f',
        5 => b'c',
        _ => b'?',
    };
    let element = element(code, u64::from(*bits))?;
    let len = length(shape, strides, 1)?;
    let pointer = (*data as u64).wrapping_add(*byte_offset);
    let ordinal = usize::try_from(device.id).ok();
    DeviceArray::new(owner, (pointer, len), element, (writable, DEFAULT_STREAM, ordinal))
}

#[pymethods]
impl DeviceArray {
    /// The array that an object with `__cuda_array_interface__` describes.
    #[staticmethod]
    fn from_interface(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let interface = object.getattr("__cuda_array_interface__")?;
        let interface = interface.cast::<PyDict>()?;
        let item = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            Ok(interface.get_item(name)?.filter(|item| !item.is_none()))
        };
        let needed =
            |name: &str| item(name)?.ok_or_else(|| refused(format!("__cuda_array_interface__ lacks {name:?}")));
        if item("mask")?.is_some() {
            return Err(refused("an array on a GPU has a mask, which is not supported"));
        }
        let typestr: String = needed("typestr")?.extract()?;
        let (Some(order), Some(code), Some(size)) =
            (typestr.get(..1), typestr.as_bytes().get(1), typestr.get(2..).and_then(|size| size.parse::<u64>().ok()))
        else {
            return Err(refused(format!("__cuda_array_interface__ has typestr {typestr:?}")));
        };
        if order == ">" {
            return Err(PyTypeError::new_err(format!("an array on a GPU has the other byte order: {typestr}")));
        }
        let element = element(*code, size.saturating_mul(8))?;
        let shape: Vec<i64> = needed("shape")?.extract()?;
        let strides: Option<Vec<i64>> = item("strides")?.map(|strides| strides.extract()).transpose()?;
        let len = length(&shape, strides.as_deref(), element.bytes() as i64)?;
        let (pointer, read_only): (u64, bool) = needed("data")?.extract()?;
        let stream = match item("stream")?.map(|stream| stream.extract::<u64>()).transpose()? {
            Some(0) => return Err(refused("__cuda_array_interface__ has stream 0, which names none")),
            Some(stream) => stream,
            None => DEFAULT_STREAM,
        };
        Self::new(object.clone().unbind(), (pointer, len), element, (!read_only, stream, None))
    }

    /// The array that an object with `__dlpack__` gives. The object's library makes the default stream wait until the
    /// array is written.
    #[staticmethod]
    fn from_dlpack(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let (kind, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        if ![CUDA, CUDA_MANAGED].contains(&kind) {
            return Err(refused("this DLPack array does not lie on a CUDA device"));
        }
        let keywords = PyDict::new(py);
        keywords.set_item("stream", DEFAULT_STREAM)?;
        let capsule = object.call_method("__dlpack__", (), Some(&keywords))?;
        let capsule = capsule.cast_into::<PyCapsule>()?;
        // As long as the capsule keeps its name, it frees the tensor itself, when the last reference to the capsule
        // goes.
        let owner = capsule.clone().into_any().unbind();
        let held = |name: &CStr| -> Option<NonNull<c_void>> { capsule.pointer_checked(Some(name)).ok() };
        if let Some(tensor) = held(c"dltensor") {
            // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with its tensor.
            return unsafe { of_tensor(owner, tensor.cast::<Tensor>().as_ref(), true) };
        }
        let Some(tensor) = held(c"dltensor_versioned") else {
            return Err(refused("__dlpack__ gave a capsule that holds no tensor"));
        };
        // SAFETY: a capsule of this name holds a `DLManagedTensorVersioned`; version and flags stand at the same places
        // in every version.
        let versioned = unsafe { tensor.cast::<Versioned>().as_ref() };
        if versioned.major != 1 {
            return Err(refused(format!("DLPack {} is not supported, only 1", versioned.major)));
        }
        // SAFETY: as above.
        unsafe { of_tensor(owner, &versioned.tensor, versioned.flags & READ_ONLY == 0) }
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.len
    }

    /// `"float32"`, `"float64"` or `"int32"`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.element.name()
    }

    /// The address of the first element.
    #[getter]
    fn pointer(&self) -> u64 {
        self.pointer
    }

    /// Whether the array's owner lets others write to it.
    #[getter]
    fn writable(&self) -> bool {
        self.writable
    }

    /// The stream to wait for before the array is read.
    #[getter]
    fn stream(&self) -> u64 {
        self.stream
    }

    /// The GPU's number, or `None` if the array does not give it.
    #[getter]
    fn ordinal(&self) -> Option<usize> {
        self.ordinal
    }
}
