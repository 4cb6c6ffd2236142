//! The suite in a test build, without the large cases (a matrix of two million rows and vectors of a million elements),
//! which the release build of the binary runs. One trial in sixteen of each kind, or all with `SPANDREL_SUITE=whole`,
//! as in CI.

use std::collections::HashSet;

use spandrel_conformance::Outcome;
use spandrel_conformance::suite::{self, Part, Selection};

/// One trial of this many of each kind is run.
const FEWER: usize = 16;

/// Whether to run all of them.
fn whole() -> bool {
    std::env::var_os("SPANDREL_SUITE").is_some_and(|asked| asked == "whole")
}

fn small() -> Selection {
    Selection { small: true, ..Selection::default() }
}

#[test]
fn every_backend_of_this_machine_keeps_the_contract() {
    let gpu = spandrel_backend_cuda::probe().is_ok();
    let selection = Selection { one_in: if whole() { 1 } else { FEWER }, ..small() };
    let mut report = Vec::new();
    let tally = suite::run_together(&selection, suite::jobs(&selection), &mut report, None).unwrap();
    let report = String::from_utf8_lossy(&report);
    assert_eq!(tally.failed, 0, "{report}\n{tally}");
    assert!(tally.passed > if whole() { 3000 } else { 500 }, "{tally}");
    if gpu {
        return;
    }
    // A trial that begins to skip would hide what it tested. Only what needs a GPU may be skipped.
    let skipped: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("skipped ")).collect();
    assert_eq!(skipped, ["suite/all/all/cuda/probe"]);
}

#[test]
fn fewer_trials_leave_out_no_operation_noun_type_or_backend() {
    let names = |one_in| -> Vec<String> {
        let trials = suite::select(&Selection { one_in, ..small() }).unwrap();
        trials.into_iter().map(|trial| trial.name).collect()
    };
    let kinds =
        |names: &[String]| -> HashSet<String> { names.iter().map(|name| suite::kind(name).to_owned()).collect() };
    let (all, fewer) = (names(1), names(FEWER));
    assert_eq!(kinds(&all), kinds(&fewer));
    assert!(2 * fewer.len() < all.len() && fewer.len() * FEWER >= all.len(), "{} of {}", fewer.len(), all.len());
}

#[test]
fn trials_at_a_time_give_the_report_and_the_records_of_one_after_the_other() {
    let selection = Selection { backend: Some("cpu".into()), filter: Some("axpby/".into()), one_in: 2, ..small() };
    let records = |jobs: usize, part| -> (String, String, usize) {
        let (mut report, mut json) = (Vec::new(), Vec::new());
        let selection = Selection { part, ..selection.clone() };
        let tally = match jobs {
            1 => suite::run(suite::select(&selection).unwrap(), &mut report, Some(&mut json)),
            _ => suite::run_together(&selection, jobs, &mut report, Some(&mut json)),
        };
        // The times differ.
        let json = String::from_utf8(json).unwrap();
        let names = json.lines().map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {}\n", record["name"], record["outcome"])
        });
        (String::from_utf8(report).unwrap(), names.collect(), tally.unwrap().passed)
    };
    let whole = records(1, Part::default());
    assert!(whole.2 > 4, "{whole:?}");
    assert_eq!(records(3, Part::default()), whole);
    let parts = [1, 2].map(|which| records(2, Part { which, of: 2 }).1);
    let mut each = parts.each_ref().map(|part| part.lines());
    for (place, name) in whole.1.lines().enumerate() {
        assert_eq!(each[place % 2].next(), Some(name));
    }
    assert!(each.into_iter().all(|mut rest| rest.next().is_none()));
}

#[test]
fn parts_count_from_one() {
    assert_eq!("2/3".parse(), Ok(Part { which: 2, of: 3 }));
    for wrong in ["0/3", "4/3", "2", "a/b", "1/0", "-1/2"] {
        assert!(wrong.parse::<Part>().is_err(), "{wrong}");
    }
}

