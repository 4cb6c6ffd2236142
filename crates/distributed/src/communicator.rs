//! Messages between ranks: what a transport must offer, and no more.
//!
//! Everything collective is built on [`Communicator::send`] and [`Communicator::receive`] in one place (`team.rs`),
//! with the same checks for every transport. A transport adds the two things that only it can know: that another rank
//! is gone, and that a wait has taken too long.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use spandrel_backend::Result;

/// How long a rank waits for a message before it gives up, unless it is told otherwise: ten minutes. It is long because
/// a rank may legitimately work for minutes between two messages, for example to read a file.
pub const TIME_LIMIT: std::time::Duration = std::time::Duration::from_secs(600);

/// Messages between the ranks of a distributed solve. One rank is one value of this type, which one thread uses at a
/// time.
///
/// Messages from one rank to another arrive in the order in which they were sent. When the value is dropped, the other
/// ranks are told that this rank has left.
pub trait Communicator: fmt::Debug + Send + Sync + 'static {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks, at least 1.
    fn size(&self) -> usize;

    /// Sends a message to rank `to`, which is another rank. Does not wait until it is received.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Rank`] if a rank has failed, or `to` has left.
    fn send(&self, to: usize, message: &[u8]) -> Result<()>;

    /// Waits for the next message of rank `from`, which is another rank, and puts it into `message`. The old content is
    /// discarded.
    ///
    /// # Errors
    /// [`spandrel_backend::Error::Rank`] if a rank has failed, `from` has left, or nothing arrives within the time
    /// limit.
    fn receive(&self, from: usize, message: &mut Vec<u8>) -> Result<()>;

    /// Tells every other rank that the work has failed because of rank `culprit`, this one or another, so that none of
    /// them waits forever. Only the first failure counts, so that every rank names the same culprit.
    fn fail(&self, culprit: usize, why: &str);

    /// Shows a value to the other ranks, instead of the one shown before. Returns false if they cannot see it, because
    /// they are other processes. Does not wait.
    fn show(&self, _: Arc<dyn Any + Send + Sync>) -> bool {
        false
    }

    /// What a rank shows.
    fn shown(&self, _: usize) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}
