//! Direct solves on the host: a sparse factorisation by faer, kept for any number of right-hand sides and new values.
//!
//! A symmetric matrix with a positive diagonal gets Cholesky (LL^T), or LU if that fails. Other square matrices get LU.
//! A matrix with more rows than columns gets QR, for least squares. One with fewer rows is an error. Each answer is
//! refined with residuals that are computed in twice the precision of f64.
//! Cost: the size of the factor is known (LL^T, QR) or bounded (LU) before it is computed. Above a limit it is refused.
//! Order: fixed for a fixed number of threads; without [`DirectOptions::parallel`] the bits do not depend on threads.
//! References: George & Liu 1981, Computer solution of large sparse positive definite systems; Davis 2006, Direct
//! methods for sparse linear systems; refinement: Higham 2002, Accuracy and stability of numerical algorithms, chapter
//! 12.

mod condition;
mod factor;
mod fill;
mod null;
mod refine;
pub(crate) mod structure;

use std::borrow::Cow;
use std::sync::Arc;

use spandrel_formats::equilibrate::{Equilibration, Spread};
use spandrel_formats::{Csr, Real};

use crate::phase::{Phase, SetupWatcher, unobserved};
use crate::{Error, Result};
use factor::{Call, Factor, Symbolic};
pub use factor::{Factorable, Work};
pub use null::share_of;

/// Rows or columns are scaled only if their sizes differ by more than this many binary digits. LAPACK, too, scales from
/// a factor of ten on.
const EVEN: u32 = 3;

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
    /// Converged if ||b - A x|| <= `rtol` ||b||. `None`, the default, is [`crate::options::default_rtol`]: 1e-8 in
    /// `f64`, 1e-5 in `f32`.
    pub rtol: Option<f64>,
    /// Converged if ||b - A x|| <= `atol`. Default 0.
    pub atol: f64,
    /// The factorisation, or `None` to choose by the matrix. If an LL^T that is named here fails, LU does not replace
    /// it. Default `None`.
    pub method: Option<Method>,
    /// The largest size of the factor in bytes. Default 16 GiB.
    pub memory_limit: u64,
    /// The largest number of refinement steps. They end with the first that does not halve the residual. Default 3.
    pub refinements: usize,
    /// Whether to use rayon's threads. Default true.
    pub parallel: bool,
    /// Whether LU scales rows and columns by powers of two if their sizes differ much. This changes which pivots are
    /// taken, never A or b. Default true.
    pub equilibrate: bool,
    /// Factors A + delta D instead of A, where delta is this number and D holds the largest magnitudes of A's rows. The
    /// refinement uses A itself. Default 0.
    ///
    /// A delta of about the square root of the unit roundoff solves singular systems that have an answer. QR factors A
    /// on top of delta D, with D of A's columns, and so solves least squares problems of any rank and shape. Of all x
    /// with the least ||b - A x|| it returns the one with the least ||D x||, up to about u / delta^2 for the unit
    /// roundoff u.
    pub regularization: f64,
}

impl Default for DirectOptions {
    fn default() -> Self {
        Self {
            rtol: None,
            atol: 0.0,
            method: None,
            memory_limit: 16 << 30,
            refinements: 3,
            parallel: true,
            equilibrate: true,
            regularization: 0.0,
        }
    }
}

/// A matrix with its symbolic factorisation and, once [`Direct::factor`] has run, its numeric one.
#[derive(Debug)]
pub struct Direct<T: Factorable> {
    csr: Arc<Csr<T>>,
    options: DirectOptions,
    /// Whether the matrix is symmetric with a positive diagonal.
    symmetric: bool,
    symbolic: Symbolic,
    /// The scaling R A C of the factored matrix.
    scaling: Option<Equilibration>,
    factor: Option<Factor<T>>,
    fallback: bool,
}

