//! The page of the papers: their figures beside ours.
//!
//! A figure of `docs/published.toml` says where ours is (see [`super::find`]). A GPU's record comes first, and a CPU's
//! fills the gaps. If a matrix replaces the paper's own, there is no ratio, because the figures are for different
//! systems.

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;

use super::find::{Found, Ours, same};
use super::multigrid::Peer;
use super::number::digits;
use super::page::{Page, source};
use super::record::{Line, Records};
use super::robust::Answered;

/// `docs/published.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Published {
    source: Vec<Source>,
    #[serde(default)]
    pub(super) answered: Vec<Answered>,
    #[serde(default)]
    pub(super) multigrid: Vec<Peer>,
}

/// A paper, report or article.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    /// The name in `spandrel-bench paper NAME`.
    name: String,
    title: String,
    by: String,
    machine: String,
    /// Its matrices by name, of which at least half must be measured.
    #[serde(default)]
    matrices: Vec<String>,
    figure: Vec<Figure>,
}

/// A number or a statement of a source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    /// The table, figure or section.
    place: String,
    what: String,
    /// A number, or words if the source has none.
    value: Value,
    #[serde(default)]
    unit: String,
    /// Whether less is better, as for times.
    #[serde(default)]
    less: bool,
    /// The place of ours.
    ours: Option<Ours>,
    /// Or a claim of `spandrel-bench paper`: the `what` of its line, with `*` for anything.
    claim: Option<String>,
    /// Without either, the reason why it is missing.
    #[serde(default)]
    missing: String,
    /// Why ours is behind, or what the figure means if there is no ratio.
    #[serde(default)]
    why: String,
}

/// A row of a source's table.
struct Row {
    text: String,
    found: bool,
    /// The line of our figure.
    line: Option<Line>,
    /// A remark below the table: the figures and the text.
    why: Option<(String, String)>,
}

impl Figure {
    /// Our number, the cases of which it is the mean, and whether it is the bench's own claim, which has no case.
    fn find<'a>(&self, name: &str, records: &'a Records) -> Option<(Found<'a>, Vec<Found<'a>>, bool)> {
        if let Some(ours) = &self.ours {
            return ours.find(records).map(|(found, all)| (found, all, false));
        }
        let wanted = self.claim.as_ref()?;
        let mut lines = records.papers(name).into_iter().flat_map(|file| records.of(file));
        let claimed = |line: &&Line| line.text("op") == "paper" && same(line.text("what"), wanted);
        let line = lines.find(|line| claimed(line) && line.number("here").is_some())?;
        Some((Found { value: line.number("here")?, line }, vec![], true))
    }

    /// The reason why there is no number.
    fn why_missing(&self, name: &str, records: &Records) -> String {
        if !self.missing.is_empty() {
            return self.missing.clone();
        }
        let cut = |file: &str, is_of: &dyn Fn(&Line) -> bool| {
            let line = records.of(file).iter().find(|line| line.text("missing").contains(CUT) && is_of(line))?;
            Some(format!("{file} reached its time limit ({})", line.text("missing")))
        };
        if let Some(ours) = &self.ours {
            let ended = ours.record.iter().find_map(|file| cut(file, &|line| ours.names_case(line)));
            return ended.unwrap_or_else(|| format!("no such line in {}", ours.record.join(", ")));
        }
        let files = records.papers(name);
        let Some(file) = files.first() else { return format!("no record of `spandrel-bench paper {name}`") };
        cut(file, &|_| true).unwrap_or_else(|| format!("no such claim in {}", files.join(", ")))
    }

    fn row(&self, name: &str, records: &Records) -> Row {
        let published = match &self.value {
            Value::Number(number) => {
                format!("{} {}", number.as_f64().map_or("-".into(), digits), self.unit).trim_end().to_owned()
            }
            Value::String(words) => words.clone(),
            other => other.to_string(),
        };
        let what = &self.what;
        let Some((Found { value, line }, all, is_claim)) = self.find(name, records) else {
            let why = self.why_missing(name, records);
            let text = format!("| {} | {what} | {published} | missing: {why} | - | |\n", self.place);
            return Row { text, found: false, line: None, why: None };
        };
        // There is no ratio if our time is worse (a share of time saved below zero), or for another matrix than theirs.
        let is_same = line.stands_in_for().is_none() && all.iter().all(|found| found.line.stands_in_for().is_none());
        let theirs = self.value.as_f64().filter(|_| value > 0.0 && is_same);
        let ratio = theirs.map(|theirs| if self.less { theirs / value } else { value / theirs });
        let case = match (all.as_slice(), line.stands_in_for()) {
            _ if is_claim => line.text("what").to_owned(),
            ([first, .., last], _) => {
                format!("`{}` to `{}`, {} cases", first.line.text("case"), last.line.text("case"), all.len())
            }
            (_, Some(_)) => format!("stand-in `{}`", line.text("case")),
            (_, None) => format!("`{}`", line.text("case")),
        };
        let on = if line.file.starts_with("record/cpu-") { ", **on a CPU**" } else { "" };
        let ours = format!("{} {}", digits(value), self.unit);
        let text = format!(
            "| {} | {what} | {published} | {} | {} | {case}{on} |\n",
            self.place,
            ours.trim_end(),
            ratio.map_or("-".to_owned(), digits)
        );
        let is_behind = ratio.is_none_or(|ratio| ratio < 1.0);
        let why = match self.why.as_str() {
            "" if ratio.is_some() && is_behind => Some("not investigated."),
            "" => None,
            why => is_behind.then_some(why),
        };
        let line = Some(line.clone());
        Row { text, found: true, line, why: why.map(|why| (format!("{}, {what}", self.place), why.to_owned())) }
    }
}

