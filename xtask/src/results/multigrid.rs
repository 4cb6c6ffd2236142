//! Time to solution by CG with multigrid: on a GPU beside the figures of another program, on a CPU beside other
//! programs in the same run.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::number::digits;
use super::page::source;
use super::record::{Line, Records};

const FILES: [&str; 2] = ["record/h200-multigrid.jsonl", "record/h100-multigrid.jsonl"];
const OF_CPU: &str = "record/cpu-multigrid.jsonl";

/// What another program takes for a case: an entry `multigrid` of docs/published.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peer {
    /// As in the record, without the order of its rows and the near-null space.
    case: String,
    program: String,
    setup_ms: f64,
    solve_ms: f64,
    /// The configuration, and how it was measured.
    how: String,
}

/// The table.
pub(crate) fn section(records: &Records, peers: &[Peer]) -> String {
    let mut out = String::from(
        "\n## Multigrid on a GPU: set-up and solve\n\nA x = 1 to a relative residual of 1e-8 by CG, with a matrix that lies on the device in CSR. Times are \
         in milliseconds: the best of several rounds, and for new values on the same pattern the median from the second time on. The first call also loads the kernels. \
         `auto` is a `Solver` for a matrix and vectors on the host: its set-up includes looking at the matrix and bringing it to the device, its solve b and x. \
         *B* are the bytes of all matrices per unknown. The peer's figures were measured apart, on an H200.\n",
    );
    // A later run replaces an earlier one.
    let mut found: BTreeMap<(usize, &str, &str, String), &Line> = BTreeMap::new();
    for line in lines(records, &FILES) {
        let n = line.number("n").unwrap_or_default() as usize;
        found.insert((n, line.text("case"), line.text("precond"), line.machine()), line);
    }
    if found.is_empty() {
        return out + &format!("\nMissing: no such lines in {}.\n", FILES.join(" and "));
    }
    out += "\n| problem | unknowns | preconditioner | on | iterations | set-up | solve | sum | new values | first call | complexity | B | peer: set-up + solve |\n\
            |---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|\n";
    for ((n, case, precond, machine), line) in &found {
        let plain = case.trim_start_matches("shuffled ").split(',').next().unwrap_or_default();
        let number = |key: &str| line.number(key).map_or("-".to_owned(), digits);
        let beside: Vec<String> = peers
            .iter()
            .filter(|peer| peer.case == plain || peer.case == *case)
            .map(|peer| {
                format!("{} {} + {} ({})", peer.program, digits(peer.setup_ms), digits(peer.solve_ms), peer.how)
            })
            .collect();
        let beside = if beside.is_empty() { "-".to_owned() } else { beside.join("; ") };
        out += &format!(
            "| {case} | {n} | `{precond}` | {machine} | {} | {} | {} | {} | {} | {} | {} | {} | {beside} |\n",
            line.number("iterations").unwrap_or_default(),
            number("setup_ms"),
            number("solve_ms"),
            number("sum_ms"),
            number("update_ms"),
            number("first_ms"),
            number("operator_complexity"),
            line.number("bytes_per_unknown").map_or("-".to_owned(), |bytes| format!("{bytes:.0}")),
        );
    }
    out + &source(found.values().copied()) + &of_cpu(records)
}

/// The lines of multigrid in these files.
fn lines<'r>(records: &'r Records, files: &'r [&str]) -> impl Iterator<Item = &'r Line> {
    files.iter().flat_map(|file| records.of(file)).filter(|line| line.text("op") == "multigrid")
}

