//! The sources' figures beside ours.
//!
//! A figure of `docs/published.toml` says where ours is: a record, which of its lines, and what is taken of them. For each case the line
//! with the least time counts, of the last run in the record that has the case.

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use super::number::digits;
use super::record::{Line, Records};

/// `docs/published.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    source: Vec<Source>,
}

/// A paper, report or article.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    /// As in `spandrel-bench paper NAME`.
    name: String,
    title: String,
    by: String,
    machine: String,
    figure: Vec<Figure>,
}

/// One number, or a statement, of a source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// The table, figure or section.
    place: String,
    what: String,
    /// A number; or words, where the source gives none.
    value: Value,
    #[serde(default)]
    unit: String,
    /// Whether less is better: times.
    #[serde(default)]
    less: bool,
    /// Where ours is.
    ours: Option<Ours>,
    /// Or a claim of `spandrel-bench paper`: the `what` of its line, with a `*` for anything in between.
    claim: Option<String>,
    /// Without either, what is missing.
    #[serde(default)]
    missing: String,
}

/// Where a figure of ours is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours {
    /// Files, the first that has such lines.
    record: Vec<String>,
    /// Fields that a line must have: a text (a `*` in it stands for anything) or a list of texts.
    line: toml::Table,
    /// With it, not a field but the ratio of times is taken: of the fastest line of these, for the same case, to ours.
    over: Option<toml::Table>,
    /// A field, or `gflops`, two operations an entry; for ratios, the field with the time (`ms` without it).
    #[serde(default)]
    take: String,
    /// Of several cases: `least`, `most` or `mean`.
    #[serde(default)]
    of: String,
}

/// A number of ours and the line that it is from, the first of several.
struct Found<'a> {
    value: f64,
    line: &'a Line,
    cases: usize,
}

/// Whether a text is the wanted one, in which a `*` stands for anything.
fn same(found: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        Some((begin, end)) => {
            found.len() >= begin.len() + end.len() && found.starts_with(begin) && found.ends_with(end)
        }
        None => found == wanted,
    }
}

fn holds(line: &Line, wanted: &toml::Table) -> bool {
    wanted.iter().all(|(field, wanted)| {
        // A matrix is itself, or the one that is in its place.
        let found = match line.text("stands_in_for").rsplit('/').next() {
            Some(name) if field == "case" && !name.is_empty() => name,
            _ => line.text(field),
        };
        match wanted {
            toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_str).any(|wanted| same(found, wanted)),
            wanted => wanted.as_str().is_some_and(|wanted| same(found, wanted)),
        }
    })
}

impl Ours {
    /// The field with the time.
    fn time(&self) -> &str {
        if self.over.is_some() && !self.take.is_empty() { &self.take } else { "ms" }
    }

    /// The fastest of the lines of a case that hold, of the last run.
    fn fastest<'a>(&self, lines: &'a [Line], case: &str, wanted: &toml::Table) -> Option<&'a Line> {
        let of_case = || lines.iter().filter(|line| line.text("case") == case && holds(line, wanted));
        let last = of_case().next_back()?;
        let timed = of_case().filter(|line| line.header == last.header && line.number(self.time()).is_some());
        timed.min_by(|a, b| {
            a.number(self.time()).unwrap_or(f64::MAX).total_cmp(&b.number(self.time()).unwrap_or(f64::MAX))
        })
    }

    fn value(&self, lines: &[Line], line: &Line) -> Option<f64> {
        let ms = line.number(self.time())?;
        match (&self.over, self.take.as_str()) {
            (Some(over), _) => {
                let other = self.fastest(lines, line.text("case"), over)?;
                Some(other.number(self.time())? / ms)
            }
            (None, "gflops") => Some(2.0 * line.number("nnz")? / ms / 1e6),
            (None, field) => line.number(field),
        }
    }

    fn find<'a>(&self, records: &'a Records) -> Option<Found<'a>> {
        self.record.iter().find_map(|file| self.find_in(records.of(file)))
    }

    fn find_in<'a>(&self, lines: &'a [Line]) -> Option<Found<'a>> {
        let mut cases: Vec<&str> = Vec::new();
        for line in lines.iter().filter(|line| holds(line, &self.line)) {
            if !cases.contains(&line.text("case")) {
                cases.push(line.text("case"));
            }
        }
        let valued = cases.iter().filter_map(|case| {
            let line = self.fastest(lines, case, &self.line)?;
            Some((self.value(lines, line)?, line))
        });
        let all: Vec<(f64, &Line)> = valued.collect();
        let first = all.first()?;
        let (value, line) = match self.of.as_str() {
            "least" => *all.iter().min_by(|a, b| a.0.total_cmp(&b.0))?,
            "most" => *all.iter().max_by(|a, b| a.0.total_cmp(&b.0))?,
            "mean" => (all.iter().map(|(value, _)| value).sum::<f64>() / all.len() as f64, first.1),
            _ => *first,
        };
        Some(Found { value, line, cases: if self.of == "mean" { all.len() } else { 1 } })
    }
}

