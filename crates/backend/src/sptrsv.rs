//! The triangular solve: the operation, and the type that checks its sizes.

use std::fmt;
use std::sync::Arc;

use spandrel_sptrsv::{Diagonal, Plan, System, Systems, Triangle};

use crate::error::{expect_columns, expect_len};
use crate::{Backend, Error, Gate, Load, Order, Result};

/// x <- T^-1 b (or T^-T b) by one plan.
///
/// The state of a plan on the device (flags, tickets, epochs) belongs to the resident. The kernels advance it
/// themselves, so a replayed graph continues where the last solve ended and the host clears nothing between solves. The
/// queue orders two solves with one resident.
#[doc(alias = "trsv")]
#[doc(alias = "spsv")]
#[doc(alias = "trisolve")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not solve triangles by the plan `{P}`",
    note = "in generic code bound the device by `Sptrsv<{P}>`, or by `EveryPlan<T>` for the plans of the registry"
)]
pub trait Sptrsv<P: Plan>: Load<P> + Backend<P::Value> {
    /// The order in which a row of this system is summed on this device. [`Order::Stored`] is the order of
    /// [`spandrel_sptrsv::serial`] and gives its bits.
    fn sptrsv_order(&self, m: &Self::Resident, system: System) -> Order;

    /// Computes x <- T^-1 b, or T^-T b, for `k` right-hand sides. `b` and `x` are tall column-major blocks of `nrows *
    /// k` elements in one vector each.
    ///
    /// The old x is not read. Each column has the same bits as a solve of that column by itself. Enqueues; may be
    /// recorded.
    ///
    /// # Errors
    /// - [`Error::Shape`] unless b and x have `nrows * k` elements; x is then unchanged.
    /// - [`Error::Unsupported`], or [`Error::Triangle`] with [`spandrel_sptrsv::Error::NotAnalyzed`], for a transposed
    ///   system if the plan was analysed for the plain one. [`Tri`] returns the former for every plan.
    /// - [`Error::Device`] if the device fails.
    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()>;

    /// As [`Sptrsv::sptrsv`], with b given in x. The bits are the same.
    ///
    /// # Errors
    /// As [`Sptrsv::sptrsv`].
    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        x: &mut Self::Vector,
    ) -> Result<()>;

    /// Takes over the values of a plan that [`Plan::update`] has changed since it was loaded; the pattern must be that
    /// of the resident. Addresses stay the same, so recorded steps see the new values. Must not be recorded.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the plan has as many rows and entries as the resident.
    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()>;

    /// As [`Sptrsv::update`], with values that are on the device, in the order of the triangle's stored entries.
    ///
    /// `plan` is that of the resident; it supplies the pattern and keeps its own values. The result has the same bits
    /// as an update with these values from the host. Enqueues, and allocates the first time; must not be recorded.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as entries; [`Error::OutOfMemory`]. A backend with the values
    /// in host memory refuses a zero on the diagonal and leaves the resident unchanged. On other backends the
    /// reciprocal of that zero is infinite.
    fn update_from(&self, m: &mut Self::Resident, plan: &Arc<P>, values: &Self::Vector) -> Result<()>;
}

/// A triangle on a device: its resident form and what the host keeps of it.
///
/// The host keeps the plan, or only its [`crate::analyze::Sizes`] if the plan was made on the device
/// ([`crate::ResidentTri`]).
pub struct Tri<B: Load<P>, P, H = Arc<P>> {
    pub(crate) resident: B::Resident,
    pub(crate) nrows: usize,
    pub(crate) triangle: Triangle,
    pub(crate) diagonal: Diagonal,
    pub(crate) systems: Systems,
    pub(crate) host: H,
}

impl<B: Load<P>, P: Plan, H> fmt::Debug for Tri<B, P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tri")
            .field("plan", &P::NAME)
            .field("nrows", &self.nrows)
            .field("triangle", &self.triangle)
            .field("diagonal", &self.diagonal)
            .finish_non_exhaustive()
    }
}

