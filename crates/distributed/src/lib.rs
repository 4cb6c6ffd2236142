//! Spandrel's solvers on several ranks, which are threads of one process or processes. The result has the same bits for
//! any number of ranks, unless the preconditioner depends on it ([`blockwise`], [`schwarz`]).
//!
//! Each rank has a contiguous range of rows of the matrix and of every vector ([`Partition`]). [`Distributed`] joins
//! the device of a rank to those of the others and is a backend, so [`Cg`](spandrel_solvers::Cg),
//! [`BiCgStab`](spandrel_solvers::BiCgStab) and [`Gmres`](spandrel_solvers::Gmres) run on it unchanged, with a
//! [`DistributedMat`] as the operator.
//!
//! Ranks send messages through a [`Communicator`]: [`Threads`] for threads of one process, and `Mpi` for
//! processes that mpirun has started (feature `mpi`).
//!
//! A rank that fails does not leave the others waiting: they end with [`spandrel_backend::Error::Rank`], which names
//! it.

pub mod amg;
mod assemble;
pub mod blockwise;
mod communicator;
mod device;
mod direct;
mod exchange;
mod gathered;
mod ghosts;
mod halo;
mod layout;
mod matrix;
#[cfg(all(unix, feature = "mpi"))]
mod mpi;
pub mod multigrid;
mod numbering;
pub mod outlook;
mod partition;
pub mod precond;
mod read;
mod rows;
pub mod schwarz;
mod steps;
mod survey;
mod team;
mod threads;
mod tree;

#[cfg(all(unix, feature = "mpi"))]
pub use self::mpi::Mpi;
pub use amg::DistributedAmg;
pub use assemble::Assembly;
pub use blockwise::Blockwise;
pub use communicator::{Communicator, TIME_LIMIT};
pub use device::{Distributed, Vector};
pub use layout::Layout;
pub use matrix::{DistributedMat, HostBoundary, HostRows, Local};
pub use multigrid::DistributedMultigrid;
pub use numbering::Numbering;
pub use partition::{BLOCK, Partition};
pub use read::{cut_rows, generate_rows, read_rows};
pub use rows::{Column, Rows, rows_of};
pub use schwarz::{Overlap, Schwarz};
pub use survey::Survey;
pub use team::{Call, Traffic};
pub use threads::{Failure, Threads};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
