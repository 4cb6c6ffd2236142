//! Sparse vectors on the GPU.
//!
//! Layout: the host's positions and values; gather overwrites the values.
//! Order: element-wise, and the tree of [`spandrel_backend::Backend::dot`] over the packed entries.
//! Cost: positions and values once, y at the stored positions by sectors of 32 bytes. Kernels: kernels/sparse_vec.cu.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Result, SparseVector};
use spandrel_formats::{Real, SparseVec};

use crate::device::gate_pointer;
use crate::kernel::kernels;
use crate::launch::{BLOCK, CoeffArg, Grid, TreeArg};
use crate::memory::{Address, Buffer};
use crate::{Cuda, Scalar, Vector};

kernels! {
    struct AxpySparseVec<T> { nnz: u64, a: CoeffArg<T>, indices: Address, values: Address, y: Address, gate: Address }
    in SPARSE_VEC { ENTRY: "axpy_sparse_vec" }

    pub(crate) struct GatherSparseVec { nnz: u64, indices: Address, y: Address, values: Address, gate: Address }
    in SPARSE_VEC { ENTRY: "gather_sparse_vec" }

    pub(crate) struct ScatterSparseVec { nnz: u64, indices: Address, values: Address, y: Address, gate: Address }
    in SPARSE_VEC { ENTRY: "scatter_sparse_vec" }

    struct DotSparseVec { nnz: u64, indices: Address, values: Address, y: Address, tree: TreeArg, gate: Address }
    in SPARSE_VEC { ENTRY: "dot_sparse_vec" }
}

/// A sparse vector in device memory.
#[derive(Debug)]
pub struct CudaSparseVec<T> {
    len: usize,
    indices: Buffer<u32>,
    values: Buffer<T>,
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<SparseVec<T>> for Cuda {
    type Resident = CudaSparseVec<T>;

    fn load(&self, host: Arc<SparseVec<T>>) -> Result<CudaSparseVec<T>> {
        let indices = Buffer::from_host(self.stream(), host.indices(), "a sparse vector's positions")?;
        let values = Buffer::from_host(self.stream(), host.values(), "a sparse vector's values")?;
        // Memory for the block results of its dot product, which a recorded step must not allocate.
        self.reserve(values.len())?;
        Ok(CudaSparseVec { len: host.len(), indices, values })
    }
}

impl<T: Real> SparseVector<T> for Cuda {
    fn sparse_axpy(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        s: &CudaSparseVec<T>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("sparse_axpy", "y", y.len(), s.len)?;
        let (nnz, a, indices, values) =
            (s.values.len() as u64, CoeffArg::from(a), s.indices.pointer(), s.values.pointer());
        let (y, gate, grid) = (y.pointer(), gate_pointer(gate), Grid::rows(s.values.len()));
        let parameters = AxpySparseVec { nnz, a, indices, values, y, gate };
        // SAFETY: axpy_sparse_vec(nnz, a, indices, values, y, gate), every index below y's length.
        unsafe { self.launch::<T, _>(AxpySparseVec::ENTRY, grid, &parameters) }
    }

    fn sparse_dot(&self, gate: Gate<'_, Self>, s: &CudaSparseVec<T>, y: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        expect_len("sparse_dot", "y", y.len(), s.len)?;
        let warps = s.values.len().div_ceil(BLOCK);
        let each = (warps / (4 * self.multiprocessors().max(1))).clamp(1, 8);
        let grid = Grid::of(warps.div_ceil(each), 32 * each as u32);
        let tree = self.tree::<T>(s.values.len(), [out.pointer(), Address::NULL])?;
        let (nnz, indices, values) = (s.values.len() as u64, s.indices.pointer(), s.values.pointer());
        let parameters = DotSparseVec { nnz, indices, values, y: y.pointer(), tree, gate: gate_pointer(gate) };
        // SAFETY: dot_sparse_vec(nnz, indices, values, y, tree, gate), every index below y's length.
        unsafe { self.launch::<T, _>(DotSparseVec::ENTRY, grid, &parameters)? };
        self.complete(gate, s.values.len(), false, [out])
    }

    fn gather(&self, gate: Gate<'_, Self>, y: &Vector<T>, s: &mut CudaSparseVec<T>) -> Result<()> {
        expect_len("gather", "y", y.len(), s.len)?;
        let (nnz, indices, values) = (s.values.len() as u64, s.indices.pointer(), s.values.pointer());
        let (y, gate, grid) = (y.pointer(), gate_pointer(gate), Grid::rows(s.values.len()));
        let parameters = GatherSparseVec { nnz, indices, y, values, gate };
        // SAFETY: gather_sparse_vec(nnz, indices, y, values, gate), every index below y's length.
        unsafe { self.launch::<T, _>(GatherSparseVec::ENTRY, grid, &parameters) }
    }

    fn scatter(&self, gate: Gate<'_, Self>, s: &CudaSparseVec<T>, y: &mut Vector<T>) -> Result<()> {
        expect_len("scatter", "y", y.len(), s.len)?;
        let (nnz, indices, values) = (s.values.len() as u64, s.indices.pointer(), s.values.pointer());
        let (y, gate, grid) = (y.pointer(), gate_pointer(gate), Grid::rows(s.values.len()));
        let parameters = ScatterSparseVec { nnz, indices, values, y, gate };
        // SAFETY: scatter_sparse_vec(nnz, indices, values, y, gate), every index below y's length.
        unsafe { self.launch::<T, _>(ScatterSparseVec::ENTRY, grid, &parameters) }
    }

    fn download_sparse(&self, s: &CudaSparseVec<T>) -> Result<Vec<T>> {
        s.values.to_host("a sparse vector's values on the host")
    }
}
