//! The element types: `f32` and `f64`.

use rayon::prelude::*;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// An element type of matrices and vectors. Sealed: `f32` and `f64`.
pub trait Real:
    sealed::Sealed
    + num_traits::Float
    + num_traits::NumAssign
    + bytemuck::Pod
    + Default
    + std::fmt::Debug
    + std::fmt::Display
    + std::fmt::LowerExp
    + std::iter::Sum
    + Send
    + Sync
    + 'static
{
    /// `"f32"` or `"f64"`, as in the names of kernels, trials and benches.
    const NAME: &'static str;
    /// Bytes of one element.
    const BYTES: usize;
    /// Unit roundoff u (Higham 2002, section 2.1): 2^-24 or 2^-53.
    const UNIT_ROUNDOFF: f64;
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// This value as `f64` (exact).
    fn as_f64(self) -> f64;
}

impl Real for f32 {
    const NAME: &'static str = "f32";
    const BYTES: usize = 4;
    const UNIT_ROUNDOFF: f64 = 1.0 / (1u64 << 24) as f64;
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const NAME: &'static str = "f64";
    const BYTES: usize = 8;
    const UNIT_ROUNDOFF: f64 = 1.0 / (1u64 << 53) as f64;
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn as_f64(self) -> f64 {
        self
    }
}

/// The place of the first number that is infinite or NaN. In parallel if there are many.
///
/// ```
/// assert_eq!(spandrel_formats::first_not_finite(&[1.0, f64::INFINITY, f64::NAN]), Some(1));
/// assert_eq!(spandrel_formats::first_not_finite(&[1.0f32]), None);
/// ```
pub fn first_not_finite<T: Real>(values: &[T]) -> Option<usize> {
    /// Numbers that one thread looks at in less time than another takes to wake up.
    const FEW: usize = 1 << 14;
    values.par_chunks(FEW).enumerate().find_map_first(|(chunk, values)| {
        // The loop has no early exit, so that it compiles to vector instructions.
        let is_finite = values.iter().fold(true, |finite, v| finite & v.is_finite());
        let at = || values.iter().position(|v| !v.is_finite()).map(|at| chunk * FEW + at);
        if is_finite { None } else { at() }
    })
}
