//! Grids of the multigrid cycle, finest first: operators, and the interpolation from each grid to the one before it.
//!
//! [`Hierarchy::galerkin`], for any matrix that is a stencil on a grid: the grid is recognised; an axis of n >= [`LEAST`] points is halved to
//! its n / 2 points 1, 3, 5, ... (any n, odd or even), and interpolated linearly, values outside the grid counting as zero; the coarse
//! operator is P^T A P. Axes along which the matrix couples weakly are not halved (semicoarsening): of the second moments sum -a_ij d^2 of the
//! axes, d the difference of coordinates, those under a quarter of the largest. So a point smoother is enough where the
//! anisotropy follows the axes. Two to five unknowns a point, numbered point by point, are each interpolated as one is (the unknown approach),
//! whether or not their blocks are full.
//!
//! [`Hierarchy::injected`], for operators that are given: each grid has every second point of the one before along every axis, 0, 2, 4, ...,
//! and a correction is added there alone. With the 27-point operator on every grid this is HPCG's.
//!
//! Restriction is the transpose of interpolation in both, so that the cycle is symmetric where the operators are.
//! Cost: two sparse products a grid, [`spandrel_formats::product`]; host memory of about the operators and their products.
//! References: Briggs, Henson, McCormick, A Multigrid Tutorial, 2000; Trottenberg, Oosterlee, Schuller, Multigrid, 2001, section 5.1
//! (semicoarsening); Dongarra, Heroux, Luszczek, HPCG benchmark, 2015.

use std::borrow::Cow;

use spandrel_formats::{Csr, Format, Grid, NotAGrid, Offset, Ordinal, Real, product};

use crate::{Error, Result};

/// An axis of fewer points is not halved any more.
pub const LEAST: usize = 4;
/// An axis with less than this of the largest moment is not halved.
const WEAK: f64 = 0.25;
/// Rows that the moments are taken from, about.
const SAMPLES: usize = 1 << 16;

/// Grids of a cycle. See the module's head.
#[derive(Clone, Debug)]
pub struct Hierarchy<'a, T: Real> {
    stages: Vec<Stage<'a, T>>,
    unknowns: usize,
}

/// A grid with its operator.
#[derive(Clone, Debug)]
pub(super) struct Stage<'a, T: Real> {
    pub(super) a: Cow<'a, Csr<T>>,
    pub(super) size: [usize; 3],
    /// From the next grid to this one; none on the coarsest.
    pub(super) interpolation: Option<Csr<T>>,
}

impl<'a, T: Real> Hierarchy<'a, T> {
    /// Recognises the grid of a matrix and coarsens it, to `levels` grids at most (`None`: until no axis can be halved, or the next
    /// operator would have a diagonal that cannot be divided by).
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::NotAGrid`] with the reason; operators of more entries than fit.
    pub fn galerkin(a: &'a Csr<T>, levels: Option<usize>) -> Result<Self> {
        let (size, unknowns) = recognised(a)?;
        let mut stages = vec![Stage { a: Cow::Borrowed(a), size, interpolation: None }];
        while stages.len() < levels.unwrap_or(usize::MAX) {
            let Some(fine) = stages.last_mut() else { break };
            let halved = halved(&fine.a, fine.size, unknowns);
            if halved == [false; 3] {
                break;
            }
            let (interpolation, size) = linear::<T>(fine.size, halved, unknowns)?;
            let coarse = product(&interpolation.try_transpose()?, &product(&fine.a, &interpolation)?)?;
            if !(0..coarse.nrows()).all(|i| is_divisor(coarse.get(i, i))) {
                break;
            }
            fine.interpolation = Some(interpolation);
            stages.push(Stage { a: Cow::Owned(coarse), size, interpolation: None });
        }
        Ok(Self { stages, unknowns })
    }

    /// Takes operators on grids of which each has half the extents of the one before, `size` (X, Y, Z) that of the first. Points are
    /// numbered x + X (y + Y z).
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Size`] for an operator that is not of its grid, and for extents that cannot be halved.
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
                return Err(Error::Size { solver: "mg", what: "an operator", found: nrows, expected });
            }
            let mut interpolation = None;
            let fine = size;
            if level < last {
                if let Some(&odd) = size.iter().find(|&extent| extent % 2 == 1) {
                    return Err(Error::Size { solver: "mg", what: "an axis", found: odd, expected: odd + 1 });
                }
                interpolation = Some(injection(size)?);
                size = size.map(|extent| extent / 2);
            }
            stages.push(Stage { a, size: fine, interpolation });
        }
        if stages.is_empty() {
            return Err(Error::Size { solver: "mg", what: "the list of operators", found: 0, expected: 1 });
        }
        Ok(Self { stages, unknowns: 1 })
    }

    /// Number of grids.
    pub fn levels(&self) -> usize {
        self.stages.len()
    }
    /// The extents X, Y, Z of each grid, finest first.
    pub fn sizes(&self) -> Vec<[usize; 3]> {
        self.stages.iter().map(|stage| stage.size).collect()
    }
    /// Unknowns at each point, numbered together.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }
    /// The interpolation to a grid from the next.
    pub fn interpolation(&self, level: usize) -> Option<&Csr<T>> {
        self.stages.get(level)?.interpolation.as_ref()
    }
    /// The operator of a grid, 0 the finest.
    pub fn operator(&self, level: usize) -> Option<&Csr<T>> {
        self.stages.get(level).map(|stage| &*stage.a)
    }
    pub(super) fn stages(&self) -> &[Stage<'a, T>] {
        &self.stages
    }
}

