//! The suite as a program: which backends this machine has, which trials are asked for, the run and its report.

use std::io::Write;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use spandrel_backend::Trace;
use spandrel_backend_cpu::{Cpu, Simd};

use crate::case::{self, Case};
use crate::subject::Fleet;
use crate::trial::{Outcome, Tally, Trial, wrong};
use crate::trials;

/// What is asked of a run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// One backend alone, by name.
    pub backend: Option<String>,
    /// Only trials whose name contains this.
    pub filter: Option<String>,
    /// Leave out the cases marked large and the longest vectors.
    pub small: bool,
    /// A missing CUDA backend is a failure in the place of a skip, whatever else is selected.
    pub require_cuda: bool,
}

/// Names that [`Selection::backend`] understands.
pub const BACKENDS: [&str; 3] = ["cpu", "trace", "cuda"];

/// The CPU with 1, 2 and 3 threads, and with every level of vector instructions that it has: all must give the same bits.
///
/// # Errors
/// Threads that the system refuses.
pub fn cpus() -> Result<Fleet<Cpu>> {
    let mut devices = Vec::new();
    for threads in [2, 1, 3] {
        devices.push((format!("{threads} threads"), Cpu::with_threads(threads)?));
    }
    // The widest level is that of the devices above.
    for level in Simd::available().filter(|&level| level != Simd::detect() || level == Simd::Portable) {
        devices.push((format!("{} code", level.name()), Cpu::with_threads(2)?.with_simd(level)));
    }
    Ok(Fleet { name: "cpu".into(), devices })
}

/// The cases of the suite, shared.
///
/// # Errors
/// As [`case::all`].
pub fn cases() -> Result<Vec<Rc<Case>>> {
    Ok(case::all()?.into_iter().map(Rc::new).collect())
}

/// All trials that the selection asks for, in the order in which they run. What this machine cannot try is there as a
/// trial that is skipped with its reason.
///
/// # Errors
/// A backend that nobody knows; cases that do not parse.
pub fn select(selection: &Selection) -> Result<Vec<Trial>> {
    if let Some(name) = selection.backend.as_deref()
        && !BACKENDS.contains(&name)
    {
        bail!("no backend is called {name}; there are {}", BACKENDS.join(", "));
    }
    let wanted = |name: &str| selection.backend.as_deref().is_none_or(|backend| backend == name);
    let cases = cases()?;
    let mut all = Vec::new();
    if wanted("cpu") {
        all.extend(trials::of(&Rc::new(cpus()?), &cases, !selection.small));
    }
    if wanted("trace") {
        let trace = Trace::new(Cpu::with_threads(2)?);
        let trace = Rc::new(Fleet { name: "trace".into(), devices: vec![("trace".into(), trace)] });
        all.extend(trials::between(&Rc::new(cpus()?), &trace, &cases));
        all.extend(trials::steps::trials(&trace, &cases));
    }
    if wanted("cuda") && !selection.require_cuda {
        all.push(Trial::skipped(CUDA.into(), cuda()));
    }
    if let Some(filter) = &selection.filter {
        all.retain(|trial| trial.name.contains(filter.as_str()));
    }
    if selection.require_cuda {
        all.push(Trial::new(CUDA.into(), || Err(wrong(format!("cuda is required and cannot be tried: {}", cuda())))));
    }
    Ok(all)
}

/// The trial that stands for the CUDA backend as long as there is no kernel to try.
const CUDA: &str = "suite/all/all/cuda/probe";

/// Why the CUDA backend cannot be tried here.
fn cuda() -> String {
    match spandrel_backend_cuda::probe() {
        Ok(devices) => {
            let found: Vec<String> = devices.iter().map(ToString::to_string).collect();
            format!("this build has no CUDA kernels to try; found: {}", found.join("; "))
        }
        Err(reason) => reason.to_string(),
    }
}

/// Runs trials, reports failures and skips to `report` and every record to `json`, one per line.
///
/// # Errors
/// A report that cannot be written.
pub fn run(trials: Vec<Trial>, report: &mut dyn Write, mut json: Option<&mut dyn Write>) -> Result<Tally> {
    let mut tally = Tally::default();
    for trial in trials {
        let record = trial.run();
        tally.count(record.outcome);
        match record.outcome {
            Outcome::Passed => {}
            Outcome::Failed => writeln!(report, "FAILED  {}\n        {}", record.name, record.detail)?,
            Outcome::Skipped => writeln!(report, "skipped {}\n        {}", record.name, record.detail)?,
        }
        if let Some(json) = json.as_deref_mut() {
            serde_json::to_writer(&mut *json, &record).context("writing a record")?;
            writeln!(json)?;
        }
    }
    Ok(tally)
}
