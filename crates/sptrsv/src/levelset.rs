//! Level sets: rows permuted into an order of execution, level after level, and cut into slices for the warps of a GPU.
//!
//! Layout, for one system: position p is solved p-th and is row `order[p]`; level l is the positions `level_ptr[l] .. level_ptr[l+1]`.
//! Inside a level rows stand by length, longest first, in classes of [`CLASS`] entries, and ascending inside a class: neighbours
//! that are solved side by side take equally long, and ascending rows keep b and x close together.
//! A slice is up to [`LANES`] neighbouring positions of one level, or one row of more than [`LONG`] entries. Its entries stand side by
//! side, in the order in which they are summed: entry k of its l-th row at `first + k rows + l`, rows padded to the longest
//! with [`PADDING`]. A slice ends early where more than half of a row would be padding.
//! Columns are positions, not rows: what a device remembers of x for the rows to come is then read close to where it was written last,
//! and a position below another is one that was handed out earlier. b and x stay in the user's numbering; each of their elements
//! moves once.
//! The values are the triangle's own, found by `from`: new ones are a gather, not an analysis. T^T has an order and an index of its own;
//! on a GPU both systems have their values in places.
//!
//! Segments: neighbouring levels that one thread block solves alone, its x on chip ([`Span::Block`]), or the whole grid ([`Span::Grid`]),
//! whichever costs less, what changing between them costs included.
//!
//! Order: [`crate::serial`]'s.
//! Cost: levels in one serial pass over the entries, then passes over the rows, O(nnz + nrows); the index in one parallel pass when
//! a device asks for it ([`Schedule::index`]).
//! References: Anderson & Saad 1989, Solving sparse triangular linear systems on parallel computers; Park, Smelyanskiy, Sundaram, Dubey
//! 2014, Sparsifying synchronization for high-performance shared-memory sparse triangular solver (execution order).

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_formats::{Offset, Ordinal, PADDING, Real};

use crate::{Plan, Result, Rows, System, Systems, Triangle, Triangular, View};

/// Rows of a slice at most: the lanes of a warp.
pub const LANES: usize = 32;
/// Entries off the diagonal of the longest row that one lane takes; a longer one is a slice of its own.
pub const LONG: usize = 64;
/// Entries by which lengths of rows are told apart.
pub const CLASS: usize = 4;

/// What a level costs in nanoseconds, at least: a thread block alone, which hands x on through shared memory, and a grid, which does so
/// through the second-level cache (record/h200-sptrsv-variants.txt).
const LEVEL: [f64; 2] = [400.0, 700.0];
/// Nanoseconds of each further row of a level for a thread block alone: its lanes wait one after the other.
const BESIDE: f64 = 350.0;
/// Nanoseconds of a slice for a grid, which has more of them in work than any level has, and bytes in a nanosecond.
const SLICE: f64 = 0.4;
const RATE: f64 = 3000.0;
/// Nanoseconds of going over from one to the other: a launch, and rows that are not yet under way.
const CHANGE: f64 = 3000.0;

/// Classes of lengths.
const CLASSES: usize = LONG / CLASS + 2;
/// Rows of a task, about.
const CHUNK: usize = 8192;

/// Who solves a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// One thread block.
    Block,
    /// All of them.
    Grid,
}

/// Neighbouring levels that are solved the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// By whom.
    pub span: Span,
    /// Its slices.
    pub slices: Range<usize>,
    /// Its positions.
    pub positions: Range<usize>,
}

/// The order of execution of one system. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    order: Vec<Ordinal>,
    level_ptr: Vec<Offset>,
    slices: Vec<[u32; 4]>,
    places: usize,
    segments: Vec<Segment>,
}

/// The entries of a schedule's slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Position that each place's entry refers to; [`PADDING`] without one.
    pub cols: Vec<Ordinal>,
    /// Where each place's value is among the triangle's; [`PADDING`] without one.
    pub from: Vec<Offset>,
}

impl Schedule {
    /// Analyses the rows of a system.
    ///
    /// # Errors
    /// [`spandrel_formats::Error::TooLarge`] where the padded slices have more places than 32 bits count.
    pub fn of<T: Real>(view: &View<'_, T>) -> Result<Self> {
        Self::ranked::<T>(levels(view))
    }

