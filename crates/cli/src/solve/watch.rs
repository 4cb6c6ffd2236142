//! The progress of a working solver on the terminal, and how Ctrl-C reaches it.

use std::ops::ControlFlow;

use spandrel::Method;
use spandrel::solver::{Event, Stage};

use crate::interrupt::{self, Looking};
use crate::progress::{self, Descent, Spinner};

/// The line of the current stage. Its fields are dropped as the next one begins.
#[derive(Default)]
struct Line {
    spinner: Option<Spinner>,
    descent: Option<(Method, Descent)>,
    looking: Option<Looking>,
}

/// Shows phases, iterations and notes, and stops an iteration on Ctrl-C.
pub(super) fn watcher() -> impl FnMut(Event<'_>) -> ControlFlow<()> + Send + 'static {
    let mut line = Line::default();
    move |event| {
        match event {
            Event::Stage(stage, detail) => {
                // Drop the old line first, because dropping it ends the check for Ctrl-C.
                line = Line::default();
                // Only an iteration checks for Ctrl-C; any other stage is ended at once.
                let iterates = stage == Stage::Solve && detail.parse::<Method>().is_ok();
                line.looking = iterates.then(Looking::start);
                line.spinner = Some(Spinner::start(match (stage, detail) {
                    (Stage::Solve, method) if iterates => format!("iterating by {method}"),
                    (stage, "") => stage.to_string(),
                    (stage, detail) => format!("{stage}: {detail}"),
                }));
            }
            Event::Iteration(method, at, _) => {
                if !matches!(&line.descent, Some((shown, _)) if *shown == method) {
                    line.descent = Some((method, Descent::start(method.as_str(), at.target)));
                }
                if let Some((_, descent)) = &mut line.descent {
                    descent.show(at.iterations, at.residual);
                }
                if interrupt::asked() {
                    return ControlFlow::Break(());
                }
            }
            Event::Note(note) => progress::note(note),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
