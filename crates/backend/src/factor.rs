//! Incomplete factorisation on a device: the numeric phase, its checks, and the complete set-up from a resident matrix.

use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{Factor, Pattern};

use crate::error::expect_len;
use crate::{Backend, Load, Preconditioner, Result};

/// The numeric phase of an incomplete factorisation, from values on the device to values on the device. Only its
/// outcome passes through the host.
///
/// [`Load`] takes the result of the symbolic phase, once per pattern; new values do not need a new one. The state of
/// the kernels (tickets, marks, run counters) belongs to the resident, and the kernels advance it themselves.
///
/// The order of summation is that of [`spandrel_sptrsv::factor`]. So the factors have the bits of [`Factor::numeric`]
/// on every backend, and an error names the first row at which the host would have stopped.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not compute the factorisation `{F}`",
    note = "in generic code bound the device by `Factorize<{F}>`, or by `EveryFactor<T>` for those of the registry"
)]
pub trait Factorize<F: Factor>: Load<F> + Backend<F::Value> {
    /// Computes the values of L and U from those of A, each in the order of its stored entries. `upper` has no elements
    /// if the other factor is L^T.
    ///
    /// Returns alpha if A + alpha diag(A) was factored instead of A, otherwise 0; shifts are tried as in
    /// [`Factor::numeric`]. Blocks once per attempt; must not be recorded. The bits are the same on every backend.
    ///
    /// # Errors
    /// - [`crate::Error::Shape`] unless each vector has as many elements as its pattern has entries; `lower` and
    ///   `upper` are then unchanged.
    /// - [`crate::Error::Triangle`] where [`Factor::numeric`] would break down; `lower` and `upper` then hold nothing
    ///   useful.
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Self::Vector,
        lower: &mut Self::Vector,
        upper: &mut Self::Vector,
    ) -> Result<f64>;
}

/// Sets up a preconditioner of incomplete factors completely from a matrix on the device.
pub trait Assemble<F: Factor>: Factorize<F> + Load<Csr<F::Value>> {
    /// Makes the patterns, the factors and the plans of their solves on the device, with the parameters of
    /// [`Factor::symbolic`].
    ///
    /// Returns `None` if this backend cannot do it, at all (the default) or for this matrix; the caller then takes the
    /// host's symbolic phase. The matrix is not needed afterwards. Factors and solves have the bits of the host's
    /// factors with [`spandrel_sptrsv::Sweep`]. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] where [`Factor::symbolic`] or [`Factor::numeric`] would stop;
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::Device`] while a step is being recorded.
    fn assemble(
        &self,
        a: &<Self as Load<Csr<F::Value>>>::Resident,
    ) -> Result<Option<Box<dyn Assembled<F::Value, Self>>>> {
        let _ = a;
        Ok(None)
    }
}

/// What [`Assemble::assemble`] returns: z <- U^-1 (L^-1 r), or L^-T (L^-1 r), with the factors only on the device.
pub trait Assembled<T: Real, B: Backend<T>>: Preconditioner<T, B> + Send + Sync {
    /// Factors new values on the old pattern, given in stored order. Addresses stay the same, so recorded steps see the
    /// new factors. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless there are as many values as entries; otherwise as [`Factorize::factorize`]. After
    /// an error of the factorisation the preconditioner is unchanged.
    fn update(&mut self, be: &B, values: &B::Vector) -> Result<()>;
    /// Values of L and of U in the order of their stored entries. U has none if the other factor is L^T.
    fn made(&self) -> [&B::Vector; 2];
    /// The plan of the solves: [`spandrel_sptrsv::Plan::NAME`].
    fn plan(&self) -> &'static str;
    /// Number of entries of the factors.
    fn nnz(&self) -> usize;
    /// alpha if A + alpha diag(A) was factored instead of A, otherwise 0.
    fn shift(&self) -> f64;
    /// Returns true if both solves have the bits of [`spandrel_sptrsv::serial`].
    fn is_stored_order(&self) -> bool;
}

/// Checks the lengths of the operands of [`Factorize::factorize`]: the values of A, of L and of U.
///
/// # Errors
/// [`crate::Error::Shape`].
pub fn expect_factors<F: Factor>(factor: &F, found: [usize; 3]) -> Result<()> {
    expect_entries([factor.nnz_given(), factor.lower().nnz(), factor.upper().map_or(0, Pattern::nnz)], found)
}

/// Checks the same if only the numbers of entries of A, L and U are known.
///
/// # Errors
/// [`crate::Error::Shape`].
pub fn expect_entries(entries: [usize; 3], found: [usize; 3]) -> Result<()> {
    let of_each = ["values", "lower", "upper"].into_iter().zip(found).zip(entries);
    of_each.into_iter().try_for_each(|((what, found), entries)| expect_len("factorize", what, found, entries))
}
