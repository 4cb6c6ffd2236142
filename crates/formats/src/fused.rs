//! Functions that are also compiled for processors with FMA.

/// Defines functions that are also compiled for processors with AVX2 and FMA, on which sums by `mul_add` are many times
/// as fast. The bits are the same: without the instruction, `mul_add` is a correct (slow) library routine. A second
/// type parameter follows a semicolon.
macro_rules! fused {
    ($(
        $(#[$meta:meta])*
        $(pub($($vis:tt)*))? fn $name:ident<$T:ident: Real $(; $B:ident: $bound:path)? $(, const $C:ident: $CT:ty)*>(
            $($arg:ident: $ty:ty),* $(,)?
        ) $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        $(pub($($vis)*))? fn $name<$T: Real $(, $B: $bound)? $(, const $C: $CT)*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$T: Real $(, $B: $bound)? $(, const $C: $CT)*>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                #[target_feature(enable = "avx2,fma")]
                fn with_fma<$T: Real $(, $B: $bound)? $(, const $C: $CT)*>($($arg: $ty),*) $(-> $ret)? {
                    body::<$T $(, $B)? $(, $C)*>($($arg),*)
                }
                // SAFETY: the processor has both features.
                return unsafe { with_fma::<$T $(, $B)? $(, $C)*>($($arg),*) };
            }
            body::<$T $(, $B)? $(, $C)*>($($arg),*)
        }
    )*};
}
pub(crate) use fused;
