//! The solve of consecutive rows of a grid, of T or of T^T.
//!
//! Rows are counted in the order of their solve, values in the order of the lower triangle that T is or, mirrored, stands for. Where these
//! orders run against memory (`FLIP`), element i of an array of n is n - 1 - i.
//! Order: [`spandrel_sptrsv::serial`]'s. Of a row's chain the last term alone, the neighbour before on the line, waits for the row
//! before; it is handed on in a register. The terms before it overlap with those of other rows.

use std::marker::PhantomData;
use std::ops::Range;

use spandrel_formats::{Offset, Real};
use spandrel_sptrsv::sweep::Lattice;
use spandrel_sptrsv::{Triangle, Triangular};

use super::lines::{Kind, Lines};
use crate::simd::{fma, simd_fn};

/// How many bytes ahead of their use values are asked for. The hardware's own prefetching restarts at every page.
const AHEAD: usize = 2048;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// What a solve reads and writes.
pub(super) struct Arrays<'a, T> {
    n: usize,
    lines: &'a Lines,
    /// Where rows begin among the values; `None` where they are index-free.
    row_ptr: Option<&'a [Offset]>,
    /// Entries of an index-free row.
    stencil: usize,
    /// Diagonal entries of a row among the values, 0 or 1.
    diagonal: usize,
    triangle: Triangle,
    values: &'a [T],
    inv_diag: &'a [T],
    b: *const T,
    x: *mut T,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: threads write disjoint elements of x, and read only elements that were written before, in the order that the schedule sees to.
unsafe impl<T: Sync + Send> Sync for Arrays<'_, T> {}

impl<'a, T: Real> Arrays<'a, T> {
    /// Of a verified triangle: `filled` are its values index-free, without which its lattice is whole; without b it is in x.
    pub(super) fn new(
        matrix: &'a Triangular<T>,
        filled: Option<&'a [T]>,
        lines: &'a Lines,
        lattice: &Lattice,
        b: Option<&'a [T]>,
        x: &'a mut [T],
    ) -> Self {
        let n = matrix.nrows();
        assert!(x.len() == n && b.is_none_or(|b| b.len() == n), "b and x have {n} elements");
        let csr = matrix.csr();
        let x = x.as_mut_ptr();
        Self {
            n,
            lines,
            row_ptr: filled.is_none().then(|| csr.row_ptr()),
            stencil: lattice.offsets().len(),
            diagonal: usize::from(lattice.stores_diagonal()),
            triangle: matrix.triangle(),
            values: filled.unwrap_or(csr.values()),
            inv_diag: matrix.inv_diag(),
            b: b.map_or(x.cast_const(), <[T]>::as_ptr),
            x,
            borrowed: PhantomData,
        }
    }

    /// Where row r of the lower triangle begins.
    #[inline(always)]
    fn start(&self, r: usize) -> usize {
        match (self.row_ptr, self.triangle) {
            (None, _) => r * self.stencil,
            (Some(ptr), Triangle::Lower) => ptr[r] as usize,
            (Some(ptr), Triangle::Upper) => self.values.len() - ptr[self.n - r] as usize,
        }
    }

    /// Values of a row with so many terms.
    #[inline(always)]
    fn width(&self, terms: usize) -> usize {
        if self.row_ptr.is_some() { terms + self.diagonal } else { self.stencil }
    }
}

/// Element `i`, counted against memory where FLIP, from element 0 at `p`.
#[inline(always)]
fn nth<T, const FLIP: bool>(p: *const T, i: isize) -> *const T {
    p.wrapping_offset(if FLIP { -i } else { i })
}

/// Element 0 of an array of `n`.
#[inline(always)]
fn zeroth<T, const FLIP: bool>(p: *const T, n: usize) -> *const T {
    p.wrapping_add(if FLIP { n.wrapping_sub(1) } else { 0 })
}

