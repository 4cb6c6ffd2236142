//! CSC on the CPU, and the scattering product that CSR's transpose shares with it.
//!
//! Layout: the host matrix itself, shared, and a [`Scatter`] plan. Cost: [`spandrel_formats::Traffic::spmv_bytes`], the
//! plan's pointers, and y once more unless b = 0.
//! Order: stored. A task owns a range of y and walks all columns in ascending order through its own part of each. So
//! every y sees its entries by ascending column, whatever the number of tasks. A transposed index made at load would
//! cost 4 bytes per entry and read the values out of order; atomics would lose the order.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv, SpmvTransposed};
use spandrel_formats::{Csc, Offset, Ordinal, Real};

use crate::backend::axpby_slice;
use crate::csr::{by_entries, gather_rows};
use crate::device::open;
use crate::partition::Partition;
use crate::product::{self, Rows, scale};
use crate::simd::{Simd, fma, simd_fn};
use crate::threads::{SERIAL_BYTES, Shared};
use crate::vector::{room, value};
use crate::{Cpu, Scalar, Vector};

/// Ranges of y, one per task, and where each segment (column of CSC) enters each range.
///
/// Invariants: `bounds` ascends from 0 to the length of y; `inner[t - 1][j]` is the first entry of segment j whose
/// index is at least `bounds[t]`. Memory: 4 bytes per segment and inner boundary.
#[derive(Clone, Debug)]
pub(crate) struct Scatter {
    bounds: Vec<usize>,
    inner: Vec<Vec<Offset>>,
}

/// The purpose that an out-of-memory error names.
const PLAN: &str = "the plan of a scattering product";

impl Scatter {
    /// Makes a plan for y of `len` elements, with as many ranges as threads.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::OutOfMemory`].
    pub(crate) fn new<T: Real>(cpu: &Cpu, len: usize, ptr: &[Offset], idx: &[Ordinal]) -> Result<Self> {
        if cpu.thread_count() == 1 || idx.len() * (4 + T::BYTES) < SERIAL_BYTES {
            return Ok(Self { bounds: vec![0, len], inner: Vec::new() });
        }
        let mut below: Vec<Offset> = room(len + 1, PLAN)?;
        below.resize(len + 1, 0);
        for &i in idx {
            below[i as usize + 1] += 1;
        }
        for i in 0..len {
            below[i + 1] += below[i];
        }
        let tasks = cpu.thread_count();
        let mut bounds: Vec<usize> = (1..tasks)
            .map(|task| below.partition_point(|&n| (n as usize) < idx.len() * task / tasks))
            .filter(|&bound| bound > 0 && bound < len)
            .collect();
        bounds.dedup();
        let mut inner = Vec::with_capacity(bounds.len());
        for &bound in &bounds {
            let mut entering = room(ptr.len() - 1, PLAN)?;
            entering.extend(ptr.windows(2).map(|segment| {
                let inside = &idx[segment[0] as usize..segment[1] as usize];
                segment[0] + inside.partition_point(|&i| (i as usize) < bound) as Offset
            }));
            inner.push(entering);
        }
        bounds.insert(0, 0);
        bounds.push(len);
        Ok(Self { bounds, inner })
    }

    /// Number of elements of y.
    fn len(&self) -> usize {
        self.bounds[self.bounds.len() - 1]
    }

    fn tasks(&self) -> usize {
        self.bounds.len() - 1
    }
}

simd_fn! {
    /// For the entries k from `begin[j]` to `end[j]` of every segment j in turn: out[idx[k] - base] <- fma(values[k],
    /// x[j], out[...]).
    ///
    /// The caller ensures that these entries exist and that their indices lie in `base..base + out.len()`.
    fn scatter_columns<T>(
        begin: &[Offset], end: &[Offset], idx: &[Ordinal], values: &[T], x: &[T], base: usize, out: &mut [T],
    ) {
        for ((&begin, &end), &x) in begin.iter().zip(end).zip(x) {
            for k in begin as usize..end as usize {
                // SAFETY: the caller's promise, which follows from the invariants of CSC and of the plan.
                unsafe {
                    let i = *idx.get_unchecked(k) as usize - base;
                    let out = out.get_unchecked_mut(i);
                    *out = fma(*values.get_unchecked(k), x, *out);
                }
            }
        }
    }
}

