//! BiCGStab for general square systems, preconditioned from the right, leaving after the half step where that is enough.
//!
//! Every scalar is a quotient of device scalars: alpha = rho / r0'v, omega = t's / t't, beta = (rho next / r0'v) (t't / t's), and
//! beta omega = rho next / r0'v. No product of them is ever stored, so none underflows before the quotient is formed.
//! Cost of an iteration: A's storage twice and 19 passes over vectors of n without a preconditioner (v: 3, half: 3, t: 2, update: 7,
//! direction: 4), 27 with Jacobi. The listings of the trace tests are these numbers.
//! Order: that of the backend's operations; the same bits recorded or plain, for any `check_every`.
//! Reference: van der Vorst 1992, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of nonsymmetric linear
//! systems; the half-step exit as in Cheng et al. 2018.

use std::fmt;

use spandrel_backend::{Backend, Coeff, Operator, Preconditioner, Quantity, Step, Stop};
use spandrel_formats::Real;

use crate::Result;
use crate::entry::entry;
use crate::graphs::Graphs;
use crate::norm::norm;
use crate::segments::{self, Cause, End, Method, Segment, Shadow, Watched};

/// The workspace of BiCGStab for n unknowns: allocated once, used for any number of solves.
pub struct BiCgStab<T: Real, B: Backend<T>> {
    n: usize,
    /// r, and s between the halves.
    r: B::Vector,
    shadow: B::Vector,
    p: B::Vector,
    v: B::Vector,
    t: B::Vector,
    scalars: Scalars<B::Scalar>,
    /// M^-1 p and M^-1 s: only where there is a preconditioner.
    hats: Option<(B::Vector, B::Vector)>,
    monitor: Option<B::Monitor>,
    graphs: Graphs<B>,
}

struct Scalars<S> {
    /// r0'r.
    rho: S,
    rho_next: S,
    /// r0'v.
    rv: S,
    ss: S,
    ts: S,
    tt: S,
    rr: S,
}

impl<T: Real, B: Backend<T>> fmt::Debug for BiCgStab<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiCgStab").field("n", &self.n).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> BiCgStab<T, B> {
    /// Five vectors; two more are allocated by the first solve with a preconditioner, and a monitor by the first solve.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        let scalar = || be.scalar(T::zero());
        let scalars = Scalars {
            rho: scalar()?,
            rho_next: scalar()?,
            rv: scalar()?,
            ss: scalar()?,
            ts: scalar()?,
            tt: scalar()?,
            rr: scalar()?,
        };
        Ok(Self {
            n,
            r: be.zeros(n)?,
            shadow: be.zeros(n)?,
            p: be.zeros(n)?,
            v: be.zeros(n)?,
            t: be.zeros(n)?,
            scalars,
            hats: None,
            monitor: None,
            graphs: Graphs::default(),
        })
    }
}

entry!(BiCgStab, bicgstab, "BiCGStab");

/// One iteration.
struct Iteration<'a, T: Real, B: Backend<T>> {
    a: &'a dyn Operator<T, B>,
    m: &'a dyn Preconditioner<T, B>,
    x: &'a mut B::Vector,
    r: &'a mut B::Vector,
    shadow: &'a B::Vector,
    p: &'a mut B::Vector,
    v: &'a mut B::Vector,
    t: &'a mut B::Vector,
    scalars: &'a mut Scalars<B::Scalar>,
    hats: Option<&'a mut (B::Vector, B::Vector)>,
    monitor: &'a mut B::Monitor,
}

