//! Index types of the stored arrays, and checked casts to them.
//!
//! Invariants: rows, columns and entries of a matrix are below 2^31, so that one `u32` buffer serves faer (unsigned),
//! sprs and cuSPARSE (signed). Positions inside padded storage (ELL, SELL, DIA, bDIA) are computed in `usize` and may
//! exceed 2^32.

use crate::{Error, Result};

/// A row or column number.
pub type Ordinal = u32;
/// A position among the entries of a matrix (`row_ptr`, `col_ptr`, `slice_ptr`).
pub type Offset = u32;

/// The largest number of rows, columns or entries a matrix may have: 2^31 - 1.
pub const MAX_INDEX: usize = i32::MAX as usize;

/// Converts `n` rows, columns or entries to a stored index, or returns [`Error::TooLarge`] naming `what`.
pub fn checked(n: usize, what: &'static str) -> Result<u32> {
    if n > MAX_INDEX {
        return Err(Error::TooLarge { what, count: n as u64, limit: MAX_INDEX as u64 });
    }
    Ok(n as u32)
}
