//! `cargo xtask results`: `docs/results.md` from `record/`. No figure is typed in: ours come from the records, those of the sources from
//! `docs/published.toml`, with their places.
//!
//! `--check` fails where the file is not what the records say: a step of CI.

mod headline;
mod number;
mod published;
mod record;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use published::Published;
use record::Records;

/// What is written.
const RESULTS: &str = "docs/results.md";
/// The sources' own figures.
const PUBLISHED: &str = "docs/published.toml";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Compare docs/results.md with what the records say, and write nothing
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let made = page(root)?;
    let path = root.join(RESULTS);
    if !options.check {
        fs::write(&path, made).with_context(|| format!("cannot write {RESULTS}"))?;
        println!("{RESULTS} written");
        return Ok(ExitCode::SUCCESS);
    }
    let found = fs::read_to_string(&path).with_context(|| format!("cannot read {RESULTS}"))?;
    let differs = found.lines().zip(made.lines()).position(|(a, b)| a != b);
    let line = differs.or_else(|| (found.lines().count() != made.lines().count()).then_some(found.lines().count()));
    match line {
        None => {
            println!("{RESULTS} says what the records say");
            Ok(ExitCode::SUCCESS)
        }
        Some(line) => {
            eprintln!("{RESULTS}:{} is not what the records say: run `cargo xtask results`", line + 1);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The whole page.
fn page(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join(PUBLISHED)).with_context(|| format!("cannot read {PUBLISHED}"))?;
    let published = Published::parse(&text).with_context(|| format!("cannot understand {PUBLISHED}"))?;
    let records = Records::read(&root.join("record"))?;
    let mut out = String::from(
        "# Results\n\n\
         Written by `cargo xtask results` from `record/` and `docs/published.toml`; changes by hand do not last.\n\n\
         A ratio above 1 is in our favour throughout. Times are medians; every answer was checked before it was timed. A figure that a\n\
         source names and no record has is called missing. What a machine is called here is told at the end.\n",
    );
    out += &published.section(&records);
    out += &headline::section(&records);
    out += &records.legend();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_sources_are_understood() {
        let root = crate::root().expect("the workspace");
        let made = page(&root).expect("a page");
        for source in ["bDIA", "HMEC", "SpTRSV", "COO", "report"] {
            assert!(made.contains(source), "{source}");
        }
    }
}
