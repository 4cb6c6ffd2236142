//! The common parts of the conversions of a resident CSR matrix; each format's file holds its own conversion.
//!
//! Cost: the walks read the entries once, at the speed of device memory. The host gets one number for ELL, and row
//! pointers for SELL, COO and HYB. For DIA and bDIA it gets the occupied diagonals: as a list, or as one bit each if
//! there are many. Kernels: kernels/include/walk.cuh and those of the formats.

use spandrel_backend::{Mat, Result};
use spandrel_formats::{Csr, Offset, Real};

use crate::csr::not_recorded;
use crate::kept::Values;
use crate::kernel::kernels;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::{Cuda, CudaCsr};

kernels! {
    struct MarkDiagonalsDia { row_ptr: Address, cols: Address, nrows: u32, marks: Address }
    in DIA { ENTRY: "mark_diagonals_dia" }

    struct ListDiagonalsDia { marks: Address, words: u32, most: u32, list: Address }
    in DIA { ENTRY: "list_diagonals_dia" }

    struct FillFromCsrDia {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, offsets: Address, diagonals: u32, first: u32,
        stride: u64, out: Address, counts: Address,
    }
    in DIA { ENTRY: "fill_from_csr_dia" }

    struct CompareMirrorDia {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, offsets: Address, diagonals: u32, first: u32,
        upper: Address, differing: Address,
    }
    in DIA { ENTRY: "compare_mirror_dia" }

    struct RefillDia {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, offsets: Address, stored: u32, diagonals: u32,
        out: Address, counts: Address,
    }
    in DIA { WHOLE: "refill_dia", NARROW: "refill_in_f32_dia" }

    struct MatchMirrorDia {
        row_ptr: Address, cols: Address, values: Address, nrows: u32, offsets: Address, stored: u32, diagonals: u32,
        upper: Address, counts: Address,
    }
    in DIA { WHOLE: "match_mirror_dia", NARROW: "match_mirror_in_f32_dia" }
}

/// Threads of a thread block of a walk (`WALK_THREADS` of kernels/include/walk.cuh), and the maximum number of thread
/// blocks per multiprocessor: about four times what it holds at once, so that the last ones leave little idle.
const WALK_THREADS: usize = 128;
const WALK_BLOCKS: usize = 32;
/// Threads of a thread block that refills diagonals (`REFILL_THREADS` of kernels/dia.cu), and the maximum number of
/// thread blocks per multiprocessor: four times what it holds at once.
const REFILL_THREADS: usize = 256;
const REFILL_BLOCKS: usize = 24;
/// The largest number of words (of 32 marks) with an occupied diagonal that are listed for the host. If there are more,
/// the host reads all words.
const LISTED: usize = 1024;

/// The numbers of nonzero entries below, on and above the main diagonal, of threads that found entries that differ from
/// their mirror image, and of threads that found values which f32 does not represent, if these were looked for (the
/// `counts` of kernels/dia.cu).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) below: u64,
    pub(crate) on: u64,
    pub(crate) above: u64,
    differing: u64,
    inexact: u64,
}

impl Counts {
    pub(crate) fn nonzeros(self) -> usize {
        (self.below + self.on + self.above) as usize
    }

    /// Returns true if f32 represents all values that were refilled.
    pub(crate) fn is_in_f32(self) -> bool {
        self.inexact == 0
    }

    /// Returns true if the matrix, whose occupied diagonals are mirrored, equals its transpose. This holds if each
    /// entry below the main diagonal equals its mirror image (0 if it is not stored), and there are as many nonzeros
    /// above the diagonal as below.
    pub(crate) fn symmetric(self) -> bool {
        self.differing == 0 && self.below == self.above
    }
}

/// The diagonals to be filled: all offsets, the first one stored, elements from one diagonal's beginning to the next
/// one's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diagonals<'a> {
    pub(crate) offsets: &'a [i32],
    pub(crate) first: usize,
    pub(crate) stride: usize,
}

