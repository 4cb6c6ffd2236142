//! `spandrel-bench paper hmec`: one product, BiCGStab with ILU(0) and CG with IC(0), by format, on the paper's
//! matrices.
//!
//! Table 2: time of one product by COO, CSR, ELL, HYB, HEC and HMEC(2). Figure 6: time of BiCGStab with ILU(0) by
//! format and with a library's product. Figure 7: the same for CG with IC(0), if the matrix is symmetric, with the
//! electromagnetic problem that the paper leaves to later.
//!
//! A generated matrix stands in for one that is not in `--matrices DIR`, and the record names both. A pattern, or
//! values on which the factorisation or the method fails, get those of the pattern's graph Laplacian (see
//! [`crate::krylov`]).
//!
//! Reference: Cheng, Tian, Wu, Wang, Li 2018, Optimization of solving sparse linear system based on blocked storage
//! format.

use anyhow::Result;
use serde_json::{Value, json};

use super::suite::{Named, SUITE};
use super::{Figure, Found, Job, Paper, Plan, Scope, Work, claim, whole};
use crate::case::Case;
use crate::chart::{Axis, Chart, Curve, Scale, digits};
use crate::krylov::Method;
use crate::record::Line;

/// The experiment.
pub const PAPER: Paper = Paper {
    name: "hmec",
    title: "HMEC, BiCGStab with ILU(0), CG with IC(0) (Cheng, Tian, Wu, Wang, Li 2018)",
    intro,
    jobs: plan,
    figures,
    claims,
};

/// Table 2's formats with their names there.
const FORMATS: [(&str, &str); 6] =
    [("coo", "COO"), ("csr", "CSR"), ("ell", "ELL"), ("hyb", "HYB"), ("hec", "HEC"), ("hmec", "HMEC(2)")];
const PRODUCT: &[&str] = &["coo", "csr", "ell", "hyb", "hec", "hmec"];
const SOLVE: &[&str] = &["csr", "ell", "hyb", "hec", "hmec"];
/// A matrix that fills today's GPU, and the electromagnetic problem.
const LARGE: [(&str, bool); 3] =
    [("gfem:n=1400x1400,p=1,dim=2", true), ("powerlaw:n=2000000,alpha=2.1", false), ("electrostatic:n=500000", true)];
const ELECTROMAGNETIC: &str = "electrostatic:n=50000";
const QUICK_ELECTROMAGNETIC: &str = "electrostatic:n=5000";
/// `--quick` skips matrices with this many entries or more: for products and for solves.
const QUICK_PRODUCT: usize = 700_000;
const QUICK_SOLVE: usize = 100_000;
/// A CPU skips solves with this many entries or more, because one takes minutes in every format.
const CPU_SOLVE: usize = 5_000_000;

/// Gains over CSR as shares of its time: of one product (ct20stif), of BiCGStab (bcsstk33), of CG (sherman3).
const GAINS: [f64; 3] = [0.3293, 0.3189, 0.1750];
/// The gain of CG on sherman3 over HEC.
const GAIN_OVER_HEC: f64 = 0.1329;
/// Milliseconds of BiCGStab with HMEC on bcsstk33, and of CG with HMEC on sherman3.
const BICGSTAB: (&str, f64) = ("bcsstk33", 16.32);
const CG: (&str, f64) = ("sherman3", 27.85);
/// CSR is the fastest below this many entries.
const CROSSOVER: f64 = 30_000.0;

fn intro(_: bool) -> String {
    String::from(
        "f64. `*`: a generated stand-in for a matrix that is not available. `'`: the values are those of the pattern's graph Laplacian, because \
         the file has none, or the method fails on them. Solves end at a residual of 1e-8, b = A x*; triangular solves by the plan \
         that is chosen for users. Published numbers are of a GTX 1050.",
    )
}

