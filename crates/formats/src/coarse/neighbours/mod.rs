//! Symmetric stencils of nearest neighbours by diagonals: where their values lie, and P^T A P as a matrix of the same
//! kind.
//!
//! A row couples at most with the 27 points whose coordinates differ by at most one along each axis, and so does a row
//! of P^T A P. Layout: a [`Dia`]. Only the diagonals at or above the main one are read, and those below it are written
//! as their mirror images, so the coarse matrix equals its transpose bit for bit.
//!
//! Order: that of [`Coarsening::galerkin`]. Cost: the upper diagonals are read one and a half times if z is halved,
//! otherwise once.

use std::ops::Range;

pub(super) use upper::mirror;

use rayon::prelude::*;

use super::axis::Mode;
use super::gather::Gather;
use super::load::Lines;
use super::{Coarsening, Moments, Place, Stencil};
use crate::grid::holds;
use crate::{Dia, Error, Grid, Ordinal, Real, Result};

/// Places of a row: (dz + 1) 9 + (dy + 1) 3 + dx + 1 for the differences dx, dy, dz of coordinates.
pub const NEIGHBOURS: usize = 27;

/// Rows that a task takes at a time.
const CHUNK: usize = 1024;
/// Rows whose moments are summed one after the other.
const SUMMED: usize = 256;

/// A symmetric stencil of nearest neighbours with one unknown per point, whose matrix is stored by diagonals.
///
/// Positions of the diagonals that connect the end of a line or plane with the beginning of the next hold no entry of
/// the stencil. They must be 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbours {
    size: [usize; 3],
    stencil: Stencil,
}

/// What a smoother divides each row by: the entry of a diagonal matrix M that is easy to invert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums)] // a backend must know each
pub enum Divisor {
    /// The diagonal entry.
    Diagonal,
    /// The sum of the magnitudes of the row. If the matrix A is symmetric, no eigenvalue of M^-1 A is larger than 1 in
    /// magnitude.
    RowSum,
}

/// The values of diagonals, one diagonal after the other, each with a value per row.
#[derive(Clone, Copy, Debug)]
pub enum Diagonals<'a, T> {
    /// In their own type.
    Own(&'a [T]),
    /// In f32, which holds each of them exactly.
    Narrow(&'a [f32]),
}

impl<T: Real> Diagonals<'_, T> {
    fn len(&self) -> usize {
        match self {
            Self::Own(values) => values.len(),
            Self::Narrow(values) => values.len(),
        }
    }

    fn get(&self, at: usize) -> T {
        match self {
            Self::Own(values) => values[at],
            Self::Narrow(values) => T::from_f64(f64::from(values[at])),
        }
    }

    fn copy(&self, from: Range<usize>, to: &mut [T]) {
        match self {
            Self::Own(values) => to.copy_from_slice(&values[from]),
            Self::Narrow(values) => {
                to.iter_mut().zip(&values[from]).for_each(|(to, &v)| *to = T::from_f64(f64::from(v)));
            }
        }
    }
}

impl Neighbours {
    /// Takes a stencil. `None` unless it has one unknown per point, couples nearest neighbours only, is symmetric, and
    /// has a diagonal.
    pub fn of(stencil: &Stencil) -> Option<Self> {
        let (size, places) = (stencil.size, &stencil.places);
        let has = |d: [i32; 3]| places.iter().any(|place| place.d == d);
        let fits = stencil.unknowns == 1
            && has([0; 3])
            && places.iter().all(|place| place.d.iter().all(|d| d.abs() <= 1) && has(place.d.map(|d| -d)));
        // Along an axis of one point there are no neighbours.
        let is_real = |place: &Place| (0..3).all(|axis| place.d[axis] == 0 || size[axis] > 1);
        let places = places.iter().copied().filter(is_real).collect();
        fits.then_some(Self { size, stencil: Stencil { size, unknowns: 1, places } })
    }

