//! Builds all tests, and runs all of them or those of some packages.
//!
//! `cargo test -p` would compile again what another set of packages needs with other features. So cargo always builds
//! the same set, and the programs that it names are run here, in the folders of their packages, as cargo runs them.
//! Each starts as soon as it is built, with as many at a time as there are cores. So a program that waits or has one
//! long test leaves no core idle. The integration tests of a package with a program of its own run that program, and
//! cargo may link it after them. So they wait until cargo has told of it.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use cargo_metadata::Message;
use xshell::Shell;

/// A test program that is built.
#[derive(Debug)]
struct Program {
    package: String,
    target: String,
    /// The folder of its package.
    folder: PathBuf,
    path: PathBuf,
    /// Whether it runs a program of its package, which may not be there yet.
    runs_another: bool,
}

/// What a message of cargo's tells of.
#[derive(Debug)]
enum Told {
    /// A test program is built.
    Test(Program),
    /// The program of the package in this folder is built.
    Binary(PathBuf),
    Other,
}

/// Builds the tests of `line`, a `cargo test` command, and runs those of the named packages, or all. Returns whether
/// all passed. After the first failure no other program starts. Builds and programs get these environment variables.
///
/// # Errors
/// Programs that cannot be started.
pub(crate) fn tests(
    shell: &Shell,
    line: &str,
    packages: Option<&BTreeSet<&str>>,
    environment: &[(&str, &str)],
) -> Result<bool> {
    println!("$ {line} --no-run");
    let mut words = line.split_whitespace();
    let mut cargo = Command::new(words.next().unwrap_or_default());
    cargo.args(words).args(["--no-run", "--message-format=json-render-diagnostics"]).envs(environment.iter().copied());
    let mut building = cargo.current_dir(shell.current_dir()).stdout(Stdio::piped()).spawn().context("cargo")?;
    let output = BufReader::new(building.stdout.take().context("its output is piped")?);
    let failed = AtomicBool::new(false);
    let (queue, waiting) = mpsc::channel::<Program>();
    let waiting = Mutex::new(waiting);
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(program) = next else { return Ok(()) };
            if !failed.load(Ordering::Relaxed) && !passes(&program, environment)? {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    let built = thread::scope(|scope| -> Result<bool> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        // Dropped at the end, also after an error, because the workers wait for it.
        let queue = queue;
        let begin = |program| queue.send(program).context("the workers wait for programs");
        let (mut held, mut there) = (Vec::<Program>::new(), BTreeSet::new());
        for message in Message::parse_stream(output) {
            match told(message?)? {
                Told::Test(program) if packages.is_some_and(|named| !named.contains(program.package.as_str())) => {}
                Told::Test(program) if program.runs_another && !there.contains(&program.folder) => held.push(program),
                Told::Test(program) => begin(program)?,
                Told::Binary(folder) => {
                    let ready = held.extract_if(.., |program| program.folder == folder).collect::<Vec<_>>();
                    ready.into_iter().try_for_each(begin)?;
                    there.insert(folder);
                }
                Told::Other => {}
            }
        }
        let built = building.wait()?.success();
        held.into_iter().try_for_each(begin)?;
        drop(queue);
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
        }
        Ok(built)
    })?;
    Ok(built && !failed.into_inner())
}

/// What a message of cargo's tells of.
fn told(message: Message) -> Result<Told> {
    let Message::CompilerArtifact(artifact) = message else { return Ok(Told::Other) };
    let Some(path) = artifact.executable else { return Ok(Told::Other) };
    let folder: PathBuf = artifact.manifest_path.parent().context("a manifest lies in a folder")?.into();
    let (is_program, is_test) = (artifact.target.is_bin(), artifact.target.is_test());
    if !artifact.profile.test {
        return Ok(if is_program { Told::Binary(folder) } else { Told::Other });
    }
    let package = package(&std::fs::read_to_string(&artifact.manifest_path)?)?;
    let runs_another = is_test && folder.join("src/main.rs").exists();
    Ok(Told::Test(Program { package, target: artifact.target.name, folder, path: path.into(), runs_another }))
}

