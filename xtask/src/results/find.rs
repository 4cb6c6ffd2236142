//! Finds our figure for a published one: a record, some of its lines, and what to take from them.
//!
//! For each case the line with the least time counts, from the last run in the record that has the case. A ratio of two
//! lines is from one run, or from runs of two programs at one commit.

use serde::Deserialize;

use super::record::{Header, Line, Records};

/// The place of our figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ours {
    /// The files. The first one with such lines counts.
    pub(crate) record: Vec<String>,
    /// Fields that a line must have: a text (with `*` for anything) or a list of texts.
    line: toml::Table,
    /// If present, the ratio of times is taken instead of a field: the fastest line of these, for the same case in the
    /// same run, over ours.
    over: Option<toml::Table>,
    /// With `over`: the peers are run by a program of their own, so their lines count from any run of the same commit.
    #[serde(default)]
    apart: bool,
    /// With `over`: one minus the reciprocal ratio, which is a share of time saved.
    #[serde(default)]
    share: bool,
    /// A field, or `gflops` (two operations per entry). For ratios, the field with the time (`ms` if absent).
    #[serde(default)]
    take: String,
    /// A field of the same line by which the value is divided.
    per: Option<String>,
    /// Which of several cases: `last`, `least`, `most`, `mean` or `geometric`; else the first.
    #[serde(default)]
    pub(crate) of: String,
    /// A field that distinguishes lines of one case.
    each: Option<String>,
    /// Only matrices from files.
    #[serde(default)]
    files: bool,
}

/// One of our numbers, and the line that it is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) value: f64,
    pub(crate) line: &'a Line,
}

/// Whether a text matches the wanted one, in which `*` stands for anything.
pub(crate) fn same(found: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        Some((begin, end)) => {
            found.len() >= begin.len() + end.len() && found.starts_with(begin) && found.ends_with(end)
        }
        None => found == wanted,
    }
}

fn holds(line: &Line, wanted: &toml::Table) -> bool {
    wanted.iter().all(|(field, wanted)| {
        // A matrix matches by its own name, or by the one that it replaces.
        let found = match line.stands_in_for() {
            Some(name) if field == "case" => name,
            _ => line.text(field),
        };
        match wanted {
            toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_str).any(|wanted| same(found, wanted)),
            wanted => wanted.as_str().is_some_and(|wanted| same(found, wanted)),
        }
    })
}

/// The mean of the positive values by their logarithms.
pub(crate) fn geometric(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

impl Ours {
    /// The field with the time.
    fn time(&self) -> &str {
        if self.over.is_some() && !self.take.is_empty() { &self.take } else { "ms" }
    }

    /// The fields that distinguish the lines of a case.
    fn key<'a>(&self, line: &'a Line) -> (&'a str, &'a str) {
        (line.text("case"), self.each.as_deref().map_or("", |field| line.text(field)))
    }

    /// The value of a single line.
    fn field(&self, line: &Line) -> Option<f64> {
        let value = match (&self.over, self.take.as_str()) {
            (Some(_), _) => line.number(self.time())?,
            (None, "gflops") => 2.0 * line.number("nnz")? / line.number("ms")? / 1e6,
            (None, field) => line.number(field)?,
        };
        Some(value / self.per.as_deref().map_or(Some(1.0), |field| line.number(field))?)
    }

    /// The fastest line of a case that matches and has the number, among the lines of some runs.
    fn fastest<'a>(
        &self,
        of_case: &[&'a Line],
        counts: impl Fn(&Header) -> bool,
        wanted: &toml::Table,
    ) -> Option<&'a Line> {
        let sound = |line: &&Line| counts(&line.header) && holds(line, wanted) && self.field(line).is_some();
        let ms = |line: &Line| line.number(self.time()).unwrap_or(f64::MAX);
        of_case.iter().copied().filter(sound).min_by(|a, b| ms(a).total_cmp(&ms(b)))
    }

    /// The number of a case, from the last run that has everything it needs.
    fn of_case<'a>(&self, of_case: &[&'a Line]) -> Option<Found<'a>> {
        let mut runs: Vec<&Header> = Vec::new();
        for line in of_case.iter().rev() {
            if !runs.contains(&&line.header) {
                runs.push(&line.header);
            }
        }
        runs.into_iter().find_map(|run| {
            let line = self.fastest(of_case, |header| header == run, &self.line)?;
            let value = self.field(line)?;
            let Some(over) = &self.over else { return Some(Found { value, line }) };
            let near = |header: &Header| header == run || (self.apart && header.commit == run.commit);
            let other = self.field(self.fastest(of_case, near, over)?)?;
            Some(Found { value: if self.share { 1.0 - value / other } else { other / value }, line })
        })
    }

    fn all_in<'a>(&self, lines: &'a [Line]) -> Vec<Found<'a>> {
        let mut cases: Vec<(&str, &str)> = Vec::new();
        let is_file = |line: &Line| !self.files || !line.text("case").contains(':');
        for line in lines.iter().filter(|line| is_file(line) && holds(line, &self.line)) {
            if !cases.contains(&self.key(line)) {
                cases.push(self.key(line));
            }
        }
        let found = cases.into_iter().filter_map(|case| {
            let of_case: Vec<&Line> = lines
                .iter()
                .filter(|line| {
                    line.text("case") == case.0 && (line.text("contender") != "spandrel" || self.key(line) == case)
                })
                .collect();
            self.of_case(&of_case)
        });
        found.collect()
    }

    /// Whether a line belongs to a case that is requested by name.
    pub(crate) fn names_case(&self, line: &Line) -> bool {
        let case: toml::Table =
            self.line.iter().filter(|(field, _)| *field == "case").map(|(f, c)| (f.clone(), c.clone())).collect();
        !case.is_empty() && holds(line, &case)
    }

    /// The numbers of all cases, in the order of the record.
    pub(crate) fn all<'a>(&self, records: &'a Records) -> Vec<Found<'a>> {
        let of_files = self.record.iter().map(|file| self.all_in(records.of(file)));
        of_files.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// One number for all of them, with the line that it is from and the number of cases.
    pub(crate) fn find<'a>(&self, records: &'a Records) -> Option<(Found<'a>, Vec<Found<'a>>)> {
        let all = self.all(records);
        let first = *all.first()?;
        let by = |a: &&Found<'_>, b: &&Found<'_>| a.value.total_cmp(&b.value);
        let values: Vec<f64> = all.iter().map(|found| found.value).collect();
        Some(match self.of.as_str() {
            "last" => (*all.last()?, vec![]),
            "least" => (*all.iter().min_by(by)?, vec![]),
            "most" => (*all.iter().max_by(by)?, vec![]),
            "mean" => (Found { value: values.iter().sum::<f64>() / values.len() as f64, ..first }, all),
            "geometric" => (Found { value: geometric(&values), ..first }, all),
            _ => (first, vec![]),
        })
    }
}
