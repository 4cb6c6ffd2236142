//! Trials of the multigrid cycle. It equals the textbook's within a bound and is symmetric. CG with it gives the same
//! bits recorded or not and on every device with the same orders. Iterations hardly grow with the grid.
//!
//! The bound is a running one (Higham 2002, section 3.3): each number of the cycle, evaluated in f64, carries its
//! possible distance from the exact one. A sum of k terms adds gamma(k + c) times the sum of the largest magnitudes of
//! its terms, with c for the roundings of its coefficients. The errors of the operands are carried on, times
//! |coefficient|. The textbook's cycle (two sweeps over all of A, a residual, a correction) carries its own error. Both
//! approximate the same exact cycle, so the sum of the two bounds their difference.

use std::borrow::Cow;
use std::rc::Rc;

use spandrel_backend::{EveryMethod, Mat, Preconditioner, Spmv, Sptrsv};
use spandrel_formats::{Csr, Real, product};
use spandrel_solvers::{GmresOptions, Hierarchy, Multigrid, Options, Outcome};
use spandrel_sptrsv::Sweep;

use crate::case::{numbers, seed};
use crate::exact::Dd;
use crate::named::Workspace;
use crate::oracle::EVALUATION;
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// Grids whose operators are exact in either type, so that the exact cycle is symmetric; the number of levels; and
/// whether the operators are given or recognised.
const CASES: [(&str, Grids); 8] = [
    ("d3n7:8", Grids::Recognised),
    ("d3n27:9x8x7", Grids::Recognised),
    ("d3n7:13x5x3", Grids::Recognised),
    ("poisson2d:17x16", Grids::Recognised),
    ("anisotropic2d:16,eps=0.0625", Grids::Recognised),
    ("tridiag:33", Grids::Recognised),
    ("poisson2d:2x2", Grids::Recognised),
    ("d3n27:8x16x8", Grids::Given),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Grids {
    Recognised,
    /// The 27-point operator on three grids.
    Given,
}

impl From<spandrel_solvers::Error> for Finding {
    fn from(error: spandrel_solvers::Error) -> Self {
        match error {
            spandrel_solvers::Error::Backend(error) => error.into(),
            error => wrong(format!("expected success, got the error: {error}")),
        }
    }
}

/// Runs `body` on the grids of a case.
fn on<T: Real>(spec: &str, grids: Grids, body: impl FnOnce(&Hierarchy<'_, T>) -> Verdict) -> Verdict {
    let a = spandrel_formats::generate::csr::<T>(spec)?;
    let hierarchy = match grids {
        // f32 represents the operators of three grids exactly.
        Grids::Recognised => Hierarchy::galerkin(&a, Some(3))?,
        Grids::Given => {
            let coarse = ["d3n27:4x8x4", "d3n27:2x4x2"].map(spandrel_formats::generate::csr::<T>);
            let mut operators = vec![Cow::Borrowed(&a)];
            for operator in coarse {
                operators.push(Cow::Owned(operator?));
            }
            Hierarchy::injected(operators, [8, 16, 8])?
        }
    };
    body(&hierarchy)
}

/// The trials of a backend.
pub(crate) fn trials<T: Real, D>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>)
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    for (spec, grids) in CASES {
        let fleet = fleet.clone();
        out.push(Trial::new(name::<T>("mg", &fleet.name, spec), move || {
            on(spec, grids, |hierarchy| check::<T, D>(&fleet, hierarchy, seed(spec)))
        }));
    }
    for (spec, grids) in CASES {
        let fleet = fleet.clone();
        out.push(Trial::new(name::<T>("cg-mg", &fleet.name, spec), move || {
            on(spec, grids, |hierarchy| repeated::<T, D>(&fleet, hierarchy))
        }));
    }
    for (small, large) in [("d3n7:16", "d3n7:32"), ("d3n27:15x16x17", "d3n27:31x32x33")] {
        let fleet = fleet.clone();
        out.push(Trial::new(name::<T>("cg-mg", &fleet.name, large), move || sizes::<T, D>(&fleet, small, large)));
    }
}

