//! The kinds of a grid's lines: which neighbours the rows of a line have.
//!
//! Neighbours in other lines are there for a whole line or not at all, so a line is described by its (y, z); few kinds occur, as many as
//! the stencil is cut differently by the sides of the grid. Along x the rows of `interior` have all of the line's neighbours.

use std::ops::Range;

use spandrel_formats::grid::holds;
use spandrel_sptrsv::sweep::Lattice;

use super::rows::MAX_RUNS;

/// Lines whose rows have the same neighbours. The terms are those of the stencil that the line has, in its order.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// Difference of a term along the line.
    pub(super) dx: Vec<isize>,
    /// Difference of a term's row.
    pub(super) shift: Vec<isize>,
    /// Place of a term in the stencil.
    pub(super) place: Vec<usize>,
    /// Lengths of the runs of neighbouring rows among the terms, the first in the lowest four bits: 0x13 for three terms side by side
    /// and one. 0 where the last term is not the row before, or that is too narrow for the runs.
    pub(super) runs: u64,
    /// x of the rows with all terms.
    pub(super) interior: Range<usize>,
}

/// The kinds of all lines.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    size: [usize; 3],
    kinds: Vec<Kind>,
    /// A kind is `kinds[of_y[y] + of_z[z]]`.
    of_y: Vec<u32>,
    of_z: Vec<u32>,
}

impl Lines {
    pub(super) fn new(lattice: &Lattice) -> Self {
        let size @ [nx, ny, nz] = lattice.size();
        let stencil = lattice.offsets();
        let (of_y, ys) = cuts(ny, stencil.iter().map(|o| o[1]));
        let (of_z, zs) = cuts(nz, stencil.iter().map(|o| o[2]));
        let kind = |y: usize, z: usize| {
            let (dx, shift, place) = (Vec::new(), Vec::new(), Vec::new());
            let mut kind = Kind { dx, shift, place, runs: 0, interior: 0..nx };
            for (place, &[dx, dy, dz]) in stencil.iter().enumerate() {
                if holds(y, dy, ny) && holds(z, dz, nz) {
                    kind.dx.push(dx as isize);
                    kind.shift.push(dx as isize + nx as isize * (dy as isize + ny as isize * dz as isize));
                    kind.place.push(place);
                }
            }
            let before = kind.dx.iter().map(|d| d.min(&0).unsigned_abs()).max().unwrap_or(0).min(nx);
            let after = kind.dx.iter().map(|&d| d.max(0) as usize).max().unwrap_or(0);
            kind.runs = runs(&kind.shift);
            kind.interior = before..nx.saturating_sub(after).max(before);
            kind
        };
        let kinds = zs.iter().flat_map(|&z| ys.iter().map(move |&y| (y, z))).map(|(y, z)| kind(y, z)).collect();
        let of_z = of_z.into_iter().map(|z| z * ys.len() as u32).collect();
        Self { size, kinds, of_y, of_z }
    }

    /// Points of a line.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.size[0]
    }

    /// The kind of line y + Y z.
    #[inline(always)]
    pub(super) fn kind(&self, line: usize) -> &Kind {
        let (y, z) = (line % self.size[1], line / self.size[1]);
        &self.kinds[(self.of_y[y] + self.of_z[z]) as usize]
    }
}

/// [`Kind::runs`].
fn runs(shift: &[isize]) -> u64 {
    let lengths: Vec<u64> = shift.chunk_by(|a, b| a + 1 == *b).map(|run| run.len() as u64).collect();
    if shift.last() != Some(&-1) || lengths.len() > MAX_RUNS || lengths.iter().any(|&length| length > 15) {
        return 0;
    }
    lengths.iter().rev().fold(0, |all, length| all << 4 | length)
}

/// For each coordinate of 0..n the number of its cut, and for each cut the first coordinate that has it: coordinates are of one cut
/// where the same differences lead outside.
fn cuts(n: usize, differences: impl Iterator<Item = i32>) -> (Vec<u32>, Vec<usize>) {
    let mut differences: Vec<i64> = differences.map(i64::from).collect();
    differences.sort_unstable();
    differences.dedup();
    let outside = |at: usize| {
        let below = differences.iter().filter(|&&d| at as i64 + d < 0).count();
        (below, differences.iter().filter(|&&d| at as i64 + d >= n as i64).count())
    };
    let mut found: Vec<((usize, usize), usize)> = Vec::new();
    let of = (0..n)
        .map(|at| {
            let cut = outside(at);
            // Neighbouring coordinates are alike as a rule.
            let known = found.iter().rposition(|f| f.0 == cut);
            known.unwrap_or_else(|| {
                found.push((cut, at));
                found.len() - 1
            }) as u32
        })
        .collect();
    (of, found.into_iter().map(|f| f.1).collect())
}
