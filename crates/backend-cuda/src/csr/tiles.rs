//! The tiles of the balanced CSR kernel: equal shares of the merged sequence of entries and ends of rows.

use rayon::prelude::*;
use spandrel_backend::Result;
use spandrel_formats::{Offset, Real};

use crate::Cuda;
use crate::memory::Buffer;

/// Rows and entries of a tile of the balanced kernel (`TILE` of kernels/csr.cu).
const TILE: usize = 7 * 256;

/// The tiles of the balanced kernel.
#[derive(Debug)]
pub(super) struct Tiles<T> {
    pub(super) count: usize,
    /// Rows ended before each tile, and before the end.
    pub(super) rows: Buffer<u32>,
    /// Rows that several tiles share: (row, its first tile, its last).
    pub(super) spans: Buffer<u32>,
    pub(super) span_count: u32,
    /// Two sums a tile.
    pub(super) pieces: Buffer<T>,
}

/// Rows ended before the first `items` items of the merged sequence of entries and ends of rows, an end after its row's entries.
fn rows_before(row_ptr: &[Offset], items: usize) -> usize {
    let (nrows, nnz) = (row_ptr.len() - 1, row_ptr[row_ptr.len() - 1] as usize);
    let (mut low, mut high) = (items.saturating_sub(nnz), items.min(nrows));
    while low < high {
        let middle = low.midpoint(high);
        if (row_ptr[middle + 1] as usize) < items - middle {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<T: Real> Tiles<T> {
    pub(super) fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        const WHAT: &str = "a matrix's tiles";
        let (nrows, nnz) = (row_ptr.len() - 1, row_ptr[row_ptr.len() - 1] as usize);
        let (items, count) = (nrows + nnz, (nrows + nnz).div_ceil(TILE));
        let rows: Vec<u32> =
            (0..=count).into_par_iter().map(|tile| rows_before(row_ptr, items.min(tile * TILE)) as u32).collect();
        // A row that began before the tile in which it ends. Entry k of row r is item k + r.
        let spans: Vec<u32> = (0..count)
            .filter_map(|tile| {
                let row = rows[tile] as usize;
                let begin = row_ptr[row] as usize;
                let spans = rows[tile + 1] as usize > row && begin + row < tile * TILE;
                spans.then(|| [row as u32, ((begin + row) / TILE) as u32, tile as u32])
            })
            .flatten()
            .collect();
        Ok(Self {
            count,
            rows: Buffer::from_host(cuda.stream(), &rows, WHAT)?,
            spans: Buffer::from_host(cuda.stream(), &spans, WHAT)?,
            span_count: (spans.len() / 3) as u32,
            pieces: Buffer::uninit(cuda.stream(), 2 * count, WHAT)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::choose::tests::pointers;
    use super::*;

    /// The merged sequence, item by item.
    #[test]
    fn tiles_cut_the_merged_sequence() {
        for lengths in [vec![], vec![0], vec![3], vec![0, 0, 5, 0, 1, 9, 0, 0], vec![2; 9]] {
            let ptr = pointers(&lengths);
            let (nrows, nnz) = (lengths.len(), ptr[lengths.len()] as usize);
            let (mut rows, mut entries) = (0, 0);
            for items in 0..=nrows + nnz {
                assert_eq!(rows_before(&ptr, items), rows, "{lengths:?} {items}");
                if rows < nrows && entries == ptr[rows + 1] as usize {
                    rows += 1;
                } else {
                    entries += 1;
                }
            }
        }
    }
}
