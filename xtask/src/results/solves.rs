//! Whole solves, the HPCG problem and factorisations, each beside the peers.

use super::brief::{Measure, kind};
use super::find::geometric;
use super::number::digits;
use super::record::{Line, Records};

const SOLVES: &str = "record/h200-solve.jsonl";
const CPU_SOLVES: &str = "record/cpu-solve.jsonl";
const HPCG: &str = "record/h200-hpcg.jsonl";
const FACTORS: &str = "record/h200-factorize.jsonl";

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), digits)
}

fn is_ours(line: &Line) -> bool {
    line.text("contender") == "spandrel"
}

fn is_solved(line: &Line) -> bool {
    line.text("status") == "converged"
}

/// One case and method: our solve in f64, and all lines of the run.
struct Solve<'a> {
    ours: &'a Line,
    others: Vec<&'a Line>,
}

impl<'a> Solve<'a> {
    fn precision(&self, precision: &str) -> Option<&'a Line> {
        self.others.iter().copied().find(|line| is_ours(line) && line.text("precision") == precision)
    }
    /// Those of the peer that converged.
    fn peers(&self) -> impl Iterator<Item = &'a Line> + '_ {
        self.others.iter().copied().filter(|line| !is_ours(line) && is_solved(line))
    }
    fn fastest_peer(&self) -> Option<&'a Line> {
        self.peers().min_by(|a, b| a.number("ms").unwrap_or(f64::MAX).total_cmp(&b.number("ms").unwrap_or(f64::MAX)))
    }
}

/// The solves of a record, each of the last run that has it.
fn solves(lines: &[Line]) -> Vec<Solve<'_>> {
    let key = |line: &Line| ["case", "noun", "precond"].map(|field| line.text(field).to_owned());
    let mut found: Vec<Solve<'_>> = Vec::new();
    for line in lines.iter().filter(|line| line.text("op") == "solve" && !line.text("status").is_empty()) {
        let is_known = |solve: &Solve<'_>| key(solve.ours) == key(line);
        if is_ours(line) && line.text("precision") == "f64" {
            let others = lines.iter().filter(|other| key(other) == key(line) && other.header == line.header);
            let solve = Solve { ours: line, others: others.collect() };
            match found.iter_mut().find(|known| is_known(known)) {
                Some(known) => *known = solve,
                None => found.push(solve),
            }
        }
    }
    found
}

