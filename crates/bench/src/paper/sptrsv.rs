//! `spandrel-bench paper sptrsv`: lower triangles of four stencils on cubes, f64.
//!
//! Figure 5: effective bandwidth of every plan and peer by stencil and size. Figure 6: the gain of each step of the
//! structured plan, D3N33. Figure 7: time with progress compressed or not, cached or not, D3N33. Figure 4: `ld.cg`
//! against `ld.acquire` for the progress. On a CPU the steps change nothing, so Figures 4, 6 and 7 need a GPU.
//!
//! The paper's means of ten runs are medians here. Its Figure 7 counts the clocks inside the waiting threads; here it
//! is the time of the whole solve, whose differences are the cost of the state.
//!
//! Reference: Chen, Yang, Liu, Ma 2023, A structured SpTRSV for GPUs, J. Software 34(11), section 3.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use spandrel_sptrsv::Triangle;

use super::claims_table;
use crate::case::Case;
use crate::contender::Effort;
use crate::plot::{self, Panel, Series};
use crate::record::Line;
use crate::sptrsv::lines::Solve;
use crate::sptrsv::stages::VARIANTS;
use crate::sptrsv::{Contest, Factor};

/// The paper's stencils.
pub const STENCILS: [&str; 4] = ["d3n7", "d3n13", "d3n27", "d3n33"];
/// The stencil of Figures 4, 6 and 7.
const TAKEN_APART: &str = "d3n33";
/// The plans of Figure 5, with their names there.
const SERIES: [(&str, &str); 10] = [
    ("structured", "structured (Algorithm 2)"),
    ("sweep", "sweep"),
    ("cusparse", "cuSPARSE SpSV"),
    ("sprs", "sprs"),
    ("faer", "faer"),
    ("syncfree", "synchronisation-free"),
    ("capellini", "Capellini"),
    ("elementwise", "element-wise (Algorithm 1)"),
    ("levelset", "level sets"),
    ("serial", "serial, one thread"),
];
/// The paper's range of effective bandwidth in GB/s: Algorithm 2, all stencils and sizes, V100 of 900 GB/s.
const PUBLISHED: (f64, f64) = (40.1, 225.2);
/// The gain over cuSPARSE's csrsv2 on average, and the largest over the synchronisation-free methods.
const OVER_CUSPARSE: f64 = 2.71;
const OVER_SYNCFREE: f64 = 15.1;
/// Figure 6, large sizes: multi-stage over the baseline, the rest over multi-stage, and both together.
const GAINS: [f64; 3] = [0.68, 0.25, 1.15];

/// Edges of the cubes.
pub fn sizes(gpu: bool, quick: bool) -> &'static [usize] {
    match (gpu, quick) {
        (_, false) => &[64, 128, 192, 256],
        (true, true) => &[64, 128],
        (false, true) => &[16, 32, 48],
    }
}

/// The cases with their contests. One thread of a GPU is left out.
pub fn contests(gpu: bool, sizes: &[usize], effort: Effort) -> Vec<(Case, Contest)> {
    let plans = || {
        let nouns = SERIES.iter().map(|(noun, _)| *noun).filter(|noun| !PEERS.contains(noun));
        nouns.filter(move |&noun| !gpu || noun != "serial").map(str::to_owned).collect()
    };
    let contest = |stencil: &str, size: usize| Contest {
        plans: plans(),
        peers: if gpu { vec!["cusparse".into()] } else { vec!["sprs".into(), "faer".into()] },
        triangles: vec![Triangle::Lower],
        factor: Factor::None,
        grid: Some([size; 3]),
        staged: if gpu && stencil == TAKEN_APART { VARIANTS.to_vec() } else { Vec::new() },
        auto: false,
        effort,
        machine: true,
        min_entries: 0,
    };
    let cases = STENCILS.iter().flat_map(|stencil| sizes.iter().map(move |size| (stencil, size)));
    cases.map(|(stencil, size)| (Case::parse(&format!("{stencil}:{size}")), contest(stencil, *size))).collect()
}

const PEERS: [&str; 3] = ["cusparse", "sprs", "faer"];

/// Writes into each line the figures that contain it.
pub fn tag(lines: &mut [Line]) {
    for line in lines.iter_mut().filter(|l| l.more.solve.is_some()) {
        let own = line.contender == "spandrel";
        let figures = match line.more.kernel.as_deref().filter(|_| own) {
            None => "5",
            Some("baseline" | "multistage" | "multistage, prefetch") => "6",
            Some("all") => "4 6 7",
            Some("compressed, ld.cg") => "4 7",
            Some(_) => "7",
        };
        line.more.figure = Some(figures.into());
    }
}

/// The lines of one experiment, by kind.
struct Found<'a>(&'a [Line]);

