//! Your own operator, without its matrix: it removes noise from a signal.
//!
//! The smooth x near the measured b minimises |x - b|^2 + lambda |D x|^2, where D takes differences of neighbours: (I +
//! lambda D^T D) x = b. Neither D nor D^T D is stored, so there is no matrix for `Solver`: this calls the method
//! itself. On the CPU an operator is a function over slices; `own_preconditioner.rs` shows what a GPU needs.
//!
//! ```sh
//! cargo run --release -p spandrel --example own_operator
//! ```

use std::error::Error;

use spandrel::backend::operator;
use spandrel::solvers::{Identity, cg};
use spandrel::{Backend, Cpu, Options, Outcome, Result};

/// The smooth signal near `b`.
pub(crate) fn smooth(b: &[f64], lambda: f64) -> Result<(Vec<f64>, Outcome)> {
    let a = operator::from_fn(b.len(), move |x: &[f64], y: &mut [f64]| {
        y.copy_from_slice(x);
        for i in 1..x.len() {
            let difference = lambda * (x[i] - x[i - 1]); // lambda D x
            y[i] += difference; // y = x + lambda D^T D x
            y[i - 1] -= difference;
        }
    });
    let device = Cpu::new();
    let b = device.upload(b)?;
    let mut x = device.zeros(b.len())?;
    let outcome = cg(&device, &a, &Identity, &b, &mut x, &Options::default())?;
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
    let (x, outcome) = smooth(&noisy, 300.0)?;
    println!("{} after {} iterations", outcome.status, outcome.iterations);
    println!("off the clean signal by {:.3} before, {:.3} after", distance(&noisy, &clean), distance(&x, &clean));
    Ok(())
}
