//! The structured plan on the CPU: lines of a grid as tasks of workers, progress one integer a line.
//!
//! Workers draw lines in the order of the walk; a row waits for the rows on lines before its own. Those were drawn before, by workers that
//! run: one worker alone gets through, so no pool can be too small. One fork-join a solve.
//! Order: [`spandrel_sptrsv::serial`]'s.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, Structured, System, Triangle, View};

use crate::Cpu;
use crate::sptrsv::Solve;
use crate::threads::SERIAL_BYTES;

/// Rows between two words of progress: telling costs a cache line that others watch, and waiting for a line costs them its first rows.
const STRIDE: usize = 8;
/// Looks at a word of progress before the processor is left to others.
const LOOKS: usize = 200;

/// A plan, shared with the host, and room for the progress of its solves.
#[derive(Clone, Debug)]
pub struct CpuStructured<T> {
    plan: Arc<Structured<T>>,
    idle: Arc<Mutex<Vec<Vec<AtomicU32>>>>,
}

// SAFETY: what is loaded changes by `update` alone, and operations with it write to their operands alone.
unsafe impl<T: Real> Load<Structured<T>> for Cpu {
    type Resident = CpuStructured<T>;

    fn load(&self, host: Arc<Structured<T>>) -> Result<CpuStructured<T>> {
        Ok(CpuStructured { plan: host, idle: Arc::default() })
    }
}

impl<T: Real> Solve<Structured<T>> for CpuStructured<T> {
    fn plan(&self) -> &Arc<Structured<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Structured<T>>) {
        self.plan = Arc::clone(plan);
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        let small = self.plan.sptrsv_bytes() < SERIAL_BYTES as u64;
        let workers = if small { 1 } else { cpu.thread_count().min(self.plan.lines()) };
        self.solve_by(cpu, workers, system, b, x)
    }
}

impl<T: Real> CpuStructured<T> {
    fn solve_by(&self, cpu: &Cpu, workers: usize, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        let n = x.len();
        let work = Lines {
            view: self.plan.rows().view(system)?,
            b,
            x: Solution(x.as_mut_ptr()),
            n,
            width: self.plan.size()[0],
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        };
        if workers <= 1 {
            work.alone();
            return Ok(());
        }
        let mut progress = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        progress.resize_with(self.plan.lines(), AtomicU32::default);
        progress.iter_mut().for_each(|rows| *rows.get_mut() = 0);
        cpu.threads().run(workers, |_| work.draw(&progress));
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        Ok(())
    }
}

/// x, written by the worker of each row and read by others after.
struct Solution<T>(*mut T);
// SAFETY: elements are handed from thread to thread by release and acquire of the progress of their line.
unsafe impl<T: Send> Sync for Solution<T> {}

/// A solve under way.
struct Lines<'a, T> {
    view: View<'a, T>,
    b: Option<&'a [T]>,
    x: Solution<T>,
    n: usize,
    /// Rows of a line.
    width: usize,
    /// The line to be drawn next.
    next: AtomicUsize,
    /// All lines below are known to be solved.
    done: AtomicUsize,
}

impl<T: Real> Lines<'_, T> {
    /// The row of the triangle that row `w` of the walk is, and the other way round.
    #[inline(always)]
    fn image(&self, w: usize) -> usize {
        match self.view.triangle {
            Triangle::Lower => w,
            Triangle::Upper => self.n - 1 - w,
        }
    }

    /// Solves row `w` of the walk; `ready` is told the row of the walk of each element before it is read.
    ///
    /// # Safety
    /// Nobody else touches x of this row; rows of the walk that `ready` has returned for, of those before `w`, are solved and visible.
    #[inline(always)]
    unsafe fn row(&self, w: usize, ready: impl Fn(usize)) {
        let (i, x) = (self.image(w), self.x.0);
        // SAFETY: i < n, and x is borrowed mutably by the solve; without b it is in x, as nobody has written it yet.
        let b = self.b.map_or_else(|| unsafe { x.add(i).read() }, |b| b[i]);
        let solved = self.view.solve_row(i, b, |j| {
            ready(self.image(j));
            // SAFETY: a column of the triangle, j < n, of a row before this one, which is solved once `ready` has returned.
            unsafe { x.add(j).read() }
        });
        // SAFETY: as for b.
        unsafe { x.add(i).write(solved) };
    }

    /// All rows, on the calling thread.
    fn alone(&self) {
        for w in 0..self.n {
            // SAFETY: the solve has x alone, and rows before w are solved.
            unsafe { self.row(w, |_| ()) };
        }
    }

    /// A worker: draws lines until none is left.
    fn draw(&self, progress: &[AtomicU32]) {
        // What this worker has seen solved: all lines below, and of one line the rows below.
        let below = Cell::new(0);
        let seen = Cell::new((0, 0));
        loop {
            let line = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(own) = progress.get(line) else { return };
            below.set(self.advance(progress) * self.width);
            let first = line * self.width;
            let ready = |c: usize| {
                if c >= first || c < below.get() || (seen.get().0..seen.get().1).contains(&c) {
                    return;
                }
                let at = c / self.width;
                let start = at * self.width;
                let rows = wait(&progress[at], c - start + 1);
                seen.set((start, start + rows));
            };
            for k in 0..self.width {
                // SAFETY: the line is drawn by this worker alone; `ready` returns once the row is of this line, or its line has told of it,
                // which was acquired.
                unsafe { self.row(first + k, ready) };
                if (k + 1) % STRIDE == 0 || k + 1 == self.width {
                    own.store((k + 1) as u32, Ordering::Release);
                }
            }
        }
    }

    /// The number of lines from the first on that are solved, each of them acquired.
    fn advance(&self, progress: &[AtomicU32]) -> usize {
        let mut done = self.done.load(Ordering::Acquire);
        let from = done;
        while progress.get(done).is_some_and(|rows| rows.load(Ordering::Acquire) as usize == self.width) {
            done += 1;
        }
        if done > from {
            self.done.fetch_max(done, Ordering::Release);
        }
        done
    }
}

