//! Long rows in parts, one per thread block. The last block to end adds up the parts of a row.
//!
//! Layout: the parts of a row side by side, in the order of its entries. Order: the kernel's own within a part, a tree
//! over the parts; the same bits each time. Kernels: kernels/include/parts.cuh.

use spandrel_backend::Result;
use spandrel_formats::{Offset, Real};

use crate::Cuda;
use crate::memory::{Address, Buffer};

/// A part of a row: its entries begin..end, and the range of all parts that belong to the same row.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Part {
    pub(crate) row: u32,
    pub(crate) begin: u32,
    pub(crate) end: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Appends the parts of a row of entries from..to. The parts have equal lengths, consist of whole groups of 32 entries,
/// have at most `most` + 31 entries, and are as few as possible.
pub(crate) fn split(parts: &mut Vec<Part>, row: u32, from: Offset, to: Offset, most: usize) {
    let count = (to - from).div_ceil(most as u32);
    let first = parts.len() as u32;
    let size = (to - from).div_ceil(count).next_multiple_of(32);
    let cut = |k: u32| from + (k * size).min(to - from);
    parts.extend((0..count).map(|k| Part { row, begin: cut(k), end: cut(k + 1), first, count }));
}

/// The parts of all long rows in device memory, and the memory in which their kernels add them up.
#[derive(Debug)]
pub(crate) struct Parts<T> {
    list: Buffer<Part>,
    sums: Buffer<T>,
    /// One per part, but each row uses only the ticket of its first part. All are 0 between products.
    tickets: Buffer<u32>,
}

impl<T: Real> Parts<T> {
    pub(crate) fn new(cuda: &Cuda, parts: &[Part]) -> Result<Self> {
        const WHAT: &str = "a matrix's long rows";
        Ok(Self {
            list: Buffer::from_host(cuda.stream(), parts, WHAT)?,
            sums: Buffer::uninit(cuda.stream(), parts.len(), WHAT)?,
            tickets: Buffer::zeros(cuda.stream(), parts.len(), WHAT)?,
        })
    }

    /// The number of parts.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// The parameters of kernels: the parts, their sums, the tickets.
    pub(crate) fn pointers(&self) -> [Address; 3] {
        [self.list.pointer(), self.sums.pointer(), self.tickets.pointer()]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that the parts are those of whole rows, each in order and without gaps.
    pub(crate) fn check(parts: &[Part], row_ptr: &[Offset], most: usize) {
        for of_row in parts.chunk_by(|a, b| a.row == b.row) {
            let row = of_row[0].row as usize;
            assert_eq!((of_row[0].begin, of_row[of_row.len() - 1].end), (row_ptr[row], row_ptr[row + 1]));
            assert!(of_row.windows(2).all(|pair| pair[0].end == pair[1].begin));
            assert!(of_row.iter().all(|part| part.begin < part.end && (part.end - part.begin) as usize <= most + 31));
            assert!(of_row.iter().all(|part| part.count as usize == of_row.len()));
            assert_eq!(parts[of_row[0].first as usize], of_row[0]);
        }
    }

    #[test]
    fn parts_are_equal_and_none_is_empty() {
        for len in [1, 31, 32, 2048, 2049, 2080, 4097, 1 << 20] {
            let mut parts = Vec::new();
            split(&mut parts, 3, 0, 5, 2048);
            split(&mut parts, 4, 5, 5 + len, 2048);
            check(&parts, &[0, 0, 0, 0, 5, 5 + len], 2048);
        }
    }
}
