//! Grid detection: decides whether a square CSR matrix is a stencil on an X x Y x Z grid in natural order, row r = x +
//! X (y + Y z).
//!
//! Any entry (i, j) has a difference of coordinates under any extents. So the question is under which extents the
//! differences form one stencil. [`Grid::detect`] answers in steps:
//! 1. Find the distinct diagonals j - i with their numbers of entries: one parallel pass, which gives up above
//!    [`MAX_DIAGONALS`].
//! 2. Collect candidates for X and X Y among the divisors of n: the diagonals themselves, the middles between
//!    neighbouring ones, and the position where the diagonal next to the main one is first absent. X = n, one
//!    dimension, is always a candidate.
//! 3. Order the candidates by counts, without looking at entries. First come those under which each diagonal has an
//!    entry in every place of its shortest difference, then those under which it has at most as many; each group is
//!    ordered by the sum of those differences.
//! 4. Walk the candidates in that order until one is exact. Every entry's difference of coordinates comes from running
//!    x, y, z, without a division. A candidate is a grid if each diagonal means one difference (it does not wrap around
//!    the end of a line) or, on grids thinner than the stencil, if every row holds exactly its neighbours. A difference
//!    beyond half an extent must come with all shorter ones. This refuses periodic grids, whose differences reach X - 1
//!    with a gap below. An answer that is not exact is also refused if shorter differences would explain the matrix
//!    except for entries across the ends of lines.
//!
//! Among several answers, exact ones come first, then the fewest differences, then the shortest.
//!
//! If the rows are no exact grid, several unknowns per point are tried (row b p + c is unknown c of point p): see
//! `unknowns`.
//! Cost: every entry is read once, to find the [`Runs`] of rows. Steps 1 and 4 look only at a run's first row and at
//! the run's position, usually for one candidate and at most for [`MAX_CANDIDATES`]. Memory is proportional to the runs
//! and diagonals. For several unknowns per point, every entry is read twice more for each number of unknowns that is
//! tried.

mod runs;
mod sample;
mod unknowns;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

pub use self::runs::{Runs, run_starts};
pub use self::sample::Sample;
pub use self::unknowns::MAX_UNKNOWNS;
use crate::{Csr, Real};

/// Matrices with more distinct diagonals are not examined further.
pub const MAX_DIAGONALS: usize = 64;
/// Maximum number of extents that are tried on the entries.
pub const MAX_CANDIDATES: usize = 12;

/// A grid in natural order, with the stencil to which its rows belong.
///
/// With several unknowns per point, the grid is that of the rows: a line of X points has b X rows, and couplings are
/// differences of rows. [`Grid::points`] and [`Grid::stencil`] describe the points.
///
/// ```
/// use spandrel_formats::{Grid, generate};
///
/// let grid = Grid::detect(&generate::csr::<f64>("elasticity3d:8x7x6")?)?;
/// assert_eq!((grid.unknowns, grid.points(), grid.size), (3, [8, 7, 6], [24, 7, 6]));
/// assert_eq!(grid.to_string(), "8x7x6 grid, 27-point stencil, 3 unknowns per point");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Extents of the grid of rows: X, Y, Z, with r = x + X (y + Y z). Extents of 1 come last: a 1 x 7 x 5 grid is
    /// found as 7 x 5 x 1, which numbers the rows in the same way.
    pub size: [usize; 3],
    /// The differences (dx, dy, dz) of rows that occur, ascending by (dz, dy, dx), which is the order of a row's
    /// columns.
    pub offsets: Vec<[i32; 3]>,
    /// Number of unknowns per point, b: row b p + c is unknown c of point p. Usually 1.
    pub unknowns: usize,
    /// Whether each row holds every neighbour inside the grid that rows of its unknown hold. Otherwise some rows hold
    /// fewer (masked or identity rows).
    pub exact: bool,
    /// For each difference, one bit per unknown whose rows hold it.
    held: Vec<u8>,
}

