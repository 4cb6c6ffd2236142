//! Vectors of one element type made from those of another, with a scale that a device chooses for itself: mixed precision.
//!
//! What is cast to f32 must fit its range, and how large a residual is only the device knows. So [`Cast::binade`] finds a power of two
//! there, and [`Cast::cast`] divides by it and multiplies with it again: both exact, save where a result leaves the range of its type.

use spandrel_formats::Real;

use crate::{Backend, Coeff, Gate, Result};

/// Vectors of element type `T` from those of `S`. Scales are f64 in either direction, since those of f64 data do not fit f32.
///
/// Every operation enqueues and returns without waiting, may be recorded, and gives the same bits on every backend.
pub trait Cast<S: Real, T: Real>: Backend<f64> + Backend<S> + Backend<T> {
    /// out <- 2^e for the largest magnitude of x's elements in 2^e up to 2^(e+1), with e held to -1022 up to 1022, so that both out and
    /// 1/out are normal numbers: x / out is below 4 in magnitude. 1 where x has no element but zeros, or one that is infinite or NaN.
    fn binade(
        &self,
        gate: Gate<'_, Self>,
        x: &<Self as Backend<S>>::Vector,
        out: &mut <Self as Backend<f64>>::Scalar,
    ) -> Result<()>;

    /// y <- a x, element by element: x to f64 (exact), the product rounded in f64, then to the type of y, each time to nearest and ties to
    /// even. Beyond the range of f32 it is infinite, below its normal numbers a subnormal or zero. y is never read.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the lengths agree.
    fn cast(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, f64, <Self as Backend<f64>>::Scalar>,
        x: &<Self as Backend<S>>::Vector,
        y: &mut <Self as Backend<T>>::Vector,
    ) -> Result<()>;
}

/// Both element types and the casts between them.
pub trait MixedPrecision: Cast<f64, f32> + Cast<f32, f64> {}
impl<B: Cast<f64, f32> + Cast<f32, f64>> MixedPrecision for B {}
