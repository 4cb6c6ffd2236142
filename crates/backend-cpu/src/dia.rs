//! DIA on the CPU, and the kernel for diagonals that bDIA shares with it.
//!
//! Layout: the host matrix itself, shared, and its offsets. A large f64 matrix that no one else holds and whose values
//! f32 holds exactly is kept as offsets and f32 values. Cost: [`spandrel_formats::Traffic::spmv_bytes`], with half of
//! the bytes of the values in f32.
//! Order: stored, by ascending offset, in both forms. Widening is exact, so a product has the same bits from either.
//! The kernel works across rows: the accumulators of a chunk of 4096 rows stay in first-level cache while the diagonals
//! pass over them, nine at a time. During each pass the accumulators of 64 rows are in registers.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Convert, Converted, Load, Result};
use spandrel_formats::{Csr, Dia, Format, Real, Traffic};

use crate::kept::{Host, Kept};
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};
use crate::spgemm::typed;
use crate::{Cpu, CpuCsr};

/// Number of diagonals that pass over the accumulators together. It is small because, if the number of rows is a large
/// power of two, all diagonals fall into the same sets of a cache, and each set has only 8 to 12 places.
const TOGETHER: usize = 9;
/// Number of rows whose accumulators stay in registers during a pass.
const STRIP: usize = 64;

/// Diagonals stored one after the other, with `nrows` values each, as products read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diagonals<'a, T> {
    pub(crate) offsets: &'a [i32],
    pub(crate) values: Values<'a, T>,
    pub(crate) nrows: usize,
}

/// The values that products read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a, T> {
    Own(&'a [T]),
    /// f32 values of an f64 matrix.
    Narrow(&'a [f32]),
}

impl<T> Diagonals<'_, T> {
    /// Returns some of the diagonals.
    fn group(self, of: Range<usize>) -> Self {
        let from = of.start * self.nrows;
        let values = match self.values {
            Values::Own(values) => Values::Own(&values[from..]),
            Values::Narrow(values) => Values::Narrow(&values[from..]),
        };
        Self { offsets: &self.offsets[of], values, ..self }
    }
}

/// out <- the accumulators of `rows`.
pub(crate) fn diagonals<T: Real>(simd: Simd, m: Diagonals<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    out.fill(T::zero());
    for first in (0..m.offsets.len()).step_by(TOGETHER) {
        let group = first..m.offsets.len().min(first + TOGETHER);
        // Offsets ascend, so the first diagonal of the group begins last and the last one ends first.
        let begin = inside(m.offsets[group.start], x.len(), &rows).start;
        let end = inside(m.offsets[group.end - 1], x.len(), &rows).end.max(begin);
        let strips = begin..begin + (end - begin) / STRIP * STRIP;
        let m = m.group(group);
        clipped(simd, m, rows.start..strips.start, x, &mut out[..strips.start - rows.start]);
        whole_strips(simd, m, strips.clone(), x, &mut out[strips.start - rows.start..strips.end - rows.start]);
        clipped(simd, m, strips.end..rows.end, x, &mut out[strips.end - rows.start..]);
    }
}

/// The rows of `rows` in which diagonal `offset` lies inside a matrix of `ncols` columns.
#[inline(always)]
fn inside(offset: i32, ncols: usize, rows: &Range<usize>) -> Range<usize> {
    let (first, last) = (rows.start as i64, rows.end as i64);
    let begin = (-i64::from(offset)).clamp(first, last);
    let end = (ncols as i64 - i64::from(offset)).clamp(begin, last);
    begin as usize..end as usize
}

/// Positions of the values of rows `rows` of diagonal `k`, and of the elements of x that they multiply.
#[inline(always)]
fn run<T>(m: Diagonals<'_, T>, k: usize, rows: &Range<usize>) -> (Range<usize>, Range<usize>) {
    let (first, from) = (k * m.nrows, (rows.start as i64 + i64::from(m.offsets[k])) as usize);
    (first + rows.start..first + rows.end, from..from + rows.len())
}

