//! The sweep plan: an exact solve on a structured grid, whose schedule follows from the stencil.
//!
//! Rows are points of an X x Y x Z grid in natural order, r = x + X (y + Y z), and a row's entries belong to one lower
//! stencil. (An upper triangle is the lower one of the mirrored grid: row r stands for n - 1 - r, and offsets change
//! sign.) The slopes (1, sigma, tau) are the smallest integers for which every offset has dx + sigma dy + tau dz <= -1.
//! All points of one level x + sigma y + tau z then depend only on earlier levels. So no dependency is looked up,
//! neither in the analysis nor in the solve.
//!
//! Values come from one of two places. If every row holds every neighbour inside the grid (`is_whole`), they come from
//! the triangle's own array: row starts are then a closed form, and indices are never read. Otherwise they come from
//! index-free storage that the device lays out, in which absent neighbours are stored zeros. These zeros are
//! multiplied, as in DIA. So if x holds an infinity or a NaN, or a sum is zero, rows that lack neighbours may differ
//! from [`crate::serial`] in NaNs and in the sign of a zero.
//!
//! Several unknowns per point belong to the point's line: X counts the rows of a line. The couplings of an unknown are
//! differences of rows, which rows of other unknowns lack, so such a lattice is never whole. [`Sweep::pays`] says
//! whether the zeros cost less than reading columns.
//!
//! Order: [`crate::serial`]'s.
//! Cost of the analysis: one parallel pass over the columns, that of [`Runs`]; everything else works on runs.
//! Index-free: |T| (stencil + 2) bytes per row for a non-unit diagonal, with b and x.
//! References: Lamport 1974, The parallel execution of DO loops (hyperplanes); Chen, Yang, Liu, Ma 2023, structured
//! SpTRSV.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_formats::grid::{Sample, holds};
use spandrel_formats::profile::Stencils;
use spandrel_formats::{Grid, Ordinal, Profile, Real, Runs};

use crate::{Diagonal, Error, Plan, Result, Systems, Triangle, Triangular};

/// Maximum number of grids that are guessed from sampled rows before a matrix counts as no grid.
pub const GUESSES: usize = 64;
/// Number of rows in which to look for the end of the first line, as on a device.
const FIRST_LINE: usize = 1 << 16;

/// Lower halves of the stencils for which a backend may have its own kernels: 5, 7, 9, 13, 15, 19, 27 and 33 points.
pub const STENCILS: [&[[i32; 3]]; 8] = [
    &[[0, -1, 0], [-1, 0, 0]],
    &[[0, 0, -1], [0, -1, 0], [-1, 0, 0]],
    &[[-1, -1, 0], [0, -1, 0], [1, -1, 0], [-1, 0, 0]],
    &[[0, 0, -2], [0, 0, -1], [0, -2, 0], [0, -1, 0], [-2, 0, 0], [-1, 0, 0]],
    &[[-1, -1, -1], [1, -1, -1], [0, 0, -1], [-1, 1, -1], [1, 1, -1], [0, -1, 0], [-1, 0, 0]],
    &[[0, -1, -1], [-1, 0, -1], [0, 0, -1], [1, 0, -1], [0, 1, -1], [-1, -1, 0], [0, -1, 0], [1, -1, 0], [-1, 0, 0]],
    &[
        [-1, -1, -1],
        [0, -1, -1],
        [1, -1, -1],
        [-1, 0, -1],
        [0, 0, -1],
        [1, 0, -1],
        [-1, 1, -1],
        [0, 1, -1],
        [1, 1, -1],
        [-1, -1, 0],
        [0, -1, 0],
        [1, -1, 0],
        [-1, 0, 0],
    ],
    &[
        [0, 0, -2],
        [-1, -1, -1],
        [0, -1, -1],
        [1, -1, -1],
        [-1, 0, -1],
        [0, 0, -1],
        [1, 0, -1],
        [-1, 1, -1],
        [0, 1, -1],
        [1, 1, -1],
        [0, -2, 0],
        [-1, -1, 0],
        [0, -1, 0],
        [1, -1, 0],
        [-2, 0, 0],
        [-1, 0, 0],
    ],
];

