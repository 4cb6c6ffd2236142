//! Matrices whose defect is known, each solved with default settings. Tested are the status and the words that name the
//! defect.

use spandrel::Solver;
use spandrel::any::Choice;
use spandrel::formats::Csr;
use spandrel::solvers::Status;

const N: usize = 48;

/// A band with a dominant diagonal whose entries are changed by `change`; zeros are not stored.
fn band(change: impl Fn(usize, usize, f64) -> f64) -> Csr<f64> {
    let entry = |i: usize, j: usize| match i.abs_diff(j) {
        0 => 5.0 + (i % 3) as f64,
        1 => -1.0,
        4 => 0.5 + (i % 2) as f64 / 4.0,
        _ => 0.0,
    };
    of(N, |i, j| change(i, j, entry(i, j)))
}

fn of(n: usize, entry: impl Fn(usize, usize) -> f64) -> Csr<f64> {
    let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    Csr::from_triplets(n, n, all.map(|(i, j)| (i, j, entry(i, j))).filter(|entry| entry.2 != 0.0)).expect("a matrix")
}

/// A x, by plain sums.
fn times(a: &Csr<f64>, x: &[f64]) -> Vec<f64> {
    (0..a.nrows()).map(|i| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum()).collect()
}

fn norm(v: &[f64]) -> f64 {
    let largest = v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if largest == 0.0 { 0.0 } else { largest * v.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt() }
}

struct Case {
    name: &'static str,
    a: Csr<f64>,
    b: Vec<f64>,
    ends: &'static [Status],
    /// Words that the note must contain.
    words: &'static str,
}

