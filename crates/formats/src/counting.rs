//! Counting sort: entries gathered by row (or column) from an order in which the other index ascends.
//!
//! Cost: one pass over the keys, one over the entries, and the arrays of the result: the pointers are their own cursors.
//! Reference: Gustavson, Two fast algorithms for sparse matrices: multiplication and permuted transposition, 1978.

use crate::index::{Offset, Ordinal};
use crate::padding::zeroed;
use crate::{Real, Result};

/// Pointers, the other index of each entry, values.
pub(crate) type Gathered<T> = (Vec<Offset>, Vec<Ordinal>, Vec<T>);

/// `n + 1` pointers from the key of every entry, all below `n`; fewer than 2^31 of them.
///
/// # Errors
/// [`crate::Error::OutOfMemory`].
pub(crate) fn pointers(n: usize, keys: impl Iterator<Item = Ordinal>) -> Result<Vec<Offset>> {
    let mut ptr = shifted(n, keys)?;
    ptr.remove(0);
    Ok(ptr)
}

/// The entries `(key, other, value)`, each key's in their order. `keys` are theirs.
///
/// # Errors
/// [`crate::Error::OutOfMemory`].
pub(crate) fn gather<T: Real>(
    n: usize,
    keys: impl Iterator<Item = Ordinal>,
    entries: impl Iterator<Item = (Ordinal, Ordinal, T)>,
) -> Result<Gathered<T>> {
    let mut ptr = shifted(n, keys)?;
    let nnz = ptr[n + 1] as usize;
    let mut others: Vec<Ordinal> = zeroed(nnz, "indices")?;
    let mut values: Vec<T> = zeroed(nnz, "values")?;
    // Element k + 1 is where key k begins, and ends up as where it ends, which is where key k + 1 begins.
    entries.for_each(|(key, other, value)| {
        let cursor = &mut ptr[key as usize + 1];
        others[*cursor as usize] = other;
        values[*cursor as usize] = value;
        *cursor += 1;
    });
    ptr.pop();
    Ok((ptr, others, values))
}

/// `n + 2` elements: 0, then the pointers.
fn shifted(n: usize, keys: impl Iterator<Item = Ordinal>) -> Result<Vec<Offset>> {
    let mut ptr: Vec<Offset> = zeroed(n + 2, "pointers")?;
    keys.for_each(|key| ptr[key as usize + 2] += 1);
    let mut sum = 0;
    for p in &mut ptr {
        sum += *p;
        *p = sum;
    }
    Ok(ptr)
}
