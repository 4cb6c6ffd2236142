//! Runs of rows that workers draw in the order of the solve, how these workers wait for each other, and when a worker
//! leaves.
//!
//! Progress: a run waits only for itself and for earlier runs. Every run that was drawn belongs to a worker or has been
//! handed back. A worker that finishes a run continues with the first of those handed back. So the first unfinished run
//! can always continue, unless other programs have taken its worker's processor.
//! Cost: p workers that each wait for more than a share 1 - 1/p of their time are slower than one. A worker beyond this
//! share hands its run back and leaves. The last worker never leaves and waits for nobody. So if there are fewer
//! processors than workers, a solve takes a small multiple of the serial time, in any order
//! (record/cpu-sptrsv-variants.txt).

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::threads::Threads;

/// Number of failed looks before a worker yields its processor; after that it reads the clock at every look.
const LOOKS: u32 = 100;
/// How long a worker may wait before it has worked, while other workers wake up and get as far ahead of it as they have
/// to. If runs follow each other at a distance, all workers together fit into one run (a plane of a sweep). So the time
/// of one run is added, at `BYTES_PER_NS`.
const GRACE: Duration = Duration::from_micros(30);
const BYTES_PER_NS: u64 = 4;

/// A solve in progress.
#[derive(Debug)]
pub(crate) struct Turns {
    rows: usize,
    /// Number of rows per run.
    run: usize,
    grace: Duration,
    /// The next run to be drawn.
    next: AtomicUsize,
    /// Number of workers present, and number of runs that were handed back.
    present: AtomicUsize,
    left: AtomicUsize,
    desk: Mutex<Desk>,
}

/// What workers settle with each other. `present` and `left` change under its lock.
#[derive(Debug, Default)]
struct Desk {
    /// A worker has left, so nobody joins any more.
    closed: bool,
    /// The first unsolved row of each run that was handed back.
    rests: Vec<usize>,
}

impl Turns {
    /// A solve of `rows` rows in runs of `run` rows, which moves `bytes` bytes in total.
    pub(crate) fn new(rows: usize, run: usize, bytes: u64) -> Self {
        debug_assert!(run > 0);
        let of_run = bytes / (rows.div_ceil(run).max(1) as u64);
        Self {
            rows,
            run,
            grace: GRACE + Duration::from_nanos(of_run / BYTES_PER_NS),
            next: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            desk: Mutex::default(),
        }
    }

