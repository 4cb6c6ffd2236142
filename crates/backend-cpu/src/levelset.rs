//! The level-set plan on the CPU: every level is cut into one part per worker, and a worker waits for parts of other
//! workers, not for levels.
//!
//! Layout: each worker has a list of the parts that it solves, in order. Each part names the counters of other workers
//! for which it waits. Waits that follow from earlier ones of the same worker are dropped, and a counter advances only
//! if somebody waits for it. Parts without either merge. A level too thin to be worth a wait goes to one worker. Rows
//! that workers share are copied into the order of execution, so that each worker reads its rows one after the other.
//! x, b and the columns keep the user's numbering. T^T's values are read from the triangle.
//! Invariants: one broadcast per solve. Nobody waits for a part before every worker runs. If the workers do not come
//! together in time, one of them solves everything serially. A solve is also serial if the estimate sees no gain. Rows
//! out of their order cost a cache line of b and of x each and, beyond the reach of the TLB, a page-table walk as well.
//! So for large systems with short rows, or with rows that take x from everywhere, a few cores are no faster than one.
//! Order: [`spandrel_sptrsv::serial`]'s, for any number of threads.
//! Cost: parts and rows take O(nnz) once, when the plan is loaded. They need 4 to 40 bytes per level and worker. Rows
//! of T need as many bytes as the triangle plus 4 per entry, and rows of T^T 8 per entry.
//! Reference: Park, Smelyanskiy, Sundaram, Dubey 2014, Sparsifying synchronization for high-performance shared-memory
//! sparse triangular solver.

use std::hint::spin_loop;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use spandrel_backend::{Load, Result};
use spandrel_formats::{Offset, Ordinal, Real};
use spandrel_sptrsv::levelset::Schedule;
use spandrel_sptrsv::{Levelset, Plan, System, Triangle, View};

use crate::Cpu;
use crate::serial::solve_in_order;
use crate::simd::simd_fn;
use crate::sptrsv::Solve;
use crate::threads::{SERIAL_BYTES, Shared};

/// Nanoseconds per row and per entry on one core.
const ROW: u64 = 3;
const ENTRY: u64 = 1;
/// Extra nanoseconds for a row that does not follow the one before it: beyond [`TLB_REACH`] and within it, for b and x
/// together. This is the measured difference between natural and level order on one core
/// (record/cpu-sptrsv-variants.txt).
const ASIDE: [u64; 2] = [15, 2];
/// Bytes in 2048 pages of 4 KiB, which the second-level TLB of a current core covers. Level order touches all pages at
/// every level.
const TLB_REACH: usize = 2048 << 12;
/// Nanoseconds for an element of x that another core wrote last, with some of them in flight at a time.
const FOREIGN: u64 = 10;
/// Nanoseconds from a counter's advance until the waiting worker sees it.
const HOP: u64 = 500;
/// Number of spins before a waiting worker yields its core.
const SPINS: u32 = 4096;
/// Minimum time for which workers wait for each other to come.
const PATIENCE: Duration = Duration::from_micros(30);
/// Value of `Gathering` if one of the workers solves by itself.
const CLOSED: u32 = u32::MAX;

/// Neighbouring positions that a worker solves in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    begin: u32,
    end: u32,
    /// One past the last of its waits.
    waits: u32,
    /// The value to which its counter advances afterwards; 0 for no advance.
    advance: u32,
}

/// The work of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Duty {
    parts: Vec<Part>,
    /// Whose counter to wait for, and the value that it must have reached.
    waits: Vec<(u32, u32)>,
}

/// The duties of all workers.
#[derive(Clone, Debug)]
struct Split {
    duties: Vec<Duty>,
    patience: Duration,
}

impl Split {
    /// Cuts the levels for this many workers; `None` if one worker is as fast.
    fn of<T: Real>(schedule: &Schedule, view: &View<'_, T>, workers: usize, bytes: u64) -> Option<Self> {
        if workers < 2 || bytes < SERIAL_BYTES as u64 {
            return None;
        }
        let wide = |work: u64| work - work / workers as u64 > 2 * HOP;
        let Cuts { cuts, serial, parallel } = Cuts::of(schedule, view, workers, wide);
        // A gain of less than a twentieth is not worth a second core.
        let pays = |parallel: u64| 20 * parallel <= 19 * serial;
        if !pays(parallel) {
            return None;
        }
        let (duties, foreign) = duties(schedule, view, workers, &cuts);
        let patience = PATIENCE.max(Duration::from_nanos(serial / 20));
        pays(parallel + FOREIGN * foreign / workers as u64).then_some(Self { duties, patience })
    }
}

