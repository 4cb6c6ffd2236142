//! Send buffers of CPU ranks: host memory, which every thread of the process reads.
//!
//! Operations run when they are called, so a message is complete once its rank has come to the meeting.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use spandrel_backend::{Error, PeerSums, Peers, Result};
use spandrel_formats::Real;

use crate::Cpu;
use crate::device::Sums;
use crate::dot::combine;
use crate::vector::out_of_memory;

/// The send buffer of a CPU rank.
#[derive(Debug)]
pub struct CpuSendBuffer {
    /// Nobody waits for these locks, because turns keep readers and the writer apart.
    halves: [RwLock<Vec<u64>>; 2],
}

/// The error for a message beyond a send buffer.
fn beyond(found: usize, expected: usize) -> Error {
    Error::Shape { op: "a message", what: "a send buffer", found, expected }
}

impl CpuSendBuffer {
    fn half(&self, turn: u64) -> &RwLock<Vec<u64>> {
        &self.halves[(turn % 2) as usize]
    }

    /// Overwrites the first elements of a turn's half.
    pub(crate) fn put<T: Real>(&self, turn: u64, values: impl ExactSizeIterator<Item = T>) -> Result<()> {
        let half = &mut *self.half(turn).write().unwrap_or_else(PoisonError::into_inner);
        let (room, len) = (bytemuck::cast_slice_mut::<u64, T>(half), values.len());
        let found = room.len();
        let room = room.get_mut(..len).ok_or_else(|| beyond(found, len))?;
        room.iter_mut().zip(values).for_each(|(to, value)| *to = value);
        Ok(())
    }

    /// Copies elements of a turn's half.
    pub(crate) fn take<T: Real>(&self, turn: u64, range: Range<usize>, to: &mut [T]) -> Result<()> {
        let half = &*self.half(turn).read().unwrap_or_else(PoisonError::into_inner);
        let room = bytemuck::cast_slice::<u64, T>(half);
        let sent = room.get(range.clone()).ok_or_else(|| beyond(room.len(), range.end))?;
        to.copy_from_slice(sent);
        Ok(())
    }
}

impl Peers for Cpu {
    type SendBuffer = CpuSendBuffer;
    type Peer = Arc<CpuSendBuffer>;
    const MOST_RANKS: usize = usize::MAX;

    fn send_buffer(&self, bytes: usize) -> Result<Option<CpuSendBuffer>> {
        let words = bytes.div_ceil(size_of::<u64>());
        let half = || -> Result<RwLock<Vec<u64>>> {
            let mut half = Vec::new();
            half.try_reserve_exact(words).map_err(|_| out_of_memory::<u64>(words, "a send buffer"))?;
            half.resize(words, 0);
            Ok(RwLock::new(half))
        };
        Ok(Some(CpuSendBuffer { halves: [half()?, half()?] }))
    }
    fn peer(&self, buffer: Arc<CpuSendBuffer>) -> Result<Option<Arc<CpuSendBuffer>>> {
        Ok(Some(buffer))
    }
    fn joined_to_peers<R>(&self, sums: &Arc<PeerSums<Self>>, work: impl FnOnce(&Self) -> R) -> R {
        work(&self.with_sums(Sums::Peers(Arc::clone(sums))))
    }
}

/// Completes the sums of lists of block results, which follow one another in `partials`, with those of the other ranks.
///
/// # Errors
/// [`Error::Shape`] for another number of blocks than expected; [`Error::Rank`]; [`Error::OutOfMemory`].
pub(crate) fn complete<T: Real, const N: usize>(cpu: &Cpu, sums: &PeerSums<Cpu>, partials: &[T]) -> Result<[T; N]> {
    let own = partials.len() / N;
    let turn = sums.begin(own)?;
    sums.buffer().put(turn, partials.iter().copied())?;
    sums.meet(size_of_val(partials))?;
    let mut roots = [T::zero(); N];
    cpu.scratch().with(sums.blocks(), |all: &mut [T]| -> Result<()> {
        for (k, root) in roots.iter_mut().enumerate() {
            for (blocks, peer) in sums.ranks() {
                let (to, len) = (&mut all[blocks.clone()], blocks.len());
                match peer {
                    Some(peer) => peer.take(turn, k * len..(k + 1) * len, to)?,
                    None => to.copy_from_slice(&partials[k * own..(k + 1) * own]),
                }
            }
            *root = combine(all);
        }
        Ok(())
    })??;
    Ok(roots)
}
