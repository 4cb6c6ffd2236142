//! Device memory: buffers of the stream-ordered pool, and wrapped ones.
//!
//! Invariants: a buffer's pointer addresses `len` elements of device memory while the buffer lives. Work that uses it
//! was enqueued on the queue on which it is freed, so a buffer may be dropped while that work still runs.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result, sys};
use spandrel_backend::{Error, Result};

use crate::error::{NAME, failed, refused};
use crate::staging::{LARGE, Part, Staging};

/// Who frees the memory.
enum Owner {
    /// The pool of the queue, in the queue's order.
    Pool,
    /// A guest, which frees the memory when it is dropped, in the order of its own stream.
    Guest(#[allow(dead_code)] Box<dyn Any + Send>, Arc<CudaStream>), // the first is held for its drop alone
    /// Its owner, who made it.
    Elsewhere,
}

/// An address in device memory, in the form that kernels take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Address(sys::CUdeviceptr);

impl Address {
    /// The null address.
    pub(crate) const NULL: Self = Self(0);

    pub(crate) fn new(pointer: sys::CUdeviceptr) -> Self {
        Self(pointer)
    }

    /// In the form that the driver takes.
    pub(crate) fn get(self) -> sys::CUdeviceptr {
        self.0
    }

    /// The address this many bytes further on.
    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// `len` elements in device memory.
pub(crate) struct Buffer<T> {
    pointer: sys::CUdeviceptr,
    len: usize,
    stream: Arc<CudaStream>,
    owner: Owner,
    element: PhantomData<T>,
}

// SAFETY: a buffer is an address that only its (shared or exclusive) owner hands to the driver, whose calls may come
// from any thread: each binds the context first.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above; behind a shared reference, only kernels on one queue change anything.
unsafe impl<T: Sync> Sync for Buffer<T> {}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T: Pod> Buffer<T> {
    /// Allocates memory for `len` elements without initialising it. Stream-ordered; does not block.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the device continues unchanged.
    pub(crate) fn uninit(stream: &Arc<CudaStream>, len: usize, what: &'static str) -> Result<Self> {
        let wanted = (len as u128 * size_of::<T>() as u128).max(1);
        let too_much = || Error::OutOfMemory { device: NAME, what, bytes: u64::try_from(wanted).unwrap_or(u64::MAX) };
        // No driver has addresses beyond 2^47. It would report an invalid value instead of exhausted memory.
        let bytes = usize::try_from(wanted).ok().filter(|&bytes| bytes < 1 << 47).ok_or_else(too_much)?;
        let context = stream.context();
        context.bind_to_thread().map_err(|error| failed(what, error))?;
        // SAFETY: the context is bound, the size is not zero, and only `drop` frees the memory.
        let pointer = unsafe {
            if context.has_async_alloc() {
                result::malloc_async(stream.cu_stream(), bytes)
            } else {
                result::malloc_sync(bytes)
            }
        }
        .map_err(|error| refused(what, bytes as u64, error))?;
        Ok(Self { pointer, len, stream: stream.clone(), owner: Owner::Pool, element: PhantomData })
    }

    /// As [`Buffer::uninit`], every byte 0.
    pub(crate) fn zeros(stream: &Arc<CudaStream>, len: usize, what: &'static str) -> Result<Self> {
        let buffer = Self::uninit(stream, len, what)?;
        buffer.clear_from(0)?;
        Ok(buffer)
    }

    /// A copy of host data. Blocks until the host's data has been read.
    pub(crate) fn from_host(stream: &Arc<CudaStream>, host: &[T], what: &'static str) -> Result<Self> {
        let buffer = Self::uninit(stream, host.len(), what)?;
        buffer.write_at(0, host)?;
        Ok(buffer)
    }

    /// Takes over a slice of cudarc without a copy. Work on another stream must have ended.
    pub(crate) fn wrap(stream: &Arc<CudaStream>, slice: CudaSlice<T>) -> Self
    where
        T: Send,
    {
        let (pointer, len) = (slice.device_ptr(stream).0, slice.len());
        let home = slice.stream().clone();
        let owner = Owner::Guest(Box::new(slice), home);
        Self { pointer, len, stream: stream.clone(), owner, element: PhantomData }
    }

    /// Returns true if the memory belongs to an owner who may free it before this buffer is dropped.
    pub(crate) fn is_borrowed(&self) -> bool {
        matches!(self.owner, Owner::Elsewhere)
    }

    /// # Safety
    /// `pointer` is that of `len` elements of memory of this stream's context, which outlive the buffer and are used by
    /// nobody else meanwhile.
    pub(crate) unsafe fn borrow(stream: &Arc<CudaStream>, pointer: sys::CUdeviceptr, len: usize) -> Self {
        Self { pointer, len, stream: stream.clone(), owner: Owner::Elsewhere, element: PhantomData }
    }

