//! `cargo xtask verify`: builds the conformance suite in release and runs it, or packs it for a machine without cargo.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Message, MetadataCommand};
use clap::Args;

const PACKAGE: &str = "spandrel-conformance";

/// What the suite is asked to do; passed through to it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Backend to hold to the contract (cpu, trace, cuda), or all, as without it
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
    /// Copies the executable and its data to a folder and runs nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["backend", "filter", "require", "json"])]
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
        pass("--backend", self.backend.clone().filter(|name| name != "all").map(Into::into));
        pass("--filter", self.filter.clone().map(Into::into));
        pass("--require", self.require.clone().map(Into::into));
        pass("--json", self.json.clone().map(Into::into));
        arguments
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let executable = build(root)?;
    if let Some(dir) = &options.pack {
        let copied = pack(root, &executable, dir)?;
        println!("{copied} files in {}", dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    let status = Command::new(&executable)
        .args(options.arguments())
        .status()
        .with_context(|| format!("cannot start {}", executable.display()))?;
    Ok(match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        None => bail!("{} was ended by a signal: {status}", executable.display()),
    })
}

/// The suite's executable, built now.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--release", "--package", PACKAGE, "--bins", "--message-format", "json-render-diagnostics"])
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

/// Copies the executable, and `testdata/` of its package beside it. Returns the number of files.
fn pack(root: &Path, executable: &Path, dir: &Path) -> Result<usize> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let name = executable.file_name().context("an executable has a name")?;
    fs::copy(executable, dir.join(name)).with_context(|| format!("cannot write into {}", dir.display()))?;
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let package = metadata.packages.iter().find(|p| p.name.as_str() == PACKAGE).context("no such package")?;
    let data = package.manifest_path.with_file_name("testdata");
    let copied = if data.is_dir() { copy_folder(data.as_std_path(), &dir.join("testdata"))? } else { 0 };
    Ok(1 + copied)
}

fn copy_folder(from: &Path, to: &Path) -> Result<usize> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let mut copied = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copied += copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("cannot write {}", target.display()))?;
            copied += 1;
        }
    }
    Ok(copied)
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
            ..Options::default()
        };
        let expected = ["--backend", "cpu", "--filter", "spmv/bdia", "--json", "a b.jsonl"];
        assert_eq!(options.arguments(), expected.map(OsString::from));
        assert!(Options::default().arguments().is_empty());
        assert!(Options { backend: Some("all".into()), ..Options::default() }.arguments().is_empty());
    }

    #[test]
    fn a_folder_is_copied_with_its_folders() {
        let base = std::env::temp_dir().join(format!("spandrel-xtask-pack-{}", std::process::id()));
        let (from, to) = (base.join("from"), base.join("to"));
        fs::create_dir_all(from.join("cases")).expect("temporary folder");
        fs::write(from.join("a.toml"), "a").expect("writable");
        fs::write(from.join("cases/b.toml"), "b").expect("writable");
        assert_eq!(copy_folder(&from, &to).expect("copies"), 2);
        assert_eq!(fs::read_to_string(to.join("cases/b.toml")).expect("copied"), "b");
        fs::remove_dir_all(&base).expect("own folder");
    }
}
