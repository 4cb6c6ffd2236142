//! The collective operations of a team of ranks, built on the messages of a [`Communicator`].
//!
//! Every message begins with a header: which operation it belongs to, how many operations the sender has done before,
//! and how many bytes follow. A rank that receives an unexpected header reports what the other rank is doing, instead
//! of computing with the wrong numbers. That happens if ranks call different operations, for example because they were
//! given different options.
//!
//! After a failure every further operation fails at once with the same error, and the other ranks are told.
//!
//! An all-gather takes ceil(log2 P) rounds of one message per rank (Bruck et al. 1997, Efficient algorithms for
//! all-to-all communications in multiport message-passing systems). Nothing is ever summed on the way, so no order of
//! summation depends on the number of ranks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use spandrel_backend::{Error, Result};

use crate::communicator::Communicator;

/// What a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Call {
    /// The roots of dot products.
    Sum = 1,
    /// Entries of x for the boundary rows of a product.
    Halo = 2,
    /// A decision that depends on a clock or a watcher.
    Agree = 3,
    /// Anything else: set-up phases, and vectors that are gathered or handed out.
    Setup = 4,
}

impl Call {
    const ALL: [Call; 4] = [Call::Sum, Call::Halo, Call::Agree, Call::Setup];

    fn words(self) -> &'static str {
        match self {
            Call::Sum => "a dot product",
            Call::Halo => "a product with a matrix",
            Call::Agree => "a look at the progress",
            Call::Setup => "a set-up phase",
        }
    }
}

/// The messages and bytes that this rank has sent for one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Operations, with or without a message.
    pub calls: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent, headers included.
    pub bytes: u64,
}

/// The head of a message: operation, number of operations before, bytes that follow.
const HEADER: usize = 24;

fn header(call: Call, number: u64, len: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = call as u8;
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..].copy_from_slice(&(len as u64).to_le_bytes());
    header
}

/// The team of ranks, as one of them sees it.
pub(crate) struct Team<C> {
    comm: C,
    /// Whether devices may read each other's memory.
    direct: bool,
    /// Operations so far.
    number: AtomicU64,
    /// The first failure.
    failed: OnceLock<(usize, String)>,
    traffic: [[AtomicU64; 3]; Call::ALL.len()],
    /// Buffers to be used again.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl<C: Communicator> fmt::Debug for Team<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team").field("comm", &self.comm).finish_non_exhaustive()
    }
}

/// One collective operation in progress.
pub(crate) struct Turn<'t, C> {
    team: &'t Team<C>,
    call: Call,
    number: u64,
}

impl<C: Communicator> Team<C> {
    pub(crate) fn new(comm: C) -> Self {
        Self {
            comm,
            direct: true,
            number: AtomicU64::new(0),
            failed: OnceLock::new(),
            traffic: Default::default(),
            spare: Mutex::default(),
        }
    }

    /// The same ranks, whose messages all pass through the host.
    pub(crate) fn through_host(self) -> Self {
        Self { direct: false, ..self }
    }

    /// Whether devices may read each other's memory.
    pub(crate) fn may_be_direct(&self) -> bool {
        self.direct
    }

    pub(crate) fn rank(&self) -> usize {
        self.comm.rank()
    }

    pub(crate) fn size(&self) -> usize {
        self.comm.size()
    }

    pub(crate) fn traffic(&self, call: Call) -> Traffic {
        let [calls, messages, bytes] = [0, 1, 2].map(|i| self.traffic[call as usize - 1][i].load(Ordering::Relaxed));
        Traffic { calls, messages, bytes }
    }

