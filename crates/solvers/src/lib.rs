//! Solvers for A x = b over any backend, with an honest outcome.
//!
//! [`Cg`], [`BiCgStab`] and [`Gmres`] run whole iterations on a device without a host round trip; [`Direct`] factors on
//! the host. All return an [`Outcome`], whose [`Status`] is `converged` only if the residual recomputed from x is as
//! small as requested. [`ResidualRounding`] tells whether the rounding of that residual matters.
//!
//! The iterative methods do not know which backend they run on. They scale by powers of two if norms would leave the
//! range of the element type.

pub mod accuracy;
pub mod amg;
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
pub mod permuted;
pub mod phase;
mod pool;
pub mod precond;
pub mod refine;
pub mod registry;
mod rhythm;
mod segments;
pub mod singular;

pub use accuracy::{BackwardError, ResidualRounding};
pub use amg::{Amg, AmgBackend, AmgCycle, AmgLevel, AmgOptions};
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
pub use multigrid::{Hierarchy, MgOptions, MgSmoother, Multigrid, PolynomialSmoother, StencilMultigrid};
pub use null_space::NullSpace;
pub use options::{Iterate, Observer, Options, Progress, Watcher};
pub use outcome::{Outcome, Status};
pub use permuted::Permuted;
pub use phase::{Phase, SetupWatcher};
pub use precond::{Identity, Jacobi};
pub use refine::Refine;
pub use registry::{Method, NameError, Precond};
pub use singular::Defect;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
