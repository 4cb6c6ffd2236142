//! Algebraic coarsening on the CPU: the host's code, [`spandrel_formats::amg`], on matrices that are in host memory
//! anyway.
//!
//! Order: see there. Cost: see there.

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coarsen, Converted, Prolongation, Result, Scaling};
use spandrel_formats::amg::{self, Aggregates, Strength, Tentative, smoothed};
use spandrel_formats::{Csr, Ordinal, Real, product};

use crate::spgemm::typed;
use crate::{Cpu, CpuCsr, Vector};

/// Strong couplings and the aggregates made from them.
#[derive(Clone, Debug)]
pub struct CpuAggregates {
    graph: Strength,
    aggregates: Aggregates,
}

impl<T: Real> Coarsen<Csr<T>> for Cpu {
    type Aggregates = CpuAggregates;

    fn aggregate(&self, a: &CpuCsr<T>, unknowns: usize, strength: f64) -> Result<(CpuAggregates, usize)> {
        let graph = Strength::of(a.host(), unknowns, strength).map_err(typed)?;
        let aggregates = Aggregates::of(&graph, a.host());
        let count = aggregates.count();
        Ok((CpuAggregates { graph, aggregates }, count))
    }

    fn assignment(&self, aggregates: &CpuAggregates) -> Result<Vec<Ordinal>> {
        Ok(aggregates.aggregates.assignment().to_vec())
    }

    fn prolongation(
        &self,
        a: &CpuCsr<T>,
        CpuAggregates { graph, aggregates }: &CpuAggregates,
        near_null: &Vector<T>,
    ) -> Result<Prolongation<Converted<CpuCsr<T>>, Vector<T>>> {
        let a = a.host();
        expect_len("prolongation", "the matrix", a.nrows(), graph.nodes() * graph.unknowns())?;
        let vectors = near_null.len() / a.nrows().max(1);
        let tentative = Tentative::of(aggregates, graph.unknowns(), near_null.as_slice(), vectors).map_err(typed)?;
        let p = smoothed(a, graph, aggregates, &tentative).map_err(typed)?;
        let mut dropped = Vector::zeros(self, p.ncols())?;
        tentative.dropped().iter().for_each(|&unknown| dropped.as_mut_slice()[unknown] = T::one());
        Ok(Prolongation { p: self.made(p)?, near_null: Vector::from_host(self, tentative.coarse())?, dropped })
    }

    fn galerkin(&self, a: &CpuCsr<T>, p: &CpuCsr<T>) -> Result<(Converted<CpuCsr<T>>, Converted<CpuCsr<T>>)> {
        let (a, p) = (a.host(), p.host());
        expect_len("galerkin", "a row of A", a.ncols(), a.nrows())?;
        expect_len("galerkin", "a column of P", p.nrows(), a.nrows())?;
        let transposed = p.try_transpose().map_err(typed)?;
        let coarse = product(&transposed, &product(a, p).map_err(typed)?).map_err(typed)?;
        Ok((self.made(transposed)?, self.made(coarse)?))
    }

    fn scaling(&self, a: &CpuCsr<T>) -> Result<Scaling<Vector<T>>> {
        let a = a.host();
        expect_len("scaling", "a row", a.ncols(), a.nrows())?;
        let amg::Scaling { diagonal, inverse, bound, unfit } = amg::Scaling::of(a);
        let [diagonal, inverse] = [diagonal, inverse].map(|v| Vector::from_host(self, &v));
        Ok(Scaling { diagonal: diagonal?, inverse: inverse?, bound, unfit })
    }

    fn scaled(&self, m: &CpuCsr<T>, left: &Vector<T>, right: Option<&Vector<T>>) -> Result<Converted<CpuCsr<T>>> {
        let m = m.host();
        expect_len("scaled", "the scales of rows", left.len(), m.nrows())?;
        let left = left.as_slice();
        self.made(match right {
            None => m.map_entries(|row, _, v| v * left[row]),
            Some(right) => {
                expect_len("scaled", "the scales of columns", right.len(), m.ncols())?;
                let right = right.as_slice();
                m.map_entries(|row, col, v| v * (right[col] * left[row]))
            }
        })
    }

    fn copy_values(&self, from: &CpuCsr<T>, to: &mut CpuCsr<T>) -> Result<()> {
        expect_len("copy_values", "the values", from.host().nnz(), to.host().nnz())?;
        to.host_mut().values_mut().copy_from_slice(from.host().values());
        Ok(())
    }

    fn add_to_diagonal(&self, a: &mut CpuCsr<T>, d: &Vector<T>) -> Result<()> {
        expect_len("add_to_diagonal", "d", d.len(), a.host().nrows())?;
        // Write nothing where nothing is added: a write would copy a matrix that is shared.
        let added = d.as_slice().iter().enumerate().filter(|(_, by)| !by.is_zero());
        for (row, &by) in added {
            let begin = a.host().row_ptr()[row] as usize;
            if let Ok(at) = a.host().row(row).0.binary_search(&(row as Ordinal)) {
                a.host_mut().values_mut()[begin + at] += by;
            }
        }
        Ok(())
    }
}
