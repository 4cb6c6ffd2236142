//! DIA on the CPU, and the kernel for diagonals that bDIA shares with it.
//!
//! Layout: the host matrix itself, shared, and its offsets; or, of a large f64 matrix that nobody else holds and whose values f32 holds
//! exactly, the offsets and the values in f32. Cost: [`spandrel_formats::Traffic::spmv`], or half of its values.
//! Order: stored, by ascending offset, in both forms: widening is exact, so a product has the same bits from either.
//! The kernel works across rows: the accumulators of a chunk of 4096 rows stay in first-level cache while the diagonals pass over them nine at a time, those of 64 rows in registers meanwhile.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spandrel_backend::{Load, Result};
use spandrel_formats::{Dia, Format, Real};

use crate::Cpu;
use crate::backend::GRANULE;
use crate::partition::Partition;
use crate::product::{MAX_CHUNK, Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::{Simd, fma, simd_fn};
use crate::threads::Shared;

/// Diagonals that pass over the accumulators together. Few, because the diagonals of a matrix whose number of rows is a large
/// power of two all fall into the same sets of a cache, which has 8 to 12 places in each.
const TOGETHER: usize = 9;
/// Rows whose accumulators stay in registers meanwhile.
const STRIP: usize = 64;

/// Diagonals that lie one behind the other, `nrows` values each, as products read them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diagonals<'a, T> {
    pub(crate) offsets: &'a [i32],
    pub(crate) values: Values<'a, T>,
    pub(crate) nrows: usize,
}

