//! A layout: how vectors of one length lie on the ranks, and how their dot products are completed.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::error::expect_len;
use spandrel_backend::{Error, Peers, Result, Roots};
use spandrel_formats::Real;

use crate::communicator::Communicator;
use crate::direct;
use crate::partition::Partition;
use crate::team::{Call, Team};
use crate::tree::Tree;

/// How vectors of one length lie on the ranks.
pub struct Layout {
    partition: Partition,
    rank: usize,
    /// `None` if there is only one rank: dot products are complete then.
    sums: Option<Completion>,
}

/// What completes the dot products of the rank's device.
pub(crate) enum Completion {
    /// The host.
    Host(Arc<dyn Roots>),
    /// The devices: [`PeerSums`](spandrel_backend::PeerSums) of the device's type, which a layout does not name.
    Peers(Arc<dyn Any + Send + Sync>),
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").field("rank", &self.rank).field("rows", &self.partition.rows(self.rank)).finish()
    }
}

impl Layout {
    /// Waits for the other ranks, which must give the same partition.
    ///
    /// # Errors
    /// [`Error::Rank`]; out of memory for a send buffer.
    pub(crate) fn new<B: Peers, C: Communicator>(be: &B, team: &Arc<Team<C>>, partition: Partition) -> Result<Self> {
        let rank = team.rank();
        let sums = match direct::sums(be, team, &partition)? {
            Some(sums) => Some(Completion::Peers(Arc::new(sums))),
            None if team.size() == 1 => None,
            None => {
                let tree = Tree::new(&partition, rank);
                Some(Completion::Host(Arc::new(Sums { team: Arc::clone(team), tree, room: Mutex::default() })))
            }
        };
        Ok(Self { partition, rank, sums })
    }

    /// A layout whose ranges may end anywhere: its vectors have no dot products, unless there is only one rank.
    pub(crate) fn without_sums(rank: usize, partition: Partition) -> Self {
        let sums = (partition.size() > 1).then(|| Completion::Host(Arc::new(NoSums)));
        Self { partition, rank, sums }
    }

    /// The rows of every rank.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }
    /// Number of rows of all ranks together.
    pub fn len(&self) -> usize {
        self.partition.len() as usize
    }
    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.partition.is_empty()
    }
    /// The rows of this rank.
    pub fn rows(&self) -> std::ops::Range<u64> {
        self.partition.rows(self.rank)
    }
    /// Number of rows of this rank.
    pub fn own(&self) -> usize {
        let rows = self.rows();
        (rows.end - rows.start) as usize
    }
    /// Returns true if devices read each other's memory to complete dot products and to exchange entries; otherwise
    /// messages pass through the host.
    pub fn is_direct(&self) -> bool {
        matches!(self.sums, Some(Completion::Peers(_)))
    }
    /// What completes the dot products of the rank's device; `None` if there is only one rank.
    pub(crate) fn sums(&self) -> Option<&Completion> {
        self.sums.as_ref()
    }
}

/// Refuses dot products, because the layout cuts blocks.
#[derive(Debug)]
struct NoSums;

impl NoSums {
    fn refused<T>() -> Result<T> {
        let why = "they end inside a block of the dot product's tree on some rank".to_owned();
        Err(Error::Unsupported { op: "a dot product", noun: "vectors of a coarse grid", why })
    }
}

impl Roots for NoSums {
    fn roots_f32(&self, _: &mut [f32], _: &mut [f32]) -> Result<()> {
        Self::refused()
    }
    fn roots_f64(&self, _: &mut [f64], _: &mut [f64]) -> Result<()> {
        Self::refused()
    }
}

/// Completes the dot products of one layout.
struct Sums<C> {
    team: Arc<Team<C>>,
    tree: Tree,
    room: Mutex<Room>,
}

/// Work space of a sum, kept for the next one. It holds `f32` or `f64`.
#[derive(Default)]
struct Room {
    all: Vec<f64>,
    own: Vec<f64>,
    nodes: Vec<f64>,
}

/// The first `len` elements of a work space.
fn elements<T: Real>(room: &mut Vec<f64>, len: usize) -> &mut [T] {
    if room.len() < len {
        room.resize(len, 0.0);
    }
    &mut bytemuck::cast_slice_mut::<f64, T>(room)[..len]
}

impl<C: Communicator> fmt::Debug for Sums<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sums").field("team", &self.team).finish_non_exhaustive()
    }
}

impl<C: Communicator> Sums<C> {
    /// Computes the roots of `roots.len()` trees. `blocks` holds this rank's block results, tree by tree.
    fn roots<T: Real>(&self, blocks: &mut [T], roots: &mut [T]) -> Result<()> {
        let Self { team, tree, room } = self;
        let (count, blocks_each) = (roots.len(), tree.blocks());
        expect_len("a dot product", "the list of block results", blocks.len(), count * blocks_each)
            .map_err(|error| team.fail(error))?;
        let Room { all, own, nodes } = &mut *room.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, mine) = (elements::<T>(all, count * tree.len()), tree.part(team.rank()));
        let (own, nodes) = (elements::<T>(own, mine.len()), elements::<T>(nodes, tree.nodes()));
        // For each node, the values of all sums stand side by side.
        for i in 0..count {
            tree.climb(&mut blocks[i * blocks_each..(i + 1) * blocks_each], own);
            own.iter().enumerate().for_each(|(at, &value)| all[(mine.start + at) * count + i] = value);
        }
        let part = |rank: usize| {
            let part = tree.part(rank);
            part.start * count * T::BYTES..part.end * count * T::BYTES
        };
        team.begin(Call::Sum)?.all_gather(bytemuck::cast_slice_mut(all), part)?;
        for (i, root) in roots.iter_mut().enumerate() {
            *root = tree.root(|at| all[at * count + i], nodes);
        }
        Ok(())
    }
}

impl<C: Communicator> Roots for Sums<C> {
    fn roots_f32(&self, blocks: &mut [f32], roots: &mut [f32]) -> Result<()> {
        self.roots(blocks, roots)
    }
    fn roots_f64(&self, blocks: &mut [f64], roots: &mut [f64]) -> Result<()> {
        self.roots(blocks, roots)
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend::Backend;
    use spandrel_backend_cpu::Cpu;

    use super::*;
    use crate::device::{Distributed, Vector};
    use crate::threads::Threads;

    #[test]
    fn a_layout_that_cuts_blocks_has_dot_products_only_on_one_rank() {
        for ranks in [1, 2] {
            let ended = Threads::run(ranks, |team| {
                let be = Distributed::new(Cpu::with_threads(1)?, team);
                let partition = Partition::unaligned((0..ranks as u64).map(|rank| 5 + rank));
                let layout = Arc::new(Layout::without_sums(be.rank(), partition));
                let mut x: Vector<f64, _> = be.zeros_as(&layout)?;
                be.fill(None, 2.0, &mut x)?;
                let mut sum = be.scalar(0.0)?;
                be.dot(None, &x, &x, &mut sum)?;
                be.download_scalar(&sum)
            });
            for sum in ended {
                match ranks {
                    1 => assert_eq!(sum.unwrap(), 20.0),
                    _ => assert!(sum.unwrap_err().to_string().contains("a block of the dot product's tree")),
                }
            }
        }
    }
}
