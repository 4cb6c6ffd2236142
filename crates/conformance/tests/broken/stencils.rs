//! Stencil matrices and grids on a backend with one flaw.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use spandrel_backend::{Convert, Converted, Gate, Load, Relax, Result, Spectrum, Stencils, UpdateValues};
use spandrel_formats::{Coarsening, Csr, Dense, Dia, Diagonals, Divisor, Format, Neighbours, Real};

use super::products::Kept;
use super::{Broken, Flaw};

fn kept<R, H>(made: Converted<R>, host: H) -> Converted<Kept<R, H>> {
    let Converted { resident, nnz, storage, spmv_bytes } = made;
    let resident = Kept { inner: resident, host: Arc::new(host), used: AtomicBool::new(false) };
    Converted { resident, nnz, storage, spmv_bytes }
}

impl<T: Real, B: Convert<Csr<T>, Dia<T>>> Convert<Csr<T>, Dia<T>> for Broken<B> {
    fn convert(&self, from: &<Self as Load<Csr<T>>>::Resident) -> Result<Converted<<Self as Load<Dia<T>>>::Resident>> {
        let made = <B as Convert<Csr<T>, Dia<T>>>::convert(&self.inner, &from.inner)?;
        Ok(kept(made, Dia::from_csr(&from.host)?))
    }
}

impl<T: Real, B: UpdateValues<Dense<T>>> UpdateValues<Dense<T>> for Broken<B> {
    fn update_values(&self, m: &mut Self::Resident, values: &[T]) -> Result<()> {
        self.inner.update_values(&mut m.inner, values)
    }
    fn update_values_from(&self, m: &mut Self::Resident, values: &Self::Vector) -> Result<()> {
        self.inner.update_values_from(&mut m.inner, values)
    }
}

impl<T: Real, B: Stencils<T>> Stencils<T> for Broken<B> {
    fn stencil_offsets(&self, a: &Self::Resident) -> Vec<i32> {
        self.inner.stencil_offsets(&a.inner)
    }

    fn coarser_stencil(
        &self,
        a: &Self::Resident,
        of: &Neighbours,
        to: &Coarsening,
    ) -> Result<Converted<Self::Resident>> {
        let host = of.galerkin(a.host.offsets(), Diagonals::Own(a.host.values()), to)?;
        Ok(kept(self.inner.coarser_stencil(&a.inner, of, to)?, host))
    }

    fn coarser_stencil_into(
        &self,
        a: &Self::Resident,
        of: &Neighbours,
        to: &Coarsening,
        coarse: &mut Self::Resident,
    ) -> Result<bool> {
        match self.flaw {
            Flaw::KeepsOldValues => Ok(true),
            _ => self.inner.coarser_stencil_into(&a.inner, of, to, &mut coarse.inner),
        }
    }

    fn copy_stencil(&self, from: &Self::Resident, to: &mut Self::Resident) -> Result<bool> {
        match self.flaw {
            Flaw::ForgetsUpdate => Ok(true),
            _ => self.inner.copy_stencil(&from.inner, &mut to.inner),
        }
    }

    fn stencil_spectrum(
        &self,
        a: &Self::Resident,
        of: &Neighbours,
        divisor: Divisor,
        inverse: &mut Self::Vector,
    ) -> Result<Spectrum> {
        let divisor = if self.flaw == Flaw::DividesByDiagonal { Divisor::Diagonal } else { divisor };
        let found = self.inner.stencil_spectrum(&a.inner, of, divisor, inverse)?;
        // The diagonal as if it bounded the spectrum.
        let bound = if self.flaw == Flaw::DropsLastEntry { 1.0 } else { found.bound };
        Ok(Spectrum { bound, ..found })
    }

    fn stencil_rows(&self, a: &Self::Resident, of: &Neighbours, begin: usize, step: usize) -> Result<Vec<T>> {
        self.inner.stencil_rows(&a.inner, of, begin, step)
    }

    fn stencil_diagonals(&self, a: &Self::Resident, of: &Neighbours) -> Result<Vec<Self::Vector>> {
        let mut made = self.inner.stencil_diagonals(&a.inner, of)?;
        if self.flaw == Flaw::RepeatsColumn
            && let [first, second, ..] = &mut made[..]
        {
            self.inner.write(&self.inner.download(first)?, second)?;
        }
        Ok(made)
    }

    fn stencil_of_diagonals(&self, of: &Neighbours, upper: &[Self::Vector]) -> Result<Converted<Self::Resident>> {
        let hosts = upper.iter().map(|diagonal| self.inner.download(diagonal)).collect::<Result<Vec<_>>>()?;
        let host = of.of_diagonals(&hosts.iter().map(|host| &host[..]).collect::<Vec<_>>())?;
        Ok(kept(self.inner.stencil_of_diagonals(of, upper)?, host))
    }

    fn restrict(&self, gate: Gate<'_, Self>, to: &Coarsening, r: &Self::Vector, s: &mut Self::Vector) -> Result<()> {
        self.inner.restrict(self.gate(gate), to, r, s)
    }

    fn prolong(&self, gate: Gate<'_, Self>, to: &Coarsening, e: &Self::Vector, x: &mut Self::Vector) -> Result<()> {
        self.inner.prolong(self.gate(gate), to, e, x)
    }

    fn relax(
        &self,
        gate: Gate<'_, Self>,
        step: Relax<T>,
        d: &Self::Vector,
        s: &Self::Vector,
        z: &mut Self::Vector,
        x: &mut Self::Vector,
    ) -> Result<()> {
        // As if a factor of 0 made the old z harmless.
        let kept = step.kept.or((self.flaw == Flaw::ReadsY).then(T::zero));
        self.inner.relax(self.gate(gate), Relax { kept, ..step }, d, s, z, x)
    }
}
