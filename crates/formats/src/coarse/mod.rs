//! Products of a stencil matrix A with the interpolation P to the next coarser grid: P^T A P, and the products that a
//! cycle with Gauss-Seidel steps uses instead of A, D_c^-1 P^T L and D^-1 U P.
//!
//! A [`Coarsening`] halves some axes: of n points, 1, 3, 5, ... remain, n / 2 of them. P interpolates linearly between
//! them, and values outside the grid count as zero. P is the product of such interpolations along one axis each, so a
//! product with it is computed one axis at a time, z first. With 27 points this takes about four additions per entry of
//! A; a sum over both ends of an entry takes eleven. The weights are 1 and 1/2, so only additions round.
//!
//! Working layout: one line of points at a time, with one stencil place after the other, each along the line. So an
//! axis is halved by additions of whole lines; absent entries are zeros there. Rows of a result hold every place of its
//! stencil inside the grid, even if a sum has no term (at masked rows of A, and at the end of an axis of even extent).
//! Order: the children along an axis by coordinate, and their entries by place; the same for any number of threads.
//! Cost: A is read one and a half times if z is halved, otherwise once. Memory: the result and a few lines per thread.
//! References: Trottenberg, Oosterlee, Schuller, Multigrid, 2001, section 7.7.4 (Galerkin operators as stencils).

mod axis;
mod gather;
mod interpolation;
mod load;
mod moves;
mod neighbours;

use crate::{Csr, Grid, Real, Result};

pub use interpolation::Injection;
pub use neighbours::{Diagonals, Divisor, NEIGHBOURS, Neighbours};

use axis::{Axis, Mode};
use gather::{Gather, Tables};
use load::Loader;

/// A place of a stencil: the entry of unknown `row` of a point in the column of unknown `col` of the point at
/// difference `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    d: [i32; 3],
    row: u8,
    col: u8,
}

impl Place {
    /// The sort key: a row's entries ascend by it, and the rows of a point ascend by unknown.
    fn key(&self) -> (i32, i32, i32, u8, u8) {
        let [dx, dy, dz] = self.d;
        (dz, dy, dx, self.row, self.col)
    }
}

/// A stencil on a grid of points in natural order: the entries that each row of a matrix may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stencil {
    size: [usize; 3],
    unknowns: usize,
    /// Ascending by [`Place::key`].
    places: Vec<Place>,
}

/// A part of the entries of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    /// Below the diagonal.
    Lower,
    /// Above the diagonal.
    Upper,
}

impl Part {
    fn holds(self, place: &Place) -> bool {
        let [dx, dy, dz] = place.d;
        let side = (dz, dy, dx, place.col).cmp(&(0, 0, 0, place.row));
        match self {
            Part::All => true,
            Part::Lower => side.is_lt(),
            Part::Upper => side.is_gt(),
        }
    }
}

impl Stencil {
    /// Makes the stencil of a grid.
    pub fn of(grid: &Grid) -> Self {
        let unknowns = grid.unknowns.max(1);
        let b = unknowns as i32;
        let mut places = Vec::new();
        for (k, &[dx, dy, dz]) in grid.offsets.iter().enumerate() {
            for row in (0..b).filter(|&row| grid.is_held(k, row as usize)) {
                let d = [(row + dx).div_euclid(b), dy, dz];
                places.push(Place { d, row: row as u8, col: (row + dx).rem_euclid(b) as u8 });
            }
        }
        places.sort_unstable_by_key(Place::key);
        Self { size: grid.points(), unknowns, places }
    }

    /// Extents of the grid of points.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }
    /// Number of unknowns per point, numbered together.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }

    /// Number of entries of a point's rows inside the grid.
    pub fn entries(&self) -> usize {
        self.places.len()
    }

    /// Computes moments of the matrix from about `samples` of its rows.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a matrix with another number of rows; [`crate::Error::Invalid`] for an entry outside
    /// the stencil.
    pub fn moments<T: Real>(&self, a: &Csr<T>, samples: usize) -> Result<Moments> {
        Loader::new(a, self, Part::All)?.moments(samples)
    }
}

/// Sums over rows of a matrix: the result of [`Stencil::moments`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// Sums of -a_ij d_k d_l, where d is the difference of coordinates: twice the factors of the second derivatives
    /// when the operator is applied to a smooth function. With several unknowns, only entries between an unknown and
    /// itself count.
    pub second: [[f64; 3]; 3],
    /// a_ii.
    pub diagonal: f64,
}

