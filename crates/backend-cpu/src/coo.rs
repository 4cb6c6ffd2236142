//! COO on the CPU.
//!
//! Layout: the host matrix itself, shared, and the start of every 16th row. Cost:
//! [`spandrel_formats::Traffic::spmv_bytes`].
//! Order: stored. The row pointers of a chunk of rows are rebuilt in first-level cache, with one store per entry and no
//! dependency between entries. The rows then run as CSR's do. A running sum that resets at each new row would instead
//! chain all entries of a task.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Coo, Offset, Ordinal, Real};

use crate::Cpu;
use crate::csr::{AHEAD, gather_rows};
use crate::partition::{GRANULE, Partition};
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::{Simd, prefetch, simd_fn};
use crate::vector::room;

/// The start of every [`GRANULE`]-th row among sorted entries. Invariants: `starts[g]` is the first entry of row
/// `GRANULE * g` or a later one; the last element is the number of entries.
#[derive(Clone, Debug)]
pub(crate) struct Starts(Vec<Offset>);

impl Starts {
    /// # Errors
    /// [`spandrel_backend::Error::OutOfMemory`].
    pub(crate) fn new(nrows: usize, rows: &[Ordinal]) -> Result<Self> {
        let mut starts = room(nrows.div_ceil(GRANULE) + 1, "where the rows of COO begin")?;
        let mut at = 0;
        for row in (0..nrows).step_by(GRANULE) {
            at += rows[at..].iter().take_while(|&&i| (i as usize) < row).count();
            starts.push(at as Offset);
        }
        starts.push(rows.len() as Offset);
        Ok(Self(starts))
    }

    /// The first entry of row `row`, which is a multiple of GRANULE or the end.
    pub(crate) fn of(&self, row: usize) -> usize {
        self.0[row.div_ceil(GRANULE)] as usize
    }
}

simd_fn! {
    /// For all rows of `ptr`: ptr[i] <- the first of `entries` in row `first + i` or a later one.
    ///
    /// The caller ensures that the rows of these entries lie in `first..first + ptr.len() - 1`.
    fn row_pointers<T>(entries: Range<usize>, rows: &[Ordinal], first: usize, ptr: &mut [Offset], _of: [T; 0]) {
        ptr.fill(0);
        ptr[0] = entries.start as Offset;
        for (chunk, inside) in rows[entries.clone()].chunks(16).enumerate() {
            let k = entries.start + 16 * chunk;
            prefetch(rows, k + AHEAD);
            for (k, &row) in (k..).zip(inside) {
                // The last entry of a row overwrites the earlier ones.
                // SAFETY: the caller's promise, which holds because the matrix is sorted and by `Starts`.
                unsafe { *ptr.get_unchecked_mut(row as usize - first + 1) = k as Offset + 1 };
            }
        }
        for i in 1..ptr.len() {
            ptr[i] = ptr[i].max(ptr[i - 1]);
        }
    }
}

/// Forms the accumulators of `rows`, from +0 or (CONTINUE) from `out`.
pub(crate) fn accumulate<T: Real, const CONTINUE: bool>(
    simd: Simd,
    m: &Coo<T>,
    starts: &Starts,
    rows: Range<usize>,
    x: &[T],
    out: &mut [T],
) {
    let entries = starts.of(rows.start)..starts.of(rows.end);
    let mut ptr = [0; MAX_CHUNK + 1];
    let ptr = &mut ptr[..rows.len() + 1];
    row_pointers::<T>(simd, entries, m.rows(), rows.start, ptr, []);
    gather_rows::<T, CONTINUE>(simd, ptr, m.cols(), m.values(), x, out);
}

/// A COO matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuCoo<T> {
    host: Arc<Coo<T>>,
    starts: Starts,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Coo<T>> for Cpu {
    type Resident = CpuCoo<T>;

    fn load(&self, host: Arc<Coo<T>>) -> Result<CpuCoo<T>> {
        let starts = Starts::new(host.nrows(), host.rows())?;
        let partition = Partition::by_cost(self, host.nrows(), |i| starts.of(i) * (8 + T::BYTES) + i * 2 * T::BYTES);
        Ok(CpuCoo { host, starts, partition })
    }
}

impl<T: Real> Rows<T> for CpuCoo<T> {
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
        accumulate::<T, false>(simd, &self.host, &self.starts, rows, x, out);
    }
}

spmv_by_rows!(Coo);
