//! Runs of rows: a row followed by rows that repeat its pattern, each shifted by one column.
//!
//! Layout: the first row of each run, in chunks of [`CHUNK`] rows, which runs do not cross. A run's pattern is that of
//! its first row. On a grid a line has few runs, and its interior is one of them. So code that works on runs instead of
//! rows has little to do.
//! Cost: one parallel pass over row pointers and columns, compared without a branch per entry; 4 bytes per run.

use std::ops::Range;

use rayon::prelude::*;

use crate::{Csr, Offset, Ordinal, Real};

/// Rows per task.
const CHUNK: usize = 8192;
/// Maximum number of rows that are compared at once.
const BLOCK: usize = 64;

/// The runs of a matrix.
#[derive(Debug)]
pub struct Runs<'a, T> {
    csr: &'a Csr<T>,
    chunks: Vec<Vec<Ordinal>>,
}

impl<'a, T: Real> Runs<'a, T> {
    /// Finds the runs of a matrix.
    pub fn of(csr: &'a Csr<T>) -> Self {
        Self { csr, chunks: run_starts(csr.row_ptr(), csr.col_idx()) }
    }

    /// The matrix.
    pub fn csr(&self) -> &'a Csr<T> {
        self.csr
    }

    /// Number of chunks, each of which can be a parallel task.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The runs of a chunk, ascending.
    ///
    /// # Panics
    /// Unless `chunk < chunks()`.
    pub fn chunk(&self, chunk: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let (first, end) = (&self.chunks[chunk], self.csr.nrows().min((chunk + 1) * CHUNK));
        let ends = first.iter().skip(1).map(|&row| row as usize).chain([end]);
        first.iter().map(|&row| row as usize).zip(ends).map(|(begin, end)| begin..end)
    }
}

/// The first row of each run of a pattern given by CSR's row pointers and columns, by chunks of rows. All of them
/// together ascend, and a run ends where the next one begins.
///
/// # Panics
/// If a pointer lies outside `col_idx`, or if `row_ptr` is empty.
pub fn run_starts(row_ptr: &[Offset], col_idx: &[Ordinal]) -> Vec<Vec<Ordinal>> {
    let n = row_ptr.len() - 1;
    let find = |chunk: usize| {
        let (mut row, end) = (chunk * CHUNK, n.min((chunk + 1) * CHUNK));
        let mut first = Vec::new();
        while row < end {
            first.push(row as Ordinal);
            row = run_end(row_ptr, col_idx, row, end);
        }
        first
    };
    (0..n.div_ceil(CHUNK)).into_par_iter().map(find).collect()
}

/// Finds where the run that begins with `row` ends, at most at `end`. The blocks grow while they belong to the run and
/// shrink at its end. The run may be cut short there; the next run then has the same pattern.
fn run_end(row_ptr: &[Offset], col_idx: &[Ordinal], row: usize, end: usize) -> usize {
    let (mut last, mut step, mut grows) = (row + 1, 1, true);
    while last < end && step > 0 {
        let count = step.min(end - last);
        if are_repeated(&row_ptr[last - 1..=last + count], col_idx) {
            last += count;
            step = if grows { (2 * step).min(BLOCK) } else { step / 2 };
        } else {
            (step, grows) = (count / 2, false);
        }
    }
    last
}

/// Returns true if all rows between these pointers repeat the first one, shifted along the diagonal.
fn are_repeated(ptr: &[Offset], col_idx: &[Ordinal]) -> bool {
    let width = ptr[1] - ptr[0];
    if ptr.windows(2).fold(0, |any, ends| any | (ends[1] - ends[0]) ^ width) != 0 {
        return false;
    }
    let cols = &col_idx[ptr[0] as usize..ptr[ptr.len() - 1] as usize];
    cols.iter().zip(&cols[width as usize..]).fold(0, |any, (col, next)| any | next.wrapping_sub(*col) ^ 1) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_the_rows_in_order_and_each_is_one_pattern() {
        // Widths and shifts that change at irregular places, over more than one chunk.
        let n = 3 * CHUNK + 17;
        let mut state = 9u64;
        let (mut row_ptr, mut cols, mut kind) = (vec![0u32], Vec::new(), 0);
        for i in 0..n {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (state >> 33).is_multiple_of(7 + (i as u64 / 4000) * 40) {
                kind = (state >> 40) as usize % 4;
            }
            let shifts: &[usize] = [&[0][..], &[2, 0], &[5, 2, 0], &[]][kind];
            cols.extend(shifts.iter().filter(|&&s| s <= i).map(|&s| (i - s) as u32));
            row_ptr.push(cols.len() as u32);
        }
        let values = vec![1.0f64; cols.len()];
        let csr = Csr::new(n, n, row_ptr, cols, values).expect("a matrix");
        let runs = Runs::of(&csr);
        let mut at = 0;
        let mut count = 0;
        for run in (0..runs.chunks()).flat_map(|chunk| runs.chunk(chunk)) {
            assert_eq!(run.start, at);
            assert!(run.end > at);
            let shape = |i: usize| csr.row(i).0.iter().map(|&j| i - j as usize).collect::<Vec<_>>();
            assert!(run.clone().all(|i| shape(i) == shape(run.start)), "{run:?}");
            (at, count) = (run.end, count + 1);
        }
        assert_eq!(at, n);
        assert!(count < n / 2, "{count}");
    }
}
