//! A backend with its fused steps taken away: what the default bodies of the contract make of its plain operations.
//!
//! The defaults are the specification of the fused steps, so `B` and `Plain<B>` must give the same bits.

use std::sync::Arc;

use spandrel_backend::{
    Backend, Cast, Coeff, Device, Factorize, Gate, Latest, Load, Order, Phase, Quantity, Report, Result, Spmv, Sptrsv,
    Step, Watch,
};
use spandrel_formats::{Format, Real};
use spandrel_sptrsv::{Factor, Plan, System};

/// `B` without overrides.
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
    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
    fn capture<S: Step<Self>>(&self, step: &mut S) -> Result<Self::Graph> {
        self.0.capture(&mut Inner { step, device: *self })
    }
    unsafe fn replay<S: Step<Self>>(&self, graph: &Self::Graph, step: &mut S) -> Result<()> {
        // SAFETY: `capture` above made the graph on the same device from the same step, wrapped in the same way.
        unsafe { self.0.replay(graph, &mut Inner { step, device: *self }) }
    }
    fn monitor(&self, watch: &Watch) -> Result<Self::Monitor> {
        self.0.monitor(watch)
    }
    fn resume(&self, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.resume(monitor)
    }
    fn rearm(&self, monitor: &mut Self::Monitor, watch: &Watch) -> Result<()> {
        self.0.rearm(monitor, watch)
    }
    fn report_latest(&self, monitor: &Self::Monitor) -> Result<Latest> {
        self.0.report_latest(monitor)
    }
    fn report(&self, monitor: &Self::Monitor) -> Result<Report> {
        self.0.report(monitor)
    }
}

impl<T: Real, B: Backend<T>> Backend<T> for Plain<'_, B> {
    type Vector = B::Vector;
    type Scalar = B::Scalar;

    fn zeros(&self, len: usize) -> Result<Self::Vector> {
        self.0.zeros(len)
    }
    fn upload(&self, host: &[T]) -> Result<Self::Vector> {
        self.0.upload(host)
    }
    fn write(&self, host: &[T], v: &mut Self::Vector) -> Result<()> {
        self.0.write(host, v)
    }
    fn download(&self, v: &Self::Vector) -> Result<Vec<T>> {
        self.0.download(v)
    }
    fn len(&self, v: &Self::Vector) -> usize {
        self.0.len(v)
    }
    fn scalar(&self, value: T) -> Result<Self::Scalar> {
        self.0.scalar(value)
    }
    fn download_scalar(&self, s: &Self::Scalar) -> Result<T> {
        self.0.download_scalar(s)
    }
    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Self::Vector) -> Result<()> {
        self.0.fill(gate, value, y)
    }
    fn copy(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &mut Self::Vector) -> Result<()> {
        self.0.copy(gate, x, y)
    }
    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()> {
        self.0.axpby(gate, a, x, b, y)
    }
    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &Self::Vector,
        c: Coeff<'_, T, Self::Scalar>,
        z: &mut Self::Vector,
    ) -> Result<()> {
        self.0.axpbypcz(gate, a, x, b, y, c, z)
    }
    fn hadamard(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, z: &mut Self::Vector) -> Result<()> {
        self.0.hadamard(gate, x, y, z)
    }
    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, Self::Scalar>, out: &mut Self::Scalar) -> Result<()> {
        self.0.assign(gate, value, out)
    }
    fn dot(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        self.0.dot(gate, x, y, out)
    }
    fn norm2(&self, gate: Gate<'_, Self>, x: &Self::Vector, out: &mut Self::Scalar) -> Result<()> {
        self.0.norm2(gate, x, out)
    }
    fn observe(&self, squared: &Self::Scalar, phase: Phase, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.observe(squared, phase, monitor)
    }
    fn require_positive(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.require_positive(value, what, monitor)
    }
    fn require_nonzero(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.require_nonzero(value, what, monitor)
    }
}

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

// SAFETY: what is loaded is the backend's within, and operations go to it as they come.
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
    fn sptrsv_order(&self, m: &Self::Resident, system: System) -> Order {
        self.0.sptrsv_order(m, system)
    }
    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()> {
        self.0.sptrsv(gate, system, m, k, b, x)
    }
    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        x: &mut Self::Vector,
    ) -> Result<()> {
        self.0.sptrsv_in_place(gate, system, m, k, x)
    }
    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()> {
        self.0.update(m, plan)
    }
    fn update_from(&self, m: &mut Self::Resident, plan: &Arc<P>, values: &Self::Vector) -> Result<()> {
        self.0.update_from(m, plan, values)
    }
}

impl<F: Factor, B: Factorize<F>> Factorize<F> for Plain<'_, B> {
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &Self::Vector,
        lower: &mut Self::Vector,
        upper: &mut Self::Vector,
    ) -> Result<f64> {
        self.0.factorize(m, values, lower, upper)
    }
}
