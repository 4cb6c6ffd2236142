//! `spandrel-bench paper bdia`: banded matrices in every format of the paper, CG and BiCGStab in DIA and bDIA, and
//! finite elements with a chosen bandwidth.
//!
//! Table 1: the highest rate of each format and its share of the machine's arithmetic. Figure 8: rate against d at n =
//! 15600, single and double. Figure 9: time of CG and of BiCGStab against d at n = 30000. Both again at n = 2,000,000,
//! which fills today's GPU. GFEM (section 3.3): rate, and error at a fixed number of unknowns, against d.
//!
//! Reference: Wang, Ren, Tian 2013, Efficient sparse matrix-vector multiplication and CG solver optimization on GPU.

use serde_json::{Value, json};

use super::{Figure, Found, Job, Paper, Plan, Scope, Work, claim, gigaflops, whole};
use crate::case::Case;
use crate::chart::{Axis, Chart, Curve, Scale, digits};
use crate::krylov::Method;

/// The experiment.
pub const PAPER: Paper = Paper {
    name: "bdia",
    title: "bDIA, CG and BiCGStab (Wang, Ren, Tian 2013)",
    intro,
    jobs: |scope| Ok(Plan { jobs: jobs(scope), notes: notes(scope) }),
    figures,
    claims,
};

/// The rows of Figure 8, of Figure 9, and of a matrix that fills today's GPU, or no cache of a CPU.
const FIGURE_8: usize = 15_600;
const FIGURE_9: usize = 30_000;
const LARGE: usize = 2_000_000;
const CPU_LARGE: usize = 300_000;
const QUICK: usize = 100_000;
/// Some of the paper's d = 3..101.
const BANDS: [usize; 13] = [3, 5, 9, 15, 21, 31, 41, 51, 61, 71, 81, 91, 101];
const FEW_BANDS: [usize; 5] = [3, 11, 33, 65, 101];
const LARGE_BANDS: [usize; 6] = [3, 9, 17, 33, 65, 101];
/// As [`FEW_BANDS`], for large matrices and for solves.
const FEW_LARGE_BANDS: [usize; 3] = [3, 33, 101];
const FORMATS: &[&str] = &["bdia", "dia", "ell", "csr", "coo", "hyb"];
/// The paper's CSR kernels, with one thread and with one warp per row, and our DIA without the short cut for symmetric
/// matrices.
const FORCED: &[&str] = &["scalar forced", "vector(32) forced"];
/// The numbers of unknowns of the elements whose rate and whose error are measured.
const ELEMENTS: usize = 15_600;
const COARSE: [usize; 3] = [15, 31, 63];

/// Series with their names in the figures. For ours the backend chooses the kernel.
const SERIES: [(&str, &str); 6] =
    [("bdia", "bDIA"), ("dia", "DIA"), ("ell", "ELL"), ("csr", "CSR"), ("coo", "COO"), ("hyb", "HYB")];
/// The same with forced kernels.
const KERNELS: [(&str, &str, &str); 3] = [
    ("csr", "scalar forced", "CSR (scalar)"),
    ("csr", "vector(32) forced", "CSR (vector)"),
    ("dia", "full", "DIA, both halves stored"),
];

/// Table 1: 10^9 operations per second on a GTX 280, single and double.
const TABLE_1: [(&str, f64, f64); 5] = [
    ("DIA", 36.8, 16.7),
    ("ELL", 25.2, 13.5),
    ("CSR (scalar)", 7.6, 5.0),
    ("CSR (vector)", 8.8, 4.1),
    ("COO", 6.2, 4.1),
];
/// bDIA at n = 15600, d = 101 on a GTX 285, single and double, and the shares of its peak.
const BDIA: [f64; 2] = [60.45, 26.27];
/// The arithmetic rate of the GTX 285.
const THEIR_PEAK: [f64; 2] = [1062.72, 88.6];
/// DIA's time over bDIA's in each solver.
const SPEED_UP: f64 = 1.5;

fn intro(gpu: bool) -> String {
    let backend = if gpu {
        "CSR (scalar) and CSR (vector) use one thread and one warp per row; CSR is the kernel that the backend chooses. A symmetric matrix by diagonals \
         is stored by its upper half: DIA as the paper has it is \"both halves stored\"."
    } else {
        "On a CPU there is one kernel of CSR, and CSR (scalar) and CSR (vector) are a GPU's alone."
    };
    format!(
        "Rates count two operations an entry. Matrices are banded, symmetric, dominant on the diagonal; b = A x* and a residual of 1e-8 end a \
         solve. {backend} Published numbers are of a GTX 280 and a GTX 285."
    )
}