/// A grid and the lower stencil on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lattice {
    size: [usize; 3],
    offsets: Vec<[i32; 3]>,
    unknowns: usize,
    whole: bool,
    stores_diagonal: bool,
}

impl Lattice {
    /// Makes a lattice for a triangle of `nrows` rows. The rows are not checked: the caller guarantees what they hold.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the grid has `nrows` points; [`Error::NotAGrid`] for an offset that is not lower.
    pub fn new(
        nrows: usize,
        size: [usize; 3],
        offsets: &[[i32; 3]],
        whole: bool,
        stores_diagonal: bool,
    ) -> Result<Self> {
        let points = size.iter().try_fold(1usize, |all, &extent| all.checked_mul(extent));
        if points != Some(nrows) {
            return Err(Error::Shape { what: "the grid", found: points.unwrap_or(usize::MAX), expected: nrows });
        }
        let lower = |o: &[i32; 3]| (o[2], o[1], o[0]) < (0, 0, 0);
        if let Some(offset) = offsets.iter().find(|o| !lower(o)) {
            return Err(Error::NotAGrid { plan: "sweep", why: format!("the offset {offset:?} is not lower") });
        }
        let mut offsets = offsets.to_vec();
        offsets.sort_unstable_by_key(|&[dx, dy, dz]| (dz, dy, dx));
        offsets.dedup();
        Ok(Self { size, offsets, unknowns: 1, whole, stores_diagonal })
    }
    /// Extents of the grid of rows: X, Y, Z.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }
    /// Number of unknowns per point, which follow one another on a line; usually 1. Solves do not need it.
    pub fn unknowns(&self) -> usize {
        self.unknowns
    }
    /// The lower stencil without the diagonal, ascending by (dz, dy, dx). This is the order of a row's columns and of
    /// its sum.
    pub fn offsets(&self) -> &[[i32; 3]] {
        &self.offsets
    }
    /// Returns true if each row holds every neighbour inside the grid, and either all rows store a diagonal entry or
    /// none does. Row starts are then a closed form.
    pub fn is_whole(&self) -> bool {
        self.whole
    }
    /// Returns true if every row stores a diagonal entry, which it must unless the diagonal is declared to be 1.
    pub fn stores_diagonal(&self) -> bool {
        self.stores_diagonal
    }
    /// The smallest slopes (sigma, tau) for which every offset that leaves the line has dx + sigma dy + tau dz <=
    /// -`apart`. Points of a level then depend only on levels at least `apart` earlier, except for points of their own
    /// line.
    pub fn slopes(&self, apart: usize) -> (usize, usize) {
        let apart = apart.max(1) as i64;
        let need = |numerator: i64, lines: i32| {
            (numerator.div_euclid(i64::from(lines)) + i64::from(numerator.rem_euclid(i64::from(lines)) > 0)).max(0)
        };
        let sigma = self
            .offsets
            .iter()
            .filter(|o| o[2] == 0 && o[1] < 0)
            .map(|o| need(i64::from(o[0]) + apart, -o[1]))
            .max()
            .unwrap_or(0);
        let plane = |o: &[i32; 3]| need(i64::from(o[0]) + sigma * i64::from(o[1]) + apart, -o[2]);
        let tau = self.offsets.iter().filter(|o| o[2] < 0).map(plane).max().unwrap_or(0);
        (sigma as usize, tau as usize)
    }
    /// The grid without axes of a single point, with the offsets of its stencil that can lie inside. Rows keep their
    /// numbers, and terms keep their order.
    pub fn canonical(&self) -> ([usize; 3], Vec<[i32; 3]>) {
        canonical(self.size, &self.offsets)
    }
    /// Returns true if the stencil is one of these, such as those for which a device has kernels.
    pub fn is_one_of(&self, stencils: Stencils) -> bool {
        stencils.contains(&&self.canonical().1[..])
    }
    /// Number of levels x + sigma y + tau z.
    pub fn levels(&self) -> usize {
        let (sigma, tau) = self.slopes(1);
        let [x, y, z] = self.size;
        if x * y * z == 0 { 0 } else { x + sigma * (y - 1) + tau * (z - 1) }
    }
}

