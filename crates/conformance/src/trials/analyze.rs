//! Trials of the analysis of a resident matrix. A plan made from its triangle has the bits of one that the host
//! analyses and loads, and is refused for the same row.

use std::rc::Rc;
use std::sync::Arc;

use spandrel_backend::{Analyze, Error as Refusal, Mat, Part, ResidentTri, Sptrsv, Tri};
use spandrel_formats::{Csr, Real};
use spandrel_sptrsv::{Diagonal, Error, Plan, Sweep, Systems, Triangle, Triangular, part};

use super::sptrsv::SYSTEMS;
use crate::case::{Stream, numbers, seed};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// The name of a lower stencil: how far it reaches, in how many dimensions, and which sums and maxima of |d| belong to
/// it.
pub(super) struct Stencil {
    pub(super) name: &'static str,
    reach: i32,
    pub(super) dims: usize,
    inside: fn(i32, i32) -> bool,
}

pub(super) const STENCILS: [Stencil; 10] = [
    Stencil { name: "d3n7", reach: 1, dims: 3, inside: |sum, _| sum == 1 },
    Stencil { name: "d3n13", reach: 2, dims: 3, inside: |sum, most| sum == most },
    Stencil { name: "d3n15", reach: 1, dims: 3, inside: |sum, _| sum == 1 || sum == 3 },
    Stencil { name: "d3n19", reach: 1, dims: 3, inside: |sum, _| sum <= 2 },
    Stencil { name: "d3n27", reach: 1, dims: 3, inside: |_, _| true },
    Stencil { name: "d3n33", reach: 2, dims: 3, inside: |sum, most| most == 1 || sum == most },
    Stencil { name: "d2n5", reach: 1, dims: 2, inside: |sum, _| sum == 1 },
    Stencil { name: "d2n9", reach: 1, dims: 2, inside: |_, _| true },
    Stencil { name: "d2n25", reach: 2, dims: 2, inside: |_, _| true },
    Stencil { name: "d1n7", reach: 3, dims: 1, inside: |_, _| true },
];

/// Grids of three, two and one dimensions: odd sizes, lines shorter and longer than a warp, axes of one point.
const SOLID: [[usize; 3]; 6] = [[13, 7, 9], [33, 17, 5], [70, 5, 4], [2, 3, 4], [1, 9, 7], [150, 40, 3]];
const FLAT: [[usize; 3]; 5] = [[3, 200, 1], [65, 97, 1], [300, 33, 1], [7, 5, 1], [1, 300, 1]];
const LINES: [[usize; 3]; 4] = [[1, 1, 1], [6, 1, 1], [33, 1, 1], [1000, 1, 1]];

impl Stencil {
    /// The lower half, ascending by (dz, dy, dx).
    pub(super) fn lower(&self) -> Vec<[i32; 3]> {
        let along = |axis: usize| if axis < self.dims { -self.reach..=self.reach } else { 0..=0 };
        let all = along(2).flat_map(|dz| along(1).flat_map(move |dy| along(0).map(move |dx| [dx, dy, dz])));
        let holds = |o: &[i32; 3]| {
            let size = o.map(i32::abs);
            (o[2], o[1], o[0]) < (0, 0, 0) && (self.inside)(size.iter().sum(), size.into_iter().max().unwrap_or(0))
        };
        all.filter(holds).collect()
    }

    pub(super) fn sizes(&self) -> &'static [[usize; 3]] {
        match self.dims {
            3 => &SOLID,
            2 => &FLAT,
            _ => &LINES,
        }
    }
}

/// Entries of a matrix, row by row.
pub(super) type Rows<T> = Vec<Vec<(u32, T)>>;

