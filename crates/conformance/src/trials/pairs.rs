//! Trials of every method with every preconditioner. A solve converges; with stored orders it has the iterations and
//! bits of the plain loops of [`crate::krylov`]. The bits are the same recorded or not, for any `check_every`, on every
//! device of the fleet, and for several right-hand sides. Pairs that must end otherwise have their status.

use std::rc::Rc;

use spandrel_backend::{EveryMethod, Mat, Order, Preconditioner, Spmv, Sptrsv};
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_solvers::{Factored, GmresOptions, Identity, Jacobi, NullSpace, Options, Outcome, Permuted, Status};
use spandrel_sptrsv::{
    Diagonal, Factor, Ic0, Ilu0, Iluk, Ilut, IlutOptions, Levelset, Ssor, Triangle, Triangles, Triangular, serial,
};

use crate::case::numbers;
use crate::named::{Workspace, by_plain_loops};
use crate::reference::difference;
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

const SOLVERS: [&str; 3] = ["cg", "bicgstab", "gmres"];
/// Methods with the preconditioner in other places; only on the last system.
const PLACED: [&str; 3] = ["bicgstab-left", "gmres-left", "gmres-flexible"];
const PRECONDS: [&str; 8] = ["none", "jacobi", "ssor", "ilu0", "iluk", "ilut", "ilutp", "ic0"];
/// (name, specification, symmetric positive definite)
const SYSTEMS: [(&str, &str, bool); 3] = [
    ("d3n7-6x5x4", "d3n7:6x5x4", true),
    ("poisson2d-41x37", "poisson2d:41x37", true),
    ("convdiff3d-9x8x7", "convdiff3d:9x8x7,peclet=10", false),
];
/// Short cycles, so that they are replayed.
const RESTART: usize = 7;
pub(super) const LIMIT: usize = 3000;

/// What these trials ask of a backend.
pub trait Solves<T: Real>: Spmv<Csr<T>> + Sptrsv<Levelset<T>> + EveryMethod<T> + 'static {}
impl<T: Real, B: Spmv<Csr<T>> + Sptrsv<Levelset<T>> + EveryMethod<T> + 'static> Solves<T> for B {}

/// A solver's refusal of a solve that should run.
pub(super) fn refused(error: spandrel_solvers::Error) -> Finding {
    match error {
        spandrel_solvers::Error::Backend(error) => error.into(),
        error => wrong(format!("expected a solve, got the error: {error}")),
    }
}

pub(super) fn converted<T: Real>(csr: &Csr<f64>) -> Result<Csr<T>, Finding> {
    let mut triplets = Triplets::new(csr.nrows(), csr.ncols())?;
    for i in 0..csr.nrows() {
        let (cols, values) = csr.row(i);
        for (&j, &v) in cols.iter().zip(values) {
            triplets.push(i, j as usize, T::from_f64(v))?;
        }
    }
    Ok(triplets.to_csr()?)
}

/// M^-1 on a device.
pub(super) type Boxed<T, D> = Box<dyn Preconditioner<T, D>>;

/// M^-1 by its name on a device, and whether its bits are those of the plain loops.
pub(super) fn precond<T: Real, D: Solves<T>>(
    be: &D,
    csr: &Csr<T>,
    name: &str,
) -> spandrel_solvers::Result<(Boxed<T, D>, bool)> {
    fn factored<T: Real, D: Solves<T>, F: Factor<Value = T>>(
        be: &D,
        csr: &Csr<T>,
    ) -> spandrel_solvers::Result<(Boxed<T, D>, bool)> {
        let made = Factored::<D, Levelset<T>, F>::new(be, csr)?;
        let stored = made.is_stored_order(be);
        Ok((Box::new(made), stored))
    }
    match name {
        "none" => Ok((Box::new(Identity), true)),
        "jacobi" => Ok((Box::new(Jacobi::new(be, csr)?), true)),
        "ssor" => factored::<T, D, Ssor<T>>(be, csr),
        "ilu0" => factored::<T, D, Ilu0<T>>(be, csr),
        "iluk" => factored::<T, D, Iluk<T>>(be, csr),
        "ilut" => factored::<T, D, Ilut<T>>(be, csr),
        "ilutp" => {
            let (columns, symbolic) = Ilut::pivoted(csr, IlutOptions::default())?;
            let exchanged = columns.permute_columns(csr)?;
            let within = Factored::<D, Levelset<T>, Ilut<T>>::with(be, symbolic, exchanged.values())?;
            let stored = within.is_stored_order(be);
            Ok((Box::new(Permuted::new(be, columns, within)?), stored))
        }
        "ic0" => factored::<T, D, Ic0<T>>(be, csr),
        other => Err(unknown(other)),
    }
}

