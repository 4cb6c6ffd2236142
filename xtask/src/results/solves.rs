//! Whole solves, the HPCG problem and factorisations, each beside the peers.

use super::brief::{Measure, kind};
use super::find::geometric;
use super::number::digits;
use super::page::source;
use super::record::{Line, Records};

pub(crate) const SOLVES: &str = "record/h200-solve.jsonl";
const CPU_SOLVES: &str = "record/cpu-solve.jsonl";
const HPCG: &str = "record/h200-hpcg.jsonl";
const FACTORS: &str = "record/h200-factorize.jsonl";

/// The page of whole solves.
pub(crate) const PAGE: &str = "docs/results/whole-solves.md";
/// The page of incomplete factorisations.
pub(crate) const FACTORS_PAGE: &str = "docs/results/factorisations.md";

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
pub(crate) struct Solve<'a> {
    pub(crate) ours: &'a Line,
    others: Vec<&'a Line>,
}

impl<'a> Solve<'a> {
    fn precision(&self, precision: &str) -> Option<&'a Line> {
        self.others.iter().copied().find(|line| is_ours(line) && line.text("precision") == precision)
    }
    /// The lines of the peer that converged.
    fn peers(&self) -> impl Iterator<Item = &'a Line> + '_ {
        self.others.iter().copied().filter(|line| !is_ours(line) && is_solved(line))
    }
    fn fastest_peer(&self) -> Option<&'a Line> {
        self.peers().min_by(|a, b| a.number("ms").unwrap_or(f64::MAX).total_cmp(&b.number("ms").unwrap_or(f64::MAX)))
    }
}

/// The solves of a record, each from the last run that has it.
pub(crate) fn solves(lines: &[Line]) -> Vec<Solve<'_>> {
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

/// The geometric mean and the least value of a field of our lines, and the number of lines that have it.
fn mean(solves: &[&Solve<'_>], field: &str) -> String {
    let with = solves.iter().filter_map(|solve| Some((solve.ours.number(field)?, solve.ours.text("case"))));
    let values: Vec<(f64, &str)> = with.collect();
    let Some((least, case)) = values.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { return "-".to_owned() };
    let ratios: Vec<f64> = values.iter().map(|(ratio, _)| *ratio).collect();
    format!(
        "the geometric mean of {1} ratios is {0}, the lowest {2} (`{case}`)",
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
        "\n## Whole solves on a GPU\n\nA x = b to a relative residual of 1e-8, by CG with IC(0) or BiCGStab with ILU(0). The peer is the same \
         algorithm written with cuSPARSE and cuBLAS (SpMV, SpSV, csrilu02, csric02), in its fastest form.\n\n\
         - **set-up**: the copy to the GPU, factors, analysis and conversion.\n\
         - **with set-up**: the ratio of set-up and solve together, against the peer's best total.\n\
         - **mixed**, **refined**: the speed-up over our own f64 solve with an f32 preconditioner, or with iterative refinement \
         around f32 solves. Both reach the same residual in f64.\n",
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
        "\nOf {} solves of matrices from files, {} converge within the bench's time limit. Only Spandrel solves: {}. Only the peer solves: {}. \
         The others have a missing pivot, do not suit the method, or need more time.\n",
        files.len(),
        files.iter().filter(|solve| is_solved(solve.ours)).count(),
        names(&alone(true)),
        names(&alone(false))
    );
    out += "\n| case | solver | ours | iterations | ms | set-up | peer | iterations | ms | set-up | ratio | with set-up | mixed | refined |\n\
            |---|---|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|\n";
    for solve in generated.iter().chain(&files) {
        let Some(peer) = solve.fastest_peer().filter(|_| is_solved(solve.ours)) else { continue };
        let ours = solve.ours;
        let of_f64 = |precision| number(solve.precision(precision).and_then(|line| line.number("ratio_to_f64")));
        out += &format!(
            "| `{}` | {}, {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
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
            of_f64("refined")
        );
    }
    out + &source(all.iter().map(|solve| solve.ours))
}

/// The ratios of whole solves on a GPU, and of factorisations there.
pub(crate) fn measures(records: &Records) -> Vec<Measure> {
    let all = solves(records.of(SOLVES));
    let of = |generated, what, field: &str| {
        let of_kind = all.iter().filter(|solve| solve.ours.text("case").contains(':') == generated);
        let ratios = of_kind.filter_map(|solve| solve.ours.number(field)).collect();
        Measure { page: PAGE, heading: "Whole solves on a GPU", beside: "cuSPARSE and cuBLAS", what, ratios }
    };
    let lines = records.of(FACTORS);
    let of_factors = |generated, what| {
        let of_kind = lines.iter().filter(|line| is_ours(line) && line.text("case").contains(':') == generated);
        // For files, only systems that both factor in the same way: with IC(0) ours tries shifts, and theirs continues
        // after a pivot that is not positive.
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
        Measure {
            page: FACTORS_PAGE,
            heading: "Incomplete factors on a GPU",
            beside: "cuSPARSE",
            what,
            ratios: ratios.collect(),
        }
    };
    vec![
        of(true, kind(true), "ratio_to_best_peer"),
        of(false, kind(false), "ratio_to_best_peer"),
        of(true, "generated, set-up included", "ratio_with_setup"),
        of(false, "from files, set-up included", "ratio_with_setup"),
        of_factors(true, "generated, new values"),
        of_factors(false, "from files, ILU(0), new values, on the faster of device and host"),
    ]
}

/// A table that counts the converged solves of each class of matrices.
fn tallies(lines: &[Line]) -> String {
    let of: Vec<&Line> = lines.iter().filter(|line| line.text("op") == "solve-tally").collect();
    let Some(last) = of.last() else { return String::new() };
    let mut out = String::from(
        "\n## Which real matrices converge on a CPU\n\nThe number of matrices that reach 1e-8 within 5 s, by class and by preconditioner. The last column counts the \
         matrices whose IC(0) needed a shift.\n\n\
         | class | matrices | incomplete factors | Jacobi | direct | shifted |\n|---|---:|---:|---:|---:|---:|\n",
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
    out + &source([*last])
}

fn hpcg(records: &Records) -> String {
    let mut out = String::from(
        "\n## The HPCG problem on a GPU\n\nCG with a multigrid cycle on 4 grids and symmetric Gauss-Seidel in natural order, 27 points. GF/s count operations as HPCG does: \
         for the timed iterations, and `rated`, which includes set-up as HPCG prescribes. `iterations` reach the residual of the \
         reference code, which needs `reference` iterations.\n",
    );
    let lines = records.of(HPCG);
    let ours: Vec<&Line> = lines.iter().filter(|line| line.text("op") == "hpcg" && is_ours(line)).collect();
    if ours.is_empty() {
        return out + &format!("\nMissing: no such lines in {HPCG}.\n");
    }
    out += "\n| case | GF/s | rated | ms per iteration | GB/s | iterations | reference | valid |\n\
            |---|---:|---:|---:|---:|---:|---:|---|\n";
    for line in &ours {
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |\n",
            line.text("case"),
            number(line.number("gflops")),
            number(line.number("gflops_rated")),
            number(line.number("ms")),
            number(line.number("gbs")),
            line.fields["iterations_needed"],
            line.fields["reference_iterations"],
            if line.fields["valid"] == true { "yes" } else { "no" }
        );
    }
    out + &source(ours)
}

/// The value of another contender for the factors of one of our lines.
fn beside<'a>(lines: &'a [Line], line: &Line, contender: &str) -> Option<&'a Line> {
    lines.iter().find(|other| {
        other.header == line.header
            && other.text("contender") == contender
            && ["case", "noun"].iter().all(|field| other.text(field) == line.text(field))
    })
}

