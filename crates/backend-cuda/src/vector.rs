//! Vectors and scalars in device memory.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, sys};
use spandrel_backend::Result;
use spandrel_formats::Real;

use crate::Cuda;
use crate::memory::Buffer;

/// A vector in device memory.
#[derive(Debug)]
pub struct Vector<T> {
    buffer: Buffer<T>,
}

impl<T: Real> Vector<T> {
    pub(crate) fn zeros(stream: &Arc<CudaStream>, len: usize) -> Result<Self> {
        Ok(Self { buffer: Buffer::zeros(stream, len, "a vector")? })
    }

    /// Not initialised: for what is written whole before it is read.
    pub(crate) fn uninit(stream: &Arc<CudaStream>, len: usize) -> Result<Self> {
        Ok(Self { buffer: Buffer::uninit(stream, len, "a vector")? })
    }

    pub(crate) fn from_host(stream: &Arc<CudaStream>, host: &[T]) -> Result<Self> {
        Ok(Self { buffer: Buffer::from_host(stream, host, "a vector")? })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first element in device memory, valid while the vector lives. Work that uses it outside this backend
    /// must wait for [`spandrel_backend::Device::synchronize`], and end before the backend goes on with the vector.
    pub fn device_pointer(&self) -> sys::CUdeviceptr {
        self.buffer.pointer()
    }

    pub(crate) fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    pub(crate) fn pointer(&self) -> u64 {
        self.buffer.pointer()
    }
}

impl Cuda {
    /// Takes over a slice allocated with cudarc on the same device, without a copy. Blocks until the slice's own stream is idle.
    ///
    /// # Errors
    /// A slice of another device; an error of work enqueued before.
    pub fn wrap<T: Real + cudarc::driver::DeviceRepr>(&self, slice: CudaSlice<T>) -> Result<Vector<T>> {
        let buffer = self.adopt(slice)?;
        self.reserve(buffer.len())?;
        Ok(Vector { buffer })
    }

    /// A slice of the same device as a buffer. Blocks until the slice's own stream is idle.
    pub(crate) fn adopt<E: bytemuck::Pod + Send>(&self, slice: CudaSlice<E>) -> Result<Buffer<E>> {
        if slice.context() != self.context() {
            return Err(spandrel_backend::Error::Device {
                device: crate::error::NAME,
                why: format!(
                    "the slice lies on device {} and this backend runs on device {}: copy it over",
                    slice.ordinal(),
                    self.context().ordinal()
                ),
            });
        }
        slice.stream().synchronize().map_err(|error| crate::error::failed("wrap", error))?;
        Ok(Buffer::wrap(self.stream(), slice))
    }

    /// A vector over `len` elements of device memory that somebody else owns, without a copy.
    ///
    /// # Errors
    /// Out of memory for the room that sums over it need.
    ///
    /// # Safety
    /// `pointer` is that of `len` elements of type `T` in memory of this backend's device, aligned to `T`; they outlive the vector and every
    /// recorded step that uses it, and nobody else uses them meanwhile.
    pub unsafe fn wrap_raw<T: Real>(&self, pointer: sys::CUdeviceptr, len: usize) -> Result<Vector<T>> {
        self.reserve(len)?;
        // SAFETY: the caller's promise.
        Ok(Vector { buffer: unsafe { Buffer::borrow(self.stream(), pointer, len) } })
    }
}

/// A scalar in device memory: alone in its buffer, or one of a row.
#[derive(Debug)]
pub struct Scalar<T> {
    buffer: Arc<Buffer<T>>,
    at: usize,
}

impl<T: Real> Scalar<T> {
    pub(crate) fn new(stream: &Arc<CudaStream>, value: T) -> Result<Self> {
        Ok(Self { buffer: Arc::new(Buffer::from_host(stream, &[value], "a scalar")?), at: 0 })
    }

    /// `count` scalars side by side.
    pub(crate) fn row(stream: &Arc<CudaStream>, count: usize, value: T) -> Result<Vec<Self>> {
        let buffer = Arc::new(Buffer::from_host(stream, &vec![value; count], "scalars")?);
        Ok((0..count).map(|at| Self { buffer: Arc::clone(&buffer), at }).collect())
    }

    pub(crate) fn download(&self) -> Result<T> {
        let mut value = [T::zero()];
        self.buffer.read_at(self.at, &mut value)?;
        Ok(value[0])
    }

    /// The values of all, one transfer for each run of neighbours.
    pub(crate) fn download_all(scalars: &[Self]) -> Result<Vec<T>> {
        let mut values = vec![T::zero(); scalars.len()];
        let mut from = 0;
        while let Some(first) = scalars.get(from) {
            let adjoins = |(i, s): &(usize, &Self)| Arc::ptr_eq(&s.buffer, &first.buffer) && s.at == first.at + i;
            let run = scalars[from..].iter().enumerate().take_while(adjoins).count();
            first.buffer.read_at(first.at, &mut values[from..from + run])?;
            from += run;
        }
        Ok(values)
    }

    pub(crate) fn pointer(&self) -> u64 {
        self.buffer.address(self.at)
    }
}
