//! Validation, once: a matrix with its shape, and what a solver sees of it.

use std::fmt;
use std::sync::Arc;

use spandrel_formats::{Csr, Format, Real};

use crate::error::{expect_columns, expect_len};
use crate::{Backend, Coeff, Convert, Converted, Gate, Load, Narrow, Result, Spmm, Spmv, SpmvTransposed};

/// A linear map as solvers see it: y <- A x on a backend.
///
/// Shapes: what A is applied to has as many elements as A has columns, the result as many as A has rows. A solver compares
/// [`Operator::shape`] with its vectors once, before it begins.
///
/// # Errors
/// Those of the operations that it enqueues; [`crate::Error::Shape`] for operands of other lengths, with the outputs as they were.
///
/// # Safety
/// Its operations are recorded with the iteration that calls them. So each call of one of them enqueues the same work on the operands and on
/// the same buffers of the operator's own, and these are neither freed nor moved while the operator is borrowed, also not through interior
/// mutability: a captured graph has their addresses. An operation that cannot keep to this fails while it is recorded.
pub unsafe trait Operator<T: Real, B: Backend<T>> {
    /// (rows, columns).
    fn shape(&self) -> (usize, usize);

    /// y <- A x, y as a whole: it is not read. Enqueues; may be recorded; nothing is written where the gate is closed. Order and so bits are
    /// the operator's own: a stored matrix has those of [`Spmv::order`].
    fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()>;

    /// y <- A x; wy <- w . y; where asked for, yy <- y . y; w has the length of y. The default is the specification: an override has its bits.
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
        self.apply(be, gate, x, y)?;
        be.dot(gate, w, y, wy)?;
        match yy {
            Some(yy) => be.dot(gate, y, y, yy),
            None => Ok(()),
        }
    }

    /// r <- b - A x. The default forms A x first and subtracts it; a stored matrix does both in one pass.
    fn residual(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &B::Vector, r: &mut B::Vector) -> Result<()> {
        self.apply(be, gate, x, r)?;
        be.axpby(gate, Coeff::one(), b, Coeff::host(-T::one()), r)
    }

    /// Up to `count` iterations of CG without a preconditioner at once, or false and nothing done, as the default does. See
    /// [`Spmv::cg_iterations`].
    fn cg_iterations(
        &self,
        be: &B,
        count: usize,
        x: &mut B::Vector,
        r: &mut B::Vector,
        p: &mut B::Vector,
        q: &mut B::Vector,
        pq: &mut B::Scalar,
        rr: &mut B::Scalar,
        rz: &mut B::Scalar,
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        let _ = (be, count, x, r, p, q, pq, rr, rz, monitor);
        Ok(false)
    }

    /// As [`Operator::cg_iterations`] for BiCGStab. See [`Spmv::bicgstab_iterations`].
    fn bicgstab_iterations(
        &self,
        be: &B,
        count: usize,
        shadow: &B::Vector,
        x: &mut B::Vector,
        r: &mut B::Vector,
        p: &mut B::Vector,
        v: &mut B::Vector,
        t: &mut B::Vector,
        scalars: [&mut B::Scalar; 7],
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        let _ = (be, count, shadow, x, r, p, v, t, scalars, monitor);
        Ok(false)
    }
}

// SAFETY: every operation is that of what the box holds, whose buffers do not move with it.
unsafe impl<T: Real, B: Backend<T>, A: Operator<T, B> + ?Sized> Operator<T, B> for Box<A> {
    fn shape(&self) -> (usize, usize) {
        (**self).shape()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
        (**self).apply(be, gate, x, y)
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
        (**self).apply_dot(be, gate, x, y, w, wy, yy)
    }
    fn residual(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &B::Vector, r: &mut B::Vector) -> Result<()> {
        (**self).residual(be, gate, b, x, r)
    }
    fn cg_iterations(
        &self,
        be: &B,
        count: usize,
        x: &mut B::Vector,
        r: &mut B::Vector,
        p: &mut B::Vector,
        q: &mut B::Vector,
        pq: &mut B::Scalar,
        rr: &mut B::Scalar,
        rz: &mut B::Scalar,
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        (**self).cg_iterations(be, count, x, r, p, q, pq, rr, rz, monitor)
    }
    fn bicgstab_iterations(
        &self,
        be: &B,
        count: usize,
        shadow: &B::Vector,
        x: &mut B::Vector,
        r: &mut B::Vector,
        p: &mut B::Vector,
        v: &mut B::Vector,
        t: &mut B::Vector,
        scalars: [&mut B::Scalar; 7],
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        (**self).bicgstab_iterations(be, count, shadow, x, r, p, v, t, scalars, monitor)
    }
}

/// M^-1 as solvers see it: z <- M^-1 r, both of [`Preconditioner::len`] elements. CG needs it symmetric and positive definite.
///
/// # Errors
/// Those of the operations that it enqueues.
///
/// # Safety
/// As that of [`Operator`]: it is recorded too, and [`Preconditioner::is_identity`] does not change.
#[allow(clippy::len_without_is_empty)] // a size that it fits, not a count of what it holds
pub unsafe trait Preconditioner<T: Real, B: Backend<T>> {
    /// Number of rows it fits, or `None` for any.
    fn len(&self) -> Option<usize>;
    /// Whether it is the identity, so that a solver may use r in the place of z.
    fn is_identity(&self) -> bool {
        false
    }
    /// z <- M^-1 r, z as a whole: it is not read. Enqueues; may be recorded; nothing is written where the gate is closed.
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> Result<()>;
    /// z <- M^-1 r; rz <- r . z. The default is the specification: an override has its bits.
    fn apply_dot(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector, rz: &mut B::Scalar) -> Result<()> {
        self.apply(be, gate, r, z)?;
        be.dot(gate, r, z, rz)
    }
}

