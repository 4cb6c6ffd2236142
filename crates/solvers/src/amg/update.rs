//! New values for the matrices of a cycle.
//!
//! Aggregates stay, so the patterns of all prolongations and operators stay as well: whether an entry of A belongs to
//! the filtered matrix depends on the graph of strong couplings, and not on its present value. The first update finds
//! the plans of the coarser matrices ([`Mat::coarser`]) and keeps them. All updates then compute values only.
//!
//! New values are computed in memory of their own and written to the cycle at the end, so a refused matrix changes
//! nothing.

use spandrel_backend::{Coarser, IntoArc, Mat, MatCoarser, Scaling};
use spandrel_formats::{Csr, Real};

use super::hierarchy::{AmgBackend, fit, inverse_values, vectors};
use super::{Amg, Grid};
use crate::{Error, Result};

/// What updates keep: a step to each coarser grid, finest first.
pub(super) struct Renewal<T: Real, B: AmgBackend<T>>(Vec<Step<T, B>>);

/// A coarser operator, P and P^T, and the plan that computes their values.
struct Step<T: Real, B: AmgBackend<T>> {
    plan: MatCoarser<B, Csr<T>>,
    to: Coarser<Mat<B, Csr<T>>, B::Vector>,
}

impl<T: Real, B: AmgBackend<T>> Renewal<T, B> {
    /// Finds the plans. The patterns are those of the grids, so they do not depend on the matrix of the update.
    fn of(be: &B, grids: &[Grid<T, B>], near_null: &B::Vector) -> Result<Self> {
        let mut steps: Vec<Step<T, B>> = Vec::new();
        for grid in grids {
            let (Some(finest), Some(down)) = (&grid.a, &grid.down) else { break };
            let (a, near_null) = steps.last().map_or((finest, near_null), |step| (&step.to.a, &step.to.near_null));
            let (to, plan) = a.coarser(be, &down.aggregates, near_null)?;
            steps.push(Step { plan, to });
        }
        Ok(Self(steps))
    }

    /// Computes the operators of all grids, and returns the scaling of each.
    fn compute(&mut self, be: &B, a: &Mat<B, Csr<T>>) -> Result<Vec<Scaling<B::Vector>>> {
        let mut scalings = vec![fit(be, a, 0)?];
        for level in 0..self.0.len() {
            let (before, after) = self.0.split_at_mut(level);
            let (a, step) = (before.last().map_or(a, |step| &step.to.a), &mut after[0]);
            step.plan.numeric(be, a, &mut step.to)?;
            scalings.push(fit(be, &step.to.a, level + 1)?);
        }
        Ok(scalings)
    }

    /// The operator of a grid, where `a` is the finest.
    fn operator<'a>(&'a self, a: &'a Mat<B, Csr<T>>, level: usize) -> &'a Mat<B, Csr<T>> {
        level.checked_sub(1).map_or(a, |before| &self.0[before].to.a)
    }
}

impl<T: Real, B: AmgBackend<T>> Amg<T, B> {
    /// Takes new values on the same pattern. Strong couplings and aggregates remain those of the first values;
    /// prolongations, operators and the inverse of the coarsest operator are computed again. No address changes. If
    /// couplings have become much stronger or weaker than at first, this cycle may need more iterations than a new one.
    /// Blocks; must not be recorded. Steps that were recorded before keep the old bounds.
    ///
    /// The first update also finds the patterns of the matrices between the grids and keeps them, with room for their
    /// values. This takes one to two times the memory of the cycle's matrices. Later updates compute values only.
    ///
    /// # Errors
    /// As [`Amg::new`], and [`Error::Pattern`] for another number of entries, [`Error::Size`] for another size. If the
    /// matrix is refused, nothing has changed. The pattern is not compared beyond these numbers.
    pub fn update(&mut self, be: &B, a: impl IntoArc<Csr<T>>) -> Result<()> {
        let a = a.into_arc();
        self.fits(a.nrows(), a.ncols(), a.nnz())?;
        if !self.takes_values() {
            return self.update_from(be, &Mat::load(be, a)?);
        }
        self.update_values(be, a.values())
    }

