//! The settings of a solve. Every setting has a default, and every named choice is spelled as on the command line.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use spandrel_formats::Real;
use spandrel_solvers::options::default_rtol;
use spandrel_solvers::{Method, NameError, Precond};

use crate::any::Choice;

/// Declares an enum of plain names with `ALL`, `as_str`, `Display` and a `FromStr` that ignores case.
macro_rules! names {
    ($(#[$about:meta])* $Name:ident, $what:literal, $($(#[$doc:meta])* $Variant:ident = $text:literal),+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $Name {
            $($(#[$doc])* $Variant),+
        }

        impl $Name {
            /// All values.
            pub const ALL: &'static [$Name] = &[$($Name::$Variant),+];

            /// The name on the command line and in JSON.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($Name::$Variant => $text),+
                }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $Name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                let found = Self::ALL.iter().find(|name| name.as_str().eq_ignore_ascii_case(text));
                found.copied().ok_or_else(|| NameError::unknown($what, text, Self::ALL.iter().map(|name| name.as_str())))
            }
        }
    };
}

names! {
    /// The element types of a solve.
    Precision, "precision",
    /// Matrix, vectors and preconditioner in the element type of the matrix; `amg` that the policy chooses for an `f64`
    /// matrix is in `f32`, as with [`Precision::Mixed`].
    #[default]
    Native = "native",
    /// An `f64` iteration with its preconditioner in `f32`. Only for `f64`.
    Mixed = "mixed",
    /// Solves in `f32`, with residuals and x in `f64` (iterative refinement). Only for `f64`.
    Refined = "refined"
}

names! {
    /// A renumbering of rows and columns before the solve. x is returned in the matrix's own numbering.
    Reorder, "ordering",
    /// The matrix's own numbering.
    #[default]
    None = "none",
    /// Breadth-first, which brings neighbours near each other.
    Bfs = "bfs",
    /// Recursive bisection, after which a range of rows has few neighbours elsewhere.
    Bisection = "bisection",
    /// Reverse Cuthill-McKee, which narrows the band.
    Rcm = "rcm",
    /// Approximate minimum degree, which reduces fill.
    Amd = "amd"
}

names! {
    /// A scaling of rows and columns for an iteration. x and the residuals are those of the given matrix. A
    /// factorisation scales by its own rules.
    Scale, "scaling",
    /// No scaling.
    #[default]
    None = "none",
    /// Rows and columns are multiplied by powers of two, so that the largest entry of each is near 1; symmetrically if
    /// the matrix is symmetric.
    Equilibrate = "equilibrate",
    /// Rows are permuted and scaled so that the product of the diagonal is as large as possible and no entry exceeds it
    /// (maximum product matching).
    Match = "match"
}

names! {
    /// A null space that the caller knows. The null space of A^T must be the same. The part of b in the null space is
    /// removed before the solve, and x has no part in it.
    NullVectors, "null space",
    /// None is known.
    #[default]
    None = "none",
    /// The constant vectors: A 1 = 0 and A^T 1 = 0, as in pure Neumann problems.
    Constant = "constant"
}

names! {
    /// Whether the solver may replace its own choice of a method or preconditioner if that fails.
    Fallback, "fallback",
    /// Another method or preconditioner takes over; see [`crate::solver::Solution::attempts`].
    #[default]
    Auto = "auto",
    /// The first choice is the only one.
    None = "none"
}

macro_rules! stems {
    ([] $(($stem:ident, $Type:ident)),*) => { &[$(stringify!($stem)),*] };
}

/// The near-null space of the matrix: vectors that it maps nearly to zero. Algebraic multigrid interpolates them
/// exactly, which it needs for elasticity and other systems of equations.
#[derive(Clone, Debug, PartialEq)]
pub enum NearNull {
    /// Vectors, column by column, each with one element per row of the matrix; at most 6.
    Vectors(Arc<Vec<f64>>),
    /// The rigid body modes of points whose displacements are the unknowns, numbered point by point.
    Coordinates {
        /// The coordinates, point by point.
        points: Arc<Vec<f64>>,
        /// The number of coordinates, and of displacements, per point: 2 or 3.
        dimension: usize,
    },
}

/// The storage format of the matrix in the iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FormatChoice {
    /// The format whose product should be fastest, by a model of the bytes that it moves.
    #[default]
    Auto,
    /// The best few formats by the model are timed on the device once, and the fastest is taken.
    Measured,
    /// One of [`FormatChoice::NAMES`].
    Named(&'static str),
}

impl FormatChoice {
    /// The names of the storage formats.
    pub const NAMES: &'static [&'static str] = spandrel_formats::for_each_format!(stems);
}

impl fmt::Display for FormatChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Measured => "measured",
            Self::Named(name) => name,
        })
    }
}

impl FromStr for FormatChoice {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.to_ascii_lowercase();
        match name.as_str() {
            "auto" => return Ok(Self::Auto),
            "measured" => return Ok(Self::Measured),
            _ => {}
        }
        let found = Self::NAMES.iter().find(|&&stem| stem == name);
        let names = || ["auto", "measured"].into_iter().chain(Self::NAMES.iter().copied());
        found.map(|stem| Self::Named(stem)).ok_or_else(|| NameError::unknown("format", text, names()))
    }
}

