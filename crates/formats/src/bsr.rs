//! BSR, block sparse rows: CSR whose entries are dense square blocks.
//!
//! Layout (block_dim 2, first two block rows of the 6 x 6 example of the snapshots):
//! ```text
//! | 4 .  1 .  . . |      row_ptr 0     3     5 ...
//! | . 5  2 .  3 . |      col_idx 0 1 2 | 0 1 ...
//! | . .  6 .  . . |      values  4 . . 5 | 1 . 2 . | . . 3 . | . . 8 . | 6 . . 9 | ...
//! | 8 .  . 9  . . |      position r, c of block k at k b b + r b + c
//! ```
//! Invariants: `row_ptr` has one more element than there are block rows (`nrows / b`, rounded up), starts at 0, never
//! decreases, and ends at the number of blocks. Block columns ascend strictly inside a block row. `values.len()` is the
//! number of blocks times b b. Parts of edge blocks outside the matrix hold 0 and are never multiplied; zeros inside
//! are multiplied like entries. Explicit zeros are fill. Positions are computed in `usize`.
//! Cost of y = A x: blocks (4 + |T| b b) + 4 (block rows + 1) + |T| (ncols + nrows) bytes.
//! Order: stored, block after block along the row: CSR's order.
//! Reference: Im, Yelick, Vuduc, Sparsity: optimization framework for sparse matrix kernels, 2004; cuSPARSE bsrmv.

use rayon::prelude::*;

use crate::counting::pointers;
use crate::csr::{check_ascending, check_pointers};
use crate::hash::STEP;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::{accumulate, assemble, fits, nonzeros, zeroed};
use crate::{Bsrx, Csr, Error, Format, Real, Result, Traffic};

/// The block sizes from which [`Format::from_csr`] chooses. 1 is not among them: it would be CSR with more bytes per
/// row.
pub const BLOCK_DIMS: [usize; 5] = [2, 3, 4, 6, 8];

/// A matrix of dense square blocks. See the module's head for layout and invariants.
#[doc(alias = "bcrs")]
#[doc(alias = "BlockCsr")]
#[derive(Clone, Debug, PartialEq)]
pub struct Bsr<T> {
    nrows: usize,
    ncols: usize,
    block_dim: usize,
    row_ptr: Vec<Offset>,
    col_idx: Vec<Ordinal>,
    values: Vec<T>,
    nnz: usize,
}

/// The parts of a [`Bsr`]: `(nrows, ncols, block_dim, row_ptr, col_idx, values)`.
pub type BsrParts<T> = (usize, usize, usize, Vec<Offset>, Vec<Ordinal>, Vec<T>);

impl<T: Real> Bsr<T> {
    /// Makes a matrix from its parts and checks every invariant in O(values).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::Pointer`], [`Error::IndexOutOfRange`], [`Error::Unsorted`],
    /// [`Error::Invalid`] for `block_dim` = 0 or a value outside the matrix.
    pub fn new(
        nrows: usize,
        ncols: usize,
        block_dim: usize,
        row_ptr: Vec<Offset>,
        col_idx: Vec<Ordinal>,
        values: Vec<T>,
    ) -> Result<Self> {
        let format = "bsr";
        check_shape(format, nrows, ncols, block_dim, col_idx.len(), values.len())?;
        let block_rows = nrows.div_ceil(block_dim);
        if row_ptr.len() != block_rows + 1 {
            return Err(Error::Length { format, array: "row_ptr", found: row_ptr.len(), expected: block_rows + 1 });
        }
        check_pointers(format, "row_ptr", &row_ptr, col_idx.len())?;
        check_ascending(format, "col_idx", &row_ptr, &col_idx, ncols.div_ceil(block_dim))?;
        for (i, blocks) in row_ptr.windows(2).enumerate() {
            for (k, &j) in (blocks[0] as usize..).zip(&col_idx[blocks[0] as usize..blocks[1] as usize]) {
                check_edge(format, (nrows, ncols), block_dim, (i, j as usize, k), &values)?;
            }
        }
        let nnz = checked(nonzeros(&values), "entries")? as usize;
        Ok(Self { nrows, ncols, block_dim, row_ptr, col_idx, values, nnz })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> BsrParts<T> {
        (self.nrows, self.ncols, self.block_dim, self.row_ptr, self.col_idx, self.values)
    }

    /// Number of rows and columns of a block.
    pub fn block_dim(&self) -> usize {
        self.block_dim
    }

    /// Where each block row's blocks begin.
    pub fn row_ptr(&self) -> &[Offset] {
        &self.row_ptr
    }

    /// Block column of each block.
    pub fn col_idx(&self) -> &[Ordinal] {
        &self.col_idx
    }

    /// Values of the blocks, each row-major.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Number of block rows.
    pub fn block_rows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// The block size among [`BLOCK_DIMS`] with the fewest bytes; the smallest among equals.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn choose_block_dim(csr: &Csr<T>) -> Result<usize> {
        let bytes = |&b: &usize| -> Result<(u128, usize)> {
            let blocks: u128 = count_blocks(csr, b)?.iter().map(|&count| u128::from(count)).sum();
            Ok((storage_bytes::<T>(csr.nrows(), b, blocks), b))
        };
        let sizes = BLOCK_DIMS.par_iter().map(bytes).collect::<Result<Vec<_>>>()?;
        Ok(sizes.into_iter().min().map_or(BLOCK_DIMS[0], |(_, b)| b))
    }

