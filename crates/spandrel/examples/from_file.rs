//! A matrix from a Matrix Market file (`.mtx`, `.mtx.gz`): what it is like, which method suits it, and the solution for b = 1.
//!
//! ```sh
//! cargo run --release -p spandrel --example from_file -- matrix.mtx x.mtx
//! ```

use std::error::Error;
use std::path::Path;

use spandrel::any::Complete;
use spandrel::formats::{matrix_market, stats::Stats};
use spandrel::solvers::{Direct, DirectOptions, Identity, Jacobi, Method, Precond, bicgstab, cg};
use spandrel::{Csr, Mat, Options, Outcome, Preconditioner, Result, default_backend};

/// x of A x = 1 by the method that suits A, with that method.
pub(crate) fn solve<B: Complete<f64> + 'static>(device: &B, csr: Csr<f64>) -> Result<(Vec<f64>, Outcome, Method)> {
    let choice = Method::choose(&csr);
    let (nrows, ncols) = (csr.row_ptr().len() - 1, spandrel::Format::ncols(&csr));
    if choice.solver == Method::Direct {
        let mut x = vec![0.0; ncols];
        let outcome = Direct::new(csr, &DirectOptions::default())?.solve(&vec![1.0; nrows], &mut x)?;
        return Ok((x, outcome, choice.solver));
    }
    let m: Box<dyn Preconditioner<f64, B>> = match choice.precond {
        Precond::None => Box::new(Identity),
        _ => Box::new(Jacobi::new(device, &csr)?),
    };
    let a = Mat::load(device, csr)?;
    let b = device.upload(&vec![1.0; nrows])?;
    let mut x = device.zeros(ncols)?;
    let outcome = match choice.solver {
        Method::Cg => cg(device, &a, &m, &b, &mut x, &Options::default())?,
        _ => bicgstab(device, &a, &m, &b, &mut x, &Options::default())?,
    };
    Ok((device.download(&x)?, outcome, choice.solver))
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let Some(path) = arguments.first().map(Path::new) else {
        return Err("name a Matrix Market file, and a second one if x is to be written".into());
    };
    let csr = matrix_market::read_csr::<f64>(path)?; // an error names file, line and column
    let stats = Stats::of(&csr)?;
    println!("{} x {}, {} entries", stats.nrows, stats.ncols, stats.nnz);

    let (x, outcome, solver) = solve(&default_backend()?, csr)?;
    let (status, iterations) = (outcome.status, outcome.iterations);
    println!("{solver}: {status} after {iterations} iterations, true residual {:.1e}", outcome.true_residual);
    if let Some(out) = arguments.get(1) {
        matrix_market::write_vector(Path::new(out), &x)?;
    }
    Ok(())
}
