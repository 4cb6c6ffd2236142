//! Copies between pageable host memory and the device. They go through page-locked memory, which several threads fill
//! or empty while copies run.
//!
//! Layout: lanes of two slots. Each filling thread has its own lane. It takes the next piece, fills the slot whose copy
//! is older, enqueues the copy to the piece's destination and continues with the other slot. So no thread waits for
//! another. While a lane's older copy runs, its thread may do other work. Threads without a lane do such work too, and
//! may find more to copy.
//!
//! To the host, a thread enqueues the copy of the next piece into one slot, and empties the other one meanwhile.
//!
//! Invariants: a slot is used again only after its last copy has ended, and the memory is freed after all of them.
//! It belongs to a device's handle, and a queue finds it as long as that handle lives. Then the next handle of the
//! device finds it.
//!
//! Cost: [`PIECE`] bytes of page-locked memory per slot, allocated when a thread first needs it: 0.9 ms per slot. The
//! driver's own copy from pageable memory uses one thread. On the host of an H200, whose bus moves 55 GB/s, it reaches
//! 9 to 16 GB/s; two halves of 16 MiB that all threads fill before they are sent reach 16 to 40; lanes of slots reach
//! 39 to 52 (record/h200-upload-variants.txt). Smaller pieces are slower, because the bus reads data from a core's
//! cache at half its speed. So the first fills of a copy, which are sent at once, bypass the cache.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};
use rayon::prelude::*;
use spandrel_backend::Result;

use crate::error::failed;
use crate::opened::{Opened, locked};

/// The bytes of a slot, which a thread copies at once.
const PIECE: usize = 2 << 20;
/// The smallest piece; every piece is a multiple of it. Distributing smaller ones takes longer than copying them.
const GRAIN: usize = 128 << 10;
/// The largest number of threads that fill slots. This many fill faster than the bus copies.
const LANES: usize = 8;
/// The smallest copy that goes through page-locked memory.
pub(crate) const LARGE: usize = 512 << 10;

/// The destination of some bytes of the host in device memory.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// The start of its allocation. No copy crosses the end of an allocation.
    pub(crate) of: sys::CUdeviceptr,
    pub(crate) to: sys::CUdeviceptr,
    pub(crate) bytes: &'a [u8],
}

impl Part<'_> {
    /// Returns true if `next` follows this part directly in the same allocation.
    fn goes_on(&self, next: &Part<'_>) -> bool {
        self.of == next.of && self.to + self.bytes.len() as u64 == next.to
    }
}

/// A piece of page-locked memory, and the end of its last copy.
struct Slot {
    pointer: *mut u8,
    copied: CudaEvent,
}

// SAFETY: the memory is the slot's own; its address and the event may be used from any thread, by one at a time.
unsafe impl Send for Slot {}

impl Slot {
    fn new(context: &Arc<CudaContext>) -> std::result::Result<Self, DriverError> {
        let copied = context.new_event(None)?;
        // SAFETY: the context was bound by the event's constructor; only `drop` frees the memory.
        let pointer = unsafe { result::malloc_host(PIECE, 0) }?.cast::<u8>();
        // SAFETY: PIECE bytes lie there. They are bytes of a value from here on.
        unsafe { pointer.write_bytes(0, PIECE) };
        Ok(Self { pointer, copied })
    }

