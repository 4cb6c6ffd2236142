//! The x that an observer reads at a look is the x of a solve that ends there, bit for bit.

mod problems;

use std::ops::ControlFlow;

use problems::{ALL, Krylov, stencil, uneven};
use spandrel_backend::{Backend, Mat};
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{
    BiCgStab, Cg, Gmres, GmresOptions, Identity, Iterate, Jacobi, Observer, Options, Outcome, Progress, Status,
};

const SIDE: usize = 12;
const N: usize = SIDE * SIDE;
const RESTART: usize = 7;

/// The outcome and x of a solve.
fn solve<T: Real>(
    method: Krylov,
    preconditioned: bool,
    b: &[T],
    options: &Options,
    observer: Observer<'_, T>,
) -> (Outcome, Vec<T>)
where
    Cpu: spandrel_backend::EveryMethod<T> + spandrel_backend::Spmv<Csr<T>>,
{
    let be = Cpu::with_threads(1).unwrap();
    let csr = stencil::<T>(SIDE, 0.0);
    let jacobi = Jacobi::new(&be, &csr).unwrap();
    let a = Mat::load(&be, csr).unwrap();
    let (b, mut x) = (be.upload(b).unwrap(), be.zeros(N).unwrap());
    macro_rules! by {
        ($method:expr) => {
            match preconditioned {
                true => $method.unwrap().solve_observed(&be, &a, &jacobi, &b, &mut x, options, observer),
                false => $method.unwrap().solve_observed(&be, &a, &Identity, &b, &mut x, options, observer),
            }
        };
    }
    let outcome = match method {
        Krylov::Cg => by!(Cg::new(&be, N)),
        Krylov::BiCgStab => by!(BiCgStab::new(&be, N)),
        Krylov::Gmres => by!(Gmres::with(&be, N, &GmresOptions { restart: RESTART, ..GmresOptions::default() })),
    };
    (outcome.unwrap(), be.download(&x).unwrap())
}

fn silent<T>(_: Progress, _: Iterate<'_, T>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// `scale` is 1, or a power of two far from 1, for which a segment iterates on multiples of r and x.
fn check<T: Real>(scale: f64)
where
    Cpu: spandrel_backend::EveryMethod<T> + spandrel_backend::Spmv<Csr<T>>,
{
    let b: Vec<T> = uneven::<T>(N).into_iter().map(|b| b * T::from_f64(scale)).collect();
    let each = Options { check_every: 1, ..Options::default() };
    for method in ALL {
        for preconditioned in [false, true] {
            let mut seen = Vec::new();
            let (outcome, _) = solve(method, preconditioned, &b, &each, &mut |progress, iterate| {
                assert_eq!(iterate.is_known(), iterate.x().unwrap().is_some());
                seen.push((progress.iterations, iterate.x().unwrap()));
                ControlFlow::Continue(())
            });
            assert!(outcome.status.is_converged(), "{outcome}");
            assert_eq!(seen[0], (0, Some(vec![T::zero(); N])));
            let known = seen.iter().filter(|(_, x)| x.is_some()).count();
            match method {
                Krylov::Cg | Krylov::BiCgStab => assert_eq!(known, seen.len()),
                Krylov::Gmres => assert_eq!(known, outcome.iterations.div_ceil(RESTART)),
            }
            assert!(known > 3, "{method:?} {outcome}");
            for (iterations, x) in seen.into_iter().skip(1) {
                let Some(x) = x else { continue };
                let short = Options { max_iters: Some(iterations), ..Options::default() };
                let (outcome, expected) = solve(method, preconditioned, &b, &short, &mut silent);
                assert_eq!((outcome.status, outcome.iterations), (Status::MaxIterations, iterations));
                assert_eq!(x, expected, "{method:?} {preconditioned} {scale:e} after {iterations}");
            }
        }
    }
}

#[test]
fn x_at_a_look_is_that_of_a_solve_which_ends_there() {
    check::<f64>(1.0);
    check::<f32>(1.0);
}

#[test]
fn so_it_is_where_a_segment_iterates_on_multiples() {
    check::<f64>(2f64.powi(-700));
    check::<f64>(2f64.powi(600));
    check::<f32>(2f64.powi(-60));
}

#[test]
fn an_observer_interrupts_with_the_x_that_it_saw() {
    let b = uneven::<f64>(N);
    let each = Options { check_every: 1, ..Options::default() };
    for method in ALL {
        let mut last = None;
        let (outcome, x) = solve(method, false, &b, &each, &mut |progress, iterate| {
            last = iterate.x().unwrap().or(last.take());
            if progress.iterations == 9 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((outcome.status, outcome.iterations), (Status::Interrupted, 9));
        match method {
            Krylov::Cg | Krylov::BiCgStab => assert_eq!(Some(x), last),
            // It also has the steps of the cycle that was broken off.
            Krylov::Gmres => assert_ne!(Some(x), last),
        }
    }
}
