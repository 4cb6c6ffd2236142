//! The main entry point: a [`Solver`] takes a matrix and solves for any right-hand side.
//!
//! A solver chooses the device, the method, the preconditioner and the storage format, and says why ([`Plan`]). If a
//! choice fails, it continues with another one ([`Solution::attempts`]). [`Builder`] names choices instead.
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(not(feature = "cpu"), doc = "```no_run")]
//! use spandrel::solvers::{Method, Precond};
//! use spandrel::{Solver, formats};
//!
//! let a = formats::generate::csr::<f64>("poisson3d:12")?;
//! let b = vec![1.0; 12 * 12 * 12];
//! let mut solver = Solver::builder().method(Method::Cg).preconditioner(Precond::Jacobi).rtol(1e-10).build(a)?;
//! let solution = solver.solve(&b)?;
//! assert!(solution.outcome.status.is_converged());
//! println!("{}", solver.plan());
//! # Ok::<(), spandrel::Error>(())
//! ```
//!
//! [`Solver`] owns its device and chooses it at run time. [`DeviceSolver`] is the same on a device that the caller
//! owns, with vectors that stay there.

mod attempts;
mod build;
mod device;
mod element;
mod engine;
mod finish;
mod kernel;
mod made;
mod measure;
mod near_null;
mod plan;
mod policy;
mod prepare;
pub mod renumber;
mod rival;
mod settings;
pub(crate) mod shared;
mod solution;
mod stronger;
mod supply;
pub(crate) mod truth;
pub(crate) mod words;

use std::ops::ControlFlow;
use std::sync::Arc;

use spandrel_formats::Csr;
use spandrel_solvers::{Method, Precond, Result};

#[cfg(feature = "cpu")]
use crate::Cpu;
#[cfg(feature = "cuda-core")]
use crate::Cuda;
use crate::any::{AnyBackend, Choice};
#[cfg(feature = "ranks")]
pub(crate) use build::{NEARER, bisection, nearer};
pub use build::{Planned, Times};
pub use device::DeviceSolver;
#[cfg(feature = "ranks")]
pub(crate) use device::restored;
pub use element::{Element, SolverBackend};
pub use plan::{Event, FactorReport, Plan, Replaced, Stage};
pub use settings::{
    Fallback, FormatChoice, NearNull, NullVectors, Precision, Reorder, Scale, Settings, Tolerance, or_auto,
};
pub use solution::{Attempt, Solution, Solutions};

use build::{Reporter, Watch};

/// The settings of a solve, set one by one. [`Solver::builder`] starts with the defaults.
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    settings: Settings,
    reporter: Reporter,
}

