//! `cargo xtask ci`: every step that guards the house, in the order of what fails fastest.
//!
//! The steps are data, so that `tidy` can hold README to them. Two profiles (dev and release) and one set of features serve
//! all of them, so that every dependency is compiled at most twice and checked once.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use xshell::{Shell, cmd};

use crate::tidy;

/// Optional features that the steps switch on: every interop of the formats, and the GPU. Never all features there are: versions
/// of the CUDA driver's interface exclude each other.
const FEATURES: &str = "spandrel-formats/sprs,spandrel-formats/faer,spandrel-formats/nalgebra,spandrel/cuda";

/// One step: a command line as a reader would paste it, or a check inside this program.
#[derive(Debug)]
pub(crate) enum Step {
    /// A command, `{features}` standing for the list of optional features, with environment variables.
    Command(&'static str, &'static [(&'static str, &'static str)]),
    /// The rules of the house.
    Tidy,
    /// The size of the program as it was built for release.
    Size,
}

/// Bytes of the program at most.
const LARGEST: u64 = 25_000_000;

/// The steps in order, each with its name.
pub(crate) const STEPS: &[(&str, Step)] = &[
    ("format", Step::Command("cargo fmt --all --check", &[])),
    ("tidy", Step::Tidy),
    ("results", Step::Command("cargo xtask results --check", &[])),
    ("ptx", Step::Command("cargo xtask ptx --check", &[])),
    ("clippy", Step::Command("cargo clippy --workspace --all-targets --features {features} -- -D warnings", &[])),
    // Features that the workspace's own build never leaves out.
    ("formats alone", Step::Command("cargo check -p spandrel-formats", &[])),
    ("facade alone", Step::Command("cargo check -p spandrel --no-default-features", &[])),
    ("facade on the GPU alone", Step::Command("cargo check -p spandrel --no-default-features --features cuda", &[])),
    ("program without a GPU", Step::Command("cargo check -p spandrel-cli --no-default-features", &[])),
    ("tests", Step::Command("cargo test --workspace --lib --bins --tests --examples --features {features}", &[])),
    ("doc tests", Step::Command("cargo test --workspace --doc --features {features}", &[])),
    // README's programs open the default backend, which is a GPU wherever the feature is on.
    ("doc tests on the CPU", Step::Command("cargo test -p spandrel --doc", &[])),
    (
        "docs",
        Step::Command("cargo doc --workspace --no-deps --features {features}", &[("RUSTDOCFLAGS", "-D warnings")]),
    ),
    ("solve", Step::Command("cargo run --release -p spandrel-cli -- solve d3n7:64", &[])),
    ("solve a file", Step::Command("cargo run --release -p spandrel-cli -- solve crates/cli/testdata/plate.mtx", &[])),
    ("size of the program", Step::Size),
    ("verify", Step::Command("cargo xtask verify", &[])),
    // The crates are compiled above; building each package again from its archive would add a third set of artefacts.
    ("package", Step::Command("cargo package --workspace --exclude xtask --no-verify --allow-dirty --quiet", &[])),
];

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let begin = Instant::now();
    let mut spent = Vec::new();
    for (name, step) in STEPS {
        println!("== {name}");
        let start = Instant::now();
        let passed = match step {
            Step::Tidy => tidy::run(root)? == ExitCode::SUCCESS,
            Step::Size => fits(program_bytes(root)?),
            Step::Command(line, environment) => {
                let line = line.replace("{features}", FEATURES);
                println!("$ {}{line}", environment.iter().map(|(k, v)| format!("{k}={v:?} ")).collect::<String>());
                let mut words = line.split_whitespace();
                let program = words.next().unwrap_or_default();
                cmd!(shell, "{program} {words...}").envs(environment.iter().copied()).quiet().run().is_ok()
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        println!("== {name}: {} in {seconds:.1} s", if passed { "passed" } else { "FAILED" });
        spent.push((name, seconds));
        if !passed {
            return Ok(ExitCode::FAILURE);
        }
    }
    for (name, seconds) in spent {
        println!("{seconds:8.1} s  {name}");
    }
    println!("{:8.1} s  all {} steps passed", begin.elapsed().as_secs_f64(), STEPS.len());
    Ok(ExitCode::SUCCESS)
}

/// The bytes of the program that the steps before have built.
fn program_bytes(root: &Path) -> Result<u64> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let program = metadata.target_directory.join("release").join(format!("spandrel{}", std::env::consts::EXE_SUFFIX));
    Ok(std::fs::metadata(&program).with_context(|| format!("{program} was not built"))?.len())
}

/// Whether a program of so many bytes is small enough; says so.
fn fits(bytes: u64) -> bool {
    let fits = bytes <= LARGEST;
    let verdict = if fits { "within" } else { "more than" };
    println!("spandrel has {:.1} MB, {verdict} the {} MB that it may have", bytes as f64 / 1e6, LARGEST / 1_000_000);
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_too_large_fails() {
        assert!(fits(LARGEST) && !fits(LARGEST + 1));
    }

    #[test]
    fn commands_survive_splitting_at_blanks() {
        for (name, step) in STEPS {
            if let Step::Command(line, _) = step {
                assert!(!line.contains(['"', '\'', '\\']), "{name}: quotes are not understood");
                assert!(line.starts_with("cargo "), "{name}: a newcomer has cargo and nothing else");
                assert!(!line.contains("--all-features"), "{name}: versions of the driver exclude each other");
            }
        }
    }
}
