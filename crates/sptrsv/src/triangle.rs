//! The triangles of a square matrix: extracted, checked, with the reciprocals of their diagonal.
//!
//! Invariants of [`Triangular`]: it is square and has no entry on the other side of the diagonal. Unless the diagonal
//! is declared to be 1, every row stores a diagonal entry, and that entry is not zero. Columns ascend strictly in a row
//! (CSR), so the diagonal entry is the last of a row of a lower triangle and the first of a row of an upper one.
//! Cost: [`split`] reads the matrix once and writes each entry once, diagonal entries twice: O(nnz + nrows).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use spandrel_formats::{Csr, Offset, Ordinal, Real};

use crate::{Error, Result};

/// Minimum number of rows per parallel task.
const CHUNK: usize = 1 << 12;

/// A side of the diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Triangle {
    /// Columns up to the row's own index: solved forwards.
    Lower,
    /// Columns from the row's own index on: solved backwards.
    Upper,
}

impl Triangle {
    /// Returns true if an entry at (`row`, `col`) lies strictly inside the triangle, off the diagonal.
    pub fn holds(self, row: usize, col: usize) -> bool {
        match self {
            Triangle::Lower => col < row,
            Triangle::Upper => col > row,
        }
    }

    /// The triangle of the transposed matrix.
    #[must_use]
    pub fn transposed(self) -> Self {
        match self {
            Triangle::Lower => Triangle::Upper,
            Triangle::Upper => Triangle::Lower,
        }
    }

    /// The row that is solved `k`-th out of `n`.
    pub(crate) fn row(self, k: usize, n: usize) -> usize {
        match self {
            Triangle::Lower => k,
            Triangle::Upper => n - 1 - k,
        }
    }
}

impl fmt::Display for Triangle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Triangle::Lower => "lower",
            Triangle::Upper => "upper",
        })
    }
}

/// What the diagonal of a triangle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Diagonal {
    /// Ones, which are not stored. A stored diagonal entry is ignored.
    Unit,
    /// The stored entries.
    NonUnit,
}

/// Both triangles of a square matrix, each with the stored diagonal entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts<T> {
    /// Entries with column <= row.
    pub lower: Csr<T>,
    /// Entries with column >= row.
    pub upper: Csr<T>,
}

/// Extracts both triangles of a square matrix, each with the stored diagonal entries. Entries keep their order.
///
/// # Errors
/// [`Error::NotSquare`].
pub fn split<T: Real>(csr: &Csr<T>) -> Result<Parts<T>> {
    Ok(Parts { lower: part(csr, Triangle::Lower)?, upper: part(csr, Triangle::Upper)? })
}

/// Extracts one triangle of a square matrix, with the stored diagonal entries. Entries keep their order.
///
/// # Errors
/// [`Error::NotSquare`].
pub fn part<T: Real>(csr: &Csr<T>, triangle: Triangle) -> Result<Csr<T>> {
    square(csr)?;
    let n = csr.nrows();
    let kept = |i: usize| -> Range<usize> {
        let (cols, _) = csr.row(i);
        match triangle {
            Triangle::Lower => 0..cols.partition_point(|&j| j as usize <= i),
            Triangle::Upper => cols.partition_point(|&j| (j as usize) < i)..cols.len(),
        }
    };
    let mut row_ptr: Vec<Offset> = Vec::with_capacity(n + 1);
    row_ptr.push(0);
    let mut total = 0;
    for i in 0..n {
        total += kept(i).len() as Offset;
        row_ptr.push(total);
    }
    let mut col_idx: Vec<Ordinal> = Vec::with_capacity(total as usize);
    let mut values: Vec<T> = Vec::with_capacity(total as usize);
    for i in 0..n {
        let (cols, vals) = csr.row(i);
        col_idx.extend_from_slice(&cols[kept(i)]);
        values.extend_from_slice(&vals[kept(i)]);
    }
    Ok(Csr::new(n, n, row_ptr, col_idx, values)?)
}

/// The triangles I + D^-1 L and I + D^-1 U of A = L + D + U. The ones are not stored. Each value is divided by its
/// row's diagonal entry and rounded once.
#[derive(Clone, Debug)]
pub struct Halves<T> {
    /// I + D^-1 L.
    pub lower: Arc<Triangular<T>>,
    /// I + D^-1 U.
    pub upper: Arc<Triangular<T>>,
}

