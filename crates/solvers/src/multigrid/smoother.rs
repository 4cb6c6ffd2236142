//! The two solves of a symmetric Gauss-Seidel step, apart from each other, by any plan.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Backend, Gate, Load, Order, Sptrsv, Tri};
use spandrel_formats::{Csr, Format, Offset, Real};
use spandrel_sptrsv::{Diagonal, Plan, System, Systems, Triangle, Triangular};

use crate::Result;

/// I + D^-1 L and I + D^-1 U of A = L + D + U, ones not stored.
#[derive(Clone, Debug)]
pub struct Halves<T> {
    /// I + D^-1 L.
    pub lower: Arc<Triangular<T>>,
    /// I + D^-1 U.
    pub upper: Arc<Triangular<T>>,
}

impl<T: Real> Halves<T> {
    /// Takes strict triangles and divides their rows by `diagonal`.
    pub(super) fn new(lower: Csr<T>, upper: Csr<T>, diagonal: &[T]) -> Result<Self> {
        let half = |mut csr: Csr<T>, triangle| -> Result<_> {
            scale_rows(&mut csr, |i| diagonal[i]);
            Ok(Arc::new(Triangular::new(csr, triangle, Diagonal::Unit)?))
        };
        Ok(Self { lower: half(lower, Triangle::Lower)?, upper: half(upper, Triangle::Upper)? })
    }
}

/// Divides the rows of a matrix, each value rounded once.
pub(super) fn scale_rows<T: Real>(csr: &mut Csr<T>, divisor: impl Fn(usize) -> T) {
    let row_ptr: Vec<Offset> = csr.row_ptr().to_vec();
    let values = csr.values_mut();
    for (i, ends) in row_ptr.windows(2).enumerate() {
        let d = divisor(i);
        values[ends[0] as usize..ends[1] as usize].iter_mut().for_each(|v| *v /= d);
    }
}

/// The entries below (or above) the diagonal.
pub(super) fn strict<T: Real>(a: &Csr<T>, triangle: Triangle) -> Result<Csr<T>> {
    let n = a.nrows();
    let mut row_ptr: Vec<Offset> = Vec::with_capacity(n + 1);
    let (mut col_idx, mut values) = (Vec::with_capacity(a.nnz() / 2), Vec::with_capacity(a.nnz() / 2));
    row_ptr.push(0);
    for i in 0..n {
        let (cols, vals) = a.row(i);
        let kept = match triangle {
            Triangle::Lower => 0..cols.partition_point(|&j| (j as usize) < i),
            Triangle::Upper => cols.partition_point(|&j| j as usize <= i)..cols.len(),
        };
        col_idx.extend_from_slice(&cols[kept.clone()]);
        values.extend_from_slice(&vals[kept]);
        row_ptr.push(col_idx.len() as Offset);
    }
    Ok(Csr::new(n, n, row_ptr, col_idx, values)?)
}

/// Solves with the [`Halves`] of one grid on a device.
///
/// # Safety
/// As that of [`spandrel_backend::Operator`]: the solves are recorded.
pub unsafe trait Smoother<T: Real, B: Backend<T>> {
    /// x <- (I + D^-1 L)^-1 b. Enqueues; may be recorded.
    fn lower(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &mut B::Vector) -> spandrel_backend::Result<()>;
    /// As [`Smoother::lower`] with b in x.
    fn lower_in_place(&self, be: &B, gate: Gate<'_, B>, x: &mut B::Vector) -> spandrel_backend::Result<()>;
    /// x <- (I + D^-1 U)^-1 b. Enqueues; may be recorded.
    fn upper(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &mut B::Vector) -> spandrel_backend::Result<()>;
    /// The plan of both, [`Plan::NAME`].
    fn plan(&self) -> &'static str;
    /// Entries of both.
    fn nnz(&self) -> usize;
    /// Compulsory bytes of one solve with each.
    fn bytes(&self) -> u64;
    /// Whether both solves have the bits of [`spandrel_sptrsv::serial`] on this device, and so of every backend.
    fn is_stored_order(&self, be: &B) -> bool;
}

/// [`Smoother`] by the plan `P`.
pub struct Planned<B: Load<P>, P> {
    lower: Tri<B, P>,
    upper: Tri<B, P>,
}

impl<B: Load<P>, P: Plan> fmt::Debug for Planned<B, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned").field("lower", &self.lower).field("upper", &self.upper).finish()
    }
}

impl<P: Plan, B: Sptrsv<P>> Planned<B, P> {
    /// Analyses both triangles and brings them onto the device.
    ///
    /// # Errors
    /// Those of [`Plan::analyze`], as [`crate::Error::Triangle`]; a backend that fails, or has no schedule for the grid.
    pub fn new(be: &B, halves: &Halves<P::Value>) -> Result<Self> {
        let load =
            |triangle: &Arc<_>| -> Result<_> { Ok(Tri::load(be, P::analyze(Arc::clone(triangle), Systems::Plain)?)?) };
        Ok(Self { lower: load(&halves.lower)?, upper: load(&halves.upper)? })
    }
}

// SAFETY: its buffers are those of the two residents, which are never replaced; the contract of `Load` holds for solves with them.
unsafe impl<P: Plan, B: Sptrsv<P>> Smoother<P::Value, B> for Planned<B, P> {
    fn lower(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.lower.sptrsv(be, gate, System::Plain, b, x)
    }
    fn lower_in_place(&self, be: &B, gate: Gate<'_, B>, x: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.lower.sptrsv_in_place(be, gate, System::Plain, x)
    }
    fn upper(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.upper.sptrsv(be, gate, System::Plain, b, x)
    }
    fn plan(&self) -> &'static str {
        P::NAME
    }
    fn nnz(&self) -> usize {
        self.lower.plan().matrix().csr().nnz() + self.upper.plan().matrix().csr().nnz()
    }
    fn bytes(&self) -> u64 {
        self.lower.plan().sptrsv_bytes() + self.upper.plan().sptrsv_bytes()
    }
    fn is_stored_order(&self, be: &B) -> bool {
        [&self.lower, &self.upper].iter().all(|tri| be.sptrsv_order(tri.resident(), System::Plain) == Order::Stored)
    }
}