#[test]
fn real_matrices_are_solved_alike_or_the_folder_is_named() {
    let dir = std::env::temp_dir().join(format!("spandrel-conformance-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for spec in ["poisson2d:20x20", "convdiff3d:6x5x4,peclet=10"] {
        let stem = &spec[..9];
        let matrix = spandrel_formats::generate::csr::<f64>(spec).unwrap();
        spandrel_formats::matrix_market::write_csr(dir.join(format!("{stem}.mtx")), &matrix, &Default::default())
            .unwrap();
    }
    std::fs::write(dir.join("wide.mtx"), "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 1 4\n2 3 5\n")
        .unwrap();
    let complex = "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 4 0.5\n";
    std::fs::write(dir.join("complex.mtx"), complex).unwrap();
    std::fs::write(dir.join("no-matrix.mtx"), "nothing").unwrap();
    let threads = |name: &str, threads| {
        let cpu = spandrel_backend_cpu::Cpu::with_threads(threads).unwrap();
        std::rc::Rc::new(spandrel_conformance::Fleet { name: name.into(), devices: vec![(name.into(), cpu)] })
    };
    let (left, right) = (threads("one", 1), threads("two", 2));
    let records = |folder: Option<&std::path::Path>| -> Vec<_> {
        let trials = spandrel_conformance::trials::reproducible::trials(&left, &right, folder);
        trials.into_iter().map(spandrel_conformance::Trial::run).collect()
    };
    let found = records(Some(&dir));
    std::fs::remove_dir_all(&dir).unwrap();
    let outcomes: Vec<_> = found.iter().map(|record| (record.name.as_str(), record.outcome)).collect();
    let name = |case: &str| format!("reproducible/auto/f64/one+two/{case}");
    let expected = [
        ("complex", Outcome::Skipped),
        ("convdiff3", Outcome::Passed),
        ("no-matrix", Outcome::Failed),
        ("poisson2d", Outcome::Passed),
        ("wide", Outcome::Passed),
    ];
    assert_eq!(outcomes.len(), expected.len());
    for ((found, outcome), (case, wanted)) in outcomes.into_iter().zip(expected) {
        assert_eq!((found, outcome), (name(case).as_str(), wanted));
    }
    let missing = records(Some(&dir));
    assert_eq!((missing.len(), missing[0].outcome), (1, Outcome::Failed));
    let none = records(None);
    assert_eq!((none.len(), none[0].outcome), (1, Outcome::Skipped));
    assert!(none[0].detail.contains("--matrices"), "{}", none[0].detail);
}

#[test]
fn cuda_is_skipped_with_a_reason_and_required_on_request() {
    let selection = Selection { backend: Some("cuda".into()), ..small() };
    let mut trials = suite::select(&selection).unwrap();
    if spandrel_backend_cuda::probe().is_ok() {
        assert!(trials.iter().any(|trial| trial.name == "spmv/csr/f64/cpu+cuda-reproducible/6x6"));
        return;
    }
    assert_eq!(trials.len(), 1);
    let record = trials.remove(0).run();
    assert_eq!(record.outcome, Outcome::Skipped);
    assert!(record.detail.len() > 20, "{}", record.detail);
    let mut trials = suite::select(&Selection { require_cuda: true, ..selection }).unwrap();
    let record = trials.remove(0).run();
    assert_eq!(record.outcome, Outcome::Failed);
    assert!(record.detail.contains("required"), "{}", record.detail);
}

#[test]
fn an_unknown_backend_is_named_with_the_known_ones() {
    let error = suite::select(&Selection { backend: Some("abacus".into()), ..small() }).unwrap_err().to_string();
    assert!(error.contains("abacus") && error.contains("cpu, trace, cuda"), "{error}");
}

#[test]
fn a_short_soak_contradicts_nothing() {
    use spandrel_conformance::soak::{self, Soak};
    let cpu = spandrel_backend_cpu::Cpu::with_threads(2).unwrap();
    let mut report = Vec::new();
    let cases = if whole() { 400 } else { 100 };
    let soak = Soak { seed: 1, from: 0, cases, time: std::time::Duration::MAX };
    let kept = soak::run(&cpu, &soak, &mut report).unwrap();
    let report = String::from_utf8_lossy(&report);
    assert!(kept, "{report}");
    // The same cases in the same order, and more than one kind of end.
    for word in ["converged", "max_iterations", "refused: no grid", &format!("{cases} cases")] {
        assert!(report.contains(word), "{word}: {report}");
    }
}

#[test]
fn names_are_unique_and_follow_the_grammar() {
    let trials = suite::select(&Selection::default()).unwrap();
    let mut seen = std::collections::HashSet::new();
    for trial in &trials {
        assert_eq!(trial.name.split('/').count(), 5, "{}", trial.name);
        assert!(seen.insert(trial.name.as_str()), "{} is there twice", trial.name);
    }
    for name in [
        "spmv/bdia/f64/cpu/poisson2d-33x17",
        "spmv/csr/f32/cpu/tridiagonal-2097200",
        "dot/vector/f64/cpu+trace/2049",
        "sptrsv/sweep/f32/cpu/d3n27-13x9x7-recorded",
        "sptrsv/syncfree/f64/cpu/random-70001",
        "sptrsv/levelset/f64/trace/steps",
    ] {
        assert!(seen.contains(name), "{name}");
    }
}
