//! A backend without a schedule for any sweep, for the tests of what takes its place.

use std::sync::Arc;

use spandrel_backend::{
    Backend, Coeff, Device, Error, Factorize, Gate, Load, Order, Phase, Quantity, Report, Result, Sptrsv, Step, Watch,
};
use spandrel_formats::Real;
use spandrel_sptrsv::{Factor, Plan, Sweep, System};

use crate::Cpu;

/// The CPU but for sweeps.
#[derive(Debug)]
pub(crate) struct Refusing(pub(crate) Cpu);

const UNRECORDED: Error = Error::Shape { op: "capture", what: "a step", found: 0, expected: 0 };

impl Device for Refusing {
    const NAME: &'static str = "refusing";
    type Graph = ();
    type Monitor = <Cpu as Device>::Monitor;

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

type Vector<T> = <Cpu as Backend<T>>::Vector;
type Scalar<T> = <Cpu as Backend<T>>::Scalar;

impl<T: Real> Backend<T> for Refusing {
    type Vector = Vector<T>;
    type Scalar = Scalar<T>;

    fn zeros(&self, len: usize) -> Result<Vector<T>> {
        self.0.zeros(len)
    }
    fn upload(&self, host: &[T]) -> Result<Vector<T>> {
        self.0.upload(host)
    }
    fn write(&self, host: &[T], v: &mut Vector<T>) -> Result<()> {
        self.0.write(host, v)
    }
    fn download(&self, v: &Vector<T>) -> Result<Vec<T>> {
        self.0.download(v)
    }
    fn len(&self, v: &Vector<T>) -> usize {
        Backend::<T>::len(&self.0, v)
    }
    fn scalar(&self, value: T) -> Result<Scalar<T>> {
        self.0.scalar(value)
    }
    fn download_scalar(&self, s: &Scalar<T>) -> Result<T> {
        self.0.download_scalar(s)
    }
    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Vector<T>) -> Result<()> {
        self.0.fill(gate, value, y)
    }
    fn copy(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &mut Vector<T>) -> Result<()> {
        Backend::<T>::copy(&self.0, gate, x, y)
    }
    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        self.0.axpby(gate, a, x, b, y)
    }
    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &Vector<T>,
        c: Coeff<'_, T, Scalar<T>>,
        z: &mut Vector<T>,
    ) -> Result<()> {
        self.0.axpbypcz(gate, a, x, b, y, c, z)
    }
    fn hadamard(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &Vector<T>, z: &mut Vector<T>) -> Result<()> {
        Backend::<T>::hadamard(&self.0, gate, x, y, z)
    }
    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, Scalar<T>>, out: &mut Scalar<T>) -> Result<()> {
        self.0.assign(gate, value, out)
    }
    fn dot(&self, gate: Gate<'_, Self>, x: &Vector<T>, y: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        Backend::<T>::dot(&self.0, gate, x, y, out)
    }
    fn norm2(&self, gate: Gate<'_, Self>, x: &Vector<T>, out: &mut Scalar<T>) -> Result<()> {
        Backend::<T>::norm2(&self.0, gate, x, out)
    }
    fn observe(&self, squared: &Scalar<T>, phase: Phase, monitor: &mut Self::Monitor) -> Result<()> {
        Backend::<T>::observe(&self.0, squared, phase, monitor)
    }
    fn require_positive(&self, value: &Scalar<T>, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        Backend::<T>::require_positive(&self.0, value, what, monitor)
    }
    fn require_nonzero(&self, value: &Scalar<T>, what: Quantity, monitor: &mut Self::Monitor) -> Result<()> {
        Backend::<T>::require_nonzero(&self.0, value, what, monitor)
    }
}

// SAFETY: as that of the CPU, whose residents these are.
unsafe impl<H> Load<H> for Refusing
where
    Cpu: Load<H>,
{
    type Resident = <Cpu as Load<H>>::Resident;

    fn load(&self, host: Arc<H>) -> Result<Self::Resident> {
        let noun = std::any::type_name::<H>();
        if [std::any::type_name::<Sweep<f32>>(), std::any::type_name::<Sweep<f64>>()].contains(&noun) {
            return Err(Error::Unsupported { op: "load", noun: "sweep", why: "no schedule fits".into() });
        }
        self.0.load(host)
    }
}

impl<P: Plan> Sptrsv<P> for Refusing
where
    Cpu: Sptrsv<P> + Backend<P::Value, Vector = Vector<P::Value>>,
{
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

impl<F: Factor> Factorize<F> for Refusing
where
    Cpu: Factorize<F>,
{
    fn factorize(
        &self,
        m: &Self::Resident,
        values: &<Self as Backend<F::Value>>::Vector,
        lower: &mut <Self as Backend<F::Value>>::Vector,
        upper: &mut <Self as Backend<F::Value>>::Vector,
    ) -> Result<f64> {
        self.0.factorize(m, values, lower, upper)
    }
}
