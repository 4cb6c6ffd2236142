//! CSR on the CPU.
//!
//! Layout: the host matrix itself, shared, and a partition of its rows by bytes. Cost: [`spandrel_formats::Traffic::spmv_bytes`].
//! Order: stored. A row is one chain of `fma`; the processor overlaps the chains of neighbouring rows. The transposed
//! product scatters, by the plan of [`crate::csc`], which is made at the first use.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, SpmvTransposed, UpdateValues};
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::csc::{Scatter, spmv_scattered};
use crate::partition::Partition;
use crate::product::{Rows, spmm_by_rows, spmv_by_rows};
use crate::simd::{Simd, fma, prefetch, simd_fn};
use crate::{Cpu, Scalar, Vector};

/// A CSR matrix, shared with the host, and the partition of its rows.
#[derive(Clone, Debug)]
pub struct CpuCsr<T> {
    host: Arc<Csr<T>>,
    partition: Partition,
    transposed: OnceLock<Scatter>,
}

impl<T> CpuCsr<T> {
    /// The host's matrix.
    pub(crate) fn host(&self) -> &Csr<T> {
        &self.host
    }
}

// SAFETY: what is loaded never changes but by `update_values`, for which it is borrowed mutably, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Csr<T>> for Cpu {
    type Resident = CpuCsr<T>;

    fn load(&self, host: Arc<Csr<T>>) -> Result<CpuCsr<T>> {
        let partition = by_entries::<T>(self, host.row_ptr());
        Ok(CpuCsr { host, partition, transposed: OnceLock::new() })
    }
}

/// A host matrix that is in use elsewhere is copied first. Blocks; the partitions, which are of the pattern, stay.
impl<T: Real> UpdateValues<Csr<T>> for Cpu {
    fn update_values(&self, m: &mut CpuCsr<T>, values: &[T]) -> Result<()> {
        expect_len("update_values", "values", values.len(), m.host.nnz())?;
        Arc::make_mut(&mut m.host).values_mut().copy_from_slice(values);
        Ok(())
    }
    fn update_values_from(&self, m: &mut CpuCsr<T>, values: &Vector<T>) -> Result<()> {
        self.update_values(m, values.as_slice())
    }
}

/// A partition of the segments of `ptr`: an entry costs its value and index, a segment its pointer, x and y.
pub(crate) fn by_entries<T: Real>(cpu: &Cpu, ptr: &[Offset]) -> Partition {
    Partition::by_cost(cpu, ptr.len() - 1, |i| ptr[i] as usize * (4 + T::BYTES) + i * (4 + 2 * T::BYTES))
}

/// How many entries ahead of their use values and columns are asked for: 4 KiB of f64. The hardware's own prefetching
/// restarts at every page and falls behind on short rows.
pub(crate) const AHEAD: usize = 512;

simd_fn! {
    /// Per segment of `ptr`: out <- the accumulator through its entries, from +0 or (CONTINUE) from out.
    ///
    /// The caller vouches for the invariants of CSR: `ptr` ascends within `idx` and `values`, every index is below `x.len()`.
    pub(crate) fn gather_rows<T, const CONTINUE: bool>(
        ptr: &[Offset], idx: &[Ordinal], values: &[T], x: &[T], out: &mut [T],
    ) {
        for (segment, out) in ptr.windows(2).zip(out) {
            let (begin, end) = (segment[0] as usize, segment[1] as usize);
            let mut ahead = begin + AHEAD;
            loop {
                // Two lines of f64 values and one of columns; a short row asks for a little more than it owns.
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
                // SAFETY: the caller vouches for CSR's invariants (the formats' constructors checked them).
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

spmv_by_rows!(Csr);
spmm_by_rows!(Csr);

impl<T: Real> SpmvTransposed<Csr<T>> for Cpu {
    fn transposed_order(&self) -> Order {
        Order::Stored
    }

    /// Rows ascend for every element of y: the order of the transpose stored as CSR. The first call allocates the plan.
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
