//! How rows and columns are coarsened along one axis.

use std::ops::Range;

use super::Place;

/// The sides of a matrix that go to the coarse grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Neither.
    Keep,
    /// P^T A P.
    Both,
    /// P^T A.
    Rows,
    /// A P.
    Columns,
}

/// An axis with fine points 0..fine; coarse point k is at 2 k + 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) mode: Mode,
    pub(super) fine: usize,
    pub(super) coarse: usize,
}

/// A term of a sum: a place of the result, a place of a child, and the weight.
pub(super) type Term = (u32, u32, f64);

/// The sums that make a row, along one axis.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Places of the result, ascending.
    pub(super) places: Vec<Place>,
    /// Terms of each child.
    pub(super) terms: Vec<Vec<Term>>,
}

impl Axis {
    /// Number of rows of the result.
    pub(super) fn rows(&self) -> usize {
        if self.halves_rows() { self.coarse } else { self.fine }
    }
    /// Number of columns of the result.
    pub(super) fn cols(&self) -> usize {
        if matches!(self.mode, Mode::Both | Mode::Columns) { self.coarse } else { self.fine }
    }
    fn halves_rows(&self) -> bool {
        matches!(self.mode, Mode::Both | Mode::Rows)
    }

    /// Number of classes of rows, which alternate along the axis: points between coarse points, and coarse points.
    pub(super) fn classes(&self) -> usize {
        if self.mode == Mode::Columns { 2 } else { 1 }
    }
    /// The fine point of a row.
    pub(super) fn centre(&self, row: usize) -> usize {
        if self.halves_rows() { 2 * row + 1 } else { row }
    }
    /// The column from which the places of a row are counted.
    pub(super) fn base(&self, row: usize) -> usize {
        match self.mode {
            Mode::Keep | Mode::Both => row,
            Mode::Rows => 2 * row + 1,
            Mode::Columns => row / 2,
        }
    }
    /// The rows of A that are summed to a row: their differences from its centre, with weights. The last one may lie
    /// past the end.
    pub(super) fn children(&self) -> &'static [(i32, f64)] {
        if self.halves_rows() { &[(-1, 0.5), (0, 1.0), (1, 0.5)] } else { &[(0, 1.0)] }
    }
    /// The fine point of one of the [`Axis::children`] of a row, and its weight, unless it lies past the end.
    pub(super) fn child(&self, row: usize, (by, weight): (i32, f64)) -> Option<(usize, f64)> {
        let at = (self.centre(row) as i64 + i64::from(by)) as usize;
        (at < self.fine).then_some((at, weight))
    }
    /// The fine points that are summed to a range of rows, without those past the end.
    pub(super) fn span(&self, rows: &Range<usize>) -> Range<usize> {
        if self.halves_rows() { 2 * rows.start..(2 * rows.end + 1).min(self.fine) } else { rows.clone() }
    }

    /// The columns, counted from the base, to which the entry at difference `e` from the centre goes, in rows of a
    /// class.
    fn targets(&self, class: usize, e: i32) -> [Option<(i32, f64)>; 2] {
        // Coarse points, as twice their distance from the base.
        let from = match self.mode {
            Mode::Keep | Mode::Rows => return [Some((e, 1.0)), None],
            Mode::Both => e,
            Mode::Columns => e + class as i32 - 1,
        };
        match from.rem_euclid(2) {
            0 => [Some((from / 2, 1.0)), None],
            _ => [Some((from.div_euclid(2), 0.5)), Some((from.div_euclid(2) + 1, 0.5))],
        }
    }

    /// The sums that make rows of a class. `axis` is the number of this axis.
    pub(super) fn table(&self, axis: usize, class: usize, places: &[Place]) -> Table {
        let mut found = Vec::new();
        for (child, &(c, weight)) in self.children().iter().enumerate() {
            for (k, place) in places.iter().enumerate() {
                for (to, share) in self.targets(class, c + place.d[axis]).into_iter().flatten() {
                    let mut target = *place;
                    target.d[axis] = to;
                    found.push((target, child, k as u32, weight * share));
                }
            }
        }
        let mut outs: Vec<Place> = found.iter().map(|term| term.0).collect();
        outs.sort_unstable_by_key(Place::key);
        outs.dedup();
        let mut terms = vec![Vec::new(); self.children().len()];
        for (target, child, from, weight) in found {
            let to = outs.partition_point(|place| place.key() < target.key());
            terms[child].push((to as u32, from, weight));
        }
        // Sort so that the terms of one place follow each other while its line is in first-level cache.
        terms.iter_mut().for_each(|terms| terms.sort_by_key(|term| term.0));
        Table { places: outs, terms }
    }
}