fn unknown(precond: &str) -> spandrel_solvers::Error {
    spandrel_solvers::Error::Unsupported { why: format!("the preconditioner {precond:?} of a trial is unknown") }
}

/// A function of vectors.
pub(super) type OnHost<T> = Box<dyn Fn(&[T]) -> Vec<T>>;

/// M^-1 on the host.
pub(super) fn on_the_host<T: Real>(csr: &Csr<T>, name: &str) -> Result<Option<OnHost<T>>, Finding> {
    fn factored<T: Real, F: Factor<Value = T>>(csr: &Csr<T>) -> Result<OnHost<T>, Finding> {
        solved(F::symbolic(csr).and_then(|f| f.triangles(f.numeric(csr.values())?)).map_err(wrong)?)
    }
    fn solved<T: Real>(made: Triangles<T>) -> Result<OnHost<T>, Finding> {
        let upper = match made.upper {
            Some(upper) => upper,
            None => Triangular::new(made.lower.csr().transpose(), Triangle::Upper, Diagonal::NonUnit).map_err(wrong)?,
        };
        let lower = made.lower;
        Ok(Box::new(move |r| {
            let (mut y, mut z) = (vec![T::zero(); r.len()], vec![T::zero(); r.len()]);
            serial::solve(&lower, r, &mut y).expect("factors of A's size");
            serial::solve(&upper, &y, &mut z).expect("factors of A's size");
            z
        }))
    }
    Ok(match name {
        "none" => None,
        "jacobi" => {
            let inverse: Vec<T> = (0..csr.nrows()).map(|i| csr.get(i, i).unwrap_or_else(T::nan).recip()).collect();
            Some(Box::new(move |r| inverse.iter().zip(r).map(|(&d, &r)| d * r).collect()))
        }
        "ssor" => Some(factored::<T, Ssor<T>>(csr)?),
        "ilu0" => Some(factored::<T, Ilu0<T>>(csr)?),
        "iluk" => Some(factored::<T, Iluk<T>>(csr)?),
        "ilut" => Some(factored::<T, Ilut<T>>(csr)?),
        "ilutp" => {
            let (columns, symbolic) = Ilut::pivoted(csr, IlutOptions::default()).map_err(wrong)?;
            let exchanged = columns.permute_columns(csr)?;
            let made = symbolic.numeric(exchanged.values()).and_then(|f| symbolic.triangles(f)).map_err(wrong)?;
            let within = solved(made)?;
            Some(Box::new(move |r| {
                let (y, mut z) = (within(r), vec![T::zero(); r.len()]);
                columns.perm().iter().zip(y).for_each(|(&column, y)| z[column as usize] = y);
                z
            }))
        }
        "ic0" => Some(factored::<T, Ic0<T>>(csr)?),
        other => return Err(wrong(unknown(other))),
    })
}

/// x and how each solve ended, for each b in turn with one workspace.
fn solve<T: Real, D: Solves<T>>(
    be: &D,
    csr: &Csr<T>,
    solver: &str,
    m: &impl Preconditioner<T, D>,
    b: &[Vec<T>],
    x0: &[T],
    options: &Options,
) -> Result<Vec<(Vec<T>, Outcome)>, Finding> {
    let a = Mat::<D, Csr<T>>::load(be, csr.clone())?;
    let n = csr.nrows();
    let b = b.iter().map(|b| be.upload(b)).collect::<Result<Vec<_>, _>>()?;
    let mut x = b.iter().map(|_| be.upload(x0)).collect::<Result<Vec<_>, _>>()?;
    let outcomes = Workspace::by_name(be, n, solver, RESTART)
        .and_then(|mut workspace| workspace.solve_many(be, &a, m, &b, &mut x, options))
        .map_err(refused)?;
    x.iter().zip(outcomes).map(|(x, outcome)| Ok((be.download(x)?, outcome))).collect()
}

pub(super) fn options<T: Real>() -> Options {
    let rtol = if T::BYTES == 4 { 1e-4 } else { 1e-9 };
    Options { rtol: Some(rtol), check_every: 4, max_iters: Some(LIMIT), ..Options::default() }
}

