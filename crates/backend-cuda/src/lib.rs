//! The CUDA backend: cudarc's driver interface and PTX that is part of the crate. It needs no CUDA toolkit to build and only
//! NVIDIA's driver to run, and it never panics for want of either: [`probe()`] and [`Cuda::new`] give the reason.
//!
//! [`Cuda`] is the device. Kernels are CUDA C++ in `kernels/`, one file a noun, compiled ahead into `ptx/`. A plan of the triangular solve
//! launches one column (`sptrsv.rs` has the rest), a factorisation one attempt (`factor.rs`).

mod backend;
mod bdia;
mod bicgstab;
mod bsr;
mod bsrx;
mod capellini;
mod cast;
mod cg;
mod convert;
mod coo;
mod csc;
mod csr;
mod dense;
mod device;
mod dia;
mod elementwise;
mod ell;
mod error;
mod factor;
mod hec;
mod hmec;
mod hyb;
mod ic0;
mod ilu0;
mod iluk;
mod ilut;
mod kernel;
mod launch;
mod levelset;
mod memory;
mod module;
mod monitor;
mod parts;
mod persistent;
mod pieces;
pub mod probe;
pub mod profile;
mod runs;
mod sell;
mod serial;
mod sptrsv;
mod ssor;
mod staging;
mod structured;
mod sweep;
mod syncfree;
mod triangle;
mod vector;
mod windows;

pub use coo::{CooKernel, CudaCoo};
pub use csc::CudaCsc;
pub use csr::{CsrKernel, CudaCsr, RawCsr};
mod sparse_vec;

pub use bdia::{BdiaKernel, CudaBdia};
pub use bsr::CudaBsr;
pub use bsrx::CudaBsrx;
pub use capellini::CudaCapellini;
pub use cudarc;
pub use dense::CudaDense;
pub use device::{Cuda, Graph};
pub use dia::CudaDia;
pub use elementwise::CudaElementwise;
pub use ell::CudaEll;
pub use factor::CudaFactor;
pub use hec::CudaHec;
pub use hmec::CudaHmec;
pub use hyb::CudaHyb;
pub use levelset::CudaLevelset;
pub use module::ptx;
pub use monitor::Monitor;
pub use probe::{CudaUnavailable, DeviceInfo, NEEDED_CAPABILITY, NEEDED_VERSION, first_usable, probe, probe_at};
pub use sell::CudaSell;
pub use serial::CudaSerial;
pub use sparse_vec::CudaSparseVec;
#[doc(hidden)]
pub use sptrsv::CountsSolves;
pub use structured::CudaStructured;
pub use sweep::CudaSweep;
pub use syncfree::CudaSyncfree;
pub use vector::{Scalar, Vector};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
