//! A matrix on a device with its shape: the type that checks sizes.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use spandrel_formats::{Csr, Format};

use crate::error::{expect_columns, expect_len};
use crate::{Coeff, Convert, Converted, Gate, Load, Narrow, Operator, Result, Spmm, Spmv, SpmvTransposed};

/// A host matrix in format `F` that [`Mat::load`] accepts: by value, shared, or by reference.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a host matrix in the format `{F}`",
    note = "hand over a matrix in a storage format, such as `Csr<f64>`, an `Arc` of it, or a reference to either",
    note = "`Triplets` become one with `to_csr()`, and any format another with `F::from_csr(&csr)`"
)]
pub trait IntoArc<F> {
    /// The matrix, shared.
    fn into_arc(self) -> Arc<F>;
}

impl<F: Format> IntoArc<F> for F {
    fn into_arc(self) -> Arc<F> {
        Arc::new(self)
    }
}

/// Shares the matrix: nothing is copied on the host.
impl<F: Format> IntoArc<F> for Arc<F> {
    fn into_arc(self) -> Arc<F> {
        self
    }
}

/// Shares the matrix: nothing is copied on the host.
impl<F: Format> IntoArc<F> for &Arc<F> {
    fn into_arc(self) -> Arc<F> {
        Arc::clone(self)
    }
}

/// Copies the matrix; a backend in host memory keeps the copy. Pass an [`Arc`] to avoid it.
impl<F: Format> IntoArc<F> for &F {
    fn into_arc(self) -> Arc<F> {
        Arc::new(self.clone())
    }
}

/// A matrix on a device: its resident form and its shape. Its methods check the sizes of their operands.
pub struct Mat<B: Load<F>, F> {
    resident: B::Resident,
    nrows: usize,
    ncols: usize,
    nnz: usize,
    storage: u64,
    spmv_bytes: u64,
}

impl<B: Load<F>, F> fmt::Debug for Mat<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mat")
            .field("nrows", &self.nrows)
            .field("ncols", &self.ncols)
            .field("nnz", &self.nnz)
            .field("storage", &self.storage)
            .finish_non_exhaustive()
    }
}

impl<B: Narrow> Mat<B, Csr<f64>> {
    /// Makes 2^-e A in f32 on the device and returns it with e; this matrix stays. Blocks; must not be recorded. See
    /// [`Narrow::narrow`].
    ///
    /// # Errors
    /// As [`Narrow::narrow`].
    #[allow(clippy::type_complexity)] // as there
    pub fn narrow(&self, be: &B) -> Result<Option<(Mat<B, Csr<f32>>, i32)>> {
        let Some((resident, exponent)) = be.narrow(&self.resident)? else { return Ok(None) };
        let Self { nrows, ncols, nnz, .. } = *self;
        let (wide, narrow) = (size_of::<f64>() as u64, size_of::<f32>() as u64);
        let storage = self.storage - (wide - narrow) * nnz as u64;
        let spmv_bytes = self.spmv_bytes - (wide - narrow) * (nnz + nrows + ncols) as u64;
        Ok(Some((Mat { resident, nrows, ncols, nnz, storage, spmv_bytes }, exponent)))
    }
}

impl<B: Load<F>, F: Format> Mat<B, F> {
    /// Loads a host matrix, given by value, as an [`Arc`], or as a reference to either if the caller still needs it.
    /// See [`IntoArc`]. Blocks while it is copied; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Unsupported`].
    #[doc(alias = "upload")]
    #[doc(alias = "to_device")]
    pub fn load(be: &B, host: impl IntoArc<F>) -> Result<Self> {
        let host = host.into_arc();
        let (nrows, ncols, nnz, of_host) =
            (host.nrows(), host.ncols(), host.nnz(), (host.storage(), host.spmv_bytes()));
        let resident = be.load(host)?;
        let (storage, spmv_bytes) = be.traffic(&resident).unwrap_or(of_host);
        Ok(Self { resident, nrows, ncols, nnz, storage, spmv_bytes })
    }

    /// Wraps a matrix that is already on the device, with the sizes that the backend states. Does nothing else.
    ///
    /// # Safety
    /// `made` is a matrix with `nrows` rows and `ncols` columns that meets the invariants of the format and has the
    /// stated number of entries. Operations rely on this and index without checks. If `made` borrows somebody else's
    /// memory, that memory is as the backend requires.
    pub unsafe fn from_resident(nrows: usize, ncols: usize, made: Converted<B::Resident>) -> Self {
        let Converted { resident, nnz, storage, spmv_bytes } = made;
        Self { resident, nrows, ncols, nnz, storage, spmv_bytes }
    }

    /// Converts the matrix to another format on the device; this one stays. Blocks; must not be recorded. See
    /// [`Convert`].
    ///
    /// # Errors
    /// As [`Convert::convert`].
    pub fn convert<G>(&self, be: &B) -> Result<Mat<B, G>>
    where
        G: Format<Value = F::Value>,
        B: Convert<F, G>,
    {
        let made = <B as Convert<F, G>>::convert(be, &self.resident)?;
        // SAFETY: `Convert` makes the same matrix.
        Ok(unsafe { Mat::from_resident(self.nrows, self.ncols, made) })
    }

