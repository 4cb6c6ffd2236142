//! bDIA on the CPU.
//!
//! Layout: the host matrix itself, shared, and its bands' offsets written out (4 bytes a diagonal).
//! Cost: [`spandrel_formats::Traffic::spmv`]. Order: stored, by ascending offset.
//! The window of x that a GPU stages in shared memory is what first-level cache holds here, so the kernel is DIA's.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Bdia, Format, Real};

use crate::Cpu;
use crate::dia::diagonals;
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::Simd;

/// A bDIA matrix, shared with the host, its offsets and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuBdia<T> {
    host: Arc<Bdia<T>>,
    offsets: Vec<i32>,
    partition: Partition,
}

// SAFETY: what is loaded never changes, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Bdia<T>> for Cpu {
    type Resident = CpuBdia<T>;

    fn load(&self, host: Arc<Bdia<T>>) -> Result<CpuBdia<T>> {
        let offsets: Vec<i32> = host.offsets().collect();
        let row = (offsets.len() + 2) * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row);
        Ok(CpuBdia { host, offsets, partition })
    }
}

impl<T: Real> Rows<T> for CpuBdia<T> {
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
        diagonals(simd, &self.offsets, self.host.values(), self.host.nrows(), rows, x, out);
    }
}

spmv_by_rows!(Bdia);
