//! Chosen entries of vectors: what the ranks of a distributed solve exchange.

use std::ops::Range;

use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::{Backend, Gate, Peers, Result};

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
    /// Puts `from[places[k]]`, for every k, into the half of a send buffer that is this turn's.
    fn send_entries(
        &self,
        from: &Self::Vector,
        places: &Self::Places,
        turn: u64,
        buffer: &Self::SendBuffer,
    ) -> Result<()>;
    /// `to[at + k] <- sent[range.start + k]` for every k of the range, where `sent` is what a peer has put into its
    /// send buffer in this turn.
    fn receive_entries(
        &self,
        turn: u64,
        peer: &Self::Peer,
        range: Range<usize>,
        to: &mut Self::Vector,
        at: usize,
    ) -> Result<()>;
}