    /// As [`Amg::update`], with only the values, in stored order. From the first call on, the cycle also keeps the
    /// finest operator.
    ///
    /// # Errors
    /// As [`Amg::update`], and [`Error::Unsupported`] if the cycle does not [take values](Amg::takes_values).
    pub fn update_values(&mut self, be: &B, values: &[T]) -> Result<()> {
        self.update_finest(be, values.len(), |finest| finest.update_values(be, values))
    }

    /// As [`Amg::update_values`], with values on the device. They do not go through the host.
    ///
    /// # Errors
    /// As [`Amg::update_values`].
    pub fn update_values_from(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        self.update_finest(be, be.len(values), |finest| finest.update_values_from(be, values))
    }

    /// Returns false if the matrix is so small that only its inverse is kept. [`Amg::update_values`] then fails.
    pub fn takes_values(&self) -> bool {
        self.grids[0].a.is_some()
    }

    /// As [`Amg::update`], with a matrix that is on the device.
    ///
    /// # Errors
    /// As [`Amg::update`].
    pub fn update_from(&mut self, be: &B, a: &Mat<B, Csr<T>>) -> Result<()> {
        self.fits(a.nrows(), a.ncols(), a.nnz())?;
        let mut renewal = match self.renewal.take() {
            Some(renewal) => renewal,
            None => {
                let near_null = vectors(be, a.nrows(), self.unknowns, self.near_null.as_deref())?;
                Renewal::of(be, &self.grids, &near_null)?
            }
        };
        let renewed = self.renew(be, a, &mut renewal);
        self.renewal = Some(renewal);
        renewed
    }

    /// As [`Amg::update`], where `set` writes the values of the finest operator.
    fn update_finest(
        &mut self,
        be: &B,
        found: usize,
        set: impl FnOnce(&mut Mat<B, Csr<T>>) -> spandrel_backend::Result<()>,
    ) -> Result<()> {
        let expected = self.levels[0].entries;
        if found != expected {
            return Err(Error::Pattern { found, expected });
        }
        let mut finest = match (self.finest.take(), &self.grids[0].a) {
            (Some(finest), _) => finest,
            // `set` overwrites the values; only the pattern matters.
            (None, Some(a)) => a.scaled(be, &self.inv_diag, None)?,
            (None, None) => {
                let why = "this amg holds only the inverse of a small matrix: give it a whole matrix".to_string();
                return Err(Error::Unsupported { why });
            }
        };
        let renewed = set(&mut finest).map_err(Error::from).and_then(|()| self.update_from(be, &finest));
        self.finest = Some(finest);
        renewed
    }

    /// Computes everything, then writes it to the cycle.
    fn renew(&mut self, be: &B, a: &Mat<B, Csr<T>>, renewal: &mut Renewal<T, B>) -> Result<()> {
        let scalings = renewal.compute(be, a)?;
        let last = scalings.len() - 1;
        let inverse = match &self.coarsest {
            Some(_) => Some(inverse_values(be, last, renewal.operator(a, last), &scalings[last])?),
            None => None,
        };
        be.copy(None, &scalings[0].inverse, &mut self.inv_diag)?;
        for (level, (grid, scaling)) in self.grids.iter_mut().zip(&scalings).enumerate() {
            (grid.bound, self.levels[level].bound) = (scaling.bound, scaling.bound);
            if let Some(held) = &mut grid.a {
                renewal.operator(a, level).scaled_into(be, &scaling.inverse, None, held)?;
            }
            if let (Some(held), Some(Step { to, .. })) = (&mut grid.down, renewal.0.get(level)) {
                let of_next = &scalings[level + 1].inverse;
                to.transposed.scaled_into(be, of_next, Some(&scaling.diagonal), &mut held.restrict)?;
                held.prolong.copy_values(be, &to.p)?;
                if let Some(held) = &mut held.diagonal {
                    be.copy(None, &scalings[level + 1].diagonal, held)?;
                }
            }
        }
        if let (Some(held), Some(values)) = (&mut self.coarsest, inverse) {
            held.update_values(be, &values)?;
        }
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
