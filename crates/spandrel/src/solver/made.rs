//! The preconditioner of a solve: made from the matrix on the device that solves, and given new values there.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{Assemble, Backend, Load, MixedPrecision, Narrow, Order, Spmv, UpdateValues};
use spandrel_formats::{Bsr, Csr, Real};
use spandrel_solvers::multigrid::StencilBackend;
use spandrel_solvers::{
    Amg, AmgBackend, BlockJacobi, Chebyshev, Error, Hierarchy, Identity, Isai, Jacobi, JacobiSweeps, MgOptions,
    MgSmoother, Mixed, Multigrid, Permuted, PolynomialSmoother, Precond, Result, SetupWatcher, StencilMultigrid,
};
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Iluk, Ilut, Ssor};

use super::build::Setup;
use super::kernel::projected;
use super::plan::{FactorReport, Plan, Replaced};
use super::supply::{Given, Narrowing};
use crate::incomplete::{Chosen, Incomplete, Renew};
use crate::multigrid::Geometric;
use crate::{Factorize, Preconditioner};

/// A preconditioner that takes new values of the matrix from which it was made.
pub(super) trait Renewed<T: Real, B: Backend<T> + Load<Csr<T>>>: Preconditioner<T, B> + Send {
    /// Takes new values on the old pattern, in the numbering that the preconditioner was made in. Returns alpha of the
    /// shift, or 0.
    ///
    /// After an error everything is as before. Blocks.
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64>;

    /// Returns true if [`Renewed::renew_from`] takes values.
    fn takes_values(&self) -> bool {
        false
    }
    /// As [`Renewed::renew`], with values on the device. Returns `None` and does nothing if the host is needed.
    fn renew_from(&mut self, be: &B, values: &B::Vector) -> Option<Result<f64>> {
        let _ = (be, values);
        None
    }
}

/// A preconditioner as an engine keeps it.
pub(super) type Boxed<T, B> = Box<dyn Renewed<T, B>>;

impl<T: Real, B: Backend<T> + Load<Csr<T>>> Renewed<T, B> for Identity {
    fn renew(&mut self, _: &B, _: &dyn Given<T, B>) -> Result<f64> {
        Ok(0.0)
    }
    fn takes_values(&self) -> bool {
        true
    }
    fn renew_from(&mut self, _: &B, _: &B::Vector) -> Option<Result<f64>> {
        Some(Ok(0.0))
    }
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>> Renewed<T, B> for Jacobi<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update(be, &**a.host())?;
        Ok(0.0)
    }
}

impl<T: Real, B: Spmv<Bsr<T>> + Load<Csr<T>>> Renewed<T, B> for BlockJacobi<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update(be, a.host().values())?;
        Ok(0.0)
    }
}

impl<T: Real, B: Spmv<Csr<T>> + UpdateValues<Csr<T>>, F: Factor<Value = T>> Renewed<T, B> for JacobiSweeps<B, F> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update(be, a.host().values())?;
        Ok(self.shift())
    }
}

impl<T: Real, B: Spmv<Csr<T>> + UpdateValues<Csr<T>>, F: Factor<Value = T>> Renewed<T, B> for Isai<B, F> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update(be, a.host().values())?;
        Ok(self.shift())
    }
}

impl<T: Real, B: Spmv<Csr<T>> + UpdateValues<Csr<T>>> Renewed<T, B> for Multigrid<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update(be, &**a.host())?;
        Ok(0.0)
    }
}

impl<T: Real, B: StencilBackend<T>> Renewed<T, B> for StencilMultigrid<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update_from(be, &*a.rows(be)?)?;
        Ok(0.0)
    }
}

