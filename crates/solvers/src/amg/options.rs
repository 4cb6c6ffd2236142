//! The options of algebraic multigrid, and their defaults.

use crate::{Error, Result};

/// Options of [`crate::Amg`]. The defaults suit scalar problems and, with `unknowns`, systems.
///
/// ```
/// use spandrel_solvers::AmgOptions;
///
/// let options = AmgOptions { unknowns: 3, ..AmgOptions::default() };
/// options.check()?;
/// assert_eq!((options.strength, options.degree), (0.2, 2));
/// # Ok::<(), spandrel_solvers::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgOptions {
    /// A coupling is strong if it is at least this share of the largest couplings of its two nodes (theta of
    /// [`spandrel_formats::amg::Strength`]): 0 to 1. It is halved on each coarser grid. Default 0.2.
    pub strength: f64,
    /// Degree of the Chebyshev smoother, that is, products per smoothing: 1 to 4. Default 2. Small grids are always
    /// smoothed with degree 4 ([`AmgOptions::degree_of`]).
    pub degree: usize,
    /// Unknowns per point, numbered point by point: 1 to 6. Default 1.
    pub unknowns: usize,
    /// A grid of at most this many rows is the coarsest and is solved with its inverse. Default 300.
    pub coarsest: usize,
    /// The largest number of grids. Default 25.
    pub levels: usize,
    /// How a coarse grid finds its correction. Default [`AmgCycle::V`].
    pub cycle: AmgCycle,
}

/// How a coarse grid finds the correction of the next finer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums)] // a program that matches on all of them wants to hear of a new one
pub enum AmgCycle {
    /// By one cycle.
    #[default]
    V,
    /// By two iterations of conjugate gradients, preconditioned by the cycle from that grid on. An iteration takes
    /// longer, and the number of iterations depends less on the matrix and on the number of grids.
    ///
    /// The preconditioner is then not linear: CG becomes flexible, and GMRES and BiCGStab with the preconditioner on
    /// the left refuse it. Ranks refuse it too.
    ///
    /// The coarsest grid is solved once, as always. If rows fall so slowly that grid number l (0 is the finest) has
    /// more than 2^-l times the rows of the finest, that grid takes one cycle, so that no grid costs more than the
    /// finest.
    K,
}

impl AmgCycle {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V => "v",
            Self::K => "k",
        }
    }

    /// Returns true if the cycle is a linear operator.
    pub fn is_linear(self) -> bool {
        match self {
            Self::V => true,
            Self::K => false,
        }
    }
}

impl Default for AmgOptions {
    fn default() -> Self {
        Self { strength: 0.2, degree: 2, unknowns: 1, coarsest: 300, levels: 25, cycle: AmgCycle::V }
    }
}

/// A grid is small if the finest has at least this many times its rows.
const SMALL: usize = 32;

/// Coarsening has stalled if a grid has fewer rows than this per row of the next grid.
const LEAST_RATIO: f64 = 1.25;

impl AmgOptions {
    /// A coarsest grid with more rows than this gets no inverse, because the inverse is dense.
    pub const MOST_COARSEST: usize = 2000;

    /// Returns true if grid number `grid` (0 is the finest) with `n` rows must be the coarsest.
    pub fn is_coarsest(&self, grid: usize, n: usize) -> bool {
        grid + 1 >= self.levels || n <= self.coarsest
    }

    /// Returns true if a grid of `n` rows must be the coarsest, because the next would have `coarse` rows: none, or too
    /// many.
    pub fn has_stalled(n: usize, coarse: usize) -> bool {
        coarse == 0 || coarse as f64 * LEAST_RATIO > n as f64
    }

    /// The options of the next grid, which has one unknown per point for each near-null-space vector. `levels` stays
    /// the same.
    #[must_use]
    pub fn of_next(&self, vectors: usize) -> Self {
        Self { unknowns: vectors, strength: 0.5 * self.strength, ..*self }
    }

    /// The degree of the smoother on a grid of `n` rows, if the finest grid has `finest`: with at most a 32nd of these,
    /// it is 4. Such a grid takes little of a cycle's time, and how well it is solved decides how much the number of
    /// iterations grows with the number of grids: on `poisson3d:128`, 16 iterations instead of 19 with degree 2.
    pub fn degree_of(&self, n: usize, finest: usize) -> usize {
        if n <= finest / SMALL { super::polynomial::DEGREES } else { self.degree }
    }

    /// Returns true if grid number `grid` with `n` rows, of `finest` rows on the finest, finds its corrections by two
    /// iterations, provided that it is not the coarsest.
    pub(super) fn iterates(&self, grid: usize, n: usize, finest: usize) -> bool {
        match self.cycle {
            AmgCycle::V => false,
            AmgCycle::K => grid > 0 && n <= finest.checked_shr(grid as u32).unwrap_or(0),
        }
    }

    /// Checks the ranges, and that the cycle is one that ranks have.
    ///
    /// # Errors
    /// Those of [`AmgOptions::check`]; [`Error::Unsupported`].
    pub fn check_for_ranks(&self) -> Result<()> {
        self.check()?;
        match self.cycle {
            AmgCycle::V => Ok(()),
            AmgCycle::K => {
                let why = "the K-cycle of amg needs dot products on coarse grids, which ranks do not have; leave \
                           cycle=k out for the V-cycle";
                Err(Error::Unsupported { why: why.to_string() })
            }
        }
    }

    /// Checks the ranges, and that `n` rows are whole points.
    ///
    /// # Errors
    /// Those of [`AmgOptions::check`]; [`Error::Size`].
    pub fn check_rows(&self, n: usize) -> Result<()> {
        self.check()?;
        if !n.is_multiple_of(self.unknowns) {
            let expected = n.next_multiple_of(self.unknowns);
            return Err(Error::rows("amg", "the matrix", n, expected, "every point needs all its unknowns"));
        }
        Ok(())
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the first option that is out of its range.
    pub fn check(&self) -> Result<()> {
        let wrong = |name, value, range| Err(Error::Parameter { name, value, range });
        if !(0.0..=1.0).contains(&self.strength) {
            return wrong(
                "strength",
                self.strength,
                "the strength of amg is a share of the largest coupling, from 0 to 1",
            );
        }
        if !(1..=super::polynomial::DEGREES).contains(&self.degree) {
            return wrong("degree", self.degree as f64, "amg smooths with a polynomial of degree 1 to 4");
        }
        if !(1..=6).contains(&self.unknowns) {
            return wrong("unknowns", self.unknowns as f64, "amg takes 1 to 6 unknowns per point");
        }
        if !(1..=Self::MOST_COARSEST).contains(&self.coarsest) {
            return wrong("coarsest", self.coarsest as f64, "the coarsest grid of amg has 1 to 2000 rows");
        }
        if self.levels == 0 {
            return wrong("levels", 0.0, "amg has at least one grid");
        }
        Ok(())
    }
}
