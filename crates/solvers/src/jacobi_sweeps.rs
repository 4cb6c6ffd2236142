//! Incomplete factors applied approximately: a number of Jacobi sweeps replaces each triangular solve.
//!
//! With T = D + N, y <- D^-1 (r - N y) runs k times from y = 0: y = (I - G + ... + (-G)^(k-1)) D^-1 r with G = D^-1 N.
//! G is nilpotent: as many sweeps as T has levels give T^-1 r up to rounding. Fewer sweeps give an approximation; the
//! iterations show how many are enough. Where a solve waits level by level, each sweep is one product, in which all
//! rows run at once.
//!
//! For A ~ L L^T the second solve sweeps with L^T, and M stays symmetric positive definite for every k.
//!
//! Layout: G in CSR for either factor, and 1/d of its rows unless they are 1. Cost: for each factor k - 1 products with
//! G, k passes to copy and one to scale; three vectors of n.
//!
//! Order: that of [`Spmv`] for CSR.
//!
//! Reference: Anzt, Chow & Dongarra 2015, Iterative sparse triangular solves for preconditioning.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, Load, Mat, Order, Preconditioner, Spmv, UpdateValues};
use spandrel_formats::{Csr, Offset, Ordinal, Real};
use spandrel_sptrsv::{Diagonal, Factor, Triangle, Triangles, Triangular};

use crate::pool::Pool;
use crate::{Error, Result};

/// The preconditioner by sweeps: M^-1 approximates (L U)^-1 or (L L^T)^-1. See the module's head.
pub struct JacobiSweeps<B: Load<Csr<F::Value>> + Backend<F::Value>, F: Factor> {
    factor: F,
    lower: Sweeper<F::Value, B>,
    upper: Sweeper<F::Value, B>,
    sweeps: usize,
    shift: f64,
    scratch: Pool<Scratch<<B as Backend<F::Value>>::Vector>>,
}

/// L^-1 r, D^-1 r, and a second iterate beside the output.
struct Scratch<V> {
    middle: V,
    scaled: V,
    other: V,
}

impl<V> Scratch<V> {
    fn new<T: Real, B: Backend<T, Vector = V>>(be: &B, n: usize) -> spandrel_backend::Result<Self> {
        Ok(Self { middle: be.zeros(n)?, scaled: be.zeros(n)?, other: be.zeros(n)? })
    }
}

/// One triangle: G and 1/d.
struct Sweeper<T: Real, B: Load<Csr<T>> + Backend<T>> {
    g: Mat<B, Csr<T>>,
    inv_diag: Option<B::Vector>,
}

impl<B: Load<Csr<F::Value>> + Backend<F::Value>, F: Factor> fmt::Debug for JacobiSweeps<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JacobiSweeps")
            .field("factor", &F::NAME)
            .field("n", &self.factor.nrows())
            .field("sweeps", &self.sweeps)
            .field("shift", &self.shift)
            .finish_non_exhaustive()
    }
}

/// The two triangles of a factorisation; L^T for the second if there is no other.
pub(crate) fn both<T: Real>(triangles: Triangles<T>) -> Result<([Triangular<T>; 2], f64)> {
    let Triangles { lower, upper, shift } = triangles;
    let upper = match upper {
        Some(upper) => upper,
        None => Triangular::new(lower.csr().try_transpose()?, Triangle::Upper, Diagonal::NonUnit)?,
    };
    Ok(([lower, upper], shift))
}

/// G of a triangle.
fn divided<T: Real>(triangle: &Triangular<T>) -> Result<Csr<T>> {
    let (n, inverse) = (triangle.nrows(), triangle.inv_diag());
    let (mut row_ptr, mut col_idx, mut values) =
        (vec![0 as Offset], Vec::<Ordinal>::new(), Vec::<T>::with_capacity(triangle.csr().nnz()));
    for i in 0..n {
        let (cols, terms) = triangle.off_diagonal(i);
        let scale = inverse.get(i).copied().unwrap_or_else(T::one);
        col_idx.extend_from_slice(cols);
        values.extend(terms.iter().map(|&v| scale * v));
        let own = &values[row_ptr[i] as usize..];
        if !scale.is_finite() || own.iter().any(|v| !v.is_finite()) {
            return Err(spandrel_sptrsv::Error::NotFinite { row: i }.into());
        }
        // Below 2^31, as in the triangle.
        row_ptr.push(values.len() as Offset);
    }
    Ok(Csr::new(n, n, row_ptr, col_idx, values)?)
}

impl<T: Real, B: Spmv<Csr<T>>> Sweeper<T, B> {
    fn load(be: &B, triangle: &Triangular<T>) -> Result<Self> {
        let inv_diag = match triangle.diagonal() {
            Diagonal::Unit => None,
            Diagonal::NonUnit => Some(be.upload(triangle.inv_diag())?),
        };
        Ok(Self { g: Mat::load(be, divided(triangle)?)?, inv_diag })
    }