/// Geometric mean and least of a field of our lines, and how many have it.
fn mean(solves: &[&Solve<'_>], field: &str) -> String {
    let with = solves.iter().filter_map(|solve| Some((solve.ours.number(field)?, solve.ours.text("case"))));
    let values: Vec<(f64, &str)> = with.collect();
    let Some((least, case)) = values.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { return "-".to_owned() };
    let ratios: Vec<f64> = values.iter().map(|(ratio, _)| *ratio).collect();
    format!(
        "{} in geometric mean over {} solves, {} at least (`{case}`)",
        digits(geometric(&ratios)),
        ratios.len(),
        digits(*least)
    )
}

fn names(of: &[&Solve<'_>]) -> String {
    let named: Vec<String> = of.iter().map(|solve| format!("`{}`", solve.ours.text("case"))).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

fn gpu(records: &Records) -> String {
    let mut out = String::from(
        "\n### Whole solves on a GPU\n\nA x = b to a relative residual of 1e-8 with incomplete factors, by the same algorithm from cuSPARSE and cuBLAS (SpMV, SpSV, csrilu02, \
         csric02), each in its fastest form. Set-up is the copy to the GPU, factors, analysis and conversion. \"With set-up\" is both together, against the \
         peer's best total. Mixed has factors in f32 in an f64 iteration, refined is iterative refinement around f32 solves: both are ratios to our own \
         solve in f64, at the same final residual in f64.\n",
    );
    let all = solves(records.of(SOLVES));
    if all.is_empty() {
        return out + &format!("\nMissing: no such lines in {SOLVES}.\n");
    }
    let (generated, files): (Vec<&Solve<'_>>, Vec<&Solve<'_>>) =
        all.iter().partition(|solve| solve.ours.text("case").contains(':'));
    for (what, of) in [("Generated matrices", &generated), ("Matrices from files", &files)] {
        out +=
            &format!("\n{what}: {}; with set-up {}.\n", mean(of, "ratio_to_best_peer"), mean(of, "ratio_with_setup"));
    }
    let alone = |ours: bool| -> Vec<&Solve<'_>> {
        let one_side = |solve: &&&Solve<'_>| is_solved(solve.ours) == ours && solve.fastest_peer().is_some() != ours;
        files.iter().filter(one_side).copied().collect()
    };
    out += &format!(
        "\nOf {} solves of matrices from files, {} converged here within the time that a case has in the bench; solved here and not by the peer: {}; by the peer and not here: {}. \
         The others have a pivot that is missing, are no case for the method, or take longer.\n",
        files.len(),
        files.iter().filter(|solve| is_solved(solve.ours)).count(),
        names(&alone(true)),
        names(&alone(false))
    );
    out += "\n| case | solver | ours | iterations | ms | set-up | peer | iterations | ms | set-up | ratio | with set-up | mixed | refined | record, machine | commit |\n\
            |---|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n";
    for solve in generated.iter().chain(&files) {
        let Some(peer) = solve.fastest_peer().filter(|_| is_solved(solve.ours)) else { continue };
        let ours = solve.ours;
        let of_f64 = |precision| number(solve.precision(precision).and_then(|line| line.number("ratio_to_f64")));
        out += &format!(
            "| `{}` | {}, {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {SOLVES}, {} | {} |\n",
            ours.text("case"),
            ours.text("noun"),
            ours.text("precond"),
            ours.text("kernel"),
            ours.fields["iterations"],
            number(ours.number("ms")),
            number(ours.number("setup_ms")),
            peer.text("kernel"),
            peer.fields["iterations"],
            number(peer.number("ms")),
            number(peer.number("setup_ms")),
            number(ours.number("ratio_to_best_peer")),
            number(ours.number("ratio_with_setup")),
            of_f64("mixed"),
            of_f64("refined"),
            ours.machine(),
            ours.header.commit
        );
    }
    out
}

/// The ratios of whole solves on a GPU, and of computing factors there.
pub(crate) fn measures(records: &Records) -> Vec<Measure> {
    let all = solves(records.of(SOLVES));
    let of = |generated, what, field: &str| {
        let of_kind = all.iter().filter(|solve| solve.ours.text("case").contains(':') == generated);
        let ratios = of_kind.filter_map(|solve| solve.ours.number(field)).collect();
        Measure { heading: "Whole solves on a GPU", beside: "cuSPARSE and cuBLAS", what, ratios }
    };
    let lines = records.of(FACTORS);
    let of_factors = |generated, what| {
        let of_kind = lines.iter().filter(|line| is_ours(line) && line.text("case").contains(':') == generated);
        // Of files only what both factor alike: with IC(0) ours tries shifts, theirs goes on from what is no pivot.
        let alike = of_kind.filter(|line| generated || line.text("noun") == "ilu0");
        let ratios = alike.filter_map(|line| {
            let [theirs, host] = ["cusparse", "host"].map(|contender| beside(lines, line, contender));
            let ours = line.number("numeric_ms")?;
            let sooner = host
                .filter(|_| !generated)
                .and_then(|host| host.number("numeric_ms"))
                .map_or(ours, |host| ours.min(host));
            Some(theirs?.number("numeric_ms")? / sooner)
        });
        Measure { heading: "Incomplete factors computed on a GPU", beside: "cuSPARSE", what, ratios: ratios.collect() }
    };
    vec![
        of(true, kind(true), "ratio_to_best_peer"),
        of(false, kind(false), "ratio_to_best_peer"),
        of(true, "generated matrices, with set-up", "ratio_with_setup"),
        of(false, "matrices from files, with set-up", "ratio_with_setup"),
        of_factors(true, "generated matrices, new values"),
        of_factors(false, "matrices from files, ILU(0), new values, the sooner of the device and the host"),
    ]
}

/// How many of the matrices of a class converge, by preconditioner.
fn tallies(lines: &[Line]) -> String {
    let of: Vec<&Line> = lines.iter().filter(|line| line.text("op") == "solve-tally").collect();
    let Some(last) = of.last() else { return String::new() };
    let mut out = format!(
        "\nHow many of the matrices of `--matrices` reach 1e-8 within the time that a case has ({CPU_SOLVES}, {}, commit {}):\n\n\
         | class | matrices | with incomplete factors | with Jacobi | by factorisation | pivots shifted in |\n|---|---:|---:|---:|---:|---:|\n",
        last.machine(),
        last.header.commit
    );
    for line in of.iter().filter(|line| line.header == last.header) {
        let field = |name: &str| line.fields[name].as_u64().map_or("-".to_owned(), |count| count.to_string());
        out += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            line.text("class"),
            field("matrices"),
            field("incomplete"),
            field("jacobi"),
            field("direct"),
            field("shifted")
        );
    }
    out
}

fn hpcg(records: &Records) -> String {
    let mut out = String::from(
        "\n### HPCG's problem on a GPU\n\nCG with a multigrid cycle of 4 grids and symmetric Gauss-Seidel in the natural order, 27 points. GF/s by HPCG's own count of operations: of the timed \
         iterations, and of all with set-up and optimisation as HPCG rates them. Iterations are those that reach the residual that the reference reaches, and the reference's.\n",
    );
    let lines = records.of(HPCG);
    let ours: Vec<&Line> = lines.iter().filter(|line| line.text("op") == "hpcg" && is_ours(line)).collect();
    if ours.is_empty() {
        return out + &format!("\nMissing: no such lines in {HPCG}.\n");
    }
    out += "\n| case | GF/s | rated | ms an iteration | GB/s | iterations | of the reference | valid | record, machine | commit |\n\
            |---|---:|---:|---:|---:|---:|---:|---|---|---|\n";
    for line in ours {
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {HPCG}, {} | {} |\n",
            line.text("case"),
            number(line.number("gflops")),
            number(line.number("gflops_rated")),
            number(line.number("ms")),
            number(line.number("gbs")),
            line.fields["iterations_needed"],
            line.fields["reference_iterations"],
            if line.fields["valid"] == true { "yes" } else { "no" },
            line.machine(),
            line.header.commit
        );
    }
    out
}

