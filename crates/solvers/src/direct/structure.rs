//! Whether a pattern has full column rank for some values, by a maximum matching of columns to rows.
//!
//! This is checked first, because faer's sparse QR (0.24) indexes out of its arrays for other patterns, and its LU
//! fails late.
//! Cost: O(nnz) if the diagonal is full, at worst O(rank nnz). No recursion.
//! Reference: Duff 1981, On algorithms for obtaining a maximum transversal (MC21).

use spandrel_formats::{Csr, Real};

const FREE: u32 = u32::MAX;

/// A choice of columns that each have a row of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transversal {
    /// The largest number of such columns: the structural rank.
    pub(crate) rank: usize,
    /// The first column for which no row is left.
    pub(crate) unmatched: Option<usize>,
}

/// A column for which no row is left, or `None` if every column has one.
pub(super) fn unmatched_column<T: Real>(csr: &Csr<T>) -> Option<usize> {
    Transversal::search(csr, true).unmatched
}

impl Transversal {
    /// Matches a matrix. Stored zeros count as entries.
    pub(crate) fn of<T: Real>(csr: &Csr<T>) -> Self {
        Self::search(csr, false)
    }

    /// Stops at the first column without a row if `first` is set. The rank is then only a lower bound.
    fn search<T: Real>(csr: &Csr<T>, first: bool) -> Self {
        let columns = csr.transpose();
        let ncols = csr.ncols();
        let mut column_of = vec![FREE; csr.nrows()];
        let mut left = vec![true; ncols];
        for (j, row) in column_of.iter_mut().enumerate().take(ncols) {
            if columns.get(j, j).is_some() {
                *row = j as u32;
                left[j] = false;
            }
        }
        let mut unmatched = None;
        let mut rank = ncols;
        // A row that an unsuccessful search has seen never leads to a free row later.
        let mut dead = vec![false; csr.nrows()];
        let mut seen = vec![FREE; csr.nrows()];
        // The current path: each column, and how many of its rows have been tried.
        let mut path: Vec<(usize, usize)> = Vec::new();
        let mut visited: Vec<usize> = Vec::new();
        for start in (0..ncols).filter(|&j| left[j]) {
            path.clear();
            path.push((start, 0));
            visited.clear();
            loop {
                let Some(top) = path.last_mut() else {
                    unmatched = unmatched.or(Some(start));
                    rank -= 1;
                    visited.iter().for_each(|&row| dead[row] = true);
                    break;
                };
                let rows = columns.row(top.0).0;
                if top.1 == 0
                    && let Some(k) = rows.iter().position(|&i| column_of[i as usize] == FREE)
                {
                    // A free row ends the path. Every column on it moves to the row that it tried last.
                    top.1 = k + 1;
                    for &(column, tried) in &path {
                        column_of[columns.row(column).0[tried - 1] as usize] = column as u32;
                    }
                    break;
                }
                let untried = rows[top.1..].iter().position(|&i| seen[i as usize] != start as u32 && !dead[i as usize]);
                match untried {
                    Some(k) => {
                        let at = top.1 + k;
                        top.1 = at + 1;
                        let row = rows[at] as usize;
                        seen[row] = start as u32;
                        visited.push(row);
                        path.push((column_of[row] as usize, 0));
                    }
                    None => {
                        path.pop();
                    }
                }
            }
            if first && unmatched.is_some() {
                break;
            }
        }
        Self { rank, unmatched }
    }
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Triplets;

    use super::*;

    fn pattern(n: usize, m: usize, entries: &[(usize, usize)]) -> Csr<f64> {
        let mut triplets = Triplets::new(n, m).expect("a small shape");
        for &(i, j) in entries {
            triplets.push(i, j, 1.0).expect("an entry inside");
        }
        triplets.to_csr().expect("a small matrix")
    }

    #[test]
    fn an_augmenting_path_is_found() {
        // Column 0 holds row 0 by the diagonal; column 1 needs it, so column 0 must move to row 1.
        assert_eq!(unmatched_column(&pattern(2, 2, &[(0, 0), (1, 0), (0, 1)])), None);
        // A cyclic shift has no diagonal at all.
        assert_eq!(unmatched_column(&pattern(4, 4, &[(1, 0), (2, 1), (3, 2), (0, 3)])), None);
    }

    #[test]
    fn columns_without_rows_of_their_own_are_found() {
        assert_eq!(unmatched_column(&pattern(2, 2, &[(0, 0), (0, 1)])), Some(1));
        assert_eq!(unmatched_column(&pattern(2, 2, &[(0, 0), (1, 0)])), Some(1));
        assert!(unmatched_column(&pattern(4, 3, &[(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)])).is_some());
    }

    #[test]
    fn it_agrees_with_trying_every_assignment() {
        fn assignable(a: &Csr<f64>, j: usize, used: &mut Vec<bool>) -> bool {
            j == a.ncols()
                || (0..a.nrows()).any(|i| {
                    let free = !used[i] && a.get(i, j).is_some();
                    if !free {
                        return false;
                    }
                    used[i] = true;
                    let found = assignable(a, j + 1, used);
                    used[i] = false;
                    found
                })
        }
        /// An upper bound on the number of columns from j on that can get a row.
        fn best(a: &Csr<f64>, j: usize, used: &mut Vec<bool>) -> usize {
            if j == a.ncols() {
                return 0;
            }
            let mut most = best(a, j + 1, used);
            for i in 0..a.nrows() {
                if !used[i] && a.get(i, j).is_some() {
                    used[i] = true;
                    most = most.max(1 + best(a, j + 1, used));
                    used[i] = false;
                }
            }
            most
        }
        let mut both = [0, 0];
        for bits in 0u32..1 << 16 {
            let entries: Vec<_> = (0..16).filter(|k| bits >> k & 1 == 1).map(|k| (k / 4, k % 4)).collect();
            let a = pattern(4, 4, &entries);
            let expected = assignable(&a, 0, &mut vec![false; 4]);
            assert_eq!(unmatched_column(&a).is_none(), expected, "{entries:?}");
            let transversal = Transversal::of(&a);
            assert_eq!(transversal.rank, best(&a, 0, &mut vec![false; 4]), "{entries:?}");
            assert_eq!(transversal.unmatched, unmatched_column(&a));
            both[usize::from(expected)] += 1;
        }
        assert!(both[0] > 1000 && both[1] > 1000);
    }
}
