//! Records: one JSON object per line, and the same as a table. The first object is a header: where, when and how.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::hpcg::Hpcg;
use crate::machine;
use crate::sptrsv::lines::Solve;

/// First line of a record.
#[derive(Clone, Debug, Serialize)]
pub struct Header {
    /// Always true; it distinguishes this line from the others.
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
    /// Triad bandwidth of the machine in this run (24 bytes per element).
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
    /// `"cpu"`, `"cuda"`.
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
    /// Fields that only some measurements have.
    #[serde(flatten)]
    pub more: More,
}

/// Fields of a line that are left out if they say nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct More {
    /// Which of several kernels or ways: `"symmetric"`, `"explicit, graph"`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Milliseconds of the best peer in the same format over ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_same_format: Option<f64>,
    /// Milliseconds of the best peer that takes the matrix in CSR or COO, without conversion, over ours. The best peer
    /// of all may take sliced ELL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_unconverted: Option<f64>,
    /// Milliseconds of the peer that takes its scalars through the host over ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_host_scalars: Option<f64>,
    /// ||b - A x|| / ||b|| after the timed iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual: Option<f64>,
    /// ||x - x*|| / ||x*|| where b = A x*.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_error: Option<f64>,
    /// Milliseconds of a whole solve: b and x from the host, the iterations, x back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole_ms: Option<f64>,
    /// Iterations of that solve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<usize>,
    /// What the values are, if they are not the case's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<&'static str>,
    /// The matrix of a paper for which this generated one stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stands_in_for: Option<String>,
    /// The figures of a paper that contain the line: `"5"`, `"6 7"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// The further fields of HPCG.
    #[serde(flatten)]
    pub hpcg: Option<Hpcg>,
    /// The further fields of a triangular solve.
    #[serde(flatten)]
    pub solve: Option<Solve>,
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

/// The lines as a table, in Markdown if `markdown` is set.
pub fn table(lines: &[Line], markdown: bool) -> String {
    let mut table = Table::new();
    // A GPU has no triad here, so its own copy is the measure.
    let (bandwidth, of): (_, fn(&Line) -> Option<f64>) = if lines.iter().any(|l| l.backend == "cuda") {
        ("of copy", |l| l.of_copy)
    } else {
        ("of triad", |l| l.of_triad)
    };
    table.load_style(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(["case", "type", "noun", "contender", "ms", "GB/s", bandwidth, "vs best peer", "vs our csr"]);
    let share = |v: Option<f64>| v.map_or(String::new(), |v| format!("{:.0} %", v * 100.0));
    let times = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.2}x"));
    for l in lines {
        table.add_row([
            l.case.clone(),
            l.element.into(),
            l.more.kernel.as_ref().map_or(l.noun.clone(), |kernel| format!("{} ({kernel})", l.noun)),
            l.contender.into(),
            format!("{:.4}", l.ms),
            format!("{:.1}", l.gbs),
            share(of(l)),
            times(l.ratio_to_best_peer),
            times(l.ratio_to_csr),
        ]);
    }
    table.to_string()
}
