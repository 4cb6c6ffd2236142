//! The chores of the repository: `cargo xtask tidy | ptx | verify | soak | results | book | python | fetch-matrices |
//! test | ci`.
//!
//! It starts the programs of our crates by name, and links none of them.

mod book;
mod ci;
#[cfg_attr(not(feature = "fetch"), path = "fetch/again.rs")]
mod fetch;
mod mpi;
mod ptx;
mod python;
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
#[command(name = "cargo xtask", about = "The chores of the repository")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check the repository's rules: prints the table of nouns, and fails on every breach
    Tidy(tidy::Options),
    /// Compile the kernels to PTX with the pinned compiler; no GPU is needed
    Ptx(ptx::Options),
    /// Run the conformance suite on every backend found, in release
    Verify(verify::Options),
    /// Solve random systems on one backend for some minutes and check every claim, in release
    Soak(soak::Options),
    /// Write the pages of results, papers and limits from the records
    Results(results::Options),
    /// Build docs/ as a book with mdBook, and check its links
    Book(book::Options),
    /// Build the Python package, install it into a clean environment and test it there
    Python(python::Options),
    /// Download matrices of the SuiteSparse Matrix Collection, and check their checksums
    FetchMatrices(fetch::Options),
    /// Test what has changed since its tests passed, without the benches and the guide; stops at the first failure
    Test(ci::TestOptions),
    /// Run everything that CI runs; stops at the first failure
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
        Chore::Tidy(options) => tidy::run(&root, &options),
        Chore::Ptx(options) => ptx::run(&root, &options),
        Chore::Verify(options) => verify::run(&root, &options),
        Chore::Soak(options) => soak::run(&root, &options),
        Chore::Results(options) => results::run(&root, &options),
        Chore::Book(options) => book::run(&root, &options),
        Chore::Python(options) => python::run(&root, &options),
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
