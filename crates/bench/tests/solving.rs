//! `spandrel-bench solve` on tiny matrices: every solve has a line that says how it ended, every class has a tally, and
//! a grid its contest.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use spandrel_backend_cpu::Cpu;
use spandrel_bench::case::Case;
use spandrel_bench::contender::Effort;
use spandrel_bench::solve::grid::{self, Plan};
use spandrel_formats::Traffic;

fn bench(words: &str, more: &[&Path]) -> Output {
    let program = env!("CARGO_BIN_EXE_spandrel-bench");
    let output =
        Command::new(program).args(words.split(' ')).args(more).args(["--rounds", "1", "--round-ms", "0.01"]).output();
    output.expect("the program runs")
}

/// The record of a successful run, without its header.
fn record(words: &str, json: &Path, more: &[&Path]) -> Vec<Value> {
    let output = bench(&format!("solve {words} --json {}", json.display()), more);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(json).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    assert_eq!(lines.next().map(|header: Value| header["header"].clone()), Some(Value::Bool(true)));
    lines.collect()
}

/// A matrix in `dir` with entries (row, column, value), from 1.
fn write(dir: &Path, name: &str, shape: (usize, usize), entries: &[(usize, usize, f64)]) -> std::path::PathBuf {
    let path = dir.join(name);
    let mut text =
        format!("%%MatrixMarket matrix coordinate real general\n{} {} {}\n", shape.0, shape.1, entries.len());
    entries.iter().for_each(|(i, j, v)| text += &format!("{i} {j} {v}\n"));
    std::fs::write(&path, text).unwrap();
    path
}

/// (noun, precond, status) of the lines of a case.
fn ways<'a>(lines: &'a [Value], case: &str) -> Vec<[&'a str; 3]> {
    let of_case = lines.iter().filter(|l| l["op"] == "solve" && l["case"] == case);
    of_case.map(|l| ["noun", "precond", "status"].map(|field| l[field].as_str().unwrap())).collect()
}

