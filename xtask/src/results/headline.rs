//! Our tables against today's peers: products and iterations. Each row has our fastest line and the fastest of theirs.

use std::collections::HashMap;

use super::brief::{Measure, kind};
use super::find::geometric;
use super::number::digits;
use super::page::source;
use super::record::{Header, Line, Records};

/// A table, its page, its peers, and the records with its lines.
struct Table {
    page: &'static str,
    heading: &'static str,
    beside: &'static str,
    about: &'static str,
    record: &'static str,
    op: &'static str,
}

/// The page of products.
pub(crate) const PRODUCTS: &str = "docs/results/products.md";
/// The page of iterations.
pub(crate) const ITERATIONS: &str = "docs/results/iterations.md";

const TABLES: [Table; 5] = [
    Table {
        page: PRODUCTS,
        heading: "SpMV on a GPU",
        beside: "cuSPARSE",
        about: "y = A x in our fastest format against cuSPARSE's fastest format. Preprocessing is done beforehand on both sides.",
        record: "record/h200-spmv.jsonl",
        op: "spmv",
    },
    Table {
        page: PRODUCTS,
        heading: "SpMV on a CPU",
        beside: "sprs, faer, nalgebra-sparse",
        about: "y = A x in our fastest format against the fastest of sprs, faer and nalgebra-sparse, which store CSR or CSC.",
        record: "record/cpu-spmv.jsonl",
        op: "spmv",
    },
    Table {
        page: ITERATIONS,
        heading: "CG on a GPU",
        beside: "cuSPARSE and cuBLAS",
        about: "One iteration of CG without a preconditioner. The peer is the same method written with cuSPARSE and cuBLAS, with scalars \
                on the device or on the host, with or without a graph, whichever is fastest.",
        record: "record/h200-cg.jsonl",
        op: "cg",
    },
    Table {
        page: ITERATIONS,
        heading: "CG on a CPU",
        beside: "sprs, faer",
        about: "One iteration of CG without a preconditioner, against CG with the products of sprs and faer.",
        record: "record/cpu-cg.jsonl",
        op: "cg",
    },
    Table {
        page: ITERATIONS,
        heading: "CG with IC(0) on a CPU",
        beside: "faer",
        about: "One iteration of CG with IC(0), against faer's CG with the same factors. Both need the same number of iterations.",
        record: "record/cpu-solve.jsonl",
        op: "cg",
    },
];

/// A table with more matrices from files than this shows only their summary.
const LISTED: usize = 40;

/// A case with the best line of both sides.
pub(crate) struct Row<'a> {
    pub(crate) ours: &'a Line,
    pub(crate) theirs: &'a Line,
}

impl Row<'_> {
    pub(crate) fn ratio(&self) -> f64 {
        ms(self.theirs) / ms(self.ours)
    }
    /// The text of a generator has a colon, and the name of a matrix from a file has none.
    pub(crate) fn is_generated(&self) -> bool {
        self.ours.text("case").contains(':')
    }
}

pub(crate) fn ms(line: &Line) -> f64 {
    line.number("ms").unwrap_or(f64::INFINITY)
}

