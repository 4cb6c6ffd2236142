//! What moves on stderr while long work runs, if stderr is a terminal; nothing otherwise.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of the bar of a solve: its length is the way from the first residual to the goal, on a log scale.
const STEPS: u64 = 1000;
const REDRAW: Duration = Duration::from_millis(120);

/// A spinner with a message, for work of unknown length.
#[derive(Debug)]
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn start(message: impl Into<String>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        bar.set_message(message.into());
        bar.enable_steady_tick(REDRAW);
        Self(bar)
    }

    pub(crate) fn say(&self, message: impl Into<String>) {
        self.0.set_message(message.into());
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The bar of an iteration, with its residual.
#[derive(Debug)]
pub(crate) struct Descent {
    bar: ProgressBar,
    goal: f64,
    first: Option<f64>,
}

impl Descent {
    /// A bar that is full once the relative residual is `goal`.
    pub(crate) fn start(method: &str, goal: f64) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{prefix:.bold} [{bar:30.cyan/dim}] {msg} [{elapsed}]") {
                bar.set_style(style.progress_chars("━╸─"));
            }
            bar.set_prefix(method.to_string());
            bar.enable_steady_tick(REDRAW);
            bar
        } else {
            ProgressBar::hidden()
        };
        Self { bar, goal, first: None }
    }

    /// Shows the relative residual after so many iterations.
    pub(crate) fn show(&mut self, iterations: usize, residual: f64) {
        let first = *self.first.get_or_insert(residual.max(f64::MIN_POSITIVE));
        self.bar.set_position((fraction(first, residual, self.goal) * STEPS as f64) as u64);
        self.bar.set_message(format!("iteration {iterations}  residual {residual:.2e} (goal {:.0e})", self.goal));
    }
}

impl Drop for Descent {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How much of the way from `first` to `goal` lies behind `residual`, on a log scale.
fn fraction(first: f64, residual: f64, goal: f64) -> f64 {
    let way = (first / goal).ln();
    let done = (first / residual).ln() / way;
    if way > 0.0 && done.is_finite() { done.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::fraction;

    #[test]
    fn the_bar_is_logarithmic_and_never_leaves_its_ends() {
        assert!((fraction(1.0, 1e-4, 1e-8) - 0.5).abs() < 1e-12);
        assert_eq!(fraction(1.0, 10.0, 1e-8), 0.0);
        assert_eq!(fraction(1.0, 1e-12, 1e-8), 1.0);
        assert_eq!(fraction(1.0, f64::NAN, 1e-8), 0.0);
        assert_eq!(fraction(1.0, 0.5, 0.0), 0.0);
        assert_eq!(fraction(1.0, 0.5, 2.0), 0.0);
    }
}
