//! Direct solves: answers in both precisions, every refusal, and singular patterns, which must not panic.

mod problems;

use std::sync::Arc;

use problems::{diagonal, matrix, relative_residual, stencil, uneven};
use spandrel_formats::{Csr, Triplets};
use spandrel_solvers::direct::{Factorable, Method};
use spandrel_solvers::{BackwardError, Direct, DirectOptions, Error, Status};

fn solves<T: Factorable>(rtol: f64) {
    for (convection, method) in [(0.0, Method::Llt), (0.4, Method::Lu)] {
        for k in [1, 2, 7, 40] {
            let a = stencil::<T>(k, convection);
            let method = if k == 1 { Method::Llt } else { method };
            let b: Vec<T> = uneven(k * k);
            let direct =
                Direct::new(a.clone(), &DirectOptions { rtol: Some(rtol), ..DirectOptions::default() }).unwrap();
            assert_eq!(direct.method(), method);
            assert!(!direct.fell_back() && direct.factor_bytes() > 0);
            let mut x = vec![T::from_f64(f64::NAN); k * k];
            let outcome = direct.solve(&b, &mut x).unwrap();
            assert_eq!(outcome.status, Status::Converged, "{outcome:?}");
            assert!((relative_residual(&a, &x, &b) - outcome.true_residual).abs() <= 0.5 * rtol);
        }
    }
}

#[test]
fn both_precisions_are_solved_to_their_accuracy() {
    solves::<f64>(1e-14);
    solves::<f32>(3e-6);
}

#[test]
fn every_factorisation_gives_the_same_answer() {
    let a = stencil::<f64>(12, 0.0);
    let b: Vec<f64> = uneven(144);
    let mut answers = Vec::new();
    for method in [Method::Llt, Method::Lu, Method::Qr] {
        for parallel in [true, false] {
            let options = DirectOptions { method: Some(method), parallel, ..DirectOptions::default() };
            let mut x = vec![0.0; 144];
            let outcome = Direct::new(a.clone(), &options).unwrap().solve(&b, &mut x).unwrap();
            assert_eq!(outcome.status, Status::Converged, "{method:?}");
            answers.push(x);
        }
    }
    for x in &answers {
        assert!(x.iter().zip(&answers[0]).all(|(x, y)| (x - y).abs() <= 1e-12), "{x:?}");
    }
}

#[test]
fn an_indefinite_symmetric_matrix_falls_back_to_lu_and_says_so() {
    let a = matrix::<f64>(2, 2, &[(0, 0, 1.0), (0, 1, 3.0), (1, 0, 3.0), (1, 1, 1.0)]);
    let direct = Direct::new(a.clone(), &DirectOptions::default()).unwrap();
    assert!(direct.fell_back() && direct.method() == Method::Lu);
    let mut x = [0.0; 2];
    let outcome = direct.solve(&[7.0, 5.0], &mut x).unwrap();
    assert_eq!(outcome.status, Status::Converged);
    assert!(outcome.note.is_some_and(|note| note.contains("lu was used")));
    assert!((x[0] - 1.0).abs() < 1e-14 && (x[1] - 2.0).abs() < 1e-14);
    let strict = DirectOptions { method: Some(Method::Llt), ..DirectOptions::default() };
    let refused = Direct::new(a.clone(), &strict).unwrap_err();
    assert!(matches!(refused, Error::ZeroPivot { method: "llt", .. }) && refused.status() == Some(Status::ZeroPivot));
}

