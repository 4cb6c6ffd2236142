//! The interpolation P as a matrix, and injection, which replaces it if operators are given.

use super::Coarsening;
use crate::{Csr, Error, Ordinal, Real, Result};

/// Marks a fine point that is no coarse point.
const NONE: Ordinal = Ordinal::MAX;

impl Coarsening {
    /// The coarse points next to a fine one along an axis, ascending, with their weights.
    pub(super) fn parents(&self, axis: usize, point: usize) -> impl Iterator<Item = (usize, f64)> + Clone + use<> {
        let coarse = self.coarse()[axis];
        let pair = match (self.halved[axis], point % 2) {
            (false, _) => [Some((point, 1.0)), None],
            (true, 1) => [Some((point / 2, 1.0)), None],
            (true, _) => [(point / 2).checked_sub(1).map(|before| (before, 0.5)), Some((point / 2, 0.5))],
        };
        pair.into_iter().flatten().filter(move |parent| parent.0 < coarse)
    }

    /// Makes P, with one row per fine point and unknown.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn interpolation<T: Real>(&self) -> Result<Csr<T>> {
        let (fine, coarse, b) = (self.fine, self.coarse(), self.unknowns.max(1));
        let parents = |axis: usize, point: usize| self.parents(axis, point);
        let at = |row: usize| [row / b % fine[0], row / b / fine[0] % fine[1], row / b / fine[0] / fine[1]];
        let count = |row: usize| {
            let point = at(row);
            (0..3).map(|axis| parents(axis, point[axis]).count()).product()
        };
        let fill = |row: usize, cols: &mut [Ordinal], values: &mut [T]| {
            let point = at(row);
            let mut places = cols.iter_mut().zip(values);
            for (z, wz) in parents(2, point[2]) {
                for (y, wy) in parents(1, point[1]) {
                    for ((x, wx), (col, value)) in parents(0, point[0]).zip(&mut places) {
                        *col = ((x + coarse[0] * (y + coarse[1] * z)) * b + row % b) as Ordinal;
                        *value = T::from_f64(wx * wy * wz);
                    }
                }
            }
        };
        let rows = |size: [usize; 3]| size.iter().product::<usize>() * b;
        Csr::from_rows(rows(fine), rows(coarse), count, fill)
    }
}

/// Injection: the points 0, 2, 4, ... of every axis remain, for a grid of even extents. P has their values at those
/// points only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    fine: [usize; 3],
}

impl Injection {
    /// Makes the injection from a grid with these extents.
    ///
    /// # Errors
    /// [`Error::Shape`] for an odd extent.
    pub fn new(fine: [usize; 3]) -> Result<Self> {
        match fine.iter().find(|&extent| extent % 2 == 1) {
            Some(&found) => Err(Error::Shape { op: "inject", what: "an axis", found, expected: found + 1 }),
            None => Ok(Self { fine }),
        }
    }

    fn coarse(&self) -> [usize; 3] {
        self.fine.map(|extent| extent / 2)
    }
    /// The fine point of a coarse point.
    fn fine_of(&self, point: usize) -> usize {
        let ([cx, cy, _], [nx, ny, _]) = (self.coarse(), self.fine);
        2 * (point % cx + nx * (point / cx % cy + ny * (point / cx / cy)))
    }
    /// The coarse point of a fine point.
    fn coarse_of(&self, point: usize) -> Ordinal {
        let ([cx, cy, _], [nx, ny, _]) = (self.coarse(), self.fine);
        let [x, y, z] = [point % nx, point / nx % ny, point / nx / ny];
        if (x | y | z).is_multiple_of(2) { (x / 2 + cx * (y / 2 + cy * (z / 2))) as Ordinal } else { NONE }
    }

    /// Makes P, with one row per fine point.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn interpolation<T: Real>(&self) -> Result<Csr<T>> {
        let (n, coarse) = (self.fine.iter().product(), self.coarse().iter().product());
        let fill = |i: usize, cols: &mut [Ordinal], values: &mut [T]| {
            cols.fill(self.coarse_of(i));
            values.fill(T::one());
        };
        Csr::from_rows(n, coarse, |i| usize::from(self.coarse_of(i) != NONE), fill)
    }

    /// Computes P^T L with its rows divided by `divisors`, where L holds the entries of any matrix below the diagonal.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrix has one row per fine point and `divisors` one element per coarse point;
    /// [`Error::OutOfMemory`].
    pub fn restricted_lower<T: Real>(&self, a: &Csr<T>, divisors: &[T]) -> Result<Csr<T>> {
        let coarse = self.coarse().iter().product();
        self.check(a, divisors, coarse)?;
        let kept = |i: usize| {
            let (row, (cols, values)) = (self.fine_of(i), a.row(self.fine_of(i)));
            let end = cols.partition_point(|&j| (j as usize) < row);
            (&cols[..end], &values[..end])
        };
        let fill = |i: usize, cols: &mut [Ordinal], values: &mut [T]| {
            let (from, kept) = kept(i);
            cols.copy_from_slice(from);
            values.iter_mut().zip(kept).for_each(|(value, &v)| *value = v / divisors[i]);
        };
        Csr::from_rows(coarse, a.ncols(), |i| kept(i).0.len(), fill)
    }

    /// Computes U P with its rows divided by `divisors`, where U holds the entries of any matrix above the diagonal.
    ///
    /// # Errors
    /// As [`Injection::restricted_lower`], with one divisor per fine point.
    pub fn prolonged_upper<T: Real>(&self, a: &Csr<T>, divisors: &[T]) -> Result<Csr<T>> {
        self.check(a, divisors, a.nrows())?;
        let kept = |i: usize| {
            let (cols, values) = a.row(i);
            let begin = cols.partition_point(|&j| j as usize <= i);
            cols[begin..].iter().zip(&values[begin..]).filter_map(|(&j, &v)| match self.coarse_of(j as usize) {
                NONE => None,
                to => Some((to, v)),
            })
        };
        let fill = |i: usize, cols: &mut [Ordinal], values: &mut [T]| {
            for ((col, value), (j, v)) in cols.iter_mut().zip(values).zip(kept(i)) {
                (*col, *value) = (j, v / divisors[i]);
            }
        };
        Csr::from_rows(a.nrows(), self.coarse().iter().product(), |i| kept(i).count(), fill)
    }

    fn check<T: Real>(&self, a: &Csr<T>, divisors: &[T], rows: usize) -> Result<()> {
        let n = self.fine.iter().product();
        for (what, found, expected) in
            [("rows", a.nrows(), n), ("columns", a.ncols(), n), ("divisors", divisors.len(), rows)]
        {
            if found != expected {
                return Err(Error::Shape { op: "inject", what, found, expected });
            }
        }
        Ok(())
    }
}
