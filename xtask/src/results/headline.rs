//! Our tables against the peers of today: products, triangular solves, CG; each row the fastest of ours against the fastest of theirs.

use std::collections::HashMap;

use super::number::digits;
use super::record::{Header, Line, Records};

/// A table: what is said above it, the record, the operation and the name of the column with the times.
struct Table {
    heading: &'static str,
    about: &'static str,
    record: &'static str,
    op: &'static str,
    rate: &'static str,
}

const TABLES: [Table; 5] = [
    Table {
        heading: "SpMV on a GPU",
        about: "y = A x in the fastest of our formats against the fastest of cuSPARSE's, each with its preprocessing done before.",
        record: "record/h200-spmv.jsonl",
        op: "spmv",
        rate: "gbs",
    },
    Table {
        heading: "SpTRSV on a GPU",
        about: "T x = b by the fastest of our plans against cuSPARSE's SpSV. GB/s are effective: the bytes of the CSR matrix and of two vectors \
                over the time. Matrices by name are lower factors of ILU(0).",
        record: "record/h200-sptrsv.jsonl",
        op: "sptrsv",
        rate: "effective_gbs",
    },
    Table {
        heading: "CG on a GPU",
        about: "An iteration of CG without a preconditioner against cuSPARSE and cuBLAS, theirs with scalars on the device or on the host and \
                with or without a graph, whichever is faster.",
        record: "record/h200-cg.jsonl",
        op: "cg",
        rate: "gbs",
    },
    Table {
        heading: "SpMV on a CPU",
        about: "The same against sprs, faer and nalgebra-sparse.",
        record: "record/cpu-spmv.jsonl",
        op: "spmv",
        rate: "gbs",
    },
    Table {
        heading: "CG on a CPU",
        about: "The same against CG with the products of sprs and faer.",
        record: "record/cpu-cg.jsonl",
        op: "cg",
        rate: "gbs",
    },
];

/// Rows of matrices from files that a table lists one by one; of more there is a summary alone.
const LISTED: usize = 40;

/// A case with the best of both sides.
struct Row<'a> {
    ours: &'a Line,
    theirs: &'a Line,
}

impl Row<'_> {
    fn ratio(&self) -> f64 {
        ms(self.theirs) / ms(self.ours)
    }
    /// A generator's text has a colon, a matrix from a file has none.
    fn is_generated(&self) -> bool {
        self.ours.text("case").contains(':')
    }
}

fn ms(line: &Line) -> f64 {
    line.number("ms").unwrap_or(f64::INFINITY)
}

/// One row a case and type, in the order of the record: the fastest line of each side, in the last run that has both.
fn rows<'a>(lines: &'a [Line], op: &str) -> Vec<Row<'a>> {
    let mut order: Vec<(&str, &str)> = Vec::new();
    let mut cases: HashMap<(&str, &str), Vec<&Line>> = HashMap::new();
    for line in lines.iter().filter(|line| line.text("op") == op && line.number("ms").is_some()) {
        let case = (line.text("case"), line.text("type"));
        if line.text("contender") != "machine" {
            let of_case = cases.entry(case).or_default();
            if of_case.is_empty() {
                order.push(case);
            }
            of_case.push(line);
        }
    }
    let is_ours = |line: &Line| line.text("contender") == "spandrel";
    let both = |of_case: &Vec<&'a Line>| {
        let has = |run: &Header, ours| of_case.iter().any(|l| l.header == *run && is_ours(l) == ours);
        let run = of_case.iter().rev().map(|line| &line.header).find(|run| has(run, true) && has(run, false))?;
        let fastest = |ours| {
            let side = of_case.iter().copied().filter(|l| l.header == *run && is_ours(l) == ours);
            side.min_by(|a, b| ms(a).total_cmp(&ms(b)))
        };
        Some(Row { ours: fastest(true)?, theirs: fastest(false)? })
    };
    order.iter().filter_map(|case| both(&cases[case])).collect()
}

