//! Which CSR kernel multiplies: from the lengths of the rows.
//!
//! Cost: one pass over the row pointers, at load.

use rayon::prelude::*;
use spandrel_formats::Offset;

/// How a CSR matrix is multiplied. [`crate::Cuda`] chooses at load; [`crate::Cuda::load_csr_with`] forces one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsrKernel {
    /// A thread a row, straight from memory, in the stored order. For rows of an entry or two: with more, neighbouring threads read far
    /// apart.
    Scalar,
    /// A warp brings 32 rows to shared memory side by side, then a lane walks each, in the stored order. The fastest wherever rows are of
    /// similar length, up to some dozens of entries: every byte moves once, and the sum needs no exchange between lanes.
    Staged,
    /// 2, 4, 8, 16 or 32 lanes a row and a halving tree. For long rows, and for matrices of too few rows to fill the device with a lane
    /// each.
    Vector(u32),
    /// As many lanes a row as its length asks for, 1 to 256, in one launch: rows are put in classes by length, and those of thousands of
    /// entries are cut into pieces that the last to end adds up. For rows of different lengths.
    Binned,
    /// A warp for every few hundred entries of whole rows, summed by segments; a thread block for each part of a long row. For large
    /// matrices with rows of thousands of entries among short ones: power-law ones.
    Balanced,
}

impl CsrKernel {
    /// Whether rows are summed in the stored order.
    pub fn stored(self) -> bool {
        matches!(self, Self::Scalar | Self::Staged)
    }
}

// What the choice turns on. A lane that walks a row asks for eight x at a time and waits for the second-level cache or memory, 350 to
// 700 cycles; a multiprocessor's share of the bandwidth is about 19 bytes a cycle.

/// Mean entries per row up to which one thread per row reads as fast as the staged kernel, and needs no shared memory.
const SCALAR_MEAN: f64 = 2.0;
/// The longest row for which one thread per row is chosen.
const SCALAR_LONGEST: usize = 32;
/// Mean entries per row from which several lanes per row are chosen: 32 rows are then more than a warp's room holds.
const VECTOR_MEAN: f64 = 64.0;
/// Entries of each of these lanes: two steps of eight with the fewest lanes that are taken there. With rows of 101 entries 8 lanes take 622
/// us, 16 lanes 632 and 32 lanes 666 (record/h200-spmv-variants.txt).
const ENTRIES_A_LANE: f64 = 16.0;
/// How much longer than the mean the longest row may be for that.
const VECTOR_LONGEST: f64 = 1.5;
/// Rows a multiprocessor below which one lane a row leaves too little under way.
const SMALL_ROWS: usize = 512;
/// Entries of each lane where several share a row for want of rows.
pub(super) const ENTRIES_A_LANE_OF_SMALL: f64 = 4.0;
/// The share of lanes at work, the mean over all steps of the warps, below which rows are too uneven for a lane each: a step costs the
/// first-level cache about 150 bytes' worth of time and brings 384 bytes when every lane has an entry.
const BUSY_LANES: f64 = 0.8;
/// Bytes that the device moves while a lane adds one entry (30 ns), so that the longest row alone may take as long as everything else.
const BYTES_PER_STEP: u64 = 128 << 10;
/// Entries of a row that a thread block adds at most; longer ones come in pieces.
pub(super) const ENTRIES_A_PIECE: usize = 2048;
/// Entries a multiprocessor from which on every load of a step is asked for at once: 1.6 million on 132.
const LARGE: usize = 12 << 10;
/// A row that is never too long for a lane.
const NEVER_LONG: usize = 64;
/// Shared memory of a warp's staged entries, at most: 14 warps a multiprocessor with 227 KiB have then 200 KiB under way.
pub(super) const STAGING_BYTES: usize = 16 << 10;
/// The share of all entries whose groups of 32 rows fit a warp's room at once; longer groups are brought in parts.
const FITTING: f64 = 0.95;
/// Entries of the longest row up to which the staged kernel for short rows is taken (`AHEAD_OF_SHORT` of kernels/csr.cu).
pub(super) const SHORT: usize = 8;
/// Warps of a thread block of the staged product: each room is then free for the next group as soon as its own warp is done, which was
/// worth 3 to 15 % on stencils of 7 to 33 points against four warps.
pub(super) const STAGED_WARPS: usize = 1;
/// Warps a multiprocessor by which the staged product asks for row pointers ahead, about as many as it has under way: 4 to 7 % less time on stencils
/// of 7 to 33 points at 256^3, where they come from memory (record/h200-spmv-variants.txt).
pub(super) const STAGED_AHEAD: usize = 16;
/// Warps of a thread block of the one with a dot product, which has 1024 rows.
pub(super) const STAGED_DOT_WARPS: usize = 8;

/// Rows of a warp of the staged kernel, and the entries that its room is a multiple of.
pub(super) const GROUP: usize = 32;
/// Entries of a warp's room beyond a multiple of [`GROUP`]: a group of equal rows begins at up to three entries past a multiple of four. Twin:
/// `SPARE` of kernels/include/checked.cuh.
pub(super) const SPARE: usize = 4;
/// Sizes of groups that are told apart, in steps of [`GROUP`] entries. Twin: `BINS` there.
pub(super) const BINS: usize = 128;

/// Whether there are so many entries that the bytes under way decide.
pub(super) fn large(nnz: usize, multiprocessors: usize) -> bool {
    nnz >= LARGE * multiprocessors
}

/// What the choice is made from.
#[derive(Clone, Debug)]
pub(super) struct RowStats {
    /// Entries of the longest row.
    pub(super) longest: usize,
    /// Steps of all warps with a lane a row: the longest row of each group.
    pub(super) steps: u64,
    /// Rows of 8, 16, 24, ... entries: in shared memory their beginnings share banks.
    pub(super) eights: usize,
    /// Entries in groups by the room that these need; the last bin takes what is larger.
    pub(super) bins: [u64; BINS],
}

impl RowStats {
    fn new() -> Self {
        Self { longest: 0, steps: 0, eights: 0, bins: [0; BINS] }
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

    /// The kernel for rows like these.
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

    /// Entries of a warp's room, at most `limit`: a multiple of [`GROUP`].
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
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn pointers(lengths: &[u32]) -> Vec<u32> {
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
