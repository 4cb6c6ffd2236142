//! The synchronization-free plan: rows in their own order, each of which counts what it still waits for. Only the
//! columns are indexed.
//!
//! By columns (Liu et al.): whoever has solved x_j walks down column j, adds -t_ij x_j to the sum of row i and adds one
//! to row i's counter. Row i is solved when its counter reaches its number of entries off the diagonal. By rows:
//! several lanes per row, as many as rows are long on average. Each lane waits for the columns of its entries.
//! Layout: the triangle; by columns also the index of its columns ([`crate::rows`]) and the number of entries of each
//! row off the diagonal. The columns of T^T are T's rows.
//! Order: by columns there is none, because the sums are atomic: other bits in every solve, with [`crate::serial`]'s
//! bound for rounded products, gamma(k+2) row by row. By rows it is that of the device: a tree over lanes on a GPU,
//! [`crate::serial`]'s on the CPU.
//! Reference: Liu, Li, Hogg, Duff, Vinter 2016, A synchronization-free algorithm for parallel sparse triangular solves.

use std::sync::Arc;

use spandrel_formats::Real;

use crate::{Error, Plan, Result, Rows, System, Systems, Triangular, View};

/// The unit of work of [`Syncfree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// A column: solved values are scattered by atomic additions.
    Columns,
    /// A row: solved values are gathered.
    Rows,
}

/// The synchronization-free plan. See the module's head.
#[derive(Clone, Debug)]
pub struct Syncfree<T> {
    rows: Rows<T>,
    walk: Walk,
    systems: Systems,
}

impl<T: Real> Syncfree<T> {
    /// Takes a triangle, to be solved by rows or by columns. Indexes the columns in O(nnz) for [`Walk::Columns`] and
    /// for [`Systems::Both`].
    pub fn with_walk(matrix: Arc<Triangular<T>>, systems: Systems, walk: Walk) -> Self {
        let indexed = if walk == Walk::Columns { Systems::Both } else { systems };
        Self { rows: Rows::new(matrix, indexed), walk, systems }
    }
    /// The unit of work: rows or columns.
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
    /// The columns of a system, given as the rows of its transpose and labelled with the transpose's triangle.
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
    /// Number of entries of each row of a system off the diagonal.
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
            // The counters of terms are read as well.
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
