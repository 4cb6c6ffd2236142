//! `cargo xtask fetch-matrices` in a build that cannot download. It starts one that can, so that no other chore waits
//! for a TLS library to compile.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// The arguments for the build that downloads; it knows the options.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// GROUP/NAME, as on the collection's pages: HB/1138_bus; --help lists the options
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAMES")]
    words: Vec<OsString>,
}

/// Runs it, in the folder and with the arguments of this call.
///
/// # Errors
/// A cargo that cannot start.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--package", "xtask", "--features", "fetch", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .args(["--", "fetch-matrices"])
        .args(&options.words)
        .status()
        .context("cannot start cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