    /// The grids of `n` points on which these ascending offsets are differences of nearest neighbours, those with the
    /// shortest differences first. A matrix with these diagonals belongs to one of them if it has no entry that
    /// connects the end of a line with the beginning of the next. Extents of 2 are left out, because a diagonal could
    /// then be two neighbours.
    pub fn candidates(n: usize, offsets: &[i32]) -> Vec<Self> {
        let divides = |extent: usize| extent == n || (extent > 2 && n.is_multiple_of(extent));
        let near = |offset: &i32| {
            let at = offset.unsigned_abs() as usize;
            [at.saturating_sub(1), at, at + 1]
        };
        let mut lines: Vec<usize> =
            offsets.iter().flat_map(near).chain([n]).filter(|&extent| divides(extent)).collect();
        lines.sort_unstable();
        lines.dedup();
        let mut found: Vec<(i32, Self)> = Vec::new();
        for &nx in lines.iter().filter(|&&nx| nx > 0) {
            let planes = offsets.iter().flat_map(near).flat_map(|at| [at.saturating_sub(nx), at, at + nx]).chain([n]);
            let mut planes: Vec<usize> = planes.filter(|&at| at > 0 && at.is_multiple_of(nx) && divides(at)).collect();
            planes.sort_unstable();
            planes.dedup();
            for size in planes.iter().map(|&plane| [nx, plane / nx, n / plane]) {
                // Extents of 1 come last.
                if size.contains(&2) || !size.is_sorted_by(|a, b| *a > 1 || *b == 1) {
                    continue;
                }
                let mut stencil = Stencil { size, unknowns: 1, places: Vec::new() };
                for at in 0..NEIGHBOURS {
                    let d = difference(at);
                    let of = Self { size, stencil: Stencil { size, unknowns: 1, places: Vec::new() } };
                    let is_real = (0..3).all(|axis| d[axis] == 0 || size[axis] > 1);
                    if is_real && offsets.binary_search(&(of.offset(d) as i32)).is_ok() {
                        stencil.places.push(Place { d, row: 0, col: 0 });
                    }
                }
                let length = stencil.places.iter().map(|place| place.d.iter().map(|d| d.abs()).sum::<i32>()).sum();
                let complete = stencil.places.len() == offsets.len();
                found.extend(Self::of(&stencil).filter(|_| complete).map(|of| (length, of)));
            }
        }
        found.sort_by_key(|(length, of)| (*length, of.size));
        found.dedup();
        found.into_iter().map(|(_, of)| of).collect()
    }

    /// Extents of the grid.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }

    /// Number of points, which is the number of rows.
    pub fn points(&self) -> usize {
        self.size.iter().product()
    }

    /// The same stencil on a grid with another extent along an axis.
    pub fn with_extent(&self, axis: usize, extent: usize) -> Self {
        let mut other = self.clone();
        other.size[axis] = extent;
        other.stencil.size = other.size;
        other
    }

    /// Number of entries of a matrix that fills the stencil.
    pub fn entries(&self) -> usize {
        let inside =
            |place: &Place| (0..3).map(|k| self.size[k] - place.d[k].unsigned_abs() as usize).product::<usize>();
        self.stencil.places.iter().map(inside).sum()
    }

    /// The grid of a matrix with `nnz` entries, all of them in the stencil.
    pub fn grid(&self, nnz: u64) -> Grid {
        let offsets = self.stencil.places.iter().map(|place| place.d).collect();
        Grid::of_differences(self.size, offsets, self.entries() as u64 == nnz)
    }

    /// The difference of column and row of a place.
    fn offset(&self, [dx, dy, dz]: [i32; 3]) -> i64 {
        let [nx, ny, _] = self.size.map(|n| n as i64);
        i64::from(dx) + nx * (i64::from(dy) + ny * i64::from(dz))
    }

    /// The diagonals, ascending. On an axis of two points, two places may share one.
    pub fn offsets(&self) -> Vec<i32> {
        let mut offsets: Vec<i32> = self.stencil.places.iter().map(|place| self.offset(place.d) as i32).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }

