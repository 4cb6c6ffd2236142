//! The flaws of casts.

use spandrel_backend::{Backend, Cast, Coeff, Gate, Result};
use spandrel_formats::Real;

use super::{Broken, Flaw};

impl<S: Real, T: Real, B: Cast<S, T>> Cast<S, T> for Broken<B> {
    fn binade(
        &self,
        gate: Gate<'_, Self>,
        x: &<Self as Backend<S>>::Vector,
        out: &mut <Self as Backend<f64>>::Scalar,
    ) -> Result<()> {
        let gate = self.gate(gate);
        if self.flaw == Flaw::ScalesByFirst {
            let mut first = Backend::<S>::download(&self.inner, x)?;
            first.truncate(1);
            return Cast::<S, T>::binade(&self.inner, gate, &Backend::<S>::upload(&self.inner, &first)?, out);
        }
        Cast::<S, T>::binade(&self.inner, gate, x, out)
    }
    fn cast(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, f64, <Self as Backend<f64>>::Scalar>,
        x: &<Self as Backend<S>>::Vector,
        y: &mut <Self as Backend<T>>::Vector,
    ) -> Result<()> {
        Cast::<S, T>::cast(&self.inner, self.gate(gate), a, x, y)?;
        if self.flaw != Flaw::TruncatesCast || gate.is_some() || a.den[0].is_some() || a.host != 1.0 {
            return Ok(());
        }
        let wide = Backend::<S>::download(&self.inner, x)?;
        let mut narrow = Backend::<T>::download(&self.inner, y)?;
        for (narrow, wide) in narrow.iter_mut().zip(wide) {
            let (size, wanted) = (narrow.as_f64().abs(), wide.as_f64().abs());
            if size > wanted {
                let below = f64::from(f32::from_bits((size as f32).to_bits() - 1));
                *narrow = T::from_f64(below.copysign(wide.as_f64()));
            }
        }
        Backend::<T>::write(&self.inner, &narrow, y)
    }
}