    /// Overwrites elements from `at` on with host data. Returns once the host's data has been read.
    pub(crate) fn write_at(&self, at: usize, host: &[T]) -> Result<()> {
        write_all(&[self.write(at, host)])
    }

    /// The same as a [`Write`] that is still to be done: see [`write_all`].
    pub(crate) fn write<'a>(&'a self, at: usize, host: &'a [T]) -> Write<'a> {
        assert!(at.checked_add(host.len()).is_some_and(|end| end <= self.len), "a write stays inside its buffer");
        Write {
            stream: &self.stream,
            part: Part { of: self.pointer, to: self.address(at).get(), bytes: bytemuck::cast_slice(host) },
        }
    }

    /// Zeros every byte of the elements from `at` on. Stream-ordered; does not block.
    pub(crate) fn clear_from(&self, at: usize) -> Result<()> {
        self.fill_from(at, 0)
    }

    /// Sets every byte of the elements from `at` on. Stream-ordered; does not block.
    pub(crate) fn fill_from(&self, at: usize, byte: u8) -> Result<()> {
        assert!(at <= self.len, "what is cleared lies inside its buffer");
        if at == self.len {
            return Ok(());
        }
        self.bind("clear")?;
        let bytes = (self.len - at) * size_of::<T>();
        // SAFETY: the range lies inside the buffer.
        unsafe { result::memset_d8_async(self.address(at).get(), byte, bytes, self.stream.cu_stream()) }
            .map_err(|error| failed("clear", error))
    }

    /// Overwrites this buffer with one of the same length. Stream-ordered; does not block.
    pub(crate) fn copy_from(&self, from: &Self) -> Result<()> {
        assert_eq!(self.len, from.len, "a copy fills its buffer");
        self.copy_first(from, self.len)
    }

    /// Overwrites the first `len` elements of this buffer with those of another. Stream-ordered; does not block.
    pub(crate) fn copy_first(&self, from: &Self, len: usize) -> Result<()> {
        // New values may already be in place.
        if self.pointer == from.pointer { Ok(()) } else { self.copy_at(0, from, 0..len) }
    }

    /// Overwrites elements from `at` on with those in a range of another buffer. Stream-ordered; does not block.
    pub(crate) fn copy_at(&self, at: usize, from: &Self, range: Range<usize>) -> Result<()> {
        let fits = |at: usize, len: usize| at.checked_add(range.len()).is_some_and(|end| end <= len);
        assert!(fits(at, self.len) && fits(range.start, from.len), "a copy stays inside its buffers");
        if range.is_empty() {
            return Ok(());
        }
        self.bind("copy")?;
        let (to, from) = (self.address(at).get(), from.address(range.start).get());
        // SAFETY: as many elements lie in both buffers, which are of one device and live until the queue has passed the
        // copy.
        unsafe { result::memcpy_dtod_async(to, from, range.len() * size_of::<T>(), self.stream.cu_stream()) }
            .map_err(|error| failed("copy", error))
    }

    /// Copies elements from `at` on to the host. Blocks.
    pub(crate) fn read_at(&self, at: usize, host: &mut [T]) -> Result<()> {
        assert!(at.checked_add(host.len()).is_some_and(|end| end <= self.len), "a read stays inside its buffer");
        if host.is_empty() {
            return self.synchronize("download");
        }
        self.bind("download")?;
        // SAFETY: the source lies inside the buffer, and `host` is borrowed until the queue is idle.
        unsafe { result::memcpy_dtoh_async(host, self.address(at).get(), self.stream.cu_stream()) }
            .map_err(|error| failed("download", error))?;
        self.synchronize("download")
    }

    /// All elements on the host. Blocks.
    pub(crate) fn to_host(&self, what: &'static str) -> Result<Vec<T>>
    where
        T: Send + Sync,
    {
        self.range_to_host(0..self.len, what)
    }

    /// The elements of a range on the host. Blocks.
    pub(crate) fn range_to_host(&self, range: Range<usize>, what: &'static str) -> Result<Vec<T>>
    where
        T: Send + Sync,
    {
        let (mut host, len) = (Vec::new(), range.len());
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        host.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { device: "cpu", what, bytes })?;
        assert!(range.start <= range.end && range.end <= self.len, "a read stays inside its buffer");
        if bytes >= LARGE as u64 {
            let room = &mut host.spare_capacity_mut()[..len];
            // SAFETY: the same memory; bytes that need no value have no alignment and no invariant.
            let room = unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), size_of_val(room)) };
            self.bind("download")?;
            // SAFETY: as many bytes lie there.
            if unsafe { Staging::fetch(&self.stream, self.address(range.start).get(), room)? } {
                // SAFETY: every byte of the elements was written, and `T` is plain data.
                unsafe { host.set_len(len) };
                return Ok(host);
            }
        }
        host.resize(len, T::zeroed());
        self.read_at(range.start, &mut host)?;
        Ok(host)
    }