/// See [`Lattice::canonical`].
pub fn canonical(size: [usize; 3], offsets: &[[i32; 3]]) -> ([usize; 3], Vec<[i32; 3]>) {
    let axes: Vec<usize> = (0..3).filter(|&axis| size[axis] > 1).collect();
    let mut extents = [1; 3];
    for (to, &from) in axes.iter().enumerate() {
        extents[to] = size[from];
    }
    let fits = |o: &&[i32; 3]| (0..3).all(|axis| (o[axis].unsigned_abs() as usize) < size[axis]);
    let moved = |o: &[i32; 3]| {
        let mut offset = [0; 3];
        for (to, &from) in axes.iter().enumerate() {
            offset[to] = o[from];
        }
        offset
    };
    (extents, offsets.iter().filter(fits).map(moved).collect())
}

/// The sweep plan. See the module's head.
#[derive(Clone, Debug)]
pub struct Sweep<T> {
    matrix: Arc<Triangular<T>>,
    lattice: Arc<Lattice>,
    systems: Systems,
}

impl<T: Real> Sweep<T> {
    /// Plans for a triangle on a known grid. Every row is checked.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the grid has as many points as the triangle has rows; [`Error::NotAGrid`] for an offset
    /// that is not lower; [`Error::OutsideStencil`] with the first such entry.
    pub fn on_grid(
        matrix: Arc<Triangular<T>>,
        size: [usize; 3],
        offsets: &[[i32; 3]],
        systems: Systems,
    ) -> Result<Self> {
        let lattice = Lattice::new(matrix.nrows(), size, offsets, false, false)?;
        Self::verified(&Runs::of(matrix.csr()), &matrix, lattice, systems)
    }

    /// Makes the plan on a lattice after checking that every run fits it.
    fn verified(
        runs: &Runs<'_, T>,
        matrix: &Arc<Triangular<T>>,
        mut lattice: Lattice,
        systems: Systems,
    ) -> Result<Self> {
        let held = verify(runs, matrix.triangle(), lattice.size, &lattice.offsets)?;
        (lattice.whole, lattice.stores_diagonal) = (held.is_whole(), held.diagonal && !held.no_diagonal);
        Ok(Self { matrix: Arc::clone(matrix), lattice: Arc::new(lattice), systems })
    }

    /// The grid and its stencil.
    pub fn lattice(&self) -> &Arc<Lattice> {
        &self.lattice
    }

    /// Takes the rows of a triangle that a device would sample.
    fn sample(matrix: &Triangular<T>) -> Sample {
        let (n, csr) = (matrix.nrows(), matrix.csr());
        let mut sample = Sample::new(n);
        for row in (0..n.min(Sample::ROWS)).map(|at| Sample::row(n, at)) {
            sample.push(row, csr.row(row).0.to_vec());
        }
        sample
    }

