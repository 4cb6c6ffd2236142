//! Nodes of other ranks that the rows of a rank are coupled with, on the host, and the messages that bring their data.
//!
//! A rank numbers the nodes that it knows in ascending order of the whole matrix: ghosts below, its own, ghosts above.
//! So a row has its entries in the same order as in the whole matrix.

use std::ops::Range;

use spandrel_backend::Result;

use crate::communicator::Communicator;
use crate::partition::Partition;
use crate::team::{Call, Team};

/// The nodes that a rank knows.
pub(crate) struct Ghosts {
    /// Their numbers, ascending.
    nodes: Vec<u64>,
    /// Which of them are its own.
    own: Range<usize>,
    /// The other ranks that need own nodes, ascending, and which nodes.
    sends: Vec<(usize, Vec<usize>)>,
    /// The ranks that have ghosts of this one, ascending, and which ghosts.
    receives: Vec<(usize, Range<usize>)>,
}

impl Ghosts {
    /// Tells every rank which of its nodes are ghosts here. `ghosts` ascend strictly and are nodes of other ranks.
    /// Waits for the other ranks.
    pub(crate) fn new<C: Communicator>(team: &Team<C>, partition: &Partition, ghosts: &[u64]) -> Result<Self> {
        let me = partition.rows(team.rank());
        let below = ghosts.partition_point(|&node| node < me.start);
        let own = below..below + (me.end - me.start) as usize;
        let nodes: Vec<u64> =
            ghosts[..below].iter().copied().chain(me.clone()).chain(ghosts[below..].iter().copied()).collect();
        let mut asked = vec![Vec::new(); team.size()];
        let mut receives: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, &node) in nodes.iter().enumerate().filter(|(at, _)| !own.contains(at)) {
            let owner = partition.owner(node);
            asked[owner].extend_from_slice(&(node - partition.rows(owner).start).to_le_bytes());
            match receives.last_mut() {
                Some((rank, to)) if *rank == owner => to.end = at + 1,
                _ => receives.push((owner, at..at + 1)),
            }
        }
        let place = |&bytes: &[u8; 8]| own.start + u64::from_le_bytes(bytes) as usize;
        let asked = team.all_to_all(asked)?;
        let sends = asked.iter().map(|asked| asked.as_chunks::<8>().0.iter().map(place).collect());
        let sends = sends.enumerate().filter(|(_, nodes): &(usize, Vec<usize>)| !nodes.is_empty()).collect();
        Ok(Self { nodes, own, sends, receives })
    }

    /// The numbers of the nodes, ascending.
    pub(crate) fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// Which of them belong to this rank.
    pub(crate) fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// The place of a node among those that are known.
    pub(crate) fn place(&self, node: u64) -> Option<usize> {
        let first = self.nodes.get(self.own.start).copied().unwrap_or(u64::MAX);
        match node.checked_sub(first) {
            Some(at) if at < self.own.len() as u64 => Some(self.own.start + at as usize),
            _ => self.nodes.binary_search(&node).ok(),
        }
    }

    /// Sends what `put` appends for each own node to the ranks that have it as a ghost. `take` is called once per rank
    /// with ghosts here: with the first of these ghosts, and the bytes that their owner has put for them. Waits for
    /// neighbours.
    pub(crate) fn bring<C: Communicator>(
        &self,
        team: &Team<C>,
        put: impl Fn(usize, &mut Vec<u8>),
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let turn = team.begin(Call::Setup)?;
        for (to, nodes) in &self.sends {
            let mut body = Vec::new();
            nodes.iter().for_each(|&node| put(node, &mut body));
            turn.send(*to, body.len(), |message| message.extend_from_slice(&body))?;
        }
        self.receives.iter().try_for_each(|(from, to)| turn.receive(*from, None, |body| take(to.start, body)))
    }

    /// Overwrites the elements of ghosts with those of their owners. Each node has `width` elements. Waits for
    /// neighbours.
    pub(crate) fn refresh<C: Communicator, V: bytemuck::Pod>(
        &self,
        team: &Team<C>,
        width: usize,
        elements: &mut [V],
    ) -> Result<()> {
        let mut fresh = Vec::new();
        let put = |node: usize, body: &mut Vec<u8>| {
            body.extend_from_slice(bytemuck::cast_slice(&elements[node * width..(node + 1) * width]));
        };
        self.bring(team, put, |first, body| {
            let size = size_of::<V>();
            fresh.extend(body.chunks_exact(size).map(bytemuck::pod_read_unaligned::<V>).zip(first * width..));
        })?;
        fresh.into_iter().for_each(|(element, at)| elements[at] = element);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::Threads;

    #[test]
    fn ghosts_have_what_their_owners_have() {
        // The second rank has no nodes.
        let counts = [40, 0, 25, 35];
        let partition = Partition::unaligned(counts);
        let ended = Threads::run(4, |comm| {
            let team = Team::new(comm);
            let own = partition.rows(team.rank());
            let ghosts: Vec<u64> =
                (0..100).filter(|node| !own.contains(node) && !own.is_empty() && node % 3 == 0).collect();
            let known = Ghosts::new(&team, &partition, &ghosts)?;
            assert!(known.nodes().is_sorted());
            assert_eq!(known.nodes().len(), ghosts.len() + (own.end - own.start) as usize);
            for node in 0..100 {
                let expected = known.nodes().iter().position(|&at| at == node);
                assert_eq!(known.place(node), expected, "node {node}");
            }
            let mut elements = vec![0u32; 2 * known.nodes().len()];
            for at in known.own() {
                elements[2 * at..2 * at + 2].copy_from_slice(&[known.nodes()[at] as u32, 7]);
            }
            known.refresh(&team, 2, &mut elements)?;
            let expected: Vec<u32> = known.nodes().iter().flat_map(|&node| [node as u32, 7]).collect();
            assert_eq!(elements, expected);
            Ok::<_, spandrel_backend::Error>(())
        });
        ended.into_iter().for_each(|rank| rank.unwrap());
    }
}
