//! The product of every row-wise format: the format forms the accumulators of a chunk of rows, and this module finishes
//! them.
//!
//! A format says how to form the accumulators of a range of rows ([`Rows`]). If y is not read (b = 0), they go straight
//! into y, otherwise into a buffer in first-level cache. Then y = fma(a, acc, b*y) and, for a fused dot product, the
//! partial results of the blocks follow while the chunk is still in first-level cache. Formats that store rows in
//! another order write through their permutation.

use std::mem::MaybeUninit;
use std::ops::Range;

use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Coeff, Gate, Result};
use spandrel_formats::{Ordinal, Real};

use crate::backend::axpby_slice;
use crate::device::open;
use crate::dot::{BLOCK, complete, dot, dot_blocks};
use crate::partition::Partition;
use crate::simd::{Simd, fma, simd_fn};
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

/// Maximum number of rows per chunk: 32 KiB of f64 accumulators.
pub(crate) const MAX_CHUNK: usize = 4 * BLOCK;

/// Room for the accumulators of a chunk, aligned like vectors. It is not initialised: most products never use it, and
/// clearing 32 KiB takes longer than a small product.
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

/// A resident matrix whose rows can be formed in any grouping.
pub(crate) trait Rows<T: Real>: Sync {
    /// Rows per chunk: a multiple of [`BLOCK`], at most [`MAX_CHUNK`].
    const CHUNK: usize = BLOCK;
    /// Number of rows.
    fn nrows(&self) -> usize;
    /// Number of columns.
    fn ncols(&self) -> usize;
    /// The partition of the rows among tasks.
    fn partition(&self) -> &Partition;
    /// Writes the accumulators of the stored rows `rows` to `out`. `rows` has at most `CHUNK` rows and begins at a
    /// multiple of 16.
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]);
    /// `perm[stored row] = row of y`, or `None` if both are the same.
    fn perm(&self) -> Option<&[Ordinal]> {
        None
    }
    /// Returns true if `perm` maps every block of [`BLOCK`] rows onto itself, so that a finished block of stored rows
    /// is a finished block of y.
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
    columns("spmv", cpu, gate, a, m, 1, x, b, None, y)
}

/// As [`spmv`], where `m` is the transpose of the matrix.
pub(crate) fn spmv_transposed<T: Real>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    m: &impl Rows<T>,
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    columns("spmv_transposed", cpu, gate, a, m, 1, x, b, None, y)
}

/// Y <- a A X + b Y for `k` columns. A block of rows is read from memory once, and from cache for the other columns.
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
    columns("spmm", cpu, gate, a, m, k, x, b, None, y)
}

/// As [`spmm`], under the name `op`. The old Y is first overwritten with `old`, if that is given. Kernels index without
/// checks, so a wrong size has to stop here.
fn columns<T: Real>(
    op: &'static str,
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    m: &impl Rows<T>,
    k: usize,
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    old: Option<&Vector<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    let (nrows, ncols) = (m.nrows(), m.ncols());
    expect_columns(op, "x", x.len(), ncols, k)?;
    expect_columns(op, "y", y.len(), nrows, k)?;
    if let Some(old) = old {
        expect_columns(op, "b", old.len(), nrows, k)?;
    }
    if !open(gate) {
        return Ok(());
    }
    let (a, b, simd) = (value(a), value(b), cpu.simd());
    let (x, old, y) = (x.as_slice(), old.map(Vector::as_slice), Shared::new(y.as_mut_slice()));
    m.partition().run(cpu, |task| {
        form(simd, a, m, task, k, x, b, old, nrows, ncols, y, &mut Buffer::new());
    });
    Ok(())
}

/// r <- b - A x. A chunk of b is copied to r just before its rows are formed, and read from cache then.
pub(crate) fn residual<T: Real>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    m: &impl Rows<T>,
    b: &Vector<T>,
    x: &Vector<T>,
    r: &mut Vector<T>,
) -> Result<()> {
    columns("residual", cpu, gate, Coeff::host(-T::one()), m, 1, x, Coeff::one(), Some(b), r)
}