    /// Guesses the grid from sampled rows, as a device does, and checks it on every row. Several unknowns per point of
    /// a plane may then become an axis of their own: plane elasticity gives the lattice [2, X, Y] with 27 points.
    ///
    /// # Errors
    /// [`Error::NotAGrid`], [`Error::OutsideStencil`].
    fn sampled(mut sample: Sample, runs: &Runs<'_, T>, matrix: &Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        let (n, csr, triangle) = (matrix.nrows(), matrix.csr(), matrix.triangle());
        // The line may end where a row first lacks the preceding point.
        let beside = |i: usize| match triangle {
            Triangle::Lower => csr.get(i + 1, i),
            Triangle::Upper => csr.get(i, i + 1),
        };
        if let Some(i) = (0..n.saturating_sub(1).min(FIRST_LINE)).find(|&i| beside(i).is_none()) {
            sample.line_may_have(i + 1);
        }
        let mut contradicting = Vec::new();
        for _ in 0..GUESSES {
            let grid = sample.guess().map_err(|why| Error::NotAGrid { plan: Self::NAME, why: why.to_string() })?;
            let lattice = Lattice::new(n, grid.size, &lower(&grid.offsets, triangle), false, false)?;
            match Self::verified(runs, matrix, lattice, systems) {
                // The guess was not made from this row, so add it to the sample.
                Err(Error::OutsideStencil { row, .. }) if !contradicting.contains(&row) => {
                    contradicting.push(row);
                    sample.push(row, csr.row(row).0.to_vec());
                }
                other => return other,
            }
        }
        Err(Error::NotAGrid { plan: Self::NAME, why: format!("none of {GUESSES} guesses holds its rows") })
    }

    /// Returns the plan if it is expected to pay on a device ([`Sweep::pays`]).
    pub fn paying(matrix: &Arc<Triangular<T>>, systems: Systems, profile: &Profile) -> Option<Self> {
        let plan = match profile.triangles.stencils {
            None => Self::analyze(Arc::clone(matrix), systems).ok(),
            Some(stencils) => Self::with_kernels(matrix, systems, stencils),
        };
        plan.filter(|plan| plan.pays(profile))
    }

    /// Returns the plan if the device has kernels for its stencil, unless it moves too many bytes.
    ///
    /// Several unknowns per point are considered only as an axis of their own, because stencils with kernels have one
    /// unknown. If the sampled rows already have more diagonals than any such stencil, nothing is tried.
    fn with_kernels(matrix: &Arc<Triangular<T>>, systems: Systems, stencils: Stencils) -> Option<Self> {
        let fits = |plan: &Self| plan.lattice.is_one_of(stencils) && plan.moves_little();
        let sample = Self::sample(matrix);
        let most = stencils.iter().map(|stencil| stencil.len()).max()?;
        if sample.has_more_diagonals_than(most) {
            return None;
        }
        let runs = Runs::of(matrix.csr());
        Self::sampled(sample, &runs, matrix, systems).ok().filter(fits).or_else(|| {
            let grid = Grid::of_points(&runs).ok()?;
            Self::found(&runs, matrix, &grid, systems).ok().filter(fits)
        })
    }

    /// Makes the plan on a recognised grid after checking that every row fits it.
    fn found(runs: &Runs<'_, T>, matrix: &Arc<Triangular<T>>, grid: &Grid, systems: Systems) -> Result<Self> {
        let offsets = lower(&grid.offsets, matrix.triangle());
        let lattice = Lattice::new(matrix.nrows(), grid.size, &offsets, false, false)?;
        Self::verified(runs, matrix, Lattice { unknowns: grid.unknowns, ..lattice }, systems)
    }

    /// Returns true if a solve is expected to be faster than one by level sets.
    ///
    /// It may move at most a third more bytes. Level sets read columns and the order of rows, and the zeros for many
    /// absent neighbours cost more than that. On a GPU, a byte of a sweep takes less than half the time of a byte of
    /// level sets. On a CPU, where both are bound by memory, the third is the price allowed for not looking up
    /// dependencies.
    ///
    /// A device with kernels for certain stencils takes longer for a step of any other stencil than level sets do for a
    /// level, and there are no more levels than steps. It does not sweep two unknowns per point of a plane either: as
    /// an axis they make lines of two points, and level sets treat them as a chain (docs/adr/0044).
    pub fn pays(&self, profile: &Profile) -> bool {
        let [along, _, planes] = self.lattice.size();
        let has_kernels = |stencils| self.lattice.is_one_of(stencils) && (along != 2 || planes <= 1);
        profile.triangles.stencils.is_none_or(has_kernels) && self.moves_little()
    }

