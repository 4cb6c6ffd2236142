//! The level-set plan: rows permuted into their order of execution, level after level, and cut into slices for the
//! warps of a GPU.
//!
//! Layout for one system: position p is solved p-th and holds row `order[p]`; level l has the positions `level_ptr[l]
//! .. level_ptr[l+1]`. Levels consist of chains ([`crate::chains`]), whose rows have neighbouring positions. `links[p]`
//! says what a row needs of its own chain; it is empty if no chain has a second row.
//!
//! Inside a level, chains are sorted into classes by their number of rows (powers of two) and by their length (steps of
//! [`CLASS`] entries), longest first. Inside a class they keep the order of their rows. So neighbours that are solved
//! side by side take equally long, and their b and x stay close together.
//!
//! A slice is up to [`LANES`] neighbouring positions of one level: whole chains of one class of rows, or one row of
//! more than [`LONG`] entries. Its entries stand side by side in the order of the sum: entry k of its l-th row is at
//! `first + k rows + l`. Entries of other chains come before those of the own chain. Both parts are padded with
//! [`PADDING`] to the longest row. A slice ends early if more than half of a row would be padding.
//!
//! Columns are positions, not rows. So the device reads its copy of x close to where it was last written, and a
//! position below another one was handed out earlier. b and x stay in the user's numbering, and each of their elements
//! moves once. The values are the triangle's own, found by `from`, so new values need a gather but no analysis. T^T has
//! its own order and index. On a GPU both systems hold their values in places.
//!
//! A segment is a group of neighbouring levels that is solved either by one thread block with its x on chip
//! ([`Span::Block`]) or by the whole grid ([`Span::Grid`]), whichever is cheaper. The cost of changing between the two
//! is included.
//!
//! Order: [`crate::serial`]'s.
//! Cost: for each chain length that is tried, a serial pass over the entries; then passes over the rows, O(nnz +
//! nrows). A device that asks for the index ([`Schedule::index`]) costs one more parallel pass. Both systems, and all
//! chain lengths, run at the same time.
//! References: Anderson & Saad 1989, Solving sparse triangular linear systems on parallel computers; Park, Smelyanskiy,
//! Sundaram, Dubey 2014, Sparsifying synchronization for high-performance shared-memory sparse triangular solver
//! (execution order).

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_formats::profile::Levels;
use spandrel_formats::{Offset, Ordinal, PADDING, Profile, Real};

use crate::chains::{CHAIN, CLASS, HEAD, LONG, Ranked, Shape, fits};
use crate::{Plan, Result, Rows, System, Systems, Triangle, Triangular, View};

/// Maximum number of rows per slice: the lanes of a warp.
pub const LANES: usize = CHAIN;

/// Levels with few rows are spread over about `SPREAD` slices with fewer rows than a warp has lanes. A warp then waits
/// for few rows, and several lanes fetch the entries of one row. Slices of chains of one row still have at least
/// `LEAST` rows.
const SPREAD: usize = 64;
const LEAST: usize = 8;
/// Mean number of rows per level below which levels are spread in this way.
const NARROW: usize = 1024;

/// Number of classes of lengths, and of classes altogether (lengths times rows per chain).
const LENGTHS: usize = LONG / CLASS + 2;
const CLASSES: usize = LENGTHS * (CHAIN.ilog2() as usize + 1);
/// Approximate number of rows per task.
const CHUNK: usize = 8192;

/// The part of a GPU that solves a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// One thread block.
    Block,
    /// All thread blocks of the grid.
    Grid,
}

/// Neighbouring levels that are solved in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who solves it.
    pub span: Span,
    /// Its slices.
    pub slices: Range<usize>,
    /// Its positions.
    pub positions: Range<usize>,
}

