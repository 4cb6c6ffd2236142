//! `spandrel-bench read`: reading a Matrix Market file into CSR, against sprs's reader.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use spandrel_formats::matrix_market;

/// One reader on one file.
#[derive(Clone, Debug, Serialize)]
pub struct ReadLine {
    /// `"read"`.
    pub op: &'static str,
    /// `"matrix_market"`.
    pub noun: &'static str,
    /// Element type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"cpu"`.
    pub backend: &'static str,
    /// Whose reader.
    pub contender: &'static str,
    /// The file.
    pub case: String,
    /// Rows.
    pub n: usize,
    /// Entries.
    pub nnz: usize,
    /// Median milliseconds from the path to CSR.
    pub ms: f64,
    /// Fastest round.
    pub ms_min: f64,
    /// Slowest round.
    pub ms_max: f64,
    /// Size of the file.
    pub bytes: u64,
    /// bytes / ms.
    pub gbs: f64,
    /// sprs's milliseconds over ours.
    pub ratio_to_best_peer: Option<f64>,
}

/// Reads `path` with both readers, `rounds` times in turn, and compares the matrices.
pub fn run(name: &str, path: &Path, rounds: usize) -> Result<Vec<ReadLine>> {
    let bytes = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.len();
    let ours = matrix_market::read_csr::<f64>(path)?;
    let theirs: sprs::CsMatI<f64, u32> =
        sprs::io::read_matrix_market::<f64, u32, _>(path).context("sprs refuses the file")?.to_csr();
    ensure!(ours.col_idx() == theirs.indices() && ours.values() == theirs.data(), "{name}: sprs read another matrix");
    let (n, nnz) = (ours.nrows(), ours.nnz());
    drop((ours, theirs));
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let start = Instant::now();
        std::hint::black_box(matrix_market::read_csr::<f64>(path)?);
        samples[0].push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        let csr: sprs::CsMatI<f64, u32> = sprs::io::read_matrix_market::<f64, u32, _>(path)?.to_csr();
        std::hint::black_box(csr);
        samples[1].push(start.elapsed().as_secs_f64() * 1e3);
    }
    for s in &mut samples {
        s.sort_by(f64::total_cmp);
    }
    let median = |k: usize| samples[k][rounds / 2];
    let line = |k: usize, contender| ReadLine {
        op: "read",
        noun: "matrix_market",
        element: "f64",
        backend: "cpu",
        contender,
        case: name.to_owned(),
        n,
        nnz,
        ms: median(k),
        ms_min: samples[k][0],
        ms_max: samples[k][rounds - 1],
        bytes,
        gbs: bytes as f64 / median(k) / 1e6,
        ratio_to_best_peer: (k == 0).then(|| median(1) / median(0)),
    };
    Ok(vec![line(0, "spandrel"), line(1, "sprs")])
}