    /// Returns true if a solve moves at most a third more bytes than one by level sets.
    fn moves_little(&self) -> bool {
        let (n, csr) = (self.matrix.nrows(), self.matrix.csr());
        let inverses = self.matrix.inv_diag().len();
        let general = (8 * n + (4 + T::BYTES) * csr.nnz() + T::BYTES * (inverses + 2 * n)) as u64;
        self.lattice.whole || 3 * self.sptrsv_bytes() <= 4 * general
    }
}

/// The stencil of a triangle, given as that of the lower triangle and without the diagonal.
fn lower(offsets: &[[i32; 3]], triangle: Triangle) -> Vec<[i32; 3]> {
    let sign = if triangle == Triangle::Upper { -1 } else { 1 };
    offsets.iter().filter(|&&o| o != [0; 3]).map(|o| o.map(|d| sign * d)).collect()
}

/// What the rows hold of their stencil.
#[derive(Clone, Copy)]
struct Held {
    /// Every row holds all of its neighbours.
    neighbours: bool,
    /// Some row stores a diagonal entry.
    diagonal: bool,
    /// Some row stores no diagonal entry.
    no_diagonal: bool,
}

impl Held {
    const NOTHING: Held = Held { neighbours: true, diagonal: false, no_diagonal: false };

    fn is_whole(self) -> bool {
        self.neighbours && !(self.diagonal && self.no_diagonal)
    }
    fn and(self, other: Held) -> Held {
        Held {
            neighbours: self.neighbours && other.neighbours,
            diagonal: self.diagonal || other.diagonal,
            no_diagonal: self.no_diagonal || other.no_diagonal,
        }
    }
}

/// Checks that every entry belongs to the stencil and returns what the rows hold, or the first entry that does not
/// belong.
fn verify<T: Real>(runs: &Runs<'_, T>, triangle: Triangle, size: [usize; 3], offsets: &[[i32; 3]]) -> Result<Held> {
    // The stencil in the order of the stored entries, with the diagonal.
    let mut stencil = offsets.to_vec();
    stencil.push([0; 3]);
    if triangle == Triangle::Upper {
        stencil.reverse();
        stencil.iter_mut().flatten().for_each(|d| *d = -*d);
    }
    let check = |chunk: usize| {
        let mut line = Line::new(size, &stencil);
        runs.chunk(chunk).try_fold(Held::NOTHING, |held, run| Ok(held.and(verify_run(runs, &mut line, run)?)))
    };
    // Collected in order, so that the first error is that of the first row.
    let found: Vec<Result<Held>> = (0..runs.chunks()).into_par_iter().map(check).collect();
    found.into_iter().try_fold(Held::NOTHING, |all, held| Ok(all.and(held?)))
}

/// The neighbours of the points of one line.
struct Line<'a> {
    size: [usize; 3],
    stencil: &'a [[i32; 3]],
    /// The line y + Y z to which `inside` belongs.
    at: Option<usize>,
    /// The neighbours on lines inside the grid: difference along the line, and difference of the row numbers.
    inside: Vec<(i32, Ordinal)>,
    /// How far the neighbours reach along the line in each direction.
    before: usize,
    after: usize,
}

impl<'a> Line<'a> {
    fn new(size: [usize; 3], stencil: &'a [[i32; 3]]) -> Self {
        Self { size, stencil, at: None, inside: Vec::with_capacity(stencil.len()), before: 0, after: 0 }
    }