/// One row per case, type and triangle, in the order of the record: the fastest line of each side, from the last run
/// that has both.
pub(crate) fn rows<'a>(lines: &'a [Line], op: &str) -> Vec<Row<'a>> {
    let mut order: Vec<[&str; 3]> = Vec::new();
    let mut cases: HashMap<[&str; 3], Vec<&Line>> = HashMap::new();
    for line in lines.iter().filter(|line| line.text("op") == op && line.number("ms").is_some()) {
        let case = ["case", "type", "triangle"].map(|field| line.text(field));
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

pub(crate) fn name(line: &Line) -> String {
    const NARROW: &str = "values in f32";
    let mut words = line.text("kernel").split(',').map(str::trim);
    let mut name = line.text("noun").to_owned();
    let first = words.next().filter(|first| !first.is_empty());
    // Graphs and memory do not count here, the stored form does.
    for word in first.into_iter().chain(words.filter(|word| *word == NARROW)) {
        name += ", ";
        name += word;
    }
    name
}

/// The geometric mean, the least and the largest of the ratios.
fn summary(rows: &[&Row<'_>]) -> Option<String> {
    let ratios: Vec<f64> = rows.iter().map(|row| row.ratio()).collect();
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let most = ratios.iter().copied().max_by(f64::total_cmp)?;
    let mean = geometric(&ratios);
    let behind = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    Some(format!(
        "({}): the geometric mean of the ratios is {}, the lowest {}, the highest {}; Spandrel is slower in {behind}",
        ratios.len(),
        digits(mean),
        digits(least),
        digits(most)
    ))
}

fn table(table: &Table, records: &Records) -> String {
    let mut out = format!("\n## {}\n\n{}\n", table.heading, table.about);
    let rows = rows(records.of(table.record), table.op);
    if rows.is_empty() {
        return out + &format!("\nMissing: no such lines in {}.\n", table.record);
    }
    let (generated, files): (Vec<&Row<'_>>, Vec<&Row<'_>>) = rows.iter().partition(|row| row.is_generated());
    for (what, rows) in [("Generated matrices", &generated), ("Matrices from files", &files)] {
        if let Some(summary) = summary(rows) {
            out += &format!("\n{what} {summary}.\n");
        }
    }
    let listed: Vec<&Row<'_>> = if files.len() > LISTED { generated } else { rows.iter().collect() };
    out += "\n| case | type | ours | ms | GB/s | best peer | ms | ratio |\n|---|---|---|---:|---:|---|---:|---:|\n";
    for row in &listed {
        let (ours, theirs) = (row.ours, row.theirs);
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} {} | {} | {} |\n",
            ours.text("case"),
            ours.text("type"),
            name(ours),
            digits(ms(ours)),
            ours.number("gbs").map_or("-".to_owned(), digits),
            theirs.text("contender"),
            name(theirs),
            digits(ms(theirs)),
            digits(row.ratio())
        );
    }
    out + &source(rows.iter().map(|row| row.ours))
}

/// The ratios of each table, for generated matrices and for those from files.
pub(crate) fn measures(records: &Records) -> Vec<Measure> {
    let of_table = |table: &Table| {
        let rows = rows(records.of(table.record), table.op);
        let ratios = |is_generated| {
            rows.iter().filter(|row| row.is_generated() == is_generated).map(Row::ratio).collect::<Vec<f64>>()
        };
        let Table { page, heading, beside, .. } = *table;
        [true, false].map(|generated| Measure {
            page,
            heading,
            beside,
            what: kind(generated),
            ratios: ratios(generated),
        })
    };
    TABLES.iter().flat_map(of_table).collect()
}

/// The tables of a page.
pub(crate) fn section(page: &str, records: &Records) -> String {
    TABLES.iter().filter(|one| one.page == page).map(|one| table(one, records)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_stored() {
        let name_of = |kernel: &str| {
            let mut records = Records::default();
            let lines = format!("{{\"header\":true}}\n{{\"noun\":\"dia\",\"kernel\":\"{kernel}\"}}");
            records.add("record/a.jsonl", &lines).expect("lines");
            name(&records.of("record/a.jsonl")[0])
        };
        assert_eq!(name_of(""), "dia");
        assert_eq!(name_of("values in f32"), "dia, values in f32");
        assert_eq!(name_of("symmetric, explicit, graph"), "dia, symmetric");
        assert_eq!(name_of("symmetric, values in f32, explicit, graph"), "dia, symmetric, values in f32");
    }

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
        let said = section(PRODUCTS, &records);
        assert!(said.contains("| `d3n7:8` | f64 | dia | 2.00 | 100 | cusparse coo | 5.00 | 2.50 |"), "{said}");
        assert!(said.contains("Source: record/h200-spmv.jsonl (m, commit c)."), "{said}");
        assert!(said.contains("(1): the geometric mean of the ratios is 2.50") && !said.contains("CG"), "{said}");
        assert!(section(ITERATIONS, &records).contains("Missing: no such lines in record/cpu-cg.jsonl"));
    }
}
