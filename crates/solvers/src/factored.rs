//! Preconditioners that are two triangular solves: incomplete factorisations and SSOR, on any backend and with any
//! plan.
//!
//! [`Ilu`]: z <- U^-1 (L^-1 r). [`Ic`]: z <- L^-T (L^-1 r), both solves with the one L. [`Ssor`]: like [`Ilu`], with
//! the triangles of [`spandrel_sptrsv::Ssor`]; omega = 1 is symmetric Gauss-Seidel.
//!
//! The host computes the factors' values here; in [`crate::DeviceFactored`] the device does.
//!
//! Cost: two triangular solves, the second in place in z; no scratch vector.
//!
//! Order: that of the plan's solves ([`spandrel_backend::Sptrsv::sptrsv_order`]); with [`Order::Stored`] the same bits
//! on every backend.
//!
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, chapter 10.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Gate, Load, Order, Preconditioner, Sptrsv, Tri};
use spandrel_formats::{Csr, Profile, Real};
use spandrel_sptrsv::choose::by_levels;
use spandrel_sptrsv::latency::PLAYED;
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Levelset, Plan, System, Systems, Triangles, Triangular};

use crate::{Error, Result};

/// With this many rows or fewer, the analysis takes about as long as the decision whether it pays, so both run at once.
const FEW: usize = 4 * PLAYED;

/// An ILU preconditioner: M = L U, with L unit lower. `F` is the factorisation, ILU(0) by default.
pub type Ilu<B, P, F = Ilu0<<P as Plan>::Value>> = Factored<B, P, F>;
/// An IC(0) preconditioner: M = L L^T.
pub type Ic<B, P> = Factored<B, P, Ic0<<P as Plan>::Value>>;
/// An SSOR preconditioner: M = w/(2-w) (D/w + L) (D/w)^-1 (D/w + U).
pub type Ssor<B, P> = Factored<B, P, spandrel_sptrsv::Ssor<<P as Plan>::Value>>;

/// The preconditioner M^-1: two triangular solves. See the module's head.
pub struct Factored<B: Load<P>, P: Plan, F> {
    pub(crate) factor: Arc<F>,
    pub(crate) lower: Tri<B, P>,
    /// `None` if the other factor is L^T.
    pub(crate) upper: Option<Tri<B, P>>,
    pub(crate) shift: f64,
}

impl<B: Load<P>, P: Plan, F: Factor> fmt::Debug for Factored<B, P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factored")
            .field("factor", &F::NAME)
            .field("plan", &P::NAME)
            .field("n", &self.lower.nrows())
            .field("shift", &self.shift)
            .finish_non_exhaustive()
    }
}

/// The triangles of a factorisation, analysed for one kind of plan.
#[derive(Clone, Debug)]
pub struct Plans<P> {
    lower: Arc<P>,
    upper: Option<Arc<P>>,
    shift: f64,
}

impl<P: Plan> Plans<P> {
    /// Analyses both triangles in parallel, on the host.
    ///
    /// # Errors
    /// Those of [`Plan::analyze`], for either triangle.
    pub fn analyze(triangles: &SharedTriangles<P::Value>) -> spandrel_sptrsv::Result<Self> {
        Self::each(triangles, P::analyze)
    }

    /// As [`Plans::analyze`], for solves on a device with that profile ([`Plan::analyze_for`]).
    ///
    /// # Errors
    /// Those of [`Plan::analyze_for`], for either triangle.
    pub fn analyze_for(triangles: &SharedTriangles<P::Value>, profile: &Profile) -> spandrel_sptrsv::Result<Self> {
        Self::each(triangles, |triangle, systems| P::analyze_for(triangle, systems, profile))
    }

