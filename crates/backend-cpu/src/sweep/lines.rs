//! The kinds of a grid's lines: which neighbours the rows of a line have.
//!
//! A neighbour on another line exists for a whole line or not at all, so a line's neighbours depend on its (y, z).
//! Lines near a side of the grid lack the neighbours beyond it, and lines far from every side lack none. So there are
//! few kinds. Along x, the rows of `interior` have all of the line's neighbours.

use std::ops::Range;

use spandrel_formats::grid::holds;
use spandrel_sptrsv::sweep::Lattice;

use super::rows::MAX_RUNS;

/// A kind of line: its rows have the same neighbours. The terms are those of the stencil that exist on the line, in the
/// stencil's order.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    /// Difference along the line, for each term.
    pub(super) dx: Vec<isize>,
    /// Difference of the row numbers, for each term.
    pub(super) shift: Vec<isize>,
    /// Position in the stencil, for each term.
    pub(super) place: Vec<usize>,
    /// Lengths of the runs of neighbouring rows among the terms, the first in the lowest four bits: 0x13 stands for
    /// three adjacent terms and then one. 0 if the last term is not the preceding row, or if the runs do not fit here.
    pub(super) runs: u64,
    /// x of the rows that have all terms.
    pub(super) interior: Range<usize>,
}

/// The kinds of all lines.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    size: [usize; 3],
    kinds: Vec<Kind>,
    /// The kind of a line is `kinds[of_y[y] + of_z[z]]`.
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

    /// Number of points per line.
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

/// Computes [`Kind::runs`].
fn runs(shift: &[isize]) -> u64 {
    let lengths: Vec<u64> = shift.chunk_by(|a, b| a + 1 == *b).map(|run| run.len() as u64).collect();
    if shift.last() != Some(&-1) || lengths.len() > MAX_RUNS || lengths.iter().any(|&length| length > 15) {
        return 0;
    }
    lengths.iter().rev().fold(0, |all, length| all << 4 | length)
}

/// Groups the coordinates 0..n by which differences lead outside the grid. Returns the group of each coordinate and the
/// first coordinate of each group.
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
            // Neighbouring coordinates are usually alike.
            let known = found.iter().rposition(|f| f.0 == cut);
            known.unwrap_or_else(|| {
                found.push((cut, at));
                found.len() - 1
            }) as u32
        })
        .collect();
    (of, found.into_iter().map(|f| f.1).collect())
}