/// The goal for the residual: ||b - A x|| <= max(rtol ||b||, atol).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The goal relative to ||b||.
    pub rtol: f64,
    /// The absolute goal; 0 for none.
    pub atol: f64,
}

impl Tolerance {
    /// The default for an element type: rtol 1e-8 in `f64`, 1e-5 in `f32`, which cannot reach 1e-8; atol 0.
    pub fn of<T: Real>() -> Self {
        Self { rtol: default_rtol::<T>(), atol: 0.0 }
    }
}

/// All settings of a solve as plain data. [`crate::solver::Builder`] sets the fields one by one.
///
/// `None` leaves a choice to the policy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The device. Only [`crate::Solver`] reads it; a [`crate::DeviceSolver`] has a device already.
    pub device: Choice,
    /// The method.
    pub method: Option<Method>,
    /// The preconditioner.
    pub preconditioner: Option<Precond>,
    /// The storage format of the iteration.
    pub format: FormatChoice,
    /// The element types.
    pub precision: Precision,
    /// The renumbering; `None` to decide by the matrix.
    pub reorder: Option<Reorder>,
    /// How rows and columns are scaled for an iteration; `None` to decide by the matrix.
    pub scale: Option<Scale>,
    /// Whether to find the least squares solution, with the least ||b - A x||, by a factorisation.
    pub least_squares: bool,
    /// The known null space.
    pub null_space: NullVectors,
    /// The known near-null space. Without a named preconditioner it asks for algebraic multigrid.
    pub near_null: Option<NearNull>,
    /// The relative goal; `None` for that of [`Tolerance::of`] the element type.
    pub rtol: Option<f64>,
    /// The absolute goal.
    pub atol: f64,
    /// The limit of iterations; `None` for 20 per row, at least 20. Without one, and with [`Fallback::Auto`], an
    /// iteration ends earlier if it has run long and would need more than four times the iterations that it has done.
    pub max_iterations: Option<usize>,
    /// Iterations between two looks of the host; see [`crate::Options::check_every`].
    pub check_every: Option<usize>,
    /// See [`crate::Options::stagnation`].
    pub stagnation: Option<usize>,
    /// Steps of a GMRES cycle.
    pub restart: Option<usize>,
    /// Bytes that the factors of a complete factorisation may take. `None`: 16 GiB if it is asked for by name; else 256
    /// MiB or half of the memory that is free, whichever is more.
    pub memory_limit: Option<u64>,
    /// Only kernels whose order of summation every backend shares: x has the same bits everywhere.
    pub reproducible: bool,
    /// Whether another choice may replace one that fails.
    pub fallback: Fallback,
    /// Whether new values will come ([`crate::Solver::update_values`]). The solver then keeps what it needs to
    /// renumber them.
    pub updatable: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: Choice::Auto,
            method: None,
            preconditioner: None,
            format: FormatChoice::Auto,
            precision: Precision::Native,
            reorder: None,
            scale: None,
            least_squares: false,
            null_space: NullVectors::None,
            near_null: None,
            rtol: None,
            atol: 0.0,
            max_iterations: None,
            check_every: None,
            stagnation: None,
            restart: None,
            memory_limit: None,
            reproducible: false,
            fallback: Fallback::Auto,
            updatable: true,
        }
    }
}

/// Reads a name, or `auto` as `None`.
///
/// ```
/// use spandrel::solvers::{Method, Precond};
/// use spandrel::solver::or_auto;
///
/// assert_eq!(or_auto::<Method>("CG"), Ok(Some(Method::Cg)));
/// assert_eq!(or_auto::<Precond>("auto"), Ok(None));
/// assert_eq!(or_auto::<Precond>("iluk=2"), Ok(Some(Precond::Iluk(2))));
/// ```
///
/// # Errors
/// [`NameError`] with the known names.
pub fn or_auto<P: FromStr<Err = NameError>>(text: &str) -> Result<Option<P>, NameError> {
    if text.eq_ignore_ascii_case("auto") { Ok(None) } else { text.parse().map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_as_they_are_written() {
        for &precision in Precision::ALL {
            assert_eq!(precision.to_string().to_uppercase().parse(), Ok(precision));
        }
        for &reorder in Reorder::ALL {
            assert_eq!(reorder.to_string().parse(), Ok(reorder));
        }
        for &scale in Scale::ALL {
            assert_eq!(scale.to_string().to_uppercase().parse(), Ok(scale));
        }
        let formats = FormatChoice::NAMES.iter().map(|name| FormatChoice::Named(name));
        for format in formats.chain([FormatChoice::Auto, FormatChoice::Measured]) {
            assert_eq!(format.to_string().to_uppercase().parse(), Ok(format));
        }
        let error = "bdai".parse::<FormatChoice>().unwrap_err().to_string();
        assert!(error.contains("did you mean bdia?"), "{error}");
    }
}
