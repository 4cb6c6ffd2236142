//! `spandrel-bench paper NAME --quick` on tiny matrices: every case that a figure names is in the record, measured or
//! named as missing; the figures are drawn, and the tables have their shape.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The output of an experiment.
struct Written {
    objects: Vec<Value>,
    markdown: String,
    folder: tempfile::TempDir,
}

impl Written {
    fn svg(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_else(|why| panic!("{name}: {why}"))
    }

    /// The line of a contender on a case in a figure.
    fn line(&self, figure: &str, op: &str, case: &str, noun: &str, contender: &str) -> &Value {
        let is = |o: &&Value| {
            [("figure", figure), ("op", op), ("case", case), ("noun", noun), ("contender", contender)]
                .iter()
                .all(|(field, word)| o[field] == *word)
        };
        let found = self.objects.iter().filter(is).find(|o| o["ms"].is_number());
        found.unwrap_or_else(|| panic!("no {op} of {noun} by {contender} on {case} in {figure}"))
    }
}

fn run(words: &str, more: &[&Path]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let output = Command::new(env!("CARGO_BIN_EXE_spandrel-bench"))
        .args(["paper"])
        .args(words.split(' '))
        .args(more)
        .args(["--quick", "--rounds", "1", "--round-ms", "0.01", "--backend", "cpu"])
        .arg("--json")
        .arg(at("a.jsonl"))
        .arg("--markdown")
        .arg(at("a.md"))
        .arg("--plot")
        .arg(folder.path())
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let record = std::fs::read_to_string(at("a.jsonl")).unwrap();
    let mut objects: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let header = objects.remove(0);
    assert!(header["header"] == true && header["command"].as_str().is_some_and(|c| c.contains("--quick")));
    for line in objects.iter().filter(|o| o["ms"].is_number()) {
        assert!(line["ms"].as_f64().unwrap() > 0.0 && line["figure"].is_string(), "{line}");
    }
    Written { objects, markdown: std::fs::read_to_string(at("a.md")).unwrap(), folder }
}