simd_fn! {
    /// out <- the accumulators continued through the diagonals, each only where it lies inside the matrix.
    fn clipped<T>(m: Diagonals<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
        for k in 0..m.offsets.len() {
            let inside = inside(m.offsets[k], x.len(), &rows);
            if inside.is_empty() {
                continue;
            }
            let (places, met) = run(m, k, &inside);
            let out = out[inside.start - rows.start..inside.end - rows.start].iter_mut().zip(&x[met]);
            match m.values {
                Values::Own(values) => {
                    out.zip(&values[places]).for_each(|((out, &x), &v)| *out = fma(v, x, *out));
                }
                Values::Narrow(values) => {
                    out.zip(&values[places]).for_each(|((out, &x), v)| *out = fma(T::from_f64(v.as_f64()), x, *out));
                }
            }
        }
    }
}

/// As [`clipped`], for whole strips of rows in which every diagonal lies inside the matrix.
fn whole_strips<T: Real>(simd: Simd, m: Diagonals<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx512 {
        use bytemuck::{cast_slice, cast_slice_mut};
        // SAFETY: the level is that of a `Cpu`, which never exceeds the processor's; the element type follows from its
        // size.
        unsafe {
            match (m.values, T::BYTES) {
                (Values::Own(values), 8) => {
                    avx512::strips_f64(m, cast_slice(values), rows, cast_slice(x), cast_slice_mut(out))
                }
                (Values::Own(values), _) => {
                    avx512::strips_f32(m, cast_slice(values), rows, cast_slice(x), cast_slice_mut(out))
                }
                (Values::Narrow(values), _) => {
                    avx512::strips_narrow(m, values, rows, cast_slice(x), cast_slice_mut(out))
                }
            }
        }
        return;
    }
    clipped(simd, m, rows, x, out);
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::{Diagonals, STRIP, run};
    use crate::simd::prefetch;

    /// How many bytes ahead of their use values are prefetched.
    const AHEAD: usize = 2048;

    /// Loads eight f32 values as f64.
    ///
    /// # Safety
    /// The processor has AVX-512; eight values are readable there.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn widened(values: *const f32) -> __m512d {
        // SAFETY: the caller's promise.
        _mm512_cvtps_pd(unsafe { _mm256_loadu_ps(values) })
    }

    macro_rules! strips {
        ($name:ident, $V:ty, $T:ty, $lanes:literal, $value:ident, $load:ident, $store:ident, $fma:ident) => {
            /// See [`super::whole_strips`].
            ///
            /// # Safety
            /// The processor has AVX-512.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            pub(super) unsafe fn $name<M: Copy>(
                m: Diagonals<'_, M>,
                values: &[$V],
                rows: Range<usize>,
                x: &[$T],
                out: &mut [$T],
            ) {
                for (start, out) in rows.step_by(STRIP).zip(out.chunks_exact_mut(STRIP)) {
                    // SAFETY: `out` and every run have STRIP elements.
                    unsafe {
                        let mut acc: [_; STRIP / $lanes] = std::array::from_fn(|i| $load(out.as_ptr().add($lanes * i)));
                        for k in 0..m.offsets.len() {
                            let (places, met) = run(m, k, &(start..start + STRIP));
                            let (values, x) = (&values[places], &x[met]);
                            for (i, acc) in acc.iter_mut().enumerate() {
                                if $lanes * i * size_of::<$V>() % 64 == 0 {
                                    prefetch(values, $lanes * i + AHEAD / size_of::<$V>());
                                }
                                let value = $value(values.as_ptr().add($lanes * i));
                                *acc = $fma(value, $load(x.as_ptr().add($lanes * i)), *acc);
                            }
                        }
                        for (i, acc) in acc.into_iter().enumerate() {
                            $store(out.as_mut_ptr().add($lanes * i), acc);
                        }
                    }
                }
            }
        };
    }

    strips!(strips_f64, f64, f64, 8, _mm512_loadu_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd);
    strips!(strips_f32, f32, f32, 16, _mm512_loadu_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps);
    strips!(strips_narrow, f32, f64, 8, widened, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd);
}