/// The arrays as pointers to their elements 0.
struct At<T, const FLIP: bool> {
    inv_diag: *const T,
    b: *const T,
    x: *mut T,
}

impl<T: Real, const FLIP: bool> At<T, FLIP> {
    #[inline(always)]
    fn new(a: &Arrays<'_, T>) -> Self {
        Self {
            inv_diag: zeroth::<T, FLIP>(a.inv_diag.as_ptr(), a.inv_diag.len()),
            b: zeroth::<T, FLIP>(a.b, a.n),
            x: zeroth::<T, FLIP>(a.x, a.n).cast_mut(),
        }
    }
    /// # Safety
    /// `r` is a row.
    #[inline(always)]
    unsafe fn b(&self, r: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *nth::<T, FLIP>(self.b, r as isize) }
    }
    /// # Safety
    /// `r` is a row that is solved.
    #[inline(always)]
    unsafe fn x(&self, r: isize) -> T {
        // SAFETY: the caller's promise.
        unsafe { *nth::<T, FLIP>(self.x, r) }
    }
    /// Finishes row r from its sum, and gives its x.
    ///
    /// # Safety
    /// `r` is a row that no other thread solves.
    #[inline(always)]
    unsafe fn finish<const UNIT: bool>(&self, r: usize, s: T) -> T {
        // SAFETY: the caller's promise; the reciprocals are those of all rows.
        unsafe {
            let x = if UNIT { s } else { s * *nth::<T, FLIP>(self.inv_diag, r as isize) };
            *nth::<T, FLIP>(self.x, r as isize).cast_mut() = x;
            x
        }
    }
}

/// Asks for the values of a row some rows ahead.
#[inline(always)]
fn ask<T, const FLIP: bool>(values: *const T, width: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let bytes = width * size_of::<T>();
        let mut ahead = AHEAD;
        while ahead < AHEAD + bytes {
            let at = values.cast::<i8>().wrapping_offset(if FLIP { -(ahead as isize) } else { ahead as isize });
            // SAFETY: a prefetch of any address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
            ahead += CACHE_LINE;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, width);
}

/// Calls `$run::<T, K, ...>` for the numbers of terms that stencils have inside and at the sides of a grid, `$other` for the rest.
macro_rules! for_terms {
    ($terms:expr, [$($K:literal)*], $K_:ident => $run:expr, $other:expr) => {
        match $terms {
            $($K => { const $K_: usize = $K; $run })*
            _ => $other,
        }
    };
}

