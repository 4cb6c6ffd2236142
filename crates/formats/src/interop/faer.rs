//! faer: `SparseRowMat<u32, T>` owns the same arrays as CSR, and `SparseRowMatRef<u32, T>` borrows them.

use super::narrow;
use crate::{Csr, Error, Ordinal, Real};
use faer::Index;
use faer::sparse::{
    SparseColMat, SparseColMatRef, SparseRowMat, SparseRowMatRef, SymbolicSparseRowMat, SymbolicSparseRowMatRef,
};

impl<T: Real> Csr<T> {
    /// Borrows this matrix as faer's; nothing is copied.
    pub fn as_faer(&self) -> SparseRowMatRef<'_, Ordinal, T> {
        // SAFETY: faer requires what `Csr` guarantees: `nrows + 1` pointers that never decrease, up to the number of
        // entries; columns strictly ascending in each row and below `ncols`; sizes below 2^31.
        let symbolic = unsafe {
            SymbolicSparseRowMatRef::new_unchecked(self.nrows(), self.ncols(), self.row_ptr(), None, self.col_idx())
        };
        SparseRowMatRef::new(symbolic, self.values())
    }
}

impl<T: Real> From<Csr<T>> for SparseRowMat<Ordinal, T> {
    /// Moves the buffers.
    fn from(matrix: Csr<T>) -> Self {
        let (nrows, ncols, row_ptr, col_idx, values) = matrix.into_parts();
        // SAFETY: as in `Csr::as_faer`.
        let symbolic = unsafe { SymbolicSparseRowMat::new_unchecked(nrows, ncols, row_ptr, None, col_idx) };
        SparseRowMat::new(symbolic, values)
    }
}

impl<T: Real> TryFrom<SparseRowMat<Ordinal, T>> for Csr<T> {
    type Error = Error;

    /// Moves the buffers if the matrix has no gaps between its rows.
    fn try_from(matrix: SparseRowMat<Ordinal, T>) -> Result<Self, Error> {
        let (symbolic, values) = matrix.into_parts();
        let (nrows, ncols, row_ptr, row_nnz, col_idx) = symbolic.into_parts();
        match row_nnz {
            None => {
                // faer allows arrays longer than the last pointer.
                let end = row_ptr.last().map_or(0, |&end| end as usize);
                let (mut col_idx, mut values) = (col_idx, values);
                col_idx.truncate(end);
                values.truncate(end);
                Self::new(nrows, ncols, row_ptr, col_idx, values)
            }
            Some(row_nnz) => gather(nrows, ncols, &row_ptr, Some(&row_nnz), &col_idx, &values),
        }
    }
}

impl<T: Real, I: Index> TryFrom<SparseRowMatRef<'_, I, T>> for Csr<T> {
    type Error = Error;

    /// Copies the arrays.
    fn try_from(matrix: SparseRowMatRef<'_, I, T>) -> Result<Self, Error> {
        let (symbolic, values) = matrix.parts();
        let (nrows, ncols, row_ptr, row_nnz, col_idx) = symbolic.parts();
        gather(nrows, ncols, row_ptr, row_nnz, col_idx, values)
    }
}

impl<T: Real, I: Index> TryFrom<&SparseRowMat<I, T>> for Csr<T> {
    type Error = Error;

    /// Copies the arrays.
    fn try_from(matrix: &SparseRowMat<I, T>) -> Result<Self, Error> {
        Self::try_from(matrix.as_ref())
    }
}

impl<T: Real> From<&Csr<T>> for SparseRowMat<Ordinal, T> {
    /// Copies the arrays.
    fn from(matrix: &Csr<T>) -> Self {
        matrix.clone().into()
    }
}

impl<T: Real, I: Index> TryFrom<SparseColMatRef<'_, I, T>> for Csr<T> {
    type Error = Error;

    /// Copies the entries from columns to rows.
    fn try_from(matrix: SparseColMatRef<'_, I, T>) -> Result<Self, Error> {
        let (symbolic, values) = matrix.parts();
        let (nrows, ncols, col_ptr, col_nnz, row_idx) = symbolic.parts();
        gather(ncols, nrows, col_ptr, col_nnz, row_idx, values)?.try_transpose()
    }
}

impl<T: Real, I: Index> TryFrom<&SparseColMat<I, T>> for Csr<T> {
    type Error = Error;

    /// Copies the entries from columns to rows.
    fn try_from(matrix: &SparseColMat<I, T>) -> Result<Self, Error> {
        Self::try_from(matrix.as_ref())
    }
}