/// Levels cut into one piece per worker.
struct Cuts {
    /// One past the last position of each worker in each level.
    cuts: Vec<u32>,
    /// Estimated nanoseconds of one core, and of all workers.
    serial: u64,
    parallel: u64,
}

impl Cuts {
    /// Cuts the levels that are `wide`, judged by their nanoseconds, into pieces of equal work. The other levels go to
    /// the first worker.
    fn of<T: Real>(schedule: &Schedule, view: &View<'_, T>, workers: usize, wide: impl Fn(u64) -> bool) -> Self {
        let order = schedule.order();
        let work = |p: u32| {
            let row = order[p as usize] as usize;
            ROW + ENTRY * u64::from(view.ptr[row + 1] - view.ptr[row])
        };
        let aside = ASIDE[usize::from(2 * T::BYTES * order.len() <= TLB_REACH)];
        let follows = |p: u32| p > 0 && order[p as usize].abs_diff(order[p as usize - 1]) == 1;
        let in_order = |p: u32| work(p) + if follows(p) { 0 } else { aside };
        let mut made = Self { cuts: Vec::with_capacity(schedule.levels() * workers), serial: 0, parallel: 0 };
        for level in schedule.level_ptr().windows(2) {
            made.serial += (level[0]..level[1]).map(work).sum::<u64>();
            let all: u64 = (level[0]..level[1]).map(in_order).sum();
            if wide(all) {
                made.parallel += all.div_ceil(workers as u64) + HOP;
                let (mut p, mut done) = (level[0], 0);
                for worker in 1..=workers as u64 {
                    let enough = all * worker / workers as u64;
                    // A chain belongs to one worker, because its rows need each other.
                    while p < level[1] && (done < enough || schedule.is_linked(p as usize)) {
                        done += in_order(p);
                        p += 1;
                    }
                    made.cuts.push(p);
                }
            } else {
                made.parallel += all;
                made.cuts.extend(std::iter::repeat_n(level[1], workers));
            }
        }
        made
    }
}

/// The duties that follow from the cuts, and the number of entries that take an x from another worker.
fn duties<T: Real>(schedule: &Schedule, view: &View<'_, T>, workers: usize, cuts: &[u32]) -> (Vec<Duty>, u64) {
    let n = schedule.order().len();
    // The level and the worker of each row.
    let (mut level_of, mut owner) = (vec![0u32; n], vec![0u16; n]);
    let ranges = |level: usize| {
        let begin = schedule.level_ptr()[level];
        (0..workers)
            .map(move |w| (if w == 0 { begin } else { cuts[level * workers + w - 1] }, cuts[level * workers + w]))
    };
    for level in 0..schedule.levels() {
        for (w, (begin, end)) in ranges(level).enumerate() {
            for &row in &schedule.order()[begin as usize..end as usize] {
                (level_of[row as usize], owner[row as usize]) = (level as u32, w as u16);
            }
        }
    }
    let mut duties = vec![Duty::default(); workers];
    // What each worker has waited for, and the levels after which somebody waits for it.
    let mut awaited = vec![0u32; workers * workers];
    let mut asked = vec![false; schedule.levels() * workers];
    let mut needed = vec![0u32; workers];
    let mut foreign = 0;
    for level in 0..schedule.levels() {
        for (w, (begin, end)) in ranges(level).enumerate().filter(|(_, (begin, end))| begin < end) {
            needed.fill(0);
            for &row in &schedule.order()[begin as usize..end as usize] {
                let (first, last) = (view.ptr[row as usize] as usize, view.ptr[row as usize + 1] as usize);
                for &j in view.idx[first..last].iter().filter(|&&j| j != row) {
                    let from = owner[j as usize] as usize;
                    foreign += u64::from(from != w);
                    let most = &mut needed[from];
                    *most = (*most).max(level_of[j as usize] + 1);
                }
            }
            let duty = &mut duties[w];
            for (v, &until) in needed.iter().enumerate().filter(|&(v, _)| v != w) {
                let waited = &mut awaited[w * workers + v];
                if until > *waited {
                    *waited = until;
                    duty.waits.push((v as u32, until));
                    asked[(until as usize - 1) * workers + v] = true;
                }
            }
            duty.parts.push(Part { begin, end, waits: duty.waits.len() as u32, advance: level as u32 + 1 });
        }
    }
    for (w, duty) in duties.iter_mut().enumerate() {
        let mut parts: Vec<Part> = Vec::with_capacity(duty.parts.len());
        for part in &duty.parts {
            let advance = if asked[(part.advance as usize - 1) * workers + w] { part.advance } else { 0 };
            match parts.last_mut() {
                Some(before) if before.advance == 0 && before.end == part.begin && before.waits == part.waits => {
                    (before.end, before.advance) = (part.end, advance);
                }
                _ => parts.push(Part { advance, ..*part }),
            }
        }
        duty.parts = parts;
    }
    (duties, foreign)
}

