//! The results of whole solves as lines of the record and as a table, and their geometric means.

use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use super::Setup;

/// One contender on one case.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// `"solve"`.
    pub op: &'static str,
    /// `"cg"`, `"bicgstab"`.
    pub noun: &'static str,
    /// Element type of matrix and answer.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"f64"`, `"mixed"` (the preconditioner in f32), `"refined"` (around solves in f32).
    pub precision: &'static str,
    /// `"cuda"`.
    pub backend: &'static str,
    /// `"spandrel"`, `"cusparse+cublas"`.
    pub contender: &'static str,
    /// The matrix.
    pub case: String,
    /// Rows.
    pub n: usize,
    /// Entries.
    pub nnz: usize,
    /// `"ic0"`, `"ilu0"`.
    pub precond: &'static str,
    /// How products and triangular solves run.
    pub kernel: String,
    /// The alpha if A + alpha diag(A) was factored; else 0.
    pub shift: f64,
    /// The word of the outcome; `"error"` with a reason; `"wrong_answer"` if the residual contradicts the outcome.
    pub status: String,
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Iterations.
    pub iterations: usize,
    /// The tolerance.
    pub rtol: f64,
    /// ||b - A x|| / ||b|| as the contender reports it.
    pub true_residual: Option<f64>,
    /// The same, summed again on the host.
    pub recomputed_residual: Option<f64>,
    /// Median milliseconds of a solve from x = 0 on the device to an outcome that the host knows. If it did not
    /// converge, its own time.
    pub ms: Option<f64>,
    /// Fastest round.
    pub ms_min: Option<f64>,
    /// Slowest round.
    pub ms_max: Option<f64>,
    /// Rounds.
    pub rounds: usize,
    /// Milliseconds from the CSR matrix on the host to everything that a solve needs, including copies.
    pub setup_ms: Option<f64>,
    /// Its parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Value>,
    /// The part of `setup_ms` that brings the three arrays of the CSR matrix onto the device.
    pub transfer_ms: Option<f64>,
    /// Milliseconds from the CSR matrix on the device, if the contender can begin there.
    pub setup_resident_ms: Option<f64>,
    /// Whether the number of iterations is within 2 %, or one, of the peer's fastest solve.
    pub same_iterations: Option<bool>,
    /// Milliseconds of the peer's fastest solve over ours, if both answers are right.
    pub ratio_to_best_peer: Option<f64>,
    /// Milliseconds of its shortest set-up and solve over ours: of one run of the peer, including its own form of the
    /// product if it has one.
    pub ratio_with_setup: Option<f64>,
    /// Milliseconds of our solve in f64 over this one.
    pub ratio_to_f64: Option<f64>,
}

impl Line {
    /// Whether the answer is right.
    pub fn is_right(&self) -> bool {
        self.status == "converged"
    }

    fn ours(&self) -> bool {
        self.contender == "spandrel"
    }

    /// Milliseconds of set-up and solve.
    fn whole_ms(&self) -> Option<f64> {
        self.ms.zip(self.setup_ms).map(|(ms, setup)| ms + setup)
    }
}

/// The milliseconds of a set-up in a line.
pub(super) fn parts(setup: &Setup) -> Value {
    let rounded = |ms: f64| (ms * 1e6).round() / 1e6;
    Value::Object(setup.parts.iter().map(|(part, ms)| (format!("{part}_ms"), json!(rounded(*ms)))).collect())
}

/// The least of some milliseconds, if there are any.
fn least(of: impl Iterator<Item = f64>) -> Option<f64> {
    of.min_by(f64::total_cmp)
}

