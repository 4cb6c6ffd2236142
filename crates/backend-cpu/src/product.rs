//! How every row-wise format multiplies: a chunk of rows at a time, its accumulators formed by the format and finished here.
//!
//! A format says how the accumulators of a range of rows are formed ([`Rows`]). They go straight into y where y is not
//! read (b = 0), else into a buffer in first-level cache; then y = fma(a, acc, b*y), and for a fused dot product the
//! blocks' partial results, while the chunk is still in first-level cache. Formats that store rows in another order write
//! through their permutation.

use std::mem::MaybeUninit;
use std::ops::Range;

use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Coeff, Gate, Result};
use spandrel_formats::{Ordinal, Real};

use crate::backend::axpby_slice;
use crate::device::open;
use crate::dot::{BLOCK, combine, dot, dot_blocks};
use crate::partition::Partition;
use crate::simd::{Simd, fma, simd_fn};
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

/// The most rows that are formed at a time: 32 KiB of f64 accumulators.
pub(crate) const MAX_CHUNK: usize = 4 * BLOCK;

/// Products that move more bytes than this write y past the caches: nothing of it would be left there for the next operation,
/// and a plain store reads the line from memory first. Twice the largest third-level cache that serves few cores.
const PAST_CACHE: usize = 64 << 20;

/// Room for the accumulators of a chunk, aligned as vectors are. Not initialised: most products never use it, and clearing
/// 32 KiB takes longer than a small product.
#[repr(align(64))]
struct Buffer<T>([MaybeUninit<T>; MAX_CHUNK]);

impl<T: Real> Buffer<T> {
    fn new() -> Self {
        Self([MaybeUninit::uninit(); MAX_CHUNK])
    }

    /// The first `len` places, zeroed.
    fn zeros(&mut self, len: usize) -> &mut [T] {
        let places = &mut self.0[..len];
        places.fill(MaybeUninit::new(T::zero()));
        // SAFETY: every place of the slice was just written.
        unsafe { &mut *(std::ptr::from_mut(places) as *mut [T]) }
    }
}

/// y <- acc by stores that go past the caches, where the processor has them; y begins at a cache line. Needs [`fence`] before
/// another thread may read y.
fn stream<T: Real>(simd: Simd, acc: &[T], y: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx512 && y.as_ptr().addr().is_multiple_of(64) {
        use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_stream_si512};
        #[target_feature(enable = "avx512f")]
        unsafe fn lines(from: *const __m512i, to: *mut __m512i, count: usize) {
            for line in 0..count {
                // SAFETY: the caller's promise: `count` whole lines on both sides, those written aligned.
                unsafe { _mm512_stream_si512(to.add(line), _mm512_loadu_si512(from.add(line))) };
            }
        }
        let each = 64 / T::BYTES;
        let count = acc.len().min(y.len()) / each;
        // SAFETY: `Cpu::with_simd` let no level in that was not detected; both slices hold `count` whole lines; y is aligned to a line.
        unsafe { lines(acc.as_ptr().cast(), y.as_mut_ptr().cast(), count) };
        y[count * each..].copy_from_slice(&acc[count * each..]);
        return;
    }
    let _ = simd;
    y.copy_from_slice(acc);
}

/// Orders the stores of [`stream`] before whatever this thread does next, the hand-over to another thread included.
fn fence(past_cache: bool) {
    #[cfg(target_arch = "x86_64")]
    if past_cache {
        // SAFETY: every x86-64 processor has SSE.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = past_cache;
}

/// A resident matrix whose rows can be formed in any grouping.
pub(crate) trait Rows<T: Real>: Sync {
    /// Rows formed at a time: a multiple of [`BLOCK`], at most [`MAX_CHUNK`].
    const CHUNK: usize = BLOCK;
    /// Number of rows.
    fn nrows(&self) -> usize;
    /// Number of columns.
    fn ncols(&self) -> usize;
    /// How the rows are dealt out.
    fn partition(&self) -> &Partition;
    /// Writes the accumulators of the stored rows `rows` (at most `CHUNK`, beginning at a multiple of 16) to `out`.
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]);
    /// `perm[stored row] = row of y`, or `None` where they are the same.
    fn perm(&self) -> Option<&[Ordinal]> {
        None
    }
    /// Whether `perm` maps every block of [`BLOCK`] rows onto itself, so that a finished block of stored rows is a finished
    /// block of y.
    fn blockwise(&self) -> bool {
        true
    }
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
    columns("spmv", cpu, gate, a, m, 1, x, b, y)
}

/// As [`spmv`] with the transpose of a matrix, which `m` is.
pub(crate) fn spmv_transposed<T: Real>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    m: &impl Rows<T>,
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    columns("spmv_transposed", cpu, gate, a, m, 1, x, b, y)
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
    columns("spmm", cpu, gate, a, m, k, x, b, y)
}

/// As [`spmm`] under the name `op`. Kernels index without a check, so a wrong size ends here.
fn columns<T: Real>(
    op: &'static str,
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    m: &impl Rows<T>,
    k: usize,
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    let (nrows, ncols) = (m.nrows(), m.ncols());
    expect_columns(op, "x", x.len(), ncols, k)?;
    expect_columns(op, "y", y.len(), nrows, k)?;
    if !open(gate) {
        return Ok(());
    }
    let (a, b, simd) = (value(a), value(b), cpu.simd());
    let past_cache = m.partition().bytes() > PAST_CACHE;
    let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
    m.partition().run(cpu, |task| {
        form(simd, a, m, task, k, x, b, nrows, ncols, past_cache, y, &mut Buffer::new());
    });
    Ok(())
}

