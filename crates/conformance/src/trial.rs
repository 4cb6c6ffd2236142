//! A trial is a name with a body that ends in an outcome. This module also runs many of them.
//!
//! Names follow one grammar, `operation/noun/type/backend/case`, so that a failing trial names the kernel to open.

use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde::Serialize;

/// Why a trial did not pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// The subject broke its promise: what was expected, what was found, and where the difference is largest.
    Wrong(String),
    /// The matrix was refused, as its case announces. The promise was kept, and there is nothing more to try.
    Refused,
    /// The trial does not apply, for this reason.
    Skipped(String),
}

/// The result of a trial's body.
pub type Verdict = Result<(), Finding>;

/// A [`Finding::Wrong`].
pub fn wrong(what: impl Display) -> Finding {
    Finding::Wrong(what.to_string())
}

impl From<spandrel_backend::Error> for Finding {
    fn from(error: spandrel_backend::Error) -> Self {
        match error {
            spandrel_backend::Error::Unsupported { .. } => Finding::Skipped(error.to_string()),
            error => Finding::Wrong(format!("expected success, got the error: {error}")),
        }
    }
}

impl From<spandrel_formats::Error> for Finding {
    fn from(error: spandrel_formats::Error) -> Self {
        Finding::Wrong(format!("expected success, got the error: {error}"))
    }
}

/// A named check of one promise of the contract.
pub struct Trial {
    /// `operation/noun/type/backend/case`.
    pub name: String,
    body: Box<dyn FnOnce() -> Verdict>,
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trial").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The promise was kept.
    Passed,
    /// It was broken.
    Failed,
    /// It could not be checked. This never counts as passed.
    Skipped,
}

/// The record of a trial that ran: one line of the JSON file.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The trial's name.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What was expected and what was found, or why it was skipped. Empty if it passed.
    pub detail: String,
    /// The wall time.
    pub seconds: f64,
}

impl Trial {
    /// A trial with its body.
    pub fn new(name: String, body: impl FnOnce() -> Verdict + 'static) -> Self {
        Self { name, body: Box::new(body) }
    }

    /// A trial that cannot run, and the reason.
    pub fn skipped(name: String, why: String) -> Self {
        Self::new(name, move || Err(Finding::Skipped(why)))
    }

    /// Runs the body. A panic counts as a failure.
    pub fn run(self) -> Record {
        let begin = Instant::now();
        let verdict = quietly(self.body);
        let seconds = begin.elapsed().as_secs_f64();
        let (outcome, detail) = match verdict {
            Ok(Ok(()) | Err(Finding::Refused)) => (Outcome::Passed, String::new()),
            Ok(Err(Finding::Wrong(detail))) => (Outcome::Failed, detail),
            Ok(Err(Finding::Skipped(why))) => (Outcome::Skipped, why),
            Err(panic) => (Outcome::Failed, format!("panicked: {panic}")),
        };
        Record { name: self.name, outcome, detail, seconds }
    }
}

thread_local! {
    /// The message of the panic that is being caught, while this is `Some`.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `body`. A panic becomes its message and place, and is not printed.
pub(crate) fn quietly<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let outer = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let caught = CAUGHT.with_borrow_mut(|slot| slot.as_mut().map(|text| *text = info.to_string()).is_some());
            if !caught {
                outer(info);
            }
        }));
    });
    CAUGHT.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(body));
    let message = CAUGHT.take().unwrap_or_default();
    result.map_err(|_| message)
}

/// The counts of a run, printed as its last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Trials that passed.
    pub passed: usize,
    /// Trials that failed.
    pub failed: usize,
    /// Trials that could not be run.
    pub skipped: usize,
}

impl Tally {
    /// Counts one record.
    pub fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let record = Trial::new("a".into(), || panic!("kernel {}", 7)).run();
        assert_eq!(record.outcome, Outcome::Failed);
        assert!(record.detail.contains("kernel 7") && record.detail.contains("trial.rs"), "{}", record.detail);
        assert_eq!(Trial::new("b".into(), || Ok(())).run().outcome, Outcome::Passed);
        assert_eq!(Trial::skipped("c".into(), "no device".into()).run().outcome, Outcome::Skipped);
    }
}
