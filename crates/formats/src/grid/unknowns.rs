//! Several unknowns at each point of a grid, numbered together: row b p + c is unknown c of point p.
//!
//! The pattern of b x b blocks is a matrix of points, whose grid is recognised like that of any matrix. Each entry is
//! then a coupling: a difference of points and two unknowns. Unknown c holds the difference b dx + c' - c of rows,
//! along lines of b X rows, if one of its rows does. The places that all rows could hold are compared with the entries,
//! so an answer is checked on every row.
//!
//! The answer is the smallest b under which rows hold everything that they can; otherwise the b that leaves the fewest
//! places empty. A grid with few points per line needs full blocks, because its lines could be unknowns as well.
//! Unknowns differ if one has a difference in at least half of its rows that another has in none, so a stray entry is
//! not enough. If all unknowns share their diagonals, as on a masked grid of one unknown, nothing is tried:
//! [`Diagonal::rows`] says so without another pass.
//! Cost: two passes over the entries for each b that divides the rows and is not ruled out by diagonals or by a sample.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rayon::prelude::*;

use super::{Diagonal, Grid, MAX_DIAGONALS, PERIOD, Runs, holds, is_compact};
use crate::{Csr, Offset, Ordinal, Real};

/// Maximum number of unknowns per point.
pub const MAX_UNKNOWNS: usize = 5;
/// Points per task.
const CHUNK: usize = 4096;
/// Approximate number of points in a first look.
const SAMPLED: usize = 256;

/// The grid under the number of unknowns, two or more, that fits the matrix best, if any does. Also returns whether it
/// is exact and cannot be a grid of one unknown per point. `diagonals` holds all diagonals, if there are few.
pub(super) fn find<T: Real>(csr: &Csr<T>, diagonals: Option<&[Diagonal]>) -> Option<(Grid, bool)> {
    let mut best: Option<Grid> = None;
    for unknowns in 2..=MAX_UNKNOWNS {
        let plausible = csr.nrows().is_multiple_of(unknowns)
            && diagonals.is_none_or(|all| all.iter().any(|d| differs(d.rows, unknowns)))
            && has_few_diagonals(csr, unknowns);
        let Some(found) = plausible.then(|| of_points(csr, unknowns)).flatten() else { continue };
        if found.exact {
            let is_certain = !is_a_grid_of_rows(&found);
            return Some((found, is_certain));
        }
        if best.as_ref().is_none_or(|best| found.places() < best.places()) {
            best = Some(found);
        }
    }
    best.map(|best| (best, false))
}

/// Returns true if the unknowns could be an axis of their own: an axis is left, and whether one unknown holds another
/// depends only on their distance.
fn is_a_grid_of_rows(grid: &Grid) -> bool {
    let b = grid.unknowns as i32;
    // Counts of held differences along the axes: of unknowns, of points along a line, of lines.
    let mut held = BTreeMap::new();
    for (k, &[dx, dy, _]) in grid.offsets.iter().enumerate() {
        for unknown in (0..b).filter(|&c| grid.is_held(k, c as usize)) {
            let (points, other) = ((unknown + dx).div_euclid(b), (unknown + dx).rem_euclid(b));
            *held.entry([other - unknown, points, dy]).or_insert(0) += 1;
        }
    }
    grid.size[2] == 1 && held.iter().all(|(o, &count)| count == b - o[0].abs())
}

/// Returns true if a system whose rows are only partly filled is a better answer than one unknown per point: it
/// explains half of the places that would then be empty.
pub(super) fn explains_more(system: &Grid, scalar: &Grid, entries: u64) -> bool {
    let (system, scalar) = (system.places(), scalar.places());
    system < scalar && 2 * (scalar - system) >= scalar.saturating_sub(entries)
}

/// Merges a short first axis whose points all couple, beside a longer axis, into the unknowns of a point.
pub(super) fn merged(grid: Grid) -> Grid {
    let [unknowns, ny, nz] = grid.size;
    let few = (2..=MAX_UNKNOWNS).contains(&unknowns) && ny > MAX_UNKNOWNS;
    let couple = |sign: i32| (1..unknowns as i32).all(|d| grid.offsets.contains(&[sign * d, 0, 0]));
    let leaves = grid.offsets.iter().any(|o| o[1] != 0 || o[2] != 0);
    if !(few && grid.unknowns == 1 && leaves && (couple(-1) || couple(1))) {
        return grid;
    }
    let mut rows = BTreeMap::new();
    for &[dx, dy, dz] in &grid.offsets {
        for unknown in (0..unknowns as i32).filter(|c| (0..unknowns as i32).contains(&(c + dx))) {
            *rows.entry([dz, 0, dx + unknowns as i32 * dy]).or_insert(0u8) |= 1 << unknown;
        }
    }
    let rows = rows.into_iter().map(|([dy, dz, dx], held)| ([dx, dy, dz], held));
    from_rows([unknowns * ny, nz, 1], unknowns, rows, grid.exact)
}