    /// For each of the [`NEIGHBOURS`] places at or above the diagonal, which of these ascending offsets is its
    /// diagonal; `None` for places that the stencil or the list lacks, and for those below the diagonal.
    pub fn upper(&self, offsets: &[i32]) -> [Option<u32>; NEIGHBOURS] {
        let mut upper = [None; NEIGHBOURS];
        for Place { d, .. } in self.stencil.places.iter().filter(|place| is_upper(place.d)) {
            upper[number(*d)] = offsets.binary_search(&(self.offset(*d) as i32)).ok().map(|at| at as u32);
        }
        upper
    }

    /// The stencil of P^T A P.
    pub fn coarser(&self, to: &Coarsening) -> Self {
        let size = to.coarse();
        let mut stencil = to.stencil(&self.stencil);
        stencil.places.retain(|place| (0..3).all(|axis| place.d[axis] == 0 || size[axis] > 1));
        Self { size, stencil }
    }

    /// Computes P^T A P from the diagonals of A with these ascending offsets.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of values, or a coarsening of another grid; [`Error::OutOfMemory`].
    pub fn galerkin<T: Real>(&self, offsets: &[i32], values: Diagonals<'_, T>, to: &Coarsening) -> Result<Dia<T>> {
        expect("values", values.len(), offsets.len() * self.points())?;
        expect("points", to.fine.iter().product(), self.points())?;
        let lines = UpperHalf { values, of: self, at: self.upper(offsets) };
        Gather::new(to.axes(Mode::Both), lines).upper(&self.coarser(to))
    }

    /// As [`Neighbours::galerkin`], into the memory of a matrix that it made for the same grids.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of values, a coarsening of another grid, or a matrix with other diagonals.
    pub fn galerkin_into<T: Real>(
        &self,
        offsets: &[i32],
        values: Diagonals<'_, T>,
        to: &Coarsening,
        coarse: &mut Dia<T>,
    ) -> Result<()> {
        expect("values", values.len(), offsets.len() * self.points())?;
        expect("points", to.fine.iter().product(), self.points())?;
        let next = self.coarser(to);
        expect("coarse rows", coarse.nrows(), next.points())?;
        let alike = coarse.offsets().iter().zip(next.offsets()).filter(|(held, wanted)| *held == wanted).count();
        expect("coarse diagonals", alike, next.offsets().len().max(coarse.offsets().len()))?;
        let lines = UpperHalf { values, of: self, at: self.upper(offsets) };
        let gather = Gather::new(to.axes(Mode::Both), lines);
        coarse.rewrite(|offsets, values| gather.upper_into(&next, offsets, values))
    }

    /// The places of a row, 0 where there is no entry.
    fn row<T: Real>(&self, at: &[Option<u32>; NEIGHBOURS], values: &Diagonals<'_, T>, row: usize) -> [T; NEIGHBOURS] {
        let ([nx, ny, nz], n) = (self.size, self.points());
        let [x, y, z] = [row % nx, row / nx % ny, row / nx / ny];
        let mut found = [T::zero(); NEIGHBOURS];
        for Place { d, .. } in &self.stencil.places {
            if !(holds(x, d[0], nx) && holds(y, d[1], ny) && holds(z, d[2], nz)) {
                continue;
            }
            let (upper, from) = match is_upper(*d) {
                true => (*d, row),
                false => (d.map(|d| -d), (row as i64 + self.offset(*d)) as usize),
            };
            if let Some(k) = at[number(upper)] {
                found[number(*d)] = values.get(k as usize * n + from);
            }
        }
        found
    }