fn plan(scope: &Scope<'_>) -> Result<Plan> {
    let mut plan = Plan::default();
    let formats = |factored: bool| if factored { SOLVE } else { PRODUCT };
    let max_iters = if scope.quick { 300 } else { 5000 };
    let solve = |method| Work::Solve { method, factored: true, formats: formats(true), max_iters };
    let product = Work::Product { types: &["f64"], formats: formats(false), force: &[] };
    let too_large = |rows: usize, nnz: usize, quick: usize, cpu: usize| {
        let small = scope.most_rows > 0 && rows > scope.most_rows;
        small || (scope.quick && nnz >= quick) || (!scope.gpu && nnz >= cpu)
    };
    let mut passed = |name: &str, figure: &str, why: &str| {
        let note = json!({"op": "paper", "noun": "hmec", "case": name, "figure": figure, "missing": why});
        plan.notes.push(note);
    };
    for named in &SUITE {
        let file = scope.matrices.and_then(|folder| named.file(folder));
        let stand_in = file.is_none().then(|| named.name.to_owned());
        if stand_in.is_some() {
            passed(named.name, "all", &format!("not there (--matrices DIR); {} in its place", named.stand_in));
        }
        let case = file.unwrap_or_else(|| Case::parse(named.stand_in));
        let mut add = |figure, work: &Work, quick, cpu| {
            if too_large(named.rows, named.nnz, quick, cpu) {
                let why = "too large for --quick, or for solves on a CPU";
                passed(named.name, figure, why);
            } else {
                let stands_in_for = stand_in.clone();
                plan.jobs.push(Job { case: case.clone(), figure, work: work.clone(), stands_in_for });
            }
        };
        add("table 2", &product, QUICK_PRODUCT, usize::MAX);
        add("6", &solve(Method::BiCgStab), QUICK_SOLVE, CPU_SOLVE);
        if named.symmetric {
            add("7", &solve(Method::Cg), QUICK_SOLVE, CPU_SOLVE);
        }
    }
    let own = |spec: &str, figure, work: &Work| Job {
        case: Case::parse(spec),
        figure,
        work: work.clone(),
        stands_in_for: None,
    };
    let electromagnetic = if scope.quick { QUICK_ELECTROMAGNETIC } else { ELECTROMAGNETIC };
    if scope.most_rows == 0 {
        plan.jobs.push(own(electromagnetic, "7", &solve(Method::Cg)));
    }
    for (spec, symmetric) in &LARGE {
        if scope.quick || !scope.gpu {
            passed(spec, "all", "a GPU's, without --quick");
            continue;
        }
        plan.jobs.push(own(spec, "table 2", &product));
        plan.jobs.push(own(spec, "6", &solve(Method::BiCgStab)));
        if *symmetric {
            plan.jobs.push(own(spec, "7", &solve(Method::Cg)));
        }
    }
    // Products first, because they take seconds each, and solves up to a minute.
    plan.jobs.sort_by_key(|job| job.figure != "table 2");
    Ok(plan)
}

/// A case of a figure, with the paper's matrix that it is or replaces.
struct Place<'a> {
    case: &'a str,
    nnz: usize,
    named: Option<&'static Named>,
    label: String,
}

/// The cases of a figure, by entries.
fn places<'a>(found: &Found<'a>, figure: &str) -> Vec<Place<'a>> {
    let place = |(case, _, nnz): (&'a str, usize, usize)| {
        let first = found.all(figure, case, "f64").next();
        let stands = first.and_then(|l| l.more.stands_in_for.as_deref());
        let named = SUITE.iter().find(|n| stands.map_or(n.short() == case, |name| n.name == name));
        let generated = || format!("{}, {:.1}M", case.split(':').next().unwrap_or(case), nnz as f64 / 1e6);
        let mut label = named.map_or_else(generated, |n| n.short().to_owned());
        label += if stands.is_some() { "*" } else { "" };
        label += if first.is_some_and(|l| l.more.values.is_some()) { "'" } else { "" };
        Place { case, nnz, named, label }
    };
    let mut places: Vec<Place<'a>> = found.cases(figure).into_iter().map(place).collect();
    places.sort_by_key(|p| p.nnz);
    places
}

/// A curve over the cases of a figure.
fn curve(places: &[Place<'_>], of: &dyn Fn(&Place<'_>) -> Option<f64>) -> Vec<(f64, f64)> {
    places.iter().enumerate().filter_map(|(k, place)| Some((k as f64, of(place)?))).collect()
}

fn chart(title: &str, unit: &'static str, scale: Scale, places: &[Place<'_>], mut curves: Vec<Curve>) -> Chart {
    curves.retain(|c| !c.points.is_empty());
    let names = places.iter().map(|p| p.label.clone()).collect();
    let x = Axis { name: "matrix, by entries", scale: Scale::Names(names) };
    Chart { title: title.into(), x, y: Axis { name: unit, scale }, curves }
}

