//! `spandrel-bench sptrsv`: every plan and peer on the triangles of every case. The analysis is timed and the answer
//! checked, then all solves are timed interleaved. The chooser's plan is noted.
//!
//! Ratios are a peer's milliseconds over ours. The ratio with analysis counts one analysis and one solve on both sides.
//! `load_ms` is the time to bring the triangle to the place of the solve (copies, a device's own layout). It is noted
//! for both sides and counted for neither.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use spandrel_formats::{Profile, Real};
use spandrel_sptrsv::{Triangle, Triangular};

use crate::contender::Effort;

mod cpu;
pub mod lines;
mod peers;
pub mod problem;
pub mod stages;

pub use cpu::run;
pub use peers::SolveReal;
pub use problem::Factor;
pub use stages::Staged;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Stems of the plans, or empty for all.
    pub plans: Vec<String>,
    /// Names of the peers.
    pub peers: Vec<String>,
    /// Which triangles.
    pub triangles: Vec<Triangle>,
    /// The origin of the triangles.
    pub factor: Factor,
    /// The grid, if it is known. The structured plan then reads nothing.
    pub grid: Option<[usize; 3]>,
    /// Variants of the structured plan in addition to its default.
    pub staged: Vec<Staged>,
    /// Whether to time and judge the plan that the chooser takes.
    pub auto: bool,
    /// How long to measure.
    pub effort: Effort,
    /// Whether the machine's own bandwidth runs among the contenders.
    pub machine: bool,
    /// Matrices with fewer entries are skipped.
    pub min_entries: usize,
}

impl Contest {
    /// Whether to time a plan; `chosen` is the chooser's.
    pub(crate) fn wants(&self, stem: &str, chosen: Option<&Chosen>) -> bool {
        self.plans.is_empty() || self.plans.iter().any(|p| p == stem) || chosen.is_some_and(|c| c.plan == stem)
    }
}

/// The plan that the chooser takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) plan: &'static str,
    pub(crate) why: String,
}

/// The plan for many solves with a triangle on a device.
pub(crate) fn chosen_plan<T: Real>(matrix: &Arc<Triangular<T>>, profile: &Profile) -> Chosen {
    let spandrel_sptrsv::Choice { plan, why } = spandrel_sptrsv::choose(matrix, profile, MANY);
    Chosen { plan, why }
}

/// The number of solves that an analysis should serve: those of a preconditioned iteration.
const MANY: usize = 100;

/// How good a choice was.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// `"choose"`.
    pub op: &'static str,
    /// `"sptrsv"`.
    pub of: &'static str,
    /// Element type.
    #[serde(rename = "type")]
    pub element: &'static str,
    /// `"cpu"`, `"cuda"`.
    pub backend: &'static str,
    /// The matrix.
    pub case: String,
    /// `"lower"`, `"upper"`.
    pub triangle: String,
    /// `"none"`, `"ilu0"`.
    pub factor: &'static str,
    /// Rows.
    pub n: usize,
    /// Entries of the triangle.
    pub nnz: usize,
    /// The plan taken.
    pub chosen: String,
    /// Why.
    pub why: String,
    /// The plan that was fastest.
    pub best: String,
    /// The time of the chosen plan over that of the fastest.
    pub slower: f64,
    /// Milliseconds of the best peer over the chosen plan's.
    pub ratio_to_best_peer: Option<f64>,
}

/// The results of one case.
#[derive(Debug, Default)]
pub struct Findings {
    /// Timings.
    pub lines: Vec<crate::record::Line>,
    /// What was left out or went wrong, with the reason.
    pub errors: Vec<serde_json::Value>,
    /// How good the choices were.
    pub choices: Vec<Choice>,
}

impl Findings {
    /// Takes over the results of another case.
    pub fn add(&mut self, more: Findings) {
        self.lines.extend(more.lines);
        self.errors.extend(more.errors);
        self.choices.extend(more.choices);
    }

    /// The objects of the record: lines, choices, what was left out.
    ///
    /// # Errors
    /// None: every field is plain data.
    pub fn objects(&self) -> Result<Vec<serde_json::Value>> {
        let mut all = self.lines.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        for choice in &self.choices {
            all.push(serde_json::to_value(choice)?);
        }
        all.extend_from_slice(&self.errors);
        Ok(all)
    }
}

/// The result of `work` and its milliseconds.
pub(crate) fn stopwatch<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_secs_f64() * 1e3)
}

/// If one timing of a preparation takes this many milliseconds or more, it is enough.
pub(crate) const LONG_MS: f64 = 300.0;

/// The result of `work` and the median of three timings, or of a single long one. The previous result is dropped first,
/// because preparations may be large.
///
/// # Errors
/// The work's own.
pub(crate) fn prepared<R>(mut work: impl FnMut() -> Result<R>) -> Result<(R, f64)> {
    let mut samples = Vec::new();
    loop {
        let (result, ms) = stopwatch(&mut work);
        let result = result?;
        samples.push(ms);
        if samples.len() == 3 || ms > LONG_MS {
            samples.sort_by(f64::total_cmp);
            return Ok((result, samples[samples.len() / 2]));
        }
    }
}