    /// Fills the slot with a batch, bypassing the cache if `past`, and enqueues the copies. Adjacent parts of one
    /// allocation are one copy.
    fn send(&mut self, stream: &CudaStream, batch: &[Part<'_>], past: bool) -> std::result::Result<(), DriverError> {
        let bytes: usize = batch.iter().map(|part| part.bytes.len()).sum();
        assert!(bytes <= PIECE, "a batch fits its slot");
        // An event that was never recorded counts as ended. This call also binds the context to this thread.
        self.copied.synchronize()?;
        // SAFETY: PIECE bytes from there on are this slot's and have values, and nobody else reads them, as the copy
        // before has ended.
        let room = unsafe { std::slice::from_raw_parts_mut(self.pointer, bytes) };
        let mut rest = &mut *room;
        for part in batch {
            let (to, after) = rest.split_at_mut(part.bytes.len());
            match past {
                true => copy_past_the_cache(part.bytes, to),
                false => to.copy_from_slice(part.bytes),
            }
            rest = after;
        }
        let mut from = 0;
        for beside in batch.chunk_by(Part::goes_on) {
            let end = from + beside.iter().map(|part| part.bytes.len()).sum::<usize>();
            // SAFETY: the caller guarantees the destination; the slot stays unchanged until the event has passed.
            unsafe { result::memcpy_htod_async(beside[0].to, &room[from..end], stream.cu_stream())? };
            from = end;
        }
        self.copied.record(stream)
    }

    /// Enqueues a copy of this many bytes from the device into the slot.
    ///
    /// # Safety
    /// They lie there, in memory of this queue's context.
    unsafe fn request(
        &mut self,
        stream: &CudaStream,
        from: sys::CUdeviceptr,
        bytes: usize,
    ) -> std::result::Result<(), DriverError> {
        assert!(bytes <= PIECE, "a piece fits its slot");
        // As in `send`.
        self.copied.synchronize()?;
        // SAFETY: PIECE bytes from there on are this slot's and have values, and no copy of them is under way.
        let room = unsafe { std::slice::from_raw_parts_mut(self.pointer, bytes) };
        // SAFETY: the source is the caller's promise; the slot is left alone until the event has passed.
        unsafe { result::memcpy_dtoh_async(room, from, stream.cu_stream())? };
        self.copied.record(stream)
    }

    /// Waits for the requested bytes and moves them to the host's memory.
    fn empty(&mut self, to: &mut [MaybeUninit<u8>]) -> std::result::Result<(), DriverError> {
        assert!(to.len() <= PIECE, "a piece fits its slot");
        self.copied.synchronize()?;
        // SAFETY: PIECE bytes from the pointer on have values, and no copy of them is under way; `to` is other memory.
        unsafe { self.pointer.copy_to_nonoverlapping(to.as_mut_ptr().cast(), to.len()) };
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let context = self.copied.context();
        let freed = context.bind_to_thread().and_then(|()| self.copied.synchronize()).and_then(|()| {
            // SAFETY: from malloc_host of this context, freed once, and no copy from it is under way.
            unsafe { result::free_host(self.pointer.cast()) }
        });
        context.record_err(freed);
    }
}

/// Copies without leaving the copy in the processor's caches.
#[cfg(target_arch = "x86_64")]
fn copy_past_the_cache(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    assert_eq!(from.len(), to.len(), "a copy fills its destination");
    // SAFETY: every bit pattern is that of a vector of integers.
    let (head, wide, _) = unsafe { to.align_to_mut::<__m128i>() };
    let (begin, end) = (head.len(), head.len() + size_of_val(wide));
    for (to, from) in wide.iter_mut().zip(from[begin..end].chunks_exact(size_of::<__m128i>())) {
        // SAFETY: 16 bytes lie at either; the destination is aligned; SSE2 is part of every x86-64.
        unsafe { _mm_stream_si128(to, _mm_loadu_si128(from.as_ptr().cast())) };
    }
    // SAFETY: SSE2 again. What was streamed is in memory before anything that follows.
    unsafe { _mm_sfence() };
    to[..begin].copy_from_slice(&from[..begin]);
    to[end..].copy_from_slice(&from[end..]);
}

#[cfg(not(target_arch = "x86_64"))]
fn copy_past_the_cache(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

/// Up to [`SLOTS`] slots.
type Lane = Vec<Slot>;
const SLOTS: usize = 2;

/// The page-locked memory that one queue uses at a time.
#[derive(Default)]
pub(crate) struct Lanes([Lane; LANES]);

impl Lanes {
    pub(crate) fn slots(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}

/// Work of the host during copies. A call does some of it as the worker with this number, and returns further parts to
/// copy; `None` once nothing is left.
pub(crate) type Beside<'a, 'b> = &'b (dyn Fn(usize) -> Option<Vec<Part<'a>>> + Sync);

/// The parts to send, and the work during copies.
struct Work<'a, 'b> {
    pieces: Vec<Batch<'a>>,
    next: AtomicUsize,
    /// The parts that this work has found so far.
    more: Mutex<Vec<Part<'a>>>,
    beside: Option<Beside<'a, 'b>>,
}

impl<'a> Work<'a, '_> {
    /// Does some of the work during copies; returns false if none is left.
    fn look(&self, worker: usize) -> bool {
        let Some(found) = self.beside.and_then(|beside| beside(worker)) else { return false };
        locked(&self.more).extend(found.into_iter().filter(|part| !part.bytes.is_empty()));
        true
    }

    fn take(&self) -> Option<Batch<'a>> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.pieces.get(next).cloned().or_else(|| taken(&mut locked(&self.more)))
    }

    /// Returns true if anything is left to send.
    fn waits(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.pieces.len() || !locked(&self.more).is_empty()
    }
}