    /// Remembers a failure and tells the other ranks.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let known = match &error {
            Error::Rank { rank, why } => (*rank, why.clone()),
            other => (self.rank(), other.to_string()),
        };
        if self.failed.set(known.clone()).is_ok() {
            self.comm.fail(known.0, &known.1);
        }
        error
    }

    /// Begins an operation, which all ranks must begin in the same order.
    pub(crate) fn begin(&self, call: Call) -> Result<Turn<'_, C>> {
        if let Some((rank, why)) = self.failed.get() {
            return Err(Error::Rank { rank: *rank, why: why.clone() });
        }
        self.count(call, 0, 1);
        Ok(Turn { team: self, call, number: self.number.fetch_add(1, Ordering::Relaxed) })
    }

    fn count(&self, call: Call, what: usize, by: u64) {
        self.traffic[call as usize - 1][what].fetch_add(by, Ordering::Relaxed);
    }

    fn lend(&self) -> Vec<u8> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    /// Returns the largest of the numbers that the ranks give.
    pub(crate) fn largest(&self, mine: u64) -> Result<u64> {
        if self.size() == 1 {
            return Ok(mine);
        }
        let mut all = vec![0u8; 8 * self.size()];
        all[8 * self.rank()..][..8].copy_from_slice(&mine.to_le_bytes());
        self.begin(Call::Agree)?.all_gather(&mut all, |rank| 8 * rank..8 * rank + 8)?;
        Ok(numbers(&all).into_iter().max().unwrap_or(mine))
    }

    /// Returns the numbers of all ranks, in the order of the ranks. Every rank must give the same number of them.
    pub(crate) fn numbers(&self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        let width = 8 * mine.len();
        let mut all = vec![0u8; width * self.size()];
        for (place, number) in all[width * self.rank()..].chunks_exact_mut(8).zip(mine) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        self.begin(Call::Setup)?.all_gather(&mut all, |rank| width * rank..width * (rank + 1))?;
        Ok((0..self.size()).map(|rank| numbers(&all[width * rank..width * (rank + 1)])).collect())
    }

    /// Sends each rank its bytes, and returns what each rank sent to this one.
    pub(crate) fn all_to_all(&self, mut to: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let turn = self.begin(Call::Setup)?;
        let (me, size) = (self.rank(), self.size());
        debug_assert_eq!(to.len(), size);
        // Each rank begins with its neighbour, so that not all ranks send to one at the same time.
        for step in 1..size {
            let other = (me + step) % size;
            let bytes = std::mem::take(&mut to[other]);
            turn.send(other, bytes.len(), |message| message.extend_from_slice(&bytes))?;
        }
        let mut from = vec![Vec::new(); size];
        from[me] = std::mem::take(&mut to[me]);
        for step in 1..size {
            let other = (me + size - step) % size;
            turn.receive(other, None, |bytes| from[other] = bytes.to_vec())?;
        }
        Ok(from)
    }

    /// Brings the bytes of every rank to rank 0, where they are returned in the order of the ranks. Other ranks get
    /// `None`.
    pub(crate) fn gather(&self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let turn = self.begin(Call::Setup)?;
        if self.rank() > 0 {
            turn.send(0, mine.len(), |message| message.extend_from_slice(mine))?;
            return Ok(None);
        }
        let mut all = vec![mine.to_vec()];
        for other in 1..self.size() {
            turn.receive(other, None, |bytes| all.push(bytes.to_vec()))?;
        }
        Ok(Some(all))
    }

    /// Brings the bytes of rank 0 to every rank. Other ranks give `None`.
    pub(crate) fn broadcast(&self, mine: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let turn = self.begin(Call::Setup)?;
        let mut bytes = mine.unwrap_or_default();
        if self.rank() > 0 {
            turn.receive(0, None, |message| bytes = message.to_vec())?;
            return Ok(bytes);
        }
        for other in 1..self.size() {
            turn.send(other, bytes.len(), |message| message.extend_from_slice(&bytes))?;
        }
        Ok(bytes)
    }

    /// Gives every rank the values of all ranks, in the order of the ranks. Returns `None`, on every rank, if a rank
    /// has no value or cannot see that of another rank.
    pub(crate) fn share<V: Send + Sync + 'static>(&self, mine: Option<Arc<V>>) -> Result<Option<Vec<Arc<V>>>> {
        let is_shown = mine.is_some_and(|mine| self.comm.show(mine));
        let seen = match self.is_everywhere(is_shown)? {
            true => (0..self.size()).map(|rank| self.comm.shown(rank)?.downcast().ok()).collect(),
            false => None,
        };
        let seen: Option<Vec<Arc<V>>> = seen;
        let everybody_has_seen = self.is_everywhere(seen.is_some())?;
        // Otherwise the shown value would stay alive.
        self.comm.show(Arc::new(()));
        Ok(seen.filter(|_| everybody_has_seen))
    }

    /// Returns true if `here` is true on every rank.
    pub(crate) fn is_everywhere(&self, here: bool) -> Result<bool> {
        Ok(self.numbers(&[u64::from(here)])?.iter().all(|there| there[0] == 1))
    }

    /// Makes all ranks agree on the outcome of a phase that may fail on some of them. Returns `mine` if it succeeded
    /// everywhere. If it failed here, returns the error of this rank; otherwise [`Error::Rank`] with that of the first
    /// rank where it failed.
    pub(crate) fn together<R, E: From<Error> + fmt::Display>(
        &self,
        mine: std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        if self.size() == 1 {
            return mine;
        }
        let failures = self.numbers(&[u64::from(mine.is_err())])?;
        let Some(rank) = failures.iter().position(|failed| failed[0] != 0) else { return mine };
        let why = match &mine {
            Err(error) if rank == self.rank() => error.to_string(),
            _ => String::new(),
        };
        let mut to = vec![Vec::new(); self.size()];
        to.iter_mut().for_each(|to| to.extend_from_slice(why.as_bytes()));
        // A rank that has already heard the reason may be gone. That must not hide this rank's own error.
        let reasons = self.all_to_all(to);
        match mine {
            Err(error) => Err(error),
            Ok(_) => Err(Error::Rank { rank, why: String::from_utf8_lossy(&reasons?[rank]).into_owned() }.into()),
        }
    }
}

