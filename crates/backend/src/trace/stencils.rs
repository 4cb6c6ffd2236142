//! Stencil matrices of geometric multigrid on a traced backend.
//!
//! A coarser matrix that is made on the device has no host object. So its pattern is made on the host as well, for the
//! bytes in the log; its values are those of the host's operand and may be old.

use std::sync::Arc;

use spandrel_formats::{Coarsening, Dia, Diagonals, Divisor, Format, Neighbours, Real};

use super::{Event, Trace, Traced};
use crate::{Converted, Gate, Relax, Result, Spectrum, Stencils};

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
