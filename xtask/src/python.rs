//! `cargo xtask python`: builds the Python package, installs it into a clean virtual environment and tests it there.
//!
//! Everything is in `target/python`: `tools` is an environment with the builder, `wheels` has pip's downloads, `dist`
//! the package, `clean` the environment that a user would have. Tools and downloads are kept until
//! `crates/python/requirements.txt` or the interpreter changes. The package is built in the profile and the folder of
//! the program, but shares little with it: features that pyo3's macros need make most crates other ones.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use sha2::{Digest, Sha256};

/// The oldest Python that the package runs on.
const OLDEST: (u32, u32) = (3, 10);

/// The largest size of the package in bytes.
const LARGEST: u64 = 20_000_000;

/// How pytest runs the whole suite: a process for each core, but not so many that they fill the memory. Most of a long
/// test is SciPy's factorisation, on one thread.
const TOGETHER: [&str; 4] = ["--numprocesses=auto", "--maxprocesses=4", "--dist", "worksteal"];

const REQUIREMENTS: &str = "crates/python/requirements.txt";
const MANIFEST: &str = "crates/python/Cargo.toml";

/// The options of `cargo xtask python`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The interpreter
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Build the package and stop
    #[arg(long)]
    build_only: bool,
    /// Write docs/guide/python-reference.md from the package
    #[arg(long)]
    write_reference: bool,
    /// Arguments of pytest, instead of the whole suite: `-- tests/test_solver.py -k pickling`
    #[arg(last = true)]
    pytest: Vec<OsString>,
}

impl Default for Options {
    fn default() -> Self {
        Self { python: "python3".into(), build_only: false, write_reference: false, pytest: Vec::new() }
    }
}

/// As [`run`], for CI, which continues if there is no suitable Python.
///
/// # Errors
/// As [`run`].
pub(crate) fn ci(root: &Path) -> Result<bool> {
    let options = Options::default();
    match interpreter(&options.python) {
        Err(why) => {
            println!("skipped: {why:#}");
            Ok(true)
        }
        Ok(_) => Ok(run(root, &options)? == ExitCode::SUCCESS),
    }
}