/// The share of CSR's time that HMEC saves in a figure.
fn gain(found: &Found<'_>, figure: &str, case: &str) -> Option<f64> {
    gain_over("csr", found, figure, case)
}

fn gain_over(other: &str, found: &Found<'_>, figure: &str, case: &str) -> Option<f64> {
    let ms = |noun: &str| Some(whole(found.ours(figure, case, "f64", noun)?));
    Some(1.0 - ms("hmec")? / ms(other)?)
}

fn figures(found: &Found<'_>) -> Vec<Figure> {
    let here = places(found, "table 2");
    let time = |noun: &str| curve(&here, &|p| Some(found.ours("table 2", p.case, "f64", noun)?.ms));
    let mut curves: Vec<Curve> = FORMATS.iter().map(|(noun, name)| Curve::measured(*name, time(noun))).collect();
    curves.push(Curve::measured("best peer", curve(&here, &|p| Some(found.peer("table 2", p.case, "f64")?.ms))));
    for (k, name) in [(1, "CSR"), (5, "HMEC(2)")] {
        let theirs = curve(&here, &|p| Some(p.named?.published?[k]));
        curves.push(Curve::published(format!("{name}, GTX 1050, published"), name, theirs));
    }
    let times = chart("one product", "ms", Scale::Log, &here, curves);
    let published = |p: &Place<'_>| {
        let ms = p.named?.published?;
        Some(100.0 * (1.0 - ms[5] / ms[1]))
    };
    let gains = vec![
        Curve::measured("HMEC(2) against CSR", curve(&here, &|p| Some(100.0 * gain(found, "table 2", p.case)?))),
        Curve::published("HMEC(2) against CSR, published", "HMEC(2) against CSR", curve(&here, &published)),
    ];
    let gains = chart("time saved by HMEC(2)", "% of CSR's time", Scale::Linear, &here, gains);
    let two =
        Figure { name: "Table 2", charts: vec![times, gains], tables: vec![(TABLE_2.into(), table_2(found, &here))] };
    let solves =
        [("6", "Figure 6", "BiCGStab with ILU(0)", BICGSTAB, SOLVE), ("7", "Figure 7", "CG with IC(0)", CG, SOLVE)];
    let solve = |(figure, name, title, (matrix, ms), formats): (&str, &'static str, &str, (&str, f64), &[&str])| {
        let here = places(found, figure);
        let mut curves: Vec<Curve> = Vec::new();
        for (noun, name) in FORMATS.iter().filter(|(noun, _)| formats.contains(noun)) {
            let of = |p: &Place<'_>| Some(whole(found.ours(figure, p.case, "f64", noun)?));
            curves.push(Curve::measured(*name, curve(&here, &of)));
        }
        let library = |p: &Place<'_>| Some(whole(found.peer(figure, p.case, "f64")?));
        curves.push(Curve::measured("CSR, a library's product", curve(&here, &library)));
        let theirs = curve(&here, &|p| (p.named?.short() == matrix).then_some(ms));
        curves.push(Curve::published(format!("HMEC(2) on {matrix}, GTX 1050, published"), "HMEC(2)", theirs));
        Figure {
            name,
            charts: vec![chart(&format!("{title}, time of a solve"), "ms", Scale::Log, &here, curves)],
            tables: vec![(format!("{title}: iterations, plan"), solves_table(found, figure, &here))],
        }
    };
    std::iter::once(two).chain(solves.into_iter().map(solve)).collect()
}

const TABLE_2: &str = "milliseconds of one product (published)";

fn table_2(found: &Found<'_>, places: &[Place<'_>]) -> String {
    let names: Vec<&str> = FORMATS.iter().map(|f| f.1).collect();
    let mut out = format!("| matrix | generated as | entries | {} |\n|---|---|---:|", names.join(" | "));
    out += &("---:|".repeat(names.len()) + "\n");
    for p in places {
        let cell = |(k, (noun, _)): (usize, &(&str, &str))| {
            let here = found.ours("table 2", p.case, "f64", noun).map_or("-".into(), |l| digits(l.ms));
            let theirs = p.named.and_then(|n| n.published).map_or(String::new(), |ms| format!(" ({})", ms[k]));
            here + &theirs
        };
        let cells: Vec<String> = FORMATS.iter().enumerate().map(cell).collect();
        let made = if p.label.contains('*') { p.case } else { "" };
        out += &format!("| {} | {made} | {} | {} |\n", p.label, p.nnz, cells.join(" | "));
    }
    out
}

