//! `spandrel-bench sptrsv` and `paper sptrsv` on tiny triangles: every contender's answer is right (a wrong one is an
//! error in the record), and every field is there.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use spandrel_sptrsv::for_each_plan;

fn bench(words: &str, more: &[&Path]) -> Output {
    let program = env!("CARGO_BIN_EXE_spandrel-bench");
    let output =
        Command::new(program).args(words.split(' ')).args(more).args(["--rounds", "2", "--round-ms", "0.01"]).output();
    output.expect("the program runs")
}

/// The record's header and its other objects.
fn record(path: &Path) -> (Value, Vec<Value>) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
    (objects.next().unwrap(), objects.collect())
}

fn plans() -> Vec<&'static str> {
    macro_rules! stems {
        ([] $(($stem:ident, $Type:ident)),* $(,)?) => { vec![$(stringify!($stem)),*] };
    }
    for_each_plan!(stems)
}

#[test]
fn every_plan_and_peer_has_a_line_with_all_fields() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("record.jsonl");
    let words = "sptrsv d3n27:5 d3n7:6 --types f64,f32 --triangle lower,upper --plan-auto --json";
    for factor in ["none", "ilu0"] {
        let output = bench(&format!("{words} {} --factor {factor}", json.display()), &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (header, objects) = record(&json);
        assert_eq!(header["header"], true);
        let errors: Vec<_> = objects.iter().filter(|o| o.get("error").is_some()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let lines: Vec<_> = objects.iter().filter(|o| o["op"] == "sptrsv").collect();
        // Cases, types and triangles. A peer has two storages.
        assert_eq!(lines.len(), 2 * 2 * 2 * (plans().len() + 4));
        for plan in plans() {
            assert_eq!(lines.iter().filter(|l| l["noun"] == plan && l["contender"] == "spandrel").count(), 8, "{plan}");
        }
        for line in lines {
            for field in [
                "ms",
                "ms_min",
                "ms_max",
                "bytes",
                "gbs",
                "effective_gbs",
                "analyze_ms",
                "load_ms",
                "levels",
                "n",
                "nnz",
            ] {
                assert!(line[field].is_number(), "{field}: {line}");
            }
            assert_eq!((&line["factor"], &line["timed_by"]), (&Value::from(factor), &Value::from("clock")));
            let unit = factor == "ilu0" && line["triangle"] == "lower";
            assert_eq!(line["diagonal"], if unit { "unit" } else { "non-unit" });
            let own = line["contender"] == "spandrel";
            assert_eq!((line["ratio_to_best_peer"].is_number(), line.get("ratio_with_analysis").is_some()), (own, own));
        }
        let choices: Vec<_> = objects.iter().filter(|o| o["op"] == "choose").collect();
        assert_eq!(choices.len(), 8);
        assert!(choices.iter().all(|c| plans().iter().any(|plan| c["chosen"] == *plan) && c["slower"].is_number()));
    }
}

#[test]
fn what_cannot_be_solved_is_named_in_the_record_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("record.jsonl");
    let singular = dir.path().join("singular.mtx");
    std::fs::write(&singular, "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 1 1\n").unwrap();
    let words = format!("sptrsv --plans serial --peers none --json {} d3n7:4", json.display());
    let output = bench(&words, &[&singular]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, objects) = record(&json);
    assert!(
        objects.iter().any(|o| o["case"] == "singular" && o["error"].as_str().is_some_and(|why| why.contains("row 1")))
    );
    assert!(objects.iter().any(|o| o["case"] == "d3n7:4" && o["noun"] == "serial" && o["ms"].is_number()));
}

#[test]
fn unknown_words_are_errors_with_the_known_ones() {
    for (words, known) in [
        ("sptrsv d3n7:4 --plans magic", "levelset"),
        ("sptrsv d3n7:4 --peers magic", "sprs"),
        ("sptrsv d3n7:4 --types f16", "f32"),
        ("sptrsv d3n7:4 --triangle left", "upper"),
        ("paper magic", "magic"),
    ] {
        let output = bench(words, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(known), "{words}: {stderr}");
    }
}

#[test]
fn the_papers_figures_are_drawn_and_its_claims_compared() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let words = format!(
        "paper sptrsv --quick --sizes 4,6 --json {} --markdown {} --plot",
        at("a.jsonl").display(),
        at("a.md").display()
    );
    let output = bench(&words, &[dir.path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_, objects) = record(&at("a.jsonl"));
    for stencil in ["d3n7", "d3n13", "d3n27", "d3n33"] {
        for size in [4, 6] {
            let here = |noun: &str| {
                let case = format!("{stencil}:{size}");
                objects.iter().any(|o| {
                    o["case"] == *case && o["noun"] == noun && o["figure"] == "5" && o["effective_gbs"].is_number()
                })
            };
            for plan in plans() {
                assert!(here(plan), "{stencil}:{size} {plan}");
            }
        }
    }
    assert!(objects.iter().any(|o| o["op"] == "paper" && o["figure"] == "5" && o["published"][1] == 225.2));
    let markdown = std::fs::read_to_string(at("a.md")).unwrap();
    assert!(markdown.contains("## Figure 5. D3N33") && markdown.contains("## Claims"), "{markdown}");
    let figure = std::fs::read_to_string(at("sptrsv-figure-5.svg")).unwrap();
    assert!(figure.contains("D3N27") && figure.contains("as published: 40.1 to 225.2"));
}
