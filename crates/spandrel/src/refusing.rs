//! A backend without a schedule for any sweep, to test its substitutes.

use std::sync::Arc;

use spandrel_backend::{Backend, Device, Error, Factorize, Load, Result, Sptrsv, Step, forward};
use spandrel_formats::Real;
use spandrel_sptrsv::{Factor, Plan, Sweep};

/// Another backend without its sweeps.
#[derive(Debug)]
pub(crate) struct Refusing<B>(pub(crate) B);

const UNRECORDED: Error = Error::Shape { op: "capture", what: "a step", found: 0, expected: 0 };

impl<B: Device> Device for Refusing<B> {
    const NAME: &'static str = "refusing";
    type Graph = ();
    type Monitor = B::Monitor;

    forward!(Device to 0: describe profile synchronize monitor resume report);

    fn capture<S: Step<Self>>(&self, _: &mut S) -> Result<()> {
        Err(UNRECORDED)
    }
    unsafe fn replay<S: Step<Self>>(&self, (): &(), _: &mut S) -> Result<()> {
        Err(UNRECORDED)
    }
}

impl<T: Real, B: Backend<T>> Backend<T> for Refusing<B> {
    type Vector = B::Vector;
    type Scalar = B::Scalar;

    forward!(Backend<T> to 0: zeros upload write download len scalar download_scalar fill copy axpby axpbypcz hadamard assign);
    forward!(Backend<T> to 0: dot norm2 observe require_positive require_nonzero);
}

// SAFETY: as for the other backend, whose residents these are.
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
    forward!(Sptrsv<P> to 0: sptrsv_order sptrsv sptrsv_in_place update update_from);
}

impl<F: Factor, B: Factorize<F>> Factorize<F> for Refusing<B> {
    forward!(Factorize<F> to 0: factorize);
}
