//! `spandrel-conformance`: runs the suite on the backends of this machine.
//!
//! It prints failing and skipped trials with their reason; the last line is `N passed, N failed, N skipped`. Exit
//! status: 0 if nothing failed, 1 if something failed or a required backend is missing, 2 for bad usage.
//!
//! `spandrel-conformance soak` runs random systems on one backend for some time, and stops at the first contradiction
//! with status 1.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use spandrel_backend_cpu::Cpu;
use spandrel_backend_cuda::Cuda;
use spandrel_conformance::soak::{self, Soak};
use spandrel_conformance::suite::{self, Selection};

/// Checks every backend against the contract
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Try only this backend
    #[arg(long, value_name = "NAME", value_parser = suite::BACKENDS)]
    backend: Option<String>,
    /// Run only the trials whose name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Fail if this backend cannot be tried
    #[arg(long, value_name = "NAME")]
    require: Option<Required>,
    /// A folder of Matrix Market files; the CPU and a reproducible GPU must solve them alike
    #[arg(long, value_name = "DIR")]
    matrices: Option<PathBuf>,
    /// Leave out the large cases
    #[arg(long)]
    small: bool,
    /// Of each operation, noun, type and backend, run one trial in N
    #[arg(long, value_name = "N", default_value_t = 1)]
    one_in: usize,
    /// Run part K of N, e.g. 2/3: every Nth trial, so that all parts take about as long
    #[arg(long, value_name = "K/N", value_parser = part, default_value = "1/1")]
    part: Part,
    /// Write one JSON record per trial
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the names of the trials, and run none
    #[arg(long)]
    list: bool,
}

/// Part `which` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    which: usize,
    of: usize,
}

/// Reads a [`Part`].
fn part(text: &str) -> Result<Part, String> {
    let numbers = text.split_once('/').and_then(|(which, of)| Some((which.parse().ok()?, of.parse().ok()?)));
    match numbers {
        Some((which, of)) if (1..=of).contains(&which) => Ok(Part { which, of }),
        _ => Err("give K/N with K from 1 to N, e.g. 2/3".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Required {
    Cpu,
    Cuda,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Solve random systems and check every claim, until the time is over or a claim is false
    Soak(SoakArgs),
}

#[derive(Debug, clap::Args)]
struct SoakArgs {
    /// The backend
    #[arg(long, default_value = "cpu")]
    backend: Required,
    /// Minutes to run
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed of all cases; by default from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// The number of the first case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The largest number of cases
    #[arg(long, default_value_t = u64::MAX)]
    cases: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let ended = match &args.command {
        Some(Command::Soak(args)) => soak(args),
        None => run(&args),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // A reader that stops early (`| head`) is neither a failure of the suite nor a success.
        Err(error) if broken_pipe(&error) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe))
}

/// Returns true if no claim was false.
fn soak(args: &SoakArgs) -> Result<bool> {
    // The lower digits of the clock: short enough to be typed again.
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    // Two runs that begin in the same millisecond differ in their process numbers. A prime spreads those over all
    // seeds.
    let own = 15_485_863 * u64::from(std::process::id());
    let seed = args.seed.unwrap_or_else(|| (clock() + own) % 1_000_000_000);
    let time = Duration::try_from_secs_f64(60.0 * args.minutes).context("--minutes")?;
    let soak = Soak { seed, from: args.from, cases: args.cases, time };
    let mut stdout = std::io::stdout().lock();
    let kept = match args.backend {
        Required::Cpu => soak::run(&Cpu::new(), &soak, &mut stdout)?,
        Required::Cuda => soak::run(&Cuda::new()?, &soak, &mut stdout)?,
    };
    stdout.flush()?;
    Ok(kept)
}

/// Returns true if nothing failed and nothing required is missing.
fn run(args: &Args) -> Result<bool> {
    let selection = Selection {
        backend: args.backend.clone(),
        filter: args.filter.clone(),
        small: args.small,
        one_in: args.one_in,
        require_cuda: args.require == Some(Required::Cuda),
        matrices: args.matrices.clone(),
    };
    let Part { which, of } = args.part;
    let trials: Vec<_> = suite::select(&selection)?.into_iter().skip(which - 1).step_by(of).collect();
    let mut stdout = std::io::stdout().lock();
    if args.list {
        for trial in &trials {
            writeln!(stdout, "{}", trial.name)?;
        }
        return Ok(true);
    }
    let mut json = match &args.json {
        Some(path) => Some(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)),
        None => None,
    };
    let tally = suite::run(trials, &mut stdout, json.as_mut().map(|json| json as &mut dyn Write))?;
    if let Some(json) = &mut json {
        json.flush().context("writing the records")?;
    }
    writeln!(stdout, "{tally}")?;
    stdout.flush()?;
    Ok(tally.failed == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_from_one() {
        assert_eq!(part("2/3"), Ok(Part { which: 2, of: 3 }));
        for wrong in ["0/3", "4/3", "2", "a/b", "1/0", "-1/2"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }
}
