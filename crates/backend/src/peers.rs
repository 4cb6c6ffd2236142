//! Devices of ranks in one process that read each other's memory, so that messages need not pass through the host.
//!
//! A rank puts what it sends into its send buffer and publishes it; every rank that needs it then copies it from there.
//! All of this is enqueued, and the host never waits for a device. Only the hosts meet, once per message: nobody may
//! follow what is not yet published. Devices then wait only for work that is already enqueued, so none of them can wait
//! for ever.
//!
//! Messages are numbered by turns. A send buffer has two halves, which the turns use alternately. Ranks that exchange
//! messages must follow each other in every turn, also if one of them sends nothing. Then what is written in a turn
//! comes after everything that was read of the same half two turns before: the reader had enqueued that before it
//! published the turn between, which the writer has followed.

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
    /// Memory of this device that others read, in two halves.
    type SendBuffer: fmt::Debug + Send + Sync + 'static;
    /// The send buffer of another device, as this device reads it.
    type Peer: fmt::Debug + Send + Sync + 'static;

    /// Makes a send buffer whose halves have `bytes` bytes each. Allocates. Returns `None` if devices of this kind
    /// never read each other's memory.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn send_buffer(&self, bytes: usize) -> Result<Option<Self::SendBuffer>>;
    /// Prepares to read another device's send buffer. Returns `None` if this device cannot.
    fn peer(&self, buffer: Arc<Self::SendBuffer>) -> Result<Option<Self::Peer>>;
    /// Publishes what was enqueued so far to this rank's send buffer, as its message of this turn.
    fn publish(&self, turn: u64, buffer: &Self::SendBuffer) -> Result<()>;
    /// What is enqueued from now on runs after everything that the peer had enqueued before it published this turn. The
    /// peer must have done so.
    fn follow(&self, turn: u64, peer: &Self::Peer) -> Result<()>;
    /// As [`crate::Join::joined`], but the devices gather the block results of all ranks themselves, and every one of
    /// them sums the tree above. Does not wait for a device. A device that does not see at once whether its gate is
    /// closed takes part in any case; otherwise none of the ranks does.
    fn joined_to_peers<R>(&self, sums: &Arc<PeerSums<Self>>, work: impl FnOnce(&Self) -> R) -> R
    where
        Self: Sized;
}

/// The hosts of the ranks that exchange a message.
pub trait Meeting: fmt::Debug + Send + Sync {
    /// Tells the others that this rank has published its message, of which each reads so many bytes, and waits until
    /// all of them have published theirs.
    ///
    /// # Errors
    /// [`crate::Error::Rank`] if another rank fails.
    fn meet(&self, bytes: usize) -> Result<()>;
}

/// What dot products of vectors that lie on several ranks are completed with.
#[derive(Debug)]
pub struct PeerSums<D: Peers> {
    buffer: Arc<D::SendBuffer>,
    /// The blocks of the whole vectors that each rank has, and how its results are read. `None` for this rank.
    ranks: Vec<(Range<usize>, Option<D::Peer>)>,
    meeting: Box<dyn Meeting>,
    turn: AtomicU64,
}

impl<D: Peers> PeerSums<D> {
    /// The most sums that one operation has.
    pub const MOST: usize = 2;

    /// `ranks` has the blocks of each rank, in the order of the ranks, and its send buffer; this rank's own has no
    /// peer, and is `buffer`. Its halves hold [`PeerSums::MOST`] results per block.
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
    /// The blocks of each rank, and how its results are read. This rank's own have no peer.
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
    /// Begins the message with the results of `own` blocks: its turn.
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
