//! The element types of a solver, and the backends that it runs on.

use std::sync::Arc;

use spandrel_backend::Narrow;
use spandrel_formats::Csr;
use spandrel_solvers::direct::Factorable;
use spandrel_solvers::{Error, Result};

use super::build::Setup;
use super::engine::{self, Engine};
use super::plan::Plan;
use super::settings::Precision;
use super::supply::Supply;
use super::{Builder, Solver};
use crate::any::Complete;

/// A backend with everything that a solver in `T` may choose: [`Complete`] in `T` and in both types of mixed precision.
pub trait SolverBackend<T: Element>: Complete<T> + Complete<f64> + Complete<f32> + Narrow + 'static {}
impl<T: Element, B: Complete<T> + Complete<f64> + Complete<f32> + Narrow + 'static> SolverBackend<T> for B {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32` or `f64`.
pub trait Element: Factorable + sealed::Sealed {
    /// Implements [`Builder::build`]. It is not generic, so everything that a solver may need is compiled once, with
    /// this crate, and not with every program.
    #[doc(hidden)]
    fn solver(builder: Builder, a: Arc<Csr<Self>>) -> Result<Solver<Self>>;

    /// Sets up an iteration in the precision of the plan.
    #[doc(hidden)]
    fn engine<B: SolverBackend<Self>>(
        device: &B,
        a: Supply<Self, B>,
        plan: &mut Plan,
        setup: &mut Setup<'_>,
    ) -> Result<Box<dyn Engine<Self, B> + Send>>;
}

impl Element for f64 {
    fn solver(builder: Builder, a: Arc<Csr<Self>>) -> Result<Solver<Self>> {
        builder.opened(a)
    }

    fn engine<B: SolverBackend<Self>>(
        device: &B,
        a: Supply<Self, B>,
        plan: &mut Plan,
        setup: &mut Setup<'_>,
    ) -> Result<Box<dyn Engine<Self, B> + Send>> {
        match plan.precision {
            Precision::Native => engine::native(device, a, plan, setup),
            Precision::Mixed => engine::mixed(device, a, plan, setup),
            Precision::Refined => engine::refined(device, a, plan, setup),
        }
    }
}

impl Element for f32 {
    fn solver(builder: Builder, a: Arc<Csr<Self>>) -> Result<Solver<Self>> {
        builder.opened(a)
    }

    fn engine<B: SolverBackend<Self>>(
        device: &B,
        a: Supply<Self, B>,
        plan: &mut Plan,
        setup: &mut Setup<'_>,
    ) -> Result<Box<dyn Engine<Self, B> + Send>> {
        match plan.precision {
            Precision::Native => engine::native(device, a, plan, setup),
            precision @ (Precision::Mixed | Precision::Refined) => Err(Error::Unsupported {
                why: format!(
                    "{precision} precision gives the answer in f64, and this matrix is in f32; give it in f64"
                ),
            }),
        }
    }
}
