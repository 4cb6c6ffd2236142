//! Estimates how long a GPU takes for a triangle without a grid, by level sets and by one thread per row.
//!
//! Both times consist of waits, not of bytes. The device states what each wait costs ([`Waits`]). The estimate
//! simulates what decides when a row is known (kernels/levelset.cu, kernels/chains.cu, kernels/include/sptrsv.cuh),
//! with the time of each action:
//! - Level sets: the warp of a slice works in rounds. In each round it takes eight entries per lane of each of its
//!   rows, and the round ends when all of them are known. Then the rows of a chain follow each other. All rows of the
//!   slice become known together.
//! - One thread per row: the warp of 32 neighbouring rows looks once for missing rows of other warps, among the four
//!   entries that each thread holds. Then it continues in steps as long as each step finishes a row, which other rows
//!   of the warp may need. So a dependency inside a warp costs one step per row, and one that leaves the warp costs a
//!   hop as well.
//!
//! Cost: two passes over the entries of at most [`PLAYED`] rows.

use std::ops::Range;

use spandrel_formats::profile::{Levels, Triangles, Waits};
use spandrel_formats::{Offset, Ordinal, PADDING, Real};

use crate::chains::{HEAD, LONG, Ranked, lanes};
use crate::levelset::{LANES, Schedule, Slice, Span};
use crate::{Result, Triangle, View};

/// Maximum number of rows that are simulated. They come from the middle of a triangle, and what they need of earlier
/// rows counts as known.
pub const PLAYED: usize = 8192;

/// Entries per lane in a round.
const HELD: usize = 8;
/// Entries that a thread holds at a time.
const AT_HAND: usize = 4;

/// Expected times of one solve of some neighbouring rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Number of rows.
    pub rows: usize,
    /// Microseconds by level sets.
    pub level_sets: f64,
    /// Microseconds by one thread per row. Infinite, without a simulation, if most rows follow others of a chain: a
    /// step of a warp takes as long as many steps of a chain.
    pub threads: f64,
}

impl Latency {
    /// Simulates both solves of a system's middle rows.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn of<T: Real>(view: &View<'_, T>, levels: &Levels, waits: &Waits) -> Result<Self> {
        let (part, ranked) = Part::middle(view, levels);
        part.played::<T>(&ranked, levels, waits)
    }

    /// As [`Latency::of`], for a device with these costs. Returns `None` without a simulation if the device's rows do
    /// not wait for each other, or if one thread per row would be given an infinite time.
    ///
    /// # Errors
    /// As [`Latency::of`].
    pub(crate) fn in_question<T: Real>(view: &View<'_, T>, costs: &Triangles) -> Result<Option<Self>> {
        let Some(waits) = &costs.waits else { return Ok(None) };
        let (part, ranked) = Part::middle(view, &costs.levels);
        part.is_for_threads(&ranked).then(|| part.played::<T>(&ranked, &costs.levels, waits)).transpose()
    }
}

/// Neighbouring rows of a system, numbered from the first one that is solved. `ptr` says where the entries of each row
/// begin. `needs` holds the needed rows in the order of the sum, with [`PADDING`] for a row that is solved before all
/// of these.
struct Part {
    ptr: Vec<Offset>,
    needs: Vec<Ordinal>,
    /// Whether rows have a diagonal entry, which one thread per row has to step over.
    diagonal: bool,
}

impl Part {
    fn of<T: Real>(view: &View<'_, T>, rows: Range<usize>) -> Self {
        let (mut ptr, mut needs) = (Vec::with_capacity(rows.len() + 1), Vec::new());
        ptr.push(0);
        let inside = |place: usize| if place < rows.len() { place as Ordinal } else { PADDING };
        match view.triangle {
            Triangle::Lower => rows.clone().for_each(|row| {
                let cols = &view.idx[view.off_diagonal(row)];
                needs.extend(cols.iter().map(|&col| inside((col as usize).wrapping_sub(rows.start))));
                ptr.push(needs.len() as Offset);
            }),
            Triangle::Upper => rows.clone().rev().for_each(|row| {
                let cols = &view.idx[view.off_diagonal(row)];
                needs.extend(cols.iter().rev().map(|&col| inside((rows.end - 1).wrapping_sub(col as usize))));
                ptr.push(needs.len() as Offset);
            }),
        }
        Self { ptr, needs, diagonal: !view.inv_diag.is_empty() }
    }

