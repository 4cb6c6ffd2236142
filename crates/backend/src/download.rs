//! Matrices from the device to the host.

use spandrel_formats::Format;

use crate::{Load, Mat, Result};

/// Copies matrices to the host: the opposite of [`Load`].
///
/// For a matrix that was made on the device ([`crate::Spgemm`], [`crate::Transpose`]) and is needed on the host, such
/// as the smallest of a hierarchy.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not copy matrices in the format `{F}` to the host",
    note = "CSR is copied; for another format, keep the host's matrix"
)]
pub trait Download<F: Format>: Load<F> {
    /// Returns the matrix with the values that it has now. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`] of the host; [`crate::Error::Device`] with what failed since the last wait, or
    /// while a step is being recorded.
    fn download_matrix(&self, m: &Self::Resident) -> Result<F>;
}

impl<F: Format, B: Download<F>> Mat<B, F> {
    /// Returns the matrix on the host, with the values that it has now. Blocks; must not be recorded. See
    /// [`Download::download_matrix`].
    ///
    /// # Errors
    /// As [`Download::download_matrix`].
    pub fn download(&self, be: &B) -> Result<F> {
        be.download_matrix(self.resident())
    }
}
