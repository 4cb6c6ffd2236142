//! New values for a [`StencilMultigrid`]: in place, as long as they are coarsened along the same axes.
//!
//! The new finest operator is made beside the old one, which stays until everything else has been computed. The coarse
//! operators are formed from it in their own memory, and the host reads samples of all grids in one go. At the end, the
//! finest values are copied to their place. If the matrix is refused before, the coarse operators are formed again from
//! the old finest one. This repeats their bits.

use std::iter::once;

use rayon::prelude::*;
use spandrel_backend::{Inverted, Mat, Sampled, Spectrum};
use spandrel_formats::{Coarsening, Csr, Dense, NEIGHBOURS, Neighbours, Real};

use super::grid::{StencilBackend, StencilGrid, halved, sampled_every};
use super::options::PolynomialSmoother;
use super::stencil::{Level, StencilMultigrid, Work, coarsened, finest_of, inverted, is_last, sizes};
use crate::phase::unobserved;
use crate::pool::Pool;
use crate::{Error, Result};

impl<T: Real, B: StencilBackend<T>> StencilMultigrid<T, B> {
    /// Takes another matrix on the same grid. The bits are those of a new cycle. Blocks; must not be recorded. On a GPU
    /// it is fastest for the matrix that the cycle was made from, with new values in place ([`Mat::convert_like`]).
    ///
    /// All values are written in place, so no address changes. Until the end, the device also holds the new finest
    /// operator and a vector; nothing else is allocated there. Steps that were recorded before see the new values, but
    /// with a Chebyshev smoother they keep the old bounds on the spectra.
    ///
    /// Some matrices repeat the set-up: those that a new cycle would coarsen along other axes or to another number of
    /// grids; those with other diagonals; and those whose values f32 represents although it did not represent the old
    /// ones, or the other way round, if the device stores such values in f32. Addresses then change, and steps that
    /// were recorded with the cycle must be recorded again.
    ///
    /// # Errors
    /// As [`StencilMultigrid::of`], and [`Error::Size`] for a matrix of another size. If the matrix is refused, nothing
    /// has changed.
    pub fn update_from(&mut self, be: &B, a: &Mat<B, Csr<T>>) -> Result<()> {
        let n = self.grids[0].grid.points();
        if a.nrows() != n {
            return Err(Error::rows("mg", "the matrix", a.nrows(), n, crate::error::SAME_SIZE));
        }
        let finest = finest_of(be, a, Some(self.grids[0].grid.a()), self.smoother())?;
        let taken = match self.renew(be, &finest) {
            Ok(false) => self.replace(be, finest),
            other => other.map(drop),
        };
        if taken.is_err() {
            self.restore(be)?;
        }
        taken
    }

    /// Takes a finest operator in place. Returns false if a new cycle would have other grids, or if memory does not
    /// hold the values. The finest operator is then as before.
    fn renew(&mut self, be: &B, finest: &StencilGrid<T, B>) -> Result<bool> {
        let Some((Level { grid: first, to }, coarser)) = self.grids.split_first_mut() else { return Ok(false) };
        if first.of != finest.of || !form(be, finest, *to, coarser)? {
            return Ok(false);
        }
        let spectra = look(be, coarser, finest.smoother)?;
        if spectra.iter().any(|spectrum| spectrum.unfit.is_some()) {
            return Ok(false);
        }
        let ways: Vec<Option<Coarsening>> = once(*to).chain(coarser.iter().map(|level| level.to)).collect();
        let grids: Vec<&StencilGrid<T, B>> = once(finest).chain(coarser.iter().map(|level| &level.grid)).collect();
        let (mut sampled, last) = (Vec::new(), grids.len() - 1);
        for (at, grid) in grids.iter().enumerate().filter(|(at, grid)| !is_last(grid.points(), at + 1, self.levels)) {
            sampled.push(Sample { grid: at, of: &grid.of, step: sampled_every(grid.points()) });
        }
        if self.coarsest.is_some() {
            sampled.push(Sample { grid: last, of: &grids[last].of, step: 1 });
        }
        let asked: Vec<Sampled<'_, T, B>> =
            sampled.iter().map(|sample| (grids[sample.grid].a.resident(), sample.of, sample.step)).collect();
        let mut judged = Ok(None);
        be.stencil_samples(&asked, &mut |rows| judged = judge(&sampled, self.coarsest.is_some(), &ways, rows))?;
        let Some(inverse) = judged? else { return Ok(false) };

        if !first.a.copy_stencil(be, &finest.a)? {
            return Ok(false);
        }
        be.copy(None, &finest.inverse, &mut first.inverse)?;
        first.bound = finest.bound;
        for (level, spectrum) in coarser.iter_mut().zip(spectra) {
            level.grid.bound = spectrum.bound;
        }
        if let (Some(held), Some(inverse)) = (&mut self.coarsest, inverse) {
            held.update_dense(be, &inverse)?;
        }
        Ok(true)
    }