/// A matrix on a grid, whole or one triangle. Each row lacks one in `lacking` of its neighbours (0: none).
pub(super) fn rows<T: Real>(
    size: [usize; 3],
    lower: &[[i32; 3]],
    side: Option<Triangle>,
    lacking: usize,
    name: &str,
) -> Rows<T> {
    let mut stream = Stream::new(seed(name));
    let mut count = 0;
    let of_lower = lower.iter().copied().filter(|_| side != Some(Triangle::Upper));
    let of_upper = lower.iter().rev().map(|o| o.map(|d| -d)).filter(|_| side != Some(Triangle::Lower));
    let all: Vec<[i32; 3]> = of_lower.chain([[0; 3]]).chain(of_upper).collect();
    let row = |i: usize| {
        let at = [i % size[0], i / size[0] % size[1], i / size[0] / size[1]];
        let mut row = Vec::new();
        for o in &all {
            let to = [0, 1, 2].map(|axis| at[axis] as i64 + i64::from(o[axis]));
            if (0..3).all(|axis| (0..size[axis] as i64).contains(&to[axis])) {
                count += 1;
                // Solutions of T and of T^T stay bounded.
                let off = 0.9 / lower.len() as f64;
                let value = if *o == [0; 3] { 1.0 + stream.unit() } else { off * (0.5 + 0.5 * stream.unit()) };
                if *o == [0; 3] || lacking == 0 || count % lacking != 0 {
                    let col = to[0] + size[0] as i64 * (to[1] + size[1] as i64 * to[2]);
                    row.push((col as u32, T::from_f64(if stream.bits() & 1 == 0 { value } else { -value })));
                }
            }
        }
        row
    };
    (0..size.iter().product()).map(row).collect()
}

pub(super) fn csr<T: Real>(rows: &Rows<T>) -> Result<Csr<T>, Finding> {
    let mut row_ptr = vec![0];
    for row in rows {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len() as u32);
    }
    let (cols, values) = rows.iter().flatten().copied().unzip();
    Ok(Csr::new(rows.len(), rows.len(), row_ptr, cols, values)?)
}

/// All trials of the analysis of a resident matrix on one backend.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: Analyze<Csr<T>, Sweep<T>> + Sptrsv<Sweep<T>> + 'static,
{
    for stencil in &STENCILS {
        for &size in stencil.sizes() {
            let extents = size.map(|extent| extent.to_string()).join("x");
            let name = format!("analyze/sweep/{}/{}/{}-{extents}", T::NAME, fleet.name, stencil.name);
            let fleet = fleet.clone();
            out.push(Trial::new(name.clone(), move || on_grid::<T, D>(fleet.first(), stencil, size, &name)));
        }
        let name = format!("analyze/sweep/{}/{}/{}-refused", T::NAME, fleet.name, stencil.name);
        let here = fleet.clone();
        out.push(Trial::new(name.clone(), move || refused::<T, D>(here.first(), stencil, &name)));
        if stencil.dims == 3 {
            let name = format!("analyze/sweep/{}/{}/{}-large", T::NAME, fleet.name, stencil.name);
            let here = fleet.clone();
            out.push(Trial::new(name.clone(), move || large::<T, D>(here.first(), stencil, &name)));
        }
    }
}

