//! The papers' experiments: what each measures, where, and how its results stand beside the published ones.
//!
//! A [`Paper`] lists [`Job`]s. [`run::Bench`] runs one on either backend with the contests of the other commands.
//! Figures and claims are made from the lines of the record, so a case that was left out is missing in them too, and
//! named.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::case::Case;
use crate::chart::{self, Chart, digits};
use crate::krylov::Method;
use crate::record::Line;

pub mod bdia;
pub mod coo;
pub mod hmec;
pub mod report;
pub mod run;
pub mod sptrsv;
pub mod suite;

/// One experiment.
pub struct Paper {
    /// The name in commands, records and file names.
    pub name: &'static str,
    /// The title of the Markdown.
    pub title: &'static str,
    /// What differs from the paper, and why; for a CPU and for a GPU.
    pub intro: fn(gpu: bool) -> String,
    /// The plan of the measurements.
    pub jobs: fn(&Scope<'_>) -> Result<Plan>,
    /// The figures. One whose lines are missing is empty.
    pub figures: fn(&Found<'_>) -> Vec<Figure>,
    /// The claims in numbers; `null` if a series is missing.
    pub claims: fn(&Found<'_>) -> Vec<Value>,
}

/// How much is measured, and where.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// Whether it is a GPU.
    pub gpu: bool,
    /// Whether to finish soon.
    pub quick: bool,
    /// The folder of the papers' matrices.
    pub matrices: Option<&'a Path>,
    /// The largest number of rows, or 0 for no limit; for tests.
    pub most_rows: usize,
}

impl Scope<'_> {
    /// A size within the limit.
    pub fn rows(&self, n: usize) -> usize {
        if self.most_rows > 0 { n.min(self.most_rows) } else { n }
    }
}

/// The jobs of an experiment, and what it reports beforehand.
#[derive(Debug, Default)]
pub struct Plan {
    /// The jobs, in order.
    pub jobs: Vec<Job>,
    /// Objects of the record: missing matrices, and jobs that this backend does not have.
    pub notes: Vec<Value>,
}

/// One contest.
#[derive(Clone, Debug)]
pub struct Job {
    /// The matrix.
    pub case: Case,
    /// The figures that contain it: `"8"`, `"table-2"`.
    pub figure: &'static str,
    /// The work to do with it.
    pub work: Work,
    /// The paper's matrix that this generated one replaces.
    pub stands_in_for: Option<String>,
}

/// The work to do with a matrix.
#[derive(Clone, Debug)]
pub enum Work {
    /// y = A x.
    Product {
        /// Element types.
        types: &'static [&'static str],
        /// The stems of the formats.
        formats: &'static [&'static str],
        /// Forced kernels in addition to the backend's choice, by their names in the record.
        force: &'static [&'static str],
    },
    /// Whole solves.
    Solve {
        /// The method.
        method: Method,
        /// Whether with IC(0) or ILU(0).
        factored: bool,
        /// The stems of the formats.
        formats: &'static [&'static str],
        /// The limit of iterations.
        max_iters: usize,
    },
    /// An iteration of CG by memory and by graph; only on a GPU.
    Ways,
    /// Reading the matrix from a file.
    Read,
    /// The error of generalised finite elements.
    Error,
}

/// The results.
pub struct Found<'a> {
    /// Timings.
    pub lines: &'a [Line],
    /// The record's other objects.
    pub rest: &'a [Value],
    /// The machine in words.
    pub machine: &'a str,
}

/// A figure or table of the paper, measured here.
#[derive(Debug, Default)]
pub struct Figure {
    /// `"Figure 8"`, `"Table 1"`.
    pub name: &'static str,
    /// Drawn, and also printed as tables.
    pub charts: Vec<Chart>,
    /// Only printed: heading and table.
    pub tables: Vec<(String, String)>,
}

impl Figure {
    fn file(&self, paper: &str) -> String {
        format!("{paper}-{}.svg", self.name.to_lowercase().replace(' ', "-"))
    }
}

impl<'a> Found<'a> {
    /// Our line of a format in a figure, with the kernel of the backend's choice.
    pub fn ours(&self, figure: &str, case: &str, element: &str, noun: &str) -> Option<&'a Line> {
        self.all(figure, case, element).find(|l| l.contender == "spandrel" && l.noun == noun && is_choice(l))
    }
    /// Our line of a forced kernel.
    pub fn forced(&self, figure: &str, case: &str, element: &str, noun: &str, kernel: &str) -> Option<&'a Line> {
        let is = |l: &&Line| {
            l.contender == "spandrel" && l.noun == noun && l.more.kernel.as_deref() == Some(kernel) && !is_choice(l)
        };
        self.all(figure, case, element).find(is)
    }
    /// The fastest line of the peers.
    pub fn peer(&self, figure: &str, case: &str, element: &str) -> Option<&'a Line> {
        let theirs = self.all(figure, case, element).filter(|l| !["spandrel", "machine"].contains(&l.contender));
        theirs.min_by(|a, b| whole(a).total_cmp(&whole(b)))
    }
    /// The lines of a case in a figure.
    pub fn all(&self, figure: &str, case: &str, element: &str) -> impl Iterator<Item = &'a Line> + use<'a> {
        let (figure, case, element) = (figure.to_owned(), case.to_owned(), element.to_owned());
        let stands = move |l: &&Line| l.more.figure.as_deref() == Some(&figure);
        self.lines.iter().filter(stands).filter(move |l| l.case == case && l.element == element)
    }
    /// The cases of a figure in the order of the record, with rows and entries.
    pub fn cases(&self, figure: &str) -> Vec<(&'a str, usize, usize)> {
        let mut cases: Vec<(&str, usize, usize)> = Vec::new();
        for l in self.lines.iter().filter(|l| l.more.figure.as_deref() == Some(figure)) {
            if !cases.iter().any(|c| c.0 == l.case) {
                cases.push((&l.case, l.n, l.nnz));
            }
        }
        cases
    }
    /// Whether it was a GPU.
    pub fn is_gpu(&self) -> bool {
        self.lines.iter().any(|l| l.backend == "cuda")
    }
}

