//! A Chebyshev polynomial as a preconditioner, for symmetric positive definite matrices with a positive diagonal.
//!
//! z <- p(D^-1 A) D^-1 r, where 1 - t p(t) is the Chebyshev polynomial of degree k that is smallest on [b / 30, b],
//! scaled to 1 at t = 0. b is the largest row sum of |D^-1 A|. It bounds the eigenvalues (Gershgorin), so nothing is
//! estimated. For 0 < t <= b, |1 - t p(t)| < 1, so p is positive there, and M stays symmetric positive definite for
//! every k. Only products wait, and in a product all rows run at once.
//!
//! Layout: A in CSR, 1/d. Cost: k - 1 products with A and 5 k passes over vectors of n; three vectors of n.
//!
//! Order: that of [`Spmv`] for CSR.
//!
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, algorithm 12.1; Adams, Brezina, Hu & Tuminaro
//! 2003, Parallel multigrid smoothing: polynomial versus Gauss-Seidel, for the interval.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Gate, Mat, Operator, Order, Preconditioner, Spmv, UpdateValues};
use spandrel_formats::{Csr, Real};

use crate::pool::Pool;
use crate::precond::inverse;
use crate::{Error, Result};

/// The ratio of the interval's ends. The slower part of the spectrum is left to the surrounding iteration.
const RATIO: f64 = 30.0;

/// M^-1 by a Chebyshev polynomial. See the module's head.
pub struct Chebyshev<T: Real, B: Backend<T>, A = Mat<B, Csr<T>>> {
    a: A,
    inv_diag: B::Vector,
    n: usize,
    degree: usize,
    /// The upper end of the interval.
    bound: f64,
    scratch: Pool<Scratch<B::Vector>>,
}

/// The residual, D^-1 times the residual, and the step.
struct Scratch<V> {
    residual: V,
    scaled: V,
    step: V,
}

impl<V> Scratch<V> {
    fn new<T: Real, B: Backend<T, Vector = V>>(be: &B, n: usize) -> spandrel_backend::Result<Self> {
        Ok(Self { residual: be.zeros(n)?, scaled: be.zeros(n)?, step: be.zeros(n)? })
    }
}

impl<T: Real, B: Backend<T>, A> fmt::Debug for Chebyshev<T, B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chebyshev")
            .field("n", &self.n)
            .field("degree", &self.degree)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: Spmv<Csr<T>>> Chebyshev<T, B> {
    /// Bounds the spectrum and loads matrix and diagonal. `degree` is the number of terms, at least 1; degree 1 is
    /// Jacobi.
    ///
    /// ```
    /// use spandrel_backend::{Backend, Mat};
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_solvers::{Chebyshev, Options, cg};
    ///
    /// let (device, a) = (Cpu::new(), spandrel_formats::generate::csr::<f64>("poisson2d:40")?);
    /// let m = Chebyshev::new(&device, a.clone(), 4)?;
    /// let (b, mut x) = (device.upload(&vec![1.0; 1600])?, Backend::<f64>::zeros(&device, 1600)?);
    /// let outcome = cg(&device, &Mat::load(&device, a)?, &m, &b, &mut x, &Options::default())?;
    /// assert!(outcome.status.is_converged() && outcome.iterations < 40);
    /// # Ok::<(), spandrel_solvers::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Parameter`] for degree 0; [`Error::Diagonal`] with the first row whose diagonal
    /// entry is not positive or cannot be inverted; [`Error::NotFinite`] for an entry that is infinite or NaN; a
    /// backend that fails.
    pub fn new(be: &B, a: impl Into<Arc<Csr<T>>>, degree: usize) -> Result<Self> {
        expect_degree(degree)?;
        let a = a.into();
        let (inverse, bound) = scaled(&a)?;
        let (n, inv_diag) = (inverse.len(), be.upload(&inverse)?);
        let scratch = Pool::new(Scratch::new(be, n)?);
        Ok(Self { a: Mat::load(be, a)?, inv_diag, n, degree, bound, scratch })
    }

    /// Takes new values on the same pattern. The bits are those of a new preconditioner.
    ///
    /// Steps that were recorded before keep the old interval. Blocks. Must not be recorded.
    ///
    /// # Errors
    /// As [`Chebyshev::new`], and [`Error::Pattern`] for another number of entries. After an error of the matrix
    /// everything is as before.
    pub fn update(&mut self, be: &B, a: &Csr<T>) -> Result<()>
    where
        B: UpdateValues<Csr<T>>,
    {
        if a.nnz() != self.a.nnz() || a.nrows() != self.n {
            return Err(Error::Pattern { found: a.nnz(), expected: self.a.nnz() });
        }
        let (inverse, bound) = scaled(a)?;
        be.write(&inverse, &mut self.inv_diag)?;
        self.a.update_values(be, a.values())?;
        self.bound = bound;
        Ok(())
    }

    /// Whether it has the same bits on every backend.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Csr<T>>::order(be) == Order::Stored
    }
}

