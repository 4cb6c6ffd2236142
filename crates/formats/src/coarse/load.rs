//! Loads rows of a matrix, with the places of its stencil separated from each other.

use std::ops::Range;

use rayon::prelude::*;

use super::{Moments, Part, Place, Stencil};
use crate::grid::holds;
use crate::index::Ordinal;
use crate::{Csr, Error, Real, Result};

/// Marks a place that the stencil lacks, and one that the part lacks.
const ABSENT: u32 = u32::MAX;
const OTHER_PART: u32 = u32::MAX - 1;
/// Number of samples per task.
const SAMPLES: usize = 1024;

/// A matrix as lines of points: what sums along the axes are made from.
pub(super) trait Lines: Sync {
    type Value: Real;
    /// What is known of the line that was loaded last.
    type Near: Default;
    fn places(&self) -> &[Place];
    fn unknowns(&self) -> usize;
    /// Fills `lines`, one of `len` points per place, from the points `xs` of the line at y, z; zeros follow them.
    fn load(
        &self,
        line: [usize; 2],
        xs: &Range<usize>,
        len: usize,
        lines: &mut [Self::Value],
        near: &mut Self::Near,
    ) -> Result<()>;
}

/// A part of a matrix with its stencil.
pub(super) struct Loader<'a, T> {
    a: &'a Csr<T>,
    size: [usize; 3],
    unknowns: usize,
    /// Places of the part.
    places: Vec<Place>,
    /// Neighbouring points, ascending; each with the number of its place for each pair of unknowns.
    points: Vec<([i32; 3], Vec<u32>)>,
}

/// The neighbours of one line of points that lie on lines inside the grid.
#[derive(Default)]
pub(super) struct Near {
    /// Ascending: difference along the line, difference of points, index of the neighbour.
    inside: Vec<(i32, i64, usize)>,
    /// For one unknown: differences of columns, and places.
    shifts: Vec<Ordinal>,
    places: Vec<u32>,
    /// The neighbours that belong to the part.
    kept: Range<usize>,
    before: usize,
    after: usize,
}

impl<'a, T: Real> Loader<'a, T> {
    pub(super) fn new(a: &'a Csr<T>, stencil: &Stencil, part: Part) -> Result<Self> {
        let (size, unknowns) = (stencil.size, stencil.unknowns);
        let n = size.iter().product::<usize>() * unknowns;
        for (what, found) in [("rows", a.nrows()), ("columns", a.ncols())] {
            if found != n {
                return Err(Error::Shape { op: "coarsen", what, found, expected: n });
            }
        }
        let places: Vec<Place> = stencil.places.iter().copied().filter(|place| part.holds(place)).collect();
        let mut points: Vec<([i32; 3], Vec<u32>)> = Vec::new();
        let mut number = 0;
        for place in &stencil.places {
            if points.last().is_none_or(|point| point.0 != place.d) {
                points.push((place.d, vec![ABSENT; unknowns * unknowns]));
            }
            let Some((_, numbers)) = points.last_mut() else { continue };
            let kept = part.holds(place);
            numbers[usize::from(place.row) * unknowns + usize::from(place.col)] =
                if kept { number } else { OTHER_PART };
            number += u32::from(kept);
        }
        Ok(Self { a, size, unknowns, places, points })
    }

    /// Moves `near` to the line at y, z.
    fn aim(&self, y: usize, z: usize, near: &mut Near) {
        let [nx, ny, nz] = self.size;
        let inside = |d: &[i32; 3]| holds(y, d[1], ny) && holds(z, d[2], nz);
        let shift = |d: [i32; 3]| i64::from(d[0]) + nx as i64 * (i64::from(d[1]) + ny as i64 * i64::from(d[2]));
        near.inside.clear();
        let numbered = self.points.iter().enumerate().filter(|(_, (d, _))| inside(d));
        near.inside.extend(numbered.map(|(k, &(d, _))| (d[0], shift(d), k)));
        near.before = near.inside.iter().map(|p| p.0.min(0).unsigned_abs() as usize).max().unwrap_or(0);
        near.after = near.inside.iter().map(|p| p.0.max(0) as usize).max().unwrap_or(0);
        near.shifts.clear();
        near.shifts.extend(near.inside.iter().map(|p| p.1 as Ordinal));
        near.places.clear();
        near.places.extend(near.inside.iter().map(|p| self.points[p.2].1[0]));
        let first = near.places.iter().position(|&place| place < OTHER_PART).unwrap_or(near.places.len());
        near.kept = first..near.places.iter().rposition(|&place| place < OTHER_PART).map_or(first, |last| last + 1);
    }