pub(super) fn same<T: Real>(what: &str, found: &(Vec<T>, Outcome), wanted: &(Vec<T>, Outcome)) -> Verdict {
    if let Some(detail) = difference(&found.0, &wanted.0) {
        return Err(wrong(format!("x, {what}: {detail}")));
    }
    // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
    let (found, wanted) = (format!("{:?}", found.1), format!("{:?}", wanted.1));
    if found == wanted { Ok(()) } else { Err(wrong(format!("outcome, {what}: expected {wanted}, found {found}"))) }
}

/// Two right-hand sides, so that what was captured for the first is replayed for the second.
fn right_hand_sides<T: Real>(n: usize) -> Vec<Vec<T>> {
    vec![numbers(97, n), numbers(98, n)]
}

fn check<T: Real, D: Solves<T>>(fleet: &Fleet<D>, solver: &str, name: &str, spec: &str) -> Verdict {
    let csr = converted::<T>(&crate::generated(spec)?)?;
    let b = right_hand_sides::<T>(csr.nrows());
    let zeros = vec![T::zero(); csr.nrows()];
    let (be, first) = (fleet.first(), options::<T>());
    let (m, stored) = precond::<T, D>(be, &csr, name).map_err(refused)?;
    let found = solve(be, &csr, solver, &m, &b, &zeros, &first)?;
    for (_, outcome) in &found {
        if !(outcome.status == Status::Converged && outcome.true_residual <= first.rtol_for::<T>()) {
            return Err(wrong(format!("expected convergence, found {outcome:?}")));
        }
    }
    // The plain loops have the preconditioner on the right.
    if stored && Spmv::<Csr<T>>::order(be) == Order::Stored && !PLACED.contains(&solver) {
        let host = on_the_host(&csr, name)?;
        for (b, (x, outcome)) in b.iter().zip(&found) {
            let answer = by_plain_loops(&csr, host.as_deref(), b, solver, (RESTART, &first)).map_err(refused)?;
            let Some((wanted, iterations)) = answer else { return Err(wrong("the plain loops do not converge")) };
            if outcome.iterations != iterations {
                return Err(wrong(format!("expected {iterations} iterations, found {outcome:?}")));
            }
            if let Some(detail) = difference(x, &wanted) {
                return Err(wrong(format!("x against the plain loops: {detail}")));
            }
        }
    }
    if !stored || Spmv::<Csr<T>>::order(be) == Order::Unordered {
        return Ok(());
    }
    let each = |what: &str, be: &D, options: &Options| -> Verdict {
        let (m, _) = precond::<T, D>(be, &csr, name).map_err(refused)?;
        let again = solve(be, &csr, solver, &m, &b, &zeros, options)?;
        again.iter().zip(&found).try_for_each(|(again, found)| same(what, again, found))?;
        // The second one alone, in its own workspace.
        let alone = solve(be, &csr, solver, &m, &b[1..], &zeros, options)?;
        same(&format!("{what}, alone"), &alone[0], &found[1])
    };
    each("plain against recorded", be, &Options { recorded: false, ..first })?;
    each("check_every 1 against 4", be, &Options { check_every: 1, ..first })?;
    each("check_every 1000 against 4", be, &Options { check_every: 1000, ..first })?;
    fleet.devices[1..].iter().try_for_each(|(label, other)| each(label, other, &first))
}

/// Whether the method can take this preconditioner for this system.
fn fits(solver: &str, name: &str, symmetric: bool) -> bool {
    if symmetric { name != "ilutp" } else { solver != "cg" && name != "ic0" }
}

/// The methods for a system.
fn solvers(symmetric: bool) -> impl Iterator<Item = &'static str> {
    SOLVERS.into_iter().chain(PLACED.into_iter().filter(move |_| !symmetric))
}

