//! An estimate of ||A^-1|| in the 1-norm from a few solves with A and A^T.
//!
//! Cost: at most five pairs of solves, mostly two. The estimate is a lower bound, and rarely below a third of the norm.
//! Reference: Hager 1984, Condition estimates; Higham 1988, FORTRAN codes for estimating the one-norm of a real or
//! complex matrix, with applications to condition estimation, algorithm 4.1 (LAPACK's xLACON).

use spandrel_formats::Real;

use crate::Result;

/// The largest number of pairs of solves.
const PAIRS: usize = 5;

/// An estimate of ||B||_1 for the n x n matrix B. `apply(v, false)` is B v, and `apply(v, true)` is B^T v.
pub(super) fn norm1<T: Real>(n: usize, mut apply: impl FnMut(Vec<T>, bool) -> Result<Vec<T>>) -> Result<f64> {
    if n == 0 {
        return Ok(0.0);
    }
    let one = T::from_f64(1.0);
    let v = apply(vec![T::from_f64(1.0 / n as f64); n], false)?;
    if n == 1 {
        return Ok(v[0].as_f64().abs());
    }
    let mut estimate = sum(&v);
    let signs = |v: &[T]| -> Vec<T> { v.iter().map(|v| if v.as_f64() < 0.0 { -one } else { one }).collect() };
    let mut sign = signs(&v);
    let mut x = apply(sign.clone(), true)?;
    for _ in 1..PAIRS {
        let column = largest(&x);
        let mut unit = vec![T::zero(); n];
        unit[column] = one;
        let v = apply(unit, false)?;
        let (last, next) = (estimate, sum(&v));
        estimate = last.max(next);
        let turned = signs(&v);
        if turned == sign || next <= last {
            break;
        }
        sign = turned;
        x = apply(sign.clone(), true)?;
        if largest(&x) == column {
            break;
        }
    }
    // A vector with which the steps above cannot be misled by cancellation.
    let probe =
        |i: usize| T::from_f64((1.0 + i as f64 / (n - 1) as f64) * if i.is_multiple_of(2) { 1.0 } else { -1.0 });
    let probed = apply((0..n).map(probe).collect(), false)?;
    Ok(estimate.max(2.0 * sum(&probed) / (3.0 * n as f64)))
}

fn sum<T: Real>(v: &[T]) -> f64 {
    v.iter().map(|v| v.as_f64().abs()).sum()
}

/// The position of the largest magnitude, the first of equals.
fn largest<T: Real>(v: &[T]) -> usize {
    let mut at = 0;
    for (i, value) in v.iter().enumerate() {
        if value.as_f64().abs() > v[at].as_f64().abs() {
            at = i;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_of_small_matrices_is_found() {
        let b = [[1.0, -2.0, 0.5], [0.0, 3.0, -4.0], [2.0, 0.0, 0.25]];
        let apply = |v: Vec<f64>, transposed: bool| {
            let entry = |i: usize, j: usize| if transposed { b[j][i] } else { b[i][j] };
            Ok((0..3).map(|i| (0..3).map(|j| entry(i, j) * v[j]).sum()).collect())
        };
        assert_eq!(norm1(3, apply).unwrap(), 5.0);
        assert_eq!(norm1::<f64>(1, |v, _| Ok(vec![-7.0 * v[0]])).unwrap(), 7.0);
        assert_eq!(norm1::<f64>(0, |v, _| Ok(v)).unwrap(), 0.0);
    }
}
