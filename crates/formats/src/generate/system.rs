//! Systems of partial differential equations on a grid: several unknowns at each point, numbered together, coupled by
//! constant blocks.
//!
//! Layout: row b p + c is unknown c of point p = x + X (y + Y z). An entry couples it with an unknown of a neighbour;
//! neighbours outside the grid are dropped (Dirichlet).
//!
//! | generator | unknowns | neighbours | blocks |
//! |---|---|---|---|
//! | `elasticity2d`, `elasticity3d` | displacements, 2 or 3 | box of radius 1 | full |
//! | `system2d`, `system3d` | 2 to 5 densities | star of radius 1 | full at a point; beside it diagonal, or full with `coupling=full` |
//!
//! Elasticity: bilinear and trilinear elements on unit squares (plane strain) and cubes, Young's modulus 1. The
//! bilinear form of the elements around a point is a sum of products of integrals along the axes, evaluated exactly:
//! mass 1/6, 2/3, 1/6, stiffness -1, 2, -1, mixed 1/2, 0, -1/2. The matrix is symmetric positive definite, as a
//! principal part of the form on all of space.
//!
//! Systems: unknown c diffuses and moves with the wind, upwind as in [`Stencil::upwind`], at a cell Peclet number of
//! (1 + c) / b times `peclet`. With `coupling=point`, each pair of unknowns at a point exchanges at rate 1 (one on the
//! diagonal, minus one beside it); this is an M-matrix. With `coupling=full`, the diffusion of each unknown drives all
//! others at a quarter (cross diffusion, I + 1 1^T / 4). Without wind the matrix is symmetric positive definite; with
//! wind it is nonsymmetric with a positive definite symmetric part.
//! Cost: the matrix itself; row starts are a closed form, and rows are written in parallel.
//! References: Hughes, The Finite Element Method, 1987, chapters 2 and 3; Murray, Mathematical Biology II, 2003,
//! chapters 1 and 2.

use super::Stencil;
use super::fill::{Rows, by_rows};
use super::stencil::entries_before;
use crate::grid::holds;
use crate::{Csr, Error, MAX_INDEX, Real, Result};

/// The weight of a neighbour's other unknowns under cross diffusion.
const CROSS: f64 = 0.25;

/// What couples the unknowns besides the wind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coupling {
    /// Exchange at each point.
    Point,
    /// Cross diffusion between points.
    Full,
}

/// Constant blocks on a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    unknowns: usize,
    /// For each unknown, its couplings by ascending column: difference of points, unknown there, coefficient.
    rows: Vec<Vec<([i32; 3], usize, f64)>>,
}

impl System {
    /// Linear elasticity in 2 (plane strain) or 3 dimensions, where `nu` is Poisson's ratio.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `dims` is 2 or 3 and `nu` is at least 0 and below 1/2.
    pub fn elasticity(dims: usize, nu: f64) -> Result<Self> {
        if !(2..=3).contains(&dims) || !(0.0..0.5).contains(&nu) {
            let why = format!("elasticity in {dims} dimensions with nu = {nu}: 2 or 3, and 0 or more, below 0.5");
            return Err(Error::Invalid { format: "stencil", why });
        }
        let lambda = nu / ((1.0 + nu) * (1.0 - 2.0 * nu));
        let mu = 1.0 / (2.0 * (1.0 + nu));
        let mass = |d: i32| if d == 0 { 2.0 / 3.0 } else { 1.0 / 6.0 };
        let stiffness = |d: i32| if d == 0 { 2.0 } else { -1.0 };
        // The integral of d_i of the function at this point times d_j of the function at `o`.
        let form = |o: [i32; 3], i: usize, j: usize| {
            let others: f64 = (0..dims).filter(|&axis| axis != i && axis != j).map(|axis| mass(o[axis])).product();
            let along = if i == j { stiffness(o[i]) } else { f64::from(-o[i] * o[j]) / 4.0 };
            along * others
        };
        let block = |o: [i32; 3], i: usize, j: usize| {
            let laplacian: f64 = if i == j { (0..dims).map(|axis| form(o, axis, axis)).sum() } else { 0.0 };
            lambda * form(o, i, j) + mu * (laplacian + form(o, j, i))
        };
        let box_of = Stencil::cubic(dims)?;
        let row = |i| box_of.offsets().iter().flat_map(|&o| (0..dims).map(move |j| (o, j, block(o, i, j)))).collect();
        Ok(Self { unknowns: dims, rows: (0..dims).map(row).collect() })
    }