/// The reason why a matrix is no grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAGrid {
    /// The matrix is not square.
    #[error("{nrows} x {ncols} is not square")]
    NotSquare {
        /// Rows.
        nrows: usize,
        /// Columns.
        ncols: usize,
    },
    /// There are no rows or no entries.
    #[error("the matrix has no entries")]
    Empty,
    /// There are more diagonals than a stencil has.
    #[error("more than {MAX_DIAGONALS} distinct diagonals")]
    TooManyDiagonals,
    /// There are neighbours across the ends of lines, as on a periodic grid.
    #[error("lines wrap around their ends (a periodic grid, or a numbering that is not natural)")]
    Wraps,
    /// There are no extents under which the diagonals form one stencil.
    #[error("no grid's extents make the diagonals one stencil")]
    NoStencil,
    /// One stencil would hold all rows, but they use little of it.
    #[error("rows hold {held} of {places} places of the smallest stencil that holds them all")]
    TooSparse {
        /// Entries in rows that hold more than a diagonal entry.
        held: u64,
        /// Places of the stencil inside the grid in those rows.
        places: u64,
    },
}

/// A distinct diagonal j - i and its number of entries.
#[derive(Clone, Copy)]
struct Diagonal {
    offset: i64,
    count: u64,
    /// One bit per value of i mod [`PERIOD`] that occurs.
    rows: u64,
}

/// A multiple of every number of unknowns that is tried.
const PERIOD: usize = 60;

impl Grid {
    /// Finds the grid of a matrix. See the module's head for rules and cost.
    ///
    /// # Errors
    /// [`NotAGrid`] with the reason.
    pub fn detect<T: Real>(csr: &Csr<T>) -> Result<Self, NotAGrid> {
        if csr.nrows() != csr.ncols() {
            return Err(NotAGrid::NotSquare { nrows: csr.nrows(), ncols: csr.ncols() });
        }
        Self::of_runs(&Runs::of(csr))
    }

    /// As [`Grid::detect`], for a matrix whose runs are known.
    ///
    /// # Errors
    /// [`NotAGrid`] with the reason.
    pub fn of_runs<T: Real>(runs: &Runs<'_, T>) -> Result<Self, NotAGrid> {
        let csr = runs.csr();
        let n = csr.nrows();
        if n != csr.ncols() {
            return Err(NotAGrid::NotSquare { nrows: n, ncols: csr.ncols() });
        }
        if n == 0 || csr.nnz() == 0 {
            return Err(NotAGrid::Empty);
        }
        let diagonals = distinct_diagonals(runs);
        let candidates = diagonals.as_ref().map_or_else(Vec::new, |all| ordered(csr, all));
        // If the rows look like one stencil, they are one. Anything else may have several unknowns per point, which is
        // cheaper to check first.
        let looks_exact = diagonals.iter().zip(candidates.first()).any(|(all, extents)| extents.are_full(all));
        let system = if looks_exact { None } else { unknowns::find(csr, diagonals.as_deref()) };
        let system = match system {
            Some((system, true)) => return Ok(system),
            other => other.map(|(system, _)| system),
        };
        let scalar = diagonals.ok_or(NotAGrid::TooManyDiagonals);
        match (scalar.and_then(|all| best(&candidates, &all, n, |extents| walk(runs, extents, &all))), system) {
            (Ok(grid), Some(system)) if !grid.exact && unknowns::explains_more(&system, &grid, csr.nnz() as u64) => {
                Ok(system)
            }
            (Err(_), Some(system)) => Ok(system),
            (scalar, _) => scalar.map(unknowns::merged),
        }
    }

    /// As [`Grid::of_runs`], for only one unknown per point.
    ///
    /// # Errors
    /// [`NotAGrid`] with the reason.
    pub fn of_points<T: Real>(runs: &Runs<'_, T>) -> Result<Self, NotAGrid> {
        let csr = runs.csr();
        if csr.nrows() != csr.ncols() {
            return Err(NotAGrid::NotSquare { nrows: csr.nrows(), ncols: csr.ncols() });
        }
        if csr.nrows() == 0 || csr.nnz() == 0 {
            return Err(NotAGrid::Empty);
        }
        let diagonals = distinct_diagonals(runs).ok_or(NotAGrid::TooManyDiagonals)?;
        let candidates = ordered(csr, &diagonals);
        best(&candidates, &diagonals, csr.nrows(), |extents| walk(runs, extents, &diagonals))
    }

    /// The grid with these extents and one unknown per point. The differences ascend by (dz, dy, dx).
    pub(crate) fn of_differences(size: [usize; 3], offsets: Vec<[i32; 3]>, exact: bool) -> Self {
        let held = vec![1; offsets.len()];
        Self { size, offsets, unknowns: 1, exact, held }
    }

