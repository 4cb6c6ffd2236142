//! HMEC, a hybrid of several ELL blocks and CSR, over rows sorted by length.
//!
//! Layout (rows of lengths 3 3 2 1 after sorting, ignoring the stop at 512 rows; `*` is padding):
//! ```text
//! perm  2 0 3 1      block 0, width 2     block 1, width 1     rest (CSR)
//!       row 2        | a b |              | c |                none
//!       row 0        | d e |              | f |
//!       row 3        | g h |
//!       row 1        | i * |              entry k of row r of a block at r + rows k
//! ```
//! Rule: sort the rows by descending length, stable (`perm[new] = old`). Then do this at most p times. Let x rows still
//! have entries, and stop if x <= 512. Take the largest K such that for every j = 2..=K the first j left-packed columns
//! hold strictly more than (2/3) j x entries. K is 1 if j = 2 fails, and at most the length of the longest row. These K
//! columns of x rows are an ELL block; the rest, a shorter prefix of rows, continues. What is left at the end is CSR.
//! So no block is more than one third padding.
//! Invariants: `perm` is a bijection. There are at most p blocks, with descending numbers of rows and at least one
//! column each. A row continues in the next block, and in `rest`, only if it is full in the one before, and with larger
//! columns. `rest` has at most as many rows as the last block, and `ncols` columns. Padding is as in ELL.
//! Cost of y = A x: 4 (positions of blocks + nrows) + 4 (rest rows + 1) + 4 rest nnz + |T| (nnz + ncols + nrows) bytes.
//! Order: stored; each block continues the accumulator of the one before, and y is written through `perm`.
//! Reference: Cheng, Tian, Wu, Wang, Li, Optimization of solving sparse linear system based on blocked storage format,
//! 2018.

use std::ops::Range;

use crate::ell::{bytes, check_packed, pack, packed_len};
use crate::index::{Offset, Ordinal, checked};
use crate::padding::{assemble, check_perm, sort_descending, zeroed};
use crate::survey::longer;
use crate::{Csr, Error, Format, Hec, PADDING, Real, Result, Traffic};

/// Default maximum number of blocks: the paper measures HMEC(2).
pub const DEFAULT_P: usize = 2;
/// If at most this many rows are left, no further block is made.
pub const STOP: usize = 512;

/// An ELL block over a prefix of the sorted rows: entry k of row r at r + `rows` k.
#[derive(Clone, Debug, PartialEq)]
pub struct EllBlock<T> {
    rows: usize,
    width: usize,
    cols: Vec<Ordinal>,
    values: Vec<T>,
    nnz: usize,
}

impl<T: Real> EllBlock<T> {
    /// Makes a block of a matrix with `ncols` columns and checks every invariant in O(rows width).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::IndexOutOfRange`], [`Error::Unsorted`], [`Error::Invalid`].
    pub fn new(rows: usize, width: usize, ncols: usize, cols: Vec<Ordinal>, values: Vec<T>) -> Result<Self> {
        checked(rows, "rows")?;
        checked(ncols, "columns")?;
        checked(width, "columns")?;
        let nnz = checked(check_packed("hmec", rows, ncols, width, &cols, &values, 0)?, "entries")? as usize;
        Ok(Self { rows, width, cols, values, nnz })
    }

    /// Returns the parts `(rows, width, cols, values)` without a copy.
    pub fn into_parts(self) -> (usize, usize, Vec<Ordinal>, Vec<T>) {
        (self.rows, self.width, self.cols, self.values)
    }

    /// Number of sorted rows that it covers.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of stored positions per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Column of each position; [`PADDING`] if there is no entry.
    pub fn cols(&self) -> &[Ordinal] {
        &self.cols
    }

    /// Value of each position; 0 in padding.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Number of entries, without padding.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// The last column of row `r`; [`PADDING`] if the row is not full.
    fn end(&self, r: usize) -> Ordinal {
        self.cols[r + self.rows * (self.width - 1)]
    }

    fn positions(&self, r: usize) -> Range<usize> {
        0..if r < self.rows { packed_len(self.rows, &self.cols, r) } else { 0 }
    }
}

/// ELL blocks and a CSR rest over sorted rows. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq)]
pub struct Hmec<T> {
    nrows: usize,
    ncols: usize,
    perm: Vec<Ordinal>,
    blocks: Vec<EllBlock<T>>,
    rest: Csr<T>,
    p: usize,
}

/// The parts of a [`Hmec`]: `(nrows, ncols, perm, blocks, rest, p)`.
pub type HmecParts<T> = (usize, usize, Vec<Ordinal>, Vec<EllBlock<T>>, Csr<T>, usize);