    fn bind(&self, what: &str) -> Result<()> {
        self.stream.context().bind_to_thread().map_err(|error| failed(what, error))
    }

    fn synchronize(&self, what: &str) -> Result<()> {
        self.stream.synchronize().map_err(|error| failed(what, error))
    }

    /// The address of element `at`, in the form that a kernel takes.
    pub(crate) fn address(&self, at: usize) -> Address {
        self.pointer().offset(at * size_of::<T>())
    }
}

/// Host data on its way to a part of a buffer.
pub(crate) struct Write<'a> {
    stream: &'a Arc<CudaStream>,
    part: Part<'a>,
}

impl<'a> Write<'a> {
    /// This write as a copy on `stream`, which must be the queue of its buffer.
    fn of(&self, stream: &Arc<CudaStream>) -> Part<'a> {
        assert!(Arc::ptr_eq(self.stream, stream), "writes are of one queue");
        self.part
    }
}

/// Performs writes to buffers of one queue, no two of which may overlap. Large writes share the page-locked memory, so
/// none waits for the end of another. Returns once the host's data has been read.
pub(crate) fn write_all(writes: &[Write<'_>]) -> Result<()> {
    let Some((stream, parts)) = parts(writes)? else { return Ok(()) };
    let bytes: usize = parts.iter().map(|part| part.bytes.len()).sum();
    // SAFETY: each destination lies inside a buffer of this queue, and the caller keeps them apart.
    if bytes >= LARGE && unsafe { Staging::copy(stream, &parts, None)? } {
        return Ok(());
    }
    for Part { to, bytes, .. } in parts {
        // SAFETY: as above. The driver has read pageable memory when the call returns (CUDA Driver API, "API
        // synchronization behavior"), so the host's data may go.
        unsafe { result::memcpy_htod_async(to, bytes, stream.cu_stream()) }.map_err(|error| failed("upload", error))?;
    }
    Ok(())
}

/// As [`write_all`], for at least one write. Meanwhile threads do other work, which may find more to write to buffers
/// of the same queue.
///
/// Each call of `beside` does some of this work and returns `None` when nothing is left. Its argument is below the
/// number of rayon's threads, and no two simultaneous calls have the same one. Returns false if not everything could be
/// written; the caller may try again in any way.
pub(crate) fn write_beside<'a, const N: usize>(
    writes: &[Write<'a>],
    beside: &(dyn Fn(usize) -> Option<[Write<'a>; N]> + Sync),
) -> Result<bool> {
    let Some((stream, parts)) = parts(writes)? else { return Ok(false) };
    let more = |worker: usize| beside(worker).map(|writes| writes.map(|write| write.of(stream)).to_vec());
    // SAFETY: each destination lies inside a buffer of this queue, and the caller keeps them apart.
    unsafe { Staging::copy(stream, &parts, Some(&more)) }
}

/// The queue of some writes, and those that are not empty.
fn parts<'a>(writes: &[Write<'a>]) -> Result<Option<(&'a Arc<CudaStream>, Vec<Part<'a>>)>> {
    let Some(Write { stream, .. }) = writes.first() else { return Ok(None) };
    let parts = writes.iter().map(|write| write.of(stream)).filter(|part| !part.bytes.is_empty()).collect();
    stream.context().bind_to_thread().map_err(|error| failed("upload", error))?;
    Ok(Some((stream, parts)))
}

impl<T> Buffer<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The address of the first element, in the form that a kernel takes.
    pub(crate) fn pointer(&self) -> Address {
        Address(self.pointer)
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if let Owner::Guest(_, home) = &self.owner {
            // The guest is freed in the order of its own stream, which must first wait for the work queued here.
            self.stream.context().record_err(home.join(&self.stream));
        }
        if let Owner::Pool = self.owner {
            let context = self.stream.context();
            let freed = context.bind_to_thread().and_then(|()| {
                // SAFETY: the memory came from the matching allocation on this stream and is freed once.
                unsafe {
                    if context.has_async_alloc() {
                        result::free_async(self.pointer, self.stream.cu_stream())
                    } else {
                        result::free_sync(self.pointer)
                    }
                }
            });
            // The error appears at the next `synchronize`, because a drop cannot return it.
            context.record_err(freed);
        }
    }
}