    /// Number of places of the stencil inside the grid, that is, the entries of the exact matrix.
    pub fn places(&self) -> u64 {
        (0..self.unknowns).map(|unknown| self.places_of(unknown)).sum()
    }

    /// The number of these places in rows of one unknown.
    fn places_of(&self, unknown: usize) -> u64 {
        let (extents, b) = (Extents { size: self.size }, self.unknowns);
        let held = self.offsets.iter().zip(&self.held).filter(|(_, held)| *held >> unknown & 1 == 1);
        held.map(|(&offset, _)| extents.places_of(offset, b, unknown)).sum()
    }

    /// Extents of the grid of points. Equals [`Grid::size`] for one unknown per point.
    pub fn points(&self) -> [usize; 3] {
        let [x, y, z] = self.size;
        [x / self.unknowns.max(1), y, z]
    }

    /// The differences (dx, dy, dz) of points that occur, ascending by (dz, dy, dx). Equals [`Grid::offsets`] for one
    /// unknown per point.
    pub fn stencil(&self) -> Vec<[i32; 3]> {
        let b = self.unknowns as i32;
        let mut found = Vec::new();
        for (k, &[dx, dy, dz]) in self.offsets.iter().enumerate() {
            found.extend((0..b).filter(|&c| self.is_held(k, c as usize)).map(|c| [(c + dx).div_euclid(b), dy, dz]));
        }
        found.sort_unstable_by_key(|&[dx, dy, dz]| (dz, dy, dx));
        found.dedup();
        found
    }

    /// Returns true if rows of that unknown hold difference `k` of [`Grid::offsets`].
    pub fn is_held(&self, k: usize, unknown: usize) -> bool {
        unknown < self.unknowns && self.held.get(k).is_some_and(|held| held >> unknown & 1 == 1)
    }

    /// Number of dimensions with more than one point.
    pub fn dims(&self) -> usize {
        self.size.iter().filter(|&&n| n > 1).count()
    }
}

impl std::fmt::Display for Grid {
    /// `128x128x128 grid, 7-point stencil`, then the number of unknowns per point if it exceeds 1 and, unless exact,
    /// that rows are masked.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = self.points();
        match self.dims() {
            0 | 1 => write!(f, "{x} grid")?,
            2 => write!(f, "{x}x{y} grid")?,
            _ => write!(f, "{x}x{y}x{z} grid")?,
        }
        write!(f, ", {}-point stencil", self.stencil().len())?;
        if self.unknowns > 1 {
            write!(f, ", {} unknowns per point", self.unknowns)?;
        }
        if self.exact { Ok(()) } else { write!(f, ", some rows hold fewer") }
    }
}

/// The extents that are being tried.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Extents {
    size: [usize; 3],
}

impl Extents {
    /// The shortest difference of coordinates that diagonal `d` can mean.
    fn nearest(&self, d: i64) -> [i32; 3] {
        let [nx, ny, nz] = self.size.map(|n| n as i64);
        let balanced = |value: i64, n: i64| {
            let rest = value.rem_euclid(n);
            if 2 * rest > n { rest - n } else { rest }
        };
        let dx = if ny * nz == 1 { d } else { balanced(d, nx) };
        let line = (d - dx) / nx;
        let dy = if nz == 1 { line } else { balanced(line, ny) };
        [dx as i32, dy as i32, ((line - dy) / ny) as i32]
    }

    /// Number of points whose neighbour at `offset` lies inside.
    fn places(&self, offset: [i32; 3]) -> u64 {
        (0..3).map(|axis| (self.size[axis] as u64).saturating_sub(u64::from(offset[axis].unsigned_abs()))).product()
    }

    /// Returns true if each diagonal has an entry in every place of its shortest difference.
    fn are_full(&self, diagonals: &[Diagonal]) -> bool {
        diagonals.iter().all(|d| self.places(self.nearest(d.offset)) == d.count)
    }

    /// As [`Extents::places`], only for the rows with x = `unknown` modulo `b`.
    fn places_of(&self, [dx, dy, dz]: [i32; 3], b: usize, unknown: usize) -> u64 {
        let before = |x: usize| ((x + b - 1 - unknown) / b) as u64;
        let begin = dx.min(0).unsigned_abs() as usize;
        let end = self.size[0].saturating_sub(dx.max(0) as usize);
        let along = before(end).saturating_sub(before(begin));
        let across = |axis: usize, d: i32| (self.size[axis] as u64).saturating_sub(u64::from(d.unsigned_abs()));
        along * across(1, dy) * across(2, dz)
    }

