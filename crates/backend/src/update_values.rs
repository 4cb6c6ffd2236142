//! New values on the pattern of a resident matrix: what changes from step to step of a time or Newton iteration.

use spandrel_formats::Format;

use crate::ops::{Backend, Load};
use crate::{Mat, Result};

/// Overwrites the values of a resident matrix, one for each stored entry in the storage's order; pattern, plan and addresses stay, so that
/// what was recorded with it goes on with the new ones. Products have the bits of a matrix loaded with them.
pub trait UpdateValues<F: Format>: Load<F> + Backend<F::Value> {
    /// Values of the host. Returns once they have been read; may not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there are as many as entries, with nothing changed; [`crate::Error::Device`] while a step is recorded.
    fn update_values(&self, m: &mut Self::Resident, values: &[F::Value]) -> Result<()>;

    /// Values that are on the device. Does not block on a GPU; may not be recorded.
    ///
    /// # Errors
    /// As [`UpdateValues::update_values`].
    fn update_values_from(&self, m: &mut Self::Resident, values: &Self::Vector) -> Result<()>;
}

impl<F: Format, B: UpdateValues<F>> Mat<B, F> {
    /// New values, one for each entry in the storage's order. See [`UpdateValues::update_values`]. A preconditioner made of the old ones
    /// stays as it is and has an update of its own.
    ///
    /// # Errors
    /// As there.
    pub fn update_values(&mut self, be: &B, values: &[F::Value]) -> Result<()> {
        be.update_values(self.resident_mut(), values)
    }

    /// The same with values that are on the device. See [`UpdateValues::update_values_from`].
    ///
    /// # Errors
    /// As there.
    pub fn update_values_from(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        be.update_values_from(self.resident_mut(), values)
    }
}
