//! The chores of the house: `cargo xtask tidy | ptx | verify | soak | results | fetch-matrices | test | ci`.
//!
//! Knows our crates by name only, to start their binaries; links none of them.

mod ci;
#[cfg_attr(not(feature = "fetch"), path = "fetch/again.rs")]
mod fetch;
mod ptx;
mod results;
mod run;
mod soak;
mod stamps;
mod tidy;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The chores of the house")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// The rules of the house: prints the table of nouns and rooms, fails on every breach
    Tidy,
    /// The kernels' PTX from their sources, by the pinned compiler; no GPU is needed
    Ptx(ptx::Options),
    /// The conformance suite on every backend found, in release
    Verify(verify::Options),
    /// Random systems on one backend, each held to what it claims, for some minutes, in release
    Soak(soak::Options),
    /// docs/results.md from the records: the sources' figures beside ours, and the peers of today
    Results(results::Options),
    /// Matrices of the SuiteSparse Matrix Collection, each with its checksum
    FetchMatrices(fetch::Options),
    /// The tests of what has changed since they last passed, without the benches and the guide; stops at the first failure
    Test(ci::TestOptions),
    /// Everything that CI runs; stops at the first failure
    Ci,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let root = root()?;
    match arguments.chore {
        Chore::Tidy => tidy::run(&root),
        Chore::Ptx(options) => ptx::run(&root, &options),
        Chore::Verify(options) => verify::run(&root, &options),
        Chore::Soak(options) => soak::run(&root, &options),
        Chore::Results(options) => results::run(&root, &options),
        Chore::FetchMatrices(options) => fetch::run(&root, &options),
        Chore::Test(options) => ci::test(&root, &options),
        Chore::Ci => ci::ci(&root),
    }
}

/// The workspace's folder: the parent of this package's.
fn root() -> Result<PathBuf> {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    Ok(here.parent().context("xtask lies in the workspace's folder")?.to_owned())
}
