//! Matrices made from matrices on a traced backend: products and transposes; and matrices for the host.
//!
//! A matrix that is made on the device has no host object. So the pattern of one is made on the host as well, for the
//! bytes in the log; its values are those of the host's operands and may be old.

use std::ops::Range;
use std::sync::Arc;

use spandrel_formats::{Csr, Format, Ordinal, Permutation, Real, SpgemmPlan, Traffic, TransposePlan};

use super::{Event, Trace, Traced};
use crate::{
    Coarsen, Coarser, Converted, Download, Gate, Prolongation, Renumber, Result, Scaling, Spgemm, Transpose,
    UpdateValues,
};

impl<B> Trace<B> {
    /// A matrix of the inner backend with the host's pattern of it.
    fn made<T: Real, R>(&self, op: &'static str, made: Converted<R>, host: Csr<T>) -> Converted<Traced<R, Csr<T>>> {
        let Converted { resident, nnz, storage, spmv_bytes } = made;
        self.note(Event::Allocation(op, storage));
        Converted { resident: Traced { inner: resident, host: Arc::new(host) }, nnz, storage, spmv_bytes }
    }
}

impl<T: Real, B: Spgemm<Csr<T>>> Spgemm<Csr<T>> for Trace<B> {
    type SpgemmPlan = B::SpgemmPlan;

    fn spgemm_symbolic(
        &self,
        a: &Self::Resident,
        b: &Self::Resident,
    ) -> Result<(Converted<Self::Resident>, Self::SpgemmPlan)> {
        let (made, plan) = self.inner.spgemm_symbolic(&a.inner, &b.inner)?;
        self.note(Event::Wait("spgemm_symbolic"));
        let host = SpgemmPlan::symbolic(&*a.host, &*b.host)?.1;
        Ok((self.made("spgemm", made, host), plan))
    }

    fn spgemm_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::SpgemmPlan,
        a: &Self::Resident,
        b: &Self::Resident,
        c: &mut Self::Resident,
    ) -> Result<()> {
        let bytes = a.host.storage() + b.host.storage() + c.host.storage();
        self.launch_on("spgemm", Some(Csr::<T>::NAME), bytes, gate, 0);
        self.inner.spgemm_numeric(gate, plan, &a.inner, &b.inner, &mut c.inner)
    }
}

impl<T: Real, B: Transpose<Csr<T>>> Transpose<Csr<T>> for Trace<B> {
    type TransposePlan = B::TransposePlan;

    fn transpose_symbolic(&self, a: &Self::Resident) -> Result<(Converted<Self::Resident>, Self::TransposePlan)> {
        let (made, plan) = self.inner.transpose_symbolic(&a.inner)?;
        self.note(Event::Wait("transpose_symbolic"));
        let host = TransposePlan::symbolic(&*a.host)?.1;
        Ok((self.made("transpose", made, host), plan))
    }

    fn transpose_numeric(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::TransposePlan,
        a: &Self::Resident,
        t: &mut Self::Resident,
    ) -> Result<()> {
        // A position, a value read and a value written per entry.
        let bytes = (a.host.nnz() * (4 + 2 * T::BYTES)) as u64;
        self.launch_on("transpose", Some(Csr::<T>::NAME), bytes, gate, 0);
        self.inner.transpose_numeric(gate, plan, &a.inner, &mut t.inner)
    }
}

impl<T: Real, B: Renumber<Csr<T>> + Download<Csr<T>>> Renumber<Csr<T>> for Trace<B> {
    type Numbering = B::Numbering;
    type RenumberPlan = B::RenumberPlan;

    fn distance(&self, a: &Self::Resident) -> Result<u64> {
        self.note(Event::Wait("distance"));
        self.inner.distance(&a.inner)
    }

    fn breadth_first(&self, a: &Self::Resident, levels: usize) -> Result<Option<Self::Numbering>> {
        self.note(Event::Wait("breadth_first"));
        self.inner.breadth_first(&a.inner, levels)
    }

    fn numbering(&self, order: &Permutation) -> Result<Self::Numbering> {
        self.note(Event::Wait("numbering"));
        self.inner.numbering(order)
    }

