//! Which rank needs which entries of a vector, and the messages that bring them there, or back.
//!
//! A rank names the entries that it needs by their numbers in the whole vector, ascending. It packs them in that order:
//! entries of ranks below, its own, entries of ranks above. The packed entries of one owner are contiguous, so a
//! message is copied into place.
//!
//! There are two ways. Either messages pass through the host; then only the entries that another rank needs leave the
//! device, each once. Or devices copy the entries from each other's send buffers; then no host waits for a device.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use spandrel_backend::{Entries, Gate, Received, Result};
use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::communicator::Communicator;
use crate::direct;
use crate::partition::Partition;
use crate::team::{Call, Team, Turn};

/// The messages of one rank.
pub(crate) struct Exchange<T: Real, B: Entries<T>> {
    /// Where own entries are among the packed ones, and where they are among the rank's entries.
    own: Range<usize>,
    own_places: B::Places,
    /// Entries that other ranks need, each once.
    sent: B::Places,
    /// The other ranks that need entries of this one, ascending, and which elements of `sent` each needs.
    sends: Vec<(usize, Vec<Ordinal>)>,
    /// The other ranks that have entries for this one, ascending, and where these go among the packed entries.
    receives: Vec<(usize, Range<usize>)>,
    len: usize,
    room: Mutex<Room<T>>,
    direct: Option<Direct<T, B>>,
}

/// The messages of a rank whose device reads the send buffers of others.
struct Direct<T: Real, B: Entries<T>> {
    buffer: Arc<B::SendBuffer>,
    /// Entries that other ranks need, rank after rank.
    sent: B::Places,
    /// The ranks that need entries of this one or have entries for it, ascending, and how many bytes each reads from
    /// this rank's send buffer.
    ranks: Vec<(usize, usize)>,
    /// What is read from the send buffers of the others, and where it goes among the packed entries.
    receives: Vec<Received<B::Peer>>,
    turn: AtomicU64,
}

impl<T: Real, B: Entries<T>> Direct<T, B> {
    /// `asked` are the places of own entries that other ranks need, in vectors of `held` elements. `None`, on every
    /// rank, if devices do not read each other's memory. Waits for the other ranks.
    fn open<C: Communicator>(
        be: &B,
        team: &Team<C>,
        held: usize,
        asked: &[(usize, Vec<Ordinal>)],
        receives: &[(usize, Range<usize>)],
    ) -> Result<Option<Self>> {
        let sent: Vec<Ordinal> = asked.iter().flat_map(|(_, asked)| asked).copied().collect();
        let Some((buffer, peers)) = direct::open(be, team, sent.len() * T::BYTES)? else { return Ok(None) };
        let sent = team.together(be.places(held, &sent))?;
        // Tell each rank where its entries begin in this rank's send buffer.
        let mut begins = vec![Vec::new(); team.size()];
        let mut begin = 0;
        for (rank, asked) in asked {
            begins[*rank] = (begin as u64).to_le_bytes().to_vec();
            begin += asked.len();
        }
        let begins = team.all_to_all(begins)?;
        let (mut ranks, mut from) = (Vec::new(), Vec::new());
        for (rank, peer) in peers.into_iter().enumerate() {
            let read = asked.iter().find(|of| of.0 == rank).map(|(_, asked)| asked.len());
            let to = receives.iter().find(|of| of.0 == rank).map(|(_, to)| to.clone());
            let (Some(peer), true) = (peer, read.is_some() || to.is_some()) else { continue };
            let to = to.unwrap_or(0..0);
            let begin = begins[rank].first_chunk().map_or(0, |&begin| u64::from_le_bytes(begin)) as usize;
            ranks.push((rank, read.unwrap_or(0) * T::BYTES));
            from.push(Received { peer, sent: begin..begin + to.len(), at: to.start });
        }
        Ok(Some(Self { buffer, sent, ranks, receives: from, turn: AtomicU64::new(0) }))
    }
}

