//! Singular systems whose null space the caller has named: the constant vectors, as in pure Neumann problems.
//!
//! The preconditioner is projected here. [`NullSpace::solve`] projects right-hand side and x; its documentation says
//! what is solved and at what cost.

use std::sync::Arc;

use spandrel_backend::{Backend, Device, Gate, Load, Spmv};
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{Identity, Iterate, NullSpace, Outcome, Result};

use super::build::Setup;
use super::element::{Element, SolverBackend};
use super::engine::{Call, Engine};
use super::made::{Boxed, Renewed};
use super::plan::{Plan, Stage};
use super::settings::NullVectors;
use super::supply::{Given, Supply};
use crate::{Mat, Preconditioner};

/// P M^-1 P.
struct Projected<T: Real, B: Backend<T> + Load<Csr<T>>> {
    null: NullSpace<T, B>,
    m: Boxed<T, B>,
}

// SAFETY: its buffers are those of M and of the null space, which it owns; both change in content only.
unsafe impl<T: Real, B: Backend<T> + Load<Csr<T>>> Preconditioner<T, B> for Projected<T, B> {
    fn len(&self) -> Option<usize> {
        self.null.preconditioner(&self.m).len()
    }
    fn is_linear(&self) -> bool {
        self.m.is_linear()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.null.preconditioner(&self.m).apply(be, gate, r, z)
    }
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>> Renewed<T, B> for Projected<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.m.renew(be, a)
    }
    fn takes_values(&self) -> bool {
        self.m.takes_values()
    }
    fn renew_from(&mut self, be: &B, values: &B::Vector) -> Option<Result<f64>> {
        self.m.renew_from(be, values)
    }
}

/// The preconditioner, projected if the plan has a null space.
///
/// # Errors
/// Out of memory.
pub(super) fn projected<T: Real, B: Backend<T> + Load<Csr<T>> + 'static>(
    device: &B,
    plan: &Plan,
    m: Boxed<T, B>,
) -> Result<Boxed<T, B>> {
    Ok(match plan.null_space {
        NullVectors::None => m,
        NullVectors::Constant => Box::new(Projected { null: NullSpace::constant(device, plan.nrows)?, m }),
    })
}

/// An iteration with projected right-hand side and x.
struct Singular<T: Real, B: Spmv<Csr<T>>> {
    a: Mat<B, Csr<T>>,
    null: NullSpace<T, B>,
    within: Box<dyn Engine<T, B> + Send>,
}

/// Sets up the iteration of a plan with a known null space. It keeps a copy of the matrix in CSR for the last residual.
pub(super) fn engine<T: Element, B: SolverBackend<T>>(
    device: &B,
    a: Arc<Csr<T>>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Box<dyn Engine<T, B> + Send>> {
    let within = T::engine(device, Supply::new(Arc::clone(&a)), plan, setup)?;
    setup.begin(Stage::Load, "csr")?;
    let (a, null) = (Mat::load(device, a)?, NullSpace::constant(device, plan.nrows)?);
    Device::synchronize(device)?;
    setup.end_load();
    Ok(Box::new(Singular { a, null, within }))
}

impl<T: Element, B: SolverBackend<T>> Engine<T, B> for Singular<T, B> {
    fn run(
        &mut self,
        be: &B,
        call: Call<'_, T>,
        b: &<B as Backend<T>>::Vector,
        x: &mut <B as Backend<T>>::Vector,
    ) -> Result<Outcome> {
        let Self { a, null, within } = self;
        let Call { method, options, restart, observer } = call;
        null.solve(be, a, &Identity, b, x, &options, |_, b, x, options| {
            // Its x still has a part in the null space.
            let observer = &mut |progress, _: Iterate<'_, T>| observer(progress, Iterate::none());
            within.run(be, Call { method, options: *options, restart, observer }, b, x)
        })
    }

    fn precondition(&self, be: &B, r: &<B as Backend<T>>::Vector, z: &mut <B as Backend<T>>::Vector) -> Result<()> {
        self.within.precondition(be, r, z)
    }

    fn renew(&mut self, be: &B, a: &Supply<T, B>) -> Result<f64> {
        let stored = Mat::load(be, Arc::clone(a.host()))?;
        let shift = self.within.renew(be, a)?;
        self.a = stored;
        Ok(shift)
    }

    fn renew_from(&mut self, _: &B, _: &<B as Backend<T>>::Vector) -> Option<Result<f64>> {
        None
    }

    fn matrix(&self, _: &B) -> Option<Result<Csr<T>>> {
        None
    }

    fn narrow_bytes(&self, be: &B) -> Option<u64> {
        self.within.narrow_bytes(be)
    }
}
