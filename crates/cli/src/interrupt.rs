//! Ctrl-C, and the signals that end a program (SIGTERM, SIGHUP). A SIGHUP that is ignored at the start stays ignored,
//! because `nohup` asks for that.
//!
//! During an iteration, the first signal stops it with the x that it has. At any other time, and on the second signal,
//! the program ends at once. It first removes files that are being written, so that none is left incomplete.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Result};
use crate::progress;

/// Exit status of a program that was ended at once: 128 + SIGINT, as shells report it.
pub(crate) const ENDED: u8 = 130;

static ASKED: AtomicBool = AtomicBool::new(false);
static LOOKING: AtomicBool = AtomicBool::new(false);
/// Files that are not yet whole. Whoever holds the lock is making, moving or removing a file.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Installs the handler. Called once, before any work.
///
/// # Errors
/// Kind `io`, if the system refuses.
pub(crate) fn install() -> Result<()> {
    let ignored = hangup::is_ignored();
    ctrlc::set_handler(pressed).map_err(|error| Failure::new("io", format!("cannot listen for Ctrl-C: {error}")))?;
    if ignored {
        // The handler takes every signal that ends a program.
        hangup::ignore();
    }
    Ok(())
}

/// SIGHUP, which a terminal sends as it closes.
#[cfg(unix)]
mod hangup {
    use std::mem::MaybeUninit;
    use std::ptr;

    pub(super) fn is_ignored() -> bool {
        let mut now = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: no new action is given, and the current one is written to memory of its type, for which zeros are a
        // value.
        unsafe {
            libc::sigaction(libc::SIGHUP, ptr::null(), now.as_mut_ptr()) == 0
                && now.assume_init().sa_sigaction == libc::SIG_IGN
        }
    }

    pub(super) fn ignore() {
        // SAFETY: to ignore a signal calls no function of ours.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    }
}

/// There is no SIGHUP.
#[cfg(not(unix))]
mod hangup {
    pub(super) fn is_ignored() -> bool {
        false
    }
    pub(super) fn ignore() {}
}

fn pressed() {
    if LOOKING.load(Ordering::SeqCst) && !ASKED.swap(true, Ordering::SeqCst) {
        return;
    }
    // Never unlocked: no file is made or moved from here on.
    let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    for file in unfinished.iter() {
        // Nothing can be done if that fails.
        let _ = std::fs::remove_file(file);
    }
    progress::interrupted();
    std::process::exit(i32::from(ENDED));
}

/// Whether Ctrl-C was pressed while somebody looks.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// While this lives, the first Ctrl-C only makes [`asked`] true; its holder checks that.
#[derive(Debug)]
pub(crate) struct Looking(());

impl Looking {
    pub(crate) fn start() -> Self {
        LOOKING.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        LOOKING.store(false, Ordering::SeqCst);
    }
}

/// Makes a file by `make`, which returns its path, and removes it if Ctrl-C ends the program before [`finish`].
///
/// # Errors
/// Those of `make`.
pub(crate) fn begin<E>(make: impl FnOnce() -> std::result::Result<PathBuf, E>) -> std::result::Result<PathBuf, E> {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = make()?;
    unfinished.push(file.clone());
    Ok(file)
}

/// Moves or removes an unfinished file by `how`. Ctrl-C comes before it or after it, never in between.
pub(crate) fn finish<R>(file: &Path, how: impl FnOnce() -> R) -> R {
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let result = how();
    unfinished.retain(|other| other != file);
    result
}

/// Does something short that Ctrl-C must not interrupt.
pub(crate) fn undivided<R>(work: impl FnOnce() -> R) -> R {
    let _unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}
