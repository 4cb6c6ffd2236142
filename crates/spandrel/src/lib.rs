//! Sparse linear systems on CPUs and NVIDIA GPUs.
//!
//! [`Solver`] takes a matrix and solves for any right-hand side. It chooses the device, the method, the preconditioner
//! and the storage format, and says why:
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(all(not(feature = "cpu"), feature = "cuda-core"), doc = "```no_run")]
#![cfg_attr(not(any(feature = "cpu", feature = "cuda-core")), doc = "```ignore")]
//! use spandrel::{Csr, Solver, formats};
//!
//! let a: Csr<f64> = formats::generate::csr("poisson3d:20")?; // 8000 x 8000; or formats::matrix_market to read a file
//! let mut solver = Solver::new(a)?;
//! let solution = solver.solve(&vec![1.0; 8000])?;
//! println!("{}", solver.plan());
//! assert!(solution.outcome.status.is_converged());
//! assert!(solution.outcome.true_residual <= 1e-8); // ||b - A x|| / ||b||, recomputed from x
//! # Ok::<(), spandrel::Error>(())
//! ```
//!
//! Or name the choices ([`solver::Builder`] has all of them):
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(all(not(feature = "cpu"), feature = "cuda-core"), doc = "```no_run")]
#![cfg_attr(not(any(feature = "cpu", feature = "cuda-core")), doc = "```ignore")]
//! use spandrel::{Method, Precond, Solver, formats};
//!
//! let a = formats::generate::csr::<f64>("convdiff2d:40,peclet=2")?; // not symmetric
//! let mut solver = Solver::builder().method(Method::BiCgStab).preconditioner(Precond::Ilu0).rtol(1e-10).build(a)?;
//! assert!(solver.solve(&vec![1.0; 1600])?.outcome.status.is_converged());
//! # Ok::<(), spandrel::Error>(())
//! ```
//!
//! # On a GPU
//!
//! With the feature `cuda`, [`Solver`] takes the first GPU that it finds. The build needs no CUDA toolkit. A program
//! that is put together from parts opens a GPU by `Cuda::new()`, which returns an error that says why if there is none;
//! nothing runs silently on the CPU:
//!
#![cfg_attr(feature = "cuda-core", doc = "```no_run")]
#![cfg_attr(not(feature = "cuda-core"), doc = "```ignore")]
//! use spandrel::solvers::{Jacobi, cg};
//! use spandrel::{Backend, Cuda, Mat, Options, formats};
//!
//! let csr = formats::generate::csr::<f64>("poisson3d:200")?;
//! let device = Cuda::new()?;
//! let jacobi = Jacobi::new(&device, &csr)?;
//! let a = Mat::load(&device, csr)?;
//! let b = device.upload(&vec![1.0; 8_000_000])?;
//! let mut x = device.zeros(8_000_000)?;
//! let outcome = cg(&device, &a, &jacobi, &b, &mut x, &Options::default())?;
//! println!("{outcome}");
//! # Ok::<(), spandrel::Error>(())
//! ```
//!
//! [`default_backend`] is `Cuda::new()` with the feature and `Cpu::new()` without it, and [`AnyBackend`] chooses at run
//! time. The feature `cuda` takes the driver interface of CUDA 12.4, which newer drivers have too. For another one,
//! leave it out and take `cuda-core` with one of `cuda-12040`, `cuda-12080` and `cuda-13000`.
//!
//! Data in device memory is used in place: `Cuda::wrap` takes over a slice of cudarc (which `backend_cuda` re-exports),
//! the unsafe `Cuda::wrap_raw` borrows from a device pointer, and `Cuda::wrap_csr` and `Cuda::wrap_raw_csr` do the same
//! with a matrix.
//!
//! # Parts
//!
//! | module | crate | holds |
//! |---|---|---|
//! | [`solver`] | this one | [`Solver`], its settings, its plan and its solutions |
//! | [`any`], [`calibration`] | this one | a backend chosen at run time; the measured profile of a machine |
//! | [`incomplete`], [`multigrid`], [`preconditioners`] | this one | preconditioners whose triangular solves are planned for a device |
//! | [`formats`] | `spandrel-formats` | storage formats, conversions, Matrix Market, generators |
//! | [`solvers`] | `spandrel-solvers` | methods, preconditioners, options, outcomes |
//! | [`sptrsv`] | `spandrel-sptrsv` | triangles, plans of their solves, incomplete factorisations |
//! | [`backend`] | `spandrel-backend` | the contract between solvers and devices |
//! | `backend_cpu` | `spandrel-backend-cpu` | the CPU backend, feature `cpu` (default) |
//! | `distributed`, `ranks` | `spandrel-distributed`, this one | solves on several ranks, feature `ranks` |
//! | `backend_cuda` | `spandrel-backend-cuda` | the CUDA backend, feature `cuda` |
//!
//! The features `sprs`, `faer` and `nalgebra` add conversions from and to those crates. [`Error`] is the error of every
//! fallible call from a matrix to a solution; `?` turns those of formats and backends into it.
//!
//! The book of the repository (`docs/`) has a guide with one page per task, measurements, and the design. `cargo xtask
//! book` builds it.

