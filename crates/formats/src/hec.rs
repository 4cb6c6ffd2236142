//! HEC, a hybrid of one ELL block and CSR over sorted rows: HMEC with p = 1.
//!
//! Layout, rule, invariants, cost and order: see [`crate::hmec`], with at most one block.
//! ```text
//! perm  2 0 3 1      block, width 2     rest (CSR)
//!       row 2        | a b |            c
//!       row 0        | d e |            f
//!       row 3        | g h |
//!       row 1        | i * |
//! ```
//! Reference: Cheng, Tian, Wu, Wang, Li, Optimization of solving sparse linear system based on blocked storage format,
//! 2018, section 4.1.

use crate::index::Ordinal;
use crate::{Csr, EllBlock, Error, Format, Hmec, Real, Result, Traffic};

/// At most one ELL block and a CSR rest over sorted rows. See the module's head.
#[derive(Clone, Debug, PartialEq)]
pub struct Hec<T> {
    hmec: Hmec<T>,
}

/// The parts of a [`Hec`]: `(nrows, ncols, perm, block, rest)`.
pub type HecParts<T> = (usize, usize, Vec<Ordinal>, Option<EllBlock<T>>, Csr<T>);

impl<T: Real> Hec<T> {
    /// Makes a matrix from its parts and checks every invariant in O(nnz).
    ///
    /// # Errors
    /// As [`Hmec::new`].
    pub fn new(
        nrows: usize,
        ncols: usize,
        perm: Vec<Ordinal>,
        block: Option<EllBlock<T>>,
        rest: Csr<T>,
    ) -> Result<Self> {
        Ok(Self { hmec: Hmec::new(nrows, ncols, perm, block.into_iter().collect(), rest, 1)? })
    }

    /// Returns the parts without a copy.
    pub fn into_parts(self) -> HecParts<T> {
        let (nrows, ncols, perm, mut blocks, rest, _) = self.hmec.into_parts();
        (nrows, ncols, perm, blocks.pop(), rest)
    }

    /// The same matrix as HMEC with p = 1, borrowed.
    pub fn as_hmec(&self) -> &Hmec<T> {
        &self.hmec
    }

    /// The same matrix as HMEC with p = 1; the parts move.
    pub fn into_hmec(self) -> Hmec<T> {
        self.hmec
    }

    /// `perm[new] = old`: the row at each position of the sorted order.
    pub fn perm(&self) -> &[Ordinal] {
        self.hmec.perm()
    }

    /// The ELL block, if there is one.
    pub fn block(&self) -> Option<&EllBlock<T>> {
        self.hmec.blocks().first()
    }

    /// The entries that are not in the block: row r is the rest of sorted row r.
    pub fn rest(&self) -> &Csr<T> {
        self.hmec.rest()
    }
}

impl<T: Real> TryFrom<Hmec<T>> for Hec<T> {
    type Error = Error;
    /// Moves the parts of an HMEC matrix with at most one block. With more blocks, applies the rule again with p = 1.
    fn try_from(hmec: Hmec<T>) -> Result<Self> {
        if hmec.blocks().len() > 1 {
            return Self::from_csr(&hmec.to_csr()?);
        }
        let (nrows, ncols, perm, mut blocks, rest, _) = hmec.into_parts();
        Self::new(nrows, ncols, perm, blocks.pop(), rest)
    }
}

impl<T: Real> Traffic for Hec<T> {
    fn storage(&self) -> u64 {
        self.hmec.storage()
    }
    fn spmv_bytes(&self) -> u64 {
        self.hmec.spmv_bytes()
    }
    fn flops(&self) -> u64 {
        self.hmec.flops()
    }
}

impl<T: Real> Format for Hec<T> {
    type Value = T;
    const NAME: &'static str = "hec";
    const MULTIPLIES_FILL: bool = false;
    fn nrows(&self) -> usize {
        self.hmec.nrows()
    }
    fn ncols(&self) -> usize {
        self.hmec.ncols()
    }
    fn nnz(&self) -> usize {
        self.hmec.nnz()
    }
    fn from_csr(csr: &Csr<T>) -> Result<Self> {
        Ok(Self { hmec: Hmec::from_csr_with(csr, 1)? })
    }
    fn to_csr(&self) -> Result<Csr<T>> {
        self.hmec.to_csr()
    }
}
