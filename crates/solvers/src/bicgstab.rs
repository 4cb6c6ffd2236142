//! BiCGStab for general square systems, with an exit after the half step if that suffices.
//!
//! Preconditioning ([`Placement`]): from the right, the monitor watches the residual's norm. The method keeps p^ and
//! s^, so M^-1 may change from step to step. From the left, the method solves M^-1 A x = M^-1 b; it ends once the norm
//! of M^-1 r has fallen by the factor that the residual should. In both cases `converged` refers to the true residual.
//!
//! Every scalar is a quotient of device scalars: alpha = rho / r0'v, omega = t's / t't, beta = (rho next / r0'v) (t't /
//! t's), and beta omega = rho next / r0'v. No product of them is stored, so none underflows before the quotient is
//! formed.
//!
//! Cost per iteration: A's storage twice and 19 passes over vectors of n without a preconditioner (v: 3, half: 3, t: 2,
//! update: 7, direction: 4), 27 with Jacobi. From the left, the two pairs of dot products are separate passes: 6 more.
//! The trace tests check these numbers.
//!
//! Order: that of the backend's operations. The bits do not depend on recording or on `check_every`.
//! Reference: van der Vorst 1992, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution of
//! nonsymmetric linear systems; the half-step exit as in Cheng et al. 2018.

use std::fmt;

use spandrel_backend::{
    Backend, BicgstabDirection, BicgstabFirst, BicgstabIterations, BicgstabSecond, BicgstabSteps, Coeff, Latest,
    Operator, Preconditioner, Quantity, Step, Stop, Watch,
};
use spandrel_formats::Real;

use crate::Result;
use crate::entry::entry;
use crate::gmres::Placement;
use crate::graphs::Graphs;
use crate::norm::norm;
use crate::segments::{self, Cause, End, Method, Pace, Segment, Shadow, Watched};

/// The workspace of BiCGStab for n unknowns: allocated once, used for any number of solves.
pub struct BiCgStab<T: Real, B: Backend<T>> {
    n: usize,
    placement: Placement,
    /// r, and s between the halves; from the left, M^-1 of either.
    r: B::Vector,
    shadow: B::Vector,
    p: B::Vector,
    v: B::Vector,
    t: B::Vector,
    scalars: Scalars<B::Scalar>,
    /// With a preconditioner: M^-1 p and M^-1 s. From the left: A p, then A s, in the first only.
    hats: Vec<B::Vector>,
    /// The residual's norm in units of the norm that the monitor watches.
    unit: f64,
    /// ||s|| of the half step that ended the last segment, if the monitor has not recorded it.
    half: Option<f64>,
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
        f.debug_struct("BiCgStab").field("n", &self.n).field("placement", &self.placement).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> BiCgStab<T, B> {
    /// A workspace with the preconditioner on the right. It has five vectors. The first solve allocates a monitor, and
    /// two more vectors if there is a preconditioner.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        Self::with(be, n, Placement::Right)
    }

    /// As [`BiCgStab::new`], with the preconditioner on the given side.
    ///
    /// From the left, the first solve allocates one more vector instead of two. From the right, the method is flexible.
    /// From the left, the history holds the norm of M^-1 r relative to the start of the segment, times the true
    /// residual there. The squares of these norms must be in range.
    ///
    /// # Errors
    /// Out of memory.
    pub fn with(be: &B, n: usize, placement: Placement) -> Result<Self> {
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
            placement,
            r: be.zeros(n)?,
            shadow: be.zeros(n)?,
            p: be.zeros(n)?,
            v: be.zeros(n)?,
            t: be.zeros(n)?,
            scalars,
            hats: Vec::new(),
            unit: 1.0,
            half: None,
            monitor: None,
            graphs: Graphs::default(),
        })
    }
}

entry!(BiCgStab, bicgstab, "BiCGStab", BicgstabSteps);

impl<T: Real, B: Backend<T>> BiCgStab<T, B> {
    /// r <- M^-1 r, and monitor and pace in its units. Returns the end of the segment if no iteration can begin.
    fn turn_left(
        &mut self,
        be: &B,
        m: &dyn Preconditioner<T, B>,
        monitor: &mut B::Monitor,
        pace: &mut Pace,
    ) -> Result<Option<End>> {
        m.apply(be, None, &self.r, &mut self.t)?;
        be.copy(None, &self.t, &mut self.r)?;
        let begun = norm(be, &self.r, &mut self.t, &mut self.scalars.rr)?;
        let unit = pace.begun / begun.value();
        if !(unit.is_finite() && unit > 0.0) {
            let stop = if begun.is_zero() { Stop::Zero } else { Stop::NotFinite };
            return Ok(Some(End { cause: Cause::Stop(stop(Quantity::Residual)), iterations: 0, residual: None }));
        }
        self.unit = unit;
        let watch =
            Watch { threshold: pace.threshold / unit, divergence: pace.divergence / unit, max_iters: pace.max_iters };
        be.rearm(monitor, &watch)?;
        *pace = Pace { threshold: watch.threshold, divergence: watch.divergence, begun: begun.value(), ..*pace };
        Ok(None)
    }
}