fn from_rows(size: [usize; 3], unknowns: usize, rows: impl Iterator<Item = ([i32; 3], u8)>, exact: bool) -> Grid {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable_by_key(|&([dx, dy, dz], _)| (dz, dy, dx));
    let (offsets, held) = rows.into_iter().unzip();
    Grid { size, offsets, unknowns, exact, held }
}

/// Returns true if some unknown has no row among these, as [`Diagonal::rows`] gives them.
fn differs(rows: u64, unknowns: usize) -> bool {
    let of = |unknown: usize| (unknown..PERIOD).step_by(unknowns).fold(0, |all, row| all | 1u64 << row);
    (0..unknowns).any(|unknown| rows & of(unknown) == 0)
}

/// Returns true if a sample of points has at most as many diagonals as a stencil.
fn has_few_diagonals<T: Real>(csr: &Csr<T>, unknowns: usize) -> bool {
    let points = csr.nrows() / unknowns;
    let mut found = BTreeSet::new();
    // An odd step, so that points of every place in a line of 2^k points occur.
    for point in (0..points).step_by((points / SAMPLED) | 1) {
        for row in point * unknowns..(point + 1) * unknowns {
            found.extend(csr.row(row).0.iter().map(|&j| (j as usize / unknowns) as i64 - point as i64));
            if found.len() > MAX_DIAGONALS {
                return false;
            }
        }
    }
    true
}

/// Writes the block columns of a point's rows to `cols`, ascending. `scratch` is for one row.
fn block_row<T: Real>(
    csr: &Csr<T>,
    unknowns: usize,
    point: usize,
    cols: &mut Vec<Ordinal>,
    scratch: &mut Vec<Ordinal>,
) {
    cols.clear();
    for row in point * unknowns..(point + 1) * unknowns {
        scratch.clear();
        for &j in csr.row(row).0 {
            let block = j / unknowns as Ordinal;
            if scratch.last() != Some(&block) {
                scratch.push(block);
            }
        }
        if *cols != *scratch {
            cols.extend_from_slice(scratch);
            cols.sort_unstable();
            cols.dedup();
        }
    }
}

/// The matrix of points: one entry, without a meaningful value, for each block that has an entry.
fn blocks<T: Real>(csr: &Csr<T>, unknowns: usize) -> Option<Csr<T>> {
    let n = csr.nrows() / unknowns;
    let collect = |range: Range<usize>| {
        let (mut ends, mut all) = (Vec::with_capacity(range.len()), Vec::new());
        let (mut cols, mut scratch) = (Vec::new(), Vec::new());
        for point in range {
            block_row(csr, unknowns, point, &mut cols, &mut scratch);
            all.extend_from_slice(&cols);
            ends.push(all.len() as Offset);
        }
        (ends, all)
    };
    let parts: Vec<_> = chunks(n).into_par_iter().map(collect).collect();
    let (mut row_ptr, mut col_idx) = (vec![0], Vec::with_capacity(parts.iter().map(|part| part.1.len()).sum()));
    for (ends, cols) in parts {
        let base = col_idx.len() as Offset;
        row_ptr.extend(ends.into_iter().map(|end| base + end));
        col_idx.extend(cols);
    }
    let values = vec![T::zero(); col_idx.len()];
    Csr::new(n, n, row_ptr, col_idx, values).ok()
}

fn chunks(points: usize) -> Vec<Range<usize>> {
    (0..points).step_by(CHUNK).map(|begin| begin..points.min(begin + CHUNK)).collect()
}

/// The couplings that the rows hold.
struct Couplings {
    /// Entries by difference of points, unknown of the row, unknown of the column.
    counts: Vec<u64>,
    /// Number of rows of each unknown with an entry off the diagonal, and of the entries in them.
    active: [u64; MAX_UNKNOWNS],
    held: u64,
}

impl Couplings {
    fn and(mut self, other: Self) -> Self {
        self.counts.iter_mut().zip(other.counts).for_each(|(a, b)| *a += b);
        self.active.iter_mut().zip(other.active).for_each(|(a, b)| *a += b);
        Self { held: self.held + other.held, ..self }
    }
}