/// Waits until a line has so many rows solved, and gives how many it has.
fn wait(progress: &AtomicU32, rows: usize) -> usize {
    let mut looks = 0;
    loop {
        let found = progress.load(Ordering::Acquire) as usize;
        if found >= rows {
            return found;
        }
        looks += 1;
        if looks % LOOKS == 0 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::Triplets;
    use spandrel_sptrsv::{Diagonal, Serial, Systems, Triangular};

    /// A triangle with a few entries anywhere in each row.
    fn scattered(n: usize, triangle: Triangle, diagonal: Diagonal) -> Arc<Triangular<f64>> {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64 ^ n as u64;
        let mut below = |n: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % n.max(1)
        };
        let mut triplets = Triplets::new(n, n).expect("small");
        for w in 0..n {
            let mut columns: Vec<usize> = (0..5).map(|_| below(w)).chain(w.checked_sub(1)).collect();
            columns.sort_unstable();
            columns.dedup();
            for c in columns.into_iter().filter(|&c| c < w) {
                let value = 0.25 - below(100) as f64 / 300.0;
                match triangle {
                    Triangle::Lower => triplets.push(w, c, value),
                    Triangle::Upper => triplets.push(n - 1 - w, n - 1 - c, value),
                }
                .expect("inside");
            }
            triplets.push(w, w, 1.5 + below(8) as f64).expect("inside");
        }
        Arc::new(Triangular::new(triplets.to_csr().expect("small"), triangle, diagonal).expect("a triangle"))
    }

    /// Workers that wait for each other, on lines of any length: the bits of the serial solve.
    #[test]
    fn workers_wait_for_the_lines_before() {
        let cpu = Cpu::with_threads(4).expect("threads");
        for size in
            [[1, 1, 1], [60, 1, 1], [1, 60, 1], [1, 1, 60], [5, 4, 3], [17, 3, 2], [9, 1, 7], [1, 8, 8], [64, 5, 4]]
        {
            let n = size.iter().product();
            for (triangle, diagonal) in [
                (Triangle::Lower, Diagonal::NonUnit),
                (Triangle::Upper, Diagonal::NonUnit),
                (Triangle::Lower, Diagonal::Unit),
            ] {
                let matrix = scattered(n, triangle, diagonal);
                let plan = Structured::on_grid(Arc::clone(&matrix), size, Systems::Both).expect("it fits");
                let resident = cpu.load(Arc::new(plan)).expect("host memory");
                let reference = Serial::analyze(matrix, Systems::Both).expect("any triangle");
                let b: Vec<f64> = (0..n).map(|i| 1.0 + (i % 11) as f64).collect();
                for system in [System::Plain, System::Transposed] {
                    let view = reference.rows().view(system).expect("both");
                    let mut expected = b.clone();
                    for k in 0..n {
                        let i = if view.triangle == Triangle::Lower { k } else { n - 1 - k };
                        expected[i] = view.solve_row(i, b[i], |j| expected[j]);
                    }
                    for workers in [1, 2, 4, 9] {
                        let (mut x, mut in_place) = (vec![f64::NAN; n], b.clone());
                        resident.solve_by(&cpu, workers, system, Some(&b), &mut x).expect("both");
                        resident.solve_by(&cpu, workers, system, None, &mut in_place).expect("both");
                        assert_eq!(x, expected, "{size:?} {triangle} {diagonal:?} {system} {workers}");
                        assert_eq!(in_place, expected, "{size:?} {triangle} {diagonal:?} {system} {workers}");
                    }
                }
            }
        }
    }
}
