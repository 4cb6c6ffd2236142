//! GPUs of one process that read each other's send buffers: peer copies, ordered by events.
//!
//! A send buffer is not allocated from the pool, because other devices could read pool memory only after further calls
//! of the driver. If two GPUs have a direct connection (NVLink, or PCIe below one switch), the copies take it. Ranks on
//! the same GPU copy within its memory. GPUs without such a connection exchange messages through the host.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};
use spandrel_backend::{Coeff, Error, Gate, PeerSums, Peers, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::error::{NAME, failed, refused};
use crate::join::{Before, Sums};
use crate::launch::{BLOCK, Grid};
use crate::memory::{Address, Buffer};
use crate::vector::{DotVector, FillVector};
use crate::{Cuda, Scalar};

const WHAT: &str = "a send buffer";

/// Memory of one device, in two halves, that the queues of other devices read.
pub struct SendBuffer {
    memory: Memory,
    /// Bytes of a half.
    half: usize,
    /// The event of the last message published from each half.
    published: [CudaEvent; 2],
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBuffer").field("bytes", &self.half).finish_non_exhaustive()
    }
}

/// Device memory outside the pool. The queue writes to it.
struct Memory {
    pointer: sys::CUdeviceptr,
    stream: Arc<CudaStream>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let context = self.stream.context();
        let freed = self.stream.synchronize().and_then(|()| context.bind_to_thread()).and_then(|()| {
            // SAFETY: from `malloc_sync` of this context, freed once. The queue is idle, and so are those of the peers,
            // which wait before they let go of it.
            unsafe { result::free_sync(self.pointer) }
        });
        context.record_err(freed);
    }
}

impl SendBuffer {
    fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        // A whole number of the widest elements, at least one.
        let half = bytes.next_multiple_of(size_of::<u64>()).max(size_of::<u64>());
        let both = half.checked_mul(2).filter(|&both| both < 1 << 47);
        let both = both.ok_or(Error::OutOfMemory { device: NAME, what: WHAT, bytes: u64::MAX })?;
        let context = stream.context();
        context.bind_to_thread().map_err(|error| failed(WHAT, error))?;
        // SAFETY: the context is bound, and the size is not zero.
        let pointer = unsafe { result::malloc_sync(both) }.map_err(|error| refused(WHAT, both as u64, error))?;
        let memory = Memory { pointer, stream: stream.clone() };
        let event = || {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            context.new_event(Some(flags)).map_err(|error| failed(WHAT, error))
        };
        Ok(Self { memory, half, published: [event()?, event()?] })
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.memory.stream.context()
    }

    /// The half of a turn.
    fn half(&self, turn: u64) -> Address {
        Address::new(self.memory.pointer).offset((turn % 2) as usize * self.half)
    }

    /// Returns an error if a message is longer than a half.
    fn expect(&self, bytes: usize) -> Result<()> {
        if bytes <= self.half {
            return Ok(());
        }
        Err(Error::Shape { op: "a message", what: WHAT, found: self.half, expected: bytes })
    }

    /// Room for `len` elements in the half of a turn.
    pub(crate) fn room<T: Real>(&self, turn: u64, len: usize) -> Result<Address> {
        self.expect(len * T::BYTES)?;
        Ok(self.half(turn))
    }
}

/// The send buffer of another rank, as the queue of this one reads it.
pub struct Peer {
    buffer: Arc<SendBuffer>,
    stream: Arc<CudaStream>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Copies from the buffer may still run, and this may be its last owner.
        let ended = self.stream.synchronize();
        self.stream.context().record_err(ended);
    }
}

impl Peer {
    /// Copies elements of a turn's message to memory of this device. Enqueued.
    ///
    /// # Safety
    /// As many elements lie at `to`, in memory of this peer's stream's device, which lives until the queue has passed
    /// the copy.
    pub(crate) unsafe fn take<T: Real>(&self, turn: u64, sent: Range<usize>, to: Address) -> Result<()> {
        self.buffer.expect(sent.end * T::BYTES)?;
        let (from, bytes) = (self.buffer.half(turn).offset(sent.start * T::BYTES), sent.len() * T::BYTES);
        if bytes == 0 {
            return Ok(());
        }
        let (here, there) = (self.stream.context(), self.buffer.context());
        let queue = self.stream.cu_stream();
        here.bind_to_thread().map_err(|error| failed("a message", error))?;
        // SAFETY: the source lies inside the half, which this value keeps alive; the destination is the caller's
        // promise. Turns keep writers of the half away: see `spandrel_backend::peers`.
        unsafe {
            if here == there {
                result::memcpy_dtod_async(to.get(), from.get(), bytes, queue)
            } else {
                result::memcpy_peer_async(here.cu_ctx(), to.get(), there.cu_ctx(), from.get(), bytes, queue)
            }
        }
        .map_err(|error| failed("a message", error))
    }
}

/// Lets the device of `here` read memory of the device of `there`. Returns false if it cannot.
fn open(here: &Arc<CudaContext>, there: &Arc<CudaContext>) -> std::result::Result<bool, DriverError> {
    if here == there {
        return Ok(true);
    }
    here.bind_to_thread()?;
    let mut can = 0;
    // SAFETY: both are devices of the driver's list, and the answer goes to a live integer.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, here.cu_device(), there.cu_device()) }.result()?;
    if can == 0 {
        return Ok(false);
    }
    // SAFETY: the context of `here` is current, and that of `there` is alive.
    match unsafe { sys::cuCtxEnablePeerAccess(there.cu_ctx(), 0) } {
        sys::CUresult::CUDA_SUCCESS | sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
        sys::CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED | sys::CUresult::CUDA_ERROR_TOO_MANY_PEERS => Ok(false),
        error => Err(DriverError(error)),
    }
}

