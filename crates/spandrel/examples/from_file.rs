//! Reads a matrix from a Matrix Market file (`.mtx`, `.mtx.gz`), describes it, and solves A x = b for b = 1.
//!
//! ```sh
//! cargo run --release -p spandrel --example from_file -- matrix.mtx x.mtx
//! ```

use std::error::Error;
use std::path::Path;

use spandrel::formats::{matrix_market, stats::Stats};
use spandrel::{Csr, Result, Solution, Solver};

/// x of A x = 1, and how it was solved.
pub(crate) fn solve(csr: Csr<f64>) -> Result<(Solution<f64>, String)> {
    let b = vec![1.0; csr.nrows()];
    let mut solver = Solver::new(csr)?;
    Ok((solver.solve(&b)?, solver.plan().to_string()))
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let Some(path) = arguments.first().map(Path::new) else {
        return Err("name a Matrix Market file, and a second one if x is to be written".into());
    };
    let csr = matrix_market::read_csr::<f64>(path)?; // an error names file, line and column
    let stats = Stats::of(&csr)?;
    println!("{} x {}, {} entries", stats.nrows, stats.ncols, stats.nnz);

    let (solution, plan) = solve(csr)?;
    let outcome = &solution.outcome;
    println!("{plan}");
    println!("{} after {} iterations, true residual {:.1e}", outcome.status, outcome.iterations, outcome.true_residual);
    if let Some(out) = arguments.get(1) {
        matrix_market::write_vector(Path::new(out), &solution.x)?;
    }
    Ok(())
}
