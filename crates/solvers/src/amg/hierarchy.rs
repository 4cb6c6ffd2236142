//! The grids of algebraic multigrid on the device, finest first: operators, prolongations, bounds on the spectra, the
//! inverse of the coarsest.

use std::fmt;

use rayon::prelude::*;
use spandrel_backend::{Coarsen, Coarser, Download, Mat, MatAggregates, Prolongation, Scaling, Spmv, UpdateValues};
use spandrel_formats::{Csr, NotInvertible, Ordinal, Real};

use super::coarsest::{Indefinite, inverse};
use super::options::AmgOptions;
use super::{Down, Grid};
use crate::phase::{Phase, SetupWatcher};
use crate::{Error, Result};

/// A backend on which algebraic multigrid is set up and runs.
pub trait AmgBackend<T: Real>: Spmv<Csr<T>> + Download<Csr<T>> + UpdateValues<Csr<T>> + Coarsen<Csr<T>> {}
impl<T: Real, B: Spmv<Csr<T>> + Download<Csr<T>> + UpdateValues<Csr<T>> + Coarsen<Csr<T>>> AmgBackend<T> for B {}

/// Statistics of one grid of an [`crate::Amg`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AmgLevel {
    /// Rows of the operator.
    pub rows: usize,
    /// Its entries.
    pub entries: usize,
    /// The bound on the eigenvalues of D^-1 A that the smoother uses.
    pub bound: f64,
}

/// The grids on the device, and the inverse of the coarsest.
pub(super) struct Hierarchy<T: Real, B: AmgBackend<T>> {
    /// 1 / d of the finest grid.
    pub(super) inv_diag: B::Vector,
    pub(super) grids: Vec<Grid<T, B>>,
    pub(super) levels: Vec<AmgLevel>,
    /// The inverse of the coarsest operator times its diagonal D_c, if it was made: right-hand sides there are divided
    /// by D_c.
    pub(super) coarsest: Option<Mat<B, Csr<T>>>,
}

impl<T: Real, B: AmgBackend<T>> Hierarchy<T, B> {
    /// Makes the grids of a matrix that the caller knows to be symmetric positive definite. `finest` is the number of
    /// rows of the finest grid if the matrix is a coarser one.
    ///
    /// # Errors
    /// Those of [`super::Amg::watched`].
    pub(super) fn of(
        be: &B,
        a: &Mat<B, Csr<T>>,
        options: &AmgOptions,
        near_null: Option<&[T]>,
        finest: usize,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        options.check()?;
        let n = a.nrows();
        if a.ncols() != n {
            return Err(Error::NotSquare { solver: "amg", nrows: n, ncols: a.ncols() });
        }
        options.check_rows(n)?;
        let mut near_null = vectors(be, n, options.unknowns, near_null)?;
        let mut options = *options;
        let mut scaling = fit(be, a, 0)?;
        let inv_diag = copied(be, &scaling.inverse, n)?;
        let mut levels = vec![AmgLevel::of(a, &scaling)];
        let mut grids = Vec::new();
        let mut coarse = None;
        loop {
            let a = coarse.as_ref().unwrap_or(a);
            let (level_of, n) = (grids.len(), a.nrows());
            if options.is_coarsest(level_of, n) {
                break;
            }
            Phase::Coarsening { grid: level_of + 1 }.begin(watcher)?;
            let count = be.len(&near_null) / n;
            let aggregates = a.aggregate(be, options.unknowns, options.strength)?;
            let rows = aggregates.count() * count;
            if AmgOptions::has_stalled(n, rows) {
                break;
            }
            let next = coarser(be, a, &aggregates, &near_null)?;
            let of_next = fit(be, &next.a, level_of + 1)?;
            let scaled = a.scaled(be, &scaling.inverse, None)?;
            if options.iterates(level_of, n, levels[0].rows)
                && let Some(down) = grids.last_mut().and_then(|finer: &mut Grid<T, B>| finer.down.as_mut())
            {
                down.diagonal = Some(copied(be, &scaling.diagonal, n)?);
            }
            let restrict = next.transposed.scaled(be, &of_next.inverse, Some(&scaling.diagonal))?;
            let down = Down { restrict, prolong: next.p, aggregates, coarse: rows, diagonal: None };
            let degree = options.degree_of(n, finest);
            grids.push(Grid { n, a: Some(scaled), bound: scaling.bound, degree, down: Some(down) });
            levels.push(AmgLevel::of(&next.a, &of_next));
            (near_null, scaling, coarse) = (next.near_null, of_next, Some(next.a));
            options = options.of_next(count);
        }
        Phase::Loading.begin(watcher)?;
        let a = coarse.as_ref().unwrap_or(a);
        let coarsest = invert(be, grids.len(), a, &scaling)?;
        let smoothed = if coarsest.is_some() { None } else { Some(a.scaled(be, &scaling.inverse, None)?) };
        let degree = options.degree_of(a.nrows(), finest);
        grids.push(Grid { n: a.nrows(), a: smoothed, bound: scaling.bound, degree, down: None });
        Ok(Self { inv_diag, grids, levels, coarsest })
    }
}

