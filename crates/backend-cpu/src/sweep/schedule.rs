//! Which rows per thread solves, and what it waits for.
//!
//! The rows are cut into units: planes of the grid or, on thin grids, lines. Each unit is cut into blocks of rows. A
//! thread takes the next unit in order and solves its blocks one after the other. Before each block it waits until the
//! units with the block's neighbours are solved far enough. Each unit has one counter of solved rows, stored with
//! release order after a block and loaded with acquire order.
//!
//! Progress: that of [`crate::turns`]; a unit waits only for earlier ones. So one thread is enough, and threads that
//! come late find nothing left.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use spandrel_backend::Result;
use spandrel_sptrsv::sweep::Lattice;

use crate::Cpu;
use crate::threads::SERIAL_BYTES;
use crate::turns::{Patience, Turns};

/// Rows per block if units are planes; rounded to whole lines.
const PLANE_BLOCK: usize = 1024;
/// Rows per block if units are lines.
const LINE_BLOCK: usize = 256;
/// Units per thread from which on dealing out whole units is even enough.
const UNITS_PER_THREAD: usize = 8;
/// Distance between counters in words, so that no two share a cache line.
const APART: usize = 8;

/// How the rows are dealt out. See the module's head.
#[derive(Debug)]
pub(super) struct Schedule {
    rows: usize,
    /// Bytes that a solve moves.
    bytes: u64,
    /// Rows per unit, and per block.
    unit: usize,
    block: usize,
    /// For each distance to units with neighbours, in units: how far ahead within its unit the farthest neighbour is,
    /// in rows.
    behind: Vec<(usize, isize)>,
    workers: usize,
}

impl Schedule {
    /// Makes the schedule for a lattice whose solve moves `bytes`.
    pub(super) fn new(cpu: &Cpu, lattice: &Lattice, bytes: usize) -> Self {
        let [nx, ny, nz] = lattice.size();
        let threads = if bytes < SERIAL_BYTES { 1 } else { cpu.threads().count() };
        let reachable = |o: &&[i32; 3]| (0..3).all(|axis| (o[axis].unsigned_abs() as usize) < lattice.size()[axis]);
        let offsets = || lattice.offsets().iter().filter(reachable).map(|o| o.map(|d| d as isize));
        let planes = || {
            let block = nx * (PLANE_BLOCK / nx).max(1);
            Self::of(
                nx * ny,
                block,
                nx * ny * nz,
                bytes as u64,
                threads,
                offsets().map(|[dx, dy, dz]| (-dz, dx + nx as isize * dy)),
            )
        };
        let lines = || {
            let steps = offsets().map(|[dx, dy, dz]| (-(dy + ny as isize * dz), dx));
            Self::of(nx, LINE_BLOCK.min(nx), nx * ny * nz, bytes as u64, threads, steps)
        };
        if threads == 1 {
            return Self { rows: nx * ny * nz, bytes: 0, unit: 1, block: 1, behind: Vec::new(), workers: 1 };
        }
        if nz >= UNITS_PER_THREAD * threads {
            return planes();
        }
        let (planes, lines) = (planes(), lines());
        if lines.workers > 1 && lines.workers >= planes.workers { lines } else { planes }
    }

    /// Makes a schedule with units of `unit` rows and blocks of `block` rows. Each neighbour is given by how many units
    /// before it lies and how many rows ahead in its unit.
    fn of(
        unit: usize,
        block: usize,
        rows: usize,
        bytes: u64,
        threads: usize,
        neighbours: impl Iterator<Item = (isize, isize)>,
    ) -> Self {
        let mut behind: Vec<(usize, isize)> = Vec::new();
        for (before, ahead) in neighbours.filter(|&(before, _)| before > 0) {
            match behind.iter_mut().find(|b| b.0 == before as usize) {
                Some(b) => b.1 = b.1.max(ahead),
                None => behind.push((before as usize, ahead)),
            }
        }
        // The distance in rows between a thread and the one ahead of it.
        let lag = block + behind.iter().map(|b| b.1.max(0) as usize).max().unwrap_or(0);
        let workers = threads.min(rows / unit).min(unit.div_ceil(lag));
        Self { rows, bytes, unit, block, behind, workers }
    }

    /// Runs `work` on ranges that cover the rows, each after the ranges that it needs.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::OutOfMemory`].
    pub(super) fn run(&self, cpu: &Cpu, work: impl Fn(Range<usize>) + Sync) -> Result<()> {
        if self.workers <= 1 {
            work(0..self.rows);
            return Ok(());
        }
        let units = self.rows / self.unit;
        cpu.scratch().with(units * APART, |words: &mut [f64]| {
            words.fill(0.0);
            // SAFETY: both types have 64 bits, their alignment is that of 64 bits, and all words are zero; the borrow
            // is exclusive while the counters live.
            let solved = unsafe { std::slice::from_raw_parts(words.as_mut_ptr().cast::<AtomicU64>(), words.len()) };
            let unit = |rows: Range<usize>, patience: &mut Patience<'_>| self.solve_unit(rows, solved, &work, patience);
            Turns::new(self.rows, self.unit, self.bytes).run(cpu.threads(), self.workers, unit);
        })
    }

    /// Solves rows of one unit and returns the first that is not solved.
    fn solve_unit(
        &self,
        rows: Range<usize>,
        solved: &[AtomicU64],
        work: &impl Fn(Range<usize>),
        patience: &mut Patience<'_>,
    ) -> usize {
        let unit = rows.start / self.unit;
        let first = unit * self.unit;
        let mut begin = rows.start - first;
        while begin < self.unit {
            let end = self.unit.min(begin + self.block);
            for &(before, ahead) in self.behind.iter().filter(|b| b.0 <= unit) {
                let needed = end.saturating_add_signed(ahead).min(self.unit) as u64;
                let counter = &solved[(unit - before) * APART];
                if patience.wait(|| counter.load(Ordering::Acquire), |&rows| rows >= needed).is_none() {
                    return first + begin;
                }
            }
            work(first + begin..first + end);
            solved[unit * APART].store(end as u64, Ordering::Release);
            begin = end;
        }
        rows.end
    }
}
