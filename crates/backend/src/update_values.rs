//! New values on the pattern of a resident matrix, as in each step of a time or Newton iteration.

use spandrel_formats::{Dense, Format, Real};

use crate::error::expect_len;
use crate::ops::{Backend, Load};
use crate::{Mat, Result};

/// Overwrites the values of a resident matrix: one value per stored entry, in the storage's order.
///
/// Pattern, plan and addresses stay the same, so recorded steps continue with the new values. Products have the same
/// bits as those of a matrix loaded with these values.
pub trait UpdateValues<F: Format>: Load<F> + Backend<F::Value> {
    /// Sets values from the host. Returns once they have been read; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there are as many values as entries, with nothing changed;
    /// [`crate::Error::Device`] while a step is being recorded.
    fn update_values(&self, m: &mut Self::Resident, values: &[F::Value]) -> Result<()>;

    /// Sets values that are on the device. Does not block on a GPU; must not be recorded.
    ///
    /// # Errors
    /// As [`UpdateValues::update_values`].
    fn update_values_from(&self, m: &mut Self::Resident, values: &Self::Vector) -> Result<()>;
}

impl<F: Format, B: UpdateValues<F>> Mat<B, F> {
    /// Sets new values, one per entry in the storage's order. See [`UpdateValues::update_values`]. A preconditioner
    /// made from the old values is not changed; update it as well.
    ///
    /// # Errors
    /// As [`UpdateValues::update_values`].
    pub fn update_values(&mut self, be: &B, values: &[F::Value]) -> Result<()> {
        be.update_values(self.resident_mut(), values)
    }

    /// Sets new values that are on the device. See [`UpdateValues::update_values_from`].
    ///
    /// # Errors
    /// As [`UpdateValues::update_values_from`].
    pub fn update_values_from(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        be.update_values_from(self.resident_mut(), values)
    }
}

impl<T: Real, B: UpdateValues<Dense<T>>> Mat<B, Dense<T>> {
    /// Takes the values of a host matrix of the same size, and its number of entries: a dense matrix also stores zeros.
    /// See [`UpdateValues::update_values`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a matrix of another size; as [`UpdateValues::update_values`].
    pub fn update_dense(&mut self, be: &B, host: &Dense<T>) -> Result<()> {
        expect_len("update_dense", "a column", host.nrows(), self.nrows())?;
        expect_len("update_dense", "a row", host.ncols(), self.ncols())?;
        self.update_values(be, host.values())?;
        self.take_entries(host.nnz());
        Ok(())
    }
}
