//! GMRES(m) and its flexible variant for general square systems.
//!
//! Arnoldi's process by modified Gram-Schmidt. Every coefficient is a device scalar, so whole stretches of a cycle are
//! enqueued without a wait. H's columns stay on the device until the host looks. It then rotates them (Givens) and
//! takes the earliest step that suffices; later steps wrote only to vectors that the answer does not use. A cycle of m
//! steps is a segment of `segments`: after it x is updated, and the true residual begins the next one.
//!
//! Preconditioning ([`Placement`]): from the right, a cycle minimises the residual's norm. From the left it minimises
//! the norm of M^-1 r, and ends once that has fallen as much as the residual should. In both cases `converged` refers
//! to the true residual. One pass of modified Gram-Schmidt is enough: the basis loses orthogonality only as the
//! residual reaches its rounding (Paige, Rozloznik, Strakos 2006, Modified Gram-Schmidt (MGS), least squares, and
//! backward stability of MGS-GMRES).
//!
//! Memory: m + 2 vectors of n, m more for [`Placement::Flexible`], and m (m + 3) / 2 + 1 scalars.
//!
//! Cost of step j (from 0) beyond A's storage and the preconditioner, in passes over vectors of n: 9 + 5 j; of the end
//! of a cycle of k steps: 2 k + 5.
//!
//! Order: that of the backend's operations; the same bits recorded or not, for any `check_every`.
//!
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, sections 6.5 (GMRES), 9.3 (left and right),
//! 9.4.1 (flexible); Brown & Walker 1997, GMRES on (nearly) singular systems, for columns that depend on those before.

mod least;

use std::fmt;

use spandrel_backend::{Backend, Coeff, Latest, Operator, Preconditioner, Quantity, Step, Stop};
use spandrel_formats::Real;

use crate::entry::entry;
use crate::graphs::Graphs;
use crate::norm::{Norm, rounding};
use crate::segments::{Cause, End, Method, Pace, Segment};
use crate::{Error, Result};
use least::{Column, Least};

/// The side on which the preconditioner applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Placement {
    /// A M^-1 u = b, x = M^-1 u. The residual is minimised.
    #[default]
    Right,
    /// M^-1 A x = M^-1 b. The preconditioned residual is minimised. The history then holds its norm relative to the
    /// start of the cycle, times the true residual there.
    Left,
    /// As `Right`, but M^-1 may change from step to step, as an inner iteration does. Every M^-1 v is stored, in m more
    /// vectors.
    Flexible,
}

/// Options of a [`Gmres`] workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GmresOptions {
    /// Steps of a cycle, at least 1; at most n are done. Default 30.
    pub restart: usize,
    /// The side of the preconditioner. Default [`Placement::Right`].
    pub placement: Placement,
}

impl Default for GmresOptions {
    fn default() -> Self {
        Self { restart: 30, placement: Placement::Right }
    }
}

/// The workspace of GMRES for n unknowns: allocated once, used for any number of solves.
pub struct Gmres<T: Real, B: Backend<T>> {
    n: usize,
    placement: Placement,
    r: B::Vector,
    w: B::Vector,
    /// v_0 .. v_(m-1).
    basis: Vec<B::Vector>,
    /// M^-1 v_j, if it is flexible and there is a preconditioner.
    directions: Vec<B::Vector>,
    /// The norm at the start of the cycle, then the columns of H, j + 2 entries in column j: see [`at`].
    h: Vec<B::Scalar>,
    least: Least,
    /// The norm at the start of the previous cycle, if that cycle ran to its end.
    before: Option<Norm>,
    norms: Vec<f64>,
    monitor: Option<B::Monitor>,
    graphs: Graphs<B>,
}

/// Where column j of H begins among the scalars.
fn at(j: usize) -> usize {
    1 + j * (j + 3) / 2
}

