//! SELL-C-sigma on the CPU.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv_bytes`]. Order: stored.
//! A slice is a strip for the kernel of [`crate::ell`], with stride C. Rows are written through the permutation. If the
//! sorting windows divide 1024 rows, a finished block of slices is a finished block of y, and dot products are fused.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Ordinal, Real, Sell};

use crate::Cpu;
use crate::dot::BLOCK;
use crate::ell::{Packed, packed};
use crate::partition::Partition;
use crate::product::{Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::Simd;

/// A SELL matrix, shared with the host, and the partition of its slices.
#[derive(Clone, Debug)]
pub struct CpuSell<T> {
    host: Arc<Sell<T>>,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Sell<T>> for Cpu {
    type Resident = CpuSell<T>;

    fn load(&self, host: Arc<Sell<T>>) -> Result<CpuSell<T>> {
        let (c, ptr) = (host.c(), host.slice_ptr());
        let partition = Partition::by_cost(self, host.nrows(), |i| {
            ptr[i.div_ceil(c)] as usize * c * (4 + T::BYTES) + i * (4 + 2 * T::BYTES)
        });
        Ok(CpuSell { host, partition })
    }
}

impl<T: Real> Rows<T> for CpuSell<T> {
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
        let (c, ptr) = (self.host.c(), self.host.slice_ptr());
        let (cols, values) = (self.host.cols(), self.host.values());
        let mut row = rows.start;
        while row < rows.end {
            let (slice, lane) = (row / c, row % c);
            let end = rows.end.min((slice + 1) * c);
            let width = (ptr[slice + 1] - ptr[slice]) as usize;
            let strip = Packed { cols, values, first: ptr[slice] as usize * c + lane, stride: c, width };
            packed::<T, false>(simd, strip, x, &mut out[row - rows.start..end - rows.start]);
            row = end;
        }
    }
    fn perm(&self) -> Option<&[Ordinal]> {
        (self.host.sigma() > 1).then(|| self.host.perm())
    }
    fn blockwise(&self) -> bool {
        BLOCK.is_multiple_of(self.host.sigma())
    }
}

spmv_by_rows!(Sell);
spmm_by_rows!(Sell);
