//! Multigrid with the plan that suits each grid's triangles, as in [`crate::incomplete`]: the sweep if the device has a
//! schedule for their stencil, else level sets.

use spandrel_backend::Sptrsv;
use spandrel_formats::Real;
use spandrel_solvers::multigrid::{Halves, Planned, Smoother, StencilBackend};
use spandrel_solvers::phase::unobserved;
use spandrel_solvers::{Error, Hierarchy, Multigrid, Result, SetupWatcher};
use spandrel_sptrsv::{Levelset, Sweep};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;

/// A backend that chooses plans for the grids of a multigrid cycle.
pub trait Geometric<T: Real>: StencilBackend<T> + 'static {
    /// Loads a hierarchy. See [`Multigrid`].
    ///
    #[cfg_attr(feature = "cpu", doc = "```")]
    #[cfg_attr(not(feature = "cpu"), doc = "```ignore")]
    /// use spandrel::multigrid::Geometric;
    /// use spandrel::solvers::{Hierarchy, Options, cg};
    /// use spandrel::{Backend, Cpu, Mat};
    ///
    /// let device = Cpu::new();
    /// let csr = spandrel::formats::generate::csr::<f64>("poisson3d:20")?;
    /// let mg = device.multigrid(&Hierarchy::galerkin(&csr, None)?)?;
    /// assert_eq!(mg.sizes(), [[20, 20, 20], [10, 10, 10], [5, 5, 5], [2, 2, 2]]);
    ///
    /// let (b, mut x) = (device.upload(&vec![1.0; 8000])?, device.zeros(8000)?);
    /// let outcome = cg(&device, &Mat::load(&device, csr)?, &mg, &b, &mut x, &Options::default())?;
    /// assert!(outcome.status.is_converged() && outcome.iterations < 10);
    /// # Ok::<(), spandrel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] with the row of a diagonal entry that is missing, zero or not finite; a backend that
    /// fails.
    fn multigrid(&self, hierarchy: &Hierarchy<'_, T>) -> Result<Multigrid<T, Self>> {
        self.multigrid_watched(hierarchy, &mut unobserved)
    }

    /// As [`Geometric::multigrid`], and tells `watcher` of each grid before it is set up.
    ///
    /// # Errors
    /// As [`Geometric::multigrid`], and [`crate::Error::Interrupted`].
    fn multigrid_watched(&self, hierarchy: &Hierarchy<'_, T>, watcher: SetupWatcher<'_>) -> Result<Multigrid<T, Self>>;
}

/// The sweep, or level sets if it does not fit.
#[allow(dead_code)] // without a backend
fn choose<T, B>(be: &B, halves: &Halves<T>) -> Result<Box<dyn Smoother<T, B>>>
where
    T: Real,
    B: Sptrsv<Sweep<T>> + Sptrsv<Levelset<T>> + 'static,
{
    match Planned::<B, Sweep<T>>::new(be, halves) {
        Ok(sweep) => Ok(Box::new(sweep)),
        Err(Error::Triangle(_) | Error::Backend(spandrel_backend::Error::Unsupported { .. })) => {
            Ok(Box::new(Planned::<B, Levelset<T>>::new(be, halves)?))
        }
        Err(error) => Err(error),
    }
}

#[allow(unused_macros)] // as `choose`
macro_rules! by_plans {
    ($Backend:ident) => {
        impl<T: Real> Geometric<T> for $Backend {
            fn multigrid_watched(
                &self,
                hierarchy: &Hierarchy<'_, T>,
                watcher: SetupWatcher<'_>,
            ) -> Result<Multigrid<T, Self>> {
                Multigrid::with_watched(self, hierarchy, choose, watcher)
            }
        }
    };
}

#[cfg(feature = "cpu")]
by_plans!(Cpu);
#[cfg(feature = "cuda-core")]
by_plans!(Cuda);
