//! The inverse of the coarsest operator, made once on the host in f64.
//!
//! A = L D L^T is factored without pivoting and in a fixed order. Only the columns of the inverse are divided among
//! threads, so the bits depend only on A. A pivot that is zero up to rounding belongs to a null vector, as in a pure
//! Neumann problem. It is left out, and the result inverts A on the rest.
//! Cost: n^3 operations for the factors and the inverse; n is a few hundred.

use rayon::prelude::*;

/// A pivot was negative by more than rounding, so the matrix is not positive semidefinite. Holds the row, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indefinite(pub(crate) usize);

/// Returns the inverse of a symmetric positive semidefinite matrix with n rows. Both are stored row by row. Reads only
/// the lower triangle.
pub(crate) fn inverse(n: usize, a: &[f64]) -> Result<Vec<f64>, Indefinite> {
    // The lower triangle becomes L, column by column; every inner loop runs along a row, so that the compiler can
    // vectorise it.
    let mut l = a.to_vec();
    let mut columns = vec![0.0; n * n];
    let mut pivots = vec![0.0; n];
    for i in 0..n {
        let pivot = l[i * n + i];
        // Each of the i subtractions errs by at most a roundoff of the diagonal entry, because no term of a
        // semidefinite matrix is larger.
        let noise = (i + 2) as f64 * 4.0 * f64::EPSILON * a[i * n + i].abs();
        if pivot.is_nan() || pivot < -noise {
            return Err(Indefinite(i));
        }
        // Column i of L D, then of L.
        let column = &mut columns[i * n..(i + 1) * n];
        (i + 1..n).for_each(|j| column[j] = l[j * n + i]);
        pivots[i] = if pivot > noise { pivot.recip() } else { 0.0 };
        for j in i + 1..n {
            let factor = column[j] * pivots[i];
            let (row, of_pivot) = (&mut l[j * n + i..=j * n + j], &column[i + 1..=j]);
            row[0] = factor;
            row[1..].iter_mut().zip(of_pivot).for_each(|(v, &c)| *v -= factor * c);
        }
        (i + 1..n).for_each(|j| column[j] = l[j * n + i]);
    }
    // Column by column: L y = e, z = D^-1 y, L^T x = z. Where a pivot was left out, x is zero.
    let mut inverse = vec![0.0; n * n];
    inverse.par_chunks_exact_mut(n.max(1)).enumerate().for_each(|(c, x)| {
        x[c] = 1.0;
        for i in c..n {
            let (value, column) = (x[i], &columns[i * n..(i + 1) * n]);
            x[i + 1..].iter_mut().zip(&column[i + 1..]).for_each(|(v, &factor)| *v -= factor * value);
            x[i] = value * pivots[i];
        }
        for i in (0..n).rev() {
            let (value, row) = (x[i], &l[i * n..i * n + i]);
            x.iter_mut().zip(row).for_each(|(v, &factor)| *v -= factor * value);
        }
    });
    Ok(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_inverts() {
        let n = 20usize;
        let a: Vec<f64> = (0..n * n)
            .map(|at| match (at / n).abs_diff(at % n) {
                0 => 4.0,
                1 => -1.0,
                5 => -1.0,
                _ => 0.0,
            })
            .collect();
        let b = inverse(n, &a).unwrap();
        for i in 0..n {
            for j in 0..n {
                let sum: f64 = (0..n).map(|k| a[i * n + k] * b[k * n + j]).sum();
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((sum - expected).abs() < 1e-13, "{i} {j}: {sum}");
            }
        }
    }

    #[test]
    fn a_constant_null_space_is_left_out_and_an_indefinite_matrix_is_told() {
        let n = 12usize;
        let ring: Vec<f64> = (0..n * n)
            .map(|at| match (at / n + n - at % n) % n {
                0 => 2.0,
                1 | 11 => -1.0,
                _ => 0.0,
            })
            .collect();
        let b = inverse(n, &ring).unwrap();
        // A solution for a right-hand side without a constant part.
        let rhs: Vec<f64> = (0..n)
            .map(|i| {
                if i == 3 {
                    1.0
                } else if i == 8 {
                    -1.0
                } else {
                    0.0
                }
            })
            .collect();
        let x: Vec<f64> = (0..n).map(|i| (0..n).map(|k| b[i * n + k] * rhs[k]).sum()).collect();
        for i in 0..n {
            let sum: f64 = (0..n).map(|k| ring[i * n + k] * x[k]).sum();
            assert!((sum - rhs[i]).abs() < 1e-12, "{i}: {sum}");
        }
        let mut indefinite = ring;
        indefinite[5 * n + 5] = -2.0;
        assert_eq!(inverse(n, &indefinite), Err(Indefinite(5)));
    }
}
