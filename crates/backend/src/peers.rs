//! Devices of ranks in one process that read each other's memory, so that messages need not pass through the host.
//!
//! A rank writes its message to its send buffer and publishes it. Every rank that needs the message then copies it from
//! there. All of this is enqueued, and the host never waits for a device. Only the hosts wait for each other, once per
//! message, because no rank may follow a message that is not yet published. So devices wait only for work that is
//! already enqueued, and none of them can wait forever.
//!
//! Messages are numbered by turns. A send buffer has two halves, which the turns use alternately. Ranks that exchange
//! messages must follow each other in every turn, even if one of them sends nothing. Then a write to a half comes after
//! all reads of the message that was there two turns before: the reader enqueued its reads before it published the next
//! turn, and the writer has followed that turn.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::expect_len;
use crate::{Device, Result};

/// A device that reads the send buffers of other devices of its kind in this process.
///
/// # Errors
/// [`crate::Error::Device`] if the device fails.
pub trait Peers: Device + 'static {
    /// The memory of this device that others read, in two halves.
    type SendBuffer: fmt::Debug + Send + Sync + 'static;
    /// The send buffer of another device, as this device reads it.
    type Peer: fmt::Debug + Send + Sync + 'static;
    /// The largest number of ranks whose devices read each other's send buffers. The messages of more ranks pass
    /// through the host.
    const MOST_RANKS: usize;

    /// Makes a send buffer whose halves have `bytes` bytes each. Allocates. Returns `None` if devices of this kind
    /// never read each other's memory.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn send_buffer(&self, bytes: usize) -> Result<Option<Self::SendBuffer>>;
    /// Prepares to read another device's send buffer. Returns `None` if this device cannot.
    fn peer(&self, buffer: Arc<Self::SendBuffer>) -> Result<Option<Self::Peer>>;
    /// As [`crate::Join::joined`], but the devices read the results of all ranks themselves, and each device sums the
    /// upper part of the tree. Does not wait for a device. If the host cannot see at once whether the gate is
    /// closed, as on a GPU, the device exchanges results even if it is. Otherwise a closed gate keeps all ranks from
    /// exchanging them.
    fn joined_to_peers<R>(&self, sums: &Arc<PeerSums<Self>>, work: impl FnOnce(&Self) -> R) -> R
    where
        Self: Sized;
}

/// A part of a peer's message, and where it goes.
#[derive(Debug)]
pub struct Received<P> {
    /// The rank that sends it.
    pub peer: P,
    /// The elements of the message. If there are none, the peer is only followed.
    pub sent: Range<usize>,
    /// The place of the first one in the vector that receives them.
    pub at: usize,
}

/// The point at which the hosts of the ranks that exchange a message wait for each other.
pub trait Meeting: fmt::Debug + Send + Sync {
    /// Tells the other ranks that this rank has published its message, and waits until all of them have published
    /// theirs. Each of them reads `bytes` bytes of the message.
    ///
    /// # Errors
    /// [`crate::Error::Rank`] if another rank fails.
    fn meet(&self, bytes: usize) -> Result<()>;
}

/// Completes dot products of vectors that lie on several ranks, by way of send buffers.
#[derive(Debug)]
pub struct PeerSums<D: Peers> {
    buffer: Arc<D::SendBuffer>,
    /// The blocks of the whole vectors that each rank has, and the peer from which its results are read; `None` for
    /// this rank.
    ranks: Vec<(Range<usize>, Option<D::Peer>)>,
    meeting: Box<dyn Meeting>,
    turn: AtomicU64,
}

impl<D: Peers> PeerSums<D> {
    /// The largest number of sums in one operation.
    pub const MOST: usize = 2;

    /// Takes this rank's send buffer, whose halves hold [`PeerSums::MOST`] results per block, and for each rank, in
    /// order, its blocks and its send buffer. The peer of this rank is `None`.
    pub fn new(
        buffer: Arc<D::SendBuffer>,
        ranks: Vec<(Range<usize>, Option<D::Peer>)>,
        meeting: Box<dyn Meeting>,
    ) -> Self {
        Self { buffer, ranks, meeting, turn: AtomicU64::new(0) }
    }

    /// This rank's send buffer.
    pub fn buffer(&self) -> &D::SendBuffer {
        &self.buffer
    }
    /// The blocks of each rank, and the peer from which its results are read; `None` for this rank.
    pub fn ranks(&self) -> &[(Range<usize>, Option<D::Peer>)] {
        &self.ranks
    }
    /// Number of blocks of this rank.
    pub fn own(&self) -> usize {
        self.ranks.iter().find(|(_, peer)| peer.is_none()).map_or(0, |(blocks, _)| blocks.len())
    }
    /// Number of blocks of all ranks.
    pub fn blocks(&self) -> usize {
        self.ranks.last().map_or(0, |(blocks, _)| blocks.end)
    }
    /// Number of messages so far.
    pub fn turns(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }
    /// Begins the message with the results of `own` blocks. Returns its turn.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for another number of blocks than this rank has.
    pub fn begin(&self, own: usize) -> Result<u64> {
        expect_len("a dot product", "the list of block results", own, self.own())?;
        Ok(self.turn.fetch_add(1, Ordering::Relaxed))
    }
    /// As [`Meeting::meet`].
    ///
    /// # Errors
    /// As there.
    pub fn meet(&self, bytes: usize) -> Result<()> {
        self.meeting.meet(bytes)
    }
}