impl<'a> Found<'a> {
    /// The fastest line of a series in Figure 5: one of our plans, or a peer with its best storage.
    fn series(&self, case: &str, noun: &str) -> Option<&'a Line> {
        let own = |l: &&Line| l.contender == "spandrel" && l.noun == noun && l.more.kernel.is_none();
        let here = self.0.iter().filter(|l| l.case == case);
        here.filter(|l| own(l) || l.contender == noun).min_by(|a, b| a.ms.total_cmp(&b.ms))
    }
    /// A variant of the structured plan.
    fn variant(&self, case: &str, label: &str) -> Option<&'a Line> {
        let is = |l: &&Line| l.contender == "spandrel" && l.more.kernel.as_deref() == Some(label);
        self.0.iter().filter(|l| l.case == case).find(is)
    }
    /// The edges of the cubes that have lines, ascending.
    fn sizes(&self, stencil: &str) -> Vec<usize> {
        let edge = |l: &Line| l.case.strip_prefix(stencil)?.strip_prefix(':')?.parse().ok();
        let mut sizes: Vec<usize> = self.0.iter().filter_map(edge).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
    /// Ratios of milliseconds over all cases that both series have.
    fn ratios(&self, over: &str, ours: &str) -> Vec<f64> {
        let cases = STENCILS.iter().flat_map(|s| self.sizes(s).into_iter().map(move |size| format!("{s}:{size}")));
        cases.filter_map(|case| Some(self.series(&case, over)?.ms / self.series(&case, ours)?.ms)).collect()
    }
    /// Whether a series has any line.
    fn has(&self, noun: &str) -> bool {
        self.0.iter().any(|l| l.noun == noun || l.contender == noun)
    }
    fn is_gpu(&self) -> bool {
        self.0.iter().any(|l| l.backend == "cuda")
    }
}

