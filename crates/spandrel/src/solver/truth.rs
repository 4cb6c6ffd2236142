//! Whether an iteration has truly converged.
//!
//! A method judges x by a residual that the device computes in the precision of the solve. If the terms of A x are
//! large and cancel, this residual may be small by chance. So a claim of convergence either follows from the bound of
//! its rounding ([`ResidualRounding`]), or the host computes the residual in twice the digits.

use std::sync::Arc;
use std::thread::JoinHandle;

use spandrel_backend::Backend;
use spandrel_formats::{Csr, Real};
use spandrel_solvers::accuracy::residual;
use spandrel_solvers::{Outcome, ResidualRounding, Result, Status};

use super::device::Vector;
use super::element::{Element, SolverBackend};
use super::engine::Engine;

/// The matrix in the numbering of the solve, and the bound on the rounding of its residuals.
pub(super) struct Truth<T> {
    a: Arc<Csr<T>>,
    /// Whether `a` is known to be symmetric.
    is_symmetric: bool,
    /// Whether the device has new values that the host does not have.
    is_old: bool,
    rounding: Rounding,
}

/// The bound on the rounding of a matrix's residuals.
enum Rounding {
    Unknown,
    /// Another thread computes it.
    Coming(JoinHandle<ResidualRounding>),
    Known(ResidualRounding),
}

impl<T: Element> Truth<T> {
    pub(super) fn new(a: Arc<Csr<T>>, is_symmetric: bool) -> Self {
        Self { a, is_symmetric, is_old: false, rounding: Rounding::Unknown }
    }

    /// Notes that new values came only to the device; `norm` is the norm of all of them.
    pub(super) fn is_on_device(&mut self, norm: f64) {
        let terms = (0..self.a.nrows()).map(|i| self.a.row_nnz(i)).max().unwrap_or_default();
        let rounding = ResidualRounding::with(self.a.nrows(), terms, magnitude::<T>(norm));
        (self.is_old, self.is_symmetric, self.rounding) = (true, false, Rounding::Known(rounding));
    }

    /// Begins to compute the bound on another thread, for a host that only waits for the device during the solve.
    pub(super) fn begin(&mut self) {
        /// Fewer entries are looked at in less time than a thread takes to begin.
        const FEW: usize = 1 << 18;
        if !matches!(self.rounding, Rounding::Unknown) || self.a.nnz() < FEW {
            return;
        }
        let (a, is_symmetric) = (Arc::clone(&self.a), self.is_symmetric);
        let begun = std::thread::Builder::new().spawn(move || ResidualRounding::of(&*a, is_symmetric));
        // Without a thread it is computed when it is needed.
        self.rounding = begun.map_or(Rounding::Unknown, Rounding::Coming);
    }

    fn rounding(&mut self) -> ResidualRounding {
        let found = match std::mem::replace(&mut self.rounding, Rounding::Unknown) {
            Rounding::Known(known) => Some(known),
            Rounding::Coming(thread) => thread.join().ok(),
            Rounding::Unknown => None,
        };
        let known = found.unwrap_or_else(|| ResidualRounding::of(&*self.a, self.is_symmetric));
        self.rounding = Rounding::Known(known);
        known
    }

    /// Whether the host has other values than the device.
    #[cfg(test)]
    pub(super) fn is_old(&self) -> bool {
        self.is_old
    }

    /// If x misses the goal, changes `converged` to `stagnated` or `not_finite`. Returns true if it did.
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
        if !outcome.status.is_converged() {
            return Ok(false);
        }
        if follows::<T, B>(device, (b, x), &self.rounding(), outcome)? {
            return Ok(false);
        }
        if self.is_old
            && let Some(latest) = engine.matrix(device)
        {
            // The sums of its rows and columns are a smaller bound for the solves that follow.
            (self.a, self.is_old, self.rounding) = (Arc::new(latest?), false, Rounding::Unknown);
        }
        let (b, x) = (Backend::<T>::download(device, b)?, Backend::<T>::download(device, x)?);
        judge::<T, B>(device, (&residual(&*self.a, &b, &x), &b), largest(&b), outcome)
    }
}

