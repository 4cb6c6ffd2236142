//! GPUs of one process that read each other's send buffers, by kernels.
//!
//! A send buffer is not allocated from the pool, because other devices could read pool memory only after further calls
//! of the driver. Beside its halves is the number of messages published so far, by which kernels of other GPUs wait for
//! a message. Events order the queues of ranks on the same GPU instead, because a kernel that waits could keep another
//! queue of its GPU from being served. GPUs without a direct connection (NVLink, or PCIe below one switch) exchange
//! messages through the host.
//!
//! Kernels: kernels/ranks.cu.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};
use spandrel_backend::{Error, Gate, PeerSums, Peers, Received, Result};
use spandrel_formats::Real;

use crate::device::gate_pointer;
use crate::error::{NAME, failed, refused};
use crate::join::{Before, Sums};
use crate::kernel::{Argument, kernels};
use crate::launch::{BLOCK, ChecksArg, Grid, Update};
use crate::memory::{Address, Buffer};
use crate::{Cuda, CudaCsr, Scalar, Vector};

kernels! {
    struct SendRanks {
        count: u64, places: Address, x: Address, to: Address, ticket: Address, published: Address, turn: u64,
    }
    in RANKS { ENTRY: "send_ranks" }

    struct SendSumsRanks {
        results0: Address, results1: Address, sums: u32, begin: u64, end: u64, all: u64, to: Address, ticket: Address,
        published: Address, turn: u64,
    }
    in RANKS { ENTRY: "send_sums_ranks" }

    struct SumRanks {
        from: MessagesArg, turn: u64, all: u64, sums: u32, root: u32, nodes: Address, out0: Address, out1: Address,
        checks: ChecksArg, monitor: Address,
    }
    in RANKS { ENTRY: "sum_ranks" }

    struct ReceiveRanks { from: PartsArg, turn: u64, to: Address }
    in RANKS { ENTRY: "receive_ranks" }

    struct ApplyPackedRanks<T> {
        nrows: u32, rows: u32, row_ptr: Address, cols: Address, values: Address, places: Address, own: Address,
        at: u32, own_count: u32, packed: Address, by_row: u32, update: Update<T>,
    }
    in RANKS { ENTRY: "apply_packed_ranks" }

    struct BlockResultsRanks {
        n: u64, w: Address, y: Address, blocks: Address, count: u64, results0: Address, results1: Address,
        gate: Address,
    }
    in RANKS { ENTRY: "block_results_ranks" }
}

/// As in kernels/ranks.cu.
const MOST_RANKS: usize = 32;
/// Threads of a thread block that multiplies rows (`ROWS_THREADS` of kernels/ranks.cu).
const ROWS_THREADS: usize = 128;

/// The messages of all ranks, in their order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct MessagesArg {
    values: [Address; MOST_RANKS],
    published: [Address; MOST_RANKS],
    ends: [u64; MOST_RANKS],
    count: u32,
    unused: u32,
}
// SAFETY: `struct Messages`: pointers, u64 and u32, in this order.
unsafe impl Argument for MessagesArg {}

/// Parts of messages, and where they go.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct PartsArg {
    values: [Address; MOST_RANKS],
    published: [Address; MOST_RANKS],
    at: [u64; MOST_RANKS],
    len: [u64; MOST_RANKS],
    chunks: [u32; MOST_RANKS],
    count: u32,
    unused: u32,
}
// SAFETY: `struct Parts`: pointers, u64 and u32, in this order.
unsafe impl Argument for PartsArg {}

const WHAT: &str = "a send buffer";

