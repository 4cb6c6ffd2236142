//! ILU(0): A ~ L U without fill. L and U have entries exactly where A has, and L U agrees with A there, up to rounding.
//!
//! Layout: A's row is the row of L, strictly below the diagonal, followed by the row of U.
//! Order: that of [`crate::factor`]: l_ik = w_k / u_kk.
//! Cost: 4 (nnz + 2 nrows + 2) bytes for the result of the symbolic phase, made in O(nnz); the numeric phase as in
//! [`crate::factor`]. A pivot is refused if it is zero or at most u max_j |a_ij|, where u is the unit roundoff.
//! Reference: Meijerink & van der Vorst 1977, An iterative solution method for linear systems of which the coefficient
//! matrix is a symmetric M-matrix; Saad, Iterative Methods for Sparse Linear Systems, 2003, algorithm 10.4.

use std::marker::PhantomData;

use spandrel_formats::{Csr, Real};

use crate::factor::{Halves, eliminate, expect_values};
use crate::{Factor, Factors, Pattern, Result};

/// ILU(0) on one pattern. See the module's head.
#[derive(Clone, Debug)]
pub struct Ilu0<T> {
    halves: Halves,
    value: PhantomData<T>,
}

impl<T: Real> Factor for Ilu0<T> {
    type Value = T;
    const NAME: &'static str = "ilu0";

    fn symbolic(a: &Csr<T>) -> Result<Self> {
        Ok(Self { halves: Halves::of(a)?, value: PhantomData })
    }
    fn numeric(&self, values: &[T]) -> Result<Factors<T>> {
        expect_values(values, self.halves.nnz())?;
        eliminate(&self.halves.lower, &self.halves.upper, None, values, None)
    }
    fn lower(&self) -> &Pattern {
        &self.halves.lower
    }
    fn upper(&self) -> Option<&Pattern> {
        Some(&self.halves.upper)
    }
    fn nnz_given(&self) -> usize {
        self.halves.nnz()
    }
}