#[test]
fn every_class_is_solved_by_what_suits_it_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    // Not an M-matrix: IC(0) breaks down, and complete factors do not.
    let ring: Vec<_> = (1..=4)
        .flat_map(|i| {
            let next = i % 4 + 1;
            let sign = if i == 4 { 1.0 } else { -1.0 };
            [(i, i, 1.5), (i, next, sign), (next, i, sign)]
        })
        .collect();
    let spd = write(dir.path(), "spd.mtx", (4, 4), &ring);
    let indefinite = write(dir.path(), "indefinite.mtx", (2, 2), &[(1, 1, 1.0), (1, 2, 2.0), (2, 1, 2.0), (2, 2, 1.0)]);
    // Without fill in row 1, the pivot of row 2 vanishes.
    let fill = [(1, 1, 1.0), (1, 3, 1.0), (2, 1, 1.0), (2, 2, 1.0), (3, 1, 1.0), (3, 2, 1.0), (3, 3, 1.0)];
    let fill = write(dir.path(), "fill.mtx", (3, 3), &fill);
    let hollow = write(dir.path(), "hollow.mtx", (2, 2), &[(1, 2, 1.0), (2, 1, 3.0)]);
    let tall = write(dir.path(), "tall.mtx", (2, 1), &[(1, 1, 1.0), (2, 1, 1.0)]);
    let broken = dir.path().join("broken.mtx");
    std::fs::write(&broken, "%%MatrixMarket matrix coordinate real general\n1 1 1\n").unwrap();
    let all: [&Path; 6] = [&spd, &indefinite, &fill, &hollow, &tall, &broken];
    let lines = record("--threads 2", &dir.path().join("record.jsonl"), &all);

    let find = |case: &str, precond: &str| {
        lines.iter().find(|l| l["case"] == case && l["precond"] == precond && l["noun"] != "direct").unwrap()
    };
    let converged = "converged";
    assert_eq!(
        ways(&lines, "spd"),
        [
            ["cg", "jacobi", converged],
            ["cg", "ic0", converged],
            ["bicgstab", "jacobi", converged],
            ["direct", "llt", converged]
        ]
    );
    assert!(find("spd", "ic0")["shift"].as_f64().unwrap() > 0.0, "{}", find("spd", "ic0"));
    let found = ways(&lines, "indefinite");
    assert_eq!(found[1][..2], ["cg", "ic0"]);
    assert!(
        found.contains(&["bicgstab", "ilu0", converged]) && found.ends_with(&[["direct", "lu", converged]]),
        "{found:?}"
    );
    let found = ways(&lines, "fill");
    assert_eq!(found[1..3], [["bicgstab", "ilu0", "zero_pivot"], ["bicgstab", "ilu1", converged]]);
    assert_eq!(found[3..], [["gmres", "ilu1", converged], ["direct", "lu", converged]]);
    assert_eq!(find("fill", "ilu0")["failed_row"], 2);
    // Fill cannot replace the diagonal entry, so one attempt is enough.
    let found = ways(&lines, "hollow");
    assert_eq!((found[0][..2] == ["bicgstab", "none"], found.len()), (true, 3), "{found:?}");
    assert_eq!(
        (found[1], &find("hollow", "ilu0")["failed_row"]),
        (["bicgstab", "ilu0", "zero_pivot"], &Value::from(0))
    );
    assert_eq!(ways(&lines, "tall"), [["direct", "qr", converged]]);
    assert!(ways(&lines, "broken") == [["read", "none", "error"]]);

    let tallies: Vec<_> = lines.iter().filter(|l| l["op"] == "solve-tally").collect();
    let count = |class: &str, of: &str| {
        let tally = tallies.iter().find(|t| t["class"] == class).unwrap();
        tally[of].as_u64().unwrap()
    };
    for (class, matrices, incomplete, direct) in [("spd", 1, 1, 1), ("symmetric", 1, 1, 1), ("nonsymmetric", 2, 1, 2)] {
        let found = (count(class, "matrices"), count(class, "incomplete"), count(class, "direct"));
        assert_eq!(found, (matrices, incomplete, direct), "{class}");
    }
    assert_eq!((count("spd", "jacobi"), count("spd", "shifted")), (1, 1));
    let nonsymmetric = tallies.iter().find(|t| t["class"] == "nonsymmetric").unwrap();
    assert_eq!(nonsymmetric["by"]["bicgstab ilu1"], serde_json::json!({"converged": 1, "of": 1}));
    assert!(nonsymmetric["failed"]["hollow"].as_str().unwrap().contains("row 0"), "{nonsymmetric}");
}

#[test]
fn algebraic_multigrid_is_tried_on_what_is_large_and_positive_definite() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("record.jsonl");
    let path = |name: &str, n: usize, above: f64| {
        let row = |i: usize| [(i, i, 2.5), (i, i + 1, above), (i + 1, i, -1.0)];
        let entries = (1..n).flat_map(row).chain([(n, n, 2.5)]);
        write(dir.path(), name, (n, n), &entries.collect::<Vec<_>>())
    };
    let all = [path("large.mtx", 2000, -1.0), path("small.mtx", 1999, -1.0), path("nonsymmetric.mtx", 2000, -0.5)];
    let lines = record("--threads 2", &json, &all.iter().map(|path| &**path).collect::<Vec<_>>());
    let tried = |case: &str| ways(&lines, case).into_iter().find(|way| way[1] == "amg");
    assert_eq!(tried("large"), Some(["cg", "amg", "converged"]));
    assert_eq!((tried("small"), tried("nonsymmetric")), (None, None));
}