impl Peers for Cuda {
    type SendBuffer = SendBuffer;
    type Peer = Peer;

    fn send_buffer(&self, bytes: usize) -> Result<Option<SendBuffer>> {
        SendBuffer::new(self.stream(), bytes).map(Some)
    }
    fn peer(&self, buffer: Arc<SendBuffer>) -> Result<Option<Peer>> {
        let can = open(self.context(), buffer.context()).map_err(|error| failed("reading another GPU", error))?;
        Ok(can.then(|| Peer { buffer, stream: self.stream().clone() }))
    }
    fn publish(&self, turn: u64, buffer: &SendBuffer) -> Result<()> {
        let event = &buffer.published[(turn % 2) as usize];
        event.record(self.stream()).map_err(|error| failed("publishing a message", error))
    }
    fn follow(&self, turn: u64, peer: &Peer) -> Result<()> {
        let event = &peer.buffer.published[(turn % 2) as usize];
        self.stream().wait(event).map_err(|error| failed("following a message", error))
    }
    fn joined_to_peers<R>(&self, sums: &Arc<PeerSums<Self>>, work: impl FnOnce(&Self) -> R) -> R {
        let _before = Before::of(self, Sums::Peers(Arc::clone(sums)));
        work(self)
    }
}

/// Memory for the block results of all ranks, and for as many ones. A dot product of the results with ones sums them in
/// the order of the tree. Grows and never shrinks.
#[derive(Default)]
pub(crate) struct Gathered {
    results: Option<Buffer<u64>>,
    ones_f32: Option<Buffer<f32>>,
    ones_f64: Option<Buffer<f64>>,
}

impl Cuda {
    /// Returns the address of `len` ones in device memory.
    fn ones<T: Real>(&self, ones: &mut Option<Buffer<T>>, len: usize) -> Result<Address> {
        if let Some(ones) = ones.as_ref().filter(|ones| ones.len() >= len) {
            return Ok(ones.pointer());
        }
        let fresh = Buffer::<T>::uninit(self.stream(), len.next_power_of_two(), "ones")?;
        let (n, y) = (fresh.len() as u64, fresh.pointer());
        let value = Coeff::<T, Scalar<T>>::host(T::one()).into();
        let parameters = FillVector { n, value, y, gate: Address::NULL };
        // SAFETY: fill_vector(n, value, y, gate) on a buffer of n elements.
        unsafe { self.launch::<T, _>(FillVector::ENTRY, Grid::rows(fresh.len()), &parameters)? };
        Ok(ones.insert(fresh).pointer())
    }

    /// Completes the last kernel's sums over `n` elements of this rank with those of its peers. With `root`, writes
    /// their square roots.
    pub(crate) fn complete_with_peers<T: Real, const K: usize>(
        &self,
        sums: &PeerSums<Self>,
        gate: Gate<'_, Self>,
        n: usize,
        root: bool,
        out: [&mut Scalar<T>; K],
    ) -> Result<()> {
        let (own, all) = (n.div_ceil(BLOCK), sums.blocks());
        let turn = sums.begin(own)?;
        let mine = sums.buffer().room::<T>(turn, K * own)?;
        let lists = self.block_results::<T, K>(n);
        for (k, list) in lists.into_iter().enumerate() {
            // SAFETY: `own` results lie there, and the half has room for K lists of them.
            unsafe { self.copy_within(list, mine.offset(k * own * T::BYTES), own * T::BYTES)? };
        }
        self.publish(turn, sums.buffer())?;
        sums.meet(K * own * T::BYTES)?;
        let gathered = &mut *self.gathered().borrow_mut();
        let words = (K * all * T::BYTES).div_ceil(size_of::<u64>());
        let results = match &gathered.results {
            Some(room) if room.len() >= words => room.pointer(),
            _ => {
                let room = Buffer::uninit(self.stream(), words.next_power_of_two(), "block results of all ranks")?;
                gathered.results.insert(room).pointer()
            }
        };
        for (blocks, peer) in sums.ranks() {
            if let Some(peer) = peer {
                self.follow(turn, peer)?;
            }
            let len = blocks.len();
            for k in 0..K {
                let to = results.offset((k * all + blocks.start) * T::BYTES);
                // SAFETY: K lists of `all` results have room there, and these blocks are inside one of them.
                unsafe {
                    match peer {
                        Some(peer) => peer.take::<T>(turn, k * len..(k + 1) * len, to)?,
                        None => self.copy_within(mine.offset(k * len * T::BYTES), to, len * T::BYTES)?,
                    }
                }
            }
        }
        let ones = if T::BYTES == size_of::<f32>() {
            self.ones(&mut gathered.ones_f32, all)?
        } else {
            self.ones(&mut gathered.ones_f64, all)?
        };
        for (k, out) in out.into_iter().enumerate() {
            let tree = self.own_tree(all, [out.pointer(), Address::NULL])?;
            let (x, gate) = (results.offset(k * all * T::BYTES), gate_pointer(gate));
            let parameters = DotVector { n: all as u64, x, y: ones, root: u32::from(root), tree, gate };
            // SAFETY: dot_vector(n, x, y, root, tree, gate) on `all` elements each.
            unsafe { self.launch::<T, _>(DotVector::ENTRY, Grid::rows(all), &parameters)? };
        }
        Ok(())
    }

    /// Copies bytes within this device's memory. Enqueued.
    ///
    /// # Safety
    /// As many bytes lie at both addresses until the queue has passed the copy.
    unsafe fn copy_within(&self, from: Address, to: Address, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context().bind_to_thread().map_err(|error| failed("a message", error))?;
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtod_async(to.get(), from.get(), bytes, self.stream().cu_stream()) }
            .map_err(|error| failed("a message", error))
    }
}
