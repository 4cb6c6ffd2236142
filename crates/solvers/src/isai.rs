//! Incomplete factors applied approximately: an incomplete sparse approximate inverse (ISAI) replaces each triangular
//! solve.
//!
//! W ~ T^-1 has entries where T has, and W T equals I there: (W T)_ij = I_ij for (i, j) in T's pattern. Each row needs
//! a small triangular solve with as many unknowns as the row has entries. Outside the pattern W T is not controlled, so
//! W equals T^-1 only if T^-1 has no further entries.
//!
//! An application is one product, in which all rows run at once. For A ~ L L^T the second factor is W^T, and M stays
//! symmetric positive definite.
//!
//! Layout: W in CSR for either factor. Cost: the set-up passes over the row of each entry's column, on the host in f64,
//! and rounds each value once. An application is two products, with one scratch vector of n.
//!
//! Order: entries of a row from the diagonal outwards, without fused operations; the product has the order of [`Spmv`]
//! for CSR.
//!
//! Reference: Anzt, Huckle, Braeckle & Dongarra 2018, Incomplete sparse approximate inverses for parallel
//! preconditioning.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, Load, Mat, Operator, Order, Preconditioner, Spmv, UpdateValues};
use spandrel_formats::{Csr, Offset, Ordinal, Real};
use spandrel_sptrsv::{Factor, Triangle, Triangles, Triangular};

use crate::Result;
use crate::pool::Pool;

/// The ISAI preconditioner: M^-1 = W_U W_L approximates (L U)^-1, or W^T W approximates (L L^T)^-1. See the module's
/// head.
pub struct Isai<B: Load<Csr<F::Value>> + Backend<F::Value>, F: Factor> {
    factor: F,
    lower: Mat<B, Csr<F::Value>>,
    upper: Mat<B, Csr<F::Value>>,
    shift: f64,
    /// W_L r.
    middle: Pool<<B as Backend<F::Value>>::Vector>,
}

impl<B: Load<Csr<F::Value>> + Backend<F::Value>, F: Factor> fmt::Debug for Isai<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Isai")
            .field("factor", &F::NAME)
            .field("n", &self.factor.nrows())
            .field("shift", &self.shift)
            .finish_non_exhaustive()
    }
}

/// The approximate inverse W of a triangle. See the module's head.
///
/// # Errors
/// [`spandrel_sptrsv::Error::NotFinite`] with the first row that has an infinity or NaN.
pub fn approximate_inverse<T: Real>(triangle: &Triangular<T>) -> Result<Csr<T>> {
    let n = triangle.nrows();
    let inverse = triangle.inv_diag();
    let lower = triangle.triangle() == Triangle::Lower;
    let (mut row_ptr, mut col_idx, mut values) = (vec![0 as Offset], Vec::<Ordinal>::new(), Vec::<T>::new());
    // The place of a column in the current row, counted from 1; 0 if the row does not have it.
    let mut places = vec![0 as Ordinal; n];
    let (mut sums, mut row) = (Vec::new(), Vec::new());
    for i in 0..n {
        let begin = col_idx.len();
        if lower {
            col_idx.extend_from_slice(triangle.off_diagonal(i).0);
        }
        col_idx.push(i as Ordinal);
        if !lower {
            col_idx.extend_from_slice(triangle.off_diagonal(i).0);
        }
        let cols = &col_idx[begin..];
        let last = cols.len() - 1;
        for (at, &j) in cols.iter().enumerate() {
            places[j as usize] = at as Ordinal + 1;
        }
        sums.clear();
        sums.resize(cols.len(), 0.0f64);
        row.clear();
        row.resize(cols.len(), T::zero());
        // From the diagonal outwards: w_c = (I_ic - sum of earlier w_j t_jc) / t_cc.
        for step in 0..=last {
            let at = if lower { last - step } else { step };
            let j = cols[at] as usize;
            let right = if step == 0 { 1.0 } else { -sums[at] };
            let w = right * inverse.get(j).map_or(1.0, |d| d.as_f64());
            row[at] = T::from_f64(w);
            if !row[at].is_finite() {
                return Err(spandrel_sptrsv::Error::NotFinite { row: i }.into());
            }
            let (others, terms) = triangle.off_diagonal(j);
            for (&c, v) in others.iter().zip(terms) {
                if let Some(place) = (places[c as usize] as usize).checked_sub(1) {
                    sums[place] += w * v.as_f64();
                }
            }
        }
        cols.iter().for_each(|&j| places[j as usize] = 0);
        values.extend_from_slice(&row);
        row_ptr.push(spandrel_formats::index::checked(values.len(), "entries of an approximate inverse")?);
    }
    Ok(Csr::new(n, n, row_ptr, col_idx, values)?)
}

