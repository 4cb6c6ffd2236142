//! The rows of a CSR matrix in classes by length, each with its number of lanes per row.

use spandrel_backend::Result;
use spandrel_formats::{Offset, Real};

use super::choose::{ENTRIES_A_PIECE, large};
use crate::Cuda;
use crate::kernel::{Argument, kernels};
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::parts::{Parts, split};

kernels! {
    struct CountClassesCsr { row_ptr: Address, nrows: u32, counts: Address }
    in CSR { ENTRY: "count_classes_csr" }

    struct PlaceClassesCsr { row_ptr: Address, nrows: u32, starts: Address, places: Address, perm: Address }
    in CSR { ENTRY: "place_classes_csr" }
}

/// The largest number of classes.
const CLASSES: usize = 10;
/// The number of lanes of a row that is cut into pieces, one thread block each.
const SPLIT: u32 = 512;
/// Lanes per row of each class: about [`super::choose::ENTRIES_A_LANE_OF_SMALL`] entries each, up to a thread block;
/// [`SPLIT`] from [`ENTRIES_A_PIECE`] on. Long rows begin first. Rows of a class keep their order, so that neighbouring
/// rows read x from the cache.
const LANES: [u32; CLASSES] = [SPLIT, 256, 128, 64, 32, 16, 8, 4, 2, 1];
/// Rows per thread block that puts them into classes (`CLASSED` of kernels/csr.cu).
const CLASSED: usize = 4096;

/// The start of each class, in thread blocks and in the permutation, and its lanes per row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(super) struct Classes {
    block: [u32; CLASSES + 1],
    row: [u32; CLASSES + 1],
    lanes: [u32; CLASSES],
}
// SAFETY: `struct Classes` of kernels/csr.cu: as many u32, in this order.
unsafe impl Argument for Classes {}

/// The kernels of classes. All have the same order of summation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassesKernel {
    /// No row is cut into parts.
    Whole,
    /// Some rows are cut into parts.
    Split,
    /// For large matrices, with or without parts: a step requests all its loads at once.
    Wide,
}

impl ClassesKernel {
    fn of(nnz: usize, long_rows: usize, multiprocessors: usize) -> Self {
        match long_rows {
            _ if large(nnz, multiprocessors) => Self::Wide,
            0 => Self::Whole,
            _ => Self::Split,
        }
    }
}

/// The rows in the order of their classes, and the parts of those that are split.
#[derive(Debug)]
pub(super) struct Bins<T> {
    /// The row of each place, for [`ClassesKernel::Split`].
    pub(super) perm: Buffer<u32>,
    /// Per place row, first entry, the one past the last, and 0, for the other kernels.
    pub(super) places: Buffer<[u32; 4]>,
    pub(super) kernel: ClassesKernel,
    pub(super) classes: Classes,
    pub(super) parts: Parts<T>,
}

impl<T: Real> Bins<T> {
    /// The number of thread blocks of all classes.
    pub(super) fn blocks(&self) -> usize {
        self.classes.block[CLASSES] as usize
    }

