//! One matrix, many solves: ILU(0), five right-hand sides at once, new values for each time step, and two solvers on two threads.
//!
//! ```sh
//! cargo run --release -p spandrel --example solver
//! ```

use spandrel::{Method, Precond, Result, Solver, formats};

/// The worst true residual of all solves.
pub(crate) fn run(spec: &str) -> Result<f64> {
    let a = formats::generate::csr::<f64>(spec)?;
    let b: Vec<f64> = (0..5 * a.nrows()).map(|i| 1.0 + (i % 13) as f64).collect();
    let builder = || Solver::builder().method(Method::BiCgStab).preconditioner(Precond::Ilu0);
    let mut solver = builder().build(a.clone())?;
    let mut worst = 0.0f64;
    for step in 1..=3 {
        let values: Vec<f64> = a.values().iter().map(|v| v * f64::from(step)).collect();
        solver.update_values(&values)?; // same pattern: no new analysis
        let solved = solver.solve_many(&b)?;
        worst = solved.outcomes.iter().map(|outcome| outcome.true_residual).fold(worst, f64::max);
    }
    let other = std::thread::spawn(move || builder().build(a)?.solve_many(&b)); // a solver of its own on another thread
    println!("{}", solver.plan());
    let solved = other.join().expect("the other thread")?;
    Ok(solved.outcomes.iter().map(|outcome| outcome.true_residual).fold(worst, f64::max))
}

fn main() -> Result<()> {
    println!("worst true residual {:.1e}", run("convdiff3d:40,peclet=5")?);
    Ok(())
}
