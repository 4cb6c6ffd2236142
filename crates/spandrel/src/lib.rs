//! Sparse linear algebra: storage formats, sparse matrix-vector products and Krylov solvers, each written once against a
//! backend contract.
//!
#![cfg_attr(feature = "cpu", doc = "```")]
#![cfg_attr(not(feature = "cpu"), doc = "```ignore")]
//! use spandrel::solvers::{Jacobi, Options, cg};
//! use spandrel::{Backend, DefaultBackend, Mat, formats};
//!
//! let csr = formats::generate::csr::<f64>("poisson3d:20")?; // 8000 x 8000, or formats::matrix_market to read a file
//! let b = vec![1.0; 8000];
//!
//! let device = DefaultBackend::new();
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
//! This crate only re-exports. Each module below is a crate of its own and can be depended on alone:
//!
//! | module | crate | holds |
//! |---|---|---|
//! | [`formats`] | `spandrel-formats` | storage formats, conversions, Matrix Market, generators |
//! | [`sptrsv`] | `spandrel-sptrsv` | triangles of a matrix, the dependencies between their rows |
//! | [`backend`] | `spandrel-backend` | the contract between solvers and devices |
//! | [`solvers`] | `spandrel-solvers` | Krylov solvers, preconditioners, outcomes |
//! | [`backend_cpu`] | `spandrel-backend-cpu` | the CPU backend, feature `cpu` (default) |
//!
//! The features `sprs`, `faer` and `nalgebra` switch on the conversions of [`formats`] from and to those crates.
//!
//! A program that names [`DefaultBackend`] in the place of a backend runs on whichever the features select. [`Error`] is the
//! error of every fallible call from a matrix to a solution; `?` turns those of formats and backends into it.

pub use spandrel_backend as backend;
pub use spandrel_formats as formats;
pub use spandrel_solvers as solvers;
pub use spandrel_sptrsv as sptrsv;

#[cfg(feature = "cpu")]
pub use spandrel_backend_cpu as backend_cpu;

pub use backend::{Backend, Coeff, Device, Gate, Load, Mat, Operator, Preconditioner, Spmv};
#[cfg(feature = "cpu")]
pub use backend_cpu::Cpu;
pub use formats::{Csr, Format, Real, SparseVec, Traffic, Triplets};
pub use solvers::{Error, Options, Outcome, Result, Status};

/// The backend that the features select: [`Cpu`].
#[cfg(feature = "cpu")]
pub type DefaultBackend = Cpu;

#[cfg(all(doctest, feature = "cpu"))]
#[doc = include_str!("../README.md")]
struct Readme;
