//! Partitions of rows among tasks by bytes, not by number of rows.
//!
//! Invariants: boundaries ascend from 0 to the number of rows. Cost: a few words, found by binary search.

use std::ops::Range;

use crate::Cpu;
use crate::dot::BLOCK;

/// Granule at which a partition may cut: whole cache lines of y in either element type.
pub(crate) const GRANULE: usize = 16;

/// Boundaries of the tasks for one resident matrix.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    rows: Vec<usize>,
    blocks: Vec<usize>,
}

impl Partition {
    /// Splits `nrows` rows so that the cost is divided evenly. `cost(i)` is the bytes of the rows below i and does not
    /// decrease.
    pub(crate) fn by_cost(cpu: &Cpu, nrows: usize, cost: impl Fn(usize) -> usize) -> Self {
        let total = cost(nrows);
        let tasks = cpu.threads().tasks(total).max(1);
        let mut rows = vec![0];
        for task in 1..tasks {
            let target = (total as u128 * task as u128 / tasks as u128) as usize;
            let (mut low, mut high) = (rows[task - 1], nrows);
            while low < high {
                let middle = low + (high - low) / 2;
                if cost(middle) < target { low = middle + 1 } else { high = middle }
            }
            rows.push(low.next_multiple_of(GRANULE).min(nrows));
        }
        rows.push(nrows);
        let mut blocks: Vec<usize> = rows.iter().map(|&row| row.next_multiple_of(BLOCK).min(nrows)).collect();
        rows.dedup();
        blocks.dedup();
        Self { rows, blocks }
    }

    /// Number of tasks of [`Partition::run`].
    pub(crate) fn tasks(&self) -> usize {
        self.rows.len() - 1
    }

    /// Runs `work` once per task, with the task's rows.
    pub(crate) fn run(&self, cpu: &Cpu, work: impl Fn(Range<usize>) + Sync) {
        self.run_numbered(cpu, |_, rows| work(rows));
    }

    /// As [`Partition::run`], also passing the number of the task.
    pub(crate) fn run_numbered(&self, cpu: &Cpu, work: impl Fn(usize, Range<usize>) + Sync) {
        run(cpu, &self.rows, work);
    }

    /// As [`Partition::run`] with every boundary at a multiple of [`BLOCK`].
    pub(crate) fn run_blocks(&self, cpu: &Cpu, work: impl Fn(Range<usize>) + Sync) {
        run(cpu, &self.blocks, |_, rows| work(rows));
    }
}

fn run(cpu: &Cpu, bounds: &[usize], work: impl Fn(usize, Range<usize>) + Sync) {
    cpu.threads().run(bounds.len() - 1, |task| work(task, bounds[task]..bounds[task + 1]));
}
