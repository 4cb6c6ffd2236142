//! What a solve is asked for. Every setting has a default, and every named choice is read and written as on the command line.

use std::fmt;
use std::str::FromStr;

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
            /// All of them.
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
    /// Matrix, vectors and preconditioner in the element type of the matrix.
    #[default]
    Native = "native",
    /// An `f64` iteration with its preconditioner in `f32`. Only for `f64`.
    Mixed = "mixed",
    /// Solves in `f32`, residuals and x in `f64` (iterative refinement). Only for `f64`.
    Refined = "refined"
}

names! {
    /// A renumbering of rows and columns before the solve. x comes back in the matrix's own numbering.
    Reorder, "ordering",
    /// As the matrix is numbered.
    #[default]
    None = "none",
    /// Reverse Cuthill-McKee: a narrow band.
    Rcm = "rcm",
    /// Approximate minimum degree: little fill.
    Amd = "amd"
}

names! {
    /// How rows and columns are prepared for an iteration. It is undone in x, and residuals are those of the matrix as given. A factorisation
    /// scales by its own rules.
    Scale, "scaling",
    /// Not at all.
    #[default]
    None = "none",
    /// Rows and columns are multiplied by powers of two, so that the largest entry of each is near 1; symmetrically, if the matrix is
    /// symmetric.
    Equilibrate = "equilibrate",
    /// Rows are exchanged and scaled so that the product of the diagonal is as large as can be, and no entry exceeds it (maximum product
    /// matching).
    Match = "match"
}

names! {
    /// A null space that the caller knows of. The system is then solved for the b without its part in the null space of A^T, which has to be the
    /// same, and x has no part in it.
    NullVectors, "null space",
    /// None is known.
    #[default]
    None = "none",
    /// The constant vectors: A 1 = 0 and A^T 1 = 0, as in pure Neumann problems.
    Constant = "constant"
}

names! {
    /// Whether a method or preconditioner that was not asked for by name is replaced if it fails.
    Fallback, "fallback",
    /// Another method or preconditioner takes over; [`crate::solver::Solution::attempts`] tells of it.
    #[default]
    Auto = "auto",
    /// The first choice is the only one.
    None = "none"
}

macro_rules! stems {
    ([] $(($stem:ident, $Type:ident)),*) => { &[$(stringify!($stem)),*] };
}

/// The storage format of the matrix in the iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FormatChoice {
    /// The one whose product is expected to take the least time, by a model of the bytes that it moves.
    #[default]
    Auto,
    /// The best few by the model are tried on the device once, and the fastest is taken.
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

/// How small the residual has to become: ||b - A x|| <= max(rtol ||b||, atol).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative to ||b||.
    pub rtol: f64,
    /// Absolute. 0 for none.
    pub atol: f64,
}

impl Tolerance {
    /// The default for an element type: rtol 1e-8 in `f64`, 1e-5 in `f32`, which cannot reach 1e-8; atol 0.
    pub fn of<T: Real>() -> Self {
        Self { rtol: default_rtol::<T>(), atol: 0.0 }
    }
}

/// Everything that can be asked of a solve, as plain data. [`crate::solver::Builder`] sets the fields one by one.
///
/// `None` stands for a choice that is left to the policy.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Where to run. Only [`crate::Solver`] reads it: a [`crate::DeviceSolver`] has a device already.
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
    /// Whether the least ||b - A x|| is wanted, by a factorisation.
    pub least_squares: bool,
    /// What is known of the null space.
    pub null_space: NullVectors,
    /// The relative goal; `None` for that of [`Tolerance::of`] the element type.
    pub rtol: Option<f64>,
    /// The absolute goal.
    pub atol: f64,
    /// The limit of iterations; `None` for 20 per row, at least 20.
    pub max_iterations: Option<usize>,
    /// Iterations between two looks of the host; see [`crate::Options::check_every`].
    pub check_every: Option<usize>,
    /// See [`crate::Options::stagnation`].
    pub stagnation: Option<usize>,
    /// Steps of a GMRES cycle.
    pub restart: Option<usize>,
    /// Only kernels whose order of summation every backend shares: x has the same bits everywhere.
    pub reproducible: bool,
    /// What happens if a choice of the policy fails.
    pub fallback: Fallback,
    /// Whether new values will come ([`crate::Solver::update_values`]). The solver then keeps the pattern of the matrix on the host.
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
            rtol: None,
            atol: 0.0,
            max_iterations: None,
            check_every: None,
            stagnation: None,
            restart: None,
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
/// [`NameError`] with the names that there are.
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