    fn order(&self, numbering: &Self::Numbering) -> Result<Vec<Ordinal>> {
        self.note(Event::Wait("order"));
        self.inner.order(numbering)
    }

    fn renumbered(
        &self,
        a: &Self::Resident,
        numbering: &Self::Numbering,
    ) -> Result<(Converted<Self::Resident>, Self::RenumberPlan)> {
        let (made, plan) = self.inner.renumbered(&a.inner, numbering)?;
        self.note(Event::Wait("renumbered"));
        let host = self.inner.download_matrix(&made.resident)?;
        Ok((self.made("renumbered", made, host), plan))
    }

    fn renumber_values(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::RenumberPlan,
        values: &Self::Vector,
        to: &mut Self::Vector,
    ) -> Result<()> {
        self.launch("renumber_values", gate, self.inner.len(values) * (4 + 2 * T::BYTES));
        self.inner.renumber_values(gate, plan, values, to)
    }

    fn renumber(
        &self,
        gate: Gate<'_, Self>,
        numbering: &Self::Numbering,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()> {
        self.launch("renumber", gate, self.inner.len(x) * (4 + 2 * T::BYTES));
        self.inner.renumber(gate, numbering, x, y)
    }

    fn restore(
        &self,
        gate: Gate<'_, Self>,
        numbering: &Self::Numbering,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()> {
        self.launch("restore", gate, self.inner.len(x) * (4 + 2 * T::BYTES));
        self.inner.restore(gate, numbering, x, y)
    }
}

impl<T: Real, B: Download<Csr<T>>> Download<Csr<T>> for Trace<B> {
    fn download_matrix(&self, m: &Self::Resident) -> Result<Csr<T>> {
        self.note(Event::Wait("download_matrix"));
        self.inner.download_matrix(&m.inner)
    }

    fn download_rows(&self, m: &Self::Resident, rows: Range<usize>) -> Result<Csr<T>> {
        self.note(Event::Wait("download_rows"));
        self.inner.download_rows(&m.inner, rows)
    }
}

impl<T: Real, B: UpdateValues<Csr<T>>> UpdateValues<Csr<T>> for Trace<B> {
    fn update_values(&self, m: &mut Self::Resident, values: &[T]) -> Result<()> {
        self.note(Event::Wait("update_values"));
        self.inner.update_values(&mut m.inner, values)
    }

    fn update_values_from(&self, m: &mut Self::Resident, values: &Self::Vector) -> Result<()> {
        let bytes = (m.host.nnz() * T::BYTES) as u64;
        self.launch_on("update_values", Some(Csr::<T>::NAME), bytes, None::<&()>, m.host.nnz() * T::BYTES);
        self.inner.update_values_from(&mut m.inner, values)
    }
}

/// The set-up of coarser matrices, whose patterns for the log are those of the matrices that the inner backend made.
impl<T: Real, B: Coarsen<Csr<T>> + Download<Csr<T>>> Coarsen<Csr<T>> for Trace<B> {
    type Aggregates = B::Aggregates;
    type CoarserPlan = B::CoarserPlan;

    fn aggregate(&self, a: &Self::Resident, unknowns: usize, strength: f64) -> Result<(Self::Aggregates, usize)> {
        self.note(Event::Wait("aggregate"));
        self.inner.aggregate(&a.inner, unknowns, strength)
    }

    fn assignment(&self, aggregates: &Self::Aggregates) -> Result<Vec<Ordinal>> {
        self.note(Event::Wait("assignment"));
        self.inner.assignment(aggregates)
    }

    fn prolongation(
        &self,
        a: &Self::Resident,
        aggregates: &Self::Aggregates,
        near_null: &Self::Vector,
    ) -> Result<Prolongation<Converted<Self::Resident>, Self::Vector>> {
        self.note(Event::Wait("prolongation"));
        let Prolongation { p, near_null, dropped } = self.inner.prolongation(&a.inner, aggregates, near_null)?;
        let host = self.inner.download_matrix(&p.resident)?;
        Ok(Prolongation { p: self.made("prolongation", p, host), near_null, dropped })
    }

    fn galerkin(
        &self,
        a: &Self::Resident,
        p: &Self::Resident,
    ) -> Result<(Converted<Self::Resident>, Converted<Self::Resident>)> {
        self.note(Event::Wait("galerkin"));
        let (transposed, coarse) = self.inner.galerkin(&a.inner, &p.inner)?;
        let hosts = [&transposed, &coarse].map(|made| self.inner.download_matrix(&made.resident));
        let [of_transposed, of_coarse] = hosts;
        Ok((self.made("transpose", transposed, of_transposed?), self.made("galerkin", coarse, of_coarse?)))
    }

    fn scaling(&self, a: &Self::Resident) -> Result<Scaling<Self::Vector>> {
        self.note(Event::Wait("scaling"));
        self.inner.scaling(&a.inner)
    }

    fn scaled(
        &self,
        m: &Self::Resident,
        left: &Self::Vector,
        right: Option<&Self::Vector>,
    ) -> Result<Converted<Self::Resident>> {
        let made = self.inner.scaled(&m.inner, left, right)?;
        Ok(self.made("scaled", made, Csr::clone(&m.host)))
    }

    fn coarser_symbolic(
        &self,
        a: &Self::Resident,
        aggregates: &Self::Aggregates,
        near_null: &Self::Vector,
    ) -> Result<(Coarser<Converted<Self::Resident>, Self::Vector>, Self::CoarserPlan)> {
        let (made, plan) = self.inner.coarser_symbolic(&a.inner, aggregates, near_null)?;
        self.note(Event::Wait("coarser_symbolic"));
        let Coarser { p, transposed, a, near_null } = made;
        let hosts = [&p, &transposed, &a].map(|made| self.inner.download_matrix(&made.resident));
        let [of_p, of_transposed, of_a] = hosts;
        let p = self.made("prolongation", p, of_p?);
        let transposed = self.made("transpose", transposed, of_transposed?);
        let a = self.made("galerkin", a, of_a?);
        Ok((Coarser { p, transposed, a, near_null }, plan))
    }

    fn coarser_numeric(
        &self,
        a: &Self::Resident,
        plan: &mut Self::CoarserPlan,
        to: Coarser<&mut Self::Resident, ()>,
    ) -> Result<()> {
        let Coarser { p, transposed, a: coarse, near_null } = to;
        // A is read for P and for A P. P is written, read for A P and moved to P^T. What lies between is not counted.
        let moved = (p.host.nnz() * (4 + 2 * T::BYTES)) as u64;
        let bytes = 2 * a.host.storage() + 2 * p.host.storage() + moved + transposed.host.storage();
        self.launch_on("coarser", Some(Csr::<T>::NAME), bytes + coarse.host.storage(), None::<&()>, 0);
        let (p, transposed, coarse) = (&mut p.inner, &mut transposed.inner, &mut coarse.inner);
        self.inner.coarser_numeric(&a.inner, plan, Coarser { p, transposed, a: coarse, near_null })
    }

    fn scaled_into(
        &self,
        m: &Self::Resident,
        left: &Self::Vector,
        right: Option<&Self::Vector>,
        to: &mut Self::Resident,
    ) -> Result<()> {
        let scales = if right.is_some() { m.host.nrows() + m.host.ncols() } else { m.host.nrows() };
        let bytes = m.host.storage() + (m.host.nnz() * T::BYTES) as u64;
        self.launch_on("scaled_into", Some(Csr::<T>::NAME), bytes, None::<&()>, scales * T::BYTES);
        self.inner.scaled_into(&m.inner, left, right, &mut to.inner)
    }

    fn copy_values(&self, from: &Self::Resident, to: &mut Self::Resident) -> Result<()> {
        let bytes = (2 * from.host.nnz() * T::BYTES) as u64;
        self.launch_on("copy_values", Some(Csr::<T>::NAME), bytes, None::<&()>, 0);
        self.inner.copy_values(&from.inner, &mut to.inner)
    }

    fn add_to_diagonal(&self, a: &mut Self::Resident, d: &Self::Vector) -> Result<()> {
        let bytes = (a.host.nnz() * 4 + 3 * a.host.nrows() * T::BYTES) as u64;
        self.launch_on("add_to_diagonal", Some(Csr::<T>::NAME), bytes, None::<&()>, 0);
        self.inner.add_to_diagonal(&mut a.inner, d)
    }
}
