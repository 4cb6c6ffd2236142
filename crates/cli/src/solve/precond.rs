//! The preconditioner of an iterative solve: made from the matrix, on the device that solves.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use serde::Serialize;
use spandrel::backend::{self, Assemble, Load, Spmv};
use spandrel::incomplete::{Chosen, Incomplete};
use spandrel::multigrid::Geometric;
use spandrel::solvers::{self, BlockJacobi, Hierarchy, Identity, Isai, Jacobi, JacobiSweeps, Multigrid};
use spandrel::sptrsv::{Factor, Ic0, Ilu0, Iluk, Ssor};
use spandrel::{Csr, Factorize, Mat, Preconditioner, Real};
use spandrel_formats::Bsr;

use super::plan::Plan;
use crate::args::PrecondName;
use crate::failure::{Failure, Result};
use crate::progress;

/// What is said of triangular factors.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct FactorReport {
    /// The plan that solves with them (of several grids with those of the finest), or what stands in the place of the solves.
    pub(super) plan: &'static str,
    /// Whether they are solved with approximately.
    pub(super) approximate: bool,
    /// Their entries.
    nnz: usize,
    /// alpha, where A + alpha diag(A) was factored; else 0.
    pub(super) shift: f64,
    /// Grids of a multigrid cycle; 0 where there is none.
    pub(super) levels: usize,
}

/// A preconditioner that was given up for another.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PrecondFallback {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) why: String,
}

/// A preconditioner, and what there is to say of its factors.
pub(super) struct Made<T, B> {
    pub(super) m: Box<dyn Preconditioner<T, B>>,
    pub(super) factor: Option<FactorReport>,
    pub(super) fallback: Option<PrecondFallback>,
}

/// A matrix that a preconditioner is made of.
pub(super) trait Given<T: Real, B: Load<Csr<T>>> {
    /// On the host.
    fn host(&self) -> &Arc<Csr<T>>;
    /// On the device, where they stay.
    fn rows(&self, device: &B) -> backend::Result<Rc<Mat<B, Csr<T>>>>;
    /// Frees those on the device that nothing else holds.
    fn free(&self);
}

/// The preconditioner that the plan names, or the one that stands for it where `auto` chose it and it cannot be had. The inner error is the
/// solver's: it may be an ending.
pub(super) fn make<T: Real, B: Incomplete<T> + Geometric<T> + Spmv<Bsr<T>>>(
    device: &B,
    a: &impl Given<T, B>,
    plan: &Plan,
) -> Result<solvers::Result<Made<T, B>>> {
    let first = named(device, a, plan.precond, plan.reproducible);
    let Some(other) = plan.precond_else else { return first };
    let why = match first {
        Ok(Ok(made)) => return Ok(Ok(made)),
        Ok(Err(error)) => error.to_string(),
        Err(failure) => failure.message,
    };
    let fallback = PrecondFallback { from: plan.precond.to_string(), to: other.to_string(), why };
    progress::note(&format!(
        "--precond auto chose {}, which failed ({}); {} takes its place",
        fallback.from, fallback.why, fallback.to
    ));
    let made = named(device, a, other, plan.reproducible)?;
    Ok(made.map(|made| Made { fallback: Some(fallback), ..made }))
}

fn named<T: Real, B: Incomplete<T> + Geometric<T> + Spmv<Bsr<T>>>(
    device: &B,
    given: &impl Given<T, B>,
    precond: PrecondName,
    reproducible: bool,
) -> Result<solvers::Result<Made<T, B>>> {
    let plain = |m| Ok(Made { m, factor: None, fallback: None });
    let held = |stored_order: bool, by: &'static str| match reproducible && !stored_order {
        true => Err(Failure::new(
            "not_reproducible",
            format!("{precond} by {by} sums in an order of its own; with --reproducible use --precond jacobi"),
        )),
        false => Ok(()),
    };
    macro_rules! approximate {
        ($name:literal, $made:expr) => {
            match $made {
                Ok(m) => {
                    held(m.is_stored_order(device), $name)?;
                    let (nnz, shift) = (m.nnz(), m.shift());
                    let factor = FactorReport { plan: $name, approximate: true, nnz, shift, levels: 0 };
                    Ok(Ok(Made { m: Box::new(m), factor: Some(factor), fallback: None }))
                }
                Err(error) => Ok(Err(error)),
            }
        };
    }
    // What goes by the rows on the device need not be on the host.
    let host = || given.host();
    let chosen = match precond {
        PrecondName::None | PrecondName::Auto => return Ok(plain(Box::new(Identity))),
        PrecondName::Jacobi => {
            return Ok(Jacobi::new(device, host()).and_then(|jacobi| plain(Box::new(jacobi))));
        }
        PrecondName::BlockJacobi(rows) => {
            // The plan has set them.
            return Ok(BlockJacobi::new(device, host(), rows.unwrap_or(1)).and_then(|blocks| plain(Box::new(blocks))));
        }
        PrecondName::Ilu0Jacobi(sweeps) => {
            return approximate!("jacobi_sweeps", JacobiSweeps::<B, Ilu0<T>>::new(device, host(), sweeps));
        }
        PrecondName::Ic0Jacobi(sweeps) => {
            return approximate!("jacobi_sweeps", JacobiSweeps::<B, Ic0<T>>::new(device, host(), sweeps));
        }
        PrecondName::Ilu0Isai => return approximate!("isai", Isai::<B, Ilu0<T>>::new(device, host())),
        PrecondName::Ic0Isai => return approximate!("isai", Isai::<B, Ic0<T>>::new(device, host())),
        PrecondName::Ssor(omega) => factored(device, Ssor::with_omega(host(), omega), host()),
        PrecondName::Ilu0 => resident::<T, B, Ilu0<T>>(device, given),
        PrecondName::Iluk(level) => factored(device, Iluk::with_level(host(), level), host()),
        PrecondName::Ic0 => resident::<T, B, Ic0<T>>(device, given),
        PrecondName::Mg(levels) => {
            let mg: Multigrid<T, B> =
                match Hierarchy::galerkin(host(), levels).and_then(|grids| device.multigrid(&grids)) {
                    Ok(mg) => mg,
                    Err(error) => return Ok(Err(error)),
                };
            held(mg.is_stored_order(device), mg.plan())?;
            let (plan, nnz, levels) = (mg.plan(), mg.nnz(), mg.sizes().len());
            let factor = FactorReport { plan, approximate: false, nnz, shift: 0.0, levels };
            return Ok(Ok(Made { m: Box::new(mg), factor: Some(factor), fallback: None }));
        }
    };
    match chosen {
        Ok(Chosen { precond, plan: by, nnz, shift, stored_order, .. }) => {
            held(stored_order, by)?;
            let factor = FactorReport { plan: by, approximate: false, nnz, shift, levels: 0 };
            Ok(Ok(Made { m: precond, factor: Some(factor), fallback: None }))
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

/// Of the matrix on the device, where that has room for it beside what else the set-up takes.
fn resident<T: Real, B: Incomplete<T> + Assemble<F>, F: Factor<Value = T>>(
    device: &B,
    given: &impl Given<T, B>,
) -> solvers::Result<Chosen<T, B>> {
    let rows = given.rows(device).map_err(solvers::Error::from);
    match rows.and_then(|rows| device.incomplete_or::<F>(&rows, || Cow::Borrowed(&**given.host()))) {
        Err(solvers::Error::Backend(backend::Error::OutOfMemory { .. })) => {
            given.free();
            factored(device, F::symbolic(given.host()), given.host())
        }
        made => made,
    }
}
