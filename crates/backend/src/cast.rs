//! Vectors of one element type made from those of another, with a scale that a device chooses for itself: mixed precision.
//!
//! What is cast to f32 must fit its range, and how large a residual is only the device knows. So [`Cast::binade`] finds a power of two
//! there, and [`Cast::cast`] divides by it and multiplies with it again: both exact, save where a result leaves the range of its type.

use spandrel_formats::{Csr, Real};

use crate::{Backend, Coeff, Gate, Load, Result};

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

/// A matrix in f32 made of one in f64 that lies on the device, so that neither its entries nor their rounding pass through the host.
pub trait Narrow: MixedPrecision + Load<Csr<f64>> + Load<Csr<f32>> {
    /// 2^-e A, each entry rounded to f32, and e: the exponent of A's largest magnitude held to -1022 up to 1022, so that the largest
    /// entry is in 1 up to 2; 0 where all entries are zeros. What comes is what [`Load`] would make of the host's matrix narrowed so.
    /// `None`, as the default gives, where this backend has no such way and where an entry is infinite or NaN: then the host's matrix is
    /// what to narrow. A stays. Blocks; allocates; may not be recorded. Same bits everywhere.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::Device`] while a step is recorded.
    #[allow(clippy::type_complexity)] // the form and a number
    fn narrow(
        &self,
        a: &<Self as Load<Csr<f64>>>::Resident,
    ) -> Result<Option<(<Self as Load<Csr<f32>>>::Resident, i32)>> {
        let _ = a;
        Ok(None)
    }
}
