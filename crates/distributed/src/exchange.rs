//! Which rank needs which entries of a vector, and the messages that bring them there, or back.
//!
//! A rank names the entries that it needs by their numbers in the whole vector, ascending. It packs them in that order:
//! entries of ranks below, its own, entries of ranks above. Entries of one owner are neighbours there, so that a
//! message is copied into place.

use std::ops::Range;

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::communicator::Communicator;
use crate::partition::Partition;
use crate::team::{Call, Team};

/// The messages of one rank.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// Own entries that are needed here: where they begin among the packed entries, and their numbers among the rank's
    /// entries.
    own_to: usize,
    own_from: Vec<Ordinal>,
    /// The other ranks that need entries of this one, ascending, and which.
    sends: Vec<(usize, Vec<Ordinal>)>,
    /// The other ranks that have entries for this one, ascending, and where these go among the packed entries.
    receives: Vec<(usize, Range<usize>)>,
    len: usize,
}

fn bytes(numbers: &[Ordinal]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
fn numbers(bytes: &[u8]) -> Vec<Ordinal> {
    bytes.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
}

impl Exchange {
    /// Tells every rank which of its entries are needed here. `needed` ascends strictly. Waits for the other ranks.
    pub(crate) fn new<C: Communicator>(team: &Team<C>, partition: &Partition, needed: &[u64]) -> Result<Self> {
        let me = partition.rows(team.rank());
        let own = needed.partition_point(|&at| at < me.start)..needed.partition_point(|&at| at < me.end);
        let mut wanted: Vec<Vec<Ordinal>> = vec![Vec::new(); partition.size()];
        let mut receives: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, &entry) in needed.iter().enumerate().filter(|(at, _)| !own.contains(at)) {
            let owner = partition.owner(entry);
            wanted[owner].push((entry - partition.rows(owner).start) as Ordinal);
            match receives.last_mut() {
                Some((rank, to)) if *rank == owner => to.end = at + 1,
                _ => receives.push((owner, at..at + 1)),
            }
        }
        let asked = team.all_to_all(wanted.iter().map(|wanted| bytes(wanted)).collect())?;
        let sends =
            asked.iter().map(|asked| numbers(asked)).enumerate().filter(|(_, asked)| !asked.is_empty()).collect();
        let own_from = needed[own.clone()].iter().map(|entry| (entry - me.start) as Ordinal).collect();
        Ok(Self { own_to: own.start, own_from, sends, receives, len: needed.len() })
    }

    /// Number of packed entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of entries that come from other ranks.
    pub(crate) fn ghosts(&self) -> usize {
        self.len - self.own_from.len()
    }

    /// Packs what this rank needs: own entries of `x`, the others from their owners.
    pub(crate) fn gather<T: Real, C: Communicator>(&self, team: &Team<C>, x: &[T], packed: &mut [T]) -> Result<()> {
        let turn = team.begin(Call::Halo)?;
        for (to, entries) in &self.sends {
            turn.send(*to, entries.len() * T::BYTES, |message| {
                entries.iter().for_each(|&i| message.extend_from_slice(bytemuck::bytes_of(&x[i as usize])));
            })?;
        }
        for (to, &from) in packed[self.own_to..].iter_mut().zip(&self.own_from) {
            *to = x[from as usize];
        }
        for (from, to) in &self.receives {
            turn.receive(*from, Some(to.len() * T::BYTES), |message| {
                bytemuck::cast_slice_mut(&mut packed[to.clone()]).copy_from_slice(message);
            })?;
        }
        Ok(())
    }

    /// The way back: sets own entries of `y` to the packed ones, then adds those of the other ranks, in the order of
    /// the ranks. Own entries that are not needed here stay as they are.
    pub(crate) fn scatter_add<T: Real, C: Communicator>(
        &self,
        team: &Team<C>,
        packed: &[T],
        y: &mut [T],
    ) -> Result<()> {
        let turn = team.begin(Call::Halo)?;
        for (to, from) in &self.receives {
            let part = &packed[from.clone()];
            turn.send(*to, part.len() * T::BYTES, |message| message.extend_from_slice(bytemuck::cast_slice(part)))?;
        }
        self.scatter(packed, y);
        for (from, entries) in &self.sends {
            turn.receive(*from, Some(entries.len() * T::BYTES), |message| {
                for (&i, part) in entries.iter().zip(message.chunks_exact(T::BYTES)) {
                    y[i as usize] += bytemuck::pod_read_unaligned::<T>(part);
                }
            })?;
        }
        Ok(())
    }

    /// Sets own entries of `y` to the packed ones, without a message.
    pub(crate) fn scatter<T: Real>(&self, packed: &[T], y: &mut [T]) {
        for (&i, &value) in self.own_from.iter().zip(&packed[self.own_to..]) {
            y[i as usize] = value;
        }
    }

    /// How many entries go to which rank, and come from which.
    pub(crate) fn neighbours(&self) -> [Vec<(usize, usize)>; 2] {
        [
            self.sends.iter().map(|(rank, entries)| (*rank, entries.len())).collect(),
            self.receives.iter().map(|(rank, to)| (*rank, to.len())).collect(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend::Error;

    use super::*;
    use crate::threads::Threads;

    #[test]
    fn entries_go_where_they_are_needed_and_come_back() {
        // Rank r needs entries from 500 before its own to 300 behind them.
        let partition = Partition::even(5000, 3);
        let ranks = Threads::run(3, |comm| {
            let team = Team::new(comm);
            let me = partition.rows(team.rank());
            let needed: Vec<u64> = (me.start.saturating_sub(500)..(me.end + 300).min(5000)).collect();
            let exchange = Exchange::new(&team, &partition, &needed)?;
            assert_eq!(exchange.len(), needed.len());
            assert_eq!(exchange.ghosts() as u64, needed.len() as u64 - (me.end - me.start));
            let x: Vec<f64> = me.clone().map(|i| i as f64).collect();
            let mut packed = vec![f64::NAN; needed.len()];
            exchange.gather(&team, &x, &mut packed)?;
            assert!(packed.iter().zip(&needed).all(|(&x, &i)| x == i as f64));
            packed.fill(1.0);
            let mut times = vec![f64::NAN; x.len()];
            exchange.scatter_add(&team, &packed, &mut times)?;
            Ok::<_, Error>(times)
        });
        let times: Vec<f64> = ranks.into_iter().flat_map(|rank| rank.unwrap()).collect();
        let near = |i: usize| {
            let i = i as u64;
            let is_near = |rank: &usize| {
                let of = partition.rows(*rank);
                (of.start.saturating_sub(500)..of.end + 300).contains(&i)
            };
            (0..3).filter(is_near).count() as f64
        };
        assert!(times.iter().enumerate().all(|(i, &found)| found == near(i)));
    }
}
