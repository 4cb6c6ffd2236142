//! Chosen entries of vectors on the GPU, and their way to the host and back.
//!
//! Order: element-wise. Cost: places and entries are read or written once, the vector in sectors of 32 bytes at these
//! places. Only the entries go over the bus. Kernels: those that gather and scatter in kernels/sparse_vec.cu.

use std::cell::Cell;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Coeff, Entries, Error, Gate, Operator, PackedRows, Received, Result};
use spandrel_formats::Real;
use spandrel_formats::index::Ordinal;

use crate::device::gate_pointer;
use crate::join::{Before, Sums};
use crate::launch::{BLOCK, Grid, Update};
use crate::memory::{Address, Buffer};
use crate::peers::{Peer, SendBuffer};
use crate::sparse_vec::{GatherSparseVec, ScatterSparseVec};
use crate::{Cuda, Scalar, Vector};

/// Places in vectors of one length, in device memory.
#[derive(Debug)]
pub struct CudaPlaces {
    len: usize,
    /// Each below `len`.
    places: Buffer<u32>,
}

/// Refuses a range that does not lie inside its vector.
fn expect_range(op: &'static str, len: usize, at: usize, count: usize) -> Result<()> {
    match at.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        end => Err(Error::Shape { op, what: "a range", found: end.unwrap_or(usize::MAX), expected: len }),
    }
}

impl Cuda {
    /// values <- y at the places.
    ///
    /// # Safety
    /// As many values lie at the address as there are places, and y has the length that these are for.
    unsafe fn gather_to<T: Real>(&self, y: &Vector<T>, places: &CudaPlaces, values: Address) -> Result<()> {
        let (nnz, indices) = (places.places.len() as u64, places.places.pointer());
        let parameters = GatherSparseVec { nnz, indices, y: y.pointer(), values, gate: Address::NULL };
        // SAFETY: gather_sparse_vec(nnz, indices, y, values, gate), every index below y's length.
        unsafe { self.launch::<T, _>(GatherSparseVec::ENTRY, Grid::rows(places.places.len()), &parameters) }
    }

    /// y at the places <- values, unless the gate is closed.
    ///
    /// # Safety
    /// As [`Cuda::gather_to`].
    unsafe fn scatter_from<T: Real>(
        &self,
        gate: Gate<'_, Self>,
        values: Address,
        places: &CudaPlaces,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let (nnz, indices) = (places.places.len() as u64, places.places.pointer());
        let parameters = ScatterSparseVec { nnz, indices, values, y: y.pointer(), gate: gate_pointer(gate) };
        // SAFETY: scatter_sparse_vec(nnz, indices, values, y, gate), every index below y's length.
        unsafe { self.launch::<T, _>(ScatterSparseVec::ENTRY, Grid::rows(places.places.len()), &parameters) }
    }
}

impl<T: Real> Entries<T> for Cuda {
    type Places = CudaPlaces;

    fn places(&self, len: usize, places: &[Ordinal]) -> Result<CudaPlaces> {
        if let Some(&beyond) = places.iter().find(|&&place| place as usize >= len) {
            return Err(Error::Shape { op: "places", what: "a place", found: beyond as usize, expected: len });
        }
        Ok(CudaPlaces { len, places: Buffer::from_host(self.stream(), places, "places of entries")? })
    }

    fn gather_entries(&self, from: &Vector<T>, places: &CudaPlaces, to: &mut Vector<T>, at: usize) -> Result<()> {
        expect_len("gather_entries", "from", from.len(), places.len)?;
        expect_range("gather_entries", to.len(), at, places.places.len())?;
        // SAFETY: the range lies inside `to`, and the length of `from` was compared.
        unsafe { self.gather_to(from, places, to.buffer().address(at)) }
    }

    fn scatter_entries(
        &self,
        gate: Gate<'_, Self>,
        from: &Vector<T>,
        at: usize,
        places: &CudaPlaces,
        to: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("scatter_entries", "to", to.len(), places.len)?;
        expect_range("scatter_entries", from.len(), at, places.places.len())?;
        // SAFETY: the range lies inside `from`, and the length of `to` was compared.
        unsafe { self.scatter_from(gate, from.buffer().address(at), places, to) }
    }

    fn fetch_entries(
        &self,
        gate: Gate<'_, Self>,
        from: &Vector<T>,
        places: &CudaPlaces,
        host: &mut [T],
    ) -> Result<bool> {
        expect_len("fetch_entries", "from", from.len(), places.len)?;
        expect_len("fetch_entries", "host", host.len(), places.places.len())?;
        if host.is_empty() && gate.is_none() {
            return Ok(true);
        }
        let packed = self.packed::<T>(host.len())?;
        if !host.is_empty() {
            // SAFETY: `packed` has room for the entries, and the length of `from` was compared.
            unsafe { self.gather_to(from, places, packed)? };
        }
        let landing = &mut *self.landing().borrow_mut();
        // SAFETY: the entries lie there.
        let fetched = unsafe { landing.fetch(self.stream(), gate_pointer(gate), &[packed], host.len() * T::BYTES)? };
        let Some(fetched) = fetched else { return Ok(false) };
        host.copy_from_slice(bytemuck::cast_slice(fetched));
        Ok(true)
    }