#[test]
fn least_squares_leave_a_residual_orthogonal_to_the_columns() {
    // A line through (0, 1), (1, 3), (2, 4), (3, 4): intercept 1.5, slope 1.
    let a = matrix::<f64>(
        4,
        2,
        &[(0, 0, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (2, 1, 2.0), (3, 0, 1.0), (3, 1, 3.0)],
    );
    let direct = Direct::new(a.clone(), &DirectOptions::default()).unwrap();
    assert_eq!(direct.method(), Method::Qr);
    let mut x = [0.0; 2];
    let outcome = direct.solve(&[1.0, 3.0, 4.0, 4.0], &mut x).unwrap();
    assert!((x[0] - 1.5).abs() < 1e-13 && (x[1] - 1.0).abs() < 1e-13, "{x:?}");
    assert_eq!(outcome.status, Status::Converged);
    assert!((outcome.true_residual - (1.0f64 / 42.0).sqrt()).abs() < 1e-13, "{outcome:?}");
    let wide = matrix::<f64>(1, 2, &[(0, 0, 1.0), (0, 1, 1.0)]);
    let refused = Direct::new(wide, &DirectOptions::default());
    assert!(matches!(refused, Err(Error::Underdetermined { nrows: 1, ncols: 2 })));
}

#[test]
fn several_right_hand_sides_and_new_values() {
    let mut a = stencil::<f64>(9, 0.2);
    let b: Vec<f64> = uneven(3 * 81);
    let mut direct = Direct::new(a.clone(), &DirectOptions::default()).unwrap();
    let mut x = vec![0.0; 3 * 81];
    for factor in [1.0, 2.0] {
        for v in a.values_mut() {
            *v *= factor;
        }
        direct.refactor(a.values()).unwrap();
        let outcomes = direct.solve_many(3, &b, &mut x).unwrap();
        for (j, outcome) in outcomes.iter().enumerate() {
            let (x, b) = (&x[81 * j..81 * (j + 1)], &b[81 * j..81 * (j + 1)]);
            assert!(outcome.status.is_converged() && relative_residual(&a, x, b) <= 1e-14);
        }
    }
    assert!(matches!(direct.refactor(&[1.0]), Err(Error::Pattern { found: 1, .. })));
    assert!(matches!(direct.solve(&b, &mut x), Err(Error::Size { what: "b", .. })));
    let mut spd = Direct::new(stencil::<f64>(3, 0.0), &DirectOptions::default()).unwrap();
    let mut values = stencil::<f64>(3, 0.0).values().to_vec();
    values[1] = -0.5;
    assert!(matches!(spd.refactor(&values), Err(Error::Factor { method: "llt", .. })));
    assert!(matches!(spd.solve(&[0.0; 9], &mut [0.0; 9]), Err(Error::Factor { .. })));
}

#[test]
fn a_matrix_is_shared_until_its_values_change() {
    let a = Arc::new(stencil::<f64>(4, 0.0));
    let mut direct = Direct::new(Arc::clone(&a), &DirectOptions::default()).unwrap();
    assert_eq!(Arc::strong_count(&a), 2, "the solver keeps the caller's matrix and no copy of it");
    let twice: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    direct.refactor(&twice).unwrap();
    assert_eq!((Arc::strong_count(&a), a.values()[0]), (1, 4.0), "the caller's values are not touched");
    let (mut x, mut y) = ([0.0; 16], [0.0; 16]);
    assert!(direct.solve(&uneven::<f64>(16), &mut x).unwrap().status.is_converged());
    let anew = Direct::new(a, &DirectOptions::default()).unwrap();
    assert!(anew.solve(&uneven::<f64>(16), &mut y).unwrap().status.is_converged());
    assert!(x.iter().zip(&y).all(|(x, y)| 2.0 * x == *y), "a power of two changes no bit");
}

#[test]
fn a_zero_right_hand_side_and_extreme_ones() {
    let a = stencil::<f64>(6, 0.3);
    let direct = Direct::new(a.clone(), &DirectOptions::default()).unwrap();
    let mut x = [f64::NAN; 36];
    let outcome = direct.solve(&[0.0; 36], &mut x).unwrap();
    assert_eq!((outcome.status, outcome.true_residual, x), (Status::Converged, 0.0, [0.0; 36]));
    for size in [1e200, 1e-200] {
        let b: Vec<f64> = uneven(36).iter().map(|v: &f64| v * size).collect();
        let outcome = direct.solve(&b, &mut x).unwrap();
        assert!(outcome.status.is_converged() && outcome.true_residual < 1e-14, "{outcome:?}");
    }
    let mut b = [1.0; 36];
    b[7] = f64::NAN;
    assert_eq!(direct.solve(&b, &mut x).unwrap().status, Status::NotFinite);
}

#[test]
fn a_matrix_of_nothing_is_solved() {
    let empty = matrix::<f64>(0, 0, &[]);
    let outcome = Direct::new(empty, &DirectOptions::default()).unwrap().solve(&[], &mut []).unwrap();
    assert_eq!(outcome.status, Status::Converged);
    let no_columns = matrix::<f64>(3, 0, &[]);
    let outcome = Direct::new(no_columns, &DirectOptions::default()).unwrap().solve(&[1.0; 3], &mut []).unwrap();
    assert_eq!((outcome.status, outcome.true_residual), (Status::Converged, 1.0));
}

#[test]
fn entries_that_are_not_finite_are_named() {
    let mut a = stencil::<f64>(3, 0.0);
    let at = a.row_ptr()[4] as usize;
    a.values_mut()[at] = f64::INFINITY;
    let refused = Direct::new(a.clone(), &DirectOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::NotFinite { row: 4, column: 1, .. }), "{refused}");
    assert_eq!(refused.status(), Some(Status::NotFinite));
}

