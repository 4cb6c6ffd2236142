//! Preconditioners by triangular solves with the plan that suits the factors: the sweep where they are stencils on a grid that the device has
//! a schedule for, else level sets on the CPU and a thread a row on a GPU, where that waits least (record/h200-sptrsv.jsonl). On a GPU the
//! factors are computed there, with the bits of the host's: the host looks at patterns alone.

use spandrel_backend::{Backend, Factorize, Preconditioner, Sptrsv};
use spandrel_formats::Real;
use spandrel_solvers::factored::{Factored, Plans, SharedTriangles};
use spandrel_solvers::{DeviceFactored, Error, Result};
#[cfg(feature = "cuda-core")]
use spandrel_sptrsv::Capellini;
#[cfg(feature = "cpu")]
use spandrel_sptrsv::Levelset;
use spandrel_sptrsv::{Factor, Ic0, Ilu0, Iluk, Plan, Ssor, Sweep};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;

/// A preconditioner with what was chosen for it.
#[non_exhaustive]
pub struct Chosen<T: Real, B: Backend<T>> {
    /// The preconditioner.
    pub precond: Box<dyn Preconditioner<T, B>>,
    /// The plan that solves with its triangles, [`Plan::NAME`].
    pub plan: &'static str,
    /// Entries of the factors.
    pub nnz: usize,
    /// alpha, where A + alpha diag(A) was factored in the place of A; else 0.
    pub shift: f64,
    /// Whether it has the same bits on every backend: see [`Factored::is_stored_order`].
    pub stored_order: bool,
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
    Backend<T> + Factorize<Ilu0<T>> + Factorize<Iluk<T>> + Factorize<Ic0<T>> + Factorize<Ssor<T>> + 'static
{
    /// Factors `values` on the pattern of `factor` (the symbolic phase's result), plans the two solves and brings them onto the device.
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
        Self: Factorize<F>;
}

/// The sweep where the triangles are stencils and the device takes their grid, else the plan `Other`. The factors are computed once more where
/// it does not, so that they need not be kept for that while the sweep's form is made.
#[allow(dead_code)] // without a backend
fn choose<T, Other, B, F>(be: &B, factor: F, values: &[T]) -> Result<Chosen<T, B>>
where
    T: Real,
    Other: Plan<Value = T>,
    B: Sptrsv<Sweep<T>> + Sptrsv<Other> + 'static,
    F: Factor<Value = T>,
{
    let mut triangles: SharedTriangles<T> = factor.triangles(factor.numeric(values)?)?.into();
    if let Ok(plans) = Plans::<Sweep<T>>::analyze(&triangles) {
        drop(triangles);
        match load(be, factor.clone(), plans) {
            Err(Error::Backend(spandrel_backend::Error::Unsupported { .. })) => {}
            made => return made,
        }
        triangles = factor.triangles(factor.numeric(values)?)?.into();
    }
    let plans = Plans::<Other>::analyze(&triangles)?;
    drop(triangles);
    load(be, factor, plans)
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

/// As [`choose`] with the numeric phase on the device.
#[allow(dead_code)] // without a backend
fn choose_there<T, Other, B, F>(be: &B, factor: F, values: &[T]) -> Result<Chosen<T, B>>
where
    T: Real,
    Other: Plan<Value = T>,
    B: Sptrsv<Sweep<T>> + Sptrsv<Other> + Factorize<F> + 'static,
    F: Factor<Value = T>,
{
    let values = Backend::<T>::upload(be, values)?;
    let mut triangles: SharedTriangles<T> = factor.triangles(factor.unformed())?.into();
    if let Ok(plans) = Plans::<Sweep<T>>::analyze(&triangles) {
        drop(triangles);
        match load_there(be, factor.clone(), plans, &values) {
            Err(Error::Backend(spandrel_backend::Error::Unsupported { .. })) => {}
            made => return made,
        }
        triangles = factor.triangles(factor.unformed())?.into();
    }
    let plans = Plans::<Other>::analyze(&triangles)?;
    drop(triangles);
    load_there(be, factor, plans, &values)
}

fn load_there<P, B, F>(
    be: &B,
    factor: F,
    plans: Plans<P>,
    values: &<B as Backend<P::Value>>::Vector,
) -> Result<Chosen<P::Value, B>>
where
    P: Plan,
    F: Factor<Value = P::Value>,
    B: Sptrsv<P> + Factorize<F> + Backend<P::Value> + 'static,
{
    let made = DeviceFactored::load(be, factor, plans, values)?;
    let solves = made.solves();
    let (nnz, shift, stored_order) = (solves.nnz(), solves.shift(), solves.is_stored_order(be));
    Ok(Chosen { precond: Box::new(made), plan: P::NAME, nnz, shift, stored_order })
}

#[allow(unused_macros)] // as `choose`
macro_rules! by_plans {
    ($Backend:ident, $Other:ident, $choose:ident) => {
        impl<T: Real> Incomplete<T> for $Backend {
            fn incomplete<F: Factor<Value = T>>(&self, factor: F, values: &[T]) -> Result<Chosen<T, Self>>
            where
                Self: Factorize<F>,
            {
                $choose::<T, $Other<T>, _, _>(self, factor, values)
            }
        }
    };
}

#[cfg(feature = "cpu")]
by_plans!(Cpu, Levelset, choose);
#[cfg(feature = "cuda-core")]
by_plans!(Cuda, Capellini, choose_there);
