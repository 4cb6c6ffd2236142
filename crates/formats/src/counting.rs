//! Counting sort: gathers entries by row (or column) from an order in which the other index ascends.
//!
//! Cost: one pass over the keys, one over the entries, and the arrays of the result; the pointers serve as cursors. In
//! parallel each task takes a range of keys. It scans every row twice for these keys and has one cursor per key.
//! Reference: Gustavson, Two fast algorithms for sparse matrices: multiplication and permuted transposition, 1978.

use std::ops::Range;

use bytemuck::Zeroable;
use rayon::prelude::*;

use crate::index::{Offset, Ordinal};
use crate::padding::zeroed;
use crate::{Real, Result};

/// Pointers, the other index of each entry, values.
pub(crate) type Gathered<T> = (Vec<Offset>, Vec<Ordinal>, Vec<T>);

/// Makes `n + 1` pointers from the key of every entry. All keys are below `n`, and there are fewer than 2^31.
///
/// # Errors
/// [`crate::Error::OutOfMemory`].
pub(crate) fn pointers(n: usize, keys: impl Iterator<Item = Ordinal>) -> Result<Vec<Offset>> {
    let mut ptr = shifted(n, keys)?;
    ptr.remove(0);
    Ok(ptr)
}

/// Gathers the entries `(key, other, value)` by key, keeping their order within a key. `keys` gives the key of each
/// entry.
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
    // Element k + 1 begins as the start of key k and ends as its end, which is the start of key k + 1.
    entries.for_each(|(key, other, value)| {
        let cursor = &mut ptr[key as usize + 1];
        others[*cursor as usize] = other;
        values[*cursor as usize] = value;
        *cursor += 1;
    });
    ptr.pop();
    Ok((ptr, others, values))
}

/// Number of entries for which a task is worth scanning all rows for its keys. Unit tests share less among as many
/// tasks.
const TASK: usize = if cfg!(test) { 1 << 12 } else { 1 << 18 };

/// As [`gather`], for rows given as CSR's arrays whose keys ascend: each key's entries by row, in parallel. `value`
/// gives what belongs to the entry at a position.
///
/// # Errors
/// [`crate::Error::OutOfMemory`].
pub(crate) fn transposed<E: Zeroable + Send>(
    n: usize,
    row_ptr: &[Offset],
    col_idx: &[Ordinal],
    value: impl Fn(usize) -> E + Sync,
) -> Result<Gathered<E>> {
    let nnz = col_idx.len();
    let tasks = (nnz / TASK).clamp(1, 2 * rayon::current_num_threads());
    let width = n.div_ceil(tasks).max(1);
    let mut ptr: Vec<Offset> = zeroed(n + 1, "pointers")?;
    ptr[1..].par_chunks_mut(width).enumerate().for_each(|(task, counts)| {
        let first = task * width;
        scan(row_ptr, col_idx, first..first + counts.len(), |_, e| counts[col_idx[e] as usize - first] += 1);
    });
    let mut sum = 0;
    for p in &mut ptr {
        sum += *p;
        *p = sum;
    }
    let mut others: Vec<Ordinal> = zeroed(nnz, "indices")?;
    let mut values: Vec<E> = zeroed(nnz, "values")?;
    let (mut others_left, mut values_left) = (&mut others[..], &mut values[..]);
    let mut parts = Vec::with_capacity(tasks);
    for first in (0..n).step_by(width) {
        let end = n.min(first + width);
        let (others_here, others_rest) = others_left.split_at_mut((ptr[end] - ptr[first]) as usize);
        let (values_here, values_rest) = values_left.split_at_mut(others_here.len());
        (others_left, values_left) = (others_rest, values_rest);
        parts.push((first..end, zeroed::<Offset>(end - first, "cursors")?, others_here, values_here));
    }
    parts.into_par_iter().for_each(|(keys, mut cursors, others, values)| {
        let first = keys.start;
        cursors.iter_mut().zip(&ptr[keys.clone()]).for_each(|(cursor, &begin)| *cursor = begin - ptr[first]);
        scan(row_ptr, col_idx, keys, |i, e| {
            let cursor = &mut cursors[col_idx[e] as usize - first];
            others[*cursor as usize] = i as Ordinal;
            values[*cursor as usize] = value(e);
            *cursor += 1;
        });
    });
    Ok((ptr, others, values))
}

/// Visits, row by row, the entries whose keys are in the range, with their row and position among all entries.
#[inline(always)]
fn scan(row_ptr: &[Offset], col_idx: &[Ordinal], keys: Range<usize>, mut visit: impl FnMut(usize, usize)) {
    for (i, ends) in row_ptr.windows(2).enumerate() {
        let (begin, end) = (ends[0] as usize, ends[1] as usize);
        let row = &col_idx[begin..end];
        let first = if keys.start == 0 { 0 } else { row.partition_point(|&j| (j as usize) < keys.start) };
        let inside = row[first..].iter().take_while(|&&j| (j as usize) < keys.end).count();
        (begin + first..begin + first + inside).for_each(|e| visit(i, e));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csr, generate};

    #[test]
    fn ranges_of_keys_come_to_the_same_as_one_pass() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for spec in ["random:n=1000,nnz_per_row=15", "powerlaw:n=2000,alpha=1.8", "poisson2d:3"] {
            let csr: Csr<f64> = generate::csr(spec).unwrap();
            let entries = (0..csr.nrows()).flat_map(|i| {
                let (cols, values) = csr.row(i);
                cols.iter().zip(values).map(move |(&j, &v)| (j, i as Ordinal, v))
            });
            let expected = gather(csr.ncols(), csr.col_idx().iter().copied(), entries).unwrap();
            let found =
                pool.install(|| transposed(csr.ncols(), csr.row_ptr(), csr.col_idx(), |e| csr.values()[e]).unwrap());
            assert!(found == expected, "{spec}, {} entries", csr.nnz());
        }
        assert!(generate::csr::<f64>("powerlaw:n=2000,alpha=1.8").unwrap().nnz() > 3 * TASK);
    }
}
