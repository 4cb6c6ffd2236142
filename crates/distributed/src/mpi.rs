//! Ranks as processes that mpirun has started.
//!
//! Between the start and the end of MPI, no call blocks inside MPI. Messages are sent and received by nonblocking
//! calls, which are polled until they are done or the time limit is over. So a rank that dies or hangs cannot hang the
//! others.
//!
//! A message longer than [`CHUNK`] is sent in pieces, and the tag of each says whether another follows. Failures and
//! departures go through a communicator of their own, so that they can be seen while a rank waits for data.
//!
//! MPI ends a process only together with all others. So a rank that leaves waits until every other rank has left, and
//! if one does not, it ends all processes by `MPI_Abort`.

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::{Threading, ffi};
use spandrel_backend::{Error, Result};

use crate::communicator::{Communicator, TIME_LIMIT};
use crate::threads::{left, silent};

/// The largest piece of a message in bytes. MPI counts in `int`.
const CHUNK: usize = 1 << 30;
/// Tags of data: the last piece of a message, and a piece that another follows.
const LAST: c_int = 1;
const MORE: c_int = 2;
/// Tags of news: a rank has failed, or has left.
const FAILED: c_int = 3;
const LEFT: c_int = 4;
/// A waiting rank checks for news once per this many checks for a message.
const LOOKS: u32 = 64;
/// After this many checks, a waiting rank sleeps between two of them.
const AWAKE: u32 = 100_000;
const NAP: Duration = Duration::from_micros(50);
/// How long data that a rank sent before it left may still be on its way.
const GRACE: Duration = Duration::from_millis(200);
/// How long a rank that leaves waits for the others once the work has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// The longest reason in bytes that other ranks are told.
const REASON: usize = 4000;

