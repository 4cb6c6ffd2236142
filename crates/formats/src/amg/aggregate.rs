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
    /// Aggregates the nodes of a graph around its [`roots`]. `a` is the matrix that the graph was made from; it gives
    /// the weights.
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
        let roots = roots(graph);
        let mut root = vec![UNASSIGNED; graph.nodes()];
        roots.iter().enumerate().for_each(|(aggregate, &node)| root[node as usize] = aggregate as Ordinal);
        let joined = Self::joined(graph, a, &root);
        Self::from_assignment(Self::joined(graph, a, &joined), roots.len())
    }

    /// One of the two passes: lets every node without an aggregate join the aggregate of its strongest neighbour that
    /// has one. `assigned` holds the aggregate of each node or [`UNASSIGNED`]; at first only roots have one.
    ///
    /// # Panics
    /// Unless `assigned` has one element per node.
    pub fn joined<T: Real>(graph: &Strength, a: &Csr<T>, assigned: &[Ordinal]) -> Vec<Ordinal> {
        let joined = |node: usize| {
            let own = assigned[node];
            if own != UNASSIGNED {
                return own;
            }
            let mut best = (T::zero(), UNASSIGNED);
            graph.weighted(a, node, |other, weight| {
                let to = assigned[other as usize];
                if to != UNASSIGNED && (weight > best.0 || (weight == best.0 && to < best.1)) {
                    best = (weight, to);
                }
            });
            best.1
        };
        (0..graph.nodes()).into_par_iter().with_min_len(CHUNK).map(joined).collect()
    }

    /// Makes aggregates from the aggregate of each node, or [`UNASSIGNED`], and the number of aggregates. Some of them
    /// may have no node here.
    pub fn from_assignment(of: Vec<Ordinal>, count: usize) -> Self {
        Self { of, count }
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
