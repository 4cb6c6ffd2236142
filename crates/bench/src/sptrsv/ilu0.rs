//! ILU(0) on the host: the factors whose triangles are solved with.
//!
//! Order: row by row, the entries to the left of the diagonal ascending, each row's update by one `fma(-l_ik, u_kj, a_ij)` a term.
//! Cost: O(sum over entries (i, k) left of the diagonal of row k's length).
//! Reference: Saad 2003, Iterative Methods for Sparse Linear Systems, algorithm 10.4.

use anyhow::{Result, ensure};
use spandrel_formats::{Csr, Format, Real};

/// L and U with L U = A on the pattern of A: L strictly lower, its unit diagonal not stored, U with its diagonal.
///
/// # Errors
/// A matrix that is not square; a pivot that is missing, zero or not finite, with its row.
pub(crate) fn factor<T: Real>(csr: &Csr<T>) -> Result<(Csr<T>, Csr<T>)> {
    let n = csr.nrows();
    ensure!(n == csr.ncols(), "ILU(0) needs a square matrix, this one is {n} x {}", csr.ncols());
    let (ptr, idx) = (csr.row_ptr(), csr.col_idx());
    let mut values = csr.values().to_vec();
    let mut pivots = Vec::with_capacity(n);
    // Where row i stores each column, one more than its place; 0 where it does not.
    let mut place = vec![0u32; n];
    for i in 0..n {
        let row = ptr[i] as usize..ptr[i + 1] as usize;
        for e in row.clone() {
            place[idx[e] as usize] = e as u32 + 1;
        }
        for e in row.clone().take_while(|&e| (idx[e] as usize) < i) {
            let k = idx[e] as usize;
            let pivot: usize = pivots[k];
            let l = values[e] / values[pivot];
            values[e] = l;
            for u in pivot + 1..ptr[k + 1] as usize {
                if let Some(at) = place[idx[u] as usize].checked_sub(1) {
                    values[at as usize] = (-l).mul_add(values[u], values[at as usize]);
                }
            }
        }
        let at = place[i].checked_sub(1).map(|at| at as usize);
        let sound = at.filter(|&at| values[at].is_finite() && values[at] != T::zero());
        ensure!(sound.is_some(), "ILU(0): the pivot of row {i} is missing, zero or not finite");
        pivots.extend(sound);
        for e in row {
            place[idx[e] as usize] = 0;
        }
    }
    let part = |keep: &dyn Fn(usize, usize) -> bool| -> Result<Csr<T>> {
        let (mut row_ptr, mut cols, mut kept) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            for e in ptr[i] as usize..ptr[i + 1] as usize {
                if keep(i, idx[e] as usize) {
                    cols.push(idx[e]);
                    kept.push(values[e]);
                }
            }
            row_ptr.push(cols.len() as u32);
        }
        Ok(Csr::new(n, n, row_ptr, cols, kept)?)
    };
    Ok((part(&|i, j| j < i)?, part(&|i, j| j >= i)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn the_factors_of_a_tridiagonal_matrix_are_its_lu() {
        let a = Csr::new(3, 3, vec![0, 2, 5, 7], vec![0, 1, 0, 1, 2, 1, 2], vec![4.0, 1.0, 2.0, 4.0, 1.0, 2.0, 4.0]).unwrap();
        let (l, u) = factor::<f64>(&a).unwrap();
        assert_eq!((l.col_idx(), l.values()), (&[0, 1][..], &[0.5, 2.0 / 3.5][..]));
        assert_eq!(u.values(), [4.0, 1.0, 3.5, 1.0, 4.0 - 2.0 / 3.5]);
    }

    #[test]
    fn the_product_has_the_matrix_on_its_pattern() {
        let a: Csr<f64> = generate::csr("d3n27:4").unwrap();
        let (l, u) = factor(&a).unwrap();
        let n = a.nrows();
        for i in 0..n {
            let mut product = vec![0.0; n];
            let ones = (&[i as u32][..], &[1.0][..]);
            for (cols, values) in [l.row(i), ones] {
                for (&k, &v) in cols.iter().zip(values) {
                    let (cols, us) = u.row(k as usize);
                    cols.iter().zip(us).for_each(|(&j, &u)| product[j as usize] += v * u);
                }
            }
            let (cols, values) = a.row(i);
            for (&j, &v) in cols.iter().zip(values) {
                // 27 terms in a sum of sizes below 2 * 26.
                let bound = 64.0 * 52.0 * f64::UNIT_ROUNDOFF;
                assert!((product[j as usize] - v).abs() <= bound, "({i}, {j})");
            }
        }
    }

    #[test]
    fn a_pivot_of_zero_is_an_error_with_its_row() {
        let a = Csr::new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![1.0, 1.0, 1.0, 1.0]).unwrap();
        assert!(factor::<f64>(&a).unwrap_err().to_string().contains("row 1"));
    }
}