impl Cuda {
    /// The grid of a walk over `nrows` rows.
    pub(crate) fn walk_grid(&self, nrows: usize) -> Grid {
        let blocks = nrows.div_ceil(WALK_THREADS).min(WALK_BLOCKS * self.multiprocessors());
        Grid::of(blocks, WALK_THREADS as u32)
    }

    /// The number of diagonals that hold entries. It tells whether [`Mat::convert`] to DIA pays, which stores each of
    /// them whole. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::OutOfMemory`], [`spandrel_backend::Error::Device`].
    pub fn occupied_diagonals<T: Real>(&self, rows: &Mat<Self, Csr<T>>) -> Result<usize> {
        Ok(self.occupied(rows.resident())?.len())
    }

    /// Column minus row of the diagonals that hold entries, ascending. Blocks.
    pub(crate) fn occupied<T: Real>(&self, m: &CudaCsr<T>) -> Result<Vec<i32>> {
        not_recorded(self, "a conversion")?;
        let (row_ptr, cols, _) = m.arrays();
        let marks = Buffer::<u32>::zeros(self.stream(), (m.nrows() + m.ncols()).div_ceil(32), "marks of diagonals")?;
        let (row_ptr, cols, nrows, to) = (row_ptr.pointer(), cols.pointer(), m.nrows() as u32, marks.pointer());
        let parameters = MarkDiagonalsDia { row_ptr, cols, nrows, marks: to };
        // SAFETY: mark_diagonals_dia(row_ptr, cols, nrows, marks), a bit for each diagonal.
        unsafe { self.launch::<T, _>(MarkDiagonalsDia::ENTRY, self.walk_grid(m.nrows()), &parameters)? };
        let (words, most) = (marks.len() as u32, LISTED as u32);
        let list = Buffer::<u32>::zeros(self.stream(), 1 + 2 * LISTED, "a list of diagonals")?;
        let (from, to) = (marks.pointer(), list.pointer());
        let grid = Grid::of(marks.len().div_ceil(256).clamp(1, 4 * self.multiprocessors()), 256);
        let parameters = ListDiagonalsDia { marks: from, words, most, list: to };
        // SAFETY: list_diagonals_dia(marks, words, most, list), with room for a number and `most` pairs.
        unsafe { self.launch::<T, _>(ListDiagonalsDia::ENTRY, grid, &parameters)? };
        let list = list.to_host("a list of diagonals")?;
        let mut marked: Vec<(u32, u32)> = match list[0] as usize {
            count if count <= LISTED => list[1..].chunks_exact(2).take(count).map(|pair| (pair[0], pair[1])).collect(),
            _ => (0..).zip(marks.to_host("marks of diagonals")?).filter(|&(_, word)| word != 0).collect(),
        };
        marked.sort_unstable();
        let mut offsets = Vec::new();
        for (at, mut word) in marked {
            while word != 0 {
                let bit = 32 * i64::from(at) + i64::from(word.trailing_zeros());
                // The magnitude is below the number of rows or columns, so it fits.
                offsets.push((bit - m.nrows() as i64) as i32);
                word &= word - 1;
            }
        }
        Ok(offsets)
    }

