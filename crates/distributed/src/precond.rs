//! Preconditioners whose bits do not depend on the number of ranks: the diagonal, and a Chebyshev polynomial in it.
//! Algebraic multigrid is another: [`crate::DistributedAmg`].
//!
//! They are those of [`spandrel_solvers`], made from the rows of each rank. If one rank fails, all ranks name it.

use spandrel_backend::{Device, Operator};
use spandrel_formats::{NotInvertible, Real};
use spandrel_solvers::chebyshev::scaled_rows;
use spandrel_solvers::{Chebyshev, Error, Jacobi, Result};

use crate::communicator::Communicator;
use crate::device::Distributed;
use crate::matrix::Local;
use crate::rows::{Column, Rows};

/// An error about a row of this rank, with the row's number in the whole matrix.
fn globally(first: u64, error: Error) -> Error {
    match error {
        Error::Diagonal { row, found } => Error::Diagonal { row: row + first as usize, found },
        Error::NotFinite { row, column, found } => Error::NotFinite { row: row + first as usize, column, found },
        other => other,
    }
}

/// Refuses a diagonal entry of any rank that cannot be inverted. Waits for the other ranks.
///
/// A solve that renumbers rows asks before it does, so that the error names the row in the matrix's own numbering.
///
/// # Errors
/// As [`jacobi`].
pub fn check_diagonal<T: Real, B: Local<T>, C: Communicator, J: Column>(
    be: &Distributed<B, C>,
    rows: &Rows<T, J>,
) -> Result<()> {
    let mut wrong = rows.diagonal().enumerate().filter_map(|(row, d)| NotInvertible::of(row, d));
    be.together(match wrong.next() {
        Some(NotInvertible { row, found }) => Err(globally(rows.first(), Error::Diagonal { row, found })),
        None => Ok(()),
    })
}

/// Makes Jacobi from the diagonals of all ranks. Waits for the other ranks.
///
/// # Errors
/// [`Error::Diagonal`] on the rank of a row whose diagonal entry cannot be inverted, which the other ranks name;
/// [`Error::Backend`].
pub fn jacobi<T: Real, B: Local<T>, C: Communicator, J: Column>(
    be: &Distributed<B, C>,
    rows: &Rows<T, J>,
) -> Result<Jacobi<T, Distributed<B, C>>> {
    be.together(Jacobi::from_diagonal(be, rows.diagonal()).map_err(|error| globally(rows.first(), error)))
}

/// Makes a Chebyshev polynomial in D^-1 A from the rows of all ranks; `a` is the matrix that has these rows. The bound
/// on the spectrum is the largest row sum of all ranks. Waits for the other ranks.
///
/// # Errors
/// As [`Chebyshev::new`], on every rank.
pub fn chebyshev<T: Real, A: Operator<T, Distributed<B, C>>, B: Local<T>, C: Communicator, J: Column>(
    be: &Distributed<B, C>,
    a: A,
    rows: &Rows<T, J>,
    degree: usize,
) -> Result<Chebyshev<T, Distributed<B, C>, A>> {
    let scaled = scaled_rows((0..rows.len()).map(|i| {
        let ((cols, values), row) = (rows.row(i), rows.first() + i as u64);
        (cols.binary_search_by(|&column| column.into().cmp(&row)).ok(), cols, values)
    }));
    let (inverse, bound) = be.together(scaled.map_err(|error| globally(rows.first(), error)))?;
    // The bits of numbers that are not negative are ordered as the numbers are.
    let bound = f64::from_bits(be.agree(bound.to_bits())?);
    Chebyshev::over(be, a, &inverse, bound, degree)
}