/// Takes parts from the end of the list, as many bytes as fit into a slot.
fn taken<'a>(parts: &mut Vec<Part<'a>>) -> Option<Batch<'a>> {
    let (mut batch, mut room) = (Batch::new(), PIECE);
    while room > 0 {
        let Some(part) = parts.pop() else { break };
        let (bytes, rest) = part.bytes.split_at(room.min(part.bytes.len()));
        if !rest.is_empty() {
            parts.push(Part { to: part.to + bytes.len() as u64, bytes: rest, ..part });
        }
        room -= bytes.len();
        batch.push(Part { bytes, ..part });
    }
    // Parts are found roughly in the order of their destinations. After sorting, most are adjacent and need few copies.
    batch.sort_unstable_by_key(|part| part.to);
    (!batch.is_empty()).then_some(batch)
}

/// Sends pieces until none is left, or until there is no memory for a slot. Does other work while the older of its
/// copies runs, and after the last piece.
fn drain(
    lane: &mut Lane,
    worker: usize,
    context: &Arc<CudaContext>,
    stream: &CudaStream,
    work: &Work<'_, '_>,
) -> std::result::Result<(), DriverError> {
    for turn in 0.. {
        if lane.len() < SLOTS && lane.len() <= turn && work.waits() {
            // If memory cannot be locked, this is no error: fewer slots are enough, and the driver can copy without
            // them.
            lane.extend(Slot::new(context));
        }
        if lane.is_empty() {
            break;
        }
        let at = turn % lane.len();
        while !lane[at].copied.is_complete() && work.look(worker) {}
        let piece = loop {
            match work.take() {
                None if work.look(worker) => {}
                taken => break taken,
            }
        };
        let Some(piece) = piece else { return Ok(()) };
        lane[at].send(stream, &piece, turn < SLOTS)?;
    }
    while work.look(worker) {}
    Ok(())
}

/// A piece on its way to the host: where it lies on the device, and where it goes.
type Arrival<'a> = (sys::CUdeviceptr, &'a mut [MaybeUninit<u8>]);

/// Fetches pieces until none is left. Returns false, and fetches nothing, if there is no memory for a slot.
///
/// # Safety
/// Each piece lies in memory of this queue's context.
unsafe fn receive<'a>(
    lane: &mut Lane,
    context: &Arc<CudaContext>,
    stream: &CudaStream,
    pieces: &Mutex<impl Iterator<Item = Arrival<'a>>>,
) -> std::result::Result<bool, DriverError> {
    let mut coming: [Option<&mut [MaybeUninit<u8>]>; SLOTS] = Default::default();
    for turn in 0.. {
        if lane.len() < SLOTS && lane.len() <= turn {
            // As in `drain`.
            lane.extend(Slot::new(context));
        }
        if lane.is_empty() {
            return Ok(false);
        }
        let at = turn % lane.len();
        if let Some(to) = coming[at].take() {
            lane[at].empty(to)?;
        }
        let next = locked(pieces).next();
        if let Some((from, to)) = next {
            // SAFETY: the caller's promise.
            unsafe { lane[at].request(stream, from, to.len())? };
            coming[at] = Some(to);
        } else if coming.iter().all(Option::is_none) {
            break;
        }
    }
    Ok(true)
}

/// The page-locked memory of one queue. See the module's head.
pub(crate) struct Staging {
    opened: Arc<Opened>,
    /// Empty before the first large copy, unless an earlier queue has left them.
    lanes: Mutex<Lanes>,
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.opened.keep_lanes(std::mem::take(&mut *locked(&self.lanes)));
    }
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").finish_non_exhaustive()
    }
}

/// The staging memory of each queue, by the queue's address.
static KNOWN: Mutex<Vec<(usize, Weak<Staging>)>> = Mutex::new(Vec::new());

fn address(stream: &Arc<CudaStream>) -> usize {
    Arc::as_ptr(stream) as usize
}

/// The parts that are sent from one slot.
type Batch<'a> = Vec<Part<'a>>;

/// The bytes of a piece: at least two pieces per slot if there are enough bytes, so that the host's copies and those of
/// the bus overlap.
fn piece_of(total: usize, lanes: usize) -> usize {
    (total / (4 * lanes)).max(1).next_multiple_of(GRAIN).min(PIECE)
}

