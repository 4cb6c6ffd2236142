//! A grid from some rows of a matrix, to be proved on all of them by whoever holds them.
//!
//! What [`Grid::detect`] reads from all entries is read from those of the sample; an answer is exact where every sampled row holds every
//! neighbour inside the grid. A row that contradicts a guess is added to the sample, and the next guess agrees with it: every time the
//! guess is another one.

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
    /// Rows of a sample at most, without those that contradict a guess.
    pub const ROWS: usize = 256;

    /// The row that is the `at`-th of the sample of a matrix of so many: all of them where they are few, else runs of 16 neighbours. Twin:
    /// `sampled_row` of kernels/grid.cu.
    pub fn row(nrows: usize, at: usize) -> usize {
        if nrows <= Self::ROWS {
            return at;
        }
        let part = (at / 16 * 40_503 + 24_593) & 0xffff;
        (((nrows - 16) * part) >> 16) + at % 16
    }

    /// No row yet, of a matrix of so many.
    pub fn new(nrows: usize) -> Self {
        Self { nrows, ..Self::default() }
    }

    /// Adds a row: its columns, ascending.
    pub fn push(&mut self, row: usize, cols: Vec<Ordinal>) {
        self.rows.push((row, cols));
    }

    /// A length that a line may have: where the diagonal next to the main one is first absent.
    pub fn line_may_have(&mut self, points: usize) {
        self.lines.push(points);
    }

    /// Whether the rows have entries on more than so many diagonals beside the main one; so has the matrix then.
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

    /// The grid that the rows suggest.
    ///
    /// # Errors
    /// [`NotAGrid`], the reason, where none holds these rows. [`NotAGrid::TooManyDiagonals`] is true of the matrix too.
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

    /// What the sampled entries are under some extents.
    fn walk(&self, extents: Extents, diagonals: &[Diagonal]) -> Walked {
        let nearest: Vec<[i32; 3]> = diagonals.iter().map(|d| extents.nearest(d.offset)).collect();
        let mut seen = [0u16; MAX_DIAGONALS];
        let (mut active, mut held) = (0, 0);
        for (row, cols) in &self.rows {
            let (x, y) = extents.point(*row);
            let mut k = 0;
            for &col in cols {
                let offset = i64::from(col) - *row as i64;
                // Ascending as a rule; a row that is not begins anew.
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
        // No guess is made of rows with more than a stencil may have.
        sample.push(60, (0..=MAX_DIAGONALS as Ordinal).collect());
        assert!(sample.has_more_diagonals_than(60));
        assert_eq!(sample.guess(), Err(NotAGrid::TooManyDiagonals));
    }
}
