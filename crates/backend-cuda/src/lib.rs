//! The CUDA backend: cudarc's driver interface and PTX that is part of the crate. It needs no CUDA toolkit to build and only
//! NVIDIA's driver to run, and it never panics for want of either: [`probe()`] and [`Cuda::new`] give the reason.
//!
//! [`Cuda`] is the device. Kernels are CUDA C++ in `kernels/`, one file a noun, compiled ahead into `ptx/`.

mod backend;
mod device;
mod dia;
mod error;
mod launch;
mod memory;
mod module;
mod monitor;
pub mod probe;
mod vector;

pub use cudarc;
pub use device::{Cuda, Graph};
pub use dia::CudaDia;
pub use module::ptx;
pub use monitor::Monitor;
pub use probe::{CudaUnavailable, DeviceInfo, NEEDED_VERSION, probe, probe_at};
pub use vector::{Scalar, Vector};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