/// The table of a CPU: for each case every contender, the soonest first.
fn of_cpu(records: &Records) -> String {
    let mut cases: BTreeMap<(usize, &str), BTreeMap<(&str, &str), &Line>> = BTreeMap::new();
    for line in lines(records, &[OF_CPU]) {
        let n = line.number("n").unwrap_or_default() as usize;
        let of_case = cases.entry((n, line.text("case"))).or_default();
        of_case.insert((line.text("contender"), line.text("precond")), line);
    }
    let mut out = String::from(
        "\n## Multigrid on a CPU: set-up and solve\n\nThe same solves on the two threads of one machine, in milliseconds. hypre is BoomerAMG with HMIS, on one \
         or two processes; gamg is that of PETSc on two. gamg, PyAMG and amgcl-sa are smoothed aggregation (-3: three unknowns per point), amgcl-rs classical coarsening, amgcl-bicgstab-ilu0 one level. Each group of lines ran in the same hour. *sooner* is \
         this line's sum over that of Spandrel's `auto`, or of its best if `auto` was not timed.\n",
    );
    if cases.is_empty() {
        return out + &format!("\nMissing: no such lines in {OF_CPU}.\n");
    }
    out += "\n| problem | unknowns | by | iterations | set-up | solve | sum | sooner |\n|---|---:|---|---:|---:|---:|---:|---:|\n";
    for ((n, case), contenders) in &cases {
        let sum = |line: &Line| line.number("sum_ms").unwrap_or(f64::INFINITY);
        let mut ordered: Vec<_> = contenders.iter().collect();
        ordered.sort_by(|a, b| sum(a.1).total_cmp(&sum(b.1)));
        let own = contenders.get(&("spandrel", "auto")).copied();
        let own =
            own.or_else(|| ordered.iter().find(|((contender, _), _)| *contender == "spandrel").map(|(_, line)| **line));
        let own = own.map(sum);
        for ((contender, precond), line) in ordered {
            let number = |key: &str| line.number(key).map_or("-".to_owned(), digits);
            let is_own = *contender == "spandrel";
            let taken = Some(line.text("by")).filter(|by| !by.is_empty()).map_or(String::new(), |by| format!(": {by}"));
            let by = if is_own { format!("Spandrel, `{precond}`{taken}") } else { (*contender).to_owned() };
            let sooner = own.filter(|_| !is_own).map_or("-".to_owned(), |own| digits(sum(line) / own));
            out += &format!(
                "| {case} | {n} | {by} | {} | {} | {} | {} | {sooner} |\n",
                line.number("iterations").unwrap_or_default(),
                number("setup_ms"),
                number("solve_ms"),
                number("sum_ms"),
            );
        }
    }
    out + &source(cases.values().flat_map(|case| case.values().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_line_counts_and_a_peer_stands_beside_its_case() {
        let line = |case: &str, setup: f64| {
            format!(
                "{{\"op\":\"multigrid\",\"case\":\"{case}\",\"precond\":\"amg\",\"n\":8,\"iterations\":19,\"setup_ms\":{setup:?},\"solve_ms\":2.0,\"sum_ms\":7.0,\"update_ms\":1.0,\"first_ms\":9.0,\"operator_complexity\":1.5,\"bytes_per_unknown\":221.7}}"
            )
        };
        let header = "{\"header\":true,\"machine\":\"M\",\"commit\":\"c\"}".to_owned();
        let lines = [header, line("a:2", 99.0), line("a:2", 5.0), line("shuffled a:2", 6.0), line("b:2", 7.0)];
        let mut records = Records::default();
        records.add(FILES[0], &lines.join("\n")).expect("lines");
        let peer = "{\"op\":\"multigrid\",\"case\":\"a:2\",\"contender\":\"hypre\",\"precond\":\"h\",\"n\":8,\"iterations\":9,\"setup_ms\":6.0,\"solve_ms\":8.0,\"sum_ms\":14.0}";
        let own = line("a:2", 5.0).replace("\"op\"", "\"contender\":\"spandrel\",\"op\"");
        let auto = own.replace("\"precond\":\"amg\"", "\"precond\":\"auto\",\"by\":\"cg, amg\"").replace("7.0", "28.0");
        records.add(OF_CPU, &[peer.to_owned(), own, auto].join("\n")).expect("lines");
        let peer = Peer { case: "a:2".into(), program: "P".into(), setup_ms: 3.0, solve_ms: 4.0, how: "h".into() };
        let said = section(&records, &[peer]);
        let row = "| `amg` | M | 19 | 5.00 | 2.00 | 7.00 | 1.00 | 9.00 | 1.50 | 222 | P 3.00 + 4.00 (h) |";
        assert!(said.contains(&format!("| a:2 | 8 {row}")), "{said}");
        assert!(said.contains("| shuffled a:2 | 8 | `amg` | M | 19 | 6.00 |"), "{said}");
        assert!(
            said.contains("| b:2 | 8 | `amg` | M | 19 | 7.00 | 2.00 | 7.00 | 1.00 | 9.00 | 1.50 | 222 | - |"),
            "{said}"
        );
        let of_cpu = [
            "| a:2 | 8 | Spandrel, `amg` | 19 | 5.00 | 2.00 | 7.00 | - |",
            "| a:2 | 8 | hypre | 9 | 6.00 | 8.00 | 14.0 | 0.500 |",
            "| a:2 | 8 | Spandrel, `auto`: cg, amg | 19 | 5.00 | 2.00 | 28.0 | - |",
        ];
        assert!(said.contains(&of_cpu.join("\n")), "{said}");
        assert!(section(&Records::default(), &[]).contains("Missing: no such lines in record/h200-multigrid.jsonl"));
        assert!(super::of_cpu(&Records::default()).contains("Missing: no such lines in record/cpu-multigrid.jsonl"));
    }
}
