//! `cargo xtask results`: `docs/results.md` and `docs/limits.md` from `record/`. No figure is typed in: ours come from the records, those of the
//! sources from `docs/published.toml`, with their places, those that the project set itself from `docs/targets.toml`.
//!
//! `--check` fails where a page is not what the records say: a step of CI.

mod brief;
mod conversions;
mod find;
mod headline;
mod legend;
mod number;
mod published;
mod record;
mod solves;
mod targets;
mod triangles;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use published::Published;
use record::Records;
use targets::Targets;

/// What is written.
const RESULTS: &str = "docs/results.md";
/// The sources' own figures.
const PUBLISHED: &str = "docs/published.toml";
/// Where figures are bounded, and what was asked.
const LIMITS: &str = "docs/limits.md";
const TARGETS: &str = "docs/targets.toml";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Compare docs/results.md with what the records say, and write nothing
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for (path, made) in pages(root)? {
        if !options.check {
            fs::write(root.join(path), made).with_context(|| format!("cannot write {path}"))?;
            println!("{path} written");
            continue;
        }
        let found = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        match differs(&found, &made) {
            None => println!("{path} says what the records say"),
            Some(line) => {
                eprintln!("{path}:{line} is not what the records say: run `cargo xtask results`");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// The first line, counted from 1, in which two texts differ.
fn differs(found: &str, made: &str) -> Option<usize> {
    let differs = found.lines().zip(made.lines()).position(|(a, b)| a != b);
    let shorter = found.lines().count().min(made.lines().count());
    differs.or((found.lines().count() != made.lines().count()).then_some(shorter)).map(|line| line + 1)
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

/// The pages, each with its path.
fn pages(root: &Path) -> Result<[(&'static str, String); 2]> {
    let published =
        Published::parse(&read(root, PUBLISHED)?).with_context(|| format!("cannot understand {PUBLISHED}"))?;
    let targets =
        Targets::parse(&read(root, TARGETS)?, root).with_context(|| format!("cannot understand {TARGETS}"))?;
    let records = Records::read(&root.join("record"))?;
    let mut out = String::from(
        "# Results\n\n\
         Written by `cargo xtask results` from `record/` and `docs/published.toml`; changes by hand do not last.\n\n\
         A ratio above 1 is in our favour throughout. Times are medians; every answer was checked before it was timed. A figure that a\n\
         source names and no record has is called missing. What the words in the tables mean, and what a machine is called here, is told at the\n\
         end. [Where a figure is bounded](limits.md) has the figures that the project set itself and missed, with what bounds them.\n",
    );
    out += &brief::section(&published, &records, &read(root, brief::VERIFY)?)?;
    out += &published.section(&records);
    out += "\n## Against the peers of today\n";
    out += &headline::section(&records);
    out += &solves::converging(&records);
    out += &triangles::section(&records);
    out += &conversions::section(&records);
    out += &solves::section(&records);
    out += &legend::section();
    out += &records.legend();
    Ok([(RESULTS, out), (LIMITS, targets.page(&records))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_sources_are_understood() {
        let root = crate::root().expect("the workspace");
        let [(_, results), (_, limits)] = pages(&root).expect("pages");
        for source in ["bDIA", "HMEC", "SpTRSV", "COO", "report", "Whole solves on a GPU", "HPCG", "SpTRSV on a CPU"] {
            assert!(results.contains(source), "{source}");
        }
        assert!(limits.contains("| figure | asked | measured | reached |"));
    }

    #[test]
    fn every_noun_and_kernel_of_the_records_is_explained() {
        let root = crate::root().expect("the workspace");
        let records = Records::read(&root.join("record")).expect("records");
        for file in ["spmv", "sptrsv", "cg"].into_iter().flat_map(|op| [format!("h200-{op}"), format!("cpu-{op}")]) {
            for line in records.of(&format!("record/{file}.jsonl")) {
                let timed = line.number("ms").is_some() && line.text("contender") != "machine";
                let kernel = line.text("kernel").split(',').next().unwrap_or_default();
                for word in [line.text("noun"), kernel].into_iter().filter(|word| timed && !word.is_empty()) {
                    assert!(legend::explains(word.trim_end_matches(" forced")), "{file}: {word}");
                }
            }
        }
    }

    #[test]
    fn each_source_was_run_to_its_end_on_a_cpu() {
        let root = crate::root().expect("the workspace");
        let records = Records::read(&root.join("record")).expect("records");
        for name in ["bdia", "report", "hmec", "sptrsv", "coo"] {
            let file = format!("record/cpu-paper-{name}.jsonl");
            assert!(records.of(&file).iter().any(|line| line.number("ms").is_some()), "{file}");
            assert!(!records.of(&file).iter().any(|line| line.text("missing").contains("not begun")), "{file}");
        }
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(differs("a\nb\n", "a\nb\n"), None);
        assert_eq!(differs("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!((differs("a\n", "a\nb\n"), differs("a\nb\n", "a\n")), (Some(2), Some(2)));
    }
}