// SAFETY: every operation is that of what the box holds, whose buffers do not move with it.
unsafe impl<T: Real, B: Backend<T>, M: Preconditioner<T, B> + ?Sized> Preconditioner<T, B> for Box<M> {
    fn len(&self) -> Option<usize> {
        (**self).len()
    }
    fn is_identity(&self) -> bool {
        (**self).is_identity()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> Result<()> {
        (**self).apply(be, gate, r, z)
    }
    fn apply_dot(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector, rz: &mut B::Scalar) -> Result<()> {
        (**self).apply_dot(be, gate, r, z, rz)
    }
}

/// A matrix on a device: its resident form and its shape. The place where sizes are checked.
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
    /// 2^-e of the same matrix in f32, and e, made on the device; this one stays. Blocks; may not be recorded. See [`Narrow::narrow`].
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
    /// Loads a host matrix (owned, or an `Arc` of one that stays in use). Blocks as the copy does; may not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Unsupported`].
    pub fn load(be: &B, host: impl Into<Arc<F>>) -> Result<Self> {
        let host = host.into();
        let (nrows, ncols, nnz, of_host) =
            (host.nrows(), host.ncols(), host.nnz(), (host.storage(), host.spmv_bytes()));
        let resident = be.load(host)?;
        let (storage, spmv_bytes) = be.traffic(&resident).unwrap_or(of_host);
        Ok(Self { resident, nrows, ncols, nnz, storage, spmv_bytes })
    }

    /// A matrix of what lies on the device already, with the sizes that the backend says of it. Does nothing else.
    ///
    /// # Safety
    /// `made` is a matrix of the format's invariants with so many rows and columns, and with what it says of its entries: operations index
    /// without a check on the strength of them. What it uses of somebody else's is as the backend asks for.
    pub unsafe fn from_resident(nrows: usize, ncols: usize, made: Converted<B::Resident>) -> Self {
        let Converted { resident, nnz, storage, spmv_bytes } = made;
        Self { resident, nrows, ncols, nnz, storage, spmv_bytes }
    }

    /// The same matrix in another format, made on the device; this one stays. Blocks; may not be recorded. See [`Convert`].
    ///
    /// # Errors
    /// As [`Convert::convert`].
    pub fn convert<G>(&self, be: &B) -> Result<Mat<B, G>>
    where
        G: Format<Value = F::Value>,
        B: Convert<F, G>,
    {
        let made = <B as Convert<F, G>>::convert(be, &self.resident)?;
        // SAFETY: what `Convert` makes is the same matrix.
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
    /// Bytes of the stored arrays, by the format or as [`Load::traffic`] says.
    pub fn storage(&self) -> u64 {
        self.storage
    }
    /// Bytes of y = A x by the format's traffic model, or as [`Load::traffic`] says.
    pub fn spmv_bytes(&self) -> u64 {
        self.spmv_bytes
    }
    /// As [`Load::is_narrow`] says.
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
}

impl<F: Format, B: Spmv<F>> Mat<B, F> {
    /// y <- a A x + b y, sizes checked. See [`Spmv::spmv`].
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
    /// y <- a A^T x + b y, sizes checked. See [`SpmvTransposed::spmv_transposed`].
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
    /// Y <- a A X + b Y for `k` columns, sizes checked. See [`Spmm::spmm`].
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

// SAFETY: a matrix is its resident, which is not replaced, and the operations are the backend's on it, to which the contract of `Load`
// applies.
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
        be.copy(gate, b, r)?;
        self.spmv(be, gate, Coeff::host(-<F::Value as num_traits::One>::one()), x, Coeff::one(), r)
    }
    fn cg_iterations(
        &self,
        be: &B,
        count: usize,
        x: &mut B::Vector,
        r: &mut B::Vector,
        p: &mut B::Vector,
        q: &mut B::Vector,
        pq: &mut B::Scalar,
        rr: &mut B::Scalar,
        rz: &mut B::Scalar,
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        expect_len("cg_iterations", "p", be.len(p), self.ncols)?;
        for (what, v) in [("x", &*x), ("r", r), ("q", q)] {
            expect_len("cg_iterations", what, be.len(v), self.nrows)?;
        }
        be.cg_iterations(&self.resident, count, x, r, p, q, pq, rr, rz, monitor)
    }
    fn bicgstab_iterations(
        &self,
        be: &B,
        count: usize,
        shadow: &B::Vector,
        x: &mut B::Vector,
        r: &mut B::Vector,
        p: &mut B::Vector,
        v: &mut B::Vector,
        t: &mut B::Vector,
        scalars: [&mut B::Scalar; 7],
        monitor: &mut B::Monitor,
    ) -> Result<bool> {
        expect_len("bicgstab_iterations", "p", be.len(p), self.ncols)?;
        for (what, vector) in [("shadow", shadow), ("x", x), ("r", r), ("v", v), ("t", t)] {
            expect_len("bicgstab_iterations", what, be.len(vector), self.nrows)?;
        }
        be.bicgstab_iterations(&self.resident, count, shadow, x, r, p, v, t, scalars, monitor)
    }
}