impl<T: Real, B: Backend<T>> fmt::Debug for Gmres<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gmres")
            .field("n", &self.n)
            .field("restart", &self.basis.len())
            .field("placement", &self.placement)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> Gmres<T, B> {
    /// GMRES(30) with the preconditioner on the right: 32 vectors. The first solve allocates a monitor.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        Self::with(be, n, &GmresOptions::default())
    }

    /// A workspace with m + 2 vectors. A flexible one takes m more in the first solve with a preconditioner.
    ///
    /// # Errors
    /// [`Error::Option`] for a cycle without steps; out of memory.
    pub fn with(be: &B, n: usize, options: &GmresOptions) -> Result<Self> {
        if options.restart == 0 {
            return Err(Error::Option { name: "restart", value: 0.0 });
        }
        let m = options.restart.min(n).max(1);
        Ok(Self {
            n,
            placement: options.placement,
            r: be.zeros(n)?,
            w: be.zeros(n)?,
            basis: (0..m).map(|_| be.zeros(n)).collect::<spandrel_backend::Result<_>>()?,
            directions: Vec::new(),
            h: be.scalars(at(m), T::zero())?,
            least: Least::default(),
            before: None,
            norms: Vec::new(),
            monitor: None,
            graphs: Graphs::default(),
        })
    }
}

entry! {
    /// [`Outcome::restarts`](crate::Outcome::restarts) counts every cycle after the first.
    /// [`Options::max_restarts`](crate::Options::max_restarts) limits only restarts after a breakdown or after a
    /// recurrence that the true residual contradicts. [`Outcome::status`](crate::Outcome::status) is
    /// [`Stagnated`](crate::Status::Stagnated) if a whole cycle did not lower its norm, because the next would be the
    /// same.
    ///
    /// A preconditioner that is not [linear](spandrel_backend::Preconditioner::is_linear) is refused
    /// ([`Error::Unsupported`]) unless the placement is [`Placement::Flexible`].
    Gmres, gmres, "GMRES(30), preconditioned from the right,", Backend
}

/// 1 / s.
fn inverse<T: Real, S>(s: &S) -> Coeff<'_, T, S> {
    Coeff { host: T::one(), num: [None; 2], den: [Some(s), None] }
}

/// Steps `from .. to` of a cycle.
struct Stretch<'a, T: Real, B: Backend<T>> {
    a: &'a dyn Operator<T, B>,
    m: &'a dyn Preconditioner<T, B>,
    placement: Placement,
    /// A scratch vector within a cycle.
    r: &'a mut B::Vector,
    w: &'a mut B::Vector,
    basis: &'a mut [B::Vector],
    directions: &'a mut [B::Vector],
    h: &'a mut [B::Scalar],
    monitor: &'a mut B::Monitor,
    from: usize,
    to: usize,
}

// SAFETY: `from`, `to` and `placement` are fixed while the step lives, and with them the sequence. Its vectors, scalars
// and monitor are borrowed mutably. A and M are borrowed and keep their buffers by the contracts of their traits.
unsafe impl<T: Real, B: Backend<T>> Step<B> for Stretch<'_, T, B> {
    #[rustfmt::skip] // the right margin holds the formulas
    fn enqueue(&mut self, be: &B) -> spandrel_backend::Result<()> {
        let Self { a, m, r, w, basis, directions, h, monitor, .. } = self;
        for j in self.from..self.to {
            let (v, next) = basis.split_at_mut(j + 1);
            let column = &mut h[at(j)..at(j + 1)];
            let gate = Some(&**monitor);
            match self.placement {
                Placement::Left => {
                    a.apply(be, gate, &v[j], r)?;
                    m.apply(be, gate, r, w)?;                                           // w = M^-1 A v_j
                    be.dot(gate, &v[0], w, &mut column[0])?;
                }
                _ if m.is_identity() => {
                    a.apply_dot(be, gate, &v[j], w, &v[0], &mut column[0], None)?;      // w = A v_j
                }
                Placement::Right => {
                    m.apply(be, gate, &v[j], r)?;
                    a.apply_dot(be, gate, r, w, &v[0], &mut column[0], None)?;          // w = A M^-1 v_j
                }
                Placement::Flexible => {
                    m.apply(be, gate, &v[j], &mut directions[j])?;                      // z_j = M^-1 v_j
                    a.apply_dot(be, gate, &directions[j], w, &v[0], &mut column[0], None)?;
                }
            }
            for (i, v) in v.iter().enumerate() {
                if i > 0 {
                    be.dot(gate, v, w, &mut column[i])?;                                // h_ij = v_i'w
                }
                be.axpby(gate, Coeff::scalar(&column[i]).negated(), v, Coeff::one(), w)?; // w = w - h_ij v_i
            }
            be.norm2(gate, w, &mut column[j + 1])?;                                     // h_j+1,j = ||w||
            be.require_nonzero(&column[j + 1], Quantity::Subdiagonal, monitor)?;
            if let Some(next) = next.first_mut() {
                be.axpby(Some(&**monitor), inverse(&column[j + 1]), w, Coeff::zero(), next)?; // v_j+1 = w / h_j+1,j
            }
        }
        Ok(())
    }
}

