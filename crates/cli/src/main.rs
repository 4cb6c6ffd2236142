//! The `spandrel` program: solves, describes, times, converts and generates sparse matrices.
//!
//! Results go to stdout, everything else to stderr. With `--json` stdout holds exactly one object, also for an error.
//! Exit status: 0 converged or done; 1 an error; 2 bad usage; 3 not converged or interrupted with an answer; 130 ended
//! by Ctrl-C.

mod args;
mod backend;
mod convert;
mod devices;
mod failure;
mod info;
mod input;
mod interrupt;
mod manual;
mod memory;
mod names;
mod output;
mod plot;
mod progress;
mod solve;
mod spmv;
mod spy;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};
use failure::{Failure, Result};

/// Exit status of an error.
const FAILED: u8 = 1;
/// Exit status of a usage error, as clap has it.
const MISUSED: u8 = 2;
/// Kind of a usage error.
const USAGE: &str = "usage";
/// Exit status of a solve that did not converge.
const NOT_CONVERGED: u8 = 3;

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    progress::set_quiet(cli.quiet);
    let json = cli.command.json();
    match run(&cli.command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_CONVERGED),
        Err(failure) => {
            report(&failure, json);
            ExitCode::from(if failure.kind == USAGE { MISUSED } else { FAILED })
        }
    }
}

/// The command line. Options that are known to be tried by mistake are answered with the right ones.
fn parse() -> std::result::Result<Cli, clap::Error> {
    let mut command = Cli::command().mut_subcommand("solve", |solve| solve.args(names::misnamed()));
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Whether what was asked for was reached.
fn run(command: &Command) -> Result<bool> {
    interrupt::install()?;
    backend::set_threads(command.threads())?;
    match command {
        Command::Solve(args) => solve::run(args),
        Command::Devices(args) => devices::run(args).map(|()| true),
        Command::Spmv(args) => spmv::run(args).map(|()| true),
        Command::Convert(args) => convert::convert(args).map(|()| true),
        Command::Generate(args) => convert::generate(args).map(|()| true),
        Command::Info(args) => info::run(args).map(|()| true),
        Command::Completions(args) => manual::completions(args).map(|()| true),
        Command::Man(args) => manual::man(args).map(|()| true),
    }
}

/// The message on stderr and, for programs, the object on stdout.
pub(crate) fn report(failure: &Failure, json: bool) {
    if failure.is_told {
        return;
    }
    // If stderr is closed too, no one can be told.
    let _ = writeln!(std::io::stderr(), "error: {failure}");
    if json && !failure.object_printed {
        let object = serde_json::json!({"error": {"kind": failure.kind, "message": failure.message}});
        let _ = output::print_json(&object);
    }
}

/// Prints help and version to stdout, and a usage error to stderr; with `--json` among the arguments also as an object.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has left is no error here either.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let _ = error.print();
    if std::env::args_os().any(|arg| arg == "--json") {
        let text = error.render().to_string();
        let message = text.trim_start_matches("error: ").trim_end();
        let object = serde_json::json!({"error": {"kind": USAGE, "message": message}});
        let _ = output::print_json(&object);
    }
    ExitCode::from(MISUSED)
}
