//! Aggregates: each root with its neighbours, and every other node with the neighbour that it is coupled to most
//! strongly.
//!
//! A node next to several roots joins the root with the largest weight. A node that is two steps away joins the
//! aggregate of its strongest neighbour. Ties go to the lower number. Aggregates are numbered by their roots.
//! Cost: two passes over the couplings.

use rayon::prelude::*;

use super::{CHUNK, Strength, roots};
use crate::index::Ordinal;
use crate::{Csr, Real};

/// The aggregate of a node that has none, because nothing is coupled to it strongly.
pub const UNASSIGNED: Ordinal = Ordinal::MAX;

/// A partition of the coupled nodes. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregates {
    of: Vec<Ordinal>,
    count: usize,
}

impl Aggregates {
    /// Makes aggregates of the nodes of a graph around its [`roots`]. `a` is the matrix that the graph was made from;
    /// it gives the weights.
    ///
    /// ```
    /// use spandrel_formats::amg::{Aggregates, Strength};
    /// use spandrel_formats::generate;
    ///
    /// let a = generate::csr::<f64>("poisson2d:30")?;
    /// let aggregates = Aggregates::of(&Strength::of(&a, 1, 0.25)?, &a);
    /// assert!((90..180).contains(&aggregates.count()));
    /// # Ok::<(), spandrel_formats::Error>(())
    /// ```
    pub fn of<T: Real>(graph: &Strength, a: &Csr<T>) -> Self {
        let (nodes, roots) = (graph.nodes(), roots(graph));
        let mut root = vec![UNASSIGNED; nodes];
        roots.iter().enumerate().for_each(|(aggregate, &node)| root[node as usize] = aggregate as Ordinal);
        let joined = |assigned: &[Ordinal], node: usize| {
            let own = assigned[node];
            if own != UNASSIGNED {
                return own;
            }
            let mut best = (T::zero(), UNASSIGNED);
            for (other, weight) in graph.weighted(a, node) {
                let to = assigned[other as usize];
                if to != UNASSIGNED && (weight > best.0 || (weight == best.0 && to < best.1)) {
                    best = (weight, to);
                }
            }
            best.1
        };
        let pass = |assigned: &[Ordinal]| -> Vec<Ordinal> {
            (0..nodes).into_par_iter().with_min_len(CHUNK).map(|node| joined(assigned, node)).collect()
        };
        Self { of: pass(&pass(&root)), count: roots.len() }
    }

    /// The aggregate of each node, or [`UNASSIGNED`].
    pub fn assignment(&self) -> &[Ordinal] {
        &self.of
    }

    /// Number of aggregates.
    pub fn count(&self) -> usize {
        self.count
    }
}