#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod any;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod calibration;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod incomplete;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod multigrid;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod preconditioners;
#[cfg(feature = "ranks")]
pub mod ranks;
#[cfg(all(test, feature = "cpu"))]
mod refusing;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod rows;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod solver;

#[doc(inline)]
pub use spandrel_backend as backend;
#[doc(inline)]
pub use spandrel_formats as formats;
#[doc(inline)]
pub use spandrel_solvers as solvers;
#[doc(inline)]
pub use spandrel_sptrsv as sptrsv;

#[cfg(feature = "cpu")]
#[doc(inline)]
pub use spandrel_backend_cpu as backend_cpu;
#[cfg(feature = "cuda-core")]
#[doc(inline)]
pub use spandrel_backend_cuda as backend_cuda;
#[cfg(feature = "ranks")]
#[doc(inline)]
pub use spandrel_distributed as distributed;

#[cfg(any(feature = "cpu", feature = "cuda-core"))]
#[doc(inline)]
pub use any::AnyBackend;
#[doc(inline)]
pub use backend::{
    Backend, Coeff, Device, Download, Factorize, Gate, Load, Mat, Operator, Preconditioner, Spgemm, Spmv, Transpose,
    UpdateValues,
};
#[cfg(feature = "cpu")]
#[doc(inline)]
pub use backend_cpu::Cpu;
#[cfg(feature = "cuda-core")]
#[doc(inline)]
pub use backend_cuda::Cuda;
#[doc(inline)]
pub use formats::{Csr, Format, Profile, Real, SparseVec, Traffic, Triplets};
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
#[doc(inline)]
pub use solver::{DeviceSolver, Solution, Solver};
#[doc(inline)]
pub use solvers::{Error, Method, Options, Outcome, Precond, Result, Status};

/// The names that most programs use: `use spandrel::prelude::*;`.
///
/// These are the solver with its choices, matrices and their entries, and the traits whose methods devices and vectors
/// have.
pub mod prelude {
    #[cfg(any(feature = "cpu", feature = "cuda-core"))]
    pub use crate::any::AnyBackend;
    pub use crate::backend::{Backend, Coeff, Device, Load, Mat, Operator, Preconditioner, Spmv, UpdateValues};
    pub use crate::formats::{Csr, Format, Real, Traffic, Triplets};
    #[cfg(any(feature = "cpu", feature = "cuda-core"))]
    pub use crate::solver::{DeviceSolver, Event, FormatChoice, Precision, Reorder, Solution, Solver, Tolerance};
    pub use crate::solvers::{Method, Options, Outcome, Precond, Status};
}

/// The backend that the features select: `Cuda` with `cuda`, else `Cpu`.
#[cfg(feature = "cuda-core")]
pub type DefaultBackend = Cuda;
/// The backend that the features select: `Cuda` with `cuda`, else `Cpu`.
#[cfg(all(feature = "cpu", not(feature = "cuda-core")))]
pub type DefaultBackend = Cpu;

/// A device of the [`DefaultBackend`]: the first GPU that the driver shows, or the CPU with all its threads.
///
/// # Errors
/// With the feature `cuda` and no usable GPU: [`backend::Error::Device`] with the reason and what to do. The CPU never
/// fails.
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub fn default_backend() -> Result<DefaultBackend> {
    #[cfg(feature = "cuda-core")]
    return Ok(Cuda::new()?);
    #[cfg(not(feature = "cuda-core"))]
    return Ok(Cpu::new());
}

// With `cuda` its examples would need a GPU.
#[cfg(all(doctest, feature = "cpu", not(feature = "cuda-core")))]
#[doc = include_str!("../README.md")]
struct Readme;
