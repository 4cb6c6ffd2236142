//! Threads: running tasks on the caller and a rayon pool, scratch memory, and shared pointers to disjoint parts.
//!
//! Order: which thread runs a task never affects a result. Every element is written by one task, and sums use
//! [`crate::dot`]'s tree. Work below [`SERIAL_BYTES`] stays on the caller, because waking a worker costs some
//! microseconds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::Result;
use spandrel_formats::{Real, Team};

use crate::vector::out_of_memory;

/// Operations that move fewer bytes than this run only on the calling thread. Waking a sleeping worker takes 5 to 20
/// microseconds and varies from call to call; one core moves this much from its caches in about 30.
pub(crate) const SERIAL_BYTES: usize = 1024 * 1024;
/// Tasks per thread, so that other threads take over the tasks of one that is held up.
pub(crate) const TASKS_PER_THREAD: usize = 4;

/// The threads of one device.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    /// `None` means rayon's global pool.
    pool: Option<Arc<rayon::ThreadPool>>,
    count: usize,
}

impl Threads {
    /// The workers of the global pool.
    pub(crate) fn global() -> Self {
        Self { pool: None, count: rayon::current_num_threads() }
    }

    /// `count` threads: the caller and a pool of `count - 1`.
    pub(crate) fn new(count: usize) -> std::result::Result<Self, rayon::ThreadPoolBuildError> {
        let count = count.max(1);
        let pool = match count {
            1 => None,
            _ => Some(Arc::new(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(count - 1)
                    .thread_name(|i| format!("spandrel-{}", i + 1))
                    .build()?,
            )),
        };
        Ok(Self { pool, count })
    }

    /// Number of threads that work, including the caller.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Number of tasks into which an operation that moves `bytes` is split.
    pub(crate) fn tasks(&self, bytes: usize) -> usize {
        if self.count == 1 || bytes < SERIAL_BYTES {
            1
        } else {
            (self.count * TASKS_PER_THREAD).min(bytes / (SERIAL_BYTES / 4))
        }
    }

    /// Runs `work(0..tasks)`, each task once. The caller takes part.
    pub(crate) fn run(&self, tasks: usize, work: impl Fn(usize) + Sync) {
        if tasks <= 1 || self.count == 1 {
            (0..tasks).for_each(work);
            return;
        }
        let next = AtomicUsize::new(0);
        let draw = || {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                work(task);
            }
        };
        self.scope(self.count.min(tasks) - 1, &draw);
    }

    fn scope(&self, others: usize, draw: &(impl Fn() + Sync)) {
        match &self.pool {
            Some(pool) => pool.in_place_scope(|scope| {
                (0..others).for_each(|_| scope.spawn(|_| draw()));
                draw();
            }),
            None => rayon::in_place_scope(|scope| {
                (0..others).for_each(|_| scope.spawn(|_| draw()));
                draw();
            }),
        }
    }
}

/// The tasks of a host operation run here.
impl Team for Threads {
    fn threads(&self) -> usize {
        self.count
    }

    fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        self.run(tasks, work);
    }
}

/// Buffers that outlive an operation, so that a step allocates only the first time.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    free: Mutex<Vec<Vec<u64>>>,
}

impl Scratch {
    /// Calls `work` with `len` elements of unspecified value.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::OutOfMemory`].
    pub(crate) fn with<T: Real, R>(&self, len: usize, work: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        let words = len.saturating_mul(T::BYTES).div_ceil(8);
        let mut buffer = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        if buffer.len() < words {
            buffer.try_reserve_exact(words - buffer.len()).map_err(|_| out_of_memory::<T>(len, "scratch"))?;
            buffer.resize(words, 0);
        }
        let out = work(&mut bytemuck::cast_slice_mut::<u64, T>(&mut buffer)[..len]);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        Ok(out)
    }
}

/// A mutable slice whose disjoint parts are handed to different tasks.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    start: *mut T,
    len: usize,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}
// SAFETY: access goes through `part` and `at`, whose callers promise disjointness.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len() }
    }

    /// The elements `range` of the slice. The bounds are asserted: once per task or chunk this costs nothing, and it
    /// stops a wrong size that slipped past an operation's check.
    ///
    /// # Safety
    /// The slice is still borrowed by the caller's caller; `range` lies inside it; nothing else touches these elements
    /// while the part is alive.
    #[inline(always)]
    pub(crate) unsafe fn part<'a>(self, range: std::ops::Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }

    /// The value of the element at `i`, which several tasks may read at the same time.
    ///
    /// # Safety
    /// The slice is still borrowed by the caller's caller; `i` lies inside it; nothing writes the element meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn read(self, i: usize) -> T {
        debug_assert!(i < self.len);
        // SAFETY: the caller's promise.
        unsafe { self.start.add(i).read() }
    }

    /// The element at `i`, as a place.
    ///
    /// # Safety
    /// As [`Shared::part`] with `i..i + 1`.
    #[inline(always)]
    pub(crate) unsafe fn at<'a>(self, i: usize) -> &'a mut T {
        debug_assert!(i < self.len);
        // SAFETY: the caller's promise.
        unsafe { &mut *self.start.add(i) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_backend::Error;

    #[test]
    fn scratch_that_cannot_be_had_is_an_error() {
        for len in [usize::MAX / 16, usize::MAX] {
            let refused = Scratch::default().with(len, |_: &mut [f64]| ());
            assert!(matches!(refused, Err(Error::OutOfMemory { device: "cpu", what: "scratch", .. })), "{refused:?}");
        }
    }

    #[test]
    #[should_panic(expected = "0..4 of 3 elements")]
    fn a_part_beyond_the_slice_is_refused_in_every_build() {
        let mut three = [0.0; 3];
        // SAFETY: `part` asserts before it forms the slice, and nothing else refers to the elements.
        let _ = unsafe { Shared::new(&mut three).part(0..4) };
    }
}