fn solves_table(found: &Found<'_>, figure: &str, places: &[Place<'_>]) -> String {
    let mut out = String::from(
        "| matrix | entries | iterations | preconditioner | fastest | HMEC(2) saves of CSR's time |\n|---|---:|---:|---|---|---:|\n",
    );
    for p in places {
        let own = || found.all(figure, p.case, "f64").filter(|l| l.contender == "spandrel");
        let fastest = own().min_by(|a, b| whole(a).total_cmp(&whole(b)));
        let word = |of: &dyn Fn(&Line) -> String| fastest.map_or("-".into(), of);
        out += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            p.label,
            p.nnz,
            word(&|l| l.more.iterations.unwrap_or(0).to_string()),
            word(&|l| l.more.kernel.clone().unwrap_or_default()),
            word(&|l| format!("{} ({} ms)", l.noun, digits(whole(l)))),
            gain(found, figure, p.case).map_or("-".into(), |g| format!("{:.1} %", 100.0 * g))
        );
    }
    out
}

fn claims(found: &Found<'_>) -> Vec<Value> {
    let best = |figure: &str| {
        let gains = places(found, figure).into_iter().filter_map(|p| Some((gain(found, figure, p.case)?, p.label)));
        gains.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let at = |figure: &str, short: &str| {
        let place = places(found, figure).into_iter().find(|p| p.named.is_some_and(|n| n.short() == short))?;
        gain(found, figure, place.case)
    };
    let mut all = Vec::new();
    for (k, (figure, what, matrix)) in [
        ("table 2", "one product", "ct20stif"),
        ("6", "BiCGStab with ILU(0)", "bcsstk33"),
        ("7", "CG with IC(0)", "sherman3"),
    ]
    .into_iter()
    .enumerate()
    {
        let most = best(figure);
        let on = most.as_ref().map_or("-", |m| m.1.as_str());
        let text = format!("share of CSR's time that HMEC(2) saves in {what}, most (there {matrix}, here {on})");
        all.push(claim("hmec", figure, &text, json!(GAINS[k]), json!(most.as_ref().map(|m| m.0))));
        let text = format!("the same on {matrix}");
        all.push(claim("hmec", figure, &text, json!(GAINS[k]), json!(at(figure, matrix))));
    }
    let sherman3 = places(found, "7").into_iter().find(|p| p.named.is_some_and(|n| n.short() == "sherman3"));
    let over_hec = sherman3.and_then(|p| gain_over("hec", found, "7", p.case));
    let text = "share of HEC's time that HMEC(2) saves, sherman3";
    all.push(claim("hmec", "7", text, json!(GAIN_OVER_HEC), json!(over_hec)));
    let gearbox = json!(1.0 - 3.287 / 0.952);
    all.push(claim(
        "hmec",
        "table 2",
        "the same of one product on gearbox, where CSR wins",
        gearbox,
        json!(at("table 2", "gearbox")),
    ));
    let wins = |p: &Place<'_>| {
        let own = found.all("table 2", p.case, "f64").filter(|l| l.contender == "spandrel");
        own.min_by(|a, b| a.ms.total_cmp(&b.ms)).is_some_and(|l| l.noun == "csr")
    };
    let last = places(found, "table 2").iter().filter(|p| wins(p)).map(|p| p.nnz as f64).next_back();
    all.push(claim("hmec", "table 2", "most entries at which CSR is the fastest", json!(CROSSOVER), json!(last)));
    for (figure, (matrix, ms)) in [("6", BICGSTAB), ("7", CG)] {
        let place = places(found, figure).into_iter().find(|p| p.named.is_some_and(|n| n.short() == matrix));
        let here = place.and_then(|p| Some(whole(found.ours(figure, p.case, "f64", "hmec")?)));
        all.push(claim(
            "hmec",
            figure,
            &format!("milliseconds of a solve by HMEC(2), {matrix}"),
            json!(ms),
            json!(here),
        ));
    }
    all
}
