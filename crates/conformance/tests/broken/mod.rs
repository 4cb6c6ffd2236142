//! A backend with one flaw.

mod casts;
mod coarsen;
mod made;
mod products;
mod renumber;
mod solves;
mod stencils;
mod steps;

use spandrel_backend::{Backend, Coeff, Device, Gate, Phase, Quantity, Result, Step, forward};
use spandrel_formats::Real;

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing.
    None,
    /// The last row misses its entry in the last column.
    DropsLastEntry,
    /// y enters with the coefficient 0 instead of not at all.
    ReadsY,
    /// Work behind a stopped monitor runs.
    IgnoresGate,
    /// dot and norm2 sum from the first element to the last.
    DotInSequence,
    /// A^T x reads its neighbour's x.
    ShiftsTransposed,
    /// The first element of a product is one unit in the last place too large.
    NudgesLastBit,
    /// The fused update of CG gives the norm of the old residual.
    FusesWrongly,
    /// Replaying a graph runs nothing.
    ReplaysNothing,
    /// `require_positive` is satisfied with everything.
    AcceptsAnything,
    /// `require_nonzero` is satisfied with everything.
    AcceptsZero,
    /// The half step of BiCGStab gives the norm of the old residual.
    HalvesWrongly,
    /// The fused update of BiCGStab takes the new residual for s.
    UpdatesWrongly,
    /// The fused Jacobi step gives z . z instead of r . z.
    FusesJacobiWrongly,
    /// The fused product gives x . y instead of w . y.
    FusesDotWrongly,
    /// A residual starts from what lies in r instead of from b.
    ForgetsRightHandSide,
    /// The second of several right-hand sides is multiplied by the first's x.
    /// The second of several right-hand sides is multiplied by the first's x, and a stencil's second diagonal is its
    /// first.
    RepeatsColumn,
    /// A masked product writes the rows outside its mask too.
    IgnoresMask,
    /// A masked product leaves the last row of its mask alone.
    ForgetsMaskedRow,
    /// The last stored element of a sparse vector takes no part; gather does nothing.
    DropsSparseTail,
    /// Steps of the solvers observe what stands in the sum before they check.
    ObservesFirst,
    /// Steps of the solvers work and write where their check has failed just now.
    WritesPastCheck,
    /// The ends of iterations keep the old r'z and the old rho.
    ForgetsAssign,
    /// BiCGStab's second half does not look at the next rho.
    ForgetsNextRho,
    /// The direction of CG is checked where nobody asked for it.
    ChecksUnasked,
    /// Every eighth product has another last bit.
    Drifts,
    /// A kernel panics.
    Panics,
    /// A triangular solve divides by the diagonal instead of multiplying with its reciprocal, and a smoother of
    /// stencils by the diagonal instead of the sum of a row.
    DividesByDiagonal,
    /// A row of a triangular solve is summed from the diagonal outwards.
    SumsBackwards,
    /// The last row of a triangular solve misses its last term.
    DropsLastTerm,
    /// Flags are not advanced: from the second solve on the last row takes what its x held before.
    StaleFlags,
    /// The transposed system is solved as the plain one.
    IgnoresTransposed,
    /// Solving in place, the last row takes for b what the row before has written.
    ReadsOverwritten,
    /// A solve behind a stopped monitor advances the flags that it does not set.
    GateSpoilsNext,
    /// New values of a plan do not reach the device.
    ForgetsUpdate,
    /// A row takes a zero times the x of its neighbour.
    SpreadsNan,
    /// What is cast to f32 is cut off instead of rounded.
    TruncatesCast,
    /// The binade is of the first element alone.
    ScalesByFirst,
    /// The first value of L is one unit in the last place too large.
    NudgesFactor,
    /// A product of matrices rounds every product before it is added.
    RoundsProducts,
    /// A range of rows on its way to the host begins and ends one row too early.
    ShiftsRows,
    /// The numeric phase of a product, transpose, renumbered copy or coarser version of matrices runs once.
    KeepsOldValues,
    /// A search numbers rows from its end.
    NumbersBackwards,
    /// A vector on its way back from a new order is moved there once more.
    ConfusesOrders,
    /// A matrix that is scaled in place keeps its columns as they are.
    ScalesRowsOnly,
}

/// A backend with that flaw.
#[derive(Debug)]
pub(crate) struct Broken<B> {
    /// The sound one.
    pub(crate) inner: B,
    /// What is wrong.
    pub(crate) flaw: Flaw,
}

/// A step of `Broken<B>` as one of `B`.
struct Inner<'s, B, S> {
    step: &'s mut S,
    device: &'s Broken<B>,
}

// SAFETY: the operations and buffers are those of the step inside, which keeps the same contract; a flaw depends on
// nothing that changes from call to call.
unsafe impl<B: Device, S: Step<Broken<B>>> Step<B> for Inner<'_, B, S> {
    fn enqueue(&mut self, _: &B) -> Result<()> {
        self.step.enqueue(self.device)
    }
}

impl<B: Device> Device for Broken<B> {
    const NAME: &'static str = "broken";
    type Graph = B::Graph;
    type Monitor = B::Monitor;

