//! Running sums on the GPU: where each of many counted pieces begins.
//!
//! Order: integers. Cost: counts read twice and written once. Kernels: kernels/scan.cu.

use spandrel_backend::Result;
use spandrel_backend::error::expect_len;
use spandrel_formats::Real;

use crate::Cuda;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};

kernels! {
    struct SumScan { counts: Address, n: u64, sums: Address }
    in SCAN { ENTRY: "sum_scan" }

    struct OffsetScan { sums: Address, chunks: u32 }
    in SCAN { ENTRY: "offset_scan" }

    struct SpreadScan { counts: Address, n: u64, sums: Address }
    in SCAN { ENTRY: "spread_scan" }
}

/// Counts per thread block (`SCAN_CHUNK` of kernels/scan.cu).
const CHUNK: usize = 4096;
const WHAT: &str = "sums of counts";

/// The words that [`Cuda::sum_into`] needs.
pub(crate) fn sums_len(counts: &Buffer<u32>) -> usize {
    counts.len().div_ceil(CHUNK) + 1
}

impl Cuda {
    /// Replaces each count by the sum of those before it, and returns the sum of all. If that is 2^32 or more, the
    /// counts mean nothing. Blocks.
    pub(crate) fn running_sums<T: Real>(&self, counts: &Buffer<u32>) -> Result<u64> {
        let words = sums_len(counts);
        let room = Buffer::<u64>::uninit(self.stream(), words, WHAT)?;
        self.sum_into::<T>(counts, &room)?;
        let mut all = [0];
        room.read_at(words - 1, &mut all)?;
        Ok(all[0])
    }

    /// Replaces each count by the sum of those before it, where the sum of all is known to be below 2^32. Does not
    /// block.
    pub(crate) fn sum_known<T: Real>(&self, counts: &Buffer<u32>) -> Result<()> {
        self.sum_into::<T>(counts, &Buffer::uninit(self.stream(), sums_len(counts), WHAT)?)
    }

    /// As [`Cuda::running_sums`], but writes the sum of all to the last of the first [`sums_len`] words of `room`
    /// instead of reading it. Does not block.
    pub(crate) fn sum_into<T: Real>(&self, counts: &Buffer<u32>, room: &Buffer<u64>) -> Result<()> {
        let chunks = counts.len().div_ceil(CHUNK);
        expect_len("running sums", "the room", room.len().min(chunks + 1), chunks + 1)?;
        let (n, of, sums) = (counts.len() as u64, counts.pointer(), room.pointer());
        // SAFETY: sum_scan(counts, n, sums) and spread_scan, a thread block of 256 per chunk; offset_scan(sums,
        // chunks), one of 1024; a sum per chunk and one more.
        unsafe {
            self.launch::<T, _>(SumScan::ENTRY, Grid::of(chunks, 256), &SumScan { counts: of, n, sums })?;
            self.launch::<T, _>(OffsetScan::ENTRY, Grid::of(1, 1024), &OffsetScan { sums, chunks: chunks as u32 })?;
            self.launch::<T, _>(SpreadScan::ENTRY, Grid::of(chunks, 256), &SpreadScan { counts: of, n, sums })
        }
    }
}