    /// Solves all rows with at most `workers` workers.
    ///
    /// `work` solves rows of one run in order. It returns the end of the range, or the first row that it did not solve
    /// because [`Patience::wait`] gave up. It sees what was written for earlier rows of the run.
    pub(crate) fn run(
        &self,
        threads: &Threads,
        workers: usize,
        work: impl Fn(Range<usize>, &mut Patience<'_>) -> usize + Sync,
    ) {
        threads.run(workers.min(self.rows.div_ceil(self.run)), |_| self.attend(&work));
    }

    fn attend(&self, work: &impl Fn(Range<usize>, &mut Patience<'_>) -> usize) {
        {
            let desk = self.desk();
            if desk.closed {
                return;
            }
            self.present.fetch_add(1, Ordering::Relaxed);
        }
        let mut patience = Patience { turns: self, since: Instant::now(), waited: Duration::ZERO };
        let mut next = self.draw();
        while let Some(first) = next {
            let end = self.rows.min((first / self.run + 1) * self.run);
            let at = work(first..end, &mut patience);
            next = if at == end { self.draw() } else { self.hand_back(at) };
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first row of what to solve next. `None` if nothing is left; the worker is then counted out.
    fn draw(&self) -> Option<usize> {
        let fresh = || {
            let first = self.next.fetch_add(1, Ordering::Relaxed).checked_mul(self.run)?;
            (first < self.rows).then_some(first)
        };
        if self.left.load(Ordering::Relaxed) == 0
            && let Some(first) = fresh()
        {
            return Some(first);
        }
        let mut desk = self.desk();
        let next = self.take_first(&mut desk).or_else(fresh);
        if next.is_none() {
            self.present.fetch_sub(1, Ordering::Relaxed);
        }
        next
    }

    /// Hands back a run whose next row waits for others, and takes the first earlier one instead if there is one.
    /// `None` for a worker that leaves.
    fn hand_back(&self, at: usize) -> Option<usize> {
        let mut desk = self.desk();
        if desk.rests.iter().any(|&rest| rest < at) {
            let first = self.take_first(&mut desk);
            self.put(&mut desk, at);
            return first;
        }
        // The last worker has nobody to wait for: everything earlier is solved.
        if self.present.load(Ordering::Relaxed) == 1 {
            return Some(at);
        }
        self.put(&mut desk, at);
        desk.closed = true;
        self.present.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn put(&self, desk: &mut Desk, at: usize) {
        desk.rests.push(at);
        self.left.store(desk.rests.len(), Ordering::Relaxed);
    }

    fn take_first(&self, desk: &mut Desk) -> Option<usize> {
        let (place, _) = desk.rests.iter().enumerate().min_by_key(|(_, rest)| **rest)?;
        let first = desk.rests.swap_remove(place);
        self.left.store(desk.rests.len(), Ordering::Relaxed);
        Some(first)
    }
}

/// How long a worker still waits.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    turns: &'a Turns,
    /// When the worker came, and how long it has waited since.
    since: Instant,
    waited: Duration,
}

impl Patience<'_> {
    /// Looks until `enough` accepts what is seen. `None` if the worker has waited too long and has to hand its run
    /// back.
    #[inline(always)]
    pub(crate) fn wait<V>(&mut self, look: impl Fn() -> V, enough: impl Fn(&V) -> bool) -> Option<V> {
        let seen = look();
        if enough(&seen) { Some(seen) } else { self.wait_long(look, enough) }
    }

    #[cold]
    #[inline(never)]
    fn wait_long<V>(&mut self, look: impl Fn() -> V, enough: impl Fn(&V) -> bool) -> Option<V> {
        let began = Instant::now();
        let before = self.waited;
        let worked = began.duration_since(self.since).saturating_sub(before);
        let mut looks = 0u32;
        loop {
            let seen = look();
            if enough(&seen) {
                self.waited = before + began.elapsed();
                return Some(seen);
            }
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            self.waited = before + began.elapsed();
            let others = self.turns.present.load(Ordering::Relaxed).saturating_sub(1);
            if self.waited > self.turns.grace + worked * others.min(1 << 16) as u32 {
                return None;
            }
            // There may be fewer processors than workers.
            std::thread::yield_now();
        }
    }

    /// Returns true if no other worker takes part in the solve, now or later.
    pub(crate) fn is_alone(&self) -> bool {
        let last = || self.turns.present.load(Ordering::Relaxed) == 1;
        last() && {
            let desk = self.turns.desk();
            desk.closed && last()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use super::*;

    /// Solves by `workers` workers, where each row needs the one before. `hold` is called before each row. Returns how
    /// often each row was solved.
    fn chain(workers: usize, rows: usize, run: usize, hold: impl Fn(usize, &Turns) + Sync) -> Vec<u32> {
        let threads = Threads::new(workers).unwrap();
        let turns = Turns::new(rows, run, 0);
        let solved: Vec<AtomicU32> = (0..rows).map(|_| AtomicU32::new(0)).collect();
        turns.run(&threads, workers, |range, patience| {
            let end = range.end;
            for k in range {
                hold(k, &turns);
                if k > 0 && patience.wait(|| solved[k - 1].load(Ordering::Acquire), |&times| times > 0).is_none() {
                    return k;
                }
                solved[k].fetch_add(1, Ordering::Release);
            }
            end
        });
        assert_eq!([&turns.present, &turns.left].map(|count| count.load(Ordering::Relaxed)), [0, 0]);
        solved.into_iter().map(AtomicU32::into_inner).collect()
    }

    /// A worker that loses its processor: it comes back when nobody waits for it any more, or never.
    #[test]
    fn a_worker_that_is_held_up_is_left_alone_and_ends_what_others_left() {
        for workers in [2, 3, 5] {
            let held = AtomicBool::new(false);
            let solved = chain(workers, 1000, 7, |row, turns| {
                if row == 20 && !held.swap(true, Ordering::Relaxed) {
                    while turns.present.load(Ordering::Relaxed) < 2 && !turns.desk().closed {
                        std::thread::yield_now();
                    }
                    while turns.present.load(Ordering::Relaxed) > 1 {
                        std::thread::yield_now();
                    }
                }
            });
            assert!(held.into_inner() && solved.iter().all(|&times| times == 1), "{workers} workers: {solved:?}");
        }
    }

    #[test]
    fn every_row_is_solved_once_however_long_runs_are() {
        for (rows, run) in [(0, 1), (1, 1), (1, 64), (63, 64), (64, 64), (65, 64), (300, 1), (5000, 64), (997, 10)] {
            for workers in [1, 2, 4] {
                assert!(chain(workers, rows, run, |_, _| ()).iter().all(|&times| times == 1), "{rows} {run} {workers}");
            }
        }
    }
}