/// The table of incomplete factorisations.
pub(crate) fn factors(records: &Records) -> String {
    let mut out = String::from(
        "\n## Incomplete factors on a GPU\n\nA pattern needs the analysis once; each new set of values needs the numeric part. All times are in ms. Factors computed on the \
         device have the bits of the host's factors. A solve factors on the host instead if the rows mostly wait for each other \
         (docs/adr/0045-who-waits-is-factored-by-the-host.md). Ratios are cuSPARSE's time over the device's. If a pivot of IC(0) is not \
         positive, our time includes all tried shifts; cuSPARSE continues with the bad pivot.\n",
    );
    let lines = records.of(FACTORS);
    let ours: Vec<&Line> = lines.iter().filter(|line| is_ours(line) && line.number("numeric_ms").is_some()).collect();
    if ours.is_empty() {
        return out + &format!("\nMissing: no such lines in {FACTORS}.\n");
    }
    out += "\n| case | factors | numeric | analysis | cuSPARSE numeric | analysis | host numeric | ratio, numeric | ratio, both |\n\
            |---|---|---:|---:|---:|---:|---:|---:|---:|\n";
    for &line in &ours {
        let of = |line: Option<&Line>, field: &str| line.and_then(|line| line.number(field));
        let both = |line: Option<&Line>| Some(of(line, "numeric_ms")? + of(line, "analyze_ms")?);
        let (theirs, host) = (beside(lines, line, "cusparse"), beside(lines, line, "host"));
        let ratio =
            |theirs: Option<f64>, ours: Option<f64>| number(theirs.zip(ours).map(|(theirs, ours)| theirs / ours));
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            line.text("case"),
            line.text("noun"),
            number(of(Some(line), "numeric_ms")),
            number(of(Some(line), "analyze_ms")),
            number(of(theirs, "numeric_ms")),
            number(of(theirs, "analyze_ms")),
            number(of(host, "numeric_ms")),
            ratio(of(theirs, "numeric_ms"), of(Some(line), "numeric_ms")),
            ratio(both(theirs), both(Some(line)))
        );
    }
    out + &source(ours)
}

/// The tables of whole solves.
pub(crate) fn section(records: &Records) -> String {
    gpu(records) + &tallies(records.of(CPU_SOLVES)) + &hpcg(records)
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
            said.contains("Matrices from files: the geometric mean of 1 ratios is 0.500, the lowest 0.500 (`b15`)"),
            "{said}"
        );
        assert!(
            said.contains("Of 2 solves of matrices from files, 2 converge")
                && said.contains("Only Spandrel solves: `ex10`.")
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
        assert!(section(&records).contains("| spd | 65 | 64 | 63 | 65 | 25 |"));
    }
}
