//! CSR on the CPU.
//!
//! Layout: the host matrix itself, shared, and a partition of its rows by bytes. Cost:
//! [`spandrel_formats::Traffic::spmv_bytes`]. A matrix that many products read also has its entries in SELL, where
//! rows of different length do not mislead the branch predictor.
//! Order: stored. A row is one chain of `fma`, and the processor overlaps the chains of neighbouring rows. The
//! transposed product scatters by the plan of [`crate::csc`], which is made at the first use.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Converted, Download, Gate, Load, Order, Result, SpmvTransposed, UpdateValues};
use spandrel_formats::sell::{DEFAULT_C, DEFAULT_SIGMA};
use spandrel_formats::{Csr, Format, Offset, Ordinal, Real, Sell, Traffic};

use crate::csc::{Scatter, spmv_scattered};
use crate::partition::Partition;
use crate::product::{Rows, spmm_by_rows, spmv_by_rows};
use crate::sell::CpuSell;
use crate::simd::{Simd, fma, prefetch, simd_fn};
use crate::vector::copied;
use crate::{Cpu, Scalar, Vector};

/// A CSR matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuCsr<T> {
    host: Arc<Csr<T>>,
    partition: Partition,
    transposed: OnceLock<Scatter>,
    /// The same entries in SELL, for products.
    slices: Option<CpuSell<T>>,
}

/// A matrix gets slices if they have at most this many places per entry, which bounds the bytes that products read.
const MOST_PLACES: f64 = 1.15;
/// Rows that are longer than this on average get no slices: their ends are rare. Rows of 43 entries gain
/// (`record/cpu-large-products.txt`); longer ones were not measured.
const LONG: usize = 100;

impl<T: Real> CpuCsr<T> {
    /// Also stores the entries in SELL, if products gain from that. The bytes that a matrix reports are those of CSR.
    pub(crate) fn with_slices(mut self, cpu: &Cpu) -> Self {
        self.slices = slices(cpu, &self.host);
        self
    }

    /// Overwrites values of the host's matrix, which is copied first if it is also used elsewhere.
    pub(crate) fn rewrite(&mut self, cpu: &Cpu, write: impl FnOnce(&mut Csr<T>)) {
        let had_slices = self.slices.take().is_some();
        write(Arc::make_mut(&mut self.host));
        if had_slices {
            self.slices = slices(cpu, &self.host);
        }
    }
}

/// The slices of a matrix, if products gain from them.
fn slices<T: Real>(cpu: &Cpu, csr: &Csr<T>) -> Option<CpuSell<T>> {
    if cpu.simd() != Simd::Avx512 || csr.nnz() == 0 || csr.nnz() > LONG * csr.nrows() {
        return None;
    }
    let (_, ends) = Sell::<T>::slices_of(csr.row_ptr(), DEFAULT_C, DEFAULT_SIGMA).ok()?;
    let places = ends.last().map_or(0, |&widths| widths as usize * DEFAULT_C);
    if places as f64 > MOST_PLACES * csr.nnz() as f64 {
        return None;
    }
    cpu.load(Arc::new(Sell::from_csr(csr).ok()?)).ok()
}

impl<T> CpuCsr<T> {
    /// The host's matrix.
    pub(crate) fn host(&self) -> &Csr<T> {
        &self.host
    }

    /// The host's matrix, for writing; copied first if it is also used elsewhere. It loses its slices.
    pub(crate) fn host_mut(&mut self) -> &mut Csr<T>
    where
        T: Clone,
    {
        self.slices = None;
        Arc::make_mut(&mut self.host)
    }
}

impl Cpu {
    /// A matrix that an operation made, as it is loaded.
    pub(crate) fn made<T: Real>(&self, csr: Csr<T>) -> Result<Converted<CpuCsr<T>>> {
        let (nnz, storage, spmv_bytes) = (csr.nnz(), csr.storage(), csr.spmv_bytes());
        Ok(Converted { resident: self.load(Arc::new(csr))?, nnz, storage, spmv_bytes })
    }
}

// SAFETY: a loaded object changes only by `update_values`, which borrows it mutably. Operations with it write only to
// their operands.
unsafe impl<T: Real> Load<Csr<T>> for Cpu {
    type Resident = CpuCsr<T>;

    fn load(&self, host: Arc<Csr<T>>) -> Result<CpuCsr<T>> {
        let partition = by_entries::<T>(self, host.row_ptr());
        Ok(CpuCsr { host, partition, transposed: OnceLock::new(), slices: None })
    }
}

