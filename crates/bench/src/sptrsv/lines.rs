//! From timings to lines of the record, and their table.

use comfy_table::{Table, presets};
use serde::Serialize;
use spandrel_sptrsv::Diagonal;

use super::problem::Facts;
use super::{Choice, Chosen};
use crate::contender::Timing;
use crate::record::{Line, More};

/// The fields of a line that only triangular solves have.
#[derive(Clone, Debug, Serialize)]
pub struct Solve {
    /// `"lower"`, `"upper"`.
    pub triangle: String,
    /// `"unit"`, `"non-unit"`.
    pub diagonal: &'static str,
    /// The origin of the triangle: `"none"` for the matrix itself, `"ilu0"`.
    pub factor: &'static str,
    /// Dependency levels of the triangle.
    pub levels: usize,
    /// Milliseconds of the analysis.
    pub analyze_ms: f64,
    /// Milliseconds to bring the triangle to the place of the solve.
    pub load_ms: f64,
    /// Bytes of the triangle in CSR and of two vectors, per millisecond: the papers' effective bandwidth.
    pub effective_gbs: f64,
    /// Milliseconds of the best peer's analysis and one solve over ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_with_analysis: Option<f64>,
    /// `"graph"`: calls captured in one graph. `"events"`: calls enqueued between two events. `"clock"`: on the host.
    pub timed_by: &'static str,
}

/// A contender without its call.
#[derive(Clone, Debug)]
pub(crate) struct Solver {
    pub(crate) noun: String,
    pub(crate) contender: &'static str,
    pub(crate) kernel: Option<String>,
    pub(crate) bytes: u64,
    /// Milliseconds of analysis and load; `None` if it solves nothing.
    pub(crate) prepared: Option<(f64, f64)>,
    pub(crate) timed_by: &'static str,
}

impl Solver {
    fn own(&self) -> bool {
        self.contender == "spandrel"
    }
    fn peer(&self) -> bool {
        !self.own() && self.prepared.is_some()
    }
}

/// One line per contender, in their order.
pub(crate) fn lines(facts: &Facts, backend: &'static str, solvers: &[Solver], timings: &[Timing]) -> Vec<Line> {
    let gbs = |k: usize| solvers[k].bytes as f64 / timings[k].ms / 1e6;
    let rate = |noun: &str| {
        let of_noun = |k: &usize| solvers[*k].prepared.is_none() && solvers[*k].noun == noun;
        (0..solvers.len()).filter(of_noun).map(gbs).max_by(f64::total_cmp)
    };
    let (copy, triad) = (rate("copy"), rate("triad"));
    let peers = || (0..solvers.len()).filter(|&k| solvers[k].peer());
    let first = |k: usize| timings[k].ms + solvers[k].prepared.map_or(0.0, |(analyze, _)| analyze);
    let best = peers().map(|k| timings[k].ms).min_by(f64::total_cmp);
    let best_first = peers().map(first).min_by(f64::total_cmp);
    let line = |(k, s): (usize, &Solver)| Line {
        op: "sptrsv",
        noun: s.noun.clone(),
        element: facts.element,
        backend,
        contender: s.contender,
        case: facts.case.clone(),
        n: facts.n,
        nnz: facts.nnz,
        ms: timings[k].ms,
        ms_min: timings[k].min,
        ms_max: timings[k].max,
        bytes: s.bytes,
        gbs: gbs(k),
        of_copy: copy.map(|b| gbs(k) / b),
        of_triad: triad.map(|b| gbs(k) / b),
        ratio_to_best_peer: best.filter(|_| s.own()).map(|p| p / timings[k].ms),
        ratio_to_csr: None,
        more: More {
            kernel: s.kernel.clone(),
            solve: s.prepared.map(|(analyze_ms, load_ms)| Solve {
                triangle: facts.triangle.to_string(),
                diagonal: if facts.diagonal == Diagonal::Unit { "unit" } else { "non-unit" },
                factor: facts.factor.as_str(),
                levels: facts.levels,
                analyze_ms,
                load_ms,
                effective_gbs: facts.effective_bytes as f64 / timings[k].ms / 1e6,
                ratio_with_analysis: best_first.filter(|_| s.own()).map(|p| p / first(k)),
                timed_by: s.timed_by,
            }),
            ..More::default()
        },
    };
    solvers.iter().enumerate().map(line).collect()
}

