//! Loads CSR onto the GPU: the arrays, and what its products need to know about the rows.
//!
//! Layout and cost: see [`super`].

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;
use spandrel_backend::Result;
use spandrel_formats::{Csr, Offset, Real};

use super::choose::{GROUP, RowStats, SHORT, SPARE, STAGED_DOT_WARPS, STAGED_WARPS, STAGING_BYTES, large};
use super::classes::Bins;
use super::marked::Marked;
use super::persistent::reach;
use super::{CsrKernel, CudaCsr};
use crate::Cuda;
use crate::error::failed;
use crate::launch::BLOCK;
use crate::memory::Buffer;
use crate::persistent::Reach;
use crate::runs::Index;

/// The arrays of [`CudaCsr`], its reach, and statistics of its rows.
pub(super) struct Arrays<T> {
    pub(super) row_ptr: Arc<Buffer<u32>>,
    pub(super) col_idx: Arc<Buffer<u32>>,
    pub(super) values: Buffer<T>,
    pub(super) reach: Option<(Reach, usize)>,
    pub(super) stats: RowStats,
}

impl Cuda {
    pub(crate) fn load_csr<T: Real>(&self, host: &Csr<T>, forced: Option<CsrKernel>) -> Result<CudaCsr<T>> {
        let row_ptr = Buffer::uninit(self.stream(), host.row_ptr().len(), "a matrix's row pointers")?;
        let col_idx = Buffer::uninit(self.stream(), host.nnz(), "a matrix's columns")?;
        let values = Buffer::uninit(self.stream(), host.nnz(), "a matrix's values")?;
        let index = Index { row_ptr: (&row_ptr, host.row_ptr()), col_idx: (&col_idx, host.col_idx()) };
        self.write_rows(&index, vec![values.write(0, host.values())])?;
        let arrays = Arrays {
            row_ptr: Arc::new(row_ptr),
            col_idx: Arc::new(col_idx),
            values,
            reach: self.may_persist(host.nrows(), host.ncols()).then(|| reach(host)),
            stats: RowStats::of(host.row_ptr()),
        };
        let row_ptr = || Ok(Cow::Borrowed(host.row_ptr()));
        self.make_csr((host.nrows(), host.ncols(), host.nnz()), row_ptr, arrays, forced)
    }

    /// Makes a matrix from arrays on the device. `rows` provides the row pointers for kernels that need classes or
    /// pieces of rows.
    pub(super) fn make_csr<'a, T: Real>(
        &self,
        (nrows, ncols, nnz): (usize, usize, usize),
        rows: impl FnOnce() -> Result<Cow<'a, [Offset]>>,
        Arrays { row_ptr, col_idx, values, reach, stats }: Arrays<T>,
        forced: Option<CsrKernel>,
    ) -> Result<CudaCsr<T>> {
        let spmv = (4 * (nrows + 1) + (4 + T::BYTES) * nnz + (nrows + ncols) * T::BYTES) as u64;
        let choice = || stats.choose(nrows, nnz, spmv, self.multiprocessors(), self.reproducible());
        let kernel = forced.unwrap_or_else(choice);
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = self.context().attribute(attribute).map_err(|error| failed("asking for shared memory", error))?;
        // Leave some shared memory for the static arrays of the kernels.
        let shared = (shared.max(48 << 10) as usize) - (1 << 10);
        let entry = size_of::<u32>() + T::BYTES;
        let limit = STAGING_BYTES.min(shared / STAGED_WARPS) / entry / GROUP * GROUP;
        let swizzled = 2 * stats.eights > nrows;
        // Swizzled: a room is a multiple of 128 bytes for either array.
        let capacity = stats.capacity(nnz, limit - GROUP) + if swizzled { GROUP } else { SPARE };
        let dot_warps = ((shared - 2 * BLOCK * T::BYTES) / (capacity * entry)).clamp(1, STAGED_DOT_WARPS);
        let (bins, pieces) = match kernel {
            CsrKernel::Binned => (Some(Bins::new(self, &row_ptr, nnz)?), None),
            CsrKernel::Balanced => (None, Some(Marked::new(self, &rows()?)?)),
            _ => (None, None),
        };
        Ok(CudaCsr {
            nrows,
            ncols,
            nnz,
            row_ptr,
            col_idx,
            values,
            kernel,
            capacity,
            swizzled,
            short: !swizzled && stats.longest <= SHORT,
            dot_warps,
            pieces,
            large: large(nnz, self.multiprocessors()),
            bins,
            reach,
            stats,
            transposed: OnceLock::new(),
            rewritten: false,
        })
    }
}
