//! What a solver refuses to start with.

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a solver. A solve that does not converge is not an error: see [`crate::Outcome`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The method needs a square matrix, and this one is not square.
    #[error(
        "{solver} needs a square matrix; this matrix is {nrows} x {ncols}; for more rows than columns there is the direct solver's QR"
    )]
    NotSquare {
        /// The method.
        solver: &'static str,
        /// Rows.
        nrows: usize,
        /// Columns.
        ncols: usize,
    },
    /// The matrix has fewer rows than columns, so the answer is not unique.
    #[error(
        "direct: {nrows} rows for {ncols} columns determine no unique answer; regularised least squares give the shortest one (--least-squares, Builder::least_squares)"
    )]
    Underdetermined {
        /// Rows.
        nrows: usize,
        /// Columns.
        ncols: usize,
    },
    /// An operand has the wrong size.
    #[error("{solver}: {what} has {found} {unit}, expected {expected}; {remedy}")]
    Size {
        /// The method.
        solver: &'static str,
        /// The operand.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The size it should have.
        expected: usize,
        /// What the sizes count: `"elements"`, `"rows"`.
        unit: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Jacobi cannot invert a diagonal entry.
    #[error(
        "the diagonal entry of row {row} is {found}, which this preconditioner cannot take; solve without it, or reorder the rows so that the diagonal has no zero"
    )]
    Diagonal {
        /// The row, from 0.
        row: usize,
        /// `"missing"`, `"zero"`, `"negative"`, `"infinite"`, `"NaN"`, `"too small to invert"`.
        found: &'static str,
    },
    /// The method needs a positive semidefinite matrix, and this one is not.
    #[error(
        "{method} needs a symmetric positive definite matrix, and this one is not: row {row} of grid {grid} shows a negative direction; use ilu0 with gmres, or \
         the direct method"
    )]
    NotPositive {
        /// The method or preconditioner.
        method: &'static str,
        /// The grid on which this was found, 0 the finest.
        grid: usize,
        /// The row of that grid, from 0.
        row: usize,
    },
    /// Block Jacobi cannot invert a block on the diagonal.
    #[error(
        "the block of {block_dim} rows from row {row} on is {found}, so block Jacobi cannot invert it; try another block size, or reorder the \
         rows"
    )]
    Block {
        /// The block's first row, from 0.
        row: usize,
        /// Rows of a block; the last may have fewer.
        block_dim: usize,
        /// `"singular"`, `"not finite"`, `"too small to invert"`.
        found: &'static str,
    },
    /// A factorisation met a zero pivot.
    #[error("{method}: the matrix is singular{}: {why}", pivot.map(|p| format!(" (pivot {p})")).unwrap_or_default())]
    ZeroPivot {
        /// `"llt"`, `"lu"`, `"qr"`.
        method: &'static str,
        /// The elimination step, from 0, if it is known.
        pivot: Option<usize>,
        /// What was found.
        why: String,
    },
    /// A matrix for a direct solver has an infinite or NaN entry.
    #[error("the matrix's entry at row {}, column {} (counted from 1) is {found}", row + 1, column + 1)]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// `"infinite"` or `"NaN"`.
        found: &'static str,
    },
    /// A factor would not fit into the memory limit.
    #[error(
        "{method}: the factor would take {bytes} bytes, more than the limit of {limit}; raise the limit or use an iterative solver"
    )]
    Fill {
        /// `"llt"`, `"lu"`, `"qr"`.
        method: &'static str,
        /// Bytes of the factor by the symbolic factorisation: exact for LLT, an upper bound for LU and QR.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The direct solver failed for another reason.
    #[error("{method}: {why}")]
    Factor {
        /// `"llt"`, `"lu"`, `"qr"`.
        method: &'static str,
        /// The reason.
        why: String,
    },
    /// New values of a matrix are more or fewer than its entries.
    #[error("new values: {found} values for a pattern of {expected} entries; give one value per entry, in CSR's order")]
    Pattern {
        /// How many values.
        found: usize,
        /// How many entries.
        expected: usize,
    },
    /// New values for multigrid have another pattern than before.
    #[error(
        "mg: row {row} of grid {grid} has other columns than before; new values need the old pattern, so make a new preconditioner"
    )]
    OtherPattern {
        /// The grid, 0 the finest.
        grid: usize,
        /// The first such row, from 0.
        row: usize,
    },
    /// New values would give multigrid other grids than it has.
    #[error(
        "mg: the new values need other grids ({found:?}) than the old ones ({expected:?}); make a new preconditioner"
    )]
    OtherGrids {
        /// The extents X, Y, Z of each grid, finest first.
        found: Vec<[usize; 3]>,
        /// The extents of the grids that it has.
        expected: Vec<[usize; 3]>,
    },
    /// A vector cannot be part of a basis of a null space.
    #[error("vector {index} of the null space is {found}; leave it out")]
    NullVector {
        /// The index of the vector, from 0.
        index: usize,
        /// `"infinite or NaN"`, `"zero, or a combination of those before it"`.
        found: &'static str,
    },
    /// An option is outside its range.
    #[error(
        "option {name} = {value} is out of range: rtol and atol are at least 0, divergence exceeds 1, restart is at least 1"
    )]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// A parameter of a method or preconditioner is outside its range.
    #[error("{name} = {value} is out of range: {range}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range.
        range: &'static str,
    },
    /// The method needs a stencil on a grid, and the matrix is not one.
    #[error(
        "mg needs a stencil on a grid with one to five unknowns per point, numbered line by line, and finds none: {why}; solve with ssor, ic0 or \
         ilu0"
    )]
    NotAGrid {
        /// The reason.
        why: spandrel_formats::NotAGrid,
    },
    /// Settings contradict the matrix or each other.
    #[error("{why}")]
    Unsupported {
        /// What contradicts what, and what to do.
        why: String,
    },
    /// A reproducible solve was requested, and a part of it sums in an order of its own.
    #[error("{why}")]
    NotReproducible {
        /// Which part, and what to use instead.
        why: String,
    },
    /// An element of a vector is infinite or NaN.
    #[error("element {} (counted from 1) of {name} is {found}", at + 1)]
    Element {
        /// The vector.
        name: &'static str,
        /// The element, from 0.
        at: usize,
        /// `"infinite"` or `"NaN"`.
        found: &'static str,
    },
    /// A triangle cannot be solved with, or an incomplete factorisation broke down.
    #[error(transparent)]
    Triangle(#[from] spandrel_sptrsv::Error),
    /// A solve did not converge and the caller requires it: [`crate::Outcome::require_converged`].
    #[error("the solve did not converge: {outcome}")]
    NotConverged {
        /// How it ended: status, iterations, residuals.
        outcome: Box<crate::Outcome>,
    },
    /// The watcher of a set-up stopped it.
    #[error("the set-up was interrupted before its phase: {phase}")]
    Interrupted {
        /// The phase that did not begin, in words.
        phase: String,
    },
    /// What took over from a choice that failed has failed too.
    #[error("{why}; {choice} was tried because {first}")]
    SecondChoice {
        /// What took over.
        choice: String,
        /// What failed before, and why.
        first: String,
        /// How the second choice failed.
        why: Box<Error>,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] spandrel_backend::Error),
    /// The matrix is invalid.
    #[error(transparent)]
    Format(#[from] spandrel_formats::Error),
}

