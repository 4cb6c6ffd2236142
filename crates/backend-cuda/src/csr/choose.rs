//! Chooses the kernel of a CSR product by the lengths of the rows.
//!
//! Cost: one pass over the row pointers, at load.

use rayon::prelude::*;
use spandrel_formats::Offset;

/// The kernel of a CSR product. [`crate::Cuda`] chooses one at load; [`crate::Cuda::load_csr_with`] forces one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrKernel {
    /// One thread per row, straight from memory, in the stored order. For rows of one or two entries. With more,
    /// neighbouring threads read addresses that are far apart.
    Scalar,
    /// A warp copies 32 rows side by side to shared memory, then each lane sums one row, in the stored order. This is
    /// the fastest for rows of similar length up to some dozens of entries, because every byte moves once and lanes
    /// exchange nothing.
    Staged,
    /// 2, 4, 8, 16 or 32 lanes per row and a halving tree. For long rows, and for matrices with too few rows to fill
    /// the device with one lane each.
    Vector(u32),
    /// 1 to 256 lanes per row, as its length requires, in one launch. Rows are put into classes by length. Those with
    /// thousands of entries are cut into pieces, and the last piece to end adds them up. For rows of different lengths.
    Binned,
    /// One warp per few hundred entries of whole rows, summed by segments, and one thread block per part of a long row.
    /// For large matrices that have rows of thousands of entries among short ones, such as power-law matrices.
    Balanced,
}

impl CsrKernel {
    /// Whether rows are summed in the stored order.
    pub fn stored(self) -> bool {
        matches!(self, Self::Scalar | Self::Staged)
    }
}

// These facts decide the choice. A lane that walks a row requests eight elements of x at a time and waits 350 to 700
// cycles for the second-level cache or memory. A multiprocessor's share of the bandwidth is about 19 bytes per cycle.

/// Up to this mean number of entries per row, one thread per row reads as fast as the staged kernel and needs no shared
/// memory.
const SCALAR_MEAN: f64 = 2.0;
/// The longest row for which one thread per row is chosen.
const SCALAR_LONGEST: usize = 32;
/// The longest row for which the staged kernel is taken without a look at the others.
const STAGED_LONGEST: usize = 96;
/// From this mean number of entries per row on, several lanes share a row: 32 rows would exceed a warp's shared memory.
const VECTOR_MEAN: f64 = 64.0;
/// The entries per lane in this case: two steps of eight with the fewest lanes that are used. With rows of 101 entries
/// 8 lanes take 622 us, 16 lanes 632 and 32 lanes 666 (record/h200-spmv-variants.txt).
const ENTRIES_A_LANE: f64 = 16.0;
/// Several lanes share a row only if the longest row is at most this many times as long as the mean.
const VECTOR_LONGEST: f64 = 1.5;
/// With fewer rows per multiprocessor, one lane per row leaves too little work in flight.
const SMALL_ROWS: usize = 512;
/// Entries per lane if several lanes share a row because there are few rows.
pub(super) const ENTRIES_A_LANE_OF_SMALL: f64 = 4.0;
/// Below this mean share of busy lanes over all steps of the warps, rows are too uneven for one lane each. A step takes
/// the L1 cache as long as about 150 bytes would, and delivers 384 bytes if every lane has an entry.
const BUSY_LANES: f64 = 0.8;
/// The bytes that the device moves while a lane adds one entry (30 ns). By this measure the longest row must not take
/// longer than the rest of the product.
const BYTES_PER_STEP: u64 = 128 << 10;
/// The largest number of entries that a thread block adds; longer rows come in pieces.
pub(super) const ENTRIES_A_PIECE: usize = 2048;
/// From this many entries per multiprocessor on, a step requests all its loads at once: 1.6 million on 132.
const LARGE: usize = 12 << 10;
/// A row of this length is never too long for a lane.
const NEVER_LONG: usize = 64;
/// The largest shared memory for a warp's staged entries. With 227 KiB, 14 warps per multiprocessor then have 200 KiB
/// in flight.
pub(super) const STAGING_BYTES: usize = 16 << 10;
/// The required share of entries in groups of 32 rows that fit into a warp's memory at once. Larger groups are copied
/// in parts.
const FITTING: f64 = 0.95;
/// Up to this length of the longest row, the staged kernel for short rows is used (`AHEAD_OF_SHORT` of kernels/csr.cu).
pub(super) const SHORT: usize = 8;
/// Warps of a thread block of the staged product. With only one warp, its room is free for the next group as soon as
/// the warp is done. This gained 3 to 15 % on stencils of 7 to 33 points over four warps.
pub(super) const STAGED_WARPS: usize = 1;
/// The staged product prefetches row pointers this many warps per multiprocessor ahead, about as many as are in flight.
/// This saves 4 to 7 % on stencils of 7 to 33 points at 256^3, whose row pointers come from memory
/// (record/h200-spmv-variants.txt).
pub(super) const STAGED_AHEAD: usize = 16;
/// Warps of a thread block of the product with a dot product, which has 1024 rows.
pub(super) const STAGED_DOT_WARPS: usize = 8;