/// One rank among processes that mpirun has started. A process can make only one such value, ever.
pub struct Mpi {
    rank: usize,
    size: usize,
    limit: Duration,
    state: Mutex<State>,
    pulse: Arc<Pulse>,
    /// Ends MPI when it is dropped.
    universe: Option<Universe>,
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpi").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Messages that MPI still sends, and what is known about the other ranks.
struct State {
    data: ffi::MPI_Comm,
    news: ffi::MPI_Comm,
    sending: Vec<Sending>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    /// When each rank has left.
    left: Vec<Option<Instant>>,
    /// The first failure: which rank, and why.
    failure: Option<(usize, String)>,
}

// SAFETY: handles of MPI are valid in all threads of a process. MPI was started for calls from any thread, one at a
// time, and the mutex around the state lets one thread call.
unsafe impl Send for State {}

/// A piece that MPI may still read.
struct Sending {
    request: ffi::MPI_Request,
    buffer: Vec<u8>,
}

/// A piece that has arrived and can be received.
struct Arrived {
    message: ffi::MPI_Message,
    source: usize,
    tag: c_int,
    len: c_int,
}

fn failed(why: String) -> Error {
    Error::Device { device: "mpi", why }
}

/// Turns the code of a call into a result. An error has MPI's own text.
fn checked(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has room for the longest text, as MPI promises it, and its length is written to an integer.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
    let known = told == ffi::MPI_SUCCESS as c_int;
    let text = String::from_utf8_lossy(&text[..if known { usize::try_from(len).unwrap_or(0) } else { 0 }]);
    Err(failed(if text.is_empty() { format!("MPI returned the error {code}") } else { text.into_owned() }))
}

/// A number of bytes or of a rank, as MPI takes it. Pieces are at most [`CHUNK`], and ranks came from an `int`.
fn int(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl Mpi {
    /// Starts MPI, and joins all processes of this run of mpirun. A wait for another rank is limited to [`TIME_LIMIT`].
    ///
    /// # Errors
    /// [`Error::Device`] if MPI is started already, or its library allows no calls from threads.
    pub fn world() -> Result<Self> {
        Self::world_within(TIME_LIMIT)
    }

    /// As [`Mpi::world`], with another limit on the time that a rank waits for one message.
    ///
    /// # Errors
    /// As [`Mpi::world`].
    pub fn world_within(limit: Duration) -> Result<Self> {
        // The watchdog runs until the last call of this function that waits for the other ranks.
        let watchdog = Watchdog::start(limit, "MPI has not started");
        let started = mpi::initialize_with_threading(Threading::Serialized);
        let (universe, threading) = started.ok_or_else(|| {
            failed("MPI is started already; make one `Mpi` in a process, before anything else starts it".to_owned())
        })?;
        if threading < Threading::Serialized {
            let why = "this MPI library allows calls from the main thread only; use one built with thread support";
            return Err(failed(why.to_owned()));
        }
        let (mut rank, mut size) = (0, 0);
        let mut comms = [const { MaybeUninit::<ffi::MPI_Comm>::uninit() }; 2];
        for comm in &mut comms {
            // SAFETY: MPI is started, and the new handle is written to memory of its type.
            checked(unsafe { ffi::MPI_Comm_dup(ffi::RSMPI_COMM_WORLD, comm.as_mut_ptr()) })?;
        }
        drop(watchdog);
        // SAFETY: both handles were written above.
        let [data, news] = comms.map(|comm| unsafe { comm.assume_init() });
        for comm in [data, news] {
            // SAFETY: the communicator was made above. Errors are then returned instead of ending the process.
            checked(unsafe { ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN) })?;
        }
        // SAFETY: the communicator was made above, and both numbers are written to integers.
        checked(unsafe { ffi::MPI_Comm_rank(data, &mut rank) })?;
        // SAFETY: as above.
        checked(unsafe { ffi::MPI_Comm_size(data, &mut size) })?;
        let (rank, size) = (usize::try_from(rank).unwrap_or(0), usize::try_from(size).unwrap_or(1));
        let mut left = vec![None; size];
        left[rank] = Some(Instant::now());
        let state = State { data, news, sending: Vec::new(), spare: Vec::new(), left, failure: None };
        let pulse = Pulse::start(limit);
        Ok(Self { rank, size, limit, state: Mutex::new(state), pulse, universe: Some(universe) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says goodbye, and waits until every other rank has left. Ends all processes if one does not.
    fn leave(&self) {
        let _busy = self.pulse.busy();
        let began = Instant::now();
        let state = &mut *self.state();
        self.tell(state, LEFT, &[]);
        let mut looks: u32 = 0;
        loop {
            let looked = state.look_after_sends().and_then(|()| state.hear()).and_then(|()| state.drain());
            let stays = state.left.iter().position(Option::is_none);
            let Some(stays) = stays else { break };
            let patience = if state.failure.is_some() { PATIENCE.min(self.limit) } else { self.limit };
            if looked.is_err() || began.elapsed() >= patience {
                let why = match (looked, &state.failure) {
                    (Err(error), _) => error.to_string(),
                    (Ok(()), Some((rank, why))) => format!("the work has failed (rank {rank}: {why})"),
                    (Ok(()), None) => "it hangs, or works longer than the time limit".to_owned(),
                };
                let seconds = began.elapsed().as_secs_f64();
                eprintln!(
                    "error: rank {} ends all ranks, because rank {stays} has not finished after {seconds:.0} s: {why}",
                    self.rank
                );
                let _watchdog = Watchdog::start(PATIENCE, "MPI has not ended all ranks");
                // SAFETY: MPI is started. The call ends this process.
                unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 1) };
                return;
            }
            looks = looks.saturating_add(1);
            pause(looks);
        }
        // The others will not receive these messages any more. MPI may still read the buffers, so they are not freed.
        std::mem::forget(std::mem::take(&mut state.sending));
    }

    /// Tells every other rank.
    fn tell(&self, state: &mut State, tag: c_int, text: &[u8]) {
        for other in (0..self.size).filter(|&other| other != self.rank) {
            // A rank that cannot be told finds out by its time limit.
            let _ = state.send(state.news, other, tag, text);
        }
    }
}

impl State {
    /// Sends a piece from a buffer of its own.
    fn send(&mut self, comm: ffi::MPI_Comm, to: usize, tag: c_int, piece: &[u8]) -> Result<()> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(piece);
        let mut request = MaybeUninit::<ffi::MPI_Request>::uninit();
        // SAFETY: the buffer has this many bytes. It is kept unchanged in `sending` until the request is done, and its
        // heap memory does not move with it.
        checked(unsafe {
            let (from, len) = (buffer.as_ptr().cast(), int(buffer.len()));
            ffi::MPI_Isend(from, len, ffi::RSMPI_UINT8_T, int(to), tag, comm, request.as_mut_ptr())
        })?;
        // SAFETY: the call above succeeded, so it wrote the request.
        let request = unsafe { request.assume_init() };
        self.sending.push(Sending { request, buffer });
        self.look_after_sends()
    }

    /// Takes back the buffers of pieces that have been sent.
    fn look_after_sends(&mut self) -> Result<()> {
        let mut at = 0;
        while at < self.sending.len() {
            if is_done(&mut self.sending[at].request)? {
                self.spare.push(self.sending.swap_remove(at).buffer);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Looks for a piece of a rank, or of any.
    fn arrived(comm: ffi::MPI_Comm, from: Option<usize>) -> Result<Option<Arrived>> {
        let (mut found, mut len) = (0, 0);
        let mut message = MaybeUninit::<ffi::MPI_Message>::uninit();
        let mut status = MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: the communicator lives as long as MPI, and the results are written to memory of their types.
        checked(unsafe {
            let from = from.map_or(ffi::RSMPI_ANY_SOURCE, int);
            let (message, status) = (message.as_mut_ptr(), status.as_mut_ptr());
            ffi::MPI_Improbe(from, ffi::RSMPI_ANY_TAG, comm, &mut found, message, status)
        })?;
        if found == 0 {
            return Ok(None);
        }
        // SAFETY: a message was found, so both were written.
        let (message, status) = unsafe { (message.assume_init(), status.assume_init()) };
        // SAFETY: the status is that of a message of bytes, and the count is written to an integer.
        checked(unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut len) })?;
        let source = usize::try_from(status.MPI_SOURCE).unwrap_or(0);
        Ok(Some(Arrived { message, source, tag: status.MPI_TAG, len }))
    }

    /// Appends a piece that has arrived. `wait` polls the request until it is done.
    fn take(
        &mut self,
        mut piece: Arrived,
        into: &mut Vec<u8>,
        wait: impl FnOnce(&mut Self, &mut ffi::MPI_Request) -> Result<()>,
    ) -> Result<()> {
        let begin = into.len();
        into.resize(begin + usize::try_from(piece.len).unwrap_or(0), 0);
        let mut request = MaybeUninit::<ffi::MPI_Request>::uninit();
        // SAFETY: the buffer has this many bytes from `begin` on. Nobody touches it until the request is done, or it is
        // forgotten below.
        checked(unsafe {
            let to = into.as_mut_ptr().add(begin).cast();
            ffi::MPI_Imrecv(to, piece.len, ffi::RSMPI_UINT8_T, &mut piece.message, request.as_mut_ptr())
        })?;
        // SAFETY: the call above succeeded, so it wrote the request.
        let mut request = unsafe { request.assume_init() };
        let waited = wait(self, &mut request);
        if waited.is_err() {
            // MPI may still write to it.
            std::mem::forget(std::mem::take(into));
        }
        waited
    }

    /// Calls `look` until it has found something, a rank has failed, `from` has left, or the time is over.
    fn wait<R>(
        &mut self,
        from: usize,
        (began, limit): (Instant, Duration),
        mut look: impl FnMut() -> Result<Option<R>>,
    ) -> Result<R> {
        let mut looks: u32 = 0;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            looks = looks.saturating_add(1);
            if looks.is_multiple_of(LOOKS) {
                self.look_after_sends()?;
                self.hear()?;
                if let Some((rank, why)) = &self.failure {
                    return Err(Error::Rank { rank: *rank, why: why.clone() });
                }
                if self.left[from].is_some_and(|since| since.elapsed() >= GRACE) {
                    return Err(left(from));
                }
                if began.elapsed() >= limit {
                    return Err(silent(from, limit));
                }
            }
            pause(looks);
        }
    }

    /// Receives the news of other ranks.
    fn hear(&mut self) -> Result<()> {
        while let Some(news) = Self::arrived(self.news, None)? {
            let (source, tag) = (news.source, news.tag);
            let (mut text, began) = (Vec::new(), Instant::now());
            self.take(news, &mut text, |_, request| finish(source, request, began))?;
            match text.split_first_chunk::<8>() {
                Some((culprit, why)) if tag == FAILED => {
                    let culprit = usize::try_from(u64::from_le_bytes(*culprit)).unwrap_or(source);
                    self.failure.get_or_insert_with(|| (culprit, String::from_utf8_lossy(why).into_owned()));
                }
                _ => _ = self.left[source].get_or_insert_with(Instant::now),
            }
        }
        Ok(())
    }

    /// Receives and discards data that nobody waits for, so that its senders can free their buffers.
    fn drain(&mut self) -> Result<()> {
        while let Some(piece) = Self::arrived(self.data, None)? {
            let (source, began) = (piece.source, Instant::now());
            self.take(piece, &mut Vec::new(), |_, request| finish(source, request, began))?;
        }
        Ok(())
    }
}

/// Waits for a short message whose beginning has arrived.
fn finish(from: usize, request: &mut ffi::MPI_Request, began: Instant) -> Result<()> {
    let mut looks: u32 = 0;
    while !is_done(request)? {
        if began.elapsed() >= PATIENCE {
            return Err(silent(from, PATIENCE));
        }
        looks = looks.saturating_add(1);
        pause(looks);
    }
    Ok(())
}

/// Returns true if MPI is done with a request, which is then null.
fn is_done(request: &mut ffi::MPI_Request) -> Result<bool> {
    let mut done = 0;
    // SAFETY: the request came from MPI, which sets it to null once it is done. Null requests are done. Its status is
    // not asked for.
    checked(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
    Ok(done != 0)
}

/// Waits between two checks: at first it only spins, then it yields the processor, then it sleeps.
fn pause(looks: u32) {
    match looks {
        0..LOOKS => std::hint::spin_loop(),
        LOOKS..AWAKE => std::thread::yield_now(),
        _ => std::thread::sleep(NAP),
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn send(&self, to: usize, message: &[u8]) -> Result<()> {
        let _busy = self.pulse.busy();
        let state = &mut *self.state();
        state.hear()?;
        if let Some((rank, why)) = &state.failure {
            return Err(Error::Rank { rank: *rank, why: why.clone() });
        }
        let mut rest = message;
        while rest.len() > CHUNK {
            let (piece, others) = rest.split_at(CHUNK);
            state.send(state.data, to, MORE, piece)?;
            rest = others;
        }
        state.send(state.data, to, LAST, rest)
    }

    fn receive(&self, from: usize, message: &mut Vec<u8>) -> Result<()> {
        let _busy = self.pulse.busy();
        let (state, time) = (&mut *self.state(), (Instant::now(), self.limit));
        let data = state.data;
        message.clear();
        loop {
            let piece = state.wait(from, time, || State::arrived(data, Some(from)))?;
            let tag = piece.tag;
            state.take(piece, message, |state, request| {
                state.wait(from, time, || Ok(is_done(request)?.then_some(())))
            })?;
            if tag == LAST {
                return Ok(());
            }
        }
    }

    fn fail(&self, culprit: usize, why: &str) {
        let _busy = self.pulse.busy();
        let state = &mut *self.state();
        if state.failure.is_some() {
            return;
        }
        state.failure = Some((culprit, why.to_owned()));
        let mut text = (culprit as u64).to_le_bytes().to_vec();
        text.extend_from_slice(&why.as_bytes()[..why.len().min(REASON)]);
        self.tell(state, FAILED, &text);
    }
}

impl Drop for Mpi {
    /// Leaves. Waits until every other rank has left, and ends all processes if one does not.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail(self.rank, "panicked; its own output says where");
        }
        self.leave();
        let _watchdog = Watchdog::start(PATIENCE, "MPI has not ended");
        drop(self.universe.take());
    }
}

/// Ends the process if MPI does not return from a call that never waits, for example because a process has died while
/// it held a lock in shared memory.
struct Pulse {
    began: Instant,
    /// When the operation in progress started, in milliseconds since `began`, plus 1; 0 if there is none.
    since: AtomicU64,
}

/// An operation in progress.
struct Busy<'p>(&'p Pulse);

