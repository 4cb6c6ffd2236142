//! The number of real systems that end in an answer: with default settings, with a named choice, and with other
//! programs.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::find::geometric;
use super::number::digits;
use super::page::source;
use super::record::{Line, Records};

const FILE: &str = "record/cpu-robust.jsonl";
/// Contenders with their names in the record and in the table, in the order of the table.
const CONTENDERS: [(&str, &str); 8] = [
    ("auto", "`Solver::new`, no option"),
    ("direct", "Spandrel, `--solver direct`"),
    ("cg", "Spandrel, `--solver cg`"),
    ("bicgstab", "Spandrel, `--solver bicgstab`"),
    ("gmres", "Spandrel, `--solver gmres`"),
    ("faer", "faer's LU"),
    ("scipy-spsolve", "SciPy, `spsolve` (SuperLU)"),
    ("scipy-gmres-spilu", "SciPy, `gmres` with `spilu`"),
];

/// A published count of the systems that another program solves: an entry `answered` of docs/published.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answered {
    program: String,
    /// The document with the count, and its matrices.
    place: String,
    answers: usize,
    of: usize,
    /// What counts as solved there.
    goal: String,
}

/// Systems of a contender, and those that ended in an answer.
pub(crate) struct Tally {
    pub(crate) systems: usize,
    pub(crate) answered: usize,
}

/// The result of `Solver::new` without an option.
pub(crate) fn tally(records: &Records) -> Tally {
    let found = last(records.of(FILE));
    let auto: Vec<&Line> = found.get("auto").into_iter().flat_map(|lines| lines.values().copied()).collect();
    Tally { systems: auto.len(), answered: auto.iter().filter(|line| is_answer(line)).count() }
}

/// The lines of each contender by case. A later run replaces an earlier one.
fn last(lines: &[Line]) -> BTreeMap<&str, BTreeMap<&str, &Line>> {
    let mut found: BTreeMap<&str, BTreeMap<&str, &Line>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.text("op") == "robust") {
        found.entry(line.text("contender")).or_default().insert(line.text("case"), line);
    }
    found
}

fn is_answer(line: &Line) -> bool {
    line.fields["answer"].as_bool() == Some(true)
}

fn is_converged(line: &Line) -> bool {
    line.number("true_residual").is_some_and(|residual| residual <= 1e-8)
}

/// Whether times may be compared. A record may shorten the machine's name of another one.
fn is_same_machine(a: &Line, b: &Line) -> bool {
    let (a, b) = (a.machine(), b.machine());
    a.starts_with(&b) || b.starts_with(&a)
}

/// The table.
pub(crate) fn section(records: &Records, published: &[Answered]) -> String {
    let mut out = String::from(
        "\n## Real matrices with no option on a CPU\n\nA x = 1 for every square matrix of the set with at most 60,000 rows. An *answer* is a \
         relative residual of 1e-8, a backward error of the size of rounding, or the true statement that the matrix is singular or the system has \
         no solution. A named iterative method stops after 2000 iterations. The ratio is a contender's time over that of `Solver::new`: the \
         geometric mean over the systems that both solve to 1e-8. Above 1 means that `Solver::new` is faster. A published count refers to the \
         matrices of that program.\n",
    );
    let found = last(records.of(FILE));
    let Some(auto) = found.get("auto") else { return out + &format!("\nMissing: no such lines in {FILE}.\n") };
    out += "\n| contender | matrices | answers | to 1e-8 | longest, s | ratio |\n|---|---:|---:|---:|---:|---:|\n";
    for (contender, name) in CONTENDERS {
        let Some(lines) = found.get(contender) else { continue };
        let count = |holds: fn(&Line) -> bool| lines.values().filter(|line| holds(line)).count();
        let longest = lines.values().filter_map(|line| line.number("ms")).fold(0.0, f64::max) / 1e3;
        let ratio = |(case, line): (&&str, &&Line)| {
            let own = auto.get(case)?;
            let is_fair = is_converged(line) && is_converged(own) && is_same_machine(line, own);
            is_fair.then_some(())?;
            Some(line.number("ms")? / own.number("ms")?)
        };
        let ratios: Vec<f64> = lines.iter().filter_map(ratio).collect();
        let ratio = if contender == "auto" || ratios.is_empty() { "-".to_owned() } else { digits(geometric(&ratios)) };
        out += &format!(
            "| {name} | {} | {} | {} | {} | {ratio} |\n",
            lines.len(),
            count(is_answer),
            count(is_converged),
            digits(longest)
        );
    }
    for Answered { program, place, answers, of, goal } in published {
        out += &format!("| {program}; published: {goal}, {place} | {of} | {answers} | - | - | - |\n");
    }
    out + &source(found.values().flat_map(|lines| lines.values().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_and_times_compared_where_both_solve() {
        let line = |case: &str, contender: &str, answer: bool, residual: f64, ms: f64| {
            format!(
                "{{\"op\":\"robust\",\"case\":\"{case}\",\"contender\":\"{contender}\",\"answer\":{answer},\"true_residual\":{residual:?},\"ms\":{ms:?}}}"
            )
        };
        let header = |machine: &str| format!("{{\"header\":true,\"machine\":\"{machine}\",\"commit\":\"c\"}}");
        let lines = [
            header("AMD EPYC (family 25), 2 threads"),
            line("a", "auto", false, 1.0, 99.0),
            header("AMD EPYC (family 25), 2 threads"),
            line("a", "auto", true, 1e-12, 2.0),
            line("b", "auto", true, 1e-3, 1500.0),
            line("a", "direct", true, 1e-12, 4.0),
            line("b", "direct", false, 1e-3, 1.0),
            header("AMD EPYC 9B45, 2 threads, SciPy 1"),
            line("a", "scipy-spsolve", true, 1e-12, 16.0),
            header("Another, 2 threads"),
            line("a", "faer", true, 1e-12, 16.0),
        ];
        let mut records = Records::default();
        records.add(FILE, &lines.join("\n")).expect("lines");
        let published =
            [Answered { program: "p 1.0".into(), place: "README".into(), answers: 3, of: 9, goal: "1e-6".into() }];
        let said = section(&records, &published);
        assert!(said.contains("| `Solver::new`, no option | 2 | 2 | 1 | 1.50 | - |"), "{said}");
        assert!(said.contains("| Spandrel, `--solver direct` | 2 | 1 | 1 | 0.00400 | 2.00 |"), "{said}");
        assert!(said.contains("| SciPy, `spsolve` (SuperLU) | 1 | 1 | 1 | 0.0160 | 8.00 |"), "{said}");
        assert!(said.contains("| faer's LU | 1 | 1 | 1 | 0.0160 | - |"), "{said}");
        assert!(said.contains("| p 1.0; published: 1e-6, README | 9 | 3 | - | - | - |"), "{said}");
        assert_eq!((tally(&records).systems, tally(&records).answered), (2, 2));
        assert!(section(&Records::default(), &[]).contains("Missing: no such lines in record/cpu-robust.jsonl"));
    }
}
