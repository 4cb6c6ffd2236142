//! Heat carried by a whirl: -eps (u_xx + u_yy) + w . grad u = 0 on [-1, 1]^2 with w = (2 y (1 - x^2), -2 x (1 - y^2)),
//! u = 1 on the wall x = 1 and 0 on the others.
//!
//! Upwind differences make the matrix unsymmetric, so BiCGStab with ILU(0) solves it.
//! Reference: Elman, Silvester, Wathen, Finite Elements and Fast Iterative Solvers, 2014, example 6.1.4.
//!
//! ```sh
//! cargo run --release -p spandrel --example convection_diffusion -- whirl.png
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};

use spandrel::any::Choice;
use spandrel::{Csr, Method, Precond, Result, Solution, Solver, Triplets};

mod picture;

/// The matrix and the right-hand side on the n x n points inside the square, x fastest.
pub(crate) fn assemble(n: usize, eps: f64) -> Result<(Csr<f64>, Vec<f64>)> {
    let h = 2.0 / (n + 1) as f64;
    let mut entries = Triplets::new(n * n, n * n)?;
    let mut b = vec![0.0; n * n];
    for (k, b) in b.iter_mut().enumerate() {
        let (i, j) = (k % n, k / n);
        let (x, y) = ((i + 1) as f64 * h - 1.0, (j + 1) as f64 * h - 1.0);
        let wind = [2.0 * y * (1.0 - x * x), -2.0 * x * (1.0 - y * y)];
        entries.push(k, k, 4.0 * eps / (h * h) + (wind[0].abs() + wind[1].abs()) / h)?;
        // Upstream neighbours weigh more: [before, after] on each axis.
        let [[west, east], [south, north]] =
            wind.map(|w| [-eps / (h * h) - w.max(0.0) / h, -eps / (h * h) + w.min(0.0) / h]);
        if i > 0 {
            entries.push(k, k - 1, west)?;
        }
        if j > 0 {
            entries.push(k, k - n, south)?;
        }
        if j + 1 < n {
            entries.push(k, k + n, north)?;
        }
        if i + 1 < n {
            entries.push(k, k + 1, east)?;
        } else {
            *b -= east; // the hot wall, known, goes to the right
        }
    }
    Ok((entries.to_csr()?, b))
}

/// u and how the solve went.
pub(crate) fn solve(device: Choice, n: usize, eps: f64) -> Result<Solution<f64>> {
    let (a, b) = assemble(n, eps)?;
    let settings = Solver::builder().device(device).method(Method::BiCgStab).preconditioner(Precond::Ilu0);
    settings.build(a)?.solve(&b)
}

/// Draws u for decreasing diffusion.
pub(crate) fn draw(device: Choice, path: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let n = 159;
    let mut panels = Vec::new();
    for eps in [1.0, 0.1, 0.005] {
        let Solution { x, outcome, .. } = solve(device, n, eps)?;
        let (status, iterations) = (outcome.status, outcome.iterations);
        println!("eps {eps}: {status} after {iterations} iterations, true residual {:.1e}", outcome.true_residual);
        panels.push(x);
    }
    Ok(picture::write(path, &panels, n, 2, (0.0, 1.0))?)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("whirl.png"), PathBuf::from);
    draw(Choice::Auto, &path)?;
    println!("picture: {}", path.display());
    Ok(())
}