/// The remarks, each once with all of its figures.
fn reasons(whys: impl Iterator<Item = (String, String)>) -> String {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for (figure, why) in whys {
        match said.iter_mut().find(|known| known.0 == why) {
            Some((_, figures)) => figures.push(figure),
            None => said.push((why, vec![figure])),
        }
    }
    said.iter().map(|(why, figures)| format!("- {}: {why}\n", figures.join("; "))).collect()
}

/// The mark of `spandrel-bench paper` for cases that its time limit cut off.
const CUT: &str = "not begun within";

impl Source {
    /// Whether every figure of a source has ours beside it, and half of its matrices were measured.
    fn state(&self, missing: usize, records: &Records) -> String {
        let lines = || records.papers(&self.name).into_iter().flat_map(|file| records.of(file));
        let measured = || lines().filter(|line| line.number("ms").is_some() && line.text("contender") == "spandrel");
        let mut open: Vec<String> = Vec::new();
        let mut matrices = String::new();
        if !self.matrices.is_empty() {
            let is_itself =
                |name: &&String| measured().any(|l| l.stands_in_for().is_none() && l.text("case") == **name);
            let is_stood_in = |name: &&String| measured().any(|l| l.stands_in_for() == Some(name));
            let (there, others): (Vec<&String>, Vec<&String>) = self.matrices.iter().partition(is_itself);
            let stood_in = others.iter().filter(|name| is_stood_in(name)).count();
            let all = self.matrices.len();
            matrices = format!(
                "{} of {all} matrices are measured, {stood_in} are replaced by stand-ins of similar size and structure",
                there.len()
            );
            let neither = others.len() - stood_in;
            if 2 * there.len() < all || neither > 0 {
                open.push(format!("{matrices}; at least half must be measured"));
            }
        }
        if missing > 0 {
            open.push(format!("{missing} of {} figures are missing", self.figure.len()));
        }
        let mut cut: Vec<(&str, &str)> = Vec::new();
        for line in lines().filter(|line| line.text("missing").contains(CUT)) {
            let case = (line.text("figure"), line.text("case"));
            let is_known = cut.contains(&case) || is_measured(lines(), case.0, case.1);
            if !is_known {
                cut.push(case);
            }
        }
        if !cut.is_empty() {
            open.push(format!("{} cases of `spandrel-bench paper {}` exceeded its time limit", cut.len(), self.name));
        }
        match open.is_empty() {
            true if matrices.is_empty() && self.figure.len() == 1 => {
                "Complete: its one figure has ours beside it".to_owned()
            }
            true if matrices.is_empty() => format!("Complete: all {} figures have ours beside them", self.figure.len()),
            true => format!("Complete: all {} figures have ours beside them. {matrices}", self.figure.len()),
            false => format!("Open: {}", open.join("; ")),
        }
    }

    fn heading(&self) -> String {
        format!("{}: {}", self.name, self.title)
    }

    fn section(&self, records: &Records) -> String {
        let rows: Vec<Row> = self.figure.iter().map(|figure| figure.row(&self.name, records)).collect();
        let missing = rows.iter().filter(|row| !row.found).count();
        let mut out = format!(
            "\n## {}\n\n{}. They measured on {}. **{}.**\n\n",
            self.heading(),
            self.by,
            self.machine,
            self.state(missing, records)
        );
        out += "| place | what | published | ours | ratio | our case |\n|---|---|---:|---:|---:|---|\n";
        rows.iter().for_each(|row| out += &row.text);
        if rows.iter().any(|row| row.why.is_some()) {
            out += "\nRemarks on figures in which ours is behind, or which have no ratio:\n\n";
            out += &reasons(rows.iter().filter_map(|row| row.why.clone()));
        }
        out += &source(rows.iter().filter_map(|row| row.line.as_ref()));
        out += &self.claims(records);
        out
    }

