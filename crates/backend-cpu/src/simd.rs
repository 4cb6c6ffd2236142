//! Run-time choice of vector instructions: one body, compiled for AVX-512, for AVX2 with FMA, and for the build's
//! target.
//!
//! A binary built without `-C target-cpu` runs the widest level of the processor. Bodies say `mul_add` wherever the
//! specification says `fma`. With FMA that is one instruction; without it, it is the correct (slow) library routine. So
//! every level gives the same bits.

use spandrel_formats::Real;

/// A set of vector instructions. The processor may lack it; [`crate::Cpu::with_simd`] then reduces it to what the
/// processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Simd {
    /// The instructions of the build's target. Always available.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
}

impl Simd {
    /// The widest level of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("fma")
            {
                return Simd::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Simd::Avx2;
            }
        }
        Simd::Portable
    }

    /// The levels that this processor supports, narrowest first.
    pub fn available() -> impl Iterator<Item = Simd> {
        let widest = Self::detect();
        [Simd::Portable, Simd::Avx2, Simd::Avx512].into_iter().filter(move |&level| level <= widest)
    }

    /// The level's name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Simd::Portable => "portable",
            Simd::Avx2 => "avx2+fma",
            Simd::Avx512 => "avx512",
        }
    }
}

/// fma(a, b, c) with one rounding.
#[inline(always)]
pub(crate) fn fma<T: Real>(a: T, b: T, c: T) -> T {
    a.mul_add(b, c)
}

/// Prefetches the cache line of `slice[at]`. `at` may lie beyond the end: this is a hint and never faults.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], at: usize) {
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

/// Defines functions whose body is compiled once per [`Simd`] level. The first argument selects the level; it comes
/// from a [`crate::Cpu`], so the processor has it. The functions are private or `pub(crate)`, so no other crate can
/// pass another level.
macro_rules! simd_fn {
    ($(
        $(#[$meta:meta])*
        $(pub($crate_:ident))? fn $name:ident<$T:ident $(, const $C:ident: $CT:ty)*>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        $(pub($crate_))? fn $name<$T: ::spandrel_formats::Real $(, const $C: $CT)*>(simd: $crate::simd::Simd, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$T: ::spandrel_formats::Real $(, const $C: $CT)*>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$T: ::spandrel_formats::Real $(, const $C: $CT)*>($($arg: $ty),*) $(-> $ret)? {
                body::<$T $(, $C)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$T: ::spandrel_formats::Real $(, const $C: $CT)*>($($arg: $ty),*) $(-> $ret)? {
                body::<$T $(, $C)*>($($arg),*)
            }

            match simd {
                // SAFETY: the level is that of a `Cpu`. The macro makes these functions crate-private, and every call
                // passes `Cpu::simd`. `Cpu` holds no level wider than `Simd::detect` found, because `with_simd` reduces
                // it.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Simd::Avx512 => unsafe { avx512::<$T $(, $C)*>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Simd::Avx2 => unsafe { avx2::<$T $(, $C)*>($($arg),*) },
                _ => body::<$T $(, $C)*>($($arg),*),
            }
        }
    )*};
}
pub(crate) use simd_fn;
