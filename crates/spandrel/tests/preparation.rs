//! What a solver does to a matrix before an iteration and undoes afterwards: scaling, matching, renumbering, a known
//! null space. Also least squares.

use spandrel::any::Choice;
use spandrel::formats::{Csr, generate};
use spandrel::solver::{Builder, NullVectors, Reorder, Scale};
use spandrel::solvers::{Error, Method, Precond, Status};
use spandrel::{Solution, Solver};

fn on_cpu() -> Builder {
    Solver::builder().device(Choice::Cpu)
}

/// ||b - A x|| / ||b||, by plain sums.
fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let row = |i: usize| b[i] - a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum::<f64>();
    let norm = |sum: f64| sum.sqrt();
    norm((0..a.nrows()).map(|i| row(i).powi(2)).sum()) / norm(b.iter().map(|b| b * b).sum())
}

#[track_caller]
fn converged(a: &Csr<f64>, b: &[f64], builder: Builder) -> Solution<f64> {
    let mut solver = builder.build(a.clone()).expect("a solver");
    let solution = solver.solve(b).expect("a solve");
    assert!(solution.outcome.status.is_converged(), "{} {}", solver.plan(), solution.outcome);
    assert!(residual(a, b, &solution.x) <= 1.01e-8, "{:e}", residual(a, b, &solution.x));
    solution
}

/// A convection-diffusion matrix with its rows rotated, so that it stores no diagonal entry, and multiplied by powers
/// of ten.
fn rotated(powers: i32) -> (Csr<f64>, Vec<f64>) {
    let a: Csr<f64> = generate::csr("convdiff2d:24,peclet=1").expect("a matrix");
    let n = a.nrows();
    let power = |i: usize| 10f64.powi((i as i32 * 7) % (2 * powers + 1) - powers);
    let entries = (0..n).flat_map(|i| {
        let from = (i + n / 2) % n;
        let (cols, values) = a.row(from);
        cols.iter().zip(values).map(|(&j, &v)| (i, j as usize, v * power(i))).collect::<Vec<_>>()
    });
    let moved = Csr::from_triplets(n, n, entries).expect("a matrix");
    (moved, (0..n).map(power).collect())
}

#[test]
fn a_matching_makes_an_iteration_of_a_matrix_without_a_diagonal() {
    let (a, b) = rotated(0);
    let plain = on_cpu().method(Method::BiCgStab).preconditioner(Precond::Ilu0).build(a.clone());
    assert!(plain.is_err() || !plain.expect("a solver").solve(&b).expect("a solve").outcome.status.is_converged());
    let matched = converged(&a, &b, on_cpu().method(Method::BiCgStab).scale(Scale::Match));
    assert!(matched.outcome.iterations < 60, "{}", matched.outcome);
    assert!(matches!(matched.preconditioner, Precond::Ilut(_)));
    // Also renumbered, in the other methods and precisions.
    for builder in [
        on_cpu().method(Method::Gmres),
        on_cpu().method(Method::BiCgStab).preconditioner(Precond::Ilu0),
        on_cpu().method(Method::BiCgStab).preconditioner(Precond::Ilu0).precision(spandrel::solver::Precision::Mixed),
    ] {
        let _ = converged(&a, &b, builder.scale(Scale::Match));
    }
}

