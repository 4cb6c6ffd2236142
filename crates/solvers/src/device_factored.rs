//! Preconditioners that are two triangular solves with factors computed on the device.
//!
//! The host does the symbolic phase and the analysis from patterns alone, and never sees a value of the factors. If
//! rows mostly wait for each other, the host also does the numeric phase, in parallel with the analysis, and the device
//! gets the result ([`DeviceFactors::by_host`]).
//!
//! Order: that of [`spandrel_sptrsv::factor`], then that of the plan's solves: the bits of [`Factored`] with the same
//! plan.
//!
//! Cost: the host's symbolic phase, the longer of its analysis and the numeric phase, which are independent, and a pass
//! over the factors into the plans' layouts. In addition to the plans the device holds a second copy of the factors'
//! values. So a factorisation that breaks down leaves the preconditioner as it was. If the device computes the factors,
//! it also holds their patterns.
//!
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, chapter 10.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Backend, Factorize, Gate, Load, Preconditioner, Sptrsv};
use spandrel_formats::Csr;
use spandrel_sptrsv::{Factor, Factors, Pattern, Plan};

use crate::Result;
use crate::factored::{Factored, Plans};

/// Factors on a device, and what is needed to compute new ones: the part of the set-up that needs no plan.
pub struct DeviceFactors<B: Factorize<F>, F: Factor> {
    factor: Arc<F>,
    /// `None` if the host computes them.
    symbolic: Option<<B as Load<F>>::Resident>,
    /// Values of L and U in the order of computation.
    made: [<B as Backend<F::Value>>::Vector; 2],
    shift: f64,
}

impl<B: Factorize<F>, F: Factor> fmt::Debug for DeviceFactors<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceFactors")
            .field("factor", &F::NAME)
            .field("n", &self.factor.nrows())
            .field("shift", &self.shift)
            .finish_non_exhaustive()
    }
}

impl<B: Factorize<F>, F: Factor> DeviceFactors<B, F> {
    /// Factors values on the device, in the stored order of the matrix of the symbolic phase `factor`. Blocks.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] with the row at which the factorisation breaks down; a backend that fails.
    pub fn new(be: &B, factor: Arc<F>, values: &B::Vector) -> Result<Self> {
        let symbolic = Load::<F>::load(be, Arc::clone(&factor))?;
        let mut factors = Self::unmade(be, factor, Some(symbolic))?;
        factors.update(be, values)?;
        Ok(factors)
    }

    /// As [`DeviceFactors::new`], but the host factors its values, now and at every update. The same bits. Blocks.
    ///
    /// This is faster if [`spandrel_sptrsv::Numeric::is_sooner_on_host`] says so.
    ///
    /// # Errors
    /// As [`DeviceFactors::new`].
    pub fn by_host(be: &B, factor: Arc<F>, values: &[F::Value]) -> Result<Self> {
        let mut factors = Self::unmade(be, factor, None)?;
        factors.update_here(be, values)?;
        Ok(factors)
    }

    fn unmade(be: &B, factor: Arc<F>, symbolic: Option<<B as Load<F>>::Resident>) -> Result<Self> {
        let vector = |pattern: Option<&Pattern>| Backend::<F::Value>::zeros(be, pattern.map_or(0, Pattern::nnz));
        let made = [vector(Some(factor.lower()))?, vector(factor.upper())?];
        Ok(Self { factor, symbolic, made, shift: 0.0 })
    }

    /// Makes factors while another host thread does some work: the analysis, which needs no values.
    pub fn beside<R: Send>(make: impl FnOnce() -> Result<Self>, work: impl FnOnce() -> R + Send) -> (Result<Self>, R) {
        let mut done = None;
        let factors = rayon::in_place_scope(|scope| {
            scope.spawn(|_| done = Some(work()));
            make()
        });
        match done {
            Some(done) => (factors, done),
            None => unreachable!("a scope ends after what was spawned in it"),
        }
    }

