//! Spandrel's CPU backend: rayon threads and run-time choice of vector instructions. Any number of threads gives the
//! same bits.
//!
//! [`Cpu`] is the device. A resident matrix shares the host's arrays and adds a partition of its rows by bytes. f64
//! diagonals may be kept in f32 ([`CpuDia`]).
//!
//! Every row-wise format only forms the accumulators of a chunk of rows. Finishing y, writing through a permutation,
//! fused dot products and several right-hand sides are written once for all formats (`product.rs`). Likewise, size
//! checks, gates, columns and new values of triangular solves are written once for all plans (`sptrsv.rs`).

mod backend;
mod bdia;
mod bicgstab;
mod bsr;
mod bsrx;
mod capellini;
mod cast;
mod cg;
mod coarsen;
mod coo;
mod csc;
mod csr;
mod dense;
mod device;
mod dia;
mod dot;
mod elementwise;
mod ell;
mod entries;
mod factor;
mod hec;
mod hmec;
mod hyb;
#[cfg(all(feature = "instances", debug_assertions, not(test)))]
mod instances;
mod kept;
mod levelset;
mod marks;
mod monitor;
mod partition;
mod peers;
mod product;
mod profile;
mod renumber;
mod sell;
mod serial;
mod simd;
mod sparse_vec;
mod spgemm;
mod sptrsv;
mod stencils;
mod structured;
mod sweep;
mod syncfree;
mod threads;
mod transpose;
mod turns;
mod vector;

pub use bdia::CpuBdia;
pub use bsr::CpuBsr;
pub use bsrx::CpuBsrx;
pub use capellini::CpuCapellini;
pub use coarsen::{CpuAggregates, CpuCoarser};
pub use coo::CpuCoo;
pub use csc::CpuCsc;
pub use csr::CpuCsr;
pub use dense::CpuDense;
pub use device::Cpu;
pub use dia::CpuDia;
pub use elementwise::CpuElementwise;
pub use ell::CpuEll;
pub use entries::CpuPlaces;
pub use factor::CpuFactor;
pub use hec::CpuHec;
pub use hmec::CpuHmec;
pub use hyb::CpuHyb;
pub use levelset::CpuLevelset;
pub use monitor::Monitor;
pub use peers::CpuSendBuffer;
pub use renumber::{CpuNumbering, CpuRenumbering};
pub use sell::CpuSell;
pub use serial::CpuSerial;
pub use simd::Simd;
pub use sparse_vec::CpuSparseVec;
pub use spgemm::CpuSpgemm;
pub use structured::CpuStructured;
pub use sweep::CpuSweep;
pub use syncfree::CpuSyncfree;
pub use transpose::CpuTranspose;
pub use vector::{Scalar, Vector};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