    /// The places of the rows `begin`, `begin` + `step`, `begin` + 2 `step`, ..., [`NEIGHBOURS`] each, 0 where there is
    /// no entry. There are none if `begin` is not below the number of points.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of values, or a step of 0.
    pub fn rows<T: Real>(
        &self,
        offsets: &[i32],
        values: Diagonals<'_, T>,
        begin: usize,
        step: usize,
    ) -> Result<Vec<T>> {
        expect("values", values.len(), offsets.len() * self.points())?;
        expect("steps", step.min(1), 1)?;
        let (at, count) = (self.upper(offsets), self.points().saturating_sub(begin).div_ceil(step));
        let mut rows = vec![T::zero(); count * NEIGHBOURS];
        rows.par_chunks_mut(NEIGHBOURS * CHUNK).enumerate().for_each(|(chunk, rows)| {
            let numbers = (chunk * CHUNK..).map(|k| begin + k * step);
            for (to, row) in rows.chunks_exact_mut(NEIGHBOURS).zip(numbers) {
                to.copy_from_slice(&self.row(&at, &values, row));
            }
        });
        Ok(rows)
    }

    /// The moments of rows as [`Neighbours::rows`] gives them. Runs of 256 rows are summed apart, and their sums added
    /// in order, so the bits do not depend on the number of threads.
    pub fn moments<T: Real>(rows: &[T]) -> Moments {
        let sums: Vec<Moments> = rows.par_chunks(SUMMED * NEIGHBOURS).map(moments).collect();
        sums.iter().fold(Moments::default(), |all, sums| all.plus(sums))
    }

    /// The column of a place of a row, if it lies inside the grid.
    pub fn column(&self, row: usize, place: usize) -> Option<usize> {
        let ([nx, ny, nz], d) = (self.size, difference(place));
        let [x, y, z] = [row % nx, row / nx % ny, row / nx / ny];
        let inside = place < NEIGHBOURS && holds(x, d[0], nx) && holds(y, d[1], ny) && holds(z, d[2], nz);
        inside.then(|| (row as i64 + self.offset(d)) as usize)
    }

    /// The places of a row of a matrix, from its columns and values, as [`Neighbours::rows`] has them. `None` if an
    /// entry that is not zero lies outside the stencil.
    pub fn places_of<T: Real>(&self, row: usize, cols: &[Ordinal], values: &[T]) -> Option<[T; NEIGHBOURS]> {
        let [nx, ny, nz] = self.size;
        let [x, y, z] = [row % nx, row / nx % ny, row / nx / ny];
        let places = &self.stencil.places;
        let mut found = [T::zero(); NEIGHBOURS];
        // Columns ascend, and so do the places, but for those that share a diagonal.
        let mut from = 0;
        for (&col, &value) in cols.iter().zip(values) {
            let offset = i64::from(col) - row as i64;
            let is_at = |&at: &usize| {
                let d = places[at].d;
                self.offset(d) == offset && holds(x, d[0], nx) && holds(y, d[1], ny) && holds(z, d[2], nz)
            };
            match (from..places.len()).chain(0..from).find(is_at) {
                Some(at) => {
                    found[number(places[at].d)] = value;
                    from = at + 1;
                }
                None if value.is_zero() => {}
                None => return None,
            }
        }
        Some(found)
    }

    /// Makes the matrix with these rows, [`NEIGHBOURS`] places each: the inverse of [`Neighbours::rows`]. Places
    /// outside the grid do not count. Every diagonal of the stencil is stored, also where it holds only zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of places; [`Error::TooLarge`].
    pub fn matrix<T: Real>(&self, places: &[T]) -> Result<Dia<T>> {
        let n = self.points();
        expect("places", places.len(), n * NEIGHBOURS)?;
        let ([nx, ny, nz], offsets) = (self.size, self.offsets());
        let of_place = |place: &Place| offsets.partition_point(|&at| i64::from(at) < self.offset(place.d));
        let of_places: Vec<([i32; 3], usize)> =
            self.stencil.places.iter().map(|place| (place.d, of_place(place))).collect();
        let mut values = vec![T::zero(); n * offsets.len()];
        // For each chunk of rows, its part of every diagonal.
        let mut chunks: Vec<Vec<&mut [T]>> = (0..n.div_ceil(CHUNK)).map(|_| Vec::new()).collect();
        for diagonal in values.chunks_mut(n.max(1)) {
            chunks.iter_mut().zip(diagonal.chunks_mut(CHUNK)).for_each(|(chunk, part)| chunk.push(part));
        }
        chunks.into_par_iter().enumerate().for_each(|(chunk, mut parts)| {
            let first = chunk * CHUNK;
            for row in first..n.min(first + CHUNK) {
                let [x, y, z] = [row % nx, row / nx % ny, row / nx / ny];
                let places = &places[row * NEIGHBOURS..(row + 1) * NEIGHBOURS];
                for &(d, k) in &of_places {
                    if holds(x, d[0], nx) && holds(y, d[1], ny) && holds(z, d[2], nz) {
                        parts[k][row - first] = places[number(d)];
                    }
                }
            }
        });
        Dia::new(n, n, offsets, values)
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.stencil.places
    }
}

