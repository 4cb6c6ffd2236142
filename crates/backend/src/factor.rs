//! Incomplete factorisation on a device: the operation, its sizes, and what is made whole of a matrix that lies there.

use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{Factor, Pattern};

use crate::error::expect_len;
use crate::{Backend, Load, Preconditioner, Result};

/// The numeric phase of an incomplete factorisation from values that are on the device, to values there: nothing but what it found goes
/// through the host.
///
/// What is loaded is the symbolic phase's result, once a pattern; new values need no new one. The state of the kernels (tickets, marks,
/// numbers of runs) belongs to the resident and is advanced by the kernels themselves.
///
/// Order: that of [`spandrel_sptrsv::factor`], so the factors have the bits of [`Factor::numeric`] on every backend, and so have the
/// errors: the row is the first that the host would have stopped at.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not compute the factorisation `{F}`",
    note = "in generic code bound the device by `Factorize<{F}>`, or by `EveryFactor<T>` for those of the registry"
)]
pub trait Factorize<F: Factor>: Load<F> + Backend<F::Value> {
    /// L and U of A's values, all in the order of their stored entries; `upper` has no elements where the other factor is L^T. Gives
    /// alpha, where not A but A + alpha diag(A) was factored, else 0: shifts are tried as [`Factor::numeric`] does. Blocks, once for
    /// each attempt; may not be recorded. Same bits everywhere.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the vectors have as many elements as the patterns entries, with `lower` and `upper` as they were;
    /// [`crate::Error::Triangle`] for what [`Factor::numeric`] would break down at: then they hold nothing of use.
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Self::Vector,
        lower: &mut Self::Vector,
        upper: &mut Self::Vector,
    ) -> Result<f64>;
}

/// The whole set-up of a preconditioner of incomplete factors from a matrix that is on the device.
pub trait Assemble<F: Factor>: Factorize<F> + Load<Csr<F::Value>> {
    /// Patterns, factors and the plans of their solves with the parameters of [`Factor::symbolic`], all made on the device; the matrix is not
    /// needed further. `None`, as the default gives, where this backend has no such way or none for the matrix: then what the host's
    /// symbolic phase says of it goes. Blocks; allocates; may not be recorded. Factors and solves have the bits of the host's way with
    /// [`spandrel_sptrsv::Sweep`].
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] for what [`Factor::symbolic`] and [`Factor::numeric`] would stop at; [`crate::Error::OutOfMemory`];
    /// [`crate::Error::Device`] while a step is recorded.
    fn assemble(
        &self,
        a: &<Self as Load<Csr<F::Value>>>::Resident,
    ) -> Result<Option<Box<dyn Assembled<F::Value, Self>>>> {
        let _ = a;
        Ok(None)
    }
}

/// What [`Assemble::assemble`] makes: z <- U^-1 (L^-1 r), or L^-T (L^-1 r), with nothing of the factors on the host.
pub trait Assembled<T: Real, B: Backend<T>>: Preconditioner<T, B> + Send + Sync {
    /// Factors new values on the pattern of the old, in stored order: no new addresses, so recorded steps see the new factors. Blocks; may
    /// not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the matrix has as many entries; as [`Factorize::factorize`]. After an error of the factorisation
    /// the preconditioner is as before.
    fn update(&mut self, be: &B, values: &B::Vector) -> Result<()>;
    /// Values of L and of U in the order of their stored entries; none of U where the other factor is L^T.
    fn made(&self) -> [&B::Vector; 2];
    /// The plan of the solves, [`spandrel_sptrsv::Plan::NAME`].
    fn plan(&self) -> &'static str;
    /// Entries of the factors.
    fn nnz(&self) -> usize;
    /// alpha, where A + alpha diag(A) was factored instead of A; else 0.
    fn shift(&self) -> f64;
    /// Whether both solves have the bits of [`spandrel_sptrsv::serial`].
    fn is_stored_order(&self) -> bool;
}

/// Compares the lengths of the operands of [`Factorize::factorize`]: values of A, of L and of U.
///
/// # Errors
/// [`crate::Error::Shape`].
pub fn expect_factors<F: Factor>(factor: &F, found: [usize; 3]) -> Result<()> {
    expect_entries([factor.nnz_given(), factor.lower().nnz(), factor.upper().map_or(0, Pattern::nnz)], found)
}

/// The same where the entries of A, of L and of U are known alone.
///
/// # Errors
/// [`crate::Error::Shape`].
pub fn expect_entries(entries: [usize; 3], found: [usize; 3]) -> Result<()> {
    let of_each = ["values", "lower", "upper"].into_iter().zip(found).zip(entries);
    of_each.into_iter().try_for_each(|((what, found), entries)| expect_len("factorize", what, found, entries))
}