    /// Writes the entries into zeroed diagonals. With `compare`, the entries below the main diagonal are compared with
    /// the stored diagonals at or above it, which must be mirrored. Blocks.
    pub(crate) fn fill_diagonals<T: Real>(
        &self,
        m: &CudaCsr<T>,
        diagonals: Diagonals<'_>,
        out: &Buffer<T>,
        compare: bool,
    ) -> Result<Counts> {
        let Diagonals { offsets, first, stride } = diagonals;
        let (row_ptr, cols, values) = m.arrays();
        let counts = Buffer::<u64>::zeros(self.stream(), 4, "counts of entries")?;
        let list = Buffer::from_host(self.stream(), offsets, "a matrix's offsets")?;
        let (row_ptr, cols, values, nrows) = (row_ptr.pointer(), cols.pointer(), values.pointer(), m.nrows() as u32);
        let (offsets, diagonals, first, stride) = (list.pointer(), offsets.len() as u32, first as u32, stride as u64);
        let (out, to, differing, grid) =
            (out.pointer(), counts.pointer(), counts.address(3), self.walk_grid(m.nrows()));
        let parameters =
            FillFromCsrDia { row_ptr, cols, values, nrows, offsets, diagonals, first, stride, out, counts: to };
        // SAFETY: fill_from_csr_dia(row_ptr, cols, values, nrows, offsets, diagonals, first, stride, out, counts); the
        // offsets cover the pattern, and out has a stride for each stored one.
        unsafe { self.launch::<T, _>(FillFromCsrDia::ENTRY, grid, &parameters)? };
        if compare {
            let parameters =
                CompareMirrorDia { row_ptr, cols, values, nrows, offsets, diagonals, first, upper: out, differing };
            // SAFETY: compare_mirror_dia(row_ptr, cols, values, nrows, offsets, diagonals, first, upper, differing);
            // the mirror image of a diagonal below the main one is stored, as the caller vouches.
            unsafe { self.launch::<T, _>(CompareMirrorDia::ENTRY, grid, &parameters)? };
        }
        let mut found = [0; 4];
        counts.read_at(0, &mut found)?;
        let [below, on, above, differing] = found;
        Ok(Counts { below, on, above, differing, inexact: 0 })
    }

    /// Writes the entries to the diagonals at or above the main one, all elements of them, and compares those below it
    /// with their mirror images. `diagonals` is the address of the stored offsets, their number, and the number of all
    /// diagonals, on which all entries lie; they are mirrored. Blocks.
    pub(crate) fn refill_diagonals<T: Real>(
        &self,
        m: &CudaCsr<T>,
        (offsets, stored, diagonals): (Address, usize, usize),
        to: &Values<T>,
    ) -> Result<Counts> {
        let (row_ptr, cols, values) = m.arrays();
        let counts = Buffer::<u64>::zeros(self.stream(), 5, "counts of entries")?;
        let (row_ptr, cols, values, nrows) = (row_ptr.pointer(), cols.pointer(), values.pointer(), m.nrows() as u32);
        let (stored, diagonals, out, counted) = (stored as u32, diagonals as u32, to.pointer(), counts.pointer());
        let blocks = m.nrows().div_ceil(REFILL_THREADS).min(REFILL_BLOCKS * self.multiprocessors());
        let grid = Grid::of(blocks, REFILL_THREADS as u32);
        let parameters = RefillDia { row_ptr, cols, values, nrows, offsets, stored, diagonals, out, counts: counted };
        let entry = if to.is_narrow() { RefillDia::NARROW } else { RefillDia::WHOLE };
        // SAFETY: refill_dia(row_ptr, cols, values, nrows, offsets, stored, diagonals, out, counts); the diagonals hold
        // the pattern, and out has an element per row for each stored one.
        unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        let parameters =
            MatchMirrorDia { row_ptr, cols, values, nrows, offsets, stored, diagonals, upper: out, counts: counted };
        let entry = if to.is_narrow() { MatchMirrorDia::NARROW } else { MatchMirrorDia::WHOLE };
        // SAFETY: match_mirror_dia(row_ptr, cols, values, nrows, offsets, stored, diagonals, upper, counts), as above.
        unsafe { self.launch::<T, _>(entry, grid, &parameters)? };
        let mut found = [0; 5];
        counts.read_at(0, &mut found)?;
        let [below, on, above, differing, inexact] = found;
        Ok(Counts { below, on, above, differing, inexact })
    }

    /// The row pointers on the host. Blocks.
    pub(crate) fn row_pointers<T: Real>(&self, m: &CudaCsr<T>) -> Result<Vec<Offset>> {
        not_recorded(self, "a conversion")?;
        m.arrays().0.to_host("a matrix's row pointers")
    }

    /// A copy of the first `len` elements. Does not block.
    pub(crate) fn duplicate<E: bytemuck::Pod>(
        &self,
        from: &Buffer<E>,
        len: usize,
        what: &'static str,
    ) -> Result<Buffer<E>> {
        let to = Buffer::uninit(self.stream(), len, what)?;
        to.copy_first(from, len)?;
        Ok(to)
    }
}