impl<T: Real> Host<T> for Dia<T> {
    fn stored(&self) -> &[T] {
        self.values()
    }
    fn into_values(self) -> Vec<T> {
        self.into_parts().3
    }
}

/// A DIA matrix: its offsets (4 bytes per diagonal), its values and the partition of its rows.
///
/// The values are shared with the host, and nothing is copied. There is one exception: an f64 matrix with at least 4
/// MiB of values is kept in f32 if no one else holds it and f32 holds all values exactly. The f32 values take the front
/// half of its memory, and the other half is freed. Products have the same bits.
#[derive(Clone, Debug)]
pub struct CpuDia<T> {
    nrows: usize,
    ncols: usize,
    offsets: Vec<i32>,
    kept: Kept<T, Dia<T>>,
    partition: Partition,
}

impl<T> CpuDia<T> {
    /// Returns true if the values of an f64 matrix are kept in f32.
    pub fn is_narrow(&self) -> bool {
        self.kept.is_narrow()
    }
}

impl<T: Real> CpuDia<T> {
    /// The offsets, and the values as they are kept.
    pub(crate) fn diagonals(&self) -> (&[i32], spandrel_formats::Diagonals<'_, T>) {
        let values = match self.kept.values() {
            Values::Own(values) => spandrel_formats::Diagonals::Own(values),
            Values::Narrow(values) => spandrel_formats::Diagonals::Narrow(values),
        };
        (&self.offsets, values)
    }

    /// The host's matrix, if it is kept as it is and nobody else holds it.
    pub(crate) fn host_mut(&mut self) -> Option<&mut Dia<T>> {
        self.kept.host_mut()
    }
}

// SAFETY: a loaded object changes only while it is borrowed mutably, and operations with it write only to their
// operands.
unsafe impl<T: Real> Load<Dia<T>> for Cpu {
    type Resident = CpuDia<T>;

    fn load(&self, host: Arc<Dia<T>>) -> Result<CpuDia<T>> {
        let (nrows, ncols, offsets) = (host.nrows(), host.ncols(), host.offsets().to_vec());
        let kept = Kept::of(self, host);
        let row = offsets.len() * kept.bytes() + 2 * T::BYTES;
        let partition = Partition::by_cost(self, nrows, |i| i * row);
        Ok(CpuDia { nrows, ncols, offsets, kept, partition })
    }

    fn traffic(&self, m: &CpuDia<T>) -> Option<(u64, u64)> {
        m.kept.traffic(m.nrows, m.ncols, &m.offsets)
    }

    fn is_narrow(&self, m: &CpuDia<T>) -> bool {
        m.is_narrow()
    }
}

impl<T: Real> Convert<Csr<T>, Dia<T>> for Cpu {
    fn convert(&self, from: &CpuCsr<T>) -> Result<Converted<CpuDia<T>>> {
        let dia = Dia::from_csr(from.host()).map_err(typed)?;
        let (nnz, storage, spmv_bytes) = (dia.nnz(), dia.storage(), dia.spmv_bytes());
        let resident = self.load(Arc::new(dia))?;
        let (storage, spmv_bytes) = Load::<Dia<T>>::traffic(self, &resident).unwrap_or((storage, spmv_bytes));
        Ok(Converted { resident, nnz, storage, spmv_bytes })
    }
}

impl<T: Real> Rows<T> for CpuDia<T> {
    const CHUNK: usize = MAX_CHUNK;

    fn nrows(&self) -> usize {
        self.nrows
    }
    fn ncols(&self) -> usize {
        self.ncols
    }
    fn partition(&self) -> &Partition {
        &self.partition
    }
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]) {
        let m = Diagonals { offsets: &self.offsets, values: self.kept.values(), nrows: self.nrows };
        diagonals(simd, m, rows, x, out);
    }
}

spmv_by_rows!(Dia);
spmm_by_rows!(Dia);