    /// x and y of a row.
    fn point(&self, row: usize) -> (usize, usize) {
        (row % self.size[0], row / self.size[0] % self.size[1])
    }

    /// How the neighbour at `offset` of a point is reached, as the bit (carry in x + 1) + 3 (carry in y + 1), with
    /// carries in -1, 0, 1.
    #[inline]
    fn way(&self, x: usize, y: usize, [dx, dy, _]: [i32; 3]) -> u16 {
        let carry_x = carry(x as i64 + i64::from(dx), self.size[0] as i64);
        let carry_y = carry(y as i64 + i64::from(dy) - carry_x, self.size[1] as i64);
        1 << (carry_x + 1 + 3 * (carry_y + 1))
    }

    /// Sum of the lengths of the shortest differences.
    fn reach(&self, diagonals: &[Diagonal]) -> u64 {
        diagonals.iter().map(|d| self.nearest(d.offset).iter().map(|c| u64::from(c.unsigned_abs())).sum::<u64>()).sum()
    }
}

/// The best answer among the first [`MAX_CANDIDATES`] extents for a matrix of `nrows` rows.
fn best(
    candidates: &[Extents],
    diagonals: &[Diagonal],
    nrows: usize,
    walk: impl Fn(Extents) -> Walked,
) -> Result<Grid, NotAGrid> {
    let mut wrap: Option<u64> = None;
    let mut best: Option<Walked> = None;
    for extents in candidates.iter().take(MAX_CANDIDATES) {
        let walked = walk(*extents);
        let (exact, single) = (walked.exact, walked.offsets.len() == diagonals.len());
        if !walked.is_compact() {
            if exact || walked.only_wraps {
                let reach = extents.reach(diagonals);
                wrap = Some(wrap.map_or(reach, |shortest| shortest.min(reach)));
            }
            continue;
        }
        if (exact || single) && best.as_ref().is_none_or(|b| walked.rank() < b.rank()) {
            best = Some(walked);
        }
        if exact && single {
            break;
        }
    }
    let Some(found) = best else {
        return Err(if wrap.is_some() { NotAGrid::Wraps } else { NotAGrid::NoStencil });
    };
    if !found.exact {
        if wrap.is_some_and(|reach| reach < found.rank().2) {
            return Err(NotAGrid::Wraps);
        }
        let places = (u128::from(found.places()) * found.active as u128 / nrows as u128) as u64;
        if 2 * found.held < places {
            return Err(NotAGrid::TooSparse { held: found.held, places });
        }
    }
    let held = vec![1; found.offsets.len()];
    Ok(Grid { size: found.extents.size, offsets: found.offsets, unknowns: 1, exact: found.exact, held })
}

/// What the entries are under the given extents.
struct Walked {
    extents: Extents,
    /// Differences that occur, ascending by (dz, dy, dx).
    offsets: Vec<[i32; 3]>,
    /// Whether every row that was examined holds every neighbour inside.
    exact: bool,
    /// Whether a diagonal has entries only across the ends of lines.
    only_wraps: bool,
    /// Number of rows with an entry off the diagonal, and of the entries in them.
    active: usize,
    held: u64,
}

