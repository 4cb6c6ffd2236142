//! `docs/limits.md`: the project's own targets that are missed today, with the reason.
//!
//! Targets and reasons are those of `docs/targets.toml`. The measured values come from the records, so a target that is
//! reached disappears from the page by itself.

use std::path::Path;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::find::{Found, Ours, geometric};
use super::number::digits;
use super::page::{Page, anchor};
use super::record::Records;

/// `docs/targets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Targets {
    target: Vec<Target>,
}

/// One target.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    what: String,
    asked: f64,
    #[serde(default)]
    unit: String,
    /// Whether less is better.
    #[serde(default)]
    less: bool,
    ours: Ours,
    /// The reason why it is missed: one paragraph, with the measurements that show it.
    bound: String,
    /// Decisions and records with the details and what was tried.
    see: Vec<String>,
}

/// The measurements of a target.
struct Measured {
    said: String,
    reached: usize,
    cases: usize,
}

impl Target {
    fn reaches(&self, value: f64) -> bool {
        // Compare the printed values, which have three digits.
        let value: f64 = digits(value).parse().unwrap_or(value);
        if self.less { value <= self.asked } else { value >= self.asked }
    }

    fn with_unit(&self, value: &str) -> String {
        format!("{value} {}", self.unit).trim_end().to_owned()
    }

    fn measured(&self, records: &Records) -> Option<Measured> {
        let (one, of) = self.ours.find(records)?;
        let all = if self.ours.of.is_empty() { self.ours.all(records) } else { vec![one] };
        let by = |a: &&Found<'_>, b: &&Found<'_>| a.value.total_cmp(&b.value);
        let (least, most) = (all.iter().min_by(by)?, all.iter().max_by(by)?);
        let case = |found: &Found<'_>| format!("`{}`", found.line.text("case"));
        let said = match (all.len(), of.len()) {
            (1, 0) => format!("{} ({})", self.with_unit(&digits(one.value)), case(&one)),
            (1, cases) => {
                let low = of.iter().min_by(by)?;
                let how = if self.ours.of == "geometric" { "geometric mean of" } else { "mean of" };
                format!(
                    "{}, {how} {cases}; least {} ({})",
                    self.with_unit(&digits(one.value)),
                    digits(low.value),
                    case(low)
                )
            }
            _ => {
                let values: Vec<f64> = all.iter().map(|found| found.value).collect();
                let mean = if values.len() > 2 {
                    format!("; geometric mean {}", digits(geometric(&values)))
                } else {
                    String::new()
                };
                format!(
                    "{} ({}) to {} ({}){mean}",
                    digits(least.value),
                    case(least),
                    self.with_unit(&digits(most.value)),
                    case(most)
                )
            }
        };
        Some(Measured { said, reached: all.iter().filter(|found| self.reaches(found.value)).count(), cases: all.len() })
    }
}

impl Targets {
    /// # Errors
    /// The place of the error, or a reference to a missing file.
    pub(crate) fn parse(text: &str, root: &Path) -> Result<Self> {
        let targets: Self = toml::from_str(text)?;
        for target in &targets.target {
            ensure!(!target.see.is_empty(), "{}: no record or decision", target.what);
            for path in &target.see {
                ensure!(root.join(path).is_file(), "{}: {path} is not there", target.what);
            }
        }
        Ok(targets)
    }

