//! Block Jacobi over the ranks: each rank preconditions its own block by itself, without a message.
//!
//! The preconditioner depends on the partition, and so do the iterations and the bits of x. More ranks mean smaller
//! blocks and usually more iterations.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Gate, Preconditioner};
use spandrel_formats::{Csr, Real};

use crate::communicator::Communicator;
use crate::device::{Distributed, Vector};
use crate::layout::Layout;
use crate::matrix::Local;
use crate::rows::{Column, Rows};

/// M^-1 as the block diagonal of the M^-1 of each rank. See the [module](self).
pub struct Blockwise<M> {
    layout: Arc<Layout>,
    /// `None` on a rank without rows.
    block: Option<M>,
    /// Whether those of all ranks are linear.
    is_linear: bool,
}

impl<M> fmt::Debug for Blockwise<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blockwise").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl<M> Blockwise<M> {
    /// Makes the preconditioner of each rank's block with `make`. It gets the rank's own device, without the other
    /// ranks, and the block: the rank's rows with its own columns. A rank without rows makes none. Waits for the other
    /// ranks.
    ///
    /// # Errors
    /// Those of `make`, on the rank where it fails; the other ranks name that rank.
    pub fn new<T: Real, B: Local<T>, C: Communicator, J: Column, E>(
        be: &Distributed<B, C>,
        layout: &Arc<Layout>,
        rows: &Rows<T, J>,
        make: impl FnOnce(&B, Csr<T>) -> Result<M, E>,
    ) -> Result<Self, E>
    where
        M: Preconditioner<T, B>,
        E: From<spandrel_backend::Error> + From<spandrel_formats::Error> + fmt::Display,
    {
        let made = || {
            let block = rows.block(layout.rows())?;
            if rows.is_empty() { Ok(None) } else { make(be.device(), block).map(Some) }
        };
        let block = be.together(made())?;
        let mine = block.as_ref().is_none_or(M::is_linear);
        let is_linear = be.everywhere(&[u64::from(mine)])?.iter().all(|of| of[0] == 1);
        Ok(Self { layout: Arc::clone(layout), block, is_linear })
    }

    /// The preconditioner of this rank.
    pub fn block(&self) -> Option<&M> {
        self.block.as_ref()
    }
}

// SAFETY: it is applied on a distributed device, which records nothing. It does not claim to be the identity.
unsafe impl<T: Real, B: Local<T>, C: Communicator, M: Preconditioner<T, B>> Preconditioner<T, Distributed<B, C>>
    for Blockwise<M>
{
    fn len(&self) -> Option<usize> {
        Some(self.layout.len())
    }
    fn is_linear(&self) -> bool {
        self.is_linear
    }
    fn apply(
        &self,
        be: &Distributed<B, C>,
        gate: Gate<'_, B>,
        r: &Vector<T, B>,
        z: &mut Vector<T, B>,
    ) -> spandrel_backend::Result<()> {
        match &self.block {
            None => Ok(()),
            Some(block) => be.told(block.apply(be.device(), gate, &r.part, &mut z.part)),
        }
    }
}