/// The rows of a warp of the staged kernel, and the number of entries of which its room is a multiple.
pub(super) const GROUP: usize = 32;
/// Entries of a warp's room beyond a multiple of [`GROUP`]: a group of equal rows begins at up to three entries past a
/// multiple of four. Twin: `SPARE` of kernels/include/checked.cuh.
pub(super) const SPARE: usize = 4;
/// The number of sizes by which groups are sorted, in steps of [`GROUP`] entries. Twin: `BINS` there.
pub(super) const BINS: usize = 128;

/// Returns true if there are so many entries that the bytes in flight decide the speed.
pub(super) fn large(nnz: usize, multiprocessors: usize) -> bool {
    nnz >= LARGE * multiprocessors
}

/// The numbers on which the choice depends.
#[derive(Clone, Debug)]
pub(super) struct RowStats {
    /// Entries of the longest row.
    pub(super) longest: usize,
    /// Steps of all warps with one lane per row: the longest row of each group.
    pub(super) steps: u64,
    /// The number of rows with 8, 16, 24, ... entries, which begin in the same banks of shared memory.
    pub(super) eights: usize,
    /// Entries of groups by the memory that the groups need; the last bin takes all larger ones.
    pub(super) bins: [u64; BINS],
}

impl RowStats {
    pub(super) fn new() -> Self {
        Self { longest: 0, steps: 0, eights: 0, bins: [0; BINS] }
    }

    /// Chooses a kernel for short rows of different lengths if classes of rows would cost more than they gain: one
    /// thread per row, or the staged kernel if rows are longer. `None` leaves the choice to [`RowStats::choose`].
    pub(super) fn without_classes(&self, nrows: usize, nnz: usize) -> Option<CsrKernel> {
        match self.longest {
            0..=SCALAR_LONGEST if nnz <= 4 * nrows => Some(CsrKernel::Scalar),
            0..=STAGED_LONGEST => Some(CsrKernel::Staged),
            _ => None,
        }
    }

    pub(super) fn of(row_ptr: &[Offset]) -> Self {
        let nrows = row_ptr.len() - 1;
        let groups = nrows.div_ceil(GROUP);
        let add = |mut stats: Self, group: usize| {
            let ptr = &row_ptr[group * GROUP..=(group * GROUP + GROUP).min(nrows)];
            let mut longest = 0;
            for row in ptr.windows(2) {
                let len = (row[1] - row[0]) as usize;
                longest = longest.max(len);
                stats.eights += usize::from(len > 0 && len.is_multiple_of(8));
            }
            stats.longest = stats.longest.max(longest);
            stats.steps += longest as u64;
            let (first, last) = (ptr[0], ptr[ptr.len() - 1]);
            let bin = ((last - (first & !3)) as usize).saturating_sub(SPARE).div_ceil(GROUP).min(BINS - 1);
            stats.bins[bin] += u64::from(last - first);
            stats
        };
        let merge = |mut a: Self, b: Self| {
            a.longest = a.longest.max(b.longest);
            a.steps += b.steps;
            a.eights += b.eights;
            a.bins.iter_mut().zip(b.bins).for_each(|(a, b)| *a += b);
            a
        };
        (0..groups).into_par_iter().with_min_len(1 << 9).fold(Self::new, add).reduce(Self::new, merge)
    }

