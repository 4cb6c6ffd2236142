//! Records: lines of JSON, each with the header above it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Records that are not measurements of time.
const LEFT_OUT: [&str; 1] = ["h200-verify.jsonl"];

/// The machine, commit and date of the lines below it. Two runs of one commit are two headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) machine: String,
    pub(crate) driver: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    /// The number of the header in its file.
    run: usize,
}

/// A line that is not a header.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Its file, `record/h200-spmv.jsonl`.
    pub(crate) file: String,
    pub(crate) header: Header,
    pub(crate) fields: Value,
}

impl Line {
    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields[field].as_str().unwrap_or_default()
    }
    pub(crate) fn number(&self, field: &str) -> Option<f64> {
        self.fields[field].as_f64()
    }
    /// The name of the matrix that this one replaces.
    pub(crate) fn stands_in_for(&self) -> Option<&str> {
        self.text("stands_in_for").rsplit('/').next().filter(|name| !name.is_empty())
    }
    /// The machine in a word.
    pub(crate) fn machine(&self) -> String {
        short(&self.header.machine)
    }
}

/// The name of a machine in a table: `NVIDIA H200` for `0: NVIDIA H200, 139.8 GiB, ...`.
fn short(machine: &str) -> String {
    let name = machine.split_once(": ").map_or(machine, |(_, name)| name);
    name.split([',', '(']).next().unwrap_or_default().trim().to_owned()
}

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    lines: BTreeMap<String, Vec<Line>>,
}

impl Records {
    /// Reads `record/*.jsonl`.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is not JSON, with its place.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut records = Self::default();
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".jsonl") && !LEFT_OUT.contains(&name.as_str()) {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                records.add(&format!("record/{name}"), &text)?;
            }
        }
        Ok(records)
    }

    /// Adds the lines of a file.
    pub(crate) fn add(&mut self, file: &str, text: &str) -> Result<()> {
        let (mut header, mut lines) = (Header::default(), Vec::new());
        for (k, line) in text.lines().enumerate() {
            let fields: Value = serde_json::from_str(line).with_context(|| format!("{file}:{}", k + 1))?;
            if fields["header"] == Value::Bool(true) {
                let field = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
                let (machine, driver) = (field("machine"), field("driver"));
                let (commit, date, run) = (field("commit"), field("date"), header.run + 1);
                header = Header { machine, driver, commit, date, run };
            } else {
                lines.push(Line { file: file.to_owned(), header: header.clone(), fields });
            }
        }
        self.lines.insert(file.to_owned(), lines);
        Ok(())
    }

    /// The lines of a file; none if it is missing.
    pub(crate) fn of(&self, file: &str) -> &[Line] {
        self.lines.get(file).map_or(&[], Vec::as_slice)
    }
    /// The records of `spandrel-bench paper NAME`, those of GPUs first.
    pub(crate) fn papers(&self, name: &str) -> Vec<&str> {
        let part = format!("-paper-{name}.");
        let mut files: Vec<&str> = self.lines.keys().filter(|file| file.contains(&part)).map(String::as_str).collect();
        files.sort_by_key(|file| file.starts_with("record/cpu-"));
        files
    }

    /// A description of each machine.
    pub(crate) fn legend(&self) -> String {
        let mut found: Vec<(String, String, String)> = Vec::new();
        for line in self.lines.values().flatten() {
            let whole = line.header.machine.split_once(": ").map_or(line.header.machine.as_str(), |(_, whole)| whole);
            let driver = &line.header.driver;
            // Runs without a library name only the driver.
            match found.iter_mut().find(|(name, known, _)| *name == line.machine() && known == whole) {
                Some((_, _, known)) if driver.starts_with(known.as_str()) => known.clone_from(driver),
                Some((_, _, known)) if known.starts_with(driver.as_str()) => {}
                _ => found.push((line.machine(), whole.to_owned(), driver.clone())),
            }
        }
        found.sort();
        let mut out = String::from("\n## Machines\n\n| machine | details |\n|---|---|\n");
        for (name, whole, driver) in found.iter().filter(|(name, ..)| !name.is_empty()) {
            let driver = if driver.is_empty() { String::new() } else { format!("; driver {driver}") };
            out += &format!("| {name} | {whole}{driver} |\n");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_header_above_it() {
        let header = |commit: &str| {
            format!("{{\"header\":true,\"machine\":\"0: NVIDIA H200, 139.8 GiB\",\"commit\":\"{commit}\"}}\n")
        };
        let text = format!("{}{{\"op\":\"a\",\"ms\":2}}\n{}{{\"op\":\"b\"}}\n", header("x"), header("y"));
        let mut records = Records::default();
        records.add("record/r.jsonl", &text).expect("lines");
        let [a, b] = records.of("record/r.jsonl") else { panic!("two lines") };
        assert_eq!((a.text("op"), a.number("ms"), a.machine().as_str()), ("a", Some(2.0), "NVIDIA H200"));
        assert_eq!((a.header.commit.as_str(), b.header.commit.as_str()), ("x", "y"));
        assert!(records.of("record/other.jsonl").is_empty());
        assert!(records.legend().contains("| NVIDIA H200 | NVIDIA H200, 139.8 GiB |"));
        // If one run names a library and another does not, it is still one machine.
        let driver = |driver: &str| header("z").replace("\"commit\"", &format!("\"driver\":\"{driver}\",\"commit\""));
        let text = format!("{}{{\"op\":\"a\"}}\n{}{{\"op\":\"b\"}}\n", driver("580"), driver("580, cuSPARSE 12"));
        let mut two = Records::default();
        two.add("record/r.jsonl", &text).expect("lines");
        assert_eq!(two.legend().matches("| NVIDIA H200 |").count(), 1);
        assert!(two.legend().contains("139.8 GiB; driver 580, cuSPARSE 12 |"), "{}", two.legend());
        let error = records.add("record/bad.jsonl", "{}\nspmv 12\n").unwrap_err();
        assert!(error.to_string().contains("record/bad.jsonl:2"), "{error:#}");
    }
}
