//! Triangles as data (`testdata/cases/triangles.toml`), the systems made from them, and ILU(0) for those of real
//! matrices.
//!
//! A case is a set of places below the diagonal. It gives systems in four forms: lower and upper, with a stored
//! diagonal and a unit one. Values keep solutions small for any number of levels, so that |x| <= 10 max |b| for T and
//! T^T. Entries off the diagonal have magnitudes in [0.45, 0.9), divided by the longer of their row's and their
//! column's count. Diagonal entries are in [1, 2). Those of a unit triangle are NaN if they are stored (lower) and
//! absent otherwise (upper), because nothing may read them.
//!
//! Reference: Saad, Iterative methods for sparse linear systems, 2003, algorithm 10.4 (ILU(0)).

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use spandrel_formats::{Csr, Grid, Real};
use spandrel_sptrsv::{Diagonal, System, Triangle, Triangular, serial, split};

use crate::case::{Stream, numbers, seed};
use crate::oracle::check_solve;
use crate::reference::difference;

/// The number of right-hand sides in a block.
pub const COLUMNS: usize = 3;

/// A pattern below the diagonal, and the trials for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Names trials.
    pub name: String,
    /// What would go unnoticed without this case.
    pub why: String,
    pattern: Pattern,
    /// The plans to try; all if absent.
    only: Option<Vec<String>>,
    /// For cases with many rows: tried with one lower and one upper triangle, and without repetitions.
    #[serde(default)]
    pub light: bool,
    /// Whether it is a stencil on a grid, which plans for grids must accept.
    #[serde(default)]
    pub grid: bool,
    /// Also tried with NaN and infinities, new values, wrong lengths, and beside another queue.
    #[serde(default)]
    pub special: bool,
    /// The plans that solve it thousands of times, both plain and recorded.
    #[serde(default)]
    repeated: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Pattern {
    /// No entry off the diagonal.
    Diagonal { n: usize },
    /// Each row needs the previous one.
    Chain { n: usize },
    /// Every place.
    Full { n: usize },
    /// The last row is full.
    DenseLast { n: usize },
    /// The last row and the first column are full.
    Arrow { n: usize },
    /// This many columns per row, or per every `every`-th row, at random places before it.
    Random {
        n: usize,
        per_row: usize,
        #[serde(default = "one")]
        only_every: usize,
    },
    /// Rows in groups of `width`; each needs `per_row` rows of the previous group.
    Levels { n: usize, width: usize, per_row: usize },
    /// Rows in groups of `unknowns`. Each needs all earlier rows of its group and all rows of several previous groups.
    Points { n: usize, unknowns: usize, others: usize },
    /// Levels of `width` rows and of one row, in turn.
    Hourglass { n: usize, width: usize },
    /// The part of a generated matrix below the diagonal.
    Spec { spec: String },
    /// The lower half of a stencil; every `masked`-th row loses its neighbours.
    Stencil { grid: Vec<usize>, points: usize, masked: Option<usize> },
}

fn one() -> usize {
    1
}

/// All triangles of the suite.
///
/// # Errors
/// A file that does not parse, a name used twice, a case without a reason.
pub fn all() -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        triangle: Vec<Case>,
    }
    let text = include_str!("../testdata/cases/triangles.toml");
    let File { triangle } = toml::from_str(text).context("testdata/cases/triangles.toml")?;
    for (at, case) in triangle.iter().enumerate() {
        ensure!(case.why.len() > 10, "triangles.toml: {}: say why the case is there", case.name);
        ensure!(triangle[..at].iter().all(|c| c.name != case.name), "triangles.toml: {} is there twice", case.name);
        let known = |plan: &String| crate::PLANS.contains(&plan.as_str());
        ensure!(case.only.iter().flatten().chain(&case.repeated).all(known), "{}: an unknown plan", case.name);
    }
    Ok(triangle)
}