fn notes(scope: &Scope<'_>) -> Vec<Value> {
    let missing = |what: &str, why: &str| json!({"op": "paper", "noun": "bdia", "case": what, "missing": why});
    let mut notes = Vec::new();
    if !scope.gpu {
        notes.push(missing("CSR (scalar), CSR (vector)", "kernels of a GPU alone; CSR stands for both"));
        notes.push(missing("share of the arithmetic peak", "a CPU's is not known to this program"));
    }
    if large(scope) != LARGE {
        notes.push(missing("n = 2000000", &format!("a GPU's, without --quick; n = {} in its place", large(scope))));
    }
    notes
}

fn large(scope: &Scope<'_>) -> usize {
    scope.rows(match (scope.quick, scope.gpu) {
        (true, _) => QUICK,
        (false, true) => LARGE,
        (false, false) => CPU_LARGE,
    })
}

fn jobs(scope: &Scope<'_>) -> Vec<Job> {
    let case = |n: usize, d: usize| Case::parse(&format!("banded:n={n},d={d}"));
    let (bands, large_bands): (&[usize], &[usize]) =
        if scope.quick { (&FEW_BANDS, &FEW_LARGE_BANDS) } else { (&BANDS, &LARGE_BANDS) };
    let force: &[&str] = if scope.gpu { FORCED } else { &[] };
    let product = |case: Case, figure, types| Job {
        case,
        figure,
        work: Work::Product { types, formats: FORMATS, force },
        stands_in_for: None,
    };
    let solve = |case: Case, figure, method| Job {
        case,
        figure,
        work: Work::Solve { method, factored: false, formats: &["dia", "bdia", "csr"], max_iters: 2000 },
        stands_in_for: None,
    };
    let mut jobs = Vec::new();
    for (n, figure, bands) in [(scope.rows(FIGURE_8), "8", bands), (large(scope), "8 large", large_bands)] {
        jobs.extend(bands.iter().map(|&d| product(case(n, d), figure, &["f32", "f64"])));
    }
    let solved = if scope.quick { large_bands } else { bands };
    for (n, figure, bands) in [(scope.rows(FIGURE_9), "9", solved), (large(scope), "9 large", large_bands)] {
        for method in [Method::Cg, Method::BiCgStab] {
            jobs.extend(bands.iter().map(|&d| solve(case(n, d), figure, method)));
        }
    }
    for p in 0..=3 {
        let spec = |n: usize| Case::parse(&format!("gfem:n={n},p={p}"));
        jobs.push(product(spec(scope.rows(ELEMENTS)), "GFEM", &["f64"]));
        if !scope.quick {
            jobs.push(product(spec(large(scope)), "GFEM large", &["f64"]));
        }
        let error = |n| Job { case: spec(n), figure: "GFEM", work: Work::Error, stands_in_for: None };
        jobs.extend(COARSE.map(error));
    }
    jobs
}

/// The band of a case.
fn band(case: &str) -> Option<usize> {
    case.split("d=").nth(1)?.parse().ok()
}

/// The number of diagonals of `gfem:...,p=P`.
fn diagonals(case: &str) -> Option<usize> {
    Some(4 * case.split("p=").nth(1)?.parse::<usize>().ok()? + 3)
}

/// The rates of all series in a figure, over the abscissa `x` of a case.
fn rates(found: &Found<'_>, figure: &str, element: &str, x: fn(&str) -> Option<usize>) -> Vec<Curve> {
    let cases = found.cases(figure);
    let curve = |name: &str, of: &dyn Fn(&str) -> Option<f64>| {
        let points = cases.iter().filter_map(|(case, _, _)| Some((x(case)? as f64, of(case)?)));
        Curve::measured(name, points.collect())
    };
    let mut curves: Vec<Curve> = SERIES
        .iter()
        .map(|(noun, name)| curve(name, &|case| found.ours(figure, case, element, noun).map(gigaflops)))
        .collect();
    for (noun, kernel, name) in KERNELS {
        curves.push(curve(name, &|case| found.forced(figure, case, element, noun, kernel).map(gigaflops)));
    }
    curves.push(curve("best peer", &|case| found.peer(figure, case, element).map(gigaflops)));
    curves.retain(|c| !c.points.is_empty());
    curves
}

