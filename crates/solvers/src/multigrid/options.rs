//! The options of geometric multigrid.

use spandrel_formats::Divisor;

use crate::amg::polynomial::{Step, step};

/// Options of geometric multigrid. By default the number of grids has no limit, and the matrix decides the smoother.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MgOptions {
    /// The largest number of grids; `None` for as many as there can be.
    pub grids: Option<usize>,
    /// The smoother.
    pub smoother: MgSmoother,
    /// The degree of the Chebyshev or l1-Jacobi smoother, 1 to 4: products per smoothing. Default
    /// [`MgOptions::DEGREE`].
    pub degree: usize,
}

impl Default for MgOptions {
    fn default() -> Self {
        Self { grids: None, smoother: MgSmoother::Auto, degree: Self::DEGREE }
    }
}

impl MgOptions {
    /// The degree of the Chebyshev and l1-Jacobi smoothers unless another is named.
    pub const DEGREE: usize = 2;

    /// The smoother of a [`crate::StencilMultigrid`]; `None` if these options do not name one.
    pub fn polynomial(&self) -> Option<PolynomialSmoother> {
        match self.smoother {
            MgSmoother::Auto | MgSmoother::GaussSeidel => None,
            MgSmoother::Chebyshev => Some(PolynomialSmoother::Chebyshev(self.degree)),
            MgSmoother::L1Jacobi => Some(PolynomialSmoother::L1Jacobi(self.degree)),
        }
    }
}

/// How the grids of geometric multigrid are smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // a program that matches on all of them wants to hear of a new one
pub enum MgSmoother {
    /// Chosen by the solver: Chebyshev if the matrix suits it, else Gauss-Seidel.
    #[default]
    Auto,
    /// A symmetric Gauss-Seidel step: [`crate::Multigrid`].
    GaussSeidel,
    /// A Chebyshev polynomial, for symmetric stencils of nearest neighbours: [`crate::StencilMultigrid`].
    Chebyshev,
    /// l1-Jacobi steps, for the same matrices: [`crate::StencilMultigrid`].
    L1Jacobi,
}

impl MgSmoother {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::GaussSeidel => "gauss-seidel",
            Self::Chebyshev => "chebyshev",
            Self::L1Jacobi => "l1-jacobi",
        }
    }
}

/// A smoother of products only, with its degree, 1 to 4: the number of products per smoothing.
///
/// Its matrix M is diagonal, and the error is multiplied by a polynomial in M^-1 A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // a program that matches on all of them wants to hear of a new one
pub enum PolynomialSmoother {
    /// A Chebyshev polynomial of the fourth kind. M is the diagonal of A, and the polynomial needs a bound on the
    /// eigenvalues of M^-1 A.
    Chebyshev(usize),
    /// Steps x <- x + M^-1 (b - A x), where M has the sum of magnitudes of each row of A. They need no bound: the
    /// eigenvalues of M^-1 A are at most 1.
    ///
    /// Reference: Baker, Falgout, Kolev, Yang 2011, Multigrid smoothers for ultraparallel computing.
    L1Jacobi(usize),
}

impl Default for PolynomialSmoother {
    /// The Chebyshev smoother of degree [`MgOptions::DEGREE`].
    fn default() -> Self {
        Self::Chebyshev(MgOptions::DEGREE)
    }
}

impl PolynomialSmoother {
    /// Products per smoothing.
    pub fn degree(self) -> usize {
        match self {
            Self::Chebyshev(degree) | Self::L1Jacobi(degree) => degree,
        }
    }

    /// The same kind of smoother with another degree.
    pub(super) fn with_degree(self, degree: usize) -> Self {
        match self {
            Self::Chebyshev(_) => Self::Chebyshev(degree),
            Self::L1Jacobi(_) => Self::L1Jacobi(degree),
        }
    }

    /// The entries of M.
    pub fn divisor(self) -> Divisor {
        match self {
            Self::Chebyshev(_) => Divisor::Diagonal,
            Self::L1Jacobi(_) => Divisor::RowSum,
        }
    }

    /// The steps of a smoothing, with a bound on the eigenvalues of D^-1 A for the diagonal D.
    pub(super) fn steps(self, bound: f64) -> impl Iterator<Item = Step> {
        (0..self.degree()).map(move |before| match self {
            Self::Chebyshev(degree) => step(degree, before, bound),
            Self::L1Jacobi(_) => Step { kept: 0.0, taken: 1.0, weight: 1.0 },
        })
    }
}
