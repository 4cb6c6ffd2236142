//! Triangles of a sparse matrix and the dependencies between their rows, on the host.
//!
//! [`split`] takes a matrix apart, [`Triangular`] is a triangle that has been checked, [`Levels`] tells which of its rows can
//! be solved at the same time, [`serial::solve`] is the solve that every other way of solving is compared with.

pub mod error;
pub mod levels;
pub mod serial;
pub mod triangle;

pub use error::{Error, Result};
pub use levels::Levels;
pub use triangle::{Diagonal, Parts, Triangle, Triangular, split};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
