//! Diagonal dominance of matrices whose entries off the diagonal are not positive.
//!
//! Cost: every entry is read once, with rows in parallel, until the first row that fails.

use rayon::prelude::*;

use crate::{Csr, Ordinal, Real};

/// Rows per parallel task.
const CHUNK: usize = 1024;

impl<T: Real> Csr<T> {
    /// The least of (a_ii - sum |a_ij|) / a_ii over the rows, with j other than i, for a square matrix with a positive
    /// diagonal and no other positive entries.
    ///
    /// A value that is negative by at most the rounding of the sum becomes 0. [`None`] if it is more negative, or for
    /// other matrices. If a symmetric matrix has this value, every eigenvalue is at least the value times the smallest
    /// diagonal entry (Gershgorin), up to rounding. Rows in parallel.
    pub fn dominance(&self) -> Option<f64> {
        if self.nrows() != self.ncols() {
            return None;
        }
        (0..self.nrows())
            .into_par_iter()
            .with_min_len(CHUNK)
            .map(|i| row_dominance(i, self.row(i)))
            .try_reduce(|| f64::INFINITY, |one, other| Some(one.min(other)))
    }
}

/// (a_ii - sum |a_ij|) / a_ii of row i, given its columns and values, as [`Csr::dominance`] has it. [`None`] for a row
/// without a positive diagonal entry, with another positive entry, or with a value that is more negative than rounding
/// explains.
pub fn row_dominance<T: Real>(i: usize, (cols, values): (&[Ordinal], &[T])) -> Option<f64> {
    let (mut diagonal, mut others, mut is_one) = (0.0, 0.0, true);
    for (&j, v) in cols.iter().zip(values) {
        if j as usize == i {
            diagonal += v.as_f64();
        } else {
            is_one &= *v <= T::zero();
            others -= v.as_f64();
        }
    }
    let surplus = (diagonal - others) / diagonal;
    let rounding = 2.0 * cols.len() as f64 * T::UNIT_ROUNDOFF;
    (is_one && diagonal > 0.0 && surplus >= -rounding).then(|| surplus.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn the_least_row_counts() {
        let a =
            Csr::new(3, 3, vec![0, 2, 5, 7], vec![0, 1, 0, 1, 2, 1, 2], vec![4.0, -1.0, -1.0, 4.0, -2.0, -2.0, 4.0]);
        let mut a = a.unwrap();
        assert_eq!(a.dominance(), Some(0.25));
        a.values_mut()[1] = 1.0;
        assert_eq!(a.dominance(), None, "a positive entry");
        a.values_mut()[1] = -4.5;
        assert_eq!(a.dominance(), None, "outweighed");
        a.values_mut()[1] = f64::NAN;
        assert_eq!(a.dominance(), None);
        assert_eq!(Csr::new(1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap().dominance(), None);
        assert_eq!(generate::csr::<f32>("d3n27:5").unwrap().dominance(), Some(0.0));
        // A row that sums to zero up to rounding.
        let thirds = Csr::new(1, 1, vec![0, 1], vec![0], vec![0.3]).unwrap();
        assert_eq!(thirds.dominance(), Some(1.0));
    }

    #[test]
    fn what_a_sum_rounds_by_is_no_deficit() {
        let of = |diagonal: f64, others: [f64; 3]| {
            let values = std::iter::once(diagonal).chain(others).chain([1.0; 3]).collect();
            Csr::new(4, 4, vec![0, 4, 5, 6, 7], vec![0, 1, 2, 3, 1, 2, 3], values).unwrap().dominance()
        };
        // 0.1 + 0.2 + 0.3 rounds to more than 0.3 + 0.2 + 0.1, in this order as in the sum.
        assert_eq!(of(0.3 + 0.2 + 0.1, [-0.1, -0.2, -0.3]), Some(0.0));
        assert!(of(0.1 + 0.2 + 0.3, [-0.3, -0.2, -0.1]).is_some_and(|surplus| surplus < 1e-15));
        assert_eq!(of(0.6 * (1.0 - 1e-14), [-0.1, -0.2, -0.3]), None);
    }
}
