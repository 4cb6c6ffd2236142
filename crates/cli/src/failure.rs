//! The failures of the program: a kind for programs to match on, and a message that says what happened, where, and what
//! to do.

use std::fmt;

/// `std::result::Result` with this program's [`Failure`].
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// An error as the user sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// A stable word: `"io"`, `"parse"`, `"shape"`, ...
    pub(crate) kind: &'static str,
    /// What is wrong, where, and what to do.
    pub(crate) message: String,
    /// Whether the one object of `--json` is out already, with this failure in it.
    pub(crate) object_printed: bool,
    /// Whether the user has been told, here or by another process.
    pub(crate) is_told: bool,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), object_printed: false, is_told: false }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<spandrel_formats::Error> for Failure {
    fn from(error: spandrel_formats::Error) -> Self {
        use spandrel_formats::Error as E;
        let kind = match &error {
            E::TooLarge { .. } => "too_large",
            E::DoesNotFit { .. } => "does_not_fit",
            E::Shape { .. } => "shape",
            E::OutOfMemory { .. } => "out_of_memory",
            E::Parse { .. } => "parse",
            E::Io { .. } => "io",
            E::Spec { .. } => "spec",
            _ => "invalid_matrix",
        };
        Self::new(kind, error.to_string())
    }
}

impl From<spandrel::backend::Error> for Failure {
    fn from(error: spandrel::backend::Error) -> Self {
        use spandrel::backend::Error as E;
        let kind = match &error {
            E::Shape { .. } => "shape",
            E::Unsupported { .. } => "unsupported",
            E::OutOfMemory { .. } => "out_of_memory",
            E::Device { .. } => "device",
            E::Rank { .. } => "rank",
            _ => "backend",
        };
        let message = match &error {
            E::OutOfMemory { device, .. } if *device != "cpu" => format!("{error}; or run with --backend cpu"),
            _ => error.to_string(),
        };
        match error {
            E::Format(error) => error.into(),
            _ => Self::new(kind, message),
        }
    }
}

impl From<spandrel::solvers::Error> for Failure {
    fn from(error: spandrel::solvers::Error) -> Self {
        use spandrel::solvers::Error as E;
        let kind = match &error {
            E::NotSquare { .. } => "not_square",
            E::Underdetermined { .. } => "underdetermined",
            E::Size { .. } => "shape",
            E::Diagonal { .. } | E::ZeroPivot { .. } => "zero_pivot",
            E::NotFinite { .. } | E::Element { .. } => "not_finite",
            E::Unsupported { .. } => "unsupported",
            E::NotReproducible { .. } => "not_reproducible",
            E::Interrupted { .. } => "interrupted",
            E::NotAGrid { .. } => "not_a_grid",
            E::Fill { .. } => "fill",
            E::Factor { .. } => "factor",
            E::Option { .. } => "option",
            _ => "solver",
        };
        let message = error.to_string();
        match error {
            E::Backend(error) => error.into(),
            E::Format(error) => error.into(),
            E::SecondChoice { why, .. } => Self { message, ..Self::from(*why) },
            _ => Self::new(kind, message),
        }
    }
}
