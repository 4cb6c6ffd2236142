//! Constant stencils on a grid in natural order: row r = x + X (y + Y z).
//!
//! | generator | points | diagonal | off the diagonal |
//! |---|---|---|---|
//! | `d3n7`, `poisson3d` | star, radius 1 | 6 | -1 |
//! | `d3n13` | star, radius 2 | 12 | -1 |
//! | `d3n27` | box, radius 1 | 26 | -1 |
//! | `d3n33` | box, radius 1, and the six axis neighbours at distance 2 | 32 | -1 |
//! | `poisson1d`, `poisson2d` | star, radius 1 | 2, 4 | -1 |
//! | `poisson2d9` | box, radius 1 | 8 | -1 |
//!
//! Neighbours outside the grid are dropped and the diagonal stays (Dirichlet). So all of these are symmetric
//! M-matrices: weakly dominant inside, strictly at the boundary, irreducible, and therefore positive definite (Varga,
//! Matrix Iterative Analysis, 1962, section 1.4). They are the grid's operator times h^2.
//! Cost: the matrix itself; row starts are a closed form, and rows are written in parallel.
//! Reference of the d3n family: Chen, Yang, Liu, Ma, structured SpTRSV, 2023.

use super::fill::{Rows, by_rows};
use crate::grid::holds;
use crate::{Csr, Error, Real, Result};

/// A grid's stencil: neighbour offsets and their coefficients.
#[derive(Clone, Debug, PartialEq)]
pub struct Stencil {
    /// Offsets (dx, dy, dz), ascending by (dz, dy, dx), which is the order of a row's columns.
    offsets: Vec<[i32; 3]>,
    /// The coefficient of each.
    weights: Vec<f64>,
}

/// The largest radius of a star.
pub const MAX_RADIUS: i32 = 1 << 10;

fn invalid(why: String) -> Error {
    Error::Invalid { format: "stencil", why }
}

fn check_dims(dims: usize) -> Result<()> {
    if (1..=3).contains(&dims) { Ok(()) } else { Err(invalid(format!("{dims} dimensions: 1, 2 or 3 are possible"))) }
}

/// Number of points before `point` of a grid whose neighbour at the given offset lies inside; a closed form.
pub(super) fn entries_before([nx, ny, nz]: [usize; 3], [dx, dy, dz]: [i32; 3], point: usize) -> u64 {
    if nx * ny * nz == 0 {
        return 0;
    }
    // Number of coordinates below `end` of 0..n whose neighbour at distance d lies inside.
    let inside = |end: usize, n: usize, d: i32| {
        let (low, high) = (d.min(0).unsigned_abs() as usize, n.saturating_sub(d.max(0) as usize));
        end.min(high).saturating_sub(low) as u64
    };
    let (x, line) = (point % nx, point / nx);
    let (y, z) = (line % ny, line / ny);
    let (in_x, in_y) = (inside(nx, nx, dx), inside(ny, ny, dy));
    let here = |at: usize, n: usize, d: i32| inside(at + 1, n, d) - inside(at, n, d);
    inside(z, nz, dz) * in_y * in_x + here(z, nz, dz) * (inside(y, ny, dy) * in_x + here(y, ny, dy) * inside(x, nx, dx))
}

/// Points of a grid.
fn points(size: [usize; 3]) -> Result<usize> {
    let rows = size.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    rows.filter(|&rows| rows <= crate::MAX_INDEX).ok_or_else(|| {
        let count = size.iter().fold(1u64, |product, &n| product.saturating_mul(n as u64));
        Error::TooLarge { what: "rows", count, limit: crate::MAX_INDEX as u64 }
    })
}

impl Stencil {
    /// Makes a stencil from points in any order. If a point occurs twice, the coefficients are summed.
    pub fn new(points: impl IntoIterator<Item = ([i32; 3], f64)>) -> Self {
        let mut points: Vec<_> = points.into_iter().collect();
        points.sort_by_key(|&([dx, dy, dz], _)| (dz, dy, dx));
        let mut stencil = Self { offsets: Vec::new(), weights: Vec::new() };
        for (offset, weight) in points {
            if stencil.offsets.last() == Some(&offset) {
                let last = stencil.weights.len() - 1;
                stencil.weights[last] += weight;
            } else {
                stencil.offsets.push(offset);
                stencil.weights.push(weight);
            }
        }
        stencil
    }

    /// -1 at each of `neighbours`, and their number on the diagonal.
    fn laplacian(neighbours: impl IntoIterator<Item = [i32; 3]>) -> Self {
        let mut points: Vec<_> = neighbours.into_iter().map(|offset| (offset, -1.0)).collect();
        points.push(([0; 3], points.len() as f64));
        Self::new(points)
    }

    /// The axis neighbours up to `radius` in `dims` dimensions.
    fn axes(dims: usize, radius: i32) -> impl Iterator<Item = [i32; 3]> {
        (0..dims).flat_map(move |axis| {
            (1..=radius).flat_map(move |reach| {
                [-reach, reach].map(|step| {
                    let mut offset = [0; 3];
                    offset[axis] = step;
                    offset
                })
            })
        })
    }

