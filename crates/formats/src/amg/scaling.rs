//! The diagonal of a matrix and a bound on the spectrum of D^-1 A.

use std::convert::Infallible;
use std::ops::Range;

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
    /// One over the diagonal.
    pub inverse: Vec<T>,
    /// A bound on the magnitudes of the eigenvalues of D^-1 A, at least 1. For any positive w, max_i (|D^-1 A| w)_i /
    /// w_i is such a bound (Collatz). This is the smaller of those for w = 1 and w = |D^-1 A| 1, in f64 and stored
    /// order.
    pub bound: f64,
    /// The first row with an entry that is not finite, or without a positive diagonal entry that has a finite inverse.
    /// If there is one, the other fields mean nothing.
    pub unfit: Option<usize>,
}

impl<T: Real> Scaling<T> {
    /// Computes the scaling from every entry. Rows run in parallel; the result does not depend on the number of
    /// threads.
    pub fn of(a: &Csr<T>) -> Self {
        let Ok(scaling) = Self::among(a, 0..a.nrows(), &mut |unfit, most, _| Ok::<_, Infallible>((unfit, most)));
        scaling
    }

    /// As [`Scaling::of`], for the `rows` of a square matrix whose other rows are empty here because other ranks have
    /// them. The diagonal and its inverse are those of `rows`.
    ///
    /// `agree` is called before each step that bounds the spectrum, and at the end. It gets the first unfit row, the
    /// largest ratio of the step before, and w. It overwrites the elements of w that belong to other ranks, and
    /// returns the first unfit row and the largest ratio of all ranks.
    ///
    /// # Errors
    /// Those of `agree`.
    pub fn among<E>(
        a: &Csr<T>,
        rows: Range<usize>,
        agree: &mut dyn FnMut(Option<usize>, f64, &mut [f64]) -> Result<(Option<usize>, f64), E>,
    ) -> Result<Self, E> {
        let each = || rows.clone().into_par_iter().with_min_len(CHUNK);
        let diagonal: Vec<T> = each().map(|row| a.get(row, row).unwrap_or_else(T::zero)).collect();
        let inverse: Vec<T> = diagonal.par_iter().with_min_len(CHUNK).map(|d| d.recip()).collect();
        let is_unfit = |&row: &usize| {
            let d = diagonal[row - rows.start];
            a.row(row).1.iter().any(|v| !v.is_finite()) || NotInvertible::of(row, Some(d)).is_some() || d < T::zero()
        };
        let mut w = vec![1.0f64; a.nrows()];
        let (unfit, _) = agree(each().find_first(is_unfit), 0.0, &mut w)?;
        let mut bound = f64::INFINITY;
        for _ in 0..if unfit.is_some() { 0 } else { BOUND_STEPS } {
            let (next, most) = step(a, rows.clone(), &inverse, &w);
            w[rows.clone()].copy_from_slice(&next);
            bound = bound.min(agree(None, most, &mut w)?.1);
        }
        // Every bound on eigenvalues is at least 1, for D^-1 A has ones on its diagonal.
        let bound = if unfit.is_some() { f64::NAN } else { bound.max(1.0) };
        Ok(Self { diagonal, inverse, bound, unfit })
    }
}

/// |D^-1 A| w in these rows, and its largest ratio to w.
fn step<T: Real>(a: &Csr<T>, rows: Range<usize>, inverse: &[T], w: &[f64]) -> (Vec<f64>, f64) {
    let row = |i: usize| {
        let (cols, values) = a.row(i);
        let sum = cols.iter().zip(values).fold(0.0, |sum, (&j, v)| sum + v.as_f64().abs() * w[j as usize]);
        sum * inverse[i - rows.start].as_f64()
    };
    let next: Vec<f64> = rows.clone().into_par_iter().with_min_len(CHUNK).map(row).collect();
    let ratio = |(&after, &before): (&f64, &f64)| after / before;
    let most = next.par_iter().zip(&w[rows.clone()]).with_min_len(CHUNK).map(ratio).reduce(|| 0.0, f64::max);
    (next, most)
}