    fn describe(&self) -> String {
        format!("{}, {:?}", self.inner.describe(), self.flaw)
    }
    forward!(Device to inner: profile synchronize monitor resume rearm report_latest report);

    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Self::Graph> {
        self.inner.capture(&mut Inner { step, device: self })
    }
    unsafe fn replay<S: Step<Self>>(&self, graph: &Self::Graph, step: &mut S) -> Result<()> {
        if self.flaw == Flaw::ReplaysNothing {
            return Ok(());
        }
        // SAFETY: `capture` above made the graph on the same device from the same step, wrapped in the same way.
        unsafe { self.inner.replay(graph, &mut Inner { step, device: self }) }
    }
}

impl<B: Device> Broken<B> {
    fn gate<'a>(&self, gate: Gate<'a, B>) -> Gate<'a, B> {
        gate.filter(|_| self.flaw != Flaw::IgnoresGate)
    }

    /// [`Flaw::ReadsY`]: what 0 * y does where y is NaN.
    fn spoil<T: Real>(&self, before: &[T], b: Coeff<'_, T, B::Scalar>, y: &mut B::Vector) -> Result<()>
    where
        B: Backend<T>,
    {
        if self.flaw != Flaw::ReadsY || b.host != T::zero() {
            return Ok(());
        }
        let mut after = self.inner.download(y)?;
        after.iter_mut().zip(before).for_each(|(after, &before)| *after += T::zero() * before);
        self.inner.write(&after, y)
    }

    /// [`Flaw::DropsSparseTail`]: the last element that changed has its old value again.
    fn drop_tail<T: Real>(&self, before: &[T], y: &mut B::Vector) -> Result<()>
    where
        B: Backend<T>,
    {
        if self.flaw != Flaw::DropsSparseTail {
            return Ok(());
        }
        let mut values = self.inner.download(y)?;
        if let Some(last) = values.iter().zip(before).rposition(|(after, before)| after != before) {
            values[last] = before[last];
        }
        self.inner.write(&values, y)
    }

    /// The observation before a step: [`Flaw::ObservesFirst`].
    fn first<T: Real>(&self, squared: &B::Scalar, phase: Phase, monitor: &mut B::Monitor) -> Result<()>
    where
        B: Backend<T>,
    {
        if self.flaw == Flaw::ObservesFirst { self.observe(squared, phase, monitor) } else { Ok(()) }
    }

    /// The observation behind a step.
    fn last<T: Real>(&self, squared: &B::Scalar, phase: Phase, monitor: &mut B::Monitor) -> Result<()>
    where
        B: Backend<T>,
    {
        if self.flaw == Flaw::ObservesFirst { Ok(()) } else { self.observe(squared, phase, monitor) }
    }

    /// [`Flaw::NudgesLastBit`].
    fn nudge<T: Real>(&self, y: &mut B::Vector) -> Result<()>
    where
        B: Backend<T>,
    {
        if self.flaw == Flaw::NudgesLastBit { self.nudge_now(y) } else { Ok(()) }
    }

    fn nudge_now<T: Real>(&self, y: &mut B::Vector) -> Result<()>
    where
        B: Backend<T>,
    {
        let mut values = self.inner.download(y)?;
        if let Some(first) = values.first_mut() {
            *first *= T::one() + T::from_f64(2.0 * T::UNIT_ROUNDOFF);
        }
        self.inner.write(&values, y)
    }
}

impl<T: Real, B: Backend<T>> Backend<T> for Broken<B> {
    type Vector = B::Vector;
    type Scalar = B::Scalar;

    forward!(Backend<T> to inner: zeros upload write download len scalar download_scalar observe);
    forward!(Backend<T> to inner through gate: fill copy axpbypcz assign);

    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        let before = self.inner.download(y)?;
        self.inner.axpby(self.gate(gate), a, x, b, y)?;
        self.spoil(&before, b, y)
    }
    fn hadamard(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, z: &mut Self::Vector) -> Result<()> {
        assert!(self.flaw != Flaw::Panics, "a flaw of this backend");
        self.inner.hadamard(self.gate(gate), x, y, z)?;
        self.nudge(z)
    }
    fn dot(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        if self.flaw == Flaw::DotInSequence {
            let (x, y) = (self.inner.download(x)?, self.inner.download(y)?);
            let sum = x.iter().zip(&y).fold(T::zero(), |sum, (&x, &y)| x.mul_add(y, sum));
            return self.inner.assign(gate, Coeff::host(sum), out);
        }
        self.inner.dot(self.gate(gate), x, y, out)
    }
    fn norm2(&self, gate: Gate<'_, Self>, x: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        if self.flaw == Flaw::DotInSequence {
            let x = self.inner.download(x)?;
            let sum = x.iter().fold(T::zero(), |sum, &x| x.mul_add(x, sum));
            return self.inner.assign(gate, Coeff::host(sum.sqrt()), out);
        }
        self.inner.norm2(self.gate(gate), x, out)
    }
    fn require_positive(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        if self.flaw == Flaw::AcceptsAnything {
            return Ok(());
        }
        self.inner.require_positive(value, what, monitor)
    }
    fn require_nonzero(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        if self.flaw == Flaw::AcceptsZero {
            return Ok(());
        }
        self.inner.require_nonzero(value, what, monitor)
    }
    fn hadamard_dot(
        &self,
        gate: Gate<'_, Self>,
        d: &Self::Vector,
        r: &Self::Vector,
        z: &mut Self::Vector,
        rz: &mut Self::Scalar,
    ) -> Result<()> {
        if self.flaw == Flaw::FusesJacobiWrongly {
            self.hadamard(gate, d, r, z)?;
            return self.dot(gate, z, z, rz);
        }
        self.inner.hadamard_dot(self.gate(gate), d, r, z, rz)
    }
}
