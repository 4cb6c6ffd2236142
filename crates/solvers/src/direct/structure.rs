//! Whether a pattern has full column rank for some values: a maximum matching of columns to rows.
//!
//! Faer's sparse QR indexes out of its arrays for patterns that have not (0.24), and LU fails late, so it is asked first.
//! Cost: O(nnz) where the diagonal is full; at worst O(ncols nnz). No recursion.
//! Reference: Duff 1981, On algorithms for obtaining a maximum transversal (MC21).

use spandrel_formats::{Csr, Real};

const FREE: u32 = u32::MAX;

/// A column that no row is left for, or `None` where every column has one.
pub(super) fn unmatched_column<T: Real>(csr: &Csr<T>) -> Option<usize> {
    let columns = csr.transpose();
    let ncols = csr.ncols();
    let mut column_of = vec![FREE; csr.nrows()];
    let mut cheap = vec![true; ncols];
    for (j, row) in column_of.iter_mut().enumerate().take(ncols) {
        if columns.get(j, j).is_some() {
            *row = j as u32;
            cheap[j] = false;
        }
    }
    let mut seen = vec![FREE; csr.nrows()];
    // The path under way: a column, and how far its rows have been tried.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for start in (0..ncols).filter(|&j| cheap[j]) {
        path.clear();
        path.push((start, 0));
        loop {
            let Some(top) = path.last_mut() else { return Some(start) };
            let rows = columns.row(top.0).0;
            if top.1 == 0
                && let Some(k) = rows.iter().position(|&i| column_of[i as usize] == FREE)
            {
                // A free row ends the path: along it every column moves to the row that it tried last.
                top.1 = k + 1;
                for &(column, tried) in &path {
                    column_of[columns.row(column).0[tried - 1] as usize] = column as u32;
                }
                break;
            }
            let untried = rows[top.1..].iter().position(|&i| seen[i as usize] != start as u32);
            match untried {
                Some(k) => {
                    let at = top.1 + k;
                    top.1 = at + 1;
                    let row = rows[at] as usize;
                    seen[row] = start as u32;
                    path.push((column_of[row] as usize, 0));
                }
                None => {
                    path.pop();
                }
            }
        }
    }
    None
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
        let mut both = [0, 0];
        for bits in 0u32..1 << 16 {
            let entries: Vec<_> = (0..16).filter(|k| bits >> k & 1 == 1).map(|k| (k / 4, k % 4)).collect();
            let a = pattern(4, 4, &entries);
            let expected = assignable(&a, 0, &mut vec![false; 4]);
            assert_eq!(unmatched_column(&a).is_none(), expected, "{entries:?}");
            both[usize::from(expected)] += 1;
        }
        assert!(both[0] > 1000 && both[1] > 1000);
    }
}
