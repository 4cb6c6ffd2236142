//! Every way to fail is provoked, and its status is checked. `converged` refers only to the true residual.

mod problems;

use problems::{ALL, Krylov, diagonal, drift, honest, judged, matrix, norm, solve, solve_from, stencil, uneven};
use spandrel_backend::Quantity;
use spandrel_backend_cpu::Cpu;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::{Identity, Jacobi, Options, Outcome, Status};

#[test]
fn cg_names_an_indefinite_matrix() {
    let be = Cpu::new();
    let (outcome, x) =
        solve(&be, Krylov::Cg, &diagonal::<f64>(&[1.0, -3.0, 1.0]), &[1.0, 1.0, 1.0], &Options::default());
    assert_eq!((outcome.status, outcome.iterations), (Status::IndefiniteMatrix, 0));
    assert_eq!(outcome.breakdown, Some((Quantity::Curvature, 0)));
    assert_eq!((x, outcome.true_residual), (vec![0.0; 3], 1.0));
    // p'Ap = 1 > 0 at first; the second direction finds the negative eigenvalue.
    let (outcome, _) = solve(&be, Krylov::Cg, &diagonal::<f64>(&[3.0, -1.0, 0.5]), &[1.0; 3], &Options::default());
    assert_eq!((outcome.status, outcome.breakdown), (Status::IndefiniteMatrix, Some((Quantity::Curvature, 1))));
}

#[test]
fn cg_names_an_indefinite_preconditioner() {
    let be = Cpu::new();
    let a = matrix::<f64>(
        3,
        3,
        &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 2.0), (1, 2, 1.0), (2, 1, 1.0), (2, 2, 2.0)],
    );
    let at_once = Jacobi::new(&be, &diagonal::<f64>(&[-1.0, -1.0, -1.0])).unwrap();
    let (outcome, _) = solve_from(&be, Krylov::Cg, &a, &at_once, &[1.0, 1.0, 0.0], &[], &Options::default());
    assert_eq!(outcome.status, Status::IndefinitePreconditioner);
    assert_eq!(outcome.breakdown, Some((Quantity::PreconditionedResidual, 0)));
    // The first residual has no part in the negative direction; the second has.
    let later = Jacobi::new(&be, &diagonal::<f64>(&[1.0, 1.0, -0.01])).unwrap();
    let (outcome, _) = solve_from(&be, Krylov::Cg, &a, &later, &[1.0, 1.0, 0.0], &[], &Options::default());
    assert_eq!(outcome.status, Status::IndefinitePreconditioner);
    assert_eq!(outcome.breakdown, Some((Quantity::PreconditionedResidual, 1)));
}

#[test]
fn bicgstab_is_restarted_where_its_shadow_fails_it() {
    let be = Cpu::new();
    let options = Options::default();
    // r'Ar = 0, so r0'v = 0 at once.
    let exchange = matrix::<f64>(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    let (outcome, x) = solve(&be, Krylov::BiCgStab, &exchange, &[1.0, 0.0], &options);
    assert_eq!((outcome.status, outcome.restarts), (Status::Converged, 1), "{outcome:?}");
    assert_eq!(outcome.breakdown, Some((Quantity::ShadowDirection, 0)));
    assert_eq!(x, [0.0, 1.0]);
    // s = (0, 1) with s'As = 0: omega = 0 in the first iteration.
    let a = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, -1.0)]);
    let (outcome, x) = solve(&be, Krylov::BiCgStab, &a, &[1.0, 0.0], &options);
    assert_eq!(outcome.status, Status::Converged, "{outcome:?}");
    assert!(outcome.restarts >= 1 && outcome.breakdown.is_some());
    honest(&a, &x, &[1.0, 0.0], &outcome);
    // r0'r = 0 after the first iteration.
    let a = matrix::<f64>(3, 3, &[(0, 0, 1.0), (1, 2, 1.0), (2, 0, 1.0), (2, 1, 1.0), (2, 2, 1.0)]);
    let (outcome, x) = solve(&be, Krylov::BiCgStab, &a, &[1.0, 0.0, 0.0], &options);
    assert_eq!(outcome.status, Status::Converged, "{outcome:?}");
    assert!(outcome.restarts >= 1);
    honest(&a, &x, &[1.0, 0.0, 0.0], &outcome);
}

