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
        let n = view.ptr.len() - 1;
        let (level_of, mut level_ptr) = levels(view);
        let order = by_length(view, &level_of, &mut level_ptr);
        let mut schedule = Self { order, level_ptr, slices: Vec::new(), places: 0, segments: Vec::new() };
        let costs = schedule.cut(view, n)?;
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
        let mut cols = vec![PADDING; self.places];
        let mut from = vec![PADDING; self.places];
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

    /// Cuts the levels into slices; gives for each level its first slice, and what it costs a thread block and a grid.
    fn cut<T: Real>(&mut self, view: &View<'_, T>, n: usize) -> Result<Vec<(usize, [f64; 2])>> {
        let mut costs = Vec::with_capacity(self.levels());
        self.slices.reserve(n.div_ceil(LANES) + self.levels());
        for level in self.level_ptr.windows(2) {
            let (first, places) = (self.slices.len(), self.places);
            let (mut begin, mut steps) = (level[0], 0);
            let mut close = |begin: u32, end: u32, steps: usize, places: &mut usize| {
                self.slices.push([*places as u32, begin, end - begin, steps as u32]);
                *places += (end - begin) as usize * steps;
            };
            for p in level[0]..level[1] {
                let len = off_diagonal(view, self.order[p as usize] as usize).len();
                let rows = (p - begin) as usize;
                let sparse = len.next_multiple_of(CLASS) * 2 < steps;
                if rows == LANES || (rows > 0 && (steps > LONG || sparse)) {
                    close(begin, p, steps, &mut self.places);
                    (begin, steps) = (p, 0);
                }
                steps = steps.max(len);
            }
            close(begin, level[1], steps, &mut self.places);
            let (slices, rows) = ((self.slices.len() - first) as f64, (level[1] - level[0]) as usize);
            let bytes = ((self.places - places) * (4 + T::BYTES) + rows * (4 + 5 * T::BYTES)) as f64;
            let alone = LEVEL[0] + BESIDE * (rows - 1) as f64;
            costs.push((first, [alone, LEVEL[1].max(SLICE * slices).max(bytes / RATE)]));
        }
        match u32::try_from(self.places) {
            Ok(_) => Ok(costs),
            Err(_) => Err(spandrel_formats::Error::TooLarge {
                what: "places",
                count: self.places as u64,
                limit: u64::from(u32::MAX),
            }
            .into()),
        }
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

/// The entries of a row off its diagonal.
pub(crate) fn off_diagonal<T>(view: &View<'_, T>, row: usize) -> Range<usize> {
    let (begin, end) = (view.ptr[row] as usize, view.ptr[row + 1] as usize);
    match view.triangle {
        _ if begin == end => begin..end,
        Triangle::Lower => begin..end - usize::from(view.idx[end - 1] as usize == row),
        Triangle::Upper => begin + usize::from(view.idx[begin] as usize == row)..end,
    }
}

/// The level of each row, and where each level begins.
fn levels<T: Real>(view: &View<'_, T>) -> (Vec<Ordinal>, Vec<Offset>) {
    let n = view.ptr.len() - 1;
    let mut level_of = vec![0 as Ordinal; n];
    let mut level_ptr: Vec<Offset> = vec![0];
    for k in 0..n {
        let i = view.triangle.row(k, n);
        let cols = &view.idx[off_diagonal(view, i)];
        let level = cols.iter().map(|&j| level_of[j as usize] + 1).max().unwrap_or(0);
        level_of[i] = level;
        if level as usize + 1 == level_ptr.len() {
            level_ptr.push(0);
        }
        level_ptr[level as usize + 1] += 1;
    }
    for level in 1..level_ptr.len() {
        level_ptr[level] += level_ptr[level - 1];
    }
    (level_of, level_ptr)
}

/// The rows by level, then by class of length, then ascending: two counting sorts, the finer key first.
fn by_length<T: Real>(view: &View<'_, T>, level_of: &[Ordinal], level_ptr: &mut [Offset]) -> Vec<Ordinal> {
    const CLASSES: usize = LONG / CLASS + 2;
    let n = level_of.len();
    let class = |row: usize| {
        let len = off_diagonal(view, row).len();
        CLASSES - 1 - if len > LONG { CLASSES - 1 } else { len.div_ceil(CLASS) }
    };
    let mut next = [0usize; CLASSES];
    (0..n).for_each(|row| next[class(row)] += 1);
    let mut rows: Vec<Ordinal> = (0..n as Ordinal).collect();
    if !next.contains(&n) {
        let mut begin = 0;
        for at in &mut next {
            begin += std::mem::replace(at, begin);
        }
        for row in 0..n {
            let at = &mut next[class(row)];
            rows[*at] = row as Ordinal;
            *at += 1;
        }
    }
    let mut next = level_ptr.to_vec();
    let mut order = vec![0 as Ordinal; n];
    for row in rows {
        let at = &mut next[level_of[row as usize] as usize];
        order[*at as usize] = row;
        *at += 1;
    }
    order
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
