//! Host storage formats for sparse matrices: invariants, conversions, traffic models, structure statistics,
//! Matrix Market files, vectors from text and NumPy files, generators and reorderings.
//!
//! CSR is the hub: [`Format::from_csr`] and [`Format::to_csr`] lead from any format to any other.

pub mod amg;
pub mod array;
pub mod bdia;
pub mod bsr;
pub mod bsrx;
pub mod choose;
pub mod coarse;
pub mod coo;
mod counting;
pub mod csc;
pub mod csr;
pub mod dense;
pub mod dia;
mod dominance;
pub mod ell;
pub mod equilibrate;
pub mod error;
mod exponent;
pub mod format;
mod fused;
pub mod generate;
pub mod grid;
pub mod hash;
pub mod hec;
pub mod hmec;
pub mod hyb;
pub mod index;
pub mod interop;
pub mod matching;
pub mod matrix_market;
pub mod nearest;
mod padding;
pub mod permutation;
mod prefetch;
pub mod profile;
pub mod real;
pub mod reorder;
pub mod sell;
pub mod sparse_vec;
pub mod spgemm;
pub mod spy;
pub mod stats;
pub mod survey;
mod symmetry;
pub mod team;
mod text;
pub mod traffic;
pub mod transpose;
pub mod triplets;
pub mod vectors;

pub use array::Array;
pub use bdia::{Band, Bdia};
pub use bsr::Bsr;
pub use bsrx::Bsrx;
pub use choose::{Choice, choose};
pub use coarse::{Coarsening, Diagonals, Divisor, Injection, Moments, NEIGHBOURS, Neighbours, Stencil};
pub use coo::Coo;
pub use csc::Csc;
pub use csr::Csr;
pub use dense::Dense;
pub use dia::Dia;
pub use dominance::row_dominance;
pub use ell::{Ell, PADDING};
pub use equilibrate::{Equilibration, Lost, Spread};
pub use error::{Error, Result};
pub use format::{Format, convert};
pub use grid::{Grid, NotAGrid, Runs, Sample};
pub use hec::Hec;
pub use hmec::{EllBlock, Hmec};
pub use hyb::Hyb;
pub use index::{MAX_INDEX, Offset, Ordinal};
pub use matching::{Deficient, Matched, Matching, maximum_product};
pub use permutation::Permutation;
pub use profile::Profile;
pub use real::{Real, first_not_finite};
pub use sell::Sell;
pub use sparse_vec::SparseVec;
pub use spgemm::{SpgemmPlan, product, triple_product, triple_product_by};
pub use stats::{Stats, Symmetry};
pub use survey::{NotInvertible, Survey};
pub use symmetry::is_mirror_to_rounding;
pub use team::{RayonTeam, Team};
pub use traffic::Traffic;
pub use transpose::TransposePlan;
pub use triplets::Triplets;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