/// A counter with cache lines of its own, including the neighbouring line that is prefetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU32);

impl Counter {
    fn wait(&self, until: u32) {
        let mut spins = 0;
        while self.0.load(Ordering::Acquire) < until {
            spins += 1;
            if spins < SPINS { spin_loop() } else { yield_now() }
        }
    }
}

/// The workers of a solve as they arrive.
#[derive(Debug, Default)]
struct Gathering(AtomicU32);

/// Who solves the system.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// All workers have come: each does its duty.
    All,
    /// The worker that asked, by itself.
    Alone,
    /// Another worker, by itself.
    Other,
}

impl Gathering {
    /// Joins, and waits until `workers` workers have joined.
    fn join(&self, workers: u32, patience: Duration) -> Found {
        let come = |came: u32| (came != CLOSED).then(|| came + 1);
        let Ok(before) = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, come) else { return Found::Other };
        if before + 1 == workers {
            return Found::All;
        }
        let began = Instant::now();
        loop {
            match self.0.load(Ordering::Acquire) {
                CLOSED => return Found::Other,
                came if came >= workers => return Found::All,
                came if began.elapsed() > patience => {
                    if self.0.compare_exchange(came, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                        return Found::Alone;
                    }
                }
                _ => spin_loop(),
            }
        }
    }
}

/// The rows of a system by position, with the entries off the diagonal in the order of the sum.
#[derive(Clone, Debug)]
struct Permuted<T> {
    ptr: Vec<Offset>,
    /// Row of x that each entry uses.
    cols: Vec<Ordinal>,
    /// Position of each entry's value among the triangle's values.
    from: Vec<Offset>,
    /// The value of each entry; empty for T^T.
    values: Vec<T>,
    /// By position; empty for a unit diagonal.
    inv_diag: Vec<T>,
}

impl<T: Real> Permuted<T> {
    fn of(schedule: &Schedule, view: &View<'_, T>) -> Self {
        let nnz = view.idx.len();
        let mut made = Self {
            ptr: Vec::with_capacity(schedule.order().len() + 1),
            cols: Vec::with_capacity(nnz),
            from: Vec::with_capacity(nnz),
            values: Vec::new(),
            inv_diag: Vec::new(),
        };
        made.ptr.push(0);
        for &row in schedule.order() {
            let entries = view.ptr[row as usize] as usize..view.ptr[row as usize + 1] as usize;
            let mut put = |e: usize| {
                if view.idx[e] != row {
                    made.cols.push(view.idx[e]);
                    made.from.push(view.from.map_or(e as Offset, |from| from[e]));
                }
            };
            match view.triangle {
                Triangle::Lower => entries.for_each(&mut put),
                Triangle::Upper => entries.rev().for_each(&mut put),
            }
            made.ptr.push(made.cols.len() as Offset);
        }
        made.take(schedule, view);
        made
    }

    /// Copies the values and reciprocals.
    fn take(&mut self, schedule: &Schedule, view: &View<'_, T>) {
        if view.from.is_none() {
            self.values.clear();
            self.values.extend(self.from.iter().map(|&e| view.values[e as usize]));
        }
        if !view.inv_diag.is_empty() {
            self.inv_diag.clear();
            self.inv_diag.extend(schedule.order().iter().map(|&row| view.inv_diag[row as usize]));
        }
    }