/// The vectors that a preconditioner needs.
enum Hats<'a, V> {
    /// No preconditioner.
    None,
    /// M^-1 p and M^-1 s.
    Right(&'a mut V, &'a mut V),
    /// A p, then A s.
    Left(&'a mut V),
}

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
    hats: Hats<'a, B::Vector>,
    monitor: &'a mut B::Monitor,
}

// SAFETY: one fixed sequence; `hats` keeps its kind while the step lives. Its vectors, scalars and monitor are
// borrowed. A and M are borrowed and keep their buffers by the contracts of their traits.
unsafe impl<T: Real, B: BicgstabSteps<T>> Step<B> for Iteration<'_, T, B> {
    #[rustfmt::skip] // the right margin holds the formulas
    fn enqueue(&mut self, be: &B) -> spandrel_backend::Result<()> {
        let Self { a, m, x, r, shadow, p, v, t, scalars, hats, monitor } = self;
        let Scalars { rho, rho_next, rv, ss, ts, tt, rr } = &mut **scalars;
        let gate = Some(&**monitor);
        match hats {
            Hats::None => a.apply_dot(be, gate, p, v, shadow, rv, None)?,               // v = A p, r0'v
            Hats::Right(p_hat, _) => {
                m.apply(be, gate, p, p_hat)?;                                           // p^ = M^-1 p
                a.apply_dot(be, gate, p_hat, v, shadow, rv, None)?;                     // v = A p^, r0'v
            }
            Hats::Left(q) => {
                a.apply(be, gate, p, q)?;
                m.apply(be, gate, q, v)?;                                               // v = M^-1 A p
                be.dot(gate, shadow, v, rv)?;
            }
        }
        be.bicgstab_first(BicgstabFirst { rho, rv, v, r, ss }, monitor)?;               // r0'v != 0, alpha = rho / r0'v
                                                                                        // s = r - alpha v, s's
                                                                                        // ||s|| small enough?
        let gate = Some(&**monitor);
        match hats {
            Hats::None => a.apply_dot(be, gate, r, t, r, ts, Some(tt))?,                // t = A s, t's, t't
            Hats::Right(_, s_hat) => {
                m.apply(be, gate, r, s_hat)?;                                           // s^ = M^-1 s
                a.apply_dot(be, gate, s_hat, t, r, ts, Some(tt))?;                      // t = A s^, t's, t't
            }
            Hats::Left(q) => {
                a.apply(be, gate, r, q)?;
                m.apply(be, gate, q, t)?;                                               // t = M^-1 A s
                be.dot(gate, t, r, ts)?;
                be.dot(gate, t, t, tt)?;
            }
        }
        let (p_hat, s_hat) = match hats {
            Hats::Right(p_hat, s_hat) => (&**p_hat, Some(&**s_hat)),
            _ => (&**p, None),
        };
        be.bicgstab_second(BicgstabSecond {                                             // t't, t's != 0, omega = t's / t't
            rho, rv, ts, tt, p: p_hat, s: s_hat, t, shadow, x, r, rr, rho_next          // x = x + alpha p^ + omega s^
        }, monitor)?;
                                                                                        // r = s - omega t, r'r, r0'r
                                                                                        // ||r|| small enough? rho next
                                                                                        // != 0
        be.bicgstab_direction(BicgstabDirection {
            r, v, rho_next, rv, tt, ts, rho, p                                          // beta = rho next / rho alpha / omega
        }, monitor)
                                                                                        // p = r + beta (p - omega v)
                                                                                        // rho = rho next
    }
}

