//! What the terminal shows while the solver works, and how Ctrl-C reaches it.

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

/// Shows phases, iterations and notes, and breaks an iteration off where Ctrl-C asked for it.
pub(super) fn watcher() -> impl FnMut(Event<'_>) -> ControlFlow<()> + Send + 'static {
    let mut line = Line::default();
    move |event| {
        match event {
            Event::Stage(Stage::Solve, method) => {
                // The old one goes first: it would stop the looking.
                line = Line::default();
                line.looking = Some(Looking::start());
                line.spinner = Some(Spinner::start(format!("solving by {method}")));
            }
            Event::Stage(stage, detail) => {
                let detail = if detail.is_empty() { String::new() } else { format!(" {detail}") };
                // The old line goes first: phases of the program nest.
                line = Line::default();
                line.spinner = Some(Spinner::start(format!("{stage}{detail}")));
            }
            Event::Iteration(method, at) => {
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
