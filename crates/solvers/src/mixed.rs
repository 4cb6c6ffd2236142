//! Mixed precision: an iteration in f64 whose preconditioner is stored and applied in f32, with half the bytes.
//!
//! z <- c s wide(M32^-1 narrow(r / s)): s is the binade of the largest element of r, found on the device in each application, so that
//! residuals of any size fit f32; c undoes the power of two that the matrix was divided by ([`Narrowed`]). Both are exact, so M is as
//! linear as M32 is, save where an element of r is below 2^-126 of the largest, or M32^-1 leaves the range of f32.
//! An f32 preconditioner is a preconditioner like any other: it decides how many iterations it takes, never how accurate x is.
//!
//! Cost beside M32's: three launches, 32 bytes a row (r twice, z once, the f32 vectors once each); two f32 vectors of n.
//! Order: that of M32 and of [`spandrel_backend::Cast`], which gives the same bits everywhere.
//! Reference: Anzt, Flegar, Novakovic, Quintana-Orti & Tomas 2018, Residual replacement in mixed-precision iterative refinement for
//! sparse linear systems; Higham & Mary 2022, Mixed precision algorithms in numerical linear algebra, section 8.

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

/// A matrix in f32, in its own scale: 2^exponent times `matrix` is the f64 matrix, each entry rounded to f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Narrowed {
    /// The largest finite magnitude is in 1 up to 2, unless it is below 2^-1022 or above 2^1023. Entries below 2^-126 of the largest lose
    /// bits, those below 2^-150 are zero: what is made of the matrix says where it needs them.
    pub matrix: Csr<f32>,
    /// -1022 up to 1022.
    pub exponent: i32,
}

impl Narrowed {
    /// Narrows a matrix. On the host, in parallel; one copy of the pattern. [`spandrel_backend::Narrow`] does it on a device.
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

/// A preconditioner of f32 in an iteration in f64. See the module's head.
pub struct Mixed<B: MixedPrecision, M> {
    inner: M,
    n: usize,
    /// 2^-exponent of the matrix, on the device, where a recorded step reads it anew.
    scale: Scale<B>,
    scratch: Pool<Scratch<B>>,
}

impl<B: MixedPrecision, M: fmt::Debug> fmt::Debug for Mixed<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mixed").field("inner", &self.inner).field("n", &self.n).finish_non_exhaustive()
    }
}

impl<B: MixedPrecision, M: Preconditioner<f32, B>> Mixed<B, M> {
    /// Wraps a preconditioner that was made of [`Narrowed::matrix`], n x n; `exponent` is that of [`Narrowed`].
    ///
    /// # Errors
    /// [`Error::Size`] for a preconditioner of another size; [`Error::Parameter`] for an exponent beyond -1022 up to 1022; out of memory.
    pub fn new(be: &B, inner: M, n: usize, exponent: i32) -> Result<Self> {
        let found = inner.len().unwrap_or(n);
        if found != n {
            return Err(Error::rows("mixed", "the preconditioner", found, n, crate::error::FIT_PRECONDITIONER));
        }
        let scratch = Pool::new(Scratch::new(be, n)?);
        let scale = Backend::<f64>::scalar(be, inverse_power(exponent)?)?;
        Ok(Self { inner, n, scale, scratch })
    }

    /// As [`Mixed::new`] for a matrix that is narrowed here; `make` makes the preconditioner of it.
    ///
    /// # Errors
    /// As [`Mixed::new`], and those of `make`.
    pub fn of(be: &B, csr: &Csr<f64>, make: impl FnOnce(&B, &Csr<f32>) -> Result<M>) -> Result<Self> {
        let narrowed = Narrowed::new(csr);
        Self::new(be, make(be, &narrowed.matrix)?, csr.nrows(), narrowed.exponent)
    }

    /// Narrows a matrix of new values; `renew` gives them to the preconditioner within, whose update it calls. The same bits as
    /// [`Mixed::of`] that matrix, where that update has those of a preconditioner made anew. No new addresses but those of `renew`, so
    /// recorded steps see the new values and their exponent. Blocks; may not be recorded.
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
    /// [`Error::Size`] for a matrix of another size; those of `renew`. After an error that leaves the preconditioner within as it was,
    /// everything is as before.
    pub fn update(
        &mut self,
        be: &B,
        csr: &Csr<f64>,
        renew: impl FnOnce(&mut M, &B, &Csr<f32>) -> Result<()>,
    ) -> Result<()> {
        if csr.nrows() != self.n {
            return Err(Error::rows("mixed", "the matrix", csr.nrows(), self.n, crate::error::SAME_SIZE));
        }
        let Narrowed { matrix, exponent } = Narrowed::new(csr);
        renew(&mut self.inner, be, &matrix)?;
        Ok(Backend::<f64>::assign(be, None, Coeff::host(power_of_two(-exponent)), &mut self.scale)?)
    }

    /// As [`Mixed::update`] with values that are on the device, in stored order, and narrowed there: nothing of them goes through the
    /// host here. Allocates a vector of as many f32. Where a value is infinite or NaN they are narrowed as they are, without an exponent.
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

    /// The preconditioner within.
    pub fn inner(&self) -> &M {
        &self.inner
    }
}

/// 2^-exponent, normal as 2^exponent is.
pub(crate) fn inverse_power(exponent: i32) -> Result<f64> {
    if (-1022..=1022).contains(&exponent) {
        Ok(power_of_two(-exponent))
    } else {
        let range = "the exponent of a narrowed matrix is between -1022 and 1022";
        Err(Error::Parameter { name: "exponent", value: f64::from(exponent), range })
    }
}

// SAFETY: its own buffers are `scale` and those of `scratch`, which are neither replaced nor lent out; each application is the same five
// operations on them.
unsafe impl<B: MixedPrecision, M: Preconditioner<f32, B>> Preconditioner<f64, B> for Mixed<B, M> {
    fn len(&self) -> Option<usize> {
        Some(self.n)
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
