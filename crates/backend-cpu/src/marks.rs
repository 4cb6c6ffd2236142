//! Rows that wait for each other: workers draw rows in order and set marks for the rows that they have solved.
//!
//! Layout: one mark per `grain` rows in the order of the solve: the number of the solve, then how many of these rows
//! are solved. Progress: that of [`crate::turns`]; a row waits only for rows of its own run or of runs drawn earlier.
//! Order: [`spandrel_sptrsv::serial`]'s, whoever solves a row.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::View;

use crate::Cpu;
use crate::serial::solve_in_order;
use crate::simd::simd_fn;
use crate::threads::Shared;
use crate::turns::{Patience, Turns};
use crate::vector::out_of_memory;

/// Number of rows per run that is drawn.
pub(crate) const RUN: usize = 64;
/// Number of rows between two updates of a mark: each update costs a cache line that others watch.
const STRIDE: usize = 8;

/// The marks of a plan. Solves that run at the same time have separate marks, and none waits for another. (A worker
/// that helps out while it waits for the others may begin the next solve.)
#[derive(Debug)]
pub(crate) struct Marks {
    grain: usize,
    idle: Mutex<Vec<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last solve; the upper half of a mark.
    epoch: u32,
    marks: Vec<AtomicU64>,
}

impl Marks {
    /// One mark per `grain` rows; `grain` divides [`RUN`].
    pub(crate) fn new(grain: usize) -> Self {
        debug_assert!(grain > 0 && RUN.is_multiple_of(grain));
        Self { grain, idle: Mutex::default() }
    }

    /// x <- T^-1 b; without b, it is in x. Serial if a solve moves so few `bytes` that waking workers does not pay.
    /// Allocates only at the first solve.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::OutOfMemory`].
    pub(crate) fn solve<T: Real>(
        &self,
        cpu: &Cpu,
        view: &View<'_, T>,
        bytes: u64,
        b: Option<&[T]>,
        x: &mut [T],
    ) -> Result<()> {
        let n = x.len();
        if cpu.threads().tasks(usize::try_from(bytes).unwrap_or(usize::MAX)) == 1 {
            solve_in_order(cpu.simd(), view, b, x);
            return Ok(());
        }
        let mut state = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let State { epoch, marks } = &mut state;
        let wanted = n.div_ceil(self.grain);
        if marks.len() < wanted {
            marks.try_reserve_exact(wanted - marks.len()).map_err(|_| out_of_memory::<u64>(wanted, "marks of rows"))?;
            marks.resize_with(wanted, AtomicU64::default);
        }
        if *epoch == u32::MAX {
            marks.iter_mut().for_each(|mark| *mark.get_mut() = 0);
            *epoch = 0;
        }
        *epoch += 1;
        let (tag, marks) = (u64::from(*epoch) << 32, &marks[..wanted]);
        let rows = Rows { view, b, x: Shared::new(x), marks, tag, grain: self.grain };
        let work = |range: Range<usize>, patience: &mut Patience<'_>| solve_run(cpu.simd(), &rows, range, patience);
        Turns::new(n, RUN, bytes).run(cpu.threads(), cpu.threads().count(), work);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(state);
        Ok(())
    }
}

/// What the workers of a solve share.
struct Rows<'a, T> {
    view: &'a View<'a, T>,
    b: Option<&'a [T]>,
    x: Shared<T>,
    marks: &'a [AtomicU64],
    tag: u64,
    grain: usize,
}

simd_fn! {
    /// Solves the rows of one run, which belong to this worker, and returns the first that is not solved.
    fn solve_run<T>(rows: &Rows<'_, T>, range: Range<usize>, patience: &mut Patience<'_>) -> usize {
        let Rows { view, b, x, marks, tag, grain } = *rows;
        let first = range.start / RUN * RUN;
        let end = range.end;
        // Positions of rows known to be solved from the last mark seen, because rows often wait for the same one. A
        // grain is a power of two.
        let mut known = 0..0;
        let (bits, inside) = (grain.trailing_zeros(), grain - 1);
        let mut in_time = true;
        for k in range {
            let i = view.row(k);
            // SAFETY: row i belongs to this worker, and others read it only after its mark.
            let own = unsafe { x.read(i) };
            let solved = view.solve_row(i, b.map_or(own, |b| b[i]), |j| {
                let k = view.row(j);
                if k < first && !known.contains(&k) && in_time {
                    let (at, target) = (k >> bits, tag + (k & inside) as u64 + 1);
                    match patience.wait(|| marks[at].load(Ordering::Acquire), |mark| *mark >= target) {
                        Some(mark) => known = at << bits..(at << bits) + (mark - tag) as usize,
                        None => in_time = false,
                    }
                }
                // Do not touch a row that no mark has announced.
                if !in_time {
                    return T::zero();
                }
                // SAFETY: x_j is written: in this run, by this worker or by one that left it, or before the mark that
                // was read.
                unsafe { x.read(j) }
            });
            if !in_time {
                return k;
            }
            // SAFETY: as above.
            unsafe { *x.at(i) = solved };
            let of_grain = (k & inside) + 1;
            if of_grain % STRIDE == 0 || of_grain == grain || k + 1 == end {
                marks[k >> bits].store(tag + of_grain as u64, Ordering::Release);
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spandrel_formats::Csr;
    use spandrel_sptrsv::{Diagonal, Rows, System, Systems, Triangle, Triangular};

    use super::*;

    #[test]
    fn marks_begin_anew_after_the_last_number() {
        let n = 300u32;
        let row = |i: u32| i.saturating_sub(1)..=i;
        let row_ptr = (0..=n).map(|i| (2 * i).saturating_sub(1)).collect();
        let col_idx: Vec<u32> = (0..n).flat_map(row).collect();
        let csr = Csr::new(n as usize, n as usize, row_ptr, col_idx.clone(), vec![1.0; col_idx.len()]).unwrap();
        let matrix = Arc::new(Triangular::new(csr, Triangle::Lower, Diagonal::NonUnit).unwrap());
        let (rows, cpu) = (Rows::new(matrix, Systems::Plain), Cpu::with_threads(2).unwrap());
        let view = rows.view(System::Plain).unwrap();
        for grain in [1, RUN] {
            let marks = Marks::new(grain);
            marks.idle.lock().unwrap().push(State { epoch: u32::MAX - 2, ..State::default() });
            for epoch in [u32::MAX - 1, u32::MAX, 1, 2] {
                let mut x = vec![0.0; n as usize];
                marks.solve(&cpu, &view, 1 << 30, Some(&vec![1.0; n as usize]), &mut x).unwrap();
                assert!(x.iter().enumerate().all(|(i, &x)| x == f64::from(i % 2 == 0)));
                assert_eq!(marks.idle.lock().unwrap()[0].epoch, epoch);
            }
        }
    }
}