    /// Replaces G and 1/d by those of a triangle with the same pattern.
    fn update(&mut self, be: &B, g: &Csr<T>, inverse: &[T]) -> spandrel_backend::Result<()>
    where
        B: UpdateValues<Csr<T>>,
    {
        self.g.update_values(be, g.values())?;
        self.inv_diag.as_mut().map_or(Ok(()), |inv_diag| be.write(inverse, inv_diag))
    }

    /// y <- k sweeps from r.
    fn sweep(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        sweeps: usize,
        r: &B::Vector,
        scaled: &mut B::Vector,
        other: &mut B::Vector,
        y: &mut B::Vector,
    ) -> spandrel_backend::Result<()> {
        let first = match &self.inv_diag {
            Some(inv_diag) => {
                be.hadamard(gate, inv_diag, r, scaled)?;
                &*scaled
            }
            None => r,
        };
        if sweeps == 1 {
            return be.copy(gate, first, y);
        }
        // Alternate, so that the last sweep writes to y.
        let (mut to, mut from) = if sweeps.is_multiple_of(2) { (y, other) } else { (other, y) };
        for sweep in 2..=sweeps {
            be.copy(gate, first, to)?;
            let last = if sweep == 2 { first } else { &*from };
            self.g.spmv(be, gate, Coeff::host(-T::one()), last, Coeff::one(), to)?;
            std::mem::swap(&mut to, &mut from);
        }
        Ok(())
    }
}

impl<T: Real, B: Spmv<Csr<T>>, F: Factor<Value = T>> JacobiSweeps<B, F> {
    /// Factors a matrix with the factorisation's default parameters and loads the factors, each to be applied by
    /// `sweeps` sweeps. One sweep uses only the factors' diagonals.
    ///
    /// # Errors
    /// [`Error::Parameter`] for zero sweeps; [`Error::Triangle`] with the row at which the factorisation breaks down; a
    /// backend that fails.
    pub fn new(be: &B, csr: &Csr<T>, sweeps: usize) -> Result<Self> {
        Self::with(be, F::symbolic(csr)?, csr.values(), sweeps)
    }

    /// As [`JacobiSweeps::new`], for a symbolic phase that is done already. `values` are those of its matrix in stored
    /// order.
    ///
    /// # Errors
    /// As [`JacobiSweeps::new`].
    pub fn with(be: &B, factor: F, values: &[T], sweeps: usize) -> Result<Self> {
        if sweeps == 0 {
            return Err(Error::Parameter { name: "sweeps", value: 0.0, range: "at least one" });
        }
        let n = factor.nrows();
        let (triangles, shift) = both(factor.triangles(factor.numeric(values)?)?)?;
        let [lower, upper] = [Sweeper::load(be, &triangles[0])?, Sweeper::load(be, &triangles[1])?];
        Ok(Self { factor, lower, upper, sweeps, shift, scratch: Pool::new(Scratch::new(be, n)?) })
    }

    /// Factors new values on the same pattern, in stored order. The factors have the bits of new ones.
    ///
    /// There is no symbolic phase and no new address, so recorded steps see the new factors. Blocks. Must not be
    /// recorded.
    ///
    /// # Errors
    /// As [`JacobiSweeps::new`], and [`Error::Triangle`] for another number of values. After an error of the
    /// factorisation everything is as before.
    pub fn update(&mut self, be: &B, values: &[T]) -> Result<()>
    where
        B: UpdateValues<Csr<T>>,
    {
        let ([lower, upper], shift) = both(self.factor.triangles(self.factor.numeric(values)?)?)?;
        let (below, above) = (divided(&lower)?, divided(&upper)?);
        self.lower.update(be, &below, lower.inv_diag())?;
        self.upper.update(be, &above, upper.inv_diag())?;
        self.shift = shift;
        Ok(())
    }

    /// The number of sweeps that replace each solve.
    pub fn sweeps(&self) -> usize {
        self.sweeps
    }
    /// The shift alpha, if A + alpha diag(A) was factored instead of A; else 0.
    pub fn shift(&self) -> f64 {
        self.shift
    }
    /// The number of entries of the factors.
    pub fn nnz(&self) -> usize {
        self.factor.nnz()
    }
    /// Whether it has the same bits on every backend.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Csr<T>>::order(be) == Order::Stored
    }
}

// SAFETY: the enqueued operations depend only on `sweeps` and on the presence of reciprocals, which do not change. Its
// buffers are those of the two sweepers and of `scratch`, which are neither replaced nor lent out; only `update` writes
// to them.
unsafe impl<T: Real, B: Spmv<Csr<T>>, F: Factor<Value = T>> Preconditioner<T, B> for JacobiSweeps<B, F> {
    fn len(&self) -> Option<usize> {
        Some(self.factor.nrows())
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        let n = self.factor.nrows();
        let Scratch { middle, scaled, other } = &mut *self.scratch.lend(|| Scratch::new(be, n))?;
        self.lower.sweep(be, gate, self.sweeps, r, scaled, other, middle)?;
        self.upper.sweep(be, gate, self.sweeps, middle, scaled, other, z)
    }
}
