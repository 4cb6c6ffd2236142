//! Small systems with known properties, and how the tests solve them.
#![allow(dead_code)] // each test binary uses its part

use spandrel_backend::{Backend, Mat, Preconditioner};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real, Triplets};
use spandrel_solvers::{BiCgStab, Cg, Gmres, Identity, Options, Outcome};

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
                // Knuth's two-sum: the part that the addition lost.
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

/// gamma(n) = n u / (1 - n u) (Higham 2002, Accuracy and stability of numerical algorithms, lemma 3.1).
pub(crate) fn gamma<T: Real>(n: usize) -> f64 {
    let nu = n as f64 * T::UNIT_ROUNDOFF;
    nu / (1.0 - nu)
}

/// ||v||.
pub(crate) fn norm<T: Real>(v: &[T]) -> f64 {
    v.iter().map(|v| v.as_f64().powi(2)).sum::<f64>().sqrt()
}

/// ||b - A x|| / ||b||, and how much a report that was computed in `T` may differ from it.
///
/// A row of k entries errs by gamma(k + 2) (|A| |x| + |b|) (section 3.1), and by eta/2 for each of the k + 2 roundings
/// that may underflow, where eta is the smallest subnormal. The two norms are trees of L levels with 37 roundings each,
/// which the root halves. Roots and quotient are three more roundings. The norms of the exact value have n + 3
/// roundings in f64.
pub(crate) fn judged<T: Real>(a: &Csr<T>, x: &[T], b: &[T]) -> (f64, f64) {
    let truth = relative_residual(a, x, b);
    let eta = if T::BYTES == 4 { f64::from(f32::from_bits(1)) } else { f64::from_bits(1) };
    let rows = b.iter().enumerate().map(|(i, b)| {
        let (cols, values) = a.row(i);
        let size: f64 = cols.iter().zip(values).map(|(&j, v)| (v.as_f64() * x[j as usize].as_f64()).abs()).sum();
        gamma::<T>(cols.len() + 2) * (size + b.as_f64().abs()) + (cols.len() + 2) as f64 * eta
    });
    let rounding = norm(&rows.collect::<Vec<f64>>()) / norm(b);
    let levels = if b.len() <= 1024 { 1 } else { 2 };
    assert!(b.len() <= 1 << 20);
    let relative = 2.0 * gamma::<T>(37 * levels + 4) + gamma::<f64>(b.len() + 3);
    (truth, rounding + relative * (truth + rounding))
}

/// Checks the residual that a solve reports against the residual of its x.
pub(crate) fn honest<T: Real>(a: &Csr<T>, x: &[T], b: &[T], outcome: &Outcome) {
    let (truth, allowed) = judged(a, x, b);
    let found = outcome.true_residual;
    assert!(
        (truth - found).abs() <= allowed,
        "true residual {truth:e} within {allowed:e}, reported {found:e}: {outcome:?}"
    );
}

/// How far CG's recurrence for [`stencil`] can drift from b - A x in `steps` updates of x and r, divided by ||b||.
///
/// Both updates use the same alpha. The update x + alpha p errs by u |x|, r - alpha q by u |r|, and q = A p by gamma(5)
/// times |A| |p|. alpha p is the difference of two iterates, so its norm is at most 2 `largest`. ||(|A|)|| <= 8 by
/// Gershgorin. So a step adds at most 8 (u + 2 gamma(5)) `largest` + u ||r||, and one more u covers the second order.
pub(crate) fn drift<T: Real>(steps: usize, largest: f64, r: f64, b: &[T]) -> f64 {
    steps as f64 * (8.0 * gamma::<T>(12) * largest + 2.0 * T::UNIT_ROUNDOFF * r) / norm(b)
}

/// ||A^-1|| for [`stencil`] on a k x k grid: one over the smallest eigenvalue of its symmetric part, whatever the
/// convection.
pub(crate) fn inverse_norm(k: usize) -> f64 {
    let half = std::f64::consts::PI / (2 * (k + 1)) as f64;
    1.0 / (8.0 * half.sin().powi(2))
}

/// A Krylov method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Krylov {
    Cg,
    BiCgStab,
    Gmres,
}
pub(crate) const ALL: [Krylov; 3] = [Krylov::Cg, Krylov::BiCgStab, Krylov::Gmres];

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
        Krylov::Gmres => Gmres::new(be, a.nrows()).unwrap().solve(be, &a, m, &b, &mut dx, options),
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
