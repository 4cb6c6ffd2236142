//! A backend without its fused steps: the default bodies of the contract run on its plain operations.
//!
//! The defaults are the specification of the fused steps, so `B` and `Plain<B>` must give the same bits.

use std::sync::Arc;

use spandrel_backend::{
    Backend, BicgstabSteps, Cast, CgSteps, Coeff, Device, Factorize, Gate, Load, Order, Result, Spmv, Sptrsv, Step,
    forward,
};
use spandrel_formats::{Format, Real};
use spandrel_sptrsv::{Factor, Plan};

/// `B` without its overrides.
#[derive(Debug)]
pub struct Plain<'d, B>(pub &'d B);

impl<B> Clone for Plain<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<B> Copy for Plain<'_, B> {}

/// A step of `Plain<B>` as one of `B`.
struct Inner<'s, 'd, B, S> {
    step: &'s mut S,
    device: Plain<'d, B>,
}

// SAFETY: the operations and buffers are those of the step inside, which keeps the same contract.
unsafe impl<'d, B: Device, S: Step<Plain<'d, B>>> Step<B> for Inner<'_, 'd, B, S> {
    fn enqueue(&mut self, _: &B) -> Result<()> {
        self.step.enqueue(&self.device)
    }
}

impl<B: Device> Device for Plain<'_, B> {
    const NAME: &'static str = B::NAME;
    type Graph = B::Graph;
    type Monitor = B::Monitor;

    fn describe(&self) -> String {
        format!("{}, without fused steps", self.0.describe())
    }
    forward!(Device to 0: profile synchronize monitor resume rearm report_latest report);

    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Self::Graph> {
        self.0.capture(&mut Inner { step, device: *self })
    }
    unsafe fn replay<S: Step<Self>>(&self, graph: &Self::Graph, step: &mut S) -> Result<()> {
        // SAFETY: `capture` above made the graph on the same device from the same step, wrapped in the same way.
        unsafe { self.0.replay(graph, &mut Inner { step, device: *self }) }
    }
}

impl<T: Real, B: Backend<T>> Backend<T> for Plain<'_, B> {
    type Vector = B::Vector;
    type Scalar = B::Scalar;

    forward!(Backend<T> to 0: zeros upload write download len scalar download_scalar fill copy axpby axpbypcz hadamard assign);
    forward!(Backend<T> to 0: dot norm2 observe require_positive require_nonzero);
}

impl<T: Real, B: Backend<T>> CgSteps<T> for Plain<'_, B> {}
impl<T: Real, B: Backend<T>> BicgstabSteps<T> for Plain<'_, B> {}

impl<S: Real, T: Real, B: Cast<S, T>> Cast<S, T> for Plain<'_, B> {
    fn binade(
        &self,
        gate: Gate<'_, Self>,
        x: &<Self as Backend<S>>::Vector,
        out: &mut <Self as Backend<f64>>::Scalar,
    ) -> Result<()> {
        Cast::<S, T>::binade(self.0, gate, x, out)
    }
    fn cast(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, f64, <Self as Backend<f64>>::Scalar>,
        x: &<Self as Backend<S>>::Vector,
        y: &mut <Self as Backend<T>>::Vector,
    ) -> Result<()> {
        Cast::<S, T>::cast(self.0, gate, a, x, y)
    }
}

// SAFETY: the loaded objects are those of the inner backend, and operations reach it unchanged.
unsafe impl<H, B: Load<H>> Load<H> for Plain<'_, B> {
    type Resident = B::Resident;
    fn load(&self, host: Arc<H>) -> Result<Self::Resident> {
        self.0.load(host)
    }
}

impl<F: Format, B: Spmv<F>> Spmv<F> for Plain<'_, B> {
    fn order(&self) -> Order {
        Spmv::<F>::order(self.0)
    }
    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        self.0.spmv(gate, a, m, x, b, y)
    }
}

impl<P: Plan, B: Sptrsv<P>> Sptrsv<P> for Plain<'_, B> {
    forward!(Sptrsv<P> to 0: sptrsv_order sptrsv sptrsv_in_place update update_from);
}

impl<F: Factor, B: Factorize<F>> Factorize<F> for Plain<'_, B> {
    forward!(Factorize<F> to 0: factorize);
}