    /// The schedule of rows whose levels are known.
    pub(crate) fn ranked<T: Real>(Ranked { level_of, lengths, level_ptr }: Ranked) -> Result<Self> {
        let mut order = by_level(&level_of, &level_ptr);
        let mut parts = cut::<T>(&mut order, &level_ptr, &lengths);
        let places = parts.iter().map(|part| part.places).sum::<usize>();
        if u32::try_from(places).is_err() {
            let limit = u64::from(u32::MAX);
            return Err(spandrel_formats::Error::TooLarge { what: "places", count: places as u64, limit }.into());
        }
        let mut slices = Vec::with_capacity(parts.iter().map(|part| part.slices.len()).sum());
        let mut costs = Vec::with_capacity(level_ptr.len() - 1);
        let mut base = 0;
        for part in &mut parts {
            let first = slices.len();
            slices.extend(part.slices.iter().map(|&[place, at, rows, steps]| [base + place, at, rows, steps]));
            costs.extend(part.costs.iter().map(|&(slice, cost)| (first + slice, cost)));
            base += part.places as u32;
        }
        let mut schedule = Self { order, level_ptr, slices, places, segments: Vec::new() };
        schedule.segments = schedule.divide(&costs);
        Ok(schedule)
    }

    /// The row at each position.
    pub fn order(&self) -> &[Ordinal] {
        &self.order
    }
    /// Where each level's positions begin, and the end.
    pub fn level_ptr(&self) -> &[Offset] {
        &self.level_ptr
    }
    /// Number of levels.
    pub fn levels(&self) -> usize {
        self.level_ptr.len() - 1
    }
    /// First place, first position, rows and entries of a row of each slice.
    pub fn slices(&self) -> &[[u32; 4]] {
        &self.slices
    }
    /// Places of all slices, padding included.
    pub fn places(&self) -> usize {
        self.places
    }
    /// Segments, in order; they hold every slice once.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
    /// Bytes of the order, of the slices and of the columns of their places.
    pub fn storage(&self) -> u64 {
        4 * (self.order.len() + 4 * self.slices.len() + self.places) as u64
    }

    /// The position of each row.
    pub fn positions(&self) -> Vec<Ordinal> {
        let mut positions = vec![0 as Ordinal; self.order.len()];
        for (p, &row) in self.order.iter().enumerate() {
            positions[row as usize] = p as Ordinal;
        }
        positions
    }

    /// The entries of the slices, made in one parallel pass. `view` is what the schedule was made of.
    pub fn index<T: Real>(&self, view: &View<'_, T>) -> Index {
        let positions = self.positions();
        let (mut cols, mut from) = (padded(self.places), padded(self.places));
        let step = self.slices.len().div_ceil(8 * rayon::current_num_threads()).max(64);
        let mut tasks = Vec::new();
        let (mut cols_left, mut from_left) = (&mut cols[..], &mut from[..]);
        for slices in self.slices.chunks(step) {
            let places: usize = slices.iter().map(|&[_, _, rows, steps]| rows as usize * steps as usize).sum();
            let (cols, from);
            (cols, cols_left) = cols_left.split_at_mut(places);
            (from, from_left) = from_left.split_at_mut(places);
            tasks.push((slices, cols, from));
        }
        tasks.into_par_iter().for_each(|(slices, cols, from)| {
            let base = slices[0][0];
            for &[first, position, rows, _] in slices {
                for lane in 0..rows as usize {
                    let row = self.order[position as usize + lane] as usize;
                    let entries = off_diagonal(view, row);
                    let mut at = (first - base) as usize + lane;
                    let mut put = |e: usize| {
                        cols[at] = positions[view.idx[e] as usize];
                        from[at] = view.from.map_or(e as Offset, |from| from[e]);
                        at += rows as usize;
                    };
                    match view.triangle {
                        Triangle::Lower => entries.for_each(&mut put),
                        Triangle::Upper => entries.rev().for_each(&mut put),
                    }
                }
            }
        });
        Index { cols, from }
    }

    /// The cheapest sequence of spans, by dynamic programming over the levels.
    fn divide(&self, costs: &[(usize, [f64; 2])]) -> Vec<Segment> {
        let mut total = [0.0; 2];
        let came: Vec<[usize; 2]> = costs
            .iter()
            .map(|&(_, cost)| {
                let before = total;
                [0, 1].map(|by| {
                    let from = if before[by] <= before[1 - by] + CHANGE { by } else { 1 - by };
                    total[by] = before[from] + if from == by { 0.0 } else { CHANGE } + cost[by];
                    from
                })
            })
            .collect();
        let mut by = usize::from(total[1] < total[0]);
        let (mut slices, mut positions) = (self.slices.len(), self.order.len());
        let mut segments: Vec<Segment> = Vec::new();
        for (level, &(first, _)) in costs.iter().enumerate().rev() {
            let from = came[level][by];
            if level == 0 || from != by {
                let position = self.level_ptr[level] as usize;
                let span = if by == 0 { Span::Block } else { Span::Grid };
                segments.push(Segment { span, slices: first..slices, positions: position..positions });
                (slices, positions) = (first, position);
            }
            by = from;
        }
        segments.reverse();
        segments
    }
}

