//! The options of geometric multigrid.

/// Options of geometric multigrid. By default the number of grids has no limit, and the device decides the smoother.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MgOptions {
    /// The largest number of grids; `None` for as many as there can be.
    pub grids: Option<usize>,
    /// The smoother.
    pub smoother: MgSmoother,
    /// The degree of the Chebyshev smoother, 1 to 4: products per smoothing. Default [`MgOptions::DEGREE`].
    pub degree: usize,
}

impl Default for MgOptions {
    fn default() -> Self {
        Self { grids: None, smoother: MgSmoother::Auto, degree: Self::DEGREE }
    }
}

impl MgOptions {
    /// The degree of the Chebyshev smoother unless another is named.
    pub const DEGREE: usize = 2;
}

/// How the grids of geometric multigrid are smoothed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // a program that matches on all of them wants to hear of a new one
pub enum MgSmoother {
    /// Chosen by the solver: the smoother that is expected to be faster on the device, if the matrix suits it.
    #[default]
    Auto,
    /// A symmetric Gauss-Seidel step: [`crate::Multigrid`].
    GaussSeidel,
    /// A Chebyshev polynomial, for symmetric stencils of nearest neighbours: [`crate::StencilMultigrid`].
    Chebyshev,
}

impl MgSmoother {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::GaussSeidel => "gauss-seidel",
            Self::Chebyshev => "chebyshev",
        }
    }
}