impl<T: Real> Halves<T> {
    /// Makes both triangles from a matrix and its [`divisors`], with rows in parallel.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Shape`] unless there is one divisor per row.
    pub fn of(csr: &Csr<T>, divisors: &[T]) -> Result<Self> {
        square(csr)?;
        let n = csr.nrows();
        if divisors.len() != n {
            return Err(Error::Shape { what: "the diagonal", found: divisors.len(), expected: n });
        }
        // Count the entries before the diagonal once for both halves. Rows are short, so count without a branch per
        // entry.
        let before = |i: usize| csr.row(i).0.iter().map(|&j| Ordinal::from((j as usize) < i)).sum::<Ordinal>();
        let before: Vec<Ordinal> = (0..n).into_par_iter().with_min_len(CHUNK).map(before).collect();
        let half = |triangle| -> Result<_> {
            let kept = |i: usize| {
                let (cols, below) = (csr.row(i).0, before[i] as usize);
                match triangle {
                    Triangle::Lower => 0..below,
                    Triangle::Upper => below + usize::from(cols.get(below) == Some(&(i as Ordinal)))..cols.len(),
                }
            };
            let fill = |i: usize, cols: &mut [Ordinal], values: &mut [T]| {
                let ((from, vals), kept, divisor) = (csr.row(i), kept(i), divisors[i]);
                cols.copy_from_slice(&from[kept.clone()]);
                values.iter_mut().zip(&vals[kept]).for_each(|(value, &v)| *value = v / divisor);
            };
            let csr = Csr::from_rows(n, n, |i| kept(i).len(), fill)?;
            Ok(Arc::new(Triangular::new(csr, triangle, Diagonal::Unit)?))
        };
        Ok(Self { lower: half(Triangle::Lower)?, upper: half(Triangle::Upper)? })
    }
}

