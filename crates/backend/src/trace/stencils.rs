//! Stencil matrices of geometric multigrid on a traced backend.
//!
//! A matrix that is made on the device has no host object. So its pattern is made on the host as well, for the bytes in
//! the log; its values are those of the host's operand and may be old.

use std::sync::Arc;

use spandrel_formats::{Coarsening, Csr, Dense, Dia, Diagonals, Divisor, Format, Neighbours, Real, Traffic};

use super::{Event, Trace, Traced};
use crate::{Convert, Converted, Gate, Inverted, Load, Relax, Result, Sampled, Spectrum, Stencils, UpdateValues};

impl<T: Real, B: Convert<Csr<T>, Dia<T>>> Convert<Csr<T>, Dia<T>> for Trace<B> {
    fn convert(&self, from: &<Self as Load<Csr<T>>>::Resident) -> Result<Converted<<Self as Load<Dia<T>>>::Resident>> {
        self.note(Event::Wait("convert"));
        let Converted { resident, nnz, storage, spmv_bytes } = self.inner.convert(&from.inner)?;
        let host = Arc::new(Dia::from_csr(&from.host)?);
        self.note(Event::Allocation(Dia::<T>::NAME, storage));
        Ok(Converted { resident: Traced { inner: resident, host }, nnz, storage, spmv_bytes })
    }

    fn convert_like(
        &self,
        from: &<Self as Load<Csr<T>>>::Resident,
        like: &<Self as Load<Dia<T>>>::Resident,
    ) -> Result<Converted<<Self as Load<Dia<T>>>::Resident>> {
        self.note(Event::Wait("convert_like"));
        let Converted { resident, nnz, storage, spmv_bytes } = self.inner.convert_like(&from.inner, &like.inner)?;
        let host = Arc::new(Dia::from_csr(&from.host)?);
        self.note(Event::Allocation(Dia::<T>::NAME, storage));
        Ok(Converted { resident: Traced { inner: resident, host }, nnz, storage, spmv_bytes })
    }
}

impl<T: Real, B: UpdateValues<Dense<T>>> UpdateValues<Dense<T>> for Trace<B> {
    fn update_values(&self, m: &mut Self::Resident, values: &[T]) -> Result<()> {
        self.note(Event::Wait("update_values"));
        self.inner.update_values(&mut m.inner, values)
    }

    fn update_values_from(&self, m: &mut Self::Resident, values: &Self::Vector) -> Result<()> {
        let bytes = m.host.storage();
        self.launch_on("update_values", Some(Dense::<T>::NAME), bytes, None::<&()>, bytes as usize);
        self.inner.update_values_from(&mut m.inner, values)
    }
}

impl<T: Real, B: Stencils<T>> Stencils<T> for Trace<B> {
    fn stencil_offsets(&self, a: &Self::Resident) -> Vec<i32> {
        self.inner.stencil_offsets(&a.inner)
    }

    fn coarser_stencil(
        &self,
        a: &Self::Resident,
        of: &Neighbours,
        to: &Coarsening,
    ) -> Result<Converted<Self::Resident>> {
        self.note(Event::Wait("coarser_stencil"));
        let made = self.inner.coarser_stencil(&a.inner, of, to)?;
        let host = of.galerkin(a.host.offsets(), Diagonals::Own(a.host.values()), to)?;
        let Converted { resident, nnz, storage, spmv_bytes } = made;
        self.note(Event::Allocation(Dia::<T>::NAME, storage));
        Ok(Converted { resident: Traced { inner: resident, host: Arc::new(host) }, nnz, storage, spmv_bytes })
    }

    fn coarser_stencil_into(
        &self,
        a: &Self::Resident,
        of: &Neighbours,
        to: &Coarsening,
        coarse: &mut Self::Resident,
    ) -> Result<bool> {
        let matrix = a.host.storage() + coarse.host.storage();
        self.launch_on("coarser_stencil_into", Some(Dia::<T>::NAME), matrix, None::<&()>, 0);
        self.inner.coarser_stencil_into(&a.inner, of, to, &mut coarse.inner)
    }