impl<T: Real> From<&Csr<T>> for SparseColMat<Ordinal, T> {
    /// Copies the entries from rows to columns: what faer's factorisations take.
    fn from(matrix: &Csr<T>) -> Self {
        let (nrows, ncols, ptr, idx, values) = matrix.transpose().into_parts();
        // SAFETY: as in `Csr::as_faer`, for the transpose.
        let symbolic = unsafe { faer::sparse::SymbolicSparseColMat::new_unchecked(ncols, nrows, ptr, None, idx) };
        SparseColMat::new(symbolic, values)
    }
}

/// Makes CSR from rows with or without gaps between them.
fn gather<T: Real, I: Index>(
    nrows: usize,
    ncols: usize,
    row_ptr: &[I],
    row_nnz: Option<&[I]>,
    col_idx: &[I],
    values: &[T],
) -> Result<Csr<T>, Error> {
    let mut ptr = Vec::with_capacity(nrows + 1);
    let (mut cols, mut vals) = (Vec::new(), Vec::new());
    ptr.push(0);
    for row in 0..nrows {
        let begin = row_ptr[row].zx();
        let end = row_nnz.map_or_else(|| row_ptr[row + 1].zx(), |nnz| begin + nnz[row].zx());
        cols.extend(narrow(col_idx[begin..end].iter().map(|col| col.zx()), "columns")?);
        vals.extend_from_slice(&values[begin..end]);
        ptr.push(crate::index::checked(cols.len(), "entries")?);
    }
    Csr::new(nrows, ncols, ptr, cols, vals)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn views_share_the_buffers() {
        let ours = sample();
        let view = ours.as_faer();
        SymbolicSparseRowMatRef::new_checked(4, 5, ours.row_ptr(), None, ours.col_idx());
        assert_eq!(view.val().as_ptr(), ours.values().as_ptr());
        assert_eq!((view.nrows(), view.ncols(), view.get(2, 4), view.get(1, 1)), (4, 5, Some(&5.0), None));
        assert_eq!(Csr::try_from(view).unwrap(), ours);
    }

    #[test]
    fn owned_matrices_move_both_ways() {
        let ours = sample();
        let theirs = SparseRowMat::<u32, f64>::from(ours.clone());
        let at = theirs.val().as_ptr();
        let back = Csr::try_from(theirs).unwrap();
        assert_eq!(back.values().as_ptr(), at);
        assert_eq!(back, ours);
    }

    #[test]
    fn columns_and_other_indices() {
        let ours = sample();
        let columns = SparseColMat::<u32, f64>::from(&ours);
        assert_eq!((columns.nrows(), columns.ncols(), columns.get(3, 0)), (4, 5, Some(&6.0)));
        assert_eq!(Csr::try_from(&columns).unwrap(), ours);
        let triplets: Vec<_> = [(0, 1, 2.0), (2, 0, 3.0)].map(|(i, j, v)| faer::sparse::Triplet::new(i, j, v)).into();
        let wide = SparseRowMat::<usize, f64>::try_new_from_triplets(3, 2, &triplets).unwrap();
        let csr = Csr::try_from(wide.as_ref()).unwrap();
        assert_eq!(Csr::try_from(&wide).unwrap(), csr);
        let rows = SparseRowMat::from(&ours);
        assert_eq!((rows.nrows(), rows.ncols(), rows.get(3, 0)), (4, 5, Some(&6.0)));
        assert_eq!(Csr::try_from(&rows).unwrap(), ours);
        assert_eq!((csr.nnz(), csr.get(0, 1), csr.get(2, 0)), (2, Some(2.0), Some(3.0)));
    }

    #[test]
    fn rows_with_gaps_are_packed_and_unsorted_ones_refused() {
        let symbolic =
            SymbolicSparseRowMat::<u32>::new_checked(2, 3, vec![0, 3, 5], Some(vec![2, 1]), vec![0, 2, 1, 1, 0]);
        let csr = Csr::try_from(SparseRowMat::new(symbolic, vec![1.0, 2.0, 9.0, 3.0, 9.0])).unwrap();
        assert_eq!(
            (csr.row_ptr(), csr.col_idx(), csr.values()),
            (&[0, 2, 3][..], &[0, 2, 1][..], &[1.0, 2.0, 3.0][..])
        );
        let symbolic = SymbolicSparseRowMat::<u32>::new_unsorted_checked(1, 3, vec![0, 2], None, vec![2, 0]);
        let error = Csr::try_from(SparseRowMat::new(symbolic, vec![1.0, 2.0])).unwrap_err();
        assert!(matches!(error, Error::Unsorted { at: 1, .. }), "{error}");
    }
}
