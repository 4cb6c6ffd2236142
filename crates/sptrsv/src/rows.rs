//! A triangle with an index of its columns if T^T is solved too. Plans that solve row by row from stored entries hold
//! this.
//!
//! Layout of the index: entries `col_ptr[j] .. col_ptr[j+1]` of row j of T^T are T's stored entries in column j, with
//! the diagonal. `row_idx[e]` is the row of T, and `from[e]` is the position among T's values. Rows ascend, so row j of
//! T^T is sorted like a CSR row. The values are T's own; there is no second copy.
//! Cost: 8 nnz + 4 (nrows + 1) bytes for the index, made in O(nnz).

use std::ops::Range;
use std::sync::Arc;

use spandrel_formats::{Offset, Ordinal, Real};

use crate::{Error, Result, System, Systems, Triangle, Triangular};

/// The index of a triangle's columns. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    col_ptr: Vec<Offset>,
    row_idx: Vec<Ordinal>,
    from: Vec<Offset>,
}

impl Columns {
    /// Indexes the columns of a triangle.
    pub fn of<T: Real>(matrix: &Triangular<T>) -> Self {
        let (n, row_ptr, col_idx) = (matrix.nrows(), matrix.csr().row_ptr(), matrix.csr().col_idx());
        let mut col_ptr = vec![0 as Offset; n + 1];
        for &j in col_idx {
            col_ptr[j as usize + 1] += 1;
        }
        for j in 0..n {
            col_ptr[j + 1] += col_ptr[j];
        }
        let mut next = col_ptr.clone();
        let (mut row_idx, mut from) = (vec![0 as Ordinal; col_idx.len()], vec![0 as Offset; col_idx.len()]);
        for i in 0..n {
            for e in row_ptr[i]..row_ptr[i + 1] {
                let at = &mut next[col_idx[e as usize] as usize];
                row_idx[*at as usize] = i as Ordinal;
                from[*at as usize] = e;
                *at += 1;
            }
        }
        Self { col_ptr, row_idx, from }
    }

    /// Where each column's entries begin: `nrows + 1` offsets.
    pub fn col_ptr(&self) -> &[Offset] {
        &self.col_ptr
    }
    /// Row of each entry, ascending within a column.
    pub fn row_idx(&self) -> &[Ordinal] {
        &self.row_idx
    }
    /// Position of each entry among the triangle's stored values.
    pub fn from(&self) -> &[Offset] {
        &self.from
    }
    /// Bytes of the index.
    pub fn storage(&self) -> u64 {
        4 * (self.col_ptr.len() + self.row_idx.len() + self.from.len()) as u64
    }
}

/// A triangle, with the index of its columns if T^T is solved too.
#[derive(Clone, Debug)]
pub struct Rows<T> {
    matrix: Arc<Triangular<T>>,
    columns: Option<Arc<Columns>>,
}

impl<T: Real> Rows<T> {
    /// Takes a triangle and indexes its columns if needed.
    pub fn new(matrix: Arc<Triangular<T>>, systems: Systems) -> Self {
        let columns = (systems == Systems::Both).then(|| Arc::new(Columns::of(&matrix)));
        Self { matrix, columns }
    }
    /// The triangle.
    pub fn matrix(&self) -> &Arc<Triangular<T>> {
        &self.matrix
    }
    /// The index of its columns, if T^T is solved too.
    pub fn columns(&self) -> Option<&Arc<Columns>> {
        self.columns.as_ref()
    }
    /// The systems that can be solved.
    pub fn systems(&self) -> Systems {
        if self.columns.is_some() { Systems::Both } else { Systems::Plain }
    }
    /// Sets new values. See [`crate::Plan::update`].
    ///
    /// # Errors
    /// As [`Triangular::set_values`].
    pub fn update(&mut self, values: &[T]) -> Result<()> {
        Arc::make_mut(&mut self.matrix).set_values(values)
    }
    /// Bytes of the rows of each system, each as many as the triangle's arrays, and of the reciprocals. A device that
    /// holds the values once, as the host does, has 4 bytes per entry instead of the second copy.
    pub fn storage(&self) -> u64 {
        let systems = if self.columns.is_some() { 2 } else { 1 };
        systems * self.storage_of_rows() + (T::BYTES * self.matrix.inv_diag().len()) as u64
    }
    /// Bytes of the rows of one system, or of its columns, with their values.
    pub(crate) fn storage_of_rows(&self) -> u64 {
        let csr = self.matrix.csr();
        (4 * csr.row_ptr().len() + (4 + T::BYTES) * csr.values().len()) as u64
    }
    /// Bytes of a solve of T x = b: the triangle's arrays, the reciprocals, b and x.
    pub fn sptrsv_bytes(&self) -> u64 {
        let csr = self.matrix.csr();
        let n = self.matrix.nrows();
        (4 * (n + 1) + (4 + T::BYTES) * csr.values().len() + T::BYTES * (self.matrix.inv_diag().len() + 2 * n)) as u64
    }
    /// The rows of a system, as a solve walks through them.
    ///
    /// # Errors
    /// [`Error::NotAnalyzed`] for the transposed system without its index.
    pub fn view(&self, system: System) -> Result<View<'_, T>> {
        let rows = View::of(&self.matrix);
        match (system, &self.columns) {
            (System::Plain, _) => Ok(rows),
            (System::Transposed, Some(c)) => {
                let triangle = rows.triangle.transposed();
                Ok(View { ptr: c.col_ptr(), idx: c.row_idx(), from: Some(c.from()), triangle, ..rows })
            }
            (System::Transposed, None) => Err(Error::NotAnalyzed),
        }
    }
}

