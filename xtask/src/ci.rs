//! `cargo xtask test` and `cargo xtask ci`: the steps that guard the repository, the fastest first.
//!
//! There is one list. `ci` runs all of it, over the whole workspace. `test` runs the steps that are marked for it, over
//! the packages that have changed since they last passed, and over the conformance suite if it depends on one of them.
//! The steps are data, so that `tidy` can compare README with
//! them. One set of features and few profiles serve all of them, so that little is compiled twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;
use xshell::{Shell, cmd};

use crate::{mpi, python, run, stamps, tidy};

/// Optional features that the steps switch on: every interop of the formats, the GPU, the downloads of this program,
/// and kernels that are compiled once for all tests. Never all features, because the versions of the CUDA driver's
/// interface exclude each other.
const FEATURES: &str = "spandrel-formats/sprs,spandrel-formats/faer,spandrel-formats/nalgebra,\
                        spandrel-cli/metis,spandrel/cuda,\
                        spandrel-backend-cpu/instances";

/// Added if the whole workspace is compiled.
const ALL_FEATURES: &str = "xtask/fetch";

/// Added to those where MPI is installed, so that one build of the program serves its tests and the step `mpi`.
const MPI: &str = "spandrel-cli/mpi";

/// The packages of `test`. The benches and the guide need crates that nothing else needs, and take as long to compile
/// as several others together.
const QUICK: &str = "--workspace --exclude spandrel-bench --exclude spandrel-guide";

/// The package whose tests stand for those of every package that depends on a changed one.
const SUITE: &str = "spandrel-conformance";

/// The packages of `ci`.
const WHOLE: &str = "--workspace";

/// The profile in which `ci` compiles tests.
const PROFILE: &str = "--profile ci";

/// What the steps compile.
#[derive(Clone, Copy, Debug)]
struct Build<'a> {
    packages: &'a str,
    /// Of tests; the default one if it is empty.
    profile: &'a str,
    features: &'a str,
}

impl Build<'_> {
    /// A step's command line with its own.
    fn fill(&self, line: &str) -> String {
        let Self { packages, profile, features } = self;
        let line = line.replace("{packages}", packages).replace("{features}", features);
        line.replace(" {profile}", &if profile.is_empty() { String::new() } else { format!(" {profile}") })
    }
}

/// What a step does: a command line as a reader would paste it, or a check inside this program.
#[derive(Debug)]
pub(crate) enum What {
    /// A command with environment variables. `{packages}`, `{profile}` and `{features}` stand for those of [`Build`].
    Command(&'static str, &'static [(&'static str, &'static str)]),
    /// The repository's rules.
    Tidy,
    /// The size of the program in the release build.
    Size,
    /// The Python package.
    Python,
}

/// One step.
#[derive(Debug)]
pub(crate) struct Step {
    name: &'static str,
    what: What,
    /// Whether `cargo xtask test` runs it too.
    quick: bool,
}

/// A step of `ci` and of `test`.
const fn both(name: &'static str, line: &'static str) -> Step {
    Step { name, what: What::Command(line, &[]), quick: true }
}

/// A step of `ci` only.
pub(crate) const fn full(name: &'static str, what: What) -> Step {
    Step { name, what, quick: false }
}

const fn line(line: &'static str) -> What {
    What::Command(line, &[])
}

impl Step {
    /// The command line, if it is one.
    pub(crate) fn command(&self) -> Option<&'static str> {
        match self.what {
            What::Command(line, _) => Some(line),
            What::Tidy | What::Size | What::Python => None,
        }
    }
}

/// The largest size of the program in bytes.
const LARGEST: u64 = 25_000_000;

