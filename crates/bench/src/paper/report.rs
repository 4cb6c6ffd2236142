//! `spandrel-bench paper report`: CG against condition and size, memory and graphs, dense against sparse, reading
//! against solving.
//!
//! Condition, Size: iterations, time and error of CG on random matrices of a given condition, which the report left
//! open. Memory: an iteration and a whole solve with explicit or managed memory, as a graph or not; only on a GPU.
//! Dense: CG with CSR and with the dense matrix. Reading: the time of reading a Matrix Market file and of solving with
//! it.
//!
//! The condition is that of MATLAB's sprandsym: eigenvalues from 1 to 1 / cond, spaced geometrically, rotated by Jacobi
//! rotations.
//!
//! Reference: Sparse matrix storage technology and conjugate gradient method report, Tongji University, 2019; Saad
//! 2003, section 6.11.3.

use serde_json::{Value, json};

use super::run::RTOL;
use super::{Figure, Found, Job, Paper, Plan, Scope, Work, claim, whole};
use crate::case::Case;
use crate::chart::{Axis, Chart, Curve, Scale};
use crate::krylov::Method;
use crate::record::Line;

/// The experiment.
pub const PAPER: Paper = Paper {
    name: "report",
    title: "Storage formats and CG (Tongji University, 2019)",
    intro,
    jobs: |scope| Ok(Plan { jobs: jobs(scope), notes: notes(scope) }),
    figures,
    claims,
};

/// The number of rows with the smallest share of entries, about twenty per row.
const SIZES: [(usize, &str); 3] = [(1_000, "0.02"), (10_000, "0.002"), (100_000, "0.0002")];
const QUICK_SIZES: [(usize, &str); 2] = [(1_000, "0.02"), (5_000, "0.004")];
const CONDITIONS: [&str; 5] = ["10", "100", "1000", "10000", "1000000"];
const QUICK_CONDITIONS: [&str; 4] = ["10", "100", "1000", "10000"];
/// The numbers of rows for reading, for dense matrices and for memory.
const MODERATE: &str = "1000";
/// The report's largest dense matrix has about a million elements.
const DENSE: [usize; 5] = [256, 512, 1024, 2048, 4096];
const QUICK_DENSE: [usize; 3] = [128, 256, 1024];
const DENSE_SHARE: &str = "0.02";
/// Beside the random matrix, one that fills today's GPU.
const GRIDS: [&str; 2] = ["poisson3d:64", "poisson3d:160"];
/// The limit of iterations in all tests of the report.
const MOST_ITERATIONS: usize = 160;

fn intro(gpu: bool) -> String {
    let memory = if gpu {
        "Managed: b and x in managed memory. A whole solve brings b from the host and x back."
    } else {
        "Managed memory and graphs do not exist on a CPU: their figure is a GPU's alone."
    };
    format!(
        "CG without a preconditioner, f64, to a residual of {RTOL:.0e}, b = A x* with a known x*; the report has b and a criterion of its own \
         and gives no table. {memory}"
    )
}

fn notes(scope: &Scope<'_>) -> Vec<Value> {
    let missing = |what: &str, why: &str| json!({"op": "paper", "noun": "report", "case": what, "missing": why});
    let mut notes = Vec::new();
    if !scope.gpu {
        notes.push(missing("explicit memory, managed memory, graph", "do not exist on a CPU (--backend cuda)"));
    }
    if scope.quick {
        notes.push(missing("n = 100000", "--quick has smaller matrices"));
    }
    notes
}

fn random(n: usize, share: &str, condition: &str) -> String {
    format!("randspd:n={n},density={share},cond={condition}")
}

