//! The subject of a test: a backend, on several devices that must agree.

use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Device, Load, Mat, Order, Phase, Quantity, Result, Watch};
pub use spandrel_backend::{EveryFactor, EveryFormat, EveryMethod, EveryPlan, EveryProduct, FORMATS, PLANS};
use spandrel_formats::Real;

use crate::reference::Factor;

/// Everything that the contract requires of a backend for one element type, except triangles and factors.
pub trait Complete<T: Real>: EveryProduct<T> + EveryMethod<T> {}
impl<T: Real, B: EveryProduct<T> + EveryMethod<T>> Complete<T> for B {}

/// Devices of one backend that must give the same bits. The first is the subject of every trial, and the others (with
/// other numbers of threads) are compared with it.
#[derive(Debug)]
pub struct Fleet<B> {
    /// The backend's name in trial names.
    pub name: String,
    /// The name of each device in findings, and the device.
    pub devices: Vec<(String, B)>,
}

impl<B: Device> Fleet<B> {
    /// One device.
    pub fn single(device: B) -> Self {
        Self { name: B::NAME.to_owned(), devices: vec![(device.describe(), device)] }
    }

    /// The subject.
    pub fn first(&self) -> &B {
        &self.devices[0].1
    }
}

/// The state of the gate that an operation is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GateState {
    /// No gate.
    #[default]
    None,
    /// A monitor that runs.
    Running,
    /// A monitor that has stopped.
    Stopped,
}

/// A monitor in that state.
///
/// # Errors
/// The device's.
pub fn gate<T: Real, B: Backend<T>>(be: &B, state: GateState) -> Result<Option<B::Monitor>> {
    if state == GateState::None {
        return Ok(None);
    }
    let mut monitor = be.monitor(&Watch { threshold: 0.0, divergence: f64::INFINITY, max_iters: 10 })?;
    if state == GateState::Stopped {
        be.require_nonzero(&be.scalar(T::zero())?, Quantity::Omega, &mut monitor)?;
    } else {
        be.observe(&be.scalar(T::one())?, Phase::Full, &mut monitor)?;
    }
    Ok(Some(monitor))
}

/// A [`Factor`] with its scalars on the device.
#[derive(Debug)]
pub struct DeviceFactor<T, S> {
    host: T,
    num: [Option<S>; 2],
    den: [Option<S>; 2],
}

impl<T: Real, S> DeviceFactor<T, S> {
    /// Uploads the scalars.
    ///
    /// # Errors
    /// The device's.
    pub fn new<B: Backend<T, Scalar = S>>(be: &B, factor: &Factor) -> Result<Self> {
        let up = |value: Option<f64>| value.map(|v| be.scalar(T::from_f64(v))).transpose();
        let [n0, n1] = factor.num;
        let [d0, d1] = factor.den;
        Ok(Self { host: T::from_f64(factor.host), num: [up(n0)?, up(n1)?], den: [up(d0)?, up(d1)?] })
    }

    /// The coefficient that an operation takes.
    pub fn coeff(&self) -> Coeff<'_, T, S> {
        Coeff {
            host: self.host,
            num: [self.num[0].as_ref(), self.num[1].as_ref()],
            den: [self.den[0].as_ref(), self.den[1].as_ref()],
        }
    }
}

/// One product y <- a A x + b y. The device's y holds `y` before; fill it with NaN if it must not be read.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a, T> {
    /// Coefficient of the product.
    pub a: &'a Factor,
    /// The operand.
    pub x: &'a [T],
    /// Coefficient of y.
    pub b: &'a Factor,
    /// The y before the product.
    pub y: &'a [T],
    /// The gate.
    pub gate: GateState,
}

/// A loaded matrix behind one closure. So trials are compiled once per element type and not once per format and
/// backend.
pub type Product<'b, T> = Box<dyn Fn(&Call<'_, T>) -> Result<Vec<T>> + 'b>;

/// What a trial must know about a format on a backend.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// The format's stem.
    pub stem: &'static str,
    /// The declared order of a row.
    pub order: Order,
    /// Whether fill zeros are multiplied.
    pub multiplies_fill: bool,
}

/// Loads `host` and returns a closure over it and an operation (`Mat::spmv` or a similar one).
///
/// # Errors
/// The device's.
pub fn product<'b, F, B>(
    be: &'b B,
    host: Arc<F>,
    operation: impl Fn(
        &Mat<B, F>,
        &B,
        Option<&B::Monitor>,
        Coeff<'_, F::Value, B::Scalar>,
        &B::Vector,
        Coeff<'_, F::Value, B::Scalar>,
        &mut B::Vector,
    ) -> Result<()>
    + 'b,
) -> Result<Product<'b, F::Value>>
where
    F: spandrel_formats::Format,
    B: Load<F> + Backend<F::Value>,
    B::Resident: 'b,
{
    let mat = Mat::load(be, host)?;
    Ok(Box::new(move |call| {
        let (a, b) = (DeviceFactor::new(be, call.a)?, DeviceFactor::new(be, call.b)?);
        let x = be.upload(call.x)?;
        let mut y = be.zeros(call.y.len())?;
        be.write(call.y, &mut y)?;
        let monitor = gate(be, call.gate)?;
        operation(&mat, be, monitor.as_ref(), a.coeff(), &x, b.coeff(), &mut y)?;
        be.download(&y)
    }))
}