    /// Chooses the kernel for these rows.
    pub(super) fn choose(
        &self,
        nrows: usize,
        nnz: usize,
        bytes: u64,
        multiprocessors: usize,
        reproducible: bool,
    ) -> CsrKernel {
        let mean = nnz as f64 / nrows.max(1) as f64;
        let short = mean <= SCALAR_MEAN && self.longest <= SCALAR_LONGEST;
        if !reproducible {
            let busy = nnz as f64 / (GROUP as f64 * self.steps.max(1) as f64);
            let long = self.longest > NEVER_LONG && self.longest as u64 * BYTES_PER_STEP > bytes;
            let even = self.longest as f64 <= VECTOR_LONGEST * mean;
            let lanes =
                |each: f64| CsrKernel::Vector(((mean / each).ceil().min(32.0) as u32).next_power_of_two().clamp(2, 32));
            if nrows < SMALL_ROWS * multiprocessors && even && mean > ENTRIES_A_LANE_OF_SMALL {
                return lanes(ENTRIES_A_LANE_OF_SMALL);
            }
            if mean >= VECTOR_MEAN && even {
                return lanes(ENTRIES_A_LANE);
            }
            if !short && (long || busy < BUSY_LANES || nrows < SMALL_ROWS * multiprocessors) {
                let power_law = self.longest > ENTRIES_A_PIECE && large(nnz, multiprocessors);
                return if power_law { CsrKernel::Balanced } else { CsrKernel::Binned };
            }
        }
        if short { CsrKernel::Scalar } else { CsrKernel::Staged }
    }

    /// The entries of a warp's room: a multiple of [`GROUP`], at most `limit`.
    pub(super) fn capacity(&self, nnz: usize, limit: usize) -> usize {
        let mut fitting = 0;
        for (bin, entries) in self.bins.iter().enumerate() {
            fitting += entries;
            if fitting as f64 >= FITTING * nnz as f64 {
                return (bin * GROUP).clamp(GROUP, limit);
            }
        }
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(lengths: &[u32]) -> Vec<u32> {
        std::iter::once(0)
            .chain(lengths.iter().scan(0, |at, len| {
                *at += len;
                Some(*at)
            }))
            .collect()
    }

    fn chosen(lengths: &[u32], reproducible: bool) -> CsrKernel {
        let ptr = pointers(lengths);
        let (nrows, nnz) = (lengths.len(), ptr[lengths.len()] as usize);
        RowStats::of(&ptr).choose(nrows, nnz, (nnz * 12 + nrows * 20) as u64, 132, reproducible)
    }

    #[test]
    fn the_kernel_follows_the_rows() {
        assert_eq!(chosen(&[], false), CsrKernel::Scalar);
        assert_eq!(chosen(&[0; 5], false), CsrKernel::Scalar);
        assert_eq!(chosen(&[7; 100_000], false), CsrKernel::Staged);
        assert_eq!(chosen(&[33; 100_000], false), CsrKernel::Staged);
        assert_eq!(chosen(&[33; 10_000], false), CsrKernel::Vector(16));
        assert_eq!(chosen(&[100; 100_000], false), CsrKernel::Vector(8));
        assert_eq!(chosen(&[500; 100_000], false), CsrKernel::Vector(32));
        let mut tailed = vec![3; 200_000];
        tailed[77] = 50_000;
        assert_eq!(chosen(&tailed, false), CsrKernel::Binned);
        assert_eq!(chosen(&tailed, true), CsrKernel::Staged);
        tailed.resize(600_000, 3);
        assert_eq!(chosen(&tailed, false), CsrKernel::Balanced);
        assert_eq!(chosen(&[100; 100_000], true), CsrKernel::Staged);
    }

    #[test]
    fn a_warps_room_holds_most_groups() {
        let stats = RowStats::of(&pointers(&[27; 3200]));
        assert_eq!(stats.capacity(27 * 3200, 1344), 864);
        assert_eq!(stats.capacity(27 * 3200, 320), 320);
        assert_eq!(RowStats::of(&[0]).capacity(0, 1344), GROUP);
    }
}
