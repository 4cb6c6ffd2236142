//! Symmetry: entries compared with their mirror images.
//!
//! Cost: for each entry a look into the row of its mirror image (a scan of short rows, a search in long ones), rows in
//! parallel, up to the first that differs; no transpose and no other memory.

use rayon::prelude::*;

use crate::{Csr, Format, Real};

/// Rows per parallel task.
const CHUNK: usize = 1024;
/// Rows of at most so many entries are scanned rather than searched.
const SHORT: usize = 16;

impl<T: Real> Csr<T> {
    /// Whether A = A^T exactly: values equal as numbers (0 = -0, NaN differs from itself), and an absent entry is a zero.
    /// False where the matrix is not square.
    pub fn is_symmetric(&self) -> bool {
        self.nrows() == self.ncols() && mirrored(self, |v, mirror| v == mirror.unwrap_or_else(T::zero))
    }

    /// Whether every row has an entry on the diagonal, of which `holds` is true. A search in each row, rows in parallel.
    pub fn diagonal_holds(&self, holds: impl Fn(T) -> bool + Sync) -> bool {
        rows(self).all(|i| self.get(i, i).is_some_and(&holds))
    }
}

/// Whether `agree(a_ij, a_ji)` holds for every entry of a square matrix; the second is [`None`] where nothing is stored.
pub(crate) fn mirrored<T: Real>(csr: &Csr<T>, agree: impl Fn(T, Option<T>) -> bool + Sync) -> bool {
    rows(csr).all(|i| unmatched(csr, i, |_, v, mirror| agree(v, mirror)).is_none())
}

/// The first entry (row, column) in CSR's order of which `agree(on the diagonal, a_ij, a_ji)` is false.
pub(crate) fn first_unmatched<T: Real>(
    csr: &Csr<T>,
    agree: impl Fn(bool, T, Option<T>) -> bool + Sync,
) -> Option<(usize, usize)> {
    rows(csr).find_map_first(|i| unmatched(csr, i, &agree).map(|j| (i, j)))
}

fn rows<T: Real>(csr: &Csr<T>) -> impl IndexedParallelIterator<Item = usize> {
    (0..csr.nrows()).into_par_iter().with_min_len(CHUNK)
}

fn unmatched<T: Real>(csr: &Csr<T>, i: usize, agree: impl Fn(bool, T, Option<T>) -> bool) -> Option<usize> {
    let (cols, values) = csr.row(i);
    let differs = |(&j, &v): (&u32, &T)| !agree(j as usize == i, v, entry(csr, j as usize, i as u32));
    cols.iter().zip(values).find(|&pair| differs(pair)).map(|(&j, _)| j as usize)
}

fn entry<T: Real>(csr: &Csr<T>, i: usize, j: u32) -> Option<T> {
    let (cols, values) = csr.row(i);
    if cols.len() > SHORT {
        return cols.binary_search(&j).ok().map(|k| values[k]);
    }
    // Without a branch per column: how many lie before j is where j would be.
    let before = cols.iter().map(|&col| usize::from(col < j)).sum::<usize>();
    (cols.get(before) == Some(&j)).then(|| values[before])
}