#[test]
fn limits_interrupt_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    // Eliminating row 1 fills everything.
    let mut arrow: Vec<_> = (1..=12).map(|i| (i, i, 2.0)).collect();
    arrow.extend((2..=12).flat_map(|i| [(1, i, 1.0), (i, 1, 1.5)]));
    let arrow = write(dir.path(), "arrow.mtx", (12, 12), &arrow);
    let words = "--seconds 0 --fill 1 --factor-gib 0 --peers none";
    let lines = record(words, &dir.path().join("record.jsonl"), &[&arrow]);
    let found = ways(&lines, "arrow");
    for noun in ["bicgstab", "gmres"] {
        assert!(found.contains(&[noun, "ilu0", "interrupted"]), "{found:?}");
    }
    let text = |noun: &str, precond: &str| {
        let line = lines.iter().find(|l| l["noun"] == noun && (noun == "direct" || l["precond"] == precond)).unwrap();
        line["error"].as_str().unwrap().to_owned()
    };
    assert!(text("bicgstab", "ilu0").contains("limit of 0 s"));
    assert!(text("bicgstab", "ilu1").contains("more than 34 entries by row"), "{}", text("bicgstab", "ilu1"));
    assert!(text("direct", "").contains("limit of 0"), "{}", text("direct", ""));
}

#[test]
fn a_grid_has_a_contest_with_faer() {
    let dir = tempfile::tempdir().unwrap();
    let lines = record("d3n27:6 convdiff3d:4,peclet=1", &dir.path().join("record.jsonl"), &[]);
    let solves: Vec<_> = lines.iter().filter(|l| l["op"] == "cg" && l["whole_ms"].is_number()).collect();
    assert!(solves.iter().any(|l| l["contender"] == "faer" && l["iterations"].is_number()), "{solves:?}");
    let own: Vec<_> = solves.iter().filter(|l| l["contender"] == "spandrel").collect();
    assert!(!own.is_empty() && own.iter().all(|l| l["ratio_to_best_peer"].is_number() && l["of_triad"].is_number()));
    assert!(!ways(&lines, "convdiff3d:4,peclet=1").is_empty());
    let output = bench("solve d3n27:4 --peers magic", &[]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("faer"));
}

const PLAN: Plan = Plan { rtol: 1e-8, faer: true, effort: Effort::new(1, 0.01) };

#[test]
fn a_grid_is_solved_by_all_in_as_many_iterations() {
    let case = Case::parse("d3n27:9");
    let csr = grid::load(&case).unwrap().expect("a grid");
    let lines = grid::run(&Cpu::new(), &case, &csr, &PLAN).unwrap();
    let solves: Vec<_> = lines.iter().filter(|l| l.more.whole_ms.is_some()).collect();
    let names: Vec<_> = solves.iter().map(|l| (l.noun.as_str(), l.contender)).collect();
    assert!(names[..2] == [("csr", "spandrel"), ("dia", "spandrel")] && names[2].1 == "faer" && names.len() == 3);
    let iterations: Vec<_> = solves.iter().map(|l| l.more.iterations.unwrap()).collect();
    assert!(iterations.iter().all(|&i| i.abs_diff(iterations[0]) <= 1), "{iterations:?}");
    for line in &solves {
        assert!(line.more.residual.unwrap() <= 2e-8 && line.of_triad.is_some(), "{line:?}");
        assert_eq!(line.ratio_to_best_peer.is_some(), line.contender == "spandrel");
    }
    assert!(solves[0].more.kernel.as_deref() == Some("ic0 by sweep"));
    // A, L twice by values only, and 17 vectors.
    let l = 2 * 8 * ((csr.nnz() + csr.nrows()) / 2) as u64;
    assert_eq!(solves[0].bytes, csr.storage() + l + 17 * 8 * 729);
    assert_eq!(lines.iter().filter(|l| l.op == "cg-part").count(), 3);
}

#[test]
fn what_is_no_grid_or_not_for_cg_has_no_contest() {
    for word in ["randspd:n=200,density=0.05,cond=10", "convdiff3d:6,peclet=10", "a/file.mtx"] {
        assert!(grid::load(&Case::parse(word)).unwrap().is_none(), "{word}");
    }
    assert!(grid::load(&Case::parse("d3n27:9x")).is_err());
}

#[test]
fn without_faer_there_is_no_ratio() {
    let case = Case::parse("poisson2d:12");
    let csr = grid::load(&case).unwrap().expect("a grid");
    let lines = grid::run(&Cpu::new(), &case, &csr, &Plan { faer: false, ..PLAN }).unwrap();
    assert!(lines.iter().all(|l| l.contender != "faer" && l.ratio_to_best_peer.is_none()));
}
