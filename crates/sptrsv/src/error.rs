//! The errors of triangles, plans and factorisations.

use crate::Triangle;

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of this crate: what is wrong, in which row, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The matrix of a triangle is not square.
    #[error("a triangle needs a square matrix; this matrix is {nrows} x {ncols}")]
    NotSquare {
        /// Number of rows.
        nrows: usize,
        /// Number of columns.
        ncols: usize,
    },
    /// An entry lies on the wrong side of the diagonal.
    #[error(
        "row {row} has an entry in column {col}, outside the {triangle} triangle: take the triangle out with split first"
    )]
    NotTriangular {
        /// The triangle that was asked for.
        triangle: Triangle,
        /// Row of the entry, from 0.
        row: usize,
        /// Column of the entry, from 0.
        col: usize,
    },
    /// A row has no diagonal entry, and the diagonal is not declared to be 1.
    #[error(
        "row {row} has no entry on the diagonal, so the triangle is singular: reorder the rows, or solve with a unit diagonal \
         if it is meant to be 1"
    )]
    MissingDiagonal {
        /// The row, from 0.
        row: usize,
    },
    /// A diagonal entry is zero.
    #[error("the diagonal of row {row} is zero, so the triangle is singular: reorder the rows, or shift the diagonal")]
    ZeroDiagonal {
        /// The row, from 0.
        row: usize,
    },
    /// A vector's length is not that of the triangle.
    #[error("sptrsv: {what} has {found} elements, expected {expected}")]
    Shape {
        /// The vector.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The triangle's number of rows.
        expected: usize,
    },
    /// A plan that was analysed only for T cannot solve with T^T.
    #[error("this plan was analysed only for T x = b; to solve with the transpose, analyse it for both systems")]
    NotAnalyzed,
    /// A plan for grids cannot solve with a matrix that is not a grid.
    #[error("{plan} needs a triangle on a grid: {why}")]
    NotAGrid {
        /// The plan.
        plan: &'static str,
        /// The reason.
        why: String,
    },
    /// An entry lies outside the stencil of the grid.
    #[error("row {row} has an entry in column {col}, which is outside the stencil of the grid")]
    OutsideStencil {
        /// Row of the entry, from 0.
        row: usize,
        /// Column of the entry, from 0.
        col: usize,
    },
    /// A row lacks a neighbour, but every row must have all of them.
    #[error(
        "row {row} holds {found} of {expected} entries of its stencil: solve from index-free storage, which takes such rows"
    )]
    PartOfStencil {
        /// The row, from 0.
        row: usize,
        /// The number of entries that it has.
        found: usize,
        /// The number of entries of the whole stencil in that row.
        expected: usize,
    },
    /// A row has no diagonal entry, but the factorisation needs one.
    #[error(
        "row {row} has no entry on the diagonal, where the factorisation needs a pivot: store one, or reorder the rows"
    )]
    MissingPivot {
        /// The row, from 0.
        row: usize,
    },
    /// The factors would have more entries than allowed.
    #[error(
        "the factors of level {level} have more than {limit} entries by row {row}: allow more, ask for a lower level, or reorder the rows"
    )]
    Fill {
        /// The first row after which there are too many, from 0.
        row: usize,
        /// The level of fill.
        level: usize,
        /// The number of entries allowed.
        limit: usize,
    },
    /// A pivot is zero.
    #[error("the pivot of row {row} is zero: reorder the rows, or allow more fill")]
    ZeroPivot {
        /// The row, from 0.
        row: usize,
    },
    /// A pivot may consist of rounding errors: it is at most the unit roundoff times the largest entry of its row.
    #[error(
        "the pivot of row {row} is {pivot:e} beside entries of {largest:e}, which may be only rounding: reorder or scale the rows, or \
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
    /// A pivot of a Cholesky factorisation is not positive.
    #[error(
        "the pivot of row {row} is {pivot:e}, not positive{}: the matrix is not positive definite, factor it by ILU",
        if *shift > 0.0 { format!(", even with {shift:e} times the diagonal added") } else { String::new() }
    )]
    NotPositive {
        /// The row, from 0.
        row: usize,
        /// The pivot.
        pivot: f64,
        /// The largest shift that was tried. 0 if A's own diagonal entry is not positive, which no shift can repair.
        shift: f64,
    },
    /// An infinity or NaN was given or arose from overflow.
    #[error("row {row} of the factors, or of the matrix, holds an infinity or NaN")]
    NotFinite {
        /// The row, from 0.
        row: usize,
    },
    /// A relaxation factor lies outside the range of SSOR.
    #[error("omega = {omega} is out of range: SSOR needs 0 < omega < 2")]
    Omega {
        /// The factor.
        omega: f64,
    },
    /// A parameter of the threshold factorisation is out of range.
    #[error("ilut: {what} = {found} is out of range: it must be {range}")]
    Threshold {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: f64,
        /// The allowed range.
        range: &'static str,
    },
    /// A matrix is invalid.
    #[error(transparent)]
    Format(#[from] spandrel_formats::Error),
}

impl Error {
    /// Whether a factorisation met a pivot that is zero or tiny.
    pub fn is_pivot(&self) -> bool {
        matches!(self, Error::ZeroPivot { .. } | Error::TinyPivot { .. })
    }
}
