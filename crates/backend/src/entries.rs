//! Chosen entries of vectors: what the ranks of a distributed solve exchange.

use std::fmt;

use spandrel_formats::index::Ordinal;
use spandrel_formats::{Csr, Real};

use crate::{Backend, Coeff, Gate, Load, Mat, Operator, Peers, Received, Result, Spmv};

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

    /// Chosen rows of a product whose x lies partly on other devices: `y[places[k]] <- a (M packed)[k] + b
    /// z[places[k]]`. Without `z`, what is multiplied with b is `sums[k]`. If b is zero, neither is read.
    ///
    /// Each packed entry of x comes from x itself, from a peer, as [`Entries::receive_entries`] brings it, or from
    /// `packed`. Nothing is written if the gate is closed, but the peers are followed. Afterwards `packed` and `sums`
    /// hold anything. The entries of a row are summed in stored order. The default body is the specification if
    /// products with CSR have this order; an override gives the same bits.
    ///
    /// # Errors
    /// As the operations of the default body.
    fn apply_packed(
        &self,
        gate: Gate<'_, Self>,
        turn: u64,
        rows: &PackedRows<'_, T, Self>,
        a: Coeff<'_, T, <Self as Backend<T>>::Scalar>,
        x: &<Self as Backend<T>>::Vector,
        b: Coeff<'_, T, <Self as Backend<T>>::Scalar>,
        z: Option<&<Self as Backend<T>>::Vector>,
        packed: &mut <Self as Backend<T>>::Vector,
        sums: &mut <Self as Backend<T>>::Vector,
        y: &mut <Self as Backend<T>>::Vector,
    ) -> Result<()>
    where
        Self: Spmv<Csr<T>>,
    {
        self.gather_entries(x, rows.own, packed, rows.at)?;
        self.receive_entries(turn, rows.from, packed)?;
        if let Some(z) = z {
            self.gather_entries(z, rows.places, sums, 0)?;
        }
        rows.matrix.spmv(self, gate, a, packed, b, sums)?;
        self.scatter_entries(gate, sums, 0, rows.places, y)
    }
}

/// Rows of a matrix that need entries of x from other devices: see [`Entries::apply_packed`].
pub struct PackedRows<'a, T: Real, B: Entries<T> + Load<Csr<T>>> {
    /// M: one row for each of these rows, and a column for each packed entry of x.
    pub matrix: &'a Mat<B, Csr<T>>,
    /// Where the rows lie in y. No place may occur twice.
    pub places: &'a B::Places,
    /// Where packed entries lie in x that this device has itself. They follow each other among the packed entries.
    pub own: &'a B::Places,
    /// The place of the first of them among the packed entries.
    pub at: usize,
    /// What peers send, and where it goes among the packed entries. These places lie outside those of own entries and
    /// differ from each other.
    pub from: &'a [Received<B::Peer>],
}

impl<T: Real, B: Entries<T> + Load<Csr<T>>> fmt::Debug for PackedRows<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = (self.matrix.nrows(), self.matrix.ncols());
        f.debug_struct("PackedRows").field("shape", &shape).field("from", &self.from).finish_non_exhaustive()
    }
}