#[test]
fn equilibration_serves_rows_of_all_sizes_and_keeps_symmetry() {
    // Each row is scaled, and b with it, so the answer stays the same.
    let a: Csr<f64> = generate::csr("poisson2d:30").expect("a matrix");
    let n = a.nrows();
    let size = |i: usize| 2f64.powi((i as i32 * 13) % 241 - 120);
    let scaled = |rows: bool, cols: bool| {
        let entries = (0..n).flat_map(|i| {
            let (columns, values) = a.row(i);
            let by = move |j: usize| if rows { size(i) } else { 1.0 } * if cols { size(j) } else { 1.0 };
            columns.iter().zip(values).map(|(&j, &v)| (i, j as usize, v * by(j as usize))).collect::<Vec<_>>()
        });
        Csr::from_triplets(n, n, entries).expect("a matrix")
    };
    let sizes: Vec<f64> = (0..n).map(size).collect();
    let solver = on_cpu().method(Method::BiCgStab).build(scaled(true, false)).expect("a solver");
    assert_eq!(solver.plan().scale, Scale::Equilibrate, "{}", solver.plan());
    assert!(
        solver
            .plan()
            .to_string()
            .contains("equilibrate (the largest entries of its rows or columns differ by a factor of 2^240)"),
        "{}",
        solver.plan()
    );
    let _ = converged(&scaled(true, false), &sizes, on_cpu().method(Method::BiCgStab));
    // D A D stays symmetric. CG with IC(0) solves it, in as many iterations as without D.
    let symmetric = scaled(true, true);
    assert!(symmetric.is_symmetric());
    let before = converged(&a, &vec![1.0; n], on_cpu().method(Method::Cg));
    let after = converged(&symmetric, &sizes, on_cpu().method(Method::Cg).scale(Scale::Equilibrate));
    assert!(after.outcome.iterations <= 2 * before.outcome.iterations, "{}", after.outcome);
    // No scaling if it is named so, and for a matrix that needs none.
    let off = on_cpu().method(Method::Cg).scale(Scale::None).build(symmetric).expect("a solver");
    assert_eq!(off.plan().scale, Scale::None);
    assert_eq!(Solver::new(a).expect("a solver").plan().scale, Scale::None);
}

#[test]
fn a_scaled_solver_takes_new_values_and_has_the_same_bits_on_any_number_of_threads() {
    let (a, b) = rotated(30);
    let solve = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            let device = spandrel::Cpu::with_threads(threads).expect("a device");
            let builder = Solver::builder().method(Method::BiCgStab).scale(Scale::Match);
            let mut solver = builder.build_on(&device, a.clone()).expect("a solver");
            let first = solver.solve(&device, &b).expect("a solve");
            let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
            solver.update_values(&device, &doubled).expect("new values");
            let second = solver.solve(&device, &b).expect("a solve");
            assert!(first.outcome.status.is_converged() && second.outcome.status.is_converged());
            assert!(first.x.iter().zip(&second.x).all(|(x, y)| (x - 2.0 * y).abs() <= 1e-6 * x.abs().max(1e-3)));
            (first.x, second.x)
        })
    };
    let one = solve(1);
    assert_eq!(one, solve(2));
    assert_eq!(one, solve(3));
}

#[test]
fn what_contradicts_a_scaling_is_refused() {
    let a: Csr<f64> = generate::csr("poisson2d:8").expect("a matrix");
    let refused = |builder: Builder, words: &str| {
        let why = builder.build(a.clone()).expect_err("refused").to_string();
        assert!(why.contains(words), "{why}");
    };
    refused(on_cpu().method(Method::Cg).scale(Scale::Match), "no longer symmetric");
    refused(on_cpu().method(Method::Direct).scale(Scale::Match), "scales by its own rules");
    refused(on_cpu().null_space(NullVectors::Constant).method(Method::Direct), "null space");
    refused(on_cpu().least_squares(true).method(Method::Gmres), "least squares");
    let hollow = Csr::from_triplets(3, 3, [(0, 0, 1.0), (1, 0, 1.0), (2, 2, 1.0)]).expect("a matrix");
    let why = on_cpu().method(Method::Gmres).scale(Scale::Match).build(hollow).expect_err("refused").to_string();
    assert!(why.contains("no matching"), "{why}");
}

