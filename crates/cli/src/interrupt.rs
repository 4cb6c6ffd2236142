//! Ctrl-C: the first asks the work to end with what it has, the second ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Result};

/// Exit status of a program ended by the second Ctrl-C: 128 + SIGINT.
const KILLED: i32 = 130;

static ASKED: AtomicBool = AtomicBool::new(false);
static LISTENING: AtomicBool = AtomicBool::new(false);

/// Installs the handler, once however often it is called: where something looks at [`asked`]. Before this, Ctrl-C ends the program at once.
///
/// # Errors
/// Kind `io`, if the system refuses.
pub(crate) fn listen() -> Result<()> {
    if LISTENING.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    ctrlc::set_handler(|| {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(KILLED);
        }
    })
    .map_err(|error| Failure::new("io", format!("cannot listen for Ctrl-C: {error}")))
}

/// Whether Ctrl-C was pressed.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
