//! The transpose of a sparse matrix for many sets of values: a symbolic phase once per pattern, and a numeric phase
//! that only moves values.
//!
//! Layout: the position in A of each entry of A^T. Columns of A^T ascend, because the rows of A are taken in order.
//! Cost: the symbolic phase counts columns and does not sort, O(nnz + nrows + ncols); the numeric phase reads a
//! position and a value and writes a value per entry. A plan takes 4 bytes per entry.
//! Reference: Gustavson 1978, Two fast algorithms for sparse matrices: multiplication and permuted transposition.

use std::ops::Range;

use crate::counting::transposed;
use crate::index::Offset;
use crate::padding::zeroed;
use crate::spgemm::expect_sizes;
use crate::team::{RayonTeam, Rooms, Team};
use crate::{Csr, Real, Result};

/// Entries of a task, at least.
const TASK: usize = 1 << 15;
/// Tasks per thread, so that other threads take over the tasks of one that is held up.
const TASKS_PER_THREAD: usize = 8;

/// Where in A each value of A^T stands. For a single transpose use [`Csr::transpose`].
///
/// ```
/// use spandrel_formats::{Csr, TransposePlan};
///
/// let mut a = Csr::from_triplets(2, 3, [(0, 0, 1.0), (0, 2, 2.0), (1, 0, 3.0)])?;
/// let (plan, mut t) = TransposePlan::symbolic(&a)?;
/// plan.numeric(&a, &mut t)?;
/// assert_eq!(t, a.transpose());
///
/// a.values_mut()[1] = 5.0;
/// plan.numeric(&a, &mut t)?;
/// assert_eq!(t.row(2), (&[0u32][..], &[5.0][..]));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TransposePlan {
    /// Rows and columns of A.
    shape: (usize, usize),
    positions: Vec<Offset>,
}

impl TransposePlan {
    /// Finds the pattern of A^T. Returns the plan, and A^T with all values +0, for [`TransposePlan::numeric`]. In
    /// parallel.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub fn symbolic<T: Real>(a: &Csr<T>) -> Result<(Self, Csr<T>)> {
        let shape = (a.nrows(), a.ncols());
        // Entries are below 2^31.
        let (row_ptr, col_idx, positions) = transposed(shape.1, a.row_ptr(), a.col_idx(), |e| e as Offset)?;
        let values = zeroed(positions.len(), "values")?;
        // SAFETY: as in `Csr::try_transpose`: rows are taken in order, so that they ascend in every column, and the
        // pointers count the entries of columns.
        let t = unsafe { Csr::new_unchecked(shape.1, shape.0, row_ptr, col_idx, values) };
        Ok((Self { shape, positions }, t))
    }

    /// Writes the values of A to A^T. The matrices have the patterns of the symbolic phase; this is not checked beyond
    /// their sizes. In parallel.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless both matrices have the rows, columns and number of entries of the symbolic phase,
    /// with A^T unchanged.
    pub fn numeric<T: Real>(&self, a: &Csr<T>, t: &mut Csr<T>) -> Result<()> {
        self.numeric_by(&RayonTeam, a, t)
    }

    /// As [`TransposePlan::numeric`], by the threads of `team`.
    ///
    /// # Errors
    /// As [`TransposePlan::numeric`].
    pub fn numeric_by<T: Real>(&self, team: &impl Team, a: &Csr<T>, t: &mut Csr<T>) -> Result<()> {
        self.expect([(a.nrows(), a.ncols(), a.nnz()), (t.nrows(), t.ncols(), t.nnz())])?;
        let nnz = self.positions.len();
        let tasks = (nnz / TASK).clamp(1, TASKS_PER_THREAD * team.threads());
        let width = nnz.div_ceil(tasks).max(1);
        let from = a.values();
        let places = Rooms::new(t.values_mut().chunks_mut(width).collect());
        team.run(nnz.div_ceil(width), &|task| {
            let Some(to) = places.take(task) else { return };
            let part: Range<usize> = task * width..task * width + to.len();
            to.iter_mut().zip(&self.positions[part]).for_each(|(to, &at)| *to = from[at as usize]);
        });
        Ok(())
    }

    /// Checks (rows, columns, entries) of A and A^T against those of the symbolic phase.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] that names the matrix.
    fn expect(&self, found: [(usize, usize, usize); 2]) -> Result<()> {
        let ((nrows, ncols), nnz) = (self.shape, self.positions.len());
        let wanted = [(nrows, ncols, nnz), (ncols, nrows, nnz)];
        let what = [
            ["a column of A", "a row of A", "the values of A"],
            ["a column of A^T", "a row of A^T", "the values of A^T"],
        ];
        expect_sizes("transpose", what, found, wanted)
    }

    /// The position in A of each entry of A^T, in the order of the latter.
    pub fn positions(&self) -> &[Offset] {
        &self.positions
    }
}