fn jobs(scope: &Scope<'_>) -> Vec<Job> {
    let job = |spec: &str, figure, work| Job { case: Case::parse(spec), figure, work, stands_in_for: None };
    let solve = |formats| Work::Solve { method: Method::Cg, factored: false, formats, max_iters: 50_000 };
    let (sizes, conditions, dense): (&[(usize, &str)], &[&str], &[usize]) =
        if scope.quick { (&QUICK_SIZES, &QUICK_CONDITIONS, &QUICK_DENSE) } else { (&SIZES, &CONDITIONS, &DENSE) };
    let mut sizes: Vec<(usize, &str)> = sizes.iter().map(|&(n, share)| (scope.rows(n), share)).collect();
    sizes.dedup_by_key(|size| size.0);
    let mut dense: Vec<usize> = dense.iter().map(|&n| scope.rows(n)).collect();
    dense.dedup();
    let mut jobs = Vec::new();
    for &(n, share) in &sizes {
        for condition in conditions {
            jobs.push(job(&random(n, share, condition), "condition", solve(&["csr"])));
        }
        jobs.push(job(&random(n, share, MODERATE), "reading", Work::Read));
    }
    for &n in &dense {
        jobs.push(job(&random(n, DENSE_SHARE, MODERATE), "dense", solve(&["csr", "dense"])));
    }
    if scope.gpu {
        for &(n, share) in sizes.iter().rev().take(1) {
            jobs.push(job(&random(n, share, MODERATE), "memory", Work::Ways));
        }
        let grids = GRIDS.iter().take(if scope.quick { 1 } else { 2 });
        jobs.extend(grids.map(|grid| job(grid, "memory", Work::Ways)));
    }
    jobs
}

