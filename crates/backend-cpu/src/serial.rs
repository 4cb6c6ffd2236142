//! The serial plan on the CPU: one row after the other.
//!
//! Order: [`spandrel_sptrsv::serial`]'s.

use std::sync::Arc;

use spandrel_backend::{Load, Result};
use spandrel_formats::{Offset, Real};
use spandrel_sptrsv::{Serial, System, Triangle, View};

use crate::Cpu;
use crate::simd::simd_fn;
use crate::sptrsv::Solve;

/// A plan, shared with the host.
#[derive(Clone, Debug)]
pub struct CpuSerial<T>(Arc<Serial<T>>);

// SAFETY: a loaded object changes only by `update`, and operations with it write only to their operands.
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

/// Computes x_i for one row after the other. `$terms` gives the columns and values off the diagonal in the order of the
/// sum.
macro_rules! in_order {
    ($view:ident, $b:ident, $x:ident, $rows:expr, |$range:ident| $terms:expr, $value:expr) => {
        for i in $rows {
            let $range = $view.off_diagonal(i);
            let mut s = $b.map_or($x[i], |b| b[i]);
            for (&j, t) in $terms {
                // SAFETY: a column of a triangle is also a row, and x has an element per row: asserted before the first
                // row.
                s = (-$value(t)).mul_add(unsafe { *$x.get_unchecked(j as usize) }, s);
            }
            $x[i] = match $view.inv_diag.get(i) {
                Some(&inv) => s * inv,
                None => s,
            };
        }
    };
}

simd_fn! {
    /// Solves row after row of a view from [`spandrel_sptrsv::Rows`], with the sums of [`View::solve_row`] but without
    /// a branch per entry. The fused multiply-add is a single instruction only if the processor is known to have it.
    pub(crate) fn solve_in_order<T>(view: &View<'_, T>, b: Option<&[T]>, x: &mut [T]) {
        let (idx, values, n) = (view.idx, view.values, x.len());
        assert_eq!(n + 1, view.ptr.len());
        match (view.from, view.triangle) {
            (None, Triangle::Lower) => in_order!(view, b, x, 0..n, |range| idx[range.clone()].iter().zip(&values[range]), |&t: &T| t),
            (None, Triangle::Upper) => in_order!(view, b, x, (0..n).rev(), |range| idx[range.clone()].iter().zip(&values[range]).rev(), |&t: &T| t),
            (Some(from), Triangle::Lower) => in_order!(view, b, x, 0..n, |range| idx[range.clone()].iter().zip(&from[range]), |&e: &Offset| values[e as usize]),
            (Some(from), Triangle::Upper) => in_order!(view, b, x, (0..n).rev(), |range| idx[range.clone()].iter().zip(&from[range]).rev(), |&e: &Offset| values[e as usize]),
        }
    }
}