    /// The neighbours in the box of radius 1 in `dims` dimensions.
    fn cube(dims: usize) -> impl Iterator<Item = [i32; 3]> {
        let reach = move |axis: usize| if axis < dims { -1..=1 } else { 0..=0 };
        reach(0)
            .flat_map(move |dx| reach(1).flat_map(move |dy| reach(2).map(move |dz| [dx, dy, dz])))
            .filter(|&offset| offset != [0; 3])
    }

    /// Star of `radius` in `dims` dimensions: -1 at the neighbours, and their number on the diagonal.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `dims` is 1, 2 or 3 and `radius` 0 to [`MAX_RADIUS`].
    pub fn star(dims: usize, radius: i32) -> Result<Self> {
        check_dims(dims)?;
        if !(0..=MAX_RADIUS).contains(&radius) {
            return Err(invalid(format!("a star of radius {radius}: 0 to {MAX_RADIUS} are possible")));
        }
        Ok(Self::laplacian(Self::axes(dims, radius)))
    }

    /// Box of radius 1 in `dims` dimensions: -1 at the neighbours, and their number on the diagonal.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `dims` is 1, 2 or 3.
    pub fn cubic(dims: usize) -> Result<Self> {
        check_dims(dims)?;
        Ok(Self::laplacian(Self::cube(dims)))
    }

    /// D3N33: the 3-D box of radius 1 and the six axis neighbours at distance 2.
    pub fn d3n33() -> Self {
        Self::laplacian(Self::cube(3).chain(Self::axes(3, 2).filter(|o| o.iter().any(|d| d.abs() == 2))))
    }

    /// Upwind differences of -lap u + b . grad u in `dims` dimensions, times h^2.
    ///
    /// The wind blows along every axis towards larger coordinates with cell Peclet number `peclet` = |b_axis| h. So the
    /// preceding neighbours get -(1 + peclet) and the following ones -1. This is an M-matrix for every `peclet` >= 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `dims` is 1, 2 or 3 and `peclet` finite and not negative.
    pub fn upwind(dims: usize, peclet: f64) -> Result<Self> {
        check_dims(dims)?;
        if !peclet.is_finite() || peclet < 0.0 {
            return Err(invalid(format!("a Peclet number of {peclet}: finite, 0 or more")));
        }
        let neighbours = Self::axes(dims, 1)
            .map(|offset| (offset, if offset.iter().any(|&d| d < 0) { -1.0 - peclet } else { -1.0 }));
        Ok(Self::new(neighbours.chain([([0; 3], dims as f64 * (2.0 + peclet))])))
    }

    /// -u_xx - eps u_yy by five points, times h^2.
    pub fn anisotropic2d(eps: f64) -> Self {
        Self::new([
            ([-1, 0, 0], -1.0),
            ([1, 0, 0], -1.0),
            ([0, -1, 0], -eps),
            ([0, 1, 0], -eps),
            ([0, 0, 0], 2.0 + 2.0 * eps),
        ])
    }

    /// Offsets (dx, dy, dz) in the order of a row's columns.
    pub fn offsets(&self) -> &[[i32; 3]] {
        &self.offsets
    }

    /// The coefficient of each offset.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Makes the matrix of the stencil on an X x Y x Z grid; neighbours outside are dropped.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn on_grid<T: Real>(&self, size: [usize; 3]) -> Result<Csr<T>> {
        self.rows_on_grid(size, 0..points(size)?)
    }

    /// Makes some rows of the matrix.
    pub(super) fn rows_on_grid<T: Real>(&self, size: [usize; 3], wanted: std::ops::Range<usize>) -> Result<Csr<T>> {
        let rows = points(size)?;
        by_rows(wanted, rows, |row| self.row_start(size, row), |range, out| self.fill(size, range, out))
    }

    /// Number of entries in the rows before `row`.
    pub(super) fn row_start(&self, size: [usize; 3], row: usize) -> u64 {
        self.offsets.iter().map(|&offset| entries_before(size, offset, row)).sum()
    }

    fn fill<T: Real>(&self, [nx, ny, nz]: [usize; 3], range: std::ops::Range<usize>, out: &mut Rows<'_, T>) {
        let before = self.offsets.iter().map(|o| o[0].min(0).unsigned_abs()).max().unwrap_or(0) as usize;
        let after = self.offsets.iter().map(|o| o[0].max(0)).max().unwrap_or(0) as usize;
        let mut line_points: Vec<(i32, isize, T)> = Vec::with_capacity(self.offsets.len());
        let mut row = range.start;
        while row < range.end {
            let (first, line) = (row % nx, row / nx);
            let (y, z) = (line % ny, line / ny);
            let last = nx.min(first + range.end - row);
            line_points.clear();
            for (&[dx, dy, dz], &weight) in self.offsets.iter().zip(&self.weights) {
                if holds(y, dy, ny) && holds(z, dz, nz) {
                    let shift = dx as isize + nx as isize * (dy as isize + ny as isize * dz as isize);
                    line_points.push((dx, shift, T::from_f64(weight)));
                }
            }
            for x in first..last {
                if x >= before && x + after < nx {
                    for &(_, shift, weight) in &line_points {
                        out.push(row.wrapping_add_signed(shift), weight);
                    }
                } else {
                    for &(_, shift, weight) in line_points.iter().filter(|point| holds(x, point.0, nx)) {
                        out.push(row.wrapping_add_signed(shift), weight);
                    }
                }
                out.end_row();
                row += 1;
            }
        }
    }
}