/// What another has for the factors of a line of ours.
fn beside<'a>(lines: &'a [Line], line: &Line, contender: &str) -> Option<&'a Line> {
    lines.iter().find(|other| {
        other.header == line.header
            && other.text("contender") == contender
            && ["case", "noun"].iter().all(|field| other.text(field) == line.text(field))
    })
}

fn factors(records: &Records) -> String {
    let mut out = String::from(
        "\n### Incomplete factors computed on a GPU\n\n\"Analysis\" is what a pattern needs once, \"numeric\" what each new set of values needs; ms. Ours has the bits of the host's \
         factorisation, which is beside it and which a solve takes where rows mostly wait for each other \
         ([why](adr/0045-who-waits-is-factored-by-the-host.md)). Ratios are cuSPARSE's time over the device's. With IC(0) ours tries shifts where a pivot is \
         not positive, all of which count; cuSPARSE's goes on from there.\n",
    );
    let lines = records.of(FACTORS);
    let ours: Vec<&Line> = lines.iter().filter(|line| is_ours(line) && line.number("numeric_ms").is_some()).collect();
    if ours.is_empty() {
        return out + &format!("\nMissing: no such lines in {FACTORS}.\n");
    }
    out += "\n| case | factors | numeric | analysis | cuSPARSE numeric | analysis | host numeric | ratio, numeric | ratio, both | record, machine | commit |\n\
            |---|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n";
    for line in ours {
        let of = |line: Option<&Line>, field: &str| line.and_then(|line| line.number(field));
        let both = |line: Option<&Line>| Some(of(line, "numeric_ms")? + of(line, "analyze_ms")?);
        let (theirs, host) = (beside(lines, line, "cusparse"), beside(lines, line, "host"));
        let ratio =
            |theirs: Option<f64>, ours: Option<f64>| number(theirs.zip(ours).map(|(theirs, ours)| theirs / ours));
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {FACTORS}, {} | {} |\n",
            line.text("case"),
            line.text("noun"),
            number(of(Some(line), "numeric_ms")),
            number(of(Some(line), "analyze_ms")),
            number(of(theirs, "numeric_ms")),
            number(of(theirs, "analyze_ms")),
            number(of(host, "numeric_ms")),
            ratio(of(theirs, "numeric_ms"), of(Some(line), "numeric_ms")),
            ratio(both(theirs), both(Some(line))),
            line.machine(),
            line.header.commit
        );
    }
    out
}

