//! Spandrel's CPU backend: rayon threads, vector instructions chosen at run time, the same bits for any number of threads.
//!
//! [`Cpu`] is the device. A resident matrix shares the host's arrays and adds a partition of its rows by bytes. Every
//! row-wise format forms the accumulators of up to 1024 rows at a time; finishing y, the fused dot products and several
//! right-hand sides are written once, above the formats (`product.rs`).

mod backend;
mod csr;
mod device;
mod dot;
mod monitor;
mod partition;
mod product;
mod simd;
mod threads;
mod vector;

pub use csr::CpuCsr;
pub use device::Cpu;
pub use monitor::Monitor;
pub use simd::Simd;
pub use vector::{Scalar, Vector};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