/// The remedy for operands that do not fit each other.
pub(crate) const FIT_B: &str = "b needs one element per row of the matrix";
pub(crate) const FIT_X: &str = "x needs one element per column of the matrix";
pub(crate) const FIT_PRECONDITIONER: &str = "make the preconditioner of this matrix";
pub(crate) const FIT_WORKSPACE: &str = "make the workspace for as many unknowns as the matrix has rows";
pub(crate) const SAME_SIZE: &str = "new values need a matrix of the old size, so make a new preconditioner";

/// Why a method refuses a preconditioner that is not linear.
pub(crate) fn not_linear(solver: &str) -> String {
    format!(
        "{solver} with this placement needs a linear preconditioner, and this one is not linear (a K-cycle is not); use cg, or bicgstab with \
         the preconditioner on the right"
    )
}

impl Error {
    /// The error of a hierarchy whose first grid is the `grids`-th of a larger one: it counts grids from that one's.
    pub fn below(self, grids: usize) -> Self {
        match self {
            Error::NotPositive { method, grid, row } => Error::NotPositive { method, grid: grids + grid, row },
            other => other,
        }
    }

    /// An operand with the wrong number of elements.
    pub(crate) fn elements(
        solver: &'static str,
        what: &'static str,
        found: usize,
        expected: usize,
        remedy: &'static str,
    ) -> Self {
        Error::Size { solver, what, found, expected, unit: "elements", remedy }
    }

    /// A matrix or preconditioner with the wrong number of rows.
    pub(crate) fn rows(
        solver: &'static str,
        what: &'static str,
        found: usize,
        expected: usize,
        remedy: &'static str,
    ) -> Self {
        Error::Size { solver, what, found, expected, unit: "rows", remedy }
    }

    /// This failure of `choice`, with what had failed before. An interruption stays one.
    #[must_use]
    pub fn after(self, choice: impl std::fmt::Display, first: impl Into<String>) -> Self {
        match self {
            Error::Interrupted { .. } => self,
            why => Error::SecondChoice { choice: choice.to_string(), first: first.into(), why: Box::new(why) },
        }
    }

    /// The status word for it, where it has one: a front end then reports an outcome instead of an error.
    pub fn status(&self) -> Option<crate::Status> {
        match self {
            Error::Diagonal { found: "infinite" | "NaN", .. }
            | Error::Block { found: "not finite", .. }
            | Error::Element { .. }
            | Error::NotFinite { .. } => Some(crate::Status::NotFinite),
            Error::Diagonal { .. } | Error::Block { .. } | Error::ZeroPivot { .. } => Some(crate::Status::ZeroPivot),
            Error::NotConverged { outcome } => Some(outcome.status),
            Error::Interrupted { .. } => Some(crate::Status::Interrupted),
            Error::SecondChoice { why, .. } => why.status(),
            Error::Triangle(error) | Error::Backend(spandrel_backend::Error::Triangle(error)) => {
                Self::status_of_triangle(error)
            }
            _ => None,
        }
    }
}
