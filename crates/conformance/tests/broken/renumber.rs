//! Renumbering on a backend with one flaw.

use std::sync::atomic::AtomicBool;

use spandrel_backend::{Converted, Download, Gate, Renumber, Result};
use spandrel_formats::{Csr, Ordinal, Permutation, Real};

use super::made::Once;
use super::{Broken, Flaw};

impl<T: Real, B: Renumber<Csr<T>> + Download<Csr<T>>> Renumber<Csr<T>> for Broken<B> {
    type Numbering = B::Numbering;
    type RenumberPlan = Once<B::RenumberPlan>;

    fn distance(&self, a: &Self::Resident) -> Result<u64> {
        self.inner.distance(&a.inner)
    }

    fn breadth_first(&self, a: &Self::Resident, levels: usize) -> Result<Option<Self::Numbering>> {
        let found = self.inner.breadth_first(&a.inner, levels)?;
        match (found, self.flaw) {
            (Some(found), Flaw::NumbersBackwards) => {
                let order = self.inner.order(&found)?.into_iter().rev().collect();
                Ok(Some(self.inner.numbering(&Permutation::new(order)?)?))
            }
            (found, _) => Ok(found),
        }
    }

    fn numbering(&self, order: &Permutation) -> Result<Self::Numbering> {
        self.inner.numbering(order)
    }

    fn order(&self, numbering: &Self::Numbering) -> Result<Vec<Ordinal>> {
        self.inner.order(numbering)
    }

    fn renumbered(
        &self,
        a: &Self::Resident,
        numbering: &Self::Numbering,
    ) -> Result<(Converted<Self::Resident>, Self::RenumberPlan)> {
        let (made, inner) = self.inner.renumbered(&a.inner, numbering)?;
        Ok((self.kept(made)?, Once { inner, used: AtomicBool::new(false) }))
    }

    fn renumber_values(
        &self,
        gate: Gate<'_, Self>,
        plan: &Self::RenumberPlan,
        values: &Self::Vector,
        to: &mut Self::Vector,
    ) -> Result<()> {
        if !self.runs(plan) {
            return Ok(());
        }
        self.inner.renumber_values(self.gate(gate), &plan.inner, values, to)
    }

    fn renumber(
        &self,
        gate: Gate<'_, Self>,
        numbering: &Self::Numbering,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()> {
        self.inner.renumber(self.gate(gate), numbering, x, y)
    }

    fn restore(
        &self,
        gate: Gate<'_, Self>,
        numbering: &Self::Numbering,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()> {
        if self.flaw == Flaw::ConfusesOrders {
            return self.inner.renumber(self.gate(gate), numbering, x, y);
        }
        self.inner.restore(self.gate(gate), numbering, x, y)
    }
}
