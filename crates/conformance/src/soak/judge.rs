//! Checks whether the claims of a solve are true, by derived bounds.
//!
//! Residual: r = b - A x is formed in doubled precision. In row i of k entries, the solver's own residual differs from
//! it by at most e_i = gamma(k+2) (|A||x| + |b|)_i + (k+2) eta. Its norm differs by a factor of 1 +- g, with g = 2
//! gamma(4 + 37 L) for the tree of L levels, the root and the quotient (see [`crate::oracle`]). So | ||r|| -
//! true_residual ||b|| | <= (||e|| + g ||r||) (1 + g), and a converged solve has ||r|| <= (max(rtol ||b||, atol) +
//! ||e||) (1 + g) / (1 - g).
//!
//! Error: faer computes X near A^-1, column by column. If delta = ||I - A X|| < 1, then ||A^-1|| <= ||X|| / (1 - delta)
//! in the maximum norm (Higham 2002, section 14.1). So x differs from the direct solution y by at most ||A^-1|| (||b -
//! A x|| + ||b - A y||).
//!
//! Definiteness: if A is symmetric positive definite, the computed p'Ap has an error of at most gamma(n + k + 37 L)
//! ||A|| ||p||^2, so it is positive for every p as long as ||A^-1|| ||A|| gamma(n + k + 37 L) < 1.

use spandrel_formats::{Csr, Real};
use spandrel_solvers::direct::Method;
use spandrel_solvers::{Direct, DirectOptions, Options, Outcome, Status};

use crate::exact::{Dd, SLACK};
use crate::oracle::{EVALUATION, gamma, smallest_subnormal};
use crate::reference::tree_levels;

/// The largest number of unknowns for which the inverse is computed.
const INVERTED: usize = 200;
/// The largest delta for which the bound is useful.
const NEAR: f64 = 0.5;

/// b - A x in doubled precision, with (|A||x| + |b|) and the entries of each row.
fn residual<T: Real>(a: &Csr<T>, b: &[T], x: &[f64]) -> Vec<(f64, f64, usize)> {
    let row = |i: usize| {
        let (cols, values) = a.row(i);
        let b = b[i].as_f64();
        let (mut sum, mut size) = (Dd::product(-b, 1.0), b.abs());
        for (&j, v) in cols.iter().zip(values) {
            let term = v.as_f64() * x[j as usize];
            sum = sum.plus(Dd::product(v.as_f64(), x[j as usize]));
            size += term.abs();
        }
        (sum.distance(0.0), size * EVALUATION, cols.len())
    };
    (0..a.nrows()).map(row).collect()
}

fn norm2(v: impl Iterator<Item = f64>) -> f64 {
    let v: Vec<f64> = v.collect();
    let largest = v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    largest * v.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt()
}

/// A NaN exceeds everything.
fn exceeds(value: f64, bound: f64) -> bool {
    value > bound || value.is_nan()
}

fn largest(v: impl Iterator<Item = f64>) -> f64 {
    v.fold(0.0, f64::max)
}

/// The direct solver's answer for a system.
pub(super) struct Reference {
    /// Its x.
    x: Vec<f64>,
    /// A bound of ||A^-1|| in the maximum norm; `None` if A is too large or too nearly singular for one.
    inverse: Option<f64>,
    /// ||A||, maximum norm.
    norm: f64,
    /// Whether A is symmetric positive definite, by a Cholesky factorisation whose errors are far below the smallest
    /// eigenvalue.
    definite: bool,
}

