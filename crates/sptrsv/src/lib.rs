//! Triangles of a sparse matrix and the dependencies between their rows, on the host.
//!
//! [`split`] takes a matrix apart, [`Triangular`] is a triangle that has been checked, [`Levels`] tells which of its rows can
//! be solved at the same time, [`serial::solve`] is the solve that every other way of solving is compared with.

pub mod capellini;
pub mod elementwise;
pub mod error;
pub mod levels;
pub mod levelset;
pub mod plan;
pub mod rows;
pub mod serial;
pub mod structured;
pub mod sweep;
pub mod syncfree;
pub mod triangle;

pub use capellini::Capellini;
pub use elementwise::Elementwise;
pub use error::{Error, Result};
pub use levels::Levels;
pub use levelset::Levelset;
pub use plan::{Plan, System, Systems};
pub use rows::{Columns, Rows, View};
pub use serial::Serial;
pub use structured::{Stages, Structured};
pub use sweep::Sweep;
pub use syncfree::Syncfree;
pub use triangle::{Diagonal, Parts, Triangle, Triangular, split};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
