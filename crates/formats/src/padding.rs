//! Limits on padded storage, its allocation, and parallel assembly of CSR from it.
//!
//! Invariants: no array whose size depends on padding is allocated before [`fits`] has agreed to its size.
//! Cost: every pass is linear in the stored arrays; scratch is one cursor per row of the chunk at work.

use std::ops::Range;

use rayon::prelude::*;

use crate::index::{MAX_INDEX, Offset, Ordinal, checked};
use crate::{Csr, Error, Real, Result};

/// Number of rows that one task packs or unpacks: enough to amortise the task, few enough to balance two million rows.
const CHUNK: usize = 4096;

/// Padded storage may take at most this many times the bytes of CSR.
const LIMIT: u128 = 20;

/// Storage of at most this many bytes is never refused.
const FREE: u128 = 1 << 20;

/// Checks that `bytes` of storage are acceptable for a matrix with `nrows` rows and `nnz` entries of `T`: at most 20
/// times CSR's bytes, or at most 1 MiB.
pub(crate) fn fits<T: Real>(format: &'static str, bytes: u128, nrows: usize, nnz: usize) -> Result<()> {
    let csr = nnz as u128 * (4 + T::BYTES as u128) + 4 * (nrows as u128 + 1);
    if bytes > FREE && bytes > LIMIT * csr {
        return Err(Error::DoesNotFit {
            format,
            why: format!(
                "storage of {bytes} bytes is more than {LIMIT} times CSR's {csr} bytes; keep it in CSR or SELL"
            ),
        });
    }
    Ok(())
}

/// Returns `len` zeros, or [`Error::OutOfMemory`]. The task that fills a page touches it first.
pub(crate) fn zeroed<E: bytemuck::Zeroable>(len: usize, what: &'static str) -> Result<Vec<E>> {
    bytemuck::allocation::try_zeroed_vec(len)
        .map_err(|()| Error::OutOfMemory { what, bytes: (len as u64).saturating_mul(size_of::<E>() as u64) })
}

/// Counts the entries that are not zero, as a format that multiplies fill does. NaN is not zero.
pub(crate) fn nonzeros<T: Real>(values: &[T]) -> usize {
    values.par_iter().with_min_len(CHUNK).filter(|v| !v.is_zero()).count()
}

/// Cuts column-major storage with `nrows` rows into chunks of rows. Each chunk has one slice per stored column.
pub(crate) fn row_chunks<E>(columns: &mut [E], nrows: usize) -> Vec<Vec<&mut [E]>> {
    if nrows == 0 {
        return Vec::new();
    }
    let width = columns.len() / nrows;
    let mut chunks: Vec<Vec<&mut [E]>> = (0..nrows.div_ceil(CHUNK)).map(|_| Vec::with_capacity(width)).collect();
    for column in columns.chunks_mut(nrows) {
        for (chunk, piece) in chunks.iter_mut().zip(column.chunks_mut(CHUNK)) {
            chunk.push(piece);
        }
    }
    chunks
}

/// Rows of chunk `chunk` of [`row_chunks`].
pub(crate) fn chunk_rows(chunk: usize, nrows: usize) -> Range<usize> {
    chunk * CHUNK..nrows.min((chunk + 1) * CHUNK)
}

/// Checks that `perm` names each of `0..n` once.
pub(crate) fn check_perm(format: &'static str, perm: &[Ordinal], n: usize) -> Result<()> {
    if perm.len() != n {
        return Err(Error::Length { format, array: "perm", found: perm.len(), expected: n });
    }
    let mut seen = vec![false; n];
    for (at, &old) in perm.iter().enumerate() {
        match seen.get_mut(old as usize) {
            None => {
                return Err(Error::IndexOutOfRange { format, array: "perm", at, found: i64::from(old), bound: n });
            }
            Some(true) => {
                return Err(Error::Invalid { format, why: format!("perm[{at}] = {old} names a row a second time") });
            }
            Some(free) => *free = true,
        }
    }
    Ok(())
}

/// Writes the positions of `range` to `order` by descending length; equal lengths keep their order. A counting sort;
/// `counts` is scratch.
pub(crate) fn sort_descending(
    lengths: impl Fn(usize) -> usize,
    range: Range<usize>,
    counts: &mut Vec<u32>,
    order: &mut [Ordinal],
) {
    let longest = range.clone().map(&lengths).max().unwrap_or(0);
    counts.clear();
    counts.resize(longest + 1, 0);
    for i in range.clone() {
        counts[longest - lengths(i)] += 1;
    }
    let mut start = 0;
    for count in counts.iter_mut() {
        start += std::mem::replace(count, start);
    }
    for i in range {
        let slot = &mut counts[longest - lengths(i)];
        order[*slot as usize] = i as Ordinal;
        *slot += 1;
    }
}

/// Turns counts into pointers in place: `ptr[i + 1]` holds the count of row `i`.
pub(crate) fn accumulate(ptr: &mut [Offset]) -> Result<usize> {
    let mut sum = 0u64;
    for p in ptr.iter_mut() {
        sum += u64::from(*p);
        if sum > MAX_INDEX as u64 {
            return Err(Error::TooLarge { what: "entries", count: sum, limit: MAX_INDEX as u64 });
        }
        *p = sum as Offset;
    }
    checked(sum as usize, "entries").map(|_| sum as usize)
}

/// Makes CSR from a checked format, with chunks of rows in parallel.
///
/// `count` adds to the number of entries per row of the chunk. `fill(rows, next, cols, values)` writes the entries of
/// row `rows.start + r` at `next[r]..` with ascending columns, and advances `next[r]`. `cols` and `values` are those of
/// the chunk.
pub(crate) fn assemble<T: Real>(
    nrows: usize,
    ncols: usize,
    count: impl Fn(Range<usize>, &mut [Offset]) + Sync,
    fill: impl Fn(Range<usize>, &mut [Offset], &mut [Ordinal], &mut [T]) + Sync,
) -> Result<Csr<T>> {
    let mut row_ptr: Vec<Offset> = zeroed(nrows + 1, "row_ptr")?;
    row_ptr[1..].par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, counts)| count(chunk_rows(chunk, nrows), counts));
    let nnz = accumulate(&mut row_ptr)?;
    let mut col_idx: Vec<Ordinal> = zeroed(nnz, "col_idx")?;
    let mut values: Vec<T> = zeroed(nnz, "values")?;
    let mut pieces = Vec::with_capacity(nrows.div_ceil(CHUNK));
    let (mut cols_left, mut values_left) = (&mut col_idx[..], &mut values[..]);
    for chunk in 0..nrows.div_ceil(CHUNK) {
        let rows = chunk_rows(chunk, nrows);
        let len = (row_ptr[rows.end] - row_ptr[rows.start]) as usize;
        let (cols, cols_rest) = cols_left.split_at_mut(len);
        let (vals, values_rest) = values_left.split_at_mut(len);
        (cols_left, values_left) = (cols_rest, values_rest);
        pieces.push((rows, cols, vals));
    }
    pieces.into_par_iter().for_each(|(rows, cols, vals)| {
        let base = row_ptr[rows.start];
        let mut next: Vec<Offset> = row_ptr[rows.clone()].iter().map(|p| p - base).collect();
        fill(rows, &mut next, cols, vals);
    });
    // SAFETY: row_ptr was accumulated from the counts. For each row, `fill` writes ascending columns in range, which
    // the source format's own invariants guarantee.
    Ok(unsafe { Csr::new_unchecked(nrows, ncols, row_ptr, col_idx, values) })
}