impl Reference {
    /// `None` if the direct solver refuses the matrix.
    pub(super) fn new<T: Real>(a: &Csr<T>, b: &[T]) -> Option<Self> {
        let n = a.nrows();
        let wide = a.map(|v| v.as_f64());
        let direct = Direct::new(wide.clone(), &DirectOptions { parallel: false, ..DirectOptions::default() }).ok()?;
        let mut x = vec![0.0; n];
        let wide_b: Vec<f64> = b.iter().map(|b| b.as_f64()).collect();
        // Its error is bounded by its own residual, whatever the outcome claims.
        let _ = direct.solve(&wide_b, &mut x).ok()?;
        let norm = largest((0..n).map(|i| wide.row(i).1.iter().map(|v| v.abs()).sum()));
        let inverse = if n <= INVERTED { inverse(&wide, &direct) } else { None };
        let roundings = gamma::<f64>(4 * n + 4) * n as f64;
        let definite = direct.is_symmetric()
            && direct.method() == Method::Llt
            && inverse.is_some_and(|inverse| inverse * norm * roundings < NEAR);
        Some(Self { x, inverse, norm, definite })
    }
}

/// The bound of ||A^-1||.
fn inverse(a: &Csr<f64>, direct: &Direct<f64>) -> Option<f64> {
    let n = a.nrows();
    let mut unit = vec![0.0; n * n];
    (0..n).for_each(|j| unit[j * n + j] = 1.0);
    let mut x = vec![0.0; n * n];
    direct.solve_many(n, &unit, &mut x).ok()?;
    let (mut rows, mut off) = (vec![0.0; n], vec![0.0; n]);
    for (x, unit) in x.chunks(n.max(1)).zip(unit.chunks(n.max(1))) {
        for (i, (r, size, k)) in residual(a, unit, x).into_iter().enumerate() {
            rows[i] += x[i].abs();
            off[i] += r + (2 * k + 4) as f64 * SLACK * size;
        }
    }
    let (delta, norm) = (largest(off.into_iter()) * EVALUATION, largest(rows.into_iter()) * EVALUATION);
    (delta < NEAR && norm.is_finite()).then(|| norm / (1.0 - delta))
}