/// W_L and W_U, or W and W^T.
fn inverses<T: Real>(triangles: &Triangles<T>) -> Result<[Csr<T>; 2]> {
    let lower = approximate_inverse(&triangles.lower)?;
    let upper = match &triangles.upper {
        Some(upper) => approximate_inverse(upper)?,
        None => lower.try_transpose()?,
    };
    Ok([lower, upper])
}

impl<T: Real, B: Spmv<Csr<T>>, F: Factor<Value = T>> Isai<B, F> {
    /// Factors a matrix with the factorisation's default parameters, inverts the factors on their patterns and loads
    /// the inverses.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] with the row at which the factorisation or an inverse breaks down; a backend that
    /// fails.
    pub fn new(be: &B, csr: &Csr<T>) -> Result<Self> {
        Self::with(be, F::symbolic(csr)?, csr.values())
    }

    /// As [`Isai::new`], for a symbolic phase that is done already. `values` are those of its matrix in stored order.
    ///
    /// # Errors
    /// As [`Isai::new`].
    pub fn with(be: &B, factor: F, values: &[T]) -> Result<Self> {
        let triangles = factor.triangles(factor.numeric(values)?)?;
        let [lower, upper] = inverses(&triangles)?;
        let middle = Pool::new(be.zeros(factor.nrows())?);
        let (lower, upper) = (Mat::load(be, lower)?, Mat::load(be, upper)?);
        Ok(Self { factor, lower, upper, shift: triangles.shift, middle })
    }

    /// Factors and inverts new values on the same pattern, in stored order. The inverses have the bits of new ones.
    ///
    /// There is no symbolic phase and no new address, so recorded steps see the new inverses. Blocks. Must not be
    /// recorded.
    ///
    /// # Errors
    /// As [`Isai::new`], and [`crate::Error::Triangle`] for another number of values. After an error of the
    /// factorisation or an inverse everything is as before.
    pub fn update(&mut self, be: &B, values: &[T]) -> Result<()>
    where
        B: UpdateValues<Csr<T>>,
    {
        let triangles = self.factor.triangles(self.factor.numeric(values)?)?;
        let [lower, upper] = inverses(&triangles)?;
        self.lower.update_values(be, lower.values())?;
        self.upper.update_values(be, upper.values())?;
        self.shift = triangles.shift;
        Ok(())
    }

    /// The shift alpha, if A + alpha diag(A) was factored instead of A; else 0.
    pub fn shift(&self) -> f64 {
        self.shift
    }
    /// The number of entries of the two inverses.
    pub fn nnz(&self) -> usize {
        self.lower.nnz() + self.upper.nnz()
    }
    /// Whether it has the same bits on every backend.
    pub fn is_stored_order(&self, be: &B) -> bool {
        Spmv::<Csr<T>>::order(be) == Order::Stored
    }
}

// SAFETY: its buffers are those of the two matrices and `middle`, which are neither replaced nor lent out; only
// `update` writes to them. The contract of `Load` holds for the products.
unsafe impl<T: Real, B: Spmv<Csr<T>>, F: Factor<Value = T>> Preconditioner<T, B> for Isai<B, F> {
    fn len(&self) -> Option<usize> {
        Some(self.factor.nrows())
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        let middle = &mut *self.middle.lend(|| be.zeros(self.factor.nrows()))?;
        self.lower.spmv(be, gate, Coeff::one(), r, Coeff::zero(), middle)?;
        self.upper.spmv(be, gate, Coeff::one(), middle, Coeff::zero(), z)
    }
    fn apply_dot(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        r: &B::Vector,
        z: &mut B::Vector,
        rz: &mut B::Scalar,
    ) -> spandrel_backend::Result<()> {
        let middle = &mut *self.middle.lend(|| be.zeros(self.factor.nrows()))?;
        self.lower.spmv(be, gate, Coeff::one(), r, Coeff::zero(), middle)?;
        self.upper.apply_dot(be, gate, middle, z, r, rz, None)
    }
}