    /// The share of the places that hold entries in blocks of `block_dim` x `block_dim`, by a sixteenth of the block
    /// rows; NaN if these have none.
    ///
    /// # Panics
    /// For `block_dim` = 0.
    pub fn sampled_share(csr: &Csr<T>, block_dim: usize) -> f64 {
        let (blocks, entries) = blocks_of_some(csr, block_dim, 0..PARTS / 16);
        entries as f64 / (blocks * block_dim * block_dim) as f64
    }

    /// Stores blocks of `block_dim` x `block_dim`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for `block_dim` = 0; [`Error::DoesNotFit`] if the storage exceeds 1 MiB and 20 times CSR's.
    pub fn from_csr_with(csr: &Csr<T>, block_dim: usize) -> Result<Self> {
        let b = block_dim;
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        check_shape("bsr", nrows, ncols, b, 0, 0)?;
        let mut row_ptr = count_blocks(csr, b)?;
        row_ptr.insert(0, 0);
        let blocks = accumulate(&mut row_ptr)?;
        fits::<T>("bsr", storage_bytes::<T>(nrows, b, blocks as u128), nrows, csr.nnz())?;
        let mut col_idx: Vec<Ordinal> = zeroed(blocks, "col_idx")?;
        let mut values: Vec<T> = zeroed(blocks * b * b, "values")?;
        let mut tasks = Vec::new();
        let (mut cols_left, mut values_left) = (&mut col_idx[..], &mut values[..]);
        let group = (4096 / b).max(1);
        for start in (0..row_ptr.len() - 1).step_by(group) {
            let end = (start + group).min(row_ptr.len() - 1);
            let len = (row_ptr[end] - row_ptr[start]) as usize;
            let (cols, cols_rest) = cols_left.split_at_mut(len);
            let (vals, values_rest) = values_left.split_at_mut(len * b * b);
            (cols_left, values_left) = (cols_rest, values_rest);
            tasks.push((start..end, cols, vals));
        }
        tasks.into_par_iter().for_each_init(
            || (0..b.min(nrows)).map(|_| 0).collect::<Vec<usize>>(),
            |next, (block_rows, cols, vals)| {
                let mut out = cols.iter_mut().zip(vals.chunks_mut(b * b));
                for i in block_rows {
                    merge_block_row(csr, b, i, next, &mut out);
                }
            },
        );
        Ok(Self { nrows, ncols, block_dim, row_ptr, col_idx, values, nnz: nonzeros(csr.values()) })
    }
}

/// Merges the rows of block row `i`. They ascend, so the least block column under their cursors is the next block.
fn merge_block_row<'a, T: Real>(
    csr: &Csr<T>,
    b: usize,
    i: usize,
    next: &mut [usize],
    out: &mut impl Iterator<Item = (&'a mut Ordinal, &'a mut [T])>,
) {
    let rows = i * b..csr.nrows().min(i * b + b);
    next.iter_mut().for_each(|n| *n = 0);
    loop {
        let heads = rows.clone().zip(next.iter()).filter_map(|(row, &n)| csr.row(row).0.get(n));
        let Some(block) = heads.map(|&j| j as usize / b).min() else { return };
        let Some((col, values)) = out.next() else { return };
        *col = block as Ordinal;
        for (r, (row, n)) in rows.clone().zip(next.iter_mut()).enumerate() {
            let (cols, row_values) = csr.row(row);
            while *n < cols.len() && (cols[*n] as usize) < (block + 1) * b {
                values[r * b + cols[*n] as usize - block * b] = row_values[*n];
                *n += 1;
            }
        }
    }
}