/// The grid of a matrix with `unknowns` unknowns per point.
fn of_points<T: Real>(csr: &Csr<T>, unknowns: usize) -> Option<Grid> {
    let matrix = blocks(csr, unknowns)?;
    let grid = Grid::of_points(&Runs::of(&matrix)).ok()?;
    let [nx, ny, nz] = grid.size;
    let points = matrix.nrows();
    // In that case a larger number of unknowns, with fewer points, will be found.
    if unknowns * nx <= MAX_UNKNOWNS && merged(grid.clone()).unknowns > 1 {
        return None;
    }

    // Diagonals of points, each with the differences that it may mean.
    let mut diagonals: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (k, o) in grid.offsets.iter().enumerate() {
        let [dx, dy, dz] = o.map(i64::from);
        diagonals.entry(dx + nx as i64 * (dy + ny as i64 * dz)).or_default().push(k);
    }
    let diagonals: Vec<(i64, Vec<usize>)> = diagonals.into_iter().collect();
    // Of several differences only one lies inside the grid.
    let meant = |point: usize, all: &[usize]| match all {
        &[k] => Some(k),
        all => {
            let (x, y, z) = (point % nx, point / nx % ny, point / nx / ny);
            let inside = |o: &[i32; 3]| holds(x, o[0], nx) && holds(y, o[1], ny) && holds(z, o[2], nz);
            all.iter().copied().find(|&k| inside(&grid.offsets[k]))
        }
    };
    let nothing =
        || Couplings { counts: vec![0; grid.offsets.len() * unknowns * unknowns], active: [0; MAX_UNKNOWNS], held: 0 };
    let count = |range: Range<usize>| {
        let mut all = nothing();
        for point in range {
            for unknown in 0..unknowns {
                let row = point * unknowns + unknown;
                let cols = csr.row(row).0;
                let mut at = 0;
                for &j in cols {
                    let (to, other) = (j as usize / unknowns, j as usize % unknowns);
                    let diagonal = to as i64 - point as i64;
                    while diagonals.get(at)?.0 < diagonal {
                        at += 1;
                    }
                    let k = meant(point, &diagonals[at].1)?;
                    all.counts[(k * unknowns + unknown) * unknowns + other] += 1;
                }
                if cols.len() > 1 || cols.first().is_some_and(|&j| j as usize != row) {
                    all.active[unknown] += 1;
                    all.held += cols.len() as u64;
                }
            }
        }
        Some(all)
    };
    let couplings = chunks(points).into_par_iter().map(count).try_reduce(nothing, |a, b| Some(a.and(b)))?;

    // On short lines any stencil looks like unknowns of fewer points, but it does not couple all of them with each
    // other.
    let is_full = |k: usize| couplings.counts[k * unknowns * unknowns..][..unknowns * unknowns].iter().all(|&c| c > 0);
    let beside = |k: &usize| grid.offsets[*k] != [0; 3];
    if nx <= MAX_UNKNOWNS && !(0..grid.offsets.len()).filter(beside).all(is_full) {
        return None;
    }

    let mut rows: BTreeMap<[i32; 3], u8> = BTreeMap::new();
    let b = unknowns as i32;
    // Number of rows of an unknown with a given difference of rows.
    let counted = |&[dx, dy, dz]: &[i32; 3], unknown: usize| {
        let to = unknown as i32 + dx;
        let k = grid.offsets.iter().position(|&o| o == [to.div_euclid(b), dy, dz]);
        k.map_or(0, |k| couplings.counts[(k * unknowns + unknown) * unknowns + to.rem_euclid(b) as usize])
    };
    for (at, _) in couplings.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (unknown, other) = (at / unknowns % unknowns, at % unknowns);
        let [dx, dy, dz] = grid.offsets[at / unknowns / unknowns];
        *rows.entry([b * dx + other as i32 - unknown as i32, dy, dz]).or_insert(0) |= 1 << unknown;
    }
    let mut found = from_rows([unknowns * nx, ny, nz], unknowns, rows.into_iter(), false);
    found.exact = found.places() == csr.nnz() as u64;
    let expected: u128 =
        (0..unknowns).map(|c| u128::from(found.places_of(c)) * u128::from(couplings.active[c]) / points as u128).sum();
    let is_enough = found.exact || 2 * u128::from(couplings.held) >= expected;
    // If all unknowns hold the same differences, this is one stencil: it has too many diagonals, or was refused for
    // another reason. The same holds if the unknowns differ only by entries that few rows have.
    let are_alike = found.offsets.iter().zip(&found.held).all(|(offset, &held)| {
        let common = |unknown: usize| 2 * counted(offset, unknown) >= couplings.active[unknown];
        u32::from(held) == (1 << unknowns) - 1
            || (0..unknowns).all(|unknown| held >> unknown & 1 == 0 || !common(unknown))
    });
    (is_enough && !are_alike && is_compact(&found.offsets, found.size)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::super::Extents;
    use super::*;

    #[test]
    fn rows_tell_which_unknowns_they_are() {
        assert!(!differs(u64::MAX, 2) && !differs(u64::MAX, 5));
        assert!(differs(0b1001_0010_0100, 3) && !differs(0b111, 3));
        let even = (0..PERIOD).step_by(2).fold(0, |all, row| all | 1u64 << row);
        assert!(differs(even, 2) && differs(even, 4) && !differs(even, 3) && !differs(even, 5));
    }

    #[test]
    fn places_are_counted_by_unknown() {
        let extents = Extents { size: [12, 3, 2] };
        for offset in [[0, 0, 0], [-4, 1, 0], [5, -1, 1], [-11, 0, 0], [12, 0, 0], [3, 3, 0]] {
            let sum: u64 = (0..3).map(|c| extents.places_of(offset, 3, c)).sum();
            assert_eq!(sum, extents.places(offset), "{offset:?}");
        }
        assert_eq!([0, 1, 2].map(|c| extents.places_of([-4, 0, 0], 3, c)), [12, 18, 18]);
    }
}
