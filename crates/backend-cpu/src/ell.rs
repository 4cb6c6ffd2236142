//! ELL on the CPU, and the kernel for packed columns that SELL, HYB, HEC and HMEC share with it.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv`].
//! Order: stored. The kernel works across rows: a strip of rows keeps its accumulators in registers and walks the packed
//! columns; a lane at padding is masked, so x is neither read nor multiplied there. With AVX-512 x is gathered.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};

use spandrel_formats::{Ell, Format, Ordinal, PADDING, Real};

use crate::Cpu;
use crate::partition::Partition;
use crate::product::{Rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};

/// Entries (i, k) of a strip of rows i = 0..lanes at `first + i + stride * k`, k = 0..width.
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
/// The caller vouches that the entries of `out.len()` rows lie inside the arrays and that every column is [`PADDING`] or
/// below `x.len()`.
pub(crate) fn packed<T: Real, const CONTINUE: bool>(simd: Simd, m: Packed<'_, T>, x: &[T], out: &mut [T]) {
    debug_assert!(m.width == 0 || m.first + out.len() + m.stride * (m.width - 1) <= m.cols.len());
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx512 {
        // SAFETY: this level exists only where the processor was found to have it; the caller vouches for the entries.
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

/// Rows of a strip in the scalar kernel: as many accumulators as stay in first-level cache beside the columns.
const STRIP: usize = 32;

simd_fn! {
    fn packed_scalar<T, const CONTINUE: bool>(m: Packed<'_, T>, x: &[T], out: &mut [T]) {
        for (strip, out) in out.chunks_mut(STRIP).enumerate() {
            if !CONTINUE {
                out.fill(T::zero());
            }
            for k in 0..m.width {
                let at = m.first + strip * STRIP + m.stride * k;
                for (i, out) in out.iter_mut().enumerate() {
                    // SAFETY: the caller of `packed` vouches for the entries and for the columns that are not padding.
                    unsafe {
                        let col = *m.cols.get_unchecked(at + i);
                        if col != PADDING {
                            *out = fma(*m.values.get_unchecked(at + i), *x.get_unchecked(col as usize), *out);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{PADDING, Packed};

    /// The vector operations of one element type: `$lanes` elements, 32-bit columns, a mask bit per lane.
    macro_rules! packed {
        ($name:ident, $T:ty, $lanes:literal, $Mask:ty, $zero:expr, $load:ident, $store:ident, $cols:ident, $splat:ident,
         $differ:ident, $gather:ident::<$bytes:literal>, $fma:ident) => {
            /// See [`super::packed`].
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            pub(super) unsafe fn $name<const CONTINUE: bool>(m: Packed<'_, $T>, x: &[$T], out: &mut [$T]) {
                const LANES: usize = $lanes;
                let padding = $splat(PADDING as i32);
                let x = x.as_ptr();
                let mut at = 0;
                while at < out.len() {
                    let left = out.len() - at;
                    // SAFETY: the caller vouches for the entries of the rows at..out.len(); lanes beyond are masked off, and
                    // so are lanes at padding; other columns are below x.len() < 2^31.
                    unsafe {
                        let out = out.as_mut_ptr().add(at);
                        let cols = m.cols.as_ptr().add(m.first + at).cast::<i32>();
                        let values = m.values.as_ptr().add(m.first + at);
                        if left >= 4 * LANES {
                            let all = <$Mask>::MAX;
                            let mut acc = [$zero; 4];
                            if CONTINUE {
                                for (l, acc) in acc.iter_mut().enumerate() {
                                    *acc = $load(all, out.add(l * LANES));
                                }
                            }
                            for k in 0..m.width {
                                for (l, acc) in acc.iter_mut().enumerate() {
                                    let from = m.stride * k + l * LANES;
                                    let col = $cols(all, cols.add(from));
                                    let real = $differ(col, padding);
                                    let x = $gather::<$bytes>($zero, real, col, x);
                                    *acc = $fma($load(all, values.add(from)), x, *acc, real);
                                }
                            }
                            for (l, acc) in acc.iter().enumerate() {
                                $store(out.add(l * LANES), all, *acc);
                            }
                            at += 4 * LANES;
                        } else {
                            let rows = if left >= LANES { <$Mask>::MAX } else { (1 << left) - 1 };
                            let mut acc = if CONTINUE { $load(rows, out) } else { $zero };
                            for k in 0..m.width {
                                let from = m.stride * k;
                                let col = $cols(rows, cols.add(from));
                                let real = $differ(col, padding) & rows;
                                let x = $gather::<$bytes>($zero, real, col, x);
                                acc = $fma($load(rows, values.add(from)), x, acc, real);
                            }
                            $store(out, rows, acc);
                            at += LANES;
                        }
                    }
                }
            }
        };
    }

    packed!(
        packed_f64,
        f64,
        8,
        u8,
        _mm512_setzero_pd(),
        _mm512_maskz_loadu_pd,
        _mm512_mask_storeu_pd,
        _mm256_maskz_loadu_epi32,
        _mm256_set1_epi32,
        _mm256_cmpneq_epi32_mask,
        _mm512_mask_i32gather_pd::<8>,
        _mm512_mask3_fmadd_pd
    );
    packed!(
        packed_f32,
        f32,
        16,
        u16,
        _mm512_setzero_ps(),
        _mm512_maskz_loadu_ps,
        _mm512_mask_storeu_ps,
        _mm512_maskz_loadu_epi32,
        _mm512_set1_epi32,
        _mm512_cmpneq_epi32_mask,
        _mm512_mask_i32gather_ps::<4>,
        _mm512_mask3_fmadd_ps
    );
}

/// An ELL matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuEll<T> {
    host: Arc<Ell<T>>,
    partition: Partition,
}

impl<T: Real> Load<Ell<T>> for Cpu {
    type Resident = CpuEll<T>;

    fn load(&self, host: Arc<Ell<T>>) -> Result<CpuEll<T>> {
        let row = host.width() * (4 + T::BYTES) + 2 * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row);
        Ok(CpuEll { host, partition })
    }
}

/// The accumulators of `rows`.
pub(crate) fn accumulate<T: Real>(simd: Simd, m: &Ell<T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    let strip = Packed { cols: m.cols(), values: m.values(), first: rows.start, stride: m.nrows(), width: m.width() };
    packed::<T, false>(simd, strip, x, out);
}

impl<T: Real> Rows<T> for CpuEll<T> {
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
