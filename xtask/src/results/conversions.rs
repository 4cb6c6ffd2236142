//! Two tables of formats on a GPU: the best case of each format, and the time of a conversion on the device or on the
//! host.

use std::collections::BTreeMap;

use super::number::digits;
use super::page::source;
use super::record::{Line, Records};

const CONVERSIONS: &str = "record/h200-convert.jsonl";
const PRODUCTS: &str = "record/h200-spmv.jsonl";

/// The L2 cache of a GPU (50 MB) may serve products of fewer bytes.
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

/// For each format the line with the largest share of the copy's bandwidth, and CSR on the same matrix.
fn best(records: &Records) -> String {
    let mut out = String::from(
        "\n## Formats at their best on a GPU\n\nFor each format, the matrix on which its product comes nearest to the bandwidth of a copy. Only products \
         that move half a gigabyte or more count. Bytes are those of the format's model. The column `CSR ms` is our CSR on the same \
         matrix.\n",
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
    out += "\n| format | case | type | ms | GB/s | of copy | CSR ms |\n|---|---|---|---:|---:|---:|---:|\n";
    for (noun, line) in &best {
        let beside = lines.iter().find(|other| {
            is_ours(other)
                && other.text("noun") == "csr"
                && other.header == line.header
                && ["case", "type"].iter().all(|field| other.text(field) == line.text(field))
        });
        out += &format!(
            "| {noun} | `{}` | {} | {} | {} | {} | {} |\n",
            line.text("case"),
            line.text("type"),
            number(line.number("ms")),
            number(line.number("gbs")),
            share(line),
            number(beside.and_then(|line| line.number("ms")))
        );
    }
    out + &source(best.values().copied())
}

fn conversions(records: &Records) -> String {
    let mut out = String::from(
        "\n## Conversions on a GPU\n\nA CSR matrix in device memory becomes another format there (`device`), or the host builds the format (`host`) \
         and uploads it (`upload`). All times are in ms. GB/s count the bytes that must be read and written. The rows of `csr` are a \
         matrix whose arrays are used in place; the device only checks them.\n",
    );
    let lines = records.of(CONVERSIONS);
    let timed: Vec<&Line> = lines.iter().filter(|line| is_ours(line) && line.number("ms").is_some()).collect();
    if timed.is_empty() {
        return out + &format!("\nMissing: no such lines in {CONVERSIONS}.\n");
    }
    out += "\n| case | type | format | host | upload | device | ratio | GB/s | of copy |\n\
            |---|---|---|---:|---:|---:|---:|---:|---:|\n";
    for line in &timed {
        out += &format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            line.text("case"),
            line.text("type"),
            line.text("noun"),
            number(line.number("host_ms")),
            number(line.number("upload_ms")),
            number(line.number("ms")),
            number(line.number("ratio_to_host")),
            number(line.number("gbs")),
            share(line)
        );
    }
    out + &source(timed)
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
