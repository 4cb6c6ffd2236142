//! The serial plan on the CPU: one row after the other.
//!
//! Order: [`spandrel_sptrsv::serial`]'s.

use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Serial, System, Triangle, View};

use crate::Cpu;
use crate::simd::simd_fn;
use crate::sptrsv::Solve;

/// A plan, shared with the host.
#[derive(Clone, Debug)]
pub struct CpuSerial<T>(Arc<Serial<T>>);

// SAFETY: what is loaded changes by `update` alone, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Serial<T>> for Cpu {
    type Resident = CpuSerial<T>;

    fn load(&self, host: Arc<Serial<T>>) -> Result<CpuSerial<T>> {
        Ok(CpuSerial(host))
    }
}

impl<T: Real> Solve<Serial<T>> for CpuSerial<T> {
    fn plan(&self) -> &Arc<Serial<T>> {
        &self.0
    }
    fn replace(&mut self, plan: &Arc<Serial<T>>) {
        self.0 = Arc::clone(plan);
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        solve_in_order(cpu.simd(), &self.0.rows().view(system)?, b, x);
        Ok(())
    }
}

simd_fn! {
    /// Row after row. The fused sums are the device's own instruction only where it is known to have one.
    pub(crate) fn solve_in_order<T>(view: &View<'_, T>, b: Option<&[T]>, x: &mut [T]) {
        let n = x.len();
        for k in 0..n {
            let i = if view.triangle == Triangle::Lower { k } else { n - 1 - k };
            let own = b.map_or(x[i], |b| b[i]);
            if view.from.is_some() {
                x[i] = view.solve_row(i, own, |j| x[j]);
                continue;
            }
            // As `View::solve_row`, with nothing asked of an entry but whether x has its place: twice as fast where rows are in cache.
            let (cols, values) = view.off_diagonal(i);
            let mut s = own;
            if view.triangle == Triangle::Lower {
                for (&j, &t) in cols.iter().zip(values) {
                    s = (-t).mul_add(x[j as usize], s);
                }
            } else {
                for (&j, &t) in cols.iter().zip(values).rev() {
                    s = (-t).mul_add(x[j as usize], s);
                }
            }
            x[i] = match view.inv_diag.get(i) {
                Some(&inv) => s * inv,
                None => s,
            };
        }
    }
}
