//! `spandrel-bench paper coo`: COO on one thread against COO on all threads of one device, and COO against the other
//! formats if the lengths of rows follow a power law.
//!
//! Speed-up: both times against the number of entries, and their ratio. Power law: time of every format against the
//! exponent.
//!
//! Reference: COO-based sparse matrix-vector multiplication, IT168 and NVIDIA contest entry; Bell & Garland 2008,
//! section 4.4.

use serde_json::{Value, json};

use super::{Figure, Found, Job, Paper, Plan, Scope, Work, claim};
use crate::case::Case;
use crate::chart::{Axis, Chart, Curve, Scale};
use crate::spmv::SERIAL;

/// The experiment.
pub const PAPER: Paper = Paper {
    name: "coo",
    title: "Parallel COO (IT168 and NVIDIA contest entry)",
    intro,
    jobs: |scope| Ok(Plan { jobs: jobs(scope), notes: notes(scope) }),
    figures,
    claims,
};

/// The figures in the record.
const SPEED: &str = "speed-up";
const POWER: &str = "power law";

/// Rows of matrices with ten entries per row. One thread of a GPU takes a second for a million entries.
const ROWS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const GPU_ROWS: [usize; 4] = [1_000, 5_000, 20_000, 100_000];
/// The exponents of the density of lengths, and the number of rows.
const EXPONENTS: [&str; 6] = ["1.8", "2", "2.2", "2.5", "3", "4"];
const FEW_EXPONENTS: [&str; 3] = ["1.8", "2.2", "3"];
const POWER_ROWS: usize = 1_000_000;
const QUICK_ROWS: usize = 50_000;
const FORMATS: &[&str] = &["coo", "csr", "csc", "ell", "sell", "hyb", "hec", "hmec"];
/// "Thousands of times".
const SPEED_UP: f64 = 1000.0;

fn intro(gpu: bool) -> String {
    let one = if gpu { "one thread of the same device" } else { "one thread of the CPU" };
    format!(
        "Serial is {one}, entry by entry, as in the source; parallel is the backend's COO on all of it. f64. The source gives no table, and \
         claims thousands of times."
    )
}

fn notes(scope: &Scope<'_>) -> Vec<Value> {
    let small =
        json!({"op": "paper", "noun": "coo", "case": "n = 1000000", "missing": "--quick has fewer rows in its place"});
    if scope.quick { vec![small] } else { Vec::new() }
}

fn jobs(scope: &Scope<'_>) -> Vec<Job> {
    let job = |spec: String, figure, formats, force| Job {
        case: Case::parse(&spec),
        figure,
        work: Work::Product { types: &["f64"], formats, force },
        stands_in_for: None,
    };
    let rows = if scope.gpu { GPU_ROWS } else { ROWS };
    let rows = rows.iter().take(if scope.quick { 3 } else { 4 });
    let mut rows: Vec<usize> = rows.map(|&n| scope.rows(n)).collect();
    rows.dedup();
    let pair: &[&str] = &["coo"];
    let force: &[&str] = &[SERIAL];
    let mut jobs: Vec<Job> =
        rows.iter().map(|n| job(format!("random:n={n},nnz_per_row=10"), SPEED, pair, force)).collect();
    let (exponents, n): (&[&str], _) =
        if scope.quick { (&FEW_EXPONENTS, QUICK_ROWS) } else { (&EXPONENTS, POWER_ROWS) };
    let n = scope.rows(n);
    jobs.extend(exponents.iter().map(|a| job(format!("powerlaw:n={n},alpha={a}"), POWER, FORMATS, &[])));
    jobs
}

fn exponent(case: &str) -> Option<f64> {
    case.split("alpha=").nth(1)?.parse().ok()
}