/// How good the choice was among `lines`, all of one triangle.
pub(crate) fn judge(facts: &Facts, backend: &'static str, chosen: &Chosen, lines: &[Line]) -> Option<Choice> {
    let own = || lines.iter().filter(|l| l.contender == "spandrel" && l.more.kernel.is_none());
    let best = own().min_by(|a, b| a.ms.total_cmp(&b.ms))?;
    let at = own().find(|l| l.noun == chosen.plan)?;
    Some(Choice {
        op: "choose",
        of: "sptrsv",
        element: facts.element,
        backend,
        case: facts.case.clone(),
        triangle: facts.triangle.to_string(),
        factor: facts.factor.as_str(),
        n: facts.n,
        nnz: facts.nnz,
        chosen: chosen.plan.to_owned(),
        why: chosen.why.clone(),
        best: best.noun.clone(),
        slower: at.ms / best.ms,
        ratio_to_best_peer: at.ratio_to_best_peer,
    })
}

/// The lines as a table, in Markdown if `markdown` is set.
pub fn table(lines: &[Line], markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    let (bandwidth, of): (_, fn(&Line) -> Option<f64>) = if lines.iter().any(|l| l.backend == "cuda") {
        ("of copy", |l| l.of_copy)
    } else {
        ("of triad", |l| l.of_triad)
    };
    table.set_header([
        "case",
        "type",
        "triangle",
        "levels",
        "plan",
        "contender",
        "analysis ms",
        "load ms",
        "solve ms",
        "GB/s",
        bandwidth,
        "effective GB/s",
        "vs best peer",
        "with analysis",
    ]);
    let share = |v: Option<f64>| v.map_or(String::new(), |v| format!("{:.0} %", v * 100.0));
    let times = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}x"));
    for l in lines {
        let of_solve = |word: &dyn Fn(&Solve) -> String| l.more.solve.as_ref().map_or(String::new(), word);
        table.add_row([
            l.case.clone(),
            l.element.into(),
            of_solve(&|s| match s.factor {
                "none" => s.triangle.clone(),
                factor => format!("{} of {factor}", s.triangle),
            }),
            of_solve(&|s| s.levels.to_string()),
            l.more.kernel.as_ref().map_or(l.noun.clone(), |kernel| format!("{} ({kernel})", l.noun)),
            l.contender.into(),
            of_solve(&|s| format!("{:.3}", s.analyze_ms)),
            of_solve(&|s| format!("{:.3}", s.load_ms)),
            format!("{:.4}", l.ms),
            format!("{:.1}", l.gbs),
            share(of(l)),
            of_solve(&|s| format!("{:.1}", s.effective_gbs)),
            times(l.ratio_to_best_peer),
            times(l.more.solve.as_ref().and_then(|s| s.ratio_with_analysis)),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sptrsv::Factor;
    use spandrel_sptrsv::Triangle;

    fn facts() -> Facts {
        Facts {
            case: "x".into(),
            element: "f64",
            n: 10,
            nnz: 40,
            triangle: Triangle::Lower,
            diagonal: Diagonal::NonUnit,
            factor: Factor::None,
            levels: 3,
            effective_bytes: 4_000_000,
        }
    }

    fn solver(noun: &str, contender: &'static str, prepared: Option<(f64, f64)>) -> Solver {
        Solver { noun: noun.into(), contender, kernel: None, bytes: 2_000_000, prepared, timed_by: "clock" }
    }

    #[test]
    fn ratios_are_the_peers_time_over_ours() {
        let solvers = [
            solver("sweep", "spandrel", Some((1.0, 9.0))),
            solver("csr", "a", Some((0.0, 0.0))),
            solver("csr", "b", Some((10.0, 0.0))),
            solver("copy", "machine", None),
        ];
        let timings = [2.0, 8.0, 4.0, 1.0].map(|ms| Timing { ms, min: ms, max: ms });
        let lines = lines(&facts(), "cpu", &solvers, &timings);
        let ours = lines[0].more.solve.as_ref().unwrap();
        assert_eq!((lines[0].gbs, ours.effective_gbs, lines[0].of_copy), (1.0, 2.0, Some(0.5)));
        // Without the analysis b is the best peer, with it a.
        assert_eq!((lines[0].ratio_to_best_peer, ours.ratio_with_analysis), (Some(2.0), Some(8.0 / 3.0)));
        assert!(lines[1].ratio_to_best_peer.is_none() && lines[3].more.solve.is_none());
        let text = serde_json::to_string(&lines[0]).unwrap();
        for field in ["triangle", "factor", "levels", "analyze_ms", "load_ms", "effective_gbs", "ratio_with_analysis"] {
            assert!(text.contains(&format!("\"{field}\":")), "{field}: {text}");
        }
        assert!(!serde_json::to_string(&lines[3]).unwrap().contains("triangle"));
        let chosen = Chosen { plan: "sweep", why: String::new() };
        assert_eq!(judge(&facts(), "cpu", &chosen, &lines).unwrap().slower, 1.0);
        assert!(table(&lines, true).contains("sweep"));
    }
}