simd_fn! {
    /// Solves rows of T x = b. FLIP: of an upper triangle.
    ///
    /// The caller vouches for solved neighbours and for the invariants of [`Arrays`].
    pub(super) fn solve_plain<T, const FLIP: bool, const UNIT: bool>(a: &Arrays<'_, T>, rows: Range<usize>) {
        let (nx, at) = (a.lines.len(), At::<T, FLIP>::new(a));
        let values = zeroth::<T, FLIP>(a.values.as_ptr(), a.values.len());
        let mut r = rows.start;
        while r < rows.end {
            let (line, x) = (r / nx, r % nx);
            let end = nx.min(x + rows.end - r);
            let kind = a.lines.kind(line);
            let mut v = a.start(r);
            let first = line * nx;
            let inside = x.max(kind.interior.start.min(end))..end.min(kind.interior.end).max(x);
            // SAFETY: rows of the grid, in order; their values begin at `v`.
            unsafe {
                if inside.start < inside.end {
                    edge::<T, FLIP, UNIT>(a, &at, kind, values, first, x..inside.start, &mut v);
                    let r = first + inside.start;
                    let from = nth::<T, FLIP>(values, v as isize);
                    interior::<T, FLIP, UNIT>(a, &at, kind, from, r, inside.len());
                    v += inside.len() * a.width(kind.shift.len());
                    edge::<T, FLIP, UNIT>(a, &at, kind, values, first, inside.end..end, &mut v);
                } else {
                    edge::<T, FLIP, UNIT>(a, &at, kind, values, first, x..end, &mut v);
                }
            }
            r = first + end;
        }
    }

    /// Solves rows of T^T x = b. FLIP: of a lower triangle, so that T^T's rows run against memory and T's do not.
    ///
    /// The caller vouches as for [`solve_plain`].
    pub(super) fn solve_transposed<T, const FLIP: bool, const UNIT: bool>(a: &Arrays<'_, T>, rows: Range<usize>) {
        let (nx, at) = (a.lines.len(), At::<T, FLIP>::new(a));
        let mut r = rows.start;
        while r < rows.end {
            let (line, x) = (r / nx, r % nx);
            let end = nx.min(x + rows.end - r);
            // SAFETY: rows of the grid, in order.
            unsafe { transposed_line::<T, FLIP, UNIT>(a, &at, line, x..end) };
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
unsafe fn transposed_line<T: Real, const FLIP: bool, const UNIT: bool>(
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
                at.finish::<UNIT>(first + x, s);
            }
        }
    };

    // Rows whose terms all stand in the interior of T's lines: there they are at a fixed distance from row to row.
    let mut inside = kind.interior.start.max(x.start)..kind.interior.end.min(x.end);
    let mut steps = [0isize; MAX_TERMS];
    if terms > MAX_TERMS {
        inside.end = 0;
    }
    for k in 0..terms.min(MAX_TERMS) {
        let other = mirrored(kind.place[k]);
        let end = nx as isize - kind.dx[k];
        inside.start = inside.start.max((end - other.interior.end as isize).max(0) as usize);
        inside.end = inside.end.min((end - other.interior.start as isize).max(0) as usize);
        let width = a.width(other.shift.len()) as isize;
        steps[k] = if FLIP { -width } else { width };
    }
    if inside.is_empty() {
        return edge(x);
    }
    edge(x.start..inside.start);
    let mut from = [std::ptr::null::<T>(); MAX_TERMS];
    for k in 0..terms {
        let (place, q) = (kind.place[k], row(k, inside.start));
        let rank = if a.row_ptr.is_some() { mirrored(place).term[place] } else { place };
        from[k] = value(a.start(q) + rank);
    }
    let is_regular = kind.shift.last() == Some(&-1) && steps[..terms].iter().all(|&step| step == steps[0]);
    let (r, count) = (first + inside.start, inside.len());
    // SAFETY: the caller's promise; in the interior the values follow at these steps.
    unsafe {
        for_terms!(
            if is_regular { terms } else { 0 }, [1 2 3 4 6 7 9 13 16],
            K => transposed_chain::<T, K, FLIP, UNIT>(at, &kind.shift, &from, steps[0], r, count),
            for i in 0..count {
                let mut s = at.b(r + i);
                for k in 0..terms {
                    let t = *from[k].wrapping_offset(i as isize * steps[k]);
                    s = fma(-t, at.x((r + i) as isize + kind.shift[k]), s);
                }
                at.finish::<UNIT>(r + i, s);
            }
        );
    }
    edge(inside.end..x.end);
}

/// `count` rows of T^T of K terms, the last of which is the row before; the values of each follow at one step.
///
/// # Safety
/// As [`transposed_line`]; the terms of row r are at `from`.
#[inline(always)]
unsafe fn transposed_chain<T: Real, const K: usize, const FLIP: bool, const UNIT: bool>(
    at: &At<T, FLIP>,
    shift: &[isize],
    from: &[*const T; MAX_TERMS],
    step: isize,
    r: usize,
    count: usize,
) {
    let shift: [isize; K] = std::array::from_fn(|k| shift[k]);
    let from: [*const T; K] = std::array::from_fn(|k| from[k]);
    let mut along = 0;
    // SAFETY: the caller's promise.
    unsafe {
        let mut before = at.x(r as isize - 1);
        for r in r..r + count {
            let mut s = at.b(r);
            for k in 0..K - 1 {
                s = fma(-*from[k].wrapping_offset(along), at.x(r as isize + shift[k]), s);
            }
            s = fma(-*from[K - 1].wrapping_offset(along), before, s);
            before = at.finish::<UNIT>(r, s);
            along += step;
        }
    }
}

