//! Rows of a CSR matrix in classes by length, each with as many lanes a row as its rows ask for.

use rayon::prelude::*;
use spandrel_backend::Result;
use spandrel_formats::{Offset, Real};

use super::choose::{ENTRIES_A_LANE_OF_SMALL, ENTRIES_A_PIECE};
use crate::Cuda;
use crate::launch::Argument;
use crate::memory::Buffer;

/// Classes of rows, at most.
const CLASSES: usize = 10;
/// What stands for lanes where a row comes in pieces, a thread block each.
const SPLIT: u32 = 512;

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

/// A piece of a split row, entries begin..end, and which of all pieces are the row's.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Part {
    row: u32,
    begin: u32,
    end: u32,
    first: u32,
    count: u32,
}

/// The rows in the order of their classes, and the pieces of those that are split.
#[derive(Debug)]
pub(super) struct Bins<T> {
    pub(super) perm: Buffer<u32>,
    pub(super) classes: Classes,
    pub(super) parts: Buffer<Part>,
    pub(super) pieces: Buffer<T>,
    /// One a piece, the first of each row's in use; 0 between products.
    pub(super) tickets: Buffer<u32>,
}

impl<T: Real> Bins<T> {
    /// Thread blocks of all classes.
    pub(super) fn blocks(&self) -> usize {
        self.classes.block[CLASSES] as usize
    }

    pub(super) fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        const WHAT: &str = "a matrix's classes of rows";
        let (perm, classes, parts) = classify(row_ptr);
        Ok(Self {
            perm: Buffer::from_host(cuda.stream(), &perm, WHAT)?,
            classes,
            parts: Buffer::from_host(cuda.stream(), &parts, WHAT)?,
            pieces: Buffer::uninit(cuda.stream(), parts.len(), WHAT)?,
            tickets: Buffer::zeros(cuda.stream(), parts.len(), WHAT)?,
        })
    }
}

/// Lanes for a row of so many entries: about [`ENTRIES_A_LANE_OF_SMALL`] each up to a thread block, [`SPLIT`] from [`ENTRIES_A_PIECE`] on.
fn lanes_of(len: usize) -> u32 {
    if len > ENTRIES_A_PIECE {
        return SPLIT;
    }
    (len.div_ceil(ENTRIES_A_LANE_OF_SMALL as usize).max(1) as u32).next_power_of_two().min(256)
}

/// Rows by descending lanes, the long ones begin first; rows of a class stay in order, for their x.
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
            let (from, to) = (row_ptr[row as usize], row_ptr[row as usize + 1]);
            let count = (to - from).div_ceil(ENTRIES_A_PIECE as u32);
            let first = parts.len() as u32;
            // Equal pieces, of whole 32 entries.
            let size = (to - from).div_ceil(count).next_multiple_of(32);
            let cut = |k: u32| from + (k * size).min(to - from);
            parts.extend((0..count).map(|k| Part { row, begin: cut(k), end: cut(k + 1), first, count }));
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
        for row in split {
            let of_row: Vec<&Part> = parts.iter().filter(|part| part.row == row).collect();
            assert_eq!(of_row[0].begin, ptr[row as usize]);
            assert_eq!(of_row[of_row.len() - 1].end, ptr[row as usize + 1]);
            assert!(of_row.windows(2).all(|pair| pair[0].end == pair[1].begin && pair[0].begin < pair[0].end));
            assert!(
                of_row.iter().all(|part| part.count as usize == of_row.len() && part.end - part.begin <= 2048 + 32)
            );
            assert_eq!(parts[of_row[0].first as usize], *of_row[0]);
        }
        assert!(classes.block.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(classes.row[CLASSES] as usize, lengths.len());
    }
}