impl<T: Factorable> Direct<T> {
    /// Analyses the pattern: ordering, fill, memory. [`Direct::factor`] computes the values.
    ///
    /// The matrix is kept for residuals. Pass it by value or as an `Arc`, so that there is no second copy. It must have
    /// at least as many rows as columns, unless QR is regularised: an underdetermined system has many answers, and none
    /// of them is chosen here.
    ///
    /// # Errors
    /// [`Error::ZeroPivot`] for a pattern that is singular whatever its values (an empty column, three columns within
    /// two rows); [`Error::Underdetermined`] for fewer rows than columns; [`Error::NotSquare`] for a method that needs
    /// a square matrix; [`Error::Fill`]; [`Error::Factor`].
    pub fn analyze(csr: impl Into<Arc<Csr<T>>>, options: &DirectOptions) -> Result<Self> {
        let shared: Arc<Csr<T>> = csr.into();
        let csr = &*shared;
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let takes_any_rank = options.method == Some(Method::Qr) && options.regularization > 0.0;
        if nrows < ncols && !takes_any_rank {
            return Err(Error::Underdetermined { nrows, ncols });
        }
        let square = nrows == ncols;
        let symmetric = square && is_symmetric(csr) && csr.diagonal().iter().all(|&d| d > T::zero());
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
        if options.regularization == 0.0 {
            check_structure(csr, method)?;
        }
        let symbolic = Symbolic::new(&*regularized(csr, options.regularization, method)?, method, options)?;
        let scaling = None;
        Ok(Self { csr: shared, options: *options, symmetric, symbolic, scaling, factor: None, fallback: false })
    }

    /// Analyses and factors a matrix: [`Direct::analyze`], then [`Direct::factor`].
    ///
    /// # Errors
    /// Those of both.
    pub fn new(csr: impl Into<Arc<Csr<T>>>, options: &DirectOptions) -> Result<Self> {
        Self::new_watched(csr, options, &mut unobserved)
    }

    /// As [`Direct::new`], and tells `watcher` of each phase before it begins. A factorisation cannot be interrupted.
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
    /// [`Error::NotFinite`] for an entry that is infinite or NaN, [`Error::ZeroPivot`] for a singular matrix,
    /// [`Error::Fill`] if LU has to replace LL^T and would not fit, [`Error::Factor`].
    pub fn factor(&mut self) -> Result<()> {
        self.factor_watched(&mut unobserved)
    }

    /// As [`Direct::factor`], and tells `watcher` of each phase before it begins. If LU has to replace LL^T, there are
    /// two more phases.
    ///
    /// # Errors
    /// As [`Direct::factor`], and [`Error::Interrupted`]; then there is no factor.
    pub fn factor_watched(&mut self, watcher: SetupWatcher<'_>) -> Result<()> {
        self.factor = None;
        Phase::Numeric.begin(watcher)?;
        check_finite(&self.csr)?;
        let csr = Arc::clone(&self.csr);
        let matrix = regularized(&csr, self.options.regularization, self.method())?;
        self.factor = match self.numeric(&matrix) {
            Err(Error::ZeroPivot { method: "llt", .. }) if self.options.method.is_none() => {
                // The matrix is indefinite. From here on the pattern belongs to LU.
                Phase::Symbolic.begin(watcher)?;
                self.symbolic = Symbolic::new(&*matrix, Method::Lu, &self.options)?;
                self.fallback = true;
                Phase::Numeric.begin(watcher)?;
                Some(self.numeric(&matrix)?)
            }
            other => Some(other?),
        };
        Ok(())
    }

    /// The factor of a matrix on the analysed pattern, and how it is scaled.
    fn numeric(&mut self, matrix: &Csr<T>) -> Result<Factor<T>> {
        self.scaling = None;
        // Scaling does not change the order of Cholesky's pivots.
        if self.options.equilibrate && self.method() == Method::Lu {
            let spread = Spread::of(matrix)?;
            if spread.rows.max(spread.cols) > EVEN {
                self.scaling = Some(Equilibration::general(matrix)?);
            }
        }
        match &self.scaling {
            Some(scaling) => T::factor(&scaling.apply(matrix)?.0, &self.symbolic, &self.options),
            None => T::factor(matrix, &self.symbolic, &self.options),
        }
    }

