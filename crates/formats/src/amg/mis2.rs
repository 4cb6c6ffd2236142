//! The roots of aggregates: a maximal set of nodes, no two of which are within two steps of each other.
//!
//! Every undecided node draws a priority, a hash of its number and of the round. A node whose priority is the smallest
//! within two steps becomes a root, and a node within two steps of a root is out. A round makes two passes over the
//! nodes that still matter. A pass writes only the node's own value, and reads only what earlier passes wrote, so any
//! number of threads finds the same set.
//! Cost: some 6 to 10 rounds, each over fewer nodes than the one before.
//! Reference: Kelley, Rajamanickam 2022, algorithm 1; Bell, Dalton, Olson 2012, section 4.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::{CHUNK, Strength};
use crate::hash::splitmix64;
use crate::index::Ordinal;

/// The state of a root, or of a node next to one. Priorities lie between the two states.
const ROOT: u64 = 0;
const OUT: u64 = u64::MAX;

/// Gives [`roots_among`] access to the nodes of a graph that other ranks have.
pub trait Others {
    /// The error if another rank cannot answer.
    type Error;

    /// Overwrites the elements of `words` for nodes of other ranks with those of their owners.
    ///
    /// # Errors
    /// An owner does not answer.
    fn refresh(&mut self, words: &[AtomicU64]) -> Result<(), Self::Error>;

    /// Returns true if any rank has undecided nodes. This rank has `mine` of them.
    ///
    /// # Errors
    /// A rank does not answer.
    fn is_any(&mut self, mine: usize) -> Result<bool, Self::Error>;
}

/// No other ranks: the whole graph is here.
struct Nobody;

impl Others for Nobody {
    type Error = Infallible;
    fn refresh(&mut self, _: &[AtomicU64]) -> Result<(), Infallible> {
        Ok(())
    }
    fn is_any(&mut self, mine: usize) -> Result<bool, Infallible> {
        Ok(mine > 0)
    }
}

/// Finds the roots of a graph of strong couplings, ascending. A node without a coupling is not a root.
///
/// A node that is not a root has one within two steps. Deterministic; see the module's head.
pub fn roots(graph: &Strength) -> Vec<Ordinal> {
    let Ok(roots) = roots_among(graph, &|node| node, &mut Nobody);
    roots
}

/// As [`roots`], for a graph that lies on several ranks. Nodes of other ranks have no couplings here. Finds the roots
/// among the nodes of this rank. `number` gives the number of a node in the whole graph. All ranks call it, and
/// together they find the roots of the whole graph.
///
/// # Errors
/// Those of `others`.
pub fn roots_among<E>(
    graph: &Strength,
    number: &(dyn Fn(Ordinal) -> Ordinal + Sync),
    others: &mut dyn Others<Error = E>,
) -> Result<Vec<Ordinal>, E> {
    let nodes = graph.nodes();
    let is_coupled = |&node: &Ordinal| !graph.neighbours(node as usize).is_empty();
    let mut undecided: Vec<Ordinal> = (0..nodes as Ordinal).into_par_iter().filter(is_coupled).collect();
    let mut open = undecided.clone();
    let mine = undecided.clone();
    // The state or priority of each node, and the smallest of these within one step.
    let state: Vec<AtomicU64> = (0..nodes).into_par_iter().map(|_| AtomicU64::new(OUT)).collect();
    let near: Vec<AtomicU64> = (0..nodes).into_par_iter().map(|_| AtomicU64::new(OUT)).collect();
    let at = |of: &[AtomicU64], node: Ordinal| of[node as usize].load(Relaxed);
    let mut round = 0;
    while others.is_any(undecided.len())? {
        let draw = |&node: &Ordinal| state[node as usize].store(priority(number(node), round), Relaxed);
        undecided.par_iter().with_min_len(CHUNK).for_each(draw);
        others.refresh(&state)?;
        open.par_iter().with_min_len(CHUNK).for_each(|&node| {
            let around = graph.neighbours(node as usize).iter();
            let smallest = around.fold(at(&state, node), |least, &other| least.min(at(&state, other)));
            near[node as usize].store(smallest, Relaxed);
        });
        others.refresh(&near)?;
        undecided.par_iter().with_min_len(CHUNK).for_each(|&node| {
            let own = at(&state, node);
            let mut smallest = at(&near, node);
            for &other in graph.neighbours(node as usize) {
                // Nothing is smaller than a root, and in the first round there is none.
                if smallest == ROOT || (round == 0 && smallest < own) {
                    break;
                }
                smallest = smallest.min(at(&near, other));
            }
            if smallest == ROOT {
                state[node as usize].store(OUT, Relaxed);
            } else if smallest >= own {
                state[node as usize].store(ROOT, Relaxed);
            }
        });
        undecided = undecided.into_par_iter().filter(|&node| !matches!(at(&state, node), ROOT | OUT)).collect();
        // A node next to a root remains one. A node whose neighbours are all decided no longer changes once it has read
        // them.
        open = open.into_par_iter().filter(|&node| !matches!(at(&near, node), ROOT | OUT)).collect();
        round += 1;
    }
    Ok(mine.into_par_iter().filter(|&node| at(&state, node) == ROOT).collect())
}

/// A priority between the two states that no other node has in this round: a hash in the upper bits, the number in the
/// lower.
fn priority(node: Ordinal, round: u64) -> u64 {
    let z = splitmix64((u64::from(node) << 16) ^ round);
    // At most 2^63, and not 0.
    ((z >> 33) << 32) | (u64::from(node) + 1)
}
