//! Products of the stencil matrix with the interpolations of the axes, line by line.

use std::ops::Range;

use rayon::prelude::*;

use super::Place;
use super::axis::{Axis, Mode, Table, Term};
use super::load::Lines;
use super::neighbours::{Neighbours, is_upper, mirror, number};
use crate::csr::{begins, pieces};
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Dia, Error, Real, Result};

/// Maximum number of points of a line that are processed at once.
const SEGMENT: usize = 4096;
/// Number of segments per task. The first segment of a task lacks the sums along z of the ones before it and repeats
/// one line of 2 x 16.
const TASK: usize = 16;

/// A product: the axes, the matrix and the tables of sums.
pub(super) struct Gather<L> {
    axes: [Axis; 3],
    loader: L,
    tables: Tables,
}

/// The tables that say which places are summed to which: by the class along z, then along y, then along x.
pub(super) struct Tables {
    z: Vec<Table>,
    y: Vec<Table>,
    x: Vec<Table>,
}

/// The points `xs` of the line of the result at `y`, `z`.
struct Segment {
    xs: Range<usize>,
    y: usize,
    z: usize,
}

/// A result in segments, [`TASK`] per task.
struct Segments {
    size: [usize; 3],
    of_line: usize,
    /// Number of tasks.
    count: usize,
}

impl Segments {
    fn of(size: [usize; 3]) -> Self {
        let [nx, ny, nz] = size;
        let of_line = nx.div_ceil(SEGMENT);
        Self { size, of_line, count: (of_line * ny * nz).div_ceil(TASK) }
    }

    fn of_task(&self, task: usize) -> impl Iterator<Item = Segment> + use<'_> {
        let [nx, ny, nz] = self.size;
        let last = (self.of_line * ny * nz).min((task + 1) * TASK);
        (task * TASK..last).map(move |k| {
            let (line, begin) = (k / self.of_line, k % self.of_line * SEGMENT);
            Segment { xs: begin..nx.min(begin + SEGMENT), y: line % ny, z: line / ny }
        })
    }

    /// Number of points of a task, which follow one another.
    fn points(&self, task: usize) -> usize {
        self.of_task(task).map(|segment| segment.xs.len()).sum()
    }
}

/// An entry of a row: difference along the line, difference of its column from the base's, number of its place.
type Entry = (i32, Ordinal, u32);

/// The places of a segment's rows that lie inside the grid.
#[derive(Default)]
struct Rows {
    /// For each class along x, and each unknown.
    lists: Vec<Vec<Entry>>,
    before: i64,
    after: i64,
}

/// Work space: the lines that are being summed.
struct Work<T, N> {
    near: N,
    rows: Rows,
    /// A line as it was loaded.
    loaded: Vec<T>,
    /// Lines summed along z, by y modulo 3, each with its identity: first x, y, row along z.
    ring: [(Option<[usize; 3]>, Vec<T>); 3],
    /// A line summed along z and y.
    plane: Vec<T>,
    /// A line summed along all axes, for each class.
    done: Vec<Vec<T>>,
}

impl Tables {
    pub(super) fn new(axes: &[Axis; 3], places: &[Place]) -> Self {
        let next = |axis: usize, before: &[Table]| -> Vec<Table> {
            let classes = |table: &Table| -> Vec<Table> {
                (0..axes[axis].classes()).map(|class| axes[axis].table(axis, class, &table.places)).collect()
            };
            before.iter().flat_map(classes).collect()
        };
        let z = next(2, &[Table { places: places.to_vec(), terms: Vec::new() }]);
        let y = next(1, &z);
        let x = next(0, &y);
        Self { z, y, x }
    }

    /// The places of each kind of row.
    pub(super) fn places(&self) -> impl ExactSizeIterator<Item = &[Place]> {
        self.x.iter().map(|table| &table.places[..])
    }
}