    /// Calls `each(place of the part, value)` for the entries of a row on the line of `near`. `x` is the coordinate of
    /// the row's point.
    fn entries(&self, near: &Near, row: usize, x: usize, mut each: impl FnMut(usize, T)) -> Result<()> {
        let (b, nx) = (self.unknowns, self.size[0] as i64);
        let point = row / b;
        let (cols, values) = self.a.row(row);
        let mut k = 0;
        for (&col, &value) in cols.iter().zip(values) {
            let by = (col as usize / b) as i64 - point as i64;
            let is_past = |p: &(i32, i64, usize)| p.1 < by || !(0..nx).contains(&(x as i64 + i64::from(p.0)));
            while near.inside.get(k).is_some_and(is_past) {
                k += 1;
            }
            let found = near.inside.get(k).filter(|p| p.1 == by);
            let place = found.map_or(ABSENT, |p| self.points[p.2].1[row % b * b + col as usize % b]);
            match place {
                ABSENT => {
                    let why = format!("row {row} has an entry in column {col}, outside the stencil of its grid");
                    return Err(Error::Invalid { format: "csr", why });
                }
                OTHER_PART => {}
                place => each(place as usize, value),
            }
        }
        Ok(())
    }

    /// See [`Stencil::moments`].
    pub(super) fn moments(&self, samples: usize) -> Result<Moments> {
        let (n, [nx, ny, _]) = (self.a.nrows(), self.size);
        // An odd step, so that rows of every place in a line of 2^k points occur.
        let step = (n / samples.max(1)) | 1;
        let count = n.div_ceil(step);
        let sum = |task: usize| {
            let (mut sums, mut near) = (Moments::default(), Near::default());
            for sample in task * SAMPLES..count.min((task + 1) * SAMPLES) {
                let row = sample * step;
                let point = row / self.unknowns;
                self.aim(point / nx % ny, point / nx / ny, &mut near);
                self.entries(&near, row, point % nx, |place, value| {
                    let place = &self.places[place];
                    if place.row != place.col {
                        return;
                    }
                    let (value, d) = (value.as_f64(), place.d.map(f64::from));
                    if place.d == [0; 3] {
                        sums.diagonal += value;
                    }
                    for (sums, along) in sums.second.iter_mut().zip(d) {
                        sums.iter_mut().zip(d).for_each(|(sum, other)| *sum -= value * along * other);
                    }
                })?;
            }
            Ok(sums)
        };
        let tasks: Vec<Result<Moments>> = (0..count.div_ceil(SAMPLES)).into_par_iter().map(sum).collect();
        tasks.into_iter().try_fold(Moments::default(), |all, sums| sums.map(|sums| all.plus(&sums)))
    }
}

impl<T: Real> Lines for Loader<'_, T> {
    type Value = T;
    type Near = Near;

    fn places(&self) -> &[Place] {
        &self.places
    }
    fn unknowns(&self) -> usize {
        self.unknowns
    }
    fn load(&self, [y, z]: [usize; 2], xs: &Range<usize>, len: usize, lines: &mut [T], near: &mut Near) -> Result<()> {
        let ([nx, ny, _], b) = (self.size, self.unknowns);
        self.aim(y, z, near);
        lines.fill(T::zero());
        let first = nx * (y + ny * z);
        for x in xs.clone() {
            let at = x - xs.start;
            if b == 1 && x >= near.before && x + near.after < nx {
                let row = first + x;
                let (cols, values) = self.a.row(row);
                let is_whole = cols.len() == near.shifts.len()
                    && cols.iter().zip(&near.shifts).fold(0, |any, (col, by)| any | col.wrapping_sub(*by) ^ row as u32)
                        == 0;
                if is_whole {
                    // The places of a part follow one another.
                    for (&place, &value) in near.places[near.kept.clone()].iter().zip(&values[near.kept.clone()]) {
                        lines[place as usize * len + at] = value;
                    }
                    continue;
                }
            }
            for row in (first + x) * b..(first + x + 1) * b {
                self.entries(near, row, x, |place, value| lines[place * len + at] = value)?;
            }
        }
        Ok(())
    }
}
