//! A backend without a schedule for any sweep, for the tests of what takes its place.

use std::sync::Arc;

use spandrel_backend::{
    Backend, Coeff, Device, Error, Factorize, Gate, Load, Order, Phase, Quantity, Report, Result, Sptrsv, Step, Watch,
};
use spandrel_formats::Real;
use spandrel_sptrsv::{Factor, Plan, Sweep, System};

/// Another backend but for sweeps.
#[derive(Debug)]
pub(crate) struct Refusing<B>(pub(crate) B);

const UNRECORDED: Error = Error::Shape { op: "capture", what: "a step", found: 0, expected: 0 };

impl<B: Device> Device for Refusing<B> {
    const NAME: &'static str = "refusing";
    type Graph = ();
    type Monitor = B::Monitor;

    fn describe(&self) -> String {
        self.0.describe()
    }
    fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }
    fn capture<S: Step<Self>>(&self, _: &mut S) -> Result<()> {
        Err(UNRECORDED)
    }
    unsafe fn replay<S: Step<Self>>(&self, (): &(), _: &mut S) -> Result<()> {
        Err(UNRECORDED)
    }
    fn monitor(&self, watch: &Watch) -> Result<Self::Monitor> {
        self.0.monitor(watch)
    }
    fn resume(&self, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.resume(monitor)
    }
    fn report(&self, monitor: &Self::Monitor) -> Result<Report> {
        self.0.report(monitor)
    }
}

impl<T: Real, B: Backend<T>> Backend<T> for Refusing<B> {
    type Vector = B::Vector;
    type Scalar = B::Scalar;

    fn zeros(&self, len: usize) -> Result<B::Vector> {
        self.0.zeros(len)
    }
    fn upload(&self, host: &[T]) -> Result<B::Vector> {
        self.0.upload(host)
    }
    fn write(&self, host: &[T], v: &mut B::Vector) -> Result<()> {
        self.0.write(host, v)
    }
    fn download(&self, v: &B::Vector) -> Result<Vec<T>> {
        self.0.download(v)
    }
    fn len(&self, v: &B::Vector) -> usize {
        self.0.len(v)
    }
    fn scalar(&self, value: T) -> Result<B::Scalar> {
        self.0.scalar(value)
    }
    fn download_scalar(&self, s: &B::Scalar) -> Result<T> {
        self.0.download_scalar(s)
    }
    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut B::Vector) -> Result<()> {
        self.0.fill(gate, value, y)
    }
    fn copy(&self, gate: Gate<'_, Self>, x: &B::Vector, y: &mut B::Vector) -> Result<()> {
        self.0.copy(gate, x, y)
    }
    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, B::Scalar>,
        x: &B::Vector,
        b: Coeff<'_, T, B::Scalar>,
        y: &mut B::Vector,
    ) -> Result<()> {
        self.0.axpby(gate, a, x, b, y)
    }
    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, B::Scalar>,
        x: &B::Vector,
        b: Coeff<'_, T, B::Scalar>,
        y: &B::Vector,
        c: Coeff<'_, T, B::Scalar>,
        z: &mut B::Vector,
    ) -> Result<()> {
        self.0.axpbypcz(gate, a, x, b, y, c, z)
    }
    fn hadamard(&self, gate: Gate<'_, Self>, x: &B::Vector, y: &B::Vector, z: &mut B::Vector) -> Result<()> {
        self.0.hadamard(gate, x, y, z)
    }
    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, B::Scalar>, out: &mut B::Scalar) -> Result<()> {
        self.0.assign(gate, value, out)
    }
    fn dot(&self, gate: Gate<'_, Self>, x: &B::Vector, y: &B::Vector, out: &mut B::Scalar) -> Result<()> {
        self.0.dot(gate, x, y, out)
    }
    fn norm2(&self, gate: Gate<'_, Self>, x: &B::Vector, out: &mut B::Scalar) -> Result<()> {
        self.0.norm2(gate, x, out)
    }
    fn observe(&self, squared: &B::Scalar, phase: Phase, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.observe(squared, phase, monitor)
    }
    fn require_positive(&self, value: &B::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.require_positive(value, what, monitor)
    }
    fn require_nonzero(&self, value: &B::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        self.0.require_nonzero(value, what, monitor)
    }
}

// SAFETY: as that of the other backend, whose residents these are.
unsafe impl<H, B: Load<H>> Load<H> for Refusing<B> {
    type Resident = B::Resident;

    fn load(&self, host: Arc<H>) -> Result<Self::Resident> {
        let noun = std::any::type_name::<H>();
        if [std::any::type_name::<Sweep<f32>>(), std::any::type_name::<Sweep<f64>>()].contains(&noun) {
            return Err(Error::Unsupported { op: "load", noun: "sweep", why: "no schedule fits".into() });
        }
        self.0.load(host)
    }
}

impl<P: Plan, B: Sptrsv<P>> Sptrsv<P> for Refusing<B> {
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

impl<F: Factor, B: Factorize<F>> Factorize<F> for Refusing<B> {
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