    /// As [`Mat::convert`], given the conversion of a matrix that may have the same pattern. It is faster on a GPU if
    /// this matrix has the memory of that pattern: if it is the same matrix with new values, or shares its pattern.
    /// Blocks; must not be recorded. See [`Convert::convert_like`].
    ///
    /// # Errors
    /// As [`Convert::convert`].
    pub fn convert_like<G>(&self, be: &B, like: &Mat<B, G>) -> Result<Mat<B, G>>
    where
        G: Format<Value = F::Value>,
        B: Convert<F, G>,
    {
        let made = <B as Convert<F, G>>::convert_like(be, &self.resident, &like.resident)?;
        // SAFETY: as above.
        Ok(unsafe { Mat::from_resident(self.nrows, self.ncols, made) })
    }

    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }
    /// Number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }
    /// Number of entries.
    pub fn nnz(&self) -> usize {
        self.nnz
    }
    /// Bytes of the stored arrays: those of the format, or as [`Load::traffic`] says.
    pub fn storage(&self) -> u64 {
        self.storage
    }
    /// Bytes of y = A x: those of the format's traffic model, or as [`Load::traffic`] says.
    pub fn spmv_bytes(&self) -> u64 {
        self.spmv_bytes
    }
    /// Returns [`Load::is_narrow`]: true if f64 values are kept in f32.
    pub fn is_narrow(&self, be: &B) -> bool {
        be.is_narrow(&self.resident)
    }
    /// The resident form.
    pub fn resident(&self) -> &B::Resident {
        &self.resident
    }
    pub(crate) fn resident_mut(&mut self) -> &mut B::Resident {
        &mut self.resident
    }
    /// Takes over the number of entries and the bytes of a matrix with the same values.
    pub(crate) fn take_sizes(&mut self, of: &Self) {
        (self.nnz, self.storage, self.spmv_bytes) = (of.nnz, of.storage, of.spmv_bytes);
    }
    /// Takes over the number of entries of new values.
    pub(crate) fn take_entries(&mut self, nnz: usize) {
        self.nnz = nnz;
    }
}

impl<F: Format, B: Spmv<F>> Mat<B, F> {
    /// y <- a A x + b y, after a check of the sizes. See [`Spmv::spmv`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless x has `ncols` and y `nrows` elements.
    pub fn spmv(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        a: Coeff<'_, F::Value, B::Scalar>,
        x: &B::Vector,
        b: Coeff<'_, F::Value, B::Scalar>,
        y: &mut B::Vector,
    ) -> Result<()> {
        expect_len("spmv", "x", be.len(x), self.ncols)?;
        expect_len("spmv", "y", be.len(y), self.nrows)?;
        be.spmv(gate, a, &self.resident, x, b, y)
    }
}

impl<F: Format, B: SpmvTransposed<F>> Mat<B, F> {
    /// y <- a A^T x + b y, after a check of the sizes. See [`SpmvTransposed::spmv_transposed`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless x has `nrows` and y `ncols` elements.
    pub fn spmv_transposed(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        a: Coeff<'_, F::Value, B::Scalar>,
        x: &B::Vector,
        b: Coeff<'_, F::Value, B::Scalar>,
        y: &mut B::Vector,
    ) -> Result<()> {
        expect_len("spmv_transposed", "x", be.len(x), self.nrows)?;
        expect_len("spmv_transposed", "y", be.len(y), self.ncols)?;
        be.spmv_transposed(gate, a, &self.resident, x, b, y)
    }
}

impl<F: Format, B: Spmm<F>> Mat<B, F> {
    /// Y <- a A X + b Y for `k` columns, after a check of the sizes. See [`Spmm::spmm`].
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless X has `ncols * k` and Y `nrows * k` elements.
    pub fn spmm(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        a: Coeff<'_, F::Value, B::Scalar>,
        k: usize,
        x: &B::Vector,
        b: Coeff<'_, F::Value, B::Scalar>,
        y: &mut B::Vector,
    ) -> Result<()> {
        expect_columns("spmm", "X", be.len(x), self.ncols, k)?;
        expect_columns("spmm", "Y", be.len(y), self.nrows, k)?;
        be.spmm(gate, a, &self.resident, k, x, b, y)
    }
}

// SAFETY: the matrix is its resident, which is never replaced. The operations are the backend's operations on it, to
// which the contract of `Load` applies.
unsafe impl<F: Format, B: Spmv<F>> Operator<F::Value, B> for Mat<B, F> {
    fn shape(&self) -> (usize, usize) {
        (self.nrows, self.ncols)
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
        self.spmv(be, gate, Coeff::one(), x, Coeff::zero(), y)
    }
    fn apply_dot(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        x: &B::Vector,
        y: &mut B::Vector,
        w: &B::Vector,
        wy: &mut B::Scalar,
        yy: Option<&mut B::Scalar>,
    ) -> Result<()> {
        expect_len("spmv_dot", "x", be.len(x), self.ncols)?;
        expect_len("spmv_dot", "y", be.len(y), self.nrows)?;
        expect_len("spmv_dot", "w", be.len(w), self.nrows)?;
        be.spmv_dot(gate, &self.resident, x, y, w, wy, yy)
    }
    fn residual(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &B::Vector, r: &mut B::Vector) -> Result<()> {
        expect_len("residual", "b", be.len(b), self.nrows)?;
        expect_len("residual", "x", be.len(x), self.ncols)?;
        expect_len("residual", "r", be.len(r), self.nrows)?;
        be.residual(gate, &self.resident, b, x, r)
    }
    fn stored(&self) -> Option<&dyn Any> {
        Some(&self.resident)
    }
}
