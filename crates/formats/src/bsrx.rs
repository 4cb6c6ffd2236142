//! BSRX: BSR with separate ends of the block rows, and a mask of the block rows that an operation updates.
//!
//! Layout (block_dim 2, 6 x 6; block row 1 is followed by a gap of one block, and the mask leaves out block row 0):
//! ```text
//! row_start 0 2 4      row_end 2 3 6      mask 1 2
//! blocks    0 0 | 1 - | 2 2               `-` belongs to no row
//! ```
//! Invariants: `row_start` and `row_end` have one element per block row, `row_start[i] <= row_end[i] <= row_start[i +
//! 1]`, and the last end is at most the number of stored blocks. So gaps are allowed, overlaps are not. `mask` ascends
//! strictly. Blocks are as in BSR; blocks in gaps are neither read nor checked. As a matrix it consists of the rows of
//! the mask; a product leaves the other rows of y unchanged.
//! Cost of y = A x: masked rows' blocks (4 + |T| b b) + 12 masked block rows + |T| (ncols + masked rows) bytes.
//! Order: stored, as in BSR.
//! Reference: cuSPARSE library, bsrxmv.

use crate::bsr::{check_edge, check_shape, unblock};
use crate::csr::check_ascending;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::nonzeros;
use crate::{Bsr, Csr, Error, Format, Real, Result, Traffic};

/// A block matrix with row ends and a mask. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct Bsrx<T> {
    nrows: usize,
    ncols: usize,
    block_dim: usize,
    row_start: Vec<Offset>,
    row_end: Vec<Offset>,
    col_idx: Vec<Ordinal>,
    values: Vec<T>,
    mask: Vec<Ordinal>,
    nnz: usize,
}

/// The parts of a [`Bsrx`]: `(nrows, ncols, block_dim, row_start, row_end, col_idx, values, mask)`.
pub type BsrxParts<T> = (usize, usize, usize, Vec<Offset>, Vec<Offset>, Vec<Ordinal>, Vec<T>, Vec<Ordinal>);