    /// Both at the same time.
    fn each(
        triangles: &SharedTriangles<P::Value>,
        analyze: impl Fn(Arc<Triangular<P::Value>>, Systems) -> spandrel_sptrsv::Result<P> + Sync,
    ) -> spandrel_sptrsv::Result<Self> {
        let systems = triangles.systems();
        let plan = |triangle: &Arc<_>| analyze(Arc::clone(triangle), systems).map(Arc::new);
        let (lower, upper) = rayon::join(|| plan(&triangles.lower), || triangles.upper.as_ref().map(plan).transpose());
        Ok(Self { lower: lower?, upper: upper?, shift: triangles.shift })
    }

    /// Converts each plan by `way`, the upper one only if the lower one succeeds.
    ///
    /// # Errors
    /// Those of the conversion.
    pub fn planned<E>(
        triangles: &SharedTriangles<P::Value>,
        plan: impl Fn(&Arc<Triangular<P::Value>>, Systems) -> std::result::Result<P, E>,
    ) -> std::result::Result<Self, E> {
        let systems = triangles.systems();
        let plan = |triangle: &Arc<_>| plan(triangle, systems).map(Arc::new);
        Ok(Self {
            lower: plan(&triangles.lower)?,
            upper: triangles.upper.as_ref().map(plan).transpose()?,
            shift: triangles.shift,
        })
    }

    /// The plan of the lower triangle and, unless the other factor is L^T, that of the upper.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        std::iter::once(&*self.lower).chain(self.upper.as_deref())
    }
}

impl<T: Real> Plans<Levelset<T>> {
    /// Level sets of both triangles, if they should be the fastest plan on the device ([`by_levels`]); else `None`.
    ///
    /// Runs on the host. Triangles of few rows are analysed while the decision is made.
    pub fn paying(triangles: &SharedTriangles<T>, profile: &Profile) -> Option<Self> {
        let pays = || by_levels(std::iter::once(&*triangles.lower).chain(triangles.upper.as_deref()), profile);
        let analyzed = || Self::analyze_for(triangles, profile).ok();
        if triangles.lower.nrows() > FEW {
            return pays().then(analyzed).flatten();
        }
        let (analyzed, pays) = rayon::join(analyzed, pays);
        analyzed.filter(|_| pays)
    }
}

/// [`Triangles`] on which several kinds of plan may be tried.
#[derive(Clone, Debug)]
pub struct SharedTriangles<T> {
    lower: Arc<Triangular<T>>,
    upper: Option<Arc<Triangular<T>>>,
    shift: f64,
}

impl<T> SharedTriangles<T> {
    /// L.
    pub fn lower(&self) -> &Arc<Triangular<T>> {
        &self.lower
    }
    /// U, unless it is L^T.
    pub fn upper(&self) -> Option<&Arc<Triangular<T>>> {
        self.upper.as_ref()
    }
    /// The systems that are solved with each triangle.
    fn systems(&self) -> Systems {
        if self.upper.is_some() { Systems::Plain } else { Systems::Both }
    }
}

impl<T> From<Triangles<T>> for SharedTriangles<T> {
    fn from(triangles: Triangles<T>) -> Self {
        Self { lower: Arc::new(triangles.lower), upper: triangles.upper.map(Arc::new), shift: triangles.shift }
    }
}

impl<P: Plan, B: Sptrsv<P>, F: Factor<Value = P::Value>> Factored<B, P, F> {
    /// Factors a matrix with the factorisation's default parameters and loads the factors.
    ///
    /// # Errors
    /// [`Error::Triangle`] with the row at which the factorisation breaks down, or for a plan that does not fit; a
    /// backend that fails.
    pub fn new(be: &B, csr: &Csr<P::Value>) -> Result<Self> {
        Self::with(be, F::symbolic(csr)?, csr.values())
    }

    /// As [`Factored::new`], for a symbolic phase that is done already. `values` are those of its matrix in stored
    /// order.
    ///
    /// # Errors
    /// As [`Factored::new`].
    pub fn with(be: &B, factor: F, values: &[P::Value]) -> Result<Self> {
        let triangles = factor.triangles(factor.usable(values)?)?.into();
        let plans = Plans::analyze(&triangles)?;
        drop(triangles);
        Self::load(be, factor, plans)
    }

