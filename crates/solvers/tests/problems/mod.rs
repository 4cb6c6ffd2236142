//! Small systems with known properties, and how the tests solve them.
#![allow(dead_code)] // each test binary uses its part

use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_solvers::{BiCgStab, Cg, Identity, Options, Outcome};

/// A matrix from its entries.
pub(crate) fn matrix<T: Real>(nrows: usize, ncols: usize, entries: &[(usize, usize, f64)]) -> Csr<T> {
    let mut triplets = Triplets::new(nrows, ncols).expect("a small shape");
    for &(i, j, v) in entries {
        triplets.push(i, j, T::from_f64(v)).expect("an entry inside the matrix");
    }
    triplets.to_csr().expect("a small matrix")
}

/// The diagonal matrix of `d`.
pub(crate) fn diagonal<T: Real>(d: &[f64]) -> Csr<T> {
    matrix(d.len(), d.len(), &d.iter().enumerate().map(|(i, &v)| (i, i, v)).collect::<Vec<_>>())
}

/// The 5-point stencil on a k x k grid with `convection` added to the east and taken from the west: symmetric positive
/// definite for 0.
pub(crate) fn stencil<T: Real>(k: usize, convection: f64) -> Csr<T> {
    let mut entries = Vec::new();
    for y in 0..k {
        for x in 0..k {
            let i = y * k + x;
            entries.push((i, i, 4.0));
            if x > 0 {
                entries.push((i, i - 1, -1.0 - convection));
            }
            if x + 1 < k {
                entries.push((i, i + 1, -1.0 + convection));
            }
            if y > 0 {
                entries.push((i, i - k, -1.0));
            }
            if y + 1 < k {
                entries.push((i, i + k, -1.0));
            }
        }
    }
    matrix(k * k, k * k, &entries)
}

/// An uneven right-hand side without a pattern that a stencil could favour.
pub(crate) fn uneven<T: Real>(n: usize) -> Vec<T> {
    (0..n).map(|i| T::from_f64(((i * 7919 + 13) % 1009) as f64 / 1009.0 - 0.4)).collect()
}

/// ||b - A x|| / ||b||, by a plain loop over the rows in doubled precision.
pub(crate) fn relative_residual<T: Real>(a: &Csr<T>, x: &[T], b: &[T]) -> f64 {
    let (mut above, mut below) = (0.0, 0.0);
    for (i, b) in b.iter().enumerate() {
        let (cols, values) = a.row(i);
        let (mut high, mut low) = (b.as_f64(), 0.0);
        for (&j, v) in cols.iter().zip(values) {
            let (v, x) = (-v.as_f64(), x[j as usize].as_f64());
            for term in [v * x, v.mul_add(x, -(v * x))] {
                let sum = high + term;
                // Knuth's two-sum: what the addition lost.
                let back = sum - high;
                low += (high - (sum - back)) + (term - back);
                high = sum;
            }
        }
        above += (high + low).powi(2);
        below += b.as_f64().powi(2);
    }
    (above / below).sqrt()
}

/// Which of the two methods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Krylov {
    Cg,
    BiCgStab,
}
pub(crate) const BOTH: [Krylov; 2] = [Krylov::Cg, Krylov::BiCgStab];

/// Solves from `x` (zeros where empty) with a preconditioner.
pub(crate) fn solve_from<T: Real, M>(
    be: &Cpu,
    method: Krylov,
    a: &Csr<T>,
    m: &M,
    b: &[T],
    x: &[T],
    options: &Options,
) -> (Outcome, Vec<T>)
where
    Cpu: spandrel_backend::Spmv<Csr<T>>,
    M: Preconditioner<T, Cpu>,
{
    let a = Mat::load(be, a.clone()).unwrap();
    let b = be.upload(b).unwrap();
    let mut dx = if x.is_empty() { Backend::<T>::zeros(be, a.ncols()).unwrap() } else { be.upload(x).unwrap() };
    let outcome = match method {
        Krylov::Cg => Cg::new(be, a.nrows()).unwrap().solve(be, &a, m, &b, &mut dx, options),
        Krylov::BiCgStab => BiCgStab::new(be, a.nrows()).unwrap().solve(be, &a, m, &b, &mut dx, options),
    };
    (outcome.unwrap(), be.download(&dx).unwrap())
}

/// Solves from zeros without a preconditioner.
pub(crate) fn solve<T: Real>(be: &Cpu, method: Krylov, a: &Csr<T>, b: &[T], options: &Options) -> (Outcome, Vec<T>)
where
    Cpu: spandrel_backend::Spmv<Csr<T>>,
{
    solve_from(be, method, a, &Identity, b, &[], options)
}