impl Moments {
    fn plus(&self, other: &Self) -> Self {
        let second = std::array::from_fn(|k| std::array::from_fn(|l| self.second[k][l] + other.second[k][l]));
        Self { second, diagonal: self.diagonal + other.diagonal }
    }
}

/// The axes of a grid that are halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coarsening {
    fine: [usize; 3],
    halved: [bool; 3],
    unknowns: usize,
}

impl Coarsening {
    /// Halves axes of a grid with these extents and unknowns per point. An axis of one point stays.
    pub fn new(fine: [usize; 3], halved: [bool; 3], unknowns: usize) -> Self {
        Self { fine, halved: std::array::from_fn(|axis| halved[axis] && fine[axis] > 1), unknowns }
    }

    /// Extents of the grid of the points that remain.
    pub fn coarse(&self) -> [usize; 3] {
        std::array::from_fn(|axis| if self.halved[axis] { self.fine[axis] / 2 } else { self.fine[axis] })
    }

    /// The stencil of P^T A P.
    pub fn stencil(&self, of: &Stencil) -> Stencil {
        let tables = Tables::new(&self.axes(Mode::Both), &of.places);
        let places = tables.places().next().map(<[Place]>::to_vec).unwrap_or_default();
        Stencil { size: self.coarse(), unknowns: self.unknowns, places }
    }

    /// Maximum numbers of entries of P^T L and of U P, for a matrix that fills the stencil.
    pub fn entries(&self, of: &Stencil) -> [usize; 2] {
        [(Mode::Rows, Part::Lower), (Mode::Columns, Part::Upper)].map(|(mode, part)| {
            let (axes, places) = (self.axes(mode), of.places.iter().copied().filter(|place| part.holds(place)));
            let tables = Tables::new(&axes, &places.collect::<Vec<_>>());
            let kinds = tables.places();
            let rows = axes.iter().map(Axis::rows).product::<usize>() / kinds.len().max(1);
            rows * kinds.map(<[Place]>::len).sum::<usize>()
        })
    }

    /// Computes P^T A P and its stencil.
    ///
    /// ```
    /// use spandrel_formats::{Coarsening, Grid, Stencil, generate};
    ///
    /// // The Laplacian of twice the spacing, times h, is half the stencil.
    /// let a = generate::csr::<f64>("poisson1d:15")?;
    /// let stencil = Stencil::of(&Grid::detect(&a)?);
    /// let (coarse, _) = Coarsening::new([15, 1, 1], [true, false, false], 1).galerkin(&a, &stencil)?;
    /// assert_eq!(coarse.row(3), (&[2u32, 3, 4][..], &[-0.5, 1.0, -0.5][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a matrix with another number of rows; [`crate::Error::Invalid`] for an entry outside
    /// the stencil; [`crate::Error::TooLarge`], [`crate::Error::OutOfMemory`].
    pub fn galerkin<T: Real>(&self, a: &Csr<T>, stencil: &Stencil) -> Result<(Csr<T>, Stencil)> {
        let gather = Gather::new(self.axes(Mode::Both), Loader::new(a, stencil, Part::All)?);
        Ok((gather.run(None)?, self.stencil(stencil)))
    }

    /// Computes P^T L with its rows divided by `divisors`, where L holds the entries below the diagonal.
    ///
    /// # Errors
    /// Those of [`Coarsening::galerkin`], and [`crate::Error::Shape`] unless there is one divisor per row.
    pub fn restricted_lower<T: Real>(&self, a: &Csr<T>, stencil: &Stencil, divisors: &[T]) -> Result<Csr<T>> {
        Gather::new(self.axes(Mode::Rows), Loader::new(a, stencil, Part::Lower)?).run(Some(divisors))
    }

    /// Computes U P with its rows divided by `divisors`, where U holds the entries above the diagonal.
    ///
    /// # Errors
    /// Those of [`Coarsening::restricted_lower`].
    pub fn prolonged_upper<T: Real>(&self, a: &Csr<T>, stencil: &Stencil, divisors: &[T]) -> Result<Csr<T>> {
        Gather::new(self.axes(Mode::Columns), Loader::new(a, stencil, Part::Upper)?).run(Some(divisors))
    }

    fn axes(&self, mode: Mode) -> [Axis; 3] {
        std::array::from_fn(|axis| Axis {
            mode: if self.halved[axis] { mode } else { Mode::Keep },
            fine: self.fine[axis],
            coarse: self.coarse()[axis],
        })
    }
}

#[cfg(test)]
mod tests;
