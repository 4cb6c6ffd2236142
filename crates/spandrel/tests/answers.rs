//! Systems whose defect is known: default settings end in an answer, or in a reason that names the defect.

use spandrel::any::Choice;
use spandrel::formats::{Csr, generate};
use spandrel::solvers::{Method, Status};
use spandrel::{Solution, Solver};

fn solver(a: &Csr<f64>) -> Solver {
    Solver::builder().device(Choice::Cpu).build(a.clone()).expect("a solver")
}

fn solved(a: &Csr<f64>, b: &[f64]) -> Solution<f64> {
    solver(a).solve(b).expect("a solve")
}

/// ||b - A x|| / ||b||, by plain sums.
fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> f64 {
    let row = |i: usize| b[i] - a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum::<f64>();
    let norm = |sum: f64| sum.sqrt();
    norm((0..a.nrows()).map(|i| row(i).powi(2)).sum()) / norm(b.iter().map(|b| b * b).sum())
}

/// A band with a dominant diagonal and the entry (i, j) replaced by `change`; entries that become zero are not stored.
fn band(n: usize, change: impl Fn(usize, usize, f64) -> f64) -> Csr<f64> {
    let entry = |i: usize, j: usize| match i.abs_diff(j) {
        0 => 4.0 + (i % 3) as f64,
        1 => -1.0,
        3 => 0.5 + (i % 2) as f64 / 4.0,
        _ => 0.0,
    };
    let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    Csr::from_triplets(n, n, all.map(|(i, j)| (i, j, change(i, j, entry(i, j)))).filter(|&(_, _, v)| v != 0.0))
        .expect("a matrix")
}

#[track_caller]
fn told(a: &Csr<f64>, b: &[f64], status: Status, words: &str) {
    let solution = solved(a, b);
    assert_eq!(solution.outcome.status, status, "{:?} {}", solution.note, solution.outcome);
    let note = solution.note.unwrap_or_default();
    assert!(note.contains(words), "{note}");
    if status == Status::Converged {
        assert!(residual(a, b, &solution.x) <= 1.1e-8);
    }
}

#[test]
fn a_defect_is_told_by_its_rows() {
    let n = 40;
    let ones = vec![1.0; n];
    let empty_row = band(n, |i, _, v| if i == 16 { 0.0 } else { v });
    told(&empty_row, &ones, Status::Inconsistent, "row 17 is empty, but b is 1 there");
    let empty_column = band(n, |_, j, v| if j == 5 { 0.0 } else { v });
    let solution = solved(&empty_column, &ones);
    assert!(!solution.outcome.status.is_converged() && solution.x.iter().all(|x| x.is_finite()), "{solution:?}");
    assert!(solution.note.expect("a reason").contains("column 6 is empty"));
    let rows_of = |i: usize| if i == 39 { 16 } else { i };
    let equal = band(n, |_, _, v| v);
    let entry = |i: usize, j: usize| equal.get(rows_of(i), j).unwrap_or(0.0);
    let equal = band(n, |i, j, _| entry(i, j));
    told(&equal, &ones, Status::Converged, "rows 17 and 40 are equal, but this b has an answer");
    let mut apart = ones.clone();
    apart[39] = 2.0;
    told(&equal, &apart, Status::Inconsistent, "row 40 is equal to row 17, but b is 2 there instead of 1");
    // Three columns within two rows.
    let narrow = band(n, |i, j, v| {
        if [3, 10, 20].contains(&j) && ![7, 30].contains(&i) {
            0.0
        } else {
            v + f64::from(u8::from([3, 10, 20].contains(&j)))
        }
    });
    let solution = solved(&narrow, &ones);
    assert!(!solution.outcome.status.is_converged());
    assert!(solution.note.expect("a reason").contains("has rank 39 of 40 at most"));
}

#[test]
fn a_singular_laplacian_is_solved_where_b_sums_to_zero() {
    let n = 60;
    let path = Csr::from_triplets(
        n,
        n,
        (0..n).flat_map(|i| {
            let ends = usize::from(i > 0) + usize::from(i + 1 < n);
            let before = (i > 0).then(|| (i, i - 1, -1.0));
            let after = (i + 1 < n).then(|| (i, i + 1, -1.0));
            [Some((i, i, ends as f64)), before, after].into_iter().flatten().collect::<Vec<_>>()
        }),
    )
    .expect("a matrix");
    let alternating: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let solution = solved(&path, &alternating);
    assert_eq!(solution.outcome.status, Status::Converged, "{solution:?}");
    told(&path, &vec![1.0; n], Status::Inconsistent, "sum");
}

