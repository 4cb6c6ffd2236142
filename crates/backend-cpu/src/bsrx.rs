//! BSRX on the CPU: BSR's kernel over the block rows of the mask.
//!
//! Layout: the host matrix itself, shared. Cost: the blocks of the masked rows, x, and y's masked rows.
//! Order: stored. Rows outside the mask are neither read nor written. Dot products go over all of y and so are not fused.

use std::sync::Arc;

use spandrel_backend::{Coeff, Gate, Load, Order, Result, Spmv};
use spandrel_formats::{Bsrx, Format, Real};

use crate::backend::axpby_slice;
use crate::bsr::{Blocks, block_rows};
use crate::device::open;
use crate::product::scale;
use crate::threads::Shared;
use crate::vector::value;
use crate::{Cpu, Scalar, Vector};

/// A BSRX matrix, shared with the host.
#[derive(Clone, Debug)]
pub struct CpuBsrx<T> {
    host: Arc<Bsrx<T>>,
    /// Boundaries of the tasks in the mask.
    tasks: Vec<usize>,
}

impl<T: Real> Load<Bsrx<T>> for Cpu {
    type Resident = CpuBsrx<T>;

    fn load(&self, host: Arc<Bsrx<T>>) -> Result<CpuBsrx<T>> {
        let dim = host.block_dim();
        let mut below = vec![0usize];
        for &row in host.mask() {
            let blocks = (host.row_end()[row as usize] - host.row_start()[row as usize]) as usize;
            let bytes = blocks * dim.saturating_mul(dim).saturating_mul(T::BYTES).saturating_add(4) + (2 * dim * T::BYTES) + 12;
            below.push(below[below.len() - 1] + bytes);
        }
        let total = below[below.len() - 1];
        let count = self.threads().tasks(total);
        let mut tasks: Vec<usize> = (0..count)
            .map(|task| {
                below.partition_point(|&bytes| (bytes as u128) * (count as u128) < (total as u128) * task as u128)
            })
            .collect();
        tasks.push(host.mask().len());
        tasks.dedup();
        Ok(CpuBsrx { host, tasks })
    }
}

impl<T: Real> Spmv<Bsrx<T>> for Cpu {
    const ORDER: Order = Order::Stored;

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CpuBsrx<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        if !open(gate) {
            return Ok(());
        }
        let (a, b, simd, host) = (value(a), value(b), self.simd(), &*m.host);
        let dim = host.block_dim();
        let blocks =
            Blocks { dim, begin: host.row_start(), end: host.row_end(), cols: host.col_idx(), values: host.values() };
        let (x, y) = (x.as_slice(), Shared::new(y.as_mut_slice()));
        self.threads().run(m.tasks.len() - 1, |task| {
            self.scratch().with(if b.is_zero() { 0 } else { dim }, |acc| {
                for &row in &host.mask()[m.tasks[task]..m.tasks[task + 1]] {
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
        });
        Ok(())
    }
}
