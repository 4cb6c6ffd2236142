//! The page in short: what was measured beside today's peers, which sources are closed, and where it is shown that answers are right.

use anyhow::Result;
use serde_json::Value;

use super::find::geometric;
use super::number::digits;
use super::published::Published;
use super::record::Records;
use super::{headline, solves, triangles};

/// The conformance suite's own record.
pub(crate) const VERIFY: &str = "record/h200-verify.jsonl";

/// The ratios of one kind of matrices in a table of the page.
pub(crate) struct Measure {
    pub(crate) heading: &'static str,
    pub(crate) beside: &'static str,
    pub(crate) what: &'static str,
    pub(crate) ratios: Vec<f64>,
}

pub(crate) fn kind(is_generated: bool) -> &'static str {
    if is_generated { "generated matrices" } else { "matrices from files" }
}

/// A link to a heading of the page.
fn link(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
    let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
    format!("[{heading}](#{anchor})")
}

fn row(measure: &Measure) -> Option<String> {
    let ratios = &measure.ratios;
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    Some(format!(
        "| {}, {} | {} | {} | {} | {} to {} |\n",
        link(measure.heading),
        measure.what,
        measure.beside,
        ratios.len(),
        digits(geometric(ratios)),
        digits(least),
        digits(most)
    ))
}

/// How the trials of the suite ended, from its record.
///
/// # Errors
/// A line that is not JSON.
fn trials(verify: &str) -> Result<String> {
    let lines: Vec<Value> = verify.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let Some(header) = lines.iter().find(|line| line["header"] == true) else {
        return Ok(format!("Missing: {VERIFY}."));
    };
    let ended = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
    let all = lines.iter().filter(|line| line["outcome"].is_string()).count();
    let (passed, skipped) = (ended("passed"), ended("skipped"));
    let word = |field: &str| header[field].as_str().unwrap_or_default();
    Ok(format!(
        "Of {all} trials of the [conformance suite]({}) {passed} passed on {} at commit {}, {skipped} did not apply and say why, {} failed.",
        format_args!("../{VERIFY}"),
        word("machine").split(',').next().unwrap_or_default(),
        word("commit"),
        all - passed - skipped
    ))
}

/// # Errors
/// A record of the suite that is not understood.
pub(crate) fn section(published: &Published, records: &Records, verify: &str) -> Result<String> {
    let mut out = String::from(
        "\n## In short\n\n\
         Beside what is used today, each side in its fastest form (the peer's time over ours):\n\n\
         | measured | beside | cases | geometric mean | least to most |\n|---|---|---:|---:|---:|\n",
    );
    let measures = [headline::measures(records), triangles::measures(records), solves::measures(records)];
    measures.iter().flatten().filter_map(row).for_each(|row| out += &row);
    out += "\nThe experiments of the five sources:\n\n| source | state |\n|---|---|\n";
    for (heading, state) in published.states(records) {
        out += &format!("| {} | {state} |\n", link(&heading));
    }
    out += &format!(
        "\nThat answers are right: {} Random systems against a direct solver ([soak](../record/soak.txt)), hostile input \
         ([fuzzing](../record/cpu-fuzz.txt)) and memory ([valgrind](../record/cpu-valgrind.txt), \
         [compute-sanitizer](../record/h200-sanitizer.txt)) have records of their own.\n",
        trials(verify)?
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_linked_as_pages_do() {
        assert_eq!(link("SpMV on a GPU"), "[SpMV on a GPU](#spmv-on-a-gpu)");
        assert_eq!(link("hmec: HMEC, ICCG"), "[hmec: HMEC, ICCG](#hmec-hmec-iccg)");
    }

    #[test]
    fn ratios_are_reduced_and_none_is_no_row() {
        let of = |ratios: Vec<f64>| row(&Measure { heading: "H", beside: "p", what: "w", ratios });
        assert_eq!(of(vec![4.0, 1.0]).as_deref(), Some("| [H](#h), w | p | 2 | 2.00 | 1.00 to 4.00 |\n"));
        assert_eq!(of(vec![]), None);
    }

    #[test]
    fn trials_that_failed_are_told() {
        let line = |outcome: &str| format!("{{\"name\":\"n\",\"outcome\":\"{outcome}\"}}\n");
        let header = "{\"header\":true,\"machine\":\"G, 1 GiB\",\"commit\":\"c\"}\n";
        let said = trials(&format!("{header}{}{}{}", line("passed"), line("skipped"), line("failed"))).expect("lines");
        assert!(said.starts_with("Of 3 trials") && said.contains("1 passed on G at commit c, 1 did not"), "{said}");
        assert!(said.ends_with("1 failed."), "{said}");
        assert!(trials("").expect("none").contains("Missing"));
        assert!(trials("spmv 12").is_err());
    }
}