impl<B: Load<P>, P: Plan, H> Tri<B, P, H> {
    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }
    /// Which triangle.
    pub fn triangle(&self) -> Triangle {
        self.triangle
    }
    /// What the diagonal holds.
    pub fn diagonal(&self) -> Diagonal {
        self.diagonal
    }
    /// The systems for which it was analysed.
    pub fn systems(&self) -> Systems {
        self.systems
    }
    /// The resident form.
    pub fn resident(&self) -> &B::Resident {
        &self.resident
    }
}

impl<B: Load<P>, P: Plan> Tri<B, P> {
    /// Loads a plan. Blocks while it is copied; must not be recorded.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Unsupported`].
    pub fn load(be: &B, plan: impl Into<Arc<P>>) -> Result<Self> {
        let host = plan.into();
        let resident = be.load(Arc::clone(&host))?;
        let (nrows, triangle, diagonal, systems) = (host.nrows(), host.triangle(), host.diagonal(), host.systems());
        Ok(Self { resident, nrows, triangle, diagonal, systems, host })
    }
    /// The plan.
    pub fn plan(&self) -> &Arc<P> {
        &self.host
    }
}

impl<P: Plan, B: Sptrsv<P>, H> Tri<B, P, H> {
    /// Checks that the operands have `k` columns and that the plan was analysed for `system`.
    ///
    /// # Errors
    /// [`Error::Shape`] for the first wrong length; then [`Error::Unsupported`].
    fn check<const N: usize>(&self, system: System, k: usize, lengths: [(&'static str, usize); N]) -> Result<()> {
        lengths.into_iter().try_for_each(|(what, found)| expect_columns("sptrsv", what, found, self.nrows, k))?;
        if self.systems.hold(system) {
            return Ok(());
        }
        Err(Error::Unsupported { op: "sptrsv", noun: P::NAME, why: spandrel_sptrsv::Error::NotAnalyzed.to_string() })
    }

    /// x <- T^-1 b or T^-T b, after a check of the sizes. See [`Sptrsv::sptrsv`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless b and x have `nrows` elements; [`Error::Unsupported`].
    pub fn sptrsv(&self, be: &B, gate: Gate<'_, B>, system: System, b: &B::Vector, x: &mut B::Vector) -> Result<()> {
        self.check(system, 1, [("b", be.len(b)), ("x", be.len(x))])?;
        be.sptrsv(gate, system, &self.resident, 1, b, x)
    }

    /// As [`Tri::sptrsv`], with b given in x.
    ///
    /// # Errors
    /// As [`Tri::sptrsv`].
    pub fn sptrsv_in_place(&self, be: &B, gate: Gate<'_, B>, system: System, x: &mut B::Vector) -> Result<()> {
        self.check(system, 1, [("x", be.len(x))])?;
        be.sptrsv_in_place(gate, system, &self.resident, 1, x)
    }

    /// Solves for `k` right-hand sides, after a check of the sizes. See [`Sptrsv::sptrsv`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless B and X have `nrows * k` elements; [`Error::Unsupported`].
    pub fn sptrsv_columns(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        system: System,
        k: usize,
        b: &B::Vector,
        x: &mut B::Vector,
    ) -> Result<()> {
        self.check(system, k, [("B", be.len(b)), ("X", be.len(x))])?;
        be.sptrsv(gate, system, &self.resident, k, b, x)
    }
}

impl<P: Plan, B: Sptrsv<P>> Tri<B, P> {
    /// Sets new values, in the order of the triangle's stored entries, without a new analysis. Blocks; must not be
    /// recorded.
    ///
    /// # Errors
    /// [`Error::Triangle`] for a zero on the diagonal or a wrong number of values; nothing is then changed.
    pub fn update(&mut self, be: &B, values: &[P::Value]) -> Result<()> {
        Arc::make_mut(&mut self.host).update(values)?;
        be.update(&mut self.resident, &self.host)
    }

    /// Sets new values from the device, after a check of the sizes. [`Tri::plan`] keeps its old values. See
    /// [`Sptrsv::update_from`].
    ///
    /// # Errors
    /// As [`Sptrsv::update_from`].
    pub fn update_from(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        expect_len("update", "values", be.len(values), self.host.matrix().csr().values().len())?;
        be.update_from(&mut self.resident, &self.host, values)
    }
}