    /// The claims of `spandrel-bench paper`: lines with `published` and `here`, or `missing`.
    fn claims(&self, records: &Records) -> String {
        let files = records.papers(&self.name);
        if files.is_empty() {
            return format!("\nMissing: `record/h200-paper-{0}.jsonl`, from `spandrel-bench paper {0}`.\n", self.name);
        }
        files.into_iter().map(|file| self.claims_of(file, records.of(file))).collect()
    }

    fn claims_of(&self, file: &str, lines: &[Line]) -> String {
        let said = || lines.iter().filter(|line| line.text("op") == "paper");
        let Some(first) = said().next_back().or(lines.first()) else { return String::new() };
        let mut out = format!(
            "\nWhat `spandrel-bench paper {}` compares on {} (commit {}, {}, {file}):\n\n| figure | what | published | ours |\n|---|---|---:|---:|\n",
            self.name,
            first.machine(),
            first.header.commit,
            first.header.date
        );
        let was_cut = said().any(|line| line.text("missing").contains(CUT));
        // Cases of a figure that are missing for the same reason share a row.
        let mut missing: Vec<(&str, String, Vec<&str>)> = Vec::new();
        for line in said() {
            let what = [line.text("what"), line.text("case")].into_iter().find(|text| !text.is_empty());
            let (figure, what) = (line.text("figure"), what.unwrap_or_default());
            let Some(why) = line.fields.get("missing").map(in_words) else {
                let [published, mut here] = ["published", "here"].map(|field| in_words(&line.fields[field]));
                if line.fields["here"].is_null() && was_cut {
                    here = "past the time limit".to_owned();
                }
                out += &format!("| {figure} | {what} | {published} | {here} |\n");
                continue;
            };
            if is_measured(lines.iter(), figure, what) {
                continue;
            }
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
        out + &earlier(file, lines, first)
    }
}

/// Whether a case of a figure has a time. A line may belong to several figures.
fn is_measured<'a>(mut lines: impl Iterator<Item = &'a Line>, figure: &str, case: &str) -> bool {
    let is_of = |line: &Line| line.text("figure") == figure || line.text("figure").split(' ').any(|one| one == figure);
    lines.any(|line| line.text("case") == case && is_of(line) && line.number("ms").is_some())
}

/// Figures of earlier runs in a record that are missing in the last run.
fn earlier(file: &str, lines: &[Line], last: &Line) -> String {
    let mut figures: Vec<(&Line, &str, Vec<&str>)> = Vec::new();
    let ours = |line: &&Line| {
        line.header != last.header && line.number("ms").is_some() && line.text("contender") == "spandrel"
    };
    for line in lines.iter().filter(ours) {
        let (figure, case) = (line.text("figure"), line.text("case"));
        match figures.iter_mut().find(|known| known.0.header == line.header && known.1 == figure) {
            Some((_, _, cases)) if cases.contains(&case) => {}
            Some((_, _, cases)) => cases.push(case),
            None => figures.push((line, figure, vec![case])),
        }
    }
    let said: Vec<String> = figures
        .iter()
        .filter(|(_, figure, _)| !figure.is_empty())
        .map(|(line, figure, cases)| {
            format!("figure {figure} on {} cases (commit {})", cases.len(), line.header.commit)
        })
        .collect();
    if said.is_empty() {
        return String::new();
    }
    format!("\nAn earlier run in {file} has {}.\n", said.join(", "))
}

