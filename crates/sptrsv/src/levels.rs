//! Dependency levels of a triangle: rows of one level need only rows of earlier levels, so they can be solved at the
//! same time.
//!
//! Layout, for a lower triangle in which row 2 needs row 0, and row 3 needs rows 1 and 2:
//! ```text
//! level_ptr  0     2   3   4         level 0: rows 0 1
//! level_rows 0 1 | 2 | 3             level 1: row 2       level 2: row 3
//! ```
//! Invariants: `level_rows` is a permutation of the rows, ascending inside a level. A row's level is one more than the
//! highest level among the rows that it needs. So the number of levels is the length of the longest dependency path,
//! and no schedule has fewer.
//! Cost: one parallel pass over the entries finds the runs of rows ([`spandrel_formats::Runs`]). Then one pass over the
//! entries of the triangle, by blocks where rows come in runs, and two over the rows: O(nnz + nrows); 4 (2 nrows +
//! levels + 1) bytes.
//! Reference: Anderson & Saad 1989, Solving sparse triangular linear systems on parallel computers.

use spandrel_formats::grid::run_starts;
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::triangle::square;
use crate::{Pattern, Result, Triangle};

/// Number of rows compared at once.
const BLOCK: usize = 128;

/// The dependency levels of one triangle of a matrix. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    level_ptr: Vec<Offset>,
    level_rows: Vec<Ordinal>,
}

impl Levels {
    /// Computes the levels of one triangle of a square matrix. Entries outside the triangle and on the diagonal are
    /// ignored, so the matrix need not be split first.
    ///
    /// # Errors
    /// [`crate::Error::NotSquare`].
    pub fn of<T: Real>(csr: &Csr<T>, triangle: Triangle) -> Result<Self> {
        square(csr)?;
        Ok(Self::of_rows(triangle, csr.row_ptr(), csr.col_idx()))
    }

    /// Computes the levels of one triangle of a square pattern.
    pub fn of_pattern(pattern: &Pattern, triangle: Triangle) -> Self {
        Self::of_rows(triangle, pattern.row_ptr(), pattern.col_idx())
    }

    /// Works through runs of rows. For columns that lie before a block of such rows, it compares the levels of the
    /// whole block at once.
    fn of_rows(triangle: Triangle, row_ptr: &[Offset], col_idx: &[Ordinal]) -> Self {
        let n = row_ptr.len() - 1;
        let starts = run_starts(row_ptr, col_idx).concat();
        let mut level_of = vec![0 as Ordinal; n];
        let (mut cols, mut block) = (Vec::new(), [0 as Ordinal; BLOCK]);
        for k in 0..starts.len() {
            let k = triangle.row(k, starts.len());
            let (begin, end) = (starts[k] as usize, starts.get(k + 1).map_or(n, |&next| next as usize));
            let needed = col_idx[row_ptr[begin] as usize..row_ptr[begin + 1] as usize].iter();
            let needed = needed.map(|&j| j as usize).filter(|&j| triangle.holds(begin, j));
            if end == begin + 1 {
                level_of[begin] = needed.map(|j| level_of[j] + 1).max().unwrap_or(0);
                continue;
            }
            cols.clear();
            cols.extend(needed);
            let blocks = (end - begin).div_ceil(BLOCK);
            for at in 0..blocks {
                let low = begin + triangle.row(at, blocks) * BLOCK;
                let rows = low..end.min(low + BLOCK);
                let (shift, block) = (low - begin, &mut block[..rows.len()]);
                // Columns ascend: the near ones are the last of a lower row and the first of an upper one.
                let is_far = |j: usize| j.abs_diff(begin) >= rows.len();
                let (far, near) = match triangle {
                    Triangle::Lower => cols.split_at(cols.partition_point(|&j| is_far(j))),
                    Triangle::Upper => {
                        let (near, far) = cols.split_at(cols.partition_point(|&j| !is_far(j)));
                        (far, near)
                    }
                };
                block.fill(0);
                for &j in far {
                    let levels = &level_of[j + shift..j + shift + rows.len()];
                    block.iter_mut().zip(levels).for_each(|(most, &level)| *most = (*most).max(level + 1));
                }
                for t in 0..rows.len() {
                    let t = triangle.row(t, rows.len());
                    level_of[low + t] = near.iter().fold(block[t], |most, &j| most.max(level_of[j + shift + t] + 1));
                }
            }
        }
        Self::sorted(&level_of)
    }

    /// Sorts the rows by their levels. No level is empty.
    fn sorted(level_of: &[Ordinal]) -> Self {
        let count = level_of.iter().max().map_or(0, |&highest| highest as usize + 1);
        let mut level_ptr = vec![0 as Offset; count + 1];
        for &level in level_of {
            level_ptr[level as usize + 1] += 1;
        }
        for level in 1..level_ptr.len() {
            level_ptr[level] += level_ptr[level - 1];
        }
        let mut next = level_ptr.clone();
        let mut level_rows = vec![0 as Ordinal; level_of.len()];
        for (i, &level) in level_of.iter().enumerate() {
            let at = &mut next[level as usize];
            level_rows[*at as usize] = i as Ordinal;
            *at += 1;
        }
        Self { level_ptr, level_rows }
    }

    /// Number of levels; 0 for a matrix without rows.
    pub fn count(&self) -> usize {
        self.level_ptr.len() - 1
    }

    /// Where each level's rows begin in [`Levels::level_rows`]: `count() + 1` offsets.
    pub fn level_ptr(&self) -> &[Offset] {
        &self.level_ptr
    }

    /// The rows, level after level, ascending inside a level.
    pub fn level_rows(&self) -> &[Ordinal] {
        &self.level_rows
    }

    /// The rows of one level.
    ///
    /// # Panics
    /// If `level >= count()`, like indexing a slice.
    pub fn rows(&self, level: usize) -> &[Ordinal] {
        &self.level_rows[self.level_ptr[level] as usize..self.level_ptr[level + 1] as usize]
    }

    /// Number of rows per level.
    pub fn widths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.level_ptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize)
    }

    /// Number of rows of the widest level; 0 for a matrix without rows.
    pub fn max_width(&self) -> usize {
        self.widths().max().unwrap_or(0)
    }

    /// Mean number of rows per level, that is, the parallelism of a solve by levels; 0 for a matrix without rows.
    pub fn mean_width(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.level_rows.len() as f64 / self.count() as f64 }
    }
}
