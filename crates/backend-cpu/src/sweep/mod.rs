//! The sweep on the CPU: along the lines of the grid, no index read, planes (or lines) of the grid pipelined over threads.
//!
//! Layout: of a whole lattice the triangle's own values, whose rows begin where `row_ptr` says for a line's first row and at a fixed
//! distance after; otherwise an index-free copy, `[row][stencil]` with zeros for absent neighbours, rows in the order of the lower
//! triangle. The transposed system reads the same values at the neighbours' rows.
//! Threads: see [`schedule`]. Any number gives the same bits.
//! Order: [`spandrel_sptrsv::serial`]'s. Zeros that stand for absent neighbours are multiplied: see [`spandrel_sptrsv::sweep`].
//! Cost: |T| (stored values + 2 rows) bytes for T x = b on a whole lattice; 3 rows, for the reciprocals of the diagonal, otherwise, unless
//! it is 1.
//! References: StructMG (arXiv 2506.21932) for lines that wait at the ends of ranges alone; Chen, Yang, Liu, Ma 2023.

mod lines;
mod rows;
mod schedule;
mod transposed;

use std::ops::Range;
use std::sync::Arc;

use spandrel_backend::{Analyze, Analyzed, Load, Part, Result};
use spandrel_formats::{Csr, Ordinal, Real};
use spandrel_sptrsv::Error::NotAnalyzed;
use spandrel_sptrsv::{Diagonal, Plan, Sweep, System, Triangle, Triangular, part};

use self::lines::Lines;
use self::rows::{Arrays, INVERSE, STORED, UNIT, solve_plain};
use self::schedule::Schedule;
use self::transposed::solve_transposed;
use crate::sptrsv::Solve;
use crate::vector::out_of_memory;
use crate::{Cpu, CpuCsr};

/// A plan, shared with the host, the kinds of its lines and, unless its lattice is whole, its values index-free.
#[derive(Clone, Debug)]
pub struct CpuSweep<T> {
    plan: Arc<Sweep<T>>,
    lines: Arc<Lines>,
    filled: Option<Arc<Vec<T>>>,
}

/// The values index-free, over `out`: of an upper triangle from the end, so that they run as its own do.
fn fill<T: Real>(plan: &Sweep<T>, out: &mut [T]) {
    let (matrix, lattice) = (plan.matrix(), plan.lattice());
    let (n, stencil, [nx, ny, nz]) = (matrix.nrows(), lattice.offsets(), lattice.size());
    let holds = |at: usize, d: i32, n: usize| (0..n as i64).contains(&(at as i64 + i64::from(d)));
    for r in 0..n {
        let (row, sign, flip) = match matrix.triangle() {
            Triangle::Lower => (r, 1, false),
            Triangle::Upper => (n - 1 - r, -1, true),
        };
        let (cols, values) = matrix.off_diagonal(row);
        let (x, y, z) = (r % nx, r / nx % ny, r / nx / ny);
        for (k, o) in stencil.iter().enumerate() {
            // Two neighbours may be at one difference of rows, but one of them alone lies inside the grid.
            let inside = holds(x, o[0], nx) && holds(y, o[1], ny) && holds(z, o[2], nz);
            let shift = i64::from(o[0]) + nx as i64 * (i64::from(o[1]) + ny as i64 * i64::from(o[2]));
            let found = inside.then(|| cols.binary_search(&((row as i64 + sign * shift) as Ordinal)).ok()).flatten();
            let e = r * stencil.len() + k;
            out[if flip { n * stencil.len() - 1 - e } else { e }] = found.map_or(T::zero(), |e| values[e]);
        }
    }
}

// SAFETY: what is loaded changes by `update` alone, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Sweep<T>> for Cpu {
    type Resident = CpuSweep<T>;

    fn load(&self, host: Arc<Sweep<T>>) -> Result<CpuSweep<T>> {
        let lattice = host.lattice();
        let filled = match lattice.is_whole() {
            true => None,
            false => {
                let len = host.matrix().nrows().saturating_mul(lattice.offsets().len());
                let mut values = Vec::new();
                values.try_reserve_exact(len).map_err(|_| out_of_memory::<T>(len, "values of a sweep"))?;
                values.resize(len, T::zero());
                fill(&host, &mut values);
                Some(Arc::new(values))
            }
        };
        Ok(CpuSweep { lines: Arc::new(Lines::new(lattice)), filled, plan: host })
    }
}

impl<T: Real> Solve<Sweep<T>> for CpuSweep<T> {
    fn plan(&self) -> &Arc<Sweep<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Sweep<T>>) {
        // Of another grid, which the operation does not allow, it solves that one.
        if self.plan.lattice() != plan.lattice() {
            let lattice = plan.lattice();
            let len = plan.matrix().nrows() * lattice.offsets().len();
            self.lines = Arc::new(Lines::new(lattice));
            self.filled = (!lattice.is_whole()).then(|| Arc::new(vec![T::zero(); len]));
        }
        self.plan = Arc::clone(plan);
        if let Some(filled) = &mut self.filled {
            fill(plan, Arc::make_mut(filled).as_mut_slice());
        }
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        if !self.plan.systems().hold(system) {
            return Err(NotAnalyzed.into());
        }
        let (matrix, lattice) = (self.plan.matrix(), self.plan.lattice());
        let filled = self.filled.as_ref().map(|values| values.as_slice());
        let arrays = Arrays::new(matrix, filled, &self.lines, lattice, b, x);
        let simd = cpu.simd();
        let flip = (self.plan.triangle() == Triangle::Upper) != (system == System::Transposed);
        let diagonal = match (self.plan.diagonal(), system) {
            (Diagonal::Unit, _) => UNIT,
            (Diagonal::NonUnit, System::Plain) if self.filled.is_none() => STORED,
            (Diagonal::NonUnit, _) => INVERSE,
        };
        let work = |rows: Range<usize>| match (system, flip, diagonal) {
            (System::Plain, false, UNIT) => solve_plain::<T, false, UNIT>(simd, &arrays, rows),
            (System::Plain, false, STORED) => solve_plain::<T, false, STORED>(simd, &arrays, rows),
            (System::Plain, false, _) => solve_plain::<T, false, INVERSE>(simd, &arrays, rows),
            (System::Plain, true, UNIT) => solve_plain::<T, true, UNIT>(simd, &arrays, rows),
            (System::Plain, true, STORED) => solve_plain::<T, true, STORED>(simd, &arrays, rows),
            (System::Plain, true, _) => solve_plain::<T, true, INVERSE>(simd, &arrays, rows),
            (System::Transposed, false, UNIT) => solve_transposed::<T, false, UNIT>(simd, &arrays, rows),
            (System::Transposed, false, _) => solve_transposed::<T, false, INVERSE>(simd, &arrays, rows),
            (System::Transposed, true, UNIT) => solve_transposed::<T, true, UNIT>(simd, &arrays, rows),
            (System::Transposed, true, _) => solve_transposed::<T, true, INVERSE>(simd, &arrays, rows),
        };
        Schedule::new(cpu, lattice, self.plan.sptrsv_bytes() as usize).run(cpu, work)
    }
}

impl<T: Real> Analyze<Csr<T>, Sweep<T>> for Cpu {
    /// The host's analysis of a copy of the triangle.
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
