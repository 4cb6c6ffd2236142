//! Algebraic coarsening on the CPU: the host's code, [`spandrel_formats::amg`], on matrices that are in host memory
//! anyway.
//!
//! Order: see there. Cost: see there.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Coarsen, Coarser, Converted, Prolongation, Result, Scaling};
use spandrel_formats::amg::{self, Aggregates, Strength, Tentative, smooth_again, smoothed};
use spandrel_formats::{Csr, Ordinal, Real, SpgemmPlan, TransposePlan, triple_product_by};

use crate::spgemm::typed;
use crate::{Cpu, CpuCsr, Vector};

/// Strong couplings and the aggregates made from them. A plan shares them.
#[derive(Clone, Debug)]
pub struct CpuAggregates(Arc<(Strength, Aggregates)>);

/// Everything about a coarser matrix that does not depend on values.
#[derive(Clone, Debug)]
pub struct CpuCoarser<T> {
    nnz: usize,
    aggregates: CpuAggregates,
    tentative: Tentative<T>,
    /// A P.
    fine: Csr<T>,
    /// Of A P and of P^T (A P).
    products: [SpgemmPlan; 2],
    transpose: TransposePlan,
}

impl Cpu {
    fn tentative<T: Real>(
        &self,
        a: &Csr<T>,
        CpuAggregates(of): &CpuAggregates,
        near_null: &Vector<T>,
    ) -> Result<(Tentative<T>, Vector<T>)> {
        let (graph, aggregates) = &**of;
        expect_len("prolongation", "the matrix", a.nrows(), graph.nodes() * graph.unknowns())?;
        let vectors = near_null.len() / a.nrows().max(1);
        let tentative = Tentative::of(aggregates, graph.unknowns(), near_null.as_slice(), vectors).map_err(typed)?;
        let coarse = Vector::from_host(self, tentative.coarse())?;
        Ok((tentative, coarse))
    }
}

impl<T: Real> Coarsen<Csr<T>> for Cpu {
    type Aggregates = CpuAggregates;
    type CoarserPlan = CpuCoarser<T>;

    fn aggregate(&self, a: &CpuCsr<T>, unknowns: usize, strength: f64) -> Result<(CpuAggregates, usize)> {
        let graph = Strength::of(a.host(), unknowns, strength).map_err(typed)?;
        let aggregates = Aggregates::of(&graph, a.host());
        let count = aggregates.count();
        Ok((CpuAggregates(Arc::new((graph, aggregates))), count))
    }

    fn assignment(&self, aggregates: &CpuAggregates) -> Result<Vec<Ordinal>> {
        Ok(aggregates.0.1.assignment().to_vec())
    }

    fn prolongation(
        &self,
        a: &CpuCsr<T>,
        aggregates: &CpuAggregates,
        near_null: &Vector<T>,
    ) -> Result<Prolongation<Converted<CpuCsr<T>>, Vector<T>>> {
        let a = a.host();
        let (tentative, near_null) = self.tentative(a, aggregates, near_null)?;
        let (graph, aggregates) = &*aggregates.0;
        let p = smoothed(a, graph, aggregates, &tentative).map_err(typed)?;
        let mut dropped = Vector::zeros(self, p.ncols())?;
        tentative.dropped().iter().for_each(|&unknown| dropped.as_mut_slice()[unknown] = T::one());
        Ok(Prolongation { p: self.made(p)?, near_null, dropped })
    }

    fn galerkin(&self, a: &CpuCsr<T>, p: &CpuCsr<T>) -> Result<(Converted<CpuCsr<T>>, Converted<CpuCsr<T>>)> {
        let (a, p) = (a.host(), p.host());
        expect_len("galerkin", "a row of A", a.ncols(), a.nrows())?;
        expect_len("galerkin", "a column of P", p.nrows(), a.nrows())?;
        let transposed = p.try_transpose().map_err(typed)?;
        let coarse = triple_product_by(self.threads(), &transposed, a, p).map_err(typed)?;
        Ok((self.made(transposed)?, self.made(coarse)?))
    }

    fn coarser_symbolic(
        &self,
        a: &CpuCsr<T>,
        aggregates: &CpuAggregates,
        near_null: &Vector<T>,
    ) -> Result<(Coarser<Converted<CpuCsr<T>>, Vector<T>>, CpuCoarser<T>)> {
        let a = a.host();
        expect_len("coarser", "a row of A", a.ncols(), a.nrows())?;
        let (tentative, near_null) = self.tentative(a, aggregates, near_null)?;
        let p = smoothed(a, &aggregates.0.0, &aggregates.0.1, &tentative).map_err(typed)?;
        let (transpose, transposed) = TransposePlan::symbolic(&p).map_err(typed)?;
        let (first, fine) = SpgemmPlan::symbolic_by(self.threads(), a, &p).map_err(typed)?;
        let (second, coarse) = SpgemmPlan::symbolic_by(self.threads(), &transposed, &fine).map_err(typed)?;
        let (nnz, aggregates, products) = (a.nnz(), aggregates.clone(), [first, second]);
        let plan = CpuCoarser { nnz, aggregates, tentative, fine, products, transpose };
        let [p, transposed, a] = [p, transposed, coarse].map(|made| self.made(made));
        Ok((Coarser { p: p?, transposed: transposed?, a: a?, near_null }, plan))
    }