impl<T: Real> Bsrx<T> {
    /// Makes a matrix from its parts and checks every invariant in O(values).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::IndexOutOfRange`], [`Error::Unsorted`], [`Error::Invalid`] for
    /// `block_dim` = 0, block rows that overlap, or a value outside the matrix.
    pub fn new(
        nrows: usize,
        ncols: usize,
        block_dim: usize,
        row_start: Vec<Offset>,
        row_end: Vec<Offset>,
        col_idx: Vec<Ordinal>,
        values: Vec<T>,
        mask: Vec<Ordinal>,
    ) -> Result<Self> {
        let format = "bsrx";
        check_shape(format, nrows, ncols, block_dim, col_idx.len(), values.len())?;
        let block_rows = nrows.div_ceil(block_dim);
        for (array, found) in [("row_start", row_start.len()), ("row_end", row_end.len())] {
            if found != block_rows {
                return Err(Error::Length { format, array, found, expected: block_rows });
            }
        }
        let mut before = 0;
        for i in 0..block_rows {
            let (start, end) = (row_start[i], row_end[i]);
            if start < before || end < start || end as usize > col_idx.len() {
                return Err(Error::Invalid {
                    format,
                    why: format!(
                        "block row {i} owns {start}..{end}, which must ascend, begin at {before} or later and end at {} \
                         or earlier",
                        col_idx.len()
                    ),
                });
            }
            before = end;
            check_ascending(format, "col_idx", &[start, end], &col_idx, ncols.div_ceil(block_dim))?;
            for (k, &j) in (start as usize..).zip(&col_idx[start as usize..end as usize]) {
                check_edge(format, (nrows, ncols), block_dim, (i, j as usize, k), &values)?;
            }
        }
        let unmasked = Self { nrows, ncols, block_dim, row_start, row_end, col_idx, values, mask: Vec::new(), nnz: 0 };
        unmasked.with_mask(mask)
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> BsrxParts<T> {
        let Self { nrows, ncols, block_dim, row_start, row_end, col_idx, values, mask, .. } = self;
        (nrows, ncols, block_dim, row_start, row_end, col_idx, values, mask)
    }

    /// The same blocks under another mask.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], [`Error::Unsorted`], [`Error::TooLarge`].
    pub fn with_mask(mut self, mask: Vec<Ordinal>) -> Result<Self> {
        // Checked in `usize`: once the mask ascends below the number of block rows, its length fits an offset.
        if let Some(at) = (1..mask.len()).find(|&at| mask[at] <= mask[at - 1]) {
            return Err(Error::Unsorted { format: "bsrx", array: "mask", at });
        }
        if let Some((at, &i)) = mask.iter().enumerate().find(|&(_, &i)| i as usize >= self.row_start.len()) {
            let (found, bound) = (i64::from(i), self.row_start.len());
            return Err(Error::IndexOutOfRange { format: "bsrx", array: "mask", at, found, bound });
        }
        self.mask = mask;
        let area = self.block_dim * self.block_dim;
        let of_row = |&i: &Ordinal| {
            let blocks = self.blocks(i as usize);
            nonzeros(&self.values[blocks.start * area..blocks.end * area])
        };
        self.nnz = checked(self.mask.iter().map(of_row).sum(), "entries")? as usize;
        Ok(self)
    }

    fn blocks(&self, i: usize) -> std::ops::Range<usize> {
        self.row_start[i] as usize..self.row_end[i] as usize
    }

    /// Number of rows and columns of a block.
    pub fn block_dim(&self) -> usize {
        self.block_dim
    }

    /// Where each block row's blocks begin.
    pub fn row_start(&self) -> &[Offset] {
        &self.row_start
    }

    /// Where each block row's blocks end.
    pub fn row_end(&self) -> &[Offset] {
        &self.row_end
    }

    /// Block column of each block.
    pub fn col_idx(&self) -> &[Ordinal] {
        &self.col_idx
    }

    /// Values of the blocks, each row-major.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The block rows that an operation updates, ascending.
    pub fn mask(&self) -> &[Ordinal] {
        &self.mask
    }

    /// Number of block rows, masked or not.
    pub fn block_rows(&self) -> usize {
        self.row_start.len()
    }
}

impl<T: Real> From<Bsr<T>> for Bsrx<T> {
    /// Moves the blocks; the mask is full.
    fn from(bsr: Bsr<T>) -> Self {
        let nnz = bsr.nnz();
        let (nrows, ncols, block_dim, mut row_ptr, col_idx, values) = bsr.into_parts();
        let row_end = row_ptr[1..].to_vec();
        row_ptr.pop();
        let mask = (0..row_end.len() as Ordinal).collect();
        Self { nrows, ncols, block_dim, row_start: row_ptr, row_end, col_idx, values, mask, nnz }
    }
}

impl<T: Real> Traffic for Bsrx<T> {
    fn storage(&self) -> u64 {
        let indices = self.col_idx.len() + self.row_start.len() + self.row_end.len() + self.mask.len();
        (self.values.len() * T::BYTES + 4 * indices) as u64
    }
    fn spmv_bytes(&self) -> u64 {
        let blocks: usize = self.mask.iter().map(|&i| self.blocks(i as usize).len()).sum();
        let rows: usize =
            self.mask.iter().map(|&i| (self.nrows - i as usize * self.block_dim).min(self.block_dim)).sum();
        // A block may be larger than the address space if none is stored.
        let block = (self.block_dim * self.block_dim).saturating_mul(T::BYTES).saturating_add(4);
        (blocks * block + 12 * self.mask.len() + (self.ncols + rows) * T::BYTES) as u64
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Bsrx<T> {
    type Value = T;
    const NAME: &'static str = "bsrx";
    const MULTIPLIES_FILL: bool = true;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    /// Number of entries of the mask's rows.
    fn nnz(&self) -> usize {
        self.nnz
    }
    /// Uses BSR's block size and the full mask.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Bsr::from_csr(csr).map(Self::from)
    }
    /// Keeps the rows of the mask; the others are empty.
    fn to_csr(&self) -> Result<Csr<T>> {
        let mut masked = vec![false; self.row_start.len()];
        self.mask.iter().for_each(|&i| masked[i as usize] = true);
        unblock((self.nrows, self.ncols, self.block_dim), &self.col_idx, &self.values, |i| {
            if masked[i] { self.blocks(i) } else { 0..0 }
        })
    }
    /// Transposes the rows of the mask, with the same block size and the full mask.
    fn transpose(&self) -> Result<Self> {
        Bsr::from(self.clone()).transpose().map(Self::from)
    }
}