/// y <- sum of c_i v_i.
fn combine<T: Real, B: Backend<T>>(be: &B, c: &[T], v: &[B::Vector], y: &mut B::Vector) -> Result<()> {
    for (i, (c, v)) in c.chunks(2).zip(v.chunks(2)).enumerate() {
        let kept = if i == 0 { Coeff::zero() } else { Coeff::one() };
        match (c, v) {
            ([c, d], [v, w, ..]) => be.axpbypcz(None, Coeff::host(*c), v, Coeff::host(*d), w, kept, y)?,
            _ => be.axpby(None, Coeff::host(c[0]), &v[0], kept, y)?,
        }
    }
    Ok(())
}

impl<T: Real, B: Backend<T>> Gmres<T, B> {
    /// Takes further columns of H, in order. Returns the end of the cycle, if it has ended.
    fn take(&mut self, mut columns: &[T], pace: Pace, unit: f64) -> Option<Cause> {
        while !columns.is_empty() {
            let (column, rest) = columns.split_at(self.least.len() + 2);
            columns = rest;
            match self.least.push::<T>(column, self.n) {
                Column::NotFinite => return Some(Cause::Stop(Stop::NotFinite(Quantity::Subdiagonal))),
                Column::Dependent => return Some(Cause::Stop(Stop::Zero(Quantity::Subdiagonal))),
                Column::Residual(norm) => {
                    let norm = norm * unit;
                    self.norms.push(norm);
                    if norm <= pace.threshold {
                        return Some(Cause::Stop(Stop::Converged));
                    }
                    if self.least.len() == pace.max_iters {
                        return Some(Cause::Stop(Stop::MaxIterations));
                    }
                }
            }
        }
        (self.least.len() == self.basis.len()).then_some(Cause::Cycle)
    }

    /// x <- x + the combination of the steps done. Returns false and does nothing if that is not finite.
    fn update(&mut self, be: &B, m: &dyn Preconditioner<T, B>, x: &mut B::Vector) -> Result<bool> {
        let y: Vec<T> = self.least.solve().into_iter().map(T::from_f64).collect();
        if y.is_empty() {
            return Ok(true);
        }
        if !y.iter().all(|y| y.is_finite()) {
            return Ok(false);
        }
        let Self { r, w, basis, directions, .. } = self;
        let direct = m.is_identity() || self.placement != Placement::Right;
        let vectors = if directions.is_empty() || m.is_identity() { basis } else { directions };
        combine(be, &y, &vectors[..y.len()], w)?;
        if !direct {
            m.apply(be, None, w, r)?;
        }
        be.axpby(None, Coeff::one(), if direct { w } else { r }, Coeff::one(), x)?;
        Ok(true)
    }
}

impl<T: Real, B: Backend<T>> Method<T, B> for Gmres<T, B> {
    const NAME: &'static str = "gmres";
    /// The same residual breaks down in the same way.
    const FRUITLESS: usize = 1;

