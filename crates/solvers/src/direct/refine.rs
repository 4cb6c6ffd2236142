//! Solves with the factors, refines the answers and judges them.
//!
//! Refinement computes b - A x in twice the digits of f64 and continues while a step halves the residual. An answer
//! that misses the tolerance is judged by its backward error: if that is as small as rounding, no method in this
//! precision does better.
//! Reference: Higham 2002, Accuracy and stability of numerical algorithms, chapter 12; Skeel 1980, Iterative refinement
//! implies numerical stability for Gaussian elimination.

use spandrel_formats::{Csr, Real};

use super::{Direct, Factorable, Method};
use crate::accuracy::{self, residual};
use crate::options::default_rtol;
use crate::{BackwardError, Error, Outcome, Result, Status};

impl<T: Factorable> Direct<T> {
    /// Solves A x = b, or minimises ||b - A x|| by QR. b has `nrows` elements and x has `ncols`; the old x does not
    /// matter.
    ///
    /// In a least squares problem a residual remains if b is not in the range of A. So `converged` then also means that
    /// ||A^T r|| is at most `rtol` ||A|| ||r|| (Frobenius norm). [`Outcome::true_residual`] is always ||b - A x|| /
    /// ||b||.
    ///
    /// # Errors
    /// [`Error::Size`]; [`Error::Factor`] unless [`Direct::factor`] has succeeded.
    pub fn solve(&self, b: &[T], x: &mut [T]) -> Result<Outcome> {
        let outcomes = self.solve_many(1, b, x)?;
        Ok(outcomes.into_iter().next().unwrap_or_else(Outcome::zero::<T>))
    }

    /// As [`Direct::solve`], for `k` right-hand sides, one column after the other. Returns one outcome for each.
    ///
    /// # Errors
    /// Those of [`Direct::solve`].
    pub fn solve_many(&self, k: usize, b: &[T], x: &mut [T]) -> Result<Vec<Outcome>> {
        let (nrows, ncols) = (self.csr.nrows(), self.csr.ncols());
        let expect = |what, found, expected, remedy| {
            if found == expected { Ok(()) } else { Err(Error::elements("direct", what, found, expected, remedy)) }
        };
        expect("b", b.len(), nrows * k, crate::error::FIT_B)?;
        expect("x", x.len(), ncols * k, crate::error::FIT_X)?;
        if self.factor.is_none() {
            return Err(self.unfactored());
        }
        if ncols == 0 || k == 0 {
            return Ok((0..k).map(|j| self.without_columns(&b[j * nrows..(j + 1) * nrows])).collect());
        }

        // A step is x <- x + A^-1 r for all columns at once. Each column keeps it only if it helps.
        let mut states: Vec<State> = (0..k).map(|_| State::default()).collect();
        x.fill(T::zero());
        let mut r = b.to_vec();
        for (j, state) in states.iter_mut().enumerate() {
            state.b_norm = norm(&b[j * nrows..(j + 1) * nrows]);
            (state.residual, state.worst) = (state.b_norm, 1.0);
        }
        let is_least_squares = self.method() == Method::Qr;
        for step in 0..=self.options.refinements {
            let d = self.apply(r.clone(), k, false)?;
            let stride = d.len() / k;
            for (j, state) in states.iter_mut().enumerate().filter(|(_, state)| !state.done) {
                let column = &mut x[j * ncols..(j + 1) * ncols];
                let candidate: Vec<T> =
                    column.iter().zip(&d[j * stride..j * stride + ncols]).map(|(&x, &d)| x + d).collect();
                let b = &b[j * nrows..(j + 1) * nrows];
                let after = residual(&self.csr, b, &candidate);
                let size = accuracy::norm(&after);
                let error = BackwardError::with_residual(&self.csr, b, &candidate, &after);
                let worst = error.componentwise;
                // Small rows beside large ones show only in the componentwise error. NaN fails these comparisons, so it
                // is never an improvement.
                let is_better = size < state.residual || (worst < state.worst && size <= 2.0 * state.residual);
                // The first answer is always taken.
                if step == 0 || is_better {
                    let is_slow =
                        size >= 0.5 * state.residual && (worst >= 0.5 * state.worst || worst <= T::UNIT_ROUNDOFF);
                    // If the matrix is singular, the part of b that it does not reach hides the progress in the rest.
                    // So allow a few steps.
                    let is_slow = is_slow && (self.options.regularization == 0.0 || step >= 4);
                    state.done = step > 0 && is_slow;
                    (state.residual, state.worst, state.error) = (size, worst, Some(error));
                    state.gradient = is_least_squares.then(|| gradient(&self.csr, &after));
                    column.copy_from_slice(&candidate);
                    for (r, &v) in r[j * nrows..(j + 1) * nrows].iter_mut().zip(&after) {
                        *r = T::from_f64(v);
                    }
                    state.history.push(relative(size, state.b_norm));
                } else {
                    state.done = true;
                }
                state.done |= state.residual == 0.0 || !state.residual.is_finite();
            }
            if states.iter().all(|state| state.done) {
                break;
            }
        }
        let mut condition = None;
        let mut outcomes = Vec::with_capacity(k);
        for state in states {
            let mut outcome = self.outcome(state);
            if outcome.status == Status::Stagnated {
                if outcome.backward_error.is_some_and(|error| error.is_stable::<T>()) {
                    outcome.status = Status::BackwardStable;
                }
                condition = match condition {
                    None => Some(self.condition()?),
                    known => known,
                };
                outcome.condition = condition.flatten();
            }
            outcomes.push(outcome);
        }
        Ok(outcomes)
    }

