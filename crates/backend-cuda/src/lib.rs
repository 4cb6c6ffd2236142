//! What the CUDA driver of this machine offers, or a typed reason why there is nothing.
//!
//! The crate holds the probe ([`probe()`]); kernels run on the CPU backend only. It needs no CUDA toolkit to build and no
//! driver to run, and it never panics for want of either.

pub mod probe;

pub use probe::{CudaUnavailable, DeviceInfo, NEEDED_VERSION, probe, probe_at};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
