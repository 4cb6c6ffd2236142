//! The front page of the results: one table beside today's peers, and the evidence that answers are right.

use anyhow::Result;
use serde_json::Value;

use super::find::geometric;
use super::number::digits;
use super::page::{Page, anchor};
use super::record::Records;
use super::{headline, robust, solves, triangles};

/// The path of the front page.
pub(crate) const RESULTS: &str = "docs/results.md";

/// The conformance suite's own record.
pub(crate) const VERIFY: &str = "record/h200-verify.jsonl";

/// The ratios for one kind of matrices, and the table that contains them.
pub(crate) struct Measure {
    pub(crate) page: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) beside: &'static str,
    pub(crate) what: &'static str,
    pub(crate) ratios: Vec<f64>,
}

pub(crate) fn kind(is_generated: bool) -> &'static str {
    if is_generated { "generated" } else { "from files" }
}

/// A link from the front page to a heading of another page.
fn link(page: &str, heading: &str) -> String {
    format!("[{heading}]({}#{})", page.strip_prefix("docs/").unwrap_or(page), anchor(heading))
}

fn row(measure: &Measure) -> Option<String> {
    let ratios = &measure.ratios;
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    Some(format!(
        "| {} | {} | {} | {} | **{}** | {} to {} |\n",
        link(measure.page, measure.heading),
        measure.what,
        measure.beside,
        ratios.len(),
        digits(geometric(ratios)),
        digits(least),
        digits(most)
    ))
}

/// The outcomes of the suite's trials.
struct Trials {
    all: usize,
    passed: usize,
    skipped: usize,
    machine: String,
    commit: String,
}

impl Trials {
    /// # Errors
    /// A line that is not JSON.
    fn read(verify: &str) -> Result<Self> {
        let lines: Vec<Value> = verify.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let header = lines.iter().find(|line| line["header"] == true);
        let word = |field: &str| header.and_then(|header| header[field].as_str()).unwrap_or_default();
        let ended = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
        Ok(Self {
            all: lines.iter().filter(|line| line["outcome"].is_string()).count(),
            passed: ended("passed"),
            skipped: ended("skipped"),
            machine: word("machine").split(',').next().unwrap_or_default().to_owned(),
            commit: word("commit").to_owned(),
        })
    }

    fn sentence(&self) -> String {
        let Self { all, passed, skipped, machine, commit } = self;
        format!(
            "On an {machine} at commit {commit}, {passed} of {all} trials of the conformance suite passed, {skipped} did not apply, and {} \
             failed ({VERIFY}).",
            all - passed - skipped
        )
    }
}

/// # Errors
/// A record of the suite that cannot be understood.
pub(crate) fn page(records: &Records, verify: &str) -> Result<Page> {
    let mut out = String::from(
        "# Results\n\n\
         This page compares the speed of Spandrel with that of the libraries in use today. Each side runs in its fastest form, and every \
         answer is checked before it is timed. A ratio is the peer's time over ours, so a ratio above 1 means that Spandrel is faster.\n\n\
         | operation | matrices | compared with | cases | geometric mean | lowest to highest |\n|---|---|---|---:|---:|---:|\n",
    );
    let measures = [solves::measures(records), triangles::measures(records), headline::measures(records)];
    measures.iter().flatten().filter_map(row).for_each(|row| out += &row);
    let robust::Tally { systems, answered } = robust::tally(records);
    out += &format!(
        "\n![Time of whole solves on an H200](pictures/solve-time.svg)\n\n\
         The picture shows the largest grids, and the real matrices with the lowest, the median and the highest ratio.\n\n\
         ## Are the answers right?\n\n\
         - {}\n\
         - With no option at all, `Solver` solved, or correctly found to have no solution, {answered} of {systems} real matrices \
         ([table](results/whole-solves.md#real-matrices-with-no-option-on-a-cpu)).\n\
         - Random systems are compared with a direct solver (record/soak.txt), and hostile input is fuzzed (record/cpu-fuzz.txt).\n\
         - Memory is checked by valgrind (record/cpu-valgrind.txt) and compute-sanitizer (record/h200-sanitizer.txt).\n\n\
         ## More\n\n\
         - One page per operation: [whole solves](results/whole-solves.md), [triangular solves](results/triangular-solves.md), \
         [incomplete factorisations](results/factorisations.md), [iterations of CG](results/iterations.md), \
         [products and formats](results/products.md).\n\
         - [The papers' figures beside ours](papers.md), and [what is missed today](limits.md).\n\
         - [Words and machines](results/words.md): what the columns and kernels in the tables mean.\n\n\
         `cargo xtask results` writes these pages from `record/`, where each file names its machine, commit and command.\n",
        Trials::read(verify)?.sentence()
    );
    Ok(Page::new(RESULTS, &out))
}

/// Pages that quote a number of the front page, each with the text that it must contain.
///
/// # Errors
/// A record of the suite that cannot be understood.
pub(crate) fn quotes(records: &Records, verify: &str) -> Result<Vec<(&'static str, String)>> {
    let grids = solves::measures(records).first().map_or(vec![], |measure| measure.ratios.clone());
    let robust::Tally { systems, answered } = robust::tally(records);
    let answers = format!("{answered} of {systems} real matrices");
    let Trials { passed, .. } = Trials::read(verify)?;
    Ok(vec![
        ("README.md", format!("{} times as fast", digits(geometric(&grids)))),
        ("README.md", answers.clone()),
        ("README.md", format!("{passed} trials")),
        ("docs/guide/choose.md", answers),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_linked_as_pages_do() {
        assert_eq!(link("docs/results/a.md", "SpMV on a GPU"), "[SpMV on a GPU](results/a.md#spmv-on-a-gpu)");
        assert_eq!(link("docs/a.md", "hmec: HMEC, ICCG"), "[hmec: HMEC, ICCG](a.md#hmec-hmec-iccg)");
    }

    #[test]
    fn ratios_are_reduced_and_none_is_no_row() {
        let of = |ratios: Vec<f64>| row(&Measure { page: "docs/a.md", heading: "H", beside: "p", what: "w", ratios });
        assert_eq!(of(vec![4.0, 1.0]).as_deref(), Some("| [H](a.md#h) | w | p | 2 | **2.00** | 1.00 to 4.00 |\n"));
        assert_eq!(of(vec![]), None);
    }

    #[test]
    fn trials_that_failed_are_told() {
        let line = |outcome: &str| format!("{{\"name\":\"n\",\"outcome\":\"{outcome}\"}}\n");
        let header = "{\"header\":true,\"machine\":\"G, 1 GiB\",\"commit\":\"c\"}\n";
        let trials = format!("{header}{}{}{}", line("passed"), line("skipped"), line("failed"));
        let said = Trials::read(&trials).expect("lines").sentence();
        assert!(said.starts_with("On an G at commit c, 1 of 3 trials"), "{said}");
        assert!(said.contains("1 did not apply, and 1 failed"), "{said}");
        let quoted = quotes(&Records::default(), &format!("{header}{}", line("passed"))).expect("lines");
        assert!(quoted.contains(&("README.md", "1 trials".to_owned())), "{quoted:?}");
        assert!(Trials::read("spmv 12").is_err());
    }
}