    fn copy_stencil(&self, from: &Self::Resident, to: &mut Self::Resident) -> Result<bool> {
        self.launch_on("copy_stencil", Some(Dia::<T>::NAME), 2 * from.host.storage(), None::<&()>, 0);
        self.inner.copy_stencil(&from.inner, &mut to.inner)
    }

    fn stencil_spectrum(
        &self,
        a: &Self::Resident,
        of: &Neighbours,
        divisor: Divisor,
        inverse: &mut Self::Vector,
    ) -> Result<Spectrum> {
        self.note(Event::Wait("stencil_spectrum"));
        self.inner.stencil_spectrum(&a.inner, of, divisor, inverse)
    }

    fn stencil_rows(&self, a: &Self::Resident, of: &Neighbours, begin: usize, step: usize) -> Result<Vec<T>> {
        self.note(Event::Wait("stencil_rows"));
        self.inner.stencil_rows(&a.inner, of, begin, step)
    }

    fn stencil_diagonals(&self, a: &Self::Resident, of: &Neighbours) -> Result<Vec<Self::Vector>> {
        let made = self.inner.stencil_diagonals(&a.inner, of)?;
        made.iter()
            .for_each(|diagonal| self.note(Event::Allocation("vector", (T::BYTES * self.inner.len(diagonal)) as u64)));
        Ok(made)
    }

    fn stencil_of_diagonals(&self, of: &Neighbours, upper: &[Self::Vector]) -> Result<Converted<Self::Resident>> {
        self.note(Event::Wait("stencil_of_diagonals"));
        let Converted { resident, nnz, storage, spmv_bytes } = self.inner.stencil_of_diagonals(of, upper)?;
        let zeros = vec![T::zero(); of.points()];
        let host = of.of_diagonals(&vec![&zeros[..]; upper.len()])?;
        self.note(Event::Allocation(Dia::<T>::NAME, storage));
        Ok(Converted { resident: Traced { inner: resident, host: Arc::new(host) }, nnz, storage, spmv_bytes })
    }

    fn stencil_spectra(&self, grids: &mut [Inverted<'_, T, Self>], divisor: Divisor) -> Result<Vec<Spectrum>> {
        self.note(Event::Wait("stencil_spectra"));
        let mut grids: Vec<Inverted<'_, T, B>> =
            grids.iter_mut().map(|(a, of, inverse)| (&a.inner, *of, &mut **inverse)).collect();
        self.inner.stencil_spectra(&mut grids, divisor)
    }

    fn stencil_samples(&self, grids: &[Sampled<'_, T, Self>], look: &mut dyn FnMut(&[T])) -> Result<()> {
        self.note(Event::Wait("stencil_samples"));
        let grids: Vec<Sampled<'_, T, B>> = grids.iter().map(|&(a, of, step)| (&a.inner, of, step)).collect();
        self.inner.stencil_samples(&grids, look)
    }

    fn restrict(&self, gate: Gate<'_, Self>, to: &Coarsening, r: &Self::Vector, s: &mut Self::Vector) -> Result<()> {
        let bytes = T::BYTES * (self.inner.len(r) + self.inner.len(s));
        self.launch_on("restrict", None, 0, gate, bytes);
        self.inner.restrict(gate, to, r, s)
    }

    fn prolong(&self, gate: Gate<'_, Self>, to: &Coarsening, e: &Self::Vector, x: &mut Self::Vector) -> Result<()> {
        let bytes = T::BYTES * (self.inner.len(e) + 2 * self.inner.len(x));
        self.launch_on("prolong", None, 0, gate, bytes);
        self.inner.prolong(gate, to, e, x)
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
        // d and s read, z and x written, and the old z and x where they count.
        let passes = 4 + usize::from(step.kept.is_some()) + usize::from(step.adds);
        self.launch_on("relax", None, 0, gate, passes * T::BYTES * self.inner.len(d));
        self.inner.relax(gate, step, d, s, z, x)
    }
}
