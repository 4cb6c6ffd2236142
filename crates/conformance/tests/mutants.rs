//! The suite can fail: backends with one flaw each, and the trials that must notice it.

mod broken;

use std::rc::Rc;

use broken::{Broken, Flaw};
use spandrel_backend_cpu::Cpu;
use spandrel_conformance::{Fleet, Outcome, Record, Trial, suite, trials};
use spandrel_formats::Csr;

/// Everything of CSR in f64 on three cases, and the vectors, on a backend with these flaws (one device each).
fn all(flaws: &[Flaw]) -> Vec<Trial> {
    let cpu = Cpu::with_threads(1).unwrap();
    let devices = flaws.iter().map(|&flaw| (format!("{flaw:?}"), Broken { inner: cpu.clone(), flaw })).collect();
    let fleet = Rc::new(Fleet { name: "broken".into(), devices });
    let mut out = trials::of_vectors::<f64, _>(&fleet, false);
    for case in suite::cases().unwrap() {
        if ["6x6", "tridiagonal-33", "poisson2d-33x17", "negative-definite"].contains(&case.name.as_str()) {
            out.extend(trials::of_format::<Csr<f64>, _>(&fleet, &case));
            out.extend(trials::of_transposed::<Csr<f64>, _>(&fleet, &case));
        }
    }
    out
}

fn run(flaws: &[Flaw], name: &str) -> Record {
    let trial = all(flaws).into_iter().find(|trial| trial.name == name);
    trial.unwrap_or_else(|| panic!("no trial is called {name}")).run()
}

/// Each of the trials fails with the flaw, for a reason that contains the word, and passes without it.
fn caught(flaws: &[Flaw], names: &[(&str, &str)]) {
    for (name, word) in names {
        let record = run(flaws, name);
        assert_eq!(record.outcome, Outcome::Failed, "{name} does not notice {flaws:?}");
        assert!(record.detail.contains(word), "{name}: {}", record.detail);
        let record = run(&[Flaw::None], name);
        assert_eq!(record.outcome, Outcome::Passed, "{name} without a flaw: {}", record.detail);
    }
}

#[test]
fn a_dropped_entry() {
    caught(
        &[Flaw::DropsLastEntry],
        &[
            ("spmv/csr/f64/broken/6x6", "worst row 5"),
            ("spmv/csr/f64/broken/tridiagonal-33", "worst row 32"),
            ("spmv_dot/csr/f64/broken/6x6", "stored order"),
            ("cg-identity/csr/f64/broken/poisson2d-33x17-5-iterations", "true residual"),
        ],
    );
}

#[test]
fn y_read_where_b_is_zero() {
    caught(
        &[Flaw::ReadsY],
        &[
            ("spmv/csr/f64/broken/6x6", "b = 0"),
            ("spmv_transposed/csr/f64/broken/6x6", "b = 0"),
            ("axpby/vector/f64/broken/33", "plain loop"),
        ],
    );
}

#[test]
fn an_ignored_gate() {
    caught(
        &[Flaw::IgnoresGate],
        &[
            ("spmv/csr/f64/broken/poisson2d-33x17-gated", "stopped monitor"),
            ("spmv_transposed/csr/f64/broken/6x6", "stopped monitor"),
            ("axpby/vector/f64/broken/33-gated", "stopped monitor"),
            ("dot/vector/f64/broken/33-gated", "stopped monitor"),
            ("cg_update/vector/f64/broken/33-gated", "stopped monitor"),
            ("cg-jacobi/csr/f64/broken/poisson2d-33x17", "check_every"),
        ],
    );
}

#[test]
fn another_order_of_the_dot_product() {
    caught(
        &[Flaw::DotInSequence],
        &[
            ("dot/vector/f64/broken/1025", "plain loop"),
            ("norm2/vector/f64/broken/2049", "plain loop"),
            ("spmv_dot/csr/f64/broken/poisson2d-33x17", "documented tree"),
        ],
    );
}

#[test]
fn a_transpose_that_is_off_by_one() {
    caught(
        &[Flaw::ShiftsTransposed],
        &[
            ("spmv_transposed/csr/f64/broken/6x6", "worst row"),
            ("spmv_transposed/csr/f64/broken/tridiagonal-33", "worst row"),
        ],
    );
}

#[test]
fn a_last_bit() {
    caught(
        &[Flaw::NudgesLastBit],
        &[("spmv/csr/f64/broken/6x6", "stored order"), ("hadamard/vector/f64/broken/33", "plain loop")],
    );
}

#[test]
fn devices_that_disagree() {
    caught(
        &[Flaw::None, Flaw::NudgesLastBit],
        &[
            ("spmv/csr/f64/broken/6x6", "NudgesLastBit against None"),
            ("hadamard/vector/f64/broken/33", "NudgesLastBit"),
            ("cg-jacobi/csr/f64/broken/poisson2d-33x17", "NudgesLastBit"),
        ],
    );
}

#[test]
fn a_fused_step_that_is_not_its_default() {
    caught(&[Flaw::FusesWrongly], &[("cg_update/vector/f64/broken/33", "plain loop")]);
}

#[test]
fn a_replay_that_does_nothing() {
    // A solve would wait for its monitor for ever on such a backend.
    caught(&[Flaw::ReplaysNothing], &[("spmv/csr/f64/broken/poisson2d-33x17-recorded", "run 1 recorded")]);
}

#[test]
fn a_breakdown_that_goes_unseen() {
    caught(
        &[Flaw::AcceptsAnything],
        &[
            ("monitor/script/f64/broken/not-positive-zero", "stopped monitor"),
            ("cg-identity/csr/f64/broken/negative-definite", "indefinite_matrix"),
        ],
    );
}

#[test]
fn a_panic_is_a_failure_and_the_run_goes_on() {
    let mut report = Vec::new();
    let mut json = Vec::new();
    let trials: Vec<Trial> =
        all(&[Flaw::Panics]).into_iter().filter(|trial| trial.name.starts_with("hadamard/")).collect();
    let count = trials.len();
    let tally = suite::run(trials, &mut report, Some(&mut json)).unwrap();
    assert_eq!((tally.passed, tally.failed, tally.skipped), (0, count, 0));
    let report = String::from_utf8(report).unwrap();
    assert!(report.contains("FAILED  hadamard/vector/f64/broken/33\n") && report.contains("a flaw of this backend"));
    let json = String::from_utf8(json).unwrap();
    assert_eq!(json.lines().count(), count);
    assert!(
        json.lines().all(|line| line.starts_with("{\"name\":\"hadamard/") && line.contains("\"outcome\":\"failed\""))
    );
}