/// Examines every run.
fn walk<T: Real>(runs: &Runs<'_, T>, extents: Extents, diagonals: &[Diagonal]) -> Walked {
    let (csr, nx) = (runs.csr(), extents.size[0]);
    let nearest: Vec<[i32; 3]> = diagonals.iter().map(|d| extents.nearest(d.offset)).collect();
    let visit = |chunk: usize| {
        // For each diagonal, one bit per way to wrap.
        let mut seen = [0u16; MAX_DIAGONALS];
        let (mut active, mut held) = (0usize, 0u64);
        for Range { start, end } in runs.chunk(chunk) {
            let (cols, _) = csr.row(start);
            if cols.len() > 1 || cols.first().is_some_and(|&j| j as usize != start) {
                active += end - start;
                held += ((end - start) * cols.len()) as u64;
            }
            // Go line by line. Along a line, a neighbour's carry in x falls in steps of 1, and for a given carry in x
            // the carry in y is fixed.
            let mut row = start;
            while row < end {
                let (x, y) = extents.point(row);
                let rest = (end - row).min(nx - x);
                let mut k = 0;
                for &j in cols {
                    let offset = i64::from(j) - start as i64;
                    while diagonals[k].offset < offset {
                        k += 1;
                    }
                    let dx = i64::from(nearest[k][0]);
                    seen[k] |= extents.way(x, y, nearest[k]);
                    if rest > 1 {
                        seen[k] |= extents.way(x + rest - 1, y, nearest[k]);
                        // The first point whose neighbour has no carry, if it lies within the line.
                        let first = (-dx).max(x as i64) as usize;
                        if first < x + rest {
                            seen[k] |= extents.way(first, y, nearest[k]);
                        }
                    }
                }
                row += rest;
            }
        }
        (seen, active, held)
    };
    let both = |mut a: ([u16; MAX_DIAGONALS], usize, u64), b: ([u16; MAX_DIAGONALS], usize, u64)| {
        a.0.iter_mut().zip(b.0).for_each(|(a, b)| *a |= b);
        (a.0, a.1 + b.1, a.2 + b.2)
    };
    let (seen, active, held) =
        (0..runs.chunks()).into_par_iter().map(visit).reduce(|| ([0; MAX_DIAGONALS], 0, 0), both);
    let mut walked = Walked::new(extents, &nearest, &seen, active, held);
    walked.exact = walked.places() == csr.nnz() as u64;
    walked
}

impl Walked {
    /// Makes the answer from the ways in which each diagonal was seen.
    fn new(extents: Extents, nearest: &[[i32; 3]], seen: &[u16], active: usize, held: u64) -> Self {
        let [nx, ny, _] = extents.size;
        let inside = 1 << 4;
        let only_wraps = seen.iter().any(|&ways| ways != 0 && ways & inside == 0);
        let mut offsets = Vec::new();
        for (&[dx, dy, dz], seen) in nearest.iter().zip(seen) {
            for bit in (0..9).filter(|bit| seen >> bit & 1 == 1) {
                let (carry_x, carry_y) = (bit % 3 - 1, bit / 3 - 1);
                offsets.push([dx + carry_x * nx as i32, dy - carry_x + carry_y * ny as i32, dz - carry_y]);
            }
        }
        offsets.sort_unstable_by_key(|&[dx, dy, dz]| (dz, dy, dx));
        Self { extents, offsets, exact: false, only_wraps, active, held }
    }

    fn places(&self) -> u64 {
        self.offsets.iter().map(|&offset| self.extents.places(offset)).sum()
    }

    fn is_compact(&self) -> bool {
        is_compact(&self.offsets, self.extents.size)
    }

    /// The rank of an answer; smaller is better: exact, fewest differences, shortest.
    fn rank(&self) -> (bool, usize, u64) {
        let reach = self.offsets.iter().flatten().map(|c| u64::from(c.unsigned_abs())).sum();
        (!self.exact, self.offsets.len(), reach)
    }
}

/// Returns true if along each axis a difference beyond half the extent comes with every shorter one.
fn is_compact(offsets: &[[i32; 3]], size: [usize; 3]) -> bool {
    (0..3).all(|axis| {
        let mut lengths: Vec<u32> = offsets.iter().map(|o| o[axis].unsigned_abs()).filter(|&d| d > 0).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let longest = lengths.last().copied().unwrap_or(0) as usize;
        2 * longest <= size[axis] || lengths.len() == longest
    })
}

/// How many times n must be added to bring `at` into 0..n, for `at` in -n..2n.
#[inline]
fn carry(at: i64, n: i64) -> i64 {
    i64::from(at < 0) - i64::from(at >= n)
}