/// Every method with every preconditioner on one backend, and the pairs that end in another way.
pub(crate) fn trials<T: Real, D: Solves<T>>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for (case, spec, symmetric) in SYSTEMS {
        for solver in solvers(symmetric) {
            for name in PRECONDS.into_iter().filter(|name| fits(solver, name, symmetric)) {
                let fleet = fleet.clone();
                let label = format!("{solver}-{name}/csr/{}/{}/{case}-pair", T::NAME, fleet.name);
                out.push(Trial::new(label, move || check::<T, D>(&fleet, solver, name, spec)));
            }
        }
    }
    for solver in SOLVERS {
        for ending in ENDINGS.iter().filter(|ending| ending.solver == solver || ending.solver == "all") {
            let fleet = fleet.clone();
            let label = format!("{solver}-{}/csr/{}/{}/{}", ending.precond, T::NAME, fleet.name, ending.name);
            out.push(Trial::new(label, move || end::<T, D>(fleet.first(), solver, ending)));
        }
        let fleet = fleet.clone();
        let label = format!("{solver}-jacobi/csr/{}/{}/neumann", T::NAME, fleet.name);
        out.push(Trial::new(label, move || neumann::<T, D>(fleet.first(), solver)));
    }
}

/// Two backends: the same bits if both have the stored order.
pub(crate) fn between<T: Real, D: Solves<T>, E: Solves<T>>(
    left: &Rc<Fleet<D>>,
    right: &Rc<Fleet<E>>,
    out: &mut Vec<Trial>,
) {
    if Spmv::<Csr<T>>::order(left.first()) != Order::Stored || Spmv::<Csr<T>>::order(right.first()) != Order::Stored {
        return;
    }
    for (case, spec, symmetric) in SYSTEMS {
        for solver in solvers(symmetric) {
            for name in PRECONDS.into_iter().filter(|name| fits(solver, name, symmetric)) {
                let (left, right) = (left.clone(), right.clone());
                let label = format!("{solver}-{name}/csr/{}/{}+{}/{case}-pair", T::NAME, left.name, right.name);
                out.push(Trial::new(label, move || {
                    let csr = converted::<T>(&crate::generated(spec)?)?;
                    let (b, zeros) = (right_hand_sides::<T>(csr.nrows()), vec![T::zero(); csr.nrows()]);
                    let (m, here) = precond::<T, D>(left.first(), &csr, name).map_err(refused)?;
                    let (other, there) = precond::<T, E>(right.first(), &csr, name).map_err(refused)?;
                    if !(here && there) {
                        return Err(Finding::Skipped("the triangular solves have no order that both share".into()));
                    }
                    let one = solve(left.first(), &csr, solver, &m, &b, &zeros, &options::<T>())?;
                    let two = solve(right.first(), &csr, solver, &other, &b, &zeros, &options::<T>())?;
                    one.iter().zip(&two).try_for_each(|(one, two)| same("one backend against the other", two, one))
                }));
            }
        }
    }
}

/// A small system and how it must end.
#[derive(Debug)]
struct Ending {
    name: &'static str,
    /// Or all methods.
    solver: &'static str,
    precond: &'static str,
    n: usize,
    entries: &'static [(usize, usize, f64)],
    b: &'static [f64],
    x0: &'static [f64],
    restarts: usize,
    status: Status,
    /// The scalar that the outcome must name.
    symbol: Option<&'static str>,
    /// The largest number of iterations.
    most: usize,
}

const ENDING: Ending = Ending {
    name: "",
    solver: "all",
    precond: "none",
    n: 1,
    entries: &[(0, 0, 4.0)],
    b: &[2.0],
    x0: &[],
    restarts: 20,
    status: Status::Converged,
    symbol: None,
    most: 1,
};
const SPD: &[(usize, usize, f64)] =
    &[(0, 0, 4.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 4.0), (1, 2, -1.0), (2, 1, -1.0), (2, 2, 4.0)];