    fn coarser_numeric(&self, a: &CpuCsr<T>, plan: &mut CpuCoarser<T>, to: Coarser<&mut CpuCsr<T>, ()>) -> Result<()> {
        let CpuCoarser { nnz, aggregates, tentative, fine, products: [first, second], transpose } = plan;
        let (a, p, transposed, coarse) = (a.host(), to.p, to.transposed, to.a);
        expect_len("coarser", "the values of A", a.nnz(), *nnz)?;
        smooth_again(a, &aggregates.0.0, &aggregates.0.1, tentative, p.host_mut()).map_err(typed)?;
        transpose.numeric_by(self.threads(), p.host(), transposed.host_mut()).map_err(typed)?;
        first.numeric_by(self.threads(), a, p.host(), fine).map_err(typed)?;
        second.numeric_by(self.threads(), transposed.host(), fine, coarse.host_mut()).map_err(typed)?;
        let dropped = tentative.dropped().iter().map(|&unknown| (unknown, T::one()));
        add_to_diagonal(coarse, dropped);
        Ok(())
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
        expect_scales(m, left, right)?;
        let left = left.as_slice();
        let mut made = self.made(match right.map(Vector::as_slice) {
            None => m.map_entries(|row, _, v| v * left[row]),
            Some(right) => m.map_entries(|row, col, v| v * (right[col] * left[row])),
        })?;
        made.resident = made.resident.with_slices(self);
        Ok(made)
    }

    fn scaled_into(
        &self,
        m: &CpuCsr<T>,
        left: &Vector<T>,
        right: Option<&Vector<T>>,
        to: &mut CpuCsr<T>,
    ) -> Result<()> {
        let m = m.host();
        expect_scales(m, left, right)?;
        expect_len("scaled_into", "a column", to.host().nrows(), m.nrows())?;
        expect_len("scaled_into", "the values", to.host().nnz(), m.nnz())?;
        let (left, right) = (left.as_slice(), right.map(Vector::as_slice));
        to.rewrite(self, |to| {
            to.overwrite_rows(|row, _, to| {
                let (cols, values) = m.row(row);
                match right {
                    None => to.iter_mut().zip(values).for_each(|(to, &v)| *to = v * left[row]),
                    Some(right) => to
                        .iter_mut()
                        .zip(cols.iter().zip(values))
                        .for_each(|(to, (&col, &v))| *to = v * (right[col as usize] * left[row])),
                }
            });
        });
        Ok(())
    }

    fn copy_values(&self, from: &CpuCsr<T>, to: &mut CpuCsr<T>) -> Result<()> {
        expect_len("copy_values", "the values", from.host().nnz(), to.host().nnz())?;
        to.rewrite(self, |to| to.values_mut().copy_from_slice(from.host().values()));
        Ok(())
    }

    fn add_to_diagonal(&self, a: &mut CpuCsr<T>, d: &Vector<T>) -> Result<()> {
        expect_len("add_to_diagonal", "d", d.len(), a.host().nrows())?;
        // Write nothing where nothing is added: a write would copy a matrix that is shared.
        let added = d.as_slice().iter().copied().enumerate().filter(|(_, by)| !by.is_zero());
        add_to_diagonal(a, added);
        Ok(())
    }
}

/// Adds numbers to the diagonal entries of the rows that have one.
fn add_to_diagonal<T: Real>(a: &mut CpuCsr<T>, added: impl Iterator<Item = (usize, T)>) {
    for (row, by) in added {
        let begin = a.host().row_ptr()[row] as usize;
        if let Ok(at) = a.host().row(row).0.binary_search(&(row as Ordinal)) {
            a.host_mut().values_mut()[begin + at] += by;
        }
    }
}

/// # Errors
/// [`spandrel_backend::Error::Shape`] unless there is a scale per row and, with `right`, per column.
fn expect_scales<T: Real>(m: &Csr<T>, left: &Vector<T>, right: Option<&Vector<T>>) -> Result<()> {
    expect_len("scaled", "the scales of rows", left.len(), m.nrows())?;
    right.map_or(Ok(()), |right| expect_len("scaled", "the scales of columns", right.len(), m.ncols()))
}
