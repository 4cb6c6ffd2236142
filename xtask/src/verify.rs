//! `cargo xtask verify`: builds the conformance suite in release and runs it, or packs it for a machine without cargo,
//! together with the tests that need a GPU.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use clap::Args;

use crate::mpi;

const PACKAGE: &str = "spandrel-conformance";

/// Built together with it. With the program's features on, both share one build of every library below them.
const ALONGSIDE: &str = "spandrel-cli";
const PROGRAM: &str = "spandrel";

/// Tests outside the suite that need a GPU: package, test, and a filter.
const TESTS: [(&str, &str, &str); 3] = [
    ("spandrel-backend-cuda", "forced_kernels", ""),
    ("spandrel-backend-cuda", "sweep", ""),
    (ALONGSIDE, "program", "gpu::"),
];

/// Options of the suite, which are passed on to it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// The backend to check (cpu, trace, cuda); default all. trace is compared with the CPU, so its trials are called
    /// cpu+trace, which is accepted here too
    #[arg(long)]
    backend: Option<String>,
    /// Only trials whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Fail if this backend cannot run, instead of skipping it
    #[arg(long)]
    require: Option<String>,
    /// Write one JSON object per trial
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A folder of Matrix Market files; the CPU and a reproducible GPU must solve them alike. Without it, these trials
    /// are skipped
    #[arg(long, value_name = "DIR")]
    matrices: Option<PathBuf>,
    /// Build the program with MPI instead, run it on 1 to 4 processes, and compare x with that of one device; skipped
    /// if MPI or libclang is missing
    #[arg(long, conflicts_with_all = ["backend", "filter", "require", "json", "matrices", "pack"])]
    mpi: bool,
    /// Copy the executable, which contains its cases, into a folder, with the tests that need a GPU and verify.sh,
    /// which runs all of them; run nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["backend", "filter", "require", "json", "matrices"])]
    pack: Option<PathBuf>,
}

impl Options {
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        let mut pass = |name: &str, value: Option<OsString>| {
            if let Some(value) = value {
                arguments.extend([OsString::from(name), value]);
            }
        };
        // The suite tries all backends if none is named.
        let backend = self.backend.as_deref().filter(|name| *name != "all");
        pass("--backend", backend.map(|name| if name == "cpu+trace" { "trace" } else { name }.into()));
        pass("--filter", self.filter.clone().map(Into::into));
        pass("--require", self.require.clone().map(Into::into));
        pass("--json", self.json.clone().map(Into::into));
        pass("--matrices", self.matrices.clone().map(Into::into));
        arguments
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.mpi {
        return mpi::run(root);
    }
    let executable = build(root)?;
    if let Some(dir) = &options.pack {
        let mut files = vec![executable];
        files.extend(built(root, &["build", "-p", ALONGSIDE], &[PROGRAM])?);
        for (package, test, _) in TESTS {
            files.extend(built(root, &["test", "--no-run", "-p", package, "--test", test], &[test])?);
        }
        let names = [PACKAGE, PROGRAM].into_iter().chain(TESTS.map(|(_, test, _)| test));
        println!("{}", pack(&names.zip(files).collect::<Vec<_>>(), dir)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    start(&executable, options.arguments())
}

/// Runs the suite's executable to its end and takes over its exit status.
pub(crate) fn start(executable: &Path, arguments: Vec<OsString>) -> Result<ExitCode> {
    let status = Command::new(executable)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot start {}", executable.display()))?;
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => bail!("{} was ended by a signal: {status}", executable.display()),
    })
}

/// The suite's executable, built now.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let mut found = built(root, &["build", "-p", PACKAGE, "-p", ALONGSIDE], &[PACKAGE])?;
    found.pop().with_context(|| format!("{PACKAGE} has no executable of its own name"))
}

/// The executables of these targets, in order, from a release build with these features.
fn built(root: &Path, ask: &[&str], targets: &[&str]) -> Result<Vec<PathBuf>> {
    made(root, &[ask, &["--release"]].concat(), targets)
}

