//! Ranks as threads of one process: for tests, for trying a distributed solve out, and for several devices in one
//! machine.
//!
//! Layout: each rank has an inbox with one queue per sender. A message is copied twice, into a buffer of the inbox and
//! out of it; the buffers are used again. A receiver looks for a while before it sleeps, because the answer to a small
//! message is usually there within microseconds.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spandrel_backend::{Error, Result};

use crate::communicator::{Communicator, TIME_LIMIT};

/// How long a receiver looks at its inbox before it sleeps. A message between two ranks that run at the same time takes
/// about a microsecond, and waking a sleeping thread takes about fifty.
const LOOKING: Duration = Duration::from_micros(50);
/// How long the others wait for the reason once a rank has dropped its communicator. The rank usually returns, fails or
/// panics within that time.
const GRACE: Duration = Duration::from_millis(200);
/// Spins between two looks, before the processor is given to another thread.
const SPINS: usize = 64;
/// Stack of a rank's thread, as that of a program's main thread on Linux.
const STACK: usize = 8 << 20;

/// One rank among threads of this process. [`Threads::run`] makes them.
pub struct Threads {
    rank: usize,
    shared: Arc<Shared>,
}

/// How a rank ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E> {
    /// It returned this error.
    #[error(transparent)]
    Error(E),
    /// It panicked.
    #[error("rank {rank} panicked: {message}")]
    Panic {
        /// The rank, from 0.
        rank: usize,
        /// The message of the panic.
        message: String,
    },
}

struct Shared {
    inboxes: Vec<Inbox>,
    states: Mutex<States>,
    /// Above 0 once a rank has left or failed. Receivers read it without a lock.
    gone: AtomicUsize,
    limit: Duration,
    /// What each rank shows.
    shown: Mutex<Vec<Option<Arc<dyn Any + Send + Sync>>>>,
}

/// What is known of the ranks.
struct States {
    of: Vec<State>,
    /// The first failure: whose it was, and why.
    failure: Option<(usize, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Works,
    /// It has dropped its communicator, and nobody knows yet how it ends.
    Leaves(Instant),
    Left,
}

/// What one rank has received.
struct Inbox {
    queues: Mutex<Queues>,
    arrived: Condvar,
    /// The number of waiting messages per sender. A receiver reads it without a lock.
    waiting: Vec<AtomicUsize>,
}

struct Queues {
    of: Vec<VecDeque<Vec<u8>>>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("rank", &self.rank).field("size", &self.size()).finish_non_exhaustive()
    }
}

impl Threads {
    /// Runs `work` once per rank, each in a thread of its own, and returns what each of them returned, in the order of
    /// the ranks.
    ///
    /// A rank that returns an error or panics is a failed rank: every other rank that waits for a message then gets
    /// [`Error::Rank`] with its reason. Returns when all ranks have returned.
    ///
    /// ```
    /// use spandrel_distributed::{Communicator, Threads};
    ///
    /// let ranks = Threads::run(3, |team| {
    ///     let (rank, size) = (team.rank(), team.size());
    ///     team.send((rank + 1) % size, &[rank as u8])?;
    ///     let mut message = Vec::new();
    ///     team.receive((rank + size - 1) % size, &mut message)?;
    ///     Ok::<_, spandrel_backend::Error>(message[0])
    /// });
    /// let received: Vec<u8> = ranks.into_iter().map(Result::unwrap).collect();
    /// assert_eq!(received, [2, 0, 1]);
    /// ```
    pub fn run<R: Send, E: fmt::Display + Send>(
        size: usize,
        work: impl Fn(Threads) -> std::result::Result<R, E> + Sync,
    ) -> Vec<std::result::Result<R, Failure<E>>> {
        Self::run_within(size, TIME_LIMIT, work)
    }

    /// As [`Threads::run`], with another limit on the time that a rank waits for one message.
    pub fn run_within<R: Send, E: fmt::Display + Send>(
        size: usize,
        limit: Duration,
        work: impl Fn(Threads) -> std::result::Result<R, E> + Sync,
    ) -> Vec<std::result::Result<R, Failure<E>>> {
        let shared = Arc::new(Shared::new(size, limit));
        let work = &work;
        std::thread::scope(|scope| {
            let started: Vec<_> = (0..size)
                .map(|rank| {
                    let me = Threads { rank, shared: Arc::clone(&shared) };
                    let thread = std::thread::Builder::new().name(format!("rank-{rank}")).stack_size(STACK);
                    let spawned = thread.spawn_scoped(scope, move || attend(me, work));
                    if let Err(error) = &spawned {
                        shared.failed(rank, &format!("its thread could not be started ({error})"));
                    }
                    spawned
                })
                .collect();
            let ended = |(rank, thread): (usize, std::io::Result<std::thread::ScopedJoinHandle<'_, _>>)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| Err(panicked(rank, &*panic))),
                Err(error) => {
                    Err(Failure::Panic { rank, message: format!("its thread could not be started ({error})") })
                }
            };
            started.into_iter().enumerate().map(ended).collect()
        })
    }
}

/// One rank from beginning to end. Whatever happens, the others hear of it.
fn attend<R, E: fmt::Display>(
    me: Threads,
    work: &(impl Fn(Threads) -> std::result::Result<R, E> + Sync),
) -> std::result::Result<R, Failure<E>> {
    let (rank, shared) = (me.rank, Arc::clone(&me.shared));
    let outcome = catch_unwind(AssertUnwindSafe(|| work(me)));
    match outcome {
        Ok(Ok(result)) => {
            shared.end(rank, State::Left);
            Ok(result)
        }
        Ok(Err(error)) => {
            shared.failed(rank, &error.to_string());
            Err(Failure::Error(error))
        }
        Err(panic) => {
            let failure = panicked(rank, &*panic);
            if let Failure::Panic { message, .. } = &failure {
                shared.failed(rank, &format!("panicked: {message}"));
            }
            Err(failure)
        }
    }
}

