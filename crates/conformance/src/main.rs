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
use spandrel_conformance::suite::{self, Part, Selection};

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
    #[arg(long, value_name = "K/N", default_value = "1/1")]
    part: Part,
    /// Run so many trials at a time; default one for each core, at most 8, and one where a GPU is tried
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Write one JSON record per trial
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the names of the trials, and run none
    #[arg(long)]
    list: bool,
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
        part: args.part,
    };
    let mut stdout = std::io::stdout().lock();
    if args.list {
        for trial in suite::select(&selection)? {
            writeln!(stdout, "{}", trial.name)?;
        }
        return Ok(true);
    }
    let mut json = match &args.json {
        Some(path) => Some(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)),
        None => None,
    };
    let records = json.as_mut().map(|json| json as &mut dyn Write);
    let tally = match args.jobs.unwrap_or_else(|| suite::jobs(&selection)) {
        0 | 1 => suite::run(suite::select(&selection)?, &mut stdout, records)?,
        several => suite::run_together(&selection, several, &mut stdout, records)?,
    };
    if let Some(json) = &mut json {
        json.flush().context("writing the records")?;
    }
    writeln!(stdout, "{tally}")?;
    stdout.flush()?;
    Ok(tally.failed == 0)
}