/// Entries of an exchange on the host.
struct Room<T> {
    /// Those of `sent`.
    sent: Vec<T>,
    /// The packed ones of other ranks: those of ranks below, then those of ranks above.
    ghosts: Vec<T>,
}

/// The numbers of needed entries in the whole vector, ascending.
pub(crate) enum Needed<'a> {
    Listed(&'a [u64]),
    Range(Range<u64>),
}

impl Needed<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Listed(entries) => entries.len(),
            Self::Range(range) => (range.end - range.start) as usize,
        }
    }

    fn get(&self, at: usize) -> u64 {
        match self {
            Self::Listed(entries) => entries[at],
            Self::Range(range) => range.start + at as u64,
        }
    }

    /// The number of needed entries below this one.
    fn below(&self, entry: u64) -> usize {
        match self {
            Self::Listed(entries) => entries.partition_point(|&at| at < entry),
            Self::Range(range) => (entry.clamp(range.start, range.end) - range.start) as usize,
        }
    }
}

/// An exchange for which this rank has sent its messages.
pub(crate) struct Begun<'t, C> {
    call: Turn<'t, C>,
    /// The turn of the send buffers; 0 if messages pass through the host.
    turn: u64,
}

fn bytes(numbers: &[Ordinal]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}
fn numbers(bytes: &[u8]) -> Vec<Ordinal> {
    bytes.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect()
}

impl<T: Real, B: Entries<T>> Exchange<T, B> {
    /// Tells every rank which of its entries are needed here, each once. Waits for the other ranks.
    pub(crate) fn new<C: Communicator>(
        be: &B,
        team: &Team<C>,
        partition: &Partition,
        needed: &Needed<'_>,
    ) -> Result<Self> {
        Self::from_range(be, team, partition, partition.rows(team.rank()), needed)
    }

    /// As [`Exchange::new`], for a vector that holds the entries `held` of the whole one: own entries, and others that
    /// are not sent.
    pub(crate) fn from_range<C: Communicator>(
        be: &B,
        team: &Team<C>,
        partition: &Partition,
        held: Range<u64>,
        needed: &Needed<'_>,
    ) -> Result<Self> {
        let me = partition.rows(team.rank());
        let own = needed.below(me.start)..needed.below(me.end);
        let mut wanted: Vec<Vec<Ordinal>> = vec![Vec::new(); partition.size()];
        let mut receives: Vec<(usize, Range<usize>)> = Vec::new();
        for (at, entry) in (0..own.start).chain(own.end..needed.len()).map(|at| (at, needed.get(at))) {
            let owner = partition.owner(entry);
            wanted[owner].push((entry - partition.rows(owner).start) as Ordinal);
            match receives.last_mut() {
                Some((rank, to)) if *rank == owner => to.end = at + 1,
                _ => receives.push((owner, at..at + 1)),
            }
        }
        let asked = team.all_to_all(wanted.iter().map(|wanted| bytes(wanted)).collect())?;
        let first = (me.start - held.start) as Ordinal;
        let places = |asked: &[u8]| -> Vec<Ordinal> { numbers(asked).into_iter().map(|entry| first + entry).collect() };
        let asked: Vec<(usize, Vec<Ordinal>)> =
            asked.iter().map(|asked| places(asked)).enumerate().filter(|(_, asked)| !asked.is_empty()).collect();
        let mut sent: Vec<Ordinal> = asked.iter().flat_map(|(_, asked)| asked).copied().collect();
        sent.sort_unstable();
        sent.dedup();
        let place = |entry: &Ordinal| sent.partition_point(|at| at < entry) as Ordinal;
        let sends = asked.iter().map(|(rank, asked)| (*rank, asked.iter().map(place).collect())).collect();
        let len = (held.end - held.start) as usize;
        let own_place = |at: usize| (needed.get(at) - held.start) as Ordinal;
        let own_places: Vec<Ordinal> = own.clone().into_par_iter().map(own_place).collect();
        let direct = Direct::open(be, team, len, &asked, &receives)?;
        let room = Room { sent: vec![T::zero(); sent.len()], ghosts: vec![T::zero(); needed.len() - own.len()] };
        Ok(Self {
            own,
            own_places: be.places(len, &own_places)?,
            sent: be.places(len, &sent)?,
            sends,
            receives,
            len: needed.len(),
            room: Mutex::new(room),
            direct,
        })
    }

