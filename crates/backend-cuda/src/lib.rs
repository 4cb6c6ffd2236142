//! The CUDA backend, which uses cudarc's driver interface and PTX that is part of the crate. It builds without a CUDA
//! toolkit and needs only NVIDIA's driver to run. Without a driver it never panics: [`probe()`] and [`Cuda::new`]
//! return the reason.
//!
//! [`Cuda`] is the device. Kernels are CUDA C++ in `kernels/`, one file per noun, compiled ahead into `ptx/`. A plan of
//! the triangular solve implements only the launch for one column (`sptrsv.rs` does the rest). A factorisation
//! implements only one attempt (`factor.rs` does the rest).

mod backend;
mod bdia;
mod bicgstab;
mod bsr;
mod bsrx;
mod capellini;
mod cast;
mod cg;
mod coarsen;
mod convert;
mod coo;
mod csc;
mod csr;
mod dense;
mod device;
mod dia;
mod elementwise;
mod ell;
mod entries;
mod error;
mod factor;
mod hec;
mod hmec;
mod hyb;
mod ic0;
mod ilu0;
mod iluk;
mod ilut;
mod join;
mod kept;
mod kernel;
mod landing;
mod launch;
mod levelset;
mod memory;
mod module;
mod monitor;
mod opened;
mod parts;
mod peers;
mod persistent;
mod pieces;
pub mod probe;
pub mod profile;
mod registers;
mod renumber;
mod runs;
mod scan;
mod sell;
mod serial;
mod spgemm;
mod sptrsv;
mod ssor;
mod staging;
mod stencil;
mod structured;
mod sweep;
mod syncfree;
mod transpose;
mod triangle;
mod vector;
mod windows;

pub use coarsen::{CudaAggregates, CudaCoarser};
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
pub use entries::CudaPlaces;
pub use factor::CudaFactor;
pub use hec::CudaHec;
pub use hmec::CudaHmec;
pub use hyb::CudaHyb;
pub use levelset::CudaLevelset;
pub use module::ptx;
pub use monitor::Monitor;
pub use peers::{Peer, SendBuffer};
pub use probe::{CudaUnavailable, DeviceInfo, NEEDED_CAPABILITY, NEEDED_VERSION, first_usable, probe, probe_at};
pub use renumber::{CudaNumbering, CudaRenumbering};
pub use sell::CudaSell;
pub use serial::CudaSerial;
pub use sparse_vec::CudaSparseVec;
pub use spgemm::CudaSpgemm;
#[doc(hidden)]
pub use sptrsv::CountsSolves;
pub use structured::CudaStructured;
pub use sweep::CudaSweep;
pub use syncfree::CudaSyncfree;
pub use transpose::CudaTranspose;
pub use vector::{Scalar, Vector};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