impl<T: Real, B: Backend<T>, A: Operator<T, B>> Chebyshev<T, B, A> {
    /// Over any operator A with a positive diagonal. `inverse` holds 1 / a_ii, on one rank of a distributed solve those
    /// of the rank's rows; `bound` is at least as large as every eigenvalue of D^-1 A, such as the largest row sum of
    /// |D^-1 A|.
    ///
    /// # Errors
    /// [`Error::Parameter`] for degree 0, and for a bound that is not positive and finite; a backend that fails.
    pub fn over(be: &B, a: A, inverse: &[T], bound: f64, degree: usize) -> Result<Self> {
        expect_degree(degree)?;
        let inv_diag = be.upload(inverse)?;
        let n = be.len(&inv_diag);
        if n > 0 && !(bound > 0.0 && bound.is_finite()) {
            return Err(Error::Parameter { name: "bound", value: bound, range: "a bound on eigenvalues is positive" });
        }
        Ok(Self { a, inv_diag, n, degree, bound, scratch: Pool::new(Scratch::new(be, n)?) })
    }

    /// Terms of the polynomial.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The bound on the eigenvalues of D^-1 A.
    pub fn bound(&self) -> f64 {
        self.bound
    }
}

fn expect_degree(degree: usize) -> Result<()> {
    if degree == 0 {
        return Err(Error::Parameter { name: "degree", value: 0.0, range: "chebyshev has a degree of at least 1" });
    }
    Ok(())
}

/// 1 / a_ii for each row, and the largest row sum of |D^-1 A|, in f64.
fn scaled<T: Real>(a: &Csr<T>) -> Result<(Vec<T>, f64)> {
    if a.nrows() != a.ncols() {
        return Err(Error::NotSquare { solver: "chebyshev", nrows: a.nrows(), ncols: a.ncols() });
    }
    scaled_rows((0..a.nrows()).map(|row| {
        let (cols, values) = a.row(row);
        (cols.binary_search(&(row as u32)).ok(), cols, values)
    }))
}

/// 1 / a_ii for each of these rows, and the largest row sum of |D^-1 A|, in f64. A row is the place of its diagonal
/// entry, its columns and its values. The sum of a row is taken in stored order.
///
/// # Errors
/// [`Error::Diagonal`] and [`Error::NotFinite`], rows counted from the first that is given.
pub fn scaled_rows<'r, T: Real, J: Copy + Into<u64> + 'r>(
    rows: impl IntoIterator<Item = (Option<usize>, &'r [J], &'r [T])>,
) -> Result<(Vec<T>, f64)> {
    let (mut inverses, mut bound) = (Vec::new(), 0.0f64);
    for (row, (diagonal, cols, values)) in rows.into_iter().enumerate() {
        let inverse = inverse(row, diagonal.map(|at| values[at]))?;
        if inverse <= T::zero() {
            return Err(Error::Diagonal { row, found: "negative" });
        }
        if let Some(k) = values.iter().position(|v| !v.is_finite()) {
            let found = if values[k].is_nan() { "NaN" } else { "infinite" };
            let column: u64 = cols[k].into();
            return Err(Error::NotFinite { row, column: column as usize, found });
        }
        bound = bound.max(values.iter().map(|v| v.as_f64().abs()).sum::<f64>() * inverse.as_f64());
        inverses.push(inverse);
    }
    Ok((inverses, bound))
}

// SAFETY: which operations are enqueued depends on `degree` and `bound`, which change only while nothing borrows the
// preconditioner. Its buffers are those of `a` by the contract of `Operator`, `inv_diag` and `scratch`, which are
// neither replaced nor lent out.
unsafe impl<T: Real, B: Backend<T>, A: Operator<T, B>> Preconditioner<T, B> for Chebyshev<T, B, A> {
    fn len(&self) -> Option<usize> {
        Some(self.n)
    }
    #[rustfmt::skip] // the right margin holds the formulas
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        let Scratch { residual, scaled, step } = &mut *self.scratch.lend(|| Scratch::new::<T, B>(be, self.n))?;
        let (theta, delta) = (0.5 * self.bound * (1.0 + 1.0 / RATIO), 0.5 * self.bound * (1.0 - 1.0 / RATIO));
        let host = |value: f64| Coeff::host(T::from_f64(value));
        be.hadamard(gate, &self.inv_diag, r, scaled)?;
        be.axpby(gate, host(1.0 / theta), scaled, Coeff::zero(), step)?;                   // d = D^-1 r / theta
        be.copy(gate, step, z)?;                                                           // z = d
        let sigma = theta / delta;
        let mut rho = 1.0 / sigma;
        for _ in 1..self.degree {
            let next = 1.0 / (2.0 * sigma - rho);
            self.a.residual(be, gate, r, z, residual)?;                                    // w = r - A z
            be.hadamard(gate, &self.inv_diag, residual, scaled)?;                          // D^-1 w
            // d = rho' rho d + 2 rho'/delta D^-1 w;  z = z + d
            let taken = [host(2.0 * next / delta), host(next * rho)];
            be.axpby_chain(gate, taken, scaled, step, [Coeff::one(), Coeff::one()], z)?;
            rho = next;
        }
        Ok(())
    }
}