/// Up to this many missing cases are named one by one.
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
    /// The place of the error.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// The page: the sources in short, then one table per source.
    pub(crate) fn page(&self, records: &Records) -> Page {
        let mut out = String::from(
            "# The papers' figures beside ours\n\n\
             Five sources stand behind this software. This page has the figures that they publish, with ours beside them. Their machines are \
             years older, so a ratio above 1 says what a user gains today, not which program is better. A generated stand-in for a matrix \
             that we do not have is another system, so it has no ratio. [The guide](guide/papers.md) shows how to run the experiments, and \
             [words and machines](results/words.md) explains the names in the tables.\n\n| source | state |\n|---|---|\n",
        );
        for source in &self.source {
            let missing = source.figure.iter().filter(|figure| !figure.row(&source.name, records).found).count();
            out += &format!("| {} | {} |\n", source.heading(), source.state(missing, records));
        }
        self.source.iter().for_each(|source| out += &source.section(records));
        Page::new("docs/papers.md", &out)
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
        let row = whole_row(figure, records);
        (row.text, row.found)
    }

    fn whole_row(figure: &str, records: &Records) -> Row {
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
        assert_eq!(row, "| Table 1 | w | 0.500 GF/s | 2.00 GF/s | 4.00 | `a` |\n");
    }

    #[test]
    fn a_stand_in_is_named_and_has_no_ratio() {
        let records = records(&[
            r#"{"noun":"csr","case":"b","ms":3.0}"#,
            r#"{"noun":"csr","case":"poisson2d:40","stands_in_for":"HB/b07","ms":2.0}"#,
        ]);
        let of = |case: &str| {
            let ours =
                format!("ours = {{ record = [\"record/r.jsonl\"], line = {{ case = \"{case}\" }}, take = \"ms\" }}");
            row(&format!("value = 4\nunit = \"ms\"\nless = true\n{ours}\n"), &records)
        };
        assert!(of("b07").0.contains("| 2.00 ms | - | stand-in `poisson2d:40` |"), "{}", of("b07").0);
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
        assert!(row(&ours("mean"), &records).0.contains("| 1.50 | 3.00 | 2.00 | `a` to `b`, 2 cases |"));
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
        let (row, line) = {
            let row = whole_row(&format!("value = 4\nunit = \"ms\"\nless = true\n{ours}\n"), &records);
            (row.text, row.line.expect("a line"))
        };
        assert_eq!(line.header.commit, "def");
        assert!(row.ends_with("| 4.00 ms | 2.00 ms | 2.00 | `a` |\n"), "{row}");
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

    #[test]
    fn what_is_behind_says_why() {
        let records = records(&[
            r#"{"case":"a","contender":"spandrel","ms":2.0}"#,
            r#"{"case":"a","contender":"peer","ms":2.5}"#,
        ]);
        let of = |more: &str| {
            let ours = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"spandrel\" }, over = { contender = \"peer\" }";
            whole_row(&format!("{ours}{more}"), &records)
        };
        let said = |more: &str| reasons(of(more).why.into_iter());
        assert_eq!(said(" }\nvalue = 2.5\nwhy = \"bytes.\""), "- Table 1, w: bytes.\n");
        assert_eq!(said(" }\nvalue = 2.5"), "- Table 1, w: not investigated.\n");
        let whys = [("a", "x."), ("b", "y."), ("c", "x.")].map(|(figure, why)| (figure.to_owned(), why.to_owned()));
        assert_eq!(reasons(whys.into_iter()), "- a; c: x.\n- b: y.\n");
        assert_eq!(of(" }\nvalue = 1.25\nwhy = \"bytes.\"").why, None);
        // A share of time saved: 1 - 2 / 2.5.
        assert!(of(", share = true }\nvalue = 0.1").text.contains("| 0.100 | 0.200 | 2.00 | `a` |"));
        let lost = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"peer\" }, over = { contender = \"spandrel\" }, share = true }\nvalue = 0.1";
        assert!(whole_row(lost, &records).text.contains("| 0.100 | -0.250 | - | `a` |"));
    }

    #[test]
    fn a_ratio_is_of_one_run() {
        // A run of another commit, and one of the same.
        for newer in [HEADER.replace("abc", "def"), HEADER.to_owned()] {
            let mut records = Records::default();
            let lines = [
                HEADER,
                r#"{"case":"a","contender":"spandrel","ms":2.0}"#,
                r#"{"case":"a","contender":"peer","ms":4.0}"#,
                &newer,
                r#"{"case":"a","contender":"spandrel","ms":1.0}"#,
            ];
            records.add("record/r.jsonl", &lines.join("\n")).expect("lines");
            let over = "ours = { record = [\"record/r.jsonl\"], line = { contender = \"spandrel\" }, over = { contender = \"peer\" } }";
            let Row { text, line, .. } = whole_row(&format!("value = 1\n{over}\n"), &records);
            assert!(text.contains("| 2.00 | 2.00 | `a` |") && line.expect("a line").header.commit == "abc", "{text}");
        }
    }

    #[test]
    fn a_source_is_complete_with_half_of_its_matrices() {
        let text = "[[source]]\nname = \"s\"\ntitle = \"t\"\nby = \"b\"\nmachine = \"m\"\nmatrices = [\"m1\", \"m2\", \"m3\"]\nfigure = []\n";
        let source = &Published::parse(text).expect("a source").source[0];
        let state = |lines: &[&str], missing| {
            let mut records = Records::default();
            records.add("record/h200-paper-s.jsonl", &format!("{HEADER}\n{}", lines.join("\n"))).expect("lines");
            source.state(missing, &records)
        };
        let m1 = r#"{"case":"m1","contender":"spandrel","figure":"4 6","ms":1.0}"#;
        let m2 = r#"{"case":"m2","contender":"spandrel","figure":"6","ms":1.0}"#;
        let m3 = r#"{"case":"poisson2d:9","stands_in_for":"HB/m3","contender":"spandrel","figure":"6","ms":1.0}"#;
        let cut = r#"{"op":"paper","case":"m1","figure":"6","missing":"not begun within 1 minutes"}"#;
        let later = r#"{"op":"paper","case":"m1","figure":"7","missing":"not begun within 1 minutes"}"#;
        let complete = "Complete: all 0 figures have ours beside them. 2 of 3 matrices are measured, 1 are replaced by stand-ins of similar size and structure";
        assert_eq!(state(&[m1, m2, m3, cut], 0), complete, "what another run measured is not cut");
        assert_eq!(
            state(&[m1, m3], 0),
            "Open: 1 of 3 matrices are measured, 1 are replaced by stand-ins of similar size and structure; at least half must be measured"
        );
        assert_eq!(
            state(&[m1, m2, m3, later], 1),
            "Open: 1 of 0 figures are missing; 1 cases of `spandrel-bench paper s` exceeded its time limit"
        );
    }

    #[test]
    fn a_run_that_was_cut_says_so_and_a_cpus_figure_fills_in() {
        let text = "[[source]]\nname = \"s\"\ntitle = \"t\"\nby = \"b\"\nmachine = \"m\"\n[[source.figure]]\nplace = \"Figure 9\"\nwhat = \"w\"\nvalue = 1.5\nclaim = \"mean*\"\nwhy = \"bytes.\"\n";
        let source = &Published::parse(text).expect("a source").source[0];
        let mut records = Records::default();
        let gpu = [
            HEADER,
            r#"{"op":"paper","figure":"9","what":"mean over d","published":1.5,"here":null}"#,
            r#"{"op":"paper","figure":"9","case":"c","missing":"not begun within 1 minutes"}"#,
        ];
        records.add("record/h200-paper-s.jsonl", &gpu.join("\n")).expect("lines");
        let row = source.figure[0].row("s", &records);
        let of_case =
            "value = 1\nours = { record = [\"record/h200-paper-s.jsonl\"], line = { case = \"c\" }, take = \"ms\" }";
        assert!(
            whole_row(of_case, &records).text.contains("missing: record/h200-paper-s.jsonl reached its time limit")
        );
        let why = "missing: record/h200-paper-s.jsonl reached its time limit (not begun within 1 minutes)";
        assert!(!row.found && row.text.contains(why), "{}", row.text);
        assert!(source.claims(&records).contains("| 9 | mean over d | 1.50 | past the time limit |"));
        let cpu = [
            &HEADER.replace("0: GPU", "Xeon"),
            r#"{"op":"paper","figure":"9","what":"mean over d","published":1.5,"here":1.8}"#,
        ];
        records.add("record/cpu-paper-s.jsonl", &cpu.join("\n")).expect("lines");
        let row = source.figure[0].row("s", &records);
        assert!(row.text.contains("| 1.50 | 1.80 | 1.20 | mean over d, **on a CPU** |"), "{}", row.text);
    }

    #[test]
    fn figures_of_an_earlier_run_are_named() {
        let mut records = Records::default();
        let newer = HEADER.replace("abc", "def");
        let lines = [
            HEADER,
            r#"{"op":"cg","figure":"7","case":"c","contender":"spandrel","ms":1.0}"#,
            &newer,
            r#"{"op":"paper","figure":"7","case":"c","missing":"not begun within 1 minutes"}"#,
        ];
        records.add("record/h200-paper-s.jsonl", &lines.join("\n")).expect("lines");
        let text = "[[source]]\nname = \"s\"\ntitle = \"t\"\nby = \"b\"\nmachine = \"m\"\nfigure = []\n";
        let said = Published::parse(text).expect("a source").source[0].claims(&records);
        assert!(said.contains("An earlier run in record/h200-paper-s.jsonl has figure 7 on 1 cases (commit abc)."));
        assert!(!said.contains("| 7 | c |"), "{said}");
    }
}