/// A number in the specification of a case.
fn number(case: &str, key: &str) -> Option<f64> {
    case.split([':', ',']).find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// After this many iterations CG's error, in the matrix's norm, is certainly below the tolerance.
fn bound(condition: f64) -> f64 {
    0.5 * condition.sqrt() * (2.0 / RTOL).ln()
}

/// The different values of `of`, ascending.
fn distinct(found: &Found<'_>, figure: &str, of: &dyn Fn(&str) -> Option<f64>) -> Vec<f64> {
    let mut values: Vec<f64> = found.cases(figure).iter().filter_map(|c| of(c.0)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn ours<'a>(found: &Found<'a>, figure: &str, case: &str, noun: &str) -> Option<&'a Line> {
    found.ours(figure, case, "f64", noun)
}

fn figures(found: &Found<'_>) -> Vec<Figure> {
    vec![condition(found), size(found), memory(found), dense(found), reading(found)]
}

fn condition(found: &Found<'_>) -> Figure {
    let sizes = distinct(found, "condition", &|case| number(case, "n"));
    let conditions = distinct(found, "condition", &|case| number(case, "cond"));
    let x = || Axis { name: "condition number", scale: Scale::Log };
    let by_size = |of: &dyn Fn(&Line) -> Option<f64>| -> Vec<Curve> {
        let curve = |&n: &f64| {
            let here = found.cases("condition").into_iter().filter(|c| number(c.0, "n") == Some(n));
            let mut points: Vec<(f64, f64)> =
                here.filter_map(|c| Some((number(c.0, "cond")?, of(ours(found, "condition", c.0, "csr")?)?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Curve::measured(format!("n = {n}"), points)
        };
        sizes.iter().map(curve).collect()
    };
    let against = |name: &str, of: &dyn Fn(f64) -> f64| {
        Curve::published(name, "", conditions.iter().map(|&c| (c, of(c))).collect())
    };
    let chart = |title: &str, unit, curves| Chart {
        title: title.into(),
        x: x(),
        y: Axis { name: unit, scale: Scale::Log },
        curves,
    };
    let mut iterations = by_size(&|l| l.more.iterations.map(|k| k as f64));
    iterations.push(against("theory: sqrt(cond) / 2 ln(2 / rtol)", &bound));
    let mut errors = by_size(&|l| l.more.forward_error);
    errors.push(against("theory: at most cond rtol", &|c| c * RTOL));
    let charts = vec![
        chart("CG, iterations", "iterations", iterations),
        chart("CG, time of a solve", "ms", by_size(&|l| Some(whole(l)))),
        chart("CG, error", "||x - x*|| / ||x*||", errors),
        chart("CG, time of an iteration", "ms", by_size(&|l| Some(l.ms))),
    ];
    Figure { name: "Condition", charts, ..Figure::default() }
}

fn size(found: &Found<'_>) -> Figure {
    let conditions = distinct(found, "condition", &|case| number(case, "cond"));
    let curve = |&condition: &f64| {
        let here = found.cases("condition").into_iter().filter(|c| number(c.0, "cond") == Some(condition));
        let points = here.filter_map(|c| Some((c.2 as f64, whole(ours(found, "condition", c.0, "csr")?))));
        Curve::measured(format!("cond = {condition}"), points.collect())
    };
    let chart = Chart {
        title: "CG, time of a solve by size".into(),
        x: Axis { name: "entries", scale: Scale::Log },
        y: Axis { name: "ms", scale: Scale::Log },
        curves: conditions.iter().map(curve).collect(),
    };
    Figure { name: "Size", charts: vec![chart], ..Figure::default() }
}

/// The ways to run an iteration: the ends of the kernels' names in the record, and their titles.
const WAYS: [(&str, &str); 5] = [
    ("explicit, no graph", "explicit"),
    ("explicit, graph", "explicit, graph"),
    ("managed, no graph", "managed"),
    ("managed, graph", "managed, graph"),
    ("host scalars", "cuSPARSE + cuBLAS"),
];

fn way<'a>(found: &Found<'a>, case: &str, kernel: &str) -> Option<&'a Line> {
    let is = |l: &&Line| l.more.kernel.as_deref().is_some_and(|k| k.ends_with(kernel));
    found.all("memory", case, "f64").find(is)
}

fn memory(found: &Found<'_>) -> Figure {
    let names = || Scale::Names(WAYS.iter().map(|w| w.1.to_owned()).collect());
    let chart = |title: &str, of: &dyn Fn(&Line) -> Option<f64>| {
        let curve = |(case, _, _): (&str, usize, usize)| {
            let value = |(k, way_): (usize, &(&str, &str))| Some((k as f64, of(way(found, case, way_.0)?)?));
            Curve::measured(case, WAYS.iter().enumerate().filter_map(value).collect())
        };
        Chart {
            title: title.into(),
            x: Axis { name: "way", scale: names() },
            y: Axis { name: "ms", scale: Scale::Log },
            curves: found.cases("memory").into_iter().map(curve).collect(),
        }
    };
    let charts = vec![
        chart("CG by CSR, time of an iteration", &|l| Some(l.ms)),
        chart("CG by CSR, whole solve of 200 iterations with b and x from and to the host", &|l| l.more.whole_ms),
    ];
    Figure { name: "Memory", charts, ..Figure::default() }
}

fn dense(found: &Found<'_>) -> Figure {
    let cases = found.cases("dense");
    let curve = |name: &str, of: &dyn Fn(&str) -> Option<f64>| {
        Curve::measured(name, cases.iter().filter_map(|&(case, n, _)| Some((n as f64, of(case)?))).collect())
    };
    let curves = vec![
        curve("CSR", &|case| ours(found, "dense", case, "csr").map(whole)),
        curve("dense", &|case| ours(found, "dense", case, "dense").map(whole)),
        curve("best sparse peer", &|case| found.peer("dense", case, "f64").map(whole)),
    ];
    let chart = Chart {
        title: format!("CG by the dense and by the sparse matrix, {DENSE_SHARE} of it filled"),
        x: Axis { name: "n", scale: Scale::Log },
        y: Axis { name: "ms of a solve", scale: Scale::Log },
        curves,
    };
    Figure { name: "Dense", charts: vec![chart], ..Figure::default() }
}

/// Entries and milliseconds of reading by one reader, ascending, and of the solve that follows.
fn readings(found: &Found<'_>) -> Vec<(f64, f64, f64, Option<f64>)> {
    let of = |contender: &str, case: &Value| {
        let is = |o: &&Value| o["op"] == "read" && o["contender"] == contender && o["case"] == *case;
        found.rest.iter().find(is)?["ms"].as_f64()
    };
    let own = found.rest.iter().filter(|o| o["op"] == "read" && o["contender"] == "spandrel" && o["ms"].is_number());
    let reading = |o: &Value| {
        let solve = ours(found, "condition", o["case"].as_str()?, "csr").map(whole);
        Some((o["nnz"].as_f64()?, o["ms"].as_f64()?, of("sprs", &o["case"])?, solve))
    };
    own.filter_map(reading).collect()
}

fn reading(found: &Found<'_>) -> Figure {
    let all = readings(found);
    let curves = vec![
        Curve::measured("reading", all.iter().map(|r| (r.0, r.1)).collect()),
        Curve::measured("reading by sprs", all.iter().map(|r| (r.0, r.2)).collect()),
        Curve::measured("solving", all.iter().filter_map(|r| Some((r.0, r.3?))).collect()),
    ];
    let chart = Chart {
        title: format!("reading a Matrix Market file, and CG with it, condition {MODERATE}"),
        x: Axis { name: "entries", scale: Scale::Log },
        y: Axis { name: "ms", scale: Scale::Log },
        curves,
    };
    Figure { name: "Reading", charts: vec![chart], ..Figure::default() }
}

fn claims(found: &Found<'_>) -> Vec<Value> {
    let claim =
        |figure: &str, what: &str, published: Value, here: Value| claim("report", figure, what, published, here);
    let mut all = Vec::new();
    let lines = found.lines.iter().filter(|l| l.more.figure.as_deref() == Some("condition"));
    let most = lines.clone().filter_map(|l| l.more.iterations).max();
    all.push(claim("condition", "most iterations of a solve", json!(MOST_ITERATIONS), json!(most)));
    let within = lines.filter_map(|l| Some(l.more.iterations? as f64 / bound(number(&l.case, "cond")?)));
    let within = within.max_by(f64::total_cmp);
    all.push(claim("condition", "iterations over the theory's bound, most", Value::Null, json!(within)));
    for (nnz, ms, sprs, solve) in readings(found) {
        let ratio = solve.map(|solve| ms / solve);
        let what = format!("time of reading over that of solving, {nnz} entries");
        all.push(claim("reading", &what, json!("far above 1"), json!(ratio)));
        let what = format!("sprs's time of reading over ours, {nnz} entries");
        all.push(claim("reading", &what, Value::Null, json!(sprs / ms)));
    }
    for (case, n, _) in found.cases("dense") {
        let ratio = ours(found, "dense", case, "dense").zip(ours(found, "dense", case, "csr"));
        let ratio = ratio.map(|(dense, csr)| whole(dense) / whole(csr));
        all.push(claim("dense", &format!("dense CG's time over sparse CG's, n = {n}"), json!("above 1"), json!(ratio)));
    }
    for (case, _, _) in found.cases("memory") {
        let ms = |kernel: &str, of: &dyn Fn(&Line) -> Option<f64>| of(way(found, case, kernel)?);
        for (what, kernel, over) in [
            ("managed over explicit, whole solve", "managed, no graph", "explicit, no graph"),
            ("graph over none, whole solve", "explicit, graph", "explicit, no graph"),
        ] {
            let ratio = ms(kernel, &|l| l.more.whole_ms).zip(ms(over, &|l| l.more.whole_ms)).map(|(a, b)| a / b);
            all.push(claim("memory", &format!("{case}: time of {what}"), json!("above 1"), json!(ratio)));
        }
        let ratio = ms("explicit, graph", &|l| Some(l.ms)).zip(ms("explicit, no graph", &|l| Some(l.ms)));
        let ratio = ratio.map(|(graph, none)| graph / none);
        all.push(claim(
            "memory",
            &format!("{case}: time of an iteration, graph over none"),
            json!("above 1"),
            json!(ratio),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_specifications() {
        let case = random(1000, "0.02", "10000");
        assert_eq!((number(&case, "n"), number(&case, "cond"), number(&case, "x")), (Some(1000.0), Some(1e4), None));
        assert!((bound(100.0) - 95.57).abs() < 0.01);
    }
}
