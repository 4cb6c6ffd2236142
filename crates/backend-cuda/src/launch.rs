//! Launches: grids, the arguments that kernels take by value, and those that the products of all formats share.
//!
//! Layout: the structures have the twins of their names in kernels/include/spandrel.cuh and kernels/vector.cu.

use std::ffi::c_void;

use cudarc::driver::sys;
use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Coeff, Gate, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::error::failed;
use crate::memory::Buffer;
use crate::module::Source;
use crate::{Cuda, Scalar, Vector};

/// Elements of a block of the dot product's tree, and rows (elements) of a thread block of most kernels.
pub(crate) const BLOCK: usize = 1024;

/// A grid: thread blocks, threads of each, dynamic shared memory in bytes, thread blocks of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) blocks: usize,
    pub(crate) threads: u32,
    pub(crate) shared: u32,
    /// 1 for none; else a divisor of `blocks`, on a device that has clusters.
    pub(crate) cluster: u32,
}

impl Grid {
    /// Thread blocks of 256 over blocks of 1024 rows or elements each.
    pub(crate) fn rows(n: usize) -> Self {
        Self::of(n.div_ceil(BLOCK), 256)
    }

    /// So many thread blocks of so many threads, without dynamic shared memory; at least one.
    pub(crate) fn of(blocks: usize, threads: u32) -> Self {
        Self { blocks: blocks.max(1), threads, shared: 0, cluster: 1 }
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
    pub(crate) owes: u32,
}
// SAFETY: `struct Checks<T>`: two pointers, then eight u32.
unsafe impl Argument for ChecksArg {}

/// An argument as the driver takes it.
pub(crate) fn arg<A: Argument>(argument: &A) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}

/// An argument of a format's own, which its kernels take before those that all products share.
#[derive(Clone, Copy)]
pub(crate) enum Own<'a> {
    Number(u32),
    /// Or an address.
    Wide(u64),
    Structure(&'a dyn Argument),
}

impl From<u32> for Own<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Own<'_> {
    fn from(wide: u64) -> Self {
        Self::Wide(wide)
    }
}

impl<'a, A: Argument> From<&'a A> for Own<'a> {
    fn from(structure: &'a A) -> Self {
        Self::Structure(structure)
    }
}

impl Own<'_> {
    /// As the driver takes them, followed by `rest`; as long as both are where they are.
    pub(crate) fn list(own: &[Self], rest: &[*mut c_void]) -> Vec<*mut c_void> {
        let address = |own: &Self| match own {
            Own::Number(number) => arg(number),
            Own::Wide(wide) => arg(wide),
            Own::Structure(structure) => std::ptr::from_ref(*structure).cast_mut().cast(),
        };
        own.iter().map(address).chain(rest.iter().copied()).collect()
    }
}

/// What every product y = a A x + b y ends its arguments with: a, x, b, y, gate.
pub(crate) struct Product<T> {
    a: CoeffArg<T>,
    x: u64,
    b: CoeffArg<T>,
    y: u64,
    gate: u64,
}

