//! The preconditioner of an iterative solve: made from the matrix, on the device that solves.

use serde::Serialize;
use spandrel::incomplete::{Chosen, Incomplete};
use spandrel::solvers::{self, Identity, Jacobi};
use spandrel::sptrsv::{Factor, Ic0, Ilu0, Iluk, Ssor};
use spandrel::{Csr, Factorize, Preconditioner, Real};

use super::plan::Plan;
use crate::args::PrecondName;
use crate::failure::{Failure, Result};

/// What is said of triangular factors.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct FactorReport {
    /// The plan that solves with them.
    pub(super) plan: &'static str,
    /// Their entries.
    nnz: usize,
    /// alpha, where A + alpha diag(A) was factored; else 0.
    pub(super) shift: f64,
}

/// A preconditioner, and what there is to say of its factors.
pub(super) struct Made<T, B> {
    pub(super) m: Box<dyn Preconditioner<T, B>>,
    pub(super) factor: Option<FactorReport>,
}

/// The preconditioner that the plan names. The inner error is the solver's: it may be an ending.
pub(super) fn make<T: Real, B: Incomplete<T>>(
    device: &B,
    a: &Csr<T>,
    plan: &Plan,
) -> Result<solvers::Result<Made<T, B>>> {
    let plain = |m| Ok(Made { m, factor: None });
    let chosen = match plan.precond {
        PrecondName::None | PrecondName::Auto => return Ok(plain(Box::new(Identity))),
        PrecondName::Jacobi => {
            return Ok(Jacobi::new(device, a).and_then(|jacobi| plain(Box::new(jacobi))));
        }
        PrecondName::Ssor(omega) => factored(device, Ssor::with_omega(a, omega), a),
        PrecondName::Ilu0 => factored(device, Ilu0::symbolic(a), a),
        PrecondName::Iluk(level) => factored(device, Iluk::with_level(a, level), a),
        PrecondName::Ic0 => factored(device, Ic0::symbolic(a), a),
    };
    match chosen {
        Ok(chosen) if plan.reproducible && !chosen.stored_order => Err(Failure::new(
            "not_reproducible",
            format!(
                "{} by the plan {} sums in an order of its own; with --reproducible use --precond jacobi",
                plan.precond, chosen.plan
            ),
        )),
        Ok(Chosen { precond, plan, nnz, shift, .. }) => {
            Ok(Ok(Made { m: precond, factor: Some(FactorReport { plan, nnz, shift }) }))
        }
        Err(error) => Ok(Err(error)),
    }
}

fn factored<T: Real, B: Incomplete<T> + Factorize<F>, F: Factor<Value = T>>(
    device: &B,
    symbolic: spandrel::sptrsv::Result<F>,
    a: &Csr<T>,
) -> solvers::Result<Chosen<T, B>> {
    device.incomplete(symbolic?, a.values())
}