    /// Loads triangles with their plans. Their values are not those of the factors until [`DeviceFactored::of`].
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] for triangles that are not of this factorisation; a backend that fails.
    pub fn load<P>(&self, be: &B, plans: Plans<P>) -> Result<Factored<B, P, F>>
    where
        P: Plan<Value = F::Value>,
        B: Sptrsv<P>,
    {
        Factored::load_shared(be, Arc::clone(&self.factor), plans)
    }

    fn update(&mut self, be: &B, values: &B::Vector) -> Result<()> {
        let Some(symbolic) = &self.symbolic else {
            let values = be.download(values)?;
            return self.update_here(be, &values);
        };
        let [lower, upper] = &mut self.made;
        match be.factorize(symbolic, values, lower, upper) {
            Ok(shift) => self.shift = shift,
            // A device refuses the pivots that the host may replace.
            Err(spandrel_backend::Error::Triangle(error)) if error.is_pivot() => {
                let values = be.download(values)?;
                match self.factor.mended(&values) {
                    Some(factors) => self.take(be, &factors?)?,
                    None => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn update_here(&mut self, be: &B, values: &[F::Value]) -> Result<()> {
        expect_len("factorize", "values", values.len(), self.factor.nnz_given())?;
        let factors = self.factor.usable(values)?;
        self.take(be, &factors)
    }

    /// Brings the host's factors onto the device.
    fn take(&mut self, be: &B, factors: &Factors<F::Value>) -> Result<()> {
        let [lower, upper] = &mut self.made;
        be.write(&factors.lower, lower)?;
        be.write(&factors.upper, upper)?;
        self.shift = factors.shift;
        Ok(())
    }
}

/// The preconditioner M^-1: two triangular solves with factors on the device. See the module's head.
pub struct DeviceFactored<B: Load<P> + Factorize<F>, P: Plan, F: Factor> {
    solves: Factored<B, P, F>,
    factors: DeviceFactors<B, F>,
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
    /// As [`DeviceFactored::with`].
    pub fn new(be: &B, csr: &Csr<P::Value>) -> Result<Self> {
        let values = Backend::<P::Value>::upload(be, csr.values())?;
        Self::with(be, F::symbolic(csr)?, &values)
    }

    /// As [`DeviceFactored::new`], for a symbolic phase that is done already. `values` are those of its matrix, in
    /// stored order, on the device.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] with the row at which the factorisation breaks down, or for a plan that does not fit;
    /// a backend that fails.
    pub fn with(be: &B, factor: F, values: &<B as Backend<P::Value>>::Vector) -> Result<Self> {
        let factor = Arc::new(factor);
        let plans = || Plans::analyze(&factor.triangles(factor.unformed())?.into());
        let (factors, plans) = DeviceFactors::beside(|| DeviceFactors::new(be, Arc::clone(&factor), values), plans);
        let (plans, factors) = (plans?, factors?);
        Self::of(be, factors.load(be, plans)?, factors)
    }

    /// Joins factors and the solves that were loaded for them ([`DeviceFactors::load`]). Enqueues.
    ///
    /// # Errors
    /// [`crate::Error::Triangle`] for solves with triangles of other patterns; a backend that fails.
    pub fn of(be: &B, solves: Factored<B, P, F>, factors: DeviceFactors<B, F>) -> Result<Self> {
        let mut device = Self { solves, factors };
        device.adopt(be)?;
        Ok(device)
    }

    /// Factors new values on the same pattern, in stored order, on the same side as before.
    ///
    /// There is no symbolic phase, no analysis and no new address, so recorded steps see the new factors. Blocks. Must
    /// not be recorded.
    ///
    /// # Errors
    /// As [`DeviceFactored::with`]. After an error of the factorisation the preconditioner is as before.
    pub fn update(&mut self, be: &B, values: &<B as Backend<P::Value>>::Vector) -> Result<()> {
        self.factors.update(be, values)?;
        self.adopt(be)
    }

    /// Copies the factors into the layouts of the plans.
    fn adopt(&mut self, be: &B) -> Result<()> {
        let [lower, upper] = &self.factors.made;
        self.solves.lower.update_from(be, lower)?;
        if let Some(triangle) = &mut self.solves.upper {
            triangle.update_from(be, upper)?;
        }
        self.solves.shift = self.factors.shift;
        Ok(())
    }

    /// The two solves.
    pub fn solves(&self) -> &Factored<B, P, F> {
        &self.solves
    }
    /// The values of L and of U in the order of their stored entries; those of U are empty if the other factor is L^T.
    pub fn made(&self) -> &[<B as Backend<P::Value>>::Vector; 2] {
        &self.factors.made
    }
}

// SAFETY: as for the inner solves, which are all that it enqueues.
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
