//! The transpose of a sparse matrix on the device, as a matrix whose values follow those of the first.

use std::fmt;

use spandrel_formats::Format;

use crate::error::expect_sizes;
use crate::ops::{Backend, Converted, Load};
use crate::spgemm::sizes;
use crate::{Gate, Mat, Result};

/// Transposes sparse matrices that are on the device.
///
/// The transpose is a matrix of its own, with the bits of `A^T` on the host. Products with it need no second form of A,
/// unlike [`crate::SpmvTransposed`], and it can be a factor of [`crate::Spgemm`].
///
/// A and A^T may not share memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not transpose matrices in the format `{F}`",
    note = "CSR offers it; convert other formats to CSR first"
)]
pub trait Transpose<F: Format>: Load<F> + Backend<F::Value> {
    /// What the numeric phase needs. Threads may share it.
    type TransposePlan: Send + Sync + 'static;

    /// Finds the pattern of A^T. Returns A^T with all values +0, and the plan, which serves all matrices with the
    /// pattern of A. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::Device`] while a step is being recorded.
    fn transpose_symbolic(&self, a: &Self::Resident) -> Result<(Converted<Self::Resident>, Self::TransposePlan)>;

    /// Writes the values of A to A^T. The matrices have the patterns of the symbolic phase; this is not checked beyond
    /// their sizes, and other patterns give other numbers. Allocates nothing; may be recorded.
    ///
    /// Addresses stay the same, so recorded steps that use A^T continue with the new values.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless both matrices have the rows, columns and number of entries of the symbolic phase,
    /// with A^T unchanged.
    fn transpose_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::TransposePlan,
        a: &Self::Resident,
        t: &mut Self::Resident,
    ) -> Result<()>;
}

/// The plan of a transpose on a device, with the sizes of the matrices. [`Mat::transpose`] makes it.
pub struct MatTranspose<B: Transpose<F>, F: Format> {
    plan: B::TransposePlan,
    sizes: [(usize, usize, usize); 2],
}

impl<B: Transpose<F>, F: Format> fmt::Debug for MatTranspose<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatTranspose").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl<F: Format, B: Transpose<F>> Mat<B, F> {
    /// Returns the transpose of this matrix, and the plan that moves new values there. Blocks; must not be recorded.
    ///
    /// # Errors
    /// As [`Transpose::transpose_symbolic`].
    pub fn transpose(&self, be: &B) -> Result<(Self, MatTranspose<B, F>)> {
        let (made, plan) = be.transpose_symbolic(self.resident())?;
        // SAFETY: `Transpose` makes a matrix with as many rows as this one has columns, and the other way round.
        let mut t = unsafe { Self::from_resident(self.ncols(), self.nrows(), made) };
        let transpose = MatTranspose { plan, sizes: [self, &t].map(sizes) };
        transpose.numeric(be, None, self, &mut t)?;
        Ok((t, transpose))
    }
}

impl<B: Transpose<F>, F: Format> MatTranspose<B, F> {
    /// Writes the values of A to A^T, on the same patterns. See [`Transpose::transpose_numeric`].
    ///
    /// # Errors
    /// As [`Transpose::transpose_numeric`].
    pub fn numeric(&self, be: &B, gate: Gate<'_, B>, a: &Mat<B, F>, t: &mut Mat<B, F>) -> Result<()> {
        expect([a, &*t].map(sizes), self.sizes)?;
        be.transpose_numeric(gate, &self.plan, a.resident(), t.resident_mut())
    }

    /// The plan on the device.
    pub fn plan(&self) -> &B::TransposePlan {
        &self.plan
    }
}

/// Compares rows, columns and entries of A and A^T with those of the symbolic phase.
///
/// # Errors
/// [`crate::Error::Shape`] that names the matrix.
pub fn expect(found: [(usize, usize, usize); 2], wanted: [(usize, usize, usize); 2]) -> Result<()> {
    let what =
        [["a column of A", "a row of A", "the values of A"], ["a column of A^T", "a row of A^T", "the values of A^T"]];
    expect_sizes("transpose", what, found, wanted)
}