impl Figure {
    /// The number of ours; that of a claim has no case.
    fn find<'a>(&self, name: &str, records: &'a Records) -> Option<Found<'a>> {
        if let Some(ours) = &self.ours {
            return ours.find(records);
        }
        let wanted = self.claim.as_ref()?;
        let mut lines = records.with_name(&format!("-paper-{name}.")).into_iter().flat_map(|file| records.of(file));
        let line = lines.find(|line| line.text("op") == "paper" && same(line.text("what"), wanted))?;
        Some(Found { value: line.number("here")?, line, cases: 0 })
    }

    fn row(&self, name: &str, records: &Records) -> (String, bool) {
        let published = match &self.value {
            Value::Number(number) => {
                format!("{} {}", number.as_f64().map_or("-".into(), digits), self.unit).trim_end().to_owned()
            }
            Value::String(words) => words.clone(),
            other => other.to_string(),
        };
        let found = self.find(name, records);
        let what = &self.what;
        let Some(Found { value, line, cases }) = found else {
            let why = match (&self.ours, self.missing.as_str()) {
                (_, why) if !why.is_empty() => why.to_owned(),
                (Some(ours), _) => format!("no such line in {}", ours.record.join(", ")),
                (None, _) => format!("no record of `spandrel-bench paper {name}`"),
            };
            return (format!("| {} | {what} | {published} | missing: {why} | - | | | |\n", self.place), false);
        };
        let ratio = self
            .value
            .as_f64()
            .map_or("-".to_owned(), |theirs| digits(if self.less { theirs / value } else { value / theirs }));
        let case = match cases {
            0 => line.text("what").to_owned(),
            1 if line.text("stands_in_for").is_empty() => format!("`{}`", line.text("case")),
            1 => format!("`{}` in its place", line.text("case")),
            cases => format!("{cases} cases"),
        };
        let ours = format!("{} {}", digits(value), self.unit);
        let (machine, commit) = (line.machine(), &line.header.commit);
        (
            format!(
                "| {} | {what} | {published} | {} | {ratio} | {case} | {}, {machine} | {commit} |\n",
                self.place,
                ours.trim_end(),
                line.file
            ),
            true,
        )
    }
}

impl Source {
    fn section(&self, records: &Records) -> String {
        let rows: Vec<(String, bool)> = self.figure.iter().map(|figure| figure.row(&self.name, records)).collect();
        let missing = rows.iter().filter(|(_, found)| !found).count();
        let mut out = format!(
            "\n### {}: {}\n\n{}. Theirs on {}. {} of {} figures are missing.\n\n",
            self.name,
            self.title,
            self.by,
            self.machine,
            missing,
            rows.len()
        );
        out += "| place | what | published | ours | ratio | case | record, machine | commit |\n|---|---|---:|---:|---:|---|---|---|\n";
        rows.iter().for_each(|(row, _)| out += row);
        out += &self.claims(records);
        out
    }