    /// Takes the rows in the middle of a system, at most [`PLAYED`], and their levels.
    fn middle<T: Real>(view: &View<'_, T>, levels: &Levels) -> (Self, Ranked) {
        let n = view.ptr.len() - 1;
        let count = n.min(PLAYED);
        let first = (n - count) / 2;
        let part = Self::of(view, first..first + count);
        let ranked = Ranked::of::<false>(count, |row| part.needs(row), levels);
        (part, ranked)
    }

    fn rows(&self) -> usize {
        self.ptr.len() - 1
    }
    /// The rows that a row needs, in the order of the sum.
    fn needs(&self, row: usize) -> &[Ordinal] {
        &self.needs[self.ptr[row] as usize..self.ptr[row + 1] as usize]
    }

    /// Returns true if one thread per row may be fast, that is, unless most rows follow others of a chain.
    fn is_for_threads(&self, ranked: &Ranked) -> bool {
        2 * ranked.followers() < self.rows()
    }

    /// Simulates both ways, at the same time.
    fn played<T: Real>(&self, ranked: &Ranked, levels: &Levels, waits: &Waits) -> Result<Latency> {
        let by_levels =
            || Schedule::ranked::<T>(ranked, levels).map(|schedule| self.by_levels(&schedule, levels.link, waits));
        let by_threads = || self.is_for_threads(ranked).then(|| self.by_threads(waits));
        let (level_sets, threads) = rayon::join(by_levels, by_threads);
        let microseconds = |nanoseconds: u32| f64::from(nanoseconds) / 1000.0;
        let threads = threads.map_or(f64::INFINITY, microseconds);
        Ok(Latency { rows: self.rows(), level_sets: microseconds(level_sets?), threads })
    }

    /// Time at which the last row is known, by level sets.
    fn by_levels(&self, schedule: &Schedule, link: u32, waits: &Waits) -> u32 {
        let mut known = vec![0u32; self.rows()];
        let (mut clock, mut level) = (0u32, 0);
        for segment in schedule.segments() {
            let begin = clock;
            if segment.span == Span::Block {
                while (schedule.level_ptr()[level] as usize) < segment.positions.end {
                    let rows = &schedule.order()
                        [schedule.level_ptr()[level] as usize..schedule.level_ptr()[level + 1] as usize];
                    clock = clock.saturating_add(waits.alone + waits.beside * (rows.len() - 1) as u32);
                    rows.iter().for_each(|&row| known[row as usize] = clock);
                    level += 1;
                }
                continue;
            }
            for &slice in &schedule.slices()[segment.slices.clone()] {
                let Slice { position, rows, far: steps, links: follow, .. } = Slice::of(slice);
                let side = if schedule.is_narrow() { lanes(rows as usize) } else { 1 };
                let long = steps as usize > LONG;
                let held = if long { LANES } else { HELD * side };
                let positions = position as usize..(position + rows) as usize;
                let rows = &schedule.order()[positions.clone()];
                let links = schedule.links().get(positions.clone()).unwrap_or(&[]);
                // The latest time for which each round waits. Long rows have more rounds, one after the other.
                let mut latest = [0u32; LONG / HELD];
                let mut t = begin;
                for (at, &row) in rows.iter().enumerate() {
                    let own = links.get(at).map_or(0, |link| (link & !HEAD).count_ones() as usize);
                    let needs = self.needs(row as usize);
                    for (round, needs) in needs[..needs.len() - own].chunks(held).enumerate() {
                        let seen = |last: u32, &of: &Ordinal| {
                            last.max(known.get(of as usize).map_or(0, |&known| known + waits.seen))
                        };
                        let last = needs.iter().fold(0, seen);
                        match latest.get_mut(round).filter(|_| !long) {
                            Some(latest) => *latest = last.max(*latest),
                            None => t = (t + waits.round).max(last),
                        }
                    }
                }
                if !long {
                    let rounds = (steps as usize).div_ceil(held);
                    t = latest[..rounds].iter().fold(t, |t, &last| (t + waits.round).max(last));
                }
                t += waits.end + link * follow;
                rows.iter().for_each(|&row| known[row as usize] = t);
                clock = clock.max(t);
            }
            level = schedule.level_ptr().partition_point(|&at| (at as usize) < segment.positions.end);
        }
        clock
    }