/// Neighbouring positions that one warp solves together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its first place.
    pub first: u32,
    /// Its first position.
    pub position: u32,
    /// Number of rows, up to [`LANES`].
    pub rows: u32,
    /// Places per row for entries that refer to other chains.
    pub far: u32,
    /// Places per row for entries that refer to its own chain; they come after `far`.
    pub near: u32,
    /// Number of rows of the longest chain, less one.
    pub links: u32,
}

impl Slice {
    /// Packs the slice as kernels read it: first place; first position; rows, with `near` in the second byte and
    /// `links` in the upper half; `far`.
    fn packed(self) -> [u32; 4] {
        [self.first, self.position, self.links << 16 | self.near << 8 | self.rows, self.far]
    }
    /// Unpacks an element of [`Schedule::slices`].
    pub fn of([first, position, rows, far]: [u32; 4]) -> Self {
        Self { first, position, rows: rows & 0xff, far, near: rows >> 8 & 0xff, links: rows >> 16 }
    }
    /// Number of places of all its rows.
    pub fn places(self) -> usize {
        self.rows as usize * (self.far + self.near) as usize
    }
}

/// The order of execution of one system. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    order: Vec<Ordinal>,
    links: Vec<u32>,
    level_ptr: Vec<Offset>,
    slices: Vec<[u32; 4]>,
    places: usize,
    narrow: bool,
    segments: Vec<Segment>,
}

/// The entries of a schedule's slices, one per place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The position to which each place's entry refers; [`PADDING`] if there is no entry.
    pub cols: Vec<Ordinal>,
    /// Position of each place's value among the triangle's values; [`PADDING`] if there is none.
    pub from: Vec<Offset>,
}

impl Schedule {
    /// Analyses the rows of a system for a device with these costs.
    ///
    /// # Errors
    /// [`spandrel_formats::Error::TooLarge`] if the padded slices have more places than 32 bits can count.
    pub fn of<T: Real>(view: &View<'_, T>, costs: &Levels) -> Result<Self> {
        let n = view.ptr.len() - 1;
        let ranked = match view.triangle {
            Triangle::Lower => Ranked::of::<false>(n, |place| &view.idx[view.off_diagonal(place)], costs),
            Triangle::Upper => Ranked::of::<true>(n, |place| &view.idx[view.off_diagonal(n - 1 - place)], costs),
        };
        let mut made = Self::ranked::<T>(&ranked, costs)?;
        if view.triangle == Triangle::Upper {
            made.order.iter_mut().for_each(|row| *row = (n - 1) as Ordinal - *row);
        }
        Ok(made)
    }

