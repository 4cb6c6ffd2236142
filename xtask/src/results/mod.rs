//! `cargo xtask results`: the pages of results, papers and limits, and README's picture, from `record/`.
//!
//! No figure is typed in. Ours come from the records, those of papers from `docs/published.toml`, and the project's own
//! targets from `docs/targets.toml`. `--check` fails if a page is not what the records say; it is a step of CI.

mod brief;
mod chart;
mod conversions;
mod find;
mod headline;
mod legend;
mod multigrid;
mod number;
mod page;
mod published;
mod record;
mod robust;
mod scaling;
mod solves;
mod targets;
mod triangles;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use page::Page;
use published::Published;
use record::Records;
use targets::Targets;

/// The papers' own figures.
const PUBLISHED: &str = "docs/published.toml";
/// The project's own targets.
const TARGETS: &str = "docs/targets.toml";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Compare the pages with the records, and write nothing
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for Page { path, text } in pages(root)? {
        if !options.check {
            fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))?;
            println!("{path} written");
            continue;
        }
        let found = fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))?;
        match differs(&found, &text) {
            None => println!("{path} says what the records say"),
            Some(line) => {
                eprintln!("{path}:{line} is not what the records say: run `cargo xtask results`");
                code = ExitCode::FAILURE;
            }
        }
    }
    let records = Records::read(&root.join("record"))?;
    for (path, quote) in brief::quotes(&records, &read(root, brief::VERIFY)?)? {
        if !read(root, path)?.contains(&quote) {
            eprintln!("{path} does not say `{quote}`, as the records do: change it by hand");
            code = ExitCode::FAILURE;
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

/// A page of tables: a title, a sentence, and the tables.
fn tables(path: &'static str, title: &str, lead: &str, tables: &str) -> Page {
    let note = "A ratio is the peer's time over ours: above 1, Spandrel is faster. Times are medians in ms. \
                [Words and machines](words.md) explains the names in the tables.";
    Page::new(path, &format!("# {title}\n\n{lead} {note}\n{tables}"))
}

/// All pages and the picture.
fn pages(root: &Path) -> Result<Vec<Page>> {
    let published =
        Published::parse(&read(root, PUBLISHED)?).with_context(|| format!("cannot understand {PUBLISHED}"))?;
    let targets =
        Targets::parse(&read(root, TARGETS)?, root).with_context(|| format!("cannot understand {TARGETS}"))?;
    let records = Records::read(&root.join("record"))?;
    Ok(vec![
        brief::page(&records, &read(root, brief::VERIFY)?)?,
        tables(
            headline::PRODUCTS,
            "Products and formats",
            "Matrix-vector products, and the formats that they run in.",
            &(headline::section(headline::PRODUCTS, &records) + &conversions::section(&records)),
        ),
        tables(
            headline::ITERATIONS,
            "Iterations of CG",
            "One iteration of CG, without and with a preconditioner.",
            &headline::section(headline::ITERATIONS, &records),
        ),
        tables(
            triangles::PAGE,
            "Triangular solves",
            "Sparse triangular solves with one right-hand side (SpTRSV).",
            &triangles::section(&records),
        ),
        tables(
            solves::FACTORS_PAGE,
            "Incomplete factorisations",
            "ILU(0) and IC(0), computed where they are used.",
            &solves::factors(&records),
        ),
        tables(
            solves::PAGE,
            "Whole solves",
            "From a matrix and a right-hand side to x.",
            &(solves::section(&records)
                + &multigrid::section(&records, &published.multigrid)
                + &robust::section(&records, &published.answered)),
        ),
        Page::new(legend::PAGE, &(legend::section() + &records.legend())),
        published.page(&records),
        targets.page(&records),
        Page { path: chart::PICTURE, text: chart::picture(&records) },
        Page { path: scaling::PICTURE, text: scaling::picture(&records) },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_sources_are_understood() {
        let root = crate::root().expect("the workspace");
        let pages = pages(&root).expect("pages");
        let page = |path: &str| &pages.iter().find(|page| page.path == path).expect("a page").text;
        for heading in ["Whole solves on a GPU", "SpTRSV on a CPU", "CG on a GPU", "SpMV on a CPU"] {
            assert!(page(brief::RESULTS).contains(heading), "{heading}");
        }
        for source in ["bDIA", "HMEC", "SpTRSV", "COO", "report"] {
            assert!(page("docs/papers.md").contains(source), "{source}");
        }
        assert!(page(solves::PAGE).contains("HPCG") && page(solves::PAGE).contains("russell_sparse"));
        assert!(page("docs/limits.md").contains("| figure | target | measured |"));
        assert!(page(chart::PICTURE).contains("256³"));
    }

    #[test]
    fn no_other_page_lies_among_the_generated_ones() {
        let root = crate::root().expect("the workspace");
        let pages = pages(&root).expect("pages");
        for entry in fs::read_dir(root.join("docs/results")).expect("a folder") {
            let name = entry.expect("a file").file_name().to_string_lossy().into_owned();
            assert!(pages.iter().any(|page| page.path == format!("docs/results/{name}")), "{name}");
        }
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