fn cases() -> Vec<Case> {
    use Status::{BackwardStable, Converged, Inconsistent, Singular};
    let ones = || vec![1.0; N];
    let wave = || -> Vec<f64> { (0..N).map(|i| 1.0 + ((7 * i) % 11) as f64 / 4.0).collect() };
    let mut all = Vec::new();
    let mut case = |name, a: Csr<f64>, b: Vec<f64>, ends: &'static [Status], words| {
        all.push(Case { name, a, b, ends, words });
    };
    case(
        "an empty row",
        band(|i, _, v| if i == 16 { 0.0 } else { v }),
        ones(),
        &[Inconsistent],
        "row 17 is empty, but b is 1 there",
    );
    case(
        "an empty column",
        band(|_, j, v| if j == 5 { 0.0 } else { v }),
        ones(),
        &[Inconsistent, Singular],
        "column 6 is empty",
    );
    let base = band(|_, _, v| v);
    let at = |i: usize, j: usize| base.get(i, j).unwrap_or(0.0);
    let twice = of(N, |i, j| at(if i == 40 { 16 } else { i }, j));
    case(
        "equal rows, b alike",
        twice.clone(),
        ones(),
        &[Converged],
        "rows 17 and 41 are equal, but this b has an answer",
    );
    let mut apart = ones();
    apart[40] = 2.0;
    case(
        "equal rows, b apart",
        twice,
        apart,
        &[Inconsistent],
        "row 41 is equal to row 17, but b is 2 there instead of 1",
    );
    let third = of(N, |i, j| if i == 40 { -3.0 * at(16, j) } else { at(i, j) });
    case("proportional rows", third, ones(), &[Inconsistent], "17");
    let columns = of(N, |i, j| at(i, if j == 40 { 16 } else { j }));
    let reachable = times(&columns, &wave());
    case("equal columns", columns, reachable, &[Converged], "columns 17 and 41 are equal, but this b has an answer");
    let summed = of(N, |i, j| if i == 40 { at(3, j) + at(30, j) } else { at(i, j) });
    case(
        "a row that is the sum of two others, b not",
        summed.clone(),
        ones(),
        &[Inconsistent],
        "is zero on the left-hand side but not on the right",
    );
    let mut sum = ones();
    sum[40] = 2.0;
    case("a row that is the sum of two others, b too", summed, sum, &[Converged], "but this b has an answer");
    let narrow = of(N, |i, j| match (j, i) {
        (3 | 10 | 20, 7 | 30) => 1.0 + j as f64,
        (3 | 10 | 20, _) => 0.0,
        _ => at(i, j),
    });
    case("three columns within two rows", narrow, ones(), &[Inconsistent, Singular], "has rank 47 of 48 at most");
    let zeros = Csr::new(3, 3, vec![0, 2, 3, 5], vec![0, 1, 2, 0, 1], vec![1.0, 2.0, 0.0, 3.0, 4.0]).expect("a matrix");
    case("a row of stored zeros", zeros, vec![1.0; 3], &[Inconsistent], "row 2");
    let neumann = of(N, |i, j| match i.abs_diff(j) {
        0 => 2.0 - f64::from(u8::from(i == 0 || i == N - 1)),
        1 => -1.0,
        _ => 0.0,
    });
    let balanced = (0..N).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    case("rows that sum to zero, b too", neumann.clone(), balanced, &[Converged], "");
    case("rows that sum to zero, b not", neumann, ones(), &[Inconsistent], "sum");
    case(
        "a nilpotent matrix",
        of(N, |i, j| if j == i + 1 { 1.0 + i as f64 } else { 0.0 }),
        ones(),
        &[Inconsistent],
        "row 48 is empty",
    );
    case(
        "a skew-symmetric matrix of odd order",
        of(47, |i, j| at(i, j) * f64::from((j > i) as i8 - (j < i) as i8)),
        vec![1.0; 47],
        &[BackwardStable],
        "singular to working precision",
    );
    case("rank one", of(6, |i, j| (1 + i) as f64 * (2 + j) as f64), vec![1.0; 6], &[Inconsistent], "row");
    case(
        "no diagonal, a permutation",
        of(N, |i, j| f64::from(u8::from(j == (i * 5 + 1) % N)) * (1.0 + i as f64)),
        ones(),
        &[Converged],
        "",
    );
    case(
        "a zero diagonal that a matching mends",
        band(|i, j, v| if i == j { 0.0 } else { v }),
        wave(),
        &[Converged, BackwardStable],
        "",
    );
    let saddle = of(N, |i, j| match (i >= 40, j >= 40) {
        (true, true) => 0.0,
        (true, false) => {
            if j % 8 == i % 8 {
                1.0
            } else {
                0.0
            }
        }
        (false, true) => {
            if i % 8 == j % 8 {
                1.0
            } else {
                0.0
            }
        }
        (false, false) => at(i, j) + at(j, i),
    });
    case("a saddle point", saddle, ones(), &[Converged], "");
    let power = |i: usize| 10f64.powi((i as i32 % 7 - 3) * 50);
    case(
        "rows from 1e-150 to 1e150",
        band(|i, _, v| v * power(i)),
        (0..N).map(power).collect(),
        &[Converged, BackwardStable],
        "",
    );
    case("columns from 1e-150 to 1e150", band(|_, j, v| v * power(j)), ones(), &[Converged, BackwardStable], "");
    case("graded columns", band(|_, j, v| v * 0.5f64.powi(j as i32)), ones(), &[Converged, BackwardStable], "");
    case("all entries of size 2^300", band(|_, _, v| v * 2f64.powi(300)), ones(), &[Converged], "");
    case("all entries of size 2^-300", band(|_, _, v| v * 2f64.powi(-300)), ones(), &[Converged], "");
    case(
        "indefinite and symmetric",
        of(N, |i, j| (at(i, j) + at(j, i)) * if i == j && i % 2 == 0 { -0.5 } else { 0.5 }),
        ones(),
        &[Converged],
        "",
    );
    // [Re, -Im; Im, Re] of a complex symmetric matrix.
    let complex = of(N, |i, j| {
        let (re, im) = (
            |i: usize, j: usize| at(i, j) + at(j, i),
            |i: usize, j: usize| f64::from(u8::from(i == j)) - 0.25 * at(i, j),
        );
        match (i < 24, j < 24) {
            (true, true) => re(i, j),
            (true, false) => -(im(i, j - 24) + im(j - 24, i)),
            (false, true) => im(i - 24, j) + im(j, i - 24),
            (false, false) => re(i - 24, j - 24),
        }
    });
    case("a complex symmetric matrix as a real one", complex, ones(), &[Converged], "");
    // Condition number about 1e16.
    case(
        "Hilbert's matrix of order 12",
        of(12, |i, j| 1.0 / (1 + i + j) as f64),
        vec![1.0; 12],
        &[Converged, BackwardStable],
        "",
    );
    case(
        "rows that are equal but for rounding",
        of(N, |i, j| if i == 40 { at(16, j) * (1.0 + 1e-15) } else { at(i, j) }),
        wave(),
        &[BackwardStable],
        "singular to working precision",
    );
    all
}

#[test]
fn every_defect_is_named_or_solved() {
    let cases = cases();
    assert!(cases.len() >= 20);
    let mut wrong = String::new();
    for Case { name, a, b, ends, words } in cases {
        let mut solver = Solver::builder().device(Choice::Cpu).build(a.clone()).expect(name);
        let solution = solver.solve(&b).expect(name);
        let (outcome, note) = (&solution.outcome, solution.note.clone().unwrap_or_default());
        println!("{name}: {} by {}, {:.1e}; {note}", outcome.status, solution.method, outcome.true_residual);
        if !ends.contains(&outcome.status) || !note.contains(words) {
            wrong
                .push_str(&format!("{name}: {} instead of {ends:?}; {note:?} should have {words:?}\n", outcome.status));
        }
        assert!(solution.x.iter().all(|x| x.is_finite()), "{name}: {:?}", solution.x);
        // The status must be true for A and b as they were given.
        let r: Vec<f64> = times(&a, &solution.x).iter().zip(&b).map(|(ax, b)| b - ax).collect();
        match outcome.status {
            Status::Converged => assert!(norm(&r) <= 1.01e-8 * norm(&b), "{name}: {:e}", norm(&r) / norm(&b)),
            Status::BackwardStable => {
                let size = norm(a.values()) * norm(&solution.x) + norm(&b);
                assert!(norm(&r) <= 1e-14 * size, "{name}: {:e}", norm(&r) / size);
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
