//! Mixed precision: vectors of one element type made from those of another, with a scale that the device chooses.
//!
//! A value that is cast to f32 must fit its range, and only the device knows how large a residual is. So
//! [`Cast::binade`] finds a power of two on the device, and the solver divides by it and later multiplies by it with
//! [`Cast::cast`]. Both are exact unless a result leaves the range of its type.

use spandrel_formats::{Csr, Real};

use crate::{Backend, Coeff, Gate, Load, Result};

/// Casts vectors of element type `S` to vectors of element type `T`. Scales are f64 in both directions, because scales
/// of f64 data may not fit f32.
///
/// Every operation enqueues and returns without waiting, may be recorded, and gives the same bits on every backend.
pub trait Cast<S: Real, T: Real>: Backend<f64> + Backend<S> + Backend<T> {
    /// out <- 2^e, where the largest magnitude among the elements of x is at least 2^e and below 2^(e+1).
    ///
    /// e is clamped to the range -1022 to 1022, so that both out and 1/out are normal numbers and x / out is below 4 in
    /// magnitude. out is 1 if x has only zeros, or if an element is infinite or NaN.
    fn binade(
        &self,
        gate: Gate<'_, Self>,
        x: &<Self as Backend<S>>::Vector,
        out: &mut <Self as Backend<f64>>::Scalar,
    ) -> Result<()>;

    /// y <- a x, element by element. x becomes f64 (exact), the product is rounded in f64, and the result is rounded to
    /// the type of y, each time to nearest, ties to even.
    ///
    /// A result beyond the range of f32 becomes infinite; one below its normal numbers becomes subnormal or zero. y is
    /// never read.
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

/// A backend with both element types and the casts between them.
pub trait MixedPrecision: Cast<f64, f32> + Cast<f32, f64> {}
impl<B: Cast<f64, f32> + Cast<f32, f64>> MixedPrecision for B {}

/// Makes an f32 matrix from an f64 matrix on the device, so that the entries do not pass through the host.
pub trait Narrow: MixedPrecision + Load<Csr<f64>> + Load<Csr<f32>> {
    /// Returns 2^-e A with each entry rounded to f32, and e.
    ///
    /// e is the exponent of the largest magnitude in A, clamped to the range -1022 to 1022, so that the largest entry
    /// of the result is at least 1 and below 2. e is 0 if all entries are zero. The result is what [`Load`] would make
    /// of the host's matrix, narrowed in the same way, with the same bits on every backend.
    ///
    /// Returns `None` if this backend cannot do it (the default), or if an entry is infinite or NaN; the caller then
    /// narrows the host's matrix. A stays as it is. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::Device`] while a step is being recorded.
    #[allow(clippy::type_complexity)] // the form and a number
    fn narrow(
        &self,
        a: &<Self as Load<Csr<f64>>>::Resident,
    ) -> Result<Option<(<Self as Load<Csr<f32>>>::Resident, i32)>> {
        let _ = a;
        Ok(None)
    }
}