/// y <- a A x + b y, where A is given by segments (columns) of entries. `op` is the name in errors.
pub(crate) fn spmv_scattered<T: Real>(
    op: &'static str,
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    a: Coeff<'_, T, Scalar<T>>,
    plan: &Scatter,
    ptr: &[Offset],
    idx: &[Ordinal],
    values: &[T],
    x: &Vector<T>,
    b: Coeff<'_, T, Scalar<T>>,
    y: &mut Vector<T>,
) -> Result<()> {
    let segments = ptr.len() - 1;
    expect_len(op, "x", x.len(), segments)?;
    expect_len(op, "y", y.len(), plan.len())?;
    if !open(gate) {
        return Ok(());
    }
    let (a, b, simd) = (value(a), value(b), cpu.simd());
    let (x, y) = (x.as_slice(), y.as_mut_slice());
    let accumulate = |task: usize, out: &mut [T]| {
        out.fill(T::zero());
        let begin = if task == 0 { &ptr[..segments] } else { &plan.inner[task - 1] };
        let end = if task + 1 == plan.tasks() { &ptr[1..] } else { &plan.inner[task] };
        scatter_columns(simd, begin, end, idx, values, x, plan.bounds[task], out);
    };
    let rows = |task: usize| plan.bounds[task]..plan.bounds[task + 1];
    if b.is_zero() {
        let y = Shared::new(y);
        cpu.threads().run(plan.tasks(), |task| {
            // SAFETY: the plan's ranges of y are disjoint.
            let y = unsafe { y.part(rows(task)) };
            accumulate(task, y);
            scale(simd, a, y);
        });
    } else {
        cpu.scratch().with(y.len(), |acc| {
            let (acc, y) = (Shared::new(acc), Shared::new(y));
            cpu.threads().run(plan.tasks(), |task| {
                // SAFETY: the plan's ranges of y, and of the accumulators, are disjoint.
                let (acc, y) = unsafe { (acc.part(rows(task)), y.part(rows(task))) };
                accumulate(task, acc);
                axpby_slice(simd, a, acc, b, y);
            });
        })?;
    }
    Ok(())
}

/// A CSC matrix, shared with the host, and the plan of its product.
#[derive(Clone, Debug)]
pub struct CpuCsc<T> {
    host: Arc<Csc<T>>,
    scatter: Scatter,
    columns: OnceLock<Partition>,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Csc<T>> for Cpu {
    type Resident = CpuCsc<T>;

    fn load(&self, host: Arc<Csc<T>>) -> Result<CpuCsc<T>> {
        let scatter = Scatter::new::<T>(self, host.nrows(), host.col_ptr(), host.row_idx())?;
        Ok(CpuCsc { host, scatter, columns: OnceLock::new() })
    }
}

impl<T: Real> Spmv<Csc<T>> for Cpu {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CpuCsc<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let host = &*m.host;
        spmv_scattered("spmv", self, gate, a, &m.scatter, host.col_ptr(), host.row_idx(), host.values(), x, b, y)
    }
}

/// A CSC matrix seen as the CSR of its transpose.
struct Columns<'a, T> {
    host: &'a Csc<T>,
    partition: &'a Partition,
}

impl<T: Real> Rows<T> for Columns<'_, T> {
    fn nrows(&self) -> usize {
        self.host.ncols()
    }
    fn ncols(&self) -> usize {
        self.host.nrows()
    }
    fn partition(&self) -> &Partition {
        self.partition
    }
    fn accumulate(&self, simd: Simd, rows: Range<usize>, x: &[T], out: &mut [T]) {
        let ptr = &self.host.col_ptr()[rows.start..rows.end + 1];
        gather_rows::<T, false>(simd, ptr, self.host.row_idx(), self.host.values(), x, out);
    }
}

impl<T: Real> SpmvTransposed<Csc<T>> for Cpu {
    fn transposed_order(&self) -> Order {
        Order::Stored
    }

    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CpuCsc<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let partition = m.columns.get_or_init(|| by_entries::<T>(self, m.host.col_ptr()));
        product::spmv_transposed(self, gate, a, &Columns { host: &m.host, partition }, x, b, y)
    }
}