/// So many places without an entry. Written by all threads, as the system's part of new memory is most of what that takes.
fn padded(places: usize) -> Vec<u32> {
    (0..places).into_par_iter().with_min_len(CHUNK).map(|_| PADDING).collect()
}

/// The entries of a row off its diagonal.
pub(crate) fn off_diagonal<T>(view: &View<'_, T>, row: usize) -> Range<usize> {
    let (begin, end) = (view.ptr[row] as usize, view.ptr[row + 1] as usize);
    match view.triangle {
        _ if begin == end => begin..end,
        Triangle::Lower => begin..end - usize::from(view.idx[end - 1] as usize == row),
        Triangle::Upper => begin + usize::from(view.idx[begin] as usize == row)..end,
    }
}

/// Rows by their levels, and how long they are.
pub(crate) struct Ranked {
    level_of: Vec<Ordinal>,
    /// Entries off the diagonal.
    lengths: Vec<Ordinal>,
    /// Where each level begins.
    level_ptr: Vec<Offset>,
}

impl Ranked {
    fn nothing(n: usize) -> Self {
        Self { level_of: vec![0; n], lengths: vec![0; n], level_ptr: vec![0] }
    }

    /// Of so many rows, whose level and length are asked for in the order of their solve.
    pub(crate) fn by(n: usize, mut of: impl FnMut(usize) -> (Ordinal, usize)) -> Self {
        let mut ranked = Self::nothing(n);
        (0..n).for_each(|row| {
            let (level, length) = of(row);
            ranked.put(row, level, length);
        });
        ranked.summed()
    }

    /// A row; levels come one by one.
    #[inline]
    fn put(&mut self, row: usize, level: Ordinal, length: usize) {
        (self.level_of[row], self.lengths[row]) = (level, length as Ordinal);
        if level as usize + 1 == self.level_ptr.len() {
            self.level_ptr.push(0);
        }
        self.level_ptr[level as usize + 1] += 1;
    }

    fn summed(mut self) -> Self {
        for level in 1..self.level_ptr.len() {
            self.level_ptr[level] += self.level_ptr[level - 1];
        }
        self
    }
}

/// The level and the length of each row.
fn levels<T: Real>(view: &View<'_, T>) -> Ranked {
    let n = view.ptr.len() - 1;
    let mut ranked = Ranked::nothing(n);
    let mut rank = |i: usize| {
        let cols = &view.idx[off_diagonal(view, i)];
        let level = cols.iter().fold(0, |level, &j| level.max(ranked.level_of[j as usize] + 1));
        ranked.put(i, level, cols.len());
    };
    match view.triangle {
        Triangle::Lower => (0..n).for_each(&mut rank),
        Triangle::Upper => (0..n).rev().for_each(&mut rank),
    }
    ranked.summed()
}

/// The rows by level, ascending inside a level.
fn by_level(level_of: &[Ordinal], level_ptr: &[Offset]) -> Vec<Ordinal> {
    let mut next = level_ptr.to_vec();
    let mut order = vec![0 as Ordinal; level_of.len()];
    for (row, &level) in level_of.iter().enumerate() {
        let at = &mut next[level as usize];
        order[*at as usize] = row as Ordinal;
        *at += 1;
    }
    order
}

/// Neighbouring levels, cut into slices.
struct Part {
    /// As [`Schedule::slices`], the first place that of the part.
    slices: Vec<[u32; 4]>,
    places: usize,
    /// Of each level its first slice in the part, and what it costs a thread block and a grid.
    costs: Vec<(usize, [f64; 2])>,
}

/// Puts the rows of each level in order of their lengths and cuts levels into slices, in parallel over runs of levels.
fn cut<T: Real>(order: &mut [Ordinal], level_ptr: &[Offset], lengths: &[Ordinal]) -> Vec<Part> {
    let (levels, mut tasks, mut left, mut first) = (level_ptr.len() - 1, Vec::new(), order, 0);
    while first < levels {
        let begin = level_ptr[first] as usize;
        let end = level_ptr.partition_point(|&ptr| (ptr as usize) < begin + CHUNK).clamp(first + 1, levels);
        let rows;
        (rows, left) = left.split_at_mut(level_ptr[end] as usize - begin);
        tasks.push((&level_ptr[first..=end], rows));
        first = end;
    }
    let solve = |(level_ptr, rows): (&[Offset], &mut [Ordinal])| {
        let mut part = Part {
            slices: Vec::with_capacity(rows.len() / LANES + level_ptr.len()),
            places: 0,
            costs: Vec::with_capacity(level_ptr.len() - 1),
        };
        let mut keys = Vec::new();
        for level in level_ptr.windows(2) {
            let (begin, end) = ((level[0] - level_ptr[0]) as usize, (level[1] - level_ptr[0]) as usize);
            by_length(&mut rows[begin..end], lengths, &mut keys);
            part.cut::<T>(&rows[begin..end], level[0], lengths);
        }
        part
    };
    tasks.into_par_iter().map(solve).collect()
}

