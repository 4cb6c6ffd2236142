//! The errors of operations and devices.

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Returns `Ok` if operand `what` of `op` has the expected number of elements.
///
/// # Errors
/// [`Error::Shape`].
#[inline]
pub fn expect_len(op: &'static str, what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::Shape { op, what, found, expected }) }
}

/// As [`expect_len`], for `k` columns of `len` elements each.
///
/// # Errors
/// [`Error::Shape`], also if `len * k` exceeds `usize`: no operand has that many elements.
#[inline]
pub fn expect_columns(op: &'static str, what: &'static str, found: usize, len: usize, k: usize) -> Result<()> {
    match len.checked_mul(k) {
        Some(expected) => expect_len(op, what, found, expected),
        None => Err(Error::Shape { op, what, found, expected: usize::MAX }),
    }
}

/// Compares (rows, columns, entries) of matrices; `what` names a column, a row and the values of each.
///
/// # Errors
/// [`Error::Shape`] for the first that differs.
pub fn expect_sizes<const N: usize>(
    op: &'static str,
    what: [[&'static str; 3]; N],
    found: [(usize, usize, usize); N],
    wanted: [(usize, usize, usize); N],
) -> Result<()> {
    for ((what, found), wanted) in what.into_iter().zip(found).zip(wanted) {
        expect_len(op, what[0], found.0, wanted.0)?;
        expect_len(op, what[1], found.1, wanted.1)?;
        expect_len(op, what[2], found.2, wanted.2)?;
    }
    Ok(())
}

/// An error of a backend: what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sizes of operands do not match.
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
    /// A backend does not support this operation for one format or plan, which is known only at run time.
    #[error("{op} of {noun} is not supported: {why}")]
    Unsupported {
        /// The operation.
        op: &'static str,
        /// The format or plan.
        noun: &'static str,
        /// The limit and the way around it.
        why: String,
    },
    /// Memory could not be allocated.
    #[error("out of memory on {device}: {bytes} bytes for {what}")]
    OutOfMemory {
        /// `"cpu"`, `"cuda"`.
        device: &'static str,
        /// What the memory was for.
        what: &'static str,
        /// How many bytes.
        bytes: u64,
    },
    /// A device cannot be used, or failed while running.
    #[error("{device}: {why}")]
    Device {
        /// `"cpu"`, `"cuda"`.
        device: &'static str,
        /// The reason, and what to do.
        why: String,
    },
    /// Another rank of a distributed solve failed, left, did not answer in time, or does something else.
    #[error("rank {rank}: {why}")]
    Rank {
        /// The rank, from 0.
        rank: usize,
        /// What is known of it, and what to do.
        why: String,
    },
    /// A matrix is invalid or does not fit.
    #[error(transparent)]
    Format(#[from] spandrel_formats::Error),
    /// A triangle cannot be solved with, or does not fit its plan.
    #[error(transparent)]
    Triangle(#[from] spandrel_sptrsv::Error),
}