#[test]
fn a_factor_past_the_limit_is_refused_before_it_is_computed() {
    for (convection, method) in [(0.0, Method::Llt), (0.3, Method::Lu), (0.3, Method::Qr)] {
        let a = stencil::<f64>(30, convection);
        let options = DirectOptions { method: Some(method), memory_limit: 10_000, ..DirectOptions::default() };
        let refused = Direct::analyze(a.clone(), &options).unwrap_err();
        let Error::Fill { bytes, limit: 10_000, .. } = refused else { panic!("{refused}") };
        let enough = DirectOptions { memory_limit: bytes, ..options };
        assert!(
            Direct::new(a.clone(), &enough)
                .unwrap()
                .solve(&uneven::<f64>(900), &mut [0.0; 900])
                .unwrap()
                .status
                .is_converged()
        );
    }
}

#[test]
fn singular_matrices_are_typed() {
    let options = DirectOptions::default();
    for a in [
        diagonal::<f64>(&[1.0, 0.0, 2.0]),
        matrix(2, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0)]),
        matrix(2, 2, &[(0, 0, 1.0), (0, 1, 2.0)]),
        matrix(2, 2, &[(0, 0, 1.0), (1, 0, 2.0)]),
        // Three rows that share two columns.
        matrix(3, 3, &[(0, 0, 1.0), (1, 0, 2.0), (1, 1, 1.0), (2, 1, 3.0), (0, 2, 0.0), (2, 0, 5.0)]),
        // Rank one in the least-squares case.
        matrix(3, 2, &[(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 1.0), (2, 0, 1.0), (2, 1, 1.0)]),
    ] {
        let n = a.ncols();
        match Direct::new(a.clone(), &options) {
            Err(error) => assert_eq!(error.status(), Some(Status::ZeroPivot), "{error}"),
            // Rounding may hide the zero pivot. Then the answer must not be called converged.
            Ok(direct) => {
                let mut x = vec![0.0; n];
                let b: Vec<f64> = (0..a.nrows()).map(|i| 1.0 + i as f64).collect();
                let outcome = direct.solve(&b, &mut x).unwrap();
                assert!(a.nrows() > n || !outcome.status.is_converged(), "{outcome:?} {a:?}");
            }
        }
    }
}

#[test]
fn random_sparse_patterns_never_panic() {
    // A small generator, written here so that the cases stay the same. Many of these matrices are singular by their
    // pattern, by a repeated column, or by their small integers.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize) % bound
    };
    let (mut solved, mut refused) = (0, 0);
    for case in 0..700 {
        // The last hundred are large and full enough for the supernodal paths.
        let ncols = if case < 600 { 1 + next(12) } else { 60 + next(60) };
        let nrows = ncols + if case % 4 == 0 { next(5) } else { 0 };
        let mut triplets = Triplets::new(nrows, ncols).unwrap();
        let count = if case < 600 { nrows + next(3 * nrows) } else { 8 * nrows + next(20 * nrows) };
        let repeated = case % 5 == 0 && ncols > 1;
        for _ in 0..count {
            let (i, j, v) = (next(nrows), next(ncols), next(9) as f64 - 4.0);
            if repeated && j < 2 {
                triplets.push(i, 0, v).unwrap();
                triplets.push(i, 1, v).unwrap();
            } else {
                triplets.push(i, j, v).unwrap();
            }
        }
        let a: Csr<f64> = triplets.to_csr().unwrap();
        let square = nrows == ncols;
        let method = if square { [None, Some(Method::Lu), Some(Method::Qr)][case % 3] } else { None };
        match Direct::new(a.clone(), &DirectOptions { method, ..DirectOptions::default() }) {
            Ok(direct) => {
                let b: Vec<f64> = (0..nrows).map(|i| i as f64 - 2.5).collect();
                let mut x = vec![0.0; ncols];
                let outcome = direct.solve(&b, &mut x).unwrap();
                if square && outcome.status.is_converged() {
                    let truth = relative_residual(&a, &x, &b);
                    assert!(truth <= 1e-8, "{truth:e} {outcome:?} {x:?}");
                    solved += 1;
                }
            }
            Err(error) => {
                assert_eq!(error.status(), Some(Status::ZeroPivot), "{error}");
                refused += 1;
            }
        }
    }
    assert!(solved > 100 && refused > 100, "{solved} {refused}");
}

