//! Sparse triangles on the host: dependencies between rows, plans of triangular solves, incomplete factorisations.
//!
//! [`split`] takes the triangles out of a matrix, and [`Triangular`] is a triangle that has been checked. [`Levels`]
//! says which of its rows can be solved at the same time. [`serial::solve`] is the reference solve, with which every
//! other one is compared.
//!
//! A [`Plan`] holds what a device needs for one way of solving; [`for_each_plan!`] lists all plans. A [`Factor`] makes
//! triangles from a matrix: [`Ilu0`], [`Iluk`], [`Ilut`], [`Ic0`], and [`Ssor`], which eliminates nothing.

pub mod capellini;
pub mod chains;
pub mod choose;
pub mod elementwise;
pub mod error;
pub mod factor;
pub mod ic0;
pub mod ilu0;
pub mod iluk;
pub mod ilut;
pub mod latency;
pub mod levels;
pub mod levelset;
pub mod numeric;
pub mod plan;
pub mod rows;
pub mod serial;
pub mod ssor;
pub mod structured;
pub mod sweep;
pub mod syncfree;
pub mod triangle;

pub use capellini::Capellini;
pub use choose::{AnyPlan, Choice, choose};
pub use elementwise::Elementwise;
pub use error::{Error, Result};
pub use factor::{Factor, Factors, Pattern, Triangles};
pub use ic0::Ic0;
pub use ilu0::Ilu0;
pub use iluk::Iluk;
pub use ilut::{Ilut, IlutOptions};
pub use latency::Latency;
pub use levels::Levels;
pub use levelset::Levelset;
pub use numeric::Numeric;
pub use plan::{Plan, System, Systems};
pub use rows::{Columns, Rows, View};
pub use serial::Serial;
pub use ssor::Ssor;
pub use structured::{Stages, Structured};
pub use sweep::{Lattice, Sweep};
pub use syncfree::{Syncfree, Walk};
pub use triangle::{Diagonal, Parts, Triangle, Triangular, part, split};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
