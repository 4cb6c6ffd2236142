//! The grids of the multigrid cycle, finest first: operators, and the interpolation between neighbouring grids.
//!
//! [`Hierarchy::galerkin`] takes any matrix that is a stencil on a grid, and recognises the grid. An axis of n >=
//! [`LEAST`] points is halved to its n / 2 points 1, 3, 5, ... (any n, odd or even). Interpolation is linear, and
//! values outside the grid count as zero. The coarse operator is P^T A P. Axes along which the matrix couples weakly
//! are not halved (semicoarsening). The measure is the second moment sum -a_ij d^2 of an axis, where d is the
//! difference of coordinates: an axis is weak if it has less than a quarter of the largest moment. So a point smoother
//! is enough if the anisotropy follows the axes. With two to five unknowns per point, numbered point by point, each
//! unknown is interpolated as a single one would be (the unknown approach), whether or not the blocks are full. Coarse
//! operators of convection get just enough diffusion to have no positive couplings ([`super::upwind`]).
//!
//! [`Hierarchy::injected`] takes given operators. Each grid has every second point of the previous one along every
//! axis, 0, 2, 4, ..., and a correction is added only there. With the 27-point operator on every grid this is the
//! hierarchy of HPCG.
//!
//! In both, restriction is the transpose of interpolation, so the cycle is symmetric if the operators are.
//!
//! Cost: that of [`spandrel_formats::coarse`] for each grid, on the host and in parallel, and the memory of the coarse
//! operators.
//!
//! References: Briggs, Henson, McCormick, A Multigrid Tutorial, 2000; Trottenberg, Oosterlee, Schuller, Multigrid,
//! 2001, section 5.1 (semicoarsening); Dongarra, Heroux, Luszczek, HPCG benchmark, 2015.

use std::borrow::Cow;

use spandrel_formats::{Coarsening, Csr, Grid, Injection, NotAGrid, Real, Stencil};

use super::upwind;
use crate::phase::{Phase, SetupWatcher, unobserved};
use crate::{Error, Result};

/// An axis of fewer points is not halved.
pub const LEAST: usize = 4;
/// An axis whose moment is below this share of the largest is not halved.
pub(super) const WEAK: f64 = 0.25;
/// About this many rows are sampled for the moments.
pub(super) const SAMPLES: usize = 1 << 16;

/// The grids of a cycle. See the module's head.
#[derive(Clone, Debug)]
pub struct Hierarchy<'a, T: Real> {
    stages: Vec<Stage<'a, T>>,
    unknowns: usize,
    /// `None` for given operators.
    recognised: Option<Recognised>,
}

/// The part of a hierarchy that does not depend on the values of its matrix.
#[derive(Clone, Debug)]
pub(super) struct Recognised {
    stencil: Stencil,
    /// The maximum number of grids.
    levels: Option<usize>,
}

/// A grid with its operator.
#[derive(Clone, Debug)]
pub(super) struct Stage<'a, T: Real> {
    pub(super) a: Cow<'a, Csr<T>>,
    size: [usize; 3],
    /// The way to the next grid; `None` on the coarsest.
    next: Option<Next>,
}

/// How the next grid is made.
#[derive(Clone, Debug)]
enum Next {
    /// From a matrix that is this stencil.
    Linear(Coarsening, Stencil),
    Injected(Injection),
}

/// A grid's operator and its coarsening to the next grid.
pub(super) struct Way<'h, T> {
    a: &'h Csr<T>,
    next: &'h Next,
}

impl<T: Real> Way<'_, T> {
    /// P^T L with its rows divided by `divisors`.
    pub(super) fn restricted_lower(&self, divisors: &[T]) -> spandrel_formats::Result<Csr<T>> {
        match self.next {
            Next::Linear(to, stencil) => to.restricted_lower(self.a, stencil, divisors),
            Next::Injected(to) => to.restricted_lower(self.a, divisors),
        }
    }
    /// U P with its rows divided by `divisors`.
    pub(super) fn prolonged_upper(&self, divisors: &[T]) -> spandrel_formats::Result<Csr<T>> {
        match self.next {
            Next::Linear(to, stencil) => to.prolonged_upper(self.a, stencil, divisors),
            Next::Injected(to) => to.prolonged_upper(self.a, divisors),
        }
    }
}

impl<'a, T: Real> Hierarchy<'a, T> {
    /// Detects the grid of a matrix and coarsens it, to at most `levels` grids.
    ///
    /// With `None` it stops if no axis can be halved, or if the next operator would have a diagonal entry that cannot
    /// be inverted.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::NotAGrid`] with the reason; operators with too many entries.
    pub fn galerkin(a: &'a Csr<T>, levels: Option<usize>) -> Result<Self> {
        Self::galerkin_watched(a, levels, &mut unobserved)
    }

