//! CSR onto the GPU: the arrays, and what its products need to know of its rows.
//!
//! Layout and cost: see [`super`].

use std::sync::OnceLock;

use cudarc::driver::sys;
use spandrel_backend::Result;
use spandrel_formats::{Csr, Format, Offset, Real};

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

/// The arrays of [`CudaCsr`], and its reach.
pub(super) struct Arrays<T> {
    pub(super) row_ptr: Buffer<u32>,
    pub(super) col_idx: Buffer<u32>,
    pub(super) values: Buffer<T>,
    pub(super) reach: Option<(Reach, usize)>,
}

/// Host data and zeros up to a multiple of four elements.
pub(crate) fn padded<E: bytemuck::Pod>(cuda: &Cuda, host: &[E], what: &'static str) -> Result<Buffer<E>> {
    let buffer = Buffer::uninit(cuda.stream(), host.len().next_multiple_of(4), what)?;
    buffer.write_at(0, host)?;
    buffer.write_at(host.len(), &[E::zeroed(); 4][..buffer.len() - host.len()])?;
    Ok(buffer)
}

impl Cuda {
    pub(crate) fn load_csr<T: Real>(&self, host: &Csr<T>, forced: Option<CsrKernel>) -> Result<CudaCsr<T>> {
        let arrays = Arrays {
            row_ptr: Buffer::from_host(self.stream(), host.row_ptr(), "a matrix's row pointers")?,
            col_idx: padded(self, host.col_idx(), "a matrix's columns")?,
            values: padded(self, host.values(), "a matrix's values")?,
            reach: self.may_persist(host.nrows(), host.ncols()).then(|| reach(host)),
        };
        self.make_csr((host.nrows(), host.ncols()), host.row_ptr(), arrays, forced)
    }

    /// A matrix of what lies on the device already, for which `row_ptr` says how long its rows are.
    pub(super) fn make_csr<T: Real>(
        &self,
        (nrows, ncols): (usize, usize),
        row_ptr: &[Offset],
        Arrays { row_ptr: on_device, col_idx, values, reach }: Arrays<T>,
        forced: Option<CsrKernel>,
    ) -> Result<CudaCsr<T>> {
        let nnz = row_ptr[nrows] as usize;
        let stats = RowStats::of(row_ptr);
        let spmv = (4 * (nrows + 1) + (4 + T::BYTES) * nnz + (nrows + ncols) * T::BYTES) as u64;
        let choice = || stats.choose(nrows, nnz, spmv, self.multiprocessors(), self.reproducible());
        let kernel = forced.unwrap_or_else(choice);
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = self.context().attribute(attribute).map_err(|error| failed("asking for shared memory", error))?;
        // Some of it for what kernels declare themselves.
        let shared = (shared.max(48 << 10) as usize) - (1 << 10);
        let entry = size_of::<u32>() + T::BYTES;
        let limit = STAGING_BYTES.min(shared / STAGED_WARPS) / entry / GROUP * GROUP;
        let swizzled = 2 * stats.eights > nrows;
        // Swizzled, a room is whole 128 bytes of either array.
        let capacity = stats.capacity(nnz, limit - GROUP) + if swizzled { GROUP } else { SPARE };
        let dot_warps = ((shared - 2 * BLOCK * T::BYTES) / (capacity * entry)).clamp(1, STAGED_DOT_WARPS);
        let bins = match kernel {
            CsrKernel::Binned => Some(Bins::new(self, row_ptr)?),
            _ => None,
        };
        let pieces = match kernel {
            CsrKernel::Balanced => Some(Marked::new(self, row_ptr)?),
            _ => None,
        };
        Ok(CudaCsr {
            nrows,
            ncols,
            nnz,
            row_ptr: on_device,
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
            transposed: OnceLock::new(),
        })
    }
}
