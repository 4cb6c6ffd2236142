//! Ends trials that hang. If a kernel waits forever, only the end of the process stops it.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// A trial that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A thread that ends the process if the watched trial hangs. The trial's name goes to stderr, and the exit status is
/// that of a failure.
pub(crate) struct Watchdog(Sender<Option<String>>);

impl Watchdog {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel::<Option<String>>();
        std::thread::spawn(move || {
            let mut watched = None;
            loop {
                let next = match &watched {
                    Some(name) => match receiver.recv_timeout(PATIENCE) {
                        Err(RecvTimeoutError::Timeout) => {
                            eprintln!("FAILED  {name}\n        not done after {} s: it hangs", PATIENCE.as_secs());
                            // `exit` would wait for the driver's work at the end of a process.
                            std::process::abort();
                        }
                        other => other.ok(),
                    },
                    None => receiver.recv().ok(),
                };
                match next {
                    Some(next) => watched = next,
                    None => return,
                }
            }
        });
        Self(sender)
    }

    /// Watches this trial from now on, or none.
    pub(crate) fn watch(&self, name: Option<String>) {
        let _gone = self.0.send(name);
    }
}
