//! New values for the matrices of a cycle.

use spandrel_backend::{IntoArc, Mat};
use spandrel_formats::{Csr, Real};

use super::Amg;
use super::hierarchy::{AmgBackend, Hierarchy, vectors};
use crate::{Error, Result};

impl<T: Real, B: AmgBackend<T>> Amg<T, B> {
    /// Takes new values on the same pattern. Strong couplings and aggregates stay those of the first values;
    /// prolongations, operators and the inverse of the coarsest are computed again. No address changes. If rows couple
    /// much more or less strongly than at first, this cycle may need more iterations than a new one. Blocks; must not
    /// be recorded. Steps that were recorded before keep the old bounds.
    ///
    /// # Errors
    /// As [`Amg::new`], and [`Error::Pattern`] for another number of entries, [`Error::Size`] for another size. If the
    /// matrix is refused, nothing has changed.
    pub fn update(&mut self, be: &B, a: impl IntoArc<Csr<T>>) -> Result<()> {
        let a = a.into_arc();
        self.fits(a.nrows(), a.ncols(), a.nnz())?;
        self.update_from(be, &Mat::load(be, a)?)
    }

    /// As [`Amg::update`], with a matrix that is on the device.
    ///
    /// # Errors
    /// As [`Amg::update`].
    pub fn update_from(&mut self, be: &B, a: &Mat<B, Csr<T>>) -> Result<()> {
        self.fits(a.nrows(), a.ncols(), a.nnz())?;
        let near_null = vectors(be, a.nrows(), self.unknowns, self.near_null.as_deref())?;
        let renewed = Hierarchy::renewed(be, a, &self.grids, self.coarsest.is_some(), near_null)?;
        be.copy(None, &renewed.inv_diag, &mut self.inv_diag)?;
        for ((held, (a, down)), &bound) in self.grids.iter_mut().zip(&renewed.grids).zip(&renewed.bounds) {
            held.bound = bound;
            if let (Some(held), Some(a)) = (&mut held.a, a) {
                held.copy_values(be, a)?;
            }
            if let (Some(held), Some((restrict, prolong))) = (&mut held.down, down) {
                held.restrict.copy_values(be, restrict)?;
                held.prolong.copy_values(be, prolong)?;
            }
        }
        if let (Some(held), Some(inverse)) = (&mut self.coarsest, &renewed.coarsest) {
            held.copy_values(be, inverse)?;
        }
        self.levels.iter_mut().zip(renewed.bounds).for_each(|(level, bound)| level.bound = bound);
        Ok(())
    }

    fn fits(&self, nrows: usize, ncols: usize, nnz: usize) -> Result<()> {
        let n = self.grids[0].n;
        if nrows != n || ncols != n {
            return Err(Error::rows("amg", "the matrix", nrows, n, crate::error::SAME_SIZE));
        }
        if nnz != self.levels[0].entries {
            return Err(Error::Pattern { found: nnz, expected: self.levels[0].entries });
        }
        Ok(())
    }
}