/// Rows x of a line at its ends, where some of its neighbours are missing.
///
/// # Safety
/// The rows' neighbours are solved; `v` is where row x.start begins.
#[inline(always)]
unsafe fn edge<T: Real, const FLIP: bool, const UNIT: bool>(
    a: &Arrays<'_, T>,
    at: &At<T, FLIP>,
    kind: &Kind,
    values: *const T,
    first: usize,
    x: Range<usize>,
    v: &mut usize,
) {
    let nx = a.lines.len();
    for x in x {
        let r = first + x;
        let mut held = 0;
        // SAFETY: the caller's promise; terms inside the line are stored in turn, or at their place in the stencil.
        unsafe {
            let mut s = at.b(r);
            for k in 0..kind.shift.len() {
                if (x as isize + kind.dx[k]) as usize >= nx {
                    continue;
                }
                let place = if a.row_ptr.is_some() { held } else { kind.place[k] };
                let t = *nth::<T, FLIP>(values, (*v + place) as isize);
                s = fma(-t, at.x(r as isize + kind.shift[k]), s);
                held += 1;
            }
            at.finish::<UNIT>(r, s);
        }
        *v += a.width(held);
    }
}

/// `count` rows from r on with all of their line's neighbours.
///
/// # Safety
/// As [`edge`]; `values` is where row r begins.
#[inline(always)]
unsafe fn interior<T: Real, const FLIP: bool, const UNIT: bool>(
    a: &Arrays<'_, T>,
    at: &At<T, FLIP>,
    kind: &Kind,
    values: *const T,
    r: usize,
    count: usize,
) {
    let terms = kind.shift.len();
    let width = a.width(terms);
    // In turn from the row's start, and the neighbour before on the line last.
    let is_regular = kind.shift.last() == Some(&-1) && (a.row_ptr.is_some() || terms == a.stencil);
    // SAFETY: the caller's promise.
    unsafe {
        for_terms!(
            if is_regular { terms } else { 0 }, [1 2 3 4 5 6 7 9 10 13 16],
            K => chain::<T, K, FLIP, UNIT>(at, &kind.shift, values, width, r, count),
            {
                let mut values = values;
                for r in r..r + count {
                    let mut s = at.b(r);
                    for k in 0..terms {
                        let place = if a.row_ptr.is_some() { k } else { kind.place[k] };
                        let t = *nth::<T, FLIP>(values, place as isize);
                        s = fma(-t, at.x(r as isize + kind.shift[k]), s);
                    }
                    at.finish::<UNIT>(r, s);
                    values = nth::<T, FLIP>(values, width as isize);
                }
            }
        );
    }
}

/// `count` rows of K terms, the last of which is the row before.
///
/// # Safety
/// As [`interior`].
#[inline(always)]
unsafe fn chain<T: Real, const K: usize, const FLIP: bool, const UNIT: bool>(
    at: &At<T, FLIP>,
    shift: &[isize],
    values: *const T,
    width: usize,
    r: usize,
    count: usize,
) {
    let shift: [isize; K] = std::array::from_fn(|k| shift[k]);
    let mut values = values;
    // SAFETY: the caller's promise.
    unsafe {
        let mut before = at.x(r as isize - 1);
        for r in r..r + count {
            ask::<T, FLIP>(values, width);
            let mut s = at.b(r);
            for k in 0..K - 1 {
                s = fma(-*nth::<T, FLIP>(values, k as isize), at.x(r as isize + shift[k]), s);
            }
            s = fma(-*nth::<T, FLIP>(values, K as isize - 1), before, s);
            before = at.finish::<UNIT>(r, s);
            values = nth::<T, FLIP>(values, width as isize);
        }
    }
}
