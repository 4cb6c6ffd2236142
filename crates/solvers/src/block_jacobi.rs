//! Block Jacobi: M is the block diagonal of A, stored as its inverse.
//!
//! Layout: the inverted blocks are the diagonal of a BSR matrix of the same block size; the last block may be smaller.
//! On a GPU, sizes 2, 3, 4, 5, 6 and 8 have kernels of their own.
//!
//! Cost: an application reads block_dim values per row and passes twice over vectors of n. The set-up does block_dim^2
//! operations per row on the host, in f64.
//!
//! Order: Gauss-Jordan elimination with row pivoting, without fused operations, inverts the blocks, and each entry of
//! the inverse is rounded once. So the bits are the same on every machine, unlike those of a factorisation tuned to
//! vector units. The product has the order of [`Spmv`] for BSR.
//!
//! Reference: Saad, Iterative Methods for Sparse Linear Systems, 2003, section 4.1.1; Golub & Van Loan, Matrix
//! Computations, 2013, section 3.4.

use std::fmt;

use spandrel_backend::{Coeff, Gate, Load, Mat, Operator, Preconditioner, Spmv};
use spandrel_formats::{Bsr, Csr, Offset, Real};

use crate::{Error, Result};

/// The largest block. An inverse of this size takes a million operations; larger blocks call for a factorisation.
pub const MAX_BLOCK_DIM: usize = 128;

/// The block Jacobi preconditioner. See the module's head.
pub struct BlockJacobi<T: Real, B: Load<Bsr<T>>> {
    inverses: Mat<B, Bsr<T>>,
    places: Places,
}

/// Where the entries inside the blocks are in A and among the blocks.
#[derive(Clone, Debug)]
struct Places {
    n: usize,
    block_dim: usize,
    nnz: usize,
    /// Position of each entry among A's values and among those of the blocks.
    entries: Vec<(Offset, u64)>,
}

impl<T: Real, B: Load<Bsr<T>>> fmt::Debug for BlockJacobi<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockJacobi")
            .field("n", &self.places.n)
            .field("block_dim", &self.places.block_dim)
            .finish_non_exhaustive()
    }
}

impl<T: Real, B: Spmv<Bsr<T>>> BlockJacobi<T, B> {
    /// Inverts the diagonal blocks of `block_dim` rows of a square matrix and loads them onto the device.
    ///
    /// # Errors
    /// [`Error::NotSquare`]; [`Error::Parameter`] unless `block_dim` is between 1 and [`MAX_BLOCK_DIM`];
    /// [`Error::Block`] with the first row of the first block that is singular or not finite, or whose inverse is not;
    /// a backend that fails.
    pub fn new(be: &B, csr: &Csr<T>, block_dim: usize) -> Result<Self> {
        let places = Places::of(csr, block_dim)?;
        let inverses = Mat::load(be, places.inverted(csr.values())?)?;
        Ok(Self { inverses, places })
    }

    /// Inverts the blocks of new values on the same pattern, in stored order. The bits are those of a new
    /// preconditioner; the address is new.
    ///
    /// Allocates. Blocks. Must not be recorded.
    ///
    /// # Errors
    /// [`Error::Pattern`] for another number of values; as [`BlockJacobi::new`]. After an error everything is as
    /// before.
    pub fn update(&mut self, be: &B, values: &[T]) -> Result<()> {
        if values.len() != self.places.nnz {
            return Err(Error::Pattern { found: values.len(), expected: self.places.nnz });
        }
        self.inverses = Mat::load(be, self.places.inverted(values)?)?;
        Ok(())
    }

    /// Rows of a block.
    pub fn block_dim(&self) -> usize {
        self.places.block_dim
    }
}

impl Places {
    fn of<T: Real>(csr: &Csr<T>, block_dim: usize) -> Result<Self> {
        let (n, ncols) = (csr.nrows(), csr.ncols());
        if n != ncols {
            return Err(Error::NotSquare { solver: "block jacobi", nrows: n, ncols });
        }
        if !(1..=MAX_BLOCK_DIM).contains(&block_dim) {
            let range = "a block has 1 up to 128 rows";
            return Err(Error::Parameter { name: "block_dim", value: block_dim as f64, range });
        }
        let mut entries = Vec::new();
        for i in 0..n {
            let first = i - i % block_dim;
            let cols = csr.row(i).0;
            let begin = cols.partition_point(|&j| (j as usize) < first);
            let end = cols.partition_point(|&j| (j as usize) < first + block_dim);
            // Blocks before this one, and rows before this one in its block.
            let row = (first + i % block_dim) as u64 * block_dim as u64;
            let place = |at: usize| (csr.row_ptr()[i] + at as Offset, row + u64::from(cols[at]) - first as u64);
            entries.extend((begin..end).map(place));
        }
        Ok(Self { n, block_dim, nnz: csr.nnz(), entries })
    }