    /// As [`Hierarchy::galerkin`], and tells `watcher` of each coarse operator before it is formed.
    ///
    /// # Errors
    /// As [`Hierarchy::galerkin`], and [`Error::Interrupted`].
    pub fn galerkin_watched(a: &'a Csr<T>, levels: Option<usize>, watcher: SetupWatcher<'_>) -> Result<Self> {
        Self::coarsened(a, Recognised { stencil: recognised(a)?, levels }, watcher)
    }

    /// As [`Hierarchy::galerkin`], for a matrix whose grid is known already; its values do not matter.
    ///
    /// # Errors
    /// [`Error::Format`] for a matrix of another size, or with an entry outside the stencil.
    pub(super) fn coarsened(a: &'a Csr<T>, known: Recognised, watcher: SetupWatcher<'_>) -> Result<Self> {
        let Recognised { mut stencil, levels } = known.clone();
        let (size, unknowns) = (stencil.size(), stencil.unknowns());
        let mut stages = vec![Stage { a: Cow::Borrowed(a), size, next: None }];
        let is_upwind = upwind::is_upwind(a);
        while stages.len() < levels.unwrap_or(usize::MAX) {
            let grid = stages.len();
            let Some(fine) = stages.last_mut() else { break };
            let halved = halved(&fine.a, &stencil)?;
            if halved == [false; 3] {
                break;
            }
            Phase::Coarsening { grid }.begin(watcher)?;
            let to = Coarsening::new(fine.size, halved, unknowns);
            let (mut coarse, next) = to.galerkin(&fine.a, &stencil)?;
            if is_upwind {
                upwind::diffuse(&mut coarse, to.coarse(), unknowns);
            }
            if !coarse.diagonal_holds(|d| d.is_finite() && d != T::zero() && d.recip().is_finite()) {
                break;
            }
            fine.next = Some(Next::Linear(to, std::mem::replace(&mut stencil, next)));
            stages.push(Stage { a: Cow::Owned(coarse), size: to.coarse(), next: None });
        }
        Ok(Self { stages, unknowns, recognised: Some(known) })
    }

