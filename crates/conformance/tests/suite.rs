//! The whole suite in a test build, without the large cases (a matrix of two million rows and vectors of a million elements),
//! which are left to the binary's release build.

use spandrel_conformance::Outcome;
use spandrel_conformance::suite::{self, Selection};

fn small() -> Selection {
    Selection { small: true, ..Selection::default() }
}

#[test]
fn every_backend_of_this_machine_keeps_the_contract() {
    let mut report = Vec::new();
    let tally = suite::run(suite::select(&small()).unwrap(), &mut report, None).unwrap();
    let report = String::from_utf8_lossy(&report);
    assert_eq!(tally.failed, 0, "{report}\n{tally}");
    assert!(tally.passed > 3000, "{tally}");
    // A trial that begins to skip would hide what it tried: only what needs a GPU may.
    let skipped: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("skipped ")).collect();
    assert_eq!(skipped, ["suite/all/all/cuda/probe"]);
}

#[test]
fn cuda_is_skipped_with_a_reason_and_required_on_request() {
    let selection = Selection { backend: Some("cuda".into()), ..small() };
    let mut trials = suite::select(&selection).unwrap();
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
fn names_are_unique_and_follow_the_grammar() {
    let trials = suite::select(&Selection::default()).unwrap();
    let mut seen = std::collections::HashSet::new();
    for trial in &trials {
        assert_eq!(trial.name.split('/').count(), 5, "{}", trial.name);
        assert!(seen.insert(trial.name.as_str()), "{} is there twice", trial.name);
    }
    for name in
        ["spmv/bdia/f64/cpu/poisson2d-33x17", "spmv/csr/f32/cpu/tridiagonal-2097200", "dot/vector/f64/cpu+trace/2049"]
    {
        assert!(seen.contains(name), "{name}");
    }
}
