//! Preconditioners by triangular solves, with the plan that suits the factors.
//!
//! The sweep, if the factors are stencils on a grid that pay ([`Sweep::pays`]) and that the device has a schedule for;
//! else level sets. On a GPU, one thread per row if that should be faster ([`spandrel_sptrsv::choose::by_levels`], as
//! for [`spandrel_sptrsv::AnyPlan`]).
//!
//! On a GPU the factors are computed there, with the bits of the host's, unless the host should finish first
//! ([`Numeric`]). The host then only looks at patterns. If the matrix is in device memory and is a whole stencil on a
//! grid, it does not even do that ([`Assemble`]).

use std::borrow::Cow;
use std::sync::Arc;

use spandrel_backend::{Assemble, Assembled, Backend, Factorize, Gate, Mat, MixedPrecision, Preconditioner, Sptrsv};
use spandrel_formats::{Csr, Profile, Real};
use spandrel_solvers::factored::{Factored, Plans, SharedTriangles};
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{DeviceFactored, DeviceFactors, Error, Mixed, Phase, Result, SetupWatcher};
use spandrel_sptrsv::{Capellini, Factor, Ic0, Ilu0, Iluk, Ilut, Levelset, Numeric, Plan, Ssor, Sweep};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;

/// A preconditioner that takes new values of its matrix.
pub trait Renew<T: Real, B: Backend<T>>: Preconditioner<T, B> + Send + Sync {
    /// Factors new values on the same pattern, in stored order. Returns the shift alpha, as [`Chosen::shift`].
    ///
    /// There is no symbolic phase, no analysis and no new address, so recorded steps see the new factors. On a GPU the
    /// values go through the host if the host factors them ([`Numeric`]). Blocks. Must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] if the factorisation breaks down, and for another number of values; a backend that
    /// fails. After an error of the factorisation the preconditioner is as before.
    fn renew(&mut self, be: &B, values: &B::Vector) -> Result<f64>;
}

impl<P: Plan, B: Sptrsv<P>, F: Factor<Value = P::Value>> Renew<P::Value, B> for Factored<B, P, F> {
    fn renew(&mut self, be: &B, values: &B::Vector) -> Result<f64> {
        self.update(be, &be.download(values)?)?;
        Ok(self.shift())
    }
}

impl<P, B, F> Renew<P::Value, B> for DeviceFactored<B, P, F>
where
    P: Plan,
    F: Factor<Value = P::Value>,
    B: Sptrsv<P> + Factorize<F> + Backend<P::Value>,
{
    fn renew(&mut self, be: &B, values: &<B as Backend<P::Value>>::Vector) -> Result<f64> {
        self.update(be, values)?;
        Ok(self.solves().shift())
    }
}

impl<T: Real, B: Backend<T>> Renew<T, B> for Box<dyn Assembled<T, B>> {
    fn renew(&mut self, be: &B, values: &B::Vector) -> Result<f64> {
        (**self).update(be, values)?;
        Ok(self.shift())
    }
}

impl<T: Real, B: Backend<T>> Renew<T, B> for Box<dyn Renew<T, B>> {
    fn renew(&mut self, be: &B, values: &B::Vector) -> Result<f64> {
        (**self).renew(be, values)
    }
}

/// New values in f64 for factors in f32 are narrowed on the device.
impl<B: MixedPrecision, M: Renew<f32, B>> Renew<f64, B> for Mixed<B, M> {
    fn renew(&mut self, be: &B, values: &<B as Backend<f64>>::Vector) -> Result<f64> {
        self.update_from(be, values, |m, be, narrow| m.renew(be, narrow))
    }
}

/// A preconditioner, with the choices that were made for it.
#[non_exhaustive]
pub struct Chosen<T: Real, B: Backend<T>> {
    /// The preconditioner.
    pub precond: Box<dyn Renew<T, B>>,
    /// The plan that solves with its triangles, [`Plan::NAME`].
    pub plan: &'static str,
    /// The number of entries of the factors.
    pub nnz: usize,
    /// The shift alpha, if A + alpha diag(A) was factored instead of A; else 0.
    pub shift: f64,
    /// Whether it has the same bits on every backend: see [`Factored::is_stored_order`].
    pub stored_order: bool,
}

