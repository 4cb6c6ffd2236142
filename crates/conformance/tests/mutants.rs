//! Proof that the suite can fail: backends with one flaw each, and the trials that must notice it.

mod broken;

use std::rc::Rc;

use broken::{Broken, Flaw};
use spandrel_backend_cpu::Cpu;
use spandrel_conformance::{Fleet, Outcome, Record, Trial, suite, trials, triangle};
use spandrel_formats::Csr;
use spandrel_sptrsv::Serial;

/// Opens a device for the queue beside the subject's.
fn without() -> spandrel_backend::Result<Broken<Cpu>> {
    Ok(Broken { inner: Cpu::with_threads(1)?, flaw: Flaw::None })
}

/// All trials of CSR in f64 on three cases, and of the vectors, on a backend with these flaws (one device each).
fn all(flaws: &[Flaw]) -> Vec<Trial> {
    let cpu = Cpu::with_threads(1).unwrap();
    let devices = flaws.iter().map(|&flaw| (format!("{flaw:?}"), Broken { inner: cpu.clone(), flaw })).collect();
    let fleet = Rc::new(Fleet { name: "broken".into(), devices });
    let mut out = trials::of_vectors::<f64, _>(&fleet, false);
    out.extend(trials::of_vectors::<f32, _>(&fleet, false));
    out.extend(trials::of_casts(&fleet));
    out.extend(trials::of_sparse_vectors::<f64, _>(&fleet));
    out.extend(trials::of_made::<f64, _>(&fleet));
    out.extend(trials::of_coarsening::<f64, _>(&fleet));
    out.extend(trials::of_stencils::<f64, _>(&fleet));
    for case in suite::cases().unwrap() {
        if ["6x6", "tridiagonal-33", "poisson2d-33x17", "negative-definite", "zero-matrix"]
            .contains(&case.name.as_str())
        {
            out.extend(trials::of_format::<Csr<f64>, _>(&fleet, &case));
            out.extend(trials::of_transposed::<Csr<f64>, _>(&fleet, &case));
            out.extend(trials::of_several::<Csr<f64>, _>(&fleet, &case));
            out.extend(trials::of_masked::<f64, _>(&fleet, &case));
        }
        if case.name == "poisson2d-129x97" {
            out.extend(trials::of_repeated_format::<Csr<f64>, _>(&fleet, &case));
        }
        if case.name == "6x6" {
            let sound = Rc::new(Fleet { name: "sound".into(), ..Fleet::single(cpu.clone()) });
            out.extend(trials::format_between::<Csr<f64>, _, _>(&sound, &fleet, &case));
            trials::vectors_between::<f64, _, _>(&sound, &fleet, &mut out);
        }
    }
    out.extend(trials::of_faults::<f64, _>(&fleet));
    for case in triangle::all().unwrap() {
        if case.name == "poisson2d-13x11" {
            let case = Rc::new(case);
            out.extend(trials::of_plan::<Serial<f64>, _>(&fleet, without, &case));
            trials::factors_of_case::<f64, _>(&fleet, &case, &mut out);
        }
    }
    out
}

fn run(flaws: &[Flaw], name: &str) -> Record {
    let trial = all(flaws).into_iter().find(|trial| trial.name == name);
    trial.unwrap_or_else(|| panic!("no trial is called {name}")).run()
}

/// Checks that each trial fails with the flaw, for a reason that contains the word, and passes without it.
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
            ("spmv_dot/csr/f64/broken/6x6", "worst row 5"),
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
fn backends_that_disagree() {
    caught(
        &[Flaw::NudgesLastBit],
        &[
            ("spmv/csr/f64/sound+broken/6x6", "one against the other"),
            ("hadamard/vector/f64/sound+broken/33", "one backend against the other"),
        ],
    );
    caught(&[Flaw::WritesPastCheck], &[("cg_step/vector/f64/sound+broken/curvature-zero", "one backend against")]);
}

#[test]
fn a_product_that_drifts() {
    caught(&[Flaw::Drifts], &[("spmv/csr/f64/broken/poisson2d-129x97-20-runs", "against run 1")]);
}

#[test]
fn a_fused_step_that_is_not_its_default() {
    for (flaw, trial) in [
        (Flaw::FusesWrongly, "cg_update/vector/f64/broken/33"),
        (Flaw::HalvesWrongly, "bicgstab_half/vector/f64/broken/33"),
        (Flaw::UpdatesWrongly, "bicgstab_update/vector/f64/broken/33"),
        (Flaw::FusesJacobiWrongly, "hadamard_dot/vector/f64/broken/33"),
    ] {
        caught(&[flaw], &[(trial, "plain loop")]);
    }
    caught(&[Flaw::ForgetsRightHandSide], &[("residual/csr/f64/broken/6x6", "NaN")]);
    caught(&[Flaw::FusesDotWrongly], &[("spmv_dot/csr/f64/broken/6x6", "w.y against the documented tree")]);
}

