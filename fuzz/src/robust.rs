//! `Solver`: for any square matrix and right-hand side it returns a true answer, a true reason why there is none, or a
//! typed error.
//!
//! The claims are checked with independent arithmetic: residuals with twice the digits of f64, and, for small whole
//! numbers, the rank by elimination without fractions, which is exact.

use arbitrary::{Result, Unstructured};
use spandrel::any::Choice;
use spandrel::solver::Builder;
use spandrel::solvers::{Method, Precond, Status};
use spandrel::{Error, Solution, Solver};
use spandrel_formats::{Csr, Triplets};

use super::input::{self, same};

/// Number of rows of the matrices of whole numbers, and their largest entry. Every minor, also with b as a column, is
/// below (7^2 * 7)^(7/2) < 2^30.
const ROWS: usize = 6;
const LARGEST: i32 = 7;
/// The goal of the solves.
const RTOL: f64 = 1e-8;

/// Solves a system from the bytes.
///
/// # Panics
/// If an answer, or the reason for none, is not true.
pub fn check(bytes: &[u8]) {
    // Missing bytes are zeros: what is there is used to its end.
    let _ = with_bytes(&mut Unstructured::new(bytes));
}

fn with_bytes(u: &mut Unstructured<'_>) -> Result<()> {
    let [kind, choices, powers] = u.arbitrary::<[u8; 3]>()?;
    if kind % 2 == 0 {
        return whole_numbers(u, choices);
    }
    let mut a = input::square::<f64>(u)?;
    if kind % 4 == 1 {
        scale(&mut a, powers);
    }
    let b: Vec<f64> = (0..a.nrows()).map(|_| input::plain(u)).collect::<Result<_>>()?;
    let Some(solution) = solved(&a, &b, choices) else { return Ok(()) };
    is_true(&a, &b, &solution);
    // On the same machine a second solve gives the same bits.
    let again = solved(&a, &b, choices).expect("a system that was solved before");
    assert_eq!(again.outcome.status, solution.outcome.status);
    assert!(same(&again.x, &solution.x), "the second solve has other bits");
    Ok(())
}

/// Multiplies rows and columns by powers of two, between 2^-200 and 2^200.
fn scale(a: &mut Csr<f64>, powers: u8) {
    let exponent = |k: usize, by: u8| (k as i32 * 37 % 5 - 2) * i32::from(by % 16) * 5;
    let rows: Vec<usize> = (0..a.nrows()).flat_map(|i| std::iter::repeat_n(i, a.row_nnz(i))).collect();
    let cols: Vec<usize> = a.col_idx().iter().map(|&j| j as usize).collect();
    for (v, (i, j)) in a.values_mut().iter_mut().zip(rows.into_iter().zip(cols)) {
        *v *= 2f64.powi(exponent(i, powers / 16)) * 2f64.powi(exponent(j, powers));
    }
}

/// A small matrix of small whole numbers, whose rank is known.
fn whole_numbers(u: &mut Unstructured<'_>, choices: u8) -> Result<()> {
    let n = u.int_in_range(1..=ROWS)?;
    let entry = |u: &mut Unstructured<'_>| -> Result<i32> {
        let byte = u.arbitrary::<u8>()?;
        // Two of three entries are not stored.
        Ok(if byte % 3 == 0 { i32::from(byte / 3) % (2 * LARGEST + 1) - LARGEST } else { 0 })
    };
    let mut rows: Vec<Vec<i32>> =
        (0..n).map(|_| (0..n).map(|_| entry(u)).collect::<Result<_>>()).collect::<Result<_>>()?;
    if choices % 16 == 15 {
        // At least these two rows are equal.
        rows[n - 1] = rows[0].clone();
    }
    let b: Vec<i32> = (0..n).map(|_| entry(u)).collect::<Result<_>>()?;
    let mut triplets = Triplets::new(n, n).expect("a small shape");
    for (i, row) in rows.iter().enumerate() {
        for (j, &v) in row.iter().enumerate().filter(|&(_, &v)| v != 0) {
            triplets.push(i, j, f64::from(v)).expect("an entry inside");
        }
    }
    let a = triplets.to_csr().expect("a small matrix");
    let wide: Vec<f64> = b.iter().map(|&v| f64::from(v)).collect();
    let Some(solution) = solved(&a, &wide, choices) else { return Ok(()) };
    is_true(&a, &wide, &solution);

    let (rank, beside) =
        (rank(rows.clone()), rank(rows.iter().zip(&b).map(|(row, &b)| [&row[..], &[b]].concat()).collect()));
    let status = solution.outcome.status;
    let told = || format!("{status}, rank {rank} of {n}, with b {beside}: {:?}", solution.note);
    match status {
        Status::Converged => assert!(beside == rank, "{}", told()),
        Status::Inconsistent => assert!(beside > rank, "{}", told()),
        Status::Singular => assert!(rank < n, "{}", told()),
        _ => {}
    }
    // No choice was named: a regular system is solved, and a singular one is solved or reported as singular.
    if is_default(choices) {
        let is_settled =
            matches!(status, Status::Converged | Status::BackwardStable | Status::Inconsistent | Status::Singular);
        assert!(is_settled && (rank < n || matches!(status, Status::Converged | Status::BackwardStable)), "{}", told());
    }
    Ok(())
}

