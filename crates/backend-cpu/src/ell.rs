//! ELL on the CPU, and the kernel for packed columns that SELL, HYB, HEC and HMEC share with it.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//! Order: stored. The kernel works across rows: the accumulators of a chunk of rows stay in first-level cache while the
//! packed columns pass over them, three at a time. A lane at padding is masked, so x is not multiplied there.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};

use spandrel_formats::{Ell, Ordinal, PADDING, Real};

use crate::Cpu;
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};

/// Packed rows: entry (i, k) of row i is at `first + i + stride * k`, for k = 0..width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a, T> {
    pub(crate) cols: &'a [Ordinal],
    pub(crate) values: &'a [T],
    pub(crate) first: usize,
    pub(crate) stride: usize,
    pub(crate) width: usize,
}

/// out[i] <- the accumulator through the entries of row i, from +0 or (CONTINUE) from out[i].
///
/// The caller ensures that the entries of `out.len()` rows lie inside the arrays and that every column is [`PADDING`]
/// or below `x.len()`.
pub(crate) fn packed<T: Real, const CONTINUE: bool>(simd: Simd, m: Packed<'_, T>, x: &[T], out: &mut [T]) {
    debug_assert!(m.width == 0 || m.first + out.len() + m.stride * (m.width - 1) <= m.cols.len());
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx512 {
        // SAFETY: the level is that of a `Cpu`, which never exceeds the processor's; the caller ensures that the
        // entries are valid.
        unsafe {
            if T::BYTES == 8 {
                avx512::packed_f64::<CONTINUE>(cast(m), bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out));
            } else {
                avx512::packed_f32::<CONTINUE>(cast(m), bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out));
            }
        }
        return;
    }
    packed_scalar::<T, CONTINUE>(simd, m, x, out);
}