/// Two backends: the same bits if both sum in the stored order.
pub(crate) fn pair<T: Real, D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, out: &mut Vec<Trial>)
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
    E: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    for (spec, grids) in CASES {
        let (left, right) = (left.clone(), right.clone());
        let name = name::<T>("cg-mg", &format!("{}+{}", left.name, right.name), spec);
        out.push(Trial::new(name, move || {
            on::<T>(spec, grids, |hierarchy| {
                let (one, other) = (left.first(), right.first());
                let stored = |yes: bool, name: &str| match yes {
                    true => Ok(()),
                    false => Err(wrong(format!("{name} sums in an order of its own"))),
                };
                stored(Multigrid::new::<Sweep<T>>(one, hierarchy)?.is_stored_order(one), &left.name)?;
                stored(Multigrid::new::<Sweep<T>>(other, hierarchy)?.is_stored_order(other), &right.name)?;
                let options = options::<T>();
                same(
                    "one backend against the other",
                    &solve(one, hierarchy, &options)?,
                    &solve(other, hierarchy, &options)?,
                )
            })
        }));
    }
}

fn name<T: Real>(operation: &str, backend: &str, spec: &str) -> String {
    format!("{operation}/sweep/{}/{backend}/{}", T::NAME, spec.replace([':', ',', '='], "-"))
}

/// M^-1 r, in memory that was filled with NaN.
fn applied<T: Real, D: Spmv<Csr<T>>>(be: &D, m: &Multigrid<T, D>, r: &[T]) -> Result<Vec<T>, Finding> {
    let (r, mut z) = (be.upload(r)?, be.upload(&vec![T::nan(); r.len()])?);
    m.apply(be, None, &r, &mut z)?;
    Ok(be.download(&z)?)
}

/// Compares z with the textbook, x . M^-1 y with y . M^-1 x, and other devices.
fn check<T: Real, D>(fleet: &Fleet<D>, hierarchy: &Hierarchy<'_, T>, seed: u64) -> Verdict
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    let levels: Vec<Level> = (0..hierarchy.levels()).map(|at| Level::new(hierarchy, at)).collect::<Result<_, _>>()?;
    let be = fleet.first();
    let m = Multigrid::new::<Sweep<T>>(be, hierarchy)?;
    let n = levels[0].diagonal.len();
    let given = [numbers::<T>(seed, n), numbers::<T>(seed + 1, n)];
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for r in &given {
        let z = applied(be, &m, r)?;
        let exact = Near::exact(r.iter().map(|r| r.as_f64()).collect());
        let (ours, textbook) = (cycle(&levels, &exact, T::UNIT_ROUNDOFF), textbook(&levels, &exact));
        for (i, z) in z.iter().enumerate() {
            let (error, bound) =
                ((z.as_f64() - textbook.value[i]).abs(), (ours.error[i] + textbook.error[i]) * EVALUATION);
            if error.is_nan() || error > bound {
                let expected = textbook.value[i];
                return Err(wrong(format!("z[{i}]: expected {expected:e} within {bound:e}, found {z:e}")));
            }
        }
        for (label, other) in &fleet.devices[1..] {
            let again = applied(other, &Multigrid::new::<Sweep<T>>(other, hierarchy)?, r)?;
            if let Some(detail) = difference(&again, &z) {
                return Err(wrong(format!("{label}: {detail}")));
            }
        }
        found.push(z);
        errors.push(ours.error);
    }
    let dot = |x: &[T], z: &[T]| {
        let terms = x.iter().zip(z).map(|(x, z)| Dd::product(x.as_f64(), z.as_f64()));
        terms.fold(Dd::default(), Dd::plus)
    };
    let weight = |x: &[T], e: &[f64]| x.iter().zip(e).map(|(x, e)| x.as_f64().abs() * e).sum::<f64>();
    let [x, y] = &given;
    let departure = (dot(x, &found[1]).value() - dot(y, &found[0]).value()).abs();
    let bound = (weight(x, &errors[1]) + weight(y, &errors[0])) * EVALUATION;
    if departure <= bound {
        Ok(())
    } else {
        Err(wrong(format!("x . M y - y . M x is {departure:e}, at most {bound:e}")))
    }
}

fn options<T: Real>() -> Options {
    Options { rtol: Some(if T::BYTES == 4 { 1e-4 } else { 1e-10 }), check_every: 4, ..Options::default() }
}

