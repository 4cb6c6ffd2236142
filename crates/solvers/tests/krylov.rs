//! CG and BiCGStab on small systems: answers, edge cases, range, and what they promise about bits.

mod problems;

use std::ops::ControlFlow;

use problems::{BOTH, Krylov, diagonal, matrix, relative_residual, solve, solve_from, stencil, uneven};
use spandrel_backend::{Backend, Mat, Quantity, Spmv};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{Cg, Error, Identity, Jacobi, Options, Outcome, Status};

fn converges<T: Real>(rtol: f64)
where
    Cpu: Spmv<Csr<T>>,
{
    let be = Cpu::new();
    let options = Options { rtol, ..Options::default() };
    for method in BOTH {
        for convection in [0.0, 0.3] {
            if method == Krylov::Cg && convection != 0.0 {
                continue;
            }
            let a = stencil::<T>(23, convection);
            let b = uneven(529);
            let jacobi = Jacobi::new(&be, &a).unwrap();
            for (outcome, x) in
                [solve(&be, method, &a, &b, &options), solve_from(&be, method, &a, &jacobi, &b, &uneven(529), &options)]
            {
                assert_eq!(outcome.status, Status::Converged, "{method:?} {outcome:?}");
                let truth = relative_residual(&a, &x, &b);
                // The residual was computed in T: its own rounding is of the order of u |A| |x| / |b|.
                assert!((truth - outcome.true_residual).abs() <= 200.0 * T::UNIT_ROUNDOFF, "{truth} {outcome:?}");
                assert!(outcome.true_residual <= rtol && outcome.iterations > 5 && outcome.iterations < 120);
                assert!(outcome.history.len() >= outcome.iterations + 1);
                assert_eq!(*outcome.history.last().unwrap(), outcome.residual);
            }
        }
    }
}

#[test]
fn both_converge_in_f64() {
    converges::<f64>(1e-10);
}

#[test]
fn both_converge_in_f32() {
    converges::<f32>(1e-5);
}