fn panicked<E>(rank: usize, panic: &(dyn std::any::Any + Send)) -> Failure<E> {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::Panic { rank, message: text.unwrap_or_else(|| "without a message".to_owned()) }
}

impl Shared {
    fn new(size: usize, limit: Duration) -> Self {
        let inbox = |_| Inbox {
            queues: Mutex::new(Queues { of: (0..size).map(|_| VecDeque::new()).collect(), spare: Vec::new() }),
            arrived: Condvar::new(),
            waiting: (0..size).map(|_| AtomicUsize::new(0)).collect(),
        };
        Self {
            inboxes: (0..size).map(inbox).collect(),
            states: Mutex::new(States { of: vec![State::Works; size], failure: None }),
            gone: AtomicUsize::new(0),
            limit,
            shown: Mutex::new(vec![None; size]),
        }
    }

    /// A rank stops working without a failure.
    fn end(&self, rank: usize, state: State) {
        {
            let states = &mut *lock(&self.states);
            match states.of[rank] {
                State::Works => _ = self.gone.fetch_add(1, Ordering::Release),
                State::Leaves(_) => {}
                State::Left => return,
            }
            states.of[rank] = state;
        }
        self.call();
    }

    /// The work fails because of a rank. The first failure counts.
    fn failed(&self, culprit: usize, why: &str) {
        lock(&self.states).failure.get_or_insert_with(|| (culprit, why.to_owned()));
        self.gone.fetch_add(1, Ordering::Release);
        self.call();
    }

    /// Wakes all receivers.
    fn call(&self) {
        for inbox in &self.inboxes {
            // Take the lock, so that no receiver is between its last check and its sleep.
            let _queues = lock(&inbox.queues);
            inbox.arrived.notify_all();
        }
    }

    /// The error for a rank that would wait for `other`: the failure if there is one, or that `other` has left.
    fn hopeless(&self, other: usize) -> Option<Error> {
        if self.gone.load(Ordering::Acquire) == 0 {
            return None;
        }
        let states = lock(&self.states);
        if let Some((rank, why)) = &states.failure {
            return Some(Error::Rank { rank: *rank, why: why.clone() });
        }
        match states.of[other] {
            State::Left => Some(left(other)),
            State::Leaves(since) if since.elapsed() >= GRACE => Some(left(other)),
            _ => None,
        }
    }
}

/// A rank that returned while others still wait for it.
pub(crate) fn left(rank: usize) -> Error {
    Error::Rank { rank, why: "it has left the solve; every rank must call the same operations".to_owned() }
}

/// A wait that took too long.
pub(crate) fn silent(rank: usize, limit: Duration) -> Error {
    let why = format!("no message within {} s; it hangs, or needs a longer time limit", limit.as_secs_f64());
    Error::Rank { rank, why }
}

impl Inbox {
    fn pop(&self, from: usize, message: &mut Vec<u8>, queues: &mut Queues) -> bool {
        let Some(next) = queues.of[from].pop_front() else { return false };
        self.waiting[from].fetch_sub(1, Ordering::Relaxed);
        queues.spare.push(std::mem::replace(message, next));
        true
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.inboxes.len()
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<()> {
        if let Some(error) = self.shared.hopeless(to) {
            return Err(error);
        }
        let inbox = &self.shared.inboxes[to];
        let mut buffer = lock(&inbox.queues).spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(message);
        lock(&inbox.queues).of[self.rank].push_back(buffer);
        inbox.waiting[self.rank].fetch_add(1, Ordering::Release);
        inbox.arrived.notify_one();
        Ok(())
    }

    fn receive(&self, from: usize, message: &mut Vec<u8>) -> Result<()> {
        let inbox = &self.shared.inboxes[self.rank];
        let waiting = &inbox.waiting[from];
        let began = Instant::now();
        let is_over = || waiting.load(Ordering::Acquire) > 0 || self.shared.gone.load(Ordering::Acquire) > 0;
        while !is_over() && began.elapsed() < LOOKING {
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            // There may be more ranks than processors.
            std::thread::yield_now();
        }
        let mut queues = lock(&inbox.queues);
        loop {
            // What was sent before a failure still arrives.
            if inbox.pop(from, message, &mut queues) {
                return Ok(());
            }
            if let Some(error) = self.shared.hopeless(from) {
                return Err(error);
            }
            let Some(rest) = self.shared.limit.checked_sub(began.elapsed()) else {
                return Err(silent(from, self.shared.limit));
            };
            // Nobody wakes this thread when a grace period is over.
            let nap = if self.shared.gone.load(Ordering::Acquire) > 0 { rest.min(GRACE / 4) } else { rest };
            queues = inbox.arrived.wait_timeout(queues, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fail(&self, culprit: usize, why: &str) {
        self.shared.failed(culprit, why);
    }

    fn show(&self, value: Arc<dyn Any + Send + Sync>) -> bool {
        lock(&self.shared.shown)[self.rank] = Some(value);
        true
    }

    fn shown(&self, by: usize) -> Option<Arc<dyn Any + Send + Sync>> {
        lock(&self.shared.shown).get(by)?.clone()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.end(self.rank, State::Leaves(Instant::now()));
    }
}
