//! The serial solve: one row after the other. It is the reference, with which every other solve is compared.
//!
//! Order: s starts at b_i and takes the row's terms towards the diagonal, the farthest first, with one `fma(-t_ij, x_j,
//! s)` each. So columns ascend in a lower triangle and descend in an upper one. The neighbour on the same grid line
//! comes last, and only that term is on the critical path. Then x_i = s * inv_i with inv_i = round(1/d_i), or x_i = s
//! for a unit diagonal.
//! Cost: nnz (4 + |T|) + 4 (nrows + 1) + 3 |T| nrows bytes (2 |T| nrows for a unit diagonal).
//! Bound: |b - T x| <= gamma(k+2) |T| |x| row by row, with k terms off the diagonal.
//! Reference: Higham 2002, Accuracy and Stability of Numerical Algorithms, chapter 8.

use std::sync::Arc;

use spandrel_formats::{Ordinal, Real};

use crate::{Error, Plan, Result, Rows, Systems, Triangle, Triangular};

/// The serial plan: no analysis, one row after the other.
#[derive(Clone, Debug)]
pub struct Serial<T>(Rows<T>);

impl<T: Real> Serial<T> {
    /// As [`Plan::analyze`], but without errors because every triangle fits.
    pub fn new(matrix: Arc<Triangular<T>>, systems: Systems) -> Self {
        Self(Rows::new(matrix, systems))
    }
    /// The rows of the triangle, with its columns if T^T is solved too.
    pub fn rows(&self) -> &Rows<T> {
        &self.0
    }
}

impl<T: Real> Plan for Serial<T> {
    type Value = T;
    const NAME: &'static str = "serial";

    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        Ok(Self::new(matrix, systems))
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        self.0.matrix()
    }
    fn systems(&self) -> Systems {
        self.0.systems()
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        self.0.update(values)
    }
    fn storage(&self) -> u64 {
        self.0.storage()
    }
    fn sptrsv_bytes(&self) -> u64 {
        self.0.sptrsv_bytes()
    }
}

/// x <- T^-1 b. The old x is not read. O(nnz); allocates nothing.
///
/// # Errors
/// [`Error::Shape`] unless b and x have `nrows` elements.
pub fn solve<T: Real>(matrix: &Triangular<T>, b: &[T], x: &mut [T]) -> Result<()> {
    let n = matrix.nrows();
    for (what, found) in [("b", b.len()), ("x", x.len())] {
        if found != n {
            return Err(Error::Shape { what, found, expected: n });
        }
    }
    for k in 0..n {
        let i = matrix.triangle().row(k, n);
        let (cols, values) = matrix.off_diagonal(i);
        let terms = cols.iter().zip(values);
        let s = match matrix.triangle() {
            Triangle::Lower => subtract(b[i], terms, x),
            Triangle::Upper => subtract(b[i], terms.rev(), x),
        };
        x[i] = match matrix.inv_diag().get(i) {
            Some(&inv) => s * inv,
            None => s,
        };
    }
    Ok(())
}

fn subtract<'a, T: Real>(b: T, terms: impl Iterator<Item = (&'a Ordinal, &'a T)>, x: &[T]) -> T {
    terms.fold(b, |s, (&j, &t)| (-t).mul_add(x[j as usize], s))
}