/// The rows of T or of T^T.
///
/// Row i has the entries `ptr[i] .. ptr[i+1]`. Entry e is in column `idx[e]` and has the value `values[from[e]]`, or
/// `values[e]` without `from`. A stored diagonal entry is the last in a row of a lower triangle and the first in a row
/// of an upper one.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    /// Where each row begins.
    pub ptr: &'a [Offset],
    /// Column of each entry.
    pub idx: &'a [Ordinal],
    /// Position of each entry's value, or `None` if that is the entry's own position.
    pub from: Option<&'a [Offset]>,
    /// The triangle's values.
    pub values: &'a [T],
    /// 1/d of each row; empty for a unit diagonal.
    pub inv_diag: &'a [T],
    /// Which triangle these rows form.
    pub triangle: Triangle,
}

impl<'a, T: Real> View<'a, T> {
    /// The rows of a triangle.
    pub fn of(matrix: &'a Triangular<T>) -> Self {
        let (csr, inv_diag, triangle) = (matrix.csr(), matrix.inv_diag(), matrix.triangle());
        Self { ptr: csr.row_ptr(), idx: csr.col_idx(), from: None, values: csr.values(), inv_diag, triangle }
    }

    /// The row that is solved `k`-th. It is its own inverse: for a row it returns the k at which that row is solved.
    #[inline]
    pub fn row(&self, k: usize) -> usize {
        self.triangle.row(k, self.ptr.len() - 1)
    }

    /// Number of entries of a row off the diagonal.
    #[inline]
    pub fn degree(&self, i: usize) -> u32 {
        self.off_diagonal(i).len() as u32
    }

    /// Positions of a row's entries off the diagonal.
    #[inline(always)]
    pub fn off_diagonal(&self, i: usize) -> Range<usize> {
        let (begin, end) = (self.ptr[i] as usize, self.ptr[i + 1] as usize);
        match self.triangle {
            _ if begin == end => begin..end,
            Triangle::Lower => begin..end - usize::from(self.idx[end - 1] as usize == i),
            Triangle::Upper => begin + usize::from(self.idx[begin] as usize == i)..end,
        }
    }

    /// Computes x_i from b_i and the elements of x solved before, in the order of [`crate::serial`]. `x` returns solved
    /// elements.
    #[inline(always)]
    pub fn solve_row(&self, i: usize, b: T, mut x: impl FnMut(usize) -> T) -> T {
        let Range { start, end } = self.off_diagonal(i);
        let value = |e: usize| self.values[self.from.map_or(e, |from| from[e] as usize)];
        let mut s = b;
        // One loop for both triangles: a closure called in two places is not inlined, and then loses the caller's
        // vector instructions.
        for k in 0..end - start {
            let e = match self.triangle {
                Triangle::Lower => start + k,
                Triangle::Upper => end - 1 - k,
            };
            s = (-value(e)).mul_add(x(self.idx[e] as usize), s);
        }
        match self.inv_diag.get(i) {
            Some(&inv) => s * inv,
            None => s,
        }
    }
}