    /// The inverses of the blocks as a matrix.
    fn inverted<T: Real>(&self, values: &[T]) -> Result<Bsr<T>> {
        let (n, b) = (self.n, self.block_dim);
        let blocks = n.div_ceil(b);
        let mut dense = vec![T::zero(); blocks * b * b];
        for &(from, to) in &self.entries {
            dense[to as usize] = values[from as usize];
        }
        let mut inversion = Inversion::new(b);
        for (block, dense) in dense.chunks_exact_mut(b * b).enumerate() {
            let row = block * b;
            inversion.invert(dense, b, b.min(n - row)).map_err(|found| Error::Block { row, block_dim: b, found })?;
        }
        let ends = 0..=blocks as Offset;
        Ok(Bsr::new(n, n, b, ends.collect(), (0..blocks as Offset).collect(), dense)?)
    }
}

/// Work space for one block.
struct Inversion {
    /// The block and the identity side by side, row-major.
    rows: Vec<f64>,
    /// The initial largest magnitude of each row.
    largest: Vec<f64>,
}

impl Inversion {
    fn new(b: usize) -> Self {
        Self { rows: vec![0.0; 2 * b * b], largest: vec![0.0; b] }
    }

    /// Replaces the leading m x m part of a block, whose rows are `stride` apart, by its inverse.
    ///
    /// A pivot of at most the unit roundoff times the largest entry of its row counts as zero: what is left of it may
    /// be rounding.
    fn invert<T: Real>(&mut self, block: &mut [T], stride: usize, m: usize) -> std::result::Result<(), &'static str> {
        let width = 2 * m;
        let rows = &mut self.rows[..m * width];
        rows.fill(0.0);
        for r in 0..m {
            for c in 0..m {
                rows[r * width + c] = block[r * stride + c].as_f64();
            }
            rows[r * width + m + r] = 1.0;
            let row = &rows[r * width..r * width + m];
            if row.iter().any(|v| !v.is_finite()) {
                return Err("not finite");
            }
            self.largest[r] = row.iter().fold(0.0, |most, v| v.abs().max(most));
        }
        for k in 0..m {
            let size = |r: usize| rows[r * width + k].abs();
            // The first of equal candidates.
            let p = (k..m).fold(k, |best, r| if size(r) > size(best) { r } else { best });
            if size(p) <= f64::UNIT_ROUNDOFF * self.largest[p] {
                return Err("singular");
            }
            if p != k {
                let (above, below) = rows.split_at_mut(p * width);
                above[k * width..(k + 1) * width].swap_with_slice(&mut below[..width]);
                self.largest.swap(p, k);
            }
            let pivot = rows[k * width + k];
            rows[k * width..(k + 1) * width].iter_mut().for_each(|v| *v /= pivot);
            for r in (0..m).filter(|&r| r != k) {
                let factor = rows[r * width + k];
                if factor != 0.0 {
                    for c in k..width {
                        rows[r * width + c] -= factor * rows[k * width + c];
                    }
                }
            }
        }
        for r in 0..m {
            for c in 0..m {
                let v = T::from_f64(rows[r * width + m + c]);
                if !v.is_finite() {
                    return Err("too small to invert");
                }
                block[r * stride + c] = v;
            }
        }
        Ok(())
    }
}

// SAFETY: only `update` replaces the matrix, and it borrows mutably; otherwise it is an operator.
unsafe impl<T: Real, B: Spmv<Bsr<T>>> Preconditioner<T, B> for BlockJacobi<T, B> {
    fn len(&self) -> Option<usize> {
        Some(self.places.n)
    }
    fn apply(&self, be: &B, gate: Gate<'_, B>, r: &B::Vector, z: &mut B::Vector) -> spandrel_backend::Result<()> {
        self.inverses.spmv(be, gate, Coeff::one(), r, Coeff::zero(), z)
    }
    fn apply_dot(
        &self,
        be: &B,
        gate: Gate<'_, B>,
        r: &B::Vector,
        z: &mut B::Vector,
        rz: &mut B::Scalar,
    ) -> spandrel_backend::Result<()> {
        self.inverses.apply_dot(be, gate, r, z, r, rz, None)
    }
}