const EXCHANGE: &[(usize, usize, f64)] = &[(0, 1, 1.0), (1, 0, 1.0)];
const DIAGONAL: &[(usize, usize, f64)] = &[(0, 0, 2.0), (1, 1, 4.0), (2, 2, 8.0)];
const RHO: &[(usize, usize, f64)] = &[(0, 0, 1.0), (1, 2, 1.0), (2, 0, 1.0), (2, 1, 1.0), (2, 2, 1.0)];
const OMEGA: &[(usize, usize, f64)] = &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, -1.0)];
const NILPOTENT: &[(usize, usize, f64)] = &[(0, 1, 1.0)];
const ONES: &[(usize, usize, f64)] = &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)];
const ENDINGS: &[Ending] = &[
    Ending { name: "one-unknown", ..ENDING },
    Ending { name: "zero-right-hand-side", n: 3, entries: SPD, b: &[0.0; 3], x0: &[1.0; 3], most: 0, ..ENDING },
    Ending { name: "exact-guess", n: 3, entries: SPD, b: &[3.0, 2.0, 3.0], x0: &[1.0; 3], most: 0, ..ENDING },
    Ending { name: "lucky-breakdown", n: 3, entries: DIAGONAL, b: &[0.0, 5.0, 0.0], ..ENDING },
    Ending { name: "lucky-breakdown", precond: "ic0", n: 3, entries: DIAGONAL, b: &[0.0, 5.0, 0.0], ..ENDING },
    Ending {
        name: "singular-consistent",
        n: 2,
        entries: &[(0, 0, 1.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 1.0)],
        b: &[1.0, -1.0],
        ..ENDING
    },
    Ending {
        name: "nan-in-b",
        n: 3,
        entries: SPD,
        b: &[1.0, f64::NAN, 1.0],
        status: Status::NotFinite,
        most: 0,
        ..ENDING
    },
    Ending {
        name: "nan-in-x0",
        n: 3,
        entries: SPD,
        b: &[1.0; 3],
        x0: &[f64::NAN, 0.0, 0.0],
        status: Status::NotFinite,
        most: 0,
        ..ENDING
    },
    Ending {
        name: "nan-in-a",
        n: 2,
        entries: &[(0, 0, 1.0), (1, 1, f64::NAN)],
        b: &[1.0; 2],
        status: Status::NotFinite,
        most: 0,
        ..ENDING
    },
    Ending {
        name: "indefinite",
        solver: "cg",
        n: 3,
        entries: &[(0, 0, 1.0), (1, 1, -3.0), (2, 2, 1.0)],
        b: &[1.0; 3],
        status: Status::IndefiniteMatrix,
        symbol: Some("p'Ap"),
        most: 0,
        ..ENDING
    },
    Ending {
        name: "indefinite-preconditioner",
        solver: "cg",
        precond: "jacobi",
        n: 2,
        entries: &[(0, 0, -1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, -1.0)],
        b: &[1.0; 2],
        status: Status::IndefinitePreconditioner,
        symbol: Some("r'z"),
        most: 0,
        ..ENDING
    },
    Ending {
        name: "rho-vanishes",
        solver: "bicgstab",
        n: 3,
        entries: RHO,
        b: &[1.0, 0.0, 0.0],
        restarts: 0,
        status: Status::Breakdown,
        symbol: Some("rho"),
        ..ENDING
    },
    Ending { name: "rho-is-mended", solver: "bicgstab", n: 3, entries: RHO, b: &[1.0, 0.0, 0.0], most: 60, ..ENDING },
    Ending {
        name: "omega-vanishes",
        solver: "bicgstab",
        n: 2,
        entries: OMEGA,
        b: &[1.0, 0.0],
        restarts: 0,
        status: Status::Breakdown,
        symbol: Some("t's"),
        most: 1,
        ..ENDING
    },
    Ending { name: "omega-is-mended", solver: "bicgstab", n: 2, entries: OMEGA, b: &[1.0, 0.0], most: 40, ..ENDING },
    Ending {
        name: "shadow-vanishes",
        solver: "bicgstab",
        n: 2,
        entries: EXCHANGE,
        b: &[1.0, 0.0],
        restarts: 0,
        status: Status::Breakdown,
        symbol: Some("r0'v"),
        most: 0,
        ..ENDING
    },
    Ending {
        name: "space-exhausted",
        solver: "gmres",
        n: 2,
        entries: NILPOTENT,
        b: &[1.0, 0.0],
        status: Status::Breakdown,
        symbol: Some("h(j+1,j)"),
        most: 0,
        ..ENDING
    },
    Ending {
        name: "inconsistent",
        solver: "gmres",
        n: 2,
        entries: ONES,
        b: &[2.0, 0.0],
        status: Status::Breakdown,
        symbol: Some("h(j+1,j)"),
        most: 2,
        ..ENDING
    },
    Ending {
        name: "standstill",
        solver: "gmres",
        n: 8,
        entries: &[
            (1, 0, 1.0),
            (2, 1, 1.0),
            (3, 2, 1.0),
            (4, 3, 1.0),
            (5, 4, 1.0),
            (6, 5, 1.0),
            (7, 6, 1.0),
            (0, 7, 1.0),
        ],
        b: &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        status: Status::Stagnated,
        most: RESTART,
        ..ENDING
    },
    Ending {
        name: "zero-pivot",
        precond: "ilu0",
        n: 2,
        entries: &[(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 4.0)],
        b: &[1.0; 2],
        status: Status::ZeroPivot,
        most: 0,
        ..ENDING
    },
    Ending {
        name: "negative-pivot",
        precond: "ic0",
        n: 1,
        entries: &[(0, 0, -1.0)],
        b: &[1.0],
        status: Status::IndefiniteMatrix,
        most: 0,
        ..ENDING
    },
    Ending {
        name: "zero-on-the-diagonal",
        precond: "jacobi",
        n: 2,
        entries: EXCHANGE,
        b: &[1.0; 2],
        status: Status::ZeroPivot,
        most: 0,
        ..ENDING
    },
];