/// Makes P, P^T and P^T A P on the device. Nothing interpolates from a dropped unknown; its diagonal entry gets a 1, so
/// that it has an equation of its own, whose right-hand side is zero. Blocks; must not be recorded.
///
/// # Errors
/// Those of [`Mat::prolongation`] and [`Mat::galerkin`].
pub fn coarser<T: Real, B: AmgBackend<T>>(
    be: &B,
    a: &Mat<B, Csr<T>>,
    aggregates: &MatAggregates<B, Csr<T>>,
    near_null: &B::Vector,
) -> Result<Coarser<Mat<B, Csr<T>>, B::Vector>> {
    let Prolongation { p, near_null, dropped } = a.prolongation(be, aggregates, near_null)?;
    let (transposed, mut coarse) = a.galerkin(be, &p)?;
    coarse.add_to_diagonal(be, &dropped)?;
    Ok(Coarser { p, transposed, a: coarse, near_null })
}

impl AmgLevel {
    /// The statistics of an operator on the device.
    pub fn of<T: Real, B: AmgBackend<T>>(a: &Mat<B, Csr<T>>, scaling: &Scaling<B::Vector>) -> Self {
        Self { rows: a.nrows(), entries: a.nnz(), bound: scaling.bound }
    }
}

fn copied<T: Real, B: AmgBackend<T>>(be: &B, v: &B::Vector, n: usize) -> Result<B::Vector> {
    let mut copy = be.zeros(n)?;
    be.copy(None, v, &mut copy)?;
    Ok(copy)
}

/// Returns the default near-null-space vectors for `n` rows that begin with a whole point: one vector per unknown that
/// is 1 in the rows of that unknown, column by column.
pub fn constants<T: Real>(n: usize, unknowns: usize) -> Vec<T> {
    let column = |c: usize| (0..n).map(move |row| if row % unknowns == c { T::one() } else { T::zero() });
    (0..unknowns).flat_map(column).collect()
}

/// The near-null-space vectors of `n` rows on the device, column by column: those given, or the constant of each
/// unknown. Blocks; must not be recorded.
///
/// # Errors
/// [`Error::Size`] unless whole columns are given, [`Error::Parameter`] for more than 6, [`Error::NullVector`] for one
/// that is not finite; those of the backend.
pub fn vectors<T: Real, B: AmgBackend<T>>(be: &B, n: usize, unknowns: usize, given: Option<&[T]>) -> Result<B::Vector> {
    let Some(given) = given else {
        if unknowns == 1 {
            let mut ones = be.zeros(n)?;
            be.fill(None, T::one(), &mut ones)?;
            return Ok(ones);
        }
        return Ok(be.upload(&constants::<T>(n, unknowns))?);
    };
    if n > 0 && (given.is_empty() || !given.len().is_multiple_of(n)) {
        let (what, remedy) = ("the near-null space", "it needs whole columns of one element per row");
        return Err(Error::elements("amg", what, given.len(), given.len().next_multiple_of(n).max(n), remedy));
    }
    let count = given.len() / n.max(1);
    if count > spandrel_formats::amg::MOST_UNKNOWNS {
        let (name, range) = ("near_null", "amg takes at most 6 near-null-space vectors");
        return Err(Error::Parameter { name, value: count as f64, range });
    }
    if let Some(at) = given.par_iter().position_first(|v| !v.is_finite()) {
        return Err(Error::NullVector { index: at / n.max(1), found: "infinite or NaN" });
    }
    Ok(be.upload(given)?)
}

