//! How every row-wise format multiplies: 1024 rows at a time, the accumulators of a block formed by the format and finished
//! here.
//!
//! A format says how the accumulators of a range of rows are formed ([`Rows`]). They go straight into y where y is not
//! read (b = 0), else into a buffer in first-level cache; then y = fma(a, acc, b*y), and for a fused dot product the
//! block's partial result, while the block is still in first-level cache.

use std::ops::Range;

use spandrel_backend::{Coeff, Gate, Result};
use spandrel_formats::Real;

use crate::backend::axpby_slice;
use crate::device::open;
use crate::dot::{BLOCK, combine, dot_blocks};
use crate::partition::Partition;
use crate::simd::Simd;
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

/// A resident matrix whose rows can be formed in any grouping.
pub(crate) trait Rows<T: Real>: Sync {
    /// Number of rows.
    fn nrows(&self) -> usize;
    /// Number of columns.
    fn ncols(&self) -> usize;
    /// How the rows are dealt out.
    fn partition(&self) -> &Partition;
    /// Writes the accumulators of `rows` (at most [`BLOCK`] rows, beginning at a multiple of 16) to `out`.
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]);
}

/// y <- a A x + b y.
pub(crate) fn spmv<T: Real>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    m: &impl Rows<T>,
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    spmm(cpu, gate, a, m, 1, x, b, y)
}

/// Y <- a A X + b Y, `k` columns: a block of rows is read from memory once and from cache for the other columns.
pub(crate) fn spmm<T: Real>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    m: &impl Rows<T>,
    k: usize,
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    if !open(gate) {
        return Ok(());
    }
    let (a, b, simd) = (value(a), value(b), cpu.simd());
    let (nrows, ncols) = (m.nrows(), m.ncols());
    let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
    m.partition().run(cpu, |task| {
        let mut buffer = [T::zero(); BLOCK];
        for start in task.clone().step_by(BLOCK) {
            let rows = start..task.end.min(start + BLOCK);
            for column in 0..k {
                let x = &x[column * ncols..(column + 1) * ncols];
                // SAFETY: tasks own disjoint rows of each of the k columns of Y.
                let y = unsafe { y.part(column * nrows + rows.start..column * nrows + rows.end) };
                block(simd, a, m, rows.clone(), x, b, y, &mut buffer);
            }
        }
    });
    Ok(())
}

#[inline(always)]
fn block<T: Real>(
    simd: Simd,
    a: T,
    m: &impl Rows<T>,
    rows: Range<usize>,
    x: &[T],
    b: T,
    y: &mut [T],
    buffer: &mut [T; BLOCK],
) {
    if b.is_zero() {
        m.accumulate(simd, rows, x, y);
        if !a.is_one() {
            y.iter_mut().for_each(|y| *y *= a);
        }
    } else {
        let acc = &mut buffer[..y.len()];
        m.accumulate(simd, rows, x, acc);
        axpby_slice(simd, a, acc, b, y);
    }
}

/// y <- A x; wy <- w . y; yy <- y . y.
pub(crate) fn spmv_dot<T: Real>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    m: &impl Rows<T>,
    x: &Vector<T>,
    y: &mut Vector<T>,
    w: &Vector<T>,
    wy: &mut Scalar<T>,
    yy: Option<&mut Scalar<T>>,
) -> Result<()> {
    if !open(gate) {
        return Ok(());
    }
    let simd = cpu.simd();
    let blocks = m.nrows().div_ceil(BLOCK);
    let (x, w, y) = (x.as_slice(), w.as_slice(), Shared::new(y.as_mut_slice()));
    let both = yy.is_some();
    let sums = cpu.scratch().with(2 * blocks, |scratch: &mut [T]| {
        let partials = Shared::new(scratch);
        m.partition().run_blocks(cpu, |task| {
            for start in task.clone().step_by(BLOCK) {
                let rows = start..task.end.min(start + BLOCK);
                let at = start / BLOCK;
                // SAFETY: tasks own disjoint rows of y and, as they begin at multiples of BLOCK, disjoint partial results.
                let y = unsafe { y.part(rows.clone()) };
                m.accumulate(simd, rows.clone(), x, y);
                // SAFETY: as above.
                dot_blocks(simd, &w[rows], y, unsafe { partials.part(at..at + 1) });
                if both {
                    // SAFETY: as above, in the second half.
                    dot_blocks(simd, y, y, unsafe { partials.part(blocks + at..blocks + at + 1) });
                }
            }
        });
        let (first, second) = scratch.split_at_mut(blocks);
        [combine(first), if both { combine(second) } else { T::zero() }]
    });
    wy.0 = sums[0];
    if let Some(yy) = yy {
        yy.0 = sums[1];
    }
    Ok(())
}

/// Implements [`spandrel_backend::Spmv`] for a format whose resident form is [`Rows`].
macro_rules! spmv_by_rows {
    ($Format:ident) => {
        impl<T: ::spandrel_formats::Real> ::spandrel_backend::Spmv<$Format<T>> for $crate::Cpu {
            const ORDER: ::spandrel_backend::Order = ::spandrel_backend::Order::Stored;

            fn spmv(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                a: ::spandrel_backend::Coeff<'_, T, $crate::Scalar<T>>,
                m: &Self::Resident,
                x: &$crate::Vector<T>,
                b: ::spandrel_backend::Coeff<'_, T, $crate::Scalar<T>>,
                y: &mut $crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::product::spmv(self, gate, a, m, x, b, y)
            }

            fn spmv_dot(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                m: &Self::Resident,
                x: &$crate::Vector<T>,
                y: &mut $crate::Vector<T>,
                w: &$crate::Vector<T>,
                wy: &mut $crate::Scalar<T>,
                yy: Option<&mut $crate::Scalar<T>>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::product::spmv_dot(self, gate, m, x, y, w, wy, yy)
            }
        }
    };
}
pub(crate) use spmv_by_rows;

/// Implements [`spandrel_backend::Spmm`] for a format whose resident form is [`Rows`].
macro_rules! spmm_by_rows {
    ($Format:ident) => {
        impl<T: ::spandrel_formats::Real> ::spandrel_backend::Spmm<$Format<T>> for $crate::Cpu {
            fn spmm(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                a: ::spandrel_backend::Coeff<'_, T, $crate::Scalar<T>>,
                m: &Self::Resident,
                k: usize,
                x: &$crate::Vector<T>,
                b: ::spandrel_backend::Coeff<'_, T, $crate::Scalar<T>>,
                y: &mut $crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::product::spmm(self, gate, a, m, k, x, b, y)
            }
        }
    };
}
pub(crate) use spmm_by_rows;