#[test]
fn a_large_matrix_in_random_order_is_renumbered_and_others_are_not() {
    let n = 150_000;
    // A path whose vertices are numbered at random.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&i| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) >> 3, i));
    let entries = (0..n).flat_map(|k| {
        let i = order[k];
        let before = (k > 0).then(|| (i, order[k - 1], -1.0));
        let after = (k + 1 < n).then(|| (i, order[k + 1], -1.0));
        [Some((i, i, 2.5)), before, after].into_iter().flatten().collect::<Vec<_>>()
    });
    let a = Csr::from_triplets(n, n, entries).expect("a matrix");
    let solver = on_cpu().method(Method::Cg).build(a.clone()).expect("a solver");
    assert_eq!(solver.plan().reorder, Reorder::Bfs, "{}", solver.plan());
    assert!(solver.plan().to_string().contains("times nearer to the diagonal"), "{}", solver.plan());
    let _ = converged(&a, &vec![1.0; n], on_cpu().method(Method::Cg));
    #[cfg(feature = "sprs")]
    {
        let (hollow, b) = rotated(0);
        let _ = converged(&hollow, &b, on_cpu().method(Method::Gmres).reorder(Reorder::Rcm).scale(Scale::Match));
    }
    // Errors name entries in the matrix's own numbering, the first of them.
    let mut wrong = a.clone();
    for row in [140_000, 7] {
        let at = wrong.row_ptr()[row] as usize;
        wrong.values_mut()[at] = f64::NAN;
    }
    let column = wrong.row(7).0[0] as usize;
    let found = on_cpu().method(Method::Cg).build(wrong).map(drop);
    assert!(matches!(found, Err(Error::NotFinite { row: 7, column: at, .. }) if at == column), "{found:?}");
    let named = on_cpu().method(Method::Cg).reorder(Reorder::None).build(a).expect("a solver");
    assert_eq!(named.plan().reorder, Reorder::None);
    let grid: Csr<f64> = generate::csr("poisson2d:400").expect("a matrix");
    assert_eq!(on_cpu().method(Method::Cg).build(grid).expect("a solver").plan().reorder, Reorder::None);
}

/// The Laplacian of a grid without boundary values: rows sum to zero.
fn neumann(n: usize) -> Csr<f64> {
    let at = |i: usize, j: usize| i * n + j;
    let entries = (0..n * n).flat_map(|k| {
        let (i, j) = (k / n, k % n);
        let near = [
            (i > 0).then(|| at(i - 1, j)),
            (i + 1 < n).then(|| at(i + 1, j)),
            (j > 0).then(|| at(i, j - 1)),
            (j + 1 < n).then(|| at(i, j + 1)),
        ];
        let near: Vec<usize> = near.into_iter().flatten().collect();
        let diagonal = (k, k, near.len() as f64);
        near.into_iter().map(move |other| (k, other, -1.0)).chain([diagonal]).collect::<Vec<_>>()
    });
    Csr::from_triplets(n * n, n * n, entries).expect("a matrix")
}

#[test]
fn a_known_null_space_is_projected_out() {
    let a = neumann(20);
    let b: Vec<f64> = (0..400).map(|k| if k % 2 == 0 { 1.0 } else { -1.0 }).collect();
    for precond in [None, Some(Precond::Jacobi), Some(Precond::None)] {
        let solution = converged(&a, &b, on_cpu().null_space(NullVectors::Constant).preconditioner(precond));
        assert_eq!(solution.method, Method::Cg);
        let mean = solution.x.iter().sum::<f64>() / 400.0;
        assert!(mean.abs() < 1e-12, "{mean:e}");
    }
    let mut solver = on_cpu().null_space(NullVectors::Constant).build(a).expect("a solver");
    let outcome = solver.solve(&[1.0; 400]).expect("a solve").outcome;
    assert_eq!(outcome.status, Status::Inconsistent, "{outcome}");
}