/// The bytes of the parts, cut into pieces for `lanes` lanes, in their order; small parts share a piece.
fn pieces<'a>(parts: &[Part<'a>], lanes: usize) -> Vec<Batch<'a>> {
    let piece = piece_of(parts.iter().map(|part| part.bytes.len()).sum(), lanes);
    let (mut pieces, mut open, mut room) = (Vec::new(), Batch::new(), piece);
    for part in parts {
        let (mut to, mut bytes) = (part.to, part.bytes);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            open.push(Part { to, bytes: now, ..*part });
            to += now.len() as u64;
            room -= now.len();
            bytes = later;
            if room == 0 {
                pieces.push(std::mem::take(&mut open));
                room = piece;
            }
        }
    }
    pieces.extend((!open.is_empty()).then_some(open));
    pieces
}

impl Staging {
    /// Makes the staging memory for copies on a queue. The queue finds it as long as the returned value lives.
    pub(crate) fn of(stream: &Arc<CudaStream>, opened: Arc<Opened>) -> Arc<Self> {
        let lanes = Mutex::new(opened.take_lanes());
        let staging = Arc::new(Self { opened, lanes });
        let mut known = locked(&KNOWN);
        known.retain(|(queue, staging)| *queue != address(stream) && staging.strong_count() > 0);
        known.push((address(stream), Arc::downgrade(&staging)));
        staging
    }

    fn known(stream: &Arc<CudaStream>) -> Option<Arc<Self>> {
        let known = locked(&KNOWN).iter().find(|(queue, _)| *queue == address(stream)).map(|(_, own)| own.clone());
        known.and_then(|own| own.upgrade())
    }

    /// Copies device memory to the host in the queue's order, and returns once all of it is there. Returns false, with
    /// nothing copied, if there is no page-locked memory for the queue.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// As many bytes as `to` has lie at `from`, in memory of this queue's context.
    pub(crate) unsafe fn fetch(
        stream: &Arc<CudaStream>,
        from: sys::CUdeviceptr,
        to: &mut [MaybeUninit<u8>],
    ) -> Result<bool> {
        let Some(staging) = Self::known(stream) else { return Ok(false) };
        let most = LANES.min(rayon::current_num_threads());
        let piece = piece_of(to.len(), most);
        let workers = most.min(to.len().div_ceil(piece));
        let pieces = Mutex::new((0..).map(|k| from + k * piece as u64).zip(to.chunks_mut(piece)));
        let mut lanes = locked(&staging.lanes);
        let lanes = lanes.0[..workers].par_iter_mut().with_max_len(1);
        // SAFETY: the pieces are parts of what lies at `from`.
        let received = lanes.map(|lane| unsafe { receive(lane, staging.opened.context(), stream, &pieces) });
        let received: Vec<bool> =
            received.collect::<std::result::Result<_, _>>().map_err(|error| failed("download", error))?;
        // A lane with a slot leaves no piece.
        Ok(received.contains(&true))
    }

