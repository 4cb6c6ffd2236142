//! Triplets: entries in any order, duplicates allowed, on their way to a matrix.
//!
//! Duplicates are summed in the order in which they were pushed (finite element assembly, Matrix Market files).

use crate::counting::pointers;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Error, Real, Result};

/// An assembly buffer of (row, column, value) entries.
#[derive(Clone, Debug)]
pub struct Triplets<T> {
    nrows: usize,
    ncols: usize,
    rows: Vec<Ordinal>,
    cols: Vec<Ordinal>,
    values: Vec<T>,
}

impl<T: Real> Triplets<T> {
    /// An empty buffer for an `nrows` x `ncols` matrix.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn new(nrows: usize, ncols: usize) -> Result<Self> {
        checked(nrows, "rows")?;
        checked(ncols, "columns")?;
        Ok(Self { nrows, ncols, rows: Vec::new(), cols: Vec::new(), values: Vec::new() })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] outside the matrix.
    pub fn push(&mut self, row: usize, col: usize, value: T) -> Result<()> {
        let at = self.values.len();
        if row >= self.nrows {
            return Err(Error::IndexOutOfRange {
                format: "triplets",
                array: "rows",
                at,
                found: row as i64,
                bound: self.nrows,
            });
        }
        if col >= self.ncols {
            return Err(Error::IndexOutOfRange {
                format: "triplets",
                array: "cols",
                at,
                found: col as i64,
                bound: self.ncols,
            });
        }
        self.rows.push(row as Ordinal);
        self.cols.push(col as Ordinal);
        self.values.push(value);
        Ok(())
    }

    /// Entries pushed so far.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The matrix as CSR: two stable counting sorts (by column, then by row), duplicates summed in pushing order.
    ///
    /// # Errors
    /// [`Error::TooLarge`] with 2^31 or more entries pushed, [`Error::OutOfMemory`].
    pub fn to_csr(&self) -> Result<Csr<T>> {
        checked(self.values.len(), "entries")?;
        let by_col = stable_order(&self.cols, self.ncols, None)?;
        let order = stable_order(&self.rows, self.nrows, Some(&by_col))?;
        let mut row_ptr: Vec<Offset> = zeroed(self.nrows + 1, "row_ptr")?;
        let mut col_idx: Vec<Ordinal> = Vec::with_capacity(order.len());
        let mut values: Vec<T> = Vec::with_capacity(order.len());
        let mut last = None;
        for &k in &order {
            let k = k as usize;
            let (i, j, v) = (self.rows[k], self.cols[k], self.values[k]);
            if last == Some((i, j)) {
                let top = values.len() - 1;
                values[top] += v;
            } else {
                col_idx.push(j);
                values.push(v);
                row_ptr[i as usize + 1] += 1;
                last = Some((i, j));
            }
        }
        for i in 0..self.nrows {
            row_ptr[i + 1] += row_ptr[i];
        }
        Csr::new(self.nrows, self.ncols, row_ptr, col_idx, values)
    }
}

/// Positions of `keys` in ascending order of key, equal keys in the order of `base` (or of position).
fn stable_order(keys: &[Ordinal], bound: usize, base: Option<&[u32]>) -> Result<Vec<u32>> {
    let mut start = pointers(bound, keys.iter().copied())?;
    let mut order: Vec<u32> = zeroed(keys.len(), "order of entries")?;
    let mut place = |k: u32| {
        let slot = &mut start[keys[k as usize] as usize];
        order[*slot as usize] = k;
        *slot += 1;
    };
    match base {
        Some(base) => base.iter().for_each(|&k| place(k)),
        None => (0..keys.len() as u32).for_each(&mut place),
    }
    Ok(order)
}