    /// Time at which the last row is known, by one thread per row.
    fn by_threads(&self, waits: &Waits) -> u32 {
        let count = self.rows();
        let mut known = vec![0u32; count];
        let mut end = 0u32;
        for first in (0..count).step_by(LANES) {
            end = end.max(self.warp(first..count.min(first + LANES), &mut known, waits));
        }
        end
    }

    /// Simulates the rows of one warp and returns the time at which the last of them is known.
    fn warp(&self, rows: Range<usize>, known: &mut [u32], waits: &Waits) -> u32 {
        // A look finds what became known at least this long before it.
        let sight = waits.hop.saturating_sub(waits.look);
        let mut lanes = [Lane { needs: &[], entries: 0, done: 0, looks: 0 }; LANES];
        for (lane, row) in lanes.iter_mut().zip(rows.clone()) {
            lane.needs = self.needs(row);
            lane.entries = lane.needs.len() + usize::from(self.diagonal);
        }
        // Sets of lanes: those that may continue and, for each lane of the warp, those that wait for it.
        let mut ready = u32::MAX >> (LANES - rows.len());
        let mut waiting = [0u32; LANES];
        // The time from which a look ends each lane's wait.
        let mut seen_from = [u32::MAX; LANES];
        let (mut left, mut looks, mut solved) = (rows.len(), 0u32, 0u32);
        let mut t = 0u32;
        while left > 0 {
            if ready == 0 {
                t = t.max(seen_from.iter().fold(u32::MAX, |first, &from| first.min(from)));
            }
            let looked = t;
            looks += 1;
            for (at, from) in seen_from.iter_mut().enumerate() {
                let is_seen = *from <= looked;
                ready |= u32::from(is_seen) << at;
                *from = if is_seen { u32::MAX } else { *from };
            }
            t = t.saturating_add(waits.look);
            loop {
                let (mut ended, mut next) = (0u32, 0u32);
                for at in bits(ready) {
                    match lanes[at].go_on(rows.start, known, solved, (looks, looked, sight)) {
                        Outcome::Solved => ended |= 1 << at,
                        Outcome::Moved => next |= 1 << at,
                        Outcome::Far(from) => seen_from[at] = from,
                        Outcome::Near(of) => waiting[of] |= 1 << at,
                    }
                }
                ready = next;
                t = t.saturating_add(waits.step);
                if self.diagonal && ended != 0 {
                    t = t.saturating_add(waits.inverse);
                }
                for at in bits(ended) {
                    known[rows.start + at] = t;
                    ready |= waiting[at];
                }
                solved |= ended;
                left -= ended.count_ones() as usize;
                if ended == 0 || left == 0 {
                    break;
                }
            }
        }
        t
    }
}

/// A row in progress.
#[derive(Clone, Copy)]
struct Lane<'a> {
    needs: &'a [Ordinal],
    /// Number of entries; the diagonal one is the last.
    entries: usize,
    /// Number of entries that are done.
    done: usize,
    /// Number of looks before the current entries were fetched.
    looks: u32,
}

impl Lane<'_> {
    /// Does this lane's part of a step of the warp: it works through its current entries as far as they are known.
    ///
    /// The warp's rows begin with `first`, and those in `solved` are known. There have been `looks` looks, the last at
    /// time `looked`. A look sees what has been known for `sight`.
    fn go_on(&mut self, first: usize, known: &[u32], solved: u32, (looks, looked, sight): (u32, u32, u32)) -> Outcome {
        let end = self.entries.min(self.done - self.done % AT_HAND + AT_HAND);
        while self.done < end {
            let Some(&needed) = self.needs.get(self.done) else {
                self.done += 1;
                continue;
            };
            let needed = needed as usize;
            let near = needed.wrapping_sub(first);
            if near < LANES {
                if solved >> near & 1 == 0 {
                    return Outcome::Near(near);
                }
            } else {
                let from = known.get(needed).map_or(0, |&known| known + sight);
                if self.looks >= looks || from > looked {
                    return Outcome::Far(from);
                }
            }
            self.done += 1;
        }
        if self.done == self.entries {
            return Outcome::Solved;
        }
        // The entries fetched now are covered by the next look.
        self.looks = looks;
        Outcome::Moved
    }
}

/// How far a lane came in a step.
enum Outcome {
    Solved,
    /// It moved on to the next entries.
    Moved,
    /// It needs a row of another warp, which a look finds from this time on.
    Far(u32),
    /// It needs this row of the same warp.
    Near(usize),
}

/// The members of a set of lanes.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            at
        })
    })
}