    /// Moves to the line that contains a row.
    fn aim(&mut self, row: usize) {
        let [nx, ny, nz] = self.size;
        let at = row / nx;
        if self.at == Some(at) {
            return;
        }
        let (y, z) = (at % ny, at / ny);
        let inside = self.stencil.iter().filter(|o| holds(y, o[1], ny) && holds(z, o[2], nz));
        self.inside.clear();
        self.inside.extend(inside.map(|o| {
            let shift = i64::from(o[0]) + nx as i64 * (i64::from(o[1]) + ny as i64 * i64::from(o[2]));
            (o[0], shift as Ordinal)
        }));
        self.before = self.inside.iter().map(|p| p.0.min(0).unsigned_abs() as usize).max().unwrap_or(0);
        self.after = self.inside.iter().map(|p| p.0.max(0) as usize).max().unwrap_or(0);
        self.at = Some(at);
    }
}

/// Does [`verify`] for a run. It checks the rows near the ends of lines and, of the rows between them, only the first:
/// all of these have the same neighbours.
fn verify_run<T: Real>(runs: &Runs<'_, T>, line: &mut Line<'_>, run: Range<usize>) -> Result<Held> {
    let (csr, nx) = (runs.csr(), line.size[0]);
    let mut held = Held::NOTHING;
    let mut row = run.start;
    while row < run.end {
        line.aim(row);
        let x = row % nx;
        held = held.and(verify_row(row, csr.row(row).0, line.inside.iter().filter(|p| holds(x, p.0, nx)))?);
        let is_inner = x >= line.before && x + line.after < nx;
        row += if is_inner { (nx - line.after - x).min(run.end - row) } else { 1 };
    }
    Ok(held)
}

/// Checks one row and returns what it holds of its neighbours inside the grid, with the diagonal.
fn verify_row<'a>(
    row: usize,
    cols: &[Ordinal],
    mut neighbours: impl Iterator<Item = &'a (i32, Ordinal)>,
) -> Result<Held> {
    let row_index = row as Ordinal;
    let mut held = Held { neighbours: true, diagonal: false, no_diagonal: true };
    for &col in cols {
        loop {
            match neighbours.next().map(|p| row_index.wrapping_add(p.1)) {
                Some(place) if place == col => break,
                Some(place) if place < col => held.neighbours &= place == row_index,
                _ => return Err(Error::OutsideStencil { row, col: col as usize }),
            }
        }
        if col == row_index {
            held = Held { diagonal: true, no_diagonal: false, ..held };
        }
    }
    held.neighbours &= neighbours.all(|p| p.1 == 0);
    Ok(held)
}

impl<T: Real> Plan for Sweep<T> {
    type Value = T;
    const NAME: &'static str = "sweep";

    /// Recognises the grid. A triangle without entries off the diagonal counts as one line without a stencil.
    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        let n = matrix.nrows();
        if (0..n).all(|i| matrix.off_diagonal(i).0.is_empty()) {
            return Self::on_grid(matrix, [n, 1, 1], &[], systems);
        }
        let runs = Runs::of(matrix.csr());
        let grid = Grid::of_runs(&runs).map_err(|why| Error::NotAGrid { plan: Self::NAME, why: why.to_string() })?;
        Self::found(&runs, &matrix, &grid, systems)
    }
    fn analyze_for(matrix: Arc<Triangular<T>>, systems: Systems, profile: &Profile) -> Result<Self> {
        match profile.triangles.stencils.and_then(|stencils| Self::with_kernels(&matrix, systems, stencils)) {
            Some(plan) => Ok(plan),
            None => Self::analyze(matrix, systems),
        }
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        &self.matrix
    }
    fn systems(&self) -> Systems {
        self.systems
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        Arc::make_mut(&mut self.matrix).set_values(values)
    }
    fn storage(&self) -> u64 {
        let unit = usize::from(self.matrix.diagonal() == Diagonal::NonUnit);
        (T::BYTES * self.matrix.nrows() * (self.lattice.offsets.len() + unit)) as u64
    }
    fn sptrsv_bytes(&self) -> u64 {
        self.storage() + (2 * T::BYTES * self.matrix.nrows()) as u64
    }
}
