//! Send buffers of all ranks, for ranks whose devices read each other's memory.

use std::fmt;
use std::sync::Arc;

use spandrel_backend::{Meeting, PeerSums, Peers, Result};

use crate::communicator::Communicator;
use crate::partition::{BLOCK, Partition};
use crate::team::{Call, Team};

/// This rank's send buffer, then those of all ranks in their order, as this rank reads them; `None` for this rank
/// itself.
pub(crate) type Opened<B> = (Arc<<B as Peers>::SendBuffer>, Vec<Option<<B as Peers>::Peer>>);

/// Makes a send buffer whose halves have `bytes` bytes, and opens those of the other ranks. Returns `None`, on every
/// rank, if a device cannot read another one's buffer, if there are too many ranks for it, or if messages must pass
/// through the host. Waits for the other
/// ranks.
pub(crate) fn open<B: Peers, C: Communicator>(be: &B, team: &Team<C>, bytes: usize) -> Result<Option<Opened<B>>> {
    if team.size() == 1 || team.size() > B::MOST_RANKS || !team.may_be_direct() {
        return Ok(None);
    }
    let mine = team.together(be.send_buffer(bytes))?.map(Arc::new);
    let Some(all) = team.share(mine.clone())? else { return Ok(None) };
    let open = |(rank, buffer)| if rank == team.rank() { Ok(Some(None)) } else { Ok(be.peer(buffer)?.map(Some)) };
    let opened: Result<Option<Vec<_>>> = all.into_iter().enumerate().map(open).collect();
    let opened = team.together(opened)?;
    let everywhere = team.is_everywhere(opened.is_some())?;
    Ok(mine.zip(opened).filter(|_| everywhere))
}

/// The meeting of all ranks at a dot product.
struct AtSum<C>(Arc<Team<C>>);

impl<C> fmt::Debug for AtSum<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtSum")
    }
}

impl<C: Communicator> Meeting for AtSum<C> {
    fn meet(&self, bytes: usize) -> Result<()> {
        let others = (0..self.0.size()).filter(|&rank| rank != self.0.rank()).map(|rank| (rank, bytes));
        let call = self.0.begin(Call::Sum)?;
        call.announce(others.clone())?;
        call.wait(others)
    }
}

/// Makes what completes dot products over a partition; `None` if devices do not read each other's memory. Waits for the
/// other ranks.
pub(crate) fn sums<B: Peers, C: Communicator>(
    be: &B,
    team: &Arc<Team<C>>,
    partition: &Partition,
) -> Result<Option<PeerSums<B>>> {
    let blocks = |rank: usize| {
        let rows = partition.rows(rank);
        rows.start.div_ceil(BLOCK) as usize..rows.end.div_ceil(BLOCK) as usize
    };
    let bytes = blocks(team.rank()).len() * size_of::<f64>();
    let Some((buffer, peers)) = open(be, team, PeerSums::<B>::MOST * bytes)? else { return Ok(None) };
    let ranks = peers.into_iter().enumerate().map(|(rank, peer)| (blocks(rank), peer)).collect();
    Ok(Some(PeerSums::new(buffer, ranks, Box::new(AtSum(Arc::clone(team))))))
}