fn rows(found: &Found<'_>, figure: &str) -> usize {
    found.cases(figure).first().map_or(0, |c| c.1)
}

fn figures(found: &Found<'_>) -> Vec<Figure> {
    let x = || Axis { name: "d, diagonals", scale: Scale::Linear };
    let precision = |element: &str| if element == "f32" { "single" } else { "double" };
    let mut eight = Figure { name: "Figure 8", ..Figure::default() };
    for figure in ["8", "8 large"] {
        for (k, element) in ["f32", "f64"].into_iter().enumerate() {
            let mut curves = rates(found, figure, element, band);
            if figure == "8" {
                let (_, single, double) = TABLE_1[0];
                curves.push(Curve::published("bDIA, GTX 285, published", "bDIA", vec![(101.0, BDIA[k])]));
                let peak = [single, double][k];
                curves.push(Curve::published(
                    "DIA's peak, GTX 280, published",
                    "DIA",
                    vec![(3.0, peak), (101.0, peak)],
                ));
            }
            eight.charts.push(Chart {
                title: format!("y = A x, n = {}, {} precision", rows(found, figure), precision(element)),
                x: x(),
                y: Axis { name: "GFlop/s", scale: Scale::Linear },
                curves,
            });
        }
    }
    let mut nine = Figure { name: "Figure 9", ..Figure::default() };
    for figure in ["9", "9 large"] {
        for (method, name) in [("cg", "CG"), ("bicgstab", "BiCGStab")] {
            let line = |case: &str, noun: &str| {
                let mut here = found.all(figure, case, "f64").filter(|l| l.op == method && l.contender == "spandrel");
                here.find(|l| l.noun == noun)
            };
            let cases = found.cases(figure);
            let curve = |name: &str, of: &dyn Fn(&str) -> Option<f64>| {
                let points = cases.iter().filter_map(|(case, _, _)| Some((band(case)? as f64, of(case)?)));
                Curve::measured(name, points.collect())
            };
            let theirs = |case: &str| {
                let here = found.all(figure, case, "f64").filter(|l| l.op == method && l.contender != "spandrel");
                here.map(whole).min_by(f64::total_cmp)
            };
            let mut times: Vec<Curve> = [("bdia", "bDIA"), ("dia", "DIA"), ("csr", "CSR")]
                .iter()
                .map(|(noun, name)| curve(name, &|case| line(case, noun).map(whole)))
                .collect();
            times.push(curve("best peer", &theirs));
            times.retain(|c| !c.points.is_empty());
            let n = rows(found, figure);
            nine.charts.push(Chart {
                title: format!("{name}, n = {n}: time of a solve"),
                x: x(),
                y: Axis { name: "ms", scale: Scale::Linear },
                curves: times,
            });
            let over = |case: &str| Some(whole(line(case, "dia")?) / whole(line(case, "bdia")?));
            let mut speed = vec![curve("bDIA over DIA", &over)];
            speed.retain(|c| !c.points.is_empty());
            let ends = vec![(3.0, SPEED_UP), (101.0, SPEED_UP)];
            speed.push(Curve::published("bDIA over DIA, GTX 285, published: about 1.5", "bDIA over DIA", ends));
            nine.charts.push(Chart {
                title: format!("{name}, n = {n}: speed-up"),
                x: x(),
                y: Axis { name: "time of DIA over bDIA's", scale: Scale::Linear },
                curves: speed,
            });
        }
    }
    let mut elements = Figure { name: "GFEM", ..Figure::default() };
    for figure in ["GFEM", "GFEM large"] {
        elements.charts.push(Chart {
            title: format!("y = A x, {} unknowns, p = 0, 1, 2, 3", rows(found, figure)),
            x: x(),
            y: Axis { name: "GFlop/s", scale: Scale::Linear },
            curves: rates(found, figure, "f64", diagonals),
        });
    }
    let error = |n: &usize| {
        let of = |o: &&Value| o["op"] == "gfem" && o["n"] == *n;
        let points = found.rest.iter().filter(of);
        let points = points.filter_map(|o| Some((o["diagonals"].as_f64()?, o["max_error"].as_f64()?)));
        Curve::measured(format!("{n} unknowns"), points.collect())
    };
    elements.charts.push(Chart {
        title: "largest error at a node, -u'' = f, p = 0, 1, 2, 3".into(),
        x: x(),
        y: Axis { name: "max |u_h - u|", scale: Scale::Log },
        curves: COARSE.iter().map(error).collect(),
    });
    vec![table_1(found), eight, nine, elements]
}