#[test]
fn least_squares_are_solved_for_any_rank_and_shape() {
    // Inconsistent and singular: rows 0 and 1 are equal, but b differs there. The nearest x reaches the mean of the
    // two.
    let square =
        Csr::from_triplets(3, 3, [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 1.0), (1, 1, 2.0), (2, 2, 4.0)]).expect("a matrix");
    let solve = |a: &Csr<f64>, b: &[f64]| {
        let mut solver = on_cpu().least_squares(true).build(a.clone()).expect("a solver");
        let solution = solver.solve(b).expect("a solve");
        assert_eq!(
            (solution.outcome.status, solution.method),
            (Status::Converged, Method::Direct),
            "{}",
            solution.outcome
        );
        solution.x
    };
    let near = |found: &[f64], wanted: &[f64]| {
        assert!(found.iter().zip(wanted).all(|(x, y)| (x - y).abs() < 1e-4), "{found:?} {wanted:?}");
    };
    // Of all x with (1, 2) x = 4, the one of least x_1^2 + (2 x_2)^2.
    near(&solve(&square, &[3.0, 5.0, 8.0]), &[2.0, 1.0, 2.0]);
    let wide = Csr::from_triplets(1, 3, [(0, 0, 1.0), (0, 1, 2.0), (0, 2, 2.0)]).expect("a matrix");
    near(&solve(&wide, &[9.0]), &[3.0, 1.5, 1.5]);
    let tall = Csr::from_triplets(3, 2, [(0, 0, 1.0), (1, 0, 1.0), (2, 0, 1.0)]).expect("a matrix");
    near(&solve(&tall, &[1.0, 2.0, 6.0]), &[3.0, 0.0]);
    let mut many = on_cpu().least_squares(true).build(square).expect("a solver");
    let both = many.solve_many(&[3.0, 5.0, 8.0, 0.0, 0.0, 4.0]).expect("two solves");
    near(&both.x, &[2.0, 1.0, 2.0, 0.0, 0.0, 1.0]);
}

#[test]
fn the_range_of_numbers_stops_no_method() {
    let a: Csr<f64> = generate::csr("convdiff2d:16,peclet=1").expect("a matrix");
    let b = vec![1.0; a.nrows()];
    for exponent in [-500, -300, 300, 500] {
        let values = a.values().iter().map(|v| v * 2f64.powi(exponent)).collect();
        let scaled =
            Csr::new(a.nrows(), a.ncols(), a.row_ptr().to_vec(), a.col_idx().to_vec(), values).expect("a matrix");
        for method in [Method::BiCgStab, Method::Gmres] {
            for precond in [Precond::None, Precond::Jacobi] {
                for scale in [None, Some(Scale::None)] {
                    let _ = converged(&scaled, &b, on_cpu().method(method).preconditioner(precond).scale(scale));
                }
            }
        }
    }
}

#[test]
fn entries_near_the_end_of_their_range_are_scaled_in_either_precision() {
    // Squares of products with such a matrix leave the range of the type, and so do the scalars of BiCGStab.
    let a: Csr<f64> = generate::csr("convdiff2d:12,peclet=1").expect("a matrix");
    let bicgstab = || Solver::builder().device(Choice::Cpu).method(Method::BiCgStab).preconditioner(Precond::None);
    for power in [-600, -300, 300, 600] {
        let scaled = a.map(|v| v * 2f64.powi(power));
        let mut solver = bicgstab().build(scaled).expect("a solver");
        let solution = solver.solve(&[1.0; 144]).expect("a solve");
        assert_eq!(solution.outcome.status, Status::Converged, "2^{power}: {}", solution.outcome);
        assert_eq!(solver.plan().scale, Scale::Equilibrate, "2^{power}");
    }
    for power in [-80, 70, 100] {
        let scaled = a.map(|v| v as f32 * 2f32.powi(power));
        let mut solver = bicgstab().build(scaled).expect("a solver");
        let solution = solver.solve(&[1.0f32; 144]).expect("a solve");
        assert_eq!(solution.outcome.status, Status::Converged, "2^{power} in f32: {}", solution.outcome);
        assert_eq!(solver.plan().scale, Scale::Equilibrate, "2^{power} in f32");
    }
}