impl Case {
    /// Whether to try `plan`.
    pub fn wants(&self, plan: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|p| p == plan))
    }

    /// Whether `plan` solves it thousands of times.
    pub fn repeats(&self, plan: &str) -> bool {
        self.repeated.iter().any(|p| p == plan)
    }

    /// The forms to try.
    pub fn forms(&self) -> &'static [(Triangle, Diagonal)] {
        const FORMS: [(Triangle, Diagonal); 4] = [
            (Triangle::Lower, Diagonal::NonUnit),
            (Triangle::Upper, Diagonal::Unit),
            (Triangle::Upper, Diagonal::NonUnit),
            (Triangle::Lower, Diagonal::Unit),
        ];
        if self.light { &FORMS[..2] } else { &FORMS }
    }

    /// One form of the case, with values.
    ///
    /// # Errors
    /// An unknown specification or stencil.
    pub fn problem<T: Real>(&self, triangle: Triangle, diagonal: Diagonal) -> Result<Problem<T>> {
        let (n, places) = self.places().with_context(|| self.name.clone())?;
        let mirrored = |i: usize| if triangle == Triangle::Upper { n - 1 - i } else { i };
        let (mut rows, mut cols) = (vec![0usize; n], vec![0usize; n]);
        for &(i, j) in &places {
            rows[i] += 1;
            cols[j] += 1;
        }
        let mut stream = Stream::new(!seed(&self.name));
        let mut entries = Vec::with_capacity(places.len() + n);
        for &(i, j) in &places {
            let size = 0.45 * (1.0 + stream.unit()) / rows[i].max(cols[j]) as f64;
            let value = if stream.bits() & 1 == 0 { size } else { -size };
            entries.push((mirrored(i) as u32, mirrored(j) as u32, T::from_f64(value)));
        }
        for i in 0..n {
            let value = 1.0 + stream.unit();
            match diagonal {
                Diagonal::NonUnit => {
                    entries.push((i as u32, i as u32, T::from_f64(if i % 3 == 0 { -value } else { value })))
                }
                Diagonal::Unit if triangle == Triangle::Lower => entries.push((i as u32, i as u32, T::nan())),
                Diagonal::Unit => {}
            }
        }
        let csr = sorted(n, entries)?;
        Problem::new(Triangular::new(csr, triangle, diagonal)?, seed(&self.name))
    }

    /// A square matrix with these places, their mirror images, and a diagonal that dominates rows and columns, so that
    /// factorisations do not break down.
    ///
    /// # Errors
    /// As [`Case::problem`].
    pub fn square<T: Real>(&self) -> Result<Csr<T>> {
        let (n, places) = self.places().with_context(|| self.name.clone())?;
        let mut stream = Stream::new(seed(&self.name).rotate_left(17));
        let mut sums = vec![1.0f64; n];
        let mut entries = Vec::with_capacity(2 * places.len() + n);
        for (i, j) in places.into_iter().flat_map(|(i, j)| [(i, j), (j, i)]) {
            let value = stream.unit() - 0.5;
            sums[i] += 2.0 * value.abs();
            sums[j] += 2.0 * value.abs();
            entries.push((i as u32, j as u32, T::from_f64(value)));
        }
        entries.extend(sums.iter().enumerate().map(|(i, &sum)| (i as u32, i as u32, T::from_f64(sum))));
        sorted(n, entries)
    }

    /// The number of rows, and the places below the diagonal.
    fn places(&self) -> Result<(usize, Vec<(usize, usize)>)> {
        let mut stream = Stream::new(seed(&self.name));
        let mut places = Vec::new();
        let n = match &self.pattern {
            Pattern::Diagonal { n } => *n,
            Pattern::Chain { n } => {
                places.extend((1..*n).map(|i| (i, i - 1)));
                *n
            }
            Pattern::Full { n } => {
                places.extend((0..*n).flat_map(|i| (0..i).map(move |j| (i, j))));
                *n
            }
            Pattern::DenseLast { n } => {
                places.extend((0..n - 1).map(|j| (n - 1, j)));
                *n
            }
            Pattern::Arrow { n } => {
                places.extend((1..n - 1).map(|i| (i, 0)).chain((0..n - 1).map(|j| (n - 1, j))));
                *n
            }
            Pattern::Random { n, per_row, only_every } => {
                for i in (0..*n).filter(|i| i % only_every == 0) {
                    spread(&mut stream, i, *per_row, 0..i, &mut places);
                }
                *n
            }
            Pattern::Levels { n, width, per_row } => {
                for i in *width..*n {
                    let before = (i / width - 1) * width;
                    spread(&mut stream, i, *per_row, before..before + width, &mut places);
                }
                *n
            }
            Pattern::Points { n, unknowns, others } => {
                let mut points = Vec::new();
                for begin in (0..*n).step_by(*unknowns) {
                    points.clear();
                    spread(&mut stream, 0, *others, 0..begin / unknowns, &mut points);
                    for i in begin..(begin + unknowns).min(*n) {
                        let of = |&(_, point): &(usize, usize)| point * unknowns..(point + 1) * unknowns;
                        places.extend(points.iter().flat_map(of).map(|j| (i, j)));
                        places.extend((begin..i).map(|j| (i, j)));
                    }
                }
                *n
            }
            Pattern::Hourglass { n, width } => {
                let waist = |i: usize| i % (width + 1) == *width;
                for i in 1..*n {
                    if waist(i) {
                        places.extend((i - width..i).map(|j| (i, j)));
                    } else if i > *width {
                        places.push((i, i - i % (width + 1) - 1));
                    }
                }
                *n
            }
            Pattern::Spec { spec } => {
                let csr = crate::generated(spec)?;
                for i in 0..csr.nrows() {
                    places.extend(csr.row(i).0.iter().map(|&j| (i, j as usize)).filter(|&(i, j)| j < i));
                }
                csr.nrows()
            }
            Pattern::Stencil { grid, points, masked } => stencil(grid, *points, *masked, &mut places)?,
        };
        Ok((n, places))
    }
}

