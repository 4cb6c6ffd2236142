//! Builds all tests, and runs those of some packages.
//!
//! `cargo test -p` would build again what another set of packages needs with other features. So cargo builds the same set every time, and the
//! programs that it names are run here, in the folders of their packages, as cargo runs them.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use cargo_metadata::Message;
use xshell::Shell;

/// Builds the tests of `line`, a `cargo test` command, and runs those of the packages named; whether all passed. Stops at the first failure.
///
/// # Errors
/// Programs that cannot be started.
pub(crate) fn tests(shell: &Shell, line: &str, packages: &BTreeSet<&str>) -> Result<bool> {
    println!("$ {line} --no-run");
    let mut words = line.split_whitespace();
    let mut cargo = Command::new(words.next().unwrap_or_default());
    cargo.args(words).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut building = cargo.current_dir(shell.current_dir()).stdout(Stdio::piped()).spawn().context("cargo")?;
    let output = BufReader::new(building.stdout.take().context("its output is piped")?);
    let mut programs = Vec::new();
    for message in Message::parse_stream(output) {
        if let Message::CompilerArtifact(artifact) = message?
            && let (true, Some(program)) = (artifact.profile.test, artifact.executable)
        {
            programs.push((artifact.manifest_path, artifact.target.name, program));
        }
    }
    if !building.wait()?.success() {
        return Ok(false);
    }
    programs.sort();
    for (manifest, target, program) in programs {
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        let package = package(&std::fs::read_to_string(&manifest)?)?;
        if !packages.contains(package.as_str()) {
            continue;
        }
        println!("-- {package}: {target}");
        let mut test = Command::new(&program);
        test.current_dir(folder).env("CARGO_MANIFEST_DIR", folder);
        if !test.status().with_context(|| program.to_string())?.success() {
            println!("-- {package}: {target} FAILED; again: cargo test -p {package} --test {target} (or --lib, --bin)");
            return Ok(false);
        }
    }
    Ok(true)
}

/// The name in a manifest.
fn package(manifest: &str) -> Result<String> {
    let table: toml::Table = manifest.parse()?;
    let name = table.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    name.map(str::to_owned).context("a package has a name")
}
