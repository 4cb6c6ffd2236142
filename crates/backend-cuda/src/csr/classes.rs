//! Rows of a CSR matrix in classes by length, each with as many lanes a row as its rows ask for.

use rayon::prelude::*;
use spandrel_backend::Result;
use spandrel_formats::Offset;

use super::choose::{ENTRIES_A_BLOCK, ENTRIES_A_LANE_OF_SMALL};
use crate::Cuda;
use crate::launch::Argument;
use crate::memory::Buffer;

/// Classes of rows, at most.
const CLASSES: usize = 8;

/// Where each class of rows begins, in thread blocks and in the permutation, and its lanes a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub(super) struct Classes {
    block: [u32; CLASSES + 1],
    row: [u32; CLASSES + 1],
    lanes: [u32; CLASSES],
}
// SAFETY: `struct Classes` of kernels/csr.cu: as many u32, in this order.
unsafe impl Argument for Classes {}

/// The rows in the order of their classes.
#[derive(Debug)]
pub(super) struct Bins {
    pub(super) perm: Buffer<u32>,
    pub(super) classes: Classes,
}

impl Bins {
    /// Thread blocks of all classes.
    pub(super) fn blocks(&self) -> usize {
        self.classes.block[CLASSES] as usize
    }

    pub(super) fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        let (perm, classes) = classify(row_ptr);
        Ok(Self { perm: Buffer::from_host(cuda.stream(), &perm, "a matrix's classes of rows")?, classes })
    }
}

/// Lanes for a row of so many entries: about [`ENTRIES_A_LANE_OF_SMALL`] entries each up to a warp, a thread block from
/// [`ENTRIES_A_BLOCK`] on.
fn lanes_of(len: usize) -> u32 {
    if len >= ENTRIES_A_BLOCK {
        return 256;
    }
    (len.div_ceil(ENTRIES_A_LANE_OF_SMALL as usize).max(1) as u32).next_power_of_two().min(32)
}

/// Rows by descending lanes, the long ones begin first; rows of a class stay in order, for their x.
fn classify(row_ptr: &[Offset]) -> (Vec<u32>, Classes) {
    let lanes: Vec<u32> = row_ptr.par_windows(2).map(|row| lanes_of((row[1] - row[0]) as usize)).collect();
    let mut classes = Classes { lanes: [1; CLASSES], ..Classes::default() };
    let mut perm = Vec::with_capacity(lanes.len());
    let (mut class, mut block) = (0, 0);
    for of_class in [256, 32, 16, 8, 4, 2, 1] {
        let first = perm.len();
        perm.extend(lanes.iter().enumerate().filter(|&(_, &lanes)| lanes == of_class).map(|(row, _)| row as u32));
        if perm.len() > first {
            (classes.block[class], classes.row[class], classes.lanes[class]) = (block, first as u32, of_class);
            block += (perm.len() - first).div_ceil(256 / of_class as usize) as u32;
            class += 1;
        }
    }
    classes.block[class..].fill(block);
    classes.row[class..].fill(perm.len() as u32);
    (perm, classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_class_with_blocks_enough() {
        for lengths in [vec![], vec![0], vec![5000, 0, 3, 1024, 1023, 40, 9, 2], vec![7; 1000]] {
            let mut ptr = vec![0];
            lengths.iter().for_each(|len| ptr.push(ptr[ptr.len() - 1] + len));
            let (perm, classes) = classify(&ptr);
            let mut seen = vec![0; lengths.len()];
            for class in 0..CLASSES {
                let (first, end) = (classes.row[class] as usize, classes.row[class + 1] as usize);
                let (blocks, lanes) = (classes.block[class + 1] - classes.block[class], classes.lanes[class]);
                assert_eq!(blocks as usize, (end - first).div_ceil(256 / lanes as usize), "{lengths:?}");
                for &row in &perm[first..end] {
                    assert_eq!(lanes_of(lengths[row as usize] as usize), lanes);
                    seen[row as usize] += 1;
                }
                assert!(perm[first..end].is_sorted());
            }
            assert!(seen.iter().all(|&times| times == 1), "{lengths:?}");
        }
    }
}