/// `length` distinct columns of row `i` out of a range, one in each of as many equal strips.
fn spread(
    stream: &mut Stream,
    i: usize,
    length: usize,
    from: std::ops::Range<usize>,
    places: &mut Vec<(usize, usize)>,
) {
    let length = length.min(from.len());
    for k in 0..length {
        let (begin, end) = (k * from.len() / length, (k + 1) * from.len() / length);
        places.push((i, from.start + begin + stream.below(end - begin)));
    }
}

/// The lower half of a stencil of this many points on a grid. The first dimension is the fastest.
fn stencil(grid: &[usize], points: usize, masked: Option<usize>, places: &mut Vec<(usize, usize)>) -> Result<usize> {
    let size = [0, 1, 2].map(|axis| grid.get(axis).copied().unwrap_or(1) as i64);
    let has = |[dx, dy, dz]: [i64; 3]| {
        let (sum, most) = (dx.abs() + dy.abs() + dz.abs(), dx.abs().max(dy.abs()).max(dz.abs()));
        let star = |radius: i64| sum == most && sum <= radius;
        Ok::<bool, anyhow::Error>(match points {
            3 => dy == 0 && dz == 0 && most <= 1,
            5 => dz == 0 && star(1),
            9 => dz == 0 && most <= 1,
            7 => star(1),
            13 => star(2),
            15 => star(1) || (most == 1 && sum == 3),
            19 => most <= 1 && sum <= 2,
            27 => most <= 1,
            33 => most <= 1 || star(2),
            other => bail!("no stencil of {other} points"),
        })
    };
    let mut offsets = Vec::new();
    for offset in (-2..=0).flat_map(|dz| (-2..=2).flat_map(move |dy| (-2..=2).map(move |dx| [dx, dy, dz]))) {
        let [dx, dy, dz] = offset;
        if (dz, dy, dx) < (0, 0, 0) && has(offset)? {
            offsets.push(offset);
        }
    }
    let [nx, ny, nz] = size;
    for r in 0..nx * ny * nz {
        if masked.is_some_and(|every| r % every as i64 == 3) {
            continue;
        }
        let at = [r % nx, r / nx % ny, r / nx / ny];
        for offset in &offsets {
            let to = [0, 1, 2].map(|axis| at[axis] + offset[axis]);
            if (0..3).all(|axis| (0..size[axis]).contains(&to[axis])) {
                places.push((r as usize, (to[0] + nx * (to[1] + ny * to[2])) as usize));
            }
        }
    }
    Ok((nx * ny * nz) as usize)
}

