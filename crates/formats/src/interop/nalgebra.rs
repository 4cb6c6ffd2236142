//! nalgebra-sparse: `CsrMatrix<T>`, `CscMatrix<T>` and `CooMatrix<T>`. Their `usize` indices are copied; values move if
//! possible.

use super::narrow;
use crate::{Csr, Error, Ordinal, Real};
use nalgebra_sparse::pattern::SparsityPattern;
use nalgebra_sparse::{CooMatrix, CscMatrix, CsrMatrix};

fn widen(indices: &[Ordinal]) -> Vec<usize> {
    indices.iter().map(|&index| index as usize).collect()
}

fn pattern<T: Real>(matrix: &Csr<T>) -> SparsityPattern {
    let (row_ptr, col_idx) = (widen(matrix.row_ptr()), widen(matrix.col_idx()));
    // SAFETY: nalgebra-sparse requires what `Csr` guarantees: `nrows + 1` pointers from 0 to the number of entries,
    // never decreasing; columns strictly ascending in each row and below `ncols`.
    unsafe { SparsityPattern::from_offset_and_indices_unchecked(matrix.nrows(), matrix.ncols(), row_ptr, col_idx) }
}

impl<T: Real> From<Csr<T>> for CsrMatrix<T> {
    /// Moves the values, copies the indices.
    fn from(matrix: Csr<T>) -> Self {
        let pattern = pattern(&matrix);
        let values = matrix.into_parts().4;
        Self::try_from_pattern_and_values(pattern, values).expect("a value for every entry of the pattern")
    }
}

impl<T: Real> From<&Csr<T>> for CsrMatrix<T> {
    /// Copies the arrays.
    fn from(matrix: &Csr<T>) -> Self {
        let values = matrix.values().to_vec();
        Self::try_from_pattern_and_values(pattern(matrix), values).expect("a value for every entry of the pattern")
    }
}

impl<T: Real> From<&Csr<T>> for CscMatrix<T> {
    /// Copies the entries from rows to columns.
    fn from(matrix: &Csr<T>) -> Self {
        CsrMatrix::from(matrix.transpose()).transpose_as_csc()
    }
}

impl<T: Real> TryFrom<CsrMatrix<T>> for Csr<T> {
    type Error = Error;

    /// Moves the values, copies the indices.
    fn try_from(matrix: CsrMatrix<T>) -> Result<Self, Error> {
        let (nrows, ncols) = (matrix.nrows(), matrix.ncols());
        let (row_ptr, col_idx, values) = matrix.disassemble();
        let row_ptr = narrow(row_ptr.into_iter(), "entries")?;
        Self::new(nrows, ncols, row_ptr, narrow(col_idx.into_iter(), "columns")?, values)
    }
}

impl<T: Real> TryFrom<&CsrMatrix<T>> for Csr<T> {
    type Error = Error;

    /// Copies the arrays.
    fn try_from(matrix: &CsrMatrix<T>) -> Result<Self, Error> {
        let (row_ptr, col_idx, values) = matrix.csr_data();
        let row_ptr = narrow(row_ptr.iter().copied(), "entries")?;
        let col_idx = narrow(col_idx.iter().copied(), "columns")?;
        Self::new(matrix.nrows(), matrix.ncols(), row_ptr, col_idx, values.to_vec())
    }
}

impl<T: Real> TryFrom<&CscMatrix<T>> for Csr<T> {
    type Error = Error;

    /// Copies the entries from columns to rows.
    fn try_from(matrix: &CscMatrix<T>) -> Result<Self, Error> {
        let (col_ptr, row_idx, values) = matrix.csc_data();
        let col_ptr = narrow(col_ptr.iter().copied(), "entries")?;
        let row_idx = narrow(row_idx.iter().copied(), "rows")?;
        Self::new(matrix.ncols(), matrix.nrows(), col_ptr, row_idx, values.to_vec())?.try_transpose()
    }
}

impl<T: Real> TryFrom<&CooMatrix<T>> for Csr<T> {
    type Error = Error;

    /// Sums entries at the same place in the order of the triplets.
    fn try_from(matrix: &CooMatrix<T>) -> Result<Self, Error> {
        let entries = matrix.triplet_iter().map(|(row, col, &value)| (row, col, value));
        Self::from_triplets(matrix.nrows(), matrix.ncols(), entries)
    }
}

impl<T: Real> From<&Csr<T>> for CooMatrix<T> {
    /// Copies the entries, row by row.
    fn from(matrix: &Csr<T>) -> Self {
        let rows = widen(&crate::coo::expand(matrix.row_ptr(), matrix.nnz()));
        let (cols, values) = (widen(matrix.col_idx()), matrix.values().to_vec());
        Self::try_from_triplets(matrix.nrows(), matrix.ncols(), rows, cols, values).expect("entries inside the matrix")
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn rows_both_ways() {
        let ours = sample();
        let theirs = CsrMatrix::from(&ours);
        assert_eq!((theirs.nrows(), theirs.ncols(), theirs.nnz()), (4, 5, 6));
        let (row_ptr, col_idx, values) = theirs.csr_data();
        let checked = CsrMatrix::try_from_csr_data(4, 5, row_ptr.to_vec(), col_idx.to_vec(), values.to_vec());
        assert_eq!(checked.unwrap(), theirs);
        assert_eq!(Csr::try_from(&theirs).unwrap(), ours);
        let owned = CsrMatrix::from(ours.clone());
        let at = owned.values().as_ptr();
        let back = Csr::try_from(owned).unwrap();
        assert_eq!(back.values().as_ptr(), at);
        assert_eq!(back, ours);
    }

    #[test]
    fn triplets_both_ways_with_duplicates_summed_in_their_order() {
        let ours = sample();
        let theirs = CooMatrix::from(&ours);
        assert_eq!((theirs.nrows(), theirs.ncols(), theirs.nnz()), (4, 5, 6));
        assert_eq!(Csr::try_from(&theirs).unwrap(), ours);
        assert_eq!(CsrMatrix::from(&theirs), CsrMatrix::from(&ours));
        let mut twice = CooMatrix::<f64>::new(2, 3);
        for (row, col, value) in [(1, 2, 1e16), (0, 0, 1.0), (1, 2, -1e16), (1, 2, 1.0), (1, 0, 4.0)] {
            twice.push(row, col, value);
        }
        let summed = Csr::try_from(&twice).unwrap();
        assert_eq!((summed.row_ptr(), summed.values()), (&[0, 1, 3][..], &[1.0, 4.0, 1.0][..]));
    }

    #[test]
    fn columns_both_ways() {
        let ours = sample();
        let theirs = CscMatrix::from(&ours);
        assert_eq!((theirs.nrows(), theirs.ncols()), (4, 5));
        assert_eq!(theirs.get_entry(3, 0).map(|entry| entry.into_value()), Some(6.0));
        assert_eq!(Csr::try_from(&theirs).unwrap(), ours);
    }
}