impl<T: Real, B: Backend<T>> Chosen<T, B> {
    /// Takes new values on the same pattern, as in a time step or a Newton iteration. See [`Renew::renew`].
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```ignore")]
    /// use spandrel::{Backend, incomplete::Incomplete, sptrsv::{Factor, Ilu0}};
    ///
    /// let csr = spandrel::formats::generate::csr::<f64>("poisson3d:20")?;
    /// let device = spandrel::Cpu::new();
    /// let mut m = device.incomplete(Ilu0::symbolic(&csr)?, csr.values())?;
    /// let next: Vec<f64> = csr.values().iter().map(|v| 2.0 * v).collect();
    /// m.update(&device, &device.upload(&next)?)?;
    /// # Ok::<(), spandrel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn update(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        self.shift = self.precond.renew(be, values)?;
        Ok(())
    }
}

// SAFETY: every operation is that of `precond`, which is not replaced while it is borrowed.
unsafe impl<T: Real, B: Backend<T>> Preconditioner<T, B> for Chosen<T, B> {
    fn len(&self) -> Option<usize> {
        self.precond.len()
    }
    fn is_identity(&self) -> bool {
        self.precond.is_identity()
    }
    fn is_linear(&self) -> bool {
        self.precond.is_linear()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.precond.apply(be, gate, r, z)
    }
    fn apply_dot(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        r: &B::Vector,
        z: &mut B::Vector,
        rz: &mut B::Scalar,
    ) -> spandrel_backend::Result<()> {
        self.precond.apply_dot(be, gate, r, z, rz)
    }
}

impl<T: Real, B: Backend<T>> Renew<T, B> for Chosen<T, B> {
    fn renew(&mut self, be: &B, values: &B::Vector) -> Result<f64> {
        self.update(be, values)?;
        Ok(self.shift)
    }
}

impl<T: Real, B: Backend<T>> std::fmt::Debug for Chosen<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chosen")
            .field("plan", &self.plan)
            .field("nnz", &self.nnz)
            .field("shift", &self.shift)
            .finish_non_exhaustive()
    }
}

/// A backend that chooses plans for incomplete factors.
pub trait Incomplete<T: Real>:
    Backend<T> + Assemble<Ilu0<T>> + Assemble<Iluk<T>> + Assemble<Ilut<T>> + Assemble<Ic0<T>> + Assemble<Ssor<T>> + 'static
{
    /// Factors `values` on the pattern of `factor` (the result of the symbolic phase), plans the two solves and loads
    /// them.
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```ignore")]
    /// use spandrel::incomplete::Incomplete;
    /// use spandrel::sptrsv::{Factor, Ic0};
    ///
    /// let csr = spandrel::formats::generate::csr::<f64>("poisson3d:20")?;
    /// let chosen = spandrel::Cpu::new().incomplete(Ic0::symbolic(&csr)?, csr.values())?;
    /// assert_eq!((chosen.plan, chosen.shift), ("sweep", 0.0));
    /// # Ok::<(), spandrel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] for what the factorisation breaks down at; a backend that fails.
    fn incomplete<F: Factor<Value = T>>(&self, factor: F, values: &[T]) -> Result<Chosen<T, Self>>
    where
        Self: Factorize<F>,
    {
        self.incomplete_watched(factor, values, &mut unobserved)
    }

    /// As [`Incomplete::incomplete`], and tells `watcher` of each phase before it begins. A phase itself cannot be
    /// interrupted.
    ///
    /// # Errors
    /// As [`Incomplete::incomplete`], and [`crate::Error::Interrupted`].
    fn incomplete_watched<F: Factor<Value = T>>(
        &self,
        factor: F,
        values: &[T],
        watcher: SetupWatcher<'_>,
    ) -> Result<Chosen<T, Self>>
    where
        Self: Factorize<F>;

