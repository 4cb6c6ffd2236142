//! Triangular solve: the operation, and the place where its sizes are checked.

use std::fmt;
use std::sync::Arc;

use spandrel_sptrsv::{Diagonal, Plan, System, Systems, Triangle};

use crate::error::{expect_columns, expect_len};
use crate::{Backend, Error, Gate, Load, Order, Result};

/// x <- T^-1 b (or T^-T b) for one plan.
///
/// A plan's state on the device (flags, tickets, epochs) belongs to its resident and is advanced by the kernels themselves, so that a
/// replayed graph goes on where the last solve ended; nothing is cleared by the host between solves. Two solves with one resident are
/// ordered by the queue.
#[doc(alias = "trsv")]
#[doc(alias = "spsv")]
#[doc(alias = "trisolve")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not solve triangles by the plan `{P}`",
    note = "in generic code bound the device by `Sptrsv<{P}>`, or by `EveryPlan<T>` for the plans of the registry"
)]
pub trait Sptrsv<P: Plan>: Load<P> + Backend<P::Value> {
    /// The order in which a row of this system is summed on this device: [`Order::Stored`] is the order of
    /// [`spandrel_sptrsv::serial`], and gives its bits.
    fn sptrsv_order(&self, m: &Self::Resident, system: System) -> Order;

    /// x <- T^-1 b, or T^-T b, for `k` right-hand sides, tall column-major blocks of `nrows` elements each in one vector. What x held
    /// before is not read. Each column has the bits of the solve of that column alone. Enqueues; may be recorded.
    ///
    /// # Errors
    /// [`Error::Shape`] unless b and x have `nrows * k` elements, with x as it was; [`Error::Unsupported`], or [`Error::Triangle`] of
    /// [`spandrel_sptrsv::Error::NotAnalyzed`], for the transposed system of a plan that was analysed for the plain one ([`Tri`] says the
    /// former of every plan); [`Error::Device`] where the device fails.
    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()>;

    /// As [`Sptrsv::sptrsv`] with b in x: the same bits.
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

    /// Takes over the values of a plan that was [`Plan::update`]d since it was loaded; the pattern is that of the resident. Addresses
    /// stay, so recorded steps see the new values. May not be recorded.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the plan has as many rows and entries as the resident.
    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()>;

    /// As [`Sptrsv::update`] with values that are on the device, in the order of the triangle's stored entries; `plan` is that of the
    /// resident, for its pattern, and keeps its own values. Enqueues, and allocates the first time; may not be recorded. The same bits
    /// as an update with these values.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as entries; [`Error::OutOfMemory`]. A zero on the diagonal is refused by a backend
    /// that has the values in host memory, with the resident as before; elsewhere its reciprocal is infinite.
    fn update_from(&self, m: &mut Self::Resident, plan: &Arc<P>, values: &Self::Vector) -> Result<()>;
}

/// A triangle on a device: its resident form, and what the host keeps of it. That is the plan, or its [`crate::analyze::Sizes`] alone where the plan was
/// made on the device ([`crate::ResidentTri`]).
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
    /// What stands on its diagonal.
    pub fn diagonal(&self) -> Diagonal {
        self.diagonal
    }
    /// The systems it was analysed for.
    pub fn systems(&self) -> Systems {
        self.systems
    }
    /// The resident form.
    pub fn resident(&self) -> &B::Resident {
        &self.resident
    }
}

impl<B: Load<P>, P: Plan> Tri<B, P> {
    /// Loads a plan. Blocks as the copy does; may not be recorded.
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
    /// Whether it is solved with `k` columns of operands of these lengths.
    ///
    /// # Errors
    /// [`Error::Shape`] for the first length that is another; then [`Error::Unsupported`].
    fn check<const N: usize>(&self, system: System, k: usize, lengths: [(&'static str, usize); N]) -> Result<()> {
        lengths.into_iter().try_for_each(|(what, found)| expect_columns("sptrsv", what, found, self.nrows, k))?;
        if self.systems.hold(system) {
            return Ok(());
        }
        Err(Error::Unsupported { op: "sptrsv", noun: P::NAME, why: spandrel_sptrsv::Error::NotAnalyzed.to_string() })
    }

    /// x <- T^-1 b or T^-T b, sizes checked. See [`Sptrsv::sptrsv`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless b and x have `nrows` elements; [`Error::Unsupported`].
    pub fn sptrsv(&self, be: &B, gate: Gate<'_, B>, system: System, b: &B::Vector, x: &mut B::Vector) -> Result<()> {
        self.check(system, 1, [("b", be.len(b)), ("x", be.len(x))])?;
        be.sptrsv(gate, system, &self.resident, 1, b, x)
    }

    /// As [`Tri::sptrsv`] with b in x.
    ///
    /// # Errors
    /// As [`Tri::sptrsv`].
    pub fn sptrsv_in_place(&self, be: &B, gate: Gate<'_, B>, system: System, x: &mut B::Vector) -> Result<()> {
        self.check(system, 1, [("x", be.len(x))])?;
        be.sptrsv_in_place(gate, system, &self.resident, 1, x)
    }

    /// Several right-hand sides, sizes checked. See [`Sptrsv::sptrsv`].
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
    /// New values, in the order of the triangle's stored entries, without a new analysis. Blocks; may not be recorded.
    ///
    /// # Errors
    /// [`Error::Triangle`] for a zero on the diagonal or a wrong number of values; everything is then as before.
    pub fn update(&mut self, be: &B, values: &[P::Value]) -> Result<()> {
        Arc::make_mut(&mut self.host).update(values)?;
        be.update(&mut self.resident, &self.host)
    }

    /// New values from the device, sizes checked. [`Tri::plan`] keeps its own. See [`Sptrsv::update_from`].
    ///
    /// # Errors
    /// As [`Sptrsv::update_from`].
    pub fn update_from(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        expect_len("update", "values", be.len(values), self.host.matrix().csr().values().len())?;
        be.update_from(&mut self.resident, &self.host, values)
    }
}