#[test]
fn what_is_typed_wrong_ends_the_program_before_anything_runs() {
    for (words, why) in [
        ("paper hmec --quick --matrices nowhere", "--matrices nowhere: there is no such folder"),
        ("spmv nope.mtx", "nope.mtx: there is no such file, and no such generator"),
        ("spmv d3n9:8", "there is no generator \"d3n9\""),
        ("spmv d3n7:8 --formats csr,jds", "invalid value 'jds'"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_spandrel-bench")).args(words.split(' ')).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why) && output.stdout.is_empty(), "{words}: {said}");
    }
}

/// Headings, and the first rows of tables.
fn shape(markdown: &str) -> String {
    let lines: Vec<&str> = markdown.lines().collect();
    let is_head =
        |k: &usize| lines[*k].starts_with('#') || lines.get(k + 1).is_some_and(|next| next.starts_with("|---"));
    (0..lines.len()).filter(is_head).map(|k| lines[k].to_owned() + "\n").collect()
}

#[test]
fn bands_elements_and_solvers_of_bdia() {
    let written = run("bdia --most-rows 300", &[]);
    for (figure, bands) in [("8", &[3, 11, 33, 65, 101][..]), ("8 large", &[3, 33, 101])] {
        for d in bands {
            for noun in ["bdia", "dia", "ell", "csr", "coo", "hyb"] {
                written.line(figure, "spmv", &format!("banded:n=300,d={d}"), noun, "spandrel");
            }
            written.line(figure, "spmv", &format!("banded:n=300,d={d}"), "csr", "faer");
        }
    }
    for figure in ["9", "9 large"] {
        for (d, op) in [3, 33, 101].into_iter().flat_map(|d| ["cg", "bicgstab"].map(|op| (d, op))) {
            let case = format!("banded:n=300,d={d}");
            for noun in ["bdia", "dia", "csr"] {
                let line = written.line(figure, op, &case, noun, "spandrel");
                assert!(line["iterations"].as_u64() > Some(0) && line["whole_ms"].is_number(), "{line}");
            }
            written.line(figure, op, &case, "csr", "sprs");
        }
    }
    for (p, diagonals) in [(0, 3), (1, 7), (2, 11), (3, 15)] {
        written.line("GFEM", "spmv", &format!("gfem:n=300,p={p}"), "bdia", "spandrel");
        let is =
            |o: &&Value| o["op"] == "gfem" && o["case"] == *format!("gfem:n=31,p={p}") && o["max_error"].is_number();
        assert_eq!(written.objects.iter().find(is).unwrap()["diagonals"], diagonals);
    }
    for types in ["f32", "f64"] {
        assert!(written.objects.iter().any(|o| o["figure"] == "8" && o["type"] == types));
    }
    for (name, words) in [
        ("bdia-figure-8.svg", ["GTX 285, published", "GFlop/s"]),
        ("bdia-figure-9.svg", ["BiCGStab, n = 300: speed-up", "published: about 1.5"]),
        ("bdia-gfem.svg", ["max |u_h - u|", "31 unknowns"]),
    ] {
        let svg = written.svg(name);
        assert!(words.iter().all(|word| svg.contains(word)), "{name}");
    }
    insta::assert_snapshot!("bdia", shape(&written.markdown));
}

#[test]
fn conditions_sizes_and_reading_of_the_report() {
    let written = run("report --most-rows 200", &[]);
    for condition in ["10", "100", "1000", "10000"] {
        let case = format!("randspd:n=200,density=0.02,cond={condition}");
        let line = written.line("condition", "cg", &case, "csr", "spandrel");
        assert!(line["forward_error"].is_number() && line["residual"].is_number(), "{line}");
    }
    let case = "randspd:n=200,density=0.02,cond=1000";
    for reader in ["spandrel", "sprs"] {
        written.line("reading", "read", case, "matrix_market", reader);
    }
    for noun in ["csr", "dense"] {
        written.line("dense", "cg", case, noun, "spandrel");
    }
    assert!(
        written.objects.iter().any(|o| o["missing"].as_str().is_some_and(|why| why.contains("do not exist on a CPU")))
    );
    assert!(written.svg("report-condition.svg").contains("sqrt(cond)"));
    assert!(written.svg("report-reading.svg").contains("reading by sprs"));
    insta::assert_snapshot!("report", shape(&written.markdown));
}

#[test]
fn every_matrix_of_hmec_is_measured_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = String::from("%%MatrixMarket matrix coordinate real symmetric\n685 685 1369\n");
    for i in 1..=685 {
        file += &format!("{i} {i} 2.5\n");
        if i > 1 {
            file += &format!("{i} {} -1\n", i - 1);
        }
    }
    std::fs::write(folder.path().join("685_bus.mtx"), file).unwrap();
    let written = run("hmec --most-rows 1700 --matrices", &[folder.path()]);
    for noun in ["coo", "csr", "ell", "hyb", "hec", "hmec"] {
        for case in ["685_bus", "poisson2d:34", "poisson2d:40"] {
            written.line("table 2", "spmv", case, noun, "spandrel");
            if noun != "coo" {
                written.line("6", "bicgstab", case, noun, "spandrel");
                written.line("7", "cg", case, noun, "spandrel");
            }
        }
    }
    for named in &spandrel_bench::paper::suite::SUITE {
        let is = |o: &Value| {
            ["case", "stands_in_for"].iter().any(|field| o[field] == named.name || o[field] == named.short())
        };
        assert!(written.objects.iter().any(is), "{}", named.name);
    }
    let stand_in = written.line("table 2", "spmv", "poisson2d:34", "hmec", "spandrel");
    assert_eq!(stand_in["stands_in_for"], "HB/1138_bus");
    assert!(written.markdown.contains("- HB/1138_bus: not there") && written.markdown.contains("(0.028)"));
    for name in ["hmec-table-2.svg", "hmec-figure-6.svg", "hmec-figure-7.svg"] {
        assert!(written.svg(name).contains("HMEC(2)"), "{name}");
    }
    insta::assert_snapshot!("hmec", shape(&written.markdown));
}

#[test]
fn what_is_not_begun_in_time_is_named() {
    let written = run("coo --most-rows 500 --minutes 0", &[]);
    assert!(!written.objects.iter().any(|o| o["ms"].is_number()));
    let left = |o: &&Value| o["missing"] == "not begun within 0 minutes";
    for case in ["random:n=500,nnz_per_row=10", "powerlaw:n=500,alpha=3"] {
        assert!(written.objects.iter().filter(left).any(|o| o["case"] == case && o["figure"].is_string()), "{case}");
    }
    // The claims are printed even without results.
    assert!(written.objects.iter().any(|o| o["here"].is_null() && o["what"].is_string()));
}

#[test]
fn one_thread_and_power_laws_of_coo() {
    let written = run("coo --most-rows 500", &[]);
    let case = "random:n=500,nnz_per_row=10";
    assert!(written.objects.iter().any(|o| o["case"] == case && o["kernel"] == "serial"));
    written.line("speed-up", "spmv", case, "coo", "spandrel");
    for alpha in ["1.8", "2.2", "3"] {
        for noun in ["coo", "csr", "csc", "ell", "sell", "hyb", "hec", "hmec"] {
            let case = format!("powerlaw:n=500,alpha={alpha}");
            let is = |o: &Value| o["case"] == *case && o["noun"] == noun && o["contender"] == "spandrel";
            let there = |o: &&Value| is(o) && (o["ms"].is_number() || o["error"].is_string());
            assert!(written.objects.iter().any(|o| there(&o)), "{noun} on {case}");
        }
    }
    assert!(written.svg("coo-speed-up.svg").contains("thousands of times"));
    assert!(written.svg("coo-power-law.svg").contains("HMEC"));
    insta::assert_snapshot!("coo", shape(&written.markdown));
}