    /// Makes the schedule of rows whose levels are known. Its order holds their places instead of rows.
    pub(crate) fn ranked<T: Real>(ranked: &Ranked, by: &Levels) -> Result<Self> {
        let Ranked { links, level_ptr, .. } = ranked;
        let linked = ranked.is_linked();
        let narrow = linked || links.len() < NARROW * (level_ptr.len() - 1);
        let (mut order, ends) = heads_by_level(ranked);
        let mut parts = cut::<T>(&mut order, &ends, ranked, narrow, by);
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
            slices.extend(part.slices.iter().map(|&slice| Slice { first: base + slice.first, ..slice }.packed()));
            costs.extend(part.costs.iter().map(|&(slice, cost)| (first + slice, cost)));
            base += part.places as u32;
        }
        let links = if linked { order.par_iter().map(|&place| links[place as usize]).collect() } else { Vec::new() };
        let level_ptr = level_ptr.clone();
        let mut schedule = Self { order, links, level_ptr, slices, places, narrow, segments: Vec::new() };
        schedule.segments = if linked { schedule.whole() } else { schedule.divide(&costs, by.change) };
        Ok(schedule)
    }

    /// The row at each position.
    pub fn order(&self) -> &[Ordinal] {
        &self.order
    }
    /// What each position's row needs of its own chain: bit t for the t-th row, and [`HEAD`] for the first row of a
    /// chain. Empty if every row is a chain of its own.
    pub fn links(&self) -> &[u32] {
        &self.links
    }
    /// Returns true if the row at a position belongs to the same chain as the one before.
    pub fn is_linked(&self, position: usize) -> bool {
        self.links.get(position).is_some_and(|&link| link != HEAD)
    }
    /// Where each level's positions begin, followed by the end.
    pub fn level_ptr(&self) -> &[Offset] {
        &self.level_ptr
    }
    /// Number of levels.
    pub fn levels(&self) -> usize {
        self.level_ptr.len() - 1
    }
    /// The slices as kernels read them. See [`Slice`].
    pub fn slices(&self) -> &[[u32; 4]] {
        &self.slices
    }
    /// Number of places of all slices, with padding.
    pub fn places(&self) -> usize {
        self.places
    }
    /// Returns true if levels are spread over slices of few rows, with several lanes per row.
    pub fn is_narrow(&self) -> bool {
        self.narrow
    }
    /// The segments, in order. Every slice is in exactly one of them.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
    /// Bytes of the order, the links, the slices and the columns of their places.
    pub fn storage(&self) -> u64 {
        4 * (self.order.len() + self.links.len() + 4 * self.slices.len() + self.places) as u64
    }

    /// The position of each row.
    pub fn positions(&self) -> Vec<Ordinal> {
        let mut positions = vec![0 as Ordinal; self.order.len()];
        for (p, &row) in self.order.iter().enumerate() {
            positions[row as usize] = p as Ordinal;
        }
        positions
    }

    /// Makes the entries of the slices in one parallel pass. `view` must be the one from which the schedule was made.
    pub fn index<T: Real>(&self, view: &View<'_, T>) -> Index {
        let positions = self.positions();
        let (mut cols, mut from) = (padded(self.places), padded(self.places));
        let step = self.slices.len().div_ceil(8 * rayon::current_num_threads()).max(64);
        let mut tasks = Vec::new();
        let (mut cols_left, mut from_left) = (&mut cols[..], &mut from[..]);
        for slices in self.slices.chunks(step) {
            let places: usize = slices.iter().map(|&slice| Slice::of(slice).places()).sum();
            let (cols, from);
            (cols, cols_left) = cols_left.split_at_mut(places);
            (from, from_left) = from_left.split_at_mut(places);
            tasks.push((slices, cols, from));
        }
        tasks.into_par_iter().for_each(|(slices, cols, from)| {
            let base = slices[0][0];
            for &slice in slices {
                let Slice { first, position, rows, far, .. } = Slice::of(slice);
                for lane in 0..rows as usize {
                    let position = position as usize + lane;
                    let row = self.order[position] as usize;
                    let entries = view.off_diagonal(row);
                    let near = self.links.get(position).map_or(0, |link| (link & !HEAD).count_ones() as usize);
                    let (mut step, skip_from) = (0, entries.len() - near);
                    let mut put = |e: usize| {
                        let behind = if step < skip_from { step } else { far as usize + step - skip_from };
                        let at = (first - base) as usize + lane + behind * rows as usize;
                        cols[at] = positions[view.idx[e] as usize];
                        from[at] = view.from.map_or(e as Offset, |from| from[e]);
                        step += 1;
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

    /// One segment for the whole grid, because chains pass x on faster than the memory of one thread block does.
    fn whole(&self) -> Vec<Segment> {
        vec![Segment { span: Span::Grid, slices: 0..self.slices.len(), positions: 0..self.order.len() }]
    }

    /// Finds the cheapest sequence of spans by dynamic programming over the levels.
    fn divide(&self, costs: &[(usize, [f64; 2])], change: f64) -> Vec<Segment> {
        let mut total = [0.0; 2];
        let came: Vec<[usize; 2]> = costs
            .iter()
            .map(|&(_, cost)| {
                let before = total;
                [0, 1].map(|by| {
                    let from = if before[by] <= before[1 - by] + change { by } else { 1 - by };
                    total[by] = before[from] + if from == by { 0.0 } else { change } + cost[by];
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

/// Makes this many places without an entry. All threads write, because the system's part of getting new memory takes
/// most of the time.
fn padded(places: usize) -> Vec<u32> {
    (0..places).into_par_iter().with_min_len(CHUNK).map(|_| PADDING).collect()
}

/// The places at which chains begin, by level and ascending within a level; and the end of each level's list.
fn heads_by_level(ranked: &Ranked) -> (Vec<Ordinal>, Vec<Offset>) {
    let mut next = ranked.level_ptr.clone();
    let mut order = vec![0 as Ordinal; ranked.links.len()];
    for (place, (&link, &level)) in ranked.links.iter().zip(&ranked.level_of).enumerate() {
        if link == HEAD {
            let at = &mut next[level as usize];
            order[*at as usize] = place as Ordinal;
            *at += 1;
        }
    }
    (order, next)
}

/// The slices of some neighbouring levels.
struct Part {
    /// Their first places count from the start of the part.
    slices: Vec<Slice>,
    places: usize,
    /// For each level: its first slice in the part, and its cost for a thread block and for the grid.
    costs: Vec<(usize, [f64; 2])>,
}

/// Sorts the chains of each level and cuts levels into slices, in parallel over groups of levels. On entry `order` has
/// each level's heads up to `ends`; on return it has all of its rows.
fn cut<T: Real>(order: &mut [Ordinal], ends: &[Offset], ranked: &Ranked, narrow: bool, by: &Levels) -> Vec<Part> {
    let level_ptr = &ranked.level_ptr;
    let (levels, mut tasks, mut left, mut first) = (level_ptr.len() - 1, Vec::new(), order, 0);
    while first < levels {
        let begin = level_ptr[first] as usize;
        let end = level_ptr.partition_point(|&ptr| (ptr as usize) < begin + CHUNK).clamp(first + 1, levels);
        let rows;
        (rows, left) = left.split_at_mut(level_ptr[end] as usize - begin);
        tasks.push((first..end, rows));
        first = end;
    }
    let solve = |(levels, rows): (Range<usize>, &mut [Ordinal])| {
        let mut part = Part {
            slices: Vec::with_capacity(rows.len() / LANES + levels.len()),
            places: 0,
            costs: Vec::with_capacity(levels.len()),
        };
        let base = level_ptr[levels.start];
        let (mut keys, mut chains) = (Vec::new(), Vec::new());
        for level in levels {
            let [begin, end, heads] =
                [level_ptr[level], level_ptr[level + 1], ends[level]].map(|at| (at - base) as usize);
            by_class(&mut rows[begin..heads], ranked, &mut keys);
            let lanes = if narrow { (end - begin) / SPREAD } else { LANES };
            if heads == end {
                let alone = rows[begin..end].iter().map(|&row| ranked.row(row as usize));
                part.cut::<T>(alone, level_ptr[level], lanes, by);
                continue;
            }
            chains.clear();
            chains.extend(rows[begin..heads].iter().map(|&head| (head, ranked.shape(head as usize))));
            let all = chains.iter().flat_map(|&(head, shape)| (0..shape.rows).map(move |k| head + k as Ordinal));
            rows[begin..end].iter_mut().zip(all).for_each(|(row, place)| *row = place);
            part.cut::<T>(chains.iter().map(|&(_, shape)| shape), level_ptr[level], lanes, by);
        }
        part
    };
    tasks.into_par_iter().map(solve).collect()
}

/// Sorts the chains of a level by class, longest first, and by ascending place within a class. `heads` ascends on
/// entry; `keys` is scratch.
fn by_class(heads: &mut [Ordinal], ranked: &Ranked, keys: &mut Vec<u64>) {
    let class = |head: Ordinal| {
        let shape = ranked.shape(head as usize);
        let length = if shape.far > LONG { LENGTHS - 1 } else { shape.far.div_ceil(CLASS) };
        CLASSES - 1 - rank(shape) * LENGTHS - length
    };
    if heads.len() == 1 {
        return;
    }
    let first = class(heads[0]);
    if heads.iter().all(|&head| class(head) == first) {
        return;
    }
    keys.clear();
    keys.extend(heads.iter().map(|&head| (class(head) as u64) << 32 | u64::from(head)));
    if heads.len() <= LANES {
        keys.sort_unstable();
        heads.iter_mut().zip(keys).for_each(|(head, key)| *head = *key as Ordinal);
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
        heads[*at] = *key as Ordinal;
        *at += 1;
    }
}

/// The class of a chain's number of rows: 1, 2, 3 to 4, 5 to 8 and so on.
#[inline(always)]
fn rank(shape: Shape) -> usize {
    shape.rows.next_power_of_two().ilog2() as usize
}

impl Part {
    /// Adds the chains of a level, the first of which is at `position`, in slices of about `lanes` rows.
    fn cut<T: Real>(&mut self, mut chains: impl Iterator<Item = Shape>, position: Offset, lanes: usize, by: &Levels) {
        let (first, places) = (self.slices.len(), self.places);
        let mut begin = position;
        let mut close = |slice: Shape, links: usize| {
            let [first, rows, far, near, links] =
                [self.places, slice.rows, slice.far, slice.near, links].map(|count| count as u32);
            self.slices.push(Slice { first, position: begin, rows, far, near, links });
            self.places += slice.rows * (slice.far + slice.near);
            begin += rows;
        };
        let mut open = chains.next().unwrap_or_default();
        let mut last = open;
        let mut links = last.rows.saturating_sub(1);
        for chain in chains {
            let both = open.and(chain);
            let lanes = lanes.clamp(if last.rows > 1 { 1 } else { LEAST }, LANES);
            let sparse = chain.far.next_multiple_of(CLASS) * 2 < open.far || !fits(both);
            if both.rows > lanes || both.far > LONG || rank(chain) != rank(last) || sparse {
                close(open, links);
                (open, links) = (chain, 0);
            } else {
                open = both;
            }
            last = chain;
            links = links.max(chain.rows - 1);
        }
        close(open, links);
        let rows = (begin - position) as usize;
        let slices = (self.slices.len() - first) as f64;
        let bytes = ((self.places - places) * (4 + T::BYTES) + rows * (4 + 5 * T::BYTES)) as f64;
        let alone = by.level[0] + by.beside * (rows - 1) as f64;
        self.costs.push((first, [alone, by.level[1].max(by.slice * slices).max(bytes / by.rate)]));
    }
}

/// The level-set plan. See the module's head.
#[derive(Clone, Debug)]
pub struct Levelset<T> {
    rows: Rows<T>,
    plain: Arc<Schedule>,
    transposed: Option<Arc<Schedule>>,
}

impl<T: Real> Levelset<T> {
    /// The rows, with the columns if T^T is solved too.
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

    /// Analyses for [`Profile::reference`], so that the schedule is the same on every machine.
    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        Self::analyze_for(matrix, systems, &Profile::reference())
    }
    fn analyze_for(matrix: Arc<Triangular<T>>, systems: Systems, profile: &Profile) -> Result<Self> {
        let costs = &profile.triangles.levels;
        // Index the columns while the rows are scheduled.
        let columns = || -> Result<_> {
            let rows = Rows::new(Arc::clone(&matrix), systems);
            let transposed = match systems {
                Systems::Plain => None,
                Systems::Both => Some(Arc::new(Schedule::of(&rows.view(System::Transposed)?, costs)?)),
            };
            Ok((rows, transposed))
        };
        let (plain, columns) = rayon::join(|| Schedule::of(&View::of(&matrix), costs), columns);
        let (plain, (rows, transposed)) = (Arc::new(plain?), columns?);
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
    /// The slices of each system with their values, the reciprocals, and the device's copy of x with its epochs.
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