    /// Densities that diffuse, move with the wind and act on each other, in `dims` dimensions.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `dims` is 1, 2 or 3, `unknowns` is at least 1, and `peclet` is finite and not
    /// negative.
    pub fn densities(dims: usize, unknowns: usize, coupling: Coupling, peclet: f64) -> Result<Self> {
        if unknowns == 0 {
            return Err(Error::Invalid { format: "stencil", why: "a system of no unknowns: one or more".into() });
        }
        let still = Stencil::upwind(dims, 0.0)?;
        let row = |c: usize| -> Result<Vec<_>> {
            let moved = Stencil::upwind(dims, peclet * (c + 1) as f64 / unknowns as f64)?;
            let mut row = Vec::new();
            for ((&o, &moved), &still) in moved.offsets().iter().zip(moved.weights()).zip(still.weights()) {
                for other in 0..unknowns {
                    let weight = match (coupling, o == [0; 3], other == c) {
                        (Coupling::Point, true, true) => moved + (unknowns - 1) as f64,
                        (Coupling::Point, true, false) => -1.0,
                        (Coupling::Point, false, false) => continue,
                        (Coupling::Point, false, true) => moved,
                        (Coupling::Full, _, true) => moved + CROSS * still,
                        (Coupling::Full, _, false) => CROSS * still,
                    };
                    row.push((o, other, weight));
                }
            }
            Ok(row)
        };
        Ok(Self { unknowns, rows: (0..unknowns).map(row).collect::<Result<_>>()? })
    }

    /// Number of unknowns per point.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }

    /// Makes the matrix on an X x Y x Z grid; neighbours outside are dropped.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn on_grid<T: Real>(&self, size: [usize; 3]) -> Result<Csr<T>> {
        self.rows_on_grid(size, 0..self.count(size)?)
    }

    /// Makes some rows of the matrix.
    pub(super) fn rows_on_grid<T: Real>(&self, size: [usize; 3], wanted: std::ops::Range<usize>) -> Result<Csr<T>> {
        let rows = self.count(size)?;
        by_rows(wanted, rows, |row| self.row_start(size, row), |range, out| self.fill(size, range, out))
    }

    /// Rows on a grid.
    fn count(&self, size: [usize; 3]) -> Result<usize> {
        let extents = || size.into_iter().chain([self.unknowns]);
        let rows = extents().try_fold(1usize, |product, n| product.checked_mul(n)).filter(|&rows| rows <= MAX_INDEX);
        rows.ok_or_else(|| {
            let count = extents().fold(1u64, |product, n| product.saturating_mul(n as u64));
            Error::TooLarge { what: "rows", count, limit: MAX_INDEX as u64 }
        })
    }

    /// Number of entries in the rows before `row`.
    pub(super) fn row_start(&self, size: [usize; 3], row: usize) -> u64 {
        let (point, unknown) = (row / self.unknowns, row % self.unknowns);
        let before = |c: usize, point: usize| -> u64 {
            self.rows[c].iter().map(|&(o, ..)| entries_before(size, o, point)).sum()
        };
        // The rows of earlier unknowns of the same point count as well.
        (0..self.unknowns).map(|c| before(c, point + usize::from(c < unknown))).sum()
    }

    fn fill<T: Real>(&self, [nx, ny, nz]: [usize; 3], range: std::ops::Range<usize>, out: &mut Rows<'_, T>) {
        for row in range {
            let (point, unknown) = (row / self.unknowns, row % self.unknowns);
            let (x, y, z) = (point % nx, point / nx % ny, point / nx / ny);
            for &([dx, dy, dz], other, weight) in &self.rows[unknown] {
                if holds(x, dx, nx) && holds(y, dy, ny) && holds(z, dz, nz) {
                    let shift = dx as isize + nx as isize * (dy as isize + ny as isize * dz as isize);
                    out.push(point.wrapping_add_signed(shift) * self.unknowns + other, T::from_f64(weight));
                }
            }
            out.end_row();
        }
    }
}
