//! Preconditioners that need no factorisation: none, and the diagonal.
//!
//! Cost: [`Identity`] nothing, since solvers use r instead of z; [`Jacobi`] three passes over vectors of n.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 10.2.

use std::fmt;

use spandrel_backend::{Backend, Gate, Preconditioner};
use spandrel_formats::{Csr, NotInvertible, Real};

use crate::{Error, Result};

/// The identity M = I, of any size: no preconditioner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity;

// SAFETY: a copy from operand to operand.
unsafe impl<T: Real, B: Backend<T>> Preconditioner<T, B> for Identity {
    fn len(&self) -> Option<usize> {
        None
    }
    fn is_identity(&self) -> bool {
        true
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        be.copy(gate, r, z)
    }
}

/// The Jacobi preconditioner M = diag(A), stored as its inverse, each entry rounded once.
pub struct Jacobi<T: Real, B: Backend<T>> {
    inv_diag: B::Vector,
    n: usize,
}

impl<T: Real, B: Backend<T>> fmt::Debug for Jacobi<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jacobi").field("n", &self.n).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> Jacobi<T, B> {
    /// Inverts the diagonal of a square matrix and loads it.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Diagonal`] with the first row whose diagonal entry is missing, zero, infinite,
    /// NaN or too small to invert; a backend that fails.
    pub fn new(be: &B, csr: &Csr<T>) -> Result<Self> {
        let inv_diag = be.upload(&inverse_diagonal(csr)?)?;
        Ok(Self { n: be.len(&inv_diag), inv_diag })
    }

    /// Inverts a diagonal that is given entry by entry, `None` where nothing is stored. On one rank of a distributed
    /// solve these are the entries of the rank's rows.
    ///
    /// # Errors
    /// As [`Jacobi::new`]; rows are counted from the first entry given.
    pub fn from_diagonal(be: &B, diagonal: impl IntoIterator<Item = Option<T>>) -> Result<Self> {
        let inverse = diagonal.into_iter().enumerate().map(|(row, d)| inverse(row, d)).collect::<Result<Vec<T>>>()?;
        let inv_diag = be.upload(&inverse)?;
        Ok(Self { n: be.len(&inv_diag), inv_diag })
    }

    /// Inverts the diagonal of another matrix of the same size: no new address, so recorded steps see the new one.
    /// Blocks; must not be recorded.
    ///
    /// # Errors
    /// As [`Jacobi::new`], and [`Error::Size`] for another size. After an error everything is as before.
    pub fn update(&mut self, be: &B, csr: &Csr<T>) -> Result<()> {
        let inverse = inverse_diagonal(csr)?;
        if inverse.len() != self.n {
            return Err(Error::rows("jacobi", "the matrix", inverse.len(), self.n, crate::error::SAME_SIZE));
        }
        be.copy(None, &be.upload(&inverse)?, &mut self.inv_diag)?;
        Ok(())
    }
}

/// 1 / a_ii for each row.
pub(crate) fn inverse_diagonal<T: Real>(csr: &Csr<T>) -> Result<Vec<T>> {
    let (nrows, ncols) = (csr.row_ptr().len() - 1, spandrel_formats::Format::ncols(csr));
    if nrows != ncols {
        return Err(Error::NotSquare { solver: "jacobi", nrows, ncols });
    }
    (0..nrows).map(|row| inverse(row, csr.get(row, row))).collect()
}

/// 1 / d for a row and its diagonal entry.
pub(crate) fn inverse<T: Real>(row: usize, diagonal: Option<T>) -> Result<T> {
    match (NotInvertible::of(row, diagonal), diagonal) {
        (None, Some(d)) => Ok(d.recip()),
        (bad, _) => Err(Error::Diagonal { row, found: bad.map_or("missing", |bad| bad.found) }),
    }
}

// SAFETY: `inv_diag` is its only buffer and is never replaced.
unsafe impl<T: Real, B: Backend<T>> Preconditioner<T, B> for Jacobi<T, B> {
    fn len(&self) -> Option<usize> {
        Some(self.n)
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        be.hadamard(gate, &self.inv_diag, r, z)
    }
    fn apply_dot(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        r: &B::Vector,
        z: &mut B::Vector,
        rz: &mut B::Scalar,
    ) -> spandrel_backend::Result<()> {
        be.hadamard_dot(gate, &self.inv_diag, r, z, rz)
    }
}
