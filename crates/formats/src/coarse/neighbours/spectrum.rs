//! A bound on the spectrum of D^-1 A for a stencil by diagonals, and whether the diagonals mirror each other.
//!
//! Layout: a few hundred points of a line at a time, one place of the stencil after the other. Order: each sum in f64
//! by ascending column. Cost: each stored diagonal once for its own rows, and once more, from the caches, for mirror
//! images.

use rayon::prelude::*;

use super::{Diagonals, Divisor, Lines, Neighbours, UpperHalf, expect};
use crate::fused::fused;
use crate::{Real, Result};

/// Rows that a task takes at a time.
const ROWS: usize = 4096;
/// Points of a line that are summed at a time.
const POINTS: usize = 512;

impl Neighbours {
    /// Whether the diagonals below the main one are the mirror images of those above it.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of values.
    pub fn is_symmetric<T: Real>(&self, offsets: &[i32], values: Diagonals<'_, T>) -> Result<bool> {
        let n = self.points();
        expect("values", values.len(), offsets.len() * n)?;
        let below = offsets.partition_point(|&offset| offset < 0);
        let mirrored = offsets.iter().zip(offsets.iter().rev()).all(|(&low, &high)| i64::from(low) == -i64::from(high));
        let chunks = n.div_ceil(ROWS);
        let is_alike = |task: usize| {
            let (k, chunk) = (task / chunks, task % chunks);
            let (by, mirror) = (offsets[k].unsigned_abs() as usize, offsets.len() - 1 - k);
            let (begin, end) = (by.max(chunk * ROWS), n.min((chunk + 1) * ROWS));
            begin >= end || values.are_alike([k * n + begin, mirror * n + begin - by], end - begin)
        };
        Ok(mirrored && (0..below * chunks).into_par_iter().all(is_alike))
    }

    /// Writes one over the divisor of each row to `inverse`. Returns the largest sum of |a_ij| over |a_ii|, the first
    /// unfit row, and the number of entries that are not zero. Each sum is in f64 by ascending column; as a divisor it
    /// is rounded to T.
    ///
    /// A row is unfit if it has an entry that is not finite, or no positive diagonal entry with a finite inverse, or if
    /// its divisor or the divisor's inverse is not finite.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of values, or another length of `inverse`.
    pub fn spectrum<T: Real>(
        &self,
        offsets: &[i32],
        values: Diagonals<'_, T>,
        divisor: Divisor,
        inverse: &mut [T],
    ) -> Result<(f64, Option<usize>, u64)> {
        let ([nx, ny, _], n) = (self.size, self.points());
        expect("values", values.len(), offsets.len() * n)?;
        expect("elements", inverse.len(), n)?;
        let lines = UpperHalf { values, of: self, at: self.upper(offsets) };
        let places = self.stencil.places.len();
        let middle = self.stencil.places.iter().take_while(|place| place.d != [0; 3]).count();
        let chunk = |(chunk, mut inverse): (usize, &mut [T])| -> Result<_> {
            let mut room = vec![T::zero(); (places + 1) * POINTS];
            let (mut sums, (poison, of_places)) = ([0.0; POINTS], room.split_at_mut(POINTS));
            let (mut bound, mut unfit, mut entries, mut row) = (0.0f64, usize::MAX, 0, chunk * ROWS);
            while !inverse.is_empty() {
                let (x, line) = (row % nx, row / nx);
                let len = inverse.len().min(POINTS).min(nx - x);
                let (here, rest) = inverse.split_at_mut(len);
                let (of_line, sums, poison) = (&mut of_places[..places * len], &mut sums[..len], &mut poison[..len]);
                lines.load([line % ny, line / ny], &(x..x + len), len, of_line, &mut ())?;
                sums.fill(0.0);
                poison.fill(T::zero());
                entries += of_line.chunks_exact(len).map(|place| add_place(place, sums, poison)).sum::<u64>();
                let diagonal = &of_line[middle * len..(middle + 1) * len];
                bound = bound.max(divide(divisor, diagonal, sums, here));
                let rows = diagonal.iter().zip(&*sums).zip(poison.iter().zip(here.iter()));
                let is_unfit = |((&diagonal, &sum), (poison, inverse)): ((&T, &f64), (&T, &T))| {
                    let divisor = divisor.of(diagonal, sum);
                    let all = [diagonal.recip(), divisor, *inverse, *poison];
                    !(diagonal > T::zero() && all.iter().fold(true, |finite, v| finite & v.is_finite()))
                };
                if rows.clone().fold(false, |any, row| any | is_unfit(row)) {
                    unfit = unfit.min(row + rows.take_while(|row| !is_unfit(*row)).count());
                }
                (inverse, row) = (rest, row + len);
            }
            Ok((bound, unfit, entries))
        };
        let chunks = inverse.par_chunks_mut(ROWS).enumerate().map(chunk);
        let both = |a: (f64, usize, u64), b: (f64, usize, u64)| (a.0.max(b.0), a.1.min(b.1), a.2 + b.2);
        let (bound, unfit, entries) = chunks.try_reduce(|| (0.0, usize::MAX, 0), |a, b| Ok(both(a, b)))?;
        Ok((bound, (unfit < n).then_some(unfit), entries))
    }
}

impl Divisor {
    /// The divisor of a row with this diagonal entry and sum of magnitudes.
    fn of<T: Real>(self, diagonal: T, sum: f64) -> T {
        match self {
            Self::Diagonal => diagonal,
            Self::RowSum => T::from_f64(sum),
        }
    }
}

impl<T: Real> Diagonals<'_, T> {
    /// Whether two runs of `len` values are equal. There is no early exit, so that this compiles to vector
    /// instructions.
    fn are_alike(&self, at: [usize; 2], len: usize) -> bool {
        fn alike<V: PartialEq>(values: &[V], [a, b]: [usize; 2], len: usize) -> bool {
            let both = values[a..a + len].iter().zip(&values[b..b + len]);
            both.fold(true, |alike, (a, b)| alike & (a == b))
        }
        match self {
            Self::Own(values) => alike(values, at, len),
            Self::Narrow(values) => alike(values, at, len),
        }
    }
}

fused! {
    /// Adds the magnitudes of the entries of a place, one per row, to the sums of the rows. An element of `poison`
    /// becomes NaN if the entry is not finite. Returns the number of entries that are not zero.
    fn add_place<T: Real>(place: &[T], sums: &mut [f64], poison: &mut [T]) -> u64 {
        for ((v, sum), poison) in place.iter().zip(sums).zip(poison) {
            *sum += v.as_f64().abs();
            *poison += *v * T::zero();
        }
        place.iter().map(|v| u64::from(!v.is_zero())).sum()
    }

    /// Writes one over the divisor of each row. Returns the largest sum over its diagonal entry.
    fn divide<T: Real>(divisor: Divisor, diagonal: &[T], sums: &[f64], inverse: &mut [T]) -> f64 {
        let mut bound = 0.0f64;
        for ((&diagonal, &sum), inverse) in diagonal.iter().zip(sums).zip(inverse) {
            *inverse = divisor.of(diagonal, sum).recip();
            bound = bound.max(sum / diagonal.as_f64());
        }
        bound
    }
}