    /// The page of the targets that are missed in some case.
    pub(crate) fn page(&self, records: &Records) -> Page {
        let mut rows = String::new();
        let mut below = String::new();
        let (mut missed, mut reached) = (0, 0);
        for target in &self.target {
            let asked = format!(
                "at {} {}",
                if target.less { "most" } else { "least" },
                target.with_unit(&digits(target.asked))
            );
            let measured = target.measured(records);
            let said = match &measured {
                None => format!("missing: no such line in {}", target.ours.record.join(", ")),
                Some(m) if m.reached == m.cases => {
                    reached += 1;
                    continue;
                }
                Some(m) if m.reached == 0 => m.said.clone(),
                Some(m) => format!("{}; reached in {} of {} cases", m.said, m.reached, m.cases),
            };
            missed += 1;
            rows += &format!("| [{}](#{}) | {asked} | {said} |\n", target.what, anchor(&target.what));
            below += &format!("\n## {}\n\n{} See {}.\n", target.what, target.bound, target.see.join(", "));
        }
        let out = format!(
            "# What is missed today\n\n\
             The project sets itself targets before it measures. It reaches {reached} of {}; this page lists the {missed} that it misses, \
             and why. Unless a row says otherwise, figures are ratios in f64 on one H200 against the fastest format and algorithm of cuSPARSE 12.6 \
             for each case, including its sliced ELL. A ratio above 1 means that Spandrel is faster. [Results](results.md) has all measurements.\n\n\
             | figure | target | measured |\n|---|---:|---|\n{rows}{below}",
            self.target.len()
        );
        Page::new("docs/limits.md", &out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(target: &str, lines: &str) -> String {
        let text = format!("[[target]]\nwhat = \"w\"\nbound = \"bytes\"\nsee = [\"docs/targets.toml\"]\n{target}\n");
        let mut records = Records::default();
        records
            .add("record/r.jsonl", &format!("{{\"header\":true,\"machine\":\"m\",\"commit\":\"c\"}}\n{lines}"))
            .expect("lines");
        let root = crate::root().expect("the workspace");
        Targets::parse(&text, &root).expect("a target").page(&records).text
    }

    const LINES: &str = "{\"op\":\"o\",\"case\":\"a\",\"contender\":\"spandrel\",\"ms\":2.0,\"b\":1.0}\n\
                         {\"op\":\"o\",\"case\":\"a\",\"contender\":\"peer\",\"ms\":2.2}\n\
                         {\"op\":\"o\",\"case\":\"b:1\",\"contender\":\"spandrel\",\"ms\":1.0,\"b\":0.5}\n\
                         {\"op\":\"o\",\"case\":\"b:1\",\"contender\":\"peer\",\"ms\":2.0}";

    #[test]
    fn a_target_says_what_was_measured_and_how_many_reach_it() {
        let over = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"spandrel\" }, over = { contender = \"peer\" }";
        let said = page(&format!("asked = 1.5\n{over} }}"), LINES);
        assert!(said.contains("| [w](#w) | at least 1.50 | 1.10 (`a`) to 2.00 (`b:1`); reached in 1 of 2 cases |"));
        assert!(said.contains("## w\n\nbytes See [docs/targets.toml](targets.toml)."), "{said}");
        let said = page(&format!("asked = 1.5\n{over}, of = \"geometric\" }}"), LINES);
        assert!(said.contains("1.48, geometric mean of 2; least 1.10 (`a`) |"), "{said}");
        let said = page(&format!("asked = 1.1\n{over}, files = true }}"), LINES);
        assert!(said.contains("It reaches 1 of 1") && !said.contains("## w"), "{said}");
        let per = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"spandrel\" }, take = \"b\", per = \"ms\", of = \"most\" }";
        let said = page(&format!("asked = 0.4\nless = true\n{per}"), LINES);
        assert!(said.contains("at most 0.400 | 0.500 (`b:1`) |"), "{said}");
    }

    #[test]
    fn peers_with_a_program_of_their_own_are_compared_at_one_commit() {
        let ours = "{\"case\":\"a\",\"contender\":\"spandrel\",\"ms\":2.0}";
        let peer = "{\"case\":\"a\",\"contender\":\"peer\",\"ms\":3.0}";
        let said = |commit: &str, more: &str| {
            let over = "line = { contender = \"spandrel\" }, over = { contender = \"peer\" }";
            let lines = format!("{ours}\n{{\"header\":true,\"machine\":\"m\",\"commit\":\"{commit}\"}}\n{peer}");
            page(&format!("asked = 2\nours = {{ record = [\"record/r.jsonl\"], {over}{more} }}"), &lines)
        };
        assert!(said("c", ", apart = true").contains("| at least 2.00 | 1.50 (`a`) |"));
        assert!(said("c", "").contains("missing: no such line"));
        assert!(said("d", ", apart = true").contains("missing: no such line"));
    }

    #[test]
    fn a_target_without_a_record_is_missed() {
        let said = page("asked = 2\nours = { record = [\"record/none.jsonl\"], line = { op = \"o\" } }", LINES);
        assert!(said.contains("| missing: no such line in [record/none.jsonl]"), "{said}");
        let text = "[[target]]\nwhat = \"w\"\nbound = \"b\"\nsee = [\"no/such.txt\"]\nasked = 1\nours = { record = [], line = {} }";
        let error = Targets::parse(text, Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("no/such.txt is not there"), "{error:#}");
    }
}