/// The rows `task` of k columns of Y, chunk by chunk.
fn form<T: Real, M: Rows<T>>(
    simd: Simd,
    a: T,
    m: &M,
    task: Range<usize>,
    k: usize,
    x: &[T],
    b: T,
    nrows: usize,
    ncols: usize,
    past_cache: bool,
    y: Shared<T>,
    buffer: &mut Buffer<T>,
) {
    for start in task.clone().step_by(M::CHUNK) {
        let rows = start..task.end.min(start + M::CHUNK);
        for column in 0..k {
            let x = &x[column * ncols..(column + 1) * ncols];
            match m.perm() {
                Some(perm) => {
                    let acc = buffer.zeros(rows.len());
                    m.accumulate(simd, rows.clone(), x, acc);
                    for (&i, &acc) in perm[rows.clone()].iter().zip(&*acc) {
                        // SAFETY: a permutation maps disjoint stored rows onto disjoint rows of y, all inside each column.
                        let y = unsafe { y.at(column * nrows + i as usize) };
                        *y = if b.is_zero() { a * acc } else { fma(a, acc, b * *y) };
                    }
                }
                None => {
                    // SAFETY: tasks own disjoint rows of each of the k columns of Y.
                    let y = unsafe { y.part(column * nrows + rows.start..column * nrows + rows.end) };
                    if b.is_zero() && past_cache {
                        let acc = buffer.zeros(rows.len());
                        m.accumulate(simd, rows.clone(), x, acc);
                        scale(simd, a, acc);
                        stream(simd, acc, y);
                    } else if b.is_zero() {
                        m.accumulate(simd, rows.clone(), x, y);
                        scale(simd, a, y);
                    } else {
                        let acc = buffer.zeros(rows.len());
                        m.accumulate(simd, rows.clone(), x, acc);
                        axpby_slice(simd, a, acc, b, y);
                    }
                }
            }
        }
    }
    fence(past_cache);
}

simd_fn! {
    /// y <- a*y, nothing to do for a = 1.
    pub(crate) fn scale<T>(a: T, y: &mut [T]) {
        if !a.is_one() {
            y.iter_mut().for_each(|y| *y = a * *y);
        }
    }
}

/// y <- A x; wy <- w . y; yy <- y . y.
pub(crate) fn spmv_dot<T: Real, M: Rows<T>>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    m: &M,
    x: &Vector<T>,
    y: &mut Vector<T>,
    w: &Vector<T>,
    wy: &mut Scalar<T>,
    yy: Option<&mut Scalar<T>>,
) -> Result<()> {
    let (nrows, ncols) = (m.nrows(), m.ncols());
    expect_len("spmv_dot", "x", x.len(), ncols)?;
    expect_len("spmv_dot", "y", y.len(), nrows)?;
    expect_len("spmv_dot", "w", w.len(), nrows)?;
    if !open(gate) {
        return Ok(());
    }
    if !m.blockwise() {
        spmv(cpu, gate, Coeff::one(), m, x, Coeff::zero(), y)?;
        wy.0 = dot(cpu, w.as_slice(), y.as_slice())?;
        if let Some(yy) = yy {
            yy.0 = dot(cpu, y.as_slice(), y.as_slice())?;
        }
        return Ok(());
    }
    let simd = cpu.simd();
    let past_cache = m.partition().bytes() > PAST_CACHE && m.perm().is_none();
    let blocks = nrows.div_ceil(BLOCK);
    let (x, w, y) = (x.as_slice(), w.as_slice(), Shared::new(y.as_mut_slice()));
    let both = yy.is_some();
    let sums = cpu.scratch().with(2 * blocks, |scratch: &mut [T]| {
        let partials = Shared::new(scratch);
        m.partition().run_blocks(cpu, |task| {
            let mut buffer = Buffer::new();
            for start in task.clone().step_by(M::CHUNK) {
                let rows = start..task.end.min(start + M::CHUNK);
                let (first, last) = (start / BLOCK, rows.end.div_ceil(BLOCK));
                if !past_cache {
                    form(simd, T::one(), m, rows.clone(), 1, x, T::zero(), nrows, ncols, false, y, &mut buffer);
                }
                // SAFETY: tasks own disjoint rows of y (blockwise also through the permutation) and, as they begin at
                // multiples of BLOCK, disjoint partial results.
                let (y, wy) = unsafe { (y.part(rows.clone()), partials.part(first..last)) };
                let formed = if past_cache {
                    let acc = buffer.zeros(rows.len());
                    m.accumulate(simd, rows.clone(), x, acc);
                    stream(simd, acc, y);
                    &*acc
                } else {
                    &*y
                };
                dot_blocks(simd, &w[rows], formed, wy);
                if both {
                    // SAFETY: as above, in the second half.
                    dot_blocks(simd, formed, formed, unsafe { partials.part(blocks + first..blocks + last) });
                }
            }
            fence(past_cache);
        });
        let (first, second) = scratch.split_at_mut(blocks);
        [combine(first), if both { combine(second) } else { T::zero() }]
    })?;
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