/// CSR of entries in any order.
fn sorted<T: Real>(n: usize, mut entries: Vec<(u32, u32, T)>) -> Result<Csr<T>> {
    entries.sort_unstable_by_key(|&(i, j, _)| (i, j));
    let mut row_ptr = vec![0u32; n + 1];
    entries.iter().for_each(|&(i, _, _)| row_ptr[i as usize + 1] += 1);
    (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
    let (cols, values) = entries.iter().map(|&(_, j, v)| (j, v)).unzip();
    Ok(Csr::new(n, n, row_ptr, cols, values)?)
}

/// A triangle with its transpose written out, right-hand sides, and the solutions that the order of [`serial`] gives.
#[derive(Clone, Debug)]
pub struct Problem<T> {
    /// T.
    pub matrix: Arc<Triangular<T>>,
    /// T^T, row by row.
    transposed: Triangular<T>,
    /// [`COLUMNS`] right-hand sides, one after the other.
    pub b: Vec<T>,
}

impl<T: Real> Problem<T> {
    /// Takes over a triangle.
    ///
    /// # Errors
    /// None for a triangle that has been checked.
    pub fn new(matrix: Triangular<T>, seed: u64) -> Result<Self> {
        let n = matrix.nrows();
        let mut entries = Vec::with_capacity(matrix.csr().values().len());
        for i in 0..n {
            let (cols, values) = matrix.csr().row(i);
            entries.extend(cols.iter().zip(values).map(|(&j, &value)| (j, i as u32, value)));
        }
        let transposed = Triangular::new(sorted(n, entries)?, matrix.triangle().transposed(), matrix.diagonal())?;
        Ok(Self { matrix: Arc::new(matrix), transposed, b: numbers(seed ^ 0x2545_f491, COLUMNS * n) })
    }

    /// The same with other values at the stored places.
    ///
    /// # Errors
    /// As [`Triangular::set_values`].
    pub fn with_values(&self, values: &[T]) -> Result<Self> {
        let mut matrix = Triangular::clone(&self.matrix);
        matrix.set_values(values)?;
        Ok(Self { b: self.b.clone(), ..Self::new(matrix, 0)? })
    }

    /// Values other than the stored ones, and as small.
    pub fn other_values(&self) -> Vec<T> {
        let scale = |at: usize| T::from_f64(if at.is_multiple_of(2) { 0.75 } else { -0.875 });
        self.matrix.csr().values().iter().enumerate().map(|(at, &value)| value * scale(at)).collect()
    }

    /// The rows of a system.
    pub fn rows(&self, system: System) -> &Triangular<T> {
        match system {
            System::Plain => &self.matrix,
            System::Transposed => &self.transposed,
        }
    }

    /// Number of rows.
    pub fn nrows(&self) -> usize {
        self.matrix.nrows()
    }

    /// x in the order of [`serial`], with as many columns as b.
    ///
    /// # Errors
    /// None for whole columns.
    pub fn expected(&self, system: System, b: &[T]) -> spandrel_sptrsv::Result<Vec<T>> {
        let (n, mut x) = (self.nrows(), vec![T::nan(); b.len()]);
        for (b, x) in b.chunks(n.max(1)).zip(x.chunks_mut(n.max(1))) {
            serial::solve(self.rows(system), b, x)?;
        }
        Ok(x)
    }

    /// Compares x with the bound, or with the bits of `expected` if the order is the stored one.
    ///
    /// # Errors
    /// The worst row, in words.
    pub fn check(&self, system: System, stored: bool, b: &[T], expected: &[T], x: &[T]) -> Result<(), String> {
        if stored && let Some(detail) = difference(x, expected) {
            return Err(format!("against the stored order: {detail}"));
        }
        // Nothing is promised if the solution leaves the range.
        if expected.iter().any(|x| !x.is_finite()) {
            return Ok(());
        }
        let n = self.nrows().max(1);
        b.chunks(n).zip(x.chunks(n)).try_for_each(|(b, x)| check_solve(self.rows(system), b, x))
    }

    /// All rows that depend on row `start`, including itself.
    pub fn reached(&self, system: System, start: usize) -> Vec<bool> {
        let (matrix, n) = (self.rows(system), self.nrows());
        let mut reached = vec![false; n];
        for k in 0..n {
            let i = if matrix.triangle() == Triangle::Lower { k } else { n - 1 - k };
            reached[i] = i == start || matrix.off_diagonal(i).0.iter().any(|&j| reached[j as usize]);
        }
        reached
    }

    /// Whether it is a stencil on a grid, and whether each row holds every neighbour.
    pub fn grid(&self) -> Option<bool> {
        Grid::detect(self.matrix.csr()).ok().map(|grid| grid.exact)
    }
}

/// The factors of ILU(0). L has a unit diagonal that is stored as U's and not read.
///
/// If a pivot is zero or missing, or a factor leaves the range, these are the triangles of the matrix itself with sums
/// of magnitudes on the diagonal. Any triangle serves for a solve.
///
/// # Errors
/// A matrix that is not square.
pub fn factors(csr: &Csr<f64>) -> Result<[Triangular<f64>; 2]> {
    let values = ilu0(csr);
    let csr = match values {
        Some(values) => Csr::new(csr.nrows(), csr.ncols(), csr.row_ptr().to_vec(), csr.col_idx().to_vec(), values)?,
        None => dominant(csr)?,
    };
    let parts = split(&csr)?;
    Ok([
        Triangular::new(parts.lower, Triangle::Lower, Diagonal::Unit)?,
        Triangular::new(parts.upper, Triangle::Upper, Diagonal::NonUnit)?,
    ])
}

/// The values of L and U in the places of A, row by row.
fn ilu0(csr: &Csr<f64>) -> Option<Vec<f64>> {
    let (row_ptr, col_idx, mut values) = (csr.row_ptr(), csr.col_idx(), csr.values().to_vec());
    let n = csr.nrows();
    let mut place = vec![usize::MAX; n];
    let mut pivot = vec![usize::MAX; n];
    for i in 0..n {
        let (begin, end) = (row_ptr[i] as usize, row_ptr[i + 1] as usize);
        (begin..end).for_each(|e| place[col_idx[e] as usize] = e);
        pivot[i] = place[i];
        for e in begin..end {
            let k = col_idx[e] as usize;
            if k >= i {
                break;
            }
            values[e] /= values[pivot[k]];
            for f in pivot[k] + 1..row_ptr[k + 1] as usize {
                let at = place[col_idx[f] as usize];
                if at != usize::MAX {
                    values[at] -= values[e] * values[f];
                }
            }
        }
        (begin..end).for_each(|e| place[col_idx[e] as usize] = usize::MAX);
        let sound = |value: f64| value.is_finite() && value.abs() < 1e100;
        if pivot[i] == usize::MAX || values[pivot[i]].abs() < 1e-100 || !(begin..end).all(|e| sound(values[e])) {
            return None;
        }
    }
    Some(values)
}

/// The matrix with 1 plus the sum of the magnitudes of the row on its diagonal.
fn dominant(csr: &Csr<f64>) -> Result<Csr<f64>> {
    let mut entries = Vec::new();
    for i in 0..csr.nrows() {
        let (cols, values) = csr.row(i);
        let row = cols.iter().zip(values).filter(|&(&j, _)| j as usize != i);
        entries.extend(row.map(|(&j, &value)| (i as u32, j, value)));
        entries.push((i as u32, i as u32, 1.0 + values.iter().map(|value| value.abs()).sum::<f64>()));
    }
    sorted(csr.nrows(), entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_triangle_builds_and_its_reference_keeps_the_bound() {
        for case in all().unwrap() {
            for &(triangle, diagonal) in case.forms() {
                let problem = case.problem::<f32>(triangle, diagonal).unwrap();
                for system in [System::Plain, System::Transposed] {
                    let b = &problem.b[..problem.nrows()];
                    let x = problem.expected(system, b).unwrap();
                    assert!(x.iter().all(|x| x.abs() < 30.0), "{} {triangle} {system}", case.name);
                    problem.check(system, true, b, &x, &x).unwrap_or_else(|e| panic!("{}: {e}", case.name));
                }
                assert!(!case.grid || problem.grid() == Some(!case.name.contains("masked")), "{}", case.name);
            }
        }
    }

    #[test]
    fn the_bound_notices_a_term_and_a_few_units() {
        let case = all().unwrap().into_iter().find(|case| case.name == "d3n7-9x5x7").unwrap();
        let problem = case.problem::<f64>(Triangle::Lower, Diagonal::NonUnit).unwrap();
        let b = &problem.b[..problem.nrows()];
        let x = problem.expected(System::Plain, b).unwrap();
        for factor in [1.0 + 64.0 * f64::EPSILON, f64::NAN] {
            let mut off = x.clone();
            *off.last_mut().unwrap() *= factor;
            assert!(check_solve(&problem.matrix, b, &off).unwrap_err().contains("row 314"));
        }
    }

    #[test]
    fn ilu_of_a_tridiagonal_matrix_is_its_factorisation() {
        let csr = crate::generated("tridiag:40,lower=-1,diag=3,upper=-2").unwrap();
        let [lower, upper] = factors(&csr).unwrap();
        for i in 1..40 {
            let (l, u) = (lower.off_diagonal(i).1[0], upper.csr().row(i - 1).1);
            assert!((l * u[0] + 1.0).abs() < 1e-15 && u[1] == -2.0);
            assert!((upper.csr().row(i).1[0] + l * u[1] - 3.0).abs() < 1e-15);
        }
        let singular = crate::generated("tridiag:4,diag=0").unwrap();
        assert_eq!(factors(&singular).unwrap()[1].inv_diag(), [0.5, 1.0 / 3.0, 1.0 / 3.0, 0.5]);
    }
}
