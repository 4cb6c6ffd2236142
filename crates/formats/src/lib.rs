//! Host storage formats for sparse matrices: invariants, conversions, traffic models, structure statistics,
//! Matrix Market files, generators and reorderings.
//!
//! CSR is the hub: [`Format::from_csr`] and [`Format::to_csr`] lead from any format to any other.

pub mod csr;
pub mod error;
pub mod format;
pub mod index;
pub mod interop;
pub mod matrix_market;
pub mod permutation;
pub mod real;
pub mod reorder;
pub mod sparse_vec;
pub mod traffic;
pub mod triplets;

pub use csr::Csr;
pub use error::{Error, Result};
pub use format::Format;
pub use index::{MAX_INDEX, Offset, Ordinal};
pub use permutation::Permutation;
pub use real::Real;
pub use sparse_vec::SparseVec;
pub use traffic::Traffic;
pub use triplets::Triplets;