impl<T: Real> Hmec<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nnz).
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::IndexOutOfRange`], [`Error::Unsorted`], [`Error::Invalid`].
    pub fn new(
        nrows: usize,
        ncols: usize,
        perm: Vec<Ordinal>,
        blocks: Vec<EllBlock<T>>,
        rest: Csr<T>,
        p: usize,
    ) -> Result<Self> {
        let format = "hmec";
        let invalid = |why: String| Err(Error::Invalid { format, why });
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        check_perm(format, &perm, nrows)?;
        if p == 0 || blocks.len() > p {
            return invalid(format!("{} blocks with p = {p}: p is at least 1 and bounds the blocks", blocks.len()));
        }
        let mut above = nrows;
        for (b, block) in blocks.iter().enumerate() {
            if block.width == 0 || block.rows > above {
                return invalid(format!(
                    "block {b} is {} x {}: at least one column, and at most the {above} rows before it",
                    block.rows, block.width
                ));
            }
            above = block.rows;
            if let Some((at, &j)) = block.cols.iter().enumerate().find(|&(_, &j)| j != PADDING && j as usize >= ncols) {
                return Err(Error::IndexOutOfRange { format, array: "cols", at, found: i64::from(j), bound: ncols });
            }
        }
        if rest.ncols() != ncols {
            return Err(Error::Length { format, array: "columns of rest", found: rest.ncols(), expected: ncols });
        }
        if rest.nrows() > above {
            return invalid(format!("rest has {} rows, more than the {above} rows before it", rest.nrows()));
        }
        // A row continues only if it is full, and with larger columns.
        let goes_on = |before: &EllBlock<T>, r: usize, next: Ordinal, at: usize| match before.end(r) {
            PADDING => Err(Error::Invalid { format, why: format!("sorted row {r} goes on behind padding") }),
            end if end >= next => Err(Error::Unsorted { format, array: "cols", at }),
            _ => Ok(()),
        };
        for pair in blocks.windows(2) {
            for r in 0..pair[1].rows {
                if pair[1].cols[r] != PADDING {
                    goes_on(&pair[0], r, pair[1].cols[r], r)?;
                }
            }
        }
        if let Some(last) = blocks.last() {
            for r in 0..rest.nrows() {
                if let Some(&j) = rest.row(r).0.first() {
                    goes_on(last, r, j, rest.row_ptr()[r] as usize)?;
                }
            }
        }
        checked(blocks.iter().map(|block| block.nnz).sum::<usize>() + rest.nnz(), "entries")?;
        Ok(Self { nrows, ncols, perm, blocks, rest, p })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> HmecParts<T> {
        (self.nrows, self.ncols, self.perm, self.blocks, self.rest, self.p)
    }

    /// `perm[new] = old`: the row at each position of the sorted order.
    pub fn perm(&self) -> &[Ordinal] {
        &self.perm
    }

    /// The ELL blocks, each over a prefix of the sorted rows.
    pub fn blocks(&self) -> &[EllBlock<T>] {
        &self.blocks
    }

    /// The entries that are not in the blocks: row r is the rest of sorted row r.
    pub fn rest(&self) -> &Csr<T> {
        &self.rest
    }

    /// Maximum number of blocks that the rule was allowed.
    pub fn p(&self) -> usize {
        self.p
    }

    /// Applies the rule of the module's head with at most `p` blocks.
    ///
    /// # Errors
    /// [`Error::Invalid`] for `p` = 0. [`Error::OutOfMemory`].
    pub fn from_csr_with(csr: &Csr<T>, p: usize) -> Result<Self> {
        if p == 0 {
            return Err(Error::Invalid { format: "hmec", why: "p = 0: at least one block must be allowed".into() });
        }
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let mut perm: Vec<Ordinal> = zeroed(nrows, "perm")?;
        sort_descending(|i| csr.row_nnz(i), 0..nrows, &mut Vec::new(), &mut perm);
        let longer = rows_longer_than(csr);
        let shapes = plan(&longer, p);
        let mut blocks = Vec::with_capacity(shapes.len());
        let mut taken = 0;
        // The entries of sorted row r from `taken` on, at most `width` of them.
        let part = |r: usize, taken: usize, width: usize| {
            let (cols, values) = csr.row(perm[r] as usize);
            let from = taken.min(cols.len());
            let to = taken.saturating_add(width).min(cols.len());
            (&cols[from..to], &values[from..to])
        };
        for &(rows, width) in &shapes {
            debug_assert!(bytes::<T>(rows, width) <= 2 * csr.nnz() as u128 * (4 + T::BYTES as u128));
            let (cols, values) = pack(rows, width, |r| part(r, taken, width))?;
            let nnz = longer[taken..taken + width].iter().sum();
            blocks.push(EllBlock { rows, width, cols, values, nnz });
            taken += width;
        }
        let left = longer.get(taken).copied().unwrap_or(0);
        let rest = assemble(
            left,
            ncols,
            |rows, counts| {
                for (r, count) in rows.zip(counts) {
                    *count = part(r, taken, usize::MAX).0.len() as Offset;
                }
            },
            |rows, next, cols, values| {
                for (r, next) in rows.zip(next) {
                    let (row_cols, row_values) = part(r, taken, usize::MAX);
                    let range = *next as usize..*next as usize + row_cols.len();
                    cols[range.clone()].copy_from_slice(row_cols);
                    values[range].copy_from_slice(row_values);
                }
            },
        )?;
        Ok(Self { nrows, ncols, perm, blocks, rest, p })
    }
}

/// Number of rows with more than k entries, for k = 0 up to the length of the longest row.
pub(crate) fn rows_longer_than<T: Real>(csr: &Csr<T>) -> Vec<usize> {
    let longest = (0..csr.nrows()).map(|i| csr.row_nnz(i)).max().unwrap_or(0);
    let mut lengths = vec![0; longest + 1];
    (0..csr.nrows()).for_each(|i| lengths[csr.row_nnz(i)] += 1);
    longer(lengths)
}

/// Shapes (rows, width) of the blocks by the rule, from the numbers of rows with more than k entries.
pub(crate) fn plan(longer: &[usize], p: usize) -> Vec<(usize, usize)> {
    let mut shapes = Vec::new();
    let mut taken = 0;
    while shapes.len() < p {
        let x = longer.get(taken).copied().unwrap_or(0);
        if x <= STOP {
            break;
        }
        // s counts the entries in the first j left-packed columns of what is left.
        let mut s = x as u128;
        let mut width = 1;
        for (j, &column) in (2u128..).zip(longer[taken..].iter().skip(1)) {
            s += column as u128;
            if column == 0 || 3 * s <= 2 * j * x as u128 {
                break;
            }
            width += 1;
        }
        shapes.push((x, width));
        taken += width;
    }
    shapes
}

impl<T: Real> From<Hec<T>> for Hmec<T> {
    /// Moves the parts, because HEC is HMEC with p = 1.
    fn from(hec: Hec<T>) -> Self {
        hec.into_hmec()
    }
}

impl<T: Real> Traffic for Hmec<T> {
    fn storage(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(|block| (block.values.len() * (4 + T::BYTES)) as u64).sum();
        blocks + self.rest.storage() + 4 * self.perm.len() as u64
    }
    fn spmv_bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(|block| (4 * block.cols.len() + T::BYTES * block.nnz) as u64).sum();
        let vectors = (self.nrows + self.ncols) * T::BYTES + 4 * self.perm.len();
        blocks + self.rest.storage() + vectors as u64
    }
    fn flops(&self) -> u64 {
        2 * self.nnz() as u64
    }
}

impl<T: Real> Format for Hmec<T> {
    type Value = T;
    const NAME: &'static str = "hmec";
    const MULTIPLIES_FILL: bool = false;
    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn nnz(&self) -> usize {
        self.blocks.iter().map(|block| block.nnz).sum::<usize>() + self.rest.nnz()
    }
    /// Makes at most two blocks.
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Self::from_csr_with(csr, DEFAULT_P)
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        let mut inverse: Vec<Ordinal> = zeroed(self.nrows, "perm")?;
        for (new, &old) in self.perm.iter().enumerate() {
            inverse[old as usize] = new as Ordinal;
        }
        let rest = |r: usize| if r < self.rest.nrows() { self.rest.row(r) } else { (&[][..], &[][..]) };
        assemble(
            self.nrows,
            self.ncols,
            |rows, counts| {
                for (i, count) in rows.zip(counts) {
                    let r = inverse[i] as usize;
                    let packed: usize = self.blocks.iter().map(|block| block.positions(r).len()).sum();
                    *count = (packed + rest(r).0.len()) as Offset;
                }
            },
            |rows, next, cols, values| {
                for (i, next) in rows.zip(next) {
                    let r = inverse[i] as usize;
                    for block in &self.blocks {
                        for k in block.positions(r) {
                            cols[*next as usize] = block.cols[r + block.rows * k];
                            values[*next as usize] = block.values[r + block.rows * k];
                            *next += 1;
                        }
                    }
                    let (row_cols, row_values) = rest(r);
                    let range = *next as usize..*next as usize + row_cols.len();
                    cols[range.clone()].copy_from_slice(row_cols);
                    values[range].copy_from_slice(row_values);
                }
            },
        )
    }
    /// Goes through CSR and keeps the same p.
    fn transpose(&self) -> Result<Self> {
        Self::from_csr_with(&self.to_csr()?.try_transpose()?, self.p)
    }
}