impl<T: Real> Download<Csr<T>> for Cpu {
    fn download_matrix(&self, m: &CpuCsr<T>) -> Result<Csr<T>> {
        let host = m.host();
        let (row_ptr, col_idx) = (copied(host.row_ptr(), "row pointers")?, copied(host.col_idx(), "columns")?);
        let values = copied(host.values(), "values")?;
        // SAFETY: the arrays are those of a matrix, copied.
        Ok(unsafe { Csr::new_unchecked(host.nrows(), host.ncols(), row_ptr, col_idx, values) })
    }

    fn download_rows(&self, m: &CpuCsr<T>, rows: Range<usize>) -> Result<Csr<T>> {
        let (host, nrows) = (m.host(), rows.len());
        let mut row_ptr = copied(&host.row_ptr()[rows.start..=rows.end], "row pointers")?;
        let (begin, end) = (row_ptr[0], row_ptr[nrows]);
        row_ptr.iter_mut().for_each(|at| *at -= begin);
        let entries = begin as usize..end as usize;
        let (col_idx, values) =
            (copied(&host.col_idx()[entries.clone()], "columns")?, copied(&host.values()[entries], "values")?);
        // SAFETY: consecutive rows of a matrix are one of as many columns, once its pointers count from their begin.
        Ok(unsafe { Csr::new_unchecked(nrows, host.ncols(), row_ptr, col_idx, values) })
    }
}

/// Copies a host matrix first if it is also used elsewhere. Blocks; the partitions depend only on the pattern and stay.
impl<T: Real> UpdateValues<Csr<T>> for Cpu {
    fn update_values(&self, m: &mut CpuCsr<T>, values: &[T]) -> Result<()> {
        expect_len("update_values", "values", values.len(), m.host.nnz())?;
        m.rewrite(self, |host| host.values_mut().copy_from_slice(values));
        Ok(())
    }
    fn update_values_from(&self, m: &mut CpuCsr<T>, values: &Vector<T>) -> Result<()> {
        UpdateValues::<Csr<T>>::update_values(self, m, values.as_slice())
    }
}

/// Partitions the segments of `ptr`. An entry costs its value and index; a segment costs its pointer, x and y.
pub(crate) fn by_entries<T: Real>(cpu: &Cpu, ptr: &[Offset]) -> Partition {
    Partition::by_cost(cpu, ptr.len() - 1, |i| ptr[i] as usize * (4 + T::BYTES) + i * (4 + 2 * T::BYTES))
}

/// How many entries ahead of their use values and columns are prefetched: 4 KiB of f64. The hardware prefetcher
/// restarts at every page and falls behind on short rows.
pub(crate) const AHEAD: usize = 512;

simd_fn! {
    /// For each segment of `ptr`: out <- the accumulator through its entries, from +0 or (CONTINUE) from out.
    ///
    /// The caller ensures the invariants of CSR: `ptr` ascends within `idx` and `values`, and every index is below
    /// `x.len()`.
    pub(crate) fn gather_rows<T, const CONTINUE: bool>(
        ptr: &[Offset], idx: &[Ordinal], values: &[T], x: &[T], out: &mut [T],
    ) {
        for (segment, out) in ptr.windows(2).zip(out) {
            let (begin, end) = (segment[0] as usize, segment[1] as usize);
            let mut ahead = begin + AHEAD;
            loop {
                // Two cache lines of f64 values and one of columns. A short row prefetches slightly beyond its own
                // entries.
                prefetch(values, ahead);
                prefetch(values, ahead + 8);
                prefetch(idx, ahead);
                ahead += 16;
                if ahead >= end + AHEAD {
                    break;
                }
            }
            let mut acc = if CONTINUE { *out } else { T::zero() };
            for k in begin..end {
                // SAFETY: the caller ensures CSR's invariants, which the formats' constructors checked.
                acc = unsafe { fma(*values.get_unchecked(k), *x.get_unchecked(*idx.get_unchecked(k) as usize), acc) };
            }
            *out = acc;
        }
    }
}

impl<T: Real> Rows<T> for CpuCsr<T> {
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
        let ptr = &self.host.row_ptr()[rows.start..rows.end + 1];
        gather_rows::<T, false>(simd, ptr, self.host.col_idx(), self.host.values(), x, out);
    }
}

spmv_by_rows!(Csr, slices);
spmm_by_rows!(Csr);

impl<T: Real> SpmvTransposed<Csr<T>> for Cpu {
    fn transposed_order(&self) -> Order {
        Order::Stored
    }

