//! The plans of triangular solves on the GPU, one after the other.

use anyhow::Result;
use spandrel_backend::{Backend, Load, Sptrsv};
use spandrel_backend_cuda::{Cuda, Scalar, Vector};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, for_each_plan};

/// What to do with each plan.
pub trait Visit<T: Real> {
    /// Handles one plan.
    ///
    /// # Errors
    /// An error that ends the whole visit.
    fn visit<P: Plan<Value = T>>(&mut self) -> Result<()>
    where
        Cuda: Sptrsv<P> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<P>>::Resident: 'static;
}

/// Visits every plan.
pub(crate) fn each<T: Real>(visitor: &mut impl Visit<T>) -> Result<()> {
    macro_rules! visit {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(visitor.visit::<spandrel_sptrsv::$Type<T>>()?;)*
        };
    }
    for_each_plan!(visit);
    Ok(())
}

/// The stems of all plans.
pub(crate) fn stems() -> Vec<&'static str> {
    macro_rules! stems {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => { vec![$(stringify!($stem)),*] };
    }
    for_each_plan!(stems)
}