    /// Takes operators on grids that halve in every extent; `size` (X, Y, Z) is that of the first. Points are numbered
    /// x + X (y + Y z).
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Size`] for an operator that does not fit its grid, and for extents that cannot be
    /// halved.
    pub fn injected(operators: Vec<Cow<'a, Csr<T>>>, size: [usize; 3]) -> Result<Self> {
        let (mut stages, mut size) = (Vec::with_capacity(operators.len()), size);
        let last = operators.len().saturating_sub(1);
        for (level, a) in operators.into_iter().enumerate() {
            let (nrows, ncols) = (a.nrows(), a.ncols());
            if nrows != ncols {
                return Err(Error::NotSquare { solver: "mg", nrows, ncols });
            }
            let points = size.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
            if points != Some(nrows) {
                let expected = points.unwrap_or(usize::MAX);
                let remedy = "an operator needs one row for each point of its grid";
                return Err(Error::rows("mg", "an operator", nrows, expected, remedy));
            }
            let mut next = None;
            let fine = size;
            if level < last {
                if let Some(&odd) = size.iter().find(|&extent| extent % 2 == 1) {
                    let (what, unit, expected) = ("an axis", "points", odd + 1);
                    let remedy = "each axis that is halved needs an even number of points";
                    return Err(Error::Size { solver: "mg", what, found: odd, expected, unit, remedy });
                }
                next = Some(Next::Injected(Injection::new(size)?));
                size = size.map(|extent| extent / 2);
            }
            stages.push(Stage { a, size: fine, next });
        }
        if stages.is_empty() {
            return Err(Error::elements("mg", "the list of operators", 0, 1, "give at least the matrix itself"));
        }
        Ok(Self { stages, unknowns: 1, recognised: None })
    }

    /// The number of grids.
    pub fn levels(&self) -> usize {
        self.stages.len()
    }
    /// The extents X, Y, Z of each grid, finest first.
    pub fn sizes(&self) -> Vec<[usize; 3]> {
        self.stages.iter().map(|stage| stage.size).collect()
    }
    /// The number of unknowns at each point, numbered together.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }
    /// The interpolation to a grid from the next one; `None` for the coarsest. It is computed again at each call,
    /// because the cycle needs only its products.
    ///
    /// # Errors
    /// Too many entries.
    pub fn interpolation(&self, level: usize) -> Result<Option<Csr<T>>> {
        Ok(match self.stages.get(level).and_then(|stage| stage.next.as_ref()) {
            None => None,
            Some(Next::Linear(to, _)) => Some(to.interpolation()?),
            Some(Next::Injected(to)) => Some(to.interpolation()?),
        })
    }
    /// The operator of a grid, 0 the finest.
    pub fn operator(&self, level: usize) -> Option<&Csr<T>> {
        self.stages.get(level).map(|stage| &*stage.a)
    }
    pub(super) fn recognised(&self) -> Option<&Recognised> {
        self.recognised.as_ref()
    }
    pub(super) fn stages(&self) -> &[Stage<'a, T>] {
        &self.stages
    }
    /// The way from a grid to the next.
    pub(super) fn way(&self, level: usize) -> Option<Way<'_, T>> {
        let Stage { a, next, .. } = self.stages.get(level)?;
        Some(Way { a, next: next.as_ref()? })
    }
}

/// The stencil and the grid of a matrix.
fn recognised<T: Real>(a: &Csr<T>) -> Result<Stencil> {
    match Grid::detect(a) {
        Ok(grid) => Ok(Stencil::of(&grid)),
        Err(NotAGrid::NotSquare { nrows, ncols }) => Err(Error::NotSquare { solver: "mg", nrows, ncols }),
        Err(why) => Err(Error::NotAGrid { why }),
    }
}

/// The axes that are halved.
fn halved<T: Real>(a: &Csr<T>, stencil: &Stencil) -> Result<[bool; 3]> {
    let second = stencil.moments(a, SAMPLES)?.second;
    Ok(strong(stencil.size(), [second[0][0], second[1][1], second[2][2]]))
}

/// The axes to halve, given extents and moments.
pub(super) fn strong(size: [usize; 3], moments: [f64; 3]) -> [bool; 3] {
    let long = size.map(|extent| extent >= LEAST);
    let largest = (0..3).filter(|&axis| long[axis]).map(|axis| moments[axis]).fold(0.0, f64::max);
    // All of them, if no coupling counts.
    std::array::from_fn(|axis| long[axis] && (largest.is_nan() || moments[axis] >= WEAK * largest || largest <= 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn a_line_keeps_its_operator() {
        // The Laplacian with twice the spacing, times h, is half the stencil.
        let a = generate::csr::<f64>("poisson1d:15").unwrap();
        let grids = Hierarchy::galerkin(&a, None).unwrap();
        assert_eq!(grids.sizes(), [[15, 1, 1], [7, 1, 1], [3, 1, 1]]);
        let coarse = grids.operator(1).unwrap();
        assert_eq!(coarse.row(3), (&[2u32, 3, 4][..], &[-0.5, 1.0, -0.5][..]));
        assert_eq!(Hierarchy::galerkin(&a, Some(1)).unwrap().levels(), 1);
    }

    #[test]
    fn weak_axes_are_left_alone() {
        let sizes = |spec| Hierarchy::galerkin(&generate::csr::<f64>(spec).unwrap(), None).unwrap().sizes();
        assert_eq!(sizes("d3n7:8x8x8"), [[8, 8, 8], [4, 4, 4], [2, 2, 2]]);
        assert_eq!(sizes("d3n27:9x6x5"), [[9, 6, 5], [4, 3, 2], [2, 3, 2]]);
        let anisotropic = sizes("anisotropic2d:32x32,eps=0.01");
        assert_eq!(anisotropic[1..4], [[16, 32, 1], [8, 32, 1], [4, 32, 1]]);
    }

    #[test]
    fn given_operators_must_be_of_their_grids() {
        let on = |spec: &str| Cow::Owned(generate::csr::<f64>(spec).unwrap());
        let grids = Hierarchy::injected(vec![on("d3n27:4x4x4"), on("d3n27:2x2x2")], [4, 4, 4]).unwrap();
        assert_eq!(grids.sizes(), [[4, 4, 4], [2, 2, 2]]);
        let p = grids.interpolation(0).unwrap().unwrap();
        assert_eq!((p.nnz(), p.get(42, 7)), (8, Some(1.0)));
        assert!(matches!(Hierarchy::injected(vec![on("d3n27:4x4x4")], [4, 4, 5]), Err(Error::Size { .. })));
        let odd = vec![on("d3n27:3x4x4"), on("d3n27:2x2x2")];
        assert!(matches!(Hierarchy::injected(odd, [3, 4, 4]), Err(Error::Size { what: "an axis", .. })));
        assert!(Hierarchy::<f64>::injected(Vec::new(), [1, 1, 1]).is_err());
    }

    #[test]
    fn what_is_no_grid_is_refused() {
        let refused = |spec| Hierarchy::galerkin(&generate::csr::<f64>(spec).unwrap(), None).unwrap_err();
        assert!(matches!(refused("random:n=200,nnz_per_row=5"), Error::NotAGrid { .. }));
        let wide = Csr::<f64>::new(1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap();
        assert!(matches!(Hierarchy::galerkin(&wide, None), Err(Error::NotSquare { .. })));
    }
}