#[test]
fn a_step_that_observes_before_it_checks() {
    caught(
        &[Flaw::ObservesFirst],
        &[
            ("cg_step/vector/f64/broken/running", "the report"),
            ("cg_step/vector/f64/broken/curvature-nan", "the report"),
            ("bicgstab_first/vector/f64/broken/converged", "the report"),
            ("bicgstab_second/vector/f64/broken/omega-zero", "the report"),
        ],
    );
}

#[test]
fn a_step_that_writes_past_a_failed_check() {
    let trials = [
        "cg_step/vector/f64/broken/curvature-zero",
        "cg_step/vector/f32/broken/curvature-negative",
        "cg_direction/vector/f64/broken/preconditioned-residual-nan",
        "bicgstab_first/vector/f64/broken/shadow-direction-zero",
        "bicgstab_second/vector/f64/broken/stabilizer-zero",
        "bicgstab_second/vector/f64/broken/omega-minus-zero-with-s",
    ];
    for trial in trials {
        caught(&[Flaw::WritesPastCheck], &[(trial, "after the step: ")]);
    }
}

#[test]
fn a_step_that_forgets_its_last_part() {
    for trial in ["cg_direction/vector/f64/broken/running", "bicgstab_direction/vector/f64/broken/running"] {
        caught(&[Flaw::ForgetsAssign], &[(trial, "scalars")]);
    }
    let trials = [
        ("bicgstab_second/vector/f64/broken/next-rho-zero", "Zero(Rho)"),
        ("bicgstab_second/vector/f64/broken/next-rho-nan", "NotFinite(Rho)"),
    ];
    caught(&[Flaw::ForgetsNextRho], &trials);
    caught(&[Flaw::ChecksUnasked], &[("cg_direction/vector/f64/broken/zero-unchecked", "PreconditionedResidual")]);
}

#[test]
fn a_column_that_gets_its_neighbours_x() {
    caught(&[Flaw::RepeatsColumn], &[("spmm/csr/f64/broken/6x6", "column 1 of 2")]);
}

#[test]
fn a_mask_that_is_not_kept() {
    let trial = "spmv/bsrx/f64/broken/poisson2d-33x17-masked";
    caught(&[Flaw::IgnoresMask], &[(trial, "outside the mask")]);
    caught(&[Flaw::ForgetsMaskedRow], &[(trial, "inside the mask")]);
}

#[test]
fn a_sparse_vector_without_its_end() {
    let trials = ["sparse_axpy", "sparse_dot", "gather", "scatter"];
    for name in trials.map(|operation| format!("{operation}/sparse_vec/f64/broken/1025-of-3075")) {
        caught(&[Flaw::DropsSparseTail], &[(&name, "differ in bits")]);
    }
}

#[test]
fn a_cast_that_does_not_round_and_a_scale_of_something_else() {
    caught(&[Flaw::TruncatesCast], &[("cast/vector/f64/broken/33", "cast, Factor")]);
    caught(&[Flaw::ScalesByFirst], &[("cast/vector/f32/broken/33", "binade, Factor")]);
    let trials = ["f32", "f64"].map(|element| format!("cast/vector/{element}/broken/1025"));
    for trial in trials {
        caught(&[Flaw::IgnoresGate], &[(&trial, "behind a stopped monitor")]);
    }
}

#[test]
fn a_replay_that_does_nothing() {
    caught(
        &[Flaw::ReplaysNothing],
        &[
            ("spmv/csr/f64/broken/poisson2d-33x17-recorded", "run 1 recorded"),
            ("cg-identity/csr/f64/broken/poisson2d-33x17", "the device lost work"),
            ("bicgstab-jacobi/csr/f64/broken/poisson2d-33x17", "the device lost work"),
        ],
    );
}

#[test]
fn a_breakdown_that_goes_unseen() {
    caught(
        &[Flaw::AcceptsZero],
        &[
            ("monitor/script/f64/broken/zero", "expected Report"),
            ("bicgstab-identity/csr/f64/broken/zero-matrix", "breakdown"),
        ],
    );
    caught(
        &[Flaw::AcceptsAnything],
        &[
            ("monitor/script/f64/broken/not-positive-zero", "stopped monitor"),
            ("cg-identity/csr/f64/broken/negative-definite", "indefinite_matrix"),
            ("cg-identity/csr/f64/broken/overflow-underway", "expected not_finite after 3"),
        ],
    );
}

#[test]
fn a_triangular_solve_of_other_bits() {
    let trial = "sptrsv/serial/f64/broken/poisson2d-13x11";
    for flaw in [Flaw::DividesByDiagonal, Flaw::SumsBackwards, Flaw::NudgesLastBit] {
        caught(&[flaw], &[(trial, "against the stored order")]);
    }
    caught(&[Flaw::None, Flaw::NudgesLastBit], &[(trial, "NudgesLastBit against None")]);
    let repeated = format!("{trial}-repeated");
    caught(&[Flaw::Drifts], &[(&repeated, "differ in bits")]);
}

#[test]
fn a_triangular_solve_without_a_term() {
    caught(
        &[Flaw::DropsLastTerm],
        &[
            ("sptrsv/serial/f64/broken/poisson2d-13x11", "1 of 143 rows exceed gamma(k+2) |T||x|, worst row 142"),
            ("sptrsv/serial/f64/broken/poisson2d-13x11-beside-another-queue", "worst row 142"),
        ],
    );
}

