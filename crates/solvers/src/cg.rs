//! The conjugate gradient method for symmetric positive definite systems.
//!
//! Cost per iteration beyond A's storage, in passes over vectors of n: 11 without a preconditioner (q: 2, update: 6,
//! direction: 3), 14 with Jacobi. The trace tests check this. A device that postpones the step of x to the direction
//! needs one less.
//!
//! If M^-1 is not linear ([`Preconditioner::is_linear`]), CG is flexible: beta = -z'q / p'q with the new z and the q of
//! the step before, which makes the new direction conjugate to that one whatever M^-1 is. This costs one more dot
//! product per iteration and no vector. Reference: Notay 2000, Flexible conjugate gradients.
//!
//! Order: that of the backend's operations; the same bits recorded or not, for any `check_every`.
//!
//! Reference: Hestenes & Stiefel 1952, Methods of conjugate gradients for solving linear systems; preconditioned as in
//! Saad, Iterative Methods for Sparse Linear Systems, 2003, algorithm 9.1.

use std::fmt;

use spandrel_backend::cg::cg_step_in_parts;
use spandrel_backend::{
    Backend, CgDirection, CgIterations, CgStep, CgSteps, Coeff, Operator, Preconditioner, Quantity, Step,
};
use spandrel_formats::Real;

use crate::Result;
use crate::entry::entry;
use crate::graphs::Graphs;
use crate::segments::{self, End, Method, Segment, Watched};

/// The workspace of CG for n unknowns: allocated once, used for any number of solves.
pub struct Cg<T: Real, B: Backend<T>> {
    n: usize,
    r: B::Vector,
    p: B::Vector,
    q: B::Vector,
    pq: B::Scalar,
    rr: B::Scalar,
    rz: B::Scalar,
    /// z and the next r'z, if there is a preconditioner.
    z: Option<(B::Vector, B::Scalar)>,
    /// z'q, if the preconditioner is not linear.
    zq: Option<B::Scalar>,
    monitor: Option<B::Monitor>,
    graphs: Graphs<B>,
}

impl<T: Real, B: Backend<T>> fmt::Debug for Cg<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cg").field("n", &self.n).finish_non_exhaustive()
    }
}

impl<T: Real, B: Backend<T>> Cg<T, B> {
    /// A workspace with three vectors. The first solve allocates a monitor, and a fourth vector if there is a
    /// preconditioner.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(be: &B, n: usize) -> Result<Self> {
        Ok(Self {
            n,
            r: be.zeros(n)?,
            p: be.zeros(n)?,
            q: be.zeros(n)?,
            pq: be.scalar(T::zero())?,
            rr: be.scalar(T::zero())?,
            rz: be.scalar(T::zero())?,
            z: None,
            zq: None,
            monitor: None,
            graphs: Graphs::default(),
        })
    }
}

entry!(Cg, cg, "CG", CgSteps);

/// One iteration.
struct Iteration<'a, T: Real, B: Backend<T>> {
    a: &'a dyn Operator<T, B>,
    m: &'a dyn Preconditioner<T, B>,
    x: &'a mut B::Vector,
    r: &'a mut B::Vector,
    p: &'a mut B::Vector,
    q: &'a mut B::Vector,
    pq: &'a mut B::Scalar,
    rr: &'a mut B::Scalar,
    rz: &'a mut B::Scalar,
    z: Option<&'a mut (B::Vector, B::Scalar)>,
    zq: Option<&'a mut B::Scalar>,
    monitor: &'a mut B::Monitor,
}