#[test]
fn what_an_iteration_finds_hard_is_solved() {
    let n = 200;
    let b = vec![1.0; n];
    // No diagonal at all; rows of sizes from 1e-150 to 1e150; graded columns; indefinite.
    let cyclic = Csr::from_triplets(n, n, (0..n).flat_map(|i| [(i, (i + 1) % n, 2.0), (i, (i + 7) % n, -1.0)]))
        .expect("a matrix");
    let rows = band(n, |i, _, v| v * 10f64.powi((i as i32 % 7 - 3) * 50));
    let graded = band(n, |_, j, v| v * 0.9f64.powi(j as i32));
    let indefinite = band(n, |i, j, v| if i == j && i % 2 == 0 { -v } else { v });
    for (name, a) in [("cyclic", &cyclic), ("rows", &rows), ("graded", &graded), ("indefinite", &indefinite)] {
        let scale: Vec<f64> =
            if name == "rows" { (0..n).map(|i| 10f64.powi((i as i32 % 7 - 3) * 50)).collect() } else { b.clone() };
        let solution = solved(a, &scale);
        let status = solution.outcome.status;
        assert!(matches!(status, Status::Converged | Status::BackwardStable), "{name}: {}", solution.outcome);
        assert!(status == Status::BackwardStable || residual(a, &scale, &solution.x) <= 1.1e-8, "{name}");
    }
}

#[test]
fn an_iteration_that_is_slow_gives_way_the_same_way_every_time() {
    // Anisotropic and dominant, so iteration comes first; it would need a thousand iterations.
    let a: Csr<f64> = generate::csr("poisson2d:160x40").expect("a matrix");
    let b: Vec<f64> = (0..a.nrows()).map(|i| 1.0 + (i % 11) as f64).collect();
    let first = solved(&a, &b);
    for _ in 0..3 {
        let again = solved(&a, &b);
        assert_eq!(
            (again.method, again.outcome.iterations, again.attempts.len()),
            (first.method, first.outcome.iterations, first.attempts.len())
        );
        assert_eq!(again.x, first.x);
    }
    assert_eq!(first.outcome.status, Status::Converged);
}

#[test]
fn new_values_and_several_right_hand_sides_after_a_factorisation_took_over() {
    let a = band(80, |i, j, v| if i == j && i % 3 == 0 { 0.0 } else { v });
    let mut solver = solver(&a);
    let b: Vec<f64> = (0..160).map(|i| 1.0 + (i % 5) as f64).collect();
    let both = solver.solve_many(&b).expect("two solves");
    assert_eq!(solver.plan().method, Method::Direct);
    assert!(both.outcomes.iter().all(|outcome| outcome.status.is_converged()));
    let doubled: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    solver.update_values(&doubled).expect("new values");
    let solution = solver.solve(&b[..80]).expect("a solve");
    assert!(solution.x.iter().zip(&both.x).all(|(half, x)| (2.0 * half - x).abs() <= 1e-12 * x.abs().max(1.0)));
}

#[test]
fn a_matrix_that_rounding_made_nonsymmetric_is_solved_by_cg() {
    let mut a: Csr<f64> = generate::csr("poisson2d:60").expect("a matrix");
    let at = a.values().iter().position(|&v| v < 0.0).expect("an entry");
    a.values_mut()[at] *= 1.0 + 4.0 * f64::EPSILON;
    assert!(!a.is_symmetric() && a.is_symmetric_to_rounding());
    let solver = solver(&a);
    assert_eq!(solver.plan().method, Method::Cg);
    assert!(solver.plan().method_why.contains("up to the rounding of its entries") && !solver.plan().symmetric);
    a.values_mut()[at] *= 1.0 + 1e-12;
    assert!(!a.is_symmetric_to_rounding());
}

#[test]
fn nothing_takes_over_where_a_choice_is_named() {
    let a = band(40, |i, _, v| if i == 16 { 0.0 } else { v });
    let named = Solver::builder().device(Choice::Cpu).method(Method::Gmres).build(a.clone());
    let status = named.and_then(|mut solver| solver.solve(&[1.0; 40])).map(|solution| solution.outcome.status);
    assert!(!matches!(status, Ok(Status::Converged | Status::Singular | Status::Inconsistent)), "{status:?}");
    let refused = Solver::builder().device(Choice::Cpu).method(Method::Direct).build(a);
    assert_eq!(refused.err().and_then(|error| error.status()), Some(Status::ZeroPivot));
}