/// The work space of a thread.
type WorkOf<L> = Work<<L as Lines>::Value, <L as Lines>::Near>;

impl<T: Real, L: Lines<Value = T>> Gather<L> {
    pub(super) fn new(axes: [Axis; 3], loader: L) -> Self {
        Self { tables: Tables::new(&axes, loader.places()), axes, loader }
    }

    /// Index into the last tables.
    fn at(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.axes[1].classes() + y) * self.axes[0].classes() + x
    }

    /// Computes the product, with its rows divided if `divisors` is given.
    pub(super) fn run(&self, divisors: Option<&[T]>) -> Result<Csr<T>> {
        let b = self.loader.unknowns();
        let [nx, ny, nz] = self.axes.map(|axis| axis.rows());
        let (nrows, ncols) = (nx * ny * nz * b, self.axes.iter().map(Axis::cols).product::<usize>() * b);
        if let Some(divisors) = divisors.filter(|divisors| divisors.len() != nrows) {
            return Err(Error::Shape { op: "coarsen", what: "divisors", found: divisors.len(), expected: nrows });
        }
        let tasks = Segments::of([nx, ny, nz]);

        let total = |of: usize| {
            let mut rows = Rows::default();
            tasks.of_task(of).map(|segment| self.length(&segment, &mut rows)).sum::<usize>()
        };
        let mut totals: Vec<usize> = (0..tasks.count).into_par_iter().map(total).collect();
        let lengths = totals.clone();
        let nnz = begins(&mut totals);
        checked(nnz, "entries")?;
        let mut row_ptr: Vec<Offset> = zeroed(nrows + 1, "row pointers")?;
        let mut col_idx: Vec<Ordinal> = zeroed(nnz, "columns")?;
        let mut values: Vec<T> = zeroed(nnz, "values")?;
        let ends = pieces(&mut row_ptr[1..], (0..tasks.count).map(|of| tasks.points(of) * b));
        let cols = pieces(&mut col_idx, lengths.iter().copied());
        let vals = pieces(&mut values, lengths.iter().copied());
        let out: Vec<Out<'_, T>> = (ends.into_iter().zip(cols).zip(vals).zip(totals))
            .map(|(((ends, cols), values), begin)| Out { ends, cols, values, begin, row: 0, at: 0 })
            .collect();
        let fill = |work: &mut WorkOf<L>, (of, mut out): (usize, Out<'_, T>)| {
            tasks.of_task(of).try_for_each(|segment| {
                self.sum(&segment, work)?;
                self.write(&segment, work, divisors, &mut out);
                Ok(())
            })
        };
        out.into_par_iter().enumerate().map_init(|| self.work(), fill).collect::<Result<()>>()?;
        Csr::new(nrows, ncols, row_ptr, col_idx, values)
    }

    /// Computes the upper diagonals of a product with one unknown per point and one class per axis, and mirrors them.
    pub(super) fn upper(&self, to: &Neighbours) -> Result<Dia<T>> {
        let (n, offsets) = (to.points(), to.offsets());
        let mut values: Vec<T> = zeroed(n * offsets.len(), "values")?;
        self.upper_into(to, &offsets, &mut values)?;
        Dia::new(n, n, offsets, values)
    }

    /// As [`Gather::upper`], into values on the diagonals of `to` that are 0 wherever the stencil has no entry.
    pub(super) fn upper_into(&self, to: &Neighbours, offsets: &[i32], values: &mut [T]) -> Result<()> {
        let (size, n) = (to.size(), to.points());
        let tasks = Segments::of(size);
        let mut out: Vec<Vec<&mut [T]>> = (0..tasks.count).map(|_| Vec::with_capacity(offsets.len())).collect();
        for diagonal in values.chunks_exact_mut(n.max(1)) {
            let of_tasks = pieces(diagonal, (0..tasks.count).map(|of| tasks.points(of)));
            out.iter_mut().zip(of_tasks).for_each(|(of, piece)| of.push(piece));
        }
        let at = to.upper(offsets);
        let places: Vec<(usize, [i32; 3], usize)> = (self.tables.x[0].places.iter().enumerate())
            .filter(|(_, place)| is_upper(place.d))
            .filter_map(|(k, place)| Some((k, place.d, at[number(place.d)]? as usize)))
            .collect();
        let fill = |work: &mut WorkOf<L>, (of, mut out): (usize, Vec<&mut [T]>)| {
            let mut first = 0;
            tasks.of_task(of).try_for_each(|segment| {
                self.sum(&segment, work)?;
                let (lines, len, _) = self.summed(&segment, work);
                for &(k, [dx, dy, dz], diagonal) in &places {
                    let inside = |at: usize, d: i32, n: usize| (0..n as i64).contains(&(at as i64 + i64::from(d)));
                    if !(inside(segment.y, dy, size[1]) && inside(segment.z, dz, size[2])) {
                        continue;
                    }
                    let xs = segment.xs.clone();
                    let (begin, end) = (xs.start.max(usize::from(dx < 0)), xs.end.min(size[0] - usize::from(dx > 0)));
                    if begin < end {
                        let sums = &lines[0][k * len + begin - xs.start..k * len + end - xs.start];
                        out[diagonal][first + begin - xs.start..first + end - xs.start].copy_from_slice(sums);
                    }
                }
                first += segment.xs.len();
                Ok(())
            })
        };
        out.into_par_iter().enumerate().map_init(|| self.work(), fill).collect::<Result<()>>()?;
        mirror(n, offsets, values);
        Ok(())
    }

    /// The lines of a segment whose sums are complete, one per class, the distance of their places, and the number of
    /// classes.
    fn summed<'w>(&self, segment: &Segment, work: &'w WorkOf<L>) -> (&'w [Vec<T>], usize, usize) {
        let [x, y, _] = &self.axes;
        match (x.mode, y.mode) {
            (Mode::Keep, Mode::Keep) => (std::slice::from_ref(&work.ring[segment.y % 3].1), self.len(), 1),
            (Mode::Keep, _) => (std::slice::from_ref(&work.plane), self.len(), 1),
            _ => (&work.done[..], padded(x.rows().min(SEGMENT)), x.classes()),
        }
    }

    fn work(&self) -> WorkOf<L> {
        let rows = self.axes[0].rows().min(SEGMENT);
        let (fine, most) = (self.len(), |tables: &[Table]| tables.iter().map(|t| t.places.len()).max().unwrap_or(0));
        let lines = |places: usize, len: usize| vec![T::zero(); places * len];
        let is_kept = |axis: usize| self.axes[axis].mode == Mode::Keep;
        let done = if is_kept(0) { 0 } else { most(&self.tables.x) };
        Work {
            near: L::Near::default(),
            rows: Rows::default(),
            loaded: lines(if is_kept(2) { 0 } else { self.loader.places().len() }, fine),
            ring: std::array::from_fn(|_| (None, lines(most(&self.tables.z), fine))),
            plane: lines(if is_kept(1) { 0 } else { most(&self.tables.y) }, fine),
            done: vec![lines(done, padded(rows)); self.axes[0].classes()],
        }
    }

    /// Length of a line in the work space, with one place past the end.
    fn len(&self) -> usize {
        padded(2 * self.axes[0].rows().min(SEGMENT) + 1)
    }

    /// Sums a segment's rows: into `done`, or into the earlier lines if x is not halved.
    fn sum(&self, segment: &Segment, work: &mut WorkOf<L>) -> Result<()> {
        let [x, y, z] = &self.axes;
        let Work { near, loaded, ring, plane, done, .. } = work;
        let (xs, len) = (x.span(&segment.xs), self.len());
        let class_z = segment.z % z.classes();
        // Past the end there are only zeros, so such lines are skipped.
        let inside = |axis: &Axis, row: usize, by: i32| {
            Some((axis.centre(row) as i64 + i64::from(by)) as usize).filter(|&at| at < axis.fine)
        };
        for &(by, _) in y.children() {
            let Some(line) = inside(y, segment.y, by) else { continue };
            let (is, sums) = &mut ring[line % 3];
            let wanted = Some([xs.start, line, segment.z]);
            if *is == wanted {
                continue;
            }
            *is = None;
            if z.mode == Mode::Keep {
                self.loader.load([line, segment.z], &xs, len, sums, near)?;
            } else {
                let table = &self.tables.z[class_z];
                let sums = &mut sums[..table.places.len() * len];
                sums.fill(T::zero());
                for (child, &(by, _)) in z.children().iter().enumerate() {
                    let Some(at) = inside(z, segment.z, by) else { continue };
                    self.loader.load([line, at], &xs, len, loaded, near)?;
                    add(&table.terms[child], loaded, sums, len);
                }
            }
            *is = wanted;
        }
        let class_y = class_z * y.classes() + segment.y % y.classes();
        let lines = if y.mode == Mode::Keep {
            &ring[segment.y % 3].1
        } else {
            let table = &self.tables.y[class_y];
            let sums = &mut plane[..table.places.len() * len];
            sums.fill(T::zero());
            for (child, &(by, _)) in y.children().iter().enumerate() {
                if let Some(line) = inside(y, segment.y, by) {
                    add(&table.terms[child], &ring[line % 3].1, sums, len);
                }
            }
            &*plane
        };
        if x.mode == Mode::Keep {
            return Ok(());
        }
        for (class, sums) in done.iter_mut().enumerate() {
            let table = &self.tables.x[class_y * x.classes() + class];
            let room = padded(x.rows().min(SEGMENT));
            // The first row of the class, and the number of its rows that fit. Segments begin with an even row.
            let count = (segment.xs.len() - class.min(segment.xs.len())).div_ceil(x.classes());
            let first = x.centre(segment.xs.start + class) - xs.start;
            let sums = &mut sums[..table.places.len() * room];
            sums.fill(T::zero());
            for (terms, &(by, _)) in table.terms.iter().zip(x.children()) {
                let from = (first as i64 + i64::from(by)) as usize;
                for &(to, place, weight) in terms {
                    let weight = T::from_f64(weight);
                    let sums = &mut sums[to as usize * room..][..count];
                    let line = &lines[place as usize * len + from..][..(2 * count).saturating_sub(1)];
                    for (sum, pair) in sums.iter_mut().zip(line.chunks(2)) {
                        *sum += weight * pair[0];
                    }
                }
            }
        }
        Ok(())
    }

    /// Lists the places of a segment's rows.
    fn list(&self, segment: &Segment, rows: &mut Rows) {
        let ([x, y, z], b) = (&self.axes, self.loader.unknowns());
        let [nx, ny, nz] = [x, y, z].map(|axis| axis.cols() as i64);
        let (base_y, base_z) = (y.base(segment.y) as i64, z.base(segment.z) as i64);
        let inside = |at: i64, d: i32, n: i64| (0..n).contains(&(at + i64::from(d)));
        rows.lists.resize_with(x.classes() * b, Vec::new);
        rows.lists.iter_mut().for_each(Vec::clear);
        (rows.before, rows.after) = (0, 0);
        for class in 0..x.classes() {
            let table = self.at([class, segment.y % y.classes(), segment.z % z.classes()]);
            for (k, place) in self.tables.x[table].places.iter().enumerate() {
                let [dx, dy, dz] = place.d;
                if inside(base_y, dy, ny) && inside(base_z, dz, nz) {
                    let by = i64::from(dx) + nx * (i64::from(dy) + ny * i64::from(dz));
                    let by = by * b as i64 + i64::from(place.col);
                    rows.lists[class * b + usize::from(place.row)].push((dx, by as Ordinal, k as u32));
                    rows.before = rows.before.max(-i64::from(dx));
                    rows.after = rows.after.max(i64::from(dx));
                }
            }
        }
    }

    /// Calls `each` with point, unknown and places of each row: all places, or only those inside near the ends of the
    /// line.
    fn each_row(&self, segment: &Segment, rows: &Rows, mut each: impl FnMut(usize, usize, &[Entry])) {
        let (axis, b) = (&self.axes[0], self.loader.unknowns());
        let n = axis.cols() as i64;
        let mut near = Vec::new();
        for x in segment.xs.clone() {
            let base = axis.base(x) as i64;
            for unknown in 0..b {
                let list = &rows.lists[x % axis.classes() * b + unknown];
                if base >= rows.before && base + rows.after < n {
                    each(x, unknown, list);
                } else {
                    near.clear();
                    near.extend(list.iter().filter(|p| (0..n).contains(&(base + i64::from(p.0)))));
                    each(x, unknown, &near);
                }
            }
        }
    }

    /// Number of entries of a segment's rows.
    fn length(&self, segment: &Segment, rows: &mut Rows) -> usize {
        self.list(segment, rows);
        let mut length = 0;
        self.each_row(segment, rows, |_, _, list| length += list.len());
        length
    }

    /// Writes a segment's rows, whose sums are complete.
    fn write(&self, segment: &Segment, work: &mut WorkOf<L>, divisors: Option<&[T]>, out: &mut Out<'_, T>) {
        self.list(segment, &mut work.rows);
        let work = &*work;
        let (lines, len, step) = self.summed(segment, work);
        let ([x, y, z], b) = (&self.axes, self.loader.unknowns());
        let base_line = x.cols() * (y.base(segment.y) + y.cols() * z.base(segment.z));
        let first = x.rows() * (segment.y + y.rows() * segment.z);
        self.each_row(segment, &work.rows, |at, unknown, list| {
            let base = ((x.base(at) + base_line) * b) as Ordinal;
            let (sums, k) = (&lines[at % step], (at - segment.xs.start) / step);
            let (cols, values) = out.next(list.len());
            for ((col, value), &(_, by, place)) in cols.iter_mut().zip(values.iter_mut()).zip(list) {
                *col = base.wrapping_add(by);
                *value = sums[place as usize * len + k];
            }
            if let Some(divisors) = divisors {
                let divisor = divisors[(first + at) * b + unknown];
                values.iter_mut().for_each(|value| *value /= divisor);
            }
        });
    }
}

