//! ILU(0), five right-hand sides at once, new values, two threads: `cargo run --release -p spandrel --example solver`.

use spandrel::{Method, Precond, Result, Solver, formats, solver::Solutions};

/// A X = B by one thread, and 2 A X = B by another.
pub(crate) fn run(spec: &str) -> Result<[Solutions<f64>; 2]> {
    let a = formats::generate::csr::<f64>(spec)?;
    let b: Vec<f64> = (0..5 * a.nrows()).map(|i| 1.0 + (i % 13) as f64).collect();
    let builder = || Solver::builder().method(Method::BiCgStab).preconditioner(Precond::Ilu0);
    let (mut solver, mut other) = (builder().build(a.clone())?, builder().build(a.clone())?);
    println!("{}", solver.plan());
    let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    other.update_values(&doubled)?; // same pattern, so no new analysis
    std::thread::scope(|threads| {
        let second = threads.spawn(|| other.solve_many(&b));
        Ok([solver.solve_many(&b)?, second.join().expect("no panic")?])
    })
}

fn main() -> Result<()> {
    for solved in run("convdiff3d:40,peclet=5")? {
        solved.outcomes.iter().for_each(|outcome| println!("{outcome}"));
    }
    Ok(())
}
