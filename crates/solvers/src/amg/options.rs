//! The options of algebraic multigrid, and their defaults.

use crate::{Error, Result};

/// Options of [`crate::Amg`]. The defaults suit scalar problems and, with `unknowns`, systems.
///
/// ```
/// use spandrel_solvers::AmgOptions;
///
/// let options = AmgOptions { unknowns: 3, ..AmgOptions::default() };
/// options.check()?;
/// assert_eq!((options.strength, options.degree), (0.25, 2));
/// # Ok::<(), spandrel_solvers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgOptions {
    /// The share of the largest couplings of both nodes from which a coupling is strong (theta of
    /// [`spandrel_formats::amg::Strength`]): 0 to 1. It is halved on each coarser grid. Default 0.25.
    pub strength: f64,
    /// Degree of the Chebyshev smoother, that is, products per smoothing: 1 to 4. Default 2.
    pub degree: usize,
    /// Unknowns per point, numbered point by point: 1 to 6. Default 1.
    pub unknowns: usize,
    /// A grid of at most this many rows is the coarsest and is solved with its inverse. Default 300.
    pub coarsest: usize,
    /// The largest number of grids. Default 25.
    pub levels: usize,
}

impl Default for AmgOptions {
    fn default() -> Self {
        Self { strength: 0.25, degree: 2, unknowns: 1, coarsest: 300, levels: 25 }
    }
}

/// The most rows that a coarsest grid may have for an inverse, which is dense.
pub(super) const MOST_COARSEST: usize = 2000;

impl AmgOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the first option that is out of its range.
    pub fn check(&self) -> Result<()> {
        let wrong = |name, value, range| Err(Error::Parameter { name, value, range });
        if !(0.0..=1.0).contains(&self.strength) {
            return wrong("strength", self.strength, "amg takes a share of the largest coupling, from 0 to 1");
        }
        if !(1..=super::polynomial::DEGREES).contains(&self.degree) {
            return wrong("degree", self.degree as f64, "amg smooths with a polynomial of degree 1 to 4");
        }
        if !(1..=6).contains(&self.unknowns) {
            return wrong("unknowns", self.unknowns as f64, "amg takes 1 to 6 unknowns per point");
        }
        if !(1..=MOST_COARSEST).contains(&self.coarsest) {
            return wrong("coarsest", self.coarsest as f64, "the coarsest grid of amg has 1 to 2000 rows");
        }
        if self.levels == 0 {
            return wrong("levels", 0.0, "amg has at least one grid");
        }
        Ok(())
    }
}
