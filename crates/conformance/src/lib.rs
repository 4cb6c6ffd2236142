//! The suite that checks every backend against the contract of `spandrel-backend`.
//!
//! A [`Fleet`] is a backend on devices that must agree, such as a CPU with 1, 2 and 3 threads. [`trials::of`] makes its
//! trials from the [`case::all`] cases. [`trials::between`] makes those of two backends, which must agree if both
//! declare the same order. A trial has a name such as `spmv/bdia/f64/cpu/poisson2d-33x17`.
//!
//! The binary runs everything on the backends of this machine. It contains the cases, so it needs no files.

pub mod case;
pub mod exact;
pub mod krylov;
mod named;
pub mod oracle;
pub mod plain;
pub mod reference;
pub mod soak;
pub mod subject;
// Unit tests need no backend. Without one they compile much faster.
#[cfg(not(test))]
pub mod suite;
pub mod trial;
pub mod trials;
pub mod triangle;
mod watchdog;

pub use case::Case;
pub use plain::Plain;
pub use subject::{Complete, EveryFormat, EveryPlan, FORMATS, Fleet, PLANS};
pub use trial::{Finding, Outcome, Record, Tally, Trial, Verdict};

/// The matrix that a generator makes from a specification.
fn generated(spec: &str) -> spandrel_formats::Result<spandrel_formats::Csr<f64>> {
    spandrel_formats::generate::csr(spec)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