    fn len(&self) -> usize {
        self.n
    }
    fn takes_any_preconditioner(&self) -> bool {
        self.placement == Placement::Flexible
    }
    fn between(&mut self) -> (&mut B::Vector, &mut B::Vector, &mut B::Scalar) {
        (&mut self.r, &mut self.w, &mut self.h[0])
    }
    fn monitor(&mut self) -> &mut Option<B::Monitor> {
        &mut self.monitor
    }
    fn graphs(&mut self) -> &mut Graphs<B> {
        &mut self.graphs
    }
    fn forget(&mut self) {
        self.before = None;
    }
    fn norms(&mut self, _: &B, _: &B::Monitor) -> Result<Vec<f64>> {
        Ok(std::mem::take(&mut self.norms))
    }

    fn segment(&mut self, on: Segment<'_, T, B>) -> Result<End> {
        let Segment { be, a, m, x, monitor, pace, rhythm, look, .. } = on;
        let left = self.placement == Placement::Left && !m.is_identity();
        let placement = if m.is_identity() { Placement::Right } else { self.placement };
        if placement == Placement::Flexible {
            while self.directions.len() < self.basis.len() {
                self.directions.push(be.zeros(self.n)?);
            }
        }
        self.norms.clear();
        if left {
            m.apply(be, None, &self.r, &mut self.w)?;
        }
        let first = if left { &self.w } else { &self.r };
        be.norm2(None, first, &mut self.h[0])?;
        be.require_nonzero(&self.h[0], Quantity::Residual, monitor)?;
        be.axpby(Some(&*monitor), inverse(&self.h[0]), first, Coeff::zero(), &mut self.basis[0])?;

        let (mut enqueued, mut looked, mut next_look) = (0, 0, 0);
        // The residual's norm in units of the minimised norm.
        let mut unit = 1.0;
        let cause = loop {
            if enqueued == next_look {
                // A power of two if the clock decides: few different stretches, so that cycles find earlier graphs.
                let due = 1 << rhythm.until_due().ilog2();
                next_look = (enqueued + pace.until_next_look(enqueued).min(due)).min(self.basis.len());
            }
            // The coefficients of an immediate device cost no wait, so no step follows the one that ends the cycle.
            let to = if be.is_immediate() { enqueued + 1 } else { next_look };
            let Self { r, w, basis, directions, h, graphs, .. } = self;
            let mut step = Stretch { a, m, placement, r, w, basis, directions, h, monitor, from: enqueued, to };
            // SAFETY: the graphs are cleared before a solve with another A, M or monitor; everything else belongs to
            // this workspace, and no vector is replaced (`directions` are allocated before the first stretch).
            unsafe { graphs.run(be, (enqueued, to), &mut step, pace.recorded) }?;
            let from = if enqueued == 0 { 0 } else { at(enqueued) };
            let values = be.download_scalars(&self.h[from..at(to)])?;
            let columns = if enqueued == 0 {
                let norm = values[0].as_f64();
                self.least.begin(norm);
                if !norm.is_finite() {
                    break Cause::Stop(Stop::NotFinite(Quantity::Residual));
                }
                if norm == 0.0 {
                    break Cause::Stop(Stop::Zero(Quantity::Residual));
                }
                let now = Norm::of(norm).times_power_of_two(-pace.scale);
                let least = 1.0 - 2.0 * rounding::<T>(self.n);
                if self.before.replace(now).is_some_and(|before| now.over(before) >= least) {
                    break Cause::Standstill;
                }
                if left {
                    unit = pace.begun / norm;
                }
                &values[1..]
            } else {
                &values[..]
            };
            enqueued = to;
            if enqueued == next_look {
                rhythm.look(be, enqueued - looked)?;
                looked = enqueued;
            }
            if let Some(cause) = self.take(columns, pace, unit) {
                break cause;
            }
            if enqueued < next_look {
                continue;
            }
            let latest = Latest { stop: None, iterations: self.least.len(), residual: self.norms.last().copied() };
            if look(latest, None)?.is_break() {
                break Cause::Watcher;
            }
        };
        if cause != Cause::Cycle {
            self.before = None;
        }
        let updated = self.update(be, m, x)?;
        let cause = if updated { cause } else { Cause::Stop(Stop::NotFinite(Quantity::Subdiagonal)) };
        Ok(End { cause, iterations: self.least.len(), residual: self.norms.last().copied() })
    }
}
