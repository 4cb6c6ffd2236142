//! HMEC on the CPU: ELL's kernel for each block and CSR's for the rest, on the same accumulators.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//! Order: stored. All parts of a chunk of stored rows run while it is in first-level cache; then y is written once
//! through the permutation. The permutation may move a row anywhere in y, so dot products are not fused.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Hmec, Ordinal, Real};

use crate::Cpu;
use crate::csr::gather_rows;
use crate::ell::{Packed, packed};
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::Simd;

/// Partitions the stored rows of an HMEC matrix.
pub(crate) fn partition<T: Real>(cpu: &Cpu, m: &Hmec<T>) -> Partition {
    let rest = m.rest().row_ptr();
    Partition::by_cost(cpu, m.nrows(), |i| {
        let packed: usize = m.blocks().iter().map(|block| i.min(block.rows()) * block.width()).sum();
        (packed + rest[i.min(rest.len() - 1)] as usize) * (4 + T::BYTES) + i * (4 + 2 * T::BYTES)
    })
}

/// Forms the accumulators of the stored rows `rows`.
pub(crate) fn accumulate<T: Real>(simd: Simd, m: &Hmec<T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    let mut formed = 0;
    for block in m.blocks() {
        if block.rows() <= rows.start {
            break;
        }
        let out = &mut out[..rows.end.min(block.rows()) - rows.start];
        let strip = Packed {
            cols: block.cols(),
            values: block.values(),
            first: rows.start,
            stride: block.rows(),
            width: block.width(),
        };
        if formed == 0 {
            packed::<T, false>(simd, strip, x, out);
            formed = out.len();
        } else {
            packed::<T, true>(simd, strip, x, out);
        }
    }
    // Rows beyond the first block have no entry in any block.
    out[formed..].fill(T::zero());
    let rest = m.rest();
    let end = rows.end.min(rest.nrows());
    if rows.start < end {
        let ptr = &rest.row_ptr()[rows.start..end + 1];
        gather_rows::<T, true>(simd, ptr, rest.col_idx(), rest.values(), x, &mut out[..end - rows.start]);
    }
}

/// An HMEC matrix, shared with the host, and the partition of its stored rows.
#[derive(Clone, Debug)]
pub struct CpuHmec<T> {
    host: Arc<Hmec<T>>,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Hmec<T>> for Cpu {
    type Resident = CpuHmec<T>;

    fn load(&self, host: Arc<Hmec<T>>) -> Result<CpuHmec<T>> {
        let partition = partition(self, &host);
        Ok(CpuHmec { host, partition })
    }
}

impl<T: Real> Rows<T> for CpuHmec<T> {
    const CHUNK: usize = MAX_CHUNK;

    fn nrows(&self) -> usize {
        self.host.nrows()
    }
    fn ncols(&self) -> usize {
        self.host.ncols()
    }
    fn partition(&self) -> &Partition {
        &self.partition
    }
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]) {
        accumulate(simd, &self.host, rows, x, out);
    }
    fn perm(&self) -> Option<&[Ordinal]> {
        Some(self.host.perm())
    }
    fn blockwise(&self) -> bool {
        false
    }
}

spmv_by_rows!(Hmec);
