//! The tables of triangular solves. Each row shows the fastest plan, the plan that `auto` takes, and the best peer.

use super::brief::{Measure, kind};
use super::headline::{Row, ms, name, rows};
use super::number::digits;
use super::page::source;
use super::record::{Line, Records};

/// The page of the tables.
pub(crate) const PAGE: &str = "docs/results/triangular-solves.md";

/// Heading, record, and the text above the table.
const TABLES: [(&str, &str, &str); 2] = [
    ("SpTRSV on a GPU", "record/h200-sptrsv.jsonl", ABOUT),
    ("SpTRSV on a CPU", "record/cpu-sptrsv.jsonl", "The same with two threads, against the faster of sprs and faer."),
];

const ABOUT: &str = "T x = b with our plans against cuSPARSE's SpSV, both after their analysis. Matrices with a name are lower factors of \
                     ILU(0).\n\n\
                     - **fastest**: the best of all our plans. MB and GB/s are the bytes that this plan moves. Effective GB/s count the \
                     bytes of the CSR matrix and two vectors instead, as the published method does.\n\
                     - **auto**: the plan that users get, with its ratio to the best peer.\n\
                     - **analysis**: the peer's time of analysis over ours, for the plan that `auto` takes, else for the fastest plan. \
                     A plan without an analysis (`capellini`) has no such ratio.\n\
                     - **with one solve**: the same for analysis and one solve together.\n\
                     - A `resident` plan was analysed on the GPU from a matrix in device memory. It solves from packed values; the analysis \
                     includes the packing.";

/// The plan that `auto` took for a row, with its ratio to the best peer.
struct Chosen<'a> {
    plan: &'a str,
    ratio: Option<f64>,
    /// The plan's own line in that run.
    line: Option<&'a Line>,
}

fn chosen<'a>(lines: &'a [Line], row: &Row<'a>) -> Option<Chosen<'a>> {
    let is_case =
        |line: &Line| ["case", "triangle", "type"].iter().all(|field| line.text(field) == row.ours.text(field));
    let choice = lines.iter().rfind(|line| line.text("op") == "choose" && is_case(line))?;
    let plan = choice.text("chosen");
    let is_plan = |line: &&Line| {
        line.text("op") == "sptrsv"
            && line.header == choice.header
            && is_case(line)
            && line.text("contender") == "spandrel"
            && line.text("noun") == plan
            && line.number("ms").is_some()
    };
    // The choice was made from the host's matrix, and so was the line without a kernel's name.
    let line = lines.iter().filter(is_plan).min_by_key(|line| !line.text("kernel").is_empty());
    Some(Chosen { plan, ratio: choice.number("ratio_to_best_peer"), line })
}

/// The geometric mean, the least with its case, and the largest.
fn summary(what: &str, of: &[(f64, &str)]) -> String {
    let Some((least, case)) = of.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { return String::new() };
    let values: Vec<f64> = of.iter().map(|(ratio, _)| *ratio).collect();
    let most = values.iter().copied().fold(f64::MIN, f64::max);
    format!(
        "\n{what} ({}): the geometric mean of the ratios is {}, the lowest {} (`{case}`), the highest {}.\n",
        of.len(),
        digits(super::find::geometric(&values)),
        digits(*least),
        digits(most)
    )
}

fn table((heading, file, about): (&str, &str, &str), records: &Records) -> String {
    let mut out = format!("\n## {heading}\n\n{about}\n");
    let lines = records.of(file);
    let rows = rows(lines, "sptrsv");
    if rows.is_empty() {
        return out + &format!("\nMissing: no such lines in {file}.\n");
    }
    let with_choice: Vec<(&Row<'_>, Option<Chosen<'_>>)> = rows.iter().map(|row| (row, chosen(lines, row))).collect();
    for (what, is_generated) in [("Generated matrices", true), ("Factors of matrices from files", false)] {
        let of = || with_choice.iter().filter(|(row, _)| row.is_generated() == is_generated);
        let fastest: Vec<(f64, &str)> = of().map(|(row, _)| (row.ratio(), row.ours.text("case"))).collect();
        out += &summary(&format!("{what}, fastest plan against the best peer"), &fastest);
        let auto = of().filter_map(|(row, chosen)| Some((chosen.as_ref()?.ratio?, row.ours.text("case"))));
        out += &summary(&format!("{what}, the plan that `auto` takes"), &auto.collect::<Vec<_>>());
    }
    out += "\n| case | type | fastest | ms | MB | GB/s | effective GB/s | best peer | ms | ratio | auto | ratio | analysis | with one solve |\n\
            |---|---|---|---:|---:|---:|---:|---|---:|---:|---|---:|---:|---:|\n";
    let number = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    for (row, chosen) in &with_choice {
        let (ours, theirs) = (row.ours, row.theirs);
        let resident = lines.iter().find(|line| {
            let fields = ["case", "type", "triangle", "noun"];
            line.text("kernel") == "resident"
                && line.header == ours.header
                && fields.iter().all(|field| line.text(field) == ours.text(field))
        });
        let analysed = chosen.as_ref().and_then(|chosen| chosen.line).or(resident).unwrap_or(ours);
        let analysis = analysed.number("analyze_ms").filter(|ms| *ms > 1e-3);
        let upper = if ours.text("triangle") == "upper" { ", upper" } else { "" };
        out += &format!(
            "| `{}`{upper} | {} | {} | {} | {} | {} | {} | {} {} | {} | {} | {} | {} | {} | {} |\n",
            ours.text("case"),
            ours.text("type"),
            name(ours),
            digits(ms(ours)),
            number(ours.number("bytes").map(|bytes| bytes / 1e6)),
            number(ours.number("gbs")),
            number(ours.number("effective_gbs")),
            theirs.text("contender"),
            name(theirs),
            digits(ms(theirs)),
            digits(row.ratio()),
            chosen.as_ref().map_or("-", |chosen| chosen.plan),
            number(chosen.as_ref().and_then(|chosen| chosen.ratio)),
            number(
                theirs.number("analyze_ms").filter(|ms| *ms > 1e-3).zip(analysis).map(|(theirs, ours)| theirs / ours)
            ),
            number(analysed.number("ratio_with_analysis"))
        );
    }
    out + &source(rows.iter().map(|row| row.ours))
}