/// Counts the blocks in each block row: one stamp per block column, one pass over the entries, ranges of block rows in
/// parallel.
pub(crate) fn count_blocks<T: Real>(csr: &Csr<T>, b: usize) -> Result<Vec<Offset>> {
    let (nrows, columns) = (csr.nrows(), csr.ncols().div_ceil(b));
    // Each range has its own stamps; together they are at most as many as entries.
    let ranges = (csr.nnz() / columns.max(1)).clamp(1, rayon::current_num_threads());
    let mut counts: Vec<Offset> = zeroed(nrows.div_ceil(b), "blocks of block rows")?;
    let range = counts.len().div_ceil(ranges).max(1);
    counts.par_chunks_mut(range).enumerate().try_for_each(|(part, counts)| {
        let mut stamps: Vec<u32> = zeroed(columns, "stamps of block columns")?;
        let first = part * range;
        // A division by a constant compiles to a multiplication.
        match b {
            2 => stamp::<T, 2>(csr, b, first, counts, &mut stamps),
            3 => stamp::<T, 3>(csr, b, first, counts, &mut stamps),
            4 => stamp::<T, 4>(csr, b, first, counts, &mut stamps),
            6 => stamp::<T, 6>(csr, b, first, counts, &mut stamps),
            8 => stamp::<T, 8>(csr, b, first, counts, &mut stamps),
            _ => stamp::<T, 0>(csr, b, first, counts, &mut stamps),
        }
        Ok(())
    })?;
    Ok(counts)
}

/// Counts the blocks of the block rows from `first` on. `B` is `b`, or 0 for any block size.
fn stamp<T: Real, const B: usize>(csr: &Csr<T>, b: usize, first: usize, counts: &mut [Offset], stamps: &mut [u32]) {
    let b = if B == 0 { b } else { B };
    for (k, count) in counts.iter_mut().enumerate() {
        let row = (first + k) * b;
        let (begin, end) = (csr.row_ptr()[row], csr.row_ptr()[csr.nrows().min(row + b)]);
        let stamp = k as u32 + 1;
        for &j in &csr.col_idx()[begin as usize..end as usize] {
            let seen = &mut stamps[j as usize / b];
            *count += Offset::from(*seen != stamp);
            *seen = stamp;
        }
    }
}

/// Number of adjacent block rows in a group of [`blocks_of_some`], and number of parts.
const TOGETHER: usize = 16;
pub(crate) const PARTS: usize = 1024;

/// Counts the blocks, and the entries, in some of 1024 parts of the block rows. Each part is spread over the matrix.
pub(crate) fn blocks_of_some<T: Real>(csr: &Csr<T>, b: usize, parts: std::ops::Range<usize>) -> (usize, usize) {
    let groups = csr.nrows().div_ceil(b).div_ceil(TOGETHER);
    let count = |distinct: &mut Distinct, group: usize| {
        let (mut blocks, mut entries) = (0, 0);
        let first = group * TOGETHER * b;
        for row in (first..csr.nrows().min(first + TOGETHER * b)).step_by(b) {
            let (begin, end) = (csr.row_ptr()[row], csr.row_ptr()[csr.nrows().min(row + b)]);
            let cols = &csr.col_idx()[begin as usize..end as usize];
            blocks += distinct.count(cols.len(), cols.iter().map(|&j| j / b as Ordinal));
            entries += cols.len();
        }
        (blocks, entries)
    };
    let strides = groups.clamp(1, PARTS);
    let parts = (parts.start * strides).div_ceil(PARTS)..(parts.end * strides).div_ceil(PARTS);
    let in_parts = |part: usize| (part..groups).into_par_iter().step_by(strides);
    let sum = |a: (usize, usize), b: (usize, usize)| (a.0 + b.0, a.1 + b.1);
    let chosen = parts.into_par_iter().flat_map(in_parts);
    chosen.map_init(Distinct::default, count).reduce(|| (0, 0), sum)
}

