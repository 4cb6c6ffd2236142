//! The product C = A B of sparse matrices on the device: a symbolic phase once per pattern, and a numeric phase for
//! every set of values.

use std::fmt;

use spandrel_formats::Format;

use crate::error::{expect_len, expect_sizes};
use crate::ops::{Backend, Converted, Load};
use crate::{Gate, Mat, Result};

/// Multiplies sparse matrices that are on the device.
///
/// C has an entry wherever a product of two entries falls, even if the sum is zero. Every entry is summed from +0 by
/// `fma` over the entries of A's row, in stored order ([`crate::Order::Stored`]), on every device. So pattern and
/// values have the bits of [`spandrel_formats::product`].
///
/// A, B and C may not share memory: C is written while A and B are read.
#[doc(alias = "matmul")]
#[doc(alias = "spmspm")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not multiply matrices in the format `{F}` with each other",
    note = "CSR offers it; convert other formats to CSR first"
)]
pub trait Spgemm<F: Format>: Load<F> + Backend<F::Value> {
    /// What the numeric phase needs. Threads may share it.
    type SpgemmPlan: Send + Sync + 'static;

    /// Finds the pattern of C. Returns C with all values +0, and the plan, which serves all matrices with the patterns
    /// of A and B. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// - [`crate::Error::Shape`] unless A has as many columns as B has rows.
    /// - [`crate::Error::Format`] with [`spandrel_formats::Error::TooLarge`] if C has 2^31 entries or more.
    /// - [`crate::Error::OutOfMemory`]; [`crate::Error::Device`] while a step is being recorded.
    fn spgemm_symbolic(
        &self,
        a: &Self::Resident,
        b: &Self::Resident,
    ) -> Result<(Converted<Self::Resident>, Self::SpgemmPlan)>;

    /// Computes the values of C. The matrices have the patterns of the symbolic phase; this is not checked beyond their
    /// sizes, and other patterns give other numbers. Allocates nothing on a GPU; may be recorded.
    ///
    /// Addresses stay the same, so recorded steps that use C continue with the new values.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless every matrix has the rows, columns and number of entries of the symbolic phase,
    /// with C unchanged; [`crate::Error::OutOfMemory`] of a backend in host memory.
    fn spgemm_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::SpgemmPlan,
        a: &Self::Resident,
        b: &Self::Resident,
        c: &mut Self::Resident,
    ) -> Result<()>;
}

/// The plan of a product of matrices on a device, with the sizes of the matrices. [`Mat::spgemm`] makes it.
pub struct MatProduct<B: Spgemm<F>, F: Format> {
    plan: B::SpgemmPlan,
    sizes: [(usize, usize, usize); 3],
}

impl<B: Spgemm<F>, F: Format> fmt::Debug for MatProduct<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MatProduct").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

impl<F: Format, B: Spgemm<F>> Mat<B, F> {
    /// Returns C = A B, where this matrix is A, and the plan that computes C again for other values. Blocks; must not
    /// be recorded.
    ///
    /// # Errors
    /// As [`Spgemm::spgemm_symbolic`].
    #[doc(alias = "matmul")]
    pub fn spgemm(&self, be: &B, b: &Self) -> Result<(Self, MatProduct<B, F>)> {
        expect_inner(self.ncols(), b.nrows())?;
        let (made, plan) = be.spgemm_symbolic(self.resident(), b.resident())?;
        // SAFETY: `Spgemm` makes a matrix with the rows of A and the columns of B.
        let mut c = unsafe { Self::from_resident(self.nrows(), b.ncols(), made) };
        let product = MatProduct { plan, sizes: [self, b, &c].map(sizes) };
        product.numeric(be, None, self, b, &mut c)?;
        Ok((c, product))
    }
}

impl<B: Spgemm<F>, F: Format> MatProduct<B, F> {
    /// Computes the values of C = A B on the same patterns. See [`Spgemm::spgemm_numeric`].
    ///
    /// # Errors
    /// As [`Spgemm::spgemm_numeric`].
    pub fn numeric(&self, be: &B, gate: Gate<'_, B>, a: &Mat<B, F>, b: &Mat<B, F>, c: &mut Mat<B, F>) -> Result<()> {
        expect([a, b, &*c].map(sizes), self.sizes)?;
        be.spgemm_numeric(gate, &self.plan, a.resident(), b.resident(), c.resident_mut())
    }

    /// The plan on the device.
    pub fn plan(&self) -> &B::SpgemmPlan {
        &self.plan
    }
}

/// Rows, columns and entries.
pub(crate) fn sizes<B: Load<F>, F: Format>(m: &Mat<B, F>) -> (usize, usize, usize) {
    (m.nrows(), m.ncols(), m.nnz())
}

/// Returns `Ok` if A has as many columns as B has rows.
///
/// # Errors
/// [`crate::Error::Shape`].
pub fn expect_inner(ncols: usize, nrows: usize) -> Result<()> {
    expect_len("spgemm", "a row of A", ncols, nrows)
}

/// Compares rows, columns and entries of A, B and C with those of the symbolic phase.
///
/// # Errors
/// [`crate::Error::Shape`] that names the matrix.
pub fn expect(found: [(usize, usize, usize); 3], wanted: [(usize, usize, usize); 3]) -> Result<()> {
    let what = [
        ["a column of A", "a row of A", "the values of A"],
        ["a column of B", "a row of B", "the values of B"],
        ["a column of C", "a row of C", "the values of C"],
    ];
    expect_sizes("spgemm", what, found, wanted)
}
