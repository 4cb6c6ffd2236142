//! `spandrel-bench memory`: the peak resident memory of `spandrel solve`, against the bytes of matrix, vectors and one
//! copy.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use spandrel_formats::Traffic;

use crate::case::Case;

/// One run of the program.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryLine {
    /// `"memory"`.
    pub op: &'static str,
    /// `"solve"`.
    pub noun: &'static str,
    /// Element type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"cpu"`.
    pub backend: &'static str,
    /// `"spandrel"`.
    pub contender: &'static str,
    /// The matrix.
    pub case: String,
    /// Rows.
    pub n: usize,
    /// Entries.
    pub nnz: usize,
    /// Peak resident bytes of the process (VmHWM).
    pub peak_bytes: u64,
    /// CSR, twice (the matrix and one copy), and the six vectors of preconditioned CG with b.
    pub model_bytes: u64,
    /// peak / model.
    pub ratio: f64,
}

/// Runs `program solve CASE` and watches its high-water mark until it ends.
pub fn run(program: &Path, case: &Case) -> Result<MemoryLine> {
    let csr = case.load::<f64>()?;
    let (n, nnz, storage) = (csr.nrows(), csr.nnz(), csr.storage());
    drop(csr);
    let mut child = Command::new(program)
        .args(["solve", case.path.as_ref().map_or(case.name.as_str(), |p| p.to_str().unwrap_or_default())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let exit = loop {
        // The mark only rises, so the last value before the end is the peak. The last few milliseconds only free
        // memory.
        if let Ok(status) = std::fs::read_to_string(&status_file) {
            let kib = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).and_then(|l| l.split_whitespace().next());
            peak = kib.and_then(|k| k.parse::<u64>().ok()).map_or(peak, |k| peak.max(k * 1024));
        }
        if let Some(exit) = child.try_wait()? {
            break exit;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if !exit.success() {
        bail!("{} solve {} ended with {exit}", program.display(), case.name);
    }
    let model = 2 * storage + (7 * n * 8) as u64;
    Ok(MemoryLine {
        op: "memory",
        noun: "solve",
        element: "f64",
        backend: "cpu",
        contender: "spandrel",
        case: case.name.clone(),
        n,
        nnz,
        peak_bytes: peak,
        model_bytes: model,
        ratio: peak as f64 / model as f64,
    })
}
