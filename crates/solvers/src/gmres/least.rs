//! The least squares problem of a cycle, min || beta e_1 - H y ||, one column of H at a time, on the host and in f64.
//!
//! Layout: R's columns one after the other, j + 1 entries in column j, and the rotations that made it; `g` is the
//! rotated right-hand side, one entry longer than the number of columns.
//!
//! Reference: Saad 2003, section 6.5.3.

use spandrel_formats::Real;

use crate::norm::rounding;

/// The result of adding a column of H.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Column {
    /// The norm of the residual with this column.
    Residual(f64),
    /// Up to its rounding the column is a combination of earlier ones and is left out: A is singular on the Krylov
    /// space.
    Dependent,
    /// The column has an infinity or NaN and is left out.
    NotFinite,
}

#[derive(Debug, Default)]
pub(super) struct Least {
    r: Vec<f64>,
    /// Cosines and sines.
    rotations: Vec<(f64, f64)>,
    g: Vec<f64>,
}

impl Least {
    /// Begins a cycle: no columns, and the norm of the residual.
    pub(super) fn begin(&mut self, norm: f64) {
        self.r.clear();
        self.rotations.clear();
        self.g.clear();
        self.g.push(norm);
    }

    /// The number of columns taken.
    pub(super) fn len(&self) -> usize {
        self.rotations.len()
    }

    /// Adds the next column, of `len() + 2` entries that were computed in `T` from vectors of `n` elements.
    pub(super) fn push<T: Real>(&mut self, column: &[T], n: usize) -> Column {
        if !column.iter().all(|h| h.is_finite()) {
            return Column::NotFinite;
        }
        let j = self.len();
        let mut h: Vec<f64> = column.iter().map(|h| h.as_f64()).collect();
        let size = h.iter().fold(0.0, |size: f64, h| size.hypot(*h));
        for (i, (c, s)) in self.rotations.iter().enumerate() {
            (h[i], h[i + 1]) = (c * h[i] + s * h[i + 1], c * h[i + 1] - s * h[i]);
        }
        let diagonal = h[j].hypot(h[j + 1]);
        // Each of the j + 1 projections has the rounding error of its coefficient and two more of the update, relative
        // to ||w||.
        if diagonal <= (j + 1) as f64 * (rounding::<T>(n) + 2.0 * T::UNIT_ROUNDOFF) * size {
            return Column::Dependent;
        }
        let (c, s) = (h[j] / diagonal, h[j + 1] / diagonal);
        h[j] = diagonal;
        self.r.extend_from_slice(&h[..=j]);
        self.rotations.push((c, s));
        let last = self.g[j];
        self.g[j] = c * last;
        self.g.push(-s * last);
        Column::Residual((s * last).abs())
    }

    /// y for the columns taken so far.
    pub(super) fn solve(&self) -> Vec<f64> {
        let k = self.len();
        let mut y = self.g[..k].to_vec();
        for j in (0..k).rev() {
            let column = &self.r[j * (j + 1) / 2..][..=j];
            y[j] /= column[j];
            let last = y[j];
            for (y, r) in y.iter_mut().zip(&column[..j]) {
                *y -= last * r;
            }
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_solves_what_can_be_done_by_hand() {
        // H = [1 1; 1 0; 0 1], beta = 3: the normal equations [2 1; 1 2] y = (3, 3) give y = (1, 1), residual (1, -1,
        // -1).
        let mut least = Least::default();
        least.begin(3.0);
        assert!(matches!(least.push(&[1.0, 1.0], 3), Column::Residual(norm) if (norm - 4.5f64.sqrt()).abs() < 1e-14));
        assert!(
            matches!(least.push(&[1.0, 0.0, 1.0], 3), Column::Residual(norm) if (norm - 3f64.sqrt()).abs() < 1e-14)
        );
        assert!(least.solve().iter().all(|y| (y - 1.0).abs() < 1e-14));
    }

    #[test]
    fn dependent_and_infinite_columns_are_left_out() {
        let mut least = Least::default();
        least.begin(1.0);
        assert_eq!(least.push(&[0.0, 0.0], 5), Column::Dependent);
        assert_eq!(least.push(&[f64::NAN, 1.0], 5), Column::NotFinite);
        assert_eq!((least.len(), least.solve()), (0, Vec::new()));
        assert_eq!(least.push(&[2.0, 0.0], 5), Column::Residual(0.0));
        assert_eq!(least.solve(), [0.5]);
    }
}
