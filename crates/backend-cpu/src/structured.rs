//! The structured plan on the CPU: each line of a grid is a task, and progress is one integer per line.
//!
//! Workers draw lines in the order of the walk; a row waits for the rows on earlier lines.
//! Progress: that of [`crate::turns`]. One worker can finish by itself, so no pool is too small. One fork-join per
//! solve.
//! Order: [`spandrel_sptrsv::serial`]'s.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use spandrel_backend::{Load, Result};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, Structured, System, Triangle, View};

use crate::Cpu;
use crate::simd::simd_fn;
use crate::sptrsv::Solve;
use crate::threads::SERIAL_BYTES;
use crate::turns::{Patience, Turns};

/// Rows between two updates of a line's progress. An update costs a cache line that others watch; fewer updates make
/// others wait longer for the first rows.
const STRIDE: usize = 8;

/// A plan, shared with the host, and memory for the progress of its solves.
#[derive(Clone, Debug)]
pub struct CpuStructured<T> {
    plan: Arc<Structured<T>>,
    idle: Arc<Mutex<Vec<Vec<AtomicU32>>>>,
}

// SAFETY: a loaded object changes only by `update`, and operations with it write only to their operands.
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
            done: AtomicUsize::new(0),
        };
        if workers <= 1 {
            solve_alone(cpu.simd(), &work);
            return Ok(());
        }
        let mut progress = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        progress.resize_with(self.plan.lines(), AtomicU32::default);
        progress.iter_mut().for_each(|rows| *rows.get_mut() = 0);
        let line =
            |rows: Range<usize>, patience: &mut Patience<'_>| solve_line(cpu.simd(), &work, &progress, rows, patience);
        Turns::new(n, work.width, self.plan.sptrsv_bytes()).run(cpu.threads(), workers, line);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(progress);
        Ok(())
    }
}

/// x: the worker of a row writes its element, and others read it afterwards.
struct Solution<T>(*mut T);
// SAFETY: elements pass from thread to thread by release and acquire of the progress of their line.
unsafe impl<T: Send> Sync for Solution<T> {}

/// A solve in progress.
struct Lines<'a, T> {
    view: View<'a, T>,
    b: Option<&'a [T]>,
    x: Solution<T>,
    n: usize,
    /// Number of rows per line.
    width: usize,
    /// All lines below this one are known to be solved.
    done: AtomicUsize,
}

impl<T: Real> Lines<'_, T> {
    /// The row of the triangle for row `w` of the walk; also the other way round.
    #[inline(always)]
    fn image(&self, w: usize) -> usize {
        match self.view.triangle {
            Triangle::Lower => w,
            Triangle::Upper => self.n - 1 - w,
        }
    }

    /// Solves row `w` of the walk. Before an element is read, `ready` gets its row of the walk and says whether it may
    /// be read. Returns false if one may not; the row is then unchanged.
    ///
    /// # Safety
    /// Nobody else touches x of this row. Rows before `w` that `ready` has allowed are solved and visible.
    #[inline(always)]
    unsafe fn row(&self, w: usize, mut ready: impl FnMut(usize) -> bool) -> bool {
        let (i, x) = (self.image(w), self.x.0);
        // SAFETY: i < n, and the solve borrows x mutably. Without b, it is in x, because nobody has written this
        // element yet.
        let b = self.b.map_or_else(|| unsafe { x.add(i).read() }, |b| b[i]);
        let mut all = true;
        let solved = self.view.solve_row(i, b, |j| {
            all = all && ready(self.image(j));
            if !all {
                return T::zero();
            }
            // SAFETY: j < n is a column of the triangle in a row before this one, which is solved because `ready` has
            // allowed it.
            unsafe { x.add(j).read() }
        });
        if all {
            // SAFETY: as for b.
            unsafe { x.add(i).write(solved) };
        }
        all
    }

    /// Number of solved lines from the first one on; all of them are acquired.
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

simd_fn! {
    /// Solves all rows on the calling thread.
    fn solve_alone<T>(lines: &Lines<'_, T>) {
        for w in 0..lines.n {
            // SAFETY: nobody else touches x, and the rows before w are solved.
            unsafe { lines.row(w, |_| true) };
        }
    }

    /// Solves rows of one line of the walk, which belongs to this worker, and returns the first that is not solved.
    fn solve_line<T>(lines: &Lines<'_, T>, progress: &[AtomicU32], rows: Range<usize>, patience: &mut Patience<'_>) -> usize {
        // What this worker has seen solved: all lines below, and the first rows of one other line.
        let width = lines.width;
        let below = lines.advance(progress) * width;
        let mut seen = 0..0;
        let (line, end) = (rows.start / width, rows.end);
        let first = line * width;
        for w in rows {
            let ready = |c: usize| {
                if c >= first || c < below || seen.contains(&c) {
                    return true;
                }
                let start = c / width * width;
                let told = patience.wait(
                    || progress[c / width].load(Ordering::Acquire) as usize,
                    |&rows| rows > c - start,
                );
                seen = told.map_or(0..0, |rows| start..start + rows);
                told.is_some()
            };
            // SAFETY: the line belongs to this worker. `ready` allows rows of this line, which this worker or a
            // predecessor has solved, and rows whose line has announced them, which was acquired.
            if !unsafe { lines.row(w, ready) } {
                return w;
            }
            let solved = w - first + 1;
            if solved.is_multiple_of(STRIDE) || solved == width {
                progress[line].store(solved as u32, Ordering::Release);
            }
        }
        end
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

    /// Workers that wait for each other, on lines of any length, give the bits of the serial solve.
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
