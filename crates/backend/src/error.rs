//! What an operation or a device can fail with.

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// `Ok` where operand `what` of `op` has as many elements as it should.
///
/// # Errors
/// [`Error::Shape`].
#[inline]
pub fn expect_len(op: &'static str, what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Shape { op, what, found, expected }) }
}

/// As [`expect_len`] for `k` columns of `len` elements each.
///
/// # Errors
/// [`Error::Shape`], also where `len * k` is beyond `usize`: no operand has so many elements.
#[inline]
pub fn expect_columns(op: &'static str, what: &'static str, found: usize, len: usize, k: usize) -> Result<()> {
    match len.checked_mul(k) {
        Some(expected) => expect_len(op, what, found, expected),
        None => Err(Error::Shape { op, what, found, expected: usize::MAX }),
    }
}

/// An error of a backend: what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Operands whose sizes contradict each other.
    #[error("{op}: {what} has {found} elements, expected {expected}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operand.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The size it should have.
        expected: usize,
    },
    /// A run-time limit of one backend for one noun.
    #[error("{op} of {noun} is not supported: {why}")]
    Unsupported {
        /// The operation.
        op: &'static str,
        /// The format or plan.
        noun: &'static str,
        /// The limit and the way around it.
        why: String,
    },
    /// Memory that could not be had.
    #[error("out of memory on {device}: {bytes} bytes for {what}")]
    OutOfMemory {
        /// `"cpu"`, `"cuda"`.
        device: &'static str,
        /// What it was for.
        what: &'static str,
        /// How much.
        bytes: u64,
    },
    /// A device that cannot be used, or that failed underway.
    #[error("{device}: {why}")]
    Device {
        /// `"cpu"`, `"cuda"`.
        device: &'static str,
        /// The reason, and what to do.
        why: String,
    },
    /// A matrix that is wrong or does not fit.
    #[error(transparent)]
    Format(#[from] spandrel_formats::Error),
    /// A triangle that cannot be solved with, or does not fit its plan.
    #[error(transparent)]
    Triangle(#[from] spandrel_sptrsv::Error),
}
