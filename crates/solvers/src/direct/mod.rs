//! Direct solves on the host: a sparse factorisation by faer, kept for any number of right-hand sides and new values.
//!
//! Cholesky (LL^T) where the matrix is symmetric with a positive diagonal, and LU should that fail; LU for other square
//! matrices; QR with more rows than columns: least squares. Fewer rows than columns are a typed error. Each answer is refined with residuals
//! formed in twice the digits of f64.
//! Cost: the factor's size is known (LL^T, QR) or bounded (LU) before it is computed, and refused above a limit.
//! Order: fixed for a fixed number of threads; with [`DirectOptions::parallel`] off the bits do not depend on them.
//! Reference: George & Liu 1981, Computer solution of large sparse positive definite systems; Davis 2006, Direct methods for
//! sparse linear systems; refinement: Higham 2002, Accuracy and stability of numerical algorithms, chapter 12.

mod factor;
mod fill;
mod structure;

use std::sync::Arc;

use spandrel_formats::{Csr, Real};

use crate::options::default_rtol;
use crate::phase::{Phase, SetupWatcher, unobserved};
use crate::{Error, Outcome, Result, Status};
pub use factor::Factorable;
use factor::{Factor, Symbolic};

/// The factorisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Cholesky, P A P^T = L L^T.
    Llt,
    /// P A Q = L U with partial pivoting.
    Lu,
    /// A P = Q R.
    Qr,
}

impl Method {
    /// `"llt"`, `"lu"`, `"qr"`.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Llt => "llt",
            Method::Lu => "lu",
            Method::Qr => "qr",
        }
    }
}

/// Options of a direct solve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectOptions {
    /// Converged once ||b - A x|| <= `rtol` ||b||. `None`, the default, is [`crate::options::default_rtol`]: 1e-8 in `f64`, 1e-5 in `f32`.
    pub rtol: Option<f64>,
    /// Converged once ||b - A x|| <= `atol`. Default 0.
    pub atol: f64,
    /// The factorisation, or `None` to choose by the matrix. A chosen LL^T is not replaced by LU where it fails. Default `None`.
    pub method: Option<Method>,
    /// Bytes that the factor may take. Default 16 GiB.
    pub memory_limit: u64,
    /// Steps of iterative refinement at most; they end where one no longer halves the residual. Default 3.
    pub refinements: usize,
    /// Whether rayon's threads take part. Default true.
    pub parallel: bool,
}

impl Default for DirectOptions {
    fn default() -> Self {
        Self { rtol: None, atol: 0.0, method: None, memory_limit: 16 << 30, refinements: 3, parallel: true }
    }
}

/// A matrix with its symbolic factorisation and, once [`Direct::factor`] has run, its numeric one.
#[derive(Debug)]
pub struct Direct<T: Factorable> {
    csr: Arc<Csr<T>>,
    options: DirectOptions,
    /// What LU falls back from.
    symmetric: bool,
    symbolic: Symbolic,
    factor: Option<Factor<T>>,
    fallback: bool,
}

impl<T: Factorable> Direct<T> {
    /// Analyses the pattern: ordering, fill, memory. The numeric part is left to [`Direct::factor`]. The matrix is kept for residuals:
    /// hand it over, or an `Arc` of it, and no second copy is held.
    ///
    /// Square or with more rows than columns: of the many answers of an underdetermined system none is chosen here.
    ///
    /// # Errors
    /// [`Error::ZeroPivot`] for a pattern that is singular whatever its values (an empty column, three columns within two rows);
    /// [`Error::Underdetermined`] for fewer rows than columns; [`Error::NotSquare`] for a method that needs a square matrix; [`Error::Fill`]; [`Error::Factor`].
    pub fn analyze(csr: impl Into<Arc<Csr<T>>>, options: &DirectOptions) -> Result<Self> {
        let shared: Arc<Csr<T>> = csr.into();
        let csr = &*shared;
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        if nrows < ncols {
            return Err(Error::Underdetermined { nrows, ncols });
        }
        let square = nrows == ncols;
        let symmetric = square && csr.is_symmetric() && csr.diagonal().iter().all(|&d| d > T::zero());
        let method = options.method.unwrap_or(match (square, symmetric) {
            (true, true) => Method::Llt,
            (true, false) => Method::Lu,
            (false, _) => Method::Qr,
        });
        if method != Method::Qr && !square {
            return Err(Error::NotSquare { solver: method.as_str(), nrows, ncols });
        }
        if method == Method::Llt && !symmetric {
            let why = "LL^T needs a symmetric matrix with a positive diagonal; use LU".to_owned();
            return Err(Error::Factor { method: "llt", why });
        }
        check_structure(csr, method)?;
        let symbolic = Symbolic::new(csr, method, options)?;
        Ok(Self { csr: shared, options: *options, symmetric, symbolic, factor: None, fallback: false })
    }

    /// [`Direct::analyze`] and [`Direct::factor`].
    ///
    /// # Errors
    /// Theirs.
    pub fn new(csr: impl Into<Arc<Csr<T>>>, options: &DirectOptions) -> Result<Self> {
        Self::new_watched(csr, options, &mut unobserved)
    }