/// The steps in order.
pub(crate) const STEPS: &[Step] = &[
    full("format", line("cargo fmt --all --check")),
    full("tidy", What::Tidy),
    full("results", line("cargo xtask results --check")),
    full("ptx", line("cargo xtask ptx --check")),
    full("book", line("cargo xtask book --install")),
    full("clippy", line("cargo clippy {packages} --all-targets --features {features} -- -D warnings")),
    // Features that the workspace's own build never leaves out.
    full("formats alone", line("cargo check -p spandrel-formats")),
    full("facade alone", line("cargo check -p spandrel --no-default-features")),
    full("facade on the GPU alone", line("cargo check -p spandrel --no-default-features --features cuda")),
    full("program without a GPU", line("cargo check -p spandrel-cli --no-default-features")),
    // This includes part of the conformance suite (crates/conformance/tests/suite.rs), in `ci` all of its small cases.
    both("tests", "cargo test {packages} {profile} --lib --bins --tests --examples --features {features}"),
    both("doc tests", "cargo test {packages} {profile} --doc --features {features}"),
    // README's programs open the default backend, which is a GPU if the feature is on.
    full("doc tests on the CPU", line("cargo test -p spandrel --doc")),
    full(
        "docs",
        What::Command("cargo doc {packages} --no-deps --features {features}", &[("RUSTDOCFLAGS", "-D warnings")]),
    ),
    // It compiles the program of the next steps beside the suite.
    full("verify", line("cargo xtask verify")),
    full("solve", line("cargo run --release -p spandrel-cli -- solve d3n7:64")),
    full("solve a file", line("cargo run --release -p spandrel-cli -- solve crates/cli/testdata/plate.mtx")),
    full("size of the program", What::Size),
    full("python", What::Python),
    // It runs the program that the tests have built. Says that it was skipped where MPI is missing.
    full("mpi", line("cargo xtask verify --mpi")),
    // The crates are compiled above; building each package again from its archive would add a third set of artefacts.
    full("package", line("cargo package --workspace --exclude xtask --no-verify --allow-dirty --quiet")),
];

/// Everything that CI runs. Stops at the first failure.
///
/// # Errors
/// A step that cannot be started.
pub(crate) fn ci(root: &Path) -> Result<ExitCode> {
    let (features, environment) = (features(), [("SPANDREL_SUITE", "whole")]);
    let build = Build { packages: WHOLE, profile: PROFILE, features: &features };
    take(root, STEPS.iter(), build, &environment, None)
}

/// The features with which `ci` compiles the workspace on this machine.
fn features() -> String {
    let mpi = mpi::missing().is_none().then_some(MPI);
    [FEATURES, ALL_FEATURES].into_iter().chain(mpi).collect::<Vec<_>>().join(",")
}

/// Arguments for cargo that build the program with MPI, and nothing again that the tests of `ci` have built.
pub(crate) fn program_with_mpi() -> Vec<String> {
    let features = features();
    let build = Build { packages: WHOLE, profile: PROFILE, features: &features };
    let line = build.fill("test {packages} {profile} --no-run --test program --features {features}");
    line.split(' ').map(str::to_owned).collect()
}

/// The options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestOptions {
    /// Test every package, changed or not
    #[arg(long)]
    all: bool,
    /// Also test every package that depends on a changed one
    #[arg(long)]
    dependents: bool,
}

/// The steps that test, for the packages that have changed since they last passed, and the conformance suite if it
/// depends on one of them. Stops at the first failure.
///
/// # Errors
/// As [`ci`]; no git.
pub(crate) fn test(root: &Path, options: &TestOptions) -> Result<ExitCode> {
    let steps = || STEPS.iter().filter(|step| step.quick);
    let lines: Vec<_> = steps().filter_map(Step::command).collect();
    let mut now = stamps::now(root, &format!("{QUICK} {FEATURES} {}", lines.join(" ")))?;
    let mut passed = if options.all { stamps::Stamps::new() } else { stamps::passed(root)? };
    let is_tested = |name: &str| !QUICK.split_whitespace().any(|word| word == name);
    now.retain(|name, _| is_tested(name));
    let tested = chosen(&now, &passed, options.dependents);
    println!("{} of {} packages are to be tested; --all tests all", tested.len(), now.len());
    let left: Vec<&str> = now
        .iter()
        .filter(|(name, stamp)| !tested.contains(name.as_str()) && stamp.affected_since(passed.get(*name)))
        .map(|(name, _)| name.as_str())
        .collect();
    if !left.is_empty() {
        println!("compiled but not tested, because only what they depend on has changed: {}", left.join(", "));
        println!("--dependents tests them too, and so does cargo xtask ci");
    }
    if tested.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let build = Build { packages: QUICK, profile: "", features: FEATURES };
    let code = take(root, steps(), build, &[], Some(&tested))?;
    if code == ExitCode::SUCCESS {
        passed
            .extend(now.iter().filter(|(name, _)| tested.contains(name.as_str())).map(|(n, s)| (n.clone(), s.clone())));
        stamps::keep(root, &passed)?;
    }
    Ok(code)
}

