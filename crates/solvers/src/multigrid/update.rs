//! New values for a cycle. Coarse operators, halves and the matrices between the grids are computed again; grid,
//! stencil and plans stay the same.
//!
//! The values decide which axes are halved, so new values may need other grids. Such values are refused, because an
//! update must have the bits of a new cycle.

use std::borrow::Cow;

use spandrel_backend::{Spmv, UpdateValues};
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::Triangular;

use super::{Halves, Hierarchy, Multigrid, diagonals, inverted};
use crate::phase::unobserved;
use crate::{Error, Result};

impl<T: Real, B: Spmv<Csr<T>> + UpdateValues<Csr<T>>> Multigrid<T, B> {
    /// Takes another matrix with the pattern of the one from which [`Hierarchy::galerkin`] made the hierarchy.
    ///
    /// The grid is not detected and the triangles are not analysed again. No address changes, so recorded steps see the
    /// new values. The bits are those of a new cycle. Blocks. Must not be recorded.
    ///
    /// ```
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_formats::generate;
    /// use spandrel_solvers::{Hierarchy, Multigrid};
    /// use spandrel_sptrsv::Sweep;
    ///
    /// let (device, mut a) = (Cpu::new(), generate::csr::<f64>("poisson3d:20")?);
    /// let mut m = Multigrid::new::<Sweep<f64>>(&device, &Hierarchy::galerkin(&a, None)?)?;
    /// a.values_mut().iter_mut().for_each(|v| *v *= 0.5);
    /// m.update(&device, &a)?;
    /// # Ok::<(), spandrel_solvers::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Size`] for a matrix of another size, or if the operators of several grids were given
    /// ([`Multigrid::update_given`]); [`Error::OtherPattern`] with the first row that has other columns;
    /// [`Error::OtherGrids`] if the new values would be coarsened along other axes or to another number of grids;
    /// [`Error::Triangle`] with the row of a diagonal entry that is missing, zero or not finite; a backend that fails.
    /// If the matrix is refused, everything is as before.
    pub fn update(&mut self, be: &B, csr: &Csr<T>) -> Result<()> {
        self.expect_rows(csr)?;
        let Some(known) = &self.recognised else {
            return self.update_given(be, &[csr]);
        };
        let hierarchy = Hierarchy::coarsened(csr, known.clone(), &mut unobserved).map_err(|error| {
            // This error names an entry outside the stencil, or says that entries are missing. Name the row instead, if
            // there is one.
            let other = other_row(self.levels[0].smoother.triangles(), csr);
            other.map_or(error, |row| Error::OtherPattern { grid: 0, row })
        })?;
        self.take(be, &hierarchy)
    }

    /// As [`Multigrid::update`], for a hierarchy of given operators ([`Hierarchy::injected`]): one operator per grid,
    /// finest first.
    ///
    /// # Errors
    /// As there, and [`Error::Size`] for another number of operators.
    pub fn update_given(&mut self, be: &B, operators: &[&Csr<T>]) -> Result<()> {
        let expected = if self.recognised.is_some() { 1 } else { self.levels.len() };
        if operators.len() != expected {
            let (what, remedy) = ("the list of operators", "give one for each grid, or one if they were found by mg");
            return Err(Error::elements("mg", what, operators.len(), expected, remedy));
        }
        if self.recognised.is_some() {
            return self.update(be, operators[0]);
        }
        let operators = operators.iter().map(|&operator| Cow::Borrowed(operator)).collect();
        self.take(be, &Hierarchy::injected(operators, self.sizes[0])?)
    }

    fn expect_rows(&self, csr: &Csr<T>) -> Result<()> {
        let (nrows, ncols, expected) = (csr.nrows(), csr.ncols(), self.levels[0].n);
        if nrows != ncols {
            return Err(Error::NotSquare { solver: "mg", nrows, ncols });
        }
        if nrows != expected {
            return Err(Error::rows("mg", "the matrix", nrows, expected, crate::error::SAME_SIZE));
        }
        Ok(())
    }

    /// Takes the values of a hierarchy that was made in the same way. Everything is computed and compared before
    /// anything is written.
    fn take(&mut self, be: &B, hierarchy: &Hierarchy<'_, T>) -> Result<()> {
        let (diagonals, found) = (diagonals(hierarchy)?, hierarchy.sizes());
        let mut made = Vec::with_capacity(found.len());
        for (level, (held, stage)) in self.levels.iter().zip(hierarchy.stages()).enumerate() {
            let halves = Halves::of(&stage.a, &diagonals[level])?;
            let triangles = held.smoother.triangles();
            if !std::iter::zip(triangles, [&halves.lower, &halves.upper]).all(|(old, new)| is_alike(old, new)) {
                return Err(Error::OtherPattern { grid: level, row: other_row(triangles, &stage.a).unwrap_or(0) });
            }
            // Only after the first grid has proved equal, because coarser grids share no rows.
            if found != self.sizes {
                return Err(Error::OtherGrids { found, expected: self.sizes.clone() });
            }
            let between = match (hierarchy.way(level), diagonals.get(level + 1)) {
                (Some(way), Some(coarse)) => {
                    Some((way.restricted_lower(coarse)?, way.prolonged_upper(&diagonals[level])?))
                }
                _ => None,
            };
            made.push((halves, between));
        }
        for (level, (halves, between)) in self.levels.iter_mut().zip(made) {
            level.smoother.update(be, &halves)?;
            if let (Some(down), Some((restrict, prolong))) = (&mut level.down, between) {
                down.restrict.update_values(be, restrict.values())?;
                down.prolong.update_values(be, prolong.values())?;
            }
        }
        Ok(be.write(&inverted(&diagonals), &mut self.inv_diag)?)
    }
}

/// Returns true if two triangles have the same pattern.
fn is_alike<T: Real>(one: &Triangular<T>, other: &Triangular<T>) -> bool {
    let (one, other) = (one.csr(), other.csr());
    one.row_ptr() == other.row_ptr() && one.col_idx() == other.col_idx()
}

/// The first row of a matrix whose columns differ from those of the two triangles, with or without the diagonal.
fn other_row<T: Real>([lower, upper]: [&Triangular<T>; 2], csr: &Csr<T>) -> Option<usize> {
    let (lower, upper) = (lower.csr(), upper.csr());
    (0..csr.nrows().max(lower.nrows())).find(|&i| {
        if i >= csr.nrows() || i >= lower.nrows() {
            return true;
        }
        let (cols, below, above) = (csr.row(i).0, lower.row(i).0, upper.row(i).0);
        let rest = match cols.get(below.len()) {
            Some(&j) if j as usize == i => below.len() + 1,
            _ => below.len(),
        };
        cols.get(..below.len()) != Some(below) || cols[rest.min(cols.len())..] != *above
    })
}