fn solve<T: Real, D>(be: &D, hierarchy: &Hierarchy<'_, T>, options: &Options) -> Result<(Vec<T>, Outcome), Finding>
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    solve_by("cg", be, hierarchy, options)
}

fn solve_by<T: Real, D>(
    method: &str,
    be: &D,
    hierarchy: &Hierarchy<'_, T>,
    options: &Options,
) -> Result<(Vec<T>, Outcome), Finding>
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    let csr = hierarchy.operator(0).ok_or_else(|| wrong("a hierarchy without a grid"))?;
    let m = Multigrid::new::<Sweep<T>>(be, hierarchy)?;
    let a = Mat::<D, Csr<T>>::load(be, csr.clone())?;
    let (b, mut x) = (be.upload(&numbers(97, csr.nrows()))?, be.zeros(csr.nrows())?);
    let restart = GmresOptions::default().restart;
    let outcome = Workspace::by_name(be, csr.nrows(), method, restart)?.solve(be, &a, &m, &b, &mut x, options)?;
    Ok((be.download(&x)?, outcome))
}

fn same<T: Real>(what: &str, found: &(Vec<T>, Outcome), wanted: &(Vec<T>, Outcome)) -> Verdict {
    if let Some(detail) = difference(&found.0, &wanted.0) {
        return Err(wrong(format!("x, {what}: {detail}")));
    }
    // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
    let (found, wanted) = (format!("{:?}", found.1), format!("{:?}", wanted.1));
    if found == wanted { Ok(()) } else { Err(wrong(format!("outcome, {what}: expected {wanted}, found {found}"))) }
}

/// A whole iteration as one graph and enqueued each time; fused steps and their defaults; repeated; on other devices.
fn repeated<T: Real, D>(fleet: &Fleet<D>, hierarchy: &Hierarchy<'_, T>) -> Verdict
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    let (be, first) = (fleet.first(), options::<T>());
    let solved = solve(be, hierarchy, &first)?;
    if !solved.1.status.is_converged() {
        return Err(wrong(format!("expected to converge, found {:?}", solved.1)));
    }
    same("plain against recorded", &solve(be, hierarchy, &Options { recorded: false, ..first })?, &solved)?;
    same("check_every 1 against 4", &solve(be, hierarchy, &Options { check_every: 1, ..first })?, &solved)?;
    same("run 2 against run 1", &solve(be, hierarchy, &first)?, &solved)?;
    for (label, other) in &fleet.devices[1..] {
        same(label, &solve(other, hierarchy, &first)?, &solved)?;
    }
    for method in ["bicgstab", "gmres"] {
        let solved = solve_by(method, be, hierarchy, &first)?;
        if !solved.1.status.is_converged() {
            return Err(wrong(format!("{method}: expected to converge, found {:?}", solved.1)));
        }
        let plain = solve_by(method, be, hierarchy, &Options { recorded: false, check_every: 7, ..first })?;
        same(&format!("{method}, plain against recorded"), &plain, &solved)?;
    }
    Ok(())
}

/// With twice the extents, at most a quarter more iterations and one.
fn sizes<T: Real, D>(fleet: &Fleet<D>, small: &str, large: &str) -> Verdict
where
    D: Spmv<Csr<T>> + Sptrsv<Sweep<T>> + EveryMethod<T> + 'static,
{
    let iterations = |spec: &str| -> Result<usize, Finding> {
        let a = spandrel_formats::generate::csr::<T>(spec)?;
        let (_, outcome) = solve(fleet.first(), &Hierarchy::galerkin(&a, None)?, &options::<T>())?;
        if outcome.status.is_converged() { Ok(outcome.iterations) } else { Err(wrong(format!("{spec}: {outcome:?}"))) }
    };
    let (few, many) = (iterations(small)?, iterations(large)?);
    if many <= few + few / 4 + 1 {
        Ok(())
    } else {
        Err(wrong(format!("{few} iterations of {small}, {many} of {large}")))
    }
}

/// Numbers, and how far each can be from the exact one.
#[derive(Clone)]
struct Near {
    value: Vec<f64>,
    error: Vec<f64>,
}

