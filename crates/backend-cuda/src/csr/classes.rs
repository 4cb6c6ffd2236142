//! The rows of a CSR matrix in classes by length, each with its number of lanes per row.

use rayon::prelude::*;
use spandrel_backend::Result;
use spandrel_formats::{Offset, Real};

use super::choose::{ENTRIES_A_LANE_OF_SMALL, ENTRIES_A_PIECE, large};
use crate::Cuda;
use crate::kernel::Argument;
use crate::memory::Buffer;
use crate::parts::{Part, Parts, split};

/// The largest number of classes.
const CLASSES: usize = 10;
/// The number of lanes of a row that is cut into pieces, one thread block each.
const SPLIT: u32 = 512;

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
    fn of(nnz: usize, parts: usize, multiprocessors: usize) -> Self {
        match parts {
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

    pub(super) fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        const WHAT: &str = "a matrix's classes of rows";
        let (mut perm, classes, parts) = classify(row_ptr);
        let nnz = row_ptr.last().map_or(0, |&nnz| nnz as usize);
        let kernel = ClassesKernel::of(nnz, parts.len(), cuda.multiprocessors());
        let mut places = Vec::new();
        if kernel != ClassesKernel::Split {
            let place = |&row: &u32| [row, row_ptr[row as usize], row_ptr[row as usize + 1], 0];
            places = perm.par_iter().map(place).collect();
            perm.clear();
        }
        Ok(Self {
            perm: Buffer::from_host(cuda.stream(), &perm, WHAT)?,
            places: Buffer::from_host(cuda.stream(), &places, WHAT)?,
            kernel,
            classes,
            parts: Parts::new(cuda, &parts)?,
        })
    }
}

/// Lanes for a row of this length: about [`ENTRIES_A_LANE_OF_SMALL`] entries each, up to a thread block; [`SPLIT`] from
/// [`ENTRIES_A_PIECE`] on.
fn lanes_of(len: usize) -> u32 {
    if len > ENTRIES_A_PIECE {
        return SPLIT;
    }
    (len.div_ceil(ENTRIES_A_LANE_OF_SMALL as usize).max(1) as u32).next_power_of_two().min(256)
}

/// Sorts rows by descending number of lanes, so that long ones begin first. Rows of a class keep their order, so that
/// neighbouring rows read x from the cache.
fn classify(row_ptr: &[Offset]) -> (Vec<u32>, Classes, Vec<Part>) {
    let lanes: Vec<u32> = row_ptr.par_windows(2).map(|row| lanes_of((row[1] - row[0]) as usize)).collect();
    let mut classes = Classes { lanes: [1; CLASSES], ..Classes::default() };
    let (mut perm, mut parts) = (Vec::with_capacity(lanes.len()), Vec::new());
    let (mut class, mut block) = (0, 0);
    for of_class in [SPLIT, 256, 128, 64, 32, 16, 8, 4, 2, 1] {
        let begin = perm.len();
        perm.extend(lanes.iter().enumerate().filter(|&(_, &lanes)| lanes == of_class).map(|(row, _)| row as u32));
        if perm.len() == begin {
            continue;
        }
        (classes.block[class], classes.row[class], classes.lanes[class]) = (block, begin as u32, of_class);
        class += 1;
        if of_class != SPLIT {
            block += (perm.len() - begin).div_ceil(256 / of_class as usize) as u32;
            continue;
        }
        for &row in &perm[begin..] {
            split(&mut parts, row, row_ptr[row as usize], row_ptr[row as usize + 1], ENTRIES_A_PIECE);
        }
        block += parts.len() as u32;
    }
    classes.block[class..].fill(block);
    classes.row[class..].fill(perm.len() as u32);
    (perm, classes, parts)
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::pointers;
    use super::*;
    use crate::parts::tests::check;

    #[test]
    fn every_entry_is_in_one_class_or_piece() {
        let lengths: Vec<u32> =
            (0..3000u32).map(|i| if i % 701 == 5 { 2049 + 900 * (i / 100) } else { (i * i) % 1500 }).collect();
        let ptr = pointers(&lengths);
        let (perm, classes, parts) = classify(&ptr);
        let mut seen = perm.clone();
        seen.sort_unstable();
        assert!(seen.iter().enumerate().all(|(i, &row)| i as u32 == row));
        let split: Vec<u32> = perm.iter().copied().filter(|&row| lengths[row as usize] > 2048).collect();
        assert!(parts.chunk_by(|a, b| a.row == b.row).map(|of_row| of_row[0].row).eq(split));
        check(&parts, &ptr, ENTRIES_A_PIECE);
        assert!(classes.block.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(classes.row[CLASSES] as usize, lengths.len());
    }

    #[test]
    fn the_kernel_follows_parts_and_entries() {
        let of = |nnz, parts| ClassesKernel::of(nnz, parts, 132);
        assert_eq!([of(0, 0), of(1_622_015, 0)], [ClassesKernel::Whole; 2]);
        assert_eq!(of(1_622_015, 2), ClassesKernel::Split);
        assert_eq!([of(1_622_016, 0), of(1_622_016, 2)], [ClassesKernel::Wide; 2]);
    }
}
