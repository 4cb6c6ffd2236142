//! Rows that count what they wait for, in their own order: no analysis but an index of the columns.
//!
//! By columns (Liu et al.): whoever has solved x_j takes its column along and adds -t_ij x_j to what row i has gathered and one to the
//! number of terms that have come there; row i is solved when that is its number of entries off the diagonal.
//! By rows: several lanes a row, as many as rows are long on average, each waiting for the columns of its entries.
//! Layout: the triangle; by columns also the index of its columns ([`crate::rows`]) and how many entries off the diagonal each row has.
//! The columns of T^T are T's rows.
//! Order: by columns none, the sums are atomic: [`crate::serial`]'s bound with the products rounded, gamma(k+2) row by row, and other bits
//! at every solve. By rows that of the device: a tree over lanes on a GPU, [`crate::serial`]'s on the CPU.
//! Reference: Liu, Li, Hogg, Duff, Vinter 2016, A synchronization-free algorithm for parallel sparse triangular solves.

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Error, Plan, Result, Rows, System, Systems, Triangular, View};

/// What a unit of work of [`Syncfree`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// A column: solved values are scattered by atomics.
    Columns,
    /// A row: solved values are gathered.
    Rows,
}

/// The synchronization-free plan: see the module's head.
#[derive(Clone, Debug)]
pub struct Syncfree<T> {
    rows: Rows<T>,
    walk: Walk,
    systems: Systems,
}

impl<T: Real> Syncfree<T> {
    /// Takes a triangle over to be walked by rows or by columns. O(nnz) where the columns are indexed: for [`Walk::Columns`] and for
    /// [`Systems::Both`].
    pub fn with_walk(matrix: Arc<Triangular<T>>, systems: Systems, walk: Walk) -> Self {
        let indexed = if walk == Walk::Columns { Systems::Both } else { systems };
        Self { rows: Rows::new(matrix, indexed), walk, systems }
    }
    /// By rows or by columns.
    pub fn walk(&self) -> Walk {
        self.walk
    }
    /// The rows of a system.
    ///
    /// # Errors
    /// [`Error::NotAnalyzed`].
    pub fn rows(&self, system: System) -> Result<View<'_, T>> {
        if self.systems.hold(system) { self.rows.view(system) } else { Err(Error::NotAnalyzed) }
    }
    /// The columns of a system, as the rows of its transpose, whose triangle they bear.
    ///
    /// # Errors
    /// [`Error::NotAnalyzed`], also without [`Walk::Columns`].
    pub fn columns(&self, system: System) -> Result<View<'_, T>> {
        if !self.systems.hold(system) || self.walk != Walk::Columns {
            return Err(Error::NotAnalyzed);
        }
        self.rows.view(match system {
            System::Plain => System::Transposed,
            System::Transposed => System::Plain,
        })
    }
    /// How many entries off the diagonal each row of a system has.
    ///
    /// # Errors
    /// As [`Syncfree::rows`].
    pub fn degrees(&self, system: System) -> Result<Vec<u32>> {
        let view = self.rows(system)?;
        Ok((0..self.nrows()).map(|i| view.degree(i)).collect())
    }
}

impl<T: Real> Plan for Syncfree<T> {
    type Value = T;
    const NAME: &'static str = "syncfree";

    /// By columns.
    fn analyze(matrix: Arc<Triangular<T>>, systems: Systems) -> Result<Self> {
        Ok(Self::with_walk(matrix, systems, Walk::Columns))
    }
    fn matrix(&self) -> &Arc<Triangular<T>> {
        self.rows.matrix()
    }
    fn systems(&self) -> Systems {
        self.systems
    }
    fn update(&mut self, values: &[T]) -> Result<()> {
        self.rows.update(values)
    }
    fn storage(&self) -> u64 {
        let n = self.nrows() as u64;
        match (self.walk, self.systems) {
            (Walk::Rows, _) => self.rows.storage(),
            (Walk::Columns, Systems::Both) => self.rows.storage() + 8 * n,
            // The triangle's own rows stay on the host.
            (Walk::Columns, Systems::Plain) => self.rows.storage() - self.rows.storage_of_rows() + 4 * n,
        }
    }
    fn sptrsv_bytes(&self) -> u64 {
        match self.walk {
            Walk::Rows => self.rows.sptrsv_bytes(),
            // The numbers of terms.
            Walk::Columns => self.rows.sptrsv_bytes() + 4 * self.nrows() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use spandrel_formats::Csr;

    use super::*;
    use crate::{Diagonal, Triangle};

    /// | 2 . . |
    /// | 3 4 . |
    /// | 5 6 7 |
    fn lower() -> Arc<Triangular<f64>> {
        let csr = Csr::new(3, 3, vec![0, 1, 3, 6], vec![0, 0, 1, 0, 1, 2], vec![2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        Arc::new(Triangular::new(csr, Triangle::Lower, Diagonal::NonUnit).unwrap())
    }

    #[test]
    fn columns_and_degrees_of_both_systems() {
        let plan = Syncfree::analyze(lower(), Systems::Both).unwrap();
        let plain = plan.columns(System::Plain).unwrap();
        assert_eq!((plain.ptr, plain.idx), (&[0, 3, 5, 6][..], &[0, 1, 2, 1, 2, 2][..]));
        assert_eq!(plan.columns(System::Transposed).unwrap().idx, [0, 0, 1, 0, 1, 2]);
        assert_eq!(plan.degrees(System::Plain).unwrap(), [0, 1, 2]);
        assert_eq!(plan.degrees(System::Transposed).unwrap(), [2, 1, 0]);
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let plan = Syncfree::analyze(lower(), Systems::Plain).unwrap();
        assert_eq!(plan.systems(), Systems::Plain);
        assert!(plan.columns(System::Plain).is_ok());
        assert!(matches!(plan.columns(System::Transposed), Err(Error::NotAnalyzed)));
        assert!(matches!(plan.rows(System::Transposed), Err(Error::NotAnalyzed)));
        let rows = Syncfree::with_walk(lower(), Systems::Both, Walk::Rows);
        assert!(matches!(rows.columns(System::Plain), Err(Error::NotAnalyzed)));
        assert!(rows.rows(System::Transposed).is_ok());
    }

    #[test]
    fn bytes() {
        let plain = Syncfree::analyze(lower(), Systems::Plain).unwrap();
        // Offsets, indices, values, reciprocals, degrees.
        assert_eq!(plain.storage(), 4 * (4 + 6) + 8 * (6 + 3) + 4 * 3);
        assert_eq!(plain.sptrsv_bytes(), plain.storage() + 8 * 2 * 3);
        let both = Syncfree::analyze(lower(), Systems::Both).unwrap();
        assert_eq!(both.storage(), plain.storage() + 4 * (4 + 6) + 8 * 6 + 4 * 3);
    }
}