    /// What `spandrel-bench paper` says itself: lines with `published` and `here`, or `missing`.
    fn claims(&self, records: &Records) -> String {
        let files = records.with_name(&format!("-paper-{}.", self.name));
        if files.is_empty() {
            return format!("\nMissing: `record/h200-paper-{0}.jsonl`, from `spandrel-bench paper {0}`.\n", self.name);
        }
        let mut out = String::new();
        for file in files {
            let lines = records.of(file);
            let said = || lines.iter().filter(|line| line.text("op") == "paper");
            let Some(first) = said().next_back().or(lines.first()) else { continue };
            out += &format!(
                "\n`spandrel-bench paper {}`, {file}, {}, commit {}, {}:\n\n| figure | what | published | ours |\n|---|---|---:|---:|\n",
                self.name,
                first.machine(),
                first.header.commit,
                first.header.date
            );
            // Cases of a figure that are missing for one reason are a row.
            let mut missing: Vec<(&str, String, Vec<&str>)> = Vec::new();
            for line in said() {
                let what = [line.text("what"), line.text("case")].into_iter().find(|text| !text.is_empty());
                let (figure, what) = (line.text("figure"), what.unwrap_or_default());
                let Some(why) = line.fields.get("missing").map(in_words) else {
                    let [published, here] = ["published", "here"].map(|field| in_words(&line.fields[field]));
                    out += &format!("| {figure} | {what} | {published} | {here} |\n");
                    continue;
                };
                match missing.iter_mut().find(|known| (known.0, &known.1) == (figure, &why)) {
                    Some((_, _, cases)) => cases.push(what),
                    None => missing.push((figure, why, vec![what])),
                }
            }
            for (figure, why, cases) in missing {
                let named = match cases.as_slice() {
                    [first, .., last] if cases.len() > MOST_NAMED => {
                        format!("{first} to {last}, {} cases", cases.len())
                    }
                    _ => cases.join(", "),
                };
                out += &format!("| {figure} | {named} | - | missing: {why} |\n");
            }
        }
        out
    }
}

/// So many cases that are missing for one reason have their names told.
const MOST_NAMED: usize = 4;

fn in_words(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().map_or("-".into(), digits),
        Value::Array(list) => list.iter().map(in_words).collect::<Vec<_>>().join(" to "),
        Value::String(words) => words.clone(),
        _ => "-".into(),
    }
}

impl Published {
    /// # Errors
    /// The place of what is not understood.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// A table for each source.
    pub(crate) fn section(&self, records: &Records) -> String {
        let mut out = String::from(
            "\n## The five sources\n\n\
             Their machines are of other years, so the ratio says what a user has today, not which program is better; the peers of today stand\n\
             further below.\n",
        );
        self.source.iter().for_each(|source| out += &source.section(records));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"header":true,"machine":"0: GPU, 1 GiB","commit":"abc","date":"2026-01-01"}"#;

    fn records(lines: &[&str]) -> Records {
        let mut records = Records::default();
        records.add("record/r.jsonl", &format!("{HEADER}\n{}\n", lines.join("\n"))).expect("lines");
        records
    }

    fn row(figure: &str, records: &Records) -> (String, bool) {
        let text = format!(
            "[[source]]\nname = \"s\"\ntitle = \"t\"\nby = \"b\"\nmachine = \"m\"\n[[source.figure]]\nplace = \"Table 1\"\nwhat = \"w\"\n{figure}"
        );
        Published::parse(&text).expect("a source").source[0].figure[0].row("s", records)
    }

    #[test]
    fn ours_stands_beside_theirs() {
        let records = records(&[
            r#"{"noun":"bdia","case":"a","contender":"spandrel","nnz":1000000,"ms":2.0,"kernel":"vector(8)"}"#,
            r#"{"noun":"bdia","case":"a","contender":"spandrel","nnz":1000000,"ms":1.0,"kernel":"vector(4)"}"#,
        ]);
        let ours = "ours = { record = [\"record/r.jsonl\"], line = { noun = [\"dia\", \"bdia\"], kernel = \"vector*\" }, take = \"gflops\" }";
        let (row, found) = row(&format!("value = 0.5\nunit = \"GF/s\"\n{ours}\n"), &records);
        assert!(found);
        assert_eq!(row, "| Table 1 | w | 0.500 GF/s | 2.00 GF/s | 4.00 | `a` | record/r.jsonl, GPU | abc |\n");
    }

    #[test]
    fn a_matrix_in_the_place_of_another_is_named() {
        let records = records(&[
            r#"{"noun":"csr","case":"b","ms":3.0}"#,
            r#"{"noun":"csr","case":"poisson2d:40","stands_in_for":"HB/b07","ms":2.0}"#,
        ]);
        let of = |case: &str| {
            let ours =
                format!("ours = {{ record = [\"record/r.jsonl\"], line = {{ case = \"{case}\" }}, take = \"ms\" }}");
            row(&format!("value = 4\nunit = \"ms\"\nless = true\n{ours}\n"), &records)
        };
        assert!(of("b07").0.contains("| 2.00 ms | 2.00 | `poisson2d:40` in its place |"), "{}", of("b07").0);
        assert!(of("b").0.contains("| 3.00 ms | 1.33 | `b` |"));
        assert!(!of("poisson2d:40").1);
    }