impl<T: Real, B: AmgBackend<T>> Renewed<T, B> for Amg<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        // Values alone are fewer bytes to copy than the rows.
        match self.takes_values() && !a.is_on_device() {
            true => self.update_values(be, a.host().values())?,
            false => self.update_from(be, &*a.rows(be)?)?,
        }
        Ok(0.0)
    }
    fn takes_values(&self) -> bool {
        Amg::takes_values(self)
    }
    fn renew_from(&mut self, be: &B, values: &B::Vector) -> Option<Result<f64>> {
        self.takes_values().then(|| self.update_values_from(be, values).map(|()| 0.0))
    }
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>> Renewed<T, B> for Box<dyn Renew<T, B>> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        (**self).renew(be, &be.upload(a.host().values())?)
    }
    fn takes_values(&self) -> bool {
        true
    }
    fn renew_from(&mut self, be: &B, values: &B::Vector) -> Option<Result<f64>> {
        Some((**self).renew(be, values))
    }
}

impl<T: Real, B: Spmv<Csr<T>> + UpdateValues<Csr<T>>> Renewed<T, B> for Chebyshev<T, B> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        self.update(be, &**a.host())?;
        Ok(0.0)
    }
}

/// The columns stay in the order of the old values.
impl<T: Real, B: Spmv<Csr<T>>> Renewed<T, B> for Permuted<T, B, Chosen<T, B>> {
    fn renew(&mut self, be: &B, a: &dyn Given<T, B>) -> Result<f64> {
        let exchanged = self.columns().permute_columns(a.host())?;
        self.within_mut().renew(be, &be.upload(exchanged.values())?)
    }
}

/// New values in f64 for a preconditioner in f32.
impl<B: MixedPrecision + Narrow> Renewed<f64, B> for Mixed<B, Boxed<f32, B>> {
    fn renew(&mut self, be: &B, a: &dyn Given<f64, B>) -> Result<f64> {
        if self.takes_values() && !a.is_on_device() {
            let values = Backend::<f64>::upload(be, a.host().values())?;
            return renewed_from(self, be, &values);
        }
        let narrowing = Narrowing::of(a);
        self.update_narrowed(be, |m, be| {
            let shift = m.renew(be, &narrowing)?;
            Ok((shift, narrowing.exponent()))
        })
    }
    fn takes_values(&self) -> bool {
        self.inner().takes_values()
    }
    fn renew_from(&mut self, be: &B, values: &<B as Backend<f64>>::Vector) -> Option<Result<f64>> {
        // Do not call a preconditioner that needs the host: narrowing below changes the exponent.
        self.takes_values().then(|| renewed_from(self, be, values))
    }
}

/// Gives values on the device to a preconditioner in f32 that takes them there.
fn renewed_from<B: MixedPrecision + Load<Csr<f32>>>(
    m: &mut Mixed<B, Boxed<f32, B>>,
    be: &B,
    values: &<B as Backend<f64>>::Vector,
) -> Result<f64> {
    let refused = || Error::Unsupported { why: "this preconditioner takes values from the host only".into() };
    m.update_from(be, values, |m, be, narrow| m.renew_from(be, narrow).unwrap_or_else(|| Err(refused())))
}

/// A preconditioner, and the report of its factorisation.
pub(super) struct Made<T: Real, B: Backend<T>> {
    pub(super) m: Boxed<T, B>,
    pub(super) factor: Option<FactorReport>,
}

/// Everything that makes preconditioners in one element type.
pub(super) trait Makes<T: Real>:
    Incomplete<T> + Geometric<T> + AmgBackend<T> + Spmv<Bsr<T>> + UpdateValues<Csr<T>>
{
}
impl<T, B> Makes<T> for B
where
    T: Real,
    B: Incomplete<T> + Geometric<T> + AmgBackend<T> + Spmv<Bsr<T>> + UpdateValues<Csr<T>>,
{
}

