//! The solve of consecutive rows of a grid.
//!
//! Rows are counted in the order of their solve. Values are counted in the order of the lower triangle that T is or,
//! mirrored, represents. If these orders run from the end of memory to its start (`FLIP`), element i of an array of n
//! is n - 1 - i.
//! Order: [`spandrel_sptrsv::serial`]'s. Only the last term of a row, the preceding neighbour on the line, waits for
//! the preceding row, and it is passed on in a register. The earlier terms overlap with those of other rows.

use std::marker::PhantomData;
use std::ops::Range;

use spandrel_formats::{Offset, Real};
use spandrel_sptrsv::sweep::Lattice;
use spandrel_sptrsv::{Triangle, Triangular};

use super::lines::{Kind, Lines};
use crate::simd::{fma, simd_fn};

/// How many bytes ahead of their use values are prefetched. The hardware prefetcher restarts at every page.
const AHEAD: usize = 2048;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;

/// The diagonal is 1.
pub(super) const UNIT: u8 = 0;
/// The reciprocals of the diagonal are read from their array.
pub(super) const INVERSE: u8 = 1;
/// The reciprocals are computed from the diagonal entries, which are read with the other values. This costs one
/// division per row, off the critical path; it gives the same bits and moves fewer bytes.
pub(super) const STORED: u8 = 2;

/// What a solve reads and writes.
pub(super) struct Arrays<'a, T> {
    n: usize,
    lines: &'a Lines,
    /// Where rows begin among the values; `None` if they are index-free.
    row_ptr: Option<&'a [Offset]>,
    /// Number of entries of an index-free row.
    stencil: usize,
    /// Number of diagonal entries per row among the values, 0 or 1.
    diagonal: usize,
    triangle: Triangle,
    values: &'a [T],
    inv_diag: &'a [T],
    b: *const T,
    x: *mut T,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: threads write disjoint elements of x and read only elements that were written before, in the order that the
// schedule guarantees.
unsafe impl<T: Sync + Send> Sync for Arrays<'_, T> {}

impl<'a, T: Real> Arrays<'a, T> {
    /// The arrays of a verified triangle. `filled` holds its index-free values; without them its lattice is whole.
    /// Without b, it is in x.
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

    /// Position where row r of the lower triangle begins.
    #[inline(always)]
    fn start(&self, r: usize) -> usize {
        match (self.row_ptr, self.triangle) {
            (None, _) => r * self.stencil,
            (Some(ptr), Triangle::Lower) => ptr[r] as usize,
            (Some(ptr), Triangle::Upper) => self.values.len() - ptr[self.n - r] as usize,
        }
    }

    /// Number of values of a row with `terms` terms.
    #[inline(always)]
    fn width(&self, terms: usize) -> usize {
        if self.row_ptr.is_some() { terms + self.diagonal } else { self.stencil }
    }
}

/// Pointer to element `i`, where `p` points to element 0; counted backwards in memory if FLIP.
#[inline(always)]
fn nth<T, const FLIP: bool>(p: *const T, i: isize) -> *const T {
    p.wrapping_offset(if FLIP { -i } else { i })
}

/// Pointer to element 0 of an array of `n`.
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
    /// Finishes row r from its sum and returns its x. `d` points to its diagonal entry if the diagonal is [`STORED`].
    ///
    /// # Safety
    /// `r` is a row that no other thread solves.
    #[inline(always)]
    unsafe fn finish<const DIAGONAL: u8>(&self, r: usize, s: T, d: *const T) -> T {
        // SAFETY: the caller's promise; the reciprocals are those of all rows.
        unsafe {
            let x = match DIAGONAL {
                UNIT => s,
                INVERSE => s * *nth::<T, FLIP>(self.inv_diag, r as isize),
                _ => s * (T::one() / *d),
            };
            *nth::<T, FLIP>(self.x, r as isize).cast_mut() = x;
            x
        }
    }
}

/// Prefetches the values of a row some rows ahead.
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

/// Maximum number of runs of a row in [`for_runs`], and of terms.
pub(super) const MAX_RUNS: usize = 8;
const MAX_TERMS: usize = 16;

/// The terms of rows whose runs are RUNS: see [`Kind::runs`].
struct Terms<const RUNS: u64>;

impl<const RUNS: u64> Terms<RUNS> {
    /// Number of terms.
    const COUNT: usize = {
        let (mut count, mut runs) = (0, RUNS);
        while runs > 0 {
            count += (runs & 15) as usize;
            runs >>= 4;
        }
        count
    };
    /// Run of each term, and its position within the run.
    const PLACES: [(usize, isize); MAX_TERMS] = {
        let mut places = [(0, 0); MAX_TERMS];
        let (mut k, mut g, mut i) = (0, 0, 0);
        while k < Self::COUNT {
            places[k] = (g, i);
            k += 1;
            i += 1;
            if i as u64 == RUNS >> (4 * g) & 15 {
                (g, i) = (g + 1, 0);
            }
        }
        places
    };

    /// Returns, for each run, the value of its first term.
    #[inline(always)]
    fn first<V: Copy>(of_terms: &[V]) -> [V; MAX_RUNS] {
        let mut first = [of_terms[0]; MAX_RUNS];
        for k in 0..Self::COUNT {
            if Self::PLACES[k].1 == 0 {
                first[Self::PLACES[k].0] = of_terms[k];
            }
        }
        first
    }
}

