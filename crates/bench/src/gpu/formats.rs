//! The formats on the GPU, one after the other.

use anyhow::Result;
use spandrel_backend::{Backend, Load, Spmv};
use spandrel_backend_cuda::{Cuda, Scalar, Vector};
use spandrel_formats::{Format, Real, for_each_format};

/// What to do with each format.
pub(crate) trait Visit<T: Real> {
    fn visit<F: Format<Value = T>>(&mut self) -> Result<()>
    where
        Cuda: Spmv<F> + Backend<T, Vector = Vector<T>, Scalar = Scalar<T>>,
        <Cuda as Load<F>>::Resident: 'static;
}

/// Visits every format.
pub(crate) fn each<T: Real>(visitor: &mut impl Visit<T>) -> Result<()> {
    macro_rules! visit {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => {
            $(visitor.visit::<spandrel_formats::$Type<T>>()?;)*
        };
    }
    for_each_format!(visit);
    Ok(())
}
