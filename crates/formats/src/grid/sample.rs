//! Guesses a grid from some rows of a matrix. Whoever holds the matrix checks the guess on all rows.
//!
//! It works as [`Grid::detect`], but on the entries of the sample only. An answer is exact if every sampled row holds
//! every neighbour inside the grid. A row that contradicts a guess is added to the sample, so the next guess agrees
//! with it and differs from all earlier ones.

use std::collections::BTreeMap;

use super::{Diagonal, Extents, Grid, MAX_CANDIDATES, MAX_DIAGONALS, NotAGrid, Walked, best, candidates};
use crate::Ordinal;

/// Some rows of a square matrix.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    nrows: usize,
    rows: Vec<(usize, Vec<Ordinal>)>,
    lines: Vec<usize>,
}

impl Sample {
    /// Maximum number of rows of a sample, without those that contradict a guess.
    pub const ROWS: usize = 256;

    /// The `at`-th row of the sample of a matrix with `nrows` rows: all rows if there are few, otherwise runs of 16
    /// neighbours. Twin: `sampled_row` of kernels/grid.cu.
    pub fn row(nrows: usize, at: usize) -> usize {
        if nrows <= Self::ROWS {
            return at;
        }
        let part = (at / 16 * 40_503 + 24_593) & 0xffff;
        (((nrows - 16) * part) >> 16) + at % 16
    }

    /// Makes an empty sample of a matrix with `nrows` rows.
    pub fn new(nrows: usize) -> Self {
        Self { nrows, ..Self::default() }
    }

    /// Adds a row: its columns, ascending.
    pub fn push(&mut self, row: usize, cols: Vec<Ordinal>) {
        self.rows.push((row, cols));
    }

    /// Adds a possible length of a line: the position where the diagonal next to the main one is first absent.
    pub fn line_may_have(&mut self, points: usize) {
        self.lines.push(points);
    }

    /// Returns true if the rows have entries on more than `most` diagonals besides the main one. The matrix then has
    /// more, too.
    pub fn has_more_diagonals_than(&self, most: usize) -> bool {
        let mut found: Vec<i64> = Vec::with_capacity(most + 1);
        for (row, cols) in &self.rows {
            for diagonal in cols.iter().map(|&col| i64::from(col) - *row as i64).filter(|&diagonal| diagonal != 0) {
                if !found.contains(&diagonal) {
                    if found.len() == most {
                        return true;
                    }
                    found.push(diagonal);
                }
            }
        }
        false
    }

    /// Guesses the grid that the rows suggest.
    ///
    /// # Errors
    /// [`NotAGrid`] with the reason, if no grid holds these rows. [`NotAGrid::TooManyDiagonals`] then holds for the
    /// matrix, too.
    pub fn guess(&self) -> Result<Grid, NotAGrid> {
        let mut counts = BTreeMap::new();
        for (row, cols) in &self.rows {
            for &col in cols {
                *counts.entry(i64::from(col) - *row as i64).or_insert(0) += 1;
            }
            if counts.len() > MAX_DIAGONALS {
                return Err(NotAGrid::TooManyDiagonals);
            }
        }
        if counts.is_empty() {
            return Err(NotAGrid::Empty);
        }
        let diagonals: Vec<Diagonal> =
            counts.into_iter().map(|(offset, count)| Diagonal { offset, count, rows: u64::MAX }).collect();
        let mut extents = candidates(self.nrows, &diagonals, &self.lines);
        extents.sort_by_cached_key(|extents| extents.reach(&diagonals));
        if let Some(at) = extents.iter().position(|e| e.size[0] == self.nrows).filter(|&at| at >= MAX_CANDIDATES) {
            extents.swap(MAX_CANDIDATES - 1, at);
        }
        best(&extents, &diagonals, self.nrows, |extents| self.walk(extents, &diagonals))
    }

    /// What the sampled entries are under the given extents.
    fn walk(&self, extents: Extents, diagonals: &[Diagonal]) -> Walked {
        let nearest: Vec<[i32; 3]> = diagonals.iter().map(|d| extents.nearest(d.offset)).collect();
        let mut seen = [0u16; MAX_DIAGONALS];
        let (mut active, mut held) = (0, 0);
        for (row, cols) in &self.rows {
            let (x, y) = extents.point(*row);
            let mut k = 0;
            for &col in cols {
                let offset = i64::from(col) - *row as i64;
                // Diagonals usually ascend within a row; start again for one that does not.
                if diagonals[k].offset > offset {
                    k = 0;
                }
                while diagonals[k].offset < offset {
                    k += 1;
                }
                seen[k] |= extents.way(x, y, nearest[k]);
            }
            if cols.len() > 1 || cols.first().is_some_and(|&col| col as usize != *row) {
                active += 1;
                held += cols.len() as u64;
            }
        }
        let mut walked = Walked::new(extents, &nearest, &seen, active, held);
        walked.exact = self.rows.iter().all(|(row, cols)| {
            let (x, y) = extents.point(*row);
            let at = [x, y, row / extents.size[0] / extents.size[1]].map(|c| c as i64);
            let inside = |o: &&[i32; 3]| {
                (0..3).all(|axis| (0..extents.size[axis] as i64).contains(&(at[axis] + i64::from(o[axis]))))
            };
            walked.offsets.iter().filter(inside).count() == cols.len()
        });
        walked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagonals_beside_the_main_one_are_counted_once() {
        let mut sample = Sample::new(100);
        for row in 40..50 {
            sample.push(row, [row - 7, row - 1, row, row + 3].map(|col| col as Ordinal).to_vec());
        }
        assert!(sample.has_more_diagonals_than(2) && !sample.has_more_diagonals_than(3));
        assert!(!Sample::new(100).has_more_diagonals_than(0));
        // No guess is made from rows with more diagonals than a stencil may have.
        sample.push(60, (0..=MAX_DIAGONALS as Ordinal).collect());
        assert!(sample.has_more_diagonals_than(60));
        assert_eq!(sample.guess(), Err(NotAGrid::TooManyDiagonals));
    }
}
