//! Chosen entries of vectors: what the ranks of a distributed solve exchange.

use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::{Backend, Gate, Operator, Peers, Received, Result};

/// Moves chosen entries between vectors, between a device and the host, and through the send buffers of other devices.
///
/// None of these operations may be recorded. Those without a gate run even if a monitor has stopped.
///
/// # Errors
/// [`crate::Error::Shape`] for a vector of another length than the places are for, and for a range that leaves its
/// vector; [`crate::Error::Device`] if the device fails. The outputs are then unchanged.
pub trait Entries<T: Real>: Backend<T> + Peers {
    /// A list of places in vectors of one length, on the device.
    type Places: Send + Sync;

    /// Brings a list of places in vectors of `len` elements to the device. Allocates.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] for a place beyond the vector; [`crate::Error::OutOfMemory`].
    fn places(&self, len: usize, places: &[Ordinal]) -> Result<Self::Places>;
    /// `to[at + k] <- from[places[k]]` for every k.
    fn gather_entries(
        &self,
        from: &Self::Vector,
        places: &Self::Places,
        to: &mut Self::Vector,
        at: usize,
    ) -> Result<()>;
    /// `to[places[k]] <- from[at + k]` for every k, unless the gate is closed. No place may occur twice.
    fn scatter_entries(
        &self,
        gate: Gate<'_, Self>,
        from: &Self::Vector,
        at: usize,
        places: &Self::Places,
        to: &mut Self::Vector,
    ) -> Result<()>;
    /// `host[k] <- from[places[k]]` for every k; returns false, and does nothing, if the gate is closed. Blocks.
    fn fetch_entries(
        &self,
        gate: Gate<'_, Self>,
        from: &Self::Vector,
        places: &Self::Places,
        host: &mut [T],
    ) -> Result<bool>;
    /// `to[places[k]] <- host[k]` for every k. No place may occur twice.
    fn put_entries(&self, host: &[T], places: &Self::Places, to: &mut Self::Vector) -> Result<()>;
    /// `host <- from[at..at + host.len()]`. Blocks.
    fn read_range(&self, from: &Self::Vector, at: usize, host: &mut [T]) -> Result<()>;
    /// `to[at..at + host.len()] <- host`.
    fn write_range(&self, host: &[T], to: &mut Self::Vector, at: usize) -> Result<()>;
    /// Puts `from[places[k]]`, for every k, into the half of a send buffer that is this turn's, and publishes it as
    /// this rank's message of the turn.
    fn send_entries(
        &self,
        from: &Self::Vector,
        places: &Self::Places,
        turn: u64,
        buffer: &Self::SendBuffer,
    ) -> Result<()>;
    /// Follows each of these peers, and copies what it has put into its send buffer in this turn: `to[at + k] <-
    /// message[sent.start + k]` for every k of the range `sent`. All work that is enqueued from now on runs after
    /// everything that the peers enqueued before they published the turn. All must have published it, and none may
    /// occur twice.
    fn receive_entries(&self, turn: u64, from: &[Received<Self::Peer>], to: &mut Self::Vector) -> Result<()>;

    /// As [`Operator::apply_dot`] with a stored matrix some of whose rows are formed by other work: y <- A x, then
    /// `rest`, which writes these rows to y, then the sums. `blocks` has the blocks of 1024 elements in which `rest`
    /// may change y, ascending, as places in a vector of one element per block. The default body is the specification:
    /// an override gives the same bits, and may form the sums together with the product, and again in these blocks.
    ///
    /// # Errors
    /// Those of the product and of `rest`.
    fn apply_dot_around(
        &self,
        gate: Gate<'_, Self>,
        a: &impl Operator<T, Self>,
        x: &Self::Vector,
        y: &mut Self::Vector,
        w: &Self::Vector,
        wy: &mut Self::Scalar,
        yy: Option<&mut Self::Scalar>,
        blocks: &Self::Places,
        rest: impl FnOnce(&mut Self::Vector) -> Result<()>,
    ) -> Result<()> {
        let _ = blocks; // for overrides
        a.apply(self, gate, x, y)?;
        rest(y)?;
        self.dot(gate, w, y, wy)?;
        yy.map_or(Ok(()), |yy| self.dot(gate, y, y, yy))
    }
}
