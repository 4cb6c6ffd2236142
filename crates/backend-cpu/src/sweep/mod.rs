//! The sweep on the CPU: rows are solved along the lines of the grid without reading an index, and planes or lines are
//! pipelined over threads.
//!
//! Layout: a whole lattice uses the triangle's own values. The first row of a line begins where `row_ptr` says, and the
//! others follow at a fixed distance. Any other lattice has an index-free copy, `[row][stencil]`, with zeros for absent
//! neighbours and rows in the order of the lower triangle. The transposed system has an index-free copy of its own, as
//! the lower triangle of the mirrored grid. Gathered from T instead, each term of a row would be in another cache line,
//! and the solve would take more than twice as long. Threads: see [`schedule`]. Any number gives the same bits.
//! Order: [`spandrel_sptrsv::serial`]'s. Zeros for absent neighbours are multiplied: see [`spandrel_sptrsv::sweep`].
//! Cost: |T| (stored values + 2 rows) bytes for T x = b on a whole lattice. Otherwise 3 rows instead of 2, for the
//! reciprocals of the diagonal, unless it is 1. Memory: |T| (stencil x rows) per copy.
//! References: StructMG (arXiv 2506.21932) for lines that wait only at the ends of ranges; Chen, Yang, Liu, Ma 2023.

mod lines;
mod rows;
mod schedule;

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Analyze, Analyzed, Load, Part, Result};
use spandrel_formats::grid::holds;
use spandrel_formats::{Csr, Ordinal, Real};
use spandrel_sptrsv::Error::NotAnalyzed;
use spandrel_sptrsv::{Diagonal, Plan, Sweep, System, Triangle, Triangular, part};

use self::lines::Lines;
use self::rows::{Arrays, INVERSE, STORED, UNIT, solve_rows};
use self::schedule::Schedule;
use crate::sptrsv::Solve;
use crate::vector::out_of_memory;
use crate::{Cpu, CpuCsr};

/// A plan, shared with the host, with the kinds of its lines and its index-free values. T has index-free values unless
/// its lattice is whole, and T^T has them if the plan was analysed for it.
#[derive(Clone, Debug)]
pub struct CpuSweep<T> {
    plan: Arc<Sweep<T>>,
    lines: Arc<Lines>,
    filled: Option<Arc<Vec<T>>>,
    transposed: Option<Arc<Vec<T>>>,
}

/// Number of elements of the index-free values.
fn places<T: Real>(plan: &Sweep<T>) -> usize {
    plan.matrix().nrows().saturating_mul(plan.lattice().offsets().len())
}

/// Returns true if the solve of `system` runs from the end of memory to its start.
fn is_flipped(triangle: Triangle, system: System) -> bool {
    (triangle == Triangle::Upper) != (system == System::Transposed)
}

/// Writes the index-free values of T or T^T to `out`. If the solve runs from the end of memory, the values are stored
/// from the end as well.
fn fill<T: Real>(plan: &Sweep<T>, system: System, out: &mut [T]) {
    let (matrix, lattice) = (plan.matrix(), plan.lattice());
    let (n, stencil, [nx, ny, nz]) = (matrix.nrows(), lattice.offsets(), lattice.size());
    let shift = |o: &[i32; 3]| o[0] as isize + nx as isize * (o[1] as isize + ny as isize * o[2] as isize);
    let shifts: Vec<isize> = stencil.iter().map(shift).collect();
    let is_lower = matrix.triangle() == Triangle::Lower;
    let (flip, len) = (is_flipped(matrix.triangle(), system), out.len());
    out.fill(T::zero());
    let mut put = |r: usize, k: usize, value: T| {
        // Term k of a row is term k of the neighbour's row in the transpose, which is counted from the other end.
        let at = match system {
            System::Plain => r,
            System::Transposed => (n - 1 - r).wrapping_add_signed(-shifts[k]),
        };
        let e = at * stencil.len() + k;
        out[if flip { len - 1 - e } else { e }] = value;
    };
    for r in 0..n {
        let row = if is_lower { r } else { n - 1 - r };
        let (cols, values) = matrix.off_diagonal(row);
        // Entry i in the order of the lower triangle.
        let entry = |i: usize| if is_lower { i } else { cols.len() - 1 - i };
        if cols.len() == stencil.len() {
            (0..cols.len()).for_each(|k| put(r, k, values[entry(k)]));
            continue;
        }
        let (x, y, z) = (r % nx, r / nx % ny, r / nx / ny);
        let mut held = 0;
        for (k, o) in stencil.iter().enumerate() {
            // Two neighbours may have the same difference of rows, but only one of them lies inside the grid. Those
            // inside are in the stencil's order.
            let inside = holds(x, o[0], nx) && holds(y, o[1], ny) && holds(z, o[2], nz);
            let signed = if is_lower { shifts[k] } else { -shifts[k] };
            if inside && held < cols.len() && cols[entry(held)] == row.wrapping_add_signed(signed) as Ordinal {
                put(r, k, values[entry(held)]);
                held += 1;
            }
        }
    }
}