/// Whether a diagonal entry has a finite reciprocal.
fn is_divisor<T: Real>(diagonal: Option<T>) -> bool {
    diagonal.is_some_and(|d| d.is_finite() && d != T::zero() && d.recip().is_finite())
}

/// The extents of the grid of points, and how many unknowns each has.
fn recognised<T: Real>(a: &Csr<T>) -> Result<([usize; 3], usize)> {
    match Grid::detect(a) {
        Ok(grid) => Ok((grid.points(), grid.unknowns)),
        Err(NotAGrid::NotSquare { nrows, ncols }) => Err(Error::NotSquare { solver: "mg", nrows, ncols }),
        Err(why) => Err(Error::NotAGrid { why }),
    }
}

/// Which axes are halved.
fn halved<T: Real>(a: &Csr<T>, size: [usize; 3], unknowns: usize) -> [bool; 3] {
    let moments = moments(a, size, unknowns);
    let long = size.map(|extent| extent >= LEAST);
    let largest = (0..3).filter(|&axis| long[axis]).map(|axis| moments[axis]).fold(0.0, f64::max);
    // Without a coupling that counts, all.
    std::array::from_fn(|axis| long[axis] && (largest.is_nan() || moments[axis] >= WEAK * largest || largest <= 0.0))
}

/// sum -a_ij d^2 over rows of the matrix, d the difference of coordinates along each axis: what the operator multiplies the second
/// derivatives of a smooth function by. Of several unknowns, entries between an unknown and itself count.
fn moments<T: Real>(a: &Csr<T>, size: [usize; 3], unknowns: usize) -> [f64; 3] {
    let at = |point: usize| [point % size[0], point / size[0] % size[1], point / size[0] / size[1]];
    let mut moments = [0.0; 3];
    // Odd, so that rows of every place in a line of 2^k points come.
    for row in (0..a.nrows()).step_by((a.nrows() / SAMPLES) | 1) {
        let (cols, values) = a.row(row);
        let here = at(row / unknowns);
        for (&col, value) in cols.iter().zip(values).filter(|entry| *entry.0 as usize % unknowns == row % unknowns) {
            let there = at(col as usize / unknowns);
            for (moment, (there, here)) in moments.iter_mut().zip(there.into_iter().zip(here)) {
                *moment -= value.as_f64() * (there as f64 - here as f64).powi(2);
            }
        }
    }
    moments
}

