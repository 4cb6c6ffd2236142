//! Mixed precision: an iteration in f64 with a preconditioner in f32, which has half the bytes.
//!
//! z <- c s wide(M32^-1 narrow(r / s)). Here s is the binade of the largest element of r, found on the device in each
//! application, so that residuals of any magnitude fit f32. c undoes the power of two by which the matrix was divided
//! ([`Narrowed`]). Both scalings are exact, so M is as linear as M32, except if an element of r is below 2^-126 of the
//! largest or M32^-1 leaves the range of f32.
//!
//! An f32 preconditioner decides how many iterations a solve takes, never how accurate x is.
//!
//! Cost in addition to M32's: three launches, 32 bytes per row (r twice, z once, the f32 vectors once each), and two
//! f32 vectors of n.
//!
//! Order: that of M32 and of [`spandrel_backend::Cast`], which gives the same bits everywhere.
//!
//! Reference: Anzt, Flegar, Novakovic, Quintana-Orti & Tomas 2018, Residual replacement in mixed-precision iterative
//! refinement for sparse linear systems; Higham & Mary 2022, Mixed precision algorithms in numerical linear algebra,
//! section 8.

use std::fmt;

use spandrel_backend::{Backend, Cast, Coeff, Gate, MixedPrecision, Preconditioner};
use spandrel_formats::Csr;

use crate::norm::{exponent, power_of_two};
use crate::pool::Pool;
use crate::{Error, Result};

/// A vector of f32.
pub(crate) type Narrow<B> = <B as Backend<f32>>::Vector;
/// A vector of f64.
pub(crate) type Wide<B> = <B as Backend<f64>>::Vector;
/// A scalar of f64.
pub(crate) type Scale<B> = <B as Backend<f64>>::Scalar;

/// A matrix in f32, scaled: 2^exponent times `matrix` is the f64 matrix, each entry rounded to f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Narrowed {
    /// The largest finite magnitude is between 1 and 2, unless it is below 2^-1022 or above 2^1023. Entries below
    /// 2^-126 of the largest lose bits, and those below 2^-150 become zero; a preconditioner that needs them reports
    /// it.
    pub matrix: Csr<f32>,
    /// The exponent, from -1022 to 1022.
    pub exponent: i32,
}

impl Narrowed {
    /// Narrows a matrix on the host, in parallel; copies the pattern once. [`spandrel_backend::Narrow`] does it on a
    /// device.
    pub fn new(csr: &Csr<f64>) -> Self {
        let largest = csr.largest_magnitude();
        let exponent = if largest > 0.0 { exponent(largest).clamp(-1022, 1022) } else { 0 };
        let scale = power_of_two(-exponent);
        Self { matrix: csr.map(|v| (v * scale) as f32), exponent }
    }
}

/// r / s and z = M32^-1 (r / s).
struct Scratch<B: MixedPrecision> {
    r: Narrow<B>,
    z: Narrow<B>,
    s: Scale<B>,
}

impl<B: MixedPrecision> Scratch<B> {
    fn new(be: &B, n: usize) -> spandrel_backend::Result<Self> {
        let narrow = || Backend::<f32>::zeros(be, n);
        Ok(Self { r: narrow()?, z: narrow()?, s: Backend::<f64>::scalar(be, 1.0)? })
    }
}

/// An f32 preconditioner for an iteration in f64. See the module's head.
pub struct Mixed<B: MixedPrecision, M> {
    inner: M,
    n: usize,
    /// 2^-exponent of the matrix, on the device, where a recorded step reads it.
    scale: Scale<B>,
    scratch: Pool<Scratch<B>>,
}

impl<B: MixedPrecision, M: fmt::Debug> fmt::Debug for Mixed<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixed").field("inner", &self.inner).field("n", &self.n).finish_non_exhaustive()
    }
}

impl<B: MixedPrecision, M: Preconditioner<f32, B>> Mixed<B, M> {
    /// Wraps a preconditioner that was made from [`Narrowed::matrix`], n x n, with the exponent of [`Narrowed`].
    ///
    /// # Errors
    /// [`Error::Size`] for a preconditioner of another size; [`Error::Parameter`] for an exponent outside -1022 to
    /// 1022; out of memory.
    pub fn new(be: &B, inner: M, n: usize, exponent: i32) -> Result<Self> {
        let found = inner.len().unwrap_or(n);
        if found != n {
            return Err(Error::rows("mixed", "the preconditioner", found, n, crate::error::FIT_PRECONDITIONER));
        }
        let scratch = Pool::new(Scratch::new(be, n)?);
        let scale = Backend::<f64>::scalar(be, inverse_power(exponent)?)?;
        Ok(Self { inner, n, scale, scratch })
    }

    /// As [`Mixed::new`], but narrows the matrix; `make` makes the preconditioner from it.
    ///
    /// # Errors
    /// As [`Mixed::new`], and those of `make`.
    pub fn of(be: &B, csr: &Csr<f64>, make: impl FnOnce(&B, &Csr<f32>) -> Result<M>) -> Result<Self> {
        let narrowed = Narrowed::new(csr);
        Self::new(be, make(be, &narrowed.matrix)?, csr.nrows(), narrowed.exponent)
    }

