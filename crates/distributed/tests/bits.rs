//! The same bits of x for any number of ranks, and as on one device: every method with every preconditioner that
//! promises it.

mod problems;

use problems::{Preconditioner, Solve, on_one_device, on_ranks, system};
use spandrel_formats::generate;
use spandrel_solvers::{Method, Status};

const RANKS: [usize; 5] = [1, 2, 3, 4, 7];

fn alike(spec: &str, method: Method, precond: Preconditioner) {
    let csr = generate::csr::<f64>(spec).unwrap();
    let solve = Solve { method, precond, ..Solve::default() };
    let system = system(csr);
    let (x, outcome) = on_one_device(&system, &solve);
    assert_ne!(outcome.status, Status::NotFinite, "{spec} {method} {precond:?}");
    for ranks in RANKS {
        let (other, found) = on_ranks(ranks, &system, &solve);
        let at = x.iter().zip(&other).position(|(x, y)| x.to_bits() != y.to_bits());
        assert_eq!(at, None, "{spec} {method} {precond:?} on {ranks} ranks");
        assert_eq!(
            (outcome.status, outcome.iterations, &outcome.history),
            (found.status, found.iterations, &found.history)
        );
    }
}

#[test]
fn cg_has_the_bits_of_one_device() {
    for precond in [Preconditioner::None, Preconditioner::Jacobi, Preconditioner::Chebyshev(4)] {
        alike("poisson3d:19x20x21", Method::Cg, precond);
    }
    alike("electrostatic:n=6000", Method::Cg, Preconditioner::Jacobi);
    // Fewer rows than a block: one rank has them all.
    alike("poisson2d:9", Method::Cg, Preconditioner::Jacobi);
    alike("tridiag:1", Method::Cg, Preconditioner::None);
}

#[test]
fn bicgstab_has_the_bits_of_one_device() {
    for precond in [Preconditioner::None, Preconditioner::Jacobi] {
        alike("convdiff3d:18,peclet=3", Method::BiCgStab, precond);
    }
    alike("powerlaw:n=5000", Method::BiCgStab, Preconditioner::Jacobi);
}

#[test]
fn gmres_has_the_bits_of_one_device() {
    for precond in [Preconditioner::None, Preconditioner::Jacobi] {
        alike("convdiff3d:18,peclet=3", Method::Gmres, precond);
    }
    alike("random:n=4000,nnz_per_row=5", Method::Gmres, Preconditioner::Jacobi);
}
