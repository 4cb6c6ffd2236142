//! Host storage formats for sparse matrices: invariants, conversions, traffic models, structure statistics,
//! Matrix Market files, generators and reorderings.
//!
//! CSR is the hub: [`Format::from_csr`] and [`Format::to_csr`] lead from any format to any other.

pub mod csr;
pub mod error;
pub mod format;
pub mod generate;
pub mod index;
pub mod matrix_market;
pub mod real;
pub mod sparse_vec;
pub mod traffic;
pub mod triplets;

pub use csr::Csr;
pub use error::{Error, Result};
pub use format::Format;
pub use index::{MAX_INDEX, Offset, Ordinal};
pub use real::Real;
pub use sparse_vec::SparseVec;
pub use traffic::Traffic;
pub use triplets::Triplets;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
