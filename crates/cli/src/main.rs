//! The `spandrel` program: solves, describes, times, converts and generates sparse matrices.
//!
//! Results go to stdout, everything else to stderr. With `--json` stdout holds exactly one object, also for an error.
//! Exit status: 0 converged or done; 1 an error; 2 bad usage; 3 not converged or interrupted.

mod args;
mod backend;
mod devices;
mod failure;
mod input;
mod interrupt;
mod output;
mod plot;
mod progress;
mod spy;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

fn main() -> ExitCode {
    let _ = Cli::parse();
    ExitCode::SUCCESS
}