fn name(line: &Line) -> String {
    match line.text("kernel").split(',').next().unwrap_or_default().trim() {
        "" => line.text("noun").to_owned(),
        kernel => format!("{}, {kernel}", line.text("noun")),
    }
}

/// Geometric mean, least and most of the ratios.
fn summary(rows: &[&Row<'_>]) -> Option<String> {
    let ratios: Vec<f64> = rows.iter().map(|row| row.ratio()).collect();
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let behind = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    Some(format!(
        "{} in number: geometric mean of the ratios {}, least {}, most {}; slower than the best peer in {behind}",
        ratios.len(),
        digits(mean),
        digits(least),
        digits(most)
    ))
}

fn table(table: &Table, records: &Records) -> String {
    let mut out = format!("\n### {}\n\n{}\n", table.heading, table.about);
    let rows = rows(records.of(table.record), table.op);
    if rows.is_empty() {
        return out + &format!("\nMissing: no such lines in {}.\n", table.record);
    }
    let (generated, files): (Vec<&Row<'_>>, Vec<&Row<'_>>) = rows.iter().partition(|row| row.is_generated());
    for (what, rows) in [("Generated matrices", &generated), ("Matrices from files", &files)] {
        if let Some(summary) = summary(rows) {
            out += &format!("\n{what}, {summary}.\n");
        }
    }
    let listed = if files.len() > LISTED { generated } else { rows.iter().collect() };
    let unit = if table.rate == "gbs" { "GB/s" } else { "effective GB/s" };
    out += &format!(
        "\n| case | type | ours | ms | {unit} | best peer | ms | ratio | record, machine | commit |\n|---|---|---|---:|---:|---|---:|---:|---|---|\n"
    );
    for row in listed {
        let (ours, theirs) = (row.ours, row.theirs);
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} {} | {} | {} | {}, {} | {} |\n",
            ours.text("case"),
            ours.text("type"),
            name(ours),
            digits(ms(ours)),
            ours.number(table.rate).map_or("-".to_owned(), digits),
            theirs.text("contender"),
            name(theirs),
            digits(ms(theirs)),
            digits(row.ratio()),
            table.record,
            ours.machine(),
            ours.header.commit
        );
    }
    out
}

/// All tables.
pub(crate) fn section(records: &Records) -> String {
    let mut out = String::from("\n## Against the peers of today\n");
    TABLES.iter().for_each(|one| out += &table(one, records));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_both_sides_make_a_row() {
        let line = |noun: &str, contender: &str, ms: f64| {
            format!(
                "{{\"op\":\"spmv\",\"noun\":\"{noun}\",\"type\":\"f64\",\"contender\":\"{contender}\",\"case\":\"d3n7:8\",\"ms\":{ms:?},\"gbs\":100.0}}"
            )
        };
        let lines = [
            "{\"header\":true,\"machine\":\"m\",\"commit\":\"c\"}".to_owned(),
            line("csr", "spandrel", 3.0),
            line("dia", "spandrel", 2.0),
            line("csr", "cusparse", 6.0),
            line("coo", "cusparse", 5.0),
            line("copy", "machine", 0.1),
            // A later run without a peer does not count.
            "{\"header\":true,\"machine\":\"m\",\"commit\":\"d\"}".to_owned(),
            line("csr", "spandrel", 1.0),
        ];
        let mut records = Records::default();
        records.add("record/h200-spmv.jsonl", &lines.join("\n")).expect("lines");
        let said = section(&records);
        assert!(
            said.contains(
                "| `d3n7:8` | f64 | dia | 2.00 | 100 | cusparse coo | 5.00 | 2.50 | record/h200-spmv.jsonl, m | c |"
            ),
            "{said}"
        );
        assert!(
            said.contains("1 in number: geometric mean of the ratios 2.50")
                && said.contains("Missing: no such lines in record/cpu-cg.jsonl")
        );
    }
}