/// Runs a program to its end. Prints the result, and after a failure all of its output.
fn passes(program: &Program, environment: &[(&str, &str)]) -> Result<bool> {
    let Program { package, target, folder, path, .. } = program;
    let begin = Instant::now();
    let mut test = Command::new(path);
    test.envs(environment.iter().copied());
    let output = test.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).stdin(Stdio::null()).output();
    let output = output.with_context(|| path.display().to_string())?;
    let seconds = begin.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        println!("-- {package}: {target}: {} in {seconds:.1} s", passed(&said));
        return Ok(true);
    }
    let again = format!("again: cargo test -p {package} --test {target} (or --lib, --bin)");
    println!("{said}{}\n-- {package}: {target} FAILED; {again}", String::from_utf8_lossy(&output.stderr));
    Ok(false)
}

/// `12 passed`, as the harness prints it at the end.
fn passed(said: &str) -> &str {
    let line = said.lines().rev().find_map(|line| line.strip_prefix("test result: ok. "));
    line.and_then(|line| line.split(';').next()).unwrap_or("passed")
}

/// The name in a manifest.
fn package(manifest: &str) -> Result<String> {
    let table: toml::Table = manifest.parse()?;
    let name = table.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    name.map(str::to_owned).context("a package has a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_the_number_of_tests() {
        let said =
            "running 2 tests\ntest a ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; finished in 0.1s\n\n";
        assert_eq!(passed(said), "2 passed");
        assert_eq!(passed("nothing of the kind"), "passed");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_fails_fails() {
        let of = |path: &str| Program {
            package: "none".into(),
            target: "none".into(),
            folder: std::env::temp_dir(),
            path: path.into(),
            runs_another: false,
        };
        assert!(passes(&of("true"), &[]).expect("a program") && !passes(&of("false"), &[]).expect("a program"));
        assert!(passes(&of("/no/such/program"), &[]).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_program_gets_the_environment() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("spandrel-xtask-environment-{}", std::process::id()));
        std::fs::write(&path, "#!/bin/sh\n[ \"$SPANDREL_SUITE\" = whole ]\n").expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let (package, target, folder) = ("none".into(), "none".into(), std::env::temp_dir());
        let program = Program { package, target, folder, path: path.clone(), runs_another: false };
        let found = [&[("SPANDREL_SUITE", "whole")][..], &[("SPANDREL_SUITE", "other")]]
            .map(|environment| passes(&program, environment).expect("a program"));
        std::fs::remove_file(path).expect("removed");
        assert_eq!(found, [true, false]);
    }

    #[test]
    fn tests_of_a_program_wait_for_it() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let message = |kind: &str, is_test: bool| {
            let profile = format!(
                r#"{{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":{is_test}}}"#
            );
            let target = format!(
                r#"{{"kind":["{kind}"],"crate_types":["bin"],"name":"some","src_path":"/a.rs","edition":"2021"}}"#
            );
            let text = format!(
                r#"{{"reason":"compiler-artifact","package_id":"xtask","manifest_path":"{manifest}","target":{target},"profile":{profile},"features":[],"filenames":[],"executable":"/a","fresh":false}}"#
            );
            told(serde_json::from_str(&text).expect("a message of cargo's")).expect("a manifest")
        };
        assert!(matches!(message("test", true), Told::Test(Program { runs_another: true, .. })));
        assert!(matches!(message("bin", true), Told::Test(Program { runs_another: false, .. })));
        let Told::Binary(folder) = message("bin", false) else { panic!("a program is built") };
        assert_eq!(folder, std::path::Path::new(env!("CARGO_MANIFEST_DIR")));
        assert!(matches!(message("example", false), Told::Other));
    }

    #[test]
    fn a_manifest_names_its_package() {
        assert_eq!(package("[package]\nname = \"spandrel\"\n").expect("a name"), "spandrel");
        assert!(package("[workspace]\n").is_err());
    }
}