impl Near {
    fn exact(value: Vec<f64>) -> Self {
        Self { error: vec![0.0; value.len()], value }
    }
    fn zeros(n: usize) -> Self {
        Self::exact(vec![0.0; n])
    }
    fn largest(&self, i: usize) -> f64 {
        self.value[i].abs() + self.error[i]
    }

    /// self + sign * other, one rounding.
    fn plus(&self, sign: f64, other: &Near, u: f64) -> Near {
        let at = |i: usize| {
            let error = self.error[i] + other.error[i] + gamma(u, 1) * (self.largest(i) + other.largest(i));
            (self.value[i] + sign * other.value[i], error)
        };
        let (value, error) = (0..self.value.len()).map(at).unzip();
        Near { value, error }
    }
}

fn gamma(u: f64, n: usize) -> f64 {
    let nu = n as f64 * u;
    nu / (1.0 - nu)
}

/// A matrix with the sums of the magnitudes from which its entries were summed.
struct Summed {
    csr: Csr<f64>,
    magnitudes: Csr<f64>,
    /// The roundings of an entry.
    roundings: usize,
}

impl Summed {
    fn new(csr: Csr<f64>, roundings: usize) -> Self {
        Self { magnitudes: csr.map(f64::abs), csr, roundings }
    }
    fn product(left: &Csr<f64>, right: &Csr<f64>) -> Result<Self, Finding> {
        let terms = (0..left.nrows()).map(|i| left.row_nnz(i)).max().unwrap_or(0);
        let magnitudes = product(&left.map(f64::abs), &right.map(f64::abs))?;
        // Product, sum, and the division after them.
        Ok(Self { csr: product(left, right)?, magnitudes, roundings: terms + 2 })
    }
    fn divided(mut self, by: &[f64]) -> Self {
        for matrix in [&mut self.csr, &mut self.magnitudes] {
            let row_ptr = matrix.row_ptr().to_vec();
            for (i, ends) in row_ptr.windows(2).enumerate() {
                matrix.values_mut()[ends[0] as usize..ends[1] as usize].iter_mut().for_each(|v| *v /= by[i]);
            }
        }
        self
    }

    /// Row i of y - A x or y + A x, without the columns in `but`.
    fn row(&self, i: usize, sign: f64, x: &Near, y: (f64, f64), but: Option<usize>, u: f64) -> (f64, f64) {
        let ((cols, values), (_, magnitudes)) = (self.csr.row(i), self.magnitudes.row(i));
        let (mut value, mut error, mut size) = (y.0, y.1, y.0.abs() + y.1);
        for ((&j, v), magnitude) in cols.iter().zip(values).zip(magnitudes) {
            let j = j as usize;
            if but != Some(j) {
                value += sign * v * x.value[j];
                error += v.abs() * x.error[j];
                size += magnitude.abs() * x.largest(j);
            }
        }
        (value, error + gamma(u, cols.len() + 2 + self.roundings) * size)
    }

    /// y + sign * A x.
    fn apply(&self, sign: f64, x: &Near, y: &Near, u: f64) -> Near {
        let (value, error) =
            (0..self.csr.nrows()).map(|i| self.row(i, sign, x, (y.value[i], y.error[i]), None, u)).unzip();
        Near { value, error }
    }

    /// x <- (r - sum over the other columns) / diagonal, row by row in place: a sweep, and a triangular solve with the
    /// ones of a unit diagonal where only columns that were passed have entries.
    fn sweep(&self, r: &Near, x: &mut Near, diagonal: Option<&[f64]>, backwards: bool, u: f64) {
        let n = self.csr.nrows();
        for k in 0..n {
            let i = if backwards { n - 1 - k } else { k };
            let (value, error) = self.row(i, -1.0, x, (r.value[i], r.error[i]), Some(i), u);
            let d = diagonal.map_or(1.0, |diagonal| diagonal[i]);
            x.value[i] = value / d;
            x.error[i] = error / d.abs() + gamma(u, 1) * (value.abs() + error) / d.abs();
        }
    }
}

/// A grid in f64.
struct Level {
    a: Summed,
    diagonal: Vec<f64>,
    /// D^-1 L and D^-1 U.
    lower: Summed,
    upper: Summed,
    down: Option<Down>,
}

