//! Formats on a GPU: each at its best by its share of the copy's bandwidth, and what it costs to make it there or by way of the host.

use std::collections::BTreeMap;

use super::number::digits;
use super::record::{Line, Records};

const CONVERSIONS: &str = "record/h200-convert.jsonl";
const PRODUCTS: &str = "record/h200-spmv.jsonl";

/// Bytes of a product from which on the second-level cache of a GPU, 50 MB, holds little of it from one product to the next.
const PAST_CACHE: f64 = 5e8;

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), digits)
}

fn share(line: &Line) -> String {
    line.number("of_copy").map_or("-".to_owned(), |share| format!("{} %", digits(100.0 * share)))
}

fn is_ours(line: &Line) -> bool {
    line.text("contender") == "spandrel"
}

/// Of each format the line with the largest share; CSR on the same matrix beside it.
fn best(records: &Records) -> String {
    let mut out = String::from(
        "\n### Formats at their best on a GPU\n\nThe matrix on which a product of each format comes nearest to the bandwidth of the device's own copy, among those of half a gigabyte and \
         more; by the format's model of its traffic. CSR is ours on the same matrix.\n",
    );
    let lines = records.of(PRODUCTS);
    let timed = |line: &&Line| {
        line.text("op") == "spmv"
            && is_ours(line)
            && line.number("ms").is_some()
            && line.number("bytes").is_some_and(|bytes| bytes >= PAST_CACHE)
    };
    let of_copy = |line: &Line| line.number("of_copy").unwrap_or(0.0);
    let mut best: BTreeMap<&str, &Line> = BTreeMap::new();
    for line in lines.iter().filter(timed) {
        let known = best.entry(line.text("noun")).or_insert(line);
        if of_copy(line) > of_copy(known) {
            *known = line;
        }
    }
    if best.is_empty() {
        return out + &format!("\nMissing: no such lines in {PRODUCTS}.\n");
    }
    out += "\n| format | case | type | ms | GB/s | of copy | CSR ms | record, machine | commit |\n|---|---|---|---:|---:|---:|---:|---|---|\n";
    for (noun, line) in best {
        let beside = lines.iter().find(|other| {
            is_ours(other)
                && other.text("noun") == "csr"
                && other.header == line.header
                && ["case", "type"].iter().all(|field| other.text(field) == line.text(field))
        });
        out += &format!(
            "| {noun} | `{}` | {} | {} | {} | {} | {} | {PRODUCTS}, {} | {} |\n",
            line.text("case"),
            line.text("type"),
            number(line.number("ms")),
            number(line.number("gbs")),
            share(line),
            number(beside.and_then(|line| line.number("ms"))),
            line.machine(),
            line.header.commit
        );
    }
    out
}

fn conversions(records: &Records) -> String {
    let mut out = String::from(
        "\n### Conversions on a GPU\n\nAnother format of a matrix that lies on the GPU in CSR, made there, beside the format built by the host and uploaded; ms. The share is that of the copy's bandwidth, by \
         the bytes that are read and written at least. CSR itself is a matrix whose arrays are used where they lie, beside its upload: the device checks them.\n",
    );
    let lines = records.of(CONVERSIONS);
    let timed: Vec<&Line> = lines.iter().filter(|line| is_ours(line) && line.number("ms").is_some()).collect();
    if timed.is_empty() {
        return out + &format!("\nMissing: no such lines in {CONVERSIONS}.\n");
    }
    out += "\n| case | type | format | host | upload | device | ratio | GB/s | of copy | record, machine | commit |\n\
            |---|---|---|---:|---:|---:|---:|---:|---:|---|---|\n";
    for line in timed {
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {CONVERSIONS}, {} | {} |\n",
            line.text("case"),
            line.text("type"),
            line.text("noun"),
            number(line.number("host_ms")),
            number(line.number("upload_ms")),
            number(line.number("ms")),
            number(line.number("ratio_to_host")),
            number(line.number("gbs")),
            share(line),
            line.machine(),
            line.header.commit
        );
    }
    out
}

/// Both tables.
pub(crate) fn section(records: &Records) -> String {
    best(records) + &conversions(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_the_line_with_the_largest_share() {
        let line = |noun: &str, case: &str, bytes: f64, of_copy: f64| {
            format!(
                "{{\"op\":\"spmv\",\"noun\":\"{noun}\",\"type\":\"f64\",\"contender\":\"spandrel\",\"case\":\"{case}\",\"ms\":2.0,\"gbs\":9.0,\"bytes\":{bytes:?},\"of_copy\":{of_copy:?}}}"
            )
        };
        let lines = [
            line("bsr", "small", 1e6, 1.9),
            line("bsr", "a", 1e9, 0.7),
            line("bsr", "b", 1e9, 0.91),
            line("csr", "b", 1e9, 0.8).replace("\"ms\":2.0", "\"ms\":3.0"),
        ];
        let mut records = Records::default();
        records.add(PRODUCTS, &lines.join("\n")).expect("lines");
        let said = best(&records);
        assert!(said.contains("| bsr | `b` | f64 | 2.00 | 9.00 | 91.0 % | 3.00 |"), "{said}");
        assert!(!said.contains("small"), "{said}");
    }

    #[test]
    fn conversions_stand_beside_the_hosts_way_or_are_missing() {
        assert!(section(&Records::default()).contains("Missing: no such lines in record/h200-convert.jsonl"));
        let line = "{\"op\":\"convert\",\"noun\":\"dia\",\"type\":\"f64\",\"contender\":\"spandrel\",\"case\":\"a\",\"host_ms\":12.0,\"upload_ms\":3.0,\"ms\":0.5,\"ratio_to_host\":30.0,\"gbs\":1000.0,\"of_copy\":0.25}";
        let refused = "{\"op\":\"convert\",\"noun\":\"ell\",\"contender\":\"spandrel\",\"case\":\"a\",\"error\":\"e\"}";
        let mut records = Records::default();
        records.add(CONVERSIONS, &format!("{line}\n{refused}")).expect("lines");
        let said = conversions(&records);
        assert!(said.contains("| `a` | f64 | dia | 12.0 | 3.00 | 0.500 | 30.0 | 1000 | 25.0 % |"), "{said}");
        assert!(!said.contains("ell"), "{said}");
    }
}