impl<T: Real> Product<T> {
    /// Of a matrix of so many rows and columns.
    ///
    /// # Errors
    /// Vectors of other lengths.
    pub(crate) fn new(
        (nrows, ncols): (usize, usize),
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<Self> {
        Self::named("spmv", (nrows, ncols), gate, a, x, b, y)
    }

    /// The same as a step of the operation `op`.
    ///
    /// # Errors
    /// Vectors of other lengths.
    pub(crate) fn named(
        op: &'static str,
        (nrows, ncols): (usize, usize),
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<Self> {
        expect_len(op, "x", x.len(), ncols)?;
        expect_len(op, "y", y.len(), nrows)?;
        Ok(Self { a: a.into(), x: x.pointer(), b: b.into(), y: y.pointer(), gate: gate_pointer(gate) })
    }

    /// The same with `k` columns in x and y; the kernel takes k among its own.
    ///
    /// # Errors
    /// Vectors of other lengths.
    pub(crate) fn of_columns(
        (nrows, ncols): (usize, usize),
        k: usize,
        gate: Gate<'_, Cuda>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<Self> {
        expect_columns("spmm", "x", x.len(), ncols, k)?;
        expect_columns("spmm", "y", y.len(), nrows, k)?;
        Ok(Self { a: a.into(), x: x.pointer(), b: b.into(), y: y.pointer(), gate: gate_pointer(gate) })
    }

    /// That of one of these columns.
    pub(crate) fn of_column(&self, (nrows, ncols): (usize, usize), column: usize) -> Self {
        let at = |base: u64, len: usize| base + (len * column * T::BYTES) as u64;
        Self { x: at(self.x, ncols), y: at(self.y, nrows), ..*self }
    }

    /// The address of x.
    pub(crate) fn x(&self) -> u64 {
        self.x
    }

    /// Enqueues `name(own, a, x, b, y, gate)`.
    ///
    /// # Safety
    /// As [`Cuda::launch`] for the kernel's own arguments; they are of a matrix of the rows and columns that this was made for.
    pub(crate) unsafe fn launch(
        &self,
        cuda: &Cuda,
        source: &Source,
        name: &'static str,
        grid: Grid,
        own: &[Own<'_>],
    ) -> Result<()> {
        let rest = [arg(&self.a), arg(&self.x), arg(&self.b), arg(&self.y), arg(&self.gate)];
        // SAFETY: the lengths of x and y were compared; the caller vouches for the kernel's own.
        unsafe { cuda.launch::<T>(source, name, grid, &mut Own::list(own, &rest)) }
    }
}

/// What every product y = A x with the sums w . y and y . y ends its arguments with: x, y, w, tree, gate. Where parts of a block of 1024
/// rows are counted, the counts stand before the tree.
pub(crate) struct ProductDot {
    x: u64,
    y: u64,
    w: u64,
    tree: TreeArg,
    gate: u64,
}

impl ProductDot {
    /// Of a matrix of so many rows and columns.
    ///
    /// # Errors
    /// Vectors of other lengths; no memory for the sums.
    pub(crate) fn new<T: Real>(
        cuda: &Cuda,
        (nrows, ncols): (usize, usize),
        gate: Gate<'_, Cuda>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<Self> {
        expect_len("spmv_dot", "x", x.len(), ncols)?;
        expect_len("spmv_dot", "y", y.len(), nrows)?;
        expect_len("spmv_dot", "w", w.len(), nrows)?;
        let tree = cuda.tree(nrows, [wy.pointer(), yy.map_or(0, |yy| yy.pointer())])?;
        Ok(Self { x: x.pointer(), y: y.pointer(), w: w.pointer(), tree, gate: gate_pointer(gate) })
    }

    /// The address of x.
    pub(crate) fn x(&self) -> u64 {
        self.x
    }

    /// Enqueues `name_type(own, x, y, w, tree, gate)`, with `arrivals` before the tree if given.
    ///
    /// # Safety
    /// As [`Product::launch`]; `arrivals` are those of the matrix where the kernel takes them.
    pub(crate) unsafe fn launch<T: Real>(
        &self,
        cuda: &Cuda,
        source: &Source,
        name: &'static str,
        grid: Grid,
        own: &[Own<'_>],
        arrivals: Option<&Buffer<u32>>,
    ) -> Result<()> {
        let arrivals = arrivals.map(Buffer::pointer);
        let mut rest = vec![arg(&self.x), arg(&self.y), arg(&self.w)];
        rest.extend(arrivals.iter().map(arg));
        rest.extend([arg(&self.tree), arg(&self.gate)]);
        // SAFETY: the lengths of x, y and w were compared; the caller vouches for the kernel's own.
        unsafe { cuda.launch::<T>(source, name, grid, &mut Own::list(own, &rest)) }
    }
}

impl Cuda {
    /// Enqueues the kernel `name_type` of a module; an early one may be launched while the kernel before it ends, and waits for it. Does
    /// not block.
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
        use sys::CUlaunchAttributeID as Id;
        let function = self.function(source, name, T::NAME)?;
        if grid.shared > 48 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.function.set_attribute(attribute, grid.shared as i32).map_err(|error| failed(name, error))?;
        }
        self.context().bind_to_thread().map_err(|error| failed(name, error))?;
        let blocks = u32::try_from(grid.blocks).map_err(|_| spandrel_backend::Error::Unsupported {
            op: name,
            noun: source.stem,
            why: format!("{} thread blocks, more than a grid holds", grid.blocks),
        })?;
        let attribute = |id, value| sys::CUlaunchAttribute { id, pad: [0; 4], value };
        let cluster = sys::CUlaunchAttributeValue {
            clusterDim: sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: grid.cluster, y: 1, z: 1 },
        };
        let early = sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 };
        // The first `count` are meant.
        let (mut attributes, mut count) = ([attribute(Id::CU_LAUNCH_ATTRIBUTE_IGNORE, early); 2], 0);
        if grid.cluster > 1 {
            attributes[count] = attribute(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, cluster);
            count += 1;
        }
        if function.early() {
            attributes[count] = attribute(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, early);
            count += 1;
        }
        let config = sys::CUlaunchConfig {
            gridDimX: blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: grid.shared,
            hStream: self.stream().cu_stream(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        // SAFETY: the function belongs to the bound context; the configuration and its attributes live until the call returns; the caller
        // vouches for the arguments. A kernel launched early waits before it does anything (`Function::early`), and so ends after all
        // work ahead of it, as the one behind it may rely on.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.function.cu_function(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
        .map_err(|error| failed(name, error))
    }
}