/// Counts distinct numbers below [`Ordinal::MAX`], by a hash table that stays in first-level cache if they are few.
#[derive(Default)]
struct Distinct {
    table: Vec<Ordinal>,
}

impl Distinct {
    fn count(&mut self, most: usize, numbers: impl Iterator<Item = Ordinal>) -> usize {
        const NONE: Ordinal = Ordinal::MAX;
        let places = (2 * most).next_power_of_two().max(2);
        if self.table.len() < places {
            self.table.resize(places, NONE);
        }
        let table = &mut self.table[..places];
        table.fill(NONE);
        // Fibonacci hashing (Knuth, The Art of Computer Programming 3, section 6.4): the upper bits of the product.
        let shift = u64::BITS - places.ilog2();
        let mut found = 0;
        for number in numbers {
            let mut at = (u64::from(number).wrapping_mul(STEP) >> shift) as usize;
            while table[at] != NONE && table[at] != number {
                at = (at + 1) & (places - 1);
            }
            found += usize::from(table[at] == NONE);
            table[at] = number;
        }
        found
    }
}

pub(crate) fn storage_bytes<T: Real>(nrows: usize, b: usize, blocks: u128) -> u128 {
    blocks * (4 + (b as u128 * b as u128) * T::BYTES as u128) + 4 * (nrows.div_ceil(b) as u128 + 1)
}

/// Checks the sizes of a block format's arrays.
pub(crate) fn check_shape(
    format: &'static str,
    nrows: usize,
    ncols: usize,
    block_dim: usize,
    blocks: usize,
    values: usize,
) -> Result<()> {
    checked(nrows, "rows")?;
    checked(ncols, "columns")?;
    checked(block_dim, "rows of a block")?;
    checked(blocks, "blocks")?;
    if block_dim == 0 {
        return Err(Error::Invalid { format, why: "block_dim = 0: a block has at least one row".into() });
    }
    let expected = (block_dim * block_dim).saturating_mul(blocks);
    if values != expected {
        return Err(Error::Length { format, array: "values", found: values, expected });
    }
    Ok(())
}

/// Checks that the part of block `k` (block row `i`, block column `j`) outside the matrix holds 0.
pub(crate) fn check_edge<T: Real>(
    format: &'static str,
    (nrows, ncols): (usize, usize),
    b: usize,
    (i, j, k): (usize, usize, usize),
    values: &[T],
) -> Result<()> {
    let (rows, cols) = ((nrows - i * b).min(b), (ncols - j * b).min(b));
    if rows == b && cols == b {
        return Ok(());
    }
    for (at, v) in values[k * b * b..(k + 1) * b * b].iter().enumerate() {
        if (at / b >= rows || at % b >= cols) && !v.is_zero() {
            return Err(Error::Invalid {
                format,
                why: format!("values[{}] lies outside the matrix and must be 0", k * b * b + at),
            });
        }
    }
    Ok(())
}

/// Makes CSR from blocks; `blocks(i)` are those of block row `i`.
pub(crate) fn unblock<T: Real>(
    (nrows, ncols, b): (usize, usize, usize),
    col_idx: &[Ordinal],
    values: &[T],
    blocks: impl Fn(usize) -> std::ops::Range<usize> + Sync,
) -> Result<Csr<T>> {
    let line = |k: usize, r: usize| &values[k * b * b + r * b..k * b * b + (r + 1) * b];
    assemble(
        nrows,
        ncols,
        |rows, counts| {
            for (i, count) in rows.zip(counts) {
                *count = blocks(i / b).map(|k| line(k, i % b).iter().filter(|v| !v.is_zero()).count() as Offset).sum();
            }
        },
        |rows, next, cols, out| {
            for (i, next) in rows.zip(next) {
                for k in blocks(i / b) {
                    for (c, &v) in line(k, i % b).iter().enumerate().filter(|(_, v)| !v.is_zero()) {
                        cols[*next as usize] = (col_idx[k] as usize * b + c) as Ordinal;
                        out[*next as usize] = v;
                        *next += 1;
                    }
                }
            }
        },
    )
}

