//! How long a device that lets rows wait for each other takes for a triangle without a grid by level sets and by one thread per row, from what
//! their kernels do: both are waits, not bytes. What each wait costs is the device's to say ([`Waits`]).
//!
//! What is played is what decides when a row is known (kernels/levelset.cu, kernels/chains.cu, kernels/include/sptrsv.cuh), with the time of each action:
//! - Level sets: the warp of a slice takes eight entries a lane of each of its rows at a time, in a round that ends when all of them are there; the next
//!   are asked for after that. Then rows of a chain follow each other. Its rows are known together.
//! - A thread a row: the warp of 32 neighbouring rows looks once for what its rows lack of rows of other warps, among the four entries that each
//!   has at hand; then it goes on in steps as long as each of them ends a row, which rows of the same warp may need. So a chain inside a warp
//!   costs a step a row, and one that leaves it a hop besides.
//!
//! Cost: of at most [`PLAYED`] rows the entries twice.

use std::ops::Range;

use spandrel_formats::profile::{Levels, Triangles, Waits};
use spandrel_formats::{Offset, Ordinal, PADDING, Real};

use crate::chains::{HEAD, LONG, Ranked, lanes};
use crate::levelset::{LANES, Schedule, Slice, Span};
use crate::{Result, Triangle, View};

/// Rows that are played at most, from the middle of a triangle: what they need of rows before is there.
pub const PLAYED: usize = 8192;

/// Entries of a round that a lane has.
const HELD: usize = 8;
/// Entries that a thread has at hand.
const AT_HAND: usize = 4;

/// The expected times of one solve of some neighbouring rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The rows.
    pub rows: usize,
    /// Microseconds by level sets.
    pub level_sets: f64,
    /// Microseconds by a thread a row; infinite, and not played, where most rows follow others of a chain: a step of a warp takes as long as many of
    /// a chain's.
    pub threads: f64,
}

impl Latency {
    /// Plays both solves of a system's middle rows.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn of<T: Real>(view: &View<'_, T>, levels: &Levels, waits: &Waits) -> Result<Self> {
        let (part, ranked) = Part::middle(view, levels);
        part.played::<T>(&ranked, levels, waits)
    }

    /// As [`Latency::of`] for a device with these costs. `None`, and nothing is played, if its rows do not wait for each other, or if one thread
    /// per row would be said to take forever.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn in_question<T: Real>(view: &View<'_, T>, costs: &Triangles) -> Result<Option<Self>> {
        let Some(waits) = &costs.waits else { return Ok(None) };
        let (part, ranked) = Part::middle(view, &costs.levels);
        part.is_for_threads(&ranked).then(|| part.played::<T>(&ranked, &costs.levels, waits)).transpose()
    }
}

/// Neighbouring rows of a system, numbered from the first one to be solved: where the entries of each begin, and the rows that they need in the
/// order of the sum, [`PADDING`] for one that is solved before all of these.
struct Part {
    ptr: Vec<Offset>,
    needs: Vec<Ordinal>,
    /// Whether rows have an entry on the diagonal, which a thread a row walks over.
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

    /// The rows in the middle of a system, [`PLAYED`] at most, and their levels.
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
    /// What a row needs, one after the other.
    fn needs(&self, row: usize) -> &[Ordinal] {
        &self.needs[self.ptr[row] as usize..self.ptr[row + 1] as usize]
    }

    /// Whether a thread a row may be fast: not where most rows follow others of a chain.
    fn is_for_threads(&self, ranked: &Ranked) -> bool {
        2 * ranked.followers() < self.rows()
    }

    /// Both ways, at the same time.
    fn played<T: Real>(&self, ranked: &Ranked, levels: &Levels, waits: &Waits) -> Result<Latency> {
        let by_levels =
            || Schedule::ranked::<T>(ranked, levels).map(|schedule| self.by_levels(&schedule, levels.link, waits));
        let by_threads = || self.is_for_threads(ranked).then(|| self.by_threads(waits));
        let (level_sets, threads) = rayon::join(by_levels, by_threads);
        let microseconds = |nanoseconds: u32| f64::from(nanoseconds) / 1000.0;
        let threads = threads.map_or(f64::INFINITY, microseconds);
        Ok(Latency { rows: self.rows(), level_sets: microseconds(level_sets?), threads })
    }

    /// When the last row is known, by level sets.
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
                // The last that each round waits for; long rows have more rounds, one after the other.
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

    /// When the last row is known, by a thread a row.
    fn by_threads(&self, waits: &Waits) -> u32 {
        let count = self.rows();
        let mut known = vec![0u32; count];
        let mut end = 0u32;
        for first in (0..count).step_by(LANES) {
            end = end.max(self.warp(first..count.min(first + LANES), &mut known, waits));
        }
        end
    }

    /// The rows of a warp; when the last of them is known.
    fn warp(&self, rows: Range<usize>, known: &mut [u32], waits: &Waits) -> u32 {
        // A look at what was known that much earlier finds it.
        let sight = waits.hop.saturating_sub(waits.look);
        let mut lanes = [Lane { needs: &[], entries: 0, done: 0, looks: 0 }; LANES];
        for (lane, row) in lanes.iter_mut().zip(rows.clone()) {
            lane.needs = self.needs(row);
            lane.entries = lane.needs.len() + usize::from(self.diagonal);
        }
        // Sets of lanes: that may go on, and for each lane of the warp those that wait for it.
        let mut ready = u32::MAX >> (LANES - rows.len());
        let mut waiting = [0u32; LANES];
        // From when on a look ends a lane's waiting.
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

/// A row under way.
#[derive(Clone, Copy)]
struct Lane<'a> {
    needs: &'a [Ordinal],
    /// Entries, that on the diagonal the last of them.
    entries: usize,
    /// Entries that are done.
    done: usize,
    /// Looks before the entries at hand came there.
    looks: u32,
}

impl Lane<'_> {
    /// Its part of a step of the warp whose rows begin with `first`, the `solved` of them known, after so many looks, the last at `looked`, each of
    /// which sees what was known for `sight`: the entries at hand, as far as they are there.
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
        // What comes to hand now is looked for next time.
        self.looks = looks;
        Outcome::Moved
    }
}

/// How far a lane came in a step.
enum Outcome {
    Solved,
    /// To the next entries.
    Moved,
    /// It needs a row of another warp, which a look finds from that time on.
    Far(u32),
    /// It needs that row of the warp.
    Near(usize),
}

/// The members of a set.
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            at
        })
    })
}
