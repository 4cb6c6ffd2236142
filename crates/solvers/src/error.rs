//! What a solver refuses to begin with.

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a solver. Not converging is none: see [`crate::Outcome`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A matrix that is not square where the method needs one that is.
    #[error(
        "{solver} needs a square matrix, this one is {nrows} x {ncols}; the direct solver's QR takes more rows than columns"
    )]
    NotSquare {
        /// The method.
        solver: &'static str,
        /// Rows.
        nrows: usize,
        /// Columns.
        ncols: usize,
    },
    /// A matrix with fewer rows than columns, which has no unique answer.
    #[error(
        "direct: {nrows} rows for {ncols} columns leave the answer open; regularised least squares give the shortest one (--least-squares, Builder::least_squares)"
    )]
    Underdetermined {
        /// Rows.
        nrows: usize,
        /// Columns.
        ncols: usize,
    },
    /// An operand of the wrong size.
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
        /// What is counted: `"elements"`, `"rows"`.
        unit: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A diagonal entry that Jacobi cannot invert.
    #[error(
        "the diagonal entry of row {row} is {found}, which this preconditioner cannot take; solve without it, or reorder the rows so that the diagonal has no zero"
    )]
    Diagonal {
        /// The row, from 0.
        row: usize,
        /// `"missing"`, `"zero"`, `"negative"`, `"infinite"`, `"NaN"`, `"too small to invert"`.
        found: &'static str,
    },
    /// A block on the diagonal that block Jacobi cannot invert.
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
    /// A factorisation that met a zero pivot.
    #[error("{method}: the matrix is singular{}: {why}", pivot.map(|p| format!(" (pivot {p})")).unwrap_or_default())]
    ZeroPivot {
        /// `"llt"`, `"lu"`, `"qr"`.
        method: &'static str,
        /// The elimination step, from 0, where it is known.
        pivot: Option<usize>,
        /// What was found.
        why: String,
    },
    /// A matrix with an infinite or NaN entry given to a direct solver.
    #[error("the matrix's entry at row {}, column {} (counted from 1) is {found}", row + 1, column + 1)]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// `"infinite"` or `"NaN"`.
        found: &'static str,
    },
    /// A factor that would not fit the memory limit.
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
    /// The direct solver failed for a reason of its own.
    #[error("{method}: {why}")]
    Factor {
        /// `"llt"`, `"lu"`, `"qr"`.
        method: &'static str,
        /// The reason.
        why: String,
    },
    /// New values for a factorisation of another pattern.
    #[error("refactor: {found} values for a pattern of {expected} entries")]
    Pattern {
        /// How many values.
        found: usize,
        /// How many entries.
        expected: usize,
    },
    /// New values for a multigrid cycle on another pattern than before.
    #[error(
        "mg: row {row} of grid {grid} has other columns than before; new values need the old pattern, so make it anew"
    )]
    OtherPattern {
        /// The grid, 0 the finest.
        grid: usize,
        /// The first such row, from 0.
        row: usize,
    },
    /// New values that multigrid would take to other grids than it has.
    #[error("mg: these values are coarsened to the grids {found:?}, those before to {expected:?}; make it anew")]
    OtherGrids {
        /// The extents X, Y, Z of each grid, finest first.
        found: Vec<[usize; 3]>,
        /// Those that it has.
        expected: Vec<[usize; 3]>,
    },
    /// A vector that cannot be one of a basis of a null space.
    #[error("vector {index} of the null space is {found}; leave it out")]
    NullVector {
        /// Which, from 0.
        index: usize,
        /// `"infinite or NaN"`, `"zero, or a combination of those before it"`.
        found: &'static str,
    },
    /// An option outside its range.
    #[error(
        "option {name} = {value} is out of range: rtol and atol are at least 0, divergence exceeds 1, restart is at least 1"
    )]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// A parameter of a method or preconditioner outside its range.
    #[error("{name} = {value} is out of range: {range}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it should be.
        range: &'static str,
    },
    /// A matrix that is no stencil on a grid, where the method needs one.
    #[error(
        "mg needs a stencil on a grid with one to five unknowns a point, numbered line by line, and finds none: {why}; solve with ssor, ic0 or \
         ilu0"
    )]
    NotAGrid {
        /// The reason.
        why: spandrel_formats::NotAGrid,
    },
    /// Settings that contradict the matrix or each other.
    #[error("{why}")]
    Unsupported {
        /// What contradicts what, and what to do.
        why: String,
    },
    /// A reproducible solve was asked for, and something in it sums in an order of its own.
    #[error("{why}")]
    NotReproducible {
        /// What does, and what to use instead.
        why: String,
    },
    /// A vector with an element that is infinite or NaN.
    #[error("element {} (counted from 1) of {name} is {found}", at + 1)]
    Element {
        /// The vector.
        name: &'static str,
        /// The element, from 0.
        at: usize,
        /// `"infinite"` or `"NaN"`.
        found: &'static str,
    },
    /// A triangle that cannot be solved with, or an incomplete factorisation that broke down.
    #[error(transparent)]
    Triangle(#[from] spandrel_sptrsv::Error),
    /// A solve that did not converge, where the caller asked for an answer: [`crate::Outcome::require_converged`].
    #[error("the solve did not converge: {outcome}")]
    NotConverged {
        /// How it ended: status, iterations, residuals.
        outcome: Box<crate::Outcome>,
    },
    /// A set-up whose watcher broke it off.
    #[error("the set-up was interrupted before its phase: {phase}")]
    Interrupted {
        /// The phase that did not begin, in words.
        phase: String,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] spandrel_backend::Error),
    /// The matrix is wrong.
    #[error(transparent)]
    Format(#[from] spandrel_formats::Error),
}

/// The remedy for operands that do not fit each other.
pub(crate) const FIT_B: &str = "b needs one element per row of the matrix";
pub(crate) const FIT_X: &str = "x needs one element per column of the matrix";
pub(crate) const FIT_PRECONDITIONER: &str = "make the preconditioner of this matrix";
pub(crate) const FIT_WORKSPACE: &str = "make the workspace for as many unknowns as the matrix has rows";
pub(crate) const SAME_SIZE: &str = "new values need a matrix of the old size, so make the preconditioner anew";

impl Error {
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
            Error::Triangle(error) | Error::Backend(spandrel_backend::Error::Triangle(error)) => {
                Self::status_of_triangle(error)
            }
            _ => None,
        }
    }
}