/// The number of entries, and the time of one thread over that of all.
fn ratios(found: &Found<'_>) -> Vec<(f64, f64)> {
    let ratio = |&(case, _, nnz): &(&str, usize, usize)| {
        let parallel = found.ours(SPEED, case, "f64", "coo")?.ms;
        Some((nnz as f64, found.forced(SPEED, case, "f64", "coo", SERIAL)?.ms / parallel))
    };
    found.cases(SPEED).iter().filter_map(ratio).collect()
}

fn figures(found: &Found<'_>) -> Vec<Figure> {
    let entries = || Axis { name: "entries", scale: Scale::Log };
    let cases = found.cases(SPEED);
    let time = |name: &str, of: &dyn Fn(&str) -> Option<f64>| {
        let points = cases.iter().filter_map(|&(case, _, nnz)| Some((nnz as f64, of(case)?)));
        Curve::measured(name, points.collect())
    };
    let times = vec![
        time("COO, one thread", &|case| Some(found.forced(SPEED, case, "f64", "coo", SERIAL)?.ms)),
        time("COO, parallel", &|case| Some(found.ours(SPEED, case, "f64", "coo")?.ms)),
        time("best peer", &|case| Some(found.peer(SPEED, case, "f64")?.ms)),
    ];
    let over = ratios(found);
    let ends = over.first().zip(over.last()).map_or(Vec::new(), |(a, b)| vec![(a.0, SPEED_UP), (b.0, SPEED_UP)]);
    let speed = vec![
        Curve::measured("one thread's time over parallel's", over),
        Curve::published("published: thousands of times", "one thread's time over parallel's", ends),
    ];
    let one = Figure {
        name: "Speed-up",
        charts: vec![
            Chart {
                title: "y = A x, ten entries a row".into(),
                x: entries(),
                y: Axis { name: "ms", scale: Scale::Log },
                curves: times,
            },
            Chart {
                title: "speed-up of parallel COO".into(),
                x: entries(),
                y: Axis { name: "times", scale: Scale::Log },
                curves: speed,
            },
        ],
        ..Figure::default()
    };
    let cases = found.cases(POWER);
    let curve = |noun: &str| {
        let point =
            |&(case, _, _): &(&str, usize, usize)| Some((exponent(case)?, found.ours(POWER, case, "f64", noun)?.ms));
        Curve::measured(noun.to_uppercase(), cases.iter().filter_map(point).collect())
    };
    let mut curves: Vec<Curve> = FORMATS.iter().map(|noun| curve(noun)).collect();
    let peer = |&(case, _, _): &(&str, usize, usize)| Some((exponent(case)?, found.peer(POWER, case, "f64")?.ms));
    curves.push(Curve::measured("best peer", cases.iter().filter_map(peer).collect()));
    curves.retain(|c| !c.points.is_empty());
    let n = cases.first().map_or(0, |c| c.1);
    let two = Chart {
        title: format!("y = A x, rows by a power law, n = {n}"),
        x: Axis { name: "exponent of the lengths' density (smaller: longer rows)", scale: Scale::Linear },
        y: Axis { name: "ms", scale: Scale::Log },
        curves,
    };
    vec![one, Figure { name: "Power law", charts: vec![two], ..Figure::default() }]
}

fn claims(found: &Found<'_>) -> Vec<Value> {
    let most = ratios(found).iter().map(|r| r.1).max_by(f64::total_cmp);
    let what = "parallel COO over one thread, most";
    let mut all = vec![claim("coo", SPEED, what, json!("thousands of times"), json!(most))];
    for (case, _, _) in found.cases(POWER) {
        let coo = found.ours(POWER, case, "f64", "coo").map(|l| l.ms);
        let other = found.all(POWER, case, "f64").filter(|l| l.contender == "spandrel" && l.noun != "coo");
        let best = other.min_by(|a, b| a.ms.total_cmp(&b.ms));
        let ratio = coo.zip(best).map(|(coo, best)| coo / best.ms);
        let what = format!("{case}: COO's time over {}'s, our best other", best.map_or("-", |l| l.noun.as_str()));
        all.push(claim("coo", POWER, &what, Value::Null, json!(ratio)));
    }
    all
}
