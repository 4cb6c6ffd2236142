//! `docs/limits.md`: the figures that the project set itself, what was measured, and what bounds those that are missed. The asked values,
//! the reasons and their places are those of `docs/targets.toml`; what was measured is taken from the records.

use std::path::Path;

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::find::{Found, Ours, geometric};
use super::number::digits;
use super::record::Records;

/// `docs/targets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Targets {
    target: Vec<Target>,
}

/// A figure that was set.
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
    /// What bounds it, measured.
    bound: String,
    /// What was tried.
    #[serde(default)]
    tried: String,
    /// Decisions and records that say so.
    see: Vec<String>,
}

/// What the records say of a target.
struct Measured {
    said: String,
    reached: usize,
    cases: usize,
    from: String,
}

impl Target {
    fn reaches(&self, value: f64) -> bool {
        // As it is printed: to three digits.
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
        let line = least.line;
        Some(Measured {
            said,
            reached: all.iter().filter(|found| self.reaches(found.value)).count(),
            cases: all.len(),
            from: format!("{}, {}, commit {}", line.file, line.machine(), line.header.commit),
        })
    }
}

impl Targets {
    /// # Errors
    /// The place of what is not understood, or a reference to a file that is not there.
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

    /// The whole page.
    pub(crate) fn page(&self, records: &Records) -> String {
        let mut out = String::from(
            "# Where a figure is bounded\n\n\
             Written by `cargo xtask results` from `docs/targets.toml` and `record/`; changes by hand do not last.\n\n\
             The project set itself figures before it measured. These are the ones that it missed when this list was begun, with what was measured last, what\n\
             bounds them and what was tried. f64 on one H200, against the best that cuSPARSE 12.6 has for the case, its sliced ELL included, unless a row\n\
             says otherwise; a ratio above 1 is in our favour. [Results](results.md) has all measurements, and what the words mean.\n\n\
             | figure | asked | measured | reached |\n|---|---:|---|---|\n",
        );
        let mut below = String::new();
        for (k, target) in self.target.iter().enumerate() {
            let asked = format!(
                "at {} {}",
                if target.less { "most" } else { "least" },
                target.with_unit(&digits(target.asked))
            );
            let measured = target.measured(records);
            let (said, reached) = match &measured {
                None => (format!("missing: no such line in {}", target.ours.record.join(", ")), "no".to_owned()),
                Some(m) if m.reached == m.cases => (m.said.clone(), "yes".to_owned()),
                Some(m) if m.reached == 0 => (m.said.clone(), "no".to_owned()),
                Some(m) => (m.said.clone(), format!("{} of {}", m.reached, m.cases)),
            };
            out += &format!("| [{}](#{}) | {asked} | {said} | {reached} |\n", target.what, k + 1);
            below += &format!("\n## {}\n\n{}: asked {asked}; measured {said}", k + 1, target.what);
            below += &measured.map_or(".\n".to_owned(), |m| format!(" ({}).\n", m.from));
            below += &format!("\n{}\n", target.bound);
            if !target.tried.is_empty() {
                below += &format!("\nTried: {}\n", target.tried);
            }
            let see: Vec<String> = target.see.iter().map(|path| format!("[{path}]({})", beside(path))).collect();
            below += &format!("\nSee {}.\n", see.join(", "));
        }
        out + &below
    }
}

/// A path from the root, as the pages in `docs/` say it.
fn beside(path: &str) -> String {
    path.strip_prefix("docs/").map_or_else(|| format!("../{path}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(target: &str, lines: &str) -> String {
        let text = format!("[[target]]\nwhat = \"w\"\nbound = \"bytes\"\nsee = [\"Cargo.toml\"]\n{target}\n");
        let mut records = Records::default();
        records
            .add("record/r.jsonl", &format!("{{\"header\":true,\"machine\":\"m\",\"commit\":\"c\"}}\n{lines}"))
            .expect("lines");
        let root = crate::root().expect("the workspace");
        Targets::parse(&text, &root).expect("a target").page(&records)
    }

    const LINES: &str = "{\"op\":\"o\",\"case\":\"a\",\"contender\":\"spandrel\",\"ms\":2.0,\"b\":1.0}\n\
                         {\"op\":\"o\",\"case\":\"a\",\"contender\":\"peer\",\"ms\":2.2}\n\
                         {\"op\":\"o\",\"case\":\"b:1\",\"contender\":\"spandrel\",\"ms\":1.0,\"b\":0.5}\n\
                         {\"op\":\"o\",\"case\":\"b:1\",\"contender\":\"peer\",\"ms\":2.0}";

    #[test]
    fn a_target_says_what_was_measured_and_how_many_reach_it() {
        let over = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"spandrel\" }, over = { contender = \"peer\" }";
        let said = page(&format!("asked = 1.5\n{over} }}"), LINES);
        assert!(said.contains("| [w](#1) | at least 1.50 | 1.10 (`a`) to 2.00 (`b:1`) | 1 of 2 |"), "{said}");
        assert!(said.contains("(record/r.jsonl, m, commit c).\n\nbytes\n\nSee [Cargo.toml](../Cargo.toml)."));
        let said = page(&format!("asked = 1.5\n{over}, of = \"geometric\" }}"), LINES);
        assert!(said.contains("1.48, geometric mean of 2; least 1.10 (`a`) | no |"), "{said}");
        let said = page(&format!("asked = 1.1\n{over}, files = true }}"), LINES);
        assert!(said.contains("1.10 (`a`) | yes |"), "{said}");
        let per = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"spandrel\" }, take = \"b\", per = \"ms\", of = \"most\" }";
        let said = page(&format!("asked = 0.4\nless = true\n{per}"), LINES);
        assert!(said.contains("at most 0.400 | 0.500 (`b:1`) | no |"), "{said}");
    }

    #[test]
    fn a_target_without_a_record_is_missed() {
        let said = page("asked = 2\nours = { record = [\"record/none.jsonl\"], line = { op = \"o\" } }", LINES);
        assert!(said.contains("| missing: no such line in record/none.jsonl | no |"), "{said}");
        let text = "[[target]]\nwhat = \"w\"\nbound = \"b\"\nsee = [\"no/such.txt\"]\nasked = 1\nours = { record = [], line = {} }";
        let error = Targets::parse(text, Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("no/such.txt is not there"), "{error:#}");
    }
}