/// A matrix with repeatable values that are neither small nor large; some are negative.
fn scattered(n: usize, seed: u64) -> Csr<f64> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut triplets = Triplets::new(n, n).unwrap();
    for i in 0..n {
        triplets.push(i, (i * 7 + 3) % n, 1.0 + (next() % 8) as f64 / 8.0).unwrap();
        for _ in 0..3 {
            triplets.push(i, next() as usize % n, (next() % 16) as f64 / 16.0 - 0.5).unwrap();
        }
    }
    triplets.to_csr().unwrap()
}

fn dense_inverse_norm(a: &Csr<f64>) -> f64 {
    let n = a.nrows();
    let direct = Direct::new(a.clone(), &DirectOptions::default()).unwrap();
    let mut largest: f64 = 0.0;
    for j in 0..n {
        let (mut b, mut x) = (vec![0.0; n], vec![0.0; n]);
        b[j] = 1.0;
        let _ = direct.solve(&b, &mut x).unwrap();
        largest = largest.max(x.iter().map(|v| v.abs()).sum());
    }
    largest
}

#[test]
fn the_condition_number_is_estimated_from_below_and_not_far() {
    for (seed, n) in [(1, 10), (2, 40), (3, 90)] {
        let a = scattered(n, seed);
        let columns = a.transpose();
        let norm = (0..n).map(|j| columns.row(j).1.iter().map(|v| v.abs()).sum::<f64>()).fold(0.0, f64::max);
        let exact = norm * dense_inverse_norm(&a);
        let direct = Direct::new(a, &DirectOptions::default()).unwrap();
        let estimate = direct.condition().unwrap().unwrap();
        assert!(estimate <= exact * (1.0 + 1e-10) && estimate >= exact / 3.0, "{estimate:.3e} for {exact:.3e}");
    }
    let line = matrix::<f64>(2, 1, &[(0, 0, 1.0), (1, 0, 1.0)]);
    assert_eq!(Direct::new(line, &DirectOptions::default()).unwrap().condition().unwrap(), None);
}

#[test]
fn rows_and_columns_of_any_size_are_solved_to_the_same_accuracy() {
    let a = scattered(50, 5);
    for (rows, columns) in [(300, 0), (0, 20), (150, 20), (-300, 10)] {
        let mut scaled = a.clone();
        let (row_ptr, cols) = (a.row_ptr().to_vec(), a.col_idx().to_vec());
        for i in 0..50 {
            let range = row_ptr[i] as usize..row_ptr[i + 1] as usize;
            for (&j, v) in cols[range.clone()].iter().zip(&mut scaled.values_mut()[range]) {
                *v *= 2f64.powi(rows * (i as i32 % 3 - 1) + columns * (j as i32 % 2));
            }
        }
        let ones = vec![1.0; 50];
        let b: Vec<f64> = (0..50)
            .map(|i| scaled.row(i).0.iter().zip(scaled.row(i).1).map(|(&j, v)| v * ones[j as usize]).sum())
            .collect();
        let direct = Direct::new(scaled.clone(), &DirectOptions::default()).unwrap();
        let mut x = vec![0.0; 50];
        let outcome = direct.solve(&b, &mut x).unwrap();
        let error = outcome.backward_error.expect("a direct solve measures it");
        assert!(error.componentwise <= 1e-15, "{rows} {columns}: {error:?} {outcome}");
    }
}

