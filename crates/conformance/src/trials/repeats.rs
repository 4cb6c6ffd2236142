//! Trials of repetition: 20 runs of an operation on the same operands give the same bits, in any declared order except
//! `Unordered`.

use std::rc::Rc;

use spandrel_backend::{Coeff, EveryMethod, Load, Mat, Operator, Order, Result, Spmv};
use spandrel_formats::{Csr, Format, Real};
use spandrel_solvers::{GmresOptions, Jacobi, Options};

use super::formats::Shared;
use crate::case::{Case, numbers};
use crate::named::Workspace;
use crate::reference::difference;
use crate::subject::{Complete, Fleet};
use crate::trial::{Finding, Trial, Verdict, wrong};

const RUNS: usize = 20;

/// Rows of equal and of very different lengths, large enough for many blocks.
const CASES: [&str; 2] = ["poisson2d-129x97", "power-law-20000"];

/// Runs an operation [`RUNS`] times and compares each result with the first.
fn repeated<T: Real>(mut run: impl FnMut() -> std::result::Result<Vec<T>, Finding>) -> Verdict {
    let first = run()?;
    for number in 2..=RUNS {
        if let Some(detail) = difference(&run()?, &first) {
            return Err(wrong(format!("run {number} against run 1: {detail}")));
        }
    }
    Ok(())
}

macro_rules! each {
    ([$T:ident $fleet:ident $shared:ident $out:ident] $(($stem:ident, $Type:ident)),* $(,)?) => {
        $(format::<spandrel_formats::$Type<$T>, _>($fleet, &$shared, $out);)*
    };
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Complete<T> + 'static>(
    fleet: &Rc<Fleet<D>>,
    cases: &[Rc<Case>],
    out: &mut Vec<Trial>,
) {
    for case in cases.iter().filter(|case| CASES.contains(&case.name.as_str())) {
        let shared = Shared::<T>::new(case.clone());
        spandrel_formats::for_each_format!(each, T, fleet, shared, out);
    }
    for case in cases.iter().filter(|case| case.name == "poisson2d-129x97") {
        for solver in ["cg", "bicgstab"] {
            let (fleet, shared) = (fleet.clone(), Shared::<T>::new(case.clone()));
            let name = format!("{solver}-jacobi/csr/{}/{}/{}-{RUNS}-runs", T::NAME, fleet.name, case.name);
            out.push(Trial::new(name, move || solves(fleet.first(), &shared, solver)));
        }
    }
    for len in [1025, 1 << 20] {
        let fleet = fleet.clone();
        let name = format!("dot/vector/{}/{}/{len}-{RUNS}-runs", T::NAME, fleet.name);
        out.push(Trial::new(name, move || {
            let be = fleet.first();
            let (x, y) = (be.upload(&numbers(1, len))?, be.upload(&numbers(2, len))?);
            repeated(|| {
                let mut sums = [be.scalar(T::nan())?, be.scalar(T::nan())?];
                be.dot(None, &x, &y, &mut sums[0])?;
                be.norm2(None, &x, &mut sums[1])?;
                Ok(vec![be.download_scalar(&sums[0])?, be.download_scalar(&sums[1])?])
            })
        }));
    }
}

/// The trials of one format on a case.
pub(crate) fn format<F: Format, D: Spmv<F> + 'static>(
    fleet: &Rc<Fleet<D>>,
    shared: &Rc<Shared<F::Value>>,
    out: &mut Vec<Trial>,
) {
    let case = shared.case();
    if !case.wants(F::NAME) {
        return;
    }
    for fused in [false, true] {
        let operation = if fused { "spmv_dot" } else { "spmv" };
        let name = format!("{operation}/{}/{}/{}/{}-{RUNS}-runs", F::NAME, F::Value::NAME, fleet.name, case.name);
        if Spmv::<F>::order(fleet.first()) == Order::Unordered {
            out.push(Trial::skipped(name, "the order is declared to differ from run to run".into()));
            continue;
        }
        let (fleet, shared) = (fleet.clone(), shared.clone());
        out.push(Trial::new(name, move || product::<F, D>(fleet.first(), &shared, fused)));
    }
}

fn product<F: Format, D: Spmv<F>>(be: &D, shared: &Shared<F::Value>, fused: bool) -> Verdict {
    let (data, host) = (shared.data()?, shared.stored::<F>()?);
    let a = Mat::<D, F>::load(be, host)?;
    let x = be.upload(&data.x)?;
    repeated(|| Ok(once(be, &a, &x, fused)?))
}

fn once<F: Format, D: Spmv<F> + Load<F>>(be: &D, a: &Mat<D, F>, x: &D::Vector, fused: bool) -> Result<Vec<F::Value>> {
    let nan = <F::Value as num_traits::Float>::nan();
    let mut y = be.upload(&vec![nan; a.nrows()])?;
    if !fused {
        a.spmv(be, None, Coeff::one(), x, Coeff::zero(), &mut y)?;
        return be.download(&y);
    }
    let (mut xy, mut yy) = (be.scalar(nan)?, be.scalar(nan)?);
    a.apply_dot(be, None, x, &mut y, x, &mut xy, Some(&mut yy))?;
    let mut left = be.download(&y)?;
    left.extend([be.download_scalar(&xy)?, be.download_scalar(&yy)?]);
    Ok(left)
}

fn solves<T: Real, D: Spmv<Csr<T>> + EveryMethod<T>>(be: &D, shared: &Shared<T>, solver: &str) -> Verdict {
    let (data, host) = (shared.data()?, shared.stored::<Csr<T>>()?);
    if Spmv::<Csr<T>>::order(be) == Order::Unordered {
        return Err(Finding::Skipped("the order is declared to differ from run to run".into()));
    }
    let n = data.shape.0;
    let m = Jacobi::new(be, &*host).map_err(wrong)?;
    let a = Mat::<D, Csr<T>>::load(be, host)?;
    let b = be.upload(&data.x)?;
    let options = Options { rtol: Some(1e-6), max_iters: Some(60), ..Options::default() };
    // One workspace for all: what a solve leaves behind must not affect the next.
    let mut workspace = Workspace::by_name(be, n, solver, GmresOptions::default().restart).map_err(wrong)?;
    let mut outcomes = Vec::new();
    repeated(|| {
        let mut x = be.zeros(n)?;
        let outcome = workspace.solve(be, &a, &m, &b, &mut x, &options);
        outcomes.push(format!("{:?}", outcome.map_err(wrong)?));
        Ok(be.download(&x)?)
    })?;
    match outcomes.iter().find(|outcome| **outcome != outcomes[0]) {
        Some(other) => Err(wrong(format!("outcomes of equal solves: {} and {other}", outcomes[0]))),
        None => Ok(()),
    }
}
