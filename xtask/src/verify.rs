//! `cargo xtask verify`: builds the conformance suite in release and runs it, or packs it for a machine without cargo.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use cargo_metadata::Message;
use clap::Args;

const PACKAGE: &str = "spandrel-conformance";

/// Built along with it: with the program's features switched on too, both share one build of every library below them.
const ALONGSIDE: &str = "spandrel-cli";

/// What the suite is asked to do; passed through to it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Backend to hold to the contract (cpu, trace, cuda), or all, as without it; trace is compared with the CPU, so that
    /// its trials are called cpu+trace, which is understood here too
    #[arg(long)]
    backend: Option<String>,
    /// Only trials whose name contains this
    #[arg(long)]
    filter: Option<String>,
    /// Fail where this backend cannot run, in the place of skipping it
    #[arg(long)]
    require: Option<String>,
    /// Writes one JSON object per trial
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A folder of Matrix Market files that the CPU and a reproducible GPU must solve alike; without it they are skipped
    #[arg(long, value_name = "DIR")]
    matrices: Option<PathBuf>,
    /// Copies the executable, which holds its cases, to a folder and runs nothing
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
        // The suite tries all backends where none is named.
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
    let executable = build(root)?;
    if let Some(dir) = &options.pack {
        println!("{}", pack(&executable, dir)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    start(&executable, options.arguments())
}

/// Runs the suite's executable to its end, whose status is ours.
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release", "-p", PACKAGE, "-p", ALONGSIDE, "--message-format", "json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("{PACKAGE} does not build");
    }
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.target.name == PACKAGE
            && let Some(executable) = artifact.executable
        {
            return Ok(executable.into());
        }
    }
    bail!("{PACKAGE} has no executable of its own name")
}

/// Copies the executable and returns where to.
fn pack(executable: &Path, dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let packed = dir.join(executable.file_name().context("an executable has a name")?);
    fs::copy(executable, &packed).with_context(|| format!("cannot write {}", packed.display()))?;
    Ok(packed)
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
    fn a_packed_suite_is_one_file() {
        let base = std::env::temp_dir().join(format!("spandrel-xtask-pack-{}", std::process::id()));
        let dir = base.join("to");
        fs::create_dir_all(&base).expect("temporary folder");
        let suite = base.join("suite");
        fs::write(&suite, "binary").expect("writable");
        assert_eq!(pack(&suite, &dir).expect("copies"), dir.join("suite"));
        assert_eq!(fs::read_dir(&dir).expect("made").count(), 1);
        fs::remove_dir_all(&base).expect("own folder");
    }
}