/// The rows of a task, written one after the other.
struct Out<'o, T> {
    ends: &'o mut [Offset],
    cols: &'o mut [Ordinal],
    values: &'o mut [T],
    /// Number of entries before those of the task.
    begin: usize,
    row: usize,
    at: usize,
}

impl<T> Out<'_, T> {
    /// Returns the places for a row of `entries` entries.
    fn next(&mut self, entries: usize) -> (&mut [Ordinal], &mut [T]) {
        let places = self.at..self.at + entries;
        self.at = places.end;
        self.ends[self.row] = (self.begin + self.at) as Offset;
        self.row += 1;
        (&mut self.cols[places.clone()], &mut self.values[places])
    }
}

/// sums += weight * lines, for each term.
fn add<T: Real>(terms: &[Term], lines: &[T], sums: &mut [T], len: usize) {
    for &(to, from, weight) in terms {
        let weight = T::from_f64(weight);
        let (to, from) = (to as usize * len, from as usize * len);
        for (sum, value) in sums[to..to + len].iter_mut().zip(&lines[from..from + len]) {
            *sum += weight * *value;
        }
    }
}

/// A length of at least `len` whose multiples fall on different lines of a cache.
fn padded(len: usize) -> usize {
    (len.div_ceil(8) | 1) * 8
}