    fn unfactored(&self) -> Error {
        let why = "no factor: call factor first and heed its error".to_owned();
        Error::Factor { method: self.method().as_str(), why }
    }

    /// F^-1 r or F^-T r, for the factored matrix F.
    fn apply(&self, mut r: Vec<T>, columns: usize, transposed: bool) -> Result<Vec<T>> {
        let Some(factor) = &self.factor else { return Err(self.unfactored()) };
        if self.method() == Method::Qr && self.options.regularization > 0.0 {
            return self.apply_stacked(&r, columns);
        }
        // A = R^-1 F C^-1, so A^-1 = C F^-1 R and A^-T = R F^-T C.
        let scale = |v: &mut [T], by_rows: bool| -> Result<()> {
            let Some(scaling) = &self.scaling else { return Ok(()) };
            for column in v.chunks_exact_mut(self.csr.nrows().max(1)) {
                if by_rows {
                    scaling.scale_rhs(column)?
                } else {
                    scaling.unscale_x(column)?
                };
            }
            Ok(())
        };
        scale(&mut r, !transposed)?;
        let call = Call { columns, transposed, parallel: self.options.parallel };
        let mut d = T::solve(factor, &self.symbolic, r, call)?;
        scale(&mut d, transposed)?;
        Ok(d)
    }

    /// The x with the least ||A x - r||^2 + ||delta D x||^2. It is at the head of each column, which has as many
    /// elements as the longer of r and x.
    fn apply_stacked(&self, r: &[T], columns: usize) -> Result<Vec<T>> {
        let Some(factor) = &self.factor else { return Err(self.unfactored()) };
        let (nrows, ncols) = (self.csr.nrows(), self.csr.ncols());
        let mut stacked = Vec::with_capacity(columns * (nrows + ncols));
        for column in r.chunks_exact(nrows.max(1)) {
            stacked.extend_from_slice(column);
            stacked.resize(stacked.len() + ncols, T::zero());
        }
        let call = Call { columns, transposed: false, parallel: self.options.parallel };
        let found = T::solve(factor, &self.symbolic, stacked, call)?;
        Ok(found.chunks_exact(nrows + ncols).flat_map(|column| &column[..nrows.max(ncols)]).copied().collect())
    }

    /// Estimates the condition number ||A|| ||A^-1|| in the 1-norm by a few solves; `None` for least squares.
    ///
    /// If the regularised matrix was factored, the inverse is that matrix's.
    ///
    /// # Errors
    /// [`Error::Factor`] unless [`Direct::factor`] has succeeded.
    pub fn condition(&self) -> Result<Option<f64>> {
        if self.method() == Method::Qr {
            return Ok(None);
        }
        let inverse = condition::norm1(self.csr.ncols(), |v, transposed| self.apply(v, 1, transposed))?;
        let mut columns = vec![0.0; self.csr.ncols()];
        for (&j, v) in self.csr.col_idx().iter().zip(self.csr.values()) {
            columns[j as usize] += v.as_f64().abs();
        }
        // If the sum overflows, the estimate is infinite, which is a fair answer.
        Ok(Some(inverse * columns.into_iter().fold(0.0, f64::max)))
    }

