//! The end of what hangs: a spinning kernel that waits for ever is ended by nothing but the end of its process.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A thread that ends the process where what is watched hangs: its name goes to stderr, the exit status is a failure's.
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
                            // `exit` would wait for what a driver does at the end of a process.
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

    /// From now on this is watched, or nothing.
    pub(crate) fn watch(&self, name: Option<String>) {
        let _gone = self.0.send(name);
    }
}