/// Whole matrices and triangles, rows that lack neighbours, both diagonals, with the grid known or not.
fn on_grid<T: Real, D>(be: &D, stencil: &Stencil, size: [usize; 3], name: &str) -> Verdict
where
    D: Analyze<Csr<T>, Sweep<T>> + Sptrsv<Sweep<T>>,
{
    let lower = stencil.lower();
    for side in [None, Some(Triangle::Lower), Some(Triangle::Upper)] {
        for lacking in [0, 7] {
            let host = csr(&rows::<T>(size, &lower, side, lacking, name))?;
            let matrix = Mat::load(be, host.clone())?;
            for triangle in [Triangle::Lower, Triangle::Upper] {
                for diagonal in [Diagonal::NonUnit, Diagonal::Unit] {
                    for grid in [None, Some((size, &lower[..]))] {
                        let what = format!("{side:?} {lacking} {triangle} {diagonal:?} known: {}", grid.is_some());
                        // A device may store a plan for one system in another layout than one for both.
                        for systems in [Systems::Plain, Systems::Both] {
                            let wanted = Part { triangle, diagonal, systems, grid };
                            match same::<T, D>(be, &host, &matrix, &wanted) {
                                Err(Finding::Wrong(why)) => return Err(wrong(format!("{what}, {systems:?}: {why}"))),
                                other => other?,
                            }
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// A grid of more pieces than a device packs at once. Then the same with one late entry that is missing, zero or
/// elsewhere; most of the grid is packed before this shows.
fn large<T: Real, D>(be: &D, stencil: &Stencil, name: &str) -> Verdict
where
    D: Analyze<Csr<T>, Sweep<T>> + Sptrsv<Sweep<T>>,
{
    let (lower, size) = (stencil.lower(), [40, 90, 60]);
    let n: usize = size.iter().product();
    for triangle in [Triangle::Lower, Triangle::Upper] {
        let good = rows::<T>(size, &lower, Some(triangle), 0, name);
        let wanted = Part { grid: Some((size, &lower)), ..Part::new(triangle, Diagonal::NonUnit, Systems::Plain) };
        let host = csr(&good)?;
        same::<T, D>(be, &host, &Mat::load(be, host.clone())?, &wanted)?;
        // Behind the points that are packed first, from either end.
        for row in [n / 2 + 17, n - n / 9, n / 9] {
            let diagonal = good[row].iter().position(|&(col, _)| col as usize == row).unwrap_or(0);
            let mut fewer = good.clone();
            fewer[row].remove(if diagonal == 0 { good[row].len() - 1 } else { 0 });
            let host = csr(&fewer)?;
            same::<T, D>(be, &host, &Mat::load(be, host.clone())?, &wanted)?;
            let refusal = |rows: &Rows<T>| -> Result<_, Finding> {
                let matrix = Mat::load(be, csr(rows)?)?;
                Ok(ResidentTri::<D, Sweep<T>>::analyze(be, &matrix, &wanted).map(|_| ()))
            };
            let mut zero = good.clone();
            zero[row][diagonal].1 = T::zero();
            match refusal(&zero)? {
                Err(Refusal::Triangle(Error::ZeroDiagonal { row: found })) if found == row => {}
                other => return Err(wrong(format!("{triangle}, zero on the diagonal of row {row}: {other:?}"))),
            }
            // As many entries as before, but one of them in another column.
            let col = if triangle == Triangle::Lower { row - size[0] / 2 } else { row + size[0] / 2 };
            let mut elsewhere = good.clone();
            elsewhere[row].remove(if diagonal == 0 { good[row].len() - 1 } else { 0 });
            let at = elsewhere[row].partition_point(|&(c, _)| (c as usize) < col);
            elsewhere[row].insert(at, (col as u32, T::one()));
            match refusal(&elsewhere)? {
                Err(Refusal::Triangle(Error::OutsideStencil { row: r, col: c })) if (r, c) == (row, col) => {}
                other => return Err(wrong(format!("{triangle}, an entry at ({row}, {col}): {other:?}"))),
            }
        }
    }
    Ok(())
}

/// Compares the resident analysis with the host's.
fn same<T: Real, D>(be: &D, host: &Csr<T>, matrix: &Mat<D, Csr<T>>, wanted: &Part<'_>) -> Verdict
where
    D: Analyze<Csr<T>, Sweep<T>> + Sptrsv<Sweep<T>>,
{
    let side = part(host, wanted.triangle).map_err(Refusal::from)?;
    let triangular = Triangular::new(side, wanted.triangle, wanted.diagonal).map_err(Refusal::from)?;
    let triangular = Arc::new(triangular);
    let plan = match wanted.grid {
        Some((size, offsets)) => Sweep::on_grid(triangular, size, offsets, wanted.systems),
        None => Sweep::analyze(triangular, wanted.systems),
    };
    let made = ResidentTri::<D, Sweep<T>>::analyze(be, matrix, wanted);
    let (loaded, made) = match (plan.map_err(Refusal::from).and_then(|plan| Tri::load(be, plan)), made) {
        (Ok(loaded), Ok(made)) => (loaded, made),
        (Err(_), Err(_)) => return Ok(()),
        (Ok(_), Err(why)) => return Err(wrong(format!("the resident analysis alone refuses: {why}"))),
        (Err(why), Ok(_)) => return Err(wrong(format!("the host's analysis alone refuses: {why}"))),
    };
    let n = host.row_ptr().len() - 1;
    let b = be.upload(&numbers::<T>(3, n))?;
    for system in SYSTEMS.into_iter().filter(|&system| wanted.systems.hold(system)) {
        let nan = vec![T::nan(); n];
        let (mut x, mut y) = (be.upload(&nan)?, be.upload(&nan)?);
        loaded.sptrsv(be, None, system, &b, &mut x)?;
        made.sptrsv(be, None, system, &b, &mut y)?;
        if let Some(detail) = difference(&be.download(&y)?, &be.download(&x)?) {
            return Err(wrong(format!("{system}, the resident plan against the loaded one: {detail}")));
        }
    }
    Ok(())
}

/// With one wrong entry the row is named. A missing neighbour is not an error.
fn refused<T: Real, D>(be: &D, stencil: &Stencil, name: &str) -> Verdict
where
    D: Analyze<Csr<T>, Sweep<T>> + Sptrsv<Sweep<T>>,
{
    let lower = stencil.lower();
    let size = match stencil.dims {
        3 => [37, 11, 9],
        2 => [45, 37, 1],
        _ => [900, 1, 1],
    };
    let n: usize = size.iter().product();
    let good = rows::<T>(size, &lower, None, 0, name);
    let grid = Some((size, &lower[..]));
    for triangle in [Triangle::Lower, Triangle::Upper] {
        let wanted = Part { grid, ..Part::new(triangle, Diagonal::NonUnit, Systems::Both) };
        let analyze = |rows: &Rows<T>, wanted: &Part<'_>| -> Result<_, Finding> {
            let matrix = Mat::load(be, csr(rows)?)?;
            Ok(ResidentTri::<D, Sweep<T>>::analyze(be, &matrix, wanted).map(|_| ()))
        };
        for row in [0, 31, 32, n / 2, n / 2 + 7, n - 1] {
            let diagonal = good[row].iter().position(|&(col, _)| col as usize == row).unwrap_or(0);
            let mut missing = good.clone();
            missing[row].remove(diagonal);
            for zero in [0.0, -0.0] {
                let mut zeros = good.clone();
                zeros[row][diagonal].1 = T::from_f64(zero);
                for grid in [None, grid] {
                    let wanted = Part { grid, ..wanted };
                    match analyze(&zeros, &wanted)? {
                        Err(Refusal::Triangle(Error::ZeroDiagonal { row: found })) if found == row => {}
                        other => {
                            return Err(wrong(format!("{triangle}, {zero} on the diagonal of row {row}: {other:?}")));
                        }
                    }
                    match analyze(&missing, &wanted)? {
                        Err(Refusal::Triangle(Error::MissingDiagonal { row: found })) if found == row => {}
                        other => return Err(wrong(format!("{triangle}, no diagonal in row {row}: {other:?}"))),
                    }
                    if let Err(why) = analyze(&missing, &Part { diagonal: Diagonal::Unit, ..wanted })? {
                        return Err(wrong(format!("{triangle}, no diagonal in row {row}, where it is 1: {why}")));
                    }
                }
            }
            // Far from the diagonal, across the end of a line, and on the other side, which does not matter.
            for col in [0, n / 3, row.saturating_sub(size[0] / 2 + 1), (row + size[0] / 2 + 1).min(n - 1), n - 1] {
                let at = good[row].partition_point(|&(c, _)| (c as usize) < col);
                if good[row].get(at).is_some_and(|&(c, _)| c as usize == col) {
                    continue;
                }
                let mut more = good.clone();
                more[row].insert(at, (col as u32, T::one()));
                let (host, outside) = (csr(&more)?, triangle.holds(row, col));
                match analyze(&more, &wanted)? {
                    Err(Refusal::Triangle(Error::OutsideStencil { row: r, col: c }))
                        if outside && (r, c) == (row, col) => {}
                    Ok(()) if !outside => {}
                    other => return Err(wrong(format!("{triangle}, an entry at ({row}, {col}): {other:?}"))),
                }
                let matrix = Mat::load(be, host.clone())?;
                same::<T, D>(be, &host, &matrix, &Part { grid: None, ..wanted })?;
            }
            let mut fewer = good.clone();
            fewer[row].remove(if diagonal == 0 { good[row].len() - 1 } else { 0 });
            let host = csr(&fewer)?;
            let matrix = Mat::load(be, host.clone())?;
            same::<T, D>(be, &host, &matrix, &wanted)?;
            same::<T, D>(be, &host, &matrix, &Part { grid: None, ..wanted })?;
        }
        let long = Part { grid: Some(([n + 1, 1, 1], &lower)), ..wanted };
        match analyze(&good, &long)? {
            Err(Refusal::Triangle(Error::Shape { found, expected, .. })) if (found, expected) == (n + 1, n) => {}
            other => return Err(wrong(format!("a grid of another size: {other:?}"))),
        }
    }
    let flat = Mat::load(be, Csr::<T>::new(1, 2, vec![0, 1], vec![0], vec![T::one()])?)?;
    match ResidentTri::<D, Sweep<T>>::analyze(be, &flat, &Part::new(Triangle::Lower, Diagonal::NonUnit, Systems::Plain))
    {
        Err(Refusal::Triangle(Error::NotSquare { nrows: 1, ncols: 2 })) => Ok(()),
        other => Err(wrong(format!("a matrix of 1 x 2: {other:?}"))),
    }
}
