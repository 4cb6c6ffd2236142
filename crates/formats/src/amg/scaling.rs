//! The diagonal of a matrix and a bound on the spectrum of D^-1 A.

use rayon::prelude::*;

use crate::{Csr, NotInvertible, Real};

/// Steps that tighten the bound on the spectrum.
const BOUND_STEPS: usize = 2;

/// Rows per parallel task.
const CHUNK: usize = 1024;

/// The diagonal D of a square matrix, its inverse, and a bound on the eigenvalues of D^-1 A.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling<T> {
    /// The diagonal.
    pub diagonal: Vec<T>,
    /// One over it.
    pub inverse: Vec<T>,
    /// A bound on the magnitudes of the eigenvalues of D^-1 A, at least 1. For any positive w, max_i (|D^-1 A| w)_i /
    /// w_i is one (Collatz); this is the smaller of those for w = 1 and w = |D^-1 A| 1, in f64 and stored order.
    pub bound: f64,
    /// The first row with an entry that is not finite, or without a positive diagonal entry that has a finite inverse.
    /// If there is one, the rest means nothing.
    pub unfit: Option<usize>,
}

impl<T: Real> Scaling<T> {
    /// Looks at every entry. Rows run in parallel; the result does not depend on how many at once.
    pub fn of(a: &Csr<T>) -> Self {
        let n = a.nrows();
        let rows = || (0..n).into_par_iter().with_min_len(CHUNK);
        let diagonal: Vec<T> = rows().map(|row| a.get(row, row).unwrap_or_else(T::zero)).collect();
        let inverse: Vec<T> = diagonal.par_iter().with_min_len(CHUNK).map(|d| d.recip()).collect();
        let is_unfit = |&row: &usize| {
            let d = diagonal[row];
            a.row(row).1.iter().any(|v| !v.is_finite()) || NotInvertible::of(row, Some(d)).is_some() || d < T::zero()
        };
        let unfit = rows().find_first(is_unfit);
        let bound = if unfit.is_some() { f64::NAN } else { bound(a, &inverse) };
        Self { diagonal, inverse, bound, unfit }
    }
}

fn bound<T: Real>(a: &Csr<T>, inverse: &[T]) -> f64 {
    let n = a.nrows();
    let mut w = vec![1.0f64; n];
    let mut best = f64::INFINITY;
    for _ in 0..BOUND_STEPS {
        let row = |i: usize| {
            let (cols, values) = a.row(i);
            let sum = cols.iter().zip(values).fold(0.0, |sum, (&j, v)| sum + v.as_f64().abs() * w[j as usize]);
            sum * inverse[i].as_f64()
        };
        let next: Vec<f64> = (0..n).into_par_iter().with_min_len(CHUNK).map(row).collect();
        let ratio = |(&after, &before): (&f64, &f64)| after / before;
        let most = next.par_iter().zip(&w).with_min_len(CHUNK).map(ratio).reduce(|| 0.0, f64::max);
        best = best.min(most);
        w = next;
    }
    // Every bound on eigenvalues is at least 1, for D^-1 A has ones on its diagonal.
    best.max(1.0)
}
