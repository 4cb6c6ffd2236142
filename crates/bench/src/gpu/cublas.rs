//! The few functions of cuBLAS that a textbook CG calls, on the backend's stream.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::rc::Rc;

use anyhow::{Context, Result};
use spandrel_backend_cuda::cudarc::driver::{CudaSlice, DevicePtr, sys};

use super::Gpu;
use super::library::{self, functions, succeeded};

const NAME: &str = "cublas";
/// The size of the library's workspace, so that it allocates nothing during a capture.
const WORKSPACE: usize = 4 << 20;

functions! {
    Functions of "cublas" {
        create = "cublasCreate_v2"(*mut *mut c_void),
        destroy = "cublasDestroy_v2"(*mut c_void),
        set_stream = "cublasSetStream_v2"(*mut c_void, sys::CUstream),
        set_workspace = "cublasSetWorkspace_v2"(*mut c_void, *mut c_void, usize),
        set_pointer_mode = "cublasSetPointerMode_v2"(*mut c_void, c_int),
        dot = "cublasDdot_v2"(*mut c_void, c_int, *const f64, c_int, *const f64, c_int, *mut f64),
        axpy = "cublasDaxpy_v2"(*mut c_void, c_int, *const f64, *const f64, c_int, *mut f64, c_int),
        scal = "cublasDscal_v2"(*mut c_void, c_int, *const f64, *mut f64, c_int),
        copy = "cublasDcopy_v2"(*mut c_void, c_int, *const f64, c_int, *mut f64, c_int),
    }
}

/// The place of a scalar.
#[derive(Clone, Copy, Debug)]
pub enum Scalars {
    /// On the host: a dot product blocks.
    Host,
    /// In device memory.
    Device,
}

/// The library with a handle on the backend's stream. Vectors are addresses in device memory.
pub struct Cublas {
    functions: Functions,
    opened: *mut c_void,
    _workspace: CudaSlice<u8>,
}

impl Cublas {
    /// Opens the library.
    ///
    /// # Errors
    /// [`super::library::LibraryUnavailable`], out of memory.
    pub fn open(gpu: &Gpu) -> Result<Rc<Self>> {
        let functions = Functions::load(library::open(NAME, &["cublasLt"])?)?;
        gpu.bind()?;
        let workspace = gpu.stream().alloc_zeros::<u8>(WORKSPACE).context("cuBLAS's workspace")?;
        let address = workspace.device_ptr(gpu.stream()).0;
        let mut opened = null_mut();
        // SAFETY: a live place for the handle; the context is bound.
        succeeded(NAME, "cublasCreate", unsafe { (functions.create)(&mut opened) })?;
        let library = Self { functions, opened, _workspace: workspace };
        // SAFETY: the handle is live, and the stream outlives it. Set the stream first, because that removes the
        // workspace.
        let status = unsafe { (library.functions.set_stream)(opened, gpu.stream().cu_stream()) };
        succeeded(NAME, "cublasSetStream", status)?;
        // SAFETY: the memory is kept beside the handle.
        let status = unsafe { (library.functions.set_workspace)(opened, address as *mut c_void, WORKSPACE) };
        succeeded(NAME, "cublasSetWorkspace", status)?;
        Ok(Rc::new(library))
    }

    /// From here on, scalars are at this place.
    ///
    /// # Errors
    /// Those of the library.
    pub fn scalars(&self, place: Scalars) -> Result<()> {
        // SAFETY: the handle is live.
        let status = unsafe { (self.functions.set_pointer_mode)(self.opened, place as c_int) };
        Ok(succeeded(NAME, "cublasSetPointerMode", status)?)
    }

    /// out <- x . y.
    ///
    /// # Safety
    /// x and y are addresses of n elements in device memory, and `out` is the address of one element at the place of
    /// [`Cublas::scalars`]. All live until the stream has passed the call and every replay of it.
    pub unsafe fn dot(&self, n: c_int, x: u64, y: u64, out: *mut f64) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.functions.dot)(self.opened, n, x as *const f64, 1, y as *const f64, 1, out) };
        Ok(succeeded(NAME, "cublasDdot", status)?)
    }

    /// y <- a x + y.
    ///
    /// # Safety
    /// As [`Cublas::dot`], for `a`.
    pub unsafe fn axpy(&self, n: c_int, a: *const f64, x: u64, y: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.functions.axpy)(self.opened, n, a, x as *const f64, 1, y as *mut f64, 1) };
        Ok(succeeded(NAME, "cublasDaxpy", status)?)
    }

    /// x <- a x.
    ///
    /// # Safety
    /// As [`Cublas::dot`], for `a`.
    pub unsafe fn scal(&self, n: c_int, a: *const f64, x: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.functions.scal)(self.opened, n, a, x as *mut f64, 1) };
        Ok(succeeded(NAME, "cublasDscal", status)?)
    }

    /// y <- x.
    ///
    /// # Safety
    /// As [`Cublas::dot`].
    pub unsafe fn copy(&self, n: c_int, x: u64, y: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.functions.copy)(self.opened, n, x as *const f64, 1, y as *mut f64, 1) };
        Ok(succeeded(NAME, "cublasDcopy", status)?)
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: the handle was made by the library and is destroyed once. Nobody can be told of a failure.
        unsafe { (self.functions.destroy)(self.opened) };
    }
}