    /// Loads triangles that have plans already; `factor` is their symbolic phase.
    ///
    /// # Errors
    /// [`Error::Triangle`] for triangles that are not of this factorisation; a backend that fails.
    pub fn load(be: &B, factor: F, plans: Plans<P>) -> Result<Self> {
        Self::load_shared(be, Arc::new(factor), plans)
    }

    pub(crate) fn load_shared(be: &B, factor: Arc<F>, plans: Plans<P>) -> Result<Self> {
        let entries = |plan: &Arc<P>| plan.matrix().csr().nnz();
        for (found, expected) in [
            (entries(&plans.lower), factor.lower().nnz()),
            (plans.upper.as_ref().map_or(0, entries), factor.upper().map_or(0, spandrel_sptrsv::Pattern::nnz)),
        ] {
            if found != expected {
                return Err(spandrel_sptrsv::Error::Shape { what: "a factor", found, expected }.into());
            }
        }
        let upper = plans.upper.map(|plan| Tri::load(be, plan)).transpose()?;
        Ok(Self { lower: Tri::load(be, plans.lower)?, upper, factor, shift: plans.shift })
    }

    /// Factors new values on the same pattern, in stored order.
    ///
    /// There is no symbolic phase, no analysis and no new address, so recorded steps see the new factors. Blocks. Must
    /// not be recorded.
    ///
    /// # Errors
    /// As [`Factored::new`]. After an error of the factorisation everything is as before.
    pub fn update(&mut self, be: &B, values: &[P::Value]) -> Result<()> {
        let made = self.factor.usable(values)?;
        self.lower.update(be, &made.lower)?;
        if let Some(upper) = &mut self.upper {
            upper.update(be, &made.upper)?;
        }
        self.shift = made.shift;
        Ok(())
    }

    /// The shift alpha, if A + alpha diag(A) was factored instead of A; else 0.
    pub fn shift(&self) -> f64 {
        self.shift
    }
    /// The number of entries of the factors.
    pub fn nnz(&self) -> usize {
        self.factor.nnz()
    }
    /// Whether both solves have the bits of [`spandrel_sptrsv::serial`] on this device, and so on every backend.
    pub fn is_stored_order(&self, be: &B) -> bool {
        let stored = |tri: &Tri<B, P>, system| be.sptrsv_order(tri.resident(), system) == Order::Stored;
        let second = match &self.upper {
            Some(upper) => stored(upper, System::Plain),
            None => stored(&self.lower, System::Transposed),
        };
        stored(&self.lower, System::Plain) && second
    }
}

// SAFETY: its buffers are those of the two residents, which only `update` replaces, with a mutable borrow; the contract
// of `Load` holds for solves with them. Which solves run depends only on `upper`, which does not change.
unsafe impl<P: Plan, B: Sptrsv<P>, F: Factor<Value = P::Value>> Preconditioner<P::Value, B> for Factored<B, P, F> {
    fn len(&self) -> Option<usize> {
        Some(self.lower.nrows())
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.lower.sptrsv(be, gate, System::Plain, r, z)?;
        match &self.upper {
            Some(upper) => upper.sptrsv_in_place(be, gate, System::Plain, z),
            None => self.lower.sptrsv_in_place(be, gate, System::Transposed, z),
        }
    }
}

impl Error {
    /// The status for a triangle or factorisation that cannot be solved with.
    pub(crate) fn status_of_triangle(error: &spandrel_sptrsv::Error) -> Option<crate::Status> {
        use spandrel_sptrsv::Error as E;
        match error {
            E::MissingDiagonal { .. }
            | E::ZeroDiagonal { .. }
            | E::MissingPivot { .. }
            | E::ZeroPivot { .. }
            | E::TinyPivot { .. } => Some(crate::Status::ZeroPivot),
            E::NotPositive { .. } => Some(crate::Status::IndefiniteMatrix),
            E::NotFinite { .. } => Some(crate::Status::NotFinite),
            _ => None,
        }
    }
}
