//! `cargo xtask soak`: builds the conformance suite in release and runs its soak. With `--ranks` it makes ranks of
//! distributed solves fail at random instead: threads in a test, and processes of MPI that are killed.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::Args;

use crate::{mpi, verify};

/// Options of the soak, which are passed on to it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Make ranks fail at random, in a debug build: half of the time threads, half of the time processes of MPI
    #[arg(long, conflicts_with_all = ["backend", "from", "cases"])]
    ranks: bool,
    /// Backend: cpu or cuda
    #[arg(long, default_value = "cpu")]
    backend: String,
    /// Minutes to run. Default: 1, or 5 with --ranks
    #[arg(long)]
    minutes: Option<f64>,
    /// The seed of all cases; by default from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// The number of the first case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The largest number of cases
    #[arg(long)]
    cases: Option<u64>,
}

impl Options {
    fn arguments(&self) -> Vec<OsString> {
        let mut words = vec!["soak".to_owned(), "--backend".to_owned(), self.backend.clone()];
        words.extend([
            "--minutes".to_owned(),
            self.minutes.unwrap_or(1.0).to_string(),
            "--from".to_owned(),
            self.from.to_string(),
        ]);
        words.extend(self.seed.into_iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
        words.extend(self.cases.into_iter().flat_map(|cases| ["--cases".to_owned(), cases.to_string()]));
        words.into_iter().map(OsString::from).collect()
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.ranks {
        return ranks(root, options);
    }
    verify::start(&verify::build(root)?, options.arguments())
}

/// Threads first, then processes.
fn ranks(root: &Path, options: &Options) -> Result<ExitCode> {
    let seconds = 60.0 * options.minutes.unwrap_or(5.0);
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seed = options.seed.unwrap_or_else(clock);
    let missing = mpi::missing();
    let each = if missing.is_some() { seconds } else { seconds / 2.0 };
    let threads = verify::cargo(root)
        .args(["test", "-p", "spandrel-distributed", "--test", "soak", "--", "--ignored", "--nocapture"])
        .env("SPANDREL_SOAK_SECONDS", format!("{}", each.ceil()))
        .env("SPANDREL_SOAK_SEED", seed.to_string())
        .status()
        .context("cannot start cargo")?;
    if !threads.success() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(why) = missing {
        println!("processes skipped: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    let program = mpi::build(root)?;
    println!("seed {seed}");
    println!("{}", mpi::kill_at_random(&program, Duration::from_secs_f64(each), seed)?);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_passed_through() {
        let options = Options {
            ranks: false,
            backend: "cuda".into(),
            minutes: Some(2.5),
            seed: Some(7),
            from: 3,
            cases: Some(1),
        };
        let words = "soak --backend cuda --minutes 2.5 --from 3 --seed 7 --cases 1";
        assert_eq!(options.arguments(), words.split(' ').map(OsString::from).collect::<Vec<_>>());
    }
}
