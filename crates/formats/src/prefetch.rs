//! A hint to load memory that is read soon.

/// Prefetches the cache line of `slice[at]`, which may lie at the end or beyond: this is a hint and never faults.
#[inline(always)]
pub(crate) fn prefetch<E>(slice: &[E], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is allowed, and the pointer is computed without claiming that it lies
        // inside.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}