    /// Copies host data in the queue's order, all parts as one, and returns once the data has been read. Returns false,
    /// with only a part copied, if there is no page-locked memory for the queue.
    ///
    /// Threads that wait for a copy, and those without a lane, do the work of `beside` in the meantime; parts that it
    /// finds are copied too.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// Each part, found ones included, has room for its bytes in memory of this queue's context, and no other part
    /// overlaps it.
    pub(crate) unsafe fn copy<'a>(
        stream: &Arc<CudaStream>,
        parts: &[Part<'a>],
        beside: Option<Beside<'a, '_>>,
    ) -> Result<bool> {
        let Some(staging) = Self::known(stream) else { return Ok(false) };
        let threads = rayon::current_num_threads();
        let most = LANES.min(threads);
        let mut lanes = locked(&staging.lanes);
        let mut work = Work { pieces: pieces(parts, most), next: AtomicUsize::new(0), more: Mutex::default(), beside };
        loop {
            let workers = if beside.is_some() { threads } else { most.min(work.pieces.len()) };
            let with_lanes = lanes.0.iter_mut().take(most).map(Some).chain(std::iter::repeat_with(|| None));
            let wanted: Vec<_> = with_lanes.take(workers).enumerate().collect();
            let drained = wanted.into_par_iter().with_max_len(1).try_for_each(|(worker, lane)| match lane {
                Some(lane) => drain(lane, worker, staging.opened.context(), stream, &work),
                None => {
                    while work.look(worker) {}
                    Ok(())
                }
            });
            drained.map_err(|error| failed("upload", error))?;
            // Each lane with a slot has worked until the last piece.
            let sent = work.next.load(Ordering::Relaxed);
            assert!(sent == 0 || sent >= work.pieces.len(), "a lane with a slot leaves no piece");
            if sent == 0 && !work.pieces.is_empty() {
                return Ok(false);
            }
            // The parts that were found when no lane was left.
            let left = std::mem::take(&mut *locked(&work.more));
            if left.is_empty() {
                return Ok(true);
            }
            work =
                Work { pieces: pieces(&left, most), next: AtomicUsize::new(0), more: Mutex::default(), beside: None };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_past_the_cache_are_copies() {
        let from: Vec<u8> = (0..300u32).map(|at| (at * 7 + at / 256) as u8).collect();
        for begin in 0..20 {
            for len in [0, 1, 15, 16, 17, 64, 200, 257] {
                let mut to = vec![0xa5; 300];
                copy_past_the_cache(&from[300 - len..], &mut to[begin..begin + len]);
                assert_eq!(to[begin..begin + len], from[300 - len..], "{len} bytes from {begin} on");
                assert!(to[..begin].iter().chain(&to[begin + len..]).all(|&byte| byte == 0xa5), "{len} {begin}");
            }
        }
    }

    #[test]
    fn copies_end_with_their_allocation() {
        let bytes = [0; 8];
        let part = Part { of: 256, to: 504, bytes: &bytes };
        assert!(part.goes_on(&Part { to: 512, ..part }));
        assert!(!part.goes_on(&Part { to: 520, ..part }));
        assert!(!part.goes_on(&Part { of: 512, to: 512, ..part }), "side by side, but of two buffers");
    }

    #[test]
    fn few_bytes_are_one_piece() {
        for len in [0, 1, 4, 31, 32, GRAIN] {
            let host = vec![1; len];
            let pieces = pieces(&[Part { of: 64, to: 64, bytes: &host }], LANES);
            assert_eq!(pieces.iter().flatten().map(|part| part.bytes.len()).sum::<usize>(), len);
            assert_eq!(pieces.len(), usize::from(len > 0), "{len}");
        }
    }

    #[test]
    fn pieces_are_the_parts() {
        let host: Vec<u8> = (0..5 * PIECE + 17).map(|at| (at / 251) as u8).collect();
        let (first, rest) = host.split_at(3 * GRAIN + 5);
        for (parts, lanes) in [(vec![&host[..]], 8), (vec![first, rest], 8), (vec![first, rest, &[]], 1)] {
            let mut to = 1 << 40;
            let parts: Vec<Part<'_>> = parts
                .into_iter()
                .map(|bytes| {
                    to += bytes.len() as u64 + 256;
                    Part { of: 1 << 40, to: to - bytes.len() as u64, bytes }
                })
                .collect();
            let pieces = pieces(&parts, lanes);
            assert!(pieces.iter().all(|batch| batch.iter().map(|part| part.bytes.len()).sum::<usize>() <= PIECE));
            let mut left = pieces.iter().flatten();
            for part in &parts {
                let mut at = 0;
                while at < part.bytes.len() {
                    let piece = left.next().expect("a piece for every byte");
                    assert!(!piece.bytes.is_empty());
                    assert_eq!((piece.to, piece.bytes.as_ptr()), (part.to + at as u64, part.bytes[at..].as_ptr()));
                    at += piece.bytes.len();
                }
                assert_eq!(at, part.bytes.len());
            }
            assert!(left.next().is_none() && pieces.len() >= 2 * lanes.min(4));
        }
    }

    #[test]
    fn what_was_found_fills_slots() {
        let host: Vec<u8> = (0..3 * PIECE).map(|at| (at / 251) as u8).collect();
        let mut to = 1 << 40;
        let lens = [5, PIECE - 5, 7, PIECE, PIECE / 2, 100];
        let mut parts: Vec<Part<'_>> = lens
            .iter()
            .map(|&len| {
                to += 2 * PIECE as u64;
                Part { of: 0, to, bytes: &host[..len] }
            })
            .collect();
        let wanted = parts.clone();
        let (mut sent, mut batches) = (vec![0; lens.len()], 0);
        while let Some(batch) = taken(&mut parts) {
            batches += 1;
            assert!(batch.iter().map(|part| part.bytes.len()).sum::<usize>() <= PIECE);
            for part in batch {
                let of = wanted.iter().rposition(|whole| whole.to <= part.to).expect("a part that was there");
                assert_eq!(part.to, wanted[of].to + sent[of] as u64, "each part from its beginning on");
                assert_eq!(part.bytes.as_ptr(), wanted[of].bytes[sent[of]..].as_ptr());
                sent[of] += part.bytes.len();
            }
        }
        assert_eq!(sent, lens);
        assert_eq!(batches, lens.iter().sum::<usize>().div_ceil(PIECE), "full ones");
    }
}
