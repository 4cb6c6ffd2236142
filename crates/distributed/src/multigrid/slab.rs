//! The planes of a grid that a rank holds: its own, and as many extra ones on both sides as half a cycle needs.
//!
//! Planes lie across the last axis with more than one point, so their points have consecutive numbers.

use std::ops::Range;

use spandrel_formats::{Coarsening, Neighbours};
use spandrel_solvers::PolynomialSmoother;
use spandrel_solvers::multigrid::grid::DEGREES;

use crate::partition::Partition;

/// The planes of a grid that a rank holds.
#[derive(Clone, Debug)]
pub(super) struct Slab {
    /// The stencil on the whole grid.
    of: Neighbours,
    axis: usize,
    /// The planes of each rank, as ranges that follow each other.
    owned: Vec<Range<usize>>,
    rank: usize,
    /// The least number of extra planes on each side of the own ones, unless the grid ends before.
    depth: usize,
}

/// The planes that a rank with the planes `own` holds. The first has an even number, so that coarsening keeps the same
/// planes as on the whole grid.
fn held(own: &Range<usize>, planes: usize, depth: usize) -> Range<usize> {
    own.start.saturating_sub(depth) / 2 * 2..(own.end + depth).min(planes)
}

impl Slab {
    /// The planes of the finest grid: those that begin in the rows of a rank are its own.
    pub(super) fn finest(of: Neighbours, rows: &Partition, rank: usize, smoother: PolynomialSmoother) -> Self {
        let axis = (0..3).rev().find(|&axis| of.size()[axis] > 1).unwrap_or(0);
        let plane = of.size()[..axis].iter().product::<usize>() as u64;
        let whole = |row: u64| row.div_ceil(plane) as usize;
        let ranges = (0..rows.size()).map(|rank| rows.rows(rank));
        let owned = ranges.map(|rows| whole(rows.start)..whole(rows.end)).collect();
        // Half a cycle forms up to 2 `degree` products after an exchange, and each makes one more plane wrong. One
        // plane beyond the own ones must still be right, because the first own row may lie inside a plane.
        let wrong = match smoother {
            PolynomialSmoother::Chebyshev(_) => 0,
            // The row sums of the outermost plane lack the entries of the next plane, so the first step makes it wrong.
            PolynomialSmoother::L1Jacobi(_) => 1,
        };
        Self { of, axis, owned, rank, depth: wrong + (2 * smoother.degree()).max(DEGREES) }
    }

    /// The planes of the next grid. Each belongs to the rank that owns it on this grid.
    pub(super) fn next(&self, to: &Coarsening) -> Self {
        let of = self.of.coarser(to);
        let halved = of.size()[self.axis] < self.planes();
        let coarse = |plane: usize| if halved { plane / 2 } else { plane };
        let owned = self.owned.iter().map(|own| coarse(own.start)..coarse(own.end)).collect();
        Self { of, owned, ..self.clone() }
    }

    /// The stencil on the whole grid.
    pub(super) fn of(&self) -> &Neighbours {
        &self.of
    }

    /// The stencil on the planes that are held.
    pub(super) fn local(&self) -> Neighbours {
        self.of.with_extent(self.axis, self.held(self.rank).len())
    }

    /// The way from the planes that are held to the next grid.
    pub(super) fn coarsening(&self, halved: [bool; 3]) -> Coarsening {
        Coarsening::new(self.local().size(), halved, 1)
    }

    fn planes(&self) -> usize {
        self.of.size()[self.axis]
    }

    fn held(&self, rank: usize) -> Range<usize> {
        held(&self.owned[rank], self.planes(), self.depth)
    }

    /// The points of some planes.
    fn points(&self, planes: Range<usize>) -> Range<u64> {
        let plane = self.of.size()[..self.axis].iter().product::<usize>();
        (planes.start * plane) as u64..(planes.end * plane) as u64
    }

    /// The points that a rank holds.
    pub(super) fn rows(&self, rank: usize) -> Range<u64> {
        self.points(self.held(rank))
    }

    /// The points that belong to a rank.
    pub(super) fn own(&self, rank: usize) -> Range<u64> {
        self.points(self.owned[rank].clone())
    }

    /// How the points lie on the ranks.
    pub(super) fn partition(&self) -> Partition {
        let all = 0..self.owned.len();
        Partition::unaligned(all.map(|rank| self.own(rank)).map(|own| own.end - own.start))
    }

    /// The points of the next grid to which the planes that are held restrict. Only the values of own points are right.
    /// `to` is the coarsening of these planes.
    pub(super) fn restricted(&self, to: &Coarsening, next: &Self) -> Range<u64> {
        let first = self.held(self.rank).start;
        let first = if next.planes() < self.planes() { first / 2 } else { first };
        next.points(first..first + to.coarse()[self.axis])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stencil(size: [usize; 3]) -> Neighbours {
        let a = spandrel_formats::generate::csr::<f64>(&format!("d3n27:{}x{}x{}", size[0], size[1], size[2])).unwrap();
        Neighbours::of(&spandrel_formats::Stencil::of(&spandrel_formats::Grid::detect(&a).unwrap())).unwrap()
    }

    #[test]
    fn planes_are_shared_out_on_every_grid() {
        let rows = Partition::new(vec![0, 3072, 3072, 9216, 11 * 12 * 90]).unwrap();
        let smoothers = (1..=4).flat_map(|degree| {
            [
                (PolynomialSmoother::Chebyshev(degree), 2 * degree),
                (PolynomialSmoother::L1Jacobi(degree), 2 * degree + 1),
            ]
        });
        for (smoother, depth) in smoothers {
            let mut slabs: Vec<Slab> =
                (0..4).map(|rank| Slab::finest(stencil([11, 12, 90]), &rows, rank, smoother)).collect();
            for halved in [[true; 3], [true, true, false], [true; 3], [false, false, true]] {
                for (rank, slab) in slabs.iter().enumerate() {
                    let (held, own) = (slab.held(rank), slab.owned[rank].clone());
                    assert!(held.start % 2 == 0 && held.end <= slab.planes());
                    assert!(held.start == 0 || held.start + depth <= own.start);
                    assert!(held.end == slab.planes() || held.end >= own.end + depth);
                    assert_eq!(slab.local().points() as u64, slab.rows(rank).end - slab.rows(rank).start);
                    assert_eq!(slab.partition().rows(rank), slab.own(rank));
                    let to = slab.coarsening(halved);
                    let next = slab.next(&Coarsening::new(slab.of.size(), halved, 1));
                    let (made, wanted) = (slab.restricted(&to, &next), next.own(rank));
                    assert!(wanted.is_empty() || (made.start <= wanted.start && wanted.end <= made.end));
                    assert_eq!((made.end - made.start) as usize, to.coarse().iter().product::<usize>());
                }
                assert_eq!(slabs[0].partition().len() as usize, slabs[0].of.points());
                slabs.iter_mut().for_each(|slab| *slab = slab.next(&Coarsening::new(slab.of.size(), halved, 1)));
            }
        }
    }
}