/// The matrix with the rows that `row` lists for each point, columns ascending, the same for each unknown.
fn by_rows<T: Real>(
    size: [usize; 3],
    coarse: [usize; 3],
    unknowns: usize,
    mut row: impl FnMut([usize; 3], &mut Vec<(Ordinal, T)>),
) -> Result<Csr<T>> {
    let n = size.iter().product::<usize>() * unknowns;
    let mut row_ptr: Vec<Offset> = Vec::with_capacity(n + 1);
    let (mut col_idx, mut values, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    row_ptr.push(0);
    for z in 0..size[2] {
        for y in 0..size[1] {
            for x in 0..size[0] {
                entries.clear();
                row([x, y, z], &mut entries);
                for unknown in 0..unknowns {
                    col_idx.extend(entries.iter().map(|entry| entry.0 * unknowns as Ordinal + unknown as Ordinal));
                    values.extend(entries.iter().map(|entry| entry.1));
                    row_ptr.push(spandrel_formats::index::checked(col_idx.len(), "entries of an interpolation")?);
                }
            }
        }
    }
    Ok(Csr::new(n, coarse.iter().product::<usize>() * unknowns, row_ptr, col_idx, values)?)
}

/// Coarse points of an axis that a point is interpolated from, with weights.
fn parents(point: usize, coarse: usize, halved: bool) -> impl Iterator<Item = (usize, f64)> {
    let pair = match (halved, point % 2) {
        (false, _) => [Some((point, 1.0)), None],
        (true, 1) => [Some((point / 2, 1.0)), None],
        (true, _) => [(point / 2).checked_sub(1).map(|before| (before, 0.5)), Some((point / 2, 0.5))],
    };
    pair.into_iter().flatten().filter(move |parent| parent.0 < coarse)
}

/// Linear interpolation along the halved axes, from the points 1, 3, 5, ... of each; and the extents of those.
fn linear<T: Real>(size: [usize; 3], halved: [bool; 3], unknowns: usize) -> Result<(Csr<T>, [usize; 3])> {
    let coarse: [usize; 3] = std::array::from_fn(|axis| if halved[axis] { size[axis] / 2 } else { size[axis] });
    let matrix = by_rows(size, coarse, unknowns, |point, row| {
        for (z, wz) in parents(point[2], coarse[2], halved[2]) {
            for (y, wy) in parents(point[1], coarse[1], halved[1]) {
                for (x, wx) in parents(point[0], coarse[0], halved[0]) {
                    row.push(((x + coarse[0] * (y + coarse[1] * z)) as Ordinal, T::from_f64(wx * wy * wz)));
                }
            }
        }
    })?;
    Ok((matrix, coarse))
}

/// Each coarse point's value to the point with twice its coordinates, nothing elsewhere.
fn injection<T: Real>(size: [usize; 3]) -> Result<Csr<T>> {
    let coarse = size.map(|extent| extent / 2);
    by_rows(size, coarse, 1, |[x, y, z], row| {
        if (x | y | z).is_multiple_of(2) {
            row.push(((x / 2 + coarse[0] * (y / 2 + coarse[1] * (z / 2))) as Ordinal, T::one()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn a_line_is_interpolated_linearly() {
        let (p, coarse) = linear::<f64>([7, 1, 1], [true, false, false], 1).unwrap();
        assert_eq!(coarse, [3, 1, 1]);
        let dense: Vec<Vec<f64>> = (0..7).map(|i| (0..3).map(|j| p.get(i, j).unwrap_or(0.0)).collect()).collect();
        assert_eq!(dense[0], [0.5, 0.0, 0.0]);
        assert_eq!(dense[1], [1.0, 0.0, 0.0]);
        assert_eq!(dense[2], [0.5, 0.5, 0.0]);
        assert_eq!(dense[5], [0.0, 0.0, 1.0]);
        assert_eq!(dense[6], [0.0, 0.0, 0.5]);
        let (p, coarse) = linear::<f64>([4, 1, 1], [true, false, false], 1).unwrap();
        assert_eq!((coarse[0], p.row(3).1, p.row(2).1), (2, &[1.0][..], &[0.5, 0.5][..]));
    }

    #[test]
    fn a_line_keeps_its_operator() {
        // The Laplacian of twice the spacing, times h, is half the stencil.
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
        let p = grids.interpolation(0).unwrap();
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