    /// Every element of y takes its rows in ascending order: the order of the transpose stored as CSR. The first call
    /// allocates the plan.
    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CpuCsr<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let (ptr, idx, values) = (m.host.row_ptr(), m.host.col_idx(), m.host.values());
        let plan = match m.transposed.get() {
            Some(plan) => plan,
            None => {
                let plan = Scatter::new::<T>(self, m.host.ncols(), ptr, idx)?;
                m.transposed.get_or_init(|| plan)
            }
        };
        spmv_scattered("spmv_transposed", self, gate, a, plan, ptr, idx, values, x, b, y)
    }
}

#[cfg(test)]
mod tests {
    use spandrel_backend::{Backend, Coarsen, Mat, Spmv};
    use spandrel_formats::generate;

    use super::*;

    /// Products with slices have the bits of those without, also after new values. Only processors with AVX-512 have
    /// slices.
    #[test]
    fn slices_change_no_bits() {
        let cpu = Cpu::new();
        let a = generate::csr::<f64>("electrostatic:n=5000").unwrap();
        let n = a.nrows();
        let ones = Vector::from_host(&cpu, &vec![1.0; n]).unwrap();
        let x = Vector::from_host(&cpu, &(0..n).map(|i| (i % 17) as f64 - 7.5).collect::<Vec<_>>()).unwrap();
        let plain = cpu.load(Arc::new(a.clone())).unwrap();
        let mut sliced = Coarsen::<Csr<f64>>::scaled(&cpu, &plain, &ones, None).unwrap().resident;
        let has_slices = cpu.simd() == Simd::Avx512;
        assert_eq!(sliced.slices.is_some(), has_slices);
        let of = |m: &CpuCsr<f64>| {
            let (mut y, mut r) =
                (Vector::from_host(&cpu, &vec![f64::NAN; n]).unwrap(), Vector::zeros(&cpu, n).unwrap());
            let (mut dot, mut norm) =
                (Backend::<f64>::scalar(&cpu, 0.0).unwrap(), Backend::<f64>::scalar(&cpu, 0.0).unwrap());
            Spmv::<Csr<f64>>::spmv_dot(&cpu, None, m, &x, &mut y, &x, &mut dot, Some(&mut norm)).unwrap();
            Spmv::<Csr<f64>>::residual(&cpu, None, m, &x, &y, &mut r).unwrap();
            Spmv::<Csr<f64>>::spmv(&cpu, None, Coeff::host(-2.0), m, &x, Coeff::host(0.5), &mut y).unwrap();
            let bits = |v: &Vector<f64>| v.as_slice().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            (bits(&y), bits(&r), dot.0.to_bits(), norm.0.to_bits())
        };
        assert_eq!(of(&sliced), of(&plain));
        let other = cpu.load(Arc::new(a.map_entries(|i, j, v| v * (1.0 + ((i + 3 * j) % 5) as f64)))).unwrap();
        Coarsen::<Csr<f64>>::scaled_into(&cpu, &other, &ones, None, &mut sliced).unwrap();
        assert_eq!((of(&sliced), sliced.slices.is_some()), (of(&other), has_slices));
        Coarsen::<Csr<f64>>::copy_values(&cpu, &plain, &mut sliced).unwrap();
        assert_eq!((of(&sliced), sliced.slices.is_some()), (of(&plain), has_slices));
        UpdateValues::<Csr<f64>>::update_values(&cpu, &mut sliced, other.host().values()).unwrap();
        assert_eq!((of(&sliced), sliced.slices.is_some()), (of(&other), has_slices));
        // An operation that writes the matrix itself leaves no old slices behind.
        Coarsen::<Csr<f64>>::add_to_diagonal(&cpu, &mut sliced, &ones).unwrap();
        let mut wanted = cpu.load(Arc::clone(&other.host)).unwrap();
        Coarsen::<Csr<f64>>::add_to_diagonal(&cpu, &mut wanted, &ones).unwrap();
        assert_eq!(of(&sliced), of(&wanted));
        assert!(Mat::<Cpu, Csr<f64>>::load(&cpu, a).unwrap().resident().slices.is_none());
    }

    #[test]
    fn long_rows_and_much_padding_get_no_slices() {
        let cpu = Cpu::new();
        let of = |spec: &str| slices(&cpu, &generate::csr::<f64>(spec).unwrap()).is_some();
        // The last slice of 40 rows has 24 lanes of padding.
        assert_eq!([of("banded:n=2000,d=257"), of("poisson1d:40")], [false, false]);
        assert_eq!(of("poisson1d:4096"), cpu.simd() == Simd::Avx512);
    }
}
