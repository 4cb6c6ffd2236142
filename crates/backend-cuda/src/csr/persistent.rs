//! CSR in a persistent solve: how far a thread block's rows reach, and the launches.

use rayon::prelude::*;
use spandrel_backend::Result;
use spandrel_formats::{Csr, Offset, Real};

use super::{CsrKernel, CudaCsr};
use crate::launch::{BLOCK, Own};
use crate::module::CSR;
use crate::persistent::{Reach, Resident};
use crate::{Cuda, Monitor, Scalar, Vector};

/// Rows that every thread block of a persistent solve has a multiple of, but the last.
const PERSISTENT_ROWS: usize = 128;

/// How far entries lie from the main diagonal, and the most entries of so many rows together, for each of the rows, rounded up.
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
    /// As a persistent kernel sees it, and lanes a row; `None` where it is too large, or its kernel's order is another.
    fn persistent(&self) -> Option<(Resident<'static>, u32)> {
        let lanes = match self.kernel {
            CsrKernel::Scalar | CsrKernel::Staged => 1,
            CsrKernel::Vector(lanes) => lanes,
            CsrKernel::Binned | CsrKernel::Balanced => return None,
        };
        let (reach, units) = self.reach?;
        let resident = Resident {
            source: &CSR,
            n: self.nrows,
            below: reach.below,
            above: reach.above,
            // The ends of at most 1024 rows.
            fixed: ((BLOCK + 1) * size_of::<Offset>()).next_multiple_of(16),
            units,
            unit: T::BYTES + size_of::<u32>(),
        };
        Some((resident, lanes))
    }

    /// What persistent kernels take of it: row_ptr, col_idx, values, lanes.
    fn resident_arguments(&self, lanes: u32) -> [Own<'static>; 4] {
        [self.row_ptr.pointer().into(), self.col_idx.pointer().into(), self.values.pointer().into(), lanes.into()]
    }

    pub(crate) fn cg_iterations(
        &self,
        cuda: &Cuda,
        count: usize,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        q: &mut Vector<T>,
        pq: &mut Scalar<T>,
        rr: &mut Scalar<T>,
        rz: &mut Scalar<T>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, lanes)) = self.persistent() else {
            return Ok(false);
        };
        let matrix = self.resident_arguments(lanes);
        // SAFETY: cg_csr(row_ptr, col_idx, values, lanes, ...) of a square matrix with this reach.
        unsafe { cuda.cg_persistent(&resident, "cg_csr", &matrix, count, x, r, p, q, pq, rr, rz, monitor) }
    }

    pub(crate) fn bicgstab_iterations(
        &self,
        cuda: &Cuda,
        count: usize,
        shadow: &Vector<T>,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        v: &mut Vector<T>,
        t: &mut Vector<T>,
        scalars: [&mut Scalar<T>; 7],
        monitor: &mut Monitor,
    ) -> Result<bool> {
        let Some((resident, lanes)) = self.persistent() else {
            return Ok(false);
        };
        let matrix = self.resident_arguments(lanes);
        // SAFETY: bicgstab_csr(row_ptr, col_idx, values, lanes, ...) of a square matrix with this reach.
        unsafe {
            cuda.bicgstab_persistent(&resident, "bicgstab_csr", &matrix, count, shadow, x, r, p, v, t, scalars, monitor)
        }
    }
}