/// Returns the diagonal of a square matrix after checking that every entry can be a divisor: finite, not zero, with a
/// finite reciprocal. Rows in parallel.
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::MissingDiagonal`], [`Error::ZeroDiagonal`], [`Error::NotFinite`], each with the first
/// such row.
pub fn divisors<T: Real>(csr: &Csr<T>) -> Result<Vec<T>> {
    square(csr)?;
    let entry = |row: usize| match csr.get(row, row) {
        None => Err(Error::MissingDiagonal { row }),
        Some(d) if d == T::zero() => Err(Error::ZeroDiagonal { row }),
        Some(d) if !d.is_finite() || !d.recip().is_finite() => Err(Error::NotFinite { row }),
        Some(d) => Ok(d),
    };
    filled(csr.nrows(), entry)
}

/// Computes `entry` for each row in parallel and returns the results, or the error of the first row that fails.
fn filled<T: Real>(nrows: usize, entry: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let mut made = vec![T::zero(); nrows];
    // In chunks, because a parallel search checks for an earlier hit at every item.
    let store = |(chunk, places): (usize, &mut [T])| {
        let mut rows = (chunk * CHUNK..).zip(places);
        rows.find_map(|(i, place)| entry(i).map(|entry| *place = entry).err())
    };
    match made.par_chunks_mut(CHUNK).enumerate().find_map_first(store) {
        Some(error) => Err(error),
        None => Ok(made),
    }
}

pub(crate) fn square<T: Real>(csr: &Csr<T>) -> Result<()> {
    if csr.nrows() != csr.ncols() {
        return Err(Error::NotSquare { nrows: csr.nrows(), ncols: csr.ncols() });
    }
    Ok(())
}

/// A triangle that has been checked and can be solved with. See the module's head for its invariants.
#[derive(Clone, Debug)]
pub struct Triangular<T> {
    csr: Csr<T>,
    triangle: Triangle,
    diagonal: Diagonal,
    inv_diag: Vec<T>,
}

impl<T: Real> Triangular<T> {
    /// Checks every invariant of a triangle in O(nnz) and computes the reciprocals 1/d, each rounded once. If d is so
    /// small that 1/d overflows, the solution is infinite, as it would be with a division.
    ///
    /// # Errors
    /// [`Error::NotSquare`], [`Error::NotTriangular`], [`Error::MissingDiagonal`], [`Error::ZeroDiagonal`], each with
    /// the first such row.
    pub fn new(csr: Csr<T>, triangle: Triangle, diagonal: Diagonal) -> Result<Self> {
        square(&csr)?;
        // Columns ascend, so the outermost column decides.
        let furthest = |i: usize| match triangle {
            Triangle::Lower => csr.row(i).0.last(),
            Triangle::Upper => csr.row(i).0.first(),
        };
        let outside = |i: usize, j: usize| j != i && !triangle.holds(i, j);
        let is_wrong = |&i: &usize| furthest(i).is_some_and(|&j| outside(i, j as usize));
        let n = csr.nrows();
        let wrong = |chunk: usize| (chunk * CHUNK..n.min((chunk + 1) * CHUNK)).find(is_wrong);
        if let Some(row) = (0..n.div_ceil(CHUNK)).into_par_iter().find_map_first(wrong) {
            let col = csr.row(row).0.iter().find(|&&j| outside(row, j as usize)).map_or(row, |&j| j as usize);
            return Err(Error::NotTriangular { triangle, row, col });
        }
        let inv_diag = reciprocals(&csr, csr.values(), triangle, diagonal)?;
        Ok(Self { csr, triangle, diagonal, inv_diag })
    }

    /// Sets new values, in the order of the stored entries. The pattern stays.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many values as entries; [`Error::ZeroDiagonal`]. After an error the
    /// triangle is unchanged.
    pub fn set_values(&mut self, values: &[T]) -> Result<()> {
        if values.len() != self.csr.nnz() {
            return Err(Error::Shape { what: "values", found: values.len(), expected: self.csr.nnz() });
        }
        self.inv_diag = reciprocals(&self.csr, values, self.triangle, self.diagonal)?;
        self.csr.values_mut().copy_from_slice(values);
        Ok(())
    }

    /// Number of rows, which is also the number of columns.
    pub fn nrows(&self) -> usize {
        self.csr.nrows()
    }
    /// The stored entries.
    pub fn csr(&self) -> &Csr<T> {
        &self.csr
    }
    /// Which triangle.
    pub fn triangle(&self) -> Triangle {
        self.triangle
    }
    /// What the diagonal holds.
    pub fn diagonal(&self) -> Diagonal {
        self.diagonal
    }
    /// 1/d of every row; empty for a unit diagonal.
    pub fn inv_diag(&self) -> &[T] {
        &self.inv_diag
    }
    /// Returns the stored entries without a copy.
    pub fn into_csr(self) -> Csr<T> {
        self.csr
    }

    /// Columns and values of row `i` off the diagonal, in stored order.
    ///
    /// # Panics
    /// If `i >= nrows`, like indexing a slice.
    pub fn off_diagonal(&self, i: usize) -> (&[Ordinal], &[T]) {
        let (cols, values) = self.csr.row(i);
        match (diagonal_at(cols, self.triangle, i), self.triangle) {
            (None, _) => (cols, values),
            (Some(k), Triangle::Lower) => (&cols[..k], &values[..k]),
            (Some(k), Triangle::Upper) => (&cols[k + 1..], &values[k + 1..]),
        }
    }
}

/// 1/d of every row, for `values` on the pattern of `csr`; empty for a unit diagonal.
fn reciprocals<T: Real>(csr: &Csr<T>, values: &[T], triangle: Triangle, diagonal: Diagonal) -> Result<Vec<T>> {
    if diagonal == Diagonal::Unit {
        return Ok(Vec::new());
    }
    let inverse = |i: usize| {
        let at = csr.row_ptr()[i] as usize;
        match diagonal_at(csr.row(i).0, triangle, i).map(|k| values[at + k]) {
            None => Err(Error::MissingDiagonal { row: i }),
            Some(d) if d == T::zero() => Err(Error::ZeroDiagonal { row: i }),
            Some(d) => Ok(T::one() / d),
        }
    };
    filled(csr.nrows(), inverse)
}

/// Position of the diagonal entry in a row of a triangle: the end of a lower row, the start of an upper one.
fn diagonal_at(cols: &[Ordinal], triangle: Triangle, row: usize) -> Option<usize> {
    let k = match triangle {
        Triangle::Lower => cols.len().checked_sub(1)?,
        Triangle::Upper => 0,
    };
    cols.get(k).filter(|&&j| j as usize == row).map(|_| k)
}
