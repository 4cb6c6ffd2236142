//! The numeric phase of a product: the values of some rows of C.

use std::ops::Range;

use super::Way;
use crate::fused::fused;
use crate::index::{Offset, Ordinal};
use crate::prefetch::prefetch;
use crate::{Csr, Real};

/// Rows of B are prefetched this many entries of A before their use.
const AHEAD: usize = 8;

/// The pattern of some rows of C: where each begins and where the last ends, and the columns of all rows.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    pub(super) row_ptr: &'a [Offset],
    pub(super) col_idx: &'a [Ordinal],
}

fused! {
    /// Computes the values of these rows of C. `sums` is +0 before and after.
    pub(super) fn values_of<T: Real>(
        way: Way, a: &Csr<T>, b: &Csr<T>, rows: Range<usize>, pattern: Pattern<'_>, sums: &mut [T], out: &mut [T],
    ) {
        match way {
            Way::Near => accumulate::<T, false>(a, b, rows, pattern, sums, out),
            Way::Scattered => accumulate::<T, true>(a, b, rows, pattern, sums, out),
            Way::Search => search(a, b, rows, pattern, out),
        }
    }
}

/// [`Way::Near`], or [`Way::Scattered`] if `ASK`.
#[inline(always)]
fn accumulate<T: Real, const ASK: bool>(
    a: &Csr<T>,
    b: &Csr<T>,
    rows: Range<usize>,
    pattern: Pattern<'_>,
    sums: &mut [T],
    out: &mut [T],
) {
    let first = pattern.row_ptr[0] as usize;
    let mut entry = a.row_ptr()[rows.start] as usize;
    for (i, ends) in rows.zip(pattern.row_ptr.windows(2)) {
        let (inner, left) = a.row(i);
        for (&k, &v) in inner.iter().zip(left) {
            if ASK {
                ask::<T, true>(a, b, entry);
                entry += 1;
            }
            let (cols, right) = b.row(k as usize);
            for (&j, &w) in cols.iter().zip(right) {
                let sum = &mut sums[j as usize];
                *sum = v.mul_add(w, *sum);
            }
        }
        let (begin, end) = (ends[0] as usize, ends[1] as usize);
        for (out, &j) in out[begin - first..end - first].iter_mut().zip(&pattern.col_idx[begin..end]) {
            *out = std::mem::replace(&mut sums[j as usize], T::zero());
        }
    }
}

/// [`Way::Search`].
#[inline(always)]
fn search<T: Real>(a: &Csr<T>, b: &Csr<T>, rows: Range<usize>, pattern: Pattern<'_>, out: &mut [T]) {
    let first = pattern.row_ptr[0] as usize;
    out.fill(T::zero());
    for (i, ends) in rows.zip(pattern.row_ptr.windows(2)) {
        let (begin, end) = (ends[0] as usize, ends[1] as usize);
        let (places, out) = (&pattern.col_idx[begin..end], &mut out[begin - first..end - first]);
        let (inner, left) = a.row(i);
        for (&k, &v) in inner.iter().zip(left) {
            let (cols, right) = b.row(k as usize);
            for (j, &w) in cols.iter().zip(right) {
                if let Ok(at) = places.binary_search(j) {
                    out[at] = v.mul_add(w, out[at]);
                }
            }
        }
    }
}

/// Prefetches the row of B that A needs [`AHEAD`] entries after this one, and the row pointers for the entry twice as
/// far ahead.
#[inline(always)]
pub(super) fn ask<T: Real, const VALUES: bool>(a: &Csr<T>, b: &Csr<T>, entry: usize) {
    let (cols, begins) = (a.col_idx(), b.row_ptr());
    if let Some(&k) = cols.get(entry + 2 * AHEAD) {
        prefetch(begins, k as usize);
    }
    if let Some(&k) = cols.get(entry + AHEAD) {
        let (begin, end) = (begins[k as usize] as usize, begins[k as usize + 1] as usize);
        prefetch(b.col_idx(), begin);
        prefetch(b.col_idx(), end);
        if VALUES {
            let line = 64 / T::BYTES;
            // The hardware prefetches the rest of a longer row.
            (begin..end.min(begin + 4 * line)).step_by(line).for_each(|at| prefetch(b.values(), at));
            prefetch(b.values(), end);
        }
    }
}
