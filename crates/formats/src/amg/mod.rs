//! The coarsening of smoothed aggregation, on the host: strong couplings, independent roots, aggregates, and the
//! prolongation from one unknown per aggregate and near-null-space vector.
//!
//! ```text
//! A                        -- Strength   -->  graph of nodes
//! graph                    -- roots      -->  a root within two steps of every node
//! roots                    -- Aggregates -->  one aggregate per root
//! aggregates and
//! near-null-space vectors  -- Tentative  -->  T and the coarse vectors
//! T                        -- smoothed   -->  P = (I - omega E^-1 A_f) T
//! ```
//! A node is a point with one or more unknowns, numbered point by point. All steps run in parallel and depend only on
//! the matrix: priorities are an integer hash of node and round, ties go to the lower number, and every sum has a fixed
//! order. So the result has the same bits for any number of threads.
//!
//! References: Vanek, Mandel, Brezina 1996, Algebraic multigrid by smoothed aggregation; Bell, Dalton, Olson 2012,
//! Exposing fine-grained parallelism in algebraic multigrid methods; Kelley, Rajamanickam 2022, Parallel, portable
//! algorithms for distance-2 maximal independent set and graph coarsening.

mod aggregate;
mod mis2;
mod prolongate;
mod rigid;
mod scaling;
mod strength;
#[cfg(test)]
mod tests;

pub use aggregate::{Aggregates, UNASSIGNED};
pub use mis2::{Others, roots, roots_among};
pub use prolongate::{OMEGA, Tentative, smooth_again, smoothed};
pub use rigid::rigid_body_modes;
pub use scaling::Scaling;
pub use strength::Strength;

/// The most rows per node.
pub const MOST_UNKNOWNS: usize = 6;

/// Nodes per parallel task.
const CHUNK: usize = 2048;