/// Setters that differ only in their names.
macro_rules! setters {
    ($($(#[$about:meta])* $name:ident: $Type:ty => $field:ident),+ $(,)?) => {
        $($(#[$about])*
        pub fn $name(mut self, value: impl Into<$Type>) -> Self {
            self.settings.$field = value.into();
            self
        })+
    };
}

impl Builder {
    /// Starts with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, reporter: Reporter::default() }
    }

    setters! {
        /// Sets the device. Default: the first usable GPU, else the CPU.
        device: Choice => device,
        /// Sets the method. Default, or `None`: chosen by the matrix's structure.
        method: Option<Method> => method,
        /// Sets the preconditioner. Default, or `None`: chosen by the matrix and the method.
        preconditioner: Option<Precond> => preconditioner,
        /// Sets the storage format. Default [`FormatChoice::Auto`].
        format: FormatChoice => format,
        /// Sets the element types. Default [`Precision::Native`].
        precision: Precision => precision,
        /// Sets the renumbering. Default, or `None`: chosen by the matrix.
        reorder: Option<Reorder> => reorder,
        /// Sets the scaling of rows and columns for an iteration. Default, or `None`: chosen by the matrix.
        scale: Option<Scale> => scale,
        /// Asks for the least squares solution, the least ||b - A x|| for a matrix of any rank and shape. Default
        /// false.
        least_squares: bool => least_squares,
        /// Names the matrix's null space. Default: none.
        null_space: NullVectors => null_space,
        /// Sets the relative goal. Default: [`Tolerance::of`] the element type.
        rtol: Option<f64> => rtol,
        /// Sets the absolute goal. Default 0.
        atol: f64 => atol,
        /// Sets the limit of iterations. Default: 20 per row, at least 20.
        max_iterations: Option<usize> => max_iterations,
        /// Sets the number of iterations between two looks of the host. Default 16. It changes no bit of x.
        check_every: Option<usize> => check_every,
        /// Ends CG or BiCGStab after this many iterations without a smaller residual. Default: never.
        stagnation: Option<usize> => stagnation,
        /// Sets the number of steps of a GMRES cycle. Default 30.
        restart: Option<usize> => restart,
        /// Bytes that the factors of a complete factorisation may take. Default: see [`Settings::memory_limit`].
        memory_limit: Option<u64> => memory_limit,
        /// Only kernels whose order of summation every backend shares. Default false.
        reproducible: bool => reproducible,
        /// Says whether another choice may replace one that fails. Default [`Fallback::Auto`].
        fallback: Fallback => fallback,
        /// Says whether new values will come. Default true.
        updatable: bool => updatable,
    }

    /// Gives near-null-space vectors, column by column, each with one element per row. See [`NearNull`]. Default: the
    /// constant of each unknown.
    pub fn near_null_space(mut self, vectors: impl Into<Vec<f64>>) -> Self {
        self.settings.near_null = Some(NearNull::Vectors(Arc::new(vectors.into())));
        self
    }

    /// Gives the coordinates of the points whose displacements are the unknowns, point by point, 2 or 3 per point. See
    /// [`NearNull`].
    pub fn coordinates(mut self, points: impl Into<Vec<f64>>, dimension: usize) -> Self {
        self.settings.near_null = Some(NearNull::Coordinates { points: Arc::new(points.into()), dimension });
        self
    }

    /// Sets both goals.
    pub fn tolerance(mut self, tolerance: Tolerance) -> Self {
        (self.settings.rtol, self.settings.atol) = (Some(tolerance.rtol), tolerance.atol);
        self
    }

    /// Calls `watch` as each phase begins, at every look at a running iteration, and for each note. `Break` ends a
    /// set-up with [`crate::Error::Interrupted`] at the end of its phase, and a solve as [`crate::Status::Interrupted`]
    /// with the x reached.
    pub fn on_progress(mut self, watch: impl FnMut(Event<'_>) -> ControlFlow<()> + Send + 'static) -> Self {
        let watch: Box<Watch> = Box::new(watch);
        self.reporter = Reporter(Some(watch));
        self
    }

    /// Plans a solve with `a` on the caller's device, without setting anything up. Blocks.
    ///
    /// # Errors
    /// [`crate::Error::NotSquare`], [`crate::Error::Unsupported`] and [`crate::Error::NotReproducible`] for settings
    /// that contradict the matrix or each other.
    pub fn plan_on<T: Element, B: SolverBackend<T>>(self, device: &B, a: impl Into<Arc<Csr<T>>>) -> Result<Planned<T>> {
        Planned::new(device, self.settings, self.reporter, a.into())
    }

    /// Builds a solver on the caller's device. Blocks.
    ///
    /// # Errors
    /// As [`Builder::plan_on`] and [`Planned::build_on`].
    pub fn build_on<T: Element, B: SolverBackend<T>>(
        self,
        device: &B,
        a: impl Into<Arc<Csr<T>>>,
    ) -> Result<DeviceSolver<T, B>> {
        self.plan_on(device, a)?.build_on(device)
    }

    /// Builds a solver on the device that the settings name. Blocks.
    ///
    /// # Errors
    /// A device that cannot be opened; as [`Builder::build_on`].
    pub fn build<T: Element>(self, a: impl Into<Arc<Csr<T>>>) -> Result<Solver<T>> {
        T::solver(self, a.into())
    }

    /// The common body of [`Element::solver`].
    fn opened<T: Element>(self, a: Arc<Csr<T>>) -> Result<Solver<T>> {
        let (device, why) = match self.settings.device {
            Choice::Auto => match AnyBackend::auto()? {
                (device, None) => (device, "the first GPU found".to_string()),
                (device, Some(error)) => (device, format!("no GPU: {error}")),
            },
            choice @ (Choice::Cpu | Choice::Cuda | Choice::Gpu(_)) => {
                (AnyBackend::open(choice)?, "as asked for".to_string())
            }
        };
        let reproducible = self.settings.reproducible;
        let inner = match device.with_reproducible(reproducible) {
            #[cfg(feature = "cpu")]
            AnyBackend::Cpu(cpu) => Inner::Cpu(self.plan_on(&cpu, a)?.because(why).build_on(&cpu)?, cpu),
            #[cfg(feature = "cuda-core")]
            AnyBackend::Cuda(cuda) => {
                Inner::Cuda(self.plan_on(&cuda, a)?.because(why).build_on(&cuda)?, Box::new(cuda))
            }
        };
        Ok(Solver { inner })
    }
}

/// Solves A x = b for one matrix and any number of right-hand sides, on a device chosen at run time.
///
/// See the [module](self) for an example. A solver may move between threads; one thread uses it at a time.
pub struct Solver<T: Element = f64> {
    inner: Inner<T>,
}

/// A solver and its device, which is dropped last.
enum Inner<T: Element> {
    #[cfg(feature = "cpu")]
    Cpu(DeviceSolver<T, Cpu>, Cpu),
    #[cfg(feature = "cuda-core")]
    Cuda(DeviceSolver<T, Cuda>, Box<Cuda>),
}

/// Runs `$call` on the solver and its device, for either backend.
macro_rules! on {
    ($inner:expr, |$solver:ident, $device:ident| $call:expr) => {
        match $inner {
            #[cfg(feature = "cpu")]
            Inner::Cpu($solver, $device) => $call,
            #[cfg(feature = "cuda-core")]
            Inner::Cuda($solver, $device) => $call,
        }
    };
}

impl<T: Element> std::fmt::Debug for Solver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Solver").field("plan", self.plan()).finish_non_exhaustive()
    }
}

impl Solver {
    /// Settings of a solver, to set one by one.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<T: Element> Solver<T> {
    /// A solver that makes every choice by itself. Blocks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new(a: impl Into<Arc<Csr<T>>>) -> Result<Self> {
        Builder::default().build(a)
    }

    /// The choices and their reasons.
    pub fn plan(&self) -> &Plan {
        on!(&self.inner, |solver, _device| solver.plan())
    }

    /// The times of the set-up, in seconds.
    pub fn setup_times(&self) -> Times {
        on!(&self.inner, |solver, _device| solver.setup_times())
    }

    /// Solves A x = b from x = 0. Blocks. See [`DeviceSolver::solve`].
    ///
    /// # Errors
    /// As there.
    pub fn solve(&mut self, b: &[T]) -> Result<Solution<T>> {
        on!(&mut self.inner, |solver, device| solver.solve(device, b))
    }

    /// Solves A x = b from x = `x0`. Blocks. See [`DeviceSolver::solve_from`].
    ///
    /// # Errors
    /// As there.
    pub fn solve_from(&mut self, b: &[T], x0: &[T]) -> Result<Solution<T>> {
        on!(&mut self.inner, |solver, device| solver.solve_from(device, b, x0))
    }

    /// Solves A X = B for all columns of B, stored one after the other. Blocks. See [`DeviceSolver::solve_many`].
    ///
    /// # Errors
    /// As there.
    pub fn solve_many(&mut self, b: &[T]) -> Result<Solutions<T>> {
        on!(&mut self.inner, |solver, device| solver.solve_many(device, b))
    }

    /// M^-1 r by the preconditioner of the solver. Blocks. See [`DeviceSolver::precondition`].
    ///
    /// # Errors
    /// As there.
    pub fn precondition(&self, r: &[T]) -> Result<Vec<T>> {
        on!(&self.inner, |solver, device| solver.precondition(device, r))
    }

    /// The solver and its GPU, if it runs on one: for vectors that stay there ([`DeviceSolver::solve_on`]).
    #[cfg(feature = "cuda-core")]
    pub fn on_cuda(&mut self) -> Option<(&mut DeviceSolver<T, Cuda>, &Cuda)> {
        match &mut self.inner {
            Inner::Cuda(solver, device) => Some((solver, device)),
            #[cfg(feature = "cpu")]
            Inner::Cpu(..) => None,
        }
    }

    /// New values of the matrix on its pattern. Blocks. See [`DeviceSolver::update_values`].
    ///
    /// # Errors
    /// As there.
    pub fn update_values(&mut self, values: &[T]) -> Result<()> {
        on!(&mut self.inner, |solver, device| solver.update_values(device, values))
    }

    /// Takes the values of another matrix with the same pattern. Blocks. See [`DeviceSolver::update_values`].
    ///
    /// # Errors
    /// As there; [`crate::Error::Pattern`] for a matrix with another number of entries.
    pub fn update_values_from(&mut self, a: &Csr<T>) -> Result<()> {
        self.update_values(a.values())
    }
}

#[cfg(all(test, feature = "cpu"))]
mod tests;