    /// Narrows a matrix with new values; `renew` passes them to the inner preconditioner.
    ///
    /// The result has the bits of [`Mixed::of`] on that matrix, if `renew` has those of a new preconditioner. Addresses
    /// change only if `renew` changes them, so recorded steps see the new values and their exponent. Blocks. Must not
    /// be recorded.
    ///
    /// ```
    /// use spandrel_backend_cpu::Cpu;
    /// use spandrel_formats::generate;
    /// use spandrel_solvers::{Ilu, Mixed};
    /// use spandrel_sptrsv::Levelset;
    ///
    /// let (device, a) = (Cpu::new(), generate::csr::<f64>("poisson2d:20")?);
    /// let mut m = Mixed::of(&device, &a, Ilu::<Cpu, Levelset<f32>>::new)?;
    /// let next = a.map(|v| 1000.0 * v);
    /// m.update(&device, &next, |ilu, device, narrow| ilu.update(device, narrow.values()))?;
    /// # Ok::<(), spandrel_solvers::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Size`] for a matrix of another size; those of `renew`. After an error that leaves the inner
    /// preconditioner as it was, everything is as before.
    pub fn update(
        &mut self,
        be: &B,
        csr: &Csr<f64>,
        renew: impl FnOnce(&mut M, &B, &Csr<f32>) -> Result<()>,
    ) -> Result<()> {
        if csr.nrows() != self.n {
            return Err(Error::rows("mixed", "the matrix", csr.nrows(), self.n, crate::error::SAME_SIZE));
        }
        self.update_narrowed(be, |inner, be| {
            let Narrowed { matrix, exponent } = Narrowed::new(csr);
            renew(inner, be, &matrix)?;
            Ok(((), exponent))
        })
    }

    /// As [`Mixed::update`], for a matrix that is narrowed elsewhere: `renew` passes its values to the inner
    /// preconditioner, and also returns their exponent.
    ///
    /// # Errors
    /// Those of `renew`, as there; [`Error::Parameter`] for an exponent outside -1022 to 1022.
    pub fn update_narrowed<R>(&mut self, be: &B, renew: impl FnOnce(&mut M, &B) -> Result<(R, i32)>) -> Result<R> {
        let (renewed, exponent) = renew(&mut self.inner, be)?;
        Backend::<f64>::assign(be, None, Coeff::host(inverse_power(exponent)?), &mut self.scale)?;
        Ok(renewed)
    }

    /// As [`Mixed::update`] with values on the device, in stored order. They are narrowed there and do not go through
    /// the host.
    ///
    /// Allocates a vector of as many f32. If a value is infinite or NaN, the values are narrowed without an exponent.
    ///
    /// # Errors
    /// Those of `renew`, as there; out of memory.
    pub fn update_from<R>(
        &mut self,
        be: &B,
        values: &Wide<B>,
        renew: impl FnOnce(&mut M, &B, &Narrow<B>) -> Result<R>,
    ) -> Result<R> {
        let mut binade = Backend::<f64>::scalar(be, 1.0)?;
        let mut narrow = Backend::<f32>::zeros(be, Backend::<f64>::len(be, values))?;
        narrow_by_binade(be, None, values, &mut binade, &mut narrow)?;
        let renewed = renew(&mut self.inner, be, &narrow)?;
        Backend::<f64>::assign(be, None, inverse(&binade), &mut self.scale)?;
        Ok(renewed)
    }

    /// The inner preconditioner.
    pub fn inner(&self) -> &M {
        &self.inner
    }
}

/// 2^-exponent; it is normal if 2^exponent is.
pub(crate) fn inverse_power(exponent: i32) -> Result<f64> {
    if (-1022..=1022).contains(&exponent) {
        Ok(power_of_two(-exponent))
    } else {
        let range = "the exponent of a narrowed matrix is between -1022 and 1022";
        Err(Error::Parameter { name: "exponent", value: f64::from(exponent), range })
    }
}

// SAFETY: its own buffers are `scale` and those of `scratch`, which are neither replaced nor lent out; each application
// is the same five operations on them.
unsafe impl<B: MixedPrecision, M: Preconditioner<f32, B>> Preconditioner<f64, B> for Mixed<B, M> {
    fn len(&self) -> Option<usize> {
        Some(self.n)
    }
    fn is_linear(&self) -> bool {
        self.inner.is_linear()
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &Wide<B>, z: &mut Wide<B>) -> spandrel_backend::Result<()> {
        let Scratch { r: narrow, z: found, s } = &mut *self.scratch.lend(|| Scratch::new(be, self.n))?;
        narrow_by_binade(be, gate, r, s, narrow)?;
        self.inner.apply(be, gate, narrow, found)?;
        let c = Coeff { host: 1.0, num: [Some(&*s), Some(&self.scale)], den: [None; 2] };
        Cast::<f32, f64>::cast(be, gate, c, found, z)
    }
}

/// s <- the binade of r; y <- r / s.
pub(crate) fn narrow_by_binade<B: MixedPrecision>(
    be: &B,
    gate: Gate<'_, B>,
    r: &Wide<B>,
    s: &mut Scale<B>,
    y: &mut Narrow<B>,
) -> spandrel_backend::Result<()> {
    Cast::<f64, f32>::binade(be, gate, r, s)?;
    Cast::<f64, f32>::cast(be, gate, inverse(s), r, y)
}

/// 1 / s.
fn inverse<S>(s: &S) -> Coeff<'_, f64, S> {
    Coeff { host: 1.0, num: [None; 2], den: [Some(s), None] }
}