    /// Repeats the set-up below a finest operator.
    fn replace(&mut self, be: &B, finest: StencilGrid<T, B>) -> Result<()> {
        let (grids, coarsest) = coarsened(be, finest, self.levels, &mut unobserved)?;
        let sizes = sizes(&grids);
        if sizes != self.sizes {
            self.work = Pool::new(Work::new(be, &grids)?);
        }
        (self.grids, self.coarsest, self.sizes) = (grids, coarsest, sizes);
        Ok(())
    }

    /// Forms the coarse operators again, from the finest one. They then have the bits that they had when it was taken.
    fn restore(&mut self, be: &B) -> Result<()> {
        let Some((Level { grid, to }, coarser)) = self.grids.split_first_mut() else { return Ok(()) };
        form(be, grid, *to, coarser)?;
        look(be, coarser, grid.smoother).map(drop)
    }
}

/// Forms the operators of the coarser grids in place, from that of the finest. Returns false if memory does not hold
/// one.
fn form<T: Real, B: StencilBackend<T>>(
    be: &B,
    finest: &StencilGrid<T, B>,
    mut to: Option<Coarsening>,
    coarser: &mut [Level<T, B>],
) -> Result<bool> {
    let mut fine = finest;
    for Level { grid, to: next } in coarser {
        let Some(way) = to else { return Ok(false) };
        if !fine.a.coarser_stencil_into(be, &fine.of, &way, &mut grid.a)? {
            return Ok(false);
        }
        (fine, to) = (grid, *next);
    }
    Ok(true)
}

/// Writes one over the divisors of the coarser grids.
fn look<T: Real, B: StencilBackend<T>>(
    be: &B,
    coarser: &mut [Level<T, B>],
    smoother: PolynomialSmoother,
) -> Result<Vec<Spectrum>> {
    let mut grids: Vec<Inverted<'_, T, B>> =
        coarser.iter_mut().map(|Level { grid, .. }| (grid.a.resident(), &grid.of, &mut grid.inverse)).collect();
    Ok(be.stencil_spectra(&mut grids, smoother.divisor())?)
}

/// Every `step`-th row of a grid.
struct Sample<'a> {
    grid: usize,
    of: &'a Neighbours,
    step: usize,
}

/// Given samples of the grids, returns `None` if one of them would be coarsened in another way. Otherwise inverts the
/// last operator, whose rows are the last sample if `inverts`.
fn judge<T: Real>(
    samples: &[Sample<'_>],
    inverts: bool,
    ways: &[Option<Coarsening>],
    mut rows: &[T],
) -> Result<Option<Option<Dense<T>>>> {
    let mut parts = Vec::with_capacity(samples.len());
    for sample in samples {
        let (part, rest) = rows.split_at(sample.of.points().div_ceil(sample.step) * NEIGHBOURS);
        parts.push((sample, part));
        rows = rest;
    }
    let whole = if inverts { parts.pop() } else { None };
    let is_same = |(sample, part): &(&Sample<'_>, &[T])| {
        halved(sample.of.size(), part) == ways[sample.grid].map(|way| way.halved())
    };
    if !parts.par_iter().all(is_same) {
        return Ok(None);
    }
    whole.map(|(sample, rows)| inverted(sample.of, rows, sample.grid)).transpose().map(Some)
}

#[cfg(test)]
mod tests;
