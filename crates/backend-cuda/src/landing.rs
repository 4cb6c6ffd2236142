//! Page-locked host memory for small transfers from the device. One wait is enough for several transfers.
//!
//! Layout: 16 bytes for the state of a gate, then the parts one after the other. The memory grows and never shrinks.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, result};
use spandrel_backend::{Error, Result};

use crate::error::{NAME, failed, refused};
use crate::memory::Address;

const WHAT: &str = "page-locked memory for results";
/// The bytes before the parts.
const HEAD: usize = 16;
/// The smallest allocation.
const LEAST: usize = 64 << 10;

/// The memory of one device.
#[derive(Default)]
pub(crate) struct Landing(Option<Pinned>);

/// `bytes` bytes of page-locked memory, all of them with values.
struct Pinned {
    pointer: *mut u8,
    bytes: usize,
    context: Arc<CudaContext>,
}

// SAFETY: only this value owns the memory, and its address may be used from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self> {
        context.bind_to_thread().map_err(|error| failed(WHAT, error))?;
        // SAFETY: the context is bound; the memory is freed only by `drop`.
        let pointer =
            unsafe { result::malloc_host(bytes, 0) }.map_err(|error| refused(WHAT, bytes as u64, error))?.cast::<u8>();
        // SAFETY: `bytes` bytes lie there. They are bytes of a value from here on.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(Self { pointer, bytes, context: context.clone() })
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` bytes from there on are this value's and have values. No copy to them is under way, because
        // `Landing` waits for every copy that it enqueues.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let freed = self.context.bind_to_thread().and_then(|()| {
            // SAFETY: from `malloc_host` of this context, freed once; no copy to it is under way.
            unsafe { result::free_host(self.pointer.cast()) }
        });
        self.context.record_err(freed);
    }
}

impl Landing {
    /// The memory, with at least this many bytes. Binds the context.
    fn with_room(&mut self, stream: &Arc<CudaStream>, bytes: usize) -> Result<&mut Pinned> {
        // Free a buffer that is too small before allocating a larger one.
        let pinned = match self.0.take().filter(|pinned| pinned.bytes >= bytes) {
            Some(pinned) => pinned,
            None => Pinned::new(stream.context(), bytes.next_power_of_two().max(LEAST))?,
        };
        stream.context().bind_to_thread().map_err(|error| failed("download", error))?;
        Ok(self.0.insert(pinned))
    }

    /// Copies a value from an address, enqueues `more` behind the copy, and waits for the copy but not for what is
    /// behind it. So the device works while the host looks.
    ///
    /// # Errors
    /// Those of `more`, of the driver and of the work before; [`Error::OutOfMemory`] for page-locked memory.
    ///
    /// # Safety
    /// A value of this type lies at the address, in memory of this queue's device.
    pub(crate) unsafe fn fetch_ahead<V: bytemuck::AnyBitPattern>(
        &mut self,
        stream: &Arc<CudaStream>,
        from: Address,
        more: impl FnOnce() -> Result<()>,
    ) -> Result<V> {
        let bytes = size_of::<V>();
        let pinned = self.with_room(stream, bytes)?;
        let room = &mut pinned.as_mut_slice()[..bytes];
        // SAFETY: the source is the caller's promise, and `room` is borrowed until the wait below.
        let copied = unsafe { result::memcpy_dtoh_async(room, from.get(), stream.cu_stream()) };
        let event = copied.and_then(|()| stream.record_event(None));
        let enqueued = more();
        // Wait even after an error, because the copy may still run.
        let waited = event.and_then(|event| event.synchronize()).or_else(|error| stream.synchronize().and(Err(error)));
        waited.map_err(|error| failed("download", error))?;
        enqueued?;
        Ok(bytemuck::pod_read_unaligned(&pinned.as_mut_slice()[..bytes]))
    }

    /// Copies `bytes` bytes from each address and waits for all enqueued work. Returns the copies in order, aligned to
    /// 16 bytes, or `None` if the gate is closed. `gate` is the address of a monitor, or null.
    ///
    /// # Errors
    /// Those of the driver and of the work before; [`Error::OutOfMemory`] for page-locked memory.
    ///
    /// # Safety
    /// `bytes` bytes of memory of this queue's device lie at every address, and a monitor of that device at `gate`
    /// unless it is null.
    pub(crate) unsafe fn fetch(
        &mut self,
        stream: &Arc<CudaStream>,
        gate: Address,
        from: &[Address],
        bytes: usize,
    ) -> Result<Option<&mut [u8]>> {
        let parts = bytes.checked_mul(from.len()).filter(|parts| *parts < isize::MAX as usize / 2);
        let parts = parts.ok_or(Error::OutOfMemory { device: NAME, what: WHAT, bytes: u64::MAX })?;
        let pinned = self.with_room(stream, HEAD + parts)?;
        let (head, room) = pinned.as_mut_slice().split_at_mut(HEAD);
        let (stop, _) = head.split_at_mut(size_of::<u32>());
        stop.fill(0);
        let mut copied = || {
            if gate != Address::NULL {
                // SAFETY: the first word of a monitor's state is on this device, and `stop` is borrowed until the wait
                // below.
                unsafe { result::memcpy_dtoh_async(stop, gate.get(), stream.cu_stream()) }?;
            }
            if bytes > 0 {
                for (part, from) in room.chunks_exact_mut(bytes).zip(from) {
                    // SAFETY: the source is the caller's promise, and `part` is borrowed until the wait below.
                    unsafe { result::memcpy_dtoh_async(part, from.get(), stream.cu_stream()) }?;
                }
            }
            Ok(())
        };
        let copied = copied();
        // Wait even after an error, because some copies may still run.
        let waited = stream.synchronize();
        copied.and(waited).map_err(|error| failed("download", error))?;
        let (head, room) = pinned.as_mut_slice().split_at_mut(HEAD);
        let is_open = head[..size_of::<u32>()].iter().all(|&byte| byte == 0);
        Ok(is_open.then_some(&mut room[..parts]))
    }
}
