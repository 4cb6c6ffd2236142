//! Triplets: entries in any order, duplicates allowed, on their way to a matrix.
//!
//! Duplicates are summed in the order in which they were pushed (finite element assembly, Matrix Market files).
//!
//! There is no `FromIterator` and no `Extend`: an iterator does not know the shape of the matrix, and neither trait can
//! refuse an entry outside it. [`Triplets::from_entries`] and [`Triplets::extend`] take the same iterators and return a
//! `Result`.

use crate::counting::pointers;
use crate::index::{Offset, Ordinal, checked};
use crate::padding::zeroed;
use crate::{Csr, Error, Real, Result};

/// An assembly buffer of (row, column, value) entries.
///
/// ```
/// use spandrel_formats::Triplets;
///
/// let mut entries = Triplets::with_capacity(2, 2, 4)?;
/// entries.push(0, 0, 2.0)?;
/// entries.extend([(1, 1, 3.0), (0, 0, 0.5)])?; // (0, 0) again: summed
/// assert_eq!(entries.to_csr()?.get(0, 0), Some(2.5));
/// # Ok::<(), spandrel_formats::Error>(())
/// ```
#[doc(alias = "TriMat")]
#[doc(alias = "CooMatrix")]
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

    /// An empty buffer with room for `capacity` entries.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`].
    pub fn with_capacity(nrows: usize, ncols: usize, capacity: usize) -> Result<Self> {
        let mut triplets = Self::new(nrows, ncols)?;
        triplets.reserve(capacity)?;
        Ok(triplets)
    }

    /// Reserves room for `more` entries.
    fn reserve(&mut self, more: usize) -> Result<()> {
        checked(self.values.len().saturating_add(more), "entries")?;
        let bytes = more as u64 * (2 * size_of::<Ordinal>() + T::BYTES) as u64;
        let refused = |_| Error::OutOfMemory { what: "triplets", bytes };
        self.rows.try_reserve(more).map_err(refused)?;
        self.cols.try_reserve(more).map_err(refused)?;
        self.values.try_reserve(more).map_err(refused)
    }

    /// Makes a buffer of `entries`, each (row, column, value), in their order. The module's head says why this is no
    /// `FromIterator`.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::OutOfMemory`]; [`Error::IndexOutOfRange`] with the position of the entry that lies
    /// outside the matrix.
    pub fn from_entries(
        nrows: usize,
        ncols: usize,
        entries: impl IntoIterator<Item = (usize, usize, T)>,
    ) -> Result<Self> {
        let mut triplets = Self::new(nrows, ncols)?;
        triplets.extend(entries)?;
        Ok(triplets)
    }

    /// Number of rows of the matrix.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Number of columns of the matrix.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Adds all of `entries`, each (row, column, value), in their order.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] with the position of the entry that lies outside the matrix; the entries before it
    /// are added. [`Error::TooLarge`] and [`Error::OutOfMemory`] for the number of entries that `entries` announces;
    /// nothing is then added.
    pub fn extend(&mut self, entries: impl IntoIterator<Item = (usize, usize, T)>) -> Result<()> {
        let mut entries = entries.into_iter();
        self.reserve(entries.size_hint().0)?;
        entries.try_for_each(|(row, col, value)| self.push(row, col, value))
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] with its position among the entries, if it lies outside the matrix.
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

    /// Number of entries pushed so far.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns true if nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Makes CSR by two stable counting sorts, by column and then by row. Duplicates are summed in the order in which
    /// they were pushed.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if 2^31 or more entries were pushed; [`Error::OutOfMemory`].
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

/// Positions of `keys` in ascending order of key; equal keys stay in the order of `base`, or of their positions.
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