    /// As [`Direct::new`], telling `watcher` of each phase before it begins. The factorisations themselves cannot be interrupted.
    ///
    /// # Errors
    /// As [`Direct::new`], and [`Error::Interrupted`].
    pub fn new_watched(
        csr: impl Into<Arc<Csr<T>>>,
        options: &DirectOptions,
        watcher: SetupWatcher<'_>,
    ) -> Result<Self> {
        Phase::Symbolic.begin(watcher)?;
        let mut direct = Self::analyze(csr, options)?;
        direct.factor_watched(watcher)?;
        Ok(direct)
    }

    /// Computes the factor's values.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for an entry that is infinite or NaN, [`Error::ZeroPivot`] for a singular matrix, [`Error::Fill`] where LU
    /// must stand in for LL^T and would not fit, [`Error::Factor`].
    pub fn factor(&mut self) -> Result<()> {
        self.factor_watched(&mut unobserved)
    }

    /// As [`Direct::factor`], telling `watcher` of each phase before it begins: also of the two that follow where LU must stand in for LL^T.
    ///
    /// # Errors
    /// As [`Direct::factor`], and [`Error::Interrupted`]: there is no factor then.
    pub fn factor_watched(&mut self, watcher: SetupWatcher<'_>) -> Result<()> {
        self.factor = None;
        Phase::Numeric.begin(watcher)?;
        check_finite(&self.csr)?;
        let attempt = T::factor(&self.csr, &self.symbolic, &self.options);
        self.factor = match attempt {
            Err(Error::ZeroPivot { method: "llt", .. }) if self.options.method.is_none() => {
                // Indefinite after all. From here on the pattern belongs to LU.
                Phase::Symbolic.begin(watcher)?;
                self.symbolic = Symbolic::new(&self.csr, Method::Lu, &self.options)?;
                self.fallback = true;
                Phase::Numeric.begin(watcher)?;
                Some(T::factor(&self.csr, &self.symbolic, &self.options)?)
            }
            other => Some(other?),
        };
        Ok(())
    }

    /// Takes new values for the same pattern, in CSR's order, and factors again; the analysis is kept. A matrix that others share is
    /// copied first.
    ///
    /// # Errors
    /// [`Error::Pattern`] for a wrong number of values, [`Error::Factor`] where the new values are not symmetric and the analysis is that
    /// of LL^T, and those of [`Direct::factor`].
    pub fn refactor(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.csr.values().len() {
            return Err(Error::Pattern { found: values.len(), expected: self.csr.values().len() });
        }
        Arc::make_mut(&mut self.csr).values_mut().copy_from_slice(values);
        if self.method() == Method::Llt && !self.csr.is_symmetric() {
            self.factor = None;
            let why = "the new values are not symmetric; analyse again, or ask for LU".to_owned();
            return Err(Error::Factor { method: "llt", why });
        }
        self.factor()
    }

    /// The factorisation in use.
    pub fn method(&self) -> Method {
        self.symbolic.method()
    }

    /// What the factors were made for.
    pub fn options(&self) -> &DirectOptions {
        &self.options
    }

    /// Whether LL^T was tried first and met a pivot that is not positive.
    pub fn fell_back(&self) -> bool {
        self.fallback
    }

    /// Whether the matrix was symmetric with a positive diagonal when it was analysed.
    pub fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Bytes of the factor: exact for LL^T and QR, an upper bound for LU.
    pub fn factor_bytes(&self) -> u64 {
        self.symbolic.bytes()
    }

    /// Solves A x = b (b: `nrows`, x: `ncols` elements), or min ||b - A x|| for more rows than columns. What x held does not matter.
    ///
    /// For least squares a residual remains where b is not in the range of A: `converged` then also means that ||A^T r|| is at most
    /// `rtol` ||A|| ||r|| (Frobenius norm), and [`Outcome::true_residual`] stays the true ||b - A x|| / ||b||.
    ///
    /// # Errors
    /// [`Error::Size`]; [`Error::Factor`] where [`Direct::factor`] has not succeeded.
    pub fn solve(&self, b: &[T], x: &mut [T]) -> Result<Outcome> {
        let outcomes = self.solve_many(1, b, x)?;
        Ok(outcomes.into_iter().next().unwrap_or_else(Outcome::zero::<T>))
    }

    /// [`Direct::solve`] for `k` right-hand sides, columns one behind the other, with one outcome each.
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
        let Some(factor) = &self.factor else {
            let why = "no factor: call factor first and heed its error".to_owned();
            return Err(Error::Factor { method: self.method().as_str(), why });
        };
        if ncols == 0 || k == 0 {
            return Ok((0..k).map(|j| self.without_columns(&b[j * nrows..(j + 1) * nrows])).collect());
        }

