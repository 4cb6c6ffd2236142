//! sprs: `CsMatI<T, u32>` owns the same arrays as CSR, and `CsMatViewI<T, u32>` borrows them.

use super::narrow;
use crate::{Csr, Error, Ordinal, Real};
use sprs::{CsMatBase, CsMatI, CsMatViewI, SpIndex, TriMatBase, TriMatI};
use std::ops::Deref;

impl<T: Real> Csr<T> {
    /// Borrows this matrix as sprs's; nothing is copied.
    pub fn as_sprs(&self) -> CsMatViewI<'_, T, Ordinal> {
        // SAFETY: sprs requires what `Csr` guarantees: pointers from 0, never decreasing, up to the number of entries;
        // columns strictly ascending in each row and below `ncols`.
        unsafe {
            CsMatViewI::new_unchecked(
                sprs::CompressedStorage::CSR,
                (self.nrows(), self.ncols()),
                self.row_ptr(),
                self.col_idx(),
                self.values(),
            )
        }
    }
}

impl<T: Real> From<Csr<T>> for CsMatI<T, Ordinal> {
    /// Moves the buffers.
    fn from(matrix: Csr<T>) -> Self {
        let (nrows, ncols, row_ptr, col_idx, values) = matrix.into_parts();
        // SAFETY: as in `Csr::as_sprs`.
        unsafe { CsMatI::new_unchecked(sprs::CompressedStorage::CSR, (nrows, ncols), row_ptr, col_idx, values) }
    }
}

impl<T: Real> TryFrom<CsMatI<T, Ordinal>> for Csr<T> {
    type Error = Error;

    /// Moves the buffers of a matrix stored by rows; one stored by columns is transposed.
    fn try_from(matrix: CsMatI<T, Ordinal>) -> Result<Self, Error> {
        if matrix.is_csc() || !matrix.indptr().is_proper() {
            return Self::try_from(&matrix);
        }
        let (nrows, ncols) = matrix.shape();
        let (row_ptr, col_idx, values) = matrix.into_raw_storage();
        Self::new(nrows, ncols, row_ptr, col_idx, values)
    }
}

impl<T, I, Iptr, P, J, D> TryFrom<&CsMatBase<T, I, P, J, D, Iptr>> for Csr<T>
where
    T: Real,
    I: SpIndex,
    Iptr: SpIndex,
    P: Deref<Target = [Iptr]>,
    J: Deref<Target = [I]>,
    D: Deref<Target = [T]>,
{
    type Error = Error;

    /// Copies a matrix stored by rows or columns, owned or borrowed, with any type of index.
    fn try_from(matrix: &CsMatBase<T, I, P, J, D, Iptr>) -> Result<Self, Error> {
        let ptr = narrow(matrix.proper_indptr().iter().map(|p| p.index()), "entries")?;
        let idx = narrow(matrix.indices().iter().map(|i| i.index()), "columns")?;
        let values = matrix.data().to_vec();
        if matrix.is_csc() {
            return Self::new(matrix.cols(), matrix.rows(), ptr, idx, values)?.try_transpose();
        }
        Self::new(matrix.rows(), matrix.cols(), ptr, idx, values)
    }
}

impl<T, I, R, D> TryFrom<&TriMatBase<R, D>> for Csr<T>
where
    T: Real,
    I: SpIndex,
    R: Deref<Target = [I]>,
    D: Deref<Target = [T]>,
{
    type Error = Error;

    /// Sums entries at the same place in the order of the triplets. Accepts owned and borrowed ones with any type of
    /// index.
    fn try_from(matrix: &TriMatBase<R, D>) -> Result<Self, Error> {
        let entries = matrix.row_inds().iter().zip(matrix.col_inds()).zip(matrix.data());
        let entries = entries.map(|((row, col), &value)| (row.index(), col.index(), value));
        Self::from_triplets(matrix.rows(), matrix.cols(), entries)
    }
}

impl<T: Real> From<&Csr<T>> for TriMatI<T, Ordinal> {
    /// Copies the entries, row by row.
    fn from(matrix: &Csr<T>) -> Self {
        let rows = crate::coo::expand(matrix.row_ptr(), matrix.nnz());
        let shape = (matrix.nrows(), matrix.ncols());
        Self::from_triplets(shape, rows, matrix.col_idx().to_vec(), matrix.values().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use sprs::CsMat;

    #[test]
    fn views_share_the_buffers() {
        let ours = sample();
        let view = ours.as_sprs();
        assert!(view.check_compressed_structure().is_ok());
        assert_eq!(view.data().as_ptr(), ours.values().as_ptr());
        assert_eq!(view.indices().as_ptr(), ours.col_idx().as_ptr());
        assert_eq!((view.shape(), view.get(2, 4), view.get(1, 1)), ((4, 5), Some(&5.0), None));
        assert_eq!(Csr::try_from(&view).unwrap(), ours);
    }

    #[test]
    fn owned_matrices_move_both_ways() {
        let ours = sample();
        let theirs = CsMatI::<f64, u32>::from(ours.clone());
        assert!(theirs.check_compressed_structure().is_ok());
        assert_eq!(Csr::try_from(theirs.to_csc()).unwrap(), ours);
        let at = theirs.data().as_ptr();
        let back = Csr::try_from(theirs).unwrap();
        assert_eq!(back.values().as_ptr(), at);
        assert_eq!(back, ours);
    }

    #[test]
    fn triplets_both_ways_with_duplicates_summed_in_their_order() {
        let ours = sample();
        let theirs = TriMatI::<f64, u32>::from(&ours);
        assert_eq!((theirs.shape(), theirs.nnz()), ((4, 5), 6));
        assert_eq!(Csr::try_from(&theirs).unwrap(), ours);
        assert_eq!(theirs.to_csr::<u32>(), CsMatI::from(ours));
        let mut wide = sprs::TriMat::<f64>::new((2, 3));
        for (row, col, value) in [(1, 2, 1e16), (0, 0, 1.0), (1, 2, -1e16), (1, 2, 1.0), (1, 0, 4.0)] {
            wide.add_triplet(row, col, value);
        }
        let summed = Csr::try_from(&wide).unwrap();
        assert_eq!((summed.row_ptr(), summed.values()), (&[0, 1, 3][..], &[1.0, 4.0, 1.0][..]));
        assert_eq!(Csr::try_from(&wide.view()).unwrap(), summed);
    }

    #[test]
    fn other_indices_and_storages() {
        let ours = sample();
        let wide: CsMat<f64> = ours.as_sprs().to_other_types();
        assert_eq!(Csr::try_from(&wide).unwrap(), ours);
        assert_eq!(Csr::try_from(&wide.to_csc()).unwrap(), ours);
        // A slice of rows has pointers that do not begin at 0.
        let slice = Csr::try_from(&wide.slice_outer(2..4)).unwrap();
        assert_eq!((slice.nrows(), slice.row(0), slice.row(1)), (2, ours.row(2), ours.row(3)));
        let tall = CsMat::<f64>::new_csc((1 << 31, 1), vec![0, 0], vec![], vec![]);
        assert!(matches!(Csr::try_from(&tall), Err(Error::TooLarge { .. })));
    }
}
