//! Triangular solve on the CPU: what every plan's solve has in common. A plan gives the solve of one column; sizes, the gate, several
//! columns and solving in place are written once, here.

use std::sync::Arc;

use spandrel_backend::error::expect_columns;
use spandrel_backend::{Gate, Order, Result};
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
    /// The order of a row's sum.
    fn order(&self) -> Order {
        Order::Stored
    }
    /// x <- T^-1 b or T^-T b of `nrows` elements each; without b it is in x.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Triangle`] for a system that the plan was not analysed for.
    fn solve(&self, cpu: &Cpu, system: System, b: Option<&[P::Value]>, x: &mut [P::Value]) -> Result<()>;
}

/// `k` columns, with b in x where there is no b.
pub(crate) fn sptrsv<T: Real, P: Plan<Value = T>, S: Solve<P>>(
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

/// Implements [`spandrel_backend::Sptrsv`] for a plan whose resident form is [`Solve`].
macro_rules! sptrsv_by_column {
    ($Plan:ident) => {
        impl<T: ::spandrel_formats::Real> ::spandrel_backend::Sptrsv<$Plan<T>> for $crate::Cpu {
            fn sptrsv_order(
                &self,
                m: &Self::Resident,
                _system: ::spandrel_sptrsv::System,
            ) -> ::spandrel_backend::Order {
                $crate::sptrsv::Solve::order(m)
            }
            fn sptrsv(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                system: ::spandrel_sptrsv::System,
                m: &Self::Resident,
                k: usize,
                b: &$crate::Vector<T>,
                x: &mut $crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::sptrsv::sptrsv(self, gate, system, m, k, Some(b), x)
            }
            fn sptrsv_in_place(
                &self,
                gate: ::spandrel_backend::Gate<'_, Self>,
                system: ::spandrel_sptrsv::System,
                m: &Self::Resident,
                k: usize,
                x: &mut $crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                $crate::sptrsv::sptrsv(self, gate, system, m, k, None, x)
            }
            fn update(
                &self,
                m: &mut Self::Resident,
                plan: &::std::sync::Arc<$Plan<T>>,
            ) -> ::spandrel_backend::Result<()> {
                use $crate::sptrsv::Solve;
                let (nrows, nnz) = (m.plan().matrix().nrows(), m.plan().matrix().csr().values().len());
                ::spandrel_backend::error::expect_len("update", "plan", plan.matrix().nrows(), nrows)?;
                ::spandrel_backend::error::expect_len("update", "plan", plan.matrix().csr().values().len(), nnz)?;
                m.replace(plan);
                Ok(())
            }
            fn update_from(
                &self,
                m: &mut Self::Resident,
                _plan: &::std::sync::Arc<$Plan<T>>,
                values: &$crate::Vector<T>,
            ) -> ::spandrel_backend::Result<()> {
                use $crate::sptrsv::Solve;
                ::spandrel_backend::error::expect_len(
                    "update",
                    "values",
                    values.len(),
                    m.plan().matrix().csr().values().len(),
                )?;
                let mut fresh = $Plan::clone(m.plan());
                ::spandrel_sptrsv::Plan::update(&mut fresh, values.as_slice())?;
                m.replace(&::std::sync::Arc::new(fresh));
                Ok(())
            }
        }
    };
}
pub(crate) use sptrsv_by_column;
