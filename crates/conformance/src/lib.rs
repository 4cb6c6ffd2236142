//! The suite that holds every backend to the contract of `spandrel-backend`.
//!
//! A [`Fleet`] is a backend on devices that must agree (a CPU with 1, 2 and 3 threads). [`trials::of`] makes its trials from the
//! [`case::all`] cases, [`trials::between`] those of two backends that must agree where both declare the same order. Names:
//! `spmv/bdia/f64/cpu/poisson2d-33x17`.
//!
//! The binary runs all of it on the backends of this machine and is self-contained: cases are part of it.

pub mod case;
pub mod exact;
pub mod krylov;
pub mod oracle;
pub mod plain;
pub mod reference;
pub mod soak;
pub mod subject;
// Unit tests need no backend, and compile in a fraction of the time without one.
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

/// What the generators make of a specification.
fn generated(spec: &str) -> spandrel_formats::Result<spandrel_formats::Csr<f64>> {
    spandrel_formats::generate::csr(spec)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
