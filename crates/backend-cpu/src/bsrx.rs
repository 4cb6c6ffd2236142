//! BSRX on the CPU: BSR's kernel over the block rows of the mask.
//!
//! Layout: the host matrix itself, shared. Cost: the blocks of the masked rows, x, and y's masked rows.
//! Order: stored. Rows outside the mask are neither read nor written. Dot products cover all of y, so they are not
//! fused.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Bsrx, Real};

use crate::backend::axpby_slice;
use crate::bsr::{Blocks, block_rows};
use crate::device::open;
use crate::partition::Partition;
use crate::product::scale;
use crate::threads::Shared;
use crate::vector::{room, value};
use crate::{Cpu, Scalar, Vector};

/// A BSRX matrix, shared with the host, and the partition of its mask.
#[derive(Clone, Debug)]
pub struct CpuBsrx<T> {
    host: Arc<Bsrx<T>>,
    /// Partitions the entries of the mask, not the rows.
    partition: Partition,
}

// SAFETY: a loaded object never changes, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Bsrx<T>> for Cpu {
    type Resident = CpuBsrx<T>;

    fn load(&self, host: Arc<Bsrx<T>>) -> Result<CpuBsrx<T>> {
        let dim = host.block_dim();
        let mut below = room(host.mask().len() + 1, "a plan of the mask")?;
        below.push(0usize);
        for &row in host.mask() {
            let blocks = (host.row_end()[row as usize] - host.row_start()[row as usize]) as usize;
            let bytes =
                blocks * dim.saturating_mul(dim).saturating_mul(T::BYTES).saturating_add(4) + (2 * dim * T::BYTES) + 12;
            below.push(below[below.len() - 1] + bytes);
        }
        let partition = Partition::by_cost(self, host.mask().len(), |i| below[i]);
        Ok(CpuBsrx { host, partition })
    }
}

impl<T: Real> Spmv<Bsrx<T>> for Cpu {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CpuBsrx<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        expect_len("spmv", "x", x.len(), m.host.ncols())?;
        expect_len("spmv", "y", y.len(), m.host.nrows())?;
        if !open(gate) {
            return Ok(());
        }
        let (a, b, simd, host) = (value(a), value(b), self.simd(), &*m.host);
        let dim = host.block_dim();
        let blocks =
            Blocks { dim, begin: host.row_start(), end: host.row_end(), cols: host.col_idx(), values: host.values() };
        let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
        // One block row of accumulators per task.
        let room = if b.is_zero() { 0 } else { dim.min(host.nrows()) };
        self.scratch().with(m.partition.tasks() * room, |acc| {
            let acc = Shared::new(acc);
            m.partition.run_numbered(self, |task, places| {
                // SAFETY: every task has its own part of the accumulators.
                let acc = unsafe { acc.part(task * room..(task + 1) * room) };
                for &row in &host.mask()[places] {
                    let rows = row as usize * dim..((row as usize + 1) * dim).min(host.nrows());
                    // SAFETY: the mask ascends strictly, so every block row of y belongs to one task.
                    let y = unsafe { y.part(rows.clone()) };
                    if b.is_zero() {
                        block_rows(simd, blocks, rows, x, y);
                        scale(simd, a, y);
                    } else {
                        let acc = &mut acc[..y.len()];
                        block_rows(simd, blocks, rows, x, acc);
                        axpby_slice(simd, a, acc, b, y);
                    }
                }
            });
        })
    }
}