        // A step: x <- x + A^-1 r for all columns at once, kept column by column where it helps.
        let mut states: Vec<State> = (0..k).map(|_| State::default()).collect();
        x.fill(T::zero());
        let mut r = b.to_vec();
        for (j, state) in states.iter_mut().enumerate() {
            state.b_norm = norm(&b[j * nrows..(j + 1) * nrows]);
            state.residual = state.b_norm;
        }
        for step in 0..=self.options.refinements {
            let d = T::solve(factor, &self.symbolic, r.clone(), k, self.options.parallel)?;
            for (j, state) in states.iter_mut().enumerate().filter(|(_, state)| !state.done) {
                let column = &mut x[j * ncols..(j + 1) * ncols];
                let candidate: Vec<T> =
                    column.iter().zip(&d[j * nrows..j * nrows + ncols]).map(|(&x, &d)| x + d).collect();
                let b = &b[j * nrows..(j + 1) * nrows];
                let after = residual(&self.csr, b, &candidate);
                let size = norm_f64(&after);
                // The first answer is taken as it is; written so that NaN is not taken for an improvement later.
                if step == 0 || size < state.residual {
                    state.done = step > 0 && size >= 0.5 * state.residual;
                    state.residual = size;
                    state.gradient = if nrows == ncols { None } else { Some(relative_gradient(&self.csr, &after)) };
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
        Ok(states.into_iter().map(|state| self.outcome(state)).collect())
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
        let history = state.history;
        Outcome { status, residual: true_residual, true_residual, target, history, note, ..Outcome::zero::<T>() }
    }

    /// The outcome for a matrix without columns: x is empty and the residual is b.
    fn without_columns(&self, b: &[T]) -> Outcome {
        let b_norm = norm(b);
        self.outcome(State { b_norm, residual: b_norm, gradient: Some(0.0), ..State::default() })
    }
}

/// One right-hand side underway.
#[derive(Default)]
struct State {
    b_norm: f64,
    residual: f64,
    /// ||A^T r|| / (||A|| ||r||), for least squares.
    gradient: Option<f64>,
    history: Vec<f64>,
    done: bool,
}

fn relative(residual: f64, b_norm: f64) -> f64 {
    if residual == 0.0 { 0.0 } else { residual / b_norm }
}

/// b - A x, as if in twice the digits of f64 and rounded once, so that the huge x of a nearly singular matrix cannot hide a
/// residual in the rounding of its own evaluation (Ogita, Rump & Oishi 2005, Accurate sum and dot product: Dot2).
fn residual<T: Real>(csr: &Csr<T>, b: &[T], x: &[T]) -> Vec<f64> {
    let row = |(i, b): (usize, &T)| {
        let (cols, values) = csr.row(i);
        let (mut sum, mut lost) = (b.as_f64(), 0.0);
        for (&j, v) in cols.iter().zip(values) {
            let (v, x) = (-v.as_f64(), x[j as usize].as_f64());
            let product = v * x;
            let next = sum + product;
            let back = next - sum;
            lost += v.mul_add(x, -product) + ((sum - (next - back)) + (product - back));
            sum = next;
        }
        // Where the sum has left the range the corrections are NaN, and so is the answer worth.
        sum + lost
    };
    b.iter().enumerate().map(row).collect()
}

/// ||A^T r|| / (||A||_F ||r||), 0 where r is.
fn relative_gradient<T: Real>(csr: &Csr<T>, r: &[f64]) -> f64 {
    let mut gradient = vec![0.0; csr.ncols()];
    for (i, &r) in r.iter().enumerate() {
        let (cols, values) = csr.row(i);
        for (&j, v) in cols.iter().zip(values) {
            gradient[j as usize] += v.as_f64() * r;
        }
    }
    let denominator = norm(csr.values()) * norm_f64(r);
    relative(norm_f64(&gradient), denominator)
}

fn norm<T: Real>(v: &[T]) -> f64 {
    norm_f64(&v.iter().map(|v| v.as_f64()).collect::<Vec<_>>())
}

/// ||v|| by its largest element, so that no square leaves the range. NaN where an element is NaN.
fn norm_f64(v: &[f64]) -> f64 {
    let largest = v.iter().fold(0.0f64, |m, v| if v.is_nan() || m.is_nan() { f64::NAN } else { m.max(v.abs()) });
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    largest * v.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt()
}

/// A matrix whose columns cannot each be given a row of their own is rank deficient whatever its values.
fn check_structure<T: Real>(csr: &Csr<T>, method: Method) -> Result<()> {
    match structure::unmatched_column(csr) {
        None => Ok(()),
        Some(column) => Err(Error::ZeroPivot {
            method: method.as_str(),
            pivot: Some(column),
            why: format!("no choice of rows gives every column a pivot; column {column} is left without one"),
        }),
    }
}

fn check_finite<T: Real>(csr: &Csr<T>) -> Result<()> {
    for row in 0..csr.nrows() {
        let (cols, values) = csr.row(row);
        if let Some(k) = values.iter().position(|v| !v.is_finite()) {
            let found = if values[k].is_nan() { "NaN" } else { "infinite" };
            return Err(Error::NotFinite { row, column: cols[k] as usize, found });
        }
    }
    Ok(())
}
