//! Trials that one kernel solves small systems, and only those. Correct bits do not show how a solve ran.

use std::rc::Rc;

use spandrel_backend::{
    Backend, BicgstabIterations, BicgstabSteps, CgIterations, CgSteps, Device, Mat, Operator, Spmv, Watch,
};
use spandrel_backend_cuda::Cuda;
use spandrel_formats::{Bdia, Csr, Dia, Ell, Format, Hyb, Real, Sell};

use super::pairs::converted;
use crate::case::numbers;
use crate::subject::Fleet;
use crate::trial::{Trial, Verdict, wrong};

/// The number of iterations requested at once.
const ITERATIONS: usize = 3;

/// Numbers of rows that fit, those of the published comparison. A number of rows above that of the device's threads
/// does not fit.
const FITS: usize = 30_000;

/// The trials of one element type.
pub(crate) fn trials<T: Real>(fleet: &Rc<Fleet<Cuda>>, out: &mut Vec<Trial>) {
    push::<Csr<T>>(fleet, true, out);
    push::<Ell<T>>(fleet, true, out);
    push::<Sell<T>>(fleet, true, out);
    push::<Dia<T>>(fleet, true, out);
    push::<Bdia<T>>(fleet, true, out);
    // This device has no such kernel.
    push::<Hyb<T>>(fleet, false, out);
}

fn push<F: Format>(fleet: &Rc<Fleet<Cuda>>, has_kernel: bool, out: &mut Vec<Trial>)
where
    Cuda: Spmv<F>,
{
    for (case, fits) in [("fits", true), ("too-large", false)] {
        let fleet = fleet.clone();
        let name = format!("persistent/{}/{}/{}/{case}", F::NAME, F::Value::NAME, fleet.name);
        out.push(Trial::new(name, move || {
            let be = fleet.first();
            // Thread blocks of 1024 rows, one on each multiprocessor.
            let n = if fits { FITS } else { 1024 * be.info().multiprocessors as usize + 1 };
            persists::<F>(be, n, fits && has_kernel)
        }));
    }
}

/// Requests iterations at once, and checks that all of them ran, or none.
fn persists<F: Format>(be: &Cuda, n: usize, wanted: bool) -> Verdict
where
    Cuda: Spmv<F>,
{
    let csr = converted::<F::Value>(&crate::generated(&format!("banded:n={n},d=5"))?)?;
    let a = Mat::<Cuda, F>::load(be, F::from_csr(&csr)?)?;
    let stored = a.stored().ok_or_else(|| wrong("a loaded matrix says that it is none"))?;
    let zero = || be.zeros(n);
    let b = be.upload(&numbers::<F::Value>(3, n))?;
    for method in ["cg", "bicgstab"] {
        let mut monitor = be.monitor(&Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 100 })?;
        let (mut x, mut r, mut p) = (zero()?, zero()?, zero()?);
        be.copy(None, &b, &mut r)?;
        be.copy(None, &b, &mut p)?;
        let one = <F::Value as num_traits::One>::one();
        let mut scalars = Vec::new();
        for _ in 0..7 {
            scalars.push(be.scalar(one)?);
        }
        let [s0, s1, s2, s3, s4, s5, s6] = &mut scalars[..] else { return Err(wrong("seven scalars")) };
        let done = if method == "cg" {
            let mut q = zero()?;
            be.dot(None, &b, &b, s2)?;
            let (x, r, p, q) = (&mut x, &mut r, &mut p, &mut q);
            be.cg_iterations(stored, ITERATIONS, CgIterations { x, r, p, q, pq: s0, rr: s1, rz: s2 }, &mut monitor)?
        } else {
            let (mut v, mut t) = (zero()?, zero()?);
            let (rho, rho_next, rv, ss, ts, tt, rr) = (s0, s1, s2, s3, s4, s5, s6);
            let (shadow, x, r, p, v, t) = (&b, &mut x, &mut r, &mut p, &mut v, &mut t);
            let on = BicgstabIterations { shadow, x, r, p, v, t, rho, rho_next, rv, ss, ts, tt, rr };
            be.bicgstab_iterations(stored, ITERATIONS, on, &mut monitor)?
        };
        if done != wanted {
            return Err(wrong(format!("{method}, {n} rows: expected {wanted}, found {done}")));
        }
        let moved = be.download(&x)?.iter().any(|x| *x != num_traits::Zero::zero());
        let report = be.report(&monitor)?;
        if moved != wanted || (report.iterations > 0) != wanted {
            return Err(wrong(format!("{method}, {n} rows: answered {done}, x moved: {moved}, then {report:?}")));
        }
    }
    Ok(())
}