/// Whether the backend chose the kernel.
fn is_choice(line: &Line) -> bool {
    line.more.kernel.as_deref().is_none_or(|k| !k.ends_with("forced") && !["full", "serial"].contains(&k))
}

/// The rate of a product in 10^9 operations per second: two per entry.
pub fn gigaflops(line: &Line) -> f64 {
    2.0 * line.nnz as f64 / line.ms / 1e6
}

/// Milliseconds of a whole solve, or of a call.
pub fn whole(line: &Line) -> f64 {
    line.more.whole_ms.unwrap_or(line.ms)
}

/// A paper's number beside ours.
pub fn claim(paper: &str, figure: &str, what: &str, published: Value, here: Value) -> Value {
    json!({"op": "paper", "noun": paper, "figure": figure, "what": what, "published": published, "here": here})
}

/// The claims as a table.
pub fn claims_table(claims: &[Value]) -> String {
    let mut out = String::from("| figure | what | published | here |\n|---|---|---:|---:|\n");
    for claim in claims {
        let word = |field: &str| claim[field].as_str().unwrap_or_default().to_owned();
        let (published, here) = (in_words(&claim["published"]), in_words(&claim["here"]));
        out += &format!("| {} | {} | {published} | {here} |\n", word("figure"), word("what"));
    }
    out
}

fn in_words(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().map_or("-".into(), digits),
        Value::Array(both) => both.iter().map(in_words).collect::<Vec<_>>().join(" to "),
        Value::String(words) => words.clone(),
        _ => "-".into(),
    }
}

impl Paper {
    /// Everything as Markdown.
    pub fn markdown(&self, found: &Found<'_>) -> String {
        let mut out = format!("# {}\n\n{}\n", self.title, (self.intro)(found.is_gpu()));
        for figure in (self.figures)(found) {
            for chart in figure.charts.iter().filter(|chart| !chart.is_empty()) {
                out += &format!("\n## {}. {} ({})\n\n{}", figure.name, chart.title, chart.y.name, chart.table());
            }
            for (heading, table) in &figure.tables {
                out += &format!("\n## {}. {heading}\n\n{table}", figure.name);
            }
        }
        for (heading, field) in [("Missing", "missing"), ("Left out", "error")] {
            let items = items(found.rest, field);
            if !items.is_empty() {
                out += &format!("\n## {heading}\n\n{}\n", items.join("\n"));
            }
        }
        out + "\n## Claims\n\n" + &claims_table(&(self.claims)(found))
    }

    /// Writes `DIR/NAME-figure-N.svg` for every figure that has lines.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn draw(&self, dir: &Path, found: &Found<'_>) -> Result<()> {
        for figure in (self.figures)(found) {
            let charts: Vec<Chart> = figure.charts.iter().filter(|chart| !chart.is_empty()).cloned().collect();
            if !charts.is_empty() {
                chart::draw(&dir.join(figure.file(self.name)), &charts)?;
            }
        }
        Ok(())
    }
}

/// The reasons why something is missing, as items of a list; one item for all figures with the same reason.
fn items(objects: &[Value], field: &str) -> Vec<String> {
    let mut items: Vec<(String, Vec<&str>, &str)> = Vec::new();
    for object in objects {
        let Some(why) = object[field].as_str() else { continue };
        let words = ["case", "noun", "contender"].iter().filter_map(|&k| object[k].as_str());
        // What a paper's plan leaves out does not belong to a format.
        let words = words.take(if object["op"] == "paper" { 1 } else { 3 }).collect::<Vec<_>>().join(", ");
        let figure = object["figure"].as_str().filter(|&f| f != "all");
        match items.iter_mut().find(|item| item.0 == words && item.2 == why) {
            Some(item) => item.1.extend(figure),
            None => items.push((words, figure.into_iter().collect(), why)),
        }
    }
    let item = |(words, figures, why): (String, Vec<&str>, &str)| {
        let figures = if figures.is_empty() { String::new() } else { format!(" ({})", figures.join(", ")) };
        format!("- {words}{figures}: {why}")
    };
    items.into_iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_told_once_with_its_figures() {
        let passed =
            |figure: &str| json!({"op": "paper", "noun": "x", "case": "a", "figure": figure, "missing": "why"});
        let error = json!({"op": "spmv", "noun": "ell", "contender": "spandrel", "case": "a", "figure": "2", "error": "padding"});
        let all = [passed("6"), error, passed("7"), passed("all")];
        assert_eq!(items(&all, "missing"), ["- a (6, 7): why"]);
        assert_eq!(items(&all, "error"), ["- a, ell, spandrel (2): padding"]);
    }
}
