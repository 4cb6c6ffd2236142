//! A preconditioner of A made from one of A Q, where Q exchanges columns: z <- Q (M^-1 r).
//!
//! ILUTP ([`spandrel_sptrsv::Ilut::pivoted`]) factors such an A Q. Q is stored as a CSR matrix of ones, so the exchange
//! is a product that every backend has.
//!
//! Cost: one product with n entries, and one vector of n.
//! Order: each element of z is one product with 1, so the bits are those of M^-1 r, in another order.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 10.4.4.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Gate, Load, Mat, Preconditioner, Spmv};
use spandrel_formats::permutation::Permutation;
use spandrel_formats::{Csr, Real};

use crate::Result;
use crate::pool::Pool;

/// Q M^-1, where M preconditions A Q. See the module's head.
pub struct Permuted<T: Real, B: Backend<T> + Load<Csr<T>>, M> {
    columns: Permutation,
    q: Mat<B, Csr<T>>,
    within: M,
    y: Pool<B::Vector>,
}

impl<T: Real, B: Backend<T> + Load<Csr<T>>, M> fmt::Debug for Permuted<T, B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permuted").field("n", &self.columns.len()).finish_non_exhaustive()
    }
}

impl<T: Real, B: Spmv<Csr<T>>, M> Permuted<T, B, M> {
    /// Takes a preconditioner of A Q. Column `new` of A Q is column `columns.perm()[new]` of A
    /// ([`Permutation::permute_columns`]).
    ///
    /// ```
    /// use spandrel_backend::Backend;
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_formats::Csr;
    /// use spandrel_solvers::{Ilu, Options, Permuted, bicgstab};
    /// use spandrel_sptrsv::{Ilut, IlutOptions, Levelset};
    ///
    /// // No diagonal at all.
    /// let a = Csr::from_triplets(2, 2, [(0, 1, 2.0), (1, 0, 4.0)])?;
    /// let device = Cpu::new();
    /// let (columns, symbolic) = Ilut::pivoted(&a, IlutOptions::default())?;
    /// let permuted = columns.permute_columns(&a)?;
    /// let factors = Ilu::<Cpu, Levelset<f64>, Ilut<f64>>::with(&device, symbolic, permuted.values())?;
    /// let m = Permuted::new(&device, columns, factors)?;
    /// let (b, mut x) = (device.upload(&[2.0, 4.0])?, Backend::<f64>::zeros(&device, 2)?);
    /// let a = spandrel_backend::Mat::<Cpu, Csr<f64>>::load(&device, a)?;
    /// assert!(bicgstab(&device, &a, &m, &b, &mut x, &Options::default())?.status.is_converged());
    /// # Ok::<(), spandrel_solvers::Error>(())
    /// ```
    ///
    /// # Errors
    /// A backend that fails.
    pub fn new(be: &B, columns: Permutation, within: M) -> Result<Self> {
        let n = columns.len();
        // x[perm[new]] = y[new].
        let places = columns.inverse().into_parts();
        let q = Csr::new(n, n, (0..=n as u32).collect(), places, vec![T::one(); n])?;
        Ok(Self { q: Mat::load(be, q)?, y: Pool::new(be.zeros(n)?), columns, within })
    }

    /// Which column of A each column of A Q is.
    pub fn columns(&self) -> &Permutation {
        &self.columns
    }

    /// The preconditioner of A Q.
    pub fn within(&self) -> &M {
        &self.within
    }

    /// The preconditioner of A Q, for new values.
    pub fn within_mut(&mut self) -> &mut M {
        &mut self.within
    }
}

// SAFETY: one fixed sequence of two operations. Q, the vector that the pool lends and M keep their buffers in place.
unsafe impl<T: Real, B: Spmv<Csr<T>>, M: Preconditioner<T, B>> Preconditioner<T, B> for Permuted<T, B, M> {
    fn len(&self) -> Option<usize> {
        Some(self.columns.len())
    }
    fn is_linear(&self) -> bool {
        self.within.is_linear()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        let y = &mut *self.y.lend(|| be.zeros(self.columns.len()))?;
        self.within.apply(be, gate, r, y)?;
        self.q.spmv(be, gate, Coeff::one(), y, Coeff::zero(), z)
    }
}