/// Where values are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Values<'a, T> {
    Own(&'a [T]),
    /// Of an f64 matrix.
    Narrow(&'a [f32]),
}

impl<T> Diagonals<'_, T> {
    /// Some of them.
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
        // Offsets ascend: the first diagonal of the group is the last to begin, the last is the first to end.
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

/// The places among the values of rows `rows` of diagonal `k`, and of the elements of x that they meet.
#[inline(always)]
fn run<T>(m: Diagonals<'_, T>, k: usize, rows: &Range<usize>) -> (Range<usize>, Range<usize>) {
    let (first, from) = (k * m.nrows, (rows.start as i64 + i64::from(m.offsets[k])) as usize);
    (first + rows.start..first + rows.end, from..from + rows.len())
}

simd_fn! {
    /// out <- the accumulators continued through the diagonals, each where it lies inside the matrix.
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

/// As [`clipped`] for whole strips of rows in which every diagonal lies inside the matrix.
fn whole_strips<T: Real>(simd: Simd, m: Diagonals<'_, T>, rows: Range<usize>, x: &[T], out: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if simd == Simd::Avx512 {
        use bytemuck::{cast_slice, cast_slice_mut};
        // SAFETY: the level is that of a `Cpu`, which holds none that the processor lacks; the element type is told by its size.
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

    /// How many bytes ahead of their use values are asked for.
    const AHEAD: usize = 2048;

    /// Eight values as f64.
    ///
    /// # Safety
    /// The processor has AVX-512; eight values lie there.
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

/// Bytes of values from which on they are looked at, to be kept in f32: fewer lie in the caches of a core or two, and a product gains
/// microseconds.
const NARROWED: usize = 4 << 20;
/// Values that are looked at between two looks at whether others were inexact.
const PIECE: usize = 8192;

/// A host's matrix of diagonals.
pub(crate) trait Host<T> {
    /// Its values.
    fn stored(&self) -> &[T];
    /// Its values, the rest dropped.
    fn into_values(self) -> Vec<T>;
}

impl<T: Real> Host<T> for Dia<T> {
    fn stored(&self) -> &[T] {
        self.values()
    }
    fn into_values(self) -> Vec<T> {
        self.into_parts().3
    }
}

/// The values of diagonals as they are kept.
#[derive(Clone, Debug)]
pub(crate) enum Kept<T, H> {
    /// The host's matrix, shared.
    Host(Arc<H>),
    /// So many f32, in the front half of what were the host's f64.
    Narrow(Arc<Vec<T>>, usize),
}

impl<T: Real, H: Host<T>> Kept<T, H> {
    /// The values of `host`; in f32 where there are [`NARROWED`] bytes of f64, f32 holds every one, and nobody shares the matrix: to keep a
    /// copy beside what others keep would be memory that nobody asked for, and to touch it first takes longer than many products gain.
    pub(crate) fn of(cpu: &Cpu, host: Arc<H>) -> Self {
        let values = host.stored();
        let large = T::BYTES == size_of::<f64>() && size_of_val(values) >= NARROWED;
        if !(large && Arc::strong_count(&host) == 1 && exact(cpu, values)) {
            return Self::Host(host);
        }
        Arc::try_unwrap(host).map_or_else(Self::Host, |host| {
            let mut values = host.into_values();
            let len = values.len();
            narrow(cpu, &mut values);
            values.truncate(len.div_ceil(2));
            values.shrink_to_fit();
            Self::Narrow(Arc::new(values), len)
        })
    }

    /// As products read them.
    pub(crate) fn values(&self) -> Values<'_, T> {
        match self {
            Self::Host(host) => Values::Own(host.stored()),
            Self::Narrow(values, len) => Values::Narrow(&bytemuck::cast_slice(values)[..*len]),
        }
    }
}

impl<T, H> Kept<T, H> {
    pub(crate) fn is_narrow(&self) -> bool {
        matches!(self, Self::Narrow(..))
    }

    /// Bytes of the arrays and of a product, where they are less than the host's.
    pub(crate) fn traffic(&self, nrows: usize, ncols: usize, offsets: &[i32]) -> Option<(u64, u64)> {
        self.is_narrow().then(|| Dia::<f64>::traffic_in_f32(nrows, ncols, offsets))
    }

    /// Bytes of a value.
    pub(crate) fn bytes(&self) -> usize {
        if self.is_narrow() { size_of::<f32>() } else { size_of::<T>() }
    }
}

/// Whether f32 holds every value, bit for bit, which it does for no NaN. The first that it does not ends the pass.
fn exact<T: Real>(cpu: &Cpu, values: &[T]) -> bool {
    let exact = AtomicBool::new(true);
    cpu.split(values.len(), T::BYTES, PIECE, |range| {
        let mut pieces = values[range].chunks(PIECE);
        while exact.load(Ordering::Relaxed)
            && let Some(piece) = pieces.next()
        {
            if !exact_piece(cpu.simd(), piece) {
                exact.store(false, Ordering::Relaxed);
            }
        }
    });
    exact.into_inner()
}

/// The values in f32 in the place of the front half of the f64 that they are, as many at a time as were done before: those are written to where
/// the ones before them lay.
fn narrow<T: Real>(cpu: &Cpu, values: &mut [T]) {
    if let Some(first) = values.first_mut() {
        let v = first.as_f64() as f32;
        bytemuck::cast_slice_mut::<T, f32>(std::slice::from_mut(first))[0] = v;
    }
    let mut from = 1;
    while from < values.len() {
        let to = values.len().min(2 * from);
        let (done, values) = values.split_at_mut(from);
        let (values, narrow) = (&values[..to - from], &mut bytemuck::cast_slice_mut(done)[from..to]);
        let narrow = Shared::new(narrow);
        cpu.split(values.len(), T::BYTES + size_of::<f32>(), GRANULE, |range| {
            // SAFETY: `split` hands out disjoint ranges.
            narrow_piece(cpu.simd(), &values[range.clone()], unsafe { narrow.part(range) });
        });
        from = to;
    }
}

simd_fn! {
    /// Whether f32 holds the same numbers. So are then their bits: a conversion keeps the sign of a zero.
    fn exact_piece<T>(values: &[T]) -> bool {
        values.iter().fold(true, |exact, v| exact & (f64::from(v.as_f64() as f32) == v.as_f64()))
    }

    fn narrow_piece<T>(values: &[T], narrow: &mut [f32]) {
        narrow.iter_mut().zip(values).for_each(|(narrow, v)| *narrow = v.as_f64() as f32);
    }
}

/// A DIA matrix: its offsets (4 bytes a diagonal), its values and the partition of its rows.
///
/// The values are the host's, shared: nothing is copied. But an f64 matrix of 4 MiB of values or more that nobody else holds, and all of whose
/// values f32 holds exactly, is kept in f32, in the front half of the memory that it has, and the other half is given back. Products have the
/// same bits.
#[derive(Clone, Debug)]
pub struct CpuDia<T> {
    nrows: usize,
    ncols: usize,
    offsets: Vec<i32>,
    kept: Kept<T, Dia<T>>,
    partition: Partition,
}

impl<T> CpuDia<T> {
    /// Whether the values are kept in f32, though the matrix is one of f64.
    pub fn is_narrow(&self) -> bool {
        self.kept.is_narrow()
    }
}

// SAFETY: what is loaded never changes, and operations with it write to their operands alone.
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

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::Traffic;

    const THREADS: [usize; 3] = [1, 2, 3];

    /// What f32 holds: signed zeros, infinities, its limits and subnormals among ordinary numbers.
    fn held(i: usize) -> f64 {
        let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE)];
        match i % 97 {
            k if k < special.len() => special[k],
            k if k < 12 => f64::from(f32::from_bits(1 << (k - 6))),
            k => (i % 1021) as f64 / 8.0 - k as f64,
        }
    }

    #[test]
    fn narrow_values_have_the_bits_of_the_wide() {
        for threads in THREADS {
            let cpu = Cpu::with_threads(threads).unwrap();
            for len in [0, 1, 2, 3, 4, 5, 15, 16, 17, 33, 1000, 1 << 18, (1 << 18) + 1, 700_001] {
                let wide: Vec<f64> = (0..len).map(held).collect();
                assert!(exact(&cpu, &wide), "{len}");
                let mut place = wide.clone();
                narrow(&cpu, &mut place);
                let narrow = &bytemuck::cast_slice::<f64, f32>(&place)[..len];
                let differ = (0..len).find(|&i| f64::from(narrow[i]).to_bits() != wide[i].to_bits());
                assert_eq!(differ, None, "of {len} by {threads} threads");
            }
        }
    }

    #[test]
    fn one_value_that_f32_does_not_hold_is_found_anywhere() {
        let len = 300_000;
        let mut values: Vec<f64> = (0..len).map(held).collect();
        let inexact = [
            0.1,
            1.0 + f64::EPSILON,
            f64::NAN,
            f64::MAX,
            f64::from(f32::MAX) * (1.0 + f64::EPSILON),
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            f64::from(f32::from_bits(3)) / 2.0,
        ];
        for threads in THREADS {
            for simd in Simd::available() {
                let cpu = Cpu::with_threads(threads).unwrap().with_simd(simd);
                for (at, &v) in [0, 7, 8191, 8192, 150_000, len - 2, len - 1].into_iter().zip(inexact.iter().cycle()) {
                    let was = std::mem::replace(&mut values[at], v);
                    assert!(!exact(&cpu, &values), "{v:e} at {at}, {threads} threads, {}", simd.name());
                    values[at] = was;
                }
                for v in inexact {
                    assert!(!exact(&cpu, &[1.0, v]), "{v:e}, {}", simd.name());
                }
                assert!(exact(&cpu, &values));
            }
        }
    }

    #[test]
    fn a_matrix_stays_wide_where_it_is_shared_or_small_or_inexact_or_f32() {
        let cpu = Cpu::with_threads(2).unwrap();
        let n = NARROWED / 24;
        let tridiagonal = |n: usize, v: f64| {
            let mut values: Vec<f64> = (0..3 * n).map(|i| 1.0 + (i % 5) as f64).collect();
            (values[0], values[3 * n - 1], values[n + n / 2]) = (0.0, 0.0, v);
            Dia::new(n, n, vec![-1, 0, 1], values).unwrap()
        };
        let kept = |m: Dia<f64>| cpu.load(Arc::new(m)).unwrap();
        let traffic = |m| Load::<Dia<f64>>::traffic(&cpu, m);
        let host = tridiagonal(n + 1, 2.0);
        let (storage, product) = (host.storage(), host.spmv());
        let narrow = kept(host);
        let less = 4 * (3 * (n as u64 + 1));
        assert_eq!(traffic(&narrow), Some((storage - less, product - (less - 4 * 2))));
        assert!(narrow.is_narrow());
        let Kept::Narrow(values, len) = &narrow.kept else { panic!("{:?}", narrow.kept.bytes()) };
        assert_eq!((*len, values.len(), values.capacity()), (3 * (n + 1), (3 * (n + 1)).div_ceil(2), values.len()));
        assert!(narrow.clone().is_narrow());
        let small = kept(tridiagonal(n - 1, 2.0));
        assert!(!small.is_narrow() && traffic(&small).is_none());
        assert!(!kept(tridiagonal(n + 1, 0.1)).is_narrow());
        assert!(!kept(tridiagonal(n + 1, f64::NAN)).is_narrow());
        let shared = Arc::new(tridiagonal(n + 1, 2.0));
        assert!(!cpu.load(Arc::clone(&shared)).unwrap().is_narrow());
        assert_eq!(shared.values()[3 * n / 2].to_bits(), tridiagonal(n + 1, 2.0).values()[3 * n / 2].to_bits());
        assert!(cpu.load(shared).unwrap().is_narrow());
        let rows = 2 * NARROWED / size_of::<f32>();
        let single = Dia::new(rows, rows, vec![0], vec![1.5f32; rows]).unwrap();
        assert!(!cpu.load(Arc::new(single)).unwrap().is_narrow());
        let banded = spandrel_formats::Bdia::from(tridiagonal(n + 1, 2.0));
        assert!(cpu.load(Arc::new(banded)).unwrap().is_narrow());
    }
}
