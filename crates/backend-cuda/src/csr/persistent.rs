//! CSR in a persistent solve: how far a thread block's rows reach, and what its kernels take.

use rayon::prelude::*;
use spandrel_formats::{Csr, Format, Offset, Real};

use super::{CsrKernel, CudaCsr};
use crate::launch::BLOCK;
use crate::module::CSR;
use crate::persistent::{Persistent, Persists, Reach};

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

// SAFETY: cg_csr and bicgstab_csr (row_ptr, col_idx, values, lanes, ...) of a square matrix with this reach.
unsafe impl<T: Real> Persists for CudaCsr<T> {
    fn persistent(&self) -> Option<Persistent> {
        let lanes: u32 = match self.kernel {
            CsrKernel::Scalar | CsrKernel::Staged => 1,
            CsrKernel::Vector(lanes) => lanes,
            // Their order is another.
            CsrKernel::Binned | CsrKernel::Balanced => return None,
        };
        let (Reach { below, above }, units) = self.reach?;
        Some(Persistent {
            source: &CSR,
            cg: "cg_csr",
            bicgstab: "bicgstab_csr",
            matrix: vec![
                self.row_ptr.pointer().into(),
                self.col_idx.pointer().into(),
                self.values.pointer().into(),
                lanes.into(),
            ],
            n: self.nrows,
            below,
            above,
            // The ends of at most 1024 rows.
            fixed: ((BLOCK + 1) * size_of::<Offset>()).next_multiple_of(16),
            units,
            unit: T::BYTES + size_of::<u32>(),
        })
    }
}
