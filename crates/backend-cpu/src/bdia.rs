//! bDIA on the CPU.
//!
//! Layout: the host matrix itself, shared, with the offsets of its bands written out (4 bytes per diagonal); or f32
//! values and the offsets, as in [`crate::dia`]. Cost: [`spandrel_formats::Traffic::spmv_bytes`], with half of the
//! bytes of the values in f32. Order: stored, by ascending offset. The window of x that a GPU stages in shared memory
//! is in first-level cache here, so the kernel is DIA's.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Bdia, Real};

use crate::Cpu;
use crate::dia::{Diagonals, diagonals};
use crate::kept::{Host, Kept};
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::Simd;

impl<T: Real> Host<T> for Bdia<T> {
    fn stored(&self) -> &[T] {
        self.values()
    }
    fn into_values(self) -> Vec<T> {
        self.into_parts().3
    }
}

/// A bDIA matrix: the offsets of its diagonals, its values and the partition of its rows.
///
/// The values are shared with the host or kept in f32, as in [`crate::CpuDia`].
#[derive(Clone, Debug)]
pub struct CpuBdia<T> {
    nrows: usize,
    ncols: usize,
    offsets: Vec<i32>,
    kept: Kept<T, Bdia<T>>,
    partition: Partition,
}

impl<T> CpuBdia<T> {
    /// Returns true if the values of an f64 matrix are kept in f32.
    pub fn is_narrow(&self) -> bool {
        self.kept.is_narrow()
    }
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Bdia<T>> for Cpu {
    type Resident = CpuBdia<T>;

    fn load(&self, host: Arc<Bdia<T>>) -> Result<CpuBdia<T>> {
        let (nrows, ncols, offsets): (_, _, Vec<i32>) = (host.nrows(), host.ncols(), host.offsets().collect());
        let kept = Kept::of(self, host);
        let row = offsets.len() * kept.bytes() + 2 * T::BYTES;
        let partition = Partition::by_cost(self, nrows, |i| i * row);
        Ok(CpuBdia { nrows, ncols, offsets, kept, partition })
    }

    fn traffic(&self, m: &CpuBdia<T>) -> Option<(u64, u64)> {
        m.kept.traffic(m.nrows, m.ncols, &m.offsets)
    }

    fn is_narrow(&self, m: &CpuBdia<T>) -> bool {
        m.is_narrow()
    }
}

impl<T: Real> Rows<T> for CpuBdia<T> {
    const CHUNK: usize = MAX_CHUNK;

    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn partition(&self) -> &Partition {
        &self.partition
    }
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]) {
        let m = Diagonals { offsets: &self.offsets, values: self.kept.values(), nrows: self.nrows };
        diagonals(simd, m, rows, x, out);
    }
}

spmv_by_rows!(Bdia);