    /// Puts the rows of a matrix with `nnz` entries into classes. Blocks.
    pub(super) fn new(cuda: &Cuda, row_ptr: &Buffer<Offset>, nnz: usize) -> Result<Self> {
        const WHAT: &str = "a matrix's classes of rows";
        let (stream, nrows) = (cuda.stream(), row_ptr.len() - 1);
        let blocks = nrows.div_ceil(CLASSED);
        let counts = Buffer::<u32>::uninit(stream, CLASSES * blocks, WHAT)?;
        let grid = Grid::of(blocks, 256);
        let (row_ptr, starts, n) = (row_ptr.pointer(), counts.pointer(), nrows as u32);
        if nrows > 0 {
            let count = CountClassesCsr { row_ptr, nrows: n, counts: starts };
            // SAFETY: count_classes_csr(row_ptr, nrows, counts), a thread block per CLASSED rows, with a count of each
            // class.
            unsafe { cuda.launch::<T, _>(CountClassesCsr::ENTRY, grid, &count)? };
            cuda.sum_known::<T>(&counts)?;
        }
        let begins: Vec<usize> = counts.to_host(WHAT)?.iter().step_by(blocks.max(1)).map(|&at| at as usize).collect();
        let rows_of = |class: usize| match begins.get(class) {
            None => 0,
            Some(begin) => begins.get(class + 1).unwrap_or(&nrows) - begin,
        };
        let kernel = ClassesKernel::of(nnz, rows_of(0), cuda.multiprocessors());
        let perm = Buffer::uninit(stream, if kernel == ClassesKernel::Split { nrows } else { 0 }, WHAT)?;
        let places = Buffer::<[u32; 4]>::uninit(stream, nrows, WHAT)?;
        if nrows > 0 {
            let to = if kernel == ClassesKernel::Split { perm.pointer() } else { Address::NULL };
            let place = PlaceClassesCsr { row_ptr, nrows: n, starts, places: places.pointer(), perm: to };
            // SAFETY: place_classes_csr(row_ptr, nrows, starts, places, perm), with the same thread blocks and what
            // they counted; a place per row.
            unsafe { cuda.launch::<T, _>(PlaceClassesCsr::ENTRY, grid, &place)? };
        }
        let mut long = vec![[0; 4]; rows_of(0)];
        if !long.is_empty() {
            places.read_at(0, &mut long)?;
        }
        let mut parts = Vec::new();
        for [row, begin, end, _] in long {
            split(&mut parts, row, begin, end, ENTRIES_A_PIECE);
        }
        let classes = Classes::of(rows_of, parts.len());
        let places = if kernel == ClassesKernel::Split { Buffer::uninit(stream, 0, WHAT)? } else { places };
        Ok(Self { perm, places, kernel, classes, parts: Parts::new(cuda, &parts)? })
    }

    /// Lanes per row and rows of each class. Blocks.
    pub(super) fn rows_by_lanes(&self) -> Result<Vec<(u32, Vec<u32>)>> {
        let rows: Vec<u32> = match self.kernel {
            ClassesKernel::Split => self.perm.to_host("classes of rows")?,
            ClassesKernel::Whole | ClassesKernel::Wide => {
                self.places.to_host("classes of rows")?.iter().map(|place| place[0]).collect()
            }
        };
        let Classes { row, lanes, .. } = self.classes;
        let class = |c: usize| (lanes[c], rows[row[c] as usize..row[c + 1] as usize].to_vec());
        Ok((0..CLASSES).map(class).filter(|(_, rows)| !rows.is_empty()).collect())
    }
}

impl Classes {
    /// From the number of rows of each class, longest rows first, and the number of parts of those that are split.
    fn of(rows_of: impl Fn(usize) -> usize, parts: usize) -> Self {
        let mut classes = Self { lanes: [1; CLASSES], ..Self::default() };
        let (mut class, mut block, mut begin) = (0, 0, 0);
        for (at, lanes) in LANES.into_iter().enumerate() {
            let rows = rows_of(at) as u32;
            if rows == 0 {
                continue;
            }
            (classes.block[class], classes.row[class], classes.lanes[class]) = (block, begin, lanes);
            class += 1;
            begin += rows;
            block += if lanes == SPLIT { parts as u32 } else { rows.div_ceil(256 / lanes) };
        }
        classes.block[class..].fill(block);
        classes.row[class..].fill(begin);
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_one_another() {
        let rows = [3, 0, 1, 0, 0, 0, 70, 0, 0, 600];
        let Classes { block, row, lanes } = Classes::of(|class| rows[class], 11);
        assert_eq!(lanes[..4], [SPLIT, 128, 8, 1]);
        assert_eq!(row[..5], [0, 3, 4, 74, 674]);
        // 256 / 128 = 2, 256 / 8 = 32 and 256 rows per thread block.
        assert_eq!(block[..5], [0, 11, 12, 15, 18]);
        assert!(block[5..].iter().all(|&at| at == 18) && row[5..].iter().all(|&at| at == 674));
        assert_eq!(Classes::of(|_| 0, 0), Classes { lanes: [1; CLASSES], ..Classes::default() });
    }

    #[test]
    fn the_kernel_follows_parts_and_entries() {
        let of = |nnz, parts| ClassesKernel::of(nnz, parts, 132);
        assert_eq!([of(0, 0), of(1_622_015, 0)], [ClassesKernel::Whole; 2]);
        assert_eq!(of(1_622_015, 2), ClassesKernel::Split);
        assert_eq!([of(1_622_016, 0), of(1_622_016, 2)], [ClassesKernel::Wide; 2]);
    }
}