/// The number of a place.
pub(super) fn number([dx, dy, dz]: [i32; 3]) -> usize {
    ((dz + 1) * 9 + (dy + 1) * 3 + dx + 1) as usize
}

/// The differences of coordinates of a place.
const fn difference(number: usize) -> [i32; 3] {
    [(number % 3) as i32 - 1, (number / 3 % 3) as i32 - 1, (number / 9 % 3) as i32 - 1]
}

/// Whether a place is on the diagonal or above it.
pub(super) fn is_upper([dx, dy, dz]: [i32; 3]) -> bool {
    (dz, dy, dx) >= (0, 0, 0)
}

/// The moments of a few rows.
fn moments<T: Real>(rows: &[T]) -> Moments {
    let mut sums = Moments::default();
    for row in rows.chunks_exact(NEIGHBOURS) {
        // Most places of a stencil of few points are zero, and add nothing.
        for (at, value) in row.iter().enumerate().filter(|(_, value)| !value.is_zero()) {
            let (value, d) = (value.as_f64(), difference(at).map(f64::from));
            if at == number([0; 3]) {
                sums.diagonal += value;
            }
            for (sums, along) in sums.second.iter_mut().zip(d) {
                sums.iter_mut().zip(d).for_each(|(sum, other)| *sum -= value * along * other);
            }
        }
    }
    sums
}

fn expect(what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Shape { op: "coarsen", what, found, expected }) }
}

/// The lines of a symmetric matrix, from its upper half.
struct UpperHalf<'a, T> {
    values: Diagonals<'a, T>,
    of: &'a Neighbours,
    at: [Option<u32>; NEIGHBOURS],
}

impl<T: Real> Lines for UpperHalf<'_, T> {
    type Value = T;
    type Near = ();

    fn places(&self) -> &[Place] {
        self.of.places()
    }

    fn unknowns(&self) -> usize {
        1
    }

    fn load(&self, [y, z]: [usize; 2], xs: &Range<usize>, len: usize, lines: &mut [T], (): &mut ()) -> Result<()> {
        let ([nx, ny, nz], n) = (self.of.size, self.of.points());
        lines.fill(T::zero());
        let first = nx * (y + ny * z);
        for (place, Place { d, .. }) in self.places().iter().enumerate() {
            // The points with a neighbour inside the grid.
            let begin = xs.start.max(usize::from(d[0] < 0));
            let end = xs.end.min(nx - usize::from(d[0] > 0));
            let (upper, shift) = if is_upper(*d) { (*d, 0) } else { (d.map(|d| -d), self.of.offset(*d)) };
            let (Some(k), true) = (self.at[number(upper)], holds(y, d[1], ny) && holds(z, d[2], nz) && begin < end)
            else {
                continue;
            };
            let from = (k as usize * n + first + begin).wrapping_add_signed(shift as isize);
            let to = place * len + begin - xs.start;
            self.values.copy(from..from + end - begin, &mut lines[to..to + end - begin]);
        }
        Ok(())
    }
}

impl Coarsening {
    /// Extents of the fine grid.
    pub fn fine(&self) -> [usize; 3] {
        self.fine
    }

    /// The axes that are halved.
    pub fn halved(&self) -> [bool; 3] {
        self.halved
    }
}

mod moments;
mod spectrum;
#[cfg(test)]
mod tests;
mod upper;