/// The packages that are to be tested: those that have changed, the suite if anything that it depends on has, and with
/// `dependents` everything that depends on a changed one.
fn chosen<'a>(now: &'a stamps::Stamps, passed: &stamps::Stamps, dependents: bool) -> BTreeSet<&'a str> {
    now.iter()
        .filter(|(name, stamp)| {
            let then = passed.get(*name);
            let counts_all = dependents || *name == SUITE;
            stamp.changed_since(then) || counts_all && stamp.affected_since(then)
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Runs a command line and returns whether it succeeded.
fn command(shell: &Shell, line: &str, environment: &[(&str, &str)]) -> Result<bool> {
    println!("$ {}{line}", environment.iter().map(|(k, v)| format!("{k}={v:?} ")).collect::<String>());
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    Ok(cmd!(shell, "{program} {words...}").envs(environment.iter().copied()).quiet().run().is_ok())
}

/// Takes the steps with these environment variables, and tests the named packages, or all.
fn take<'a>(
    root: &Path,
    steps: impl Iterator<Item = &'a Step>,
    build: Build<'_>,
    shared: &[(&str, &str)],
    tested: Option<&BTreeSet<&str>>,
) -> Result<ExitCode> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    shared.iter().for_each(|(name, value)| shell.set_var(name, value));
    let begin = Instant::now();
    let mut spent = Vec::new();
    for Step { name, what, quick } in steps {
        println!("== {name}");
        let start = Instant::now();
        let passed = match what {
            What::Tidy => tidy::run(root, &tidy::Options::default())? == ExitCode::SUCCESS,
            What::Size => fits(program_bytes(root)?),
            What::Python => python::ci(root)?,
            What::Command(line, environment) => {
                let line = build.fill(line);
                // Doc tests of all packages take seconds. Those of some would compile what all need again, with other
                // features.
                match *quick && !line.contains(" --doc ") {
                    true => run::tests(&shell, &line, tested, shared)?,
                    false => command(&shell, &line, environment)?,
                }
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        println!("== {name}: {} in {seconds:.1} s", if passed { "passed" } else { "FAILED" });
        spent.push((name, seconds));
        if !passed {
            return Ok(ExitCode::FAILURE);
        }
    }
    for (name, seconds) in &spent {
        println!("{seconds:8.1} s  {name}");
    }
    println!("{:8.1} s  all {} steps passed", begin.elapsed().as_secs_f64(), spent.len());
    Ok(ExitCode::SUCCESS)
}

/// The size in bytes of the program that the earlier steps have built.
fn program_bytes(root: &Path) -> Result<u64> {
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let program = metadata.target_directory.join("release").join(format!("spandrel{}", std::env::consts::EXE_SUFFIX));
    Ok(std::fs::metadata(&program).with_context(|| format!("{program} was not built"))?.len())
}

/// Whether a program of this many bytes is small enough. Prints the answer.
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
        for Step { name, what, .. } in STEPS {
            if let What::Command(line, _) = what {
                assert!(!line.contains(['"', '\'', '\\']), "{name}: quotes are not understood");
                assert!(line.starts_with("cargo "), "{name}: a newcomer has cargo and nothing else");
                assert!(!line.contains("--all-features"), "{name}: versions of the driver exclude each other");
            }
        }
    }

    #[test]
    fn a_line_is_filled() {
        let line = "cargo test {packages} {profile} --doc --features {features}";
        let mut build = Build { packages: "--workspace", profile: "--profile ci", features: "a,b" };
        assert_eq!(build.fill(line), "cargo test --workspace --profile ci --doc --features a,b");
        build.profile = "";
        assert_eq!(build.fill(line), "cargo test --workspace --doc --features a,b");
    }

    #[test]
    fn the_quick_steps_test_and_need_no_release_build() {
        let quick: Vec<&str> = STEPS.iter().filter(|step| step.quick).filter_map(Step::command).collect();
        assert_eq!(quick.len(), STEPS.iter().filter(|step| step.quick).count(), "a check of ci's own is no test");
        for line in &quick {
            assert!(line.starts_with("cargo test {packages} {profile} ") && !line.contains("--release"), "{line}");
        }
        for target in ["--lib", "--bins", "--tests", "--examples", "--doc"] {
            assert!(quick.iter().any(|line| line.contains(target)), "{target} is not tested");
        }
    }
}