    /// Computes x of the row at position p, as [`View::solve_row`] does. `all` holds the triangle's values.
    #[inline(always)]
    fn solve_row(&self, p: usize, b: T, all: &[T], x: impl Fn(usize) -> T) -> T {
        let entries = self.ptr[p] as usize..self.ptr[p + 1] as usize;
        let cols = &self.cols[entries.clone()];
        let s = match self.values.get(entries.clone()) {
            Some(values) => cols.iter().zip(values).fold(b, |s, (&j, &t)| (-t).mul_add(x(j as usize), s)),
            None => {
                let from = &self.from[entries];
                cols.iter().zip(from).fold(b, |s, (&j, &e)| (-all[e as usize]).mul_add(x(j as usize), s))
            }
        };
        match self.inv_diag.get(p) {
            Some(&inv) => s * inv,
            None => s,
        }
    }
}

/// What the threads share for one system.
#[derive(Clone, Debug)]
struct Work<T> {
    split: Split,
    rows: Permuted<T>,
}

/// A plan, shared with the host, and the work of the threads if more than one takes part.
#[derive(Clone, Debug)]
pub struct CpuLevelset<T> {
    plan: Arc<Levelset<T>>,
    plain: Option<Arc<Work<T>>>,
    transposed: Option<Arc<Work<T>>>,
}

// SAFETY: a loaded object changes only by `update`, and operations with it write only to their operands.
unsafe impl<T: Real> Load<Levelset<T>> for Cpu {
    type Resident = CpuLevelset<T>;

    fn load(&self, host: Arc<Levelset<T>>) -> Result<CpuLevelset<T>> {
        let split = |system| -> Result<_> {
            if !host.systems().hold(system) {
                return Ok(None);
            }
            let (schedule, view) = (host.schedule(system)?, host.rows().view(system)?);
            let bytes = host.rows().sptrsv_bytes();
            let split = Split::of(schedule, &view, self.threads().count(), bytes);
            Ok(split.map(|split| Arc::new(Work { split, rows: Permuted::of(schedule, &view) })))
        };
        let (plain, transposed) = (split(System::Plain)?, split(System::Transposed)?);
        Ok(CpuLevelset { plan: host, plain, transposed })
    }
}

simd_fn! {
    /// Solves the rows at these positions. The caller ensures that they belong to one worker and that the rows they
    /// need are solved.
    fn solve_part<T>(rows: &Permuted<T>, positions: Range<usize>, order: &[Ordinal], all: &[T], b: Option<&[T]>, shared: &Shared<T>) {
        for (p, &row) in positions.clone().zip(&order[positions]) {
            let i = row as usize;
            // SAFETY: every row is in one part, and nobody reads its element before the part's counter has advanced.
            let place = unsafe { shared.at(i) };
            // SAFETY: the rows that this one needs are solved: by this worker earlier, or by another one for which it
            // waited.
            *place = rows.solve_row(p, b.map_or(*place, |b| b[i]), all, |j| unsafe { shared.read(j) });
        }
    }
}

