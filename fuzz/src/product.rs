//! The product of a stored matrix on the CPU backend, compared with a plain loop.

use spandrel_backend::{Backend, Coeff, Mat, Spmv};
use spandrel_backend_cpu::{Cpu, Scalar, Vector};
use spandrel_formats::{Csr, Format, Real};

use super::input::{equal, same};

thread_local! {
    static CPU: Cpu = Cpu::with_threads(2).expect("a second thread");
}

/// Runs `body` on a device that is made once.
pub fn on_cpu<R>(body: impl FnOnce(&Cpu) -> R) -> R {
    CPU.with(body)
}

/// Checks that y = A x and y = 1/2 A x + 2 y0 have the bits of the plain loop over `csr`. If fill is multiplied, both
/// zeros count as equal.
///
/// # Panics
/// If they do not.
pub fn check<F: Format>(matrix: F, csr: &Csr<F::Value>)
where
    Cpu: Spmv<F> + Backend<F::Value, Vector = Vector<F::Value>, Scalar = Scalar<F::Value>>,
{
    let number = |k: usize| F::Value::from_f64((k % 23) as f64 / 8.0 - 1.375);
    let x: Vec<F::Value> = (0..csr.ncols()).map(|j| number(5 * j + 1)).collect();
    let y0: Vec<F::Value> = (0..csr.nrows()).map(|i| number(7 * i + 3)).collect();
    on_cpu(|cpu| {
        let matrix = Mat::<Cpu, F>::load(cpu, matrix).expect("a small matrix");
        for (a, b) in [(1.0, 0.0), (0.5, 2.0)] {
            let (a, b) = (F::Value::from_f64(a), F::Value::from_f64(b));
            let poison = vec![F::Value::from_f64(f64::NAN); y0.len()];
            let mut y = cpu.upload(if b == F::Value::from_f64(0.0) { &poison } else { &y0 }).expect("a small vector");
            let x_there = cpu.upload(&x).expect("a small vector");
            matrix.spmv(cpu, None, Coeff::host(a), &x_there, Coeff::host(b), &mut y).expect("equal sizes");
            let expected = expected(csr, a, &x, b, &y0);
            let right = if F::MULTIPLIES_FILL { equal } else { same };
            assert!(right(y.as_slice(), &expected), "{}, a = {a}, b = {b}: {:?} {expected:?}", F::NAME, y.as_slice());
        }
    });
}

fn expected<T: Real>(csr: &Csr<T>, a: T, x: &[T], b: T, y0: &[T]) -> Vec<T> {
    let row = |i: usize| {
        let (cols, values) = csr.row(i);
        let acc = cols.iter().zip(values).fold(T::zero(), |acc, (&j, &v)| v.mul_add(x[j as usize], acc));
        if b == T::zero() { a * acc } else { a.mul_add(acc, b * y0[i]) }
    };
    (0..csr.nrows()).map(row).collect()
}