/// The rank of a matrix of whole numbers, by Bareiss' elimination without fractions.
fn rank(rows: Vec<Vec<i32>>) -> usize {
    let mut rows: Vec<Vec<i128>> = rows.into_iter().map(|row| row.into_iter().map(i128::from).collect()).collect();
    let (mut rank, mut last) = (0, 1);
    for column in 0..rows.first().map_or(0, Vec::len) {
        let Some(at) = (rank..rows.len()).find(|&i| rows[i][column] != 0) else { continue };
        rows.swap(rank, at);
        let pivot = rows[rank].clone();
        for row in &mut rows[rank + 1..] {
            let factor = row[column];
            for (v, p) in row.iter_mut().zip(&pivot) {
                *v = (*v * pivot[column] - factor * p) / last;
            }
        }
        last = pivot[column];
        rank += 1;
    }
    rank
}

/// Whether these choices leave everything to the policy.
fn is_default(choices: u8) -> bool {
    choices / 16 < 8
}

fn builder(choices: u8) -> Builder {
    let builder = Solver::builder().device(Choice::Cpu).rtol(RTOL);
    match choices / 16 {
        8 => builder.method(Method::Cg).max_iterations(200),
        9 => builder.method(Method::BiCgStab).max_iterations(200),
        10 => builder.method(Method::Gmres).max_iterations(200),
        11 => builder.method(Method::Direct),
        12 => builder.method(Method::BiCgStab).preconditioner(Precond::Ilut(Default::default())).max_iterations(200),
        13 => builder.method(Method::Gmres).preconditioner(Precond::Ilutp(Default::default())).max_iterations(200),
        14 => builder.memory_limit(0),
        15 => builder.reproducible(true).max_iterations(200),
        _ => builder,
    }
}

/// The solution, or none where a typed error says why.
fn solved(a: &Csr<f64>, b: &[f64], choices: u8) -> Option<Solution<f64>> {
    match builder(choices).build(a.clone()).and_then(|mut solver| solver.solve(b)) {
        Ok(solution) => Some(solution),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let is_finite = a.values().iter().all(|v| v.is_finite());
            assert!(!(is_default(choices) && is_finite), "{error}");
            assert!(!matches!(error, Error::Interrupted { .. }), "{error}");
            None
        }
    }
}

/// Checks that the outcome is true for x.
fn is_true(a: &Csr<f64>, b: &[f64], solution: &Solution<f64>) {
    let (status, x) = (solution.outcome.status, &solution.x);
    assert_eq!(x.len(), a.ncols());
    assert!(!solution.outcome.to_string().is_empty());
    match status {
        Status::Converged => {
            let (residual, size) = (norm(&residual(a, b, x)), norm(b));
            // The norms have a rounding per term.
            assert!(residual <= RTOL * size * 1.000_001, "{residual:e} beside {size:e}: {:?}", solution.note);
        }
        Status::BackwardStable => assert!(x.iter().all(|x| x.is_finite()), "{x:?}"),
        _ => {}
    }
    let has_reason = !matches!(status, Status::Inconsistent | Status::Singular) || solution.note.is_some();
    assert!(has_reason, "{status} without a reason");
}

/// b - A x, each row summed in twice the digits of f64.
fn residual(a: &Csr<f64>, b: &[f64], x: &[f64]) -> Vec<f64> {
    let row = |(i, &b): (usize, &f64)| {
        let (cols, values) = a.row(i);
        let (mut sum, mut rest) = (b, 0.0);
        for (&j, &v) in cols.iter().zip(values) {
            let product = -v * x[j as usize];
            let next = sum + product;
            let back = next - sum;
            rest += (-v).mul_add(x[j as usize], -product) + ((sum - (next - back)) + (product - back));
            sum = next;
        }
        sum + rest
    };
    b.iter().enumerate().map(row).collect()
}

/// ||v||, computed in units of its largest element.
fn norm(v: &[f64]) -> f64 {
    let largest = v.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    if largest == 0.0 { 0.0 } else { largest * v.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt() }
}