    /// Factors new values on the same pattern, given in CSR's order. The analysis is kept.
    ///
    /// If others share the matrix, it is copied first.
    ///
    /// # Errors
    /// [`Error::Pattern`] for a wrong number of values; [`Error::Factor`] if the new values are not symmetric and the
    /// analysis is that of LL^T; those of [`Direct::factor`].
    pub fn refactor(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.csr.values().len() {
            return Err(Error::Pattern { found: values.len(), expected: self.csr.values().len() });
        }
        Arc::make_mut(&mut self.csr).values_mut().copy_from_slice(values);
        if self.method() == Method::Llt && !is_symmetric(&self.csr) {
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

    /// The options that the factors were made with.
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
        self.symbolic.work().bytes
    }

    /// The number of columns of the matrix, which is the number of elements of x.
    pub fn ncols(&self) -> usize {
        self.csr.ncols()
    }

    /// The size of the factorisation, from the analysis.
    pub fn work(&self) -> Work {
        self.symbolic.work()
    }
}

/// If no choice of rows gives every column a row of its own, the matrix is rank deficient, whatever its values.
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

/// Whether one triangle of the matrix can replace the other. Refinement corrects a difference that is only rounding.
fn is_symmetric<T: Real>(csr: &Csr<T>) -> bool {
    csr.is_symmetric() || csr.is_symmetric_to_rounding()
}

/// The largest magnitude in a row; 1 for a row of zeros.
fn row_size<T: Real>(csr: &Csr<T>, row: usize) -> f64 {
    let largest = csr.row(row).1.iter().fold(0.0, |largest: f64, v| largest.max(v.as_f64().abs()));
    if largest > 0.0 { largest } else { 1.0 }
}

/// A on top of delta D, where D holds the largest magnitudes of A's columns; 1 for a column of zeros.
fn stacked<T: Real>(csr: &Csr<T>, delta: f64) -> Result<Csr<T>> {
    let (nrows, ncols) = (csr.nrows(), csr.ncols());
    let mut sizes = vec![0.0f64; ncols];
    for (&j, v) in csr.col_idx().iter().zip(csr.values()) {
        sizes[j as usize] = sizes[j as usize].max(v.as_f64().abs());
    }
    let shift = |&size: &f64| T::from_f64(delta * if size > 0.0 { size } else { 1.0 });
    let mut row_ptr = csr.row_ptr().to_vec();
    row_ptr.extend((1..=ncols).map(|j| (csr.nnz() + j) as u32));
    let col_idx = csr.col_idx().iter().copied().chain(0..ncols as u32).collect();
    let values = csr.values().iter().copied().chain(sizes.iter().map(shift)).collect();
    Ok(Csr::new(nrows + ncols, ncols, row_ptr, col_idx, values)?)
}

/// The matrix that is factored: A itself if delta is 0, [`stacked`] for QR, else A + delta D. D holds the largest
/// magnitudes of A's rows; 1 for a row of zeros.
fn regularized<T: Real>(csr: &Csr<T>, delta: f64, method: Method) -> Result<Cow<'_, Csr<T>>> {
    if delta == 0.0 {
        return Ok(Cow::Borrowed(csr));
    }
    if method == Method::Qr {
        return Ok(Cow::Owned(stacked(csr, delta)?));
    }
    let n = csr.nrows();
    let (mut row_ptr, mut col_idx, mut values) =
        (vec![0], Vec::with_capacity(csr.nnz() + n), Vec::with_capacity(csr.nnz() + n));
    for i in 0..n {
        let (cols, row) = csr.row(i);
        let shift = T::from_f64(delta * row_size(csr, i));
        let at = cols.partition_point(|&j| (j as usize) < i);
        let stored = cols.get(at).is_some_and(|&j| j as usize == i);
        col_idx.extend_from_slice(&cols[..at]);
        values.extend_from_slice(&row[..at]);
        col_idx.push(i as u32);
        values.push(if stored { row[at] + shift } else { shift });
        col_idx.extend_from_slice(&cols[at + usize::from(stored)..]);
        values.extend_from_slice(&row[at + usize::from(stored)..]);
        row_ptr.push(col_idx.len() as u32);
    }
    Ok(Cow::Owned(Csr::new(n, n, row_ptr, col_idx, values)?))
}
