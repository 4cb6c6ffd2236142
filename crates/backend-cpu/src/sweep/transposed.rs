//! The solve of consecutive rows of a grid's T^T from the values of T.
//!
//! Rows are counted in the order of their solve, which is the mirror of T's. Term k of a row of T^T is the value at place k of the stencil
//! in the row of T that is that neighbour. Along a line such values are as far apart as the rows of T, but near its ends.
//! Order: as in [`super::rows`].

use std::ops::Range;

use spandrel_formats::Real;

use super::rows::{Arrays, At, Terms, for_runs};
use crate::simd::{fma, simd_fn};

simd_fn! {
    /// Solves rows of T^T x = b. FLIP: of a lower triangle, so that T^T's rows run against memory and T's do not.
    ///
    /// The caller vouches as for [`super::rows::solve_plain`]; the diagonal is `UNIT` or `INVERSE`.
    pub(super) fn solve_transposed<T, const FLIP: bool, const DIAGONAL: u8>(a: &Arrays<'_, T>, rows: Range<usize>) {
        let (nx, at) = (a.lines.len(), At::<T, FLIP>::new(a));
        let mut r = rows.start;
        while r < rows.end {
            let (line, x) = (r / nx, r % nx);
            let end = nx.min(x + rows.end - r);
            // SAFETY: rows of the grid, in order.
            unsafe { transposed_line::<T, FLIP, DIAGONAL>(a, &at, line, x..end) };
            r = line * nx + end;
        }
    }
}
/// The terms of a row of T^T stand in so many rows of T at most, for them to be followed along a line.
const MAX_TERMS: usize = 64;

/// Rows x of a line of T^T.
///
/// # Safety
/// The rows' neighbours are solved.
#[inline(always)]
unsafe fn transposed_line<T: Real, const FLIP: bool, const DIAGONAL: u8>(
    a: &Arrays<'_, T>,
    at: &At<T, FLIP>,
    line: usize,
    x: Range<usize>,
) {
    let (nx, n) = (a.lines.len(), a.n);
    let (kind, mirrored) = (a.lines.kind(line), a.lines.mirrored(line));
    let (terms, first) = (kind.shift.len(), line * nx);
    // Element e of T's values, in the order of the lower triangle.
    let value = |e: usize| a.values.as_ptr().wrapping_add(if FLIP { e } else { a.values.len() - 1 - e });
    // The row of T, in that order, that holds term k of row x.
    let row = |k: usize, x: usize| n - 1 - (first + x).wrapping_add_signed(kind.shift[k]);
    let edge = |x: Range<usize>| {
        for x in x {
            // SAFETY: the caller's promise; the value is that of T's row q whose neighbour this row is.
            unsafe {
                let mut s = at.b(first + x);
                for k in 0..terms {
                    let to = x as isize + kind.dx[k];
                    if to as usize >= nx {
                        continue;
                    }
                    let (place, other) = (kind.place[k], mirrored(kind.place[k]));
                    let x_q = nx as isize - 1 - to;
                    let held = |&dx: &isize| usize::from(((x_q + dx) as usize) < nx);
                    let rank =
                        if a.row_ptr.is_some() { other.dx[..other.term[place]].iter().map(held).sum() } else { place };
                    let q = row(k, x);
                    s = fma(-*value(a.start(q) + rank), at.x((first + x) as isize + kind.shift[k]), s);
                }
                at.finish::<DIAGONAL>(first + x, s, std::ptr::null());
            }
        }
    };

    // Rows whose terms all stand in the interior of T's lines: there they are at a fixed distance from row to row.
    let mut inside = kind.interior.start.max(x.start)..kind.interior.end.min(x.end);
    let mut steps = [0isize; MAX_TERMS];
    if terms > MAX_TERMS {
        inside.end = 0;
    }
    for (k, step) in steps.iter_mut().enumerate().take(terms) {
        let other = mirrored(kind.place[k]);
        let end = nx as isize - kind.dx[k];
        inside.start = inside.start.max((end - other.interior.end as isize).max(0) as usize);
        inside.end = inside.end.min((end - other.interior.start as isize).max(0) as usize);
        let width = a.width(other.shift.len()) as isize;
        *step = if FLIP { -width } else { width };
    }
    if inside.is_empty() {
        return edge(x);
    }
    edge(x.start..inside.start);
    let mut from = [std::ptr::null::<T>(); MAX_TERMS];
    for (k, from) in from.iter_mut().enumerate().take(terms) {
        let (place, q) = (kind.place[k], row(k, inside.start));
        let rank = if a.row_ptr.is_some() { mirrored(place).term[place] } else { place };
        *from = value(a.start(q) + rank);
    }
    // Along a run the terms stand in the rows of T before one another, each one place further on.
    let apart = steps[0] + if FLIP { 1 } else { -1 };
    let in_runs =
        (1..terms).all(|k| kind.shift[k] != kind.shift[k - 1] + 1 || from[k] == from[k - 1].wrapping_offset(apart));
    let is_regular = in_runs && steps[..terms].iter().all(|&step| step == steps[0]);
    let (r, count) = (first + inside.start, inside.len());
    // SAFETY: the caller's promise; in the interior the values follow at these steps.
    unsafe {
        for_runs!(
            if is_regular { kind.runs } else { 0 },
            RUNS => transposed_chain::<T, RUNS, FLIP, DIAGONAL>(at, &kind.shift, &from, steps[0], r, count),
            for i in 0..count {
                let mut s = at.b(r + i);
                for k in 0..terms {
                    let t = *from[k].wrapping_offset(i as isize * steps[k]);
                    s = fma(-t, at.x((r + i) as isize + kind.shift[k]), s);
                }
                at.finish::<DIAGONAL>(r + i, s, std::ptr::null());
            }
        );
    }
    edge(inside.end..x.end);
}

/// `count` rows of T^T of terms in RUNS, the last of which is the row before; the values of each follow at one step.
///
/// # Safety
/// As [`transposed_line`]; the terms of row r are at `from`.
#[inline(always)]
unsafe fn transposed_chain<T: Real, const RUNS: u64, const FLIP: bool, const DIAGONAL: u8>(
    at: &At<T, FLIP>,
    shift: &[isize],
    from: &[*const T; MAX_TERMS],
    step: isize,
    r: usize,
    count: usize,
) {
    let (shift, from) = (Terms::<RUNS>::first(shift), Terms::<RUNS>::first(from));
    let apart = step + if FLIP { 1 } else { -1 };
    let mut along = 0;
    // SAFETY: the caller's promise.
    unsafe {
        let mut before = at.x(r as isize - 1);
        for r in r..r + count {
            let mut s = at.b(r);
            for k in 0..Terms::<RUNS>::COUNT {
                let (run, i) = Terms::<RUNS>::PLACES[k];
                let is_last = k + 1 == Terms::<RUNS>::COUNT;
                let x = if is_last { before } else { at.x(r as isize + shift[run] + i) };
                s = fma(-*from[run].wrapping_offset(along + i * apart), x, s);
            }
            before = at.finish::<DIAGONAL>(r, s, std::ptr::null());
            along += step;
        }
    }
}