    fn put_entries(&self, host: &[T], places: &CudaPlaces, to: &mut Vector<T>) -> Result<()> {
        expect_len("put_entries", "to", to.len(), places.len)?;
        expect_len("put_entries", "host", host.len(), places.places.len())?;
        if host.is_empty() {
            return Ok(());
        }
        let packed = self.packed::<T>(host.len())?;
        // SAFETY: `packed` has room for the entries, which nobody else uses until the queue has passed the launch.
        let room = unsafe { Buffer::<T>::borrow(self.stream(), packed.get(), host.len()) };
        room.write_at(0, host)?;
        // SAFETY: the entries lie there, and the length of `to` was compared.
        unsafe { self.scatter_from(None, packed, places, to) }
    }

    fn read_range(&self, from: &Vector<T>, at: usize, host: &mut [T]) -> Result<()> {
        expect_range("read_range", from.len(), at, host.len())?;
        if host.is_empty() {
            return Ok(());
        }
        from.buffer().read_at(at, host)
    }

    fn write_range(&self, host: &[T], to: &mut Vector<T>, at: usize) -> Result<()> {
        expect_range("write_range", to.len(), at, host.len())?;
        to.buffer().write_at(at, host)
    }

    fn send_entries(&self, from: &Vector<T>, places: &CudaPlaces, turn: u64, buffer: &SendBuffer) -> Result<()> {
        expect_len("send_entries", "from", from.len(), places.len)?;
        // SAFETY: the length of `from` was compared.
        unsafe { self.send(from, &places.places, turn, buffer) }
    }

    fn receive_entries(&self, turn: u64, from: &[Received<Peer>], to: &mut Vector<T>) -> Result<()> {
        from.iter().try_for_each(|part| expect_range("receive_entries", to.len(), part.at, part.sent.len()))?;
        // SAFETY: the ranges lie inside `to`, whose memory is freed in the order of this queue.
        unsafe { self.receive::<T>(turn, from, to.pointer()) }
    }

    /// One kernel brings the entries of the peers, and one reads the others where they lie and writes the rows.
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
    ) -> Result<()> {
        const OP: &str = "apply_packed";
        let &PackedRows { matrix, places, own, at, from } = rows;
        expect_len(OP, "x", x.len(), own.len)?;
        expect_len(OP, "y", y.len(), places.len)?;
        expect_len(OP, "packed", packed.len(), matrix.ncols())?;
        expect_len(OP, "sums", sums.len(), matrix.nrows())?;
        expect_len(OP, "places", places.places.len(), matrix.nrows())?;
        z.map_or(Ok(()), |z| expect_len(OP, "z", z.len(), places.len))?;
        expect_range(OP, packed.len(), at, own.places.len())?;
        self.receive_entries(turn, from, packed)?;
        let (x, y, gate) = (x.pointer(), y.pointer(), gate_pointer(gate));
        let update = Update { a: a.into(), x, b: b.into(), y, z: z.unwrap_or(sums).pointer(), gate };
        let own = (&own.places, at);
        // SAFETY: the lengths were compared, and the matrix has a column for each element of `packed`.
        unsafe { self.apply_packed_rows(matrix.resident(), &places.places, own, packed, z.is_none(), update) }
    }

    /// If the device is joined, the product's kernel forms the block results, and only those of `blocks` are formed
    /// again, before they are completed.
    fn apply_dot_around(
        &self,
        gate: Gate<'_, Self>,
        a: &impl Operator<T, Self>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        mut yy: Option<&mut Scalar<T>>,
        blocks: &CudaPlaces,
        rest: impl FnOnce(&mut Vector<T>) -> Result<()>,
    ) -> Result<()> {
        expect_len("apply_dot_around", "blocks", blocks.len, y.len().div_ceil(BLOCK))?;
        if !self.is_joined() {
            a.apply(self, gate, x, y)?;
            rest(y)?;
            return self.dots(gate, w, y, wy, yy);
        }
        {
            let _later = Before::of(self, Sums::Later(Cell::new(0)));
            a.apply_dot(self, gate, x, y, w, wy, yy.as_deref_mut())?;
        }
        rest(y)?;
        self.renew_block_results(gate, w, y, &blocks.places, yy.is_some())?;
        self.complete_dots(gate, y.len(), wy, yy)
    }
}