    fn outcome(&self, state: State) -> Outcome {
        let true_residual = relative(state.residual, state.b_norm);
        let rtol = self.options.rtol.unwrap_or_else(default_rtol::<T>);
        let enough = true_residual <= rtol
            || state.residual <= self.options.atol
            || state.gradient.is_some_and(|gradient| gradient <= rtol);
        let status = if enough {
            Status::Converged
        } else if true_residual.is_finite() {
            Status::Stagnated
        } else {
            Status::NotFinite
        };
        let note = self.fallback.then_some("llt met a pivot that is not positive, so lu was used");
        let target = rtol.max(relative(self.options.atol, state.b_norm));
        let State { history, error: backward_error, .. } = state;
        let residual = true_residual;
        Outcome { status, residual, true_residual, target, history, note, backward_error, ..Outcome::zero::<T>() }
    }

    /// The outcome for a matrix without columns: x is empty and the residual is b.
    fn without_columns(&self, b: &[T]) -> Outcome {
        let b_norm = norm(b);
        self.outcome(State { b_norm, residual: b_norm, gradient: Some(0.0), ..State::default() })
    }
}

/// The state of one right-hand side.
#[derive(Default)]
struct State {
    b_norm: f64,
    residual: f64,
    /// The componentwise backward error.
    worst: f64,
    error: Option<BackwardError>,
    /// ||A^T r|| / (||A|| ||r||), for least squares.
    gradient: Option<f64>,
    history: Vec<f64>,
    done: bool,
}

fn relative(residual: f64, b_norm: f64) -> f64 {
    if residual == 0.0 { 0.0 } else { residual / b_norm }
}

/// ||A^T r|| / (||A||_F ||r||); 0 if r = 0.
pub(super) fn gradient<T: Real>(csr: &Csr<T>, r: &[f64]) -> f64 {
    let mut gradient = vec![0.0; csr.ncols()];
    for (i, &r) in r.iter().enumerate() {
        let (cols, values) = csr.row(i);
        for (&j, v) in cols.iter().zip(values) {
            gradient[j as usize] += v.as_f64() * r;
        }
    }
    let denominator = norm(csr.values()) * accuracy::norm(r);
    relative(accuracy::norm(&gradient), denominator)
}

fn norm<T: Real>(v: &[T]) -> f64 {
    accuracy::norm(&v.iter().map(|v| v.as_f64()).collect::<Vec<_>>())
}