/// All tables but that of an iteration on a CPU, which is one of products and iterations.
pub(crate) fn section(records: &Records) -> String {
    gpu(records) + &hpcg(records) + &factors(records)
}

/// What converges on a CPU.
pub(crate) fn converging(records: &Records) -> String {
    tallies(records.of(CPU_SOLVES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(case: &str, contender: &str, more: &str) -> String {
        format!(
            "{{\"op\":\"solve\",\"case\":\"{case}\",\"contender\":\"{contender}\",\"noun\":\"cg\",\"precond\":\"ic0\",\"precision\":\"f64\",\"kernel\":\"k\",\"iterations\":7,{more}}}"
        )
    }

    #[test]
    fn solves_stand_beside_the_peers_fastest() {
        let solved = |ms: f64| format!("\"status\":\"converged\",\"ms\":{ms:?},\"setup_ms\":2.0");
        let lines = [
            "{\"header\":true,\"machine\":\"m\",\"commit\":\"c\"}".to_owned(),
            solve("d3n7:8", "spandrel", &(solved(4.0) + ",\"ratio_to_best_peer\":2.0,\"ratio_with_setup\":1.5")),
            solve("d3n7:8", "spandrel", &(solved(3.0) + ",\"ratio_to_f64\":1.33"))
                .replace("f64\",\"kernel", "mixed\",\"kernel"),
            solve("d3n7:8", "cusparse+cublas", &solved(9.0)),
            solve("d3n7:8", "cusparse+cublas", &solved(8.0)),
            solve("b15", "spandrel", &(solved(4.0) + ",\"ratio_to_best_peer\":0.5,\"ratio_with_setup\":0.4")),
            solve("b15", "cusparse+cublas", &solved(2.0)),
            solve("ex10", "spandrel", &solved(4.0)),
            solve("ex10", "cusparse+cublas", "\"status\":\"interrupted\",\"ms\":9.0"),
            solve("d3n7:8", "spandrel", "\"ms\":null").replace("\"case\":\"d3n7:8\"", "\"case\":\"geometric mean\""),
        ];
        let mut records = Records::default();
        records.add(SOLVES, &lines.join("\n")).expect("lines");
        let said = gpu(&records);
        let row = "| `d3n7:8` | cg, ic0 | k | 7 | 4.00 | 2.00 | k | 7 | 8.00 | 2.00 | 2.00 | 1.50 | 1.33 | - |";
        assert!(said.contains(row), "{said}");
        assert!(
            said.contains("Matrices from files: 0.500 in geometric mean over 1 solves, 0.500 at least (`b15`)"),
            "{said}"
        );
        assert!(
            said.contains("Of 2 solves of matrices from files, 2 converged")
                && said.contains("not by the peer: `ex10`;")
        );
        assert!(section(&Records::default()).contains("Missing: no such lines in record/h200-hpcg.jsonl"));
    }

    #[test]
    fn factors_stand_beside_the_peers_and_the_hosts() {
        let line = |contender: &str, analyze: f64, numeric: f64| {
            format!(
                "{{\"op\":\"ic0\",\"noun\":\"ic0\",\"case\":\"a\",\"contender\":\"{contender}\",\"analyze_ms\":{analyze:?},\"numeric_ms\":{numeric:?}}}"
            )
        };
        let lines = [line("host", 1.0, 9.0), line("spandrel", 3.0, 1.0), line("cusparse", 5.0, 3.0)];
        let mut records = Records::default();
        records.add(FACTORS, &lines.join("\n")).expect("lines");
        let said = factors(&records);
        assert!(said.contains("| `a` | ic0 | 1.00 | 3.00 | 3.00 | 5.00 | 9.00 | 3.00 | 2.00 |"), "{said}");
    }

    #[test]
    fn what_converges_is_counted_by_class() {
        let mut records = Records::default();
        let line = "{\"op\":\"solve-tally\",\"class\":\"spd\",\"matrices\":65,\"incomplete\":64,\"jacobi\":63,\"direct\":65,\"shifted\":25}";
        records.add(CPU_SOLVES, line).expect("a line");
        assert!(converging(&records).contains("| spd | 65 | 64 | 63 | 65 | 25 |"));
    }
}
