//! The common part of all triangular solves on the CPU. A plan solves one column; size checks, the gate, several
//! columns and solving in place are written once, here.

use std::sync::Arc;

use spandrel_backend::error::{expect_columns, expect_len};
use spandrel_backend::{Gate, Load, Order, Result, Sptrsv};
use spandrel_formats::Real;
use spandrel_sptrsv::{Plan, System};

use crate::device::open;
use crate::{Cpu, Vector};

/// A plan in host memory, and how it solves.
pub(crate) trait Solve<P: Plan> {
    /// The plan.
    fn plan(&self) -> &Arc<P>;
    /// Takes over an updated plan of the same pattern.
    fn replace(&mut self, plan: &Arc<P>);
    /// The order in which a row is summed.
    fn order(&self) -> Order {
        Order::Stored
    }
    /// x <- T^-1 b or T^-T b, of `nrows` elements each. Without b, it is in x.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Triangle`] for a system for which the plan was not analysed.
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[P::Value]>, x: &mut [P::Value]) -> Result<()>;
}

/// Solves `k` columns. Without b, it is in x.
fn columns<T: Real, P: Plan<Value = T>, S: Solve<P>>(
    cpu: &Cpu,
    gate: Gate<'_, Cpu>,
    system: System,
    m: &S,
    k: usize,
    b: Option<&Vector<T>>,
    x: &mut Vector<T>,
) -> Result<()> {
    let n = m.plan().nrows();
    if let Some(b) = b {
        expect_columns("sptrsv", "b", b.len(), n, k)?;
    }
    expect_columns("sptrsv", "x", x.len(), n, k)?;
    if !open(gate) || n == 0 {
        return Ok(());
    }
    for (column, x) in x.as_mut_slice().chunks_exact_mut(n).enumerate() {
        m.solve(cpu, system, b.map(|b| &b.as_slice()[column * n..][..n]), x)?;
    }
    Ok(())
}

/// Every plan whose resident form implements `Solve`.
impl<P: Plan> Sptrsv<P> for Cpu
where
    Cpu: Load<P>,
    <Cpu as Load<P>>::Resident: Solve<P>,
{
    fn sptrsv_order(&self, m: &Self::Resident, _system: System) -> Order {
        m.order()
    }
    fn sptrsv(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        b: &Vector<P::Value>,
        x: &mut Vector<P::Value>,
    ) -> Result<()> {
        columns(self, gate, system, m, k, Some(b), x)
    }
    fn sptrsv_in_place(
        &self,
        gate: Gate<'_, Self>,
        system: System,
        m: &Self::Resident,
        k: usize,
        x: &mut Vector<P::Value>,
    ) -> Result<()> {
        columns(self, gate, system, m, k, None, x)
    }
    fn update(&self, m: &mut Self::Resident, plan: &Arc<P>) -> Result<()> {
        let old = m.plan().matrix();
        expect_len("update", "plan", plan.matrix().nrows(), old.nrows())?;
        expect_len("update", "plan", plan.matrix().csr().values().len(), old.csr().values().len())?;
        m.replace(plan);
        Ok(())
    }
    fn update_from(&self, m: &mut Self::Resident, _plan: &Arc<P>, values: &Vector<P::Value>) -> Result<()> {
        expect_len("update", "values", values.len(), m.plan().matrix().csr().values().len())?;
        let mut fresh = P::clone(m.plan());
        fresh.update(values.as_slice())?;
        m.replace(&Arc::new(fresh));
        Ok(())
    }
}
