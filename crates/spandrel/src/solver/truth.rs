//! Whether an iteration has truly converged.
//!
//! A method judges x by a residual that the device computes in the precision of the solve. If the terms of A x are
//! large and cancel, this residual may be small by chance. So a claim of convergence either follows from the bound of
//! its rounding ([`ResidualRounding`]), which costs two norms, or the host computes the residual in twice the digits.

use std::sync::Arc;

use spandrel_backend::Backend;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::accuracy::true_residual;
use spandrel_solvers::{Outcome, ResidualRounding, Result, Status};

use super::device::Vector;
use super::element::{Element, SolverBackend};
use super::engine::Engine;

/// The matrix in the numbering of the solve, and what is known of its residuals.
pub(super) struct Truth<T> {
    a: Arc<Csr<T>>,
    /// Whether it is known to be.
    is_symmetric: bool,
    /// Whether new values came to the device and not to the host.
    is_old: bool,
    rounding: Option<ResidualRounding>,
}

impl<T: Element> Truth<T> {
    pub(super) fn new(a: Arc<Csr<T>>, is_symmetric: bool) -> Self {
        Self { a, is_symmetric, is_old: false, rounding: None }
    }

    /// New values came to the device only.
    pub(super) fn is_on_device(&mut self) {
        (self.is_old, self.is_symmetric, self.rounding) = (true, false, None);
    }

    /// Denies a claim of convergence that is not true, and returns whether it did.
    ///
    /// # Errors
    /// A device that fails.
    pub(super) fn denies<B: SolverBackend<T>>(
        &mut self,
        device: &B,
        engine: &(dyn Engine<T, B> + Send),
        (b, x): (&Vector<T, B>, &Vector<T, B>),
        outcome: &mut Outcome,
    ) -> Result<bool> {
        if !is_claim(outcome) {
            return Ok(false);
        }
        if self.is_old
            && let Some(latest) = engine.matrix(device)
        {
            (self.a, self.is_old) = (Arc::new(latest?), false);
        }
        let Self { a, is_symmetric, rounding, .. } = self;
        let rounding = rounding.get_or_insert_with(|| ResidualRounding::of(&**a, *is_symmetric));
        let mut norms = Backend::<T>::scalars(device, 2, T::zero())?;
        for (v, norm) in [x, b].into_iter().zip(&mut norms) {
            Backend::<T>::norm2(device, None, v, norm)?;
        }
        let norms: Vec<f64> = Backend::<T>::download_scalars(device, &norms)?.into_iter().map(|v| v.as_f64()).collect();
        if are_known::<T>(&norms) && rounding.proves::<T>(outcome.true_residual, norms[0] / norms[1], outcome.target) {
            return Ok(false);
        }
        let (b, x) = (Backend::<T>::download(device, b)?, Backend::<T>::download(device, x)?);
        Ok(judge(true_residual(&**a, &b, &x), outcome))
    }
}

/// Whether an outcome claims a convergence that may not be true. x = 0 for b = 0 is exact.
pub(crate) fn is_claim(outcome: &Outcome) -> bool {
    outcome.status.is_converged() && !(outcome.target == 0.0 && outcome.true_residual == 0.0)
}

/// Whether no square of these norms has left the range of `T`.
pub(crate) fn are_known<T: Real>(norms: &[f64]) -> bool {
    let largest = if T::BYTES == 4 { 2f64.powi(40) } else { 2f64.powi(400) };
    norms.iter().all(|norm| (1.0 / largest..largest).contains(norm))
}

/// Gives the outcome its true residual. Denies the convergence if that misses the goal, and returns whether it did.
pub(crate) fn judge(true_residual: f64, outcome: &mut Outcome) -> bool {
    outcome.true_residual = true_residual;
    let is_denied = true_residual.is_nan() || true_residual > outcome.target;
    if is_denied {
        outcome.status = if true_residual.is_finite() { Status::Stagnated } else { Status::NotFinite };
        outcome.note = Some("the terms of A x cancel, and the iteration saw only the rounding of its residual");
    }
    is_denied
}
