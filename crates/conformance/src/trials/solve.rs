//! Trials of the solvers: the same bits recorded or not, fused or not, for any number of threads and any `check_every`;
//! a correct true residual; breakdowns with their names.

use std::rc::Rc;

use spandrel_backend::{EveryMethod, Mat, Order, Spmv};
use spandrel_formats::{Csr, Format, Real};
use spandrel_solvers::{BiCgStab, Cg, Gmres, Identity, Jacobi, Options, Outcome, Status};

use super::formats::{Shared, agree};
use crate::case::{Solve, numbers};
use crate::exact::Dd;
use crate::oracle::{Data, EVALUATION, gamma, smallest_subnormal};
use crate::plain::Plain;
use crate::reference::{difference, tree_levels};
use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// x and how the solve ended.
struct Solved<T> {
    x: Vec<T>,
    outcome: Outcome,
}

/// A solve that did not begin.
enum Refusal {
    Typed(String),
    Other(Finding),
}

impl From<spandrel_solvers::Error> for Refusal {
    fn from(error: spandrel_solvers::Error) -> Self {
        match error {
            spandrel_solvers::Error::Backend(error) => Refusal::Other(error.into()),
            error => Refusal::Typed(error.to_string()),
        }
    }
}
impl From<spandrel_backend::Error> for Refusal {
    fn from(error: spandrel_backend::Error) -> Self {
        Refusal::Other(error.into())
    }
}

/// The finding for a refusal of a solve that should run.
impl From<Refusal> for Finding {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Typed(text) => wrong(format!("expected a solve, got the error: {text}")),
            Refusal::Other(finding) => finding,
        }
    }
}

/// A system, and what is expected of it.
struct Problem<'a, T: Real, F> {
    csr: &'a Csr<T>,
    stored: &'a std::sync::Arc<F>,
    b: &'a [T],
    solve: &'a Solve,
}

impl<T: Real, F: Format<Value = T>> Problem<'_, T, F> {
    fn on<D: Spmv<F> + EveryMethod<F::Value>>(&self, be: &D, options: &Options) -> Result<Solved<T>, Refusal> {
        let a = Mat::<D, F>::load(be, self.stored.clone())?;
        let b = be.upload(self.b)?;
        let n = self.b.len();
        let mut x = be.zeros(n)?;
        let outcome = match (self.solve.solver.as_str(), self.solve.precond.as_str()) {
            ("cg", "identity") => Cg::new(be, n)?.solve(be, &a, &Identity, &b, &mut x, options)?,
            ("cg", _) => Cg::new(be, n)?.solve(be, &a, &Jacobi::new(be, self.csr)?, &b, &mut x, options)?,
            ("gmres", "identity") => Gmres::new(be, n)?.solve(be, &a, &Identity, &b, &mut x, options)?,
            ("gmres", _) => Gmres::new(be, n)?.solve(be, &a, &Jacobi::new(be, self.csr)?, &b, &mut x, options)?,
            (_, "identity") => BiCgStab::new(be, n)?.solve(be, &a, &Identity, &b, &mut x, options)?,
            (_, _) => BiCgStab::new(be, n)?.solve(be, &a, &Jacobi::new(be, self.csr)?, &b, &mut x, options)?,
        };
        Ok(Solved { x: be.download(&x)?, outcome })
    }
}

/// The requested tolerance, which the element type can reach.
fn rtol<T: Real>() -> f64 {
    if T::BYTES == 4 { 1e-4 } else { 1e-10 }
}

fn options<T: Real>(solve: &Solve) -> Options {
    Options {
        rtol: Some(rtol::<T>()),
        max_iters: solve.max_iters,
        check_every: 4,
        recorded: true,
        ..Options::default()
    }
}

fn same<T: Real>(what: &str, found: &Solved<T>, wanted: &Solved<T>) -> Verdict {
    if let Some(detail) = difference(&found.x, &wanted.x) {
        return Err(wrong(format!("x, {what}: {detail}")));
    }
    // Through text, where NaN equals NaN; `{:?}` of f64 is exact.
    let (found, wanted) = (format!("{:?}", found.outcome), format!("{:?}", wanted.outcome));
    if found != wanted {
        return Err(wrong(format!("outcome, {what}: expected {wanted}, found {found}")));
    }
    Ok(())
}

