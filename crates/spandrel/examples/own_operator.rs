//! An operator of one's own, without its matrix: noise taken out of a signal.
//!
//! The smooth x near the measured b minimises |x - b|^2 + lambda |D x|^2, where D takes differences of neighbours: (I + lambda D^T D) x = b.
//! D^T D is never formed; the operator applies D and then D^T. Written with operations of the contract alone, it runs on any backend.
//!
//! ```sh
//! cargo run --release -p spandrel --example own_operator
//! ```

use std::cell::RefCell;
use std::error::Error;

use spandrel::backend::SpmvTransposed;
use spandrel::solvers::{Identity, cg};
use spandrel::{Coeff, Csr, Gate, Mat, Operator, Options, Outcome, Result, Triplets, default_backend};

/// I + lambda D^T D.
pub(crate) struct Smoother<B: SpmvTransposed<Csr<f64>>> {
    d: Mat<B, Csr<f64>>,
    lambda: f64,
    /// D x: allocated once, since a recorded step keeps its address.
    dx: RefCell<B::Vector>,
}

impl<B: SpmvTransposed<Csr<f64>>> Smoother<B> {
    /// For signals of `n` values.
    pub(crate) fn new(device: &B, n: usize, lambda: f64) -> Result<Self> {
        let d = differences(n)?;
        let dx = RefCell::new(device.zeros(n - 1)?);
        Ok(Self { d: Mat::load(device, d)?, lambda, dx })
    }
}

// SAFETY: each call enqueues the same three operations on the operands and on `dx`, which is never replaced: the `RefCell` lends it out for
// the call alone.
unsafe impl<B: SpmvTransposed<Csr<f64>>> Operator<f64, B> for Smoother<B> {
    fn shape(&self) -> (usize, usize) {
        (self.d.ncols(), self.d.ncols())
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, x: &B::Vector, y: &mut B::Vector) -> spandrel::backend::Result<()> {
        let mut dx = self.dx.borrow_mut();
        self.d.spmv(be, gate, Coeff::one(), x, Coeff::zero(), &mut dx)?; // dx = D x
        be.copy(gate, x, y)?; // y = x
        self.d.spmv_transposed(be, gate, Coeff::host(self.lambda), &dx, Coeff::one(), y) // y = y + lambda D^T dx
    }
}

/// The (n - 1) x n matrix of differences x_(i+1) - x_i.
pub(crate) fn differences(n: usize) -> Result<Csr<f64>> {
    let mut entries = Triplets::new(n - 1, n)?;
    for i in 0..n - 1 {
        entries.push(i, i, -1.0)?;
        entries.push(i, i + 1, 1.0)?;
    }
    Ok(entries.to_csr()?)
}

/// The smooth signal near `b`.
pub(crate) fn smooth<B: SpmvTransposed<Csr<f64>>>(device: &B, b: &[f64], lambda: f64) -> Result<(Vec<f64>, Outcome)> {
    let a = Smoother::new(device, b.len(), lambda)?;
    let b = device.upload(b)?;
    let mut x = device.zeros(device.len(&b))?;
    let outcome = cg(device, &a, &Identity, &b, &mut x, &Options::default())?;
    Ok((device.download(&x)?, outcome))
}

/// Two periods of a sine, and the same with noise of a size up to 0.3.
pub(crate) fn signal(n: usize) -> (Vec<f64>, Vec<f64>) {
    let clean: Vec<f64> = (0..n).map(|i| (4.0 * std::f64::consts::PI * i as f64 / n as f64).sin()).collect();
    let noise = |i: usize| 0.3 * ((i * 7919 % 1009) as f64 / 504.0 - 1.0);
    let noisy = clean.iter().enumerate().map(|(i, c)| c + noise(i)).collect();
    (clean, noisy)
}

/// Root mean square of the difference.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    (a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / a.len() as f64).sqrt()
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let (clean, noisy) = signal(2000);
    let (x, outcome) = smooth(&default_backend()?, &noisy, 300.0)?;
    println!("{} after {} iterations", outcome.status, outcome.iterations);
    println!("off the clean signal by {:.3} before, {:.3} after", distance(&noisy, &clean), distance(&x, &clean));
    Ok(())
}
