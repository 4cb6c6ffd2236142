//! The two triangular solves of a symmetric Gauss-Seidel step, with any plan.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Backend, Gate, Load, Order, Sptrsv, Tri};
use spandrel_formats::Real;
pub use spandrel_sptrsv::triangle::Halves;
use spandrel_sptrsv::{Plan, System, Systems, Triangular};

use crate::Result;

/// Solves with the [`Halves`] of one grid on a device.
///
/// # Safety
/// As that of [`spandrel_backend::Operator`]: the solves are recorded.
pub unsafe trait Smoother<T: Real, B: Backend<T>>: Send + Sync {
    /// x <- (I + D^-1 L)^-1 b. Enqueues; may be recorded.
    fn lower(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &mut B::Vector) -> spandrel_backend::Result<()>;
    /// As [`Smoother::lower`], where x holds b at the start.
    fn lower_in_place(&self, be: &B, gate: Gate<'_, B>, x: &mut B::Vector) -> spandrel_backend::Result<()>;
    /// x <- (I + D^-1 U)^-1 b. Enqueues; may be recorded.
    fn upper(&self, be: &B, gate: Gate<'_, B>, b: &B::Vector, x: &mut B::Vector) -> spandrel_backend::Result<()>;
    /// Takes new values of its [`Halves`], on the same pattern. Addresses stay the same. Blocks. Must not be recorded.
    ///
    /// # Errors
    /// A backend that fails.
    fn update(&mut self, be: &B, halves: &Halves<T>) -> Result<()>;
    /// The triangles I + D^-1 L and I + D^-1 U, for their patterns.
    fn triangles(&self) -> [&Triangular<T>; 2];
    /// The plan of both solves, [`Plan::NAME`].
    fn plan(&self) -> &'static str;
    /// The number of entries of both.
    fn nnz(&self) -> usize;
    /// The bytes that one solve with each must move.
    fn bytes(&self) -> u64;
    /// Whether both solves have the bits of [`spandrel_sptrsv::serial`] on this device, and so on every backend.
    fn is_stored_order(&self, be: &B) -> bool;
}

/// A [`Smoother`] by the plan `P`.
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
    /// Analyses both triangles and loads them.
    ///
    /// # Errors
    /// Those of [`Plan::analyze`], as [`crate::Error::Triangle`]; a backend that fails or has no schedule for the grid.
    pub fn new(be: &B, halves: &Halves<P::Value>) -> Result<Self> {
        let load =
            |triangle: &Arc<_>| -> Result<_> { Ok(Tri::load(be, P::analyze(Arc::clone(triangle), Systems::Plain)?)?) };
        Ok(Self { lower: load(&halves.lower)?, upper: load(&halves.upper)? })
    }
}

// SAFETY: its buffers are those of the two residents, which are never replaced; only `update` writes to them. The
// contract of `Load` holds for solves with them.
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
    fn update(&mut self, be: &B, halves: &Halves<P::Value>) -> Result<()> {
        self.lower.update(be, halves.lower.csr().values())?;
        Ok(self.upper.update(be, halves.upper.csr().values())?)
    }
    fn triangles(&self) -> [&Triangular<P::Value>; 2] {
        [self.lower.plan().matrix(), self.upper.plan().matrix()]
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
