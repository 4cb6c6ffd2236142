//! What becomes of rows and columns along one axis.

use std::ops::Range;

use super::Place;

/// Which side of a matrix goes to the coarse grid.
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

/// An axis: fine points 0..fine, coarse point k at 2 k + 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) mode: Mode,
    pub(super) fine: usize,
    pub(super) coarse: usize,
}

/// A term of a sum: a place of the result, one of a child, and its weight.
pub(super) type Term = (u32, u32, f64);

/// What a row is summed from along an axis.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Of the result, ascending.
    pub(super) places: Vec<Place>,
    /// Of each child.
    pub(super) terms: Vec<Vec<Term>>,
}

impl Axis {
    /// Rows of the result.
    pub(super) fn rows(&self) -> usize {
        if self.halves_rows() { self.coarse } else { self.fine }
    }
    /// Columns of the result.
    pub(super) fn cols(&self) -> usize {
        if matches!(self.mode, Mode::Both | Mode::Columns) { self.coarse } else { self.fine }
    }
    fn halves_rows(&self) -> bool {
        matches!(self.mode, Mode::Both | Mode::Rows)
    }

    /// Kinds of rows, which take turns along the axis: the points between coarse ones, and those at them.
    pub(super) fn classes(&self) -> usize {
        if self.mode == Mode::Columns { 2 } else { 1 }
    }
    /// The fine point at a row.
    pub(super) fn centre(&self, row: usize) -> usize {
        if self.halves_rows() { 2 * row + 1 } else { row }
    }
    /// The column that places of a row are counted from.
    pub(super) fn base(&self, row: usize) -> usize {
        match self.mode {
            Mode::Keep | Mode::Both => row,
            Mode::Rows => 2 * row + 1,
            Mode::Columns => row / 2,
        }
    }
    /// Rows of A that a row is summed from: how far from its centre, with weights. The last may lie past the end.
    pub(super) fn children(&self) -> &'static [(i32, f64)] {
        if self.halves_rows() { &[(-1, 0.5), (0, 1.0), (1, 0.5)] } else { &[(0, 1.0)] }
    }
    /// Fine points that rows of a range are summed from, past the end left out.
    pub(super) fn span(&self, rows: &Range<usize>) -> Range<usize> {
        if self.halves_rows() { 2 * rows.start..(2 * rows.end + 1).min(self.fine) } else { rows.clone() }
    }

    /// The columns, counted from the base, that the entry at `e` from the centre goes to in rows of a class.
    fn targets(&self, class: usize, e: i32) -> [Option<(i32, f64)>; 2] {
        // Coarse points by twice their distance from the base's.
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

    /// What rows of a class are summed from, `axis` being the number of this one.
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
        // A place's terms one after another, while its line is in the first-level cache.
        terms.iter_mut().for_each(|terms| terms.sort_by_key(|term| term.0));
        Table { places: outs, terms }
    }
}