/// Vector operations in 10^9 per second, single and double, if the data sheet is known.
fn peak(machine: &str) -> Option<[f64; 2]> {
    // NVIDIA H100 and H200 Tensor Core GPU data sheets, SXM.
    ["H100", "H200"].iter().any(|name| machine.contains(name)).then_some([67_000.0, 34_000.0])
}

fn table_1(found: &Found<'_>) -> Figure {
    let most = |name: &str, element: &str| {
        let all = ["8", "8 large"].into_iter().flat_map(|figure| rates(found, figure, element, band));
        let points = all.filter(|c| c.name == name).flat_map(|c| c.points);
        points.map(|p| p.1).max_by(f64::total_cmp)
    };
    let names = SERIES.iter().map(|s| s.1).chain(KERNELS.iter().map(|k| k.2)).chain(["best peer"]);
    let peaks = peak(found.machine);
    let cell = |value: Option<f64>, share: bool| {
        let number = value.map(|v| if share { format!("{:.2} %", 100.0 * v) } else { digits(v) });
        number.unwrap_or_else(|| "-".into())
    };
    let mut table = String::from(
        "| format | GF single | GF double | share single | share double | published single | published double | published shares |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for name in names {
        let [single, double] = ["f32", "f64"].map(|element| most(name, element));
        let share = |value: Option<f64>, k: usize| cell(value.zip(peaks).map(|(v, peaks)| v / peaks[k]), true);
        let theirs = match name {
            "bDIA" => Some((BDIA[0], BDIA[1])),
            _ => TABLE_1.iter().find(|row| row.0 == name).map(|row| (row.1, row.2)),
        };
        let shares = theirs.map_or("-".into(), |(s, d)| {
            format!("{:.2} %, {:.2} %", 100.0 * s / THEIR_PEAK[0], 100.0 * d / THEIR_PEAK[1])
        });
        table += &format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {shares} |\n",
            cell(single, false),
            cell(double, false),
            share(single, 0),
            share(double, 1),
            cell(theirs.map(|t| t.0), false),
            cell(theirs.map(|t| t.1), false)
        );
    }
    let heading = "highest rate over all d and n, and its share of the peak of arithmetic".to_owned();
    Figure { name: "Table 1", tables: vec![(heading, table)], ..Figure::default() }
}

fn claims(found: &Found<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    for (k, element) in ["f32", "f64"].into_iter().enumerate() {
        for figure in ["8", "8 large"] {
            let at = format!("n = {}, d = 101, {element}", rows(found, figure));
            let widest = |c: &Curve| Some((c.name.clone(), c.points.iter().find(|p| p.0 == 101.0)?.1));
            let mut here: Vec<(String, f64)> = rates(found, figure, element, band).iter().filter_map(widest).collect();
            here.sort_by(|a, b| b.1.total_cmp(&a.1));
            let ours = here.iter().find(|c| c.0 == "bDIA").map(|c| c.1);
            if figure == "8" {
                all.push(claim("bdia", "8", &format!("GFlop/s of bDIA, {at}"), json!(BDIA[k]), json!(ours)));
            }
            let other = here.iter().find(|c| !["bDIA", "best peer"].contains(&c.0.as_str())).map(|c| c.1);
            let gain = ours.zip(other).map(|(ours, other)| ours / other);
            all.push(claim("bdia", "8", &format!("bDIA over our best other format, {at}"), json!(2.0), json!(gain)));
            let peer = here.iter().find(|c| c.0 == "best peer").map(|c| c.1);
            let gain = ours.zip(peer).map(|(ours, peer)| ours / peer);
            all.push(claim("bdia", "8", &format!("bDIA over the best peer, {at}"), Value::Null, json!(gain)));
            let order: Vec<&str> = here.iter().map(|c| c.0.as_str()).collect();
            let order = if order.is_empty() { Value::Null } else { json!(order.join(" > ")) };
            all.push(claim("bdia", "8", &format!("order, {at}"), json!("bDIA > DIA > HYB ~ ELL > CSR > COO"), order));
        }
    }
    for chart in figures(found).iter().filter(|f| f.name == "Figure 9").flat_map(|f| &f.charts) {
        if let Some(curve) = chart.curves.iter().find(|c| c.name == "bDIA over DIA") {
            let over = mean(curve.points.iter().map(|p| p.1).collect());
            all.push(claim("bdia", "9", &format!("{}, mean over d", chart.title), json!(SPEED_UP), json!(over)));
        }
    }
    all
}