    /// Number of packed entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of entries that come from other ranks.
    pub(crate) fn ghosts(&self) -> usize {
        self.len - self.own.len()
    }

    /// Packs the entries that this rank needs: its own from `x`, the others from their owners. Returns false, and does
    /// nothing, if the gate is closed; see [`Exchange::begin`].
    pub(crate) fn gather<C: Communicator>(
        &self,
        be: &B,
        team: &Team<C>,
        gate: Gate<'_, B>,
        x: &B::Vector,
        packed: &mut B::Vector,
    ) -> Result<bool> {
        let Some(begun) = self.begin(be, team, gate, x)? else { return Ok(false) };
        let (turn, from) = self.arrived(be, begun, packed)?;
        be.gather_entries(x, &self.own_places, packed, self.own.start)?;
        be.receive_entries(turn, from, packed)?;
        Ok(true)
    }

    /// Sends the entries of `x` that other ranks need. [`Exchange::arrived`] must follow, and waits for the other
    /// ranks. Work that needs no entries of other ranks belongs between the two.
    ///
    /// Returns `None`, and does nothing, if the gate is closed. The gate is then closed on every rank. Devices that
    /// read each other's memory exchange entries even if the gate is closed, because no host waits to read it. So the
    /// operations that follow must get the gate too.
    pub(crate) fn begin<'t, C: Communicator>(
        &self,
        be: &B,
        team: &'t Team<C>,
        gate: Gate<'_, B>,
        x: &B::Vector,
    ) -> Result<Option<Begun<'t, C>>> {
        Ok(Some(match &self.direct {
            Some(direct) => {
                let turn = direct.turn.fetch_add(1, Ordering::Relaxed);
                be.send_entries(x, &direct.sent, turn, &direct.buffer)?;
                let call = team.begin(Call::Halo)?;
                call.announce(direct.ranks.iter().copied())?;
                Begun { call, turn }
            }
            None => {
                let sent = &mut self.room().sent;
                if !be.fetch_entries(gate, x, &self.sent, sent)? {
                    return Ok(None);
                }
                let call = team.begin(Call::Halo)?;
                for (to, entries) in &self.sends {
                    call.send(*to, entries.len() * T::BYTES, |message| {
                        entries.iter().for_each(|&i| message.extend_from_slice(bytemuck::bytes_of(&sent[i as usize])));
                    })?;
                }
                Begun { call, turn: 0 }
            }
        }))
    }

    /// Waits until the other ranks have sent their entries. Packs those that have passed through the host. Returns what
    /// is still to be received from send buffers, and its turn. Own entries are not packed.
    pub(crate) fn arrived<C: Communicator>(
        &self,
        be: &B,
        begun: Begun<'_, C>,
        packed: &mut B::Vector,
    ) -> Result<(u64, &[Received<B::Peer>])> {
        let Begun { call, turn } = begun;
        if let Some(direct) = &self.direct {
            call.wait(direct.ranks.iter().copied())?;
            return Ok((turn, &direct.receives));
        }
        let ghosts = &mut self.room().ghosts;
        for (from, to) in &self.receives {
            call.receive(*from, Some(to.len() * T::BYTES), |message| {
                bytemuck::cast_slice_mut(&mut ghosts[self.ghost(to)]).copy_from_slice(message);
            })?;
        }
        let (below, above) = ghosts.split_at(self.own.start);
        be.write_range(below, packed, 0)?;
        be.write_range(above, packed, self.own.end)?;
        Ok((turn, &[]))
    }

    /// Where own packed entries lie among the rank's entries, and the place of the first of them among the packed ones.
    pub(crate) fn own(&self) -> (&B::Places, usize) {
        (&self.own_places, self.own.start)
    }

    /// The way back: sets own entries of `y` to the packed ones, then adds those of the other ranks, in the order of
    /// the ranks. Own entries that are not needed here are only added to. Does nothing if the gate is closed.
    pub(crate) fn scatter_add<C: Communicator>(
        &self,
        be: &B,
        team: &Team<C>,
        gate: Gate<'_, B>,
        packed: &B::Vector,
        y: &mut B::Vector,
    ) -> Result<()> {
        let Room { sent, ghosts } = &mut *self.room();
        self.scatter(be, gate, packed, y)?;
        if !be.fetch_entries(gate, y, &self.sent, sent)? {
            return Ok(());
        }
        let (below, above) = ghosts.split_at_mut(self.own.start);
        be.read_range(packed, 0, below)?;
        be.read_range(packed, self.own.end, above)?;
        let turn = team.begin(Call::Halo)?;
        for (to, from) in &self.receives {
            let part = &ghosts[self.ghost(from)];
            turn.send(*to, part.len() * T::BYTES, |message| message.extend_from_slice(bytemuck::cast_slice(part)))?;
        }
        for (from, entries) in &self.sends {
            turn.receive(*from, Some(entries.len() * T::BYTES), |message| {
                for (&i, part) in entries.iter().zip(message.chunks_exact(T::BYTES)) {
                    sent[i as usize] += bytemuck::pod_read_unaligned::<T>(part);
                }
            })?;
        }
        be.put_entries(sent, &self.sent, y)
    }

    /// Sets own entries of `y` to the packed ones, without a message. Does nothing if the gate is closed.
    pub(crate) fn scatter(&self, be: &B, gate: Gate<'_, B>, packed: &B::Vector, y: &mut B::Vector) -> Result<()> {
        be.scatter_entries(gate, packed, self.own.start, &self.own_places, y)
    }

    /// The number of entries that go to each rank, and the number that come from each.
    pub(crate) fn neighbours(&self) -> [Vec<(usize, usize)>; 2] {
        [
            self.sends.iter().map(|(rank, entries)| (*rank, entries.len())).collect(),
            self.receives.iter().map(|(rank, to)| (*rank, to.len())).collect(),
        ]
    }

    /// Where packed entries of another rank are among the ghosts.
    fn ghost(&self, packed: &Range<usize>) -> Range<usize> {
        let before = if packed.start < self.own.start { 0 } else { self.own.len() };
        packed.start - before..packed.end - before
    }

    fn room(&self) -> MutexGuard<'_, Room<T>> {
        // No operation reads what an earlier one left here, so a poisoned lock does no harm.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend::Backend;
    use spandrel_backend_cpu::Cpu;

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
            let be = &Cpu::with_threads(1)?;
            let exchange = Exchange::<f64, _>::new(be, &team, &partition, &Needed::Listed(&needed))?;
            assert_eq!(exchange.len(), needed.len());
            assert_eq!(exchange.ghosts() as u64, needed.len() as u64 - (me.end - me.start));
            let x = be.upload(&me.clone().map(|i| i as f64).collect::<Vec<_>>())?;
            let mut packed = be.upload(&vec![f64::NAN; needed.len()])?;
            assert!(exchange.gather(be, &team, None, &x, &mut packed)?);
            assert!(packed.as_slice().iter().zip(&needed).all(|(&x, &i)| x == i as f64));
            be.fill(None, 1.0, &mut packed)?;
            let mut times = be.upload(&vec![f64::NAN; x.len()])?;
            exchange.scatter_add(be, &team, None, &packed, &mut times)?;
            be.download(&times)
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