/// Bytes as numbers, eight each.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<8>().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect()
}

impl<C: Communicator> Turn<'_, C> {
    /// Sends a message of `len` bytes, which `fill` appends.
    pub(crate) fn send(&self, to: usize, len: usize, fill: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let team = self.team;
        let mut message = team.lend();
        message.clear();
        message.extend_from_slice(&header(self.call, self.number, len));
        fill(&mut message);
        debug_assert_eq!(message.len(), HEADER + len);
        team.count(self.call, 1, 1);
        team.count(self.call, 2, message.len() as u64);
        let sent = team.comm.send(to, &message);
        team.give_back(message);
        sent.map_err(|error| team.fail(error))
    }

    /// Receives the message of this operation from another rank. `len` is the number of bytes that it must have, if
    /// that is known.
    pub(crate) fn receive(&self, from: usize, len: Option<usize>, take: impl FnOnce(&[u8])) -> Result<()> {
        let team = self.team;
        let mut message = team.lend();
        let received = team.comm.receive(from, &mut message).and_then(|()| {
            take(self.checked(from, len, &message)?);
            Ok(())
        });
        team.give_back(message);
        received.map_err(|error| team.fail(error))
    }

    /// The bytes after the header, if the header is the expected one.
    fn checked<'m>(&self, from: usize, len: Option<usize>, message: &'m [u8]) -> Result<&'m [u8]> {
        let refused = |why: String| Err(Error::Rank { rank: from, why });
        let Some((head, body)) = message.split_first_chunk::<HEADER>() else {
            return refused(format!("sent {} bytes that are not a message of a solve", message.len()));
        };
        let mine = header(self.call, self.number, len.unwrap_or(body.len()));
        if *head == mine && body.len() == len.unwrap_or(body.len()) {
            return Ok(body);
        }
        let theirs =
            Call::ALL.iter().find(|&&call| call as u8 == head[0]).map_or("something else", |call| call.words());
        let number = u64::from_le_bytes(head[8..16].try_into().unwrap_or_default());
        let (me, ours) = (self.team.rank(), self.call.words());
        if number == self.number && head[0] == self.call as u8 {
            let expected = len.unwrap_or(body.len());
            return refused(format!(
                "sent {} bytes for {ours} where rank {me} expects {expected}; every rank must solve the same system with the same options",
                body.len()
            ));
        }
        refused(format!(
            "does {theirs} as operation {number}, and rank {me} does {ours} as operation {}; every rank must call the same operations in the same \
             order, with the same options",
            self.number
        ))
    }

    /// Tells `ranks` that this rank's message lies in its send buffer. Each is listed with the bytes that it reads
    /// there, which count as sent.
    pub(crate) fn announce(&self, mut ranks: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        ranks.try_for_each(|(rank, bytes)| {
            self.team.count(self.call, 2, bytes as u64);
            self.send(rank, 0, |_| {})
        })
    }

    /// Waits until all of `ranks` have announced their messages.
    pub(crate) fn wait(&self, mut ranks: impl Iterator<Item = (usize, usize)>) -> Result<()> {
        ranks.try_for_each(|(rank, _)| self.receive(rank, Some(0), |_| {}))
    }

    /// Brings the part of every rank to all ranks. `part(rank)` is the range of a rank's part in `all`. The part of
    /// this rank must already be there.
    pub(crate) fn all_gather(&self, all: &mut [u8], part: impl Fn(usize) -> std::ops::Range<usize>) -> Result<()> {
        let (me, size) = (self.team.rank(), self.team.size());
        // This rank has the parts of the `have` ranks from itself on, cyclically.
        let mut have = 1;
        while have < size {
            let count = have.min(size - have);
            let (to, from) = ((me + size - have) % size, (me + have) % size);
            let parts = |first: usize| (0..count).map(move |i| (first + i) % size);
            let len = |first: usize| parts(first).map(|rank| part(rank).len()).sum::<usize>();
            self.send(to, len(me), |message| {
                parts(me).for_each(|rank| message.extend_from_slice(&all[part(rank)]));
            })?;
            self.receive(from, Some(len(from)), |bytes| {
                let mut rest = bytes;
                for rank in parts(from) {
                    let (mine, others) = rest.split_at(part(rank).len());
                    all[part(rank)].copy_from_slice(mine);
                    rest = others;
                }
            })?;
            have += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::threads::{Failure, Threads};

    #[test]
    fn everybody_gets_every_part() {
        for size in [1, 2, 3, 4, 5, 7, 8] {
            let ranks = Threads::run(size, |comm| {
                let team = Team::new(comm);
                let me = team.rank() as u64;
                assert_eq!(team.largest(10 - me)?, 10);
                let all = team.numbers(&[me, me * me])?;
                assert_eq!(all, (0..size as u64).map(|r| vec![r, r * r]).collect::<Vec<_>>());
                let to = (0..size).map(|other| vec![me as u8; other]).collect();
                let from = team.all_to_all(to)?;
                assert_eq!(from, (0..size).map(|other| vec![other as u8; team.rank()]).collect::<Vec<_>>());
                // Parts of different lengths, none among them.
                let part = |rank: usize| rank * (rank + 1) / 2..(rank + 1) * (rank + 2) / 2 - 1;
                let mut bytes = vec![0; part(size - 1).end];
                bytes[part(team.rank())].fill(me as u8 + 1);
                team.begin(Call::Sum)?.all_gather(&mut bytes, part)?;
                (0..size).for_each(|rank| assert!(bytes[part(rank)].iter().all(|&b| b == rank as u8 + 1)));
                team.gather(&[me as u8])
            });
            let mut gathered = ranks.into_iter().map(|rank: std::result::Result<_, Failure<Error>>| rank.unwrap());
            assert_eq!(gathered.next().flatten(), Some((0..size as u8).map(|r| vec![r]).collect::<Vec<_>>()));
            assert!(gathered.all(|other| other.is_none()));
        }
    }

    #[test]
    fn ranks_that_do_different_things_are_told_so() {
        let ranks = Threads::run_within(2, Duration::from_secs(20), |comm| {
            let team = Team::new(comm);
            team.largest(1)?;
            if team.rank() == 0 { team.largest(2).map(|_| ()) } else { team.numbers(&[1]).map(|_| ()) }
        });
        let errors: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
        assert!(errors.iter().any(|e| e.contains("as operation 1, and rank")), "{errors:?}");
        let ranks = Threads::run_within(2, Duration::from_secs(20), |comm| {
            let team = Team::new(comm);
            team.numbers(&vec![1; 1 + team.rank()]).map(|_| ())
        });
        let errors: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap_err().to_string()).collect();
        assert!(errors.iter().any(|e| e.contains("where rank 0 expects 8")), "{errors:?}");
    }

    #[test]
    fn a_failed_phase_has_the_reason_of_the_first_rank_that_failed() {
        let ranks = Threads::run(3, |comm| {
            let team = Team::new(comm);
            let mine = match team.rank() {
                0 => Ok(7),
                rank => Err(Error::Device { device: "cpu", why: format!("reason {rank}") }),
            };
            assert_eq!(team.together(Ok::<_, Error>(1))?, 1);
            let error = team.together(mine).unwrap_err();
            // The team still works.
            team.largest(0)?;
            Ok::<_, Error>(error.to_string())
        });
        let texts: Vec<String> = ranks.into_iter().map(|rank| rank.unwrap()).collect();
        assert_eq!(texts, ["rank 1: cpu: reason 1", "cpu: reason 1", "cpu: reason 2"]);
    }
}