/// Makes the preconditioner that the plan names. If the policy chose it and it cannot be made, makes its substitute,
/// and the plan says so.
pub(super) fn make<T: Real, B: Makes<T>>(
    device: &B,
    a: &impl Given<T, B>,
    plan: &mut Plan,
    setup: &mut Setup<'_>,
) -> Result<Boxed<T, B>> {
    let made = match named(device, a, plan.preconditioner, plan, &mut |phase| setup.watch(phase)) {
        Ok(made) => made,
        Err(error) => {
            let interrupted = matches!(error, Error::Interrupted { .. });
            let Some(other) = plan.otherwise.filter(|_| !interrupted) else { return Err(error) };
            let replaced = Replaced { from: plan.preconditioner, to: other, why: error.to_string() };
            setup.note(&format!(
                "{} was chosen and failed ({}); {} takes its place",
                replaced.from, replaced.why, replaced.to
            ))?;
            let made = named(device, a, other, plan, &mut |phase| setup.watch(phase))
                .map_err(|error| error.after(other, format!("{} failed ({})", replaced.from, replaced.why)))?;
            plan.preconditioner = other;
            // The substitute that was kept for later is in use now, so none is left.
            plan.standby = None;
            plan.replaced = Some(replaced);
            made
        }
    };
    plan.factor = made.factor;
    projected(device, plan, made.m)
}

