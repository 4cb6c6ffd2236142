//! Sparse linear algebra: storage formats, sparse matrix-vector products and Krylov solvers, each written once against a
//! backend contract.
//!
#![cfg_attr(all(feature = "cpu", not(feature = "cuda-core")), doc = "```")]
#![cfg_attr(feature = "cuda-core", doc = "```no_run")]
#![cfg_attr(not(any(feature = "cpu", feature = "cuda-core")), doc = "```ignore")]
//! use spandrel::solvers::{Jacobi, Options, cg};
//! use spandrel::{Backend, Mat, default_backend, formats};
//!
//! let csr = formats::generate::csr::<f64>("poisson3d:20")?; // 8000 x 8000, or formats::matrix_market to read a file
//! let b = vec![1.0; 8000];
//!
//! let device = default_backend()?; // the GPU with the feature `cuda`, else the CPU
//! let jacobi = Jacobi::new(&device, &csr)?;
//! let a = Mat::load(&device, csr)?;
//! let b = device.upload(&b)?;
//! let mut x = device.zeros(8000)?;
//!
//! let outcome = cg(&device, &a, &jacobi, &b, &mut x, &Options::default())?;
//! assert!(outcome.status.is_converged(), "{outcome:?}");
//! assert!(outcome.true_residual <= 1e-8); // ||b - A x|| / ||b||, recomputed from x
//!
//! let x = device.download(&x)?;
//! assert!(x.iter().all(|&x| x > 0.0));
//! # Ok::<(), spandrel::Error>(())
//! ```
//!
//! This crate re-exports, and chooses: a backend (`default_backend`, `any`), plans for the triangles of a factorisation (`incomplete`)
//! and of a multigrid hierarchy (`multigrid`); `preconditioners` has one line for each. Each of these modules is a crate of its own and can be depended on alone:
//!
//! | module | crate | holds |
//! |---|---|---|
//! | [`formats`] | `spandrel-formats` | storage formats, conversions, Matrix Market, generators |
//! | [`sptrsv`] | `spandrel-sptrsv` | triangles of a matrix, plans of their solves, incomplete factorisations |
//! | [`backend`] | `spandrel-backend` | the contract between solvers and devices |
//! | [`solvers`] | `spandrel-solvers` | Krylov solvers, preconditioners, multigrid, outcomes |
//! | `backend_cpu` | `spandrel-backend-cpu` | the CPU backend, feature `cpu` (default) |
//! | `backend_cuda` | `spandrel-backend-cuda` | the CUDA backend, feature `cuda` |
//!
//! The features `sprs`, `faer` and `nalgebra` switch on the conversions of [`formats`] from and to those crates.
//!
//! # Backends
//!
//! A program written against `DefaultBackend`, made by `default_backend()`, changes its backend by the feature flag alone: `cuda` makes it
//! `Cuda` instead of `Cpu`. It builds without a CUDA toolkit; where a run finds no usable GPU, `default_backend()` is a typed error
//! that says why, never a run on the CPU. `Cpu` and `Cuda` can be named side by side, and `AnyBackend` is one of them chosen while the
//! program runs: see the module `any`.
//!
//! The feature `cuda` takes the driver interface of CUDA 12.4, which newer drivers have too. For another, leave it out and take
//! `cuda-core` together with one of `cuda-12040`, `cuda-12080` and `cuda-13000`.
//!
//! What lies on the GPU already is used in place: `Cuda::wrap` takes over a slice of cudarc's (which `backend_cuda` re-exports), the unsafe
//! `Cuda::wrap_raw` borrows from a device pointer, and `Vector::device_pointer` leads out again; `Cuda::wrap_csr` and `Cuda::wrap_raw_csr` are
//! the same for a matrix.
//!
#![cfg_attr(feature = "cuda-core", doc = "```no_run")]
#![cfg_attr(not(feature = "cuda-core"), doc = "```ignore")]
//! use spandrel::{Backend, Cuda};
//!
//! let device = Cuda::new()?; // before any other call of cudarc's, which panics where there is no driver
//! let stream = device.stream().context().new_stream()?;
//! let slice = stream.clone_htod(&[1.0f64, 2.0, 3.0])?;
//! let x = device.wrap(slice)?; // no copy
//! assert_eq!(device.download(&x)?, [1.0, 2.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Error`] is the error of every fallible call from a matrix to a solution; `?` turns those of formats and backends into it.

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
#[cfg(all(test, feature = "cpu"))]
mod refusing;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod rows;
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub mod solver;

pub use spandrel_backend as backend;
pub use spandrel_formats as formats;
pub use spandrel_solvers as solvers;
pub use spandrel_sptrsv as sptrsv;

#[cfg(feature = "cpu")]
pub use spandrel_backend_cpu as backend_cpu;
#[cfg(feature = "cuda-core")]
pub use spandrel_backend_cuda as backend_cuda;

#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub use any::AnyBackend;
pub use backend::{Backend, Coeff, Device, Factorize, Gate, Load, Mat, Operator, Preconditioner, Spmv, UpdateValues};
#[cfg(feature = "cpu")]
pub use backend_cpu::Cpu;
#[cfg(feature = "cuda-core")]
pub use backend_cuda::Cuda;
pub use formats::{Csr, Format, Profile, Real, SparseVec, Traffic, Triplets};
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub use solver::{DeviceSolver, Solution, Solver};
pub use solvers::{Error, Method, Options, Outcome, Precond, Result, Status};

/// What most programs use, in one line: `use spandrel::prelude::*;`.
///
/// It holds the solver with its choices, matrices and their entries, and the traits whose methods are called on devices and vectors.
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
/// With the feature `cuda`, where no GPU can be used: [`backend::Error::Device`] with the reason and what to do. The CPU never fails.
#[cfg(any(feature = "cpu", feature = "cuda-core"))]
pub fn default_backend() -> Result<DefaultBackend> {
    #[cfg(feature = "cuda-core")]
    return Ok(Cuda::new()?);
    #[cfg(not(feature = "cuda-core"))]
    return Ok(Cpu::new());
}

// Its examples run, and a GPU may be missing.
#[cfg(all(doctest, feature = "cpu", not(feature = "cuda-core")))]
#[doc = include_str!("../README.md")]
struct Readme;