/// The diagonal of the operator of grid number `grid`, and the bound on its spectrum. Refuses an operator that is
/// unfit. Blocks; must not be recorded.
///
/// # Errors
/// That of the first unfit row ([`unfit`]); those of the backend.
pub fn fit<T: Real, B: AmgBackend<T>>(be: &B, a: &Mat<B, Csr<T>>, grid: usize) -> Result<Scaling<B::Vector>> {
    let scaling = a.scaling(be)?;
    let Some(row) = scaling.unfit else { return Ok(scaling) };
    let host = a.download_rows(be, row..row + 1)?;
    Err(unfit(grid, row, host.row(0), host.get(0, row)))
}

/// Says why a row of a grid is unfit, given its columns and values, and its diagonal entry. An error about a coarse
/// operator says that the given matrix is not positive definite.
pub fn unfit<T: Real>(grid: usize, row: usize, entries: (&[Ordinal], &[T]), diagonal: Option<T>) -> Error {
    if let Some(error) = not_finite(row, entries) {
        return error;
    }
    if grid > 0 {
        return Error::NotPositive { method: "amg", grid, row };
    }
    let bad = NotInvertible::of(row, diagonal);
    Error::Diagonal { row, found: bad.map_or("negative", |bad| bad.found) }
}

/// The error of the first entry of a row that is infinite or NaN.
pub(super) fn not_finite<T: Real>(row: usize, (cols, values): (&[Ordinal], &[T])) -> Option<Error> {
    let k = values.iter().position(|v| !v.is_finite())?;
    let found = if values[k].is_nan() { "NaN" } else { "infinite" };
    Some(Error::NotFinite { row, column: cols[k] as usize, found })
}

/// The inverse of the coarsest operator times its diagonal D_c; `None` if the operator is too large.
fn invert<T: Real, B: AmgBackend<T>>(
    be: &B,
    level: usize,
    a: &Mat<B, Csr<T>>,
    scaling: &Scaling<B::Vector>,
) -> Result<Option<Mat<B, Csr<T>>>> {
    let n = a.nrows();
    if n > AmgOptions::MOST_COARSEST {
        return Ok(None);
    }
    let inverse = inverse_values(be, level, a, scaling)?;
    let fill = |row: usize, cols: &mut [u32], values: &mut [T]| {
        cols.iter_mut().zip(0..).for_each(|(col, j)| *col = j);
        values.copy_from_slice(&inverse[row * n..(row + 1) * n]);
    };
    Ok(Some(Mat::load(be, Csr::from_rows(n, n, |_| n, fill)?)?))
}

/// The entries of the inverse that [`invert`] stores, row by row.
pub(super) fn inverse_values<T: Real, B: AmgBackend<T>>(
    be: &B,
    level: usize,
    a: &Mat<B, Csr<T>>,
    scaling: &Scaling<B::Vector>,
) -> Result<Vec<T>> {
    let n = a.nrows();
    let (host, diagonal) = (a.download(be)?, be.download(&scaling.diagonal)?);
    let mut dense = vec![0.0; n * n];
    for row in 0..n {
        let (cols, values) = host.row(row);
        cols.iter().zip(values).for_each(|(&j, v)| dense[row * n + j as usize] = v.as_f64());
    }
    let not_positive = |Indefinite(row)| Error::NotPositive { method: "amg", grid: level, row };
    let inverse = inverse(n, &dense).map_err(not_positive)?;
    Ok(inverse.iter().enumerate().map(|(at, &v)| T::from_f64(v) * diagonal[at % n]).collect())
}

/// Statistics of the grids of a hierarchy, finest first. `Display` prints a table.
#[derive(Clone, Copy, Debug)]
pub struct AmgLevels<'a>(pub &'a [AmgLevel]);

impl AmgLevels<'_> {
    /// The operator complexity: entries of all operators per entry of the finest.
    pub fn complexity(&self) -> f64 {
        let entries: usize = self.0.iter().map(|level| level.entries).sum();
        entries as f64 / self.0.first().map_or(1, |level| level.entries.max(1)) as f64
    }
}

impl fmt::Display for AmgLevels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>5} {:>12} {:>14} {:>12}", "grid", "rows", "entries", "per row")?;
        for (grid, level) in self.0.iter().enumerate() {
            let density = level.entries as f64 / level.rows.max(1) as f64;
            writeln!(f, "{grid:>5} {:>12} {:>14} {density:>12.1}", level.rows, level.entries)?;
        }
        write!(f, "operator complexity {:.2}", self.complexity())
    }
}
