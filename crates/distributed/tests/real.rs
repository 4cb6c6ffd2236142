//! Real matrices: the same bits of x on one device and on any number of ranks.

mod problems;

use std::path::Path;

use problems::{Preconditioner, Solve, on_one_device, on_ranks, system};
use spandrel_formats::{Csr, matrix_market};
use spandrel_solvers::{AmgOptions, Method, Options};

/// Where the matrices lie, if they are there.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/matrices");

/// Each with the method that it is tried with. Several blocks of rows each; symmetric or not, with and without
/// structure.
const MATRICES: [(&str, Method, Preconditioner); 10] = [
    ("bcsstk18", Method::Cg, Preconditioner::Jacobi),
    ("bcsstk25", Method::Cg, Preconditioner::Jacobi),
    ("bcsstk38", Method::Cg, Preconditioner::Chebyshev(3)),
    ("Trefethen_20000", Method::Cg, Preconditioner::Jacobi),
    ("aft01", Method::Cg, Preconditioner::Jacobi),
    ("ani4", Method::BiCgStab, Preconditioner::Jacobi),
    ("add20", Method::BiCgStab, Preconditioner::Jacobi),
    ("memplus", Method::Gmres, Preconditioner::Jacobi),
    ("utm5940", Method::Gmres, Preconditioner::None),
    ("cvxbqp1", Method::BiCgStab, Preconditioner::None),
];

/// Symmetric positive definite ones that amg is tried with.
const AMG: [&str; 5] = ["bcsstk18", "bcsstk38", "aft01", "Trefethen_20000", "bcsstk25"];

#[test]
fn ten_real_matrices_have_the_same_bits_on_any_number_of_ranks() {
    for (name, method, precond) in MATRICES {
        alike(name, method, precond);
    }
}

#[test]
fn real_matrices_have_the_same_bits_with_amg_on_any_number_of_ranks() {
    let small = AmgOptions { coarsest: 50, ..AmgOptions::default() };
    for name in AMG {
        alike(name, Method::Cg, Preconditioner::Amg(small, 0));
    }
    alike("aft01", Method::Cg, Preconditioner::Amg(AmgOptions::default(), 2000));
}

/// Compares solves of a matrix on one device and on ranks, if it is there.
fn alike(name: &str, method: Method, precond: Preconditioner) {
    let file = ["mtx.gz", "mtx"].map(|end| Path::new(FOLDER).join(format!("{name}.{end}")));
    let Some(file) = file.iter().find(|file| file.exists()) else {
        println!("skipped: {name} is not in {FOLDER}");
        return;
    };
    let csr: Csr<f64> = matrix_market::read_csr(file).unwrap();
    let system = system(csr);
    // Enough to mix every bit; many of them need thousands.
    let options = Options { max_iters: Some(40), ..Options::default() };
    let solve = Solve { method, precond, options, ..Solve::default() };
    let (x, outcome) = on_one_device(&system, &solve);
    for ranks in [2, 3, 4, 7] {
        let (other, found) = on_ranks(ranks, &system, &solve);
        let at = x.iter().zip(&other).position(|(x, y)| x.to_bits() != y.to_bits());
        assert_eq!(at, None, "{name} on {ranks} ranks");
        assert_eq!((outcome.iterations, outcome.status), (found.iterations, found.status), "{name}");
    }
}
