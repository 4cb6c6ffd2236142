//! A sparse vector: ascending positions and their values.
//!
//! Layout: `[. 5 . . 7 .]` is `len 6, indices 1 4, values 5 7`.
//! Invariants: `indices` ascend strictly, each < `len` < 2^31; as many `values` as `indices`.
//! Reference: Duff, Heroux, Pozo, An overview of the sparse BLAS, 2002 (level 1).

use crate::index::checked;
use crate::{Error, Ordinal, Real, Result, Traffic};

/// A vector of `len` elements, few of which are stored.
#[doc(alias = "CsVec")]
#[derive(Clone, Debug, PartialEq)]
pub struct SparseVec<T> {
    len: usize,
    indices: Vec<Ordinal>,
    values: Vec<T>,
}

impl<T: Real> SparseVec<T> {
    /// Makes a sparse vector from its parts and checks the invariants.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Length`], [`Error::IndexOutOfRange`], [`Error::Unsorted`].
    pub fn new(len: usize, indices: Vec<Ordinal>, values: Vec<T>) -> Result<Self> {
        checked(len, "rows")?;
        if values.len() != indices.len() {
            return Err(Error::Length {
                format: "sparse_vec",
                array: "values",
                found: values.len(),
                expected: indices.len(),
            });
        }
        checked(indices.len(), "entries")?;
        crate::csr::check_ascending("sparse_vec", "indices", &[0, indices.len() as u32], &indices, len)?;
        Ok(Self { len, indices, values })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> (usize, Vec<Ordinal>, Vec<T>) {
        (self.len, self.indices, self.values)
    }

    /// Takes the entries of a dense slice that are not zero.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn from_dense(dense: &[T]) -> Result<Self> {
        checked(dense.len(), "rows")?;
        let (indices, values) =
            dense.iter().enumerate().filter(|(_, v)| !v.is_zero()).map(|(i, &v)| (i as Ordinal, v)).unzip();
        Ok(Self { len: dense.len(), indices, values })
    }

    /// Number of elements, stored or not.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Returns true if it has no elements at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Number of stored entries.
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }
    /// Positions of the stored entries, ascending.
    pub fn indices(&self) -> &[Ordinal] {
        &self.indices
    }
    /// Values of the stored entries.
    pub fn values(&self) -> &[T] {
        &self.values
    }
    /// The values, for writing in place. The pattern stays.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    fn expect_len(&self, op: &'static str, found: usize) -> Result<()> {
        if found == self.len { Ok(()) } else { Err(Error::Shape { op, what: "y", found, expected: self.len }) }
    }

    /// `y[i] <- fma(a, s[i], y[i])` at the stored entries.
    ///
    /// # Errors
    /// [`Error::Shape`] unless y has `len` elements.
    pub fn axpy(&self, a: T, y: &mut [T]) -> Result<()> {
        self.expect_len("axpy", y.len())?;
        for (&i, &v) in self.indices.iter().zip(&self.values) {
            y[i as usize] = a.mul_add(v, y[i as usize]);
        }
        Ok(())
    }

    /// Returns s . y over the stored entries, summed in order by `fma`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless y has `len` elements.
    pub fn dot(&self, y: &[T]) -> Result<T> {
        self.expect_len("dot", y.len())?;
        Ok(self.indices.iter().zip(&self.values).fold(T::zero(), |acc, (&i, &v)| v.mul_add(y[i as usize], acc)))
    }

    /// Values <- y at the stored positions.
    ///
    /// # Errors
    /// [`Error::Shape`] unless y has `len` elements.
    pub fn gather(&mut self, y: &[T]) -> Result<()> {
        self.expect_len("gather", y.len())?;
        for (&i, v) in self.indices.iter().zip(&mut self.values) {
            *v = y[i as usize];
        }
        Ok(())
    }

    /// y at the stored positions <- values.
    ///
    /// # Errors
    /// [`Error::Shape`] unless y has `len` elements.
    pub fn scatter(&self, y: &mut [T]) -> Result<()> {
        self.expect_len("scatter", y.len())?;
        for (&i, &v) in self.indices.iter().zip(&self.values) {
            y[i as usize] = v;
        }
        Ok(())
    }
}

/// Counts the traffic of a matrix with one row, whose product is `s . y`.
impl<T: Real> Traffic for SparseVec<T> {
    fn storage(&self) -> u64 {
        (self.nnz() * (4 + T::BYTES)) as u64
    }
    /// The storage, y at the stored positions, and the result.
    fn spmv_bytes(&self) -> u64 {
        self.storage() + ((self.nnz() + 1) * T::BYTES) as u64
    }
    fn flops(&self) -> u64 {
        2 * self.nnz() as u64
    }
}