#[test]
fn bicgstab_without_restarts_names_the_scalar() {
    let be = Cpu::new();
    let options = Options { max_restarts: 0, ..Options::default() };
    let rho = matrix::<f64>(3, 3, &[(0, 0, 1.0), (1, 2, 1.0), (2, 0, 1.0), (2, 1, 1.0), (2, 2, 1.0)]);
    let omega = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, -1.0)]);
    let shadow = matrix::<f64>(2, 2, &[(0, 1, 1.0), (1, 0, 1.0)]);
    // s = (-1, 1) is in the null space: t = 0.
    let stabilizer = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 1.0)]);
    for (a, b, quantity, iterations) in [
        (&rho, vec![1.0, 0.0, 0.0], Quantity::Rho, 1),
        (&omega, vec![1.0, 0.0], Quantity::Omega, 1),
        (&shadow, vec![1.0, 0.0], Quantity::ShadowDirection, 0),
        (&stabilizer, vec![1.0, 1.0], Quantity::Stabilizer, 1),
    ] {
        let (outcome, x) = solve(&be, Krylov::BiCgStab, a, &b, &options);
        assert_eq!(outcome.status, Status::Breakdown, "{outcome:?}");
        assert_eq!(outcome.breakdown, Some((quantity, iterations)));
        assert_eq!((outcome.iterations, outcome.history.len()), (iterations, iterations + 1), "{quantity:?}");
        honest(a, &x, &b, &outcome);
    }
}

#[test]
fn a_system_that_no_restart_mends_ends_as_breakdown() {
    let be = Cpu::new();
    // No solution exists: the residual cannot fall below the part of b outside the range.
    let a = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]);
    for check_every in [1, 16] {
        let options = Options { check_every, ..Options::default() };
        let (outcome, x) = solve(&be, Krylov::BiCgStab, &a, &[2.0, 0.0], &options);
        // The range is spanned by (1, 1); b is ||b|| / sqrt(2) away from it.
        let (_, allowed) = judged(&a, &x, &[2.0, 0.0]);
        let nearest = std::f64::consts::FRAC_1_SQRT_2 - allowed;
        assert!(!outcome.status.is_converged() && outcome.true_residual >= nearest, "{outcome:?}");
        assert!(outcome.restarts <= options.max_restarts);
    }
}

#[test]
fn a_lucky_breakdown_is_convergence() {
    let be = Cpu::new();
    for method in ALL {
        // The residual is exactly zero after one step, and so would be every later scalar.
        for b in [vec![3.0, 0.0, 0.0], vec![0.0, 5.0, 0.0]] {
            let (outcome, _) = solve(
                &be,
                method,
                &diagonal::<f64>(&[2.0, 4.0, 8.0]),
                &b,
                &Options { rtol: Some(0.0), ..Options::default() },
            );
            assert_eq!((outcome.status, outcome.true_residual), (Status::Converged, 0.0), "{method:?}");
            assert_eq!(outcome.breakdown, None);
        }
    }
}

#[test]
fn divergence_is_said() {
    let be = Cpu::new();
    // BiCGStab overshoots on a strongly rotating matrix, and a limit close to the start reports it.
    let a = stencil::<f64>(20, 30.0);
    let options = Options { divergence: 1.0001, ..Options::default() };
    let (outcome, x) = solve(&be, Krylov::BiCgStab, &a, &uneven(400), &options);
    assert_eq!(outcome.status, Status::Diverged, "{outcome:?}");
    assert!(outcome.residual > 1.0 && x.iter().all(|x| x.is_finite()));
}

/// Checks the true residual of a solve that stagnated: it is at most what the last recurrence claimed, plus the
/// distance that the recurrence can have drifted from the truth. The last segment begins close to x, so twice ||x||
/// bounds its iterates. BiCGStab updates twice in an iteration.
fn attainable<T: Real>(method: Krylov, x: &[T], b: &[T], outcome: &Outcome) {
    let steps = if method == Krylov::Cg { outcome.iterations } else { 2 * outcome.iterations };
    let most = outcome.residual + drift(steps, 2.0 * norm(x), norm(b), b);
    assert!(outcome.true_residual <= most, "{method:?}: at most {most:e}, found {outcome:?}");
}

