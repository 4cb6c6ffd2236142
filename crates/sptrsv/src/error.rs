//! What can be wrong with a triangle.

use crate::Triangle;

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate: what is wrong, in which row, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A triangle of a matrix that is not square.
    #[error("a triangle needs a square matrix, this one is {nrows} x {ncols}")]
    NotSquare {
        /// Number of rows.
        nrows: usize,
        /// Number of columns.
        ncols: usize,
    },
    /// An entry on the wrong side of the diagonal.
    #[error(
        "row {row} has an entry in column {col}, outside the {triangle} triangle: take the triangle out with split first"
    )]
    NotTriangular {
        /// The triangle that was asked for.
        triangle: Triangle,
        /// Row of the entry, from 0.
        row: usize,
        /// Its column, from 0.
        col: usize,
    },
    /// A row without an entry on the diagonal, where the diagonal is not declared to be 1.
    #[error(
        "row {row} has no entry on the diagonal, so the triangle is singular: reorder the rows, or solve with a unit diagonal \
         if it is meant to be 1"
    )]
    MissingDiagonal {
        /// The row, from 0.
        row: usize,
    },
    /// A zero on the diagonal.
    #[error("the diagonal of row {row} is zero, so the triangle is singular: reorder the rows, or shift the diagonal")]
    ZeroDiagonal {
        /// The row, from 0.
        row: usize,
    },
    /// A vector whose length is not the triangle's.
    #[error("sptrsv: {what} has {found} elements, expected {expected}")]
    Shape {
        /// The vector.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The triangle's number of rows.
        expected: usize,
    },
    /// T^T of a plan that was analysed for T alone.
    #[error("this plan was analysed for T x = b alone: analyse it for both systems to solve with the transpose")]
    NotAnalyzed,
    /// A plan for grids and a matrix that is none.
    #[error("{plan} solves on grids, and this triangle is none: {why}")]
    NotAGrid {
        /// The plan.
        plan: &'static str,
        /// The reason.
        why: String,
    },
    /// An entry that the stencil of a grid does not have.
    #[error("row {row} has an entry in column {col}, which is outside the stencil of the grid")]
    OutsideStencil {
        /// Row of the entry, from 0.
        row: usize,
        /// Its column, from 0.
        col: usize,
    },
    /// A row that lacks a neighbour where every row must have all of them.
    #[error(
        "row {row} holds {found} of {expected} entries of its stencil: solve from index-free storage, which takes such rows"
    )]
    PartOfStencil {
        /// The row, from 0.
        row: usize,
        /// Its entries.
        found: usize,
        /// The entries of the whole stencil there.
        expected: usize,
    },
    /// A row without an entry on the diagonal, given to a factorisation.
    #[error(
        "row {row} has no entry on the diagonal, where the factorisation needs a pivot: store one, or reorder the rows"
    )]
    MissingPivot {
        /// The row, from 0.
        row: usize,
    },
    /// Factors with more entries than were allowed.
    #[error(
        "the factors of level {level} have more than {limit} entries by row {row}: allow more, ask for a lower level, or reorder the rows"
    )]
    Fill {
        /// The first row behind which there are more, from 0.
        row: usize,
        /// The level of fill.
        level: usize,
        /// Entries that were allowed.
        limit: usize,
    },
    /// A pivot that is zero.
    #[error("the pivot of row {row} is zero: reorder the rows, or allow more fill")]
    ZeroPivot {
        /// The row, from 0.
        row: usize,
    },
    /// A pivot that rounding may have made: at most the unit roundoff times the largest entry of its row.
    #[error(
        "the pivot of row {row} is {pivot:e} beside entries of {largest:e}, which may be rounding alone: reorder or scale the rows, or \
         allow more fill"
    )]
    TinyPivot {
        /// The row, from 0.
        row: usize,
        /// The pivot.
        pivot: f64,
        /// The largest magnitude in A's row.
        largest: f64,
    },
    /// A pivot of a Cholesky factorisation that is not positive.
    #[error(
        "the pivot of row {row} is {pivot:e}, not positive{}: the matrix is not positive definite, factor it by ILU",
        if *shift > 0.0 { format!(", even with {shift:e} times the diagonal added") } else { String::new() }
    )]
    NotPositive {
        /// The row, from 0.
        row: usize,
        /// The pivot.
        pivot: f64,
        /// The largest shift that was tried; 0 where A's own diagonal entry is not positive, which no shift mends.
        shift: f64,
    },
    /// An infinity or NaN, given or from overflow.
    #[error("row {row} of the factors, or of the matrix, holds an infinity or NaN")]
    NotFinite {
        /// The row, from 0.
        row: usize,
    },
    /// A relaxation factor for which SSOR is none.
    #[error("omega = {omega} is out of range: SSOR needs 0 < omega < 2")]
    Omega {
        /// The factor.
        omega: f64,
    },
    /// Parameters for which there is no threshold factorisation.
    #[error("ilut: {what} = {found} is out of range: it must be {range}")]
    Threshold {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: f64,
        /// What it may be.
        range: &'static str,
    },
    /// A matrix that is wrong in itself.
    #[error(transparent)]
    Format(#[from] spandrel_formats::Error),
}