/// The cargo that runs this program, in the project's folder.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// The executables of these targets, in order, as cargo makes them when asked like this.
pub(crate) fn made(root: &Path, ask: &[&str], targets: &[&str]) -> Result<Vec<PathBuf>> {
    let output = cargo(root)
        .args(ask)
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{} does not build", targets.join(", "));
    }
    let mut found = vec![None; targets.len()];
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message?
            && let Some(place) = targets.iter().position(|name| artifact.target.name == *name)
            && let Some(executable) = artifact.executable
        {
            found[place] = Some(executable.into());
        }
    }
    let each = found.into_iter().zip(targets);
    each.map(|(found, name)| found.with_context(|| format!("{name} has no executable of its own name"))).collect()
}

/// The script that runs a packed suite and the other tests.
fn script() -> String {
    let mut text = String::from(
        "#!/bin/sh\n\
         # All that a GPU can show, each part with its count; a missing GPU is a failure. Arguments go to the suite.\n\
         cd \"$(dirname \"$0\")\" || exit 1\n\
         export SPANDREL_REQUIRE=cuda SPANDREL_PROGRAM=\"$PWD/spandrel\"\n\
         failed=0\n",
    );
    for (_, test, filter) in TESTS {
        // Alone, because one of them looks how much memory is free.
        text += &format!("echo {test}\n./{test} --test-threads 1 {filter} || failed=1\n");
    }
    text + &format!("echo {PACKAGE}\n./{PACKAGE} --backend cuda --require cuda \"$@\" || failed=1\nexit $failed\n")
}

/// Copies executables under their names, with a script that runs them. Returns the first one's path.
fn pack(files: &[(&str, PathBuf)], dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, file) in files {
        fs::copy(file, dir.join(name)).with_context(|| format!("cannot write {name} to {}", dir.display()))?;
    }
    let to = dir.join("verify.sh");
    fs::write(&to, script()).with_context(|| format!("cannot write {}", to.display()))?;
    let (first, _) = files.first().context("nothing to pack")?;
    Ok(dir.join(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_passed_through_in_pairs() {
        let options = Options {
            backend: Some("cpu".into()),
            filter: Some("spmv/bdia".into()),
            json: Some("a b.jsonl".into()),
            matrices: Some("matrices".into()),
            ..Options::default()
        };
        let expected = ["--backend", "cpu", "--filter", "spmv/bdia", "--json", "a b.jsonl", "--matrices", "matrices"];
        assert_eq!(options.arguments(), expected.map(OsString::from));
        assert!(Options::default().arguments().is_empty());
        for name in ["trace", "cpu+trace"] {
            let trace = Options { backend: Some(name.into()), ..Options::default() };
            assert_eq!(trace.arguments(), ["--backend", "trace"].map(OsString::from));
        }
        assert!(Options { backend: Some("all".into()), ..Options::default() }.arguments().is_empty());
    }

    #[test]
    fn a_pack_is_the_suite_with_the_tests_that_need_a_gpu() {
        let base = std::env::temp_dir().join(format!("spandrel-xtask-pack-{}", std::process::id()));
        let dir = base.join("to");
        fs::create_dir_all(&base).expect("temporary folder");
        let suite = base.join("suite");
        fs::write(&suite, "binary").expect("writable");
        let files = [(PACKAGE, suite.clone()), ("sweep", suite)];
        assert_eq!(pack(&files, &dir).expect("copies"), dir.join(PACKAGE));
        assert_eq!(fs::read_dir(&dir).expect("made").count(), 3);
        let script = fs::read_to_string(dir.join("verify.sh")).expect("written");
        assert!(script.contains("./program --test-threads 1 gpu:: || failed=1"), "{script}");
        assert!(script.ends_with("--backend cuda --require cuda \"$@\" || failed=1\nexit $failed\n"), "{script}");
        fs::remove_dir_all(&base).expect("own folder");
    }
}
