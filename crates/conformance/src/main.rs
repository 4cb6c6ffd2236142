//! `spandrel-conformance`: runs the suite on the backends of this machine.
//!
//! Failing and skipped trials are printed with their reason; the last line is `N passed, N failed, N skipped`. Exit status: 0
//! if nothing failed, 1 if something did or a required backend is missing, 2 for bad usage.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use spandrel_conformance::suite::{self, Selection};

/// Holds every backend to the contract.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Try this backend alone
    #[arg(long, value_name = "NAME", value_parser = suite::BACKENDS)]
    backend: Option<String>,
    /// Run only the trials whose name contains this text
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Fail if this backend cannot be tried
    #[arg(long, value_name = "NAME")]
    require: Option<Required>,
    /// A folder of Matrix Market files that the CPU and a reproducible GPU must solve alike
    #[arg(long, value_name = "DIR")]
    matrices: Option<PathBuf>,
    /// Leave out the large cases
    #[arg(long)]
    small: bool,
    /// Write one JSON record per trial
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the names of the trials and run none
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Required {
    Cpu,
    Cuda,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // A reader that has seen enough (`| head`) is no failure of the suite's, and no success either.
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

/// Whether nothing failed and nothing required is missing.
fn run(args: &Args) -> Result<bool> {
    let selection = Selection {
        backend: args.backend.clone(),
        filter: args.filter.clone(),
        small: args.small,
        require_cuda: args.require == Some(Required::Cuda),
        matrices: args.matrices.clone(),
    };
    let trials = suite::select(&selection)?;
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
