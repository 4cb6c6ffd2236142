//! Copies of large arrays from pageable host memory: through page-locked memory, one half of it filled by several threads while the copy of
//! the other is under way.
//!
//! Invariants: a half is written only after the copy from it that was enqueued last has ended; the memory is freed after all of them. It
//! belongs to a device's handle, and a queue finds it for as long as that lives.
//! Cost: [`HALF`] bytes of page-locked memory twice, from the first large copy of a handle on. The driver's own way through pageable memory
//! is one thread's: 5 to 12 GB/s, where the bus moves 25 to 55.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};
use rayon::prelude::*;
use spandrel_backend::Result;

use crate::error::failed;

/// Bytes of a half: its copy takes longer than to share it out among threads.
const HALF: usize = 16 << 20;
/// Bytes that a thread copies at once.
const PIECE: usize = 1 << 20;
/// Bytes from which a copy is made this way.
pub(crate) const LARGE: usize = 8 << 20;

/// A half of the page-locked memory, and the end of the copy from it.
struct Half {
    pointer: *mut u8,
    copied: CudaEvent,
}

// SAFETY: the memory is the half's own; its address and the event may be used from any thread, by one at a time.
unsafe impl Send for Half {}

impl Half {
    fn new(context: &Arc<CudaContext>) -> std::result::Result<Self, DriverError> {
        let copied = context.new_event(None)?;
        // SAFETY: the context was bound by the event's constructor; the memory is freed by `drop` alone.
        let pointer = unsafe { result::malloc_host(HALF, 0) }?.cast::<u8>();
        // SAFETY: HALF bytes lie there. They are bytes of a value from here on.
        unsafe { pointer.write_bytes(0, HALF) };
        Ok(Self { pointer, copied })
    }

    /// Fills it with `part`, which is no longer than it is, and enqueues the copy to `to`.
    fn send(&mut self, stream: &CudaStream, to: sys::CUdeviceptr, part: &[u8]) -> std::result::Result<(), DriverError> {
        assert!(part.len() <= HALF, "a part fits its half");
        // An event that was never recorded has ended.
        self.copied.synchronize()?;
        // SAFETY: HALF bytes from there on are this half's and have values, and nobody else reads them, as the copy before has ended.
        let room = unsafe { std::slice::from_raw_parts_mut(self.pointer, part.len()) };
        room.par_chunks_mut(PIECE).zip(part.par_chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
        // SAFETY: the destination is the caller's word; the half stays as it is until the event has passed.
        unsafe { result::memcpy_htod_async(to, &*room, stream.cu_stream())? };
        self.copied.record(stream)
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let context = self.copied.context();
        let freed = context.bind_to_thread().and_then(|()| self.copied.synchronize()).and_then(|()| {
            // SAFETY: from malloc_host of this context, freed once, and no copy from it is under way.
            unsafe { result::free_host(self.pointer.cast()) }
        });
        context.record_err(freed);
    }
}

/// The page-locked memory of one queue. See the module's head.
pub(crate) struct Staging {
    context: Arc<CudaContext>,
    /// Nothing before the first large copy.
    halves: Mutex<Option<[Half; 2]>>,
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging").finish_non_exhaustive()
    }
}

/// That of each queue, by the queue's address.
static KNOWN: Mutex<Vec<(usize, Weak<Staging>)>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(stream: &Arc<CudaStream>) -> usize {
    Arc::as_ptr(stream) as usize
}

impl Staging {
    /// For copies on a queue, which find it while it lives.
    pub(crate) fn of(stream: &Arc<CudaStream>) -> Arc<Self> {
        let staging = Arc::new(Self { context: stream.context().clone(), halves: Mutex::new(None) });
        let mut known = locked(&KNOWN);
        known.retain(|(queue, staging)| *queue != address(stream) && staging.strong_count() > 0);
        known.push((address(stream), Arc::downgrade(&staging)));
        staging
    }

    /// Copies large host data to `to`, in the queue's order, and returns once the data has been read; false, and nothing done, where there
    /// is no page-locked memory for the queue.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// As many bytes as `host` has lie from `to` on in memory of this queue's context.
    pub(crate) unsafe fn copy(stream: &Arc<CudaStream>, to: sys::CUdeviceptr, host: &[u8]) -> Result<bool> {
        let known = locked(&KNOWN).iter().find(|(queue, _)| *queue == address(stream)).map(|(_, own)| own.clone());
        let Some(staging) = known.and_then(|own| own.upgrade()) else { return Ok(false) };
        let mut halves = locked(&staging.halves);
        let halves = match &mut *halves {
            Some(halves) => halves,
            none => {
                // Memory that cannot be locked is no error: the driver has a way without.
                let made = Half::new(&staging.context).and_then(|one| Ok([one, Half::new(&staging.context)?]));
                let Ok(made) = made else { return Ok(false) };
                none.insert(made)
            }
        };
        for (at, part) in host.chunks(HALF).enumerate() {
            let to = to + (at * HALF) as u64;
            halves[at % 2].send(stream, to, part).map_err(|error| failed("upload", error))?;
        }
        Ok(true)
    }
}
