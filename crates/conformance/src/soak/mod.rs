//! A soak: random systems, formats, preconditioners and solvers on one device. Every claim is checked, until the time
//! is over or a claim is false.
//!
//! A case ends in a status whose residual and distance from faer's direct solution are within derived bounds (see
//! `judge.rs`), or in a typed refusal; nothing else passes. A case depends only on the seed and its number, so a
//! finding can be reproduced.

mod judge;
mod solve;
mod system;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use spandrel_backend::Device;

pub use solve::{Soaked, Subject};

use crate::case::Stream;
use crate::watchdog::Watchdog;

/// The time between two lines of progress.
const REPORT: Duration = Duration::from_secs(60);

/// The options of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// The seed of all cases.
    pub seed: u64,
    /// The number of the first case.
    pub from: u64,
    /// The largest number of cases.
    pub cases: u64,
    /// No case begins after this time.
    pub time: Duration,
}

/// The stream of random numbers of one case.
fn stream(seed: u64, number: u64) -> Stream {
    Stream::new(Stream::new(seed).bits() ^ Stream::new(!number).bits())
}

/// Runs cases on a device; whether nothing was contradicted. A case that hangs ends the process with its number on
/// stderr.
///
/// # Errors
/// A report that cannot be written.
pub fn run<B: Subject>(be: &B, soak: &Soak, report: &mut dyn Write) -> Result<bool> {
    let Soak { seed, from, cases, time } = *soak;
    writeln!(report, "soak on {}, seed {seed}", Device::describe(be))?;
    let (begin, watchdog) = (Instant::now(), Watchdog::new());
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let (mut done, mut said) = (0u64, begin);
    while done < cases && (done == 0 || begin.elapsed() < time) {
        let number = from.wrapping_add(done);
        watchdog.watch(Some(format!("case {number} of seed {seed} on {}", B::NAME)));
        let mut what = String::new();
        let ended = solve::case(be, &mut stream(seed, number), &mut what);
        done += 1;
        match ended {
            Ok(word) => *counts.entry(word).or_default() += 1,
            Err(why) => {
                writeln!(report, "FAILED  case {number} of seed {seed}: {what}\n        {why}")?;
                writeln!(report, "again:  soak --backend {} --seed {seed} --from {number} --cases 1", B::NAME)?;
                return Ok(false);
            }
        }
        if said.elapsed() >= REPORT {
            said = Instant::now();
            writeln!(report, "{:8.0} s  {done} cases", begin.elapsed().as_secs_f64())?;
            report.flush()?;
        }
    }
    watchdog.watch(None);
    for (word, count) in &counts {
        writeln!(report, "{count:10}  {word}")?;
    }
    writeln!(report, "{done} cases in {:.0} s, nothing contradicted", begin.elapsed().as_secs_f64())?;
    Ok(true)
}