    /// Factors a matrix that is on the device as well, with the factorisation's default parameters.
    ///
    /// This happens on the device, without the host's copy, if the backend has a way ([`Assemble::assemble`]); else
    /// from that copy, as in [`Incomplete::incomplete`].
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```ignore")]
    /// use std::sync::Arc;
    /// use spandrel::{Mat, incomplete::Incomplete, sptrsv::Ilu0};
    ///
    /// let csr = Arc::new(spandrel::formats::generate::csr::<f64>("poisson3d:20")?);
    /// let device = spandrel::Cpu::new();
    /// let a = Mat::load(&device, Arc::clone(&csr))?;
    /// assert_eq!(device.incomplete_of::<Ilu0<f64>>(&csr, &a)?.plan, "sweep");
    /// # Ok::<(), spandrel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] for what the symbolic phase or the factorisation breaks down at; a backend that
    /// fails.
    fn incomplete_of<F: Factor<Value = T>>(&self, csr: &Csr<T>, a: &Mat<Self, Csr<T>>) -> Result<Chosen<T, Self>>
    where
        Self: Assemble<F>,
    {
        self.incomplete_or::<F>(a, || Cow::Borrowed(csr))
    }

    /// As [`Incomplete::incomplete_of`], for a matrix of which the host has no copy in this element type yet. `host`
    /// makes one if the device has no way. With [`Mat::narrow`] this gives an f32 preconditioner of an f64 matrix
    /// ([`spandrel_solvers::Mixed`]).
    ///
    /// # Errors
    /// As [`Incomplete::incomplete_of`].
    fn incomplete_or<'a, F: Factor<Value = T>>(
        &self,
        a: &Mat<Self, Csr<T>>,
        host: impl FnOnce() -> Cow<'a, Csr<T>>,
    ) -> Result<Chosen<T, Self>>
    where
        Self: Assemble<F>,
    {
        self.incomplete_or_watched::<F>(a, host, &mut unobserved)
    }

    /// As [`Incomplete::incomplete_or`], and tells `watcher` of each phase before it begins. A device that has a way
    /// does everything in one phase, [`Phase::Numeric`].
    ///
    /// # Errors
    /// As [`Incomplete::incomplete_or`], and [`crate::Error::Interrupted`].
    fn incomplete_or_watched<'a, F: Factor<Value = T>>(
        &self,
        a: &Mat<Self, Csr<T>>,
        host: impl FnOnce() -> Cow<'a, Csr<T>>,
        watcher: SetupWatcher<'_>,
    ) -> Result<Chosen<T, Self>>
    where
        Self: Assemble<F>,
    {
        Phase::Numeric.begin(watcher)?;
        let Some(made) = Assemble::<F>::assemble(self, a.resident())? else {
            let csr = host();
            Phase::Symbolic.begin(watcher)?;
            return self.incomplete_watched(F::symbolic(&csr)?, csr.values(), watcher);
        };
        let (plan, nnz, shift, stored_order) = (made.plan(), made.nnz(), made.shift(), made.is_stored_order());
        Ok(Chosen { precond: Box::new(made), plan, nnz, shift, stored_order })
    }
}

/// The sweep, if the triangles are stencils, it pays and the device takes their grid; else level sets. Level sets
/// recompute the factors, so that the sweep's set-up need not keep them.
#[allow(dead_code)] // without a backend
fn choose<T, B, F>(be: &B, factor: F, values: &[T], watcher: SetupWatcher<'_>) -> Result<Chosen<T, B>>
where
    T: Real,
    B: Sptrsv<Sweep<T>> + Sptrsv<Levelset<T>> + 'static,
    F: Factor<Value = T>,
{
    Phase::Numeric.begin(watcher)?;
    let mut triangles: SharedTriangles<T> = factor.triangles(factor.usable(values)?)?.into();
    Phase::Planning.begin(watcher)?;
    if let Some(plans) = sweeps(&triangles, be.profile()) {
        drop(triangles);
        Phase::Loading.begin(watcher)?;
        match load(be, factor.clone(), plans) {
            Err(Error::Backend(spandrel_backend::Error::Unsupported { .. })) => {}
            made => return made,
        }
        Phase::Numeric.begin(watcher)?;
        triangles = factor.triangles(factor.usable(values)?)?.into();
        Phase::Planning.begin(watcher)?;
    }
    let plans = Plans::<Levelset<T>>::analyze_for(&triangles, be.profile())?;
    drop(triangles);
    Phase::Loading.begin(watcher)?;
    load(be, factor, plans)
}

/// The sweeps of the triangles, if they pay.
#[allow(dead_code)] // without a backend
fn sweeps<T: Real>(triangles: &SharedTriangles<T>, profile: &Profile) -> Option<Plans<Sweep<T>>> {
    Plans::planned(triangles, |triangle, systems| Sweep::paying(triangle, systems, profile).ok_or(())).ok()
}

fn load<P: Plan, B: Sptrsv<P> + 'static, F: Factor<Value = P::Value>>(
    be: &B,
    factor: F,
    plans: Plans<P>,
) -> Result<Chosen<P::Value, B>> {
    let made = Factored::load(be, factor, plans)?;
    let (nnz, shift, stored_order) = (made.nnz(), made.shift(), made.is_stored_order(be));
    Ok(Chosen { precond: Box::new(made), plan: P::NAME, nnz, shift, stored_order })
}

/// A plan on a device on which rows wait for each other.
enum Planned<T: Real> {
    Sweep(Plans<Sweep<T>>),
    General(General<T>),
}

/// The plan without a grid, or on a grid that the device has no schedule for.
enum General<T: Real> {
    Levelset(Plans<Levelset<T>>),
    Capellini(Plans<Capellini<T>>),
}

impl<T: Real> Planned<T> {
    fn of<F: Factor<Value = T>>(factor: &F, profile: &Profile) -> Result<Self> {
        let triangles = factor.triangles(factor.unformed())?.into();
        match sweeps(&triangles, profile) {
            Some(plans) => Ok(Self::Sweep(plans)),
            None => General::of(&triangles, profile).map(Self::General),
        }
    }
}

impl<T: Real> General<T> {
    fn of(triangles: &SharedTriangles<T>, profile: &Profile) -> Result<Self> {
        match Plans::<Levelset<T>>::paying(triangles, profile) {
            Some(plans) => Ok(Self::Levelset(plans)),
            None => Ok(Self::Capellini(Plans::analyze(triangles)?)),
        }
    }
}

/// As [`choose`], with the numeric phase in parallel, on the device unless the host is faster.
#[allow(dead_code)] // without a backend
fn choose_there<T, B, F>(be: &B, factor: F, values: &[T], watcher: SetupWatcher<'_>) -> Result<Chosen<T, B>>
where
    T: Real,
    B: Sptrsv<Sweep<T>> + Sptrsv<Levelset<T>> + Sptrsv<Capellini<T>> + Factorize<F> + 'static,
    F: Factor<Value = T>,
{
    let factor = Arc::new(factor);
    let factors = || match Numeric::of(&*factor, be.profile()).is_sooner_on_host() {
        true => DeviceFactors::by_host(be, Arc::clone(&factor), values),
        false => DeviceFactors::new(be, Arc::clone(&factor), &Backend::<T>::upload(be, values)?),
    };
    // The plans are made in parallel.
    Phase::Numeric.begin(watcher)?;
    // The device stays on this thread; its profile may move.
    let profile = be.profile().clone();
    let (factors, planned) = DeviceFactors::beside(factors, || Planned::of(&*factor, &profile));
    let (planned, factors) = (planned?, factors?);
    Phase::Loading.begin(watcher)?;
    let general = match planned {
        Planned::Sweep(plans) => match factors.load(be, plans) {
            Err(Error::Backend(spandrel_backend::Error::Unsupported { .. })) => {
                General::of(&factor.triangles(factor.unformed())?.into(), be.profile())?
            }
            solves => return chosen(be, solves?, factors),
        },
        Planned::General(general) => general,
    };
    match general {
        General::Levelset(plans) => chosen(be, factors.load(be, plans)?, factors),
        General::Capellini(plans) => chosen(be, factors.load(be, plans)?, factors),
    }
}

fn chosen<P, B, F>(be: &B, solves: Factored<B, P, F>, factors: DeviceFactors<B, F>) -> Result<Chosen<P::Value, B>>
where
    P: Plan,
    F: Factor<Value = P::Value>,
    B: Sptrsv<P> + Factorize<F> + Backend<P::Value> + 'static,
{
    let made = DeviceFactored::of(be, solves, factors)?;
    let solves = made.solves();
    let (nnz, shift, stored_order) = (solves.nnz(), solves.shift(), solves.is_stored_order(be));
    Ok(Chosen { precond: Box::new(made), plan: P::NAME, nnz, shift, stored_order })
}

#[allow(unused_macros)] // as `choose`
macro_rules! by_plans {
    ($Backend:ident, $choose:ident) => {
        impl<T: Real> Incomplete<T> for $Backend {
            fn incomplete_watched<F: Factor<Value = T>>(
                &self,
                factor: F,
                values: &[T],
                watcher: SetupWatcher<'_>,
            ) -> Result<Chosen<T, Self>>
            where
                Self: Factorize<F>,
            {
                $choose(self, factor, values, watcher)
            }
        }
    };
}

#[cfg(feature = "cpu")]
by_plans!(Cpu, choose);
#[cfg(feature = "cuda-core")]
by_plans!(Cuda, choose_there);

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use spandrel_backend::{AnyTri, Device};
    use spandrel_formats::generate;
    use spandrel_sptrsv::sweep::STENCILS;
    use spandrel_sptrsv::{Diagonal, Systems, Triangle, Triangular, split};

    use super::*;
    use crate::refusing::Refusing;

    /// A CPU with the plans of a GPU.
    fn gpu() -> Cpu {
        Cpu::new().with_profile(Profile::invented(&STENCILS))
    }

    /// z = M^-1 1.
    fn applied<B: Backend<f64>>(be: &B, chosen: &Chosen<f64, B>, n: usize) -> Vec<f64> {
        let (r, mut z) = (be.upload(&vec![1.0; n]).unwrap(), be.zeros(n).unwrap());
        chosen.precond.apply(be, None, &r, &mut z).unwrap();
        be.download(&z).unwrap()
    }

    #[test]
    fn a_grid_without_a_schedule_on_the_device_takes_the_other_plan() {
        let (cpu, refusing, there) = (Cpu::new(), Refusing(Cpu::new()), Refusing(gpu()));
        for spec in ["poisson3d:12", "elasticity2d:20x16", "system3d:9x8x7,b=2,coupling=full,peclet=1"] {
            let a = generate::csr::<f64>(spec).unwrap();
            let n = a.row_ptr().len() - 1;
            let swept = cpu.incomplete(Ilu0::symbolic(&a).unwrap(), a.values()).unwrap();
            let factor = || Ilu0::symbolic(&a).unwrap();
            let here = choose(&refusing, factor(), a.values(), &mut unobserved).unwrap();
            let chosen = choose_there(&there, factor(), a.values(), &mut unobserved).unwrap();
            assert_eq!([swept.plan, here.plan, chosen.plan], ["sweep", "levelset", "levelset"], "{spec}");
            let z = applied(&cpu, &swept, n);
            assert_eq!(applied(&refusing, &here, n), z, "{spec}");
            assert_eq!(applied(&there, &chosen, n), z, "{spec}");
        }
    }

    #[test]
    fn several_unknowns_a_point_go_by_the_sweep_on_a_cpu_and_by_level_sets_on_a_gpu() {
        let (cpu, gpu) = (Cpu::new(), gpu());
        for (spec, there) in
            [("poisson3d:12", "sweep"), ("elasticity2d:20x16", "levelset"), ("system3d:12,b=3", "levelset")]
        {
            let a = generate::csr::<f64>(spec).unwrap();
            let factor = || Ilu0::symbolic(&a).unwrap();
            let here = choose(&cpu, factor(), a.values(), &mut unobserved).unwrap();
            let chosen = choose_there(&gpu, factor(), a.values(), &mut unobserved).unwrap();
            assert_eq!([here.plan, chosen.plan], ["sweep", there], "{spec}");
            let n = a.row_ptr().len() - 1;
            assert_eq!(applied(&cpu, &chosen, n), applied(&cpu, &here, n), "{spec}");
        }
    }

    #[test]
    fn new_values_have_the_bits_of_a_new_preconditioner() {
        let cpu = Cpu::new();
        let (gpu, refusing) = (gpu(), Refusing(gpu()));
        let a = generate::csr::<f64>("poisson3d:9").unwrap();
        let b = generate::csr::<f64>("d3n7:9").unwrap();
        assert_eq!(a.values().len(), b.values().len());
        let scaled: Vec<f64> = b.values().iter().enumerate().map(|(k, v)| v * (1.0 + (k % 5) as f64 / 64.0)).collect();
        let next = cpu.upload(&scaled).unwrap();
        let check = |mut chosen: Chosen<f64, Cpu>, wanted: Chosen<f64, Cpu>| {
            let before = applied(&cpu, &chosen, 729);
            let short = cpu.upload(&scaled[1..]).unwrap();
            assert!(chosen.update(&cpu, &short).is_err());
            assert_eq!(applied(&cpu, &chosen, 729), before);
            chosen.update(&cpu, &next).unwrap();
            assert_eq!(applied(&cpu, &chosen, 729), applied(&cpu, &wanted, 729));
            assert_eq!(chosen.shift, wanted.shift);
            assert_ne!(applied(&cpu, &chosen, 729), before);
        };
        let ilu0 = || Ilu0::symbolic(&a).unwrap();
        check(cpu.incomplete(ilu0(), a.values()).unwrap(), cpu.incomplete(ilu0(), &scaled).unwrap());
        check(
            choose_there(&gpu, ilu0(), a.values(), &mut unobserved).unwrap(),
            cpu.incomplete(ilu0(), &scaled).unwrap(),
        );
        let ic0 = || Ic0::symbolic(&a).unwrap();
        check(cpu.incomplete(ic0(), a.values()).unwrap(), cpu.incomplete(ic0(), &scaled).unwrap());
        // Without a schedule there are level sets.
        let mut there = choose_there(&refusing, ilu0(), a.values(), &mut unobserved).unwrap();
        there.update(&refusing, &refusing.upload(&scaled).unwrap()).unwrap();
        let wanted = applied(&cpu, &cpu.incomplete(ilu0(), &scaled).unwrap(), 729);
        assert_eq!(applied(&refusing, &there, 729), wanted);
    }

    #[test]
    fn rows_that_wait_for_each_other_are_factored_by_the_host_with_the_same_bits() {
        let (cpu, gpu) = (Cpu::new(), gpu());
        for (spec, by_host) in [("banded:n=3000,d=9", true), ("poisson3d:24", false)] {
            let a = generate::csr::<f64>(spec).unwrap();
            let factor = || Ilu0::symbolic(&a).unwrap();
            assert_eq!(Numeric::of(&factor(), gpu.profile()).is_sooner_on_host(), by_host, "{spec}");
            let mut there = choose_there(&gpu, factor(), a.values(), &mut unobserved).unwrap();
            let mut here = choose(&cpu, factor(), a.values(), &mut unobserved).unwrap();
            let n = a.row_ptr().len() - 1;
            assert_eq!(applied(&cpu, &there, n), applied(&cpu, &here, n), "{spec}");
            let new: Vec<f64> = a.values().iter().enumerate().map(|(k, v)| v * (1.0 + (k % 7) as f64 / 64.0)).collect();
            let new = cpu.upload(&new).unwrap();
            there.update(&cpu, &new).unwrap();
            here.update(&cpu, &new).unwrap();
            assert_eq!(applied(&cpu, &there, n), applied(&cpu, &here, n), "{spec}, new values");
        }
    }

    #[test]
    fn new_values_in_f64_are_narrowed_for_factors_in_f32() {
        let cpu = Cpu::new();
        let a = generate::csr::<f64>("d3n27:6x5x4").unwrap();
        let of = |csr: &Csr<f64>| {
            let narrowed = spandrel_solvers::Narrowed::new(csr);
            let made = cpu.incomplete(Ic0::symbolic(&narrowed.matrix).unwrap(), narrowed.matrix.values()).unwrap();
            Mixed::new(&cpu, made.precond, 120, narrowed.exponent).unwrap()
        };
        let applied = |m: &Mixed<Cpu, Box<dyn Renew<f32, Cpu>>>| {
            let (r, mut z) = (cpu.upload(&vec![1.0; 120]).unwrap(), Backend::<f64>::zeros(&cpu, 120).unwrap());
            m.apply(&cpu, None, &r, &mut z).unwrap();
            cpu.download(&z).unwrap()
        };
        let mut m = of(&a);
        let before = applied(&m);
        for scale in [3.0, 1e-200, 1e200] {
            let mut next = a.clone();
            next.values_mut().iter_mut().enumerate().for_each(|(k, v)| *v *= scale * (1.0 + (k % 5) as f64 / 64.0));
            assert_eq!(m.renew(&cpu, &cpu.upload(next.values()).unwrap()).unwrap(), 0.0);
            let found = applied(&m);
            assert_eq!(found, applied(&of(&next)), "{scale:e}");
            assert_ne!(found, before);
            // Refused values leave the factors and their exponent.
            for bad in [vec![f64::NAN; a.values().len()], vec![-1.0; a.values().len()], vec![1.0]] {
                assert!(m.renew(&cpu, &cpu.upload(&bad).unwrap()).is_err());
                assert_eq!(applied(&m), found);
            }
        }
    }

    #[test]
    fn so_does_any_triangle() {
        let lower = split(&generate::csr::<f64>("poisson3d:40").unwrap()).unwrap().lower;
        let matrix = Arc::new(Triangular::new(lower, Triangle::Lower, Diagonal::NonUnit).unwrap());
        for device in [Cpu::new(), gpu()] {
            let refusing = Refusing(device.clone());
            let (here, _) = AnyTri::auto(&device, &matrix, Systems::Plain, 10).unwrap();
            let (there, why) = AnyTri::auto(&refusing, &matrix, Systems::Plain, 10).unwrap();
            assert_eq!(here.name(), "sweep");
            assert!(there.name() != "sweep" && why.ends_with("(no schedule fits)"), "{} {why}", there.name());
        }
    }

    #[test]
    fn a_sweep_that_moves_more_than_level_sets_is_not_taken() {
        // Blocks of five with one column per neighbour: rows of four unknowns are mostly zeros.
        let full = generate::csr::<f64>("system2d:40x30,b=5,coupling=full").unwrap();
        let mut triplets = crate::Triplets::new(6000, 6000).unwrap();
        for i in 0..6000usize {
            let (cols, values) = full.row(i);
            for (&j, &v) in cols.iter().zip(values) {
                if i / 5 == j as usize / 5 || (i + j as usize) % 5 == 4 {
                    triplets.push(i, j as usize, v).unwrap();
                }
            }
        }
        let a = triplets.to_csr().unwrap();
        let chosen = Cpu::new().incomplete(Ilu0::symbolic(&a).unwrap(), a.values()).unwrap();
        assert_eq!(chosen.plan, "levelset");
    }
}
