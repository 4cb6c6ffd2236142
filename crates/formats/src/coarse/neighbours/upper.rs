//! The diagonals of a symmetric stencil at or above the main one, each as an array with an element per row.

use rayon::prelude::*;

use super::{Diagonals, Neighbours, expect};
use crate::{Dia, Real, Result};

impl Neighbours {
    /// The diagonals at or above the main one, ascending.
    pub fn upper_offsets(&self) -> Vec<i32> {
        let mut offsets = self.offsets();
        offsets.retain(|&offset| offset >= 0);
        offsets
    }

    /// Copies the diagonal `offset` of a matrix with these ascending offsets to `out`, which has an element per row. A
    /// diagonal that the matrix lacks is 0.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of values, or another length of `out`.
    pub fn copy_diagonal<T: Real>(
        &self,
        offsets: &[i32],
        values: Diagonals<'_, T>,
        offset: i32,
        out: &mut [T],
    ) -> Result<()> {
        const ROWS: usize = 4096;
        let n = self.points();
        expect("values", values.len(), offsets.len() * n)?;
        expect("elements", out.len(), n)?;
        match offsets.binary_search(&offset) {
            Ok(k) => out.par_chunks_mut(ROWS).enumerate().for_each(|(chunk, out)| {
                let from = k * n + chunk * ROWS;
                values.copy(from..from + out.len(), out);
            }),
            Err(_) => out.fill(T::zero()),
        }
        Ok(())
    }

    /// Makes the matrix with these diagonals, one for each of [`Neighbours::upper_offsets`], with an element per row.
    /// Elements whose column lies outside the matrix do not count. The diagonals below the main one are the mirror
    /// images of those above it.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of diagonals, or a diagonal of another length;
    /// [`crate::Error::TooLarge`].
    pub fn of_diagonals<T: Real>(&self, upper: &[&[T]]) -> Result<Dia<T>> {
        let (n, offsets) = (self.points(), self.offsets());
        let first = offsets.partition_point(|&offset| offset < 0);
        expect("diagonals", upper.len(), offsets.len() - first)?;
        let mut values = vec![T::zero(); n * offsets.len()];
        for ((to, from), &offset) in values[first * n..].chunks_mut(n.max(1)).zip(upper).zip(&offsets[first..]) {
            expect("elements", from.len(), n)?;
            let inside = n.saturating_sub(offset as usize);
            to[..inside].copy_from_slice(&from[..inside]);
        }
        mirror(n, &offsets, &mut values);
        Dia::new(n, n, offsets, values)
    }
}

/// Fills the diagonals below the main one with the mirror images of those above it. The offsets are symmetric.
pub(in super::super) fn mirror<T: Real>(n: usize, offsets: &[i32], values: &mut [T]) {
    let below = offsets.partition_point(|&offset| offset < 0);
    let (lower, upper) = values.split_at_mut(below * n);
    let upper = &*upper;
    lower.par_chunks_exact_mut(n.max(1)).enumerate().for_each(|(k, lower)| {
        let (by, from) = (offsets[k].unsigned_abs() as usize, (offsets.len() - 1 - k - below) * n);
        lower[by..].copy_from_slice(&upper[from..from + n - by]);
    });
}
