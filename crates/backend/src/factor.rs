//! Incomplete factorisation on a device: the operation, and its sizes.

use spandrel_sptrsv::{Factor, Pattern};

use crate::error::expect_len;
use crate::{Backend, Load, Result};

/// The numeric phase of an incomplete factorisation from values that are on the device, to values there: nothing but what it found goes
/// through the host.
///
/// What is loaded is the symbolic phase's result, once a pattern; new values need no new one. The state of the kernels (tickets, marks,
/// numbers of runs) belongs to the resident and is advanced by the kernels themselves.
///
/// Order: that of [`spandrel_sptrsv::factor`], so the factors have the bits of [`Factor::numeric`] on every backend, and so have the
/// errors: the row is the first that the host would have stopped at.
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

/// Compares the lengths of the operands of [`Factorize::factorize`]: values of A, of L and of U.
///
/// # Errors
/// [`crate::Error::Shape`].
pub fn expect_factors<F: Factor>(factor: &F, [values, lower, upper]: [usize; 3]) -> Result<()> {
    expect_len("factorize", "values", values, factor.nnz_given())?;
    expect_len("factorize", "lower", lower, factor.lower().nnz())?;
    expect_len("factorize", "upper", upper, factor.upper().map_or(0, Pattern::nnz))
}