/// Memory of one device, in two halves, that the queues of other devices read. Behind the halves is the number of
/// messages published so far.
pub struct SendBuffer {
    memory: Memory,
    /// Bytes of a half.
    half: usize,
    /// The event of the last message published from each half, if it has readers on the same device.
    events: [CudaEvent; 2],
    has_readers_here: AtomicBool,
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
        let all = half.checked_mul(2).and_then(|both| both.checked_add(size_of::<u64>())).filter(|&all| all < 1 << 47);
        let all = all.ok_or(Error::OutOfMemory { device: NAME, what: WHAT, bytes: u64::MAX })?;
        let context = stream.context();
        context.bind_to_thread().map_err(|error| failed(WHAT, error))?;
        // SAFETY: the context is bound, and the size is not zero.
        let pointer = unsafe { result::malloc_sync(all) }.map_err(|error| refused(WHAT, all as u64, error))?;
        let memory = Memory { pointer, stream: stream.clone() };
        let event = || {
            let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
            context.new_event(Some(flags)).map_err(|error| failed(WHAT, error))
        };
        let events = [event()?, event()?];
        let made = Self { memory, half, events, has_readers_here: AtomicBool::new(false) };
        // SAFETY: the number lies there, and nobody else knows the memory yet.
        unsafe { result::memset_d8_sync(made.published().get(), 0, size_of::<u64>()) }
            .map_err(|error| failed(WHAT, error))?;
        Ok(made)
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.memory.stream.context()
    }

    /// The half of a turn.
    fn half(&self, turn: u64) -> Address {
        Address::new(self.memory.pointer).offset((turn % 2) as usize * self.half)
    }

    /// Where the number of published messages lies.
    fn published(&self) -> Address {
        Address::new(self.memory.pointer).offset(2 * self.half)
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
    /// Makes the queue wait for a message of a rank on the same device. Kernels wait for the other ones.
    fn follow_here(&self, turn: u64) -> Result<()> {
        if self.stream.context() != self.buffer.context() {
            return Ok(());
        }
        let event = &self.buffer.events[(turn % 2) as usize];
        self.stream.wait(event).map_err(|error| failed("following a message", error))
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
    const MOST_RANKS: usize = MOST_RANKS;

    fn send_buffer(&self, bytes: usize) -> Result<Option<SendBuffer>> {
        SendBuffer::new(self.stream(), bytes).map(Some)
    }
    fn peer(&self, buffer: Arc<SendBuffer>) -> Result<Option<Peer>> {
        let can = open(self.context(), buffer.context()).map_err(|error| failed("reading another GPU", error))?;
        if self.context() == buffer.context() {
            buffer.has_readers_here.store(true, Ordering::Relaxed);
        }
        Ok(can.then(|| Peer { buffer, stream: self.stream().clone() }))
    }
    fn joined_to_peers<R>(&self, sums: &Arc<PeerSums<Self>>, work: impl FnOnce(&Self) -> R) -> R {
        let _before = Before::of(self, Sums::Peers(Arc::clone(sums)));
        work(self)
    }
}

impl Cuda {
    /// Publishes a message for ranks on the same device, as its kernel does for others.
    fn publish_here(&self, turn: u64, buffer: &SendBuffer) -> Result<()> {
        if !buffer.has_readers_here.load(Ordering::Relaxed) {
            return Ok(());
        }
        let event = &buffer.events[(turn % 2) as usize];
        event.record(self.stream()).map_err(|error| failed("publishing a message", error))
    }

    /// Sends x at these places as the message of a turn. Enqueued.
    ///
    /// # Safety
    /// All of these places are below the length of x.
    ///
    /// # Errors
    /// More places than the send buffer has room for.
    pub(crate) unsafe fn send<T: Real>(
        &self,
        x: &Vector<T>,
        places: &Buffer<u32>,
        turn: u64,
        buffer: &SendBuffer,
    ) -> Result<()> {
        let (to, published, ticket) = (buffer.room::<T>(turn, places.len())?, buffer.published(), self.ticket());
        let (count, grid) = (places.len() as u64, Grid::rows(places.len()));
        let (places, x) = (places.pointer(), x.pointer());
        let parameters = SendRanks { count, places, x, to, ticket, published, turn: turn + 1 };
        // SAFETY: send_ranks(count, places, x, to, ticket, published, turn): the half has room for as many elements,
        // and nobody reads it now: see `spandrel_backend::peers`.
        unsafe { self.launch::<T, _>(SendRanks::ENTRY, grid, &parameters)? };
        self.publish_here(turn, buffer)
    }

    /// Waits, on the GPU, for a message of each of these peers, and copies elements of it. Enqueued.
    ///
    /// # Safety
    /// Each range of places lies inside `to`, which has the elements that the address is the first of, in memory that
    /// lives until the queue has passed the kernel.
    ///
    /// # Errors
    /// A range that leaves its send buffer; more peers than ranks can have.
    pub(crate) unsafe fn receive<T: Real>(&self, turn: u64, from: &[Received<Peer>], to: Address) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        let none = [Address::NULL; MOST_RANKS];
        let mut parts = PartsArg {
            values: none,
            published: none,
            at: [0; MOST_RANKS],
            len: [0; MOST_RANKS],
            chunks: [0; MOST_RANKS],
            count: from.len() as u32,
            unused: 0,
        };
        expect_ranks(from.len())?;
        let mut chunks = 0;
        for (k, Received { peer, sent, at }) in from.iter().enumerate() {
            let message = peer.buffer.room::<T>(turn, sent.end)?;
            peer.follow_here(turn)?;
            (parts.values[k], parts.published[k]) = (message.offset(sent.start * T::BYTES), peer.buffer.published());
            (parts.at[k], parts.len[k]) = (*at as u64, sent.len() as u64);
            chunks += sent.len().div_ceil(BLOCK).max(1);
            parts.chunks[k] = chunks as u32;
        }
        let parameters = ReceiveRanks { from: parts, turn: turn + 1, to };
        // SAFETY: receive_ranks(from, turn, to), a thread block per 1024 elements of each part, at least one. The parts
        // lie inside the halves, which the peers keep alive until this queue is idle, and inside `to`. Turns keep
        // writers of the halves away: see `spandrel_backend::peers`. The peers' hosts have enqueued their messages, and
        // no queue of another device waits for what this one has not enqueued yet, so the kernel ends.
        unsafe { self.launch::<T, _>(ReceiveRanks::ENTRY, Grid::of(chunks, 256), &parameters) }
    }

    /// Multiplies rows with x at the places `own`, from column `at` on, and with `packed` in the other columns. If
    /// `by_row`, z has an element per row; otherwise it lies as y. Enqueued.
    ///
    /// # Safety
    /// Each place of `places` lies inside y, and inside z unless `by_row`; each of `own` inside x. `packed` has an
    /// element per column.
    pub(crate) unsafe fn apply_packed_rows<T: Real>(
        &self,
        matrix: &CudaCsr<T>,
        places: &Buffer<u32>,
        (own, at): (&Buffer<u32>, usize),
        packed: &Vector<T>,
        by_row: bool,
        update: Update<T>,
    ) -> Result<()> {
        let (row_ptr, cols, values) = matrix.arrays();
        let (nrows, rows) = (matrix.nrows(), rows_at_once(matrix.nrows(), matrix.nnz()));
        let grid = Grid::of(nrows.div_ceil(rows).div_ceil(ROWS_THREADS / 32), ROWS_THREADS as u32);
        let [row_ptr, cols, values] = [row_ptr.pointer(), cols.pointer(), values.pointer()];
        let [places, of_x, packed] = [places.pointer(), own.pointer(), packed.pointer()];
        let (nrows, rows, at, own_count) = (nrows as u32, rows as u32, at as u32, own.len() as u32);
        let by_row = u32::from(by_row);
        let parameters = ApplyPackedRanks {
            nrows,
            rows,
            row_ptr,
            cols,
            values,
            places,
            own: of_x,
            at,
            own_count,
            packed,
            by_row,
            update,
        };
        // SAFETY: apply_packed_ranks(nrows, rows, row_ptr, cols, values, places, own, at, own_count, packed, by_row, a,
        // x, b, y, z, gate), a warp for `rows` rows; the caller vouches for the places.
        unsafe { self.launch::<T, _>(ApplyPackedRanks::ENTRY, grid, &parameters) }
    }

    /// Completes the last kernels' sums over `n` elements of this rank with those of its peers, unless the monitor has
    /// stopped. With `root`, writes their square roots. Then lets the monitor see what these checks say.
    pub(crate) fn complete_with_peers<T: Real, const K: usize>(
        &self,
        sums: &PeerSums<Self>,
        monitor: Address,
        n: usize,
        root: bool,
        checks: ChecksArg,
        out: [&mut Scalar<T>; K],
    ) -> Result<()> {
        expect_ranks(sums.ranks().len())?;
        let (own, all) = (n.div_ceil(BLOCK), sums.blocks());
        let turn = sums.begin(own)?;
        let to = sums.buffer().room::<T>(turn, K * own)?;
        let lists = self.block_results::<T, K>(n);
        let list = |k: usize| lists.get(k).copied().unwrap_or(Address::NULL);
        let none = [Address::NULL; MOST_RANKS];
        let mut from = MessagesArg {
            values: none,
            published: none,
            ends: [0; MOST_RANKS],
            count: sums.ranks().len() as u32,
            unused: 0,
        };
        let mut begin = 0;
        for (k, (blocks, peer)) in sums.ranks().iter().enumerate() {
            let buffer = peer.as_ref().map_or(sums.buffer(), |peer| &peer.buffer);
            from.values[k] = buffer.room::<T>(turn, K * blocks.len())?;
            (from.published[k], from.ends[k]) = (buffer.published(), blocks.end as u64);
            if peer.is_none() {
                begin = blocks.start as u64;
            }
        }
        let (count, published) = (K as u32, sums.buffer().published());
        let (results0, results1, end) = (list(0), list(1), begin + own as u64);
        let (all_blocks, ticket) = (all as u64, self.ticket());
        let parameters = SendSumsRanks {
            results0,
            results1,
            sums: count,
            begin,
            end,
            all: all_blocks,
            to,
            ticket,
            published,
            turn: turn + 1,
        };
        // A warp for each group of 1024 blocks, and for 64 of the other blocks.
        let (groups, others) = message_of_sum(begin as usize..begin as usize + own, all);
        let warps = K * (groups + others.div_ceil(64));
        let grid = Grid::of(warps.div_ceil(4), 128);
        // SAFETY: send_sums_ranks(results0, results1, sums, begin, end, all, to, ticket, published, turn). `own`
        // results of each sum lie at these addresses, and a half of the send buffer has room for as many.
        unsafe { self.launch::<T, _>(SendSumsRanks::ENTRY, grid, &parameters)? };
        self.publish_here(turn, sums.buffer())?;
        sums.meet(K * (groups + others) * T::BYTES)?;
        sums.ranks().iter().filter_map(|(_, peer)| peer.as_ref()).try_for_each(|peer| peer.follow_here(turn))?;
        let nodes = self.room_for_sums(all)?;
        let [out0, out1] = [0, 1].map(|k| out.get(k).map_or(Address::NULL, |out| out.pointer()));
        let (root, turn) = (u32::from(root), turn + 1);
        let parameters =
            SumRanks { from, turn, all: all_blocks, sums: count, root, nodes, out0, out1, checks, monitor };
        // SAFETY: sum_ranks(from, turn, all, sums, root, nodes, out0, out1, checks, monitor), by one thread block. The
        // messages and their ends are those that all ranks send; otherwise as in `receive`.
        unsafe { self.launch::<T, _>(SumRanks::ENTRY, Grid::of(1, 512), &parameters) }
    }

    /// Room for the sums of groups of 1024 blocks, and of such groups, and so on.
    fn room_for_sums(&self, blocks: usize) -> Result<Address> {
        let mut gathered = self.gathered().borrow_mut();
        let (mut words, mut count) = (1, blocks);
        while count > 1 {
            count = count.div_ceil(BLOCK);
            words += count;
        }
        match &*gathered {
            Some(room) if room.len() >= words => Ok(room.pointer()),
            _ => {
                let room = Buffer::uninit(self.stream(), words.next_power_of_two(), "sums of all ranks")?;
                Ok(gathered.insert(room).pointer())
            }
        }
    }

    /// Forms the block results w . y, and with `both` also y . y, again in these blocks, where the last sums over the
    /// elements of y have left theirs.
    pub(crate) fn renew_block_results<T: Real>(
        &self,
        gate: Gate<'_, Self>,
        w: &Vector<T>,
        y: &Vector<T>,
        blocks: &Buffer<u32>,
        both: bool,
    ) -> Result<()> {
        let n = y.len();
        if blocks.len() == 0 {
            return Ok(());
        }
        let [results0, results1] = self.block_results::<T, 2>(n);
        let results1 = if both { results1 } else { Address::NULL };
        let (w, y, count) = (w.pointer(), y.pointer(), blocks.len() as u64);
        let (gate, grid) = (gate_pointer(gate), Grid::of(blocks.len().div_ceil(256 / 32), 256));
        let blocks = blocks.pointer();
        let parameters = BlockResultsRanks { n: n as u64, w, y, blocks, count, results0, results1, gate };
        // SAFETY: block_results_ranks(n, w, y, blocks, count, results0, results1, gate) on vectors of n elements, every
        // block below the number of results that lie there.
        unsafe { self.launch::<T, _>(BlockResultsRanks::ENTRY, grid, &parameters) }
    }
}

