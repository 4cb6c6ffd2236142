//! What a device must offer so that its vectors can be parts of longer ones, one part per rank of a distributed solve.

use std::fmt;
use std::sync::Arc;

use crate::{Peers, Result};

/// Forms the roots of dot products whose vectors lie on several devices.
///
/// `blocks` holds one list of block results per root, one after the other and all of the same length. A list has the
/// results of the blocks of this device's elements, in order: see [`crate::Backend::dot`]. Every device gets the roots
/// of the whole vectors, which are the complete sums. Waits for the other devices; may overwrite `blocks`.
///
/// # Errors
/// [`crate::Error::Rank`] if another rank fails; [`crate::Error::Shape`] for another number of blocks than expected.
pub trait Roots: fmt::Debug + Send + Sync {
    /// The roots in f32.
    fn roots_f32(&self, blocks: &mut [f32], roots: &mut [f32]) -> Result<()>;
    /// The roots in f64.
    fn roots_f64(&self, blocks: &mut [f64], roots: &mut [f64]) -> Result<()>;
}

/// A device whose vectors can be parts of longer ones.
pub trait Join: Peers {
    /// Runs `work` on this device. Dot products and norms of `work`, fused or not, are completed by `roots`. All other
    /// operations stay as they are.
    ///
    /// All vectors that a dot product sees must have the length that `roots` expects. Such an operation may block, and
    /// must not be recorded. If its gate is closed, `roots` is not asked.
    fn joined<R>(&self, roots: &Arc<dyn Roots>, work: impl FnOnce(&Self) -> R) -> R;
}
