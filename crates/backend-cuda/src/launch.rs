//! Launches: grids, and the arguments that kernels take by value.
//!
//! Layout: the structures have the twins of their names in kernels/include/spandrel.cuh and kernels/vector.cu.

use std::ffi::c_void;

use cudarc::driver::{result, sys};
use spandrel_backend::{Coeff, Result};
use spandrel_formats::Real;

use crate::error::failed;
use crate::module::Source;
use crate::{Cuda, Scalar};

/// Elements of a block of the dot product's tree, and rows (elements) of a thread block of most kernels.
pub(crate) const BLOCK: usize = 1024;

/// A grid: thread blocks, threads of each, dynamic shared memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: usize,
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

impl Grid {
    /// Thread blocks of 256 over blocks of 1024 rows or elements each.
    pub(crate) fn rows(n: usize) -> Self {
        Self::of(n.div_ceil(BLOCK), 256)
    }

    /// So many thread blocks of so many threads, without dynamic shared memory; at least one.
    pub(crate) fn of(blocks: usize, threads: u32) -> Self {
        Self { blocks: blocks.max(1), threads, shared: 0 }
    }
}

/// What a kernel may take as an argument: plain data of the size and alignment that the kernel's parameter has.
///
/// # Safety
/// The type has the layout of its twin in the kernels.
pub(crate) unsafe trait Argument {}
// SAFETY: the same in both languages.
unsafe impl Argument for u32 {}
// SAFETY: the same in both languages; also every pointer.
unsafe impl Argument for u64 {}
// SAFETY: the same in both languages.
unsafe impl Argument for f32 {}
// SAFETY: the same in both languages.
unsafe impl Argument for f64 {}

/// A coefficient with the addresses of its scalars, 0 for none.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CoeffArg<T> {
    host: T,
    num: [u64; 2],
    den: [u64; 2],
}
// SAFETY: `struct Coeff<T>`: a T, padded to 8 bytes by both compilers, and four pointers.
unsafe impl<T: Real> Argument for CoeffArg<T> {}

impl<T: Real> From<Coeff<'_, T, Scalar<T>>> for CoeffArg<T> {
    fn from(coeff: Coeff<'_, T, Scalar<T>>) -> Self {
        let address = |s: Option<&Scalar<T>>| s.map_or(0, Scalar::pointer);
        Self { host: coeff.host, num: coeff.num.map(address), den: coeff.den.map(address) }
    }
}

/// Room for the block results of sums over one length, the tickets, and where the sums go.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TreeArg {
    pub(crate) partials: u64,
    pub(crate) stride: u64,
    pub(crate) tickets: u64,
    pub(crate) out: [u64; 2],
}
// SAFETY: `struct Tree<T>`: pointers and one u64, in this order.
unsafe impl Argument for TreeArg {}

/// What a fused step checks before its work and observes after it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ChecksArg {
    pub(crate) value: [u64; 2],
    pub(crate) positive: u32,
    pub(crate) what: [u32; 2],
    pub(crate) observe: u32,
    pub(crate) phase: u32,
    pub(crate) nonzero: u32,
    pub(crate) after: u32,
}
// SAFETY: `struct Checks<T>`: two pointers, then seven u32.
unsafe impl Argument for ChecksArg {}

/// An argument as the driver takes it.
pub(crate) fn arg<A: Argument>(argument: &A) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}

impl Cuda {
    /// Enqueues the kernel `name_type` of a module. Does not block.
    ///
    /// # Safety
    /// `arguments` are those that the kernel declares, in order; every address among them is that of device memory as large as
    /// the kernel's head says and that lives until the queue has passed the kernel; nothing of it that the kernel writes is read
    /// or written by work outside the queue meanwhile.
    pub(crate) unsafe fn launch<T: Real>(
        &self,
        source: &Source,
        name: &'static str,
        grid: Grid,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let function = self.function(source, name, T::NAME)?;
        if grid.shared > 48 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, grid.shared as i32).map_err(|error| failed(name, error))?;
        }
        self.context().bind_to_thread().map_err(|error| failed(name, error))?;
        let blocks = u32::try_from(grid.blocks).map_err(|_| spandrel_backend::Error::Unsupported {
            op: name,
            noun: source.stem,
            why: format!("{} thread blocks, more than a grid holds", grid.blocks),
        })?;
        // SAFETY: the function belongs to the bound context; the caller vouches for the arguments.
        unsafe {
            result::launch_kernel(
                function.cu_function(),
                (blocks, 1, 1),
                (grid.threads, 1, 1),
                grid.shared,
                self.stream().cu_stream(),
                arguments,
            )
        }
        .map_err(|error| failed(name, error))
    }
}