fn end<T: Real, D: Solves<T>>(be: &D, solver: &str, ending: &Ending) -> Verdict {
    let mut triplets = Triplets::new(ending.n, ending.n)?;
    for &(i, j, v) in ending.entries {
        triplets.push(i, j, T::from_f64(v))?;
    }
    let csr = triplets.to_csr()?;
    let (m, _) = match precond::<T, D>(be, &csr, ending.precond) {
        Ok(made) => made,
        Err(error) if error.status() == Some(ending.status) => return Ok(()),
        Err(error) => return Err(refused(error)),
    };
    let of = |v: &[f64]| v.iter().map(|&v| T::from_f64(v)).collect::<Vec<T>>();
    let x0 = if ending.x0.is_empty() { vec![T::zero(); ending.n] } else { of(ending.x0) };
    let first = Options { max_restarts: ending.restarts, ..options::<T>() };
    let found = solve(be, &csr, solver, &m, &[of(ending.b)], &x0, &first)?;
    let (_, outcome) = &found[0];
    let symbol = outcome.breakdown.map(|(quantity, _)| quantity.symbol());
    if outcome.status != ending.status || (ending.symbol.is_some() && symbol != ending.symbol) {
        return Err(wrong(format!("expected {} of {:?}, found {outcome:?}", ending.status, ending.symbol)));
    }
    if outcome.iterations > ending.most {
        return Err(wrong(format!("expected at most {} iterations, found {outcome:?}", ending.most)));
    }
    for options in [Options { recorded: false, ..first }, Options { check_every: 1, ..first }] {
        let again = solve(be, &csr, solver, &m, &[of(ending.b)], &x0, &options)?;
        same("recorded or not, or looked at more often", &again[0], &found[0])?;
    }
    Ok(())
}

/// A cycle of n unknowns, each coupled to its neighbours. The constants are the null space, and the mean of a
/// right-hand side is the part that no x reaches.
fn neumann<T: Real, D: Solves<T>>(be: &D, solver: &str) -> Verdict {
    let n = 24;
    let mut triplets = Triplets::new(n, n)?;
    for i in 0..n {
        triplets.push(i, i, T::from_f64(2.0))?;
        triplets.push(i, (i + 1) % n, -T::one())?;
        triplets.push((i + 1) % n, i, -T::one())?;
    }
    let csr = triplets.to_csr()?;
    let a = Mat::<D, Csr<T>>::load(be, csr.clone())?;
    let (m, _) = precond::<T, D>(be, &csr, "jacobi").map_err(refused)?;
    let null = NullSpace::constant(be, n).map_err(refused)?;
    let options = options::<T>();
    for (mean, status) in [(0.0, Status::Converged), (3.0, Status::Inconsistent)] {
        let b: Vec<T> = (0..n).map(|i| T::from_f64(mean + if i % 4 < 2 { 1.0 } else { -1.0 })).collect();
        let (b, mut x) = (be.upload(&b)?, be.upload(&numbers(5, n))?);
        let outcome = null
            .solve(be, &a, &m, &b, &mut x, &options, |m, b, x, options| {
                Workspace::by_name(be, n, solver, GmresOptions::default().restart)?.solve(be, &a, m, b, x, options)
            })
            .map_err(refused)?;
        // ||b||^2 = n (mean^2 + 1), of which n mean^2 is out of reach.
        let beyond = (mean * mean / (mean * mean + 1.0)).sqrt();
        let close = (outcome.true_residual - beyond).abs() <= 2.0 * options.rtol_for::<T>();
        if outcome.status != status || !close {
            return Err(wrong(format!("expected {status} with a true residual of {beyond}, found {outcome:?}")));
        }
    }
    Ok(())
}