/// `cg-jacobi/csr/f64/cpu/case`, followed by what is special about the solve.
fn name<T: Real, F: Format>(solve: &Solve, backend: &str, case: &str) -> String {
    let limit = solve.max_iters.map(|limit| format!("-{limit}-iterations")).unwrap_or_default();
    let rhs = solve.rhs.map(|rhs| format!("-b-{rhs:e}").to_lowercase()).unwrap_or_default();
    format!("{}-{}/{}/{}/{backend}/{case}{limit}{rhs}", solve.solver, solve.precond, F::NAME, T::NAME)
}

/// The trials of one system in one format.
pub(crate) fn trials<T, F, D>(fleet: &Rc<Fleet<D>>, shared: &Rc<Shared<T>>, out: &mut Vec<Trial>)
where
    T: Real,
    F: Format<Value = T>,
    D: Spmv<F> + EveryMethod<F::Value> + 'static,
{
    for solve in shared.case().solve.iter().filter(|s| s.element.as_deref().is_none_or(|t| t == T::NAME)) {
        let (fleet, shared, solve) = (fleet.clone(), shared.clone(), solve.clone());
        let name = name::<T, F>(&solve, &fleet.name, &shared.case().name);
        out.push(Trial::new(name, move || check::<T, F, D>(&fleet, &shared, &solve)));
    }
}

fn right_hand_side<T: Real>(data: &Data<T>, solve: &Solve) -> Vec<T> {
    solve.rhs.map_or_else(|| numbers(97, data.shape.0), |value| vec![T::from_f64(value); data.shape.0])
}

fn check<T, F, D>(fleet: &Fleet<D>, shared: &Shared<T>, solve: &Solve) -> Verdict
where
    T: Real,
    F: Format<Value = T>,
    D: Spmv<F> + EveryMethod<F::Value>,
{
    let (data, stored) = (shared.data()?, shared.stored::<F>()?);
    let (csr, b) = (data.csr()?, right_hand_side(&data, solve));
    let problem = Problem { csr: &csr, stored: &stored, b: &b, solve };
    let (be, first) = (fleet.first(), options::<T>(solve));
    let solved = match problem.on(be, &first) {
        Err(Refusal::Typed(_)) if solve.status == "refused" => return Ok(()),
        Ok(solved) if solve.status == "refused" => {
            return Err(wrong(format!("expected a typed error, found {:?}", solved.outcome)));
        }
        other => other?,
    };
    ending(&solved.outcome, solve)?;
    honest(&data, &b, &solved)?;
    if Spmv::<F>::order(be) == Order::Unordered {
        return Ok(());
    }
    let stepwise = Options { persistent: false, ..first };
    same("recorded against persistent", &problem.on(be, &stepwise)?, &solved)?;
    same("plain against persistent", &problem.on(be, &Options { recorded: false, ..stepwise })?, &solved)?;
    for check_every in [1, 7, 1000] {
        let what = format!("check_every {check_every} against 4");
        same(&what, &problem.on(be, &Options { check_every, ..first })?, &solved)?;
    }
    same("run 2 against run 1", &problem.on(be, &first)?, &solved)?;
    for (label, other) in &fleet.devices[1..] {
        same(label, &problem.on(other, &first)?, &solved)?;
    }
    same("default against fused steps", &problem.on(&Plain(be), &first)?, &solved)
}

/// Checks the status, and the scalar of a breakdown.
fn ending(outcome: &Outcome, solve: &Solve) -> Verdict {
    let symbol = outcome.breakdown.map(|(quantity, _)| quantity.symbol());
    if outcome.status.as_str() != solve.status {
        return Err(wrong(format!("expected the status {}, found {outcome:?}", solve.status)));
    }
    if let Some(wanted) = solve.quantity.as_deref()
        && symbol != Some(wanted)
    {
        return Err(wrong(format!("expected a breakdown of {wanted}, found {outcome:?}")));
    }
    if let Some(limit) = solve.max_iters.filter(|&limit| outcome.iterations > limit) {
        return Err(wrong(format!("at most {limit} iterations were allowed, found {outcome:?}")));
    }
    Ok(())
}