#[test]
fn bicgstab_ends_typed_on_a_matrix_whose_products_underflow() {
    // A has entries of 1e-25 in f32. So r0'v and t's are about 1e-25, and t't is about 1e-50, below the smallest
    // subnormal.
    let be = Cpu::new();
    let mut tiny: Csr<f32> = stencil(8, 0.2);
    tiny.values_mut().iter_mut().for_each(|v| *v *= 1e-25);
    for size in [1.0f32, 1e-20] {
        let b: Vec<f32> = uneven::<f32>(64).iter().map(|v| v * size).collect();
        let (outcome, _) = solve(&be, Krylov::BiCgStab, &tiny, &b, &Options { rtol: Some(1e-4), ..Options::default() });
        assert_eq!(outcome.status, Status::Breakdown, "{outcome:?}");
        assert_eq!(outcome.breakdown, Some((Quantity::Stabilizer, outcome.iterations)), "{outcome:?}");
        assert!(outcome.true_residual.is_finite());
    }
}

#[test]
fn what_f32_cannot_reach_is_stagnated_not_converged() {
    let be = Cpu::new();
    // Condition about 10^4: the attainable residual is far above 10^-12.
    let a = stencil::<f32>(60, 0.0);
    let b: Vec<f32> = uneven(3600);
    for method in ALL {
        let options = Options { rtol: Some(1e-12), ..Options::default() };
        let (outcome, x) = solve(&be, method, &a, &b, &options);
        assert_eq!(outcome.status, Status::Stagnated, "{method:?} {outcome:?}");
        assert!(outcome.restarts >= 1 && outcome.true_residual > 1e-12);
        honest(&a, &x, &b, &outcome);
        attainable(method, &x, &b, &outcome);
    }
}

#[test]
fn a_recurrence_that_runs_ahead_of_the_truth_is_caught_and_mended() {
    let be = Cpu::new();
    let a = stencil::<f64>(30, 0.0);
    let b: Vec<f64> = uneven(900);
    let guess: Vec<f64> = b.iter().map(|v| 1e10 * v).collect();
    // GMRES is left out: its recurrence ends with the cycle.
    for method in [Krylov::Cg, Krylov::BiCgStab] {
        let options = Options { rtol: Some(1e-13), max_restarts: 0, ..Options::default() };
        let (hasty, x) = solve_from(&be, method, &a, &Identity, &b, &guess, &options);
        assert_eq!(hasty.status, Status::Stagnated, "{method:?} {hasty:?}");
        assert!(hasty.true_residual > options.rtol_for::<f64>());
        honest(&a, &x, &b, &hasty);
        let options = Options { rtol: Some(1e-13), ..Options::default() };
        let (mended, x) = solve_from(&be, method, &a, &Identity, &b, &guess, &options);
        assert_eq!(mended.status, Status::Converged, "{method:?} {mended:?}");
        assert!(mended.restarts >= 1 && mended.true_residual <= options.rtol_for::<f64>());
        honest(&a, &x, &b, &mended);
    }
}

#[test]
fn nothing_asked_of_the_residual_still_ends() {
    // rtol = 0 is out of reach in general. The solve must end, and not as converged unless the residual is exactly
    // zero.
    let be = Cpu::new();
    for method in ALL {
        let options = Options { rtol: Some(0.0), ..Options::default() };
        let (outcome, x) = solve(&be, method, &stencil::<f64>(15, 0.0), &uneven(225), &options);
        assert_eq!(outcome.status == Status::Converged, outcome.true_residual == 0.0);
        attainable(method, &x, &uneven(225), &outcome);
        assert!(outcome.iterations < 20 * 225);
    }
}

#[test]
fn the_words_are_those_of_the_program() {
    let words: Vec<String> = Status::ALL.iter().map(|status| status.to_string()).collect();
    insta::assert_snapshot!(words.join("\n"));
}

#[test]
fn an_unknown_that_nothing_determines_is_never_given_as_nan_or_infinite() {
    // The third column is empty, so no residual sees the third unknown.
    let be = Cpu::new();
    fn check<T: Real>(be: &Cpu) {
        let one = T::from_f64(1.0);
        let a = matrix::<T>(3, 3, &[(0, 1, 1.0), (1, 0, 1.0)]);
        let b = [one, T::zero(), one];
        for krylov in ALL {
            let (outcome, x) = solve(be, krylov, &a, &b, &Options::default());
            assert!(!outcome.status.is_converged(), "{outcome:?}");
            let is_finite = x.iter().all(|v| v.is_finite());
            assert!(is_finite || outcome.status == Status::NotFinite, "{krylov:?}: {x:?} {outcome:?}");
        }
    }
    check::<f64>(&be);
    check::<f32>(&be);
}