fn effective(line: &Line) -> Option<f64> {
    line.more.solve.as_ref().map(|s: &Solve| s.effective_gbs)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn most(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

/// The paper's numerical claims beside the results here, one object per claim; `null` if a series is missing.
pub fn claims(lines: &[Line]) -> Vec<Value> {
    let found = Found(lines);
    let claim = |figure: &str, what: &str, published, here| super::claim("sptrsv", figure, what, published, here);
    let bandwidths = |noun: &str| {
        let own = lines.iter().filter(|l| l.contender == "spandrel" && l.noun == noun && l.more.kernel.is_none());
        let mut values: Vec<f64> = own.filter_map(effective).collect();
        values.sort_by(f64::total_cmp);
        json!([values.first(), values.last()])
    };
    let mut all = Vec::new();
    for plan in ["structured", "sweep"] {
        let syncfree: Vec<f64> = ["syncfree", "capellini"].iter().flat_map(|over| found.ratios(over, plan)).collect();
        let published = json!([PUBLISHED.0, PUBLISHED.1]);
        all.push(claim("5", &format!("effective GB/s of {plan}, least and most"), published, bandwidths(plan)));
        let ratio = json!(mean(&found.ratios("cusparse", plan)));
        all.push(claim("5", &format!("{plan} over cuSPARSE, mean"), json!(OVER_CUSPARSE), ratio));
        let ratio = json!(most(&syncfree));
        all.push(claim("5", &format!("{plan} over synchronisation-free, most"), json!(OVER_SYNCFREE), ratio));
    }
    // The paper speaks of large sizes.
    let largest = found.sizes(TAKEN_APART).last().map(|size| format!("{TAKEN_APART}:{size}"));
    let ms = |label: &str| found.variant(largest.as_deref()?, label).map(|l| l.ms);
    let gain = |from: &str, to: &str| json!(ms(from).zip(ms(to)).map(|(from, to)| from / to - 1.0));
    for ((what, from, to), published) in [
        ("multi-stage over the baseline", "baseline", "multistage, prefetch"),
        ("the rest over multi-stage", "multistage, prefetch", "all"),
        ("all over the baseline", "baseline", "all"),
    ]
    .into_iter()
    .zip(GAINS)
    {
        all.push(claim(
            "6",
            &format!("gain in bandwidth, {what}, at the largest size"),
            json!(published),
            gain(from, to),
        ));
    }
    let marks = gain("baseline", "uncompressed, ld.acquire");
    all.push(claim(
        "6",
        "gain in bandwidth, all but compression over the baseline, at the largest size",
        Value::Null,
        marks,
    ));
    let uncompressed = gain("uncompressed, ld.acquire", "all");
    all.push(claim(
        "7",
        "gain in bandwidth, compressed over uncompressed, at the largest size",
        Value::Null,
        uncompressed,
    ));
    let uncached = gain("compressed, ld.cg", "all");
    all.push(claim("4", "gain in bandwidth, ld.acquire over ld.cg, at the largest size", Value::Null, uncached));
    all
}

/// Figures 4 and 7: variants with their names there.
const STATES: [(&str, &str); 4] = [
    ("all", "compressed, ld.acquire"),
    ("compressed, ld.cg", "compressed, ld.cg"),
    ("uncompressed, ld.acquire", "uncompressed, ld.acquire"),
    ("uncompressed, ld.cg", "uncompressed, ld.cg"),
];

fn cube(size: &usize) -> String {
    format!("{size}³")
}

/// The numbered figures. One whose lines are missing is empty.
fn figures(found: &Found<'_>) -> Vec<(&'static str, Vec<Panel>)> {
    let named: Vec<_> = SERIES.iter().filter(|(noun, _)| found.has(noun)).collect();
    let performance = |stencil: &&str| {
        let sizes = found.sizes(stencil);
        let series = |&&(noun, name): &&(&str, &str)| Series {
            name: name.to_owned(),
            values: sizes.iter().map(|size| effective(found.series(&format!("{stencil}:{size}"), noun)?)).collect(),
            notes: Vec::new(),
        };
        Panel {
            title: format!("{}: effective bandwidth", stencil.to_uppercase()),
            unit: "GB/s",
            groups: sizes.iter().map(cube).collect(),
            series: named.iter().map(series).collect(),
            range: Some((PUBLISHED.0, PUBLISHED.1, "Algorithm 2 on a V100, as published: 40.1 to 225.2")),
        }
    };
    let sizes = found.sizes(TAKEN_APART);
    let variants = |names: &[(&str, &str)], of: &dyn Fn(&Line) -> Option<f64>, gains: bool| -> Vec<Series> {
        let at = |size: &usize, label: &str| of(found.variant(&format!("{TAKEN_APART}:{size}"), label)?);
        let note = |size: &usize, label: &str| {
            let gain = at(size, label).zip(at(size, names[0].0)).map(|(value, first)| 100.0 * (value / first - 1.0));
            gain.filter(|_| gains && label != names[0].0).map_or(String::new(), |gain| format!("{gain:+.0} %"))
        };
        let series = |&(label, name): &(&str, &str)| Series {
            name: name.to_owned(),
            values: sizes.iter().map(|size| at(size, label)).collect(),
            notes: sizes.iter().map(|size| note(size, label)).collect(),
        };
        names.iter().map(series).collect()
    };
    let panel = |title: &str, unit, series| Panel {
        title: format!("{}: {title}", TAKEN_APART.to_uppercase()),
        unit,
        groups: sizes.iter().map(cube).collect(),
        series,
        range: None,
    };
    let steps = [
        ("baseline", "baseline"),
        ("multistage", "multi-stage without fetching ahead"),
        ("multistage, prefetch", "multi-stage"),
        ("all", "compression and the rest (all)"),
    ];
    let ms = |line: &Line| Some(line.ms);
    vec![
        ("5", STENCILS.iter().map(performance).filter(|panel| !panel.groups.is_empty()).collect()),
        ("6", vec![panel("effective bandwidth by steps", "GB/s", variants(&steps, &effective, true))]),
        ("7", vec![panel("time by kind of state", "ms", variants(&STATES, &ms, false))]),
        ("4", vec![panel("ld.cg against ld.acquire", "ms", variants(&STATES[..2], &ms, false))]),
    ]
}

fn is_empty(panel: &Panel) -> bool {
    panel.series.iter().all(|s| s.values.iter().all(Option::is_none))
}

/// The figures as tables, and the claims.
pub fn markdown(lines: &[Line]) -> String {
    let found = Found(lines);
    let mut out = String::from("# Structured SpTRSV (Chen, Yang, Liu, Ma 2023)\n\nLower triangles, f64.\n");
    for (number, panels) in figures(&found) {
        for panel in panels.iter().filter(|panel| !is_empty(panel)) {
            out += &format!("\n## Figure {number}. {} ({})\n\n", panel.title, panel.unit);
            out += &format!("| | {} |\n|---|{}\n", panel.groups.join(" | "), "---:|".repeat(panel.groups.len()));
            for series in &panel.series {
                let cell = |(k, value): (usize, &Option<f64>)| {
                    let digits = if panel.unit == "ms" { 4 } else { 1 };
                    let note =
                        series.notes.get(k).filter(|n| !n.is_empty()).map_or(String::new(), |n| format!(" ({n})"));
                    value.map_or("-".into(), |value| format!("{value:.digits$}{note}"))
                };
                let cells: Vec<String> = series.values.iter().enumerate().map(cell).collect();
                out += &format!("| {} | {} |\n", series.name, cells.join(" | "));
            }
        }
    }
    if !found.is_gpu() {
        out += "\nOn a CPU the structured plan's steps change nothing: Figures 4, 6 and 7 are a GPU's alone.\n";
    }
    out += "\n## Claims\n\nPublished numbers are of a V100.\n\n";
    out += &claims_table(&claims(lines));
    out
}

/// Writes `DIR/sptrsv-figure-N.svg` for every figure that has lines.
///
/// # Errors
/// A folder that cannot be written.
pub fn draw(dir: &Path, lines: &[Line]) -> Result<()> {
    for (number, panels) in figures(&Found(lines)) {
        if !panels.iter().all(is_empty) {
            plot::panels(&dir.join(format!("sptrsv-figure-{number}.svg")), &panels)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::More;

    /// A line with an effective bandwidth of 1 GB/s for each millisecond below 100.
    fn line(case: &str, contender: &'static str, noun: &str, kernel: Option<&str>, ms: f64) -> Line {
        let solve = Solve {
            triangle: "lower".into(),
            diagonal: "non-unit",
            factor: "none",
            levels: 1,
            analyze_ms: 0.0,
            load_ms: 0.0,
            effective_gbs: 100.0 / ms,
            ratio_with_analysis: None,
            timed_by: "graph",
        };
        Line {
            op: "sptrsv",
            noun: noun.into(),
            element: "f64",
            backend: "cuda",
            contender,
            case: case.into(),
            n: 1,
            nnz: 1,
            ms,
            ms_min: ms,
            ms_max: ms,
            bytes: 1,
            gbs: 1.0,
            of_copy: None,
            of_triad: None,
            ratio_to_best_peer: None,
            ratio_to_csr: None,
            more: More { kernel: kernel.map(str::to_owned), solve: Some(solve), ..More::default() },
        }
    }

    fn lines() -> Vec<Line> {
        let mut all = Vec::new();
        for (k, stencil) in STENCILS.iter().enumerate() {
            for size in [64, 128] {
                let case = format!("{stencil}:{size}");
                let ms = (k + 1) as f64 * size as f64 / 64.0;
                all.push(line(&case, "spandrel", "structured", None, ms));
                all.push(line(&case, "spandrel", "sweep", None, 0.5 * ms));
                all.push(line(&case, "spandrel", "syncfree", None, 6.0 * ms));
                all.push(line(&case, "cusparse", "csr", Some("SpSV"), 3.0 * ms));
                if *stencil == TAKEN_APART {
                    for (variant, slower) in VARIANTS.iter().zip([4.0, 3.0, 2.0, 1.0, 1.5, 2.5, 3.0]) {
                        all.push(line(&case, "spandrel", "structured", Some(variant.label), slower * ms));
                    }
                }
            }
        }
        tag(&mut all);
        all
    }

    #[test]
    fn claims_are_ratios_of_series() {
        let claims = claims(&lines());
        let here =
            |what: &str| claims.iter().find(|c| c["what"].as_str().unwrap().contains(what)).unwrap()["here"].clone();
        assert_eq!(here("structured over cuSPARSE"), 3.0);
        assert_eq!(here("sweep over cuSPARSE"), 6.0);
        assert_eq!(here("structured over synchronisation-free"), 6.0);
        assert_eq!(here("multi-stage over the baseline"), 1.0);
        assert_eq!(here("all over the baseline"), 3.0);
        assert_eq!(here("ld.acquire over ld.cg"), 0.5);
        assert_eq!(here("of structured"), json!([12.5, 100.0]));
    }

    #[test]
    fn every_variant_stands_in_a_figure_and_every_figure_is_drawn() {
        let lines = lines();
        let dir = tempfile::tempdir().unwrap();
        draw(dir.path(), &lines).unwrap();
        for number in ["4", "5", "6", "7"] {
            let stands = |l: &Line| l.more.figure.as_ref().is_some_and(|f| f.split(' ').any(|f| f == number));
            assert!(lines.iter().any(stands), "{number}");
            let svg = std::fs::read_to_string(dir.path().join(format!("sptrsv-figure-{number}.svg"))).unwrap();
            assert!(svg.contains("128³") && svg.contains("</svg>"), "{number}");
            assert!(markdown(&lines).contains(&format!("## Figure {number}.")), "{number}");
        }
        assert!(markdown(&lines).contains("(+100 %)"));
    }

    #[test]
    fn missing_series_are_told_as_missing() {
        let lines = [line("d3n7:64", "spandrel", "sweep", None, 1.0)];
        let claims = claims(&lines);
        assert!(claims.iter().any(|c| c["here"].is_null()));
        assert!(!markdown(&lines).contains("Figure 6."));
        let effort = Effort::new(1, 1.0);
        for gpu in [false, true] {
            let contests = contests(gpu, &[8], effort);
            let staged: Vec<usize> = contests.iter().map(|(_, contest)| contest.staged.len()).collect();
            assert_eq!(staged, [0, 0, 0, if gpu { VARIANTS.len() } else { 0 }]);
            assert!(contests.iter().all(|(_, contest)| contest.grid == Some([8; 3])));
        }
    }
}