/// Checks what a solve claims.
///
/// # Errors
/// The contradiction, in words.
pub(super) fn judge<T: Real>(
    a: &Csr<T>,
    b: &[T],
    x: &[T],
    options: &Options,
    outcome: &Outcome,
    reference: Option<&Reference>,
    tame: bool,
    solver: &str,
) -> Result<(), String> {
    let n = a.nrows();
    let status = outcome.status;
    if matches!(status, Status::Interrupted | Status::Inconsistent | Status::ZeroPivot) {
        return Err(format!("{status}, though nobody interrupts, names a null space or factors in a {solver} solve"));
    }
    if outcome.iterations > options.iteration_limit(n) {
        return Err(format!("{} iterations, the limit is {}", outcome.iterations, options.iteration_limit(n)));
    }
    if !outcome.history.is_empty() && outcome.history.len() != outcome.iterations + 1 {
        return Err(format!("{} norms in the history of {} iterations", outcome.history.len(), outcome.iterations));
    }
    let finite = x.iter().all(|x| x.is_finite());
    if status.is_converged() && !finite {
        return Err("converged to an x that is not finite".into());
    }
    if status == Status::IndefiniteMatrix
        && tame
        && let Some(Reference { inverse: Some(inverse), norm, definite: true, .. }) = reference
    {
        let longest = (0..n).map(|i| a.row_nnz(i)).max().unwrap_or(0);
        let roundings = gamma::<T>(n + longest + 37 * tree_levels(n));
        if inverse * norm * roundings < NEAR {
            return Err(format!("{status}, and A is positive definite: ||A^-1|| ||A|| <= {:e}", inverse * norm));
        }
    }
    if !tame || !finite {
        return Ok(());
    }
    let wide: Vec<f64> = x.iter().map(|x| x.as_f64()).collect();
    let rows = residual(a, b, &wide);
    let g = 2.0 * gamma::<T>(37 * tree_levels(n) + 4);
    let eta = smallest_subnormal::<T>();
    let error = norm2(rows.iter().map(|&(_, size, k)| gamma::<T>(k + 2) * size + (k + 2) as f64 * eta)) * EVALUATION;
    let (found, of_b) = (norm2(rows.iter().map(|row| row.0)), norm2(b.iter().map(|b| b.as_f64())));
    if status.is_converged() {
        let wanted = (options.rtol_for::<T>() * of_b).max(options.atol);
        let bound = (wanted + error) * (1.0 + g) / (1.0 - g) * EVALUATION;
        if exceeds(found, bound) {
            return Err(format!(
                "converged with ||b - A x|| = {found:e}, more than {wanted:e} and rounding, {bound:e}"
            ));
        }
    }
    let claimed = outcome.true_residual * of_b;
    // If b = 0 it is 0 by definition. A residual beyond the range of the type has no number.
    let rounding = (error + g * found) * (1.0 + g) * EVALUATION;
    if of_b > 0.0 && found < 1e15 && exceeds((claimed - found).abs(), rounding) {
        return Err(format!("||b - A x|| is claimed to be {claimed:e} and is {found:e}, rounding {error:e}"));
    }
    if status.is_converged()
        && let Some(Reference { x: direct, inverse: Some(inverse), .. }) = reference
    {
        let of_direct = residual(a, b, direct);
        let most = |rows: &[(f64, f64, usize)]| largest(rows.iter().map(|row| row.0));
        let bound = inverse * (most(&rows) + most(&of_direct)) * EVALUATION;
        let apart = largest(wide.iter().zip(direct).map(|(x, y)| (x - y).abs()));
        if exceeds(apart, bound) {
            return Err(format!("x is {apart:e} from the direct solution, the bound is {bound:e}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::numbers;

    struct Solved {
        a: Csr<f64>,
        b: Vec<f64>,
        x: Vec<f64>,
        outcome: Outcome,
    }

    impl Solved {
        fn new() -> Self {
            let a = crate::generated("poisson2d:7x5").expect("a generator");
            let (b, mut x) = (numbers(5, 35), vec![0.0; 35]);
            let direct = Direct::new(a.clone(), &DirectOptions::default()).expect("a factor");
            let mut outcome = direct.solve(&b, &mut x).expect("equal sizes");
            outcome.history.truncate(1); // as of a solve that takes no iteration
            Self { a, b, x, outcome }
        }
        fn judge(&self) -> Result<(), String> {
            let reference = Reference::new(&self.a, &self.b).expect("a factor");
            judge(&self.a, &self.b, &self.x, &Options::default(), &self.outcome, Some(&reference), true, "cg")
        }
        fn refused(&self, word: &str) {
            let why = self.judge().expect_err(word);
            assert!(why.contains(word), "{word}: {why}");
        }
    }

    #[test]
    fn what_is_true_passes() {
        Solved::new().judge().expect("a direct solve");
    }

    #[test]
    fn each_lie_is_found() {
        let with = |change: &dyn Fn(&mut Solved)| {
            let mut solved = Solved::new();
            change(&mut solved);
            solved
        };
        with(&|s| s.x[3] += 1e-5).refused("converged with");
        with(&|s| s.x[3] = f64::NAN).refused("not finite");
        with(&|s| s.outcome.true_residual += 1e-10).refused("claimed");
        with(&|s| s.outcome.status = Status::IndefiniteMatrix).refused("positive definite");
        with(&|s| s.outcome.status = Status::Interrupted).refused("nobody interrupts");
        with(&|s| s.outcome.iterations = 701).refused("the limit is 700");
        with(&|s| s.outcome.iterations = 5).refused("in the history of 5 iterations");
        // The x of another system, with a status that does not claim it to be an answer.
        let other = with(&|s| (s.x[3], s.outcome.status) = (2.0, Status::MaxIterations));
        other.refused("claimed");
    }

    #[test]
    fn the_inverse_is_bounded() {
        let a = crate::generated("tridiag:3").expect("a generator");
        let reference = Reference::new(&a, &[1.0; 3]).expect("a factor");
        // The middle row of the inverse of (-1, 2, -1) is (1/2, 1, 1/2).
        let inverse = reference.inverse.expect("three unknowns");
        assert!((2.0..2.000001).contains(&inverse) && reference.definite && reference.norm == 4.0);
    }
}
