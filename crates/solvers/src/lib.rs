//! Solvers for A x = b over any backend, with an honest outcome.
//!
//! [`Cg`], [`BiCgStab`] and [`Gmres`] run whole iterations on a device without a host round trip; [`Direct`] factors on the host. All end in
//! an [`Outcome`] whose [`Status`] says `converged` only where the residual recomputed from x is as small as was asked for.
//! The iterative methods ask no backend which one it is, and scale by powers of two where norms would leave the range of the
//! element type.

pub mod accuracy;
pub mod bicgstab;
pub mod block_jacobi;
pub mod cg;
pub mod chebyshev;
pub mod choose;
pub mod corrections;
pub mod device_factored;
pub mod direct;
mod entry;
pub mod error;
pub mod factored;
pub mod gmres;
mod graphs;
pub mod isai;
pub mod jacobi_sweeps;
pub mod mixed;
pub mod multigrid;
mod norm;
pub mod null_space;
pub mod options;
pub mod outcome;
pub mod phase;
mod pool;
pub mod precond;
pub mod refine;
pub mod registry;
mod rhythm;
mod segments;
pub mod singular;

pub use accuracy::BackwardError;
pub use bicgstab::{BiCgStab, bicgstab};
pub use block_jacobi::BlockJacobi;
pub use cg::{Cg, cg};
pub use chebyshev::Chebyshev;
pub use choose::Choice;
pub use corrections::Corrections;
pub use device_factored::{DeviceFactored, DeviceFactors};
pub use direct::{Direct, DirectOptions, Factorable};
pub use error::{Error, Result};
pub use factored::{Factored, Ic, Ilu, Ssor};
pub use gmres::{Gmres, GmresOptions, Placement, gmres};
pub use isai::Isai;
pub use jacobi_sweeps::JacobiSweeps;
pub use mixed::{Mixed, Narrowed};
pub use multigrid::{Hierarchy, Multigrid};
pub use null_space::NullSpace;
pub use options::{Options, Progress, Watcher};
pub use outcome::{Outcome, Status};
pub use phase::{Phase, SetupWatcher};
pub use precond::{Identity, Jacobi};
pub use refine::Refine;
pub use registry::{Method, NameError, Precond};
pub use singular::Defect;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