fn named<T: Real, B: Makes<T>>(
    device: &B,
    given: &impl Given<T, B>,
    precond: Precond,
    plan: &Plan,
    watcher: SetupWatcher<'_>,
) -> Result<Made<T, B>> {
    let held = |stored_order: bool, by: &'static str| match plan.reproducible && !stored_order {
        true => Err(Error::NotReproducible {
            why: format!("{precond} by {by} sums in an order of its own; to be reproducible use jacobi"),
        }),
        false => Ok(()),
    };
    macro_rules! approximate {
        ($name:literal, $made:expr) => {{
            let m = $made?;
            held(m.is_stored_order(device), $name)?;
            let factor = FactorReport { plan: $name, approximate: true, nnz: m.nnz(), shift: m.shift(), levels: 0 };
            Ok(Made { m: Box::new(m), factor: Some(factor) })
        }};
    }
    let plain = |m: Boxed<T, B>| Ok(Made { m, factor: None });
    // Only a call of this needs the matrix on the host; other preconditioners are made from the rows on the device.
    let host = || given.host();
    let chosen = match precond {
        Precond::None => return plain(Box::new(Identity)),
        Precond::Jacobi => return plain(Box::new(Jacobi::new(device, host())?)),
        // The plan has set the rows of a block.
        Precond::BlockJacobi(rows) => return plain(Box::new(BlockJacobi::new(device, host(), rows.unwrap_or(1))?)),
        Precond::Chebyshev(degree) => {
            let m = Chebyshev::new(device, Arc::clone(host()), degree)?;
            held(m.is_stored_order(device), "csr")?;
            return plain(Box::new(m));
        }
        Precond::Ilu0Jacobi(sweeps) => {
            return approximate!("jacobi_sweeps", JacobiSweeps::<B, Ilu0<T>>::new(device, host(), sweeps));
        }
        Precond::Ic0Jacobi(sweeps) => {
            return approximate!("jacobi_sweeps", JacobiSweeps::<B, Ic0<T>>::new(device, host(), sweeps));
        }
        Precond::Ilu0Isai => return approximate!("isai", Isai::<B, Ilu0<T>>::new(device, host())),
        Precond::Ic0Isai => return approximate!("isai", Isai::<B, Ic0<T>>::new(device, host())),
        Precond::Ssor(omega) => factored(device, Ssor::with_omega(host(), omega), host(), watcher),
        Precond::Ilu0 => resident::<T, B, Ilu0<T>>(device, given, watcher),
        Precond::Iluk(level) => factored(device, Iluk::with_level(host(), level), host(), watcher),
        Precond::Ilutp(options) => {
            let (columns, symbolic) = Ilut::pivoted(host(), options)?;
            let exchanged = columns.permute_columns(host())?;
            let chosen = device.incomplete_watched(symbolic, exchanged.values(), watcher)?;
            let (by, nnz, shift, is_stored) = (chosen.plan, chosen.nnz, chosen.shift, chosen.stored_order);
            held(is_stored && Spmv::<Csr<T>>::order(device) == Order::Stored, by)?;
            let factor = FactorReport { plan: by, approximate: false, nnz, shift, levels: 0 };
            return Ok(Made { m: Box::new(Permuted::new(device, columns, chosen)?), factor: Some(factor) });
        }
        Precond::Ilut(options) => factored(device, Ilut::new(host(), options), host(), watcher),
        Precond::Ic0 => resident::<T, B, Ic0<T>>(device, given, watcher),
        Precond::Mg(MgOptions { grids, smoother, degree }) => {
            let polynomial = match smoother {
                MgSmoother::GaussSeidel => None,
                MgSmoother::Chebyshev => Some(PolynomialSmoother::Chebyshev(degree)),
                MgSmoother::L1Jacobi => Some(PolynomialSmoother::L1Jacobi(degree)),
                MgSmoother::Auto => plan.symmetric.then_some(PolynomialSmoother::Chebyshev(degree)),
            };
            if let Some(polynomial) = polynomial {
                let rows = given.rows(device)?;
                match StencilMultigrid::of(device, &rows, grids, polynomial, watcher) {
                    Ok(mg) => {
                        held(mg.is_stored_order(device), "dia")?;
                        let (nnz, levels) = (mg.nnz(), mg.sizes().len());
                        let factor = FactorReport { plan: "dia", approximate: false, nnz, shift: 0.0, levels };
                        return Ok(Made { m: Box::new(mg), factor: Some(factor) });
                    }
                    // Gauss-Seidel takes any stencil.
                    Err(Error::Unsupported { .. }) if smoother == MgSmoother::Auto => {}
                    Err(error) => return Err(error),
                }
            }
            let hierarchy = Hierarchy::galerkin_watched(host(), grids, watcher)?;
            let mg: Multigrid<T, B> = device.multigrid_watched(&hierarchy, watcher)?;
            held(mg.is_stored_order(device), mg.plan())?;
            let (nnz, levels) = (mg.nnz(), mg.sizes().len());
            let factor = FactorReport { plan: mg.plan(), approximate: false, nnz, shift: 0.0, levels };
            return Ok(Made { m: Box::new(mg), factor: Some(factor) });
        }
        Precond::Amg(options) => {
            let known: Option<Vec<T>> =
                plan.near_null.as_ref().map(|v| v.par_iter().map(|&v| T::from_f64(v)).collect());
            let known = known.as_deref();
            let amg = match plan.symmetric {
                true => {
                    let rows = given.rows(device)?;
                    Amg::of(device, &rows, &options, known, watcher)?
                }
                // Symmetric up to rounding, or not at all.
                false => Amg::with(device, host(), &options, known)?,
            };
            held(amg.is_stored_order(device), "csr")?;
            let (nnz, levels) = (amg.nnz(), amg.levels().len());
            let factor = FactorReport { plan: "csr", approximate: false, nnz, shift: 0.0, levels };
            return Ok(Made { m: Box::new(amg), factor: Some(factor) });
        }
    };
    let Chosen { precond: m, plan: by, nnz, shift, stored_order, .. } = chosen?;
    held(stored_order, by)?;
    let factor = FactorReport { plan: by, approximate: false, nnz, shift, levels: 0 };
    Ok(Made { m: Box::new(m), factor: Some(factor) })
}

fn factored<T: Real, B: Incomplete<T> + Factorize<F>, F: Factor<Value = T>>(
    device: &B,
    symbolic: spandrel_sptrsv::Result<F>,
    a: &Csr<T>,
    watcher: SetupWatcher<'_>,
) -> Result<Chosen<T, B>> {
    device.incomplete_watched(symbolic?, a.values(), watcher)
}

/// Makes an incomplete factorisation from the matrix on the device. If the device has too little memory for that,
/// starts from the matrix on the host.
fn resident<T: Real, B: Incomplete<T> + Assemble<F>, F: Factor<Value = T>>(
    device: &B,
    given: &impl Given<T, B>,
    watcher: SetupWatcher<'_>,
) -> Result<Chosen<T, B>> {
    let rows = given.rows(device).map_err(Error::from);
    match rows.and_then(|rows| device.incomplete_or_watched::<F>(&rows, || Cow::Borrowed(&**given.host()), watcher)) {
        Err(Error::Backend(spandrel_backend::Error::OutOfMemory { .. })) => {
            given.free();
            factored(device, F::symbolic(given.host()), given.host(), watcher)
        }
        made => made,
    }
}