#[test]
fn an_ill_conditioned_system_is_solved_to_rounding_and_says_so() {
    // Hilbert's matrix of order 12 has a condition number of about 1e16.
    let entries: Vec<_> = (0..144).map(|k| (k / 12, k % 12, 1.0 / (1 + k / 12 + k % 12) as f64)).collect();
    let a = matrix::<f64>(12, 12, &entries);
    let options = DirectOptions { rtol: Some(1e-18), method: Some(Method::Lu), ..DirectOptions::default() };
    let direct = Direct::new(a.clone(), &options).unwrap();
    let mut x = [0.0; 12];
    let outcome = direct.solve(&[1.0; 12], &mut x).unwrap();
    assert_eq!(outcome.status, Status::BackwardStable, "{outcome}");
    let error = outcome.backward_error.unwrap();
    assert!(error.normwise <= 64.0 * f64::EPSILON / 2.0 && error == BackwardError::of(&a, &[1.0; 12], &x));
    let condition = outcome.condition.unwrap();
    assert!((1e15..1e18).contains(&condition), "{condition:e}");
    let text = outcome.to_string();
    assert!(text.starts_with("solved to rounding") && text.contains("condition number about "), "{text}");
    assert!(outcome.require_converged().is_err());
}

#[test]
fn a_singular_system_with_an_answer_is_solved_regularised() {
    // A path's Laplacian: the constants are its null space, and b sums to zero.
    let n = 30;
    let mut entries = Vec::new();
    for i in 0..n {
        entries.push((i, i, (usize::from(i > 0) + usize::from(i + 1 < n)) as f64));
        if i > 0 {
            entries.extend([(i, i - 1, -1.0), (i - 1, i, -1.0)]);
        }
    }
    let a = matrix::<f64>(n, n, &entries);
    let options = DirectOptions { regularization: 1e-8, refinements: 12, ..DirectOptions::default() };
    let direct = Direct::new(a.clone(), &options).unwrap();
    let b: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let mut x = vec![0.0; n];
    let outcome = direct.solve(&b, &mut x).unwrap();
    assert_eq!(outcome.status, Status::Converged, "{outcome}");
    assert!(relative_residual(&a, &x, &b) <= 1e-12);
    // b is constant, so its sum is not zero, and no x solves the system. What is left is orthogonal to the columns.
    let outcome = direct.solve(&vec![1.0; n], &mut x).unwrap();
    assert!(!outcome.status.is_converged() && outcome.true_residual > 0.99, "{outcome}");
    // The sum of all equations is 0 on the left and n on the right.
    let (weights, share) = direct.vanishing_combination(&vec![1.0; n]).unwrap().expect("a combination");
    assert!(weights.iter().all(|w| (w - 1.0).abs() < 1e-10) && (share - 1.0).abs() < 1e-12, "{share}");
    let sound = Direct::new(stencil::<f64>(5, 0.0), &DirectOptions::default()).unwrap();
    assert_eq!(sound.vanishing_combination(&[1.0; 25]).unwrap(), None);
}

#[test]
fn a_combination_of_rows_that_are_no_multiples_is_found() {
    // Row 2 is the sum of rows 0 and 1, in a matrix that is not symmetric.
    let a = matrix::<f64>(
        4,
        4,
        &[
            (0, 0, 1.0),
            (0, 1, 2.0),
            (1, 1, 1.0),
            (1, 2, 4.0),
            (2, 0, 1.0),
            (2, 1, 3.0),
            (2, 2, 4.0),
            (3, 3, 5.0),
            (3, 0, 1.0),
        ],
    );
    let options = DirectOptions { regularization: 1.1e-8, refinements: 12, ..DirectOptions::default() };
    let direct = Direct::new(a, &options).unwrap();
    let (weights, share) = direct.vanishing_combination(&[1.0, 1.0, 1.0, 1.0]).unwrap().expect("a combination");
    let sign = weights[2].signum();
    for (weight, expected) in weights.iter().zip([-1.0, -1.0, 1.0, 0.0]) {
        assert!((weight * sign - expected).abs() < 1e-12, "{weights:?}");
    }
    assert!((share.abs() - 1.0 / 12f64.sqrt()).abs() < 1e-12, "{share}");
    let (_, share) = direct.vanishing_combination(&[1.0, 2.0, 3.0, 1.0]).unwrap().expect("a combination");
    assert!(share.abs() < 1e-12, "{share}");
}