struct Down {
    /// D_c^-1 P^T L and D^-1 U P.
    restrict: Summed,
    prolong: Summed,
    interpolation: Summed,
    restriction: Summed,
}

impl Level {
    fn new<T: Real>(hierarchy: &Hierarchy<'_, T>, level: usize) -> Result<Self, Finding> {
        let wide =
            |level: usize| hierarchy.operator(level).map(|a| a.map(|v| v.as_f64())).ok_or_else(|| wrong("no grid"));
        let a = wide(level)?;
        if !a.is_symmetric() {
            return Err(wrong(format!("the operator of level {level} is not symmetric")));
        }
        let strict = |below: bool| -> Result<Csr<f64>, Finding> {
            let mut triplets = spandrel_formats::Triplets::new(a.nrows(), a.ncols())?;
            for i in 0..a.nrows() {
                for (&j, &v) in a.row(i).0.iter().zip(a.row(i).1) {
                    if j as usize != i && ((j as usize) < i) == below {
                        triplets.push(i, j as usize, v)?;
                    }
                }
            }
            Ok(triplets.to_csr()?)
        };
        let (lower, upper, diagonal) = (strict(true)?, strict(false)?, a.diagonal());
        let down = match hierarchy.interpolation(level)?.map(|p| p.map(|v| v.as_f64())) {
            Some(p) => {
                let transposed = p.transpose();
                Some(Down {
                    restrict: Summed::product(&transposed, &lower)?.divided(&wide(level + 1)?.diagonal()),
                    prolong: Summed::product(&upper, &p)?.divided(&diagonal),
                    restriction: Summed::new(transposed, 0),
                    interpolation: Summed::new(p, 0),
                })
            }
            None => None,
        };
        let (lower, upper) = (Summed::new(lower, 1).divided(&diagonal), Summed::new(upper, 1).divided(&diagonal));
        Ok(Self { a: Summed::new(a, 0), diagonal, lower, upper, down })
    }
}

/// The cycle as the solvers run it.
fn cycle(levels: &[Level], r: &Near, u: f64) -> Near {
    let d = &levels[0].diagonal;
    // 1 / d, and the product with it.
    let scaled = |i: usize| (r.value[i] / d[i], (r.error[i] + gamma(u, 2) * r.largest(i)) / d[i].abs());
    let (value, error) = (0..d.len()).map(scaled).unzip();
    scaled_cycle(levels, Near { value, error }, u)
}

#[rustfmt::skip] // the right margin holds the formulas
fn scaled_cycle(levels: &[Level], s: Near, u: f64) -> Near {
    let Level { lower, upper, down, diagonal, .. } = &levels[0];
    let solve = |half: &Summed, b: &Near, backwards| {
        let mut x = Near::zeros(diagonal.len());
        half.sweep(b, &mut x, None, backwards, u);
        x
    };
    let y = solve(lower, &s, false);
    let z = solve(upper, &y, true);
    let Some(down) = down else { return z };
    let d = y.plus(-1.0, &z, u);                                                // d = U' z
    let none = Near::zeros(levels[1].diagonal.len());
    let e = scaled_cycle(&levels[1..], down.restrict.apply(1.0, &d, &none, u), u);
    let t = down.prolong.apply(1.0, &e, &d, u);                                 // t = U' (z + P e)
    let s = solve(lower, &s.plus(-1.0, &t, u), false);
    solve(upper, &s.plus(1.0, &t, u), true)
}

/// The cycle as textbooks write it: sweeps over all of A, residual, restriction, correction.
fn textbook(levels: &[Level], r: &Near) -> Near {
    let u = f64::UNIT_ROUNDOFF;
    let Level { a, diagonal, down, .. } = &levels[0];
    let mut x = Near::zeros(diagonal.len());
    let smooth = |x: &mut Near| {
        a.sweep(r, x, Some(diagonal), false, u);
        a.sweep(r, x, Some(diagonal), true, u);
    };
    smooth(&mut x);
    if let Some(down) = down {
        let residual = a.apply(-1.0, &x, r, u);
        let none = Near::zeros(levels[1].diagonal.len());
        let e = textbook(&levels[1..], &down.restriction.apply(1.0, &residual, &none, u));
        x = down.interpolation.apply(1.0, &e, &x, u);
        smooth(&mut x);
    }
    x
}
