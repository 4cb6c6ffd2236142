//! HEC on the CPU: an HMEC matrix with at most one block, multiplied by HMEC's kernel.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv_bytes`]. Order: stored, as in
//! [`crate::hmec`].

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Hec, Ordinal, Real};

use crate::Cpu;
use crate::hmec::{accumulate, partition};
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::Simd;

/// A HEC matrix, shared with the host, and the partition of its stored rows.
#[derive(Clone, Debug)]
pub struct CpuHec<T> {
    host: Arc<Hec<T>>,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Hec<T>> for Cpu {
    type Resident = CpuHec<T>;

    fn load(&self, host: Arc<Hec<T>>) -> Result<CpuHec<T>> {
        let partition = partition(self, host.as_hmec());
        Ok(CpuHec { host, partition })
    }
}

impl<T: Real> Rows<T> for CpuHec<T> {
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
        accumulate(simd, self.host.as_hmec(), rows, x, out);
    }
    fn perm(&self) -> Option<&[Ordinal]> {
        Some(self.host.perm())
    }
    fn blockwise(&self) -> bool {
        false
    }
}

spmv_by_rows!(Hec);