/// Puts the rows of a level, which ascend, in classes of length, longest first, ascending inside a class. `keys` is scratch.
fn by_length(rows: &mut [Ordinal], lengths: &[Ordinal], keys: &mut Vec<u64>) {
    let class = |row: Ordinal| {
        let len = lengths[row as usize] as usize;
        CLASSES - 1 - if len > LONG { CLASSES - 1 } else { len.div_ceil(CLASS) }
    };
    let first = class(rows[0]);
    if rows.iter().all(|&row| class(row) == first) {
        return;
    }
    keys.clear();
    keys.extend(rows.iter().map(|&row| (class(row) as u64) << 32 | u64::from(row)));
    if rows.len() <= LANES {
        keys.sort_unstable();
        rows.iter_mut().zip(keys).for_each(|(row, key)| *row = *key as Ordinal);
        return;
    }
    let mut next = [0usize; CLASSES];
    keys.iter().for_each(|key| next[(key >> 32) as usize] += 1);
    let mut begin = 0;
    for at in &mut next {
        begin += std::mem::replace(at, begin);
    }
    for key in keys {
        let at = &mut next[(*key >> 32) as usize];
        rows[*at] = *key as Ordinal;
        *at += 1;
    }
}

impl Part {
    /// Adds the rows of a level, the first of which is at a position.
    fn cut<T: Real>(&mut self, rows: &[Ordinal], position: Offset, lengths: &[Ordinal]) {
        let (first, places) = (self.slices.len(), self.places);
        let (mut begin, mut steps) = (0, 0);
        let mut close = |begin: usize, end: usize, steps: usize| {
            self.slices.push([self.places as u32, position + begin as u32, (end - begin) as u32, steps as u32]);
            self.places += (end - begin) * steps;
        };
        for (p, &row) in rows.iter().enumerate() {
            let len = lengths[row as usize] as usize;
            let sparse = len.next_multiple_of(CLASS) * 2 < steps;
            if p - begin == LANES || (p > begin && (steps > LONG || sparse)) {
                close(begin, p, steps);
                (begin, steps) = (p, 0);
            }
            steps = steps.max(len);
        }
        close(begin, rows.len(), steps);
        let slices = (self.slices.len() - first) as f64;
        let bytes = ((self.places - places) * (4 + T::BYTES) + rows.len() * (4 + 5 * T::BYTES)) as f64;
        let alone = LEVEL[0] + BESIDE * (rows.len() - 1) as f64;
        self.costs.push((first, [alone, LEVEL[1].max(SLICE * slices).max(bytes / RATE)]));
    }
}

/// The plan by level sets: see the module's head.
#[derive(Clone, Debug)]
pub struct Levelset<T> {
    rows: Rows<T>,
    plain: Arc<Schedule>,
    transposed: Option<Arc<Schedule>>,
}

impl<T: Real> Levelset<T> {
    /// The rows, and the columns where T^T is solved too.
    pub fn rows(&self) -> &Rows<T> {
        &self.rows
    }
    /// The order of execution of a system.
    ///
    /// # Errors
    /// [`crate::Error::NotAnalyzed`].
    pub fn schedule(&self, system: System) -> Result<&Arc<Schedule>> {
        match system {
            System::Plain => Ok(&self.plain),
            System::Transposed => self.transposed.as_ref().ok_or(crate::Error::NotAnalyzed),
        }
    }
}

impl<T: Real> Plan for Levelset<T> {
    type Value = T;
    const NAME: &'static str = "levelset";

    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        let rows = Rows::new(matrix, systems);
        let plain = Arc::new(Schedule::of(&rows.view(System::Plain)?)?);
        let transposed = match systems {
            Systems::Plain => None,
            Systems::Both => Some(Arc::new(Schedule::of(&rows.view(System::Transposed)?)?)),
        };
        Ok(Self { rows, plain, transposed })
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        self.rows.matrix()
    }
    fn systems(&self) -> Systems {
        self.rows.systems()
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        self.rows.update(values)
    }
    /// The slices of each system with their values, the reciprocals; what is remembered of x with its epochs.
    fn storage(&self) -> u64 {
        let inv = self.matrix().inv_diag().len();
        let of = |schedule: &Schedule| schedule.storage() + (T::BYTES * (schedule.places() + inv)) as u64;
        of(&self.plain) + self.transposed.as_ref().map_or(0, |t| of(t)) + (2 * T::BYTES * self.nrows()) as u64
    }
    fn sptrsv_bytes(&self) -> u64 {
        let (n, inv) = (self.nrows(), self.matrix().inv_diag().len());
        self.plain.storage() + (T::BYTES * (self.plain.places() + inv + 2 * n)) as u64
    }
}