/// The distinct diagonals, ascending, or `None` if there are more than [`MAX_DIAGONALS`].
fn distinct_diagonals<T: Real>(runs: &Runs<'_, T>) -> Option<Vec<Diagonal>> {
    let csr = runs.csr();
    let too_many = AtomicBool::new(false);
    let scan = |chunk: usize| {
        let mut found: Vec<Diagonal> = Vec::with_capacity(MAX_DIAGONALS + 1);
        for Range { start, end } in runs.chunk(chunk) {
            if too_many.load(Ordering::Relaxed) {
                break;
            }
            let count = (end - start) as u64;
            let rows = match end - start {
                PERIOD.. => u64::MAX,
                _ => (start..end).fold(0, |rows, row| rows | 1 << (row % PERIOD)),
            };
            let mut k = 0;
            for &j in csr.row(start).0 {
                let offset = i64::from(j) - start as i64;
                while k < found.len() && found[k].offset < offset {
                    k += 1;
                }
                if k < found.len() && found[k].offset == offset {
                    found[k].count += count;
                    found[k].rows |= rows;
                } else if found.len() == MAX_DIAGONALS {
                    too_many.store(true, Ordering::Relaxed);
                    break;
                } else {
                    found.insert(k, Diagonal { offset, count, rows });
                }
            }
        }
        found
    };
    let parts: Vec<Vec<Diagonal>> = (0..runs.chunks()).into_par_iter().map(scan).collect();
    let mut all: BTreeMap<i64, Diagonal> = BTreeMap::new();
    for d in parts.into_iter().flatten() {
        let sum = all.entry(d.offset).or_insert(Diagonal { count: 0, rows: 0, ..d });
        (sum.count, sum.rows) = (sum.count + d.count, sum.rows | d.rows);
    }
    let found = !too_many.into_inner() && all.len() <= MAX_DIAGONALS;
    found.then(|| all.into_values().collect())
}

/// Possible lengths of the first line: it ends where a row lacks its next point, or begins where a row lacks its
/// previous one.
fn line_ends<T: Real>(csr: &Csr<T>, diagonals: &[Diagonal]) -> Vec<usize> {
    let lacks = |i: usize, next: bool| if next { csr.get(i, i + 1).is_none() } else { csr.get(i + 1, i).is_none() };
    let mut ends = Vec::new();
    for next in [true, false] {
        if diagonals.iter().any(|d| d.offset == if next { 1 } else { -1 }) {
            ends.extend((0..csr.nrows().min(1 << 16) - 1).find(|&i| lacks(i, next)).map(|i| i + 1));
        }
    }
    ends
}

/// The candidates in the order in which they are walked.
fn ordered<T: Real>(csr: &Csr<T>, diagonals: &[Diagonal]) -> Vec<Extents> {
    let n = csr.nrows();
    let mut found = candidates(n, diagonals, &line_ends(csr, diagonals));
    // Under the right extents a diagonal has an entry in each place of its shortest difference, or fewer if rows are
    // masked.
    let has_places = |extents: &Extents| diagonals.iter().all(|d| extents.places(extents.nearest(d.offset)) >= d.count);
    found.sort_by_cached_key(|extents| (!extents.are_full(diagonals), !has_places(extents), extents.reach(diagonals)));
    // One dimension is always kept for comparison.
    if let Some(at) = found.iter().position(|e| e.size[0] == n).filter(|&at| at >= MAX_CANDIDATES) {
        found.swap(MAX_CANDIDATES - 1, at);
    }
    found
}

/// Extents worth trying for a matrix of `n` rows whose lines may have the lengths `lines`. One dimension is always
/// among them.
fn candidates(n: usize, diagonals: &[Diagonal], lines: &[usize]) -> Vec<Extents> {
    let mut reaches: Vec<usize> = diagonals.iter().map(|d| d.offset.unsigned_abs() as usize).collect();
    reaches.sort_unstable();
    reaches.dedup();
    let mut strides = reaches.clone();
    for pair in reaches.windows(2) {
        strides.push(pair[0].midpoint(pair[1]));
    }
    strides.extend_from_slice(lines);
    strides.retain(|&stride| stride > 1 && stride < n && n.is_multiple_of(stride));
    strides.sort_unstable();
    strides.dedup();

    let mut found = vec![Extents { size: [n, 1, 1] }];
    for (at, &nx) in strides.iter().enumerate() {
        found.push(Extents { size: [nx, n / nx, 1] });
        for &plane in strides[at + 1..].iter().filter(|plane| plane.is_multiple_of(nx)) {
            found.push(Extents { size: [nx, plane / nx, n / plane] });
        }
    }
    found
}

/// Returns true if point `at` of a line of `n` points has a neighbour at distance `d`.
#[inline]
pub fn holds(at: usize, d: i32, n: usize) -> bool {
    (0..n as i64).contains(&(at as i64 + i64::from(d)))
}
