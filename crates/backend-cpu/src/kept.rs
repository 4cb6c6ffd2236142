//! Values of diagonals on the CPU: shared with the host, or in f32 in the front half of the memory of the f64 values.
//!
//! Invariants: values are kept in f32 only if f32 holds every one of them exactly, so that widening restores the host's
//! bits, and only if no one else holds the matrix.
//! Cost: one pass over the values, which ends at the first that does not fit f32, and one pass that narrows them in
//! place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use spandrel_formats::{Dia, Real};

use crate::Cpu;
use crate::backend::GRANULE;
use crate::dia::Values;
use crate::simd::simd_fn;
use crate::threads::Shared;

/// Minimum number of bytes of values for narrowing. Fewer bytes fit the caches of one or two cores, where a product
/// would gain only microseconds.
const NARROWED: usize = 4 << 20;
/// Number of values to check between two looks at whether another thread found an inexact one.
const PIECE: usize = 8192;

/// A host matrix of diagonals.
pub(crate) trait Host<T> {
    /// Its values.
    fn stored(&self) -> &[T];
    /// Its values; the rest is dropped.
    fn into_values(self) -> Vec<T>;
}

/// The values of diagonals as they are kept in memory.
#[derive(Clone, Debug)]
pub(crate) enum Kept<T, H> {
    /// The host's matrix, shared.
    Host(Arc<H>),
    /// This many f32 values, in the front half of the memory of the host's f64 values.
    Narrow(Arc<Vec<T>>, usize),
}

impl<T: Real, H: Host<T>> Kept<T, H> {
    /// Takes the values of `host`. They become f32 if they are f64 of at least [`NARROWED`] bytes, f32 holds every one
    /// exactly, and no one else holds the `Arc`. Otherwise both copies would stay in memory, and the first write to new
    /// memory takes longer than many products gain.
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

    /// The values as products read them.
    pub(crate) fn values(&self) -> Values<'_, T> {
        match self {
            Self::Host(host) => Values::Own(host.stored()),
            Self::Narrow(values, len) => Values::Narrow(&bytemuck::cast_slice(values)[..*len]),
        }
    }
}

impl<T, H> Kept<T, H> {
    /// The host's matrix, if only this holds it.
    pub(crate) fn host_mut(&mut self) -> Option<&mut H> {
        match self {
            Self::Host(host) => Arc::get_mut(host),
            Self::Narrow(..) => None,
        }
    }

    pub(crate) fn is_narrow(&self) -> bool {
        matches!(self, Self::Narrow(..))
    }

    /// Bytes of the arrays and of a product, if they are fewer than the host's.
    pub(crate) fn traffic(&self, nrows: usize, ncols: usize, offsets: &[i32]) -> Option<(u64, u64)> {
        self.is_narrow().then(|| Dia::<f64>::traffic_in_f32(nrows, ncols, offsets))
    }

    /// Bytes per value.
    pub(crate) fn bytes(&self) -> usize {
        if self.is_narrow() { size_of::<f32>() } else { size_of::<T>() }
    }
}

/// Returns true if f32 holds every value exactly; a NaN never counts as exact. The pass ends at the first inexact
/// value.
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

/// Narrows the values to f32 in place, into the front half of their own memory. Each step handles as many values as
/// were done before, because it writes where those lay.
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
    /// Returns true if f32 holds the same numbers. The bits then agree too, because a conversion keeps the sign of a
    /// zero.
    fn exact_piece<T>(values: &[T]) -> bool {
        values.iter().fold(true, |exact, v| exact & (f64::from(v.as_f64() as f32) == v.as_f64()))
    }

    fn narrow_piece<T>(values: &[T], narrow: &mut [f32]) {
        narrow.iter_mut().zip(values).for_each(|(narrow, v)| *narrow = v.as_f64() as f32);
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend::Load;
    use spandrel_formats::Traffic;

    use super::*;
    use crate::simd::Simd;

    const THREADS: [usize; 3] = [1, 2, 3];

    /// Values that f32 holds exactly: signed zeros, infinities, extreme values and subnormals among ordinary numbers.
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
        let (storage, product) = (host.storage(), host.spmv_bytes());
        let narrow = kept(host);
        let less = 4 * (3 * (n as u64 + 1));
        assert_eq!(traffic(&narrow), Some((storage - less, product - (less - 4 * 2))));
        assert!(narrow.is_narrow());
        let Kept::Narrow(values, len) = Kept::of(&cpu, Arc::new(tridiagonal(n + 1, 2.0))) else { panic!("wide") };
        assert_eq!((len, values.len(), values.capacity()), (3 * (n + 1), (3 * (n + 1)).div_ceil(2), values.len()));
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
