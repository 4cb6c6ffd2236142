//! Launches: grids, the parameters that kernels take by value, and the parameters that the products of all formats
//! share.
//!
//! Layout: the structures have twins of the same names in kernels/include/spandrel.cuh and kernels/vector.cu.

use cudarc::driver::sys;
use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Coeff, Gate, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::error::failed;
use crate::kernel::{Argument, Entry, ForElement, List, parameters};
use crate::memory::{Address, Buffer};
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

    /// A grid of `blocks` thread blocks, at least one, without dynamic shared memory.
    pub(crate) fn of(blocks: usize, threads: u32) -> Self {
        Self { blocks: blocks.max(1), threads, shared: 0, cluster: 1 }
    }
}

/// A coefficient with the addresses of its scalars.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CoeffArg<T> {
    host: T,
    num: [Address; 2],
    den: [Address; 2],
}
// SAFETY: `struct Coeff<T>`: a T, padded to 8 bytes by both compilers, and four pointers.
unsafe impl<T: Real> Argument for CoeffArg<T> {}

impl<T: Real> From<Coeff<'_, T, Scalar<T>>> for CoeffArg<T> {
    fn from(coeff: Coeff<'_, T, Scalar<T>>) -> Self {
        let address = |s: Option<&Scalar<T>>| s.map_or(Address::NULL, Scalar::pointer);
        Self { host: coeff.host, num: coeff.num.map(address), den: coeff.den.map(address) }
    }
}

/// Memory for the block results of sums over one length, the tickets, and the destinations of the sums.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TreeArg {
    pub(crate) partials: Address,
    pub(crate) stride: u64,
    pub(crate) tickets: Address,
    pub(crate) out: [Address; 2],
}
// SAFETY: `struct Tree<T>`: pointers and one u64, in this order.
unsafe impl Argument for TreeArg {}

/// The checks of a fused step before its work, and its observation afterwards.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ChecksArg {
    pub(crate) value: [Address; 2],
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

parameters! {
    /// The last parameters of every product y = a A x + b y.
    pub(crate) struct Product<T> { a: CoeffArg<T>, x: Address, b: CoeffArg<T>, y: Address, gate: Address }

    /// The last parameters of a product y = a A x + b z, where z may be y.
    pub(crate) struct Update<T> {
        a: CoeffArg<T>, x: Address, b: CoeffArg<T>, y: Address, z: Address, gate: Address,
    }

    /// The last parameters of every product y = A x with the sums w . y and y . y.
    pub(crate) struct ProductDot { x: Address, y: Address, w: Address, tree: TreeArg, gate: Address }

    /// The same, with counters for the parts of a block of 1024 rows.
    pub(crate) struct CountedProductDot {
        x: Address, y: Address, w: Address, arrivals: Address, tree: TreeArg, gate: Address,
    }
}

impl<T> From<Product<T>> for Update<T> {
    fn from(Product { a, x, b, y, gate }: Product<T>) -> Self {
        Self { a, x, b, y, z: y, gate }
    }
}

impl<T: Real> Update<T> {
    /// The operands of r = b - A x with an `nrows` x `ncols` matrix.
    ///
    /// # Errors
    /// Vectors of other lengths.
    pub(crate) fn residual(
        shape: (usize, usize),
        gate: Gate<'_, Cuda>,
        b: &Vector<T>,
        x: &Vector<T>,
        r: &mut Vector<T>,
    ) -> Result<Self> {
        expect_len("residual", "b", b.len(), shape.0)?;
        let product = Product::named("residual", shape, gate, Coeff::host(-T::one()), x, Coeff::one(), r)?;
        Ok(Self { z: b.pointer(), ..product.into() })
    }
}

impl<T: Real> Product<T> {
    /// The operands of a product with an `nrows` x `ncols` matrix.
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

    /// As [`Product::new`], for the operation `op`.
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

    /// As [`Product::named`], with `k` columns in x and y. The kernel takes k among its own parameters.
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

    /// The operands of one of these columns.
    pub(crate) fn of_column(&self, (nrows, ncols): (usize, usize), column: usize) -> Self {
        let at = |base: Address, len: usize| base.offset(len * column * T::BYTES);
        Self { x: at(self.x, ncols), y: at(self.y, nrows), ..*self }
    }
}

impl ProductDot {
    /// The operands of a product with an `nrows` x `ncols` matrix, with sums.
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
        let tree = cuda.tree::<T>(nrows, [wy.pointer(), yy.map_or(Address::NULL, |yy| yy.pointer())])?;
        Ok(Self { x: x.pointer(), y: y.pointer(), w: w.pointer(), tree, gate: gate_pointer(gate) })
    }

    /// Adds the counts of the parts that have ended, for a matrix whose kernels take them.
    pub(crate) fn counted(self, arrivals: &Buffer<u32>) -> CountedProductDot {
        let Self { x, y, w, tree, gate } = self;
        CountedProductDot { x, y, w, arrivals: arrivals.pointer(), tree, gate }
    }
}

impl Cuda {
    /// Enqueues a kernel for elements of type `T`. An early kernel may start while the previous one ends, and waits for
    /// it. Does not block.
    ///
    /// # Safety
    /// Every address among the parameters is that of device memory. It is as large as the kernel's head says and lives
    /// until the queue has passed the kernel. Until then, work outside the queue does not read or write what the kernel
    /// writes. Numbers have the meaning and range that the kernel documents.
    pub(crate) unsafe fn launch<T: Real, P: ForElement<T>>(
        &self,
        entry: Entry<P>,
        grid: Grid,
        parameters: &P,
    ) -> Result<()> {
        use sys::CUlaunchAttributeID as Id;
        let Entry { source, name, .. } = entry;
        let function = self.function::<T, P>(entry)?;
        if grid.shared > 48 << 10 {
            function.allow_shared(grid.shared).map_err(|error| failed(name, error))?;
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
        // Only the first `count` matter.
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
        let mut list = List::of(parameters);
        // SAFETY: the function belongs to the bound context; the configuration, its attributes and the parameters live
        // until the call returns; the parameters are those that the kernel declares (crate::kernel), and the caller
        // vouches for what they say. A kernel launched early waits before it does anything (`Function::early`). So it
        // ends after all work ahead of it, and the next kernel may rely on that.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function.function.cu_function(),
                list.addresses().as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
        .map_err(|error| failed(name, error))
    }
}
