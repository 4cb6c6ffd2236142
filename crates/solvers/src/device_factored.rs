//! Preconditioners that are two triangular solves with factors that the device computes: the host does the symbolic phase and the
//! analysis, from patterns alone, and never sees a value of the factors.
//!
//! Order: that of [`spandrel_sptrsv::factor`], then that of the plan's solves: the bits of [`Factored`] with the same plan.
//! Cost: a set-up of the host's symbolic phase and analysis, the device's numeric phase, and a pass over the factors into the plans'
//! layouts. Beside the plans the device holds the patterns of the factors and a second copy of their values, so that a factorisation that
//! breaks down leaves the preconditioner as it was.
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, chapter 10.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Backend, Factorize, Gate, Load, Preconditioner, Sptrsv};
use spandrel_formats::Csr;
use spandrel_sptrsv::{Factor, Pattern, Plan};

use crate::factored::{Factored, Plans};
use crate::{Error, Result};

/// M^-1 as two triangular solves, its numeric phase on the device. See the module's head.
pub struct DeviceFactored<B: Load<P> + Factorize<F>, P: Plan, F: Factor> {
    solves: Factored<B, P, F>,
    symbolic: <B as Load<F>>::Resident,
    /// Values of L and U as they are made.
    made: [<B as Backend<F::Value>>::Vector; 2],
}

impl<B: Load<P> + Factorize<F>, P: Plan, F: Factor> fmt::Debug for DeviceFactored<B, P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceFactored").field("solves", &self.solves).finish_non_exhaustive()
    }
}

impl<P, B, F> DeviceFactored<B, P, F>
where
    P: Plan,
    F: Factor<Value = P::Value>,
    B: Sptrsv<P> + Factorize<F> + Backend<P::Value>,
{
    /// Factors a matrix with the factorisation's default parameters. Blocks.
    ///
    /// # Errors
    /// As [`DeviceFactored::load`].
    pub fn new(be: &B, csr: &Csr<P::Value>) -> Result<Self> {
        let values = Backend::<P::Value>::upload(be, csr.values())?;
        Self::with(be, F::symbolic(csr)?, &values)
    }

    /// As [`DeviceFactored::new`] for a symbolic phase that was done already: the values of its matrix, in stored order, on the device.
    ///
    /// # Errors
    /// As [`DeviceFactored::load`].
    pub fn with(be: &B, factor: F, values: &<B as Backend<P::Value>>::Vector) -> Result<Self> {
        let plans = Plans::analyze(&factor.triangles(factor.unformed())?.into())?;
        Self::load(be, factor, plans, values)
    }

    /// As [`DeviceFactored::with`] for triangles that are planned already; the values that they have are not used
    /// ([`Factor::unformed`]).
    ///
    /// # Errors
    /// [`Error::Triangle`] for what the factorisation breaks down at, with the row, and for triangles that are not of this
    /// factorisation; a backend that fails.
    pub fn load(be: &B, factor: F, plans: Plans<P>, values: &<B as Backend<P::Value>>::Vector) -> Result<Self> {
        let factor = Arc::new(factor);
        let symbolic = Load::<F>::load(be, Arc::clone(&factor))?;
        let vector = |pattern: Option<&Pattern>| Backend::<P::Value>::zeros(be, pattern.map_or(0, Pattern::nnz));
        let made = [vector(Some(factor.lower()))?, vector(factor.upper())?];
        let mut device = Self { solves: Factored::load_shared(be, factor, plans)?, symbolic, made };
        device.update(be, values)?;
        Ok(device)
    }

    /// Factors new values on the pattern of the old, in stored order: nothing of them goes through the host. No symbolic phase, no analysis,
    /// no new addresses, so recorded steps see the new factors. Blocks; may not be recorded.
    ///
    /// # Errors
    /// As [`DeviceFactored::load`]; after an error of the factorisation the preconditioner is as before.
    pub fn update(&mut self, be: &B, values: &<B as Backend<P::Value>>::Vector) -> Result<()> {
        let [lower, upper] = &mut self.made;
        let shift = be.factorize(&self.symbolic, values, lower, upper).map_err(Error::from)?;
        self.solves.lower.update_from(be, lower)?;
        if let Some(triangle) = &mut self.solves.upper {
            triangle.update_from(be, upper)?;
        }
        self.solves.shift = shift;
        Ok(())
    }

    /// The two solves.
    pub fn solves(&self) -> &Factored<B, P, F> {
        &self.solves
    }
    /// Values of L and of U in the order of their stored entries; none of U where the other factor is L^T.
    pub fn made(&self) -> &[<B as Backend<P::Value>>::Vector; 2] {
        &self.made
    }
}

// SAFETY: as for the solves within, which are all that it enqueues.
unsafe impl<P, B, F> Preconditioner<P::Value, B> for DeviceFactored<B, P, F>
where
    P: Plan,
    F: Factor<Value = P::Value>,
    B: Sptrsv<P> + Factorize<F> + Backend<P::Value>,
{
    fn len(&self) -> Option<usize> {
        self.solves.len()
    }
    fn apply(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        r: &<B as Backend<P::Value>>::Vector,
        z: &mut <B as Backend<P::Value>>::Vector,
    ) -> spandrel_backend::Result<()> {
        self.solves.apply(be, gate, r, z)
    }
}