// SAFETY: one fixed sequence; `hats` are there or not for as long as the step lives. Its vectors, scalars and monitor are
// borrowed, A and M are borrowed and keep their own buffers by the contracts of their traits.
unsafe impl<T: Real, B: Backend<T>> Step<B> for Iteration<'_, T, B> {
    #[rustfmt::skip] // the right margin holds the formulas
    fn enqueue(&mut self, be: &B) -> spandrel_backend::Result<()> {
        let Self { a, m, x, r, shadow, p, v, t, scalars, hats, monitor } = self;
        let Scalars { rho, rho_next, rv, ss, ts, tt, rr } = &mut **scalars;
        let (mut p_hat, mut s_hat) = match hats {
            Some((p_hat, s_hat)) => (Some(p_hat), Some(s_hat)),
            None => (None, None),
        };
        if let Some(p_hat) = &mut p_hat {
            m.apply(be, Some(&**monitor), p, p_hat)?;                                   // p^ = M^-1 p
        }
        let p_hat = p_hat.as_deref().unwrap_or(p);
        a.apply_dot(be, Some(&**monitor), p_hat, v, shadow, rv, None)?;                 // v = A p^, r0'v
        be.bicgstab_first(rho, rv, v, r, ss, monitor)?;                                 // r0'v != 0, alpha = rho / r0'v
                                                                                        // s = r - alpha v, s's
                                                                                        // ||s|| small enough?
        if let Some(s_hat) = &mut s_hat {
            m.apply(be, Some(&**monitor), r, s_hat)?;                                   // s^ = M^-1 s
        }
        let s_hat = s_hat.as_deref();
        a.apply_dot(be, Some(&**monitor), s_hat.unwrap_or(r), t, r, ts, Some(tt))?;     // t = A s^, t's, t't
        be.bicgstab_second(rho, rv, ts, tt, p_hat, s_hat, t, shadow,                    // t't, t's != 0, omega = t's / t't
            x, r, rr, rho_next, monitor)?;                                              // x = x + alpha p^ + omega s^
                                                                                        // r = s - omega t, r'r, r0'r
                                                                                        // ||r|| small enough? rho next != 0
        be.bicgstab_direction(r, v, rho_next, rv, tt, ts, rho, p, monitor)              // beta = rho next / rho alpha / omega
                                                                                        // p = r + beta (p - omega v)
                                                                                        // rho = rho next
    }
}

impl<T: Real, B: Backend<T>> Watched<B> for Iteration<'_, T, B> {
    fn monitor(&self) -> &B::Monitor {
        self.monitor
    }
    fn leap(&mut self, be: &B, count: usize) -> Result<bool> {
        let Self { a, x, r, shadow, p, v, t, scalars, hats, monitor, .. } = self;
        if hats.is_some() {
            return Ok(false);
        }
        let Scalars { rho, rho_next, rv, ss, ts, tt, rr } = &mut **scalars;
        Ok(a.bicgstab_iterations(be, count, shadow, x, r, p, v, t, [rho, rho_next, rv, ss, ts, tt, rr], monitor)?)
    }
}

impl<T: Real, B: Backend<T>> Method<T, B> for BiCgStab<T, B> {
    const NAME: &'static str = "bicgstab";
    /// The first is answered by a new shadow residual, should that fail at once the second by a tilted one, and there is no third answer.
    const FRUITLESS: usize = 3;

    fn len(&self) -> usize {
        self.n
    }
    fn between(&mut self) -> (&mut B::Vector, &mut B::Vector, &mut B::Scalar) {
        (&mut self.r, &mut self.p, &mut self.scalars.rr)
    }
    fn monitor(&mut self) -> &mut Option<B::Monitor> {
        &mut self.monitor
    }
    fn graphs(&mut self) -> &mut Graphs<B> {
        &mut self.graphs
    }

    fn segment(&mut self, on: Segment<'_, T, B>) -> Result<End> {
        let Segment { be, a, m, x, monitor, shadow, pace, look } = on;
        if !m.is_identity() && self.hats.is_none() {
            self.hats = Some((be.zeros(self.n)?, be.zeros(self.n)?));
        }
        let Self { r, shadow: r0, p, v, t, scalars, hats, graphs, .. } = self;
        let mut hats = if m.is_identity() { None } else { hats.as_mut() };

        be.copy(None, r, r0)?;
        if shadow == Shadow::Tilted {
            // v is still A M^-1 r of the segment that found r'v = 0, up to a factor; with it r0'r = r'r and r0'v > 0.
            let tilt = norm(be, r, t, &mut scalars.rr)?.over(norm(be, v, t, &mut scalars.rr)?);
            if tilt.is_finite() {
                be.axpby(None, Coeff::host(T::from_f64(tilt)), v, Coeff::one(), r0)?;
            }
        }
        be.copy(None, r, p)?;
        be.dot(None, r0, r, &mut scalars.rho)?;
        be.require_nonzero(&scalars.rho, Quantity::Rho, monitor)?;

        let step = Iteration { a, m, x, r, shadow: r0, p, v, t, scalars, hats: hats.as_deref_mut(), monitor };
        // SAFETY: the graphs are cleared before a solve with another A, M, x or monitor; the rest is this workspace's own.
        let end = unsafe { segments::repeat(be, step, graphs, pace, look) }?;
        let half = [Stop::ConvergedHalf, Stop::Zero(Quantity::Stabilizer), Stop::Zero(Quantity::Omega)];
        if half.iter().any(|&stop| end.cause == Cause::Stop(stop)) {
            let p_hat = hats.map_or(&*p, |(p_hat, _)| &*p_hat);
            be.axpby(None, Coeff::ratio(&scalars.rho, &scalars.rv), p_hat, Coeff::one(), x)?; // x = x + alpha p^
        }
        Ok(end)
    }
}