/// Does [`fill`] into new memory.
fn filled<T: Real>(plan: &Sweep<T>, system: System) -> Result<Arc<Vec<T>>> {
    let len = places(plan);
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| out_of_memory::<T>(len, "values of a sweep"))?;
    values.resize(len, T::zero());
    fill(plan, system, &mut values);
    Ok(Arc::new(values))
}

// SAFETY: a loaded object changes only by `update`, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Sweep<T>> for Cpu {
    type Resident = CpuSweep<T>;

    fn load(&self, host: Arc<Sweep<T>>) -> Result<CpuSweep<T>> {
        let lattice = host.lattice();
        let copy = |wanted: bool, system| wanted.then(|| filled(&host, system)).transpose();
        Ok(CpuSweep {
            lines: Arc::new(Lines::new(lattice)),
            filled: copy(!lattice.is_whole(), System::Plain)?,
            transposed: copy(host.systems().hold(System::Transposed), System::Transposed)?,
            plan: host,
        })
    }
}

impl<T: Real> Solve<Sweep<T>> for CpuSweep<T> {
    fn plan(&self) -> &Arc<Sweep<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Sweep<T>>) {
        // The operation does not allow another grid, but if one is given, solve on that one.
        if self.plan.lattice() != plan.lattice() {
            let copy = || Arc::new(vec![T::zero(); places(plan)]);
            self.lines = Arc::new(Lines::new(plan.lattice()));
            self.filled = (!plan.lattice().is_whole()).then(copy);
            self.transposed = plan.systems().hold(System::Transposed).then(copy);
        }
        self.plan = Arc::clone(plan);
        for (values, system) in [(&mut self.filled, System::Plain), (&mut self.transposed, System::Transposed)] {
            if let Some(values) = values {
                fill(plan, system, Arc::make_mut(values).as_mut_slice());
            }
        }
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        let (matrix, lattice) = (self.plan.matrix(), self.plan.lattice());
        let filled = match system {
            System::Plain => &self.filled,
            System::Transposed => &self.transposed,
        };
        if !self.plan.systems().hold(system) || (filled.is_none() && system == System::Transposed) {
            return Err(NotAnalyzed.into());
        }
        let filled = filled.as_ref().map(|values| values.as_slice());
        let arrays = Arrays::new(matrix, filled, &self.lines, lattice, b, x);
        let simd = cpu.simd();
        let flip = is_flipped(self.plan.triangle(), system);
        let diagonal = match self.plan.diagonal() {
            Diagonal::Unit => UNIT,
            Diagonal::NonUnit if filled.is_none() => STORED,
            Diagonal::NonUnit => INVERSE,
        };
        let work = |rows: Range<usize>| match (flip, diagonal) {
            (false, UNIT) => solve_rows::<T, false, UNIT>(simd, &arrays, rows),
            (false, STORED) => solve_rows::<T, false, STORED>(simd, &arrays, rows),
            (false, _) => solve_rows::<T, false, INVERSE>(simd, &arrays, rows),
            (true, UNIT) => solve_rows::<T, true, UNIT>(simd, &arrays, rows),
            (true, STORED) => solve_rows::<T, true, STORED>(simd, &arrays, rows),
            (true, _) => solve_rows::<T, true, INVERSE>(simd, &arrays, rows),
        };
        Schedule::new(cpu, lattice, self.plan.sptrsv_bytes() as usize).run(cpu, work)
    }
}

impl<T: Real> Analyze<Csr<T>, Sweep<T>> for Cpu {
    /// Runs the host's analysis on a copy of the triangle.
    fn analyze(&self, from: &CpuCsr<T>, wanted: &Part<'_>) -> Result<Analyzed<CpuSweep<T>>> {
        let csr = part(from.host(), wanted.triangle)?;
        let matrix = Arc::new(Triangular::new(csr, wanted.triangle, wanted.diagonal)?);
        let plan = match wanted.grid {
            Some((size, offsets)) => Sweep::on_grid(matrix, size, offsets, wanted.systems)?,
            None => Sweep::analyze(matrix, wanted.systems)?,
        };
        let (storage, sptrsv_bytes) = (plan.storage(), plan.sptrsv_bytes());
        Ok(Analyzed { resident: self.load(Arc::new(plan))?, storage, sptrsv_bytes })
    }
}
