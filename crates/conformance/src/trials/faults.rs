//! Trials of invalid numbers: a NaN or an overflow ends the solve as `not_finite`, in the iteration in which it occurs.

use std::rc::Rc;

use spandrel_backend::{EveryMethod, Mat, Spmv};
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_solvers::{BiCgStab, Cg, Gmres, Identity, Options, Outcome, Status};

use crate::subject::Fleet;
use crate::trial::{Finding, Trial, Verdict, wrong};

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    NanInB,
    InfinityInX0,
    NanInX0,
    NanInA,
    /// An entry of A so large that the product overflows, too far away for the first iterations.
    Overflow,
}

/// (name, fault, number of iterations after which CG, BiCGStab and GMRES show it). The largest number means never:
/// GMRES makes one direction of that row and solves in the rest.
const FAULTS: [(&str, Fault, [usize; 3]); 5] = [
    ("nan-in-b", Fault::NanInB, [0, 0, 0]),
    ("infinity-in-x0", Fault::InfinityInX0, [0, 0, 0]),
    ("nan-in-x0", Fault::NanInX0, [0, 0, 0]),
    ("nan-in-a", Fault::NanInA, [0, 0, 0]),
    ("overflow-underway", Fault::Overflow, [3, 1, usize::MAX]),
];

const N: usize = 40;

/// Tridiagonal with 2 and -1. With [`Fault::Overflow`] the search reaches row 3 by an entry of 1000 and meets the
/// largest number there.
fn matrix<T: Real>(fault: Fault) -> Result<Csr<T>, Finding> {
    let mut triplets = Triplets::new(N, N)?;
    for i in 0..N {
        let diagonal = match (fault, i) {
            (Fault::NanInA, 7) => T::nan(),
            (Fault::Overflow, 3) => T::max_value(),
            _ => T::from_f64(2.0),
        };
        triplets.push(i, i, diagonal)?;
        if i > 0 {
            let steep = matches!(fault, Fault::Overflow) && i == 3;
            let beside = T::from_f64(if steep { -1000.0 } else { -1.0 });
            triplets.push(i, i - 1, beside)?;
            triplets.push(i - 1, i, beside)?;
        }
    }
    Ok(triplets.to_csr()?)
}

fn check<T: Real, D: Spmv<Csr<T>> + EveryMethod<T>>(be: &D, solver: usize, fault: Fault, iterations: usize) -> Verdict {
    let a = Mat::<D, Csr<T>>::load(be, matrix::<T>(fault)?)?;
    let (mut b, mut x) = (vec![T::zero(); N], vec![T::zero(); N]);
    b[0] = T::one();
    match fault {
        Fault::NanInB => b[N - 1] = T::nan(),
        Fault::InfinityInX0 => x[N / 2] = T::infinity(),
        Fault::NanInX0 => x[N / 2] = T::nan(),
        Fault::NanInA | Fault::Overflow => {}
    }
    let b = be.upload(&b)?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (recorded, check_every) in [(true, 4), (true, 1), (false, 16)] {
        let mut x = be.upload(&x)?;
        let options = Options { recorded, check_every, ..Options::default() };
        let outcome = match solver {
            0 => Cg::new(be, N).and_then(|mut cg| cg.solve(be, &a, &Identity, &b, &mut x, &options)),
            1 => BiCgStab::new(be, N).and_then(|mut bicgstab| bicgstab.solve(be, &a, &Identity, &b, &mut x, &options)),
            _ => Gmres::new(be, N).and_then(|mut gmres| gmres.solve(be, &a, &Identity, &b, &mut x, &options)),
        };
        outcomes.push(outcome.map_err(|error| wrong(format!("expected a solve, got the error: {error}")))?);
    }
    for outcome in &outcomes {
        if (outcome.status, outcome.iterations) != (Status::NotFinite, iterations) {
            return Err(wrong(format!("expected not_finite after {iterations} iterations, found {outcome:?}")));
        }
        if format!("{outcome:?}") != format!("{:?}", outcomes[0]) {
            return Err(wrong(format!("recorded or not, or looked at more often: {:?} and {outcome:?}", outcomes[0])));
        }
    }
    // The device is unharmed.
    let sound = be.upload(&[T::one(); N])?;
    let mut sum = be.scalar(T::zero())?;
    be.dot(None, &sound, &sound, &mut sum)?;
    let sum = be.download_scalar(&sum)?;
    if sum == T::from_f64(N as f64) { Ok(()) } else { Err(wrong(format!("a dot product afterwards gives {sum:e}"))) }
}

/// The trials of one backend and element type.
pub(crate) fn trials<T: Real, D: Spmv<Csr<T>> + EveryMethod<T> + 'static>(fleet: &Rc<Fleet<D>>, out: &mut Vec<Trial>) {
    for (which, solver) in ["cg-identity", "bicgstab-identity", "gmres-identity"].into_iter().enumerate() {
        for (name, fault, iterations) in FAULTS.into_iter().filter(|(.., iterations)| iterations[which] < usize::MAX) {
            let fleet = fleet.clone();
            let name = format!("{solver}/csr/{}/{}/{name}", T::NAME, fleet.name);
            out.push(Trial::new(name, move || check::<T, D>(fleet.first(), which, fault, iterations[which])));
        }
    }
}
