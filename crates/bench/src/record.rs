//! Records: one JSON object per line, first a header that says where, when and how; and the same as a table.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::machine;

/// First line of a record.
#[derive(Clone, Debug, Serialize)]
pub struct Header {
    /// Always true: tells this line from the others.
    pub header: bool,
    /// Day of the measurement.
    pub date: String,
    /// The machine in words.
    pub machine: String,
    /// GPU driver, where one is involved.
    pub driver: Option<String>,
    /// The commit that was measured.
    pub commit: String,
    /// Hash of the PTX, where a GPU is involved.
    pub ptx_sha256: Option<String>,
    /// The command line.
    pub command: String,
    /// Copy bandwidth of the machine in this run (bytes read + written).
    pub copy_gbs: Option<f64>,
    /// Triad bandwidth of the machine in this run (24 bytes an element).
    pub triad_gbs: Option<f64>,
}

impl Header {
    /// A header for this process.
    pub fn here(threads: usize) -> Self {
        let mut args = std::env::args();
        args.next();
        Self {
            header: true,
            date: machine::ask("date", &["-u", "+%Y-%m-%d"]),
            machine: machine::describe(threads),
            driver: None,
            commit: machine::commit(),
            ptx_sha256: None,
            command: std::iter::once("spandrel-bench".to_owned()).chain(args).collect::<Vec<_>>().join(" "),
            copy_gbs: None,
            triad_gbs: None,
        }
    }
}

/// One timed contender on one case.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// `"spmv"`, `"cg"`, ...
    pub op: &'static str,
    /// Format or method.
    pub noun: String,
    /// Element type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"cpu"`.
    pub backend: &'static str,
    /// Whose code.
    pub contender: &'static str,
    /// The matrix.
    pub case: String,
    /// Rows.
    pub n: usize,
    /// Entries.
    pub nnz: usize,
    /// Median milliseconds of a call (of an iteration for solvers).
    pub ms: f64,
    /// Fastest round.
    pub ms_min: f64,
    /// Slowest round.
    pub ms_max: f64,
    /// Bytes of a call by the traffic model.
    pub bytes: u64,
    /// bytes / ms.
    pub gbs: f64,
    /// gbs over the copy bandwidth timed among the contenders of this case.
    pub of_copy: Option<f64>,
    /// gbs over the triad bandwidth timed among the contenders of this case.
    pub of_triad: Option<f64>,
    /// Milliseconds of the best peer over ours.
    pub ratio_to_best_peer: Option<f64>,
    /// Milliseconds of our CSR over this.
    pub ratio_to_csr: Option<f64>,
}

/// Writes `header` and `lines` to `path`.
pub fn write<L: Serialize>(path: &Path, header: &Header, lines: &[L]) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, header)?;
    writeln!(out)?;
    for line in lines {
        serde_json::to_writer(&mut out, line)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(())
}

/// The lines as a table; with `markdown` in that form.
pub fn table(lines: &[Line], markdown: bool) -> String {
    let mut table = Table::new();
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(["case", "type", "noun", "contender", "ms", "GB/s", "of triad", "vs best peer", "vs our csr"]);
    let share = |v: Option<f64>| v.map_or(String::new(), |v| format!("{:.0} %", v * 100.0));
    let times = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}x"));
    for l in lines {
        table.add_row([
            l.case.clone(),
            l.element.into(),
            l.noun.clone(),
            l.contender.into(),
            format!("{:.4}", l.ms),
            format!("{:.1}", l.gbs),
            share(l.of_triad),
            times(l.ratio_to_best_peer),
            times(l.ratio_to_csr),
        ]);
    }
    table.to_string()
}