    #[test]
    fn ratios_over_cases_are_reduced() {
        let records = records(&[
            r#"{"noun":"x","case":"a","contender":"spandrel","ms":1.0}"#,
            r#"{"noun":"x","case":"a","contender":"peer","ms":3.0}"#,
            r#"{"noun":"x","case":"a","contender":"peer","ms":2.0}"#,
            r#"{"noun":"x","case":"b","contender":"spandrel","ms":1.0}"#,
            r#"{"noun":"x","case":"b","contender":"peer","ms":4.0}"#,
            r#"{"noun":"x","case":"c","contender":"spandrel","ms":1.0}"#,
        ]);
        let ours = |of: &str| {
            format!(
                "value = 1.5\nours = {{ record = [\"record/r.jsonl\"], line = {{ contender = \"spandrel\" }}, over = {{ contender = \"peer\" }}, of = \"{of}\" }}\n"
            )
        };
        assert!(row(&ours("mean"), &records).0.contains("| 1.50 | 3.00 | 2.00 | 2 cases |"));
        assert!(row(&ours("most"), &records).0.contains("| 4.00 | 2.67 | `b` |"));
        assert!(row(&ours("least"), &records).0.contains("| 2.00 | 1.33 | `a` |"));
    }

    #[test]
    fn the_last_run_of_a_case_counts() {
        let mut records = Records::default();
        let line = |ms: f64| format!("{{\"case\":\"a\",\"ms\":{ms:?}}}");
        let newer = HEADER.replace("abc", "def");
        records.add("record/r.jsonl", &format!("{HEADER}\n{}\n{newer}\n{}\n", line(1.0), line(2.0))).expect("lines");
        let ours = "ours = { record = [\"record/r.jsonl\"], line = { case = \"a\" }, take = \"ms\" }";
        let (row, _) = row(&format!("value = 4\nunit = \"ms\"\nless = true\n{ours}\n"), &records);
        assert!(row.ends_with("| 4.00 ms | 2.00 ms | 2.00 | `a` | record/r.jsonl, GPU | def |\n"), "{row}");
    }

    #[test]
    fn what_is_missing_is_said() {
        let ours = "ours = { record = [\"record/none.jsonl\"], line = { noun = \"bdia\" }, take = \"ms\" }";
        let (text, found) = row(&format!("value = \"faster\"\n{ours}\n"), &Records::default());
        assert!(!found && text.contains("| faster | missing: no such line in record/none.jsonl |"), "{text}");
        assert!(row("value = 1\nmissing = \"no matrix\"\n", &Records::default()).0.contains("missing: no matrix"));
    }

    #[test]
    fn claims_of_the_bench_are_taken_over() {
        let text = "[[source]]\nname = \"s\"\ntitle = \"t\"\nby = \"b\"\nmachine = \"m\"\nfigure = []\n";
        let source = &Published::parse(text).expect("a source").source[0];
        assert!(source.claims(&Records::default()).contains("Missing: `record/h200-paper-s.jsonl`"));
        let mut records = Records::default();
        let lines = [
            HEADER,
            r#"{"op":"paper","figure":"5","what":"w","published":[40.1,225.2],"here":null}"#,
            r#"{"op":"paper","figure":"5","case":"c","missing":"no file"}"#,
        ];
        records.add("record/h200-paper-s.jsonl", &lines.join("\n")).expect("lines");
        let said = source.claims(&records);
        assert!(
            said.contains("| 5 | w | 40.1 to 225 | - |") && said.contains("| 5 | c | - | missing: no file |"),
            "{said}"
        );
        let late =
            |case: usize| format!("{{\"op\":\"paper\",\"figure\":\"6\",\"case\":\"d{case}\",\"missing\":\"late\"}}");
        let late: Vec<String> = (1..=5).map(late).collect();
        records.add("record/h200-paper-s.jsonl", &format!("{HEADER}\n{}", late.join("\n"))).expect("lines");
        assert!(source.claims(&records).contains("| 6 | d1 to d5, 5 cases | - | missing: late |"));
    }
}
