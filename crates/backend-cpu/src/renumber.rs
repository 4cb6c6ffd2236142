//! Renumbering on the CPU: the host's orders and permutations, [`spandrel_formats::reorder`].
//!
//! Order: none, values are moved. Cost: see there.

use spandrel_backend::error::expect_len;
use spandrel_backend::renumber::expect_vectors;
use spandrel_backend::{Converted, Gate, Renumber, Result};
use spandrel_formats::reorder::breadth_first_within;
use spandrel_formats::{Csr, Offset, Ordinal, Permutation, Real};

use crate::device::open;
use crate::spgemm::typed;
use crate::threads::Shared;
use crate::{Cpu, CpuCsr, Vector};

/// An order of rows and its inverse.
#[derive(Clone, Debug)]
pub struct CpuNumbering {
    order: Permutation,
    inverse: Permutation,
}

/// The position in A of each entry of a renumbered matrix.
#[derive(Clone, Debug)]
pub struct CpuRenumbering(Vec<Offset>);

impl CpuNumbering {
    fn new(order: Permutation) -> Self {
        Self { inverse: order.inverse(), order }
    }
}

impl Cpu {
    /// to[k] <- from[places[k]].
    fn moved<T: Real>(&self, from: &[T], places: &[u32], to: &mut [T]) {
        let to = Shared::new(to);
        self.split(places.len(), 4 + 2 * T::BYTES, 1, |part| {
            // SAFETY: `split` hands out disjoint ranges.
            let to = unsafe { to.part(part.clone()) };
            to.iter_mut().zip(&places[part]).for_each(|(to, &at)| *to = from[at as usize]);
        });
    }
}

impl<T: Real> Renumber<Csr<T>> for Cpu {
    type Numbering = CpuNumbering;
    type RenumberPlan = CpuRenumbering;

    fn distance(&self, a: &CpuCsr<T>) -> Result<u64> {
        let a = a.host();
        expect_len("distance", "a row", a.ncols(), a.nrows())?;
        Ok(a.distance())
    }

    fn breadth_first(&self, a: &CpuCsr<T>, levels: usize) -> Result<Option<CpuNumbering>> {
        Ok(breadth_first_within(a.host(), levels).map_err(typed)?.map(CpuNumbering::new))
    }

    fn numbering(&self, order: &Permutation) -> Result<CpuNumbering> {
        Ok(CpuNumbering::new(order.clone()))
    }

    fn order(&self, numbering: &CpuNumbering) -> Result<Vec<Ordinal>> {
        Ok(numbering.order.perm().to_vec())
    }

    fn renumbered(&self, a: &CpuCsr<T>, numbering: &CpuNumbering) -> Result<(Converted<CpuCsr<T>>, CpuRenumbering)> {
        let (a, order) = (a.host(), &numbering.order);
        let made = order.permute_symmetric(a).map_err(typed)?;
        Ok((self.made(made)?, CpuRenumbering(order.places_symmetric(a).map_err(typed)?)))
    }

    fn renumber_values(
        &self,
        gate: Gate<'_, Self>,
        CpuRenumbering(places): &CpuRenumbering,
        values: &Vector<T>,
        to: &mut Vector<T>,
    ) -> Result<()> {
        expect_vectors("renumber_values", [values.len(), to.len()], places.len())?;
        if open(gate) {
            self.moved(values.as_slice(), places, to.as_mut_slice());
        }
        Ok(())
    }

    fn renumber(&self, gate: Gate<'_, Self>, numbering: &CpuNumbering, x: &Vector<T>, y: &mut Vector<T>) -> Result<()> {
        expect_vectors("renumber", [x.len(), y.len()], numbering.order.len())?;
        if open(gate) {
            self.moved(x.as_slice(), numbering.order.perm(), y.as_mut_slice());
        }
        Ok(())
    }

    fn restore(&self, gate: Gate<'_, Self>, numbering: &CpuNumbering, x: &Vector<T>, y: &mut Vector<T>) -> Result<()> {
        expect_vectors("restore", [x.len(), y.len()], numbering.order.len())?;
        if open(gate) {
            self.moved(x.as_slice(), numbering.inverse.perm(), y.as_mut_slice());
        }
        Ok(())
    }
}