/// The number of rows that a warp multiplies: a power of two, at most 32. On average they have as many entries as it
/// has at once (`ROWS_ENTRIES` of kernels/ranks.cu).
fn rows_at_once(nrows: usize, nnz: usize) -> usize {
    let fit = 256 * nrows / nnz.max(1);
    1 << fit.clamp(1, 32).ilog2()
}

/// What a rank with these blocks of `all` sends for a sum: the number of whole groups of 1024 blocks, and of blocks
/// outside of them. As `Blocks` in kernels/ranks.cu.
fn message_of_sum(blocks: Range<usize>, all: usize) -> (usize, usize) {
    let first = blocks.start.div_ceil(BLOCK);
    let last = if blocks.end == all { all.div_ceil(BLOCK) } else { blocks.end / BLOCK };
    if all <= 1 || first >= last {
        return (0, blocks.len());
    }
    (last - first, blocks.len() - (blocks.end.min(last * BLOCK) - first * BLOCK))
}

/// Refuses more ranks than the kernels take.
fn expect_ranks(ranks: usize) -> Result<()> {
    if ranks <= MOST_RANKS {
        return Ok(());
    }
    Err(Error::Shape { op: "a message", what: "the list of ranks", found: ranks, expected: MOST_RANKS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_groups_are_summed_before_they_are_sent() {
        // Blocks of the rank, of all, and what it sends.
        for (blocks, all, wanted) in [
            (0..0, 0, (0, 0)),
            (0..1, 1, (0, 1)),
            (0..2, 2, (1, 0)),
            (0..16_384, 32_768, (16, 0)),
            (16_384..32_768, 32_768, (16, 0)),
            (5..20, 20, (0, 15)),
            (0..69, 1169, (0, 69)),
            (1100..1169, 1169, (0, 69)),
            (1000..3000, 5000, (1, 24 + 952)),
            (3000..5000, 5000, (2, 72)),
        ] {
            assert_eq!(message_of_sum(blocks.clone(), all), wanted, "{blocks:?} of {all}");
        }
    }

    #[test]
    fn a_warp_has_the_entries_of_its_rows_at_once() {
        for (nrows, nnz, wanted) in [
            (0, 0, 1),
            (5, 0, 32),
            (65_536, 7 * 65_536, 32),
            (65_536, 27 * 65_536, 8),
            (100, 12_800, 2),
            (100, 12_900, 1),
            (3, 1_000_000, 1),
        ] {
            assert_eq!(rows_at_once(nrows, nnz), wanted, "{nnz} entries in {nrows} rows");
        }
    }
}