impl<T: Real> Solve<Levelset<T>> for CpuLevelset<T> {
    fn plan(&self) -> &Arc<Levelset<T>> {
        &self.plan
    }
    fn replace(&mut self, plan: &Arc<Levelset<T>>) {
        self.plan = Arc::clone(plan);
        for (system, work) in [(System::Plain, &mut self.plain), (System::Transposed, &mut self.transposed)] {
            // A system that has work was analysed.
            if let (Some(work), Ok(schedule), Ok(view)) = (work, plan.schedule(system), plan.rows().view(system)) {
                Arc::make_mut(work).rows.take(schedule, &view);
            }
        }
    }
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[T]>, x: &mut [T]) -> Result<()> {
        let view = self.plan.rows().view(system)?;
        let work = if system == System::Plain { &self.plain } else { &self.transposed };
        let Some(work) = work.as_ref().filter(|work| work.split.duties.len() <= cpu.threads().count()) else {
            solve_in_order(cpu.simd(), &view, b, x);
            return Ok(());
        };
        let Work { split, rows } = work.as_ref();
        let order = self.plan.schedule(system)?.order();
        let workers = split.duties.len();
        let counters: Vec<Counter> = (0..workers).map(|_| Counter::default()).collect();
        let gathering = Gathering::default();
        let (n, shared) = (x.len(), Shared::new(x));
        cpu.threads().run(workers, |worker| match gathering.join(workers as u32, split.patience) {
            Found::Other => {}
            // SAFETY: at most one worker solves by itself, and the others have left without touching x.
            Found::Alone => solve_in_order(cpu.simd(), &view, b, unsafe { shared.part(0..n) }),
            Found::All => {
                let duty = &split.duties[worker];
                let mut waits = duty.waits.iter().enumerate().peekable();
                for part in &duty.parts {
                    while let Some((_, &(whose, until))) = waits.next_if(|(at, _)| *at < part.waits as usize) {
                        counters[whose as usize].wait(until);
                    }
                    let positions = part.begin as usize..part.end as usize;
                    solve_part(cpu.simd(), rows, positions, order, view.values, b, &shared);
                    if part.advance > 0 {
                        counters[worker].0.store(part.advance, Ordering::Release);
                    }
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spandrel_formats::{Triplets, generate};
    use spandrel_sptrsv::{Diagonal, Systems, Triangular, serial, split};

    use super::*;

    fn plan(spec: &str, triangle: Triangle) -> Levelset<f64> {
        let parts = split(&generate::csr::<f64>(spec).expect("a known generator")).expect("square");
        let part = if triangle == Triangle::Lower { parts.lower } else { parts.upper };
        let matrix = Triangular::new(part, triangle, Diagonal::Unit).expect("a triangle");
        Levelset::analyze(Arc::new(matrix), Systems::Both).expect("any triangle has levels")
    }

    /// Cuts every level, however thin.
    fn cut(plan: &Levelset<f64>, system: System, workers: usize) -> Split {
        let (schedule, view) = (plan.schedule(system).expect("both"), plan.rows().view(system).expect("both"));
        let Cuts { cuts, .. } = Cuts::of(schedule, &view, workers, |_| true);
        let (duties, _) = duties(schedule, &view, workers, &cuts);
        Split { duties, patience: Duration::from_millis(2) }
    }

    #[test]
    fn duties_hold_every_position_once_and_wait_for_what_they_need() {
        for triangle in [Triangle::Lower, Triangle::Upper] {
            for system in [System::Plain, System::Transposed] {
                let plan = plan("poisson2d:13x9", triangle);
                let (schedule, view) = (plan.schedule(system).expect("both"), plan.rows().view(system).expect("both"));
                for workers in 1..5 {
                    let split = cut(&plan, system, workers);
                    let mut solved = vec![false; plan.nrows()];
                    let (mut counters, mut at) = (vec![0; workers], vec![(0, 0); workers]);
                    // In every round each worker goes as far as its waits allow.
                    loop {
                        let mut moved = false;
                        for (w, duty) in split.duties.iter().enumerate() {
                            while let Some(part) = duty.parts.get(at[w].0) {
                                let waits = &duty.waits[at[w].1..part.waits as usize];
                                if waits.iter().any(|&(v, until)| counters[v as usize] < until) {
                                    break;
                                }
                                for &row in &schedule.order()[part.begin as usize..part.end as usize] {
                                    view.solve_row(row as usize, 0.0, |j| {
                                        assert!(solved[j], "row {row} waits for row {j}");
                                        0.0
                                    });
                                    assert!(!std::mem::replace(&mut solved[row as usize], true));
                                }
                                if part.advance > 0 {
                                    assert!(part.advance > counters[w], "counters ascend");
                                    counters[w] = part.advance;
                                }
                                at[w] = (at[w].0 + 1, part.waits as usize);
                                moved = true;
                            }
                        }
                        if !moved {
                            break;
                        }
                    }
                    assert!(solved.iter().all(|&s| s), "{workers} workers come to an end");
                }
            }
        }
    }

    #[test]
    fn a_thousand_solves_of_cut_levels_have_the_bits_of_the_serial_one() {
        // Five levels, each cut, with waits for both neighbours.
        let mut triplets = Triplets::<f64>::new(1500, 1500).expect("small");
        for i in 300..1500 {
            triplets.push(i, i - 300, 0.5).expect("inside");
            triplets.push(i, i / 300 * 300 - 1 - i % 300, -0.75).expect("inside");
        }
        let matrix = Triangular::new(triplets.to_csr().expect("small"), Triangle::Lower, Diagonal::Unit);
        let matrix = Arc::new(matrix.expect("lower"));
        let plan = Arc::new(Levelset::analyze(matrix, Systems::Plain).expect("any triangle has levels"));
        assert_eq!(plan.schedule(System::Plain).expect("analysed").levels(), 5);
        let b: Vec<f64> = (0..plan.nrows()).map(|i| (i as f64).sin()).collect();
        let mut expected = vec![0.0; b.len()];
        serial::solve(plan.matrix(), &b, &mut expected).expect("lengths fit");
        for workers in [2, 3] {
            let cpu = Cpu::with_threads(workers).expect("threads");
            let (schedule, view) = (plan.schedule(System::Plain).expect("analysed"), plan.rows().view(System::Plain));
            let rows = Permuted::of(schedule, &view.expect("analysed"));
            let work = Work { split: cut(&plan, System::Plain, workers), rows };
            let m = CpuLevelset { plain: Some(Arc::new(work)), transposed: None, plan: Arc::clone(&plan) };
            for _ in 0..500 {
                let mut x = vec![f64::NAN; b.len()];
                m.solve(&cpu, System::Plain, Some(&b), &mut x).expect("analysed");
                assert!(x.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }

    #[test]
    fn workers_that_do_not_come_are_not_waited_for() {
        let gathering = Gathering::default();
        assert_eq!(gathering.join(2, Duration::ZERO), Found::Alone);
        assert_eq!(gathering.join(2, Duration::ZERO), Found::Other, "who comes later goes");
    }

    #[test]
    fn chains_and_small_systems_stay_with_one_core() {
        let cpu = Cpu::with_threads(2).expect("threads");
        let split = |spec| cpu.load(Arc::new(plan(spec, Triangle::Lower))).expect("a plan").plain;
        assert!(split("poisson1d:100000").is_none(), "a level of one row after the other");
        assert!(split("poisson2d:20x20").is_none(), "below a megabyte");
        assert!(split("poisson3d:60x60x60").is_some());
    }

    #[test]
    fn rows_that_two_cores_would_fetch_slower_stay_with_one() {
        // As for a grid, except that a row needs the last row but one: no chains, and rows of a level come in pairs.
        let (side, n) = (96, 96 * 96 * 96);
        let mut triplets = Triplets::<f64>::new(n, n).expect("small");
        for i in 0..n {
            let [x, y, z] = [i % side, i / side % side, i / side / side];
            let needs = [(x > 1, 2), (y > 0, side), (z > 0, side * side)];
            for (_, offset) in needs.into_iter().filter(|(there, _)| *there) {
                triplets.push(i, i - offset, 0.25).expect("inside");
            }
        }
        let matrix = Triangular::new(triplets.to_csr().expect("small"), Triangle::Lower, Diagonal::Unit);
        let large = Levelset::analyze(Arc::new(matrix.expect("lower")), Systems::Plain).expect("any triangle");
        let (schedule, view) = (large.schedule(System::Plain).expect("plain"), large.rows().view(System::Plain));
        let (view, bytes) = (view.expect("plain"), large.rows().sptrsv_bytes());
        assert!(schedule.links().is_empty());
        assert!(Split::of(schedule, &view, 2, bytes).is_none(), "short rows, pages beyond the TLB's");
        assert!(Split::of(schedule, &view, 16, bytes).is_some());
        // With chains, eight rows follow each other.
        let grid = plan("poisson3d:96", Triangle::Lower);
        let (schedule, view) = (grid.schedule(System::Plain).expect("both"), grid.rows().view(System::Plain));
        assert!(Split::of(schedule, &view.expect("both"), 2, grid.rows().sptrsv_bytes()).is_some());
        // Ten levels; a row takes two rows of the preceding level, either near its own place or anywhere.
        let (width, levels) = (8000, 10);
        for (step, shared) in [(1, true), (3001, false)] {
            let mut triplets = Triplets::<f64>::new(width * levels, width * levels).expect("small");
            for i in width..width * levels {
                let before = (i / width - 1) * width;
                for k in [i * step % width, (i * step + 1) % width] {
                    triplets.push(i, before + k, 0.25).expect("inside");
                }
            }
            let matrix = Triangular::new(triplets.to_csr().expect("small"), Triangle::Lower, Diagonal::Unit);
            let plan = Levelset::analyze(Arc::new(matrix.expect("lower")), Systems::Plain).expect("any triangle");
            let (schedule, view) = (plan.schedule(System::Plain).expect("plain"), plan.rows().view(System::Plain));
            let split = Split::of(schedule, &view.expect("plain"), 2, plan.rows().sptrsv_bytes());
            assert_eq!(split.is_some(), shared, "columns {step} apart");
        }
    }
}
