//! Products by pieces of whole rows, one piece per warp, with long rows in parts and empty rows in a list. COO and the
//! balanced CSR share this.
//!
//! Layout: the first entry of a piece and the one past its last, then the data by which the kernel finds the piece's
//! rows. Order: the kernel's own, with the same bits each time. Cost: a few words per piece. Kernels:
//! kernels/include/pieces.cuh.

use spandrel_backend::Result;
use spandrel_formats::{Offset, Ordinal, Real};

use crate::Cuda;
use crate::kernel::parameters;
use crate::launch::Grid;
use crate::memory::{Address, Buffer};
use crate::parts::{Part, Parts, split};

/// Entries that a lane reads at once (`EACH` of kernels/include/pieces.cuh).
pub(crate) const EACH: usize = 4;
/// The entries of a long row that one thread block adds.
const PART: usize = 2048;

/// How the rows are divided.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    pub(crate) pieces: Vec<[u32; 2]>,
    pub(crate) parts: Vec<Part>,
    pub(crate) empty: Vec<Ordinal>,
}

/// Divides rows into pieces for the warps. A piece lies within `piece` entries, a multiple of [`EACH`], counted from a
/// multiple of [`EACH`]. A longer row is a piece by itself, and one with more than `long` entries is cut into parts.
pub(crate) fn cut(row_ptr: &[Offset], piece: usize, long: usize) -> Cut {
    let mut cut = Cut::default();
    let mut open: Option<[u32; 2]> = None;
    for (row, ptr) in (0..).zip(row_ptr.windows(2)) {
        let (begin, end) = (ptr[0], ptr[1]);
        if begin == end {
            cut.empty.push(row);
        } else if (end - begin) as usize > long {
            cut.pieces.extend(open.take());
            split(&mut cut.parts, row, begin, end, PART);
        } else {
            let from = match open {
                Some([from, _]) if end as usize - from as usize / EACH * EACH <= piece => from,
                _ => {
                    cut.pieces.extend(open);
                    begin
                }
            };
            open = Some([from, end]);
        }
    }
    cut.pieces.extend(open);
    cut
}

parameters! {
    /// The parameters for the work of a product. They follow the arrays of entries. Pieces and parts refer to entries.
    /// Each row of y is written once, by a piece, by parts, or as an empty row.
    pub(crate) struct PiecesParameters {
        pieces: Address, count: u32, limit: u32, parts: Address, part_count: u32, sums: Address, tickets: Address,
        empty: Address, empties: u32,
    }
}

/// The work of a product in device memory.
#[derive(Debug)]
pub(crate) struct Pieces<P, T> {
    list: Buffer<P>,
    /// The largest number of entries in a piece of several rows.
    limit: u32,
    parts: Parts<T>,
    /// The rows without entries.
    empty: Buffer<Ordinal>,
}

impl<P: bytemuck::Pod, T: Real> Pieces<P, T> {
    /// Copies rows that were cut into pieces of at most `limit` entries to the device. `list` has the pieces in the
    /// form that the kernel takes.
    pub(crate) fn new(cuda: &Cuda, cut: &Cut, list: &[P], limit: usize) -> Result<Self> {
        Ok(Self {
            list: Buffer::from_host(cuda.stream(), list, "a matrix's pieces")?,
            limit: limit as u32,
            parts: Parts::new(cuda, &cut.parts)?,
            empty: Buffer::from_host(cuda.stream(), &cut.empty, "the empty rows")?,
        })
    }

    /// The grid of a product and the work of its kernel; `None` if there is none.
    pub(crate) fn work(&self) -> Option<(Grid, PiecesParameters)> {
        let (count, part_count, empties) = (self.list.len(), self.parts.len(), self.empty.len());
        let threads = if part_count == 0 { 128 } else { 256 };
        let blocks = part_count + count.div_ceil(threads / 32) + empties.div_ceil(4 * threads);
        if blocks == 0 {
            return None;
        }
        let [parts, sums, tickets] = self.parts.pointers();
        let parameters = PiecesParameters {
            pieces: self.list.pointer(),
            count: count as u32,
            limit: self.limit,
            parts,
            part_count: part_count as u32,
            sums,
            tickets,
            empty: self.empty.pointer(),
            empties: empties as u32,
        };
        Some((Grid::of(blocks, threads as u32), parameters))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::parts::tests::check;

    /// The row pointers of rows with these lengths.
    pub(crate) fn begins(lengths: &[u32]) -> Vec<Offset> {
        std::iter::once(0)
            .chain(lengths.iter().scan(0, |at, len| {
                *at += len;
                Some(*at)
            }))
            .collect()
    }

    #[test]
    fn every_row_is_whole_in_a_piece_or_in_parts_or_empty() {
        let lengths: Vec<u32> = (0..5000u32)
            .map(|i| match i % 13 {
                0 => 0,
                1 if i % 7 == 0 => 257 + 61 * i,
                2 => 256,
                3 => 126 + i % 5,
                _ => i * i % 40,
            })
            .collect();
        let ptr = begins(&lengths);
        let cut = cut(&ptr, 128, 256);
        check(&cut.parts, &ptr, PART);
        let mut covered = vec![0; lengths.len()];
        cut.empty.iter().for_each(|&row| {
            assert_eq!(lengths[row as usize], 0);
            covered[row as usize] += 1;
        });
        cut.parts.chunk_by(|a, b| a.row == b.row).for_each(|of_row| covered[of_row[0].row as usize] += 1);
        for &[begin, end] in &cut.pieces {
            let first = ptr.partition_point(|&p| p <= begin) - 1;
            let rows: Vec<usize> =
                (first..lengths.len()).take_while(|&i| ptr[i] < end).filter(|&i| lengths[i] > 0).collect();
            assert_eq!((ptr[rows[0]], ptr[rows[rows.len() - 1] + 1]), (begin, end));
            assert!(rows.len() == 1 || end - begin / 4 * 4 <= 128);
            rows.iter().for_each(|&row| covered[row] += 1);
        }
        assert!(covered.iter().all(|&times| times == 1));
    }

    #[test]
    fn pieces_are_as_long_as_they_may_be() {
        let pieces = |lengths: &[u32]| cut(&begins(lengths), 128, 256).pieces;
        assert!(pieces(&[]).is_empty() && pieces(&[0, 0]).is_empty());
        assert_eq!(pieces(&[64, 0, 64]), [[0, 128]]);
        assert_eq!(pieces(&[64, 65]), [[0, 64], [64, 129]]);
        // Four entries are read together: the second piece begins within them.
        assert_eq!(pieces(&[125, 64, 64, 3]), [[0, 125], [125, 189], [189, 256]]);
        assert_eq!(pieces(&[257, 3, 256, 1]), [[257, 260], [260, 516], [516, 517]]);
        assert_eq!(cut(&begins(&[257, 3]), 128, 256).parts.len(), 1);
        assert_eq!(cut(&begins(&[256, 3]), 128, 256).parts.len(), 0);
    }
}
