//! CSR in a persistent solve: the reach of a thread block's rows, and the launches.

use rayon::prelude::*;
use spandrel_backend::{BicgstabIterations, CgIterations, Result};
use spandrel_formats::{Csr, Offset, Real};

use super::{CsrKernel, CudaCsr};
use crate::kernel::{kernels, parameters};
use crate::launch::BLOCK;
use crate::memory::Address;
use crate::persistent::{BicgstabParameters, CgParameters, Persists, Reach, Resident};
use crate::{Cuda, Monitor, Scalar, Vector};

parameters! {
    /// The parameters of a matrix for persistent kernels.
    struct MatrixParameters { row_ptr: Address, col_idx: Address, values: Address, lanes: u32 }
}

kernels! {
    struct CgCsr { matrix: MatrixParameters, solve: CgParameters }
    in CSR { ENTRY: "cg_csr" }

    struct BicgstabCsr { matrix: MatrixParameters, solve: BicgstabParameters }
    in CSR { ENTRY: "bicgstab_csr" }
}

/// Every thread block of a persistent solve, except the last, has a multiple of this many rows.
const PERSISTENT_ROWS: usize = 128;

/// The distance of entries from the main diagonal, and the largest mean number of entries per row over all groups of
/// rows, rounded up.
pub(super) fn reach<T: Real>(m: &Csr<T>) -> (Reach, usize) {
    let (row_ptr, col_idx) = (m.row_ptr(), m.col_idx());
    let of_rows = |group: usize| {
        let rows = group * PERSISTENT_ROWS..(group * PERSISTENT_ROWS + PERSISTENT_ROWS).min(m.nrows());
        let entries = (row_ptr[rows.end] - row_ptr[rows.start]) as usize;
        let reach = rows.fold(Reach::default(), |reach, row| {
            // Columns ascend.
            match &col_idx[row_ptr[row] as usize..row_ptr[row + 1] as usize] {
                [] => reach,
                [first, .., last] => reach.or(Reach::of(row, *first as usize)).or(Reach::of(row, *last as usize)),
                [only] => reach.or(Reach::of(row, *only as usize)),
            }
        });
        (reach, entries.div_ceil(PERSISTENT_ROWS))
    };
    let merge = |(a, p): (Reach, usize), (b, q): (Reach, usize)| (a.or(b), p.max(q));
    (0..m.nrows().div_ceil(PERSISTENT_ROWS)).into_par_iter().map(of_rows).reduce(Default::default, merge)
}

impl<T: Real> CudaCsr<T> {
    /// The matrix as a persistent kernel sees it, and the lanes per row. `None` if it is too large or its kernel has
    /// another order.
    fn persistent(&self) -> Option<(Resident, u32)> {
        let lanes = match self.kernel {
            CsrKernel::Scalar | CsrKernel::Staged => 1,
            CsrKernel::Vector(lanes) => lanes,
            CsrKernel::Binned | CsrKernel::Balanced => return None,
        };
        let (reach, units) = self.reach?;
        let resident = Resident {
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            // The row pointers of at most 1024 rows.
            fixed: ((BLOCK + 1) * size_of::<Offset>()).next_multiple_of(16),
            units,
            unit: T::BYTES + size_of::<u32>(),
        };
        Some((resident, lanes))
    }

    /// Its parameters for persistent kernels.
    fn parameters(&self, lanes: u32) -> MatrixParameters {
        let (row_ptr, col_idx, values) = (self.row_ptr.pointer(), self.col_idx.pointer(), self.values.pointer());
        MatrixParameters { row_ptr, col_idx, values, lanes }
    }
}

impl<T: Real> Persists<T> for CudaCsr<T> {
    fn cg(
        &self,
        cuda: &Cuda,
        count: usize,
        on: CgIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, lanes)) = self.persistent() else {
            return Ok(false);
        };
        let matrix = self.parameters(lanes);
        let all = |solve| CgCsr { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&resident, CgCsr::ENTRY, all, count, on, monitor) }
    }

    fn bicgstab(
        &self,
        cuda: &Cuda,
        count: usize,
        on: BicgstabIterations<'_, Vector<T>, Scalar<T>>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, lanes)) = self.persistent() else {
            return Ok(false);
        };
        let matrix = self.parameters(lanes);
        let all = |solve| BicgstabCsr { matrix, solve };
        // SAFETY: the arrays of a square matrix with this reach.
        unsafe { cuda.bicgstab_persistent(&resident, BicgstabCsr::ENTRY, all, count, on, monitor) }
    }
}
