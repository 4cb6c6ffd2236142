//! Dependency levels of a triangle: rows of one level need only rows of earlier levels, so they can be solved together.
//!
//! Layout, for the lower triangle whose row 2 needs row 0, row 3 needs 1 and 2:
//! ```text
//! level_ptr  0     2   3   4         level 0: rows 0 1
//! level_rows 0 1 | 2 | 3             level 1: row 2       level 2: row 3
//! ```
//! Invariants: `level_rows` is a permutation of the rows, ascending inside a level; a row's level is one more than the highest
//! level among the rows it needs, so the number of levels is the length of the longest chain and no schedule has fewer.
//! Cost: two passes over the entries of the triangle and the rows, O(nnz + nrows); 4 (2 nrows + levels + 1) bytes.
//! Reference: Anderson & Saad 1989, Solving sparse triangular linear systems on parallel computers.

use spandrel_formats::{Csr, Format, Offset, Ordinal, Real};

use crate::triangle::square;
use crate::{Pattern, Result, Triangle};

/// The dependency levels of one triangle of a matrix. See the module's head for layout and invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    level_ptr: Vec<Offset>,
    level_rows: Vec<Ordinal>,
}

impl Levels {
    /// The levels of one triangle of a square matrix. Entries outside the triangle, and on the diagonal, are passed over, so
    /// the matrix need not be split first.
    ///
    /// # Errors
    /// [`crate::Error::NotSquare`].
    pub fn of<T: Real>(csr: &Csr<T>, triangle: Triangle) -> Result<Self> {
        square(csr)?;
        Ok(Self::of_rows(csr.nrows(), triangle, |i| csr.row(i).0))
    }

    /// The levels of one triangle of a square pattern, as of a matrix that has it.
    pub fn of_pattern(pattern: &Pattern, triangle: Triangle) -> Self {
        Self::of_rows(pattern.nrows(), triangle, |i| pattern.row(i))
    }

    fn of_rows<'a>(n: usize, triangle: Triangle, row: impl Fn(usize) -> &'a [Ordinal]) -> Self {
        let mut level_of = vec![0 as Ordinal; n];
        let mut level_ptr: Vec<Offset> = vec![0];
        for k in 0..n {
            let i = triangle.row(k, n);
            let level = row(i)
                .iter()
                .filter(|&&j| triangle.holds(i, j as usize))
                .map(|&j| level_of[j as usize] + 1)
                .max()
                .unwrap_or(0);
            level_of[i] = level;
            // `level` exceeds the levels seen so far by one at most.
            if level as usize + 1 == level_ptr.len() {
                level_ptr.push(0);
            }
            level_ptr[level as usize + 1] += 1;
        }
        for level in 1..level_ptr.len() {
            level_ptr[level] += level_ptr[level - 1];
        }
        let mut next = level_ptr.clone();
        let mut level_rows = vec![0 as Ordinal; n];
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

    /// Where each level's rows begin in [`Levels::level_rows`], `count() + 1` offsets.
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

    /// Number of rows of each level.
    pub fn widths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.level_ptr.windows(2).map(|ends| (ends[1] - ends[0]) as usize)
    }

    /// Rows of the widest level; 0 for a matrix without rows.
    pub fn max_width(&self) -> usize {
        self.widths().max().unwrap_or(0)
    }

    /// Rows per level on average, the parallelism that a solve by levels has; 0 for a matrix without rows.
    pub fn mean_width(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.level_rows.len() as f64 / self.count() as f64 }
    }
}
