//! HYB on the CPU: ELL's kernel, then COO's on the same accumulators.
//!
//! Layout: the host matrix itself, shared, and the start of every 16th row of the COO part.
//! Cost: [`spandrel_formats::Traffic::spmv_bytes`]. Order: stored. Both parts of a chunk of rows run while it is in
//! first-level cache, so y is written once.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Hyb, Real};

use crate::coo::Starts;
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::Simd;
use crate::{Cpu, coo, ell};

/// A HYB matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuHyb<T> {
    host: Arc<Hyb<T>>,
    starts: Starts,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Hyb<T>> for Cpu {
    type Resident = CpuHyb<T>;

    fn load(&self, host: Arc<Hyb<T>>) -> Result<CpuHyb<T>> {
        let starts = Starts::new(host.nrows(), host.coo().rows())?;
        let row = host.ell().width() * (4 + T::BYTES) + 2 * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row + starts.of(i) * (8 + T::BYTES));
        Ok(CpuHyb { host, starts, partition })
    }
}

impl<T: Real> Rows<T> for CpuHyb<T> {
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
        ell::accumulate(simd, self.host.ell(), rows.clone(), x, out);
        if self.starts.of(rows.start) < self.starts.of(rows.end) {
            coo::accumulate::<T, true>(simd, self.host.coo(), &self.starts, rows, x, out);
        }
    }
}

spmv_by_rows!(Hyb);
