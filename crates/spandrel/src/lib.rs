//! Sparse linear algebra: storage formats, sparse matrix-vector products and Krylov solvers, each written once against a
//! backend contract.
//!
//! This crate only re-exports. Each module below is a crate of its own and can be depended on alone:
//!
//! | module | crate | holds |
//! |---|---|---|
//! | [`formats`] | `spandrel-formats` | storage formats, conversions, Matrix Market, generators, reorderings |
//! | [`sptrsv`] | `spandrel-sptrsv` | triangles of a matrix, the dependencies between their rows |
//! | [`backend`] | `spandrel-backend` | the contract between solvers and devices |
//! | [`solvers`] | `spandrel-solvers` | Krylov and direct solvers, preconditioners, outcomes |
//! | `backend_cpu` | `spandrel-backend-cpu` | the CPU backend, feature `cpu` (default) |

pub use spandrel_backend as backend;
pub use spandrel_formats as formats;
pub use spandrel_solvers as solvers;
pub use spandrel_sptrsv as sptrsv;

#[cfg(feature = "cpu")]
pub use spandrel_backend_cpu as backend_cpu;

pub use backend::{Backend, Coeff, Device, Mat, Operator, Preconditioner};
pub use formats::{Csr, Format, Real, SparseVec, Traffic, Triplets};