/// The ratios of each table: of the fastest plan for generated matrices, and of `auto`'s plan for factors of those from
/// files.
pub(crate) fn measures(records: &Records) -> Vec<Measure> {
    let of_table = |(heading, file, _): (&'static str, &str, &str)| {
        let lines = records.of(file);
        let rows = rows(lines, "sptrsv");
        let beside = if heading.ends_with("GPU") { "cuSPARSE" } else { "sprs, faer" };
        let (generated, files): (Vec<&Row<'_>>, Vec<&Row<'_>>) = rows.iter().partition(|row| row.is_generated());
        [
            Measure {
                page: PAGE,
                heading,
                beside,
                what: kind(true),
                ratios: generated.iter().map(|row| row.ratio()).collect(),
            },
            Measure {
                page: PAGE,
                heading,
                beside,
                what: "ILU(0) factors of files, plan `auto`",
                ratios: files.iter().filter_map(|row| chosen(lines, row)?.ratio).collect(),
            },
        ]
    };
    TABLES.into_iter().flat_map(of_table).collect()
}

/// All tables.
pub(crate) fn section(records: &Records) -> String {
    TABLES.into_iter().map(|one| table(one, records)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_that_users_get_stands_beside_the_fastest() {
        let line = |noun: &str, contender: &str, triangle: &str, ms: f64, more: &str| {
            format!(
                "{{\"op\":\"sptrsv\",\"noun\":\"{noun}\",\"type\":\"f64\",\"contender\":\"{contender}\",\"case\":\"b15\",\"triangle\":\"{triangle}\",\"ms\":{ms:?},\"bytes\":4e6,\"gbs\":2.0,\"effective_gbs\":1.0{more}}}"
            )
        };
        let lines = [
            "{\"header\":true,\"machine\":\"m\",\"commit\":\"c\"}".to_owned(),
            line("levelset", "spandrel", "lower", 4.0, ",\"analyze_ms\":2.0,\"ratio_with_analysis\":3.5"),
            line("syncfree", "spandrel", "lower", 2.0, ",\"analyze_ms\":1.0"),
            line("csr", "cusparse", "lower", 6.0, ",\"analyze_ms\":3.0"),
            // The other triangle is a separate case.
            line("syncfree", "spandrel", "upper", 1.0, ""),
            line("csr", "cusparse", "upper", 5.0, ""),
            "{\"op\":\"choose\",\"case\":\"b15\",\"triangle\":\"lower\",\"type\":\"f64\",\"chosen\":\"levelset\",\"ratio_to_best_peer\":1.5}"
                .to_owned(),
        ];
        let mut records = Records::default();
        records.add("record/h200-sptrsv.jsonl", &lines.join("\n")).expect("lines");
        let said = section(&records);
        let lower = "| `b15` | f64 | syncfree | 2.00 | 4.00 | 2.00 | 1.00 | cusparse csr | 6.00 | 3.00 | levelset | 1.50 | 1.50 | 3.50 |";
        assert!(said.contains(lower), "{said}");
        assert!(
            said.contains("| `b15`, upper | f64 | syncfree | 1.00 |") && said.contains("| 5.00 | 5.00 | - | - |"),
            "{said}"
        );
        assert!(said.contains(
            "the plan that `auto` takes (1): the geometric mean of the ratios is 1.50, the lowest 1.50 (`b15`)"
        ));
        assert!(said.contains("Missing: no such lines in record/cpu-sptrsv.jsonl"));

        // The sweep's analysis is the one on the GPU, like the peer's, whichever of both was slightly faster.
        let lines = [
            line("sweep", "spandrel", "lower", 2.0, ",\"analyze_ms\":9.0,\"ratio_with_analysis\":1.1"),
            line(
                "sweep",
                "spandrel",
                "lower",
                2.1,
                ",\"kernel\":\"resident\",\"analyze_ms\":0.5,\"ratio_with_analysis\":5.5",
            ),
            line("csr", "cusparse", "lower", 6.0, ",\"analyze_ms\":3.0"),
        ];
        records.add("record/h200-sptrsv.jsonl", &lines.join("\n")).expect("lines");
        assert!(section(&records).contains("| 3.00 | - | - | 6.00 | 5.50 |"), "{}", section(&records));
    }
}
