//! The preconditioner of an iterative solve: made from the matrix, on the device that solves.

use serde::Serialize;
use spandrel::backend::Spmv;
use spandrel::incomplete::{Chosen, Incomplete};
use spandrel::solvers::{self, BlockJacobi, Identity, Isai, Jacobi, JacobiSweeps};
use spandrel::sptrsv::{Factor, Ic0, Ilu0, Iluk, Ssor};
use spandrel::{Csr, Preconditioner, Real};
use spandrel_formats::Bsr;

use super::plan::Plan;
use crate::args::PrecondName;
use crate::failure::{Failure, Result};

/// What is said of triangular factors.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct FactorReport {
    /// The plan that solves with them, or what stands in the place of the solves.
    pub(super) plan: &'static str,
    /// Whether they are solved with approximately.
    pub(super) approximate: bool,
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
pub(super) fn make<T: Real, B: Incomplete<T> + Spmv<Csr<T>> + Spmv<Bsr<T>>>(
    device: &B,
    a: &Csr<T>,
    plan: &Plan,
) -> Result<solvers::Result<Made<T, B>>> {
    let &Plan { precond, reproducible, .. } = plan;
    macro_rules! approximate {
        ($name:literal, $made:expr) => {
            match $made {
                Ok(m) => {
                    let (nnz, shift, stored_order) = (m.nnz(), m.shift(), m.is_stored_order(device));
                    if reproducible && !stored_order {
                        return Err(in_own_order(precond, $name));
                    }
                    let factor = FactorReport { plan: $name, approximate: true, nnz, shift };
                    Ok(Ok(Made { m: Box::new(m), factor: Some(factor) }))
                }
                Err(error) => Ok(Err(error)),
            }
        };
    }
    let plain = |m| Ok(Made { m, factor: None });
    let chosen = match plan.precond {
        PrecondName::None | PrecondName::Auto => return Ok(plain(Box::new(Identity))),
        PrecondName::Jacobi => {
            return Ok(Jacobi::new(device, a).and_then(|jacobi| plain(Box::new(jacobi))));
        }
        PrecondName::BlockJacobi(rows) => {
            return Ok(BlockJacobi::new(device, a, rows).and_then(|blocks| plain(Box::new(blocks))));
        }
        PrecondName::Ilu0Jacobi(sweeps) => {
            return approximate!("jacobi_sweeps", JacobiSweeps::<B, Ilu0<T>>::new(device, a, sweeps));
        }
        PrecondName::Ic0Jacobi(sweeps) => {
            return approximate!("jacobi_sweeps", JacobiSweeps::<B, Ic0<T>>::new(device, a, sweeps));
        }
        PrecondName::Ilu0Isai => return approximate!("isai", Isai::<B, Ilu0<T>>::new(device, a)),
        PrecondName::Ic0Isai => return approximate!("isai", Isai::<B, Ic0<T>>::new(device, a)),
        PrecondName::Ssor(omega) => factored(device, Ssor::with_omega(a, omega), a),
        PrecondName::Ilu0 => factored(device, Ilu0::symbolic(a), a),
        PrecondName::Iluk(level) => factored(device, Iluk::with_level(a, level), a),
        PrecondName::Ic0 => factored(device, Ic0::symbolic(a), a),
    };
    match chosen {
        Ok(chosen) if reproducible && !chosen.stored_order => Err(in_own_order(precond, chosen.plan)),
        Ok(Chosen { precond, plan, nnz, shift, .. }) => {
            Ok(Ok(Made { m: precond, factor: Some(FactorReport { plan, approximate: false, nnz, shift }) }))
        }
        Err(error) => Ok(Err(error)),
    }
}

fn in_own_order(precond: PrecondName, plan: &str) -> Failure {
    Failure::new(
        "not_reproducible",
        format!("{precond} by {plan} sums in an order of its own; with --reproducible use --precond jacobi"),
    )
}

fn factored<T: Real, B: Incomplete<T>, F: Factor<Value = T>>(
    device: &B,
    symbolic: spandrel::sptrsv::Result<F>,
    a: &Csr<T>,
) -> solvers::Result<Chosen<T, B>> {
    device.incomplete(symbolic?, a.values())
}
