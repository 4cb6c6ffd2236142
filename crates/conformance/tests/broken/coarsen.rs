//! Algebraic coarsening on a backend with one flaw.

use std::sync::atomic::AtomicBool;

use spandrel_backend::{Coarsen, Coarser, Converted, Download, Prolongation, Result, Scaling};
use spandrel_formats::{Csr, Ordinal, Real};

use super::made::Once;
use super::{Broken, Flaw};

impl<T: Real, B: Coarsen<Csr<T>> + Download<Csr<T>>> Coarsen<Csr<T>> for Broken<B> {
    type Aggregates = B::Aggregates;
    type CoarserPlan = Once<B::CoarserPlan>;

    fn aggregate(&self, a: &Self::Resident, unknowns: usize, strength: f64) -> Result<(Self::Aggregates, usize)> {
        self.inner.aggregate(&a.inner, unknowns, strength)
    }

    fn assignment(&self, aggregates: &Self::Aggregates) -> Result<Vec<Ordinal>> {
        self.inner.assignment(aggregates)
    }

    fn prolongation(
        &self,
        a: &Self::Resident,
        aggregates: &Self::Aggregates,
        near_null: &Self::Vector,
    ) -> Result<Prolongation<Converted<Self::Resident>, Self::Vector>> {
        let Prolongation { p, near_null, dropped } = self.inner.prolongation(&a.inner, aggregates, near_null)?;
        Ok(Prolongation { p: self.kept(p)?, near_null, dropped })
    }

    fn galerkin(
        &self,
        a: &Self::Resident,
        p: &Self::Resident,
    ) -> Result<(Converted<Self::Resident>, Converted<Self::Resident>)> {
        let (transposed, coarse) = self.inner.galerkin(&a.inner, &p.inner)?;
        Ok((self.kept(transposed)?, self.kept(coarse)?))
    }

    fn coarser_symbolic(
        &self,
        a: &Self::Resident,
        aggregates: &Self::Aggregates,
        near_null: &Self::Vector,
    ) -> Result<(Coarser<Converted<Self::Resident>, Self::Vector>, Self::CoarserPlan)> {
        let (Coarser { p, transposed, a, near_null }, inner) =
            self.inner.coarser_symbolic(&a.inner, aggregates, near_null)?;
        let (p, transposed, a) = (self.kept(p)?, self.kept(transposed)?, self.kept(a)?);
        Ok((Coarser { p, transposed, a, near_null }, Once { inner, used: AtomicBool::new(false) }))
    }

    fn coarser_numeric(
        &self,
        a: &Self::Resident,
        plan: &mut Self::CoarserPlan,
        to: Coarser<&mut Self::Resident, ()>,
    ) -> Result<()> {
        if !self.runs(plan) {
            return Ok(());
        }
        let (p, transposed, coarse) = (&mut to.p.inner, &mut to.transposed.inner, &mut to.a.inner);
        let to = Coarser { p, transposed, a: coarse, near_null: () };
        self.inner.coarser_numeric(&a.inner, &mut plan.inner, to)
    }

    fn scaling(&self, a: &Self::Resident) -> Result<Scaling<Self::Vector>> {
        self.inner.scaling(&a.inner)
    }

    fn scaled(
        &self,
        m: &Self::Resident,
        left: &Self::Vector,
        right: Option<&Self::Vector>,
    ) -> Result<Converted<Self::Resident>> {
        self.kept(self.inner.scaled(&m.inner, left, right)?)
    }

    fn scaled_into(
        &self,
        m: &Self::Resident,
        left: &Self::Vector,
        right: Option<&Self::Vector>,
        to: &mut Self::Resident,
    ) -> Result<()> {
        let right = right.filter(|_| self.flaw != Flaw::ScalesRowsOnly);
        self.inner.scaled_into(&m.inner, left, right, &mut to.inner)
    }

    fn copy_values(&self, from: &Self::Resident, to: &mut Self::Resident) -> Result<()> {
        self.inner.copy_values(&from.inner, &mut to.inner)
    }

    fn add_to_diagonal(&self, a: &mut Self::Resident, d: &Self::Vector) -> Result<()> {
        self.inner.add_to_diagonal(&mut a.inner, d)
    }
}