#[test]
fn flags_of_the_last_solve() {
    caught(
        &[Flaw::StaleFlags],
        &[
            ("sptrsv/serial/f64/broken/poisson2d-13x11-repeated", "solve 1: "),
            ("sptrsv/serial/f64/broken/poisson2d-13x11-recorded", "run 1 of a graph"),
        ],
    );
    caught(
        &[Flaw::GateSpoilsNext],
        &[
            ("sptrsv/serial/f64/broken/poisson2d-13x11-gated", "gate after a stopped one"),
            ("sptrsv/serial/f64/broken/poisson2d-13x11-recorded", "run 6 of a graph"),
        ],
    );
}

#[test]
fn a_triangular_solve_of_something_else() {
    for (flaw, suffix, word) in [
        (Flaw::IgnoresTransposed, "", "transposed, x: "),
        (Flaw::ReadsOverwritten, "", "in place"),
        (Flaw::RepeatsColumn, "", "several columns"),
        (Flaw::IgnoresGate, "-gated", "stopped monitor"),
        (Flaw::IgnoresGate, "-recorded", "stopped monitor"),
        (Flaw::ForgetsUpdate, "-updated", "after an update"),
        (Flaw::ForgetsUpdate, "-recorded", "run 640 of a graph"),
        (Flaw::SpreadsNan, "-not-finite", "found NaN"),
        (Flaw::ReplaysNothing, "-recorded", "run 1 of a graph"),
        (Flaw::IgnoresTransposed, "-plain-alone", "T^T by the backend"),
    ] {
        let trial = format!("sptrsv/serial/f64/broken/poisson2d-13x11{suffix}");
        caught(&[flaw], &[(&trial, word)]);
    }
}

#[test]
fn factors_of_other_bits() {
    for noun in ["ilu0", "iluk", "ilut", "ic0", "ssor"] {
        let trial = format!("factorize/{noun}/f64/broken/poisson2d-13x11");
        caught(&[Flaw::NudgesFactor], &[(&trial, "L against the host's: 1 of")]);
    }
}

#[test]
fn products_and_transposes_of_matrices() {
    let (product, transpose) = ("spgemm/csr/f64/broken/poisson2d-33x17", "transpose/csr/f64/broken/convdiff2d-33x17");
    caught(&[Flaw::RoundsProducts], &[(product, "elements differ in bits")]);
    caught(&[Flaw::KeepsOldValues], &[(product, "values 2"), (transpose, "values 0")]);
    caught(&[Flaw::IgnoresGate], &[(product, "behind a stopped"), (transpose, "behind a stopped")]);
    caught(&[Flaw::None, Flaw::RoundsProducts], &[(product, "RoundsProducts")]);
}

#[test]
fn rows_on_their_way_to_the_host() {
    let shifted = |case: &str| format!("download/csr/f64/broken/{case}");
    let (grid, empty) = (shifted("convdiff2d-33x17"), shifted("empty-rows"));
    caught(&[Flaw::ShiftsRows], &[(&grid, "another pattern"), (&empty, "another pattern")]);
}

#[test]
fn renumbered_matrices() {
    let trial = "renumber/csr/f64/broken/shuffled-poisson3d-9";
    caught(&[Flaw::NumbersBackwards], &[(trial, "of the search")]);
    caught(&[Flaw::ConfusesOrders], &[(trial, "P^T x")]);
    caught(&[Flaw::KeepsOldValues], &[(trial, "round 0: the values")]);
    caught(&[Flaw::IgnoresGate], &[(trial, "behind a stopped")]);
}

#[test]
fn new_values_of_coarser_matrices() {
    let trial = "coarsen/csr/f64/broken/poisson2d-33x17";
    caught(&[Flaw::KeepsOldValues], &[(trial, "round 1, the prolongation")]);
    caught(&[Flaw::ScalesRowsOnly], &[(trial, "rows and columns scaled in place")]);
}

#[test]
fn stencils_and_grids() {
    let trial = "stencil/dia/f64/broken/poisson3d:16x15x14-hhh-uneven";
    caught(&[Flaw::IgnoresGate], &[(trial, "behind a stopped monitor")]);
    caught(&[Flaw::ReadsY], &[(trial, "found NaN")]);
    caught(&[Flaw::DropsLastEntry], &[(trial, "expected a bound of")]);
    caught(&[Flaw::DividesByDiagonal], &[(trial, "one over RowSum")]);
    caught(&[Flaw::RepeatsColumn], &[(trial, "diagonal 1: ")]);
}

#[test]
fn new_values_of_multigrid_over_stencils() {
    let trial = "stencil-mg-update/dia/f64/broken/poisson2d:61x50";
    caught(&[Flaw::ForgetsUpdate], &[(trial, "values 1")]);
    caught(&[Flaw::KeepsOldValues], &[(trial, "values 1")]);
    caught(&[Flaw::ReplaysNothing], &[(trial, "run 1 of a graph")]);
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