/// The norms of some vectors.
pub(super) fn norms<T: Real, B: Backend<T>, const N: usize>(be: &B, vectors: [&B::Vector; N]) -> Result<[f64; N]> {
    let mut norms = be.scalars(N, T::zero())?;
    for (v, norm) in vectors.into_iter().zip(&mut norms) {
        be.norm2(None, v, norm)?;
    }
    let norms = be.download_scalars(&norms)?;
    Ok(std::array::from_fn(|at| norms[at].as_f64()))
}

/// Returns true if none of the squares behind a norm can have left the range of `T`.
fn is_known<T: Real>(norm: f64) -> bool {
    let largest = if T::BYTES == 4 { 2f64.powi(40) } else { 2f64.powi(400) };
    (1.0 / largest..largest).contains(&norm)
}

/// The Frobenius norm of a matrix as a bound of the norm of |A|, from the norm of its values computed in `T`; infinite
/// if squares may have been lost.
pub(crate) fn magnitude<T: Real>(norm: f64) -> f64 {
    /// An allowance that is larger than the rounding of a norm in f32.
    const ROUNDING: f64 = 1e-3;
    if is_known::<T>(norm) { norm * (1.0 + ROUNDING) } else { f64::INFINITY }
}

/// Returns true if convergence follows from the residual that the device has computed.
pub(crate) fn follows<T: Real, B: Backend<T>>(
    be: &B,
    (b, x): (&B::Vector, &B::Vector),
    rounding: &ResidualRounding,
    outcome: &Outcome,
) -> Result<bool> {
    let [x, b] = norms::<T, B, 2>(be, [x, b])?;
    Ok(is_known::<T>(x) && is_known::<T>(b) && rounding.proves::<T>(outcome.true_residual, x / b, outcome.target))
}

/// The magnitude of the largest element.
pub(crate) fn largest<T: Real>(v: &[T]) -> f64 {
    v.iter().fold(0.0, |most, v| most.max(v.as_f64().abs()))
}

/// Gives the outcome its true residual, from the residual in twice the digits. If that misses the goal, changes
/// `converged` to `stagnated` or `not_finite`, and returns true.
///
/// `unit` is the largest magnitude in b: in units of it, no square of an acceptable residual leaves the range. For
/// b = 0, a solver returns x = 0, which is exact.
pub(crate) fn judge<T: Real, B: Backend<T>>(
    be: &B,
    (r, b): (&[f64], &[T]),
    unit: f64,
    outcome: &mut Outcome,
) -> Result<bool> {
    if unit == 0.0 {
        return Ok(false);
    }
    let r: Vec<T> = r.iter().map(|r| T::from_f64(r / unit)).collect();
    let b: Vec<T> = b.iter().map(|b| T::from_f64(b.as_f64() / unit)).collect();
    let [r, b] = norms::<T, B, 2>(be, [&be.upload(&r)?, &be.upload(&b)?])?;
    outcome.true_residual = r / b;
    let is_denied = outcome.true_residual.is_nan() || outcome.true_residual > outcome.target;
    if is_denied {
        outcome.status = if outcome.true_residual.is_finite() { Status::Stagnated } else { Status::NotFinite };
        outcome.note = Some("the terms of A x cancel, and the residual of the iteration was only rounding");
    }
    Ok(is_denied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spandrel_formats::generate;

    #[test]
    fn another_thread_finds_the_same_bound() {
        let a = Arc::new(generate::csr::<f64>("poisson3d:40").unwrap());
        let wanted = ResidualRounding::of(&*a, true);
        let mut truth = Truth::new(Arc::clone(&a), true);
        truth.begin();
        assert!(matches!(truth.rounding, Rounding::Coming(_)));
        // It is asked for once, and its thread holds the matrix no longer.
        truth.begin();
        assert_eq!(truth.rounding(), wanted);
        assert_eq!(Arc::strong_count(&a), 2);
        assert_eq!(truth.rounding(), wanted);
        // A small matrix is not worth a thread.
        let mut small = Truth::new(Arc::new(generate::csr::<f64>("poisson2d:9").unwrap()), true);
        small.begin();
        assert!(matches!(small.rounding, Rounding::Unknown));
    }
}
