//! The heat equation u_t = u_xx + u_yy on the unit square, its edge held at 0, by implicit Euler steps.
//!
//! Each step solves (I + dt/h^2 L) u_new = u_old with the five-point Laplacian L, by CG from the last step's u. The
//! matrix does not change, so one [`Solver`] serves all steps and computes IC(0) once. The picture shows four moments.
//!
//! ```sh
//! cargo run --release -p spandrel --example heat -- heat.png
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};

use spandrel::any::Choice;
use spandrel::formats::generate::Stencil;
use spandrel::{Csr, Method, Precond, Result, Solver};

mod picture;

/// The result of a march through time.
#[derive(Debug)]
pub(crate) struct March {
    /// u after each step to keep.
    pub(crate) kept: Vec<Vec<f64>>,
    /// Iterations of CG in all steps.
    pub(crate) iterations: usize,
}

/// I + dt/h^2 L on the n x n points inside the square, h = 1 / (n + 1).
fn implicit_step(n: usize, dt: f64) -> Result<Csr<f64>> {
    let weight = dt * ((n + 1) * (n + 1)) as f64;
    let neighbours = [[0, -1, 0], [-1, 0, 0], [1, 0, 0], [0, 1, 0]].map(|offset| (offset, -weight));
    let stencil = Stencil::new(neighbours.into_iter().chain([([0; 3], 1.0 + 4.0 * weight)]));
    Ok(stencil.on_grid([n, n, 1])?)
}

/// Marches from `start` (n * n values, x fastest) in steps of `dt` up to the last step in `keep`.
pub(crate) fn march(device: Choice, n: usize, dt: f64, start: &[f64], keep: &[usize]) -> Result<March> {
    let settings = Solver::builder().device(device).method(Method::Cg).preconditioner(Precond::Ic0).rtol(1e-10);
    let mut solver = settings.build(implicit_step(n, dt)?)?;
    let mut u = start.to_vec();
    let (mut kept, mut iterations) = (Vec::new(), 0);
    for step in 0..=keep.last().copied().unwrap_or(0) {
        if step > 0 {
            let solution = solver.solve_from(&u, &u)?.require_converged()?;
            iterations += solution.outcome.iterations;
            u = solution.x;
        }
        if keep.contains(&step) {
            kept.push(u.clone());
        }
    }
    Ok(March { kept, iterations })
}

/// The start: a ring and a disc of temperature 1.
pub(crate) fn ring_and_disc(n: usize) -> Vec<f64> {
    let h = 1.0 / (n + 1) as f64;
    let point = |k: usize| ((k % n + 1) as f64 * h, (k / n + 1) as f64 * h);
    let from = |(x, y): (f64, f64), cx: f64, cy: f64| (x - cx).hypot(y - cy);
    let is_hot = |p| (0.17..0.25).contains(&from(p, 0.38, 0.60)) || from(p, 0.76, 0.24) < 0.10;
    (0..n * n).map(|k| f64::from(u8::from(is_hot(point(k))))).collect()
}

/// The time step, and the steps that the picture shows.
const STEP: f64 = 1e-4;
const SHOWN: [usize; 4] = [0, 5, 20, 80];

/// Draws the ring and the disc at four moments.
pub(crate) fn draw(device: Choice, path: &Path) -> std::result::Result<March, Box<dyn Error>> {
    let n = 150;
    let march = march(device, n, STEP, &ring_and_disc(n), &SHOWN)?;
    picture::write(path, &march.kept, n, 2, (0.0, 1.0))?;
    Ok(march)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("heat.png"), PathBuf::from);
    let march = draw(Choice::Auto, &path)?;
    println!("{} steps, {} iterations of CG", SHOWN[SHOWN.len() - 1], march.iterations);
    for (step, u) in SHOWN.iter().zip(&march.kept) {
        println!("t = {:.4}: hottest {:.3}", *step as f64 * STEP, u.iter().copied().fold(0.0, f64::max));
    }
    println!("picture: {}", path.display());
    Ok(())
}