/// Fills in the ratios of the lines of one case and method. The peer may appear several times. Solves are compared with
/// its fastest solve and whole times with its shortest whole time, so each time belongs to one of its ways.
pub(super) fn compare(lines: &mut [Line]) {
    let peers = || lines.iter().filter(|l| !l.ours() && l.is_right());
    let peer_ms = least(peers().filter_map(|l| l.ms));
    let peer_whole = least(peers().filter_map(Line::whole_ms));
    let iterations = peers().filter(|l| l.ms == peer_ms).map(|l| l.iterations).next();
    let plain = lines.iter().find(|l| l.ours() && l.precision == "f64" && l.is_right()).and_then(|l| l.ms);
    for line in lines.iter_mut().filter(|l| l.ours() && l.is_right()) {
        let Some(ms) = line.ms else { continue };
        if line.precision != "f64" {
            line.ratio_to_f64 = plain.map(|plain| plain / ms);
        }
        let Some(iterations) = iterations else { continue };
        let apart = line.iterations.abs_diff(iterations);
        line.same_iterations = Some(apart <= 1 || 50 * apart <= iterations);
        line.ratio_to_best_peer = peer_ms.map(|peer| peer / ms);
        line.ratio_with_setup = peer_whole.zip(line.whole_ms()).map(|(peer, own)| peer / own);
    }
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = ratios.fold((0.0, 0), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

/// Geometric means of the ratios by method and precision over the cases in which both sides are right, with the number
/// of these cases and of all.
pub fn means(lines: &[Line]) -> Vec<Value> {
    let mut out = Vec::new();
    for noun in ["cg", "bicgstab", "all"] {
        for precision in ["f64", "mixed", "refined"] {
            let of = |l: &&Line| l.ours() && (noun == "all" || l.noun == noun) && l.precision == precision;
            let all: Vec<&Line> = lines.iter().filter(of).collect();
            if all.is_empty() {
                continue;
            }
            let mean = |ratio: fn(&Line) -> Option<f64>| geometric_mean(all.iter().filter_map(|l| ratio(l)));
            let compared = all.iter().filter(|l| l.ratio_to_best_peer.is_some()).count();
            let converged = all.iter().filter(|l| l.is_right()).count();
            out.push(json!({
                "op": "solve", "noun": noun, "type": "f64", "precision": precision, "backend": "cuda", "contender": "spandrel",
                "case": "geometric mean", "cases": all.len(), "converged": converged, "compared": compared,
                "ratio_to_best_peer": mean(|l| l.ratio_to_best_peer), "ratio_with_setup": mean(|l| l.ratio_with_setup),
                "ratio_to_f64": mean(|l| l.ratio_to_f64),
            }));
        }
    }
    out
}

/// The lines as a table, in Markdown if `markdown` is set.
pub fn table(lines: &[Line], markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header([
        "case",
        "method",
        "contender",
        "kernel",
        "status",
        "iterations",
        "residual",
        "set-up ms",
        "solve ms",
        "solve",
        "with set-up",
        "to f64",
    ]);
    let ms = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.3}"));
    let times = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}x"));
    for l in lines {
        let contender = if l.ours() { format!("spandrel, {}", l.precision) } else { l.contender.into() };
        let status = l.error.as_ref().map_or(l.status.clone(), |why| format!("{}: {why}", l.status));
        table.add_row([
            l.case.clone(),
            format!("{}-{}", l.precond, l.noun),
            contender,
            l.kernel.clone(),
            status,
            l.iterations.to_string(),
            l.recomputed_residual.map_or(String::new(), |r| format!("{r:.1e}")),
            ms(l.setup_ms),
            ms(l.ms),
            times(l.ratio_to_best_peer),
            times(l.ratio_with_setup),
            times(l.ratio_to_f64),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn line(contender: &'static str, precision: &'static str, iterations: usize, ms: f64) -> Line {
        Line {
            op: "solve",
            noun: "cg",
            element: "f64",
            precision,
            backend: "cuda",
            contender,
            case: "d3n7:8".into(),
            n: 512,
            nnz: 3200,
            precond: "ic0",
            kernel: "dia, sweep".into(),
            shift: 0.0,
            status: "converged".into(),
            error: None,
            iterations,
            rtol: 1e-8,
            true_residual: Some(9e-9),
            recomputed_residual: Some(9e-9),
            ms: Some(ms),
            ms_min: Some(ms),
            ms_max: Some(ms),
            rounds: 1,
            setup_ms: Some(10.0),
            setup: None,
            transfer_ms: Some(1.0),
            setup_resident_ms: None,
            same_iterations: None,
            ratio_to_best_peer: None,
            ratio_with_setup: None,
            ratio_to_f64: None,
        }
    }

    #[test]
    fn ratios_compare_right_answers_alone() {
        let mut lines = vec![line("spandrel", "f64", 100, 2.0), line("cusparse+cublas", "f64", 102, 8.0)];
        lines.push(line("spandrel", "mixed", 130, 1.0));
        compare(&mut lines);
        assert_eq!((lines[0].ratio_to_best_peer, lines[0].ratio_with_setup), (Some(4.0), Some(1.5)));
        // A way of the peer with a slower solve and a shorter set-up.
        lines.push(Line { setup_ms: Some(2.0), ..line("cusparse+cublas", "f64", 120, 9.0) });
        compare(&mut lines);
        assert_eq!((lines[0].ratio_to_best_peer, lines[0].same_iterations), (Some(4.0), Some(true)));
        assert_eq!(lines[0].ratio_with_setup, Some(11.0 / 12.0), "one run's set-up with the other's solve");
        lines[3].status = "max_iterations".into();
        compare(&mut lines);
        assert_eq!(lines[0].ratio_with_setup, Some(1.5), "a whole time without an answer");
        assert_eq!((lines[0].same_iterations, lines[2].same_iterations), (Some(true), Some(false)));
        assert_eq!((lines[0].ratio_to_f64, lines[2].ratio_to_f64), (None, Some(2.0)));
        assert_eq!(lines[1].ratio_to_best_peer, None);

        let means = means(&lines);
        let of = |noun: &str, precision: &str| {
            means.iter().find(|m| m["noun"] == noun && m["precision"] == precision).cloned()
        };
        assert_eq!(of("all", "f64").expect("a mean")["ratio_to_best_peer"], 4.0);
        assert!(of("bicgstab", "f64").is_none());

        lines[1].status = "zero_pivot".into();
        for line in &mut lines {
            (line.ratio_to_best_peer, line.ratio_with_setup) = (None, None);
        }
        compare(&mut lines);
        assert_eq!(lines[0].ratio_to_best_peer, None);
        assert_eq!(super::means(&lines)[0]["compared"], 0);
    }

    #[test]
    fn a_line_says_what_was_left_out() {
        let mut failed = line("spandrel", "f64", 0, 1.0);
        (failed.status, failed.error, failed.ms) = ("error".into(), Some("out of memory".into()), None);
        let object = serde_json::to_value(&failed).expect("plain data");
        assert_eq!((&object["status"], &object["error"]), (&json!("error"), &json!("out of memory")));
        assert_eq!((&object["type"], object["ms"].is_null()), (&json!("f64"), true));
        let text = table(&[failed], true);
        assert!(text.starts_with('|') && text.contains("error: out of memory"), "{text}");
    }
}
