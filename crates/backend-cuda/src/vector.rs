//! Vectors and scalars in device memory.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, sys};
use spandrel_backend::Result;
use spandrel_formats::Real;

use crate::Cuda;
use crate::kernel::kernels;
use crate::launch::{ChecksArg, CoeffArg, TreeArg};
use crate::memory::{Address, Buffer};

kernels! {
    pub(crate) struct FillVector<T> { n: u64, value: CoeffArg<T>, y: Address, gate: Address }
    in VECTOR { ENTRY: "fill_vector" }

    pub(crate) struct CopyVector { n: u64, x: Address, y: Address, gate: Address }
    in VECTOR { ENTRY: "copy_vector" }

    pub(crate) struct AxpbyVector<T> { n: u64, a: CoeffArg<T>, x: Address, b: CoeffArg<T>, y: Address, gate: Address }
    in VECTOR { ENTRY: "axpby_vector" }

    pub(crate) struct AxpbyChainVector<T> {
        n: u64, a: CoeffArg<T>, x: Address, b: CoeffArg<T>, y: Address, c: CoeffArg<T>, d: CoeffArg<T>, z: Address,
        gate: Address,
    }
    in VECTOR { ENTRY: "axpby_chain_vector" }

    pub(crate) struct AxpbypczVector<T> {
        n: u64, a: CoeffArg<T>, x: Address, b: CoeffArg<T>, y: Address, c: CoeffArg<T>, z: Address, gate: Address,
    }
    in VECTOR { ENTRY: "axpbypcz_vector" }

    pub(crate) struct HadamardVector { n: u64, x: Address, y: Address, z: Address, gate: Address }
    in VECTOR { ENTRY: "hadamard_vector" }

    pub(crate) struct AssignScalar<T> { value: CoeffArg<T>, out: Address, gate: Address }
    in VECTOR { ENTRY: "assign_scalar" }

    pub(crate) struct CastVector { n: u64, a: CoeffArg<f64>, x: Address, y: Address, gate: Address }
    in VECTOR { ENTRY: "cast_vector" }

    pub(crate) struct BinadeVector {
        n: u64, x: Address, results: Address, ticket: Address, out: Address, gate: Address,
    }
    in VECTOR { ENTRY: "binade_vector" }

    pub(crate) struct DotVector { n: u64, x: Address, y: Address, root: u32, tree: TreeArg, gate: Address }
    in VECTOR { ENTRY: "dot_vector" }

    pub(crate) struct ObserveScalar { squared: Address, phase: u32, monitor: Address }
    in VECTOR { ENTRY: "observe_scalar" }

    pub(crate) struct RequireScalar { value: Address, positive: u32, what: u32, monitor: Address }
    in VECTOR { ENTRY: "require_scalar" }

    pub(crate) struct CgUpdateVector<T> {
        n: u64, a: CoeffArg<T>, p: Address, q: Address, x: Address, r: Address, checks: ChecksArg, tree: TreeArg,
        monitor: Address,
    }
    in VECTOR { ENTRY: "cg_update_vector" }

    pub(crate) struct ResidualStepVector<T> {
        n: u64, a: CoeffArg<T>, v: Address, r: Address, checks: ChecksArg, tree: TreeArg, monitor: Address,
    }
    in VECTOR { ENTRY: "residual_step_vector" }

    pub(crate) struct BicgstabUpdateVector<T> {
        n: u64, a: CoeffArg<T>, p: Address, o: CoeffArg<T>, s: Address, tt: Address, shadow: Address, x: Address,
        r: Address, checks: ChecksArg, tree: TreeArg, monitor: Address,
    }
    in VECTOR { ENTRY: "bicgstab_update_vector" }

    pub(crate) struct HadamardDotVector {
        n: u64, d: Address, r: Address, z: Address, tree: TreeArg, monitor: Address,
    }
    in VECTOR { ENTRY: "hadamard_dot_vector" }

    pub(crate) struct CgDirectionVector<T> {
        n: u64, z: Address, b: CoeffArg<T>, a: CoeffArg<T>, p: Address, x: Address, from: Address, to: Address,
        required: Address, what: u32, ticket: Address, monitor: Address,
    }
    in VECTOR { ENTRY: "cg_direction_vector" }

    pub(crate) struct BicgstabDirectionVector<T> {
        n: u64, r: Address, b: CoeffArg<T>, v: Address, c: CoeffArg<T>, p: Address, from: Address, to: Address,
        ticket: Address, monitor: Address,
    }
    in VECTOR { ENTRY: "bicgstab_direction_vector" }
}

/// A vector in device memory.
#[derive(Debug)]
pub struct Vector<T> {
    buffer: Buffer<T>,
}

impl<T: Real> Vector<T> {
    pub(crate) fn zeros(stream: &Arc<CudaStream>, len: usize) -> Result<Self> {
        Ok(Self { buffer: Buffer::zeros(stream, len, "a vector")? })
    }

    /// Uninitialised memory, for buffers that are completely written before they are read.
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

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first element in device memory, valid while the vector lives.
    ///
    /// Other work that uses it must wait for [`spandrel_backend::Device::synchronize`], and end before this backend
    /// uses the vector again.
    pub fn device_pointer(&self) -> sys::CUdeviceptr {
        self.buffer.pointer().get()
    }

    pub(crate) fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    pub(crate) fn pointer(&self) -> Address {
        self.buffer.pointer()
    }
}

impl Cuda {
    /// Takes over a slice allocated with cudarc on the same device, without a copy. Blocks until the slice's own stream
    /// is idle.
    ///
    /// # Errors
    /// A slice of another device; an error of work enqueued before.
    pub fn wrap<T: Real + cudarc::driver::DeviceRepr>(&self, slice: CudaSlice<T>) -> Result<Vector<T>> {
        let buffer = self.adopt(slice)?;
        self.reserve(buffer.len())?;
        Ok(Vector { buffer })
    }

    /// Turns a slice of the same device into a buffer. Blocks until the slice's own stream is idle.
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

    /// A vector over `len` elements of device memory that someone else owns, without a copy.
    ///
    /// # Errors
    /// Out of memory for the scratch memory that sums over it need.
    ///
    /// # Safety
    /// `pointer` refers to `len` elements of type `T` in memory of this backend's device, aligned to `T`. They outlive
    /// the vector and every recorded step that uses it, and nobody else uses them meanwhile.
    pub unsafe fn wrap_raw<T: Real>(&self, pointer: sys::CUdeviceptr, len: usize) -> Result<Vector<T>> {
        self.reserve(len)?;
        // SAFETY: the caller's promise.
        Ok(Vector { buffer: unsafe { Buffer::borrow(self.stream(), pointer, len) } })
    }
}

/// A scalar in device memory: in its own buffer, or one of several.
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

    /// The values of all of them, with one transfer per run of neighbours.
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

    pub(crate) fn pointer(&self) -> Address {
        self.buffer.address(self.at)
    }
}
