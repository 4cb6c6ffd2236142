//! Casts between element types on a traced backend.

use spandrel_formats::Real;

use super::Trace;
use crate::{Backend, Cast, Coeff, Gate, Result};

impl<S: Real, T: Real, B: Cast<S, T>> Cast<S, T> for Trace<B> {
    fn binade(
        &self,
        gate: Gate<'_, Self>,
        x: &<Self as Backend<S>>::Vector,
        out: &mut <Self as Backend<f64>>::Scalar,
    ) -> Result<()> {
        self.launch("binade", gate, Backend::<S>::len(&self.inner, x) * S::BYTES);
        Cast::<S, T>::binade(&self.inner, gate, x, out)
    }

    fn cast(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, f64, <Self as Backend<f64>>::Scalar>,
        x: &<Self as Backend<S>>::Vector,
        y: &mut <Self as Backend<T>>::Vector,
    ) -> Result<()> {
        self.launch("cast", gate, Backend::<S>::len(&self.inner, x) * (S::BYTES + T::BYTES));
        Cast::<S, T>::cast(&self.inner, gate, a, x, y)
    }
}