// SAFETY: one fixed sequence; `z` and `zq` are present or absent while the step lives. Its vectors, scalars and monitor
// are borrowed mutably. A and M are borrowed and keep their buffers by the contracts of their traits.
unsafe impl<T: Real, B: CgSteps<T>> Step<B> for Iteration<'_, T, B> {
    #[rustfmt::skip] // the right margin holds the formulas
    fn enqueue(&mut self, be: &B) -> spandrel_backend::Result<()> {
        let Self { a, m, x, r, p, q, pq, rr, rz, z, zq, monitor } = self;
        a.apply_dot(be, Some(&**monitor), p, q, p, pq, None)?;                          // q = A p, p'q
        if let (Some((z, rz_next)), Some(zq)) = (&mut *z, zq) {
            cg_step_in_parts(be, CgStep { rz, pq, p, q, x, r, rr }, monitor)?;          // as below
            m.apply_dot(be, Some(&**monitor), r, z, rz_next)?;                          // z = M^-1 r, r'z
            be.require_positive(rz_next, Quantity::PreconditionedResidual, monitor)?;
            let gate = Some(&**monitor);
            be.dot(gate, z, q, zq)?;
            be.axpby(gate, Coeff::one(), z, Coeff::ratio(&**zq, &**pq).negated(), p)?;  // p = z - (z'q / p'q) p
            return be.assign(gate, Coeff::scalar(&*rz_next), rz);                       // r'z = r'z next
        }
        be.cg_step(CgStep { rz, pq, p, q, x, r, rr }, monitor)?;                        // p'q > 0, alpha = r'z / p'q
                                                                                        // x = x + alpha p
                                                                                        // r = r - alpha q, r'r
                                                                                        // ||r|| small enough?
        let (z, rz_next, checked) = match z {
            None => (&**r, &**rr, false),                                               // z = r
            Some((z, rz_next)) => {
                m.apply_dot(be, Some(&**monitor), r, z, rz_next)?;                      // z = M^-1 r, r'z
                (&*z, &*rz_next, true)
            }
        };
        be.cg_direction(CgDirection { z, rz_next, checked, rz, pq, p, x }, monitor)     // r'z next > 0
                                                                                        // p = z + (r'z next / r'z) p
                                                                                        // r'z = r'z next
    }
}

impl<T: Real, B: CgSteps<T>> Watched<T, B> for Iteration<'_, T, B> {
    fn monitor(&self) -> &B::Monitor {
        self.monitor
    }
    fn x(&self) -> &B::Vector {
        self.x
    }
    fn leap(&mut self, be: &B, count: usize) -> Result<bool> {
        let Self { a, x, r, p, q, pq, rr, rz, z, monitor, .. } = self;
        match a.stored() {
            Some(stored) if z.is_none() => {
                Ok(be.cg_iterations(stored, count, CgIterations { x, r, p, q, pq, rr, rz }, monitor)?)
            }
            _ => Ok(false),
        }
    }
}

impl<T: Real, B: CgSteps<T>> Method<T, B> for Cg<T, B> {
    const NAME: &'static str = "cg";
    const FRUITLESS: usize = 1;

    fn len(&self) -> usize {
        self.n
    }
    fn takes_any_preconditioner(&self) -> bool {
        true
    }
    fn between(&mut self) -> (&mut B::Vector, &mut B::Vector, &mut B::Scalar) {
        (&mut self.r, &mut self.p, &mut self.rr)
    }
    fn monitor(&mut self) -> &mut Option<B::Monitor> {
        &mut self.monitor
    }
    fn graphs(&mut self) -> &mut Graphs<B> {
        &mut self.graphs
    }

    fn segment(&mut self, on: Segment<'_, T, B>) -> Result<End> {
        let Segment { be, a, m, x, monitor, pace, rhythm, look, .. } = on;
        let Self { n, r, p, q, pq, rr, rz, z, zq, graphs, .. } = self;
        let z = if m.is_identity() {
            be.copy(None, r, p)?;
            be.dot(None, r, r, rz)?;
            None
        } else {
            let pair = match z {
                Some(pair) => pair,
                empty => empty.insert((be.zeros(*n)?, be.scalar(T::zero())?)),
            };
            m.apply_dot(be, None, r, &mut pair.0, rz)?;
            be.require_positive(rz, Quantity::PreconditionedResidual, monitor)?;
            be.copy(None, &pair.0, p)?;
            Some(pair)
        };
        let zq = match (m.is_linear(), &mut *zq) {
            (true, _) => None,
            (false, Some(zq)) => Some(zq),
            (false, empty) => Some(empty.insert(be.scalar(T::zero())?)),
        };
        let step = Iteration { a, m, x, r, p, q, pq, rr, rz, z, zq, monitor };
        // SAFETY: the graphs are cleared before a solve with another A, M, x or monitor; everything else belongs to
        // this workspace.
        unsafe { segments::repeat(be, step, graphs, pace, rhythm, look) }
    }
}