/// Evaluates `$solve` with the constant RUNS for the rows that common stencils have inside and at the sides of a grid,
/// and `$other` for the rest. The stencils are stars of radius 1, the 9-point and 27-point boxes, and those of 13, 15,
/// 19 and 33 points.
macro_rules! for_runs {
    ($runs:expr, $RUNS:ident => $solve:expr, $other:expr) => {
        for_runs!(@ $runs, [0x1 0x11 0x111 0x13 0x133 0x1333 0x13333 0x21111 0x1111111 0x13131 0x2313331], $RUNS => $solve, $other)
    };
    (@ $runs:expr, [$($known:literal)*], $RUNS:ident => $solve:expr, $other:expr) => {
        match $runs {
            $($known => { const $RUNS: u64 = $known; $solve })*
            _ => $other,
        }
    };
}

simd_fn! {
    /// Solves rows. With FLIP they run from the end of memory to its start.
    ///
    /// The caller ensures that the neighbours are solved and that the invariants of [`Arrays`] hold.
    pub(super) fn solve_rows<T, const FLIP: bool, const DIAGONAL: u8>(a: &Arrays<'_, T>, rows: Range<usize>) {
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
                    edge::<T, FLIP, DIAGONAL>(a, &at, kind, values, first, x..inside.start, &mut v);
                    let r = first + inside.start;
                    let from = nth::<T, FLIP>(values, v as isize);
                    interior::<T, FLIP, DIAGONAL>(a, &at, kind, from, r, inside.len());
                    v += inside.len() * a.width(kind.shift.len());
                    edge::<T, FLIP, DIAGONAL>(a, &at, kind, values, first, inside.end..end, &mut v);
                } else {
                    edge::<T, FLIP, DIAGONAL>(a, &at, kind, values, first, x..end, &mut v);
                }
            }
            r = first + end;
        }
    }
}

/// Solves the rows x at the ends of a line, where some of its neighbours are missing.
///
/// # Safety
/// The rows' neighbours are solved; row x.start begins at `v`.
#[inline(always)]
unsafe fn edge<T: Real, const FLIP: bool, const DIAGONAL: u8>(
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
        // SAFETY: the caller's promise. Terms inside the line are stored one after the other, or at their position in
        // the stencil.
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
            at.finish::<DIAGONAL>(r, s, nth::<T, FLIP>(values, (*v + held) as isize));
        }
        *v += a.width(held);
    }
}

/// Solves `count` rows from r on that have all of their line's neighbours.
///
/// # Safety
/// As for [`edge`]; `values` points to the start of row r.
#[inline(always)]
unsafe fn interior<T: Real, const FLIP: bool, const DIAGONAL: u8>(
    a: &Arrays<'_, T>,
    at: &At<T, FLIP>,
    kind: &Kind,
    values: *const T,
    r: usize,
    count: usize,
) {
    let terms = kind.shift.len();
    let width = a.width(terms);
    // The values follow each other from the row's start.
    let in_turn = a.row_ptr.is_some() || terms == a.stencil;
    // SAFETY: the caller's promise.
    unsafe {
        for_runs!(
            if in_turn { kind.runs } else { 0 },
            RUNS => chain::<T, RUNS, FLIP, DIAGONAL>(at, &kind.shift, values, width, r, count),
            {
                let mut values = values;
                for r in r..r + count {
                    let mut s = at.b(r);
                    for k in 0..terms {
                        let place = if a.row_ptr.is_some() { k } else { kind.place[k] };
                        let t = *nth::<T, FLIP>(values, place as isize);
                        s = fma(-t, at.x(r as isize + kind.shift[k]), s);
                    }
                    at.finish::<DIAGONAL>(r, s, nth::<T, FLIP>(values, terms as isize));
                    values = nth::<T, FLIP>(values, width as isize);
                }
            }
        );
    }
}

/// Solves `count` rows with the terms of RUNS, the last of which is the preceding row.
///
/// # Safety
/// As for [`interior`].
#[inline(always)]
unsafe fn chain<T: Real, const RUNS: u64, const FLIP: bool, const DIAGONAL: u8>(
    at: &At<T, FLIP>,
    shift: &[isize],
    values: *const T,
    width: usize,
    r: usize,
    count: usize,
) {
    let shift = Terms::<RUNS>::first(shift);
    let mut values = values;
    // SAFETY: the caller's promise.
    unsafe {
        let mut before = at.x(r as isize - 1);
        for r in r..r + count {
            ask::<T, FLIP>(values, width);
            let mut s = at.b(r);
            for k in 0..Terms::<RUNS>::COUNT {
                let (run, i) = Terms::<RUNS>::PLACES[k];
                let is_last = k + 1 == Terms::<RUNS>::COUNT;
                let x = if is_last { before } else { at.x(r as isize + shift[run] + i) };
                s = fma(-*nth::<T, FLIP>(values, k as isize), x, s);
            }
            before = at.finish::<DIAGONAL>(r, s, nth::<T, FLIP>(values, Terms::<RUNS>::COUNT as isize));
            values = nth::<T, FLIP>(values, width as isize);
        }
    }
}