impl<T: Real, B: BicgstabSteps<T>> Watched<T, B> for Iteration<'_, T, B> {
    fn monitor(&self) -> &B::Monitor {
        self.monitor
    }
    fn x(&self) -> &B::Vector {
        self.x
    }
    fn leap(&mut self, be: &B, count: usize) -> Result<bool> {
        let Self { a, x, r, shadow, p, v, t, scalars, hats: Hats::None, monitor, .. } = self else {
            return Ok(false);
        };
        let Some(stored) = a.stored() else { return Ok(false) };
        let Scalars { rho, rho_next, rv, ss, ts, tt, rr } = &mut **scalars;
        let on: BicgstabIterations<'_, B::Vector, B::Scalar> =
            BicgstabIterations { shadow, x, r, p, v, t, rho, rho_next, rv, ss, ts, tt, rr };
        Ok(be.bicgstab_iterations(stored, count, on, monitor)?)
    }
}

impl<T: Real, B: BicgstabSteps<T>> Method<T, B> for BiCgStab<T, B> {
    const NAME: &'static str = "bicgstab";
    /// The first breakdown gets a new shadow residual. If that fails at once, the second gets a tilted one. There is no
    /// third attempt.
    const FRUITLESS: usize = 3;

    fn len(&self) -> usize {
        self.n
    }
    fn takes_any_preconditioner(&self) -> bool {
        self.placement != Placement::Left
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
    fn norms(&mut self, be: &B, monitor: &B::Monitor) -> Result<Vec<f64>> {
        let unit = self.unit;
        let norms = be.report(monitor)?.history.into_iter().chain(self.half);
        Ok(norms.map(|norm| norm * unit).collect())
    }

    fn segment(&mut self, on: Segment<'_, T, B>) -> Result<End> {
        let Segment { be, a, m, x, monitor, shadow, mut pace, rhythm, look } = on;
        let left = self.placement == Placement::Left && !m.is_identity();
        let wanted = if m.is_identity() { 0 } else { 2 - usize::from(left) };
        while self.hats.len() < wanted {
            self.hats.push(be.zeros(self.n)?);
        }
        (self.unit, self.half) = (1.0, None);
        if left && let Some(end) = self.turn_left(be, m, monitor, &mut pace)? {
            return Ok(end);
        }
        let unit = self.unit;
        let look = &mut |latest: Latest, x: Option<&B::Vector>| {
            look(Latest { residual: latest.residual.map(|norm| norm * unit), ..latest }, x)
        };
        let Self { r, shadow: r0, p, v, t, scalars, hats, graphs, .. } = self;
        be.copy(None, r, r0)?;
        if shadow == Shadow::Tilted {
            // v is still A M^-1 r (M^-1 A r from the left) of the segment that found r'v = 0, up to a factor. With it
            // r0'r = r'r and r0'v > 0.
            let tilt = norm(be, r, t, &mut scalars.rr)?.over(norm(be, v, t, &mut scalars.rr)?);
            if tilt.is_finite() {
                be.axpby(None, Coeff::host(T::from_f64(tilt)), v, Coeff::one(), r0)?;
            }
        }
        be.copy(None, r, p)?;
        be.dot(None, r0, r, &mut scalars.rho)?;
        be.require_nonzero(&scalars.rho, Quantity::Rho, monitor)?;

        let by = match &mut hats[..wanted] {
            [p_hat, s_hat] => Hats::Right(p_hat, s_hat),
            [q] => Hats::Left(q),
            _ => Hats::None,
        };
        let step = Iteration { a, m, x: &mut *x, r, shadow: r0, p, v, t, scalars, hats: by, monitor };
        // SAFETY: the graphs are cleared before a solve with another A, M, x or monitor; everything else belongs to
        // this workspace.
        let mut end = unsafe { segments::repeat(be, step, graphs, pace, rhythm, look) }?;
        let half = [Stop::ConvergedHalf, Stop::Zero(Quantity::Stabilizer), Stop::Zero(Quantity::Omega)];
        let half = half.iter().any(|&stop| end.cause == Cause::Stop(stop));
        if half {
            let p_hat = if wanted == 2 { &hats[0] } else { p };
            be.axpby(None, Coeff::ratio(&scalars.rho, &scalars.rv), p_hat, Coeff::one(), x)?; // x = x + alpha p^
        }
        // The monitor counts only whole iterations. One that ends in its middle counts too, with ||s|| as its norm.
        end.iterations += match end.cause {
            Cause::Stop(Stop::NotFinite(Quantity::Residual)) => {
                usize::from(!be.download_scalar(&scalars.ss)?.is_finite())
            }
            _ => usize::from(half),
        };
        if half && end.cause != Cause::Stop(Stop::ConvergedHalf) {
            self.half = Some(be.download_scalar(&scalars.ss)?.sqrt().as_f64());
            end.residual = self.half;
        }
        end.residual = end.residual.map(|norm| norm * unit);
        Ok(end)
    }
}
