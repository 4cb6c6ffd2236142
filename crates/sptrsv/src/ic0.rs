//! IC(0): A ~ L L^T without fill, for a symmetric matrix. L has entries where A's lower triangle has; the upper
//! triangle is not read.
//!
//! Order: that of [`crate::factor`]. l_ik = s / l_kk, where s is a_ik less l_ij l_kj for ascending j; l_ii = sqrt(s),
//! where the pivot s is a_ii less l_ij^2 for ascending j.
//! Cost: 4 (nnz(L) + 2 nrows + 2) bytes for the result of the symbolic phase; the numeric phase as in
//! [`crate::factor`].
//!
//! Breakdown: a pivot counts as positive only if s > u a_ii, where u is the unit roundoff. This may fail even for a
//! positive definite A that is no M- or H-matrix. Then A + alpha diag(A) is factored instead, with alpha =
//! [`FIRST_SHIFT`], doubled until it succeeds. For a positive diagonal some alpha suffices, because the shifted matrix
//! becomes diagonally dominant. The result states the alpha.
//! References: Meijerink & van der Vorst 1977; Manteuffel 1980, An incomplete factorization technique for positive
//! definite linear systems; Lin & More 1999, Incomplete Cholesky factorizations with limited memory (the first shift).

use std::marker::PhantomData;

use spandrel_formats::{Csr, Offset, Real};

use crate::factor::{Slots, before, expect_values, with_fma};
use crate::{Error, Factor, Factors, Pattern, Result};

/// The first alpha that is tried.
pub const FIRST_SHIFT: f64 = 1e-3;
/// Maximum number of shifts. The last is above 10^8, where the off-diagonal entries hardly count.
pub const MAX_SHIFTS: usize = 40;

/// The shifts in the order in which they are tried; the first is 0.
pub fn shifts() -> impl Iterator<Item = f64> {
    let next = |&shift: &f64| Some(if shift == 0.0 { FIRST_SHIFT } else { 2.0 * shift });
    std::iter::successors(Some(0.0), next).take(MAX_SHIFTS + 1)
}

/// Checks whether some shift can make row `i` of A factorable. `given` is its lower part, with the diagonal entry last.
///
/// # Errors
/// [`Error::NotFinite`], or [`Error::NotPositive`] with the diagonal entry: no shift repairs these.
#[inline]
pub fn judge<T: Real>(i: usize, given: &[T]) -> Result<()> {
    if given.iter().any(|v| !v.is_finite()) {
        return Err(Error::NotFinite { row: i });
    }
    match given.last() {
        Some(&diagonal) if diagonal <= T::zero() => {
            Err(Error::NotPositive { row: i, pivot: diagonal.as_f64(), shift: 0.0 })
        }
        _ => Ok(()),
    }
}

/// IC(0) on one pattern. See the module's head.
#[derive(Clone, Debug)]
pub struct Ic0<T> {
    lower: Pattern,
    /// Where A's rows begin.
    row_ptr: Vec<Offset>,
    value: PhantomData<T>,
}

impl<T: Real> Ic0<T> {
    /// Where A's rows begin: `nrows + 1` offsets. Each row of A begins with the entries of its row of L.
    pub fn given_ptr(&self) -> &[Offset] {
        &self.row_ptr
    }
}

impl<T: Real> Factor for Ic0<T> {
    type Value = T;
    const NAME: &'static str = "ic0";

    fn symbolic(a: &Csr<T>) -> Result<Self> {
        let lower = Pattern::of_parts(a, &before(a)?, |_, before| 0..before + 1);
        Ok(Self { lower, row_ptr: a.row_ptr().to_vec(), value: PhantomData })
    }
    fn numeric(&self, values: &[T]) -> Result<Factors<T>> {
        let n = self.lower.nrows();
        expect_values(values, self.row_ptr[n] as usize)?;
        for i in 0..n {
            judge(i, &values[self.row_ptr[i] as usize..][..self.lower.row(i).len()])?;
        }
        let mut broken = None;
        for shift in shifts() {
            match cholesky(&self.lower, &self.row_ptr, values, T::from_f64(shift)) {
                Ok(lower) => return Ok(Factors { lower, upper: Vec::new(), shift }),
                Err((row, pivot)) => broken = Some(Error::NotPositive { row, pivot: pivot.as_f64(), shift }),
            }
        }
        // The first shift, 0, is always tried.
        Err(broken.unwrap_or(Error::NotPositive { row: 0, pivot: 0.0, shift: 0.0 }))
    }
    fn lower(&self) -> &Pattern {
        &self.lower
    }
    fn upper(&self) -> Option<&Pattern> {
        None
    }
    fn nnz_given(&self) -> usize {
        self.row_ptr[self.lower.nrows()] as usize
    }
}

with_fma! {
    /// Computes L of A + `shift` diag(A), or returns the row whose pivot is not positive, with the pivot.
    fn cholesky<T: Real>(lower: &Pattern, row_ptr: &[Offset], values: &[T], shift: T) -> std::result::Result<Vec<T>, (usize, T)> {
        let mut slots = Slots::new(lower.nrows());
        let mut l: Vec<T> = Vec::with_capacity(lower.nnz());
        for i in 0..lower.nrows() {
            let cols = lower.row(i);
            let diagonal = cols.len() - 1;
            let from = l.len();
            l.extend_from_slice(&values[row_ptr[i] as usize..][..cols.len()]);
            slots.set(&cols[..diagonal], 0);
            let (done, row) = l.split_at_mut(from);
            for (p, &k) in cols[..diagonal].iter().enumerate() {
                let (begin, end) = (lower.start(k as usize), lower.start(k as usize + 1) - 1);
                let mut s = row[p];
                for (&j, &term) in lower.col_idx()[begin..end].iter().zip(&done[begin..end]) {
                    if let Some(at) = slots.get(j) {
                        s = (-row[at]).mul_add(term, s);
                    }
                }
                row[p] = s / done[end];
            }
            slots.clear(&cols[..diagonal]);
            let given = shift.mul_add(row[diagonal], row[diagonal]);
            let pivot = row[..diagonal].iter().fold(given, |s, &v| (-v).mul_add(v, s));
            // Also false for a NaN.
            let positive = pivot > T::from_f64(T::UNIT_ROUNDOFF) * given && pivot.is_finite();
            if !positive {
                return Err((i, pivot));
            }
            row[diagonal] = pivot.sqrt();
        }
        Ok(l)
    }
}