impl Pulse {
    /// Starts a thread that watches operations. An operation ends by itself after `limit`.
    fn start(limit: Duration) -> Arc<Self> {
        let pulse = Arc::new(Self { began: Instant::now(), since: AtomicU64::new(0) });
        let (watched, longest) = (Arc::downgrade(&pulse), limit + PATIENCE);
        // If no thread can be started, nobody watches the calls.
        let _ = std::thread::Builder::new().name("mpi-pulse".to_owned()).spawn(move || {
            while let Some(pulse) = watched.upgrade() {
                let since = pulse.since.load(Ordering::Relaxed);
                if since > 0 && pulse.now().saturating_sub(since) > longest.as_millis() as u64 {
                    let seconds = longest.as_secs_f64();
                    eprintln!("error: MPI has not returned from a call within {seconds} s: a rank has died or hangs");
                    // SAFETY: it ends the process without a call of MPI's, which might wait too.
                    unsafe { libc::_exit(1) };
                }
                drop(pulse);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        pulse
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64 + 1
    }

    fn busy(&self) -> Busy<'_> {
        self.since.store(self.now(), Ordering::Relaxed);
        Busy(self)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.since.store(0, Ordering::Relaxed);
    }
}

/// Ends the process unless it is dropped in time: for calls of MPI that wait for all ranks, and wait forever if one has
/// died.
struct Watchdog {
    /// Dropping it stops the watchdog.
    _off: mpsc::Sender<()>,
}

impl Watchdog {
    fn start(limit: Duration, what: &'static str) -> Self {
        let (off, called_off) = mpsc::channel();
        // If no thread can be started, nobody watches the call.
        let _ = std::thread::Builder::new().name("mpi-watchdog".to_owned()).spawn(move || {
            if called_off.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("error: {what} within {} s: a rank has died or hangs", limit.as_secs_f64());
                // SAFETY: it ends the process without a call of MPI's, which might wait too.
                unsafe { libc::_exit(1) };
            }
        });
        Self { _off: off }
    }
}
