//! Rows that wait for each other: solves by workers that hand rows out by a ticket, and marks of the rows that are solved.
//!
//! Layout: a mark for each run of `grain` rows in the order of the solve: the number of the solve, then how many rows of the run are solved.
//! Progress: runs of rows are drawn in the order of the solve by workers that run already (the caller is one of them), and a row waits for
//! rows of its own run or of runs drawn before. The first run that is not done can always go on.
//! Order: [`spandrel_sptrsv::serial`]'s, whoever solves a row.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spandrel_backend::Result;
use spandrel_formats::Real;
use spandrel_sptrsv::View;

use crate::Cpu;
use crate::threads::Shared;
use crate::vector::out_of_memory;

/// Rows of a run that is drawn.
pub(crate) const RUN: usize = 64;

/// The marks of a plan. One solve at a time has them.
#[derive(Debug)]
pub(crate) struct Marks {
    grain: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the last solve; the upper half of a mark.
    epoch: u32,
    marks: Vec<AtomicU64>,
}

impl Marks {
    /// A mark for every `grain` rows, a divisor of [`RUN`].
    pub(crate) fn new(grain: usize) -> Self {
        debug_assert!(grain > 0 && RUN.is_multiple_of(grain));
        Self { grain, state: Mutex::default() }
    }

    /// x <- T^-1 b, or with b in x. Serial where a solve moves so few `bytes` that waking workers does not pay. Allocates at the first
    /// solve alone.
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
            solve_serially(view, b, x);
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { epoch, marks } = &mut *state;
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
        let (tag, grain, marks) = (u64::from(*epoch) << 32, self.grain, &marks[..wanted]);
        let x = Shared::new(x);
        cpu.threads().run(n.div_ceil(RUN), |run| {
            let first = run * RUN;
            // The mark seen last and what it said: rows often wait for the same one.
            let mut seen = (usize::MAX, 0);
            for k in first..n.min(first + RUN) {
                let i = view.row(k);
                // SAFETY: row i is this worker's, and others read it after its mark alone.
                let own = unsafe { x.read(i) };
                let solved = view.solve_row(i, b.map_or(own, |b| b[i]), |j| {
                    let k = view.row(j);
                    if k < first {
                        let (at, target) = (k / grain, tag + (k % grain) as u64 + 1);
                        if seen.0 != at || seen.1 < target {
                            seen = (at, wait(|| marks[at].load(Ordering::Acquire), |mark| *mark >= target));
                        }
                    }
                    // SAFETY: x_j is written: by this worker, or before the mark that was read.
                    unsafe { x.read(j) }
                });
                // SAFETY: as above.
                unsafe { *x.at(i) = solved };
                marks[k / grain].store(tag + (k % grain) as u64 + 1, Ordering::Release);
            }
        });
        Ok(())
    }
}

/// One row after the other.
pub(crate) fn solve_serially<T: Real>(view: &View<'_, T>, b: Option<&[T]>, x: &mut [T]) {
    for k in 0..x.len() {
        let i = view.row(k);
        x[i] = view.solve_row(i, b.map_or(x[i], |b| b[i]), |j| x[j]);
    }
}

/// Looks until what is seen will do.
#[inline]
pub(crate) fn wait<V>(look: impl Fn() -> V, enough: impl Fn(&V) -> bool) -> V {
    let mut vain = 0u32;
    loop {
        let seen = look();
        if enough(&seen) {
            return seen;
        }
        vain += 1;
        if vain < 100 {
            std::hint::spin_loop();
        } else {
            // There may be fewer processors than workers.
            std::thread::yield_now();
        }
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
            marks.state.lock().unwrap().epoch = u32::MAX - 2;
            for epoch in [u32::MAX - 1, u32::MAX, 1, 2] {
                let mut x = vec![0.0; n as usize];
                marks.solve(&cpu, &view, 1 << 30, Some(&vec![1.0; n as usize]), &mut x).unwrap();
                assert!(x.iter().enumerate().all(|(i, &x)| x == f64::from(i % 2 == 0)));
                assert_eq!(marks.state.lock().unwrap().epoch, epoch);
            }
        }
    }
}