/// Compares the reported true residual with b - A x in doubled precision.
///
/// The reported one is computed from a residual r^ and a norm. Row by row, |r^ - r| is at most
/// gamma(k + 2) (|A| |x| + |b|) + (k + 2) eta, with eta the smallest subnormal for each rounding that may underflow.
/// So its norm errs by at most the norm of that bound. Norms are computed in range, because the solvers scale. The
/// norms of r^ and b err by half of gamma(37 L), the roots and the quotient by three more roundings; one
/// gamma(37 L + 4) for each of the two covers this.
fn honest<T: Real>(data: &Data<T>, b: &[T], solved: &Solved<T>) -> Verdict {
    let found = solved.outcome.true_residual;
    if !solved.x.iter().chain(b).all(|v| v.is_finite()) {
        return match found.is_finite() {
            true => Err(wrong(format!("x or b is not finite, and the true residual is given as {found:e}"))),
            false => Ok(()),
        };
    }
    let n = data.shape.0;
    let mut residual: Vec<Dd> = b.iter().map(|b| Dd::from(b.as_f64())).collect();
    let mut size: Vec<f64> = b.iter().map(|b| b.as_f64().abs()).collect();
    let mut entries = vec![0usize; n];
    for &(i, j, value) in &data.triplets {
        let (i, value, x) = (i as usize, value.as_f64(), solved.x[j as usize].as_f64());
        residual[i] = residual[i].plus(Dd::product(-value, x));
        size[i] += (value * x).abs();
        entries[i] += 1;
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(Dd::default(), |sum, v| sum.plus(Dd::product(v, v))).value().sqrt()
    };
    let b_norm = norm(&mut b.iter().map(|b| b.as_f64()));
    if b_norm == 0.0 {
        let zero = found == 0.0 && solved.x.iter().all(|x| *x == T::zero());
        return if zero { Ok(()) } else { Err(wrong("b = 0 must give x = 0 and a true residual of 0")) };
    }
    let truth = norm(&mut residual.iter().map(|r| r.value())) / b_norm;
    let eta = smallest_subnormal::<T>();
    let rounding =
        norm(&mut (0..n).map(|i| gamma::<T>(entries[i] + 2) * size[i] + (entries[i] + 2) as f64 * eta)) / b_norm;
    let relative = 2.0 * gamma::<T>(37 * tree_levels(n) + 4);
    let allowed = (rounding + relative * (truth + rounding)) * EVALUATION;
    if (found - truth).abs() > allowed {
        let text = format!("true residual: expected {truth:e} within {allowed:e}, found {found:e}");
        return Err(wrong(text));
    }
    if solved.outcome.status == Status::Converged && found > rtol::<T>() {
        return Err(wrong(format!("called converged with a true residual of {found:e}, asked for {:e}", rtol::<T>())));
    }
    Ok(())
}

/// Two backends on one system: the same bits if both declare the same order.
pub(crate) fn pair<T, F, D, E>(left: &Rc<Fleet<D>>, right: &Rc<Fleet<E>>, shared: &Rc<Shared<T>>, out: &mut Vec<Trial>)
where
    T: Real,
    F: Format<Value = T>,
    D: Spmv<F> + EveryMethod<F::Value> + 'static,
    E: Spmv<F> + EveryMethod<F::Value> + 'static,
{
    if agree::<F, D, E>(left, right).is_err() {
        return;
    }
    for solve in shared.case().solve.iter().filter(|s| s.status != "refused") {
        let (left, right, shared, solve) = (left.clone(), right.clone(), shared.clone(), solve.clone());
        let name = name::<T, F>(&solve, &format!("{}+{}", left.name, right.name), &shared.case().name);
        out.push(Trial::new(name, move || {
            let (data, stored) = (shared.data()?, shared.stored::<F>()?);
            let (csr, b) = (data.csr()?, right_hand_side(&data, &solve));
            let problem = Problem { csr: &csr, stored: &stored, b: &b, solve: &solve };
            let options = options::<T>(&solve);
            same(
                "one backend against the other",
                &problem.on(left.first(), &options)?,
                &problem.on(right.first(), &options)?,
            )
        }));
    }
}