/// Computes the rows `task` of k columns of Y, chunk by chunk.
fn form<T: Real, M: Rows<T>>(
    simd: Simd,
    a: T,
    m: &M,
    task: Range<usize>,
    k: usize,
    x: &[T],
    b: T,
    old: Option<&[T]>,
    nrows: usize,
    ncols: usize,
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
                        // SAFETY: a permutation maps disjoint stored rows onto disjoint rows of y, all inside each
                        // column.
                        let y = unsafe { y.at(column * nrows + i as usize) };
                        if let Some(old) = old {
                            *y = old[column * nrows + i as usize];
                        }
                        *y = if b.is_zero() { a * acc } else { fma(a, acc, b * *y) };
                    }
                }
                None => {
                    // SAFETY: tasks own disjoint rows of each of the k columns of Y.
                    let y = unsafe { y.part(column * nrows + rows.start..column * nrows + rows.end) };
                    if let Some(old) = old {
                        y.copy_from_slice(&old[column * nrows + rows.start..column * nrows + rows.end]);
                    }
                    if b.is_zero() {
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
}

simd_fn! {
    /// y <- a*y; does nothing if a = 1.
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
    let blocks = nrows.div_ceil(BLOCK);
    let (x, w, y) = (x.as_slice(), w.as_slice(), Shared::new(y.as_mut_slice()));
    let both = yy.is_some();
    let [wy_sum, yy_sum] = cpu.scratch().with((1 + usize::from(both)) * blocks, |scratch: &mut [T]| {
        let partials = Shared::new(scratch);
        m.partition().run_blocks(cpu, |task| {
            let mut buffer = Buffer::new();
            for start in task.clone().step_by(M::CHUNK) {
                let rows = start..task.end.min(start + M::CHUNK);
                let (first, last) = (start / BLOCK, rows.end.div_ceil(BLOCK));
                form(simd, T::one(), m, rows.clone(), 1, x, T::zero(), None, nrows, ncols, y, &mut buffer);
                // SAFETY: tasks own disjoint rows of y (blockwise also through the permutation) and, as they begin at
                // multiples of BLOCK, disjoint partial results.
                let (y, wy) = unsafe { (y.part(rows.clone()), partials.part(first..last)) };
                dot_blocks(simd, &w[rows], y, wy);
                if both {
                    // SAFETY: as above, in the second half.
                    dot_blocks(simd, y, y, unsafe { partials.part(blocks + first..blocks + last) });
                }
            }
        });
        if both {
            return complete(cpu, scratch);
        }
        complete(cpu, scratch).map(|[wy]| [wy, T::zero()])
    })??;
    wy.0 = wy_sum;
    if let Some(yy) = yy {
        yy.0 = yy_sum;
    }
    Ok(())
}

/// Calls a product of [`crate::product`] with a resident matrix, or with its slices if it has any.
macro_rules! by_rows {
    ($call:ident($be:expr, $gate:expr, [$($before:expr),*] $m:expr, $($after:expr),*)) => {
        $crate::product::$call($be, $gate, $($before,)* $m, $($after),*)
    };
    ($slices:ident $call:ident($be:expr, $gate:expr, [$($before:expr),*] $m:expr, $($after:expr),*)) => {
        match &$m.$slices {
            Some(slices) => $crate::product::$call($be, $gate, $($before,)* slices, $($after),*),
            None => $crate::product::$call($be, $gate, $($before,)* $m, $($after),*),
        }
    };
}
pub(crate) use by_rows;

/// Implements [`spandrel_backend::Spmv`] for a format whose resident form is [`Rows`]. With the name of a field, that
/// field may hold another form with the same rows, which is then multiplied with.
macro_rules! spmv_by_rows {
    ($Format:ident $(, $slices:ident)?) => {
        impl<T: ::spandrel_formats::Real> ::spandrel_backend::Spmv<$Format<T>> for $crate::Cpu {
            fn order(&self) -> ::spandrel_backend::Order {
                ::spandrel_backend::Order::Stored
            }

            fn spmv(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                a: ::spandrel_backend::Coeff<'_, T, $crate::Scalar<T>>,
                m: &Self::Resident,
                x: &$crate::Vector<T>,
                b: ::spandrel_backend::Coeff<'_, T, $crate::Scalar<T>>,
                y: &mut $crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::product::by_rows!($($slices)? spmv(self, gate, [a] m, x, b, y))
            }

            fn residual(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                m: &Self::Resident,
                b: &$crate::Vector<T>,
                x: &$crate::Vector<T>,
                r: &mut $crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::product::by_rows!($($slices)? residual(self, gate, [] m, b, x, r))
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
                $crate::product::by_rows!($($slices)? spmv_dot(self, gate, [] m, x, y, w, wy, yy))
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
