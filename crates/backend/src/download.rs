//! Matrices from the device to the host.

use std::ops::Range;

use spandrel_formats::Format;

use crate::{Error, Load, Mat, Result};

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

    /// Returns the rows of a range of the matrix, with all its columns and with the values that they have now. Row
    /// `rows.start` becomes row 0. Copies only these rows. Blocks; must not be recorded.
    ///
    /// # Errors
    /// As [`Download::download_matrix`].
    ///
    /// # Panics
    /// If the range leaves the matrix, like indexing a slice.
    fn download_rows(&self, m: &Self::Resident, rows: Range<usize>) -> Result<F>;
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

    /// Returns a range of rows on the host, counted from the first of them. Blocks; must not be recorded. See
    /// [`Download::download_rows`].
    ///
    /// # Errors
    /// [`Error::Shape`] for a range that leaves the matrix; as [`Download::download_rows`].
    pub fn download_rows(&self, be: &B, rows: Range<usize>) -> Result<F> {
        if rows.start > rows.end || rows.end > self.nrows() {
            let (found, expected) = (rows.start.max(rows.end), self.nrows());
            return Err(Error::Shape { op: "download_rows", what: "the range of rows", found, expected });
        }
        be.download_rows(self.resident(), rows)
    }
}