impl<T: Real> From<Bsrx<T>> for Bsr<T> {
    /// Takes the block rows of the mask. The arrays move if the mask is full and there are no gaps; otherwise the used
    /// blocks are compacted in place.
    fn from(bsrx: Bsrx<T>) -> Self {
        let nnz = bsrx.nnz();
        let (nrows, ncols, block_dim, row_start, row_end, mut col_idx, mut values, mask) = bsrx.into_parts();
        let area = block_dim * block_dim;
        let mut row_ptr = vec![0 as Offset; row_start.len() + 1];
        let mut end = 0;
        for &i in &mask {
            let blocks = row_start[i as usize] as usize..row_end[i as usize] as usize;
            let len = blocks.len();
            if blocks.start != end {
                values.copy_within(blocks.start * area..blocks.end * area, end * area);
                col_idx.copy_within(blocks, end);
            }
            end += len;
            row_ptr[i as usize + 1] = len as Offset;
        }
        for i in 0..row_start.len() {
            row_ptr[i + 1] += row_ptr[i];
        }
        col_idx.truncate(end);
        values.truncate(end * area);
        Self { nrows, ncols, block_dim, row_ptr, col_idx, values, nnz }
    }
}

impl<T: Real> Traffic for Bsr<T> {
    fn storage(&self) -> u64 {
        (self.values.len() * T::BYTES + 4 * (self.col_idx.len() + self.row_ptr.len())) as u64
    }
    fn spmv_bytes(&self) -> u64 {
        self.storage() + ((self.nrows + self.ncols) * T::BYTES) as u64
    }
    fn flops(&self) -> u64 {
        2 * self.nnz as u64
    }
}

impl<T: Real> Format for Bsr<T> {
    type Value = T;
    const NAME: &'static str = "bsr";
    const MULTIPLIES_FILL: bool = true;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.nnz
    }
    /// Uses the block size of [`Bsr::choose_block_dim`], which is at least 2 even if the matrix has no blocks.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Self::from_csr_with(csr, Self::choose_block_dim(csr)?)
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        unblock((self.nrows, self.ncols, self.block_dim), &self.col_idx, &self.values, |i| {
            self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize
        })
    }
    /// Counts block columns and transposes each block; does not go through CSR.
    fn transpose(&self) -> Result<Self> {
        let b = self.block_dim;
        let block_cols = self.ncols.div_ceil(b);
        let row_ptr = pointers(block_cols, self.col_idx.iter().copied())?;
        let mut next: Vec<Offset> = zeroed(block_cols, "cursors")?;
        next.copy_from_slice(&row_ptr[..block_cols]);
        let mut col_idx: Vec<Ordinal> = zeroed(self.col_idx.len(), "col_idx")?;
        let mut values: Vec<T> = zeroed(self.values.len(), "values")?;
        for i in 0..self.block_rows() {
            for k in self.row_ptr[i] as usize..self.row_ptr[i + 1] as usize {
                let j = self.col_idx[k] as usize;
                let at = next[j] as usize;
                next[j] += 1;
                col_idx[at] = i as Ordinal;
                let (from, to) = (&self.values[k * b * b..(k + 1) * b * b], &mut values[at * b * b..(at + 1) * b * b]);
                for r in 0..b {
                    for c in 0..b {
                        to[c * b + r] = from[r * b + c];
                    }
                }
            }
        }
        Ok(Self { nrows: self.ncols, ncols: self.nrows, block_dim: b, row_ptr, col_idx, values, nnz: self.nnz })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn all_parts_together_have_all_blocks() {
        for spec in [
            "d3n27:9",
            "elasticity3d:5",
            "random:n=3000,nnz_per_row=7",
            "powerlaw:n=2000,alpha=1.8",
            "random:n=1,nnz_per_row=1",
        ] {
            let csr = generate::csr::<f64>(spec).unwrap();
            for b in BLOCK_DIMS {
                let all: u64 = count_blocks(&csr, b).unwrap().iter().map(|&n| u64::from(n)).sum();
                let parts = (0..PARTS).step_by(PARTS / 4).map(|part| blocks_of_some(&csr, b, part..part + PARTS / 4));
                let found = parts.fold((0, 0), |sum, some| (sum.0 + some.0, sum.1 + some.1));
                assert_eq!(found, (all as usize, csr.nnz()), "{spec}, blocks of {b} x {b}");
            }
        }
    }
}