#[cfg(target_arch = "x86_64")]
fn cast<T: Real, U: Real>(m: Packed<'_, T>) -> Packed<'_, U> {
    Packed { cols: m.cols, values: bytemuck::cast_slice(m.values), first: m.first, stride: m.stride, width: m.width }
}

/// Rows per strip: their accumulators fill four AVX-512 registers in f32 and eight in f64.
const STRIP: usize = 64;

/// Number of columns that pass over the accumulators of a chunk together; each is two streams through memory. A band of
/// 33 diagonals on one thread of a Zen 5 takes 41 ms with 1, 33 with 2, 28 with 3, 37 with 4, 47 with 9.
const TOGETHER: usize = 3;

/// Continues the rows of `out`, which begin at row `at`, through the given columns.
#[inline(always)]
fn packed_rows<T: Real>(m: Packed<'_, T>, columns: Range<usize>, x: &[T], at: usize, out: &mut [T]) {
    for (i, out) in out.iter_mut().enumerate() {
        for k in columns.clone() {
            let from = m.first + at + i + m.stride * k;
            // SAFETY: the caller of `packed` ensures that the entries, and the columns that are not padding, are valid.
            unsafe {
                let col = *m.cols.get_unchecked(from);
                if col != PADDING {
                    *out = fma(*m.values.get_unchecked(from), *x.get_unchecked(col as usize), *out);
                }
            }
        }
    }
}

simd_fn! {
    fn packed_scalar<T, const CONTINUE: bool>(m: Packed<'_, T>, x: &[T], out: &mut [T]) {
        if !CONTINUE {
            out.fill(T::zero());
        }
        for first in (0..m.width).step_by(TOGETHER) {
            packed_rows(m, first..m.width.min(first + TOGETHER), x, 0, out);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::{PADDING, Packed, TOGETHER, packed_rows};
    use crate::simd::prefetch;

    /// Defines the kernel of one element type: `$lanes` elements, 32-bit columns, one mask bit per lane.
    macro_rules! packed {
        ($name:ident, $strip:ident, $T:ty, $lanes:literal, $load:ident, $store:ident, $Cols:ty, $cols:ident, $select:ident,
         $splat:ident, $differ:ident, $gather:ident::<$bytes:literal>, $fma:ident) => {
            /// See [`super::packed`].
            ///
            /// # Safety
            /// The processor has AVX-512; the entries are as [`super::packed`] requires.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            pub(super) unsafe fn $name<const CONTINUE: bool>(m: Packed<'_, $T>, x: &[$T], out: &mut [$T]) {
                if !CONTINUE {
                    out.fill(0.0);
                }
                // The columns of a slice follow each other in memory, so all of them may pass at once.
                let slices = m.stride < 4 * super::STRIP;
                let (together, ahead) = if slices { (m.width.max(1), 512) } else { (TOGETHER, 256) };
                for first in (0..m.width).step_by(together) {
                    let columns = first..m.width.min(first + together);
                    let mut at = 0;
                    // SAFETY: the caller's promise; the strips lie inside `out`.
                    unsafe {
                        while at + 4 * $lanes <= out.len() {
                            $strip::<4>(m, columns.clone(), ahead, x, at, out.as_mut_ptr());
                            at += 4 * $lanes;
                        }
                        // A slice of 32 rows is two vectors of f32. One at a time would wait for each gather.
                        while at + 2 * $lanes <= out.len() {
                            $strip::<2>(m, columns.clone(), ahead, x, at, out.as_mut_ptr());
                            at += 2 * $lanes;
                        }
                        while at + $lanes <= out.len() {
                            $strip::<1>(m, columns.clone(), ahead, x, at, out.as_mut_ptr());
                            at += $lanes;
                        }
                    }
                    packed_rows(m, columns, x, at, &mut out[at..]);
                }
            }

            /// Continues the rows at..at + VECTORS * lanes of `out` through the given columns.
            ///
            /// # Safety
            /// As above, and these rows lie inside `out`.
            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn $strip<const VECTORS: usize>(
                m: Packed<'_, $T>,
                columns: Range<usize>,
                ahead: usize,
                x: &[$T],
                at: usize,
                out: *mut $T,
            ) {
                const LANES: usize = $lanes;
                let padding = $splat(PADDING as i32);
                // SAFETY: the caller's promise. A lane at padding reads x[0], which exists because another lane has an
                // entry, and is masked off. All other columns are below x.len() < 2^31.
                unsafe {
                    let mut acc: [_; VECTORS] = std::array::from_fn(|l| $load(out.add(at + l * LANES)));
                    for k in columns {
                        let from = m.first + at + m.stride * k;
                        for (l, acc) in acc.iter_mut().enumerate() {
                            let from = from + l * LANES;
                            prefetch(m.values, from + ahead);
                            prefetch(m.cols, from + ahead);
                            let cols: $Cols = $cols(m.cols.as_ptr().add(from).cast());
                            let real = $differ(cols, padding);
                            if real == 0 {
                                continue;
                            }
                            // A gather under a partial mask takes ten times as long. So the gather always has a full
                            // mask, and only the multiplication is masked.
                            let x = $gather::<$bytes>($select(real, cols), x.as_ptr());
                            *acc = $fma($load(m.values.as_ptr().add(from)), x, *acc, real);
                        }
                    }
                    for (l, acc) in acc.into_iter().enumerate() {
                        $store(out.add(at + l * LANES), acc);
                    }
                }
            }
        };
    }

    packed!(
        packed_f64,
        strip_f64,
        f64,
        8,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        __m256i,
        _mm256_loadu_si256,
        _mm256_maskz_mov_epi32,
        _mm256_set1_epi32,
        _mm256_cmpneq_epi32_mask,
        _mm512_i32gather_pd::<8>,
        _mm512_mask3_fmadd_pd
    );
    packed!(
        packed_f32,
        strip_f32,
        f32,
        16,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        __m512i,
        _mm512_loadu_si512,
        _mm512_maskz_mov_epi32,
        _mm512_set1_epi32,
        _mm512_cmpneq_epi32_mask,
        _mm512_i32gather_ps::<4>,
        _mm512_mask3_fmadd_ps
    );
}

/// An ELL matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuEll<T> {
    host: Arc<Ell<T>>,
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Ell<T>> for Cpu {
    type Resident = CpuEll<T>;

    fn load(&self, host: Arc<Ell<T>>) -> Result<CpuEll<T>> {
        let row = host.width() * (4 + T::BYTES) + 2 * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row);
        Ok(CpuEll { host, partition })
    }
}

/// Forms the accumulators of `rows`.
pub(crate) fn accumulate<T: Real>(simd: Simd, m: &Ell<T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    let strip = Packed { cols: m.cols(), values: m.values(), first: rows.start, stride: m.nrows(), width: m.width() };
    packed::<T, false>(simd, strip, x, out);
}

impl<T: Real> Rows<T> for CpuEll<T> {
    const CHUNK: usize = MAX_CHUNK;

    fn nrows(&self) -> usize {
        self.host.nrows()
    }
    fn ncols(&self) -> usize {
        self.host.ncols()
    }
    fn partition(&self) -> &Partition {
        &self.partition
    }
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]) {
        accumulate(simd, &self.host, rows, x, out);
    }
}

spmv_by_rows!(Ell);