/// Builds, installs and tests. Stops at the first failure.
///
/// # Errors
/// No interpreter that can make virtual environments; a command that cannot be started; packages that pip cannot get.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let version = interpreter(&options.python)?;
    let metadata = MetadataCommand::new().manifest_path(root.join("Cargo.toml")).no_deps().exec()?;
    let folder = metadata.target_directory.into_std_path_buf().join("python");
    let tools = prepare(root, &folder, &options.python, &version)?;

    let dist = folder.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist)?;
    }
    let mut build = Command::new(bin(&tools, "maturin"));
    build.args(["build", "--release", "--quiet", "--manifest-path", MANIFEST, "--out"]).arg(&dist);
    build.arg("--interpreter").arg(bin(&tools, "python"));
    if !passes(root, &mut build)? {
        return Ok(ExitCode::FAILURE);
    }
    let wheel = the_only_file(&dist)?;
    if !fits(&wheel, fs::metadata(&wheel)?.len()) {
        return Ok(ExitCode::FAILURE);
    }
    if options.build_only {
        return Ok(ExitCode::SUCCESS);
    }

    let clean = folder.join("clean");
    environment(root, &options.python, &clean)?;
    let clean_python = bin(&clean, "python");
    let mut install = pip(&clean_python);
    install.args(["install", "--no-index", "--find-links"]).arg(folder.join("wheels")).arg(&wheel);
    install.args(["-r", REQUIREMENTS]);
    expect(root, &mut install, "pip could not install the package")?;
    if options.write_reference {
        let written = passes(root, Command::new(&clean_python).arg("crates/python/docs/reference.py"))?;
        return Ok(if written { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }

    let python = root.join("crates/python");
    let mut pytest = Command::new(&clean_python);
    pytest.args(["-m", "pytest", "--durations=5"]).args(&options.pytest);
    if options.pytest.is_empty() {
        pytest.args(TOGETHER);
    }
    let mut checks = vec![pytest];
    if options.pytest.is_empty() {
        for arguments in [
            &["-m", "mypy"][..],
            &["-m", "mypy", "--strict", "tests/typed.py"],
            &["-m", "mypy.stubtest", "spandrel_sparse", "--concise", "--mypy-config-file", "pyproject.toml"],
        ] {
            let mut check = Command::new(&clean_python);
            check.args(arguments);
            checks.push(check);
        }
    }
    for check in &mut checks {
        if !passes(&python, check)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes the interpreter, if it can make virtual environments for the package.
fn interpreter(python: &Path) -> Result<String> {
    let code = "import ensurepip, sys, venv; print(sys.version.replace('\\n', ' '))";
    let output = Command::new(python).args(["-c", code]).output();
    let output = output.with_context(|| format!("there is no {}", python.display()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().last().unwrap_or_default();
        bail!("{} cannot make virtual environments: {why}; on Debian install python3-venv", python.display());
    }
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match numbers(&version) {
        Some(found) if found >= OLDEST => Ok(version),
        _ => {
            bail!("{} is Python {version}, and the package needs {}.{} or newer", python.display(), OLDEST.0, OLDEST.1)
        }
    }
}

/// The first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '+', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The environment with the tools, and the downloads for the clean one. They are made again only if the requirements or
/// the interpreter have changed.
fn prepare(root: &Path, folder: &Path, python: &Path, version: &str) -> Result<PathBuf> {
    let tools = folder.join("tools");
    let requirements = fs::read(root.join(REQUIREMENTS)).with_context(|| format!("no {REQUIREMENTS}"))?;
    let stamp = format!("{:x}", Sha256::new().chain_update(version).chain_update(requirements).finalize());
    let kept = folder.join("stamp");
    if fs::read_to_string(&kept).is_ok_and(|kept| kept == stamp) {
        return Ok(tools);
    }
    environment(root, python, &tools)?;
    let wheels = folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let interpreter = bin(&tools, "python");
    let offline = "pip could not get what crates/python/requirements.txt lists; it needs the network once";
    expect(
        root,
        pip(&interpreter).args(["download", "--only-binary", ":all:", "-r", REQUIREMENTS, "-d"]).arg(&wheels),
        offline,
    )?;
    let mut install = pip(&interpreter);
    install.args(["install", "--no-index", "--find-links"]).arg(&wheels).args(["-r", REQUIREMENTS]);
    expect(root, &mut install, offline)?;
    fs::write(kept, stamp)?;
    Ok(tools)
}

/// A virtual environment with nothing but pip.
fn environment(root: &Path, python: &Path, folder: &Path) -> Result<()> {
    let mut make = Command::new(python);
    make.args(["-m", "venv", "--clear"]).arg(folder);
    expect(root, &mut make, "a virtual environment could not be made")
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// A program of an environment.
fn bin(environment: &Path, program: &str) -> PathBuf {
    if cfg!(windows) {
        environment.join("Scripts").join(format!("{program}.exe"))
    } else {
        environment.join("bin").join(program)
    }
}

/// Runs a command in a folder and returns whether it succeeded. Settings of another environment are not passed on.
fn passes(folder: &Path, command: &mut Command) -> Result<bool> {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    println!("$ {}", words.join(OsString::from(" ").as_os_str()).display());
    command.current_dir(folder).env_remove("PYTHONPATH").env_remove("PYTHONHOME").env_remove("VIRTUAL_ENV");
    let status = command.status().with_context(|| format!("{} cannot be started", command.get_program().display()))?;
    Ok(status.success())
}

/// # Errors
/// `otherwise` if the command fails.
fn expect(folder: &Path, command: &mut Command, otherwise: &str) -> Result<()> {
    if passes(folder, command)? { Ok(()) } else { bail!("{otherwise}") }
}

/// The only file in a folder.
fn the_only_file(folder: &Path) -> Result<PathBuf> {
    let files: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    match &files[..] {
        [file] => Ok(file.clone()),
        _ => bail!("{} has {} files, expected the package", folder.display(), files.len()),
    }
}

/// Whether a package of this many bytes is small enough. Prints the answer.
fn fits(wheel: &Path, bytes: u64) -> bool {
    let fits = bytes <= LARGEST;
    let verdict = if fits { "within" } else { "more than" };
    let name = wheel.file_name().unwrap_or_default().display();
    println!("{name} has {:.1} MB, {verdict} the {} MB that it may have", bytes as f64 / 1e6, LARGEST / 1_000_000);
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_interpreter_says() {
        assert_eq!(numbers("3.11.7 (main, Dec  8 2023) [GCC 12.2.0]"), Some((3, 11)));
        assert_eq!(numbers("3.15.0+ (heads/main)"), Some((3, 15)));
        assert_eq!(numbers("3.9.2"), Some((3, 9)));
        assert!(numbers("3.9.2") < Some(OLDEST) && numbers("3.10.0") >= Some(OLDEST) && numbers("").is_none());
    }

    #[test]
    fn what_is_no_interpreter_is_told() {
        let missing = interpreter(Path::new("no-such-python")).unwrap_err().to_string();
        assert_eq!(missing, "there is no no-such-python");
        let other = interpreter(Path::new("cargo")).unwrap_err().to_string();
        assert!(other.starts_with("cargo cannot make virtual environments: "), "{other}");
    }

    #[test]
    fn a_package_that_is_too_large_fails() {
        assert!(fits(Path::new("a.whl"), LARGEST) && !fits(Path::new("a.whl"), LARGEST + 1));
    }
}
