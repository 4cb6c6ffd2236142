//! Messages on stderr during long work: one line with the current phase, only if stderr is a terminal, and notes.
//!
//! There is one line for the whole program. Phases nest: the innermost is shown, and when it ends the surrounding one
//! is shown again. `--quiet` omits the line and the notes.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

/// Steps of the bar of a solve: its length is the way from the first residual to the goal, on a log scale.
const STEPS: u64 = 1000;
const REDRAW: Duration = Duration::from_millis(120);
/// Redraws per second at most, as the drawing library has it for terminals.
const MOST: u8 = 20;
/// Columns of the terminal that stay free on the right: room for the `^C` that it shows for a Ctrl-C, pressed twice.
const ECHO: u16 = 4;

static QUIET: AtomicBool = AtomicBool::new(false);
static LINE: Mutex<Line> = Mutex::new(Line::new());

/// Leaves out the line and the notes from here on.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what was decided or left out, on a line of its own above the moving one.
pub(crate) fn note(text: &str) {
    if is_quiet() {
        return;
    }
    // If stderr is closed, no one can be told.
    let tell = || drop(writeln!(std::io::stderr(), "note: {text}"));
    match &line().bar {
        Some(bar) => bar.suspend(tell),
        None => tell(),
    }
}

/// Clears the line and says in which phase the program was ended.
pub(crate) fn interrupted() {
    let mut line = line();
    line.clear();
    let place = line.phases.last().map(|phase| format!(" while {}", phase.message)).unwrap_or_default();
    drop(writeln!(std::io::stderr(), "interrupted{place}"));
}

#[derive(Debug)]
struct Phase {
    id: u64,
    message: String,
}

/// The phases that are under way, outermost first, and what shows the innermost on a terminal.
#[derive(Debug)]
struct Line {
    phases: Vec<Phase>,
    next: u64,
    bar: Option<ProgressBar>,
}

impl Line {
    const fn new() -> Self {
        Self { phases: Vec::new(), next: 0, bar: None }
    }

    fn begin(&mut self, message: String) -> u64 {
        let id = self.next;
        self.next += 1;
        self.phases.push(Phase { id, message });
        id
    }

    fn rename(&mut self, id: u64, message: String) {
        if let Some(phase) = self.phases.iter_mut().find(|phase| phase.id == id) {
            phase.message = message;
        }
        self.show();
    }

    fn end(&mut self, id: u64) {
        self.phases.retain(|phase| phase.id != id);
        self.show();
    }

    /// Shows a spinner with the innermost phase, or nothing if there is none.
    fn show(&mut self) {
        let Some(phase) = self.phases.last() else { return self.clear() };
        let bar = self.bar.get_or_insert_with(|| started(None, "{spinner:.cyan} {msg} [{elapsed}]", ""));
        if bar.message() != phase.message {
            bar.reset_elapsed();
            bar.set_message(phase.message.clone());
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A bar on stderr; hidden if that is not a terminal or with `--quiet`.
fn started(len: Option<u64>, template: &str, chars: &str) -> ProgressBar {
    if is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let terminal = ProgressDrawTarget::term_like_with_hz(Box::new(Narrower(Term::buffered_stderr())), MOST);
    let bar = ProgressBar::with_draw_target(len, terminal);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(if chars.is_empty() { style } else { style.progress_chars(chars) });
    }
    bar.enable_steady_tick(REDRAW);
    bar
}

/// The terminal, reported as [`ECHO`] columns narrower. The drawing library fills its line to the last column; a `^C`
/// after that would begin the next line, and the library would clear that line instead.
#[derive(Debug)]
struct Narrower(Term);

impl TermLike for Narrower {
    fn width(&self) -> u16 {
        TermLike::width(&self.0).saturating_sub(ECHO).max(1)
    }
    fn height(&self) -> u16 {
        TermLike::height(&self.0)
    }
    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n)
    }
    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n)
    }
    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n)
    }
    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n)
    }
    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.write_line(line)
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }
    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A phase of unknown length, until it is dropped. Its message has the form "reading a.mtx".
#[derive(Debug)]
pub(crate) struct Spinner(u64);

impl Spinner {
    pub(crate) fn start(message: impl Into<String>) -> Self {
        let mut line = line();
        let id = line.begin(message.into());
        line.show();
        Self(id)
    }

    pub(crate) fn say(&self, message: impl Into<String>) {
        line().rename(self.0, message.into());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        line().end(self.0);
    }
}

/// The phase of an iteration: a bar with the residual.
#[derive(Debug)]
pub(crate) struct Descent {
    id: u64,
    bar: ProgressBar,
    goal: f64,
    first: Option<f64>,
}

impl Descent {
    /// A bar that is full once the relative residual is `goal`.
    pub(crate) fn start(method: &str, goal: f64) -> Self {
        let mut line = line();
        line.clear();
        let id = line.begin(format!("iterating by {method}"));
        let bar = started(Some(STEPS), "{prefix:.bold} [{bar:30.cyan/dim}] {msg} [{elapsed}]", "━╸─");
        bar.set_prefix(method.to_string());
        line.bar = Some(bar.clone());
        Self { id, bar, goal, first: None }
    }

    /// Shows the number of iterations and the relative residual.
    pub(crate) fn show(&mut self, iterations: usize, residual: f64) {
        let first = *self.first.get_or_insert(residual.max(f64::MIN_POSITIVE));
        self.bar.set_position((fraction(first, residual, self.goal) * STEPS as f64) as u64);
        self.bar.set_message(format!("iteration {iterations}  residual {residual:.2e} (goal {:.0e})", self.goal));
    }
}

impl Drop for Descent {
    fn drop(&mut self) {
        let mut line = line();
        line.clear();
        line.end(self.id);
    }
}

/// The share of the way from `first` to `goal` that `residual` has covered, on a log scale.
fn fraction(first: f64, residual: f64, goal: f64) -> f64 {
    let way = (first / goal).ln();
    let done = (first / residual).ln() / way;
    if way > 0.0 && done.is_finite() { done.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_logarithmic_and_never_leaves_its_ends() {
        assert!((fraction(1.0, 1e-4, 1e-8) - 0.5).abs() < 1e-12);
        assert_eq!(fraction(1.0, 10.0, 1e-8), 0.0);
        assert_eq!(fraction(1.0, 1e-12, 1e-8), 1.0);
        assert_eq!(fraction(1.0, f64::NAN, 1e-8), 0.0);
        assert_eq!(fraction(1.0, 0.5, 0.0), 0.0);
        assert_eq!(fraction(1.0, 0.5, 2.0), 0.0);
    }

    #[test]
    fn the_innermost_phase_is_shown_and_the_outer_one_comes_back() {
        let mut line = Line::new();
        let shown = |line: &Line| line.bar.as_ref().map(ProgressBar::message);
        let outer = line.begin("reading".into());
        line.show();
        let inner = line.begin("unpacking".into());
        line.show();
        assert_eq!(shown(&line).as_deref(), Some("unpacking"));
        line.rename(outer, "loading".into());
        assert_eq!(shown(&line).as_deref(), Some("unpacking"));
        line.end(inner);
        assert_eq!(shown(&line).as_deref(), Some("loading"));
        line.end(outer);
        assert_eq!(shown(&line), None);
    }
}
