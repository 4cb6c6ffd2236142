//! The pieces of the balanced CSR kernel: whole rows with about the same number of entries, one piece per warp, and one
//! bit per entry that marks where rows begin.
//!
//! Cost: one bit per entry and 16 bytes per piece, instead of row pointers. Kernel: kernels/include/marked.cuh.

use rayon::prelude::*;
use spandrel_backend::Result;
use spandrel_formats::{Offset, Ordinal, Real};

use crate::Cuda;
use crate::kernel::kernels;
use crate::launch::Product;
use crate::memory::{Address, Buffer};
use crate::pieces::{Cut, Pieces, PiecesParameters, cut};

kernels! {
    struct SpmvBalancedCsr<T> {
        marks: Address, rows: Address, col_idx: Address, values: Address, nnz: u32, work: PiecesParameters,
        product: Product<T>,
    }
    in CSR { ENTRY: "spmv_balanced_csr" }
}

/// Entries of a piece: two steps of a warp. With longer pieces, the last warps would run without the others.
const PIECE: usize = 256;

/// The pieces, the rows that are in no piece, and where rows begin.
#[derive(Debug)]
pub(super) struct Marked<T> {
    /// Bit e % 32 of word e / 32: whether a row begins with entry e.
    marks: Buffer<u32>,
    /// First entry, the one past the last, the first row among those that have entries, and 0.
    pieces: Pieces<[u32; 4], T>,
    /// The rows that have entries; empty if all have some.
    rows: Option<Buffer<Ordinal>>,
}

/// Marks the entries that begin a row.
fn marks(row_ptr: &[Offset]) -> Vec<u32> {
    let nnz = row_ptr.last().map_or(0, |&nnz| nnz as usize);
    let mut marks = vec![0; nnz.div_ceil(32)];
    for row in row_ptr.windows(2).filter(|row| row[0] < row[1]) {
        marks[row[0] as usize / 32] |= 1 << (row[0] % 32);
    }
    marks
}

/// The pieces, with their first row among those that have entries.
fn ranked(row_ptr: &[Offset], cut: &Cut) -> Vec<[u32; 4]> {
    let rank = |begin: Offset| {
        // If several rows begin here, only the last one is not empty and has the entry.
        let row = row_ptr.partition_point(|&ptr| ptr <= begin) - 1;
        row - cut.empty.partition_point(|&empty| (empty as usize) < row)
    };
    cut.pieces.par_iter().map(|&[begin, end]| [begin, end, rank(begin) as u32, 0]).collect()
}

impl<T: Real> Marked<T> {
    pub(super) fn new(cuda: &Cuda, row_ptr: &[Offset]) -> Result<Self> {
        const WHAT: &str = "a matrix's pieces";
        let cut = cut(row_ptr, PIECE, 2 * PIECE);
        let nonempty = || {
            let begun = (0..).zip(row_ptr.windows(2)).filter(|(_, row)| row[0] < row[1]);
            Buffer::from_host(cuda.stream(), &begun.map(|(row, _)| row).collect::<Vec<Ordinal>>(), WHAT)
        };
        Ok(Self {
            marks: Buffer::from_host(cuda.stream(), &marks(row_ptr), WHAT)?,
            pieces: Pieces::new(cuda, &cut, &ranked(row_ptr, &cut), PIECE)?,
            rows: if cut.empty.is_empty() { None } else { Some(nonempty()?) },
        })
    }

    /// Enqueues y <- a A x + b y.
    ///
    /// # Safety
    /// These are the pieces of the matrix with these columns and values, which begin at multiples of 16 bytes, and the
    /// product is one with that matrix.
    pub(super) unsafe fn launch(
        &self,
        product: &Product<T>,
        cuda: &Cuda,
        (col_idx, values, nnz): (Address, Address, usize),
    ) -> Result<()> {
        let Some((grid, work)) = self.pieces.work() else { return Ok(()) };
        let (marks, rows) = (self.marks.pointer(), self.rows.as_ref().map_or(Address::NULL, Buffer::pointer));
        let parameters = SpmvBalancedCsr { marks, rows, col_idx, values, nnz: nnz as u32, work, product: *product };
        // SAFETY: the caller vouches for the entries and for the product.
        unsafe { cuda.launch::<T, _>(SpmvBalancedCsr::ENTRY, grid, &parameters) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::tests::begins;

    /// Marks and ranks are enough to find the row of every entry.
    #[test]
    fn entries_find_their_rows() {
        let uneven: Vec<u32> =
            (0..4000u32).map(|i| if i % 5 == 0 { 0 } else { i * i % 97 + (i % 811 / 810) * 700 }).collect();
        for lengths in [vec![], vec![0, 0], vec![3], vec![0, 0, 5, 0, 1, 300, 0, 9, 0], vec![2; 900], uneven] {
            let ptr = begins(&lengths);
            let (marks, cut) = (marks(&ptr), cut(&ptr, PIECE, 2 * PIECE));
            let rows: Vec<usize> = (0..lengths.len()).filter(|&row| lengths[row] > 0).collect();
            let mut found = vec![usize::MAX; ptr[lengths.len()] as usize];
            for [begin, end, rank, _] in ranked(&ptr, &cut) {
                let mut next = rank as usize;
                for e in begin..end {
                    next += (marks[e as usize / 32] >> (e % 32) & 1) as usize;
                    found[e as usize] = rows[next - 1];
                }
            }
            cut.parts.iter().for_each(|part| found[part.begin as usize..part.end as usize].fill(part.row as usize));
            let wanted: Vec<usize> =
                (0..lengths.len()).flat_map(|row| std::iter::repeat_n(row, lengths[row] as usize)).collect();
            assert_eq!(found, wanted, "{} rows", lengths.len());
        }
    }
}
