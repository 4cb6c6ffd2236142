//! DIA on the CPU, and the kernel for diagonals that bDIA shares with it.
//!
//! Layout: the host matrix itself, shared. Cost: [`spandrel_formats::Traffic::spmv`].
//! Order: stored, by ascending offset. The kernel works across rows: the accumulators of a chunk of 4096 rows stay in
//! first-level cache while the diagonals pass over them nine at a time, those of 64 rows in registers meanwhile.

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Dia, Format, Real};

use crate::Cpu;
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};

/// Diagonals that pass over the accumulators together. Few, because the diagonals of a matrix whose number of rows is a large
/// power of two all fall into the same sets of a cache, which has 8 to 12 places in each.
const TOGETHER: usize = 9;
/// Rows whose accumulators stay in registers meanwhile.
const STRIP: usize = 64;

/// out <- the accumulators of `rows` of a matrix given by `offsets` and their diagonals, `nrows` values each.
pub(crate) fn diagonals<T: Real>(
    simd: Simd,
    offsets: &[i32],
    values: &[T],
    nrows: usize,
    rows: Range<usize>,
    x: &[T],
    out: &mut [T],
) {
    out.fill(T::zero());
    for first in (0..offsets.len()).step_by(TOGETHER) {
        let group = first..offsets.len().min(first + TOGETHER);
        // Offsets ascend: the first diagonal of the group is the last to begin, the last is the first to end.
        let begin = inside(offsets[group.start], x.len(), &rows).start;
        let end = inside(offsets[group.end - 1], x.len(), &rows).end.max(begin);
        let strips = begin..begin + (end - begin) / STRIP * STRIP;
        let m = Group { offsets: &offsets[group.clone()], values: &values[group.start * nrows..], nrows };
        clipped(simd, m, rows.start..strips.start, x, &mut out[..strips.start - rows.start]);
        whole_strips(simd, m, strips.clone(), x, &mut out[strips.start - rows.start..strips.end - rows.start]);
        clipped(simd, m, strips.end..rows.end, x, &mut out[strips.end - rows.start..]);
    }
}

/// Diagonals that lie one behind the other in `values`.
#[derive(Clone, Copy, Debug)]
struct Group<'a, T> {
    offsets: &'a [i32],
    values: &'a [T],
    nrows: usize,
}

/// The rows of `rows` in which diagonal `offset` lies inside a matrix of `ncols` columns.
#[inline(always)]
fn inside(offset: i32, ncols: usize, rows: &Range<usize>) -> Range<usize> {
    let (first, last) = (rows.start as i64, rows.end as i64);
    let begin = (-i64::from(offset)).clamp(first, last);
    let end = (ncols as i64 - i64::from(offset)).clamp(begin, last);
    begin as usize..end as usize
}

/// Rows `rows` of diagonal `k` and the elements of x that they meet.
#[inline(always)]
fn run<'a, T>(m: Group<'a, T>, k: usize, rows: &Range<usize>, x: &'a [T]) -> (&'a [T], &'a [T]) {
    let from = (rows.start as i64 + i64::from(m.offsets[k])) as usize;
    (&m.values[k * m.nrows + rows.start..k * m.nrows + rows.end], &x[from..from + rows.len()])
}

simd_fn! {
    /// out <- the accumulators continued through the diagonals, each where it lies inside the matrix.
    fn clipped<T>(m: Group<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
        for k in 0..m.offsets.len() {
            let inside = inside(m.offsets[k], x.len(), &rows);
            if inside.is_empty() {
                continue;
            }
            let (values, x) = run(m, k, &inside, x);
            let out = &mut out[inside.start - rows.start..inside.end - rows.start];
            out.iter_mut().zip(values.iter().zip(x)).for_each(|(out, (&v, &x))| *out = fma(v, x, *out));
        }
    }
}

/// As [`clipped`] for whole strips of rows in which every diagonal lies inside the matrix.
fn whole_strips<T: Real>(simd: Simd, m: Group<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx512 {
        // SAFETY: the level is that of a `Cpu`, which holds none that the processor lacks; the element type is told by its size.
        unsafe {
            if T::BYTES == 8 {
                avx512::strips_f64(cast(m), rows, bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out));
            } else {
                avx512::strips_f32(cast(m), rows, bytemuck::cast_slice(x), bytemuck::cast_slice_mut(out));
            }
        }
        return;
    }
    clipped(simd, m, rows, x, out);
}

#[cfg(target_arch = "x86_64")]
fn cast<T: Real, U: Real>(m: Group<'_, T>) -> Group<'_, U> {
    Group { offsets: m.offsets, values: bytemuck::cast_slice(m.values), nrows: m.nrows }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::{Group, STRIP, run};
    use crate::simd::prefetch;

    /// How many rows ahead of their use values are asked for.
    const AHEAD: usize = 256;

    macro_rules! strips {
        ($name:ident, $T:ty, $lanes:literal, $load:ident, $store:ident, $fma:ident) => {
            /// See [`super::whole_strips`].
            ///
            /// # Safety
            /// The processor has AVX-512.
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            pub(super) unsafe fn $name(m: Group<'_, $T>, rows: Range<usize>, x: &[$T], out: &mut [$T]) {
                for (start, out) in rows.step_by(STRIP).zip(out.chunks_exact_mut(STRIP)) {
                    // SAFETY: `out` and every run have STRIP elements.
                    unsafe {
                        let mut acc: [_; STRIP / $lanes] = std::array::from_fn(|i| $load(out.as_ptr().add($lanes * i)));
                        for k in 0..m.offsets.len() {
                            let (values, x) = run(m, k, &(start..start + STRIP), x);
                            for (i, acc) in acc.iter_mut().enumerate() {
                                prefetch(values, $lanes * i + AHEAD);
                                let value = $load(values.as_ptr().add($lanes * i));
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

    strips!(strips_f64, f64, 8, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd);
    strips!(strips_f32, f32, 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps);
}

/// A DIA matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuDia<T> {
    host: Arc<Dia<T>>,
    partition: Partition,
}

// SAFETY: what is loaded never changes, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Dia<T>> for Cpu {
    type Resident = CpuDia<T>;

    fn load(&self, host: Arc<Dia<T>>) -> Result<CpuDia<T>> {
        let row = (host.offsets().len() + 2) * T::BYTES;
        let partition = Partition::by_cost(self, host.nrows(), |i| i * row);
        Ok(CpuDia { host, partition })
    }
}

impl<T: Real> Rows<T> for CpuDia<T> {
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
        diagonals(simd, self.host.offsets(), self.host.values(), self.host.nrows(), rows, x, out);
    }
}

spmv_by_rows!(Dia);
spmm_by_rows!(Dia);
